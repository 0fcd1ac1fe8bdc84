"""The relay API with the real gateway, hermes-agent 0.19.0, 0.18.2 and 0.17.0.

  FRONTDESK_BIN=path/to/frontdesk tests/hermes/run.py [--only PATTERN] [--quick] [--newest] [--version V ...]

Each version runs in separate processes, against servers that are started
here on free loopback ports. One line per check; the last line is the tally.
--only takes a regular expression that is matched with "VERSION NAME".
--quick skips the whole-gateway runs of the older versions.
With FRONTDESK_TEST_STORE=postgres each server has a schema in the Postgres at FRONTDESK_TEST_POSTGRES.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True

import harness
from harness import (NEWEST, VERSIONS, Desk, Driver, Failed, Identity, Link, Model, Wake, clean_up, end_process, ensure, folder,
                     gateway_env, same, start_process, unique, wait_for, write_login)

CHECKS = []
EGRESS = "{} egress declined: target is not an approved destination for this connection"


def check(*versions):
    """Registers a check for the given versions, or for all."""
    def register(function):
        CHECKS.append((function.__name__, versions or VERSIONS, function))
        return function
    return register


LATER = ("0.19.0", "0.18.2")


class Bench:
    """Passed to a check: the driver of one version, a server, and shortcuts."""

    def __init__(self, version, desk, driver):
        self.version = version
        self.desk = desk
        self.driver = driver
        self.old = version == "0.17.0"

    def provision(self, tenant, gateway=None, **more):
        gateway = gateway or unique("gw")
        options = dict(access_token=tenant.identity, gateway_id=gateway, platform="relay", bot_id="",
                       gateway_endpoint=None, route_keys=[])
        options.update(more)
        return self.driver.call("provision", url=self.desk.url, **options)

    def gateway(self, tenant, users=("ann",), **more):
        """Provisions a gateway and links these users to it."""
        made = self.provision(tenant, **more)
        ensure("secret" in made, f"provision was refused: {made}")
        for user in users:
            tenant.bind(user, more.get("instance_id") or made["gatewayId"])
        return made["gatewayId"], made["secret"]

    def dial(self, gateway, secret, **more):
        """Opens an adapter; returns the link and the result of connecting."""
        name = unique("link")
        result = self.driver.call("open", name=name, url=self.desk.url, gateway_id=gateway, secret=secret, **more)
        return Link(self.driver, name), result

    def open(self, gateway, secret, **more):
        link, result = self.dial(gateway, secret, **more)
        ensure(result["connected"], f"no handshake: {result['error']} {result['state']}")
        return link

    def settled(self, link, chat):
        """Returns when the server has read everything that the link sent, including acks."""
        link.act("get_chat_info", chat_id=chat)


# ── handshake and tokens ────────────────────────────────────────────────────

@check()
def handshake(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    state = link.state()
    descriptor = state["descriptor"]
    same(descriptor["contract_version"], 1, "contract_version")
    same(descriptor["platform"], "relay", "platform")
    same(descriptor["supports_edit"], True, "supports_edit")
    ensure(descriptor["label"] not in ("", "placeholder"), f"label {descriptor['label']!r}")
    ensure(descriptor["markdown_dialect"] != "placeholder", "the descriptor was not adopted")
    ensure(descriptor["len_unit"] in ("chars", "utf16"), f"len_unit {descriptor['len_unit']!r}")
    ensure(descriptor["max_message_length"] not in (0, 77), "max_message_length was not adopted")
    same(state["max_message_length"], descriptor["max_message_length"], "the adapter's limit")
    link.close()


@check()
def upgrade_tokens(b):
    tenant = b.desk.tenant()
    gateway, secret = b.gateway(tenant, gateway=unique("a:b:gw"))
    url = b.desk.url.replace("http", "ws", 1) + "/relay"
    hello = {"type": "hello", "platform": "relay", "botId": ""}
    now = int(time.time())

    def token(ident=gateway, key=secret, **more):
        return b.driver.call("token", gateway_id=ident, secret=key, **more)

    def refused(bearer, reason, what):
        seen = b.driver.call("dial", url=url, token=bearer, hello=hello)
        same((seen.get("status"), seen.get("code"), seen.get("reason"), seen.get("frames")), (101, 4401, reason, []), what)

    def taken(bearer, what):
        seen = b.driver.call("dial", url=url, token=bearer, hello=hello)
        ensure(seen.get("frames") and json.loads(seen["frames"][0])["type"] == "descriptor", f"{what}: {seen}")

    refused(None, "unauthorized", "no token")
    refused("garbage", "unauthorized", "a malformed token")
    refused(token(key="0" * 64), "unauthorized", "a wrong secret")
    refused(token(ident=unique("nobody")), "unauthorized", "an unknown gateway")
    refused(token(exp=now - 600), "expired", "a token that expired ten minutes ago")
    refused(token(key="0" * 64, exp=now - 600), "unauthorized", "an old token with a wrong secret")
    taken(token(), "a valid token of a gateway with colons in its id")
    taken(token(exp=0), "a token without expiry")
    taken(token(exp=now - 60), "a token within the clock skew")
    seen = b.driver.call("dial", url=url + "/other", token=token(), hello=hello)
    same(seen.get("status"), 400, "an upgrade on another path")


@check()
def bad_secret(b):
    tenant = b.desk.tenant()
    gateway, _ = b.gateway(tenant)
    link, result = b.dial(gateway, "f" * 64, reconnect=True, handshake_timeout=1.5)
    same(result["connected"], False, "connected")
    state = wait_for(lambda: (s := link.state())["close_code"] == 4401 and s, "close 4401")
    same(state["close_reason"], "unauthorized", "the close reason")
    if not b.old:
        same(state["auth_revoked"], False, "auth_revoked before any handshake")
        wait_for(lambda: link.state()["dials"] >= 2, "a second connection attempt after 4401 before a handshake")
    link.close()


@check()
def foreign_bot(b):
    tenant = b.desk.tenant()
    gateway, secret = b.gateway(tenant)
    link, result = b.dial(gateway, secret, platform="discord", bot_id="987654", handshake_timeout=1.5)
    same(result["connected"], False, "connected")
    state = wait_for(lambda: (s := link.state())["close_code"] is not None and s, "the close")
    same(state["close_code"], 4403, "the close code for a bot that the tenant does not have")
    ensure(state["close_reason"], "the close has no reason")
    same(state["handshaked"], False, "a descriptor came")
    link.close()


# ── messages both ways ──────────────────────────────────────────────────────

@check()
def echo(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    said = tenant.say("room", "hello there", user_name="Ann")
    event = link.inbound("hello there")
    same(event["message_type"], "text", "message_type")
    same(event["message_id"], said["message_id"], "message_id of the event")
    source = event["source"]
    wanted = {"platform": "relay", "chat_id": "room", "chat_type": "dm", "user_id": "ann", "user_name": "Ann", "thread_id": None,
              "message_id": said["message_id"]}
    same({key: source[key] for key in wanted}, wanted, "source")
    same(event["session_key"], "agent:main:relay:dm:room", "session key")
    sent = link.send("room", "hello yourself", reply_to=said["message_id"])
    ensure(sent["success"] and sent["message_id"], f"send: {sent}")
    first, second = tenant.history("room")
    same((first["direction"], first["text"], first["user_id"], first["message_id"]), ("in", "hello there", "ann", said["message_id"]), "history")
    same((second["direction"], second["text"], second["message_id"]), ("out", "hello yourself", sent["message_id"]), "history")
    ensure(second["seq"] > first["seq"], "seq does not grow")
    link.close()


@check()
def echo_in_a_scope(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    tenant.say("plaza", "in the channel", chat_type="channel", scope_id="guild-7")
    event = link.inbound("in the channel")
    source = event["source"]
    same(source["chat_type"], "channel", "chat_type")
    if b.old:
        same(source["guild_id"], "guild-7", "guild_id")
    else:
        same(source["scope_id"], "guild-7", "scope_id")
    same(event["session_key"], "agent:main:relay:channel:plaza:ann", "session key")
    sent = link.send("plaza", "channel reply")
    ensure(sent["success"], f"send: {sent}")
    tenant.answer("plaza", "channel reply")
    tenant.say("plaza", "in a thread", chat_type="channel", scope_id="guild-7", thread_id="topic-1")
    event = link.inbound("in a thread")
    same(event["source"]["thread_id"], "topic-1", "thread_id")
    same(event["session_key"], "agent:main:relay:channel:plaza:topic-1", "session key of the thread")
    sent = link.send("plaza", "thread reply", metadata={"thread_id": "topic-1"})
    ensure(sent["success"], f"send in the thread: {sent}")
    tenant.answer("plaza", "thread reply")
    link.close()


@check()
def any_text(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    for text in ("two\nlines\n", "quotes \" and \\ and \u2028 and \u0085", "👩‍👩‍👧 日本 עברית \U0001f9ea", "```\ncode\n```", "x" * 3000):
        tenant.say("room", text)
        link.inbound(text)
        sent = link.send("room", "back: " + text)
        ensure(sent["success"], f"send {text[:20]!r}: {sent}")
        ours = next(m for m in tenant.history("room") if m["message_id"] == sent["message_id"])
        same(ours["text"], "back: " + text, "the text in the chat")
    link.close()


@check()
def same_message_once(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    for _ in range(2):
        said = tenant.say("room", "said twice", message_id="m-1")
        same(said["message_id"], "m-1", "message_id")
    tenant.say("room", "after it")
    link.inbound("said twice")
    link.inbound("after it")
    link.close()


@check()
def unlinked_users_reach_no_agent(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    other = b.desk.tenant()
    other_link = b.open(*b.gateway(other))
    tenant.say("room", "from a stranger", user="mallory")
    other.say("room", "to the other tenant")
    other_link.inbound("to the other tenant")
    tenant.say("room", "from ann")
    link.inbound("from ann")
    other.say("room", "end")
    other_link.inbound("end")
    link.close()
    other_link.close()


@check()
def burst(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    # a gateway that has not acked yet gets at most one window of messages
    count = 30 if b.old else 150
    for number in range(count):
        tenant.say("room", f"number {number}")
    for number in range(count):
        link.inbound(f"number {number}")
    b.settled(link, "room")
    same(link.driver.left(link.name), [], "further messages")
    link.close()


@check()
def edit(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    tenant.say("room", "go")
    link.inbound("go")
    sent = link.send("room", "first wording")
    result = link.act("edit", chat_id="room", message_id=sent["message_id"], content="second wording")
    ensure(result.get("success"), f"edit: {result}")
    message = next(m for m in tenant.history("room") if m["message_id"] == sent["message_id"])
    same((message["text"], message["edited"]), ("second wording", True), "the edited message")
    result = link.act("edit", chat_id="room", message_id="no-such-message", content="x")
    same(result.get("success"), False, "edit of a missing message")
    ensure(result.get("error"), "a refusal without an error text")
    link.close()


@check()
def typing(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    tenant.say("room", "go")
    link.inbound("go")
    result = link.act("typing", chat_id="room")
    ensure(result.get("success"), f"typing: {result}")
    wait_for(lambda: tenant.look("room")["typing"] is True, "the typing state")
    link.close()


@check()
def chat_info(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    tenant.say("room", "go")
    link.inbound("go")
    info = link.adapter("get_chat_info", "room")
    same(info["type"], "dm", "type")
    ensure(info["name"], "the chat has no name")
    raw = link.act("get_chat_info", chat_id="room")
    ensure(isinstance(raw.get("chat_info"), dict), f"the result has no chat_info: {raw}")
    tenant.say("hall", "go too", chat_type="group")
    link.inbound("go too")
    same(link.adapter("get_chat_info", "hall")["type"], "group", "type of a group")
    link.close()


@check()
def unknown_op(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    tenant.say("room", "go")
    link.inbound("go")
    result = link.act("levitate", chat_id="room")
    same(result.get("success"), False, "success of an unknown op")
    ensure(result.get("error"), f"no error text: {result}")
    ensure(link.send("room", "still here")["success"], "the link no longer works")
    link.close()


@check()
def egress(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    other = b.desk.tenant()
    other_link = b.open(*b.gateway(other, users=("bob",)))
    other.say("secret-room", "mine", user="bob")
    other_link.inbound("mine")
    sent = link.send("nowhere", "anyone?")
    same((sent["success"], sent["error"]), (False, EGRESS.format("relay")), "a send to an unknown chat")
    wanted = {"success": False, "code": "egress_declined", "error": EGRESS.format("relay")}
    for op, fields in (("send", {"content": "x"}), ("edit", {"content": "x", "message_id": "1"}), ("typing", {}), ("get_chat_info", {})):
        for chat in ("nowhere", "secret-room"):
            result = link.act(op, chat_id=chat, **fields)
            same({key: result.get(key) for key in wanted}, wanted, f"{op} to {chat}")
        # naming a user or scope of another tenant gives no access
        if op == "send":
            result = link.act(op, chat_id="secret-room", content="x", metadata={"user_id": "bob"})
            same({key: result.get(key) for key in wanted}, wanted, "send with the name of a foreign user")
            result = link.act(op, chat_id="secret-room", content="x", metadata={"scope_id": "guild-x", "guild_id": "guild-x"})
            same({key: result.get(key) for key in wanted}, wanted, "send with the name of a foreign scope")
    same([m["text"] for m in other.history("secret-room")], ["mine"], "the other tenant's chat")
    link.close()
    other_link.close()


# ── commands, follow-up, interrupts ─────────────────────────────────────────

@check()
def follow_up(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    tenant.say("room", "/weather oslo")
    event = link.inbound("/weather oslo")
    same((event["message_type"], event["command"], event["command_args"]), ("command", "weather", "oslo"), "the command")
    key = event["session_key"]
    kind = "relay.interaction_token"

    foreign = b.desk.tenant()
    foreign_link = b.open(*b.gateway(foreign))
    action = {"op": "follow_up", "session_key": key, "kind": kind, "content": "not mine", "metadata": {}}
    stolen = foreign_link.transport("send_follow_up", action)
    absent_key = "agent:main:relay:dm:there-is-none"
    absent = foreign_link.transport("send_follow_up", {**action, "session_key": absent_key})
    same(stolen.get("success"), False, "a follow-up by another tenant")
    same(json.dumps(stolen, sort_keys=True).replace(key, absent_key), json.dumps(absent, sort_keys=True),
         "the results for a foreign and for an absent key")
    wrong_kind = link.transport("send_follow_up", {**action, "kind": "relay.other_token"})
    same(wrong_kind.get("success"), False, "a follow-up of another kind")

    done = link.adapter("send_follow_up", key, kind, "rain, 4 degrees")
    ensure(done["success"], f"follow-up: {done}")
    message = tenant.answer("room", "rain, 4 degrees")
    if done["message_id"]:
        same(done["message_id"], message["message_id"], "message_id of the follow-up")
    ensure(not any("not mine" in m["text"] for m in tenant.history("room")), "the foreign follow-up was sent")
    link.close()
    foreign_link.close()


@check()
def stop_typed(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    tenant.say("room", "a long task")
    first = link.inbound("a long task")
    tenant.say("hall", "another one", chat_type="group", scope_id="guild-1")
    second = link.inbound("another one")
    tenant.say("room", "/stop")
    seen = link.interrupt()
    same((seen["session_key"], seen["chat_id"]), (first["session_key"], "room"), "the interrupt")
    tenant.say("hall", "/stop", chat_type="group", scope_id="guild-1")
    seen = link.interrupt()
    same((seen["session_key"], seen["chat_id"]), (second["session_key"], "hall"), "the interrupt in a group")
    # the /stop is only an interrupt, not a message
    tenant.say("room", "next")
    link.inbound("next")
    # without a running turn it is an ordinary message
    tenant.say("quiet", "/stop")
    link.inbound("/stop")
    link.close()


@check(*LATER)
def stop_overtakes_the_queue(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant), hold=True)
    count = 80
    for number in range(count):
        tenant.say("room", f"number {number}")
    tenant.say("room", "/stop")
    b.driver.call("release", name=link.name)
    wait_for(lambda: len(b.driver.left(link.name)) == count and b.driver.left(link.name, "interrupt"), "all messages and the interrupt")
    with b.driver.lock:
        order = [r for r in b.driver.events if r.get("name") == link.name]
        b.driver.events = [r for r in b.driver.events if r.get("name") != link.name]
    same([r["text"] for r in order if r["event"] == "inbound"], [f"number {n}" for n in range(count)], "the messages")
    place = next(i for i, r in enumerate(order) if r["event"] == "interrupt")
    ensure(place < count, "the interrupt came after all queued messages")
    link.close()


@check()
def interrupt_by_gateway(b):
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    second = b.open(*b.gateway(tenant, users=("bob",)))
    foreign = b.desk.tenant()
    foreign_link = b.open(*b.gateway(foreign))
    tenant.say("room", "a long task")
    key = link.inbound("a long task")["session_key"]
    foreign_link.transport("send_interrupt", key, "not yours")
    foreign_link.act("get_chat_info", chat_id="room")
    same(b.driver.left(link.name, "interrupt"), [], "interrupts by another tenant")
    link.transport("send_interrupt", key, "stop")
    seen = link.interrupt()
    same((seen["session_key"], seen["chat_id"]), (key, "room"), "the interrupt")
    second.transport("send_interrupt", key)
    seen = link.interrupt()
    same((seen["session_key"], seen["chat_id"]), (key, "room"), "the interrupt by another instance")
    same(b.driver.left(link.name, "interrupt") + b.driver.left(second.name, "interrupt"), [], "further interrupts")
    for each in (link, second, foreign_link):
        each.close()


# ── durable delivery ───────────────────────────────────────────────────────

@check(*LATER)
def idle_and_drain(b):
    tenant = b.desk.tenant()
    creds = b.gateway(tenant)
    link = b.open(*creds)
    tenant.say("room", "before")
    link.inbound("before")
    began = time.monotonic()
    same(link.transport("go_idle"), True, "the ack of going_idle")
    ensure(time.monotonic() - began < 5, "the ack took long")
    tenant.say("room", "away 0")
    time.sleep(0.4)
    same(b.driver.left(link.name), [], "messages to an idle gateway")
    link.close()
    for number in range(1, 6):
        tenant.say("room", f"away {number}")
    link = b.open(*creds)
    for number in range(6):
        link.inbound(f"away {number}")
    b.settled(link, "room")
    link.close()
    tenant.say("room", "later")
    link = b.open(*creds)
    link.inbound("later")
    b.settled(link, "room")
    same(b.driver.left(link.name), [], "repeated messages")
    link.close()


@check()
def waits_for_the_gateway(b):
    tenant = b.desk.tenant()
    creds = b.gateway(tenant)
    for number in range(3):
        tenant.say("room", f"early {number}")
    link = b.open(*creds)
    for number in range(3):
        link.inbound(f"early {number}")
    link.close()


@check(*LATER)
def unacked_messages_are_sent_again(b):
    tenant = b.desk.tenant()
    creds = b.gateway(tenant)
    link = b.open(*creds, hold=True)
    tenant.say("room", "one")
    tenant.say("room", "two")
    link.inbound("one")
    b.driver.call("abort", name=link.name)
    again = b.open(*creds)
    again.inbound("one")
    again.inbound("two")
    b.settled(again, "room")
    same(b.driver.left(again.name), [], "further messages")
    again.close()
    link.close()


@check(*LATER)
def failed_handler(b):
    """A failing handler ends the client's reader; the client reconnects and leaves the old socket open."""
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant), reconnect=True)
    b.driver.call("fail_next", name=link.name)
    tenant.say("room", "fragile")
    link.inbound("fragile")
    link.inbound("fragile")
    tenant.say("room", "after")
    link.inbound("after")
    ensure(link.send("room", "fine")["success"], "send after the reconnect")
    same(link.state()["dials"], 2, "dials")
    link.close()


@check()
def takeover(b):
    tenant = b.desk.tenant()
    creds = b.gateway(tenant)
    first = b.open(*creds, hold=not b.old)
    tenant.say("room", "one")
    first.inbound("one")
    second = b.open(*creds)
    if not b.old:
        second.inbound("one")
        b.driver.call("release", name=first.name)
    state = wait_for(lambda: (s := first.state())["close_code"] is not None and s, "the close of the old socket")
    same(state["close_code"], 1000, "the close code of the old socket")
    tenant.say("room", "two")
    wait_for(lambda: [r for r in b.driver.left(second.name) if r["text"] == "two"], "the next message on the new socket")
    same(b.driver.left(first.name), [], "messages to the old socket")
    ensure(second.send("room", "from the new one")["success"], "send on the new socket")
    second.close()
    first.close()


@check("0.17.0")
def without_acks(b):
    """0.17 never acks: the socket must survive the ack limit (1.5 s here), and no message may be repeated on it."""
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant))
    for number in range(3):
        tenant.say("room", f"unacked {number}")
        link.inbound(f"unacked {number}")
        ensure(link.send("room", f"answer {number}")["success"], "send")
    time.sleep(5)
    state = link.state()
    same((state["connected"], state["close_code"]), (True, None), "the socket of a gateway that does not ack")
    tenant.say("room", "still there?")
    link.inbound("still there?")
    ensure(link.send("room", "yes")["success"], "send")
    same(b.driver.left(link.name), [], "repeated messages")
    link.close()


@check(*LATER)
def slow_handler(b):
    """A busy client acks late; it keeps its socket as long as it sends pongs."""
    tenant = b.desk.tenant()
    link = b.open(*b.gateway(tenant), hold=True)
    tenant.say("room", "think long")
    link.inbound("think long")
    time.sleep(5)
    same(link.state()["connected"], True, "the socket of a slow gateway")
    b.driver.call("release", name=link.name)
    tenant.say("room", "next")
    link.inbound("next")
    same(link.state()["dials"], 1, "dials")
    link.close()


@check()
def restart(b):
    """The server is restarted, then killed and started, with the same data folder."""
    tenant = b.desk.tenant()
    creds = b.gateway(tenant)
    link = b.open(*creds, reconnect=True)
    tenant.say("room", "taken")
    link.inbound("taken")
    b.settled(link, "room")
    if not b.old:
        b.driver.call("hold", name=link.name)
        tenant.say("room", "not yet taken")
        link.inbound("not yet taken")
    b.desk.restart()
    if b.old:
        link.close()
        tenant.say("room", "after the restart")
        link = b.open(*creds)
        wait_for(lambda: [r for r in b.driver.left(link.name) if r["text"] == "after the restart"], "the message after the restart")
    else:
        b.driver.call("release", name=link.name)
        link.inbound("not yet taken")
        tenant.say("room", "after the restart")
        link.inbound("after the restart")
        state = link.state()
        same((state["dials"], state["auth_revoked"]), (2, False), "dials, auth_revoked")
    ensure(link.send("room", "back again")["success"], "send after the restart")
    b.settled(link, "room")
    link.close()

    tenant.say("room", "before the kill")
    b.desk.restart(signal.SIGKILL)
    link = b.open(*creds)
    wait_for(lambda: [r for r in b.driver.left(link.name) if r["text"] == "before the kill"], "the message from before the kill")
    if not b.old:
        same([r["text"] for r in b.driver.left(link.name)], ["before the kill"], "messages after the kill")
    ensure("back again" in [m["text"] for m in tenant.history("room")], "the history was lost")
    link.close()


@check(*LATER)
def dormant_and_woken(b):
    """The gateway goes dormant and its process is stopped; the call of its wake URL continues it."""
    tenant = b.desk.tenant()
    wake = Wake(on_poke=lambda: os.killpg(b.driver.process.pid, signal.SIGCONT))
    gateway, secret = b.gateway(tenant, wake_url=wake.url, instance_id=unique("inst"))
    link = b.open(gateway, secret, reconnect=True)
    tenant.say("room", "awake")
    link.inbound("awake")
    same(wake.pokes, [], "wake calls while awake")
    same(link.adapter("go_dormant"), True, "the ack of going dormant")
    os.killpg(b.driver.process.pid, signal.SIGSTOP)
    try:
        tenant.say("room", "wake up")
        tenant.say("room", "and this")
        wait_for(lambda: wake.pokes, "the wake call", timeout=15)
    finally:
        os.killpg(b.driver.process.pid, signal.SIGCONT)
    link.inbound("wake up")
    link.inbound("and this")
    ensure(link.send("room", "I am up")["success"], "send after the wake")
    same(link.state()["dials"], 2, "dials")
    poke = wake.pokes[0]
    same(poke["path"], "/wake", "path of the wake call")
    lower = {key.lower(): value for key, value in poke["headers"].items()}
    ensure("authorization" not in lower and lower.get("content-length", "0") == "0", f"the wake call contains data: {lower}")
    same(len(wake.pokes), 1, "wake calls within the cooldown")
    link.close()
    wake.close()


# ── credentials ─────────────────────────────────────────────────────────────

@check()
def revoked(b):
    tenant = b.desk.tenant()
    gateway, secret = b.gateway(tenant)
    link = b.open(gateway, secret, reconnect=True)
    tenant.say("room", "go")
    link.inbound("go")
    b.desk.admin("POST", f"/gateways/{urllib.parse.quote(gateway, safe='')}/revoke", {})
    state = wait_for(lambda: (s := link.state())["close_code"] is not None and s, "the close", timeout=5)
    same((state["close_code"], state["close_reason"]), (4401, "unauthorized"), "the close")
    if not b.old:
        wait_for(lambda: link.state()["auth_revoked"], "auth_revoked")
        wait_for(lambda: link.state()["fatal"] == "relay_disabled", "the adapter's disabled state", timeout=5)
        state = link.state()
        same((state["dials"], state["redialing"]), (1, False), "dials, redialing")
    link.close()
    again, result = b.dial(gateway, secret, handshake_timeout=1.5)
    same(result["connected"], False, "a connection with the revoked secret")
    again.close()


@check()
def rotated(b):
    tenant = b.desk.tenant()
    gateway, secret = b.gateway(tenant)
    link = b.open(gateway, secret, reconnect=True)
    reply = b.desk.admin("POST", f"/gateways/{urllib.parse.quote(gateway, safe='')}/rotate", {})
    ensure(reply.get("secret") and reply["secret"] != secret and reply.get("overlap_until"), f"rotate: {reply}")
    tenant.say("room", "still on")
    link.inbound("still on")
    b.settled(link, "room")
    link.close()
    for key in (secret, reply["secret"]):
        link = b.open(gateway, key)
        tenant.say("room", "hello " + key[:4])
        wait_for(lambda: [r for r in b.driver.left(link.name) if r["text"] == "hello " + key[:4]], "a message")
        b.settled(link, "room")
        link.close()
    listed = json.dumps(b.desk.admin("GET", "/gateways"))
    ensure(gateway in listed, "the gateway is not in the list")
    ensure(secret not in listed and reply["secret"] not in listed, "the list shows a secret")


@check()
def provision(b):
    tenant = b.desk.tenant()
    bots = {"discord": unique("111"), "telegram": unique("222"), "relay": ""}
    for platform, ident in bots.items():
        if ident:
            tenant.bot(platform, ident)
    gateway = unique("gw")
    replies = [b.provision(tenant, gateway, platform=p, bot_id=i, route_keys=["r1"]) for p, i in bots.items()]
    for reply in replies:
        ensure(reply.get("secret"), f"provision: {reply}")
        same((reply["gatewayId"], reply["secret"]), (gateway, replies[0]["secret"]), "gateway, secret")
        ensure(reply["tenant"] in (tenant.name, tenant.id), f"tenant {reply['tenant']!r}")
        ensure(reply.get("deliveryKey") and isinstance(reply.get("routeKeys"), list), f"provision: {sorted(reply)}")
    link = b.open(gateway, replies[0]["secret"])
    link.close()

    def refused(reply, codes, what):
        text = reply.get("refused") or ""
        ensure(re.match(f"connector returned HTTP ({codes}): .", text), f"{what}: expected {codes} with a reason, saw {reply}")

    refused(b.provision(b.desk.tenant(), gateway), "403", "a gatewayId of another tenant")
    refused(b.provision(tenant, access_token="nonsense"), "401", "an invalid identity")
    refused(b.provision(tenant, access_token=tenant.chat_token), "401|403", "a token of another scope")
    reply = b.driver.call("provision", url=b.desk.url, access_token=tenant.identity, gateway_id="", platform="relay", bot_id="",
                          gateway_endpoint=None, route_keys=[])
    refused(reply, "400", "an empty gatewayId")
    if not b.old:
        bound = tenant.token("identity", instance="inst-a")
        refused(b.provision(tenant, access_token=bound, instance_id="inst-b"), "403", "an identity of another instance")
        ensure("secret" in b.provision(tenant, access_token=bound, instance_id="inst-a"), "an identity of this instance")


@check()
def boot(b):
    """The gateway's start with its login: self-provision, build the adapter, connect."""
    tenant = b.desk.tenant()
    write_login(b.driver.home, tenant.identity)
    gateway = unique("gw")
    env = {"GATEWAY_RELAY_URL": b.desk.url, "GATEWAY_RELAY_ID": gateway}
    if not b.old:
        discord, telegram = unique("111"), unique("222")
        tenant.bot("discord", discord)
        tenant.bot("telegram", telegram)
        env["GATEWAY_RELAY_PLATFORMS"] = "relay,discord,telegram"
        env["GATEWAY_RELAY_BOT_IDS"] = json.dumps({"discord": {"botId": discord}, "telegram": {"botId": telegram}})
        env["GATEWAY_RELAY_INSTANCE_ID"] = unique("inst")
    b.driver.call("env", set=env)
    try:
        link = Link(b.driver, unique("boot"))
        result = b.driver.call("boot", name=link.name)
        same((result["provisioned"], result["registered"], result["connected"]), (True, True, True), "provisioned, registered, connected")
        same(result["gateway_id"], gateway, "the gatewayId")
        tenant.bind("ann", env.get("GATEWAY_RELAY_INSTANCE_ID") or gateway)
        tenant.say("room", "hello")
        link.inbound("hello")
        ensure(link.send("room", "booted")["success"], "send")
        tenant.answer("room", "booted")
        link.close()
    finally:
        b.driver.call("env", unset=[*env, "GATEWAY_RELAY_SECRET", "GATEWAY_RELAY_DELIVERY_KEY"])
        (b.driver.home / "auth.json").unlink()


@check("0.19.0")
def boot_with_client_credentials(b):
    tenant = b.desk.tenant()
    identity = Identity(tenant.identity)
    env = {"GATEWAY_RELAY_URL": b.desk.url, "GATEWAY_RELAY_ID": unique("gw"), "GATEWAY_RELAY_IDP_TOKEN_URL": identity.url,
           "GATEWAY_RELAY_IDP_CLIENT_ID": "client", "GATEWAY_RELAY_IDP_CLIENT_SECRET": "secret"}
    b.driver.call("env", set=env)
    try:
        link = Link(b.driver, unique("boot"))
        result = b.driver.call("boot", name=link.name)
        same((result["provisioned"], result["connected"]), (True, True), "provisioned, connected")
        same(len(identity.grants), 1, "grants")
        link.close()
    finally:
        b.driver.call("env", unset=[*env, "GATEWAY_RELAY_SECRET", "GATEWAY_RELAY_DELIVERY_KEY"])
        identity.close()


def enroll_cli(b, token, login, gateway):
    home = folder("enroll")
    write_login(home, login)
    done = subprocess.run([sys.executable, "-m", "hermes_cli.main", "gateway", "enroll", "--token", token,
                           "--connector-url", b.desk.url, "--gateway-id", gateway],
                          env=gateway_env(b.version, home), cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    values = {}
    if (home / ".env").exists():
        for line in (home / ".env").read_text().splitlines():
            if "=" in line and not line.startswith("#"):
                key, value = line.split("=", 1)
                values[key.strip()] = value.strip().strip("'\"")
    return done.returncode, done.stdout + done.stderr, values


@check()
def enroll(b):
    tenant, other = b.desk.tenant(), b.desk.tenant()
    token, gateway = tenant.enrollment(), unique("gw")
    code, text, _ = enroll_cli(b, token, other.identity, gateway)
    same(code, 1, "exit code with the identity of another tenant")
    code, text, values = enroll_cli(b, token, tenant.identity, gateway)
    same(code, 0, f"exit code of the first enrolment ({text.strip()[-200:]})")
    ensure(f"for tenant {tenant.name}" in text or f"for tenant {tenant.id}" in text, f"the tenant is not shown: {text}")
    same(values.get("GATEWAY_RELAY_ID"), gateway, "the gatewayId")
    ensure(values.get("GATEWAY_RELAY_SECRET") and values.get("GATEWAY_RELAY_DELIVERY_KEY"), f"written: {sorted(values)}")
    tenant.bind("ann", gateway)
    link = b.open(gateway, values["GATEWAY_RELAY_SECRET"])
    tenant.say("room", "enrolled")
    link.inbound("enrolled")
    link.close()
    code, text, _ = enroll_cli(b, token, tenant.identity, unique("gw"))
    same(code, 1, "exit code with a used token")
    ensure("Enrollment failed: " in text and "HTTP" not in text, f"a used token should give 403 with a reason: {text}")
    code, text, _ = enroll_cli(b, tenant.enrollment(), "nonsense", unique("gw"))
    ensure(code == 1 and "(401)" in text, f"an invalid identity should give 401: {text}")


@check(*LATER)
def policy(b):
    tenant = b.desk.tenant()
    discord, telegram = unique("111"), unique("222")
    tenant.bot("discord", discord)
    tenant.bot("telegram", telegram)
    gateway, secret = b.gateway(tenant)
    token = b.driver.call("token", gateway_id=gateway, secret=secret)
    body = {"platform": "relay", "requireAddress": True, "freeResponseScopes": ["c1"], "allowOtherBots": False}
    same(b.driver.call("post_policy", url=b.desk.url, token=token, policy=body), 200, "status of a policy")
    same(b.driver.call("post_policy", url=b.desk.url, token=token, policy={**body, "requireAddress": False}), 200, "status of its replacement")
    bad = b.driver.call("token", gateway_id=gateway, secret="0" * 64)
    ensure(b.driver.call("post_policy", url=b.desk.url, token=bad, policy=body) in (401, 403), "a policy with an invalid token was accepted")
    env = {"GATEWAY_RELAY_URL": b.desk.url, "GATEWAY_RELAY_ID": gateway, "GATEWAY_RELAY_SECRET": secret,
           "GATEWAY_RELAY_PLATFORMS": "discord,telegram", "TELEGRAM_ALLOW_BOTS": "all",
           "GATEWAY_RELAY_BOT_IDS": json.dumps({"discord": {"botId": discord}, "telegram": {"botId": telegram}})}
    b.driver.call("env", set=env)
    try:
        same(b.driver.call("wire_policy", platform="discord"),
             {"platform": "discord", "requireAddress": True, "freeResponseScopes": ["c1", "c2"], "allowOtherBots": False}, "the policy sent")
        same(b.driver.call("send_policy"), True, "send_relay_policy")
    finally:
        b.driver.call("env", unset=list(env))


@check(*LATER)
def two_identities(b):
    tenant = b.desk.tenant()
    discord = unique("111")
    tenant.bot("discord", discord)
    gateway, secret = b.gateway(tenant)
    link = b.open(gateway, secret, platform="discord", bot_id=discord, identities=[("discord", discord), ("relay", "")])
    # the client adopts the last descriptor that it has received
    ensure(link.state()["descriptor"]["platform"] in ("discord", "relay"), "the descriptor was not adopted")
    tenant.say("room", "by the second one")
    link.inbound("by the second one")
    done = link.act("send", platform="relay", chat_id="room", content="tagged")
    ensure(done.get("success"), f"a send that names the second platform: {done}")
    done = link.act("send", chat_id="room", content="untagged")
    ensure(done.get("success"), f"a send without platform goes to the one that knows the chat: {done}")
    done = link.act("send", chat_id=unique("nowhere"), content="untagged")
    same(done.get("success"), False, "a send to a chat that no platform knows")
    done = link.act("send", platform="slack", chat_id="room", content="not mine")
    same(done.get("success"), False, "a send with a platform without hello")
    ensure(done.get("error"), "a refusal without an error text")
    same([m["text"] for m in tenant.history("room") if m["direction"] == "out"], ["tagged", "untagged"], "what was sent")
    link.close()


# ── the complete gateway ────────────────────────────────────────────────────────

def whole_gateway(version, desk, quick):
    """`hermes gateway run` with a stub model: messages in the chat are answered there."""
    tenant = desk.tenant("whole")
    home = folder(f"gateway-{version}")
    model = Model()
    gateway = unique("gw")
    env = gateway_env(version, home, GATEWAY_RELAY_URL=desk.url, GATEWAY_RELAY_ID=gateway)
    if version == "0.17.0":
        # it does not know users that were authorized upstream
        env["GATEWAY_ALLOW_ALL_USERS"] = "true"
    if version == "0.18.2":
        status, made = harness.request("POST", f"{desk.url}/relay/provision", token=tenant.identity, body={
            "gatewayId": gateway, "platform": "relay", "botId": "", "gatewayEndpoint": "", "routeKeys": []})
        same(status, 200, f"provision ({made})")
        env["GATEWAY_RELAY_SECRET"] = made["secret"]
    else:
        write_login(home, tenant.identity)
    (home / "config.yaml").write_text(json.dumps({
        "model": {"default": "stub-model", "provider": "custom", "base_url": model.url, "api_key": "x", "context_length": 131072}}))
    tenant.bind("ann", gateway)
    log = open(home / "gateway.out", "wb")
    process = None
    try:
        # messages sent while the gateway is down are stored and answered after its start
        tenant.say("room", "are you there? mark-early", user_name="Ann")
        process = start_process([sys.executable, "-m", "hermes_cli.main", "gateway", "run", "-v", "--force", "--no-supervise"],
                                env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        tenant.answer("room", "The stub heard mark-early", timeout=300)

        def ask(chat, word, tries=4, timeout=30, **more):
            """Posts a message and waits for the answer. A message that arrives while a turn ends is queued by the gateway
            and may be lost there, so there is a pause before it, and it is repeated if necessary."""
            for attempt in range(tries):
                time.sleep(1)
                mark = f"mark-{word}{attempt}"
                tenant.say(chat, f"do tell {mark}", user_name="Ann", **more)
                try:
                    tenant.answer(chat, f"The stub heard {mark}", timeout)
                    break
                except Failed:
                    if attempt == tries - 1:
                        raise

        ask("room", "second")
        ask("plaza", "third", chat_type="channel", scope_id="guild-1")
        answers = [m["text"] for chat in ("room", "plaza") for m in tenant.history(chat)
                   if m["direction"] == "out" and "The stub heard" in (m.get("text") or "")]
        same(len(answers), len(set(answers)), f"repeated answers: {answers}")

        # a turn that hangs in the model ends with /stop
        time.sleep(1)
        tenant.say("room", "take-your-time mark-slow", user_name="Ann")
        wait_for(lambda: [m for m in model.asked if m["mark"] == "mark-slow"], "the slow turn", timeout=60)
        tenant.say("room", "/stop", user_name="Ann")
        wait_for(lambda: "reason=interrupted" in (home / "gateway.out").read_text(errors="replace"), "the end of the slow turn", timeout=60)
        model.slow.set()
        ask("room", "fourth")
        ensure(not any("mark-slow" in m["text"] for m in tenant.history("room") if m["direction"] == "out"), "the stopped turn was answered")
        if version == NEWEST and not quick:
            # a message during a turn is answered within the client's reader, which then waits half a minute for a result that
            # only it could read: no acks and no results, but it is alive, and its socket must stay open
            time.sleep(1)
            model.slow.clear()
            tenant.say("room", "take-your-time mark-long", user_name="Ann")
            wait_for(lambda: [m for m in model.asked if m["mark"] == "mark-long"], "the long turn", timeout=60)
            tenant.say("room", "and this? mark-busy", user_name="Ann")
            tenant.answer("room", "Interrupting current task", timeout=30)
            model.slow.set()
            ask("plaza", "fifth", tries=1, timeout=60, chat_type="channel", scope_id="guild-1")
            ask("room", "sixth", tries=2, timeout=40)
        output = (home / "gateway.out").read_text(errors="replace")
        ensure("relay ws" not in output, "the gateway's link broke: " + next(iter(re.findall(".*relay ws.*", output)), ""))
        ensure(process.poll() is None, f"the gateway exited with {process.returncode}")
    except Failed as exc:
        tail = (home / "gateway.out").read_text(errors="replace").splitlines()[-12:]
        raise Failed(f"{exc}\n    gateway: " + "\n    gateway: ".join(tail)) from None
    finally:
        log.close()
        if process is not None:
            end_process(process, wait=20)
        model.close()


# ── running them ────────────────────────────────────────────────────────────

class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.passed = self.failed = self.skipped = 0

    def ok(self, name, seconds):
        with self.lock:
            self.passed += 1
            print(f"ok {name} ({seconds:.1f} s)", flush=True)

    def bad(self, name, reason):
        with self.lock:
            self.failed += 1
            print(f"FAILED {name}: {reason}", flush=True)

    def skip(self, name, reason):
        with self.lock:
            self.skipped += 1
            print(f"skipped {name}: {reason}", flush=True)

    def attempt(self, name, function, *arguments):
        began = time.monotonic()
        try:
            function(*arguments)
        except Failed as exc:
            self.bad(name, exc)
            return False
        except Exception as exc:
            self.bad(name, f"{type(exc).__name__}: {exc}")
            return False
        self.ok(name, time.monotonic() - began)
        return True


def run_version(version, checks, tally, verbose, with_shutdown):
    try:
        desk = Desk(version, FRONTDESK_RELAY_SETTLE_MS="0", FRONTDESK_RELAY_ACK_LIMIT_MS="1500")
        driver = Driver(version)
    except Exception as exc:
        tally.bad(f"{version} start", exc)
        return
    for name, _, function in checks:
        good = tally.attempt(f"{version} {name}", function, Bench(version, desk, driver))
        if not good:
            if verbose:
                print(f"    server: {desk.log_tail()}", flush=True)
            # leftovers of the failed check must not affect the next one
            try:
                end_process(driver.process, signal.SIGKILL)
                if desk.process.poll() is not None:
                    desk.start()
                driver = Driver(version)
            except Exception as exc:
                tally.bad(f"{version} start after {name}", exc)
                return
    end_process(driver.process, signal.SIGKILL)
    began = time.monotonic()
    desk.stop()
    if with_shutdown:
        def shutdown():
            same(desk.process.returncode, 0, "exit code of the server on SIGTERM")
            ensure(time.monotonic() - began < 10.5, "the server took more than 10 s to stop")
            same(len(desk.output), 1, f"lines on stdout: {desk.output}")
        tally.attempt(f"{version} shutdown", shutdown)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", metavar="PATTERN")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--version", action="append", choices=VERSIONS)
    parser.add_argument("--newest", action="append_const", dest="version", const=NEWEST, help="the same with the newest version")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folders")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the end of the server's log with a failure")
    args = parser.parse_args()
    if not os.environ.get("FRONTDESK_BIN"):
        print("FRONTDESK_BIN is not set", file=sys.stderr)
        return 2
    harness.use_environment("hermes")
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda *_: sys.exit(1))
    chosen = args.version or VERSIONS

    def wanted(name):
        return not args.only or re.search(args.only, name)

    tally = Tally()
    threads = []
    try:
        for version in chosen:
            checks = [c for c in CHECKS if version in c[1] and wanted(f"{version} {c[0]}")]
            if checks:
                threads.append(threading.Thread(target=run_version, daemon=True, args=(
                    version, checks, tally, args.verbose, wanted(f"{version} shutdown"))))
        whole = [v for v in chosen if wanted(f"{v} whole_gateway")]
        if args.quick:
            for version in whole:
                if version != NEWEST:
                    tally.skip(f"{version} whole_gateway", "--quick")
            whole = [v for v in whole if v == NEWEST]
        if whole:
            def start_whole():
                try:
                    desk = Desk("whole")
                except Exception as exc:
                    tally.bad("whole_gateway start", exc)
                    return
                runs = [threading.Thread(target=tally.attempt, args=(f"{v} whole_gateway", whole_gateway, v, desk, args.quick), daemon=True)
                        for v in whole]
                for each in runs:
                    each.start()
                for each in runs:
                    each.join()
            threads.append(threading.Thread(target=start_whole, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        clean_up(args.keep)
    print(f"{tally.passed} passed, {tally.failed} failed" + (f", {tally.skipped} skipped" if tally.skipped else ""), flush=True)
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
