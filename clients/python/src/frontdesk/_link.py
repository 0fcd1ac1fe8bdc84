"""One connection to the server after another: frames, acks and results."""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import hashlib
import hmac
import json
import logging
import random
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from ._errors import Closed, FrontdeskError, Revoked
from ._wait import within

Json = dict[str, Any]

RESULT_TIME_S = 30.0
# For a connection that is being dialled.
UP_TIME_S = 20.0
IDLE_ACK_TIME_S = 10.0
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0
TOKEN_TTL_S = 300
FRAME_MAX_BYTES = 1 << 20
WORKING_EVERY_S = 5.0
# Ids of handled messages, to drop repetitions.
SEEN_MAX = 4096
UNAUTHORIZED = 4401
NO_SUCH_BOT = 4403
# Beginning of the close reason (code 1000) after another connection of the gateway took over.
REPLACED = "replaced"

log = logging.getLogger("frontdesk")


def upgrade_token(gateway_id: str, secret: str, expires_s: int) -> str:
    signed = f"{gateway_id}:{expires_s}"
    tag = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).hexdigest()
    return base64.urlsafe_b64encode(f"{signed}:{tag}".encode()).rstrip(b"=").decode()


def relay_url(url: str) -> str:
    trimmed = url.strip().rstrip("/")
    for scheme, instead in (("https://", "wss://"), ("http://", "ws://")):
        if trimmed.startswith(scheme):
            trimmed = instead + trimmed[len(scheme):]
    return trimmed if trimmed.endswith("/relay") else f"{trimmed}/relay"


def line_of(frame: Json) -> str:
    """The frame of an action. Raises FrontdeskError where the server would close the connection because of it."""
    line = json.dumps(frame, ensure_ascii=False) + "\n"
    try:
        size = len(line.encode())
    except UnicodeEncodeError as error:
        raise FrontdeskError(f"the action has a text that is not valid Unicode: {error.reason}", "bad_request") from error
    if size > FRAME_MAX_BYTES:
        raise FrontdeskError(f"the action is larger than {FRAME_MAX_BYTES} bytes", "too_large")
    return line


class Delivery:
    """A message or a forwarded request. The server delivers it again until it is acked."""

    def __init__(self, ident: str, event: Json | None, forward: Json | None) -> None:
        self.ident, self.event, self.forward = ident, event, forward


class Lines:
    """Splits messages into frames. A frame is a line: a message may have several, and a frame may span messages."""

    def __init__(self) -> None:
        self._rest = ""

    def push(self, text: str) -> Iterator[Json]:
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > FRAME_MAX_BYTES:
            raise FrontdeskError("the server sent a frame that is too long", "too_large")
        for line in lines:
            with contextlib.suppress(ValueError):
                frame: Any = json.loads(line)
                if isinstance(frame, dict):
                    yield cast(Json, frame)


class Link:
    """Connects and reconnects. `take` gets each delivery once, and `done` reports its result."""

    take: Callable[[Delivery], None]
    interrupt: Callable[[str], None]

    def __init__(self, url: str, gateway_id: str, secret: str, platforms: dict[str, str]) -> None:
        self.url, self.gateway_id, self.secret, self.platforms = relay_url(url), gateway_id, secret, platforms
        self.socket: ClientConnection | None = None
        self.waiting: dict[str, asyncio.Future[Json]] = {}
        # Number of actions without a result, including those that wait for a connection.
        self.acting = 0
        # Descriptors by platform, e.g. whether messages can be edited.
        self.descriptors: dict[str, Json] = {}
        self.idle_ack: asyncio.Future[None] | None = None
        self.up = asyncio.Event()
        self.was_replaced = False
        self.last_s = self.up_s = time.monotonic()
        # Deliveries in handlers, and since when. They may be repeated on the next connection.
        self.held: dict[str, float] = {}
        # Deliveries that failed finally. The server keeps them, and gives them up after some repetitions.
        self.given_up: set[str] = set()
        self.seen: collections.OrderedDict[str, None] = collections.OrderedDict()
        self.requests = secrets.randbits(32)

    async def keep(self) -> None:
        """Keeps a connection until the agent is revoked or this task is cancelled."""
        backoff = BACKOFF_FIRST_S
        while True:
            try:
                if await self._run():
                    backoff = BACKOFF_FIRST_S
            except Revoked:
                self._lost(Revoked())
                raise
            except InvalidURI as error:
                raise FrontdeskError(f"the URL of the server is not valid: {error}", "bad_request") from error
            except (OSError, ConnectionClosed, InvalidHandshake, asyncio.TimeoutError) as error:
                log.warning("no connection to the server: %s", error)
            await asyncio.sleep(backoff + random.random() * backoff / 4)
            backoff = min(backoff * 2, BACKOFF_MAX_S)

    async def _run(self) -> bool:
        """One connection. True resets the reconnect delay: it was up, and no other process with this gateway id took over."""
        was_up = False
        async with connect(self.url, additional_headers={"Authorization": f"Bearer {self.token()}"}, max_size=FRAME_MAX_BYTES * 4,
                           proxy=None) as socket:
            working = asyncio.ensure_future(self._tell_of_work(socket))
            try:
                for platform, bot in self.platforms.items():
                    await self._write(socket, {"type": "hello", "platform": platform, "botId": bot, "ready": True})
                lines = Lines()
                async for message in socket:
                    for frame in lines.push(message if isinstance(message, str) else message.decode()):
                        if frame.get("type") == "descriptor" and not was_up:
                            was_up = True
                            self.socket = socket
                            self.up_s = time.monotonic()
                            self.up.set()
                        await self._frame(socket, frame)
                if socket.close_code == 1000 and (socket.close_reason or "").startswith(REPLACED):
                    if not self.was_replaced:
                        log.error("another process uses the gateway id %s: the server closed this connection when that one connected. "
                                  "Both get messages; stop one of them, or give it a gateway of its own", self.gateway_id)
                    self.was_replaced = True
                    return False
            except ConnectionClosed as closed:
                code, reason = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")
                if code == UNAUTHORIZED and reason != "expired":
                    raise Revoked(f"the server does not accept this agent: {reason or 'unauthorized'}") from closed
                if code == NO_SUCH_BOT:
                    raise FrontdeskError(f"the server does not accept a platform of this agent: {reason}", "unknown_identity") from closed
                if not was_up:
                    raise
            finally:
                self.socket = None
                self.up.clear()
                working.cancel()
                await asyncio.wait({working})
        self.was_replaced = False
        return was_up

    async def _write(self, socket: ClientConnection, frame: Json) -> None:
        await socket.send(json.dumps(frame) + "\n")

    async def _frame(self, socket: ClientConnection, frame: Json) -> None:
        kind = frame.get("type")
        if kind in ("inbound", "passthrough_forward"):
            self.last_s = time.monotonic()
            ident = str(frame.get("bufferId") or "")
            if ident in self.seen:
                await self._write(socket, {"type": "inbound_ack", "bufferId": ident})
            elif ident not in self.held and ident not in self.given_up:
                self.held[ident] = self.last_s
                self.take(Delivery(ident, frame.get("event"), frame.get("forward")))
        elif kind == "descriptor":
            described: Json = frame.get("descriptor") or {}
            self.descriptors[str(described.get("platform") or "")] = described
        elif kind == "outbound_result":
            waiting = self.waiting.pop(str(frame.get("requestId")), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(cast(Json, frame["result"]))
        elif kind == "going_idle_ack":
            if self.idle_ack is not None and not self.idle_ack.done():
                self.idle_ack.set_result(None)
        elif kind == "interrupt_inbound":
            self.interrupt(str(frame.get("session_key") or ""))

    async def done(self, delivery: Delivery, handled: bool) -> None:
        self.last_s = time.monotonic()
        self.held.pop(delivery.ident, None)
        if not handled:
            if len(self.given_up) < SEEN_MAX:
                self.given_up.add(delivery.ident)
            return
        self.seen[delivery.ident] = None
        while len(self.seen) > SEEN_MAX:
            self.seen.popitem(last=False)
        if self.socket is not None:
            with contextlib.suppress(ConnectionClosed):  # it comes again, and is acked then
                await self._write(self.socket, {"type": "inbound_ack", "bufferId": delivery.ident})

    async def _tell_of_work(self, socket: ClientConnection) -> None:
        """Reports deliveries in progress, so that the server does not send them again."""
        while True:
            await asyncio.sleep(WORKING_EVERY_S)
            slow = [ident for ident, since_s in self.held.items() if time.monotonic() - since_s >= WORKING_EVERY_S / 2]
            if slow and self.socket is socket:
                with contextlib.suppress(ConnectionClosed):
                    await self._write(socket, {"type": "inbound_working", "bufferIds": slow})

    async def act(self, action: Json, platform: str | None = None) -> Json:
        """Sends an action and returns its result. Raises FrontdeskError."""
        self.acting += 1
        try:
            return await self._act(action, platform)
        finally:
            self.acting -= 1
            self.last_s = time.monotonic()

    async def _act(self, action: Json, platform: str | None) -> Json:
        self.requests += 1
        request_id = f"p{self.requests:x}"
        frame: Json = {"type": "outbound", "requestId": request_id, "action": action}
        if platform is not None:
            frame["platform"] = platform
        line = line_of(frame)
        with contextlib.suppress(asyncio.TimeoutError):
            await within(UP_TIME_S, self.up.wait())
        socket = self.socket
        if socket is None:
            raise Closed()
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self.waiting[request_id] = answer
        try:
            try:
                await socket.send(line)
            except ConnectionClosed as closed:
                raise FrontdeskError("the connection was lost while sending", "unknown", True) from closed
            # The result may come on the next connection.
            result = await within(RESULT_TIME_S, answer)
        except asyncio.TimeoutError:
            raise FrontdeskError("the server did not answer in time", "timeout", True) from None
        finally:
            self.waiting.pop(request_id, None)
        if not result.get("success"):
            raise FrontdeskError(str(result.get("error") or "refused"), str(result.get("code") or "unknown"),
                                 bool(result.get("ambiguous")))
        return result

    async def go_idle(self) -> bool:
        """Asks the server to keep messages from now on. True once it has confirmed."""
        if self.socket is None:
            return False
        self.idle_ack = asyncio.get_running_loop().create_future()
        try:
            await self._write(self.socket, {"type": "going_idle"})
            await within(IDLE_ACK_TIME_S, self.idle_ack)
        except (ConnectionClosed, asyncio.TimeoutError):
            return False
        return True

    async def redial(self) -> None:
        if self.socket is not None:
            await self.socket.close()

    def token(self) -> str:
        """For the server's routes for files."""
        return upgrade_token(self.gateway_id, self.secret, int(time.time()) + TOKEN_TTL_S)

    def _lost(self, error: Exception) -> None:
        for waiting in self.waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
