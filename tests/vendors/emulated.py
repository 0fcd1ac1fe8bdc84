"""Slack and Twilio as others emulate them: the npm package `emulate` in front of a real server and a real relay client.

  FRONTDESK_BIN=path FRONTDESK_NODE_MODULES=path tests/vendors/emulated.py [--only PATTERN]

Its Slack has the Web API only, so the events are signed here; its Twilio sends signed webhooks itself. One line per check; the
last line is the tally.
"""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "hermes"))
# `telegram.py` here has the name of a library, so this folder comes last.
sys.path = [path for path in sys.path if path and Path(path).resolve() != here] + [str(here)]

from differential import open_relay  # noqa: E402
from harness import Checks, Desk, Quiet, Stub, ensure, request, same, unique  # noqa: E402

ACCOUNT, AUTH_TOKEN, NUMBER, ANN = "AC" + "0" * 32, "twilio_test_auth_token", "+15551234567", "+15550001111"
BOT_TOKEN, SIGNING = "xoxb-1-2-abcdefgh", "8f742231b10e8888abcd99dddddd85a5"
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf"
                    "c0000003010100c9fe92ef0000000049454e44ae426082")
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
sms_checks, slack_checks = Checks(), Checks()


def check(function):
    (sms_checks if function.__name__.startswith("sms_") else slack_checks)(function)
    return function


class Scene:
    """A server whose one bot is at the emulated vendor, and an agent behind it."""

    def __init__(self):
        self.desk = Desk(f"emulated-{self.platform}")
        self.process = subprocess.Popen(["node", str(here / "emulate.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(self.seed()) + "\n")
        self.process.stdin.flush()
        self.url = json.loads(self.process.stdout.readline())[self.vendor]
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {"platform": self.platform, "id": "bot", "tenant": self.tenant.name, **self.bot()})
        _, self.link = open_relay(self.desk, self.tenant, self.platform, "bot", self.people())

    def act(self, op, **fields):
        done = self.link.act(op, **fields)
        ensure(done.get("success"), f"{op}: {done}")
        return done

    def wrong(self):
        """What `frontdesk bot check` finds wrong."""
        return [found for found in self.desk.admin("GET", f"/bots/{self.platform}/bot/check")["findings"] if not found["ok"]]

    def outcomes(self):
        """Of the actions of the agent, as the journal has them."""
        return [row["outcome"] for row in self.desk.admin("GET", f"/journal?tenant={self.tenant.name}")["actions"]]

    def play(self, function):
        function(self)

    def tail(self):
        return self.desk.log_tail(6)

    def close(self):
        self.desk.stop()
        self.process.stdin.close()
        self.process.wait(10)


class Sms(Scene):
    platform, vendor = "sms", "twilio"

    def seed(self):
        return {"twilio": {"account": {"sid": ACCOUNT, "auth_token": AUTH_TOKEN},
                           "phone_numbers": [{"phone_number": NUMBER, "sms_url": f"{self.desk.url}/twilio/bot"}]}}

    def bot(self):
        return {"settings": {"base_url": self.url, "account_sid": ACCOUNT, "from": NUMBER}, "secrets": {"auth_token": AUTH_TOKEN}}

    def people(self):
        return [ANN]

    def call(self, method, path, **fields):
        data = urllib.parse.urlencode(fields).encode() if fields else None
        basic = base64.b64encode(f"{ACCOUNT}:{AUTH_TOKEN}".encode()).decode()
        call = urllib.request.Request(self.url + path, data=data, method=method, headers={"Authorization": f"Basic {basic}"})
        with opener.open(call, timeout=15) as reply:
            return json.load(reply)

    def becomes(self, message, status):
        self.call("POST", "/_twilio/simulate/message-status", MessageSid=message, Status=status)


class Slack(Scene):
    platform, vendor = "slack", "slack"

    def seed(self):
        return {"slack": {"tokens": [{"token": BOT_TOKEN, "type": "bot"}], "channels": [{"name": "plans"}]}}

    def bot(self):
        return {"settings": {"base_url": self.url + "/api", "mode": "events"},
                "secrets": {"bot_token": BOT_TOKEN, "signing_secret": SIGNING}}

    def people(self):
        self.who = self.call("auth.test")
        self.channel = next(it["id"] for it in self.call("conversations.list")["channels"] if it["name"] == "plans")
        self.person = "UANN"
        return [self.person]

    def call(self, method, **fields):
        """Of the Web API, as somebody in the workspace."""
        status, answer = request("POST", f"{self.url}/api/{method}", body=fields, token=BOT_TOKEN)
        ensure(status == 200 and answer.get("ok"), f"{method} {fields}: {status} {answer}")
        return answer

    def tell(self, **event):
        """An event as the Events API tells it, signed."""
        body = json.dumps({"type": "event_callback", "team_id": self.who["team_id"], "api_app_id": "A1", "event_id": unique("Ev"),
                           "event_time": int(time.time()), "event": event}).encode()
        stamp = str(int(time.time()))
        digest = hmac.new(SIGNING.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
        call = urllib.request.Request(f"{self.desk.url}/slack/bot/events", data=body, method="POST", headers={
            "Content-Type": "application/json", "X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"})
        with opener.open(call, timeout=15) as reply:
            same(reply.status, 200, "the answer to an event")

    def replies(self, thread):
        return self.call("conversations.replies", channel=self.channel, ts=thread)["messages"]


@check
def sms_bot_check_finds_nothing_wrong(s):
    same(s.wrong(), [], "findings")


@check
def sms_that_is_signed_reaches_the_agent(s):
    said = s.call("POST", "/_twilio/simulate/inbound-message", To=NUMBER, From=ANN, Body="grüß dich & 1+1=2")
    got = s.link.inbound("grüß dich & 1+1=2", timeout=20)
    same((got["source"]["user_id"], got["source"]["chat_id"], got["message_id"]), (ANN, ANN, said["sid"]), "the message")


@check
def sms_answer_is_at_the_vendor(s):
    sent = s.act("send", chat_id=ANN, content="an answer & more")
    shown = s.call("GET", f"/2010-04-01/Accounts/{ACCOUNT}/Messages/{sent['message_id']}.json")
    same((shown["to"], shown["from"], shown["body"]), (ANN, NUMBER, "an answer & more"), "what Twilio has")
    s.becomes(sent["message_id"], "delivered")
    same(s.outcomes(), ["delivered"], "the journal")


@check
def sms_that_is_not_delivered_is_told_to_the_agent(s):
    sent = s.act("send", chat_id=ANN, content="this will not arrive")
    s.becomes(sent["message_id"], "undelivered")
    got = s.link.inbound(timeout=20)
    ensure("not delivered" in got["text"] or "undelivered" in got["text"], f"its text: {got['text']!r}")
    same(got["source"]["chat_id"], ANN, "its chat")
    same(s.outcomes(), ["rejected", "delivered"], "the journal")


@check
def slack_bot_check_finds_nothing_wrong(s):
    same(s.wrong(), [], "findings")


@check
def slack_shows_an_answer_in_its_thread(s):
    s.thread = s.call("chat.postMessage", channel=s.channel, text="start")["ts"]
    s.tell(type="message", channel=s.channel, channel_type="channel", user=s.person, text=f"<@{s.who['user_id']}> hello",
           ts=f"{int(time.time())}.000100", thread_ts=s.thread)
    got = s.link.inbound(timeout=20)
    same((got["source"]["chat_id"], got["source"]["thread_id"], got["source"]["user_id"]), (s.channel, s.thread, s.person), "place")
    s.sent = s.act("send", chat_id=s.channel, content="an **answer** <here>", metadata={"thread_id": s.thread})["message_id"]
    shown = next(it for it in s.replies(s.thread) if it["ts"] == s.sent)
    same(shown["text"], "an *answer* &lt;here&gt;", "its text")


@check
def slack_shows_an_edit_and_a_reaction(s):
    s.act("edit", chat_id=s.channel, message_id=s.sent, content="a better one")
    same(next(it for it in s.replies(s.thread) if it["ts"] == s.sent)["text"], "a better one", "the text")
    s.act("react", chat_id=s.channel, message_id=s.sent, emoji="👍")
    shown = s.call("reactions.get", channel=s.channel, timestamp=s.sent)["message"]
    same([it["name"] for it in shown["reactions"]], ["+1"], "the reactions")


class Picture(Stub):
    """A file somewhere else, which the agent names."""

    def __init__(self):
        class Handler(Quiet):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "image/png")
                self.send_header("Content-Length", str(len(PNG)))
                self.end_headers()
                self.wfile.write(PNG)

        self.serve(Handler, "/dot.png")


@check
def slack_has_the_bytes_of_a_file(s):
    picture = Picture()
    s.act("send_media", chat_id=s.channel, media_kind="image", source_url=picture.url, content="a dot", filename="dot.png")
    picture.close()
    file = next(it for it in s.call("files.list")["files"] if it["name"] == "dot.png")
    call = urllib.request.Request(file["url_private"], headers={"Authorization": f"Bearer {BOT_TOKEN}"})
    with opener.open(call, timeout=15) as reply:
        same(reply.read(), PNG, "the bytes")


@check
def slack_forgets_what_is_deleted(s):
    s.act("delete", chat_id=s.channel, message_id=s.sent)
    same([it for it in s.replies(s.thread) if it["ts"] == s.sent], [], "the message")


if __name__ == "__main__":
    results = [checks.run([("", scene)]) for checks, scene in ((sms_checks, Sms), (slack_checks, Slack))]
    sys.exit(max(results))
