"""The same messages of Discord, through the gateway's own adapter and through this server and its relay: sessions and
events must be equal, but for the differences that are listed here.

  FRONTDESK_BIN=path/to/frontdesk FRONTDESK_FAKE_DISCORD_BIN=path/to/examples/fake_discord \\
      tests/vendors/discord_differential.py [--only PATTERN]

`setup.sh native` of tests/hermes must have run. Both connect to one fake Discord server as the same bot: every session of
a bot gets all of its events. One line per check; the last line is the tally.
"""

import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
# The folder has files with names of libraries that the adapters need, so it comes last.
sys.path = [path for path in sys.path if path and os.path.realpath(path) != str(here)] + [str(here)]
sys.path.insert(0, str(here.parent / "hermes"))

import discord_scene  # noqa: E402
from differential import Comparison, open_native, open_relay  # noqa: E402
from discord_scene import ANN, BOB, BOT, FORUM, GENERAL, GUILD, PNG, ROLE, TOKEN  # noqa: E402
from harness import Checks, Desk, ensure, unique  # noqa: E402

ZED, ROBOT = 1100000000000000019, 1100000000000000018
BOT_ROLE = 1100000000000000151
OGG = b"OggS" + bytes(60)

EMPTY = "(The user sent a message with no text content)"
NO_WORDS = "a sentence about a message without words is not what the user sent"
FOREIGN = "the agent must see that these are not the words of the user"
FORWARD = "a message that is forwarded is no reply to it"

# For a step and a field: what the native adapter says, what we say, why. `events` is how many there are.
DIFFERENCES = {
    "mention_alone": {"events": (0, 1, "the native adapter drops it; here nothing is lost silently")},
    **{name: {"text": (EMPTY, "", NO_WORDS)} for name in (
        "reply_to_a_file_first", "picture", "sound", "voice_message", "video", "document_of_an_unknown_kind")},
    "document_text": {"text": (
        "[Content of notes.txt]:\nline one\n\nmy notes", "my notes",
        "files are fetched when an agent asks for them, so their content is not part of the text")},
    "sticker": {
        "text": (EMPTY, "[Sticker wave]", "the native adapter does not look at stickers"),
        "message_type": ("text", "sticker", "the native adapter does not look at stickers")},
    "forwarded_message": {
        "text": ("hi all", "[Forwarded message]\nhi all", FOREIGN),
        "reply_to_message_id": (re.compile(r"\d+"), None, FORWARD)},
    "forwarded_message_with_a_file": {
        "text": ("see this", "[Forwarded message]\nsee this", FOREIGN),
        "reply_to_message_id": (re.compile(r"\d+"), None, FORWARD)},
    "embed_of_another_bot": {"text": (EMPTY, "Build\nis green", "the native adapter does not look at embeds")},
    "embed_beside_a_text": {"text": ("news", "news\nBuild\nis green", "the native adapter does not look at embeds")},
    "edited_text": {"events": (0, 1, "the native adapter drops edits; here the agent gets the new text")},
    "text_that_the_client_split": {
        "events": (1, 2, "the native adapter waits for more and joins it; here every message is delivered at once")},
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
    return function


def file(name, mime, content):
    return {"name": name, "mime": mime, "content_hex": content.hex()}


class Scene:
    def __init__(self):
        self.fake = discord_scene.Fake(os.environ["FRONTDESK_FAKE_DISCORD_BIN"])
        discord_scene.make_world(self.fake)
        self.act("add_user", id=ZED, username="zed")
        self.act("add_user", id=ROBOT, username="robot", bot=True)
        self.act("join", guild=GUILD, user=ROBOT)
        self.act("put_role", guild=GUILD, id=BOT_ROLE, name="Bots")
        self.act("change_member", guild=GUILD, user=BOT, roles=[BOT_ROLE])
        self.comparison = Comparison(DIFFERENCES, SPELLINGS)
        self.native = open_native(
            "discord", {"token": TOKEN}, {"base_url": self.fake.base_url, "gateway_url": self.fake.gateway_url},
            DISCORD_REQUIRE_MENTION="false", DISCORD_IGNORE_NO_MENTION="false", DISCORD_AUTO_THREAD="false",
            DISCORD_REACTIONS="false", DISCORD_HISTORY_BACKFILL="false", DISCORD_ALLOW_BOTS="all",
            DISCORD_ALLOW_ALL_USERS="true", DISCORD_COMMAND_SYNC_POLICY="off",
            HERMES_DISCORD_TEXT_BATCH_DELAY_SECONDS="0.08",
            # It would use the proxy of the environment for loopback addresses too.
            **{name: "" for proxy in ("http_proxy", "https_proxy", "all_proxy") for name in (proxy, proxy.upper())})
        self.desk = Desk("discord-differential")
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {
            "platform": "discord", "id": "bot", "tenant": self.tenant.name, "secrets": {"token": TOKEN},
            "settings": {"base_url": self.fake.base_url, "gateway_url": self.fake.gateway_url}})
        self.relay, self.link = open_relay(self.desk, self.tenant, "discord", "bot", (ANN, BOB, ZED, ROBOT))
        self.compare_first()

    def act(self, act, **more):
        return self.fake.act(act, **more)

    def say(self, text, channel=GENERAL, by=ANN, **more):
        return int(self.act("say", channel=channel, by=by, text=text, **more)["id"])

    def direct(self, text, by=ANN, **more):
        return int(self.act("say", bot=BOT, by=by, text=text, **more)["id"])

    def compare_first(self):
        """Until both sides hear what is said."""
        mark = unique("first")
        self.direct(mark, by=ZED)
        self.relay.until(mark)
        self.native.until(mark)

    def compare(self, name):
        mark = unique("mark")
        self.direct(mark, by=ZED)
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
    s.direct("hello *you* <b>&amp;</b>")


@step
def direct_text_of_several_lines(s):
    s.direct("  one\n\n\ttwo 🧊\n")


@step
def direct_command(s):
    s.direct("/help me")


@step
def guild_text(s):
    s.first = s.say("hi all")


@step
def guild_text_of_somebody_without_a_nick(s):
    s.say("hi", by=BOB)


@step
def mention(s):
    s.say(f"<@{BOT}> what is this?")


@step
def mention_in_the_middle(s):
    s.say(f"well <@!{BOT}>, what is this?")


@step
def mention_alone(s):
    s.say(f"<@{BOT}>")


@step
def mention_of_somebody_else(s):
    s.say(f"<@{BOB}> look")


@step
def mention_of_the_role_of_the_bot(s):
    s.say(f"<@&{BOT_ROLE}> look")


@step
def mention_of_another_role(s):
    s.say(f"<@&{ROLE}> look")


@step
def command_in_a_channel(s):
    s.say(f"<@{BOT}> /model fast one")


@step
def reply_to_a_person(s):
    s.say("what I meant", reply_to=s.first)


@step
def reply_to_the_bot(s):
    sent = s.link.act("send", platform="discord", chat_id=str(GENERAL), content="an answer of the bot")
    ensure(sent.get("success"), f"send: {sent}")
    s.own = int(sent["message_id"])
    s.say("thanks", reply_to=s.own)


@step
def reply_without_a_ping(s):
    s.say("thanks", reply_to=s.own, no_ping=True)


@step
def reply_to_a_file(s):
    shown = s.say("", files=[file("a.png", "image/png", PNG)])
    s.compare("reply_to_a_file_first")
    s.say("what is it?", reply_to=shown)


@step
def thread_on_a_message(s):
    s.thread = int(s.act("open_thread", channel=GENERAL, by=ANN, name="Story", message=s.first)["id"])
    s.say("inside", channel=s.thread)


@step
def thread_without_a_message(s):
    s.say("inside", channel=int(s.act("open_thread", channel=GENERAL, by=ANN, name="plans")["id"]))


@step
def private_thread(s):
    thread = int(s.act("open_thread", channel=GENERAL, by=ANN, name="secret", private=True)["id"])
    s.act("join_thread", thread=thread, user=BOT)
    s.say("inside", channel=thread)


@step
def reply_in_a_thread(s):
    said = s.say("one", channel=s.thread)
    s.compare("reply_in_a_thread_first")
    s.say("more", channel=s.thread, reply_to=said)


@step
def forum_post(s):
    s.post = int(s.act("post_in_forum", channel=FORUM, by=ANN, name="An idea", text="what about this?")["id"])


@step
def answer_in_a_forum_post(s):
    s.say("good", channel=s.post, by=BOB)


@step
def picture(s):
    s.say("", files=[file("a.png", "image/png", PNG)])


@step
def picture_with_text(s):
    s.direct("look", files=[file("a.png", "image/png", PNG)])


@step
def two_pictures(s):
    s.say("two", files=[file("a.png", "image/png", PNG), file("b.jpg", "image/jpeg", PNG)])


@step
def sound(s):
    s.direct("", files=[file("a.ogg", "audio/ogg", OGG)])


@step
def voice_message(s):
    s.direct("", files=[file("voice-message.ogg", "audio/ogg", OGG)], voice=True)


@step
def video(s):
    s.direct("", files=[file("a.mp4", "video/mp4", bytes(40))])


@step
def document(s):
    s.direct("mine", files=[file("a.pdf", "application/pdf", b"%PDF-1.4")])


@step
def document_text(s):
    s.direct("my notes", files=[file("notes.txt", "text/plain; charset=utf-8", b"line one")])


@step
def document_of_an_unknown_kind(s):
    s.direct("", files=[file("a.bin", "application/octet-stream", bytes(9))])


@step
def command_with_a_file(s):
    s.direct("/describe it", files=[file("a.png", "image/png", PNG)])


@step
def sticker(s):
    s.direct("", stickers=["wave"])


@step
def forwarded_message(s):
    s.direct("", forward=[GENERAL, s.first])


@step
def forwarded_message_with_a_file(s):
    shown = s.say("see this", files=[file("a.png", "image/png", PNG)])
    s.compare("forwarded_message_first")
    s.direct("", forward=[GENERAL, shown])


@step
def text_of_another_bot(s):
    s.say("I am a program", by=ROBOT)


@step
def embed_of_another_bot(s):
    s.say("", by=ROBOT, embeds=[{"type": "rich", "title": "Build", "description": "is green"}])


@step
def embed_beside_a_text(s):
    s.say("news", by=ROBOT, embeds=[{"type": "rich", "title": "Build", "description": "is green"}])


@step
def edited_text(s):
    said = s.direct("fist")
    s.compare("edited_text_first")
    dm = s.act("say", bot=BOT, by=ANN, text="between")["channel_id"]
    s.compare("edited_text_between")
    s.act("edit", channel=int(dm), message=said, text="first")


@step
def text_that_the_client_split(s):
    s.direct("a" * 1995)
    s.direct("and the rest")


@check
def no_difference_is_listed_in_vain(s):
    s.comparison.no_difference_is_listed_in_vain()


if __name__ == "__main__":
    if not os.environ.get("FRONTDESK_FAKE_DISCORD_BIN"):
        print("FRONTDESK_FAKE_DISCORD_BIN is not set", file=sys.stderr)
        sys.exit(2)
    sys.exit(check.run([("", Scene)]))
