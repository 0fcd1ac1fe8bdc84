"""The same messages of Slack, through the gateway's own adapter and through this server and its relay: sessions and events
must be equal, but for the differences that are listed here.

  FRONTDESK_BIN=path/to/frontdesk FRONTDESK_FAKE_SLACK_BIN=path/to/examples/fake_slack \\
      tests/vendors/slack_differential.py [--only PATTERN]

`setup.sh native` of tests/hermes must have run. One fake Slack tells the native adapter by Socket Mode, and this server by
requests, what happens. One line per check; the last line is the tally.
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

TOKEN, APP_TOKEN, SIGNING = "xoxb-1-2-abcdefgh", "xapp-1-A1-abcdefgh", "8f742231b10e8888abcd99dddddd85a5"
ANN, BOB, ZED, ROBOT = "UANN", "UBOB", "UZED", "UROBOT"
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf"
                    "c0000003010100c9fe92ef0000000049454e44ae426082")
QUIET_S = 0.5

NO_ID = "the relay names the message in the source too: newer gateways make threads of it"
CONTEXT = "the native adapter puts the thread before the text; here the text is what the user wrote"
PARENT = "the native adapter asks Slack for the first message; here nothing is asked that is not in hand"
STEPS = []

# For a step and a field: what the native adapter says, what we say, why. `events` is how many there are.
DIFFERENCES = {
    "reply_in_a_thread": {
        "text": (re.compile(r"(?s)\[Thread context.*inside"), "inside", CONTEXT),
        "reply_to_text": (re.compile(r"(?s).*start.*"), None, PARENT)},
    "mention_in_a_thread": {
        "text": (re.compile(r"(?s)\[Thread context.*what now\?"), "what now?", CONTEXT),
        "reply_to_text": (re.compile(r"(?s).*start.*"), None, PARENT)},
    "document_text": {"text": (
        "[Content of notes.txt]:\nline one\n\nmy notes", "my notes",
        "files are fetched when an agent asks for them, so their content is not part of the text")},
    "edited_text": {"events": (0, 1, "the native adapter drops edits; here the agent gets the new text")},
    "slash_command": {
        "source.chat_name": (None, "C1", "a command has the same chat as a message"),
        "source.user_name": (None, "ann", "Slack tells the name with the command"),
        "message_id": (None, re.compile("command-[0-9a-f]+"), "an id makes a repetition known")},
    "slash_command_in_a_direct_chat": {
        "source.chat_name": (None, "D1", "a command has the same chat as a message"),
        "source.user_name": (None, "ann", "Slack tells the name with the command"),
        "message_id": (None, re.compile("command-[0-9a-f]+"), "an id makes a repetition known")},
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


def file(name, mime, content):
    return {"name": name, "mime": mime, "content_hex": content.hex()}


class Fake:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.base_url = json.loads(self.process.stdout.readline())["base_url"]

    def control(self, path, body=None):
        url = self.base_url.removesuffix("/api") + "/control/" + path
        request = urllib.request.Request(url, data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["result"]

    def act(self, act, **fields):
        return self.control("act", {"act": act, **fields})

    def settle(self):
        """Until nothing waits and nothing was asked for a while: the native adapter asks about threads and files, and the
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
        self.fake = Fake(os.environ["FRONTDESK_FAKE_SLACK_BIN"])
        self.desk = Desk("slack-differential")
        self.act("set_app", id="A1", app_token=APP_TOKEN, signing_secret=SIGNING,
                 request_url=f"{self.desk.url}/slack/bot", also_sockets=True)
        self.act("add_team", id="T1", token=TOKEN, bot_user="UBOT", installed=True)
        people = {ANN: "Ann", BOB: "Bob", ZED: "Zed", ROBOT: "Robot"}
        for user, name in people.items():
            self.act("add_user", id=user, team="T1", name=name, display_name=f"{name} B" if user == ANN else "")
        for channel, kind, members in (("C1", "channel", list(people)), ("G1", "group", [ANN, BOB]),
                                       ("G2", "mpim", [ANN, BOB]), ("D1", "im", [ANN]), ("D9", "im", [ZED])):
            self.act("add_channel", id=channel, team="T1", name=f"name-{channel.lower()}", kind=kind,
                     members=["UBOT", *members])
        steps = [*STEPS, "edited_text_first"]
        differences = {name: {"source.message_id": (None, re.compile(r"\d+\.\d{6}|command-[0-9a-f]+"), NO_ID),
                              **DIFFERENCES.get(name, {})} for name in steps}
        for name, fields in differences.items():
            if "events" in fields:
                fields.pop("source.message_id")  # there is nothing to compare
        self.comparison = Comparison(differences, SPELLINGS)
        self.native = open_native(
            # As this server tells it: a message outside of threads begins none.
            "slack", {"token": TOKEN}, {"base_url": self.fake.base_url + "/", "reply_in_thread": False,
                                        "dm_top_level_threads_as_sessions": False},
            SLACK_APP_TOKEN=APP_TOKEN, SLACK_REQUIRE_MENTION="false", SLACK_ALLOW_BOTS="all", SLACK_REACTIONS="false",
            SLACK_ALLOW_ALL_USERS="true",
            **{name: "" for proxy in ("http_proxy", "https_proxy", "all_proxy") for name in (proxy, proxy.upper())})
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {
            "platform": "slack", "id": "bot", "tenant": self.tenant.name,
            "secrets": {"bot_token": TOKEN, "signing_secret": SIGNING},
            "settings": {"base_url": self.fake.base_url, "mode": "events"}})
        self.relay, self.link = open_relay(self.desk, self.tenant, "slack", "bot", (ANN, BOB, ZED, ROBOT))
        mark = unique("first")
        self.say(mark, "D9", ZED)
        self.relay.until(mark)
        self.native.until(mark)

    def act(self, act, **more):
        return self.fake.act(act, **more)

    def say(self, text, channel="C1", by=ANN, **more):
        return self.act("say", channel=channel, text=text, **{"from": by}, **more)["ts"]

    def compare(self, name):
        mark = unique("mark")
        self.fake.settle()
        self.say(mark, "D9", ZED)
        native, ours = self.native.until(mark), self.relay.until(mark)
        self.comparison.take_late(name, self.native, native, ours)
        for record in native:
            record["reply_to_message_id"] = record["reply_to_message_id"] or None  # in direct chats it is an empty text
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
    s.say("hello *you* &lt;b&gt;&amp;", "D1")


@step
def direct_text_of_several_lines(s):
    s.say("  one\n\n\ttwo 🧊\n", "D1")


@step
def channel_text(s):
    s.first = s.say("start")


@step
def channel_text_of_somebody_without_a_display_name(s):
    s.say("hi", by=BOB)


@step
def private_channel(s):
    s.say("hi", "G1")


@step
def chat_of_several_people(s):
    s.say("hi", "G2")


@step
def mention(s):
    s.say("<@UBOT> what is this?")


@step
def mention_in_the_middle(s):
    s.say("well <@UBOT>, what is this?")


@step
def mention_alone(s):
    s.say("<@UBOT>")


@step
def mention_among_several_people(s):
    s.say("<@UBOT> and you?", "G2")


@step
def mention_of_somebody_else(s):
    s.say(f"<@{BOB}> look")


@step
def command_with_an_exclamation_mark(s):
    s.say("!help me", "D1")


@step
def exclamation_that_is_no_command(s):
    s.say("!nice work", "D1")


@step
def command_with_a_slash(s):
    s.say("/help me", "D1")


@step
def reply_in_a_thread(s):
    s.say("inside", thread_ts=s.first)


@step
def mention_in_a_thread(s):
    s.say("<@UBOT> what now?", thread_ts=s.first)


@step
def quoted_message_in_blocks(s):
    quote = {"type": "rich_text_quote", "elements": [{"type": "text", "text": "what Bob said"}]}
    section = {"type": "rich_text_section", "elements": [{"type": "text", "text": "look at this"}]}
    s.say("look at this", "D1", more={"blocks": [{"type": "rich_text", "block_id": "b", "elements": [section, quote]}]})


@step
def list_and_code_in_blocks(s):
    item = {"type": "rich_text_section", "elements": [{"type": "text", "text": "one"}, {"type": "emoji", "name": "wave"}]}
    elements = [{"type": "rich_text_list", "style": "ordered", "elements": [item, item]},
                {"type": "rich_text_list", "style": "bullet", "elements": [item]},
                {"type": "rich_text_preformatted", "language": "sh", "elements": [{"type": "text", "text": "ls"}]}]
    s.say("", "D1", more={"blocks": [{"type": "rich_text", "elements": elements}]})


@step
def link_in_blocks(s):
    link = {"type": "link", "url": "https://a.example/x", "text": "here"}
    elements = [{"type": "text", "text": "see "}, link, {"type": "user", "user_id": BOB}, {"type": "broadcast", "range": "here"}]
    blocks = [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": elements}]}]
    s.say(f"see <https://a.example/x|here><@{BOB}><!here>", "D1", more={"blocks": blocks})


@step
def preview_of_a_link(s):
    preview = {"title": "A page", "title_link": "https://a.example", "text": "x" * 600, "footer": "a.example"}
    s.say("read <https://a.example>", "D1", more={"attachments": [preview, {"is_msg_unfurl": True, "text": "own"},
                                                                 {"fallback": "plain"}]})


@step
def picture(s):
    s.say("", "D1", files=[file("a.png", "image/png", PNG)])


@step
def picture_with_text(s):
    s.say("look", "D1", files=[file("a.png", "image/png", PNG)])


@step
def two_files(s):
    s.say("two", "D1", files=[file("a.pdf", "application/pdf", b"%PDF-1.4"), file("b.png", "image/png", PNG)])


@step
def sound(s):
    s.say("", "D1", files=[file("a.mp3", "audio/mpeg", b"ID3" + bytes(60))])


@step
def video(s):
    s.say("", "D1", files=[file("a.mp4", "video/mp4", bytes(60))])


@step
def document(s):
    s.say("mine", "D1", files=[file("a.pdf", "application/pdf", b"%PDF-1.4")])


@step
def document_text(s):
    s.say("my notes", "D1", files=[file("notes.txt", "text/plain", b"line one")])


@step
def text_of_another_bot(s):
    s.say("I am a program", by=ROBOT, more={"bot_id": "B9", "app_id": "A9"})


@step
def note_that_somebody_joined(s):
    s.act("event", team="T1", event={"type": "message", "subtype": "message_deleted", "channel": "C1", "ts": "1.000001"})


@step
def edited_text(s):
    said = s.say("fist", "D1")
    s.compare("edited_text_first")
    s.act("edit", channel="D1", ts=said, text="first", **{"from": ANN})


@step
def slash_command(s):
    s.act("command", channel="C1", command="/model", text="fast one", **{"from": ANN})


@step
def slash_command_in_a_direct_chat(s):
    s.act("command", channel="D1", command="/model", text="", **{"from": ANN})


@check
def no_difference_is_listed_in_vain(s):
    s.comparison.unseen = {(step, field) for step, field in s.comparison.unseen if field != "source.message_id"}
    s.comparison.no_difference_is_listed_in_vain()


if __name__ == "__main__":
    if not os.environ.get("FRONTDESK_FAKE_SLACK_BIN"):
        print("FRONTDESK_FAKE_SLACK_BIN is not set", file=sys.stderr)
        sys.exit(2)
    sys.exit(check.run([("", Scene)]))
