"""The same messages of Feishu, through the gateway's own adapter and through this server and its relay: sessions and events
must be equal, but for the differences that are listed here.

  FRONTDESK_BIN=path/to/frontdesk FRONTDESK_FAKE_FEISHU_BIN=path/to/examples/fake_feishu \\
      tests/vendors/feishu_differential.py [--only PATTERN]

`setup.sh native` of tests/hermes must have run. One fake Feishu tells the native adapter by its persistent connection, and this
server by requests, what happens. One line per check; the last line is the tally.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
# The folder has files with names of libraries that the adapters need, so it comes last.
sys.path = [path for path in sys.path if path and os.path.realpath(path) != str(here)] + [str(here)]
sys.path.insert(0, str(here.parent / "hermes"))

from differential import Comparison, open_native, open_relay  # noqa: E402
from harness import Checks, Desk, unique  # noqa: E402

APP, SECRET, TOKEN, KEY = "cli_a1", "secret-of-the-app", "verification-token", "encrypt-key"
ANN, BOB, ZED, ROBOT = "ou_ann", "ou_bob", "ou_zed", "ou_robot"
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf"
                    "c0000003010100c9fe92ef0000000049454e44ae426082")
QUIET_S = 0.5

NO_ID = "the relay names the message in the source too: newer gateways make threads of it"
VOICE = "a recording is a voice note, which gateways transcribe; typed audio it is not"
LAZY = "files are fetched when an agent asks for them, so their content is not part of the text"
GUESSED = "the type of a file is known when it is fetched; before that, it is that of its name"
SHOWN = "the native adapter drops what it does not know; here the agent is told what it is"
STEPS = []

# For a step and a field: what the native adapter says, what we say, why. `events` is how many there are.
DIFFERENCES = {
    "recording": {"message_type": ("audio", "voice", VOICE)},
    "picture": {"media_types": (["image/png"], ["image/jpeg"], GUESSED)},
    "picture_in_rich_text": {"media_types": (["image/png"], ["image/jpeg"], GUESSED), "message_type": (
        "text", "photo", "on the relay an event with a file has the type of the file")},
    "answer_to_a_picture": {"reply_to_text": ("None", "[Image]", "the native adapter names a picture so")},
    "document_text": {"text": ("[Content of notes.txt]:\nline one", "", LAZY)},
    "sticker": {"events": (0, 1, SHOWN)},
    "location": {"events": (0, 1, SHOWN)},
    "reaction_in_a_group": {
        "source.chat_type": ("dm", "group", "the native adapter takes every chat of a reaction for a direct one"),
        "session_key": (re.compile("agent:main:feishu:dm:.*"), re.compile("agent:main:feishu:group:.*"),
                        "it follows from the type of the chat")},
}
SPELLINGS = {}

check = Checks()


def step(function):
    """A part of the scene. Afterwards the events of both sides are compared."""
    def compare(s):
        function(s)
        s.compare(function.__name__)
    compare.__name__ = function.__name__
    check(compare)
    STEPS.append(function.__name__)
    return function


class Fake:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.base_url = json.loads(self.process.stdout.readline())["base_url"]

    def control(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base_url}/control/{path}", data=data)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["result"]

    def act(self, act, **fields):
        return self.control("act", {"act": act, **fields})

    def settle(self):
        """Until nothing waits and nothing was asked for a while: the native adapter asks about files and messages, and the
        next message would overtake the one that it asks about."""
        seen, since = None, time.monotonic()
        while time.monotonic() - since < QUIET_S:
            now = (self.control("state")["waiting"], len(self.control("calls")))
            if now != seen or now[0]:
                seen, since = now, time.monotonic()
            time.sleep(0.05)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


class Scene:
    def __init__(self):
        self.fake = Fake(os.environ["FRONTDESK_FAKE_FEISHU_BIN"])
        self.desk = Desk("feishu-differential")
        self.act("set_app", id=APP, secret=SECRET, name="Desk", open_id="ou_me", verification_token=TOKEN, encrypt_key=KEY,
                 request_url=f"{self.desk.url}/feishu/bot", also_sockets=True, ping_s=5)
        for open_id, name in ((ANN, "Ann"), (BOB, "Bob"), (ZED, "Zed"), (ROBOT, "")):
            short = open_id.removeprefix("ou_")
            # Bob is known to the app by its own id only.
            self.act("add_user", open_id=open_id, user_id="" if open_id == BOB else short, union_id=f"on_{short}", name=name)
        for chat, mode, members in (("oc_team", "group", [ANN, BOB]), ("oc_forum", "topic", [ANN, BOB]),
                                    ("oc_ann", "p2p", [ANN]), ("oc_zed", "p2p", [ZED])):
            self.act("add_chat", id=chat, mode=mode, name="" if mode == "p2p" else f"name of {chat}", members=members)
        differences = {name: {"source.message_id": (None, re.compile("om_.*"), NO_ID), **DIFFERENCES.get(name, {})}
                       for name in STEPS}
        for fields in differences.values():
            if "events" in fields:
                fields.pop("source.message_id")  # there is nothing to compare
        self.comparison = Comparison(differences, SPELLINGS)
        self.native = open_native(
            "feishu", {}, {"app_id": APP, "app_secret": SECRET, "connection_mode": "websocket",
                           "base_url": self.fake.base_url},
            FEISHU_APP_ID=APP, FEISHU_APP_SECRET=SECRET, FEISHU_DOMAIN="feishu", FEISHU_CONNECTION_MODE="websocket",
            FEISHU_ALLOW_ALL_USERS="true", FEISHU_GROUP_POLICY="open", FEISHU_REQUIRE_MENTION="false",
            FEISHU_REACTIONS="false", FEISHU_ALLOW_BOTS="all", HERMES_FEISHU_TEXT_BATCH_DELAY_SECONDS="0.05",
            **{name: "" for proxy in ("http_proxy", "https_proxy", "all_proxy") for name in (proxy, proxy.upper())})
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {
            "platform": "feishu", "id": "bot", "tenant": self.tenant.name,
            "secrets": {"app_secret": SECRET, "verification_token": TOKEN, "encrypt_key": KEY},
            "settings": {"base_url": self.fake.base_url, "app_id": APP, "mode": "events"}})
        self.relay, self.link = open_relay(self.desk, self.tenant, "feishu", "bot", ("ann", BOB, "zed", "robot"))
        mark = unique("first")
        self.say(mark, "oc_zed", ZED)
        self.relay.until(mark)
        self.native.until(mark)

    def act(self, act, **more):
        return self.fake.act(act, **more)

    def say(self, text, chat="oc_ann", by=ANN, **more):
        return self.act("say", chat=chat, text=text, **{"from": by}, **more)["message_id"]

    def send(self, msg_type, content, chat="oc_ann", files=(), **more):
        listed = [[key, name, mime, data.hex()] for key, name, mime, data in files]
        return self.say("", chat, msg_type=msg_type, content=content, files=listed, **more)

    def compare(self, name):
        mark = unique("mark")
        self.fake.settle()
        self.say(mark, "oc_zed", ZED)
        native, ours = self.native.until(mark), self.relay.until(mark)
        self.comparison.take_late(name, self.native, native, ours)
        self.comparison.step(name, native, ours)

    def play(self, function):
        function(self)

    def tail(self):
        return ""

    def close(self):
        self.desk.stop()
        self.fake.close()


@step
def direct_text(s):
    s.say("hello *you* <b>&")


@step
def direct_text_of_several_lines(s):
    s.say("  one\n\n\ttwo  🧊 \r\n three\n")


@step
def group_text(s):
    s.first = s.say("start", "oc_team")


@step
def group_text_of_somebody_known_by_the_app_only(s):
    s.say("hi", "oc_team", BOB)


@step
def mention(s):
    s.say("@_user_1 what is this?", "oc_team", mentions=["ou_me"])


@step
def mention_at_the_end(s):
    s.say("what is this, @_user_1 ?", "oc_team", mentions=["ou_me"])


@step
def mention_in_the_middle(s):
    s.say("do not @_user_1 again", "oc_team", mentions=["ou_me"])


@step
def mention_alone(s):
    s.say("@_user_1", "oc_team", mentions=["ou_me"])


@step
def mention_of_somebody_else(s):
    s.say("@_user_1 look", "oc_team", mentions=[BOB])


@step
def mention_of_several(s):
    s.say("@_user_1 @_user_2 and @_user_2: look @_user_3", "oc_team", mentions=["ou_me", BOB, ANN])


@step
def mention_of_everybody(s):
    s.say("@_all look", "oc_team")


@step
def command(s):
    s.say("/model fast one")


@step
def command_behind_a_mention(s):
    s.say("@_user_1 /model fast", "oc_team", mentions=["ou_me"])


@step
def answer(s):
    s.say("inside", "oc_team", reply_to=s.first)


@step
def answer_to_an_answer(s):
    middle = s.say("first answer", "oc_team", BOB, reply_to=s.first)
    s.say("second answer", "oc_team", reply_to=middle)


@step
def answer_in_a_thread(s):
    s.say("in the thread", "oc_team", reply_to=s.first, thread=True)


@step
def topic(s):
    s.topic = s.say("a topic", "oc_forum")


@step
def answer_in_a_topic(s):
    s.say("go on", "oc_forum", BOB, reply_to=s.topic)


@step
def rich_text(s):
    rows = [[{"tag": "text", "text": "a_b ", "style": {"bold": True}}, {"tag": "a", "href": "https://e.org", "text": "here"}],
            [{"tag": "at", "user_id": "@_user_1", "user_name": "Bob"}, {"tag": "text", "text": " look"}],
            [{"tag": "emotion", "emoji_type": "SMILE"}], [{"tag": "hr"}],
            [{"tag": "code_block", "language": "rust", "text": "let  a;\nlet b;"}]]
    s.send("post", {"title": "Title", "content": rows}, "oc_team", mentions=[BOB])


@step
def rich_text_in_a_language(s):
    s.send("post", {"zh_cn": {"title": "", "content": [[{"tag": "text", "text": "ni hao"}]]}})


@step
def rich_text_that_is_empty(s):
    s.send("post", {"title": "", "content": [[]]})


@step
def picture_in_rich_text(s):
    rows = [[{"tag": "text", "text": "see"}], [{"tag": "img", "image_key": "img_b"}]]
    s.send("post", {"title": "", "content": rows}, files=[("img_b", "b.png", "image/png", PNG)])


@step
def picture(s):
    s.picture = s.send("image", {"image_key": "img_c"}, files=[("img_c", "c.png", "image/png", PNG)])


@step
def answer_to_a_picture(s):
    s.say("nice", reply_to=s.picture)


@step
def document(s):
    s.send("file", {"file_key": "file_d", "file_name": "d.pdf"}, files=[("file_d", "d.pdf", "application/pdf", b"%PDF-1.4")])


@step
def document_text(s):
    s.send("file", {"file_key": "file_n", "file_name": "notes.txt"},
           files=[("file_n", "notes.txt", "text/plain", b"line one")])


@step
def recording(s):
    s.send("audio", {"file_key": "file_r", "duration": 1000}, files=[("file_r", "r.ogg", "audio/ogg", b"OggS" + bytes(60))])


@step
def video(s):
    s.send("media", {"file_key": "file_v", "image_key": "img_v", "file_name": "v.mp4", "duration": 1000},
           files=[("file_v", "v.mp4", "video/mp4", bytes(60))])


@step
def shared_chat(s):
    s.send("share_chat", {"chat_id": "oc_team"})


@step
def forwarded_messages(s):
    s.send("merge_forward", "Merged and Forwarded Message")


@step
def card_of_somebody(s):
    s.send("interactive", {"title": "A card", "elements": [[{"tag": "text", "text": "Body"}], [{"tag": "button", "text": "Go"}]]})


@step
def sticker(s):
    s.send("sticker", {"file_key": "file_s"})


@step
def location(s):
    s.send("location", {"name": "Berlin", "longitude": "13.4", "latitude": "52.5"})


@step
def text_of_another_bot(s):
    s.say("I am a program", "oc_team", ROBOT, sender_type="bot")


@step
def withdrawn_message(s):
    s.act("event", kind="im.message.recalled_v1", event={"message_id": s.first, "chat_id": "oc_team"})


@step
def reaction_in_a_direct_chat(s):
    sent = own_message(s, "oc_ann")
    s.act("react", message=sent, emoji="THUMBSUP", **{"from": ANN})


@step
def reaction_in_a_group(s):
    sent = own_message(s, "oc_team")
    s.act("react", message=sent, emoji="DONE", **{"from": ANN})


@step
def reaction_to_somebody_else(s):
    s.act("react", message=s.first, emoji="DONE", **{"from": ANN})


def own_message(s, chat):
    """A message of the app itself, sent by nobody's agent."""
    base = s.fake.base_url + "/open-apis"

    def post(path, body, token=""):
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        request = urllib.request.Request(base + path, data=json.dumps(body).encode(), headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    token = post("/auth/v3/tenant_access_token/internal", {"app_id": APP, "app_secret": SECRET})["tenant_access_token"]
    body = {"receive_id": chat, "msg_type": "text", "content": json.dumps({"text": "mine"})}
    return post("/im/v1/messages?receive_id_type=chat_id", body, token)["data"]["message_id"]


@check
def no_difference_is_listed_in_vain(s):
    s.comparison.unseen = {(step, field) for step, field in s.comparison.unseen if field != "source.message_id"}
    s.comparison.no_difference_is_listed_in_vain()


if __name__ == "__main__":
    if not os.environ.get("FRONTDESK_FAKE_FEISHU_BIN"):
        print("FRONTDESK_FAKE_FEISHU_BIN is not set", file=sys.stderr)
        sys.exit(2)
    sys.exit(check.run([("", Scene)]))
