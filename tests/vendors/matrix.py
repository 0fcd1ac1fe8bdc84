"""The Matrix platform against a real Synapse, with a real gateway as the agent: polling, and as an application service.

  FRONTDESK_BIN=path/to/frontdesk tests/vendors/matrix.py [--only PATTERN]

`setup.sh` of tests/hermes must have run. Synapse is installed once into the test cache. One line per check; the last
line is the tally.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hermes"))

from harness import (  # noqa: E402
    NEWEST, Checks, Desk, Driver, Link, Quiet, Stub, cache_root, end_process, ensure, folder, free_port, request, same,
    start_process, unique, wait_for)

SYNAPSE = "matrix-synapse==1.163.0"
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63000100000500"
                    "010d0a2db40000000049454e44ae426082")
check = Checks()


def quote(text):
    return urllib.parse.quote(text, safe="")


def synapse_python():
    """Installs Synapse on the first run."""
    root = cache_root("synapse")
    python = root / "venv" / "bin" / "python"
    ready = root / "ready"
    if not ready.exists() or ready.read_text() != SYNAPSE:
        root.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(root / "venv")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", SYNAPSE], check=True)
        ready.write_text(SYNAPSE)
    return str(python)


class Homeserver:
    """A private Synapse without rate limits."""

    def __init__(self, python, desk_url, as_token, hs_token):
        self.home = folder("synapse")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        fast = {"per_second": 100000, "burst_count": 100000}
        service = {"id": "desk", "url": desk_url, "as_token": as_token, "hs_token": hs_token, "sender_localpart": "service",
                   "rate_limited": False,
                   "namespaces": {"users": [{"exclusive": True, "regex": "@pushed:localhost"}], "rooms": [], "aliases": []}}
        (self.home / "service.yaml").write_text(json.dumps(service))
        (self.home / "log.yaml").write_text(json.dumps(
            {"version": 1, "handlers": {"file": {"class": "logging.FileHandler", "filename": str(self.home / "synapse.log")}},
             "root": {"level": "WARNING", "handlers": ["file"]}, "disable_existing_loggers": False}))
        settings = {
            "server_name": "localhost", "pid_file": str(self.home / "pid"), "report_stats": False,
            "listeners": [{"port": self.port, "type": "http", "bind_addresses": ["127.0.0.1"],
                           "resources": [{"names": ["client"], "compress": False}]}],
            "database": {"name": "sqlite3", "args": {"database": str(self.home / "homeserver.db")}},
            "media_store_path": str(self.home / "media"), "signing_key_path": str(self.home / "signing.key"),
            "log_config": str(self.home / "log.yaml"), "trusted_key_servers": [], "suppress_key_server_warning": True,
            # the same poll twice must not have the same answer
            "caches": {"sync_response_cache_duration": "0s"},
            "macaroon_secret_key": "m", "form_secret": "f", "registration_shared_secret": "r",
            "enable_registration": True, "enable_registration_without_verification": True,
            "presence": {"enabled": False}, "app_service_config_files": [str(self.home / "service.yaml")],
            "rc_message": fast, "rc_registration": fast, "rc_joins": {"local": fast, "remote": fast}, "rc_reports": fast,
            "rc_login": {"address": fast, "account": fast, "failed_attempts": fast}, "rc_joins_per_room": fast,
            "rc_invites": {"per_room": fast, "per_user": fast, "per_issuer": fast}, "rc_room_creation": fast,
            "rc_media_create": fast,
        }
        config = self.home / "homeserver.yaml"
        config.write_text(json.dumps(settings))
        self.command = [python, "-m", "synapse.app.homeserver", "-c", str(config)]
        subprocess.run([*self.command, "--generate-keys"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.start()

    def start(self):
        with open(self.home / "out.log", "ab") as log:
            self.process = start_process(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home)
        wait_for(self.is_up, f"Synapse ({self.home})", timeout=90)

    def is_up(self):
        try:
            return request("GET", f"{self.url}/_matrix/client/versions", timeout=2)[0] == 200
        except OSError:
            return False

    def user(self, name):
        body = {"username": name, "password": unique("pw"), "auth": {"type": "m.login.dummy"}}
        status, reply = request("POST", f"{self.url}/_matrix/client/v3/register", body)
        ensure(status == 200, f"register {name}: {status} {reply}")
        return User(self, reply["user_id"], reply["access_token"])


class User:
    def __init__(self, server, user_id, token):
        self.server, self.id, self.token = server, user_id, token
        self.since = None

    def ask(self, method, path, body=None):
        status, reply = request(method, f"{self.server.url}/_matrix/client/v3{path}", body, self.token, timeout=30)
        ensure(status == 200, f"{method} {path}: {status} {reply}")
        return reply

    def room(self, *invited, **more):
        return self.ask("POST", "/createRoom", {"preset": "private_chat", "invite": list(invited), **more})["room_id"]

    def join(self, room):
        self.ask("POST", f"/rooms/{quote(room)}/join", {})

    def send(self, room, content, kind="m.room.message"):
        return self.ask("PUT", f"/rooms/{quote(room)}/send/{kind}/{unique('t')}", content)["event_id"]

    def say(self, room, body, **more):
        return self.send(room, {"msgtype": "m.text", "body": body, **more})

    def messages(self, room, limit=100):
        """Newest first."""
        return self.ask("GET", f"/rooms/{quote(room)}/messages?dir=b&limit={limit}")["chunk"]

    def members(self, room):
        return set(self.ask("GET", f"/rooms/{quote(room)}/joined_members")["joined"])

    def wait(self, room, test, what):
        return wait_for(lambda: next((e for e in self.messages(room) if test(e)), None), what, timeout=20)

    def typing(self, room):
        reply = self.ask("GET", "/sync?timeout=0")
        events = reply["rooms"]["join"][room]["ephemeral"]["events"]
        return {kind: [e["content"] for e in events if e["type"] == kind] for kind in ("m.typing", "m.receipt")}

    def upload(self, data, mime):
        call = urllib.request.Request(f"{self.server.url}/_matrix/media/v3/upload", data=data, method="POST",
                                      headers={"Authorization": f"Bearer {self.token}", "Content-Type": mime})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call, timeout=15) as reply:
            return json.load(reply)["content_uri"]

    def download(self, uri):
        path = uri.removeprefix("mxc://")
        return fetch(f"{self.server.url}/_matrix/client/v1/media/download/{path}", self.token)


def fetch(url, token):
    call = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call, timeout=20) as reply:
        return reply.headers["Content-Type"], reply.read()


class Wire(Stub):
    """Between the server under test and Synapse. It can lose the answer to a message that Synapse has taken, delay requests
    with a text in their path, and refuse them."""

    def __init__(self, port):
        self.lose = 0
        self.slow = None  # text in the path, seconds
        self.refuse = []  # text in the path, status, errcode; each for one request
        self.refusing = threading.Lock()
        outer = self

        class Handler(Quiet):
            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
                with outer.refusing:
                    refusal = next((it for it in outer.refuse if it[0] in self.path), None)
                    if refusal:
                        outer.refuse.remove(refusal)
                if refusal:
                    data = json.dumps({"errcode": refusal[2], "error": "refused by the test"}).encode()
                    self.send_response(refusal[1])
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    return
                if outer.slow and outer.slow[0] in self.path:
                    time.sleep(outer.slow[1])
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                try:
                    upstream.request(self.command, self.path, body, headers)
                    answer = upstream.getresponse()
                    data = answer.read()
                    if outer.lose and "/send/m.room.message/" in self.path:
                        outer.lose -= 1
                        return  # the connection is closed without an answer
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.headers.get("Content-Type") or "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # one of the two is gone
                finally:
                    upstream.close()

            do_GET = do_PUT = do_POST = pass_on

        self.serve(Handler)


class Scene:
    def __init__(self, mode, python):
        self.mode = mode
        self.desk = Desk(f"matrix-{mode}")
        as_token, hs_token = unique("as"), unique("hs")
        self.server = Homeserver(python, self.desk.url, as_token, hs_token)
        self.ann, self.ben = self.server.user("ann"), self.server.user("ben")
        if mode == "sync":
            account = self.server.user("polling")
            self.me = account.id
            secrets = {"access_token": account.token}
        else:
            self.me = "@pushed:localhost"
            secrets = {"as_token": as_token, "hs_token": hs_token}
        self.tenant = self.desk.tenant("t")
        self.wire = Wire(self.server.port)
        settings = {"homeserver_url": self.wire.url, "user_id": self.me, "mode": mode}
        self.desk.admin("POST", "/bots", {"platform": "matrix", "id": "bot", "tenant": self.tenant.name,
                                          "settings": settings, "secrets": secrets})
        self.driver = Driver(NEWEST)
        made = self.driver.call("provision", url=self.desk.url, access_token=self.tenant.identity, gateway_id="agent",
                                platform="matrix", bot_id="bot", gateway_endpoint=None, route_keys=[])
        ensure("secret" in made, f"provision: {made}")
        self.secret = made["secret"]
        self.tenant.bind(self.ann.id, "agent", platform="matrix")
        self.link = self.dial()
        self.dm = self.group = None
        # The account exists and the first poll is done, so that what follows is news.
        if mode == "sync":
            wait_for(lambda: self.is_listening(), "the first poll", timeout=20)

    def is_listening(self):
        if self.dm is None:
            self.dm = self.ann.room(self.me, is_direct=True)
        return self.me in self.ann.members(self.dm)

    def dial(self):
        link = Link(self.driver, unique("link"))
        result = self.driver.call("open", name=link.name, url=self.desk.url, gateway_id="agent", secret=self.secret,
                                  platform="matrix", bot_id="bot")
        ensure(result["connected"], f"no handshake: {result}")
        return link

    def act(self, op, **fields):
        result = self.link.act(op, platform="matrix", **fields)
        ensure(result.get("success"), f"{op}: {result}")
        return result

    def play(self, function):
        function(self)

    def tail(self):
        return "\n    " + self.desk.log_tail()

    def close(self):
        self.desk.stop()
        self.wire.close()
        end_process(self.server.process)


def body_is(text):
    return lambda event: event["content"].get("body") == text


@check
def an_invitation_is_accepted_and_what_is_said_at_once_is_heard(s):
    s.dm = s.ann.room(s.me, is_direct=True)
    s.ann.say(s.dm, "hello at once")
    got = s.link.inbound("hello at once", timeout=30)
    source = got["source"]
    same((source["chat_id"], source["chat_type"], source["user_id"]), (s.dm, "dm", s.ann.id), "the source")
    same(source.get("scope_id") or source.get("guild_id"), "localhost", "the scope")


@check
def an_answer_has_markup(s):
    sent = s.act("send", chat_id=s.dm, content="**Bold** and `code`\n\n* one\n* two")
    event = s.ann.wait(s.dm, lambda e: e["event_id"] == sent["message_id"], "the answer")
    same((event["sender"], event["content"]["format"]), (s.me, "org.matrix.custom.html"), "sender and format")
    ensure("<strong>Bold</strong>" in event["content"]["formatted_body"], event["content"])


@check
def a_long_text_comes_in_parts(s):
    text = "\n".join(f"line {n} " + "ü" * 60 for n in range(600))
    s.act("send", chat_id=s.dm, content=text)
    bodies = [e["content"].get("body") or "" for e in s.ann.messages(s.dm) if e["sender"] == s.me]
    for n in (0, 300, 599):
        same(sum(f"line {n} " in body for body in bodies), 1, f"messages with line {n}")


@check
def an_answer_that_is_lost_doubles_nothing(s):
    s.wire.lose = 1
    sent = s.act("send", chat_id=s.dm, content="exactly once")
    same(s.wire.lose, 0, "answers that were still to be lost")
    found = [e["event_id"] for e in s.ann.messages(s.dm) if e["content"].get("body") == "exactly once"]
    same(found, [sent["message_id"]], "the messages")
    s.wire.lose = 2
    result = s.link.act("send", platform="matrix", chat_id=s.dm, content="not known")
    ensure(not result.get("success") and "timed out" in result.get("error", ""), f"lost twice: {result}")
    found = [e for e in s.ann.messages(s.dm) if e["content"].get("body") == "not known"]
    same(len(found), 1, "messages whose answers were lost twice")


@check
def mentions_threads_and_replies_in_a_group(s):
    s.group = s.ann.room(s.me, s.ben.id, name="Ops")
    s.ben.join(s.group)
    wait_for(lambda: s.me in s.ann.members(s.group), "the bot in the group", timeout=20)
    root = s.ann.say(s.group, "pushed: begin", **{"m.mentions": {"user_ids": [s.me]}})
    first = s.link.inbound(timeout=20)
    same((first["source"]["chat_type"], first["source"]["chat_name"], first["message_id"]), ("group", "Ops", root), "the group")
    thread = {"rel_type": "m.thread", "event_id": root, "is_falling_back": True, "m.in_reply_to": {"event_id": root}}
    s.ann.say(s.group, "in the thread", **{"m.relates_to": thread})
    got = s.link.inbound("in the thread", timeout=20)
    same(got["source"]["thread_id"], root, "the thread")
    answer = s.act("send", chat_id=s.group, content="also there", metadata={"thread_id": root})
    event = s.ann.wait(s.group, lambda e: e["event_id"] == answer["message_id"], "the answer")
    same(event["content"]["m.relates_to"]["event_id"], root, "the thread of the answer")
    quoted = "> <%s> also there\n\nwhy?" % s.me
    s.ann.say(s.group, quoted, **{"m.relates_to": {"m.in_reply_to": {"event_id": answer["message_id"]}}})
    got = s.link.inbound("why?", timeout=20)
    same(got["reply_to_message_id"], answer["message_id"], "the message that is replied to")


@check
def what_an_unlinked_user_says_is_not_handed_over(s):
    s.ben.say(s.group, "from ben")
    s.ann.say(s.group, "from ann")
    s.link.inbound("from ann", timeout=20)


@check
def edits_both_ways(s):
    event = s.ann.say(s.dm, "frist")
    s.link.inbound("frist", timeout=20)
    s.ann.send(s.dm, {"msgtype": "m.text", "body": "* first", "m.new_content": {"msgtype": "m.text", "body": "first"},
                      "m.relates_to": {"rel_type": "m.replace", "event_id": event}})
    s.ann.say(s.dm, "after the edit")
    s.link.inbound("after the edit", timeout=20)  # the edit itself is recorded, and not handed over
    sent = s.act("send", chat_id=s.dm, content="one")
    s.act("edit", chat_id=s.dm, message_id=sent["message_id"], content="two")
    new = s.ann.wait(s.dm, lambda e: "m.new_content" in e["content"] and e["sender"] == s.me, "the edit")
    same(new["content"]["m.new_content"]["body"], "two", "the new text")


@check
def reactions_and_deletion(s):
    event = s.ann.say(s.dm, "react to this")
    s.link.inbound("react to this", timeout=20)
    for _ in range(2):
        s.act("react", chat_id=s.dm, message_id=event, emoji="👍")
    found = lambda: [e for e in s.ann.messages(s.dm) if e["type"] == "m.reaction" and e["content"].get("m.relates_to")]  # noqa: E731
    same(len(found()), 1, "reactions")
    s.act("react", chat_id=s.dm, message_id=event, emoji="👍", remove=True)
    same(len(found()), 0, "reactions after the removal")
    sent = s.act("send", chat_id=s.dm, content="to be deleted")
    for _ in range(2):
        s.act("delete", chat_id=s.dm, message_id=sent["message_id"])
    gone = s.ann.wait(s.dm, lambda e: e["event_id"] == sent["message_id"], "the deleted message")
    same(gone["content"], {}, "its content")


@check
def typing_and_the_read_receipt(s):
    event = s.ann.say(s.dm, "are you there?")
    s.link.inbound("are you there?", timeout=20)
    s.act("typing", chat_id=s.dm)
    seen = s.ann.typing(s.dm)
    same(seen["m.typing"][0]["user_ids"], [s.me], "who types")
    readers = [m.get("m.read", {}) for content in seen["m.receipt"] for e, m in content.items() if e == event]
    ensure(any(s.me in reader for reader in readers), f"receipts: {seen['m.receipt']}")
    s.act("typing", chat_id=s.dm, content="")
    same([it["user_ids"] for it in s.ann.typing(s.dm)["m.typing"]], [[]], "who types afterwards")


@check
def a_prompt_is_answered_by_a_reaction(s):
    options = [{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}]
    sent = s.act("prompt", chat_id=s.dm, prompt_id="p1", prompt_kind="choice", content="Shall I?", options=options)
    s.ann.send(s.dm, {"m.relates_to": {"rel_type": "m.annotation", "event_id": sent["message_id"], "key": "2\ufe0f\u20e3"}},
               "m.reaction")
    got = s.link.inbound("/no", timeout=20)
    same((got["message_type"], got["source"]["user_id"]), ("command", s.ann.id), "the answer")


@check
def files_both_ways_with_authenticated_media(s):
    s.ann.send(s.dm, {"msgtype": "m.image", "body": "look", "filename": "dot.png", "url": s.ann.upload(PNG, "image/png"),
                      "info": {"mimetype": "image/png", "size": len(PNG)}})
    got = s.link.inbound("look", timeout=20)
    same((got["message_type"], len(got["media_urls"])), ("photo", 1), "the file")
    token = s.driver.call("token", gateway_id="agent", secret=s.secret)
    for _ in range(2):
        same(fetch(got["media_urls"][0], token), ("image/png", PNG), "the bytes")

    class Served(Quiet):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.send_header("Content-Length", str(len(PNG)))
            self.end_headers()
            self.wfile.write(PNG)

    stub = Stub()
    url = stub.serve(Served, "/dot.png") or stub.url
    call = urllib.request.Request(f"{s.desk.url}/relay/media", data=PNG, method="POST",
                                  headers={"Authorization": f"Bearer {token}", "Content-Type": "image/png"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call, timeout=15) as reply:
        own = f"{s.desk.url}/relay/media/{json.load(reply)['id']}"
    for source in (url, own):
        sent = s.act("send_media", chat_id=s.dm, media_kind="image", source_url=source, content="a dot", filename="d.png")
        event = s.ann.wait(s.dm, lambda e: e["event_id"] == sent["message_id"], "the image")
        same((event["content"]["msgtype"], event["content"]["body"]), ("m.image", "a dot"), "the image")
        same(s.ann.download(event["content"]["url"]), ("image/png", PNG), "its bytes")
    stub.close()


@check
def an_encrypted_room_is_refused_in_the_room_and_in_explain(s):
    state = [{"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}]
    room = s.ann.room(s.me, initial_state=state)
    wait_for(lambda: s.me in s.ann.members(room), "the bot in the room", timeout=20)
    secret = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "session_id": "s", "device_id": "d", "sender_key": "k"}
    for _ in range(2):
        s.ann.send(room, secret, "m.room.encrypted")
    s.ann.wait(room, lambda e: e["content"].get("msgtype") == "m.notice" and e["sender"] == s.me, "the notice")

    def reasons():
        texts = []
        for number in range(1, 400):
            status, reply = request("GET", f"{s.desk.url}/admin/v1/events/ev-{number}/explain", token=s.desk.token)
            if status == 200 and reply["instances"]:
                texts.append(reply["instances"][0]["text"])
        return [text for text in texts if "encrypted" in text]

    wait_for(lambda: len(reasons()) == 2, "two reasons in explain", timeout=20)
    same(sum(e["content"].get("msgtype") == "m.notice" for e in s.ann.messages(room)), 1, "notices")
    result = s.link.act("send", platform="matrix", chat_id=room, content="plain")
    ensure(not result.get("success"), f"{result}")


@check
def what_is_said_while_the_server_is_down_comes_once_and_in_order(s):
    s.link.close()
    s.desk.stop()
    wanted = [f"meanwhile {n}" for n in range(130)]
    for text in wanted:
        s.ann.say(s.dm, text)
    s.desk.start()
    s.link = s.dial()
    seen = [s.link.inbound(timeout=90)["text"] for _ in wanted]
    same(seen, wanted, "the messages")
    s.ann.say(s.dm, "last")
    s.link.inbound("last", timeout=30)


@check
def a_slow_room_holds_up_no_other(s):
    room = s.ann.room(s.me, s.ben.id, name="Slow")
    s.ben.join(room)
    wait_for(lambda: s.me in s.ann.members(room), "the bot in the room", timeout=20)
    s.wire.slow = (quote(room), 20)
    s.ann.say(room, "slow")
    s.ann.say(s.dm, "quick")
    s.link.inbound("quick", timeout=12)
    # While it is not known who sees the room, nobody gets its messages. The listener reads it again.
    s.wire.slow = None
    s.link.inbound("slow", timeout=60)


@check
def an_invitation_survives_failures_of_the_homeserver(s):
    s.wire.refuse = [("/join", 503, "M_UNKNOWN"), ("/join", 502, "M_UNKNOWN")]
    room = s.ann.room(s.me, s.ben.id, name="Later")
    wait_for(lambda: s.me in s.ann.members(room), "the bot in the room", timeout=30)
    same(s.wire.refuse, [], "refusals that were still to come")


@check
def an_upgraded_room_is_followed(s):
    room = s.ann.room(s.me, s.ben.id, name="Old", preset="public_chat")
    wait_for(lambda: s.me in s.ann.members(room), "the bot in the room", timeout=20)
    new = s.ann.ask("POST", f"/rooms/{quote(room)}/upgrade", {"new_version": "11"})["replacement_room"]
    wait_for(lambda: s.me in s.ann.members(new), "the bot in the new room", timeout=60)
    s.ann.say(new, "in the new room")
    s.link.inbound("in the new room", timeout=30)


@check
def a_refused_token_begins_anew(s):
    if s.mode != "sync":
        return
    s.wire.refuse = [("/sync", 400, "M_UNKNOWN")]

    def is_told():
        return "the sync was started anew" in s.desk.log.read_text(errors="replace")

    wait_for(is_told, "the gap in the log", timeout=40)
    time.sleep(1)
    s.ann.say(s.dm, "after the gap")
    s.link.inbound("after the gap", timeout=30)


@check
def a_token_that_the_homeserver_refuses_is_told(s):
    name = unique("bad")
    secrets = {"access_token": "nonsense"} if s.mode == "sync" else {"as_token": "nonsense", "hs_token": unique("other")}
    s.desk.admin("POST", "/bots", {
        "platform": "matrix", "id": name, "tenant": s.tenant.name, "secrets": secrets,
        "settings": {"homeserver_url": s.server.url, "user_id": s.me, "mode": s.mode}})

    def told():
        lines = s.desk.log.read_text(errors="replace").splitlines()
        return next((line for line in lines if name in line and "M_UNKNOWN_TOKEN" in line), None)

    wait_for(told, "the reason in the log", timeout=20)


@check
def strangers_push_nothing(s):
    event = {"event_id": "$x", "room_id": s.dm, "sender": s.ann.id, "type": "m.room.message",
             "content": {"msgtype": "m.text", "body": "forged"}}
    url = f"{s.desk.url}/_matrix/app/v1/transactions/1"
    for token, status in ((None, 401), ("wrong", 403)):
        same(request("PUT", url, {"events": [event]}, token)[0], status, f"token {token}")
    s.ann.say(s.dm, "genuine")
    s.link.inbound("genuine", timeout=30)


if __name__ == "__main__":
    python = synapse_python() if os.environ.get("FRONTDESK_BIN") else ""
    sys.exit(check.run([(mode, lambda mode=mode: Scene(mode, python)) for mode in ("sync", "appservice")]))
