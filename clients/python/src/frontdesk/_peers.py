"""Messages between agents: deliver, notify, exchange, and the inbox."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
import os
import random
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from ._errors import FrontdeskError
from ._http import Http, Json, refusal, segment

EXCHANGE_TIME_S = 30.0
# The server closes an exchange first.
EXCHANGE_SLACK_S = 5.0
REPEAT_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
PAUSE_FIRST_S = 0.25
PAUSE_MAX_S = 15.0
# The server sends something at least every 15 s.
SILENCE_MAX_S = 60.0
EVENT_MAX_BYTES = 4 << 20
LATE_REPLY = "exchange.late_reply"
# A later attempt may succeed.
PASSING = ("unavailable", "unknown", "rate_limited", "timeout")

log = logging.getLogger("frontdesk")


class Place:
    """How far the inbox has been read, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> int:
        try:
            return int(json.loads(self._path.read_text())["inbox"])
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FrontdeskError(f"the state file {self._path} cannot be read ({error}); repair or delete it", "bad_request") from error

    def save(self, seq: int) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(json.dumps({"inbox": seq}))
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


@dataclass(frozen=True)
class Letter:
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
        """Answers an exchange. After its time is over the answer goes to the inbox of the asking agent."""
        if self.correlation_id is None:
            raise FrontdeskError("nobody waits for an answer to this letter: use deliver", "bad_request")
        await self.peers.answer(self.correlation_id, text)


class Peers:
    """The other agents of the tenant, and the inbox of this one."""

    def __init__(self, http: Http, name: str, token: Callable[[], str], place: Place) -> None:
        self._http, self._name, self._token, self._place = http, name, token, place

    async def _post(self, path: str, body: Json, timeout_s: float, is_repeatable: bool) -> Json:
        """Repeated where it did not arrive, and where the server recognises the repetition."""
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

    def _letter(self, text: str, event_type: str | None, correlation_id: str | None) -> Json:
        meta: Json = {"dispatch_id": str(uuid.uuid4()), "sent_at": int(time.time() * 1000), "origin": self._origin()}
        named = {"event_type": event_type, "correlation_id": correlation_id}
        return {"kind": "augment", "content": text, "meta": {**meta, **{name: value for name, value in named.items() if value}}}

    def _origin(self) -> Json:
        return {"trigger_kind": "agent", "caller_agent_id": self._name}

    async def deliver(self, name: str, text: str, event_type: str | None, correlation_id: str | None) -> Json:
        return await self._post(f"/agents/{segment(name)}/deliver", self._letter(text, event_type, correlation_id), 30.0, True)

    async def notify(self, address: str, text: str, event_type: str | None) -> Json:
        body: Json = {"agent": address, "message": text, "origin": self._origin()}
        if event_type:
            body["event_type"] = event_type
        return await self._post("/notify", body, 30.0, False)

    async def exchange(self, name: str, text: str, timeout_s: float) -> str:
        body = {**self._letter(text, None, str(uuid.uuid4())), "timeout_ms": int(timeout_s * 1000)}
        answer = await self._post(f"/agents/{segment(name)}/exchange", body, timeout_s + EXCHANGE_SLACK_S, True)
        return str(answer["content"])

    async def answer(self, correlation_id: str, text: str) -> None:
        body: Json = {"correlation_id": correlation_id, "content": text}
        await self._post(f"/agents/{segment(self._name)}/replies", body, 30.0, False)

    # ---- the inbox -------------------------------------------------------------------------

    async def inbox(self, busy: Callable[[bool], None]) -> AsyncGenerator[Letter, None]:
        """`busy` is told whether there is work. Before it has looked there may be some, so that the agent must not sleep."""
        seq, pause_s = self._place.load(), PAUSE_FIRST_S
        try:
            while True:
                busy(True)
                events = self._events(seq)
                try:
                    async for name, data in events:
                        pause_s = PAUSE_FIRST_S
                        if name == "ready":
                            # Below our place: the server was restored from a backup, and gives the same numbers again.
                            seq = min(seq, int(data.get("newest", seq)))
                        elif name == "message" and int(data["seq"]) > seq:
                            busy(True)
                            yield self._read(data)
                            seq = int(data["seq"])
                            self._place.save(seq)
                        busy(False)
                except FrontdeskError as error:
                    if error.code not in PASSING:
                        raise
                    log.info("the inbox cannot be read, trying again: %s", error)
                finally:
                    await events.aclose()
                busy(True)
                await asyncio.sleep(pause_s * (1 + random.random() / 4))
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
        finally:
            busy(False)

    def _read(self, data: Json) -> Letter:
        meta: Json = data.get("meta") or {}
        origin: Json = meta.get("origin") or {}
        at = dt.datetime.fromtimestamp(int(data["at"]) / 1000, dt.timezone.utc)
        return Letter(self, str(data["text"]), str(data["delivery_id"]), int(data["seq"]), origin.get("caller_agent_id"),
                      str(data["type"]), meta.get("event_type"), meta.get("correlation_id"), at, data)

    async def _events(self, after: int) -> AsyncGenerator[tuple[str, Json], None]:
        """One stream of server-sent events."""
        path = f"/v1/agents/{segment(self._name)}/inbox/stream?after={after}"
        named = {"Accept": "text/event-stream", "X-Agent-Id": self._name}
        async with self._http.open("GET", path, self._token(), headers=named) as response:
            if response.status != 200:
                raise refusal(response.status, await response.body(EVENT_MAX_BYTES))
            chunks, rest = response.chunks(), b""
            name, data = "", ""
            while True:
                try:
                    rest += await asyncio.wait_for(chunks.__anext__(), SILENCE_MAX_S)
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


def state_path(given: str | os.PathLike[str] | None, base: str, name: str) -> Path:
    """Two agents, or one at two servers, have different files."""
    if given is not None:
        return Path(given)
    root = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    ident = uuid.uuid5(uuid.NAMESPACE_URL, f"{base}/agents/{name}")
    return Path(root) / "frontdesk" / f"{''.join(c if c.isalnum() or c in '-_' else '_' for c in name)[:40]}-{ident.hex[:8]}.json"
