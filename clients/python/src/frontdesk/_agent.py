"""The agent: handlers, one message at a time in each chat, and sleep."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from ._errors import Closed, FrontdeskError
from ._link import Delivery, Link
from ._message import Chat, Message, Sent, message_of

# Between the attempts of a handler that fails.
RETRY_PAUSES_S = (1.0, 5.0, 25.0)

MessageHandler = Callable[[Message], Awaitable[None]]

log = logging.getLogger("frontdesk")


def _given(value: str | None, name: str) -> str:
    found = value or os.environ.get(name)
    if not found:
        raise FrontdeskError(f"{name} is not set: run `frontdesk gateway add` and put its id and secret into the environment", "bad_request")
    return found


def _platforms() -> dict[str, str]:
    """Platforms and the bots on them, in the variables that gateways use."""
    names = os.environ.get("GATEWAY_RELAY_PLATFORMS") or "relay"
    bots = cast(dict[str, dict[str, str]], json.loads(os.environ.get("GATEWAY_RELAY_BOT_IDS") or "{}"))
    return {name: bots.get(name, {}).get("botId", "") for name in map(str.strip, names.split(",")) if name}


class Agent:
    """An agent behind a Frontdesk server.

    Without arguments it reads GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET, GATEWAY_RELAY_PLATFORMS
    (comma-separated; default `relay`, the built-in chat) and GATEWAY_RELAY_BOT_IDS (`{"telegram": {"botId": "my-bot"}}`).
    `platforms` are names with the ids of their bots. `sleep_after`: `run` returns after so many seconds without work.
    """

    def __init__(self, *, url: str | None = None, gateway_id: str | None = None, secret: str | None = None,
                 platforms: dict[str, str] | None = None, sleep_after: float | None = None, concurrency: int = 16) -> None:
        self._dial = (_given(url, "GATEWAY_RELAY_URL"), _given(gateway_id, "GATEWAY_RELAY_ID"),
                      _given(secret, "GATEWAY_RELAY_SECRET"))
        self._platforms = platforms or _platforms()
        self._sleep_after, self._room = sleep_after, asyncio.Semaphore(concurrency)
        self._handler: MessageHandler | None = None
        self._queues: dict[tuple[str, str, str | None], collections.deque[Delivery]] = {}
        self._running: dict[tuple[str, str, str | None], asyncio.Task[bool]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._link: Link | None = None

    def on_message(self, handler: MessageHandler) -> MessageHandler:
        self._handler = handler
        return handler

    def run(self) -> None:
        """Serves until the agent sleeps or is revoked. Ctrl-C ends it; what is not acked comes again."""
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self.serve())

    async def serve(self) -> None:
        if self._handler is None:
            raise FrontdeskError("the agent has no handler: decorate one with @agent.on_message", "bad_request")
        link = self._link = Link(*self._dial, self._platforms, self._take, self._interrupt)
        keeping = asyncio.ensure_future(link.keep())
        try:
            while True:
                idle = asyncio.ensure_future(self._asleep(link))
                await asyncio.wait({keeping, idle}, return_when=asyncio.FIRST_COMPLETED)
                if keeping.done():
                    idle.cancel()
                    keeping.result()
                # The server confirms before it keeps messages; what came in between is handled first.
                if await link.go_idle() and not self._queues:
                    return
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await keeping
            for task in [*self._running.values(), *self._workers]:
                task.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)

    async def _asleep(self, link: Link) -> None:
        """Returns once nothing has happened for `sleep_after` seconds."""
        if self._sleep_after is None:
            await asyncio.Event().wait()
        wait_s = float(self._sleep_after or 0)
        while True:
            await link.up.wait()
            left_s = link.last_s + wait_s - time.monotonic()
            if left_s <= 0 and not self._queues:
                return
            await asyncio.sleep(max(left_s, 0.05))

    # ---- sending ---------------------------------------------------------------------------

    async def act(self, op: str, chat: Chat, **fields: Any) -> dict[str, Any]:
        """Any action of the relay protocol. Returns its result."""
        if self._link is None:
            raise Closed()
        action: dict[str, Any] = {"op": op, "chat_id": chat.id, **{name: value for name, value in fields.items() if value is not None}}
        if chat.thread:
            action["metadata"] = {"thread_id": chat.thread}
        return await self._link.act(action, chat.platform or None)

    async def send(self, chat: Chat | str, text: str, *, reply_to: str | None = None) -> Sent:
        """A name of a chat alone is one of the built-in chat."""
        where = Chat("relay", chat) if isinstance(chat, str) else chat
        result = await self.act("send", where, content=text, reply_to=reply_to)
        return Sent(self, where, result.get("message_id"))

    def new_prompt(self) -> str:
        return secrets.token_hex(8)

    # ---- receiving -------------------------------------------------------------------------

    def _take(self, delivery: Delivery) -> None:
        source: dict[str, Any] = delivery.event.get("source") or {}
        key = (str(source.get("platform") or ""), str(source.get("chat_id") or ""), source.get("thread_id"))
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = collections.deque([delivery])
            worker = asyncio.ensure_future(self._work(key))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        else:
            queue.append(delivery)

    async def _work(self, key: tuple[str, str, str | None]) -> None:
        """The messages of one chat, one after another."""
        queue = self._queues[key]
        try:
            while queue:
                async with self._room:
                    delivery = queue[0]
                    handled = await self._handle(key, delivery)
                    queue.popleft()
                    if self._link is not None:
                        await self._link.done(delivery, handled)
        finally:
            del self._queues[key]

    async def _handle(self, key: tuple[str, str, str | None], delivery: Delivery) -> bool:
        """Whether the message is to be acked."""
        assert self._handler is not None
        task = asyncio.ensure_future(self._try(self._handler, message_of(self, delivery.event)))
        self._running[key] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done():
                return True  # the user stopped it
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            raise
        finally:
            self._running.pop(key, None)

    @staticmethod
    async def _try(handler: MessageHandler, message: Message) -> bool:
        """Repeated where it fails. The messages behind it in the chat wait, so that their order stays."""
        for pause_s in (*RETRY_PAUSES_S, None):
            try:
                await handler(message)
                return True
            except Exception:
                if pause_s is None:
                    log.exception("the handler failed %d times; the server keeps the message", len(RETRY_PAUSES_S) + 1)
                    return False
                log.exception("the handler failed; the message is delivered again in %g s", pause_s)
                await asyncio.sleep(pause_s)
        return False

    def _interrupt(self, session_key: str, chat_id: str) -> None:
        """The user said /stop."""
        for (_, chat, _), task in list(self._running.items()):
            if chat == chat_id:
                task.cancel()
