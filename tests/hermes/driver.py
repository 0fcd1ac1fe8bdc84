"""One version of the real gateway's relay client, driven over a pipe.

Reads one JSON command per line on stdin: {"id": 1, "cmd": "open", ...} and
answers {"id": 1, "ok": true, "value": ...} or {"id": 1, "ok": false, "error": "..."}.
Events are reported as {"event": "inbound" | "interrupt", "name": ...}.
The version is the one that PYTHONPATH (else the environment) provides; nothing
of it is replaced, only watched: the adapter's message entry point records the
event instead of running an agent. With `native` it runs one of the gateway's own
adapters of a platform instead of the relay client.
"""

import asyncio
import dataclasses
import enum
import json
import logging
import os
import sys
import threading

# The imported packages may print, so the real stdout is kept for answers.
OUT = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
os.dup2(2, 1)
sys.stdout = sys.stderr

logging.basicConfig(level=logging.INFO, stream=sys.stderr,
                    format="%(asctime)s %(name)s %(levelname)s %(message)s")

import websockets  # noqa: E402

import gateway.relay as relay  # noqa: E402
from gateway.config import PlatformConfig  # noqa: E402
from gateway.relay import auth, ws_transport  # noqa: E402
from gateway.relay.adapter import RelayAdapter  # noqa: E402
from gateway.relay.descriptor import CONTRACT_VERSION, CapabilityDescriptor  # noqa: E402
from gateway.relay.ws_transport import WebSocketRelayTransport  # noqa: E402
from gateway.session import build_session_key  # noqa: E402

HAS_RECONNECT = hasattr(WebSocketRelayTransport, "go_idle")
LINKS = {}
_event_from_wire = ws_transport._event_from_wire


def event_with_wire(raw):
    """The wire has fields that this version does not read."""
    event = _event_from_wire(raw)
    event.wire = raw
    return event


ws_transport._event_from_wire = event_with_wire


def plain(value):
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return repr(value)


def tell(record):
    OUT.write(json.dumps(record) + "\n")


def seen(event):
    """What is told of a message, whichever adapter made it."""
    source = event.source
    return {
        "text": event.text,
        "message_type": event.message_type.value,
        "message_id": event.message_id,
        "reply_to_message_id": event.reply_to_message_id,
        "media_urls": event.media_urls,
        "channel_context": getattr(event, "channel_context", None),
        "command": event.get_command(),
        "command_args": event.get_command_args() if event.get_command() else None,
        "source": plain(source),
        "source_dict": plain(source.to_dict()),
        "session_key": build_session_key(source),
    }


class Link:
    """A RelayAdapter on its transport, with its entry points recorded."""

    def __init__(self, name, adapter, seen_before=0):
        self.name = name
        self.adapter = adapter
        self.transport = adapter._transport
        self.dials = 0
        self.fail_next = 0
        self.gate = asyncio.Event()
        self.gate.set()
        adapter.handle_message = self._on_message
        interrupt = adapter.on_interrupt

        async def on_interrupt(session_key, chat_id):
            tell({"event": "interrupt", "name": name, "session_key": session_key, "chat_id": chat_id})
            await interrupt(session_key, chat_id)

        adapter.on_interrupt = on_interrupt
        dial_name = "_dial_and_start" if hasattr(self.transport, "_dial_and_start") else "connect"
        dial = getattr(self.transport, dial_name)

        async def counted():
            self.dials += 1
            return await dial()

        setattr(self.transport, dial_name, counted)

    async def _on_message(self, event):
        tell({"event": "inbound", "name": self.name, **seen(event), "wire": getattr(event, "wire", None)})
        if self.fail_next:
            self.fail_next -= 1
            raise RuntimeError("the handler was told to fail")
        await self.gate.wait()

    def state(self):
        transport = self.transport
        ws = transport._ws
        supervisor = getattr(transport, "_supervisor", None)
        return {
            "descriptor": plain(self.adapter.descriptor),
            "max_message_length": self.adapter.MAX_MESSAGE_LENGTH,
            "auth_revoked": getattr(transport, "auth_revoked", None),
            "handshaked": transport._descriptor is not None,
            "fatal": getattr(self.adapter, "fatal_error_code", None),
            "close_code": None if ws is None else ws.close_code,
            "close_reason": None if ws is None else ws.close_reason,
            "connected": ws is not None and ws.close_code is None,
            "redialing": bool(supervisor and not supervisor.done()),
            "dials": self.dials,
        }


def placeholder(platform):
    return CapabilityDescriptor(
        contract_version=CONTRACT_VERSION, platform=platform, label="placeholder",
        max_message_length=77, supports_draft_streaming=False, supports_edit=False,
        supports_threads=False, markdown_dialect="placeholder", len_unit="chars")


async def connect(link):
    try:
        ok = await link.adapter.connect()
    except Exception as exc:  # a refused connection is a result here
        return {"connected": False, "error": f"{type(exc).__name__}: {exc}", "state": link.state()}
    return {"connected": bool(ok), "error": None, "state": link.state()}


async def cmd_open(name, url, platform="relay", bot_id="", identities=None, gateway_id=None,
                   secret=None, reconnect=False, backoff=0.2, handshake_timeout=10.0, hold=False):
    options = {"gateway_id": gateway_id, "upgrade_secret": secret, "connect_timeout_s": handshake_timeout}
    if HAS_RECONNECT:
        options["reconnect"] = reconnect
        options["reconnect_backoff_s"] = backoff
        if identities:
            options["identities"] = [tuple(i) for i in identities]
    transport = WebSocketRelayTransport(url, platform, bot_id, **options)
    link = Link(name, RelayAdapter(PlatformConfig(enabled=True), placeholder(platform), transport=transport))
    if hold:
        link.gate.clear()
    LINKS[name] = link
    return await connect(link)


async def cmd_boot(name):
    """The gateway's start: self-provision, register, build the adapter, connect."""
    provisioned = await asyncio.to_thread(relay.self_provision_relay)
    registered = relay.register_relay_adapter()
    from gateway.platform_registry import platform_registry

    entry = platform_registry.get("relay")
    link = Link(name, entry.adapter_factory(PlatformConfig(enabled=True)))
    LINKS[name] = link
    value = await connect(link)
    value.update(provisioned=provisioned, registered=registered,
                 gateway_id=os.environ.get("GATEWAY_RELAY_ID"),
                 secret=os.environ.get("GATEWAY_RELAY_SECRET"),
                 delivery_key=os.environ.get("GATEWAY_RELAY_DELIVERY_KEY"))
    return value


class Native:
    """The gateway's own adapter of a platform, with its message entry point recorded."""

    # Where the adapters keep messages that they will merge with the next ones.
    WAITING = ("_pending_text_batches", "_pending_photo_batches", "_pending_media_batches", "_media_group_events")

    def __init__(self, name, adapter):
        self.name = name
        self.adapter = adapter
        self.gate = asyncio.Event()
        adapter.handle_message = self._on_message

    async def _on_message(self, event):
        tell({"event": "inbound", "name": self.name, **seen(event), "reply_to_text": event.reply_to_text,
              "media_types": event.media_types})


async def cmd_native(name, platform, config, extra):
    """`config` and `extra` are what the gateway would read from its settings."""
    if platform == "whatsapp_cloud":
        # It is no plugin, and has no setting for other servers.
        from gateway.platforms import whatsapp_cloud as module
        module.GRAPH_API_BASE = extra.pop("base_url")
    elif platform == "wecom_callback":
        # It has no setting for other servers, either; nothing is sent by it.
        from plugins.platforms.wecom import callback_adapter as module
        module.WecomCallbackAdapter._refresh_access_token = lambda adapter, app: asyncio.sleep(0, "token")
    elif platform == "signal":
        from gateway.platforms import signal as module  # no plugin, either
    else:
        module = __import__(f"plugins.platforms.{platform}.adapter", fromlist=["adapter"])
    if platform == "discord":
        # The library has no setting for other servers.
        import discord
        import yarl
        discord.http.Route.BASE = extra.pop("base_url")
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(extra.pop("gateway_url"))
    if platform == "slack":
        # Neither has this one, where the adapter makes its clients.
        from slack_sdk.web.async_base_client import AsyncBaseClient
        base_url, made = extra.pop("base_url"), AsyncBaseClient.__init__
        AsyncBaseClient.__init__ = lambda client, *args, **named: made(client, *args, **{"base_url": base_url, **named})
    if platform == "feishu":
        # There are two names of servers, and no setting for others.
        module.FEISHU_DOMAIN = extra.pop("base_url")
    kinds = {"whatsapp_cloud": "WhatsAppCloudAdapter", "wecom": "WeComAdapter", "wecom_callback": "WecomCallbackAdapter"}
    kind = kinds.get(platform, f"{platform.capitalize()}Adapter")
    adapter = getattr(module, kind)(PlatformConfig(enabled=True, extra=extra, **config))
    LINKS[name] = Native(name, adapter)
    return {"connected": bool(await adapter.connect()), "error": adapter.fatal_error_message}


async def cmd_waiting(name):
    """How many messages a native adapter still holds back."""
    link = LINKS[name]
    return sum(len(getattr(link.adapter, kept, ())) for kept in link.WAITING)


async def cmd_adapter(name, method, args=(), kwargs=None):
    return plain(await getattr(LINKS[name].adapter, method)(*args, **(kwargs or {})))


async def cmd_transport(name, method, args=(), kwargs=None):
    return plain(await getattr(LINKS[name].transport, method)(*args, **(kwargs or {})))


async def cmd_state(name):
    return LINKS[name].state()


async def cmd_hold(name):
    LINKS[name].gate.clear()


async def cmd_release(name):
    LINKS[name].gate.set()


async def cmd_fail_next(name, times=1):
    LINKS[name].fail_next = times


async def cmd_close(name):
    link = LINKS.pop(name, None)
    if link is not None:
        link.gate.set()
        await link.adapter.disconnect()


async def cmd_abort(name):
    """Ends the connection without a close frame."""
    link = LINKS[name]
    link.transport._ws.transport.abort()


async def cmd_env(set=None, unset=()):  # noqa: A002
    for key in unset:
        os.environ.pop(key, None)
    os.environ.update(set or {})


async def cmd_token(gateway_id, secret, ttl=60, exp=None):
    if exp is None:
        return auth.make_upgrade_token(gateway_id, secret, ttl)
    import base64

    signed = f"{gateway_id}:{exp}"
    raw = f"{signed}:{auth.sign(signed, secret)}".encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


async def cmd_dial(url, token=None, hello=None, timeout=5.0):
    """A plain upgrade, to see the close code or status that the classes hide."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    try:
        ws = await websockets.connect(url, additional_headers=headers, open_timeout=timeout)
    except websockets.InvalidStatus as exc:
        return {"status": exc.response.status_code}
    frames = []
    try:
        if hello is not None:
            await ws.send(json.dumps(hello) + "\n")
        while True:
            frames.append(await asyncio.wait_for(ws.recv(), timeout))
            if hello is not None:
                break
    except websockets.ConnectionClosed:
        pass
    except asyncio.TimeoutError:
        frames.append("timeout")
    value = {"status": 101, "frames": frames, "code": ws.close_code, "reason": ws.close_reason}
    await ws.close()
    return value


async def cmd_provision(**kwargs):
    url = relay._provision_url(kwargs.pop("url"))
    try:
        return await asyncio.to_thread(lambda: relay._post_provision(provision_url=url, **kwargs))
    except RuntimeError as exc:
        return {"refused": str(exc)}


async def cmd_self_provision():
    return await asyncio.to_thread(relay.self_provision_relay)


async def cmd_post_policy(url, token, policy):
    return await asyncio.to_thread(
        lambda: relay._post_policy(policy_url=relay._policy_url(url), token=token, policy=policy))


async def cmd_send_policy():
    return await asyncio.to_thread(relay.send_relay_policy)


async def cmd_wire_policy(platform):
    return relay.relay_relevance_policy(platform)


async def run(command):
    ident = command.pop("id")
    handler = globals()["cmd_" + command.pop("cmd")]
    try:
        tell({"id": ident, "ok": True, "value": await handler(**command)})
    except Exception as exc:
        logging.exception("command failed")
        tell({"id": ident, "ok": False, "error": f"{type(exc).__name__}: {exc}"})


async def main():
    loop = asyncio.get_running_loop()
    finished = asyncio.Event()
    tasks = set()

    def start(line):
        task = loop.create_task(run(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(start, line)
        loop.call_soon_threadsafe(finished.set)

    threading.Thread(target=read, daemon=True).start()
    tell({"event": "ready", "file": relay.__file__})
    await finished.wait()
    os._exit(0)


asyncio.run(main())
