"""One message at a time in each chat, several chats at once."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ._alarms import fire_of
from ._link import Delivery
from ._session import session_key

# Between the attempts of a handler that fails.
RETRY_PAUSES_S = (1.0, 5.0, 25.0)

# Platform, chat and thread; for a job `cron` and its id.
Key = tuple[str, str, "str | None"]
Step = Callable[[Delivery], Awaitable[bool]]
T = TypeVar("T")

log = logging.getLogger("frontdesk")


def key_of(delivery: Delivery) -> Key:
    if delivery.event is None:
        fire = fire_of(delivery.forward or {})
        return ("cron", fire[0] if fire else "", None)
    source: dict[str, Any] = delivery.event.get("source") or {}
    return (str(source.get("platform") or ""), str(source.get("chat_id") or ""), source.get("thread_id"))


async def attempts(handler: Callable[[T], Awaitable[None]] | None, given: T, what: str) -> bool:
    """Whether the handler has returned. It is called again where it raises."""
    if handler is None:
        log.error("this agent has no handler for %s", what)
        return False
    for pause_s in (*RETRY_PAUSES_S, None):
        try:
            await handler(given)
            return True
        except Exception:
            if pause_s is None:
                log.exception("the handler failed %d times for %s; it is not acked", len(RETRY_PAUSES_S) + 1, what)
                return False
            log.exception("the handler failed for %s; it is called again in %g s", what, pause_s)
            await asyncio.sleep(pause_s)
    return False


class Turns:
    """`is_handled`: whether another part has handled it already. `handle` calls a handler: whether it is to be acked."""

    def __init__(self, concurrency: int, is_handled: Step, handle: Step, done: Callable[[Delivery, bool], Awaitable[None]],
                 fail: Callable[[BaseException], None]) -> None:
        self._room = asyncio.Semaphore(concurrency)
        self._is_handled, self._handle, self._done, self._fail = is_handled, handle, done, fail
        self._queues: dict[Key, collections.deque[Delivery]] = {}
        self._running: dict[Key, asyncio.Task[bool]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        # Interrupted by the user, perhaps before their handlers began.
        self._stopped: set[str] = set()
        self._is_closing = False

    @property
    def are_over(self) -> bool:
        return not self._queues

    def take(self, delivery: Delivery) -> None:
        key = key_of(delivery)
        if key in self._queues:
            self._queues[key].append(delivery)
            return
        self._queues[key] = collections.deque([delivery])
        worker = asyncio.ensure_future(self._work(key))
        self._workers.add(worker)
        worker.add_done_callback(self._worked)

    def interrupt(self, session: str) -> None:
        """The user said /stop: the handler that runs for this session is cancelled, and its message counts as handled."""
        for key, queue in self._queues.items():
            event = queue[0].event if queue else None
            if event is not None and session_key(event.get("source") or {}) == session:
                self._stopped.add(queue[0].ident)
                if key in self._running:
                    self._running[key].cancel()

    async def close(self) -> None:
        self._is_closing = True
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def _worked(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and (error := worker.exception()):
            self._fail(error)

    async def _work(self, key: Key) -> None:
        """One chat. What is behind a message waits while it is tried again, so that the order stays."""
        queue = self._queues[key]
        try:
            while queue:
                handled = await self._is_handled(queue[0])
                if not handled:
                    async with self._room:
                        handled = await self._run(key, queue[0])
                await self._done(queue.popleft(), handled)
        finally:
            del self._queues[key]

    async def _run(self, key: Key, delivery: Delivery) -> bool:
        task = self._running[key] = asyncio.ensure_future(self._handle(delivery))
        if delivery.ident in self._stopped:
            asyncio.get_running_loop().call_soon(task.cancel)  # after its first step, so that the handler can notice
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._is_closing:
                task.cancel()
                await asyncio.wait({task})
                raise
            if delivery.ident not in self._stopped:
                log.error("the handler for a delivery of %s ended with CancelledError, and nobody had interrupted it; it is not acked", key[1])
            return delivery.ident in self._stopped
        finally:
            self._stopped.discard(delivery.ident)
            self._running.pop(key, None)
