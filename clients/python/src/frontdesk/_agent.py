"""The agent: what it is told to do, what it can do, and when it sleeps."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
import mimetypes
import os
import secrets
import time
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from ._accounts import identity_token
from ._alarms import ALARM, CRON, Alarms, Fire, FireHandler, Job, fire_of, to_text
from ._cron import Cron, Every
from ._errors import Closed, FrontdeskError
from ._http import Http, segment
from ._link import Delivery, Link, upgrade_token
from ._message import FILE_MAX_BYTES, Chat, Message, Sent, message_of
from ._peers import EXCHANGE_TIME_S, PASSING, InboxMessage, Peers, Reply
from ._state import State, state_path
from ._turns import Turns, attempts

# Pauses between attempts to set an alarm.
ARM_PAUSES_S = (0.5, 2.0, 5.0, 15.0)
# Waiting messages arrive within this time after a connect, so the agent does not go to sleep before.
COMES_S = 5.0
# Fetching a file from its platform may take long.
FILE_TIME_S = 120.0
FILE_TOKEN_S = 300

MessageHandler = Callable[[Message], Awaitable[None]]
Work = Callable[[], Awaitable[None]]

log = logging.getLogger("frontdesk")


def _given(value: str | None, name: str) -> str:
    found = value or os.environ.get(name)
    if not found:
        raise FrontdeskError(f"{name} is not set: run `frontdesk gateway add` and put its id and secret into the environment", "bad_request")
    return found


def _agent_token(given: str | None) -> str:
    found = given or os.environ.get("FRONTDESK_AGENT_TOKEN")
    if not found:
        text = ("FRONTDESK_AGENT_TOKEN is not set: messages between agents need the token that "
                "`frontdesk token create --tenant TENANT --scope agents --instance NAME` prints")
        raise FrontdeskError(text, "unauthorized")
    return found


def _platforms() -> dict[str, str]:
    """Platforms and the bots on them, in the variables that gateways use."""
    names = os.environ.get("GATEWAY_RELAY_PLATFORMS") or "relay"
    try:
        bots = cast(dict[str, dict[str, str]], json.loads(os.environ.get("GATEWAY_RELAY_BOT_IDS") or "{}"))
        return {name: str(bots.get(name, {}).get("botId", "")) for name in map(str.strip, names.split(",")) if name}
    except (ValueError, AttributeError) as error:
        text = f"""GATEWAY_RELAY_BOT_IDS is not of the form {{"telegram": {{"botId": "my-bot"}}}}: {error}"""
        raise FrontdeskError(text, "bad_request") from error


async def _run(work: Work) -> None:
    await work()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)


class Agent:
    """An agent behind a Frontdesk server.

    Without arguments it reads GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET, GATEWAY_RELAY_PLATFORMS
    (comma-separated; default `relay`, the built-in chat) and GATEWAY_RELAY_BOT_IDS (`{"telegram": {"botId": "my-bot"}}`).
    `platforms` are names with the ids of their bots. `sleep_after`: `run` returns after so many seconds without work.

    Messages between agents need `agent_token` (FRONTDESK_AGENT_TOKEN), cron and alarms `identity_token`
    (FRONTDESK_IDENTITY_TOKEN). `name` is the agent's name at the server (GATEWAY_RELAY_INSTANCE_ID), if it is not the gateway's id.
    `state`: the file that remembers the place in the inbox.
    """

    def __init__(self, *, url: str | None = None, gateway_id: str | None = None, secret: str | None = None,
                 platforms: dict[str, str] | None = None, sleep_after: float | None = None, concurrency: int = 16,
                 name: str | None = None, agent_token: str | None = None, identity_token: str | None = None,
                 state: str | os.PathLike[str] | None = None) -> None:
        self._dial = (_given(url, "GATEWAY_RELAY_URL"), _given(gateway_id, "GATEWAY_RELAY_ID"),
                      _given(secret, "GATEWAY_RELAY_SECRET"))
        self._platforms = platforms or _platforms()
        self._sleep_after, self._concurrency = sleep_after, concurrency
        self._http = Http(self._dial[0])
        self.name = name or os.environ.get("GATEWAY_RELAY_INSTANCE_ID") or self._dial[1]
        self._identity = identity_token
        self._alarms = Alarms(self._http, self._identity_token)
        self._state = State(state_path(state, self._http.base, self.name))
        self._peers = Peers(self._http, self.name, lambda: _agent_token(agent_token), self._state)
        self._handler: MessageHandler | None = None
        self._alarm_handler: FireHandler | None = None
        self._jobs: dict[str, Job] = {}
        self._starts: list[Work] = []
        self._arming = 0
        self._failure: asyncio.Future[None] | None = None
        self._link: Link | None = None

    def _identity_token(self) -> str:
        return identity_token(self._identity)

    # ---- handlers --------------------------------------------------------------------------

    def on_message(self, handler: MessageHandler) -> MessageHandler:
        self._handler = handler
        return handler

    def on_start(self, work: Work) -> Work:
        """Runs beside the handlers, such as a loop over `inbox`. It is cancelled when the agent sleeps; if it fails, `run` does."""
        self._starts.append(work)
        return work

    def on_alarm(self, handler: FireHandler) -> FireHandler:
        """Sets the handler of alarms that `alarm` has set."""
        self._alarm_handler = handler
        return handler

    def cron(self, name: str, expression: str | None = None, *, tz: str = "UTC",
             every: float | None = None) -> Callable[[FireHandler], FireHandler]:
        """A job by a cron expression of five fields in a time zone, or every so many seconds. The server wakes the agent for it."""
        if (expression is None) == (every is None):
            raise FrontdeskError(f"the job {name!r} needs either a cron expression or every=SECONDS", "bad_request")
        schedule = Cron.parse(expression, tz) if expression is not None else Every.parse(every or 0)
        if schedule.next_after(_now()) is None:
            raise FrontdeskError(f"the job {name!r} would never run: {expression!r} has no next time", "bad_request")

        def declare(handler: FireHandler) -> FireHandler:
            if name in self._jobs:
                raise FrontdeskError(f"the job {name!r} is declared twice", "bad_request")
            self._jobs[name] = Job(schedule, handler)
            return handler

        return declare

    # ---- running ---------------------------------------------------------------------------

    def run(self) -> None:
        """Serves until the agent sleeps or is revoked. Ctrl-C ends it; unacked messages are delivered again."""
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self.serve())

    async def serve(self) -> None:
        if self._handler is None and not self._jobs and not self._starts:
            raise FrontdeskError("the agent has no handler: decorate one with @agent.on_message", "bad_request")
        _ = self._state.inbox  # fails now if the state file cannot be read, not in the middle of the work
        self._failure = asyncio.get_running_loop().create_future()
        link = self._link = Link(*self._dial, self._platforms)
        turns = Turns(self._concurrency, self._is_handled, self._handle, link.done, self._fail)
        link.take, link.interrupt = turns.take, turns.interrupt
        tasks = [asyncio.ensure_future(link.keep())]
        # Without a token no alarm can have been armed.
        if self._jobs or self._identity or os.environ.get("FRONTDESK_IDENTITY_TOKEN"):
            tasks.append(asyncio.ensure_future(self._arm_all()))
        tasks += [asyncio.ensure_future(_run(work)) for work in self._starts]
        idle = asyncio.ensure_future(self._idle(link, turns))
        try:
            while True:
                await asyncio.wait({*tasks, idle, self._failure}, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in tasks if task.done()]:
                    tasks.remove(task)
                    task.result()
                if self._failure.done():
                    self._failure.result()
                if idle.done():
                    if await link.go_idle():
                        if self._is_idle(link, turns):
                            return
                        await link.redial()  # something came in between, and the server keeps what follows
                    idle = asyncio.ensure_future(self._idle(link, turns))
        finally:
            for task in (*tasks, idle):
                task.cancel()
            await asyncio.gather(*tasks, idle, turns.close(), return_exceptions=True)
            self._link = None

    async def _idle(self, link: Link, turns: Turns) -> None:
        """Returns after `sleep_after` seconds without activity, unless the connection is new."""
        if self._sleep_after is None:
            await asyncio.Event().wait()
        wait_s = float(self._sleep_after or 0)
        while True:
            await link.up.wait()
            left_s = max(link.last_s + wait_s, link.up_s + min(wait_s, COMES_S)) - time.monotonic()
            if left_s <= 0 and self._is_idle(link, turns):
                return
            await asyncio.sleep(max(left_s, 0.05))

    def _is_idle(self, link: Link, turns: Turns) -> bool:
        return turns.are_over and not link.acting and not self._arming and not any(self._peers.readers.values())

    # ---- sending ---------------------------------------------------------------------------

    async def act(self, op: str, chat: Chat, *, metadata: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """Any action of the relay protocol. Returns its result."""
        if self._link is None:
            raise Closed()
        action: dict[str, Any] = {"op": op, "chat_id": chat.id, **{name: value for name, value in fields.items() if value is not None}}
        if chat.thread or metadata:
            action["metadata"] = {**({"thread_id": chat.thread} if chat.thread else {}), **(metadata or {})}
        return await self._link.act(action, chat.platform or None)

    def descriptor(self, chat: Chat) -> dict[str, Any]:
        """The descriptor of the platform of a chat, e.g. `supports_edit`. Empty before the first connection."""
        return self._link.descriptors.get(chat.platform, {}) if self._link is not None else {}

    async def send(self, chat: Chat | str, text: str, *, reply_to: str | None = None) -> Sent:
        """Sends a text. A chat id as text is a chat of the built-in chat."""
        where = Chat("relay", chat) if isinstance(chat, str) else chat
        # Without `notify`, a message in the thread of a question counts as progress, not as the answer.
        metadata = {"notify": True} if where.is_question else None
        result = await self.act("send", where, content=text, reply_to=reply_to, metadata=metadata)
        return Sent(self, where, result.get("message_id"))

    async def send_file(self, chat: Chat | str, file: str | os.PathLike[str] | bytes, *, filename: str | None = None,
                        mime: str | None = None, caption: str | None = None, reply_to: str | None = None,
                        max_bytes: int = FILE_MAX_BYTES) -> Sent:
        """Sends the file of a path, or bytes."""
        where = Chat("relay", chat) if isinstance(chat, str) else chat
        if isinstance(file, bytes):
            data = file
        else:
            filename = filename or Path(file).name
            if Path(file).stat().st_size > max_bytes:
                raise FrontdeskError(f"the file {filename} is larger than {max_bytes} bytes", "too_large")
            data = await asyncio.get_running_loop().run_in_executor(None, Path(file).read_bytes)
        mime = mime or mimetypes.guess_type(filename or "")[0] or "application/octet-stream"
        headers = {"Content-Type": mime, **({"X-Media-Filename": urllib.parse.quote(filename, safe="")} if filename else {})}
        raw = await self._http.call("POST", "/relay/media", self._upgrade_token(), data, headers, FILE_TIME_S)
        url = f"/relay/media/{json.loads(raw)['id']}"  # whatever address the server has for itself
        kind = mime.split("/")[0] if mime.split("/")[0] in ("image", "audio", "video") else "document"
        result = await self.act("send_media", where, media_kind=kind, source_url=url, content=caption, filename=filename,
                                reply_to=reply_to)
        return Sent(self, where, result.get("message_id"))

    async def read_file(self, url: str, *, max_bytes: int = FILE_MAX_BYTES) -> bytes:
        """A file that the server has. The token goes to the server's own address only, whatever the URL says."""
        _, found, ident = url.partition("/relay/media/")
        if not found:
            raise FrontdeskError("this is not a file of the server", "url_refused")
        return await self._http.call("GET", f"/relay/media/{segment(ident)}", self._upgrade_token(), timeout_s=FILE_TIME_S,
                                     max_bytes=max_bytes)

    def _upgrade_token(self) -> str:
        return upgrade_token(self._dial[1], self._dial[2], int(time.time()) + FILE_TOKEN_S)

    def new_prompt(self) -> str:
        return secrets.token_hex(8)

    # ---- other agents ----------------------------------------------------------------------

    async def deliver(self, name: str, text: str, *, event_type: str | None = None, correlation_id: str | None = None) -> dict[str, Any]:
        """Puts a message into the inbox of an agent. Returns the receipt of the server once it is stored."""
        return await self._peers.deliver(name, text, event_type, correlation_id)

    async def notify(self, address: str, text: str, *, event_type: str | None = None) -> dict[str, Any]:
        """As `deliver`; an address with an `@` wakes the agent too."""
        return await self._peers.notify(address, text, event_type)

    async def exchange(self, name: str, text: str, *, timeout: float = EXCHANGE_TIME_S) -> Reply:
        """Asks another agent and returns its answer."""
        return await self._peers.exchange(name, text, timeout)

    def inbox(self) -> AsyncGenerator[InboxMessage, None]:
        """Messages of other agents, from the saved position on. The position is saved when the next message is requested.

        While there is such a loop, `on_message` does not get them.
        """
        return self._peers.inbox()

    # ---- cron and alarms -------------------------------------------------------------------

    async def alarm(self, name: str, at: dt.datetime | dt.timedelta | float, payload: Any = None) -> None:
        """Runs the handler of `on_alarm` once, at a time or after so many seconds. The same name again replaces it.

        `payload` is kept in the state file, as JSON.
        """
        after = dt.timedelta(seconds=at) if isinstance(at, (int, float)) else at
        time_at = _now() + after if isinstance(after, dt.timedelta) else after
        if payload is not None:
            self._state.keep_payload(name, to_text(time_at), payload)
        await self._alarms.arm(ALARM + name, time_at)

    async def cancel_alarm(self, name: str) -> None:
        await self._alarms.cancel(ALARM + name)
        self._state.forget_payload(name)

    async def _arm_all(self) -> None:
        try:
            await self._arm(lambda: self._alarms.reconcile(self._jobs, _now()))
        except FrontdeskError as error:
            if self._jobs:
                raise
            log.info("alarms of removed jobs were not cancelled: %s", error)  # the token may be for other purposes

    async def _arm(self, arm: Work) -> None:
        """Retries until the server has accepted the alarm. The agent must not sleep before."""
        pauses = iter(ARM_PAUSES_S)
        self._arming += 1
        try:
            while True:
                try:
                    return await arm()
                except FrontdeskError as error:
                    if error.code not in PASSING:
                        raise
                    log.warning("setting an alarm failed, trying again: %s", error)
                await asyncio.sleep(next(pauses, ARM_PAUSES_S[-1]))
        finally:
            self._arming -= 1

    async def _fire(self, job_id: str, at: dt.datetime) -> bool:
        """Runs a due job. Its next alarm is armed before the ack, even if the handler fails."""
        if job_id.startswith(ALARM):
            name = job_id[len(ALARM):]
            handled = await attempts(self._alarm_handler, Fire(name, at, self._state.payload(name, to_text(at))), f"the alarm {name!r}")
            if handled:
                self._state.forget_payload(name, to_text(at))
            return handled
        name = job_id.removeprefix(CRON)
        job = self._jobs.get(name)
        if job is None:
            log.warning("the job %r is not declared any more; its alarm is dropped", name)
            return True
        arming = asyncio.ensure_future(self._arm(lambda: self._alarms.arm_next(name, job, max(at, _now()))))
        try:
            handled = await attempts(job.handler, Fire(name, at), f"the job {name!r}")
            await asyncio.shield(arming)
        except FrontdeskError as error:
            self._fail(error)  # otherwise the job would silently never run again
            return False
        finally:
            arming.cancel()
        return handled

    # ---- receiving -------------------------------------------------------------------------

    async def _is_handled(self, delivery: Delivery) -> bool:
        """Whether this delivery is the copy of an inbox message that a loop over the inbox has handled."""
        message: dict[str, Any] = (delivery.event or {}).get("delivery") or {}
        return bool(message) and await self._peers.is_handled(str(message.get("delivery_id")))

    async def _handle(self, delivery: Delivery) -> bool:
        if delivery.event is not None:
            try:
                message = message_of(self, delivery.event)
            except (KeyError, TypeError, ValueError):
                log.exception("a message of the server cannot be read; it is not acked")
                return False
            return await attempts(self._handler, message, f"a message in {message.chat}")
        fire = fire_of(delivery.forward or {})
        if fire is not None:
            return await self._fire(*fire)
        log.warning("a forwarded vendor request was not handled: this client does not support it; it is not acked")
        return False

    def _fail(self, error: BaseException) -> None:
        """Ends the agent with this error."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
