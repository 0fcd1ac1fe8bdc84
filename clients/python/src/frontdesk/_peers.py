"""Messages between agents: deliver, notify, exchange, and the inbox."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
import random
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from ._errors import FrontdeskError
from ._http import ANSWER_TIME_S, Http, Json, refusal, segment
from ._state import State
from ._wait import within

EXCHANGE_TIME_S = 30.0
# Added to the time limit of an exchange, so that the server ends it first.
EXCHANGE_SLACK_S = 5.0
REPEAT_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
PAUSE_FIRST_S = 0.25
PAUSE_MAX_S = 15.0
# The server sends something at least every 15 s.
SILENCE_MAX_S = 60.0
EVENT_MAX_BYTES = 4 << 20
# How long the copy of a message on the socket waits for the inbox, which normally has it before.
COPY_TIME_S = 30.0
LATE_REPLY = "exchange.late_reply"
# Error codes for which a later attempt may succeed.
PASSING = ("unavailable", "unknown", "rate_limited", "timeout")

log = logging.getLogger("frontdesk")


def _time(unix_ms: Any) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(unix_ms) / 1000, dt.timezone.utc)


@dataclass(frozen=True)
class Reply:
    """The answer of another agent."""

    text: str
    agent: str
    at: dt.datetime


@dataclass(frozen=True)
class InboxMessage:
    """A message in the inbox."""

    peers: Peers = field(repr=False, compare=False)
    text: str
    id: str
    seq: int
    sender: str | None
    kind: str
    event_type: str | None
    correlation_id: str | None
    at: dt.datetime
    raw: Json = field(repr=False, compare=False)

    @property
    def expects_reply(self) -> bool:
        return self.correlation_id is not None and self.event_type != LATE_REPLY

    async def reply(self, text: str) -> None:
        """Answers an exchange. After its time limit the answer goes to the inbox of the asking agent."""
        if self.correlation_id is None:
            raise FrontdeskError("this message is not a question, so it cannot be answered: use deliver", "bad_request")
        await self.peers.answer(self.correlation_id, text)


class Peers:
    """The other agents of the tenant, and the inbox of this one."""

    def __init__(self, http: Http, name: str, token: Callable[[], str], state: State) -> None:
        self._http, self._name, self._token, self._state = http, name, token, state
        # Running loops over the inbox, and whether each is handling a message.
        self.readers: dict[object, bool] = {}
        self._moved = asyncio.Event()

    async def _post(self, path: str, body: Json, timeout_s: float, is_repeatable: bool) -> Json:
        """Retries if the request did not arrive, or if the server detects repetitions."""
        end_s = time.monotonic() + timeout_s
        for pause_s in (*REPEAT_PAUSES_S, None):
            try:
                left_s = max(end_s - time.monotonic(), 1.0)
                return await self._http.json("POST", f"/v1{path}", self._token(), body, {"X-Agent-Id": self._name}, left_s)
            except FrontdeskError as error:
                is_lost = error.code == "unavailable" or (is_repeatable and error.code == "unknown" and error.ambiguous)
                if pause_s is None or not is_lost or time.monotonic() + pause_s >= end_s:
                    raise
                await asyncio.sleep(pause_s)
        raise AssertionError

    def _body(self, text: str, event_type: str | None, correlation_id: str | None) -> Json:
        meta: Json = {"dispatch_id": str(uuid.uuid4()), "sent_at": int(time.time() * 1000), "origin": self._origin()}
        named = {"event_type": event_type, "correlation_id": correlation_id}
        return {"kind": "augment", "content": text, "meta": {**meta, **{name: value for name, value in named.items() if value}}}

    def _origin(self) -> Json:
        return {"trigger_kind": "agent", "caller_agent_id": self._name}

    async def deliver(self, name: str, text: str, event_type: str | None, correlation_id: str | None) -> Json:
        return await self._post(f"/agents/{segment(name)}/deliver", self._body(text, event_type, correlation_id), 30.0, True)

    async def notify(self, address: str, text: str, event_type: str | None) -> Json:
        body: Json = {"agent": address, "message": text, "origin": self._origin()}
        if event_type:
            body["event_type"] = event_type
        return await self._post("/notify", body, 30.0, False)

    async def exchange(self, name: str, text: str, timeout_s: float) -> Reply:
        body = {**self._body(text, None, str(uuid.uuid4())), "timeout_ms": int(timeout_s * 1000)}
        answer = await self._post(f"/agents/{segment(name)}/exchange", body, timeout_s + EXCHANGE_SLACK_S, True)
        return Reply(str(answer["content"]), str(answer["agent_id"]), _time(answer["sent_at"]))

    async def answer(self, correlation_id: str, text: str) -> None:
        body: Json = {"correlation_id": correlation_id, "content": text}
        await self._post(f"/agents/{segment(self._name)}/replies", body, 30.0, False)

    # ---- the inbox -------------------------------------------------------------------------

    async def inbox(self) -> AsyncGenerator[InboxMessage, None]:
        reader, pause_s = object(), PAUSE_FIRST_S
        try:
            while True:
                self._note(reader, True)  # before it has looked there may be something
                events = self._events(self._state.inbox)
                try:
                    async for name, data in events:
                        pause_s = PAUSE_FIRST_S
                        if name == "ready" and int(data.get("newest", self._state.inbox)) < self._state.inbox:
                            log.warning("the saved position is beyond the end of the inbox: the server was restored from an older backup")
                            self._state.handled(int(data["newest"]), "")
                        elif name == "message" and int(data["seq"]) > self._state.inbox:
                            self._note(reader, True)
                            message = self._read(data)
                            yield message
                            self._state.handled(message.seq, message.id)
                        self._note(reader, False)
                except FrontdeskError as error:
                    if error.code not in PASSING:
                        raise
                    log.info("reading the inbox failed, trying again: %s", error)
                finally:
                    await events.aclose()
                self._note(reader, True)
                await asyncio.sleep(pause_s * (1 + random.random() / 4))
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
        finally:
            self.readers.pop(reader, None)
            self._moved.set()

    def _note(self, reader: object, is_busy: bool) -> None:
        self.readers[reader] = is_busy
        self._moved.set()

    async def is_handled(self, message: str) -> bool:
        """Called for the copy of an inbox message on the socket: waits until a loop over the inbox has handled the message.
        False: no loop is running, or the inbox no longer has the message."""
        end_s = time.monotonic() + COPY_TIME_S
        while self.readers and not self._state.has_handled(message):
            if any(self.readers.values()):
                end_s = time.monotonic() + COPY_TIME_S
            elif time.monotonic() > end_s:
                return False
            self._moved.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await within(COPY_TIME_S, self._moved.wait())
        return self._state.has_handled(message)

    def _read(self, data: Json) -> InboxMessage:
        meta: Json = data.get("meta") or {}
        origin: Json = meta.get("origin") or {}
        return InboxMessage(self, str(data["text"]), str(data["delivery_id"]), int(data["seq"]), origin.get("caller_agent_id"),
                      str(data["type"]), meta.get("event_type"), meta.get("correlation_id"), _time(data["at"]), data)

    async def _events(self, after: int) -> AsyncGenerator[tuple[str, Json], None]:
        """One stream of server-sent events."""
        path = f"/v1/agents/{segment(self._name)}/inbox/stream?after={after}"
        named = {"Accept": "text/event-stream", "X-Agent-Id": self._name}
        async with self._http.open("GET", path, self._token(), headers=named, head_time_s=ANSWER_TIME_S) as response:
            if response.status != 200:
                raise refusal(response.status, await response.body(EVENT_MAX_BYTES))
            chunks, rest = response.chunks(), b""
            name, data = "", ""
            while True:
                try:
                    rest += await within(SILENCE_MAX_S, chunks.__anext__())
                except (StopAsyncIteration, asyncio.TimeoutError):
                    return
                *lines, rest = rest.split(b"\n")
                if len(rest) + len(data) > EVENT_MAX_BYTES:
                    raise FrontdeskError(f"a message of the inbox is larger than {EVENT_MAX_BYTES} bytes", "too_large")
                for line in map(bytes.decode, lines):
                    key, _, value = line.rstrip("\r").partition(":")
                    if key == "event":
                        name = value.strip()
                    elif key == "data":
                        data += value.removeprefix(" ")
                    elif not line.strip() and data:
                        yield name, cast(Json, json.loads(data))
                        name, data = "", ""

