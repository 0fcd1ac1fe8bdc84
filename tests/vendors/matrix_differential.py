"""The same events of a real Synapse, through the gateway's own Matrix adapter and through this server and its relay:
sessions and events must be equal, but for the differences that are listed here.

  FRONTDESK_BIN=path/to/frontdesk tests/vendors/matrix_differential.py [--only PATTERN]

`setup.sh native` of tests/hermes must have run. Both sides poll for the same account. The native adapter makes a thread
of every message in a group unless it is told not to; here it is told so, because the relay has only the threads of the
room. One line per check; the last line is the tally.
"""

import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
# The folder has files with the names of libraries that the adapters need, so it comes last.
sys.path = [path for path in sys.path if path and os.path.realpath(path) != str(here)] + [str(here)]
sys.path.insert(0, str(here.parent / "hermes"))

from differential import Comparison, open_native, open_relay  # noqa: E402
from harness import Checks, Desk, end_process, unique, wait_for  # noqa: E402
from matrix import PNG, Homeserver, quote, synapse_python  # noqa: E402

EVENT_ID = re.compile(r"\$.+")
ROOM_ID = re.compile(r"!.+")
NO_NAME = "the native adapter takes the id of the room for its name; here a chat with one person has that person's name"
NO_HANDLER = "the native adapter drops this kind; here nothing is lost silently"
FALLBACK = "a client adds this reply for other clients that know no threads (is_falling_back); the user replied to nothing"
REPLY = "the native adapter does not read the message that is replied to"
FILE_NAME = "without `filename` the body is the name of the file, and no text of the user"
COLON = "the native adapter leaves the punctuation behind the mention"
BY_NAME = "clients write a mention as the display name of the bot; the native adapter leaves it in the text"
INSIDE = "only a mention before the text is an address; within a sentence it is a part of what was said"
BANG = "which words are commands of the gateway is known to the gateway only; `!` works for commands of the server"

# For a step and a field: what the native adapter says, what we say, why. `events` is how many there are.
DIFFERENCES = {
    "text_in_a_direct_chat_without_a_name": {"source.chat_name": (ROOM_ID, "Ann *Bee* <b>🧊", NO_NAME)},
    "text_in_a_direct_chat_that_grew": {"source.chat_name": (ROOM_ID, None, NO_NAME)},
    "text_in_a_group_without_a_name": {"source.chat_name": (ROOM_ID, None, NO_NAME)},
    "text_in_a_room_whose_id_has_no_server": {
        "source.scope_id": (None, "localhost", "ids of room version 12 name no server; here it is that of the creator")},
    "mention_by_id": {"text": (": what is up?", "what is up?", COLON)},
    "mention_of_an_older_client": {"text": (": what is up?", "what is up?", COLON)},
    "mention_by_name": {"text": ("Front Desk: what is up?", "what is up?", BY_NAME)},
    "mention_in_markup": {"text": ("Front Desk: hello", "hello", BY_NAME)},
    "mention_in_the_middle": {"text": ("tell me,, what is up?", "tell me, @desk:localhost, what is up?", INSIDE)},
    "mention_behind_an_emoji": {"text": ("👋🏽🧊, what is up?", "👋🏽🧊 @desk:localhost, what is up?", INSIDE)},
    "thread_text": {"reply_to_message_id": (EVENT_ID, None, FALLBACK)},
    "thread_text_of_another_person": {"reply_to_message_id": (EVENT_ID, None, FALLBACK)},
    "thread_in_a_direct_chat": {"reply_to_message_id": (EVENT_ID, None, FALLBACK)},
    "thread_reply": {"reply_to_text": (None, "in the thread", REPLY)},
    "reply": {"reply_to_text": (None, "me too", REPLY)},
    "reply_with_a_quote_before_it": {"reply_to_text": (None, "me too", REPLY)},
    "reply_that_begins_with_a_quote_of_its_own": {
        "reply_to_text": (None, "me too", REPLY),
        "text": ("I doubt it", "> your words\nI doubt it", "only a quote with its author is one that a client added")},
    "reply_to_the_bot": {"reply_to_text": (None, "one two three", REPLY)},
    "command_behind_a_quote": {"reply_to_text": (None, "me too", REPLY)},
    "command_with_an_exclamation_mark": {
        "text": ("/status now", "!status now", BANG),
        "message_type": ("command", "text", BANG),
        "command": ("status", None, BANG),
        "command_args": ("now", None, BANG)},
    "emote": {"events": (0, 1, NO_HANDLER)},
    "unknown_kind_of_message": {"events": (0, 1, NO_HANDLER)},
    "sticker": {"events": (0, 1, NO_HANDLER)},
    "location": {"events": (0, 1, NO_HANDLER)},
    "image_with_a_name_that_is_not_of_an_image": {"text": ("dot", "", FILE_NAME)},
    "image_as_a_reply": {
        "reply_to_message_id": (None, EVENT_ID, "the native adapter does not read replies of files"),
        "reply_to_text": (None, "hello *you* <b>&amp;</b>", REPLY)},
    "audio": {"text": ("song.mp3", "", FILE_NAME)},
    "audio_in_a_container_of_voice_recorders": {
        "text": ("song.ogg", "", FILE_NAME),
        "message_type": ("audio", "voice", "agents transcribe only voice notes, and not every client marks them")},
    "audio_without_a_type": {
        "text": ("song.mp3", "", FILE_NAME),
        "media_types": (["audio/ogg"], ["audio/mpeg"], "the type is not known; this one is not that of a voice note")},
    "voice": {"text": ("Voice message.ogg", "", FILE_NAME)},
    "video": {"text": ("clip.mp4", "", FILE_NAME)},
    "video_without_a_type": {"text": ("clip.mp4", "", FILE_NAME)},
    "document": {"text": ("a.pdf", "", FILE_NAME)},
    "document_without_a_type": {"text": ("data.bin", "", FILE_NAME)},
    "prompt_that_is_answered": {
        "events": (0, 1, "the native adapter answers its own prompts inside; over the relay the choice is an event")},
}
SPELLINGS = {}

check = Checks()


def step(function):
    """A part of the scene. Afterwards the events of both sides are compared."""
    def compare(s):
        function(s)
        s.compare(function.__name__)
    compare.__name__ = function.__name__
    return check(compare)


class Scene:
    def __init__(self, python):
        self.desk = Desk("matrix-differential")
        self.server = Homeserver(python, self.desk.url, unique("as"), unique("hs"))
        self.ann, self.ben, self.zed, self.bot = [self.server.user(name) for name in ("ann", "ben", "zed", "desk")]
        for user, name in ((self.ann, "Ann *Bee* <b>🧊"), (self.bot, "Front Desk")):
            user.ask("PUT", f"/profile/{quote(user.id)}/displayname", {"displayname": name})
        desk, ben = self.bot.id, self.ben.id
        # The last version whose room ids name a server.
        older = {"room_version": "11"}
        self.direct = self.ann.room(desk, is_direct=True, name="Ann & Desk", **older)
        self.unnamed = self.ann.room(desk, is_direct=True, **older)
        self.marks = self.zed.room(desk, is_direct=True, **older)
        self.group = self.ann.room(desk, ben, name="Ops & <i>Friends</i>", topic="All of *it*", **older)
        self.plain = self.ann.room(desk, ben, **older)
        self.aliased = self.ann.room(desk, ben, room_alias_name="ops", **older)
        self.grown = self.ann.room(desk, ben, is_direct=True, **older)
        self.grown_named = self.ann.room(desk, ben, is_direct=True, name="Us three", **older)
        self.newer = self.ann.room(desk, ben, name="Newer", room_version="12")
        groups = [self.group, self.plain, self.aliased, self.grown, self.grown_named, self.newer]
        for room in (self.direct, self.unnamed, self.marks, *groups):
            self.bot.join(room)
        for room in groups:
            self.ben.join(room)
        directs = {self.ann.id: [self.direct, self.unnamed, self.grown, self.grown_named], self.zed.id: [self.marks]}
        self.bot.ask("PUT", f"/user/{quote(desk)}/account_data/m.direct", directs)
        self.comparison = Comparison(DIFFERENCES, SPELLINGS)
        no_proxy = {name: "" for name in ("http_proxy", "https_proxy", "all_proxy")}
        self.native = open_native(
            "matrix", {"token": self.bot.token},
            {"homeserver": self.server.url, "user_id": self.bot.id, "e2ee_mode": "off", "require_mention": True,
             "free_response_rooms": groups},
            # It would send everything through a proxy, also to loopback.
            **no_proxy, **{name.upper(): "" for name in no_proxy},
            MATRIX_E2EE_MODE="off", MATRIX_AUTO_THREAD="false", HERMES_MATRIX_TEXT_BATCH_DELAY_SECONDS="0")
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {
            "platform": "matrix", "id": "bot", "tenant": self.tenant.name, "secrets": {"access_token": self.bot.token},
            "settings": {"homeserver_url": self.server.url, "user_id": self.bot.id, "mode": "sync"}})
        users = [user.id for user in (self.ann, self.ben, self.zed)]
        self.relay, self.link = open_relay(self.desk, self.tenant, "matrix", "bot", users)
        wait_for(self.is_heard, "the first poll", timeout=30, interval=0.3)
        self.settled()

    def is_heard(self):
        self.zed.say(self.marks, unique("begin"))
        return self.relay.driver.left(self.relay.name)

    def settled(self):
        """What came on both sides until now."""
        native, ours = [], []
        # The native adapter takes the events of one poll at the same time, but the polls one after the other.
        for _ in range(2):
            mark = unique("mark")
            self.zed.say(self.marks, mark)
            native += self.native.until(mark)
            ours += self.relay.until(mark)
        return native, ours

    def compare(self, name):
        self.comparison.step(name, *self.settled())

    def file(self, kind, mime, body, **more):
        uri = self.ann.upload(PNG, mime)
        info = {"mimetype": mime, "size": len(PNG)}
        return self.ann.send(self.direct, {"msgtype": kind, "body": body, "url": uri, "info": info, **more})

    def mention(self, text, room=None, **more):
        return self.ann.say(room or self.group, text, **{"m.mentions": {"user_ids": [self.bot.id]}}, **more)

    def play(self, function):
        function(self)

    def tail(self):
        return ""

    def close(self):
        self.desk.stop()
        end_process(self.server.process)


def reply_to(event_id):
    return {"m.relates_to": {"m.in_reply_to": {"event_id": event_id}}}


def in_thread(root, latest=None, **more):
    reply = {"event_id": latest or root}
    return {"m.relates_to": {"rel_type": "m.thread", "event_id": root, "m.in_reply_to": reply, **more}}


@step
def direct_text(s):
    s.said = s.ann.say(s.direct, "hello *you* <b>&amp;</b>")


@step
def direct_text_of_several_lines(s):
    s.ann.say(s.direct, "  one\n\n\ttwo 🧊\n")


@step
def direct_text_with_markup(s):
    s.ann.say(s.direct, "**bold**", format="org.matrix.custom.html", formatted_body="<strong>bold</strong>")


@step
def text_in_a_direct_chat_without_a_name(s):
    s.ann.say(s.unnamed, "hello")


@step
def text_in_a_direct_chat_that_grew(s):
    s.ann.say(s.grown, "hello")


@step
def text_in_a_direct_chat_that_grew_and_has_a_name(s):
    s.ann.say(s.grown_named, "hello")


@step
def group_text(s):
    s.root = s.ann.say(s.group, "hi all")


@step
def group_text_of_another_person(s):
    s.of_ben = s.ben.say(s.group, "me too")


@step
def text_in_a_group_without_a_name(s):
    s.ann.say(s.plain, "hi all")


@step
def text_in_a_group_with_an_alias(s):
    s.ann.say(s.aliased, "hi all")


@step
def text_in_a_room_whose_id_has_no_server(s):
    s.ann.say(s.newer, "hi all")


@step
def mention_by_id(s):
    s.mention(f"{s.bot.id}: what is up?")


@step
def mention_by_id_without_punctuation(s):
    s.mention(f"{s.bot.id} what is up?")


@step
def mention_by_localpart(s):
    s.mention("@desk what is up?")


@step
def mention_by_name(s):
    s.mention("Front Desk: what is up?")


@step
def mention_in_the_middle(s):
    s.mention(f"tell me, {s.bot.id}, what is up?")


@step
def mention_only(s):
    s.mention(s.bot.id)


@step
def mention_behind_an_emoji(s):
    s.mention(f"👋🏽🧊 {s.bot.id}, what is up?")


@step
def mention_of_an_older_client(s):
    s.ann.say(s.group, f"{s.bot.id}: what is up?")


@step
def mention_in_markup(s):
    s.ann.say(s.group, "Front Desk: hello", format="org.matrix.custom.html",
              formatted_body=f'<a href="https://matrix.to/#/{s.bot.id}">Front Desk</a>: hello')


@step
def mention_of_another_person(s):
    s.ann.say(s.group, f"{s.ben.id}: hello", **{"m.mentions": {"user_ids": [s.ben.id]}})


@step
def mention_before_a_command(s):
    s.mention(f"{s.bot.id} /status now")


@step
def thread_text(s):
    s.in_thread = s.ann.say(s.group, "in the thread", **in_thread(s.root, is_falling_back=True))


@step
def thread_text_of_another_person(s):
    s.ben.say(s.group, "in the thread", **in_thread(s.root, s.in_thread, is_falling_back=True))


@step
def thread_reply(s):
    s.ann.say(s.group, "about that", **in_thread(s.root, s.in_thread, is_falling_back=False))


@step
def thread_in_a_direct_chat(s):
    s.ann.say(s.direct, "more", **in_thread(s.said, is_falling_back=True))


@step
def reply(s):
    s.ann.say(s.group, "why?", **reply_to(s.of_ben))


@step
def reply_with_a_quote_before_it(s):
    s.ann.say(s.group, f"> <{s.ben.id}> me too\n> and more\n\nwhy?", **reply_to(s.of_ben))


@step
def reply_that_begins_with_a_quote_of_its_own(s):
    s.ann.say(s.group, "> your words\nI doubt it", **reply_to(s.of_ben))


@step
def reply_to_the_bot(s):
    s.own = s.bot.say(s.group, "one two three")
    s.ann.say(s.group, "why?", **reply_to(s.own))


@step
def command(s):
    s.ann.say(s.direct, "/status now")


@step
def command_in_a_group(s):
    s.ann.say(s.group, "/status")


@step
def command_with_an_exclamation_mark(s):
    s.ann.say(s.direct, "!status now")


@step
def exclamation_mark_without_a_command(s):
    s.ann.say(s.direct, "!important: do it")


@step
def command_behind_a_quote(s):
    s.ann.say(s.group, f"> <{s.ben.id}> me too\n\n/status", **reply_to(s.of_ben))


@step
def notice(s):
    s.ann.send(s.direct, {"msgtype": "m.notice", "body": "I am a bot"})


@step
def emote(s):
    s.ann.send(s.direct, {"msgtype": "m.emote", "body": "waves"})


@step
def unknown_kind_of_message(s):
    s.ann.send(s.direct, {"msgtype": "org.example.new", "body": "something new"})


@step
def edit(s):
    s.ann.send(s.direct, {"msgtype": "m.text", "body": "* new", "m.new_content": {"msgtype": "m.text", "body": "new"},
                          "m.relates_to": {"rel_type": "m.replace", "event_id": s.said}})


@step
def image(s):
    s.file("m.image", "image/png", "dot.png")


@step
def image_with_caption(s):
    s.file("m.image", "image/png", "what is this?", filename="dot.png")


@step
def image_with_a_name_that_is_not_of_an_image(s):
    s.file("m.image", "image/png", "dot")


@step
def image_in_a_thread(s):
    s.ann.send(s.group, {"msgtype": "m.image", "body": "dot.png", "url": s.ann.upload(PNG, "image/png"),
                         "info": {"mimetype": "image/png"}, **in_thread(s.root, is_falling_back=True)})


@step
def image_as_a_reply(s):
    s.file("m.image", "image/png", "dot.png", **reply_to(s.said))


@step
def audio(s):
    s.file("m.audio", "audio/mpeg", "song.mp3")


@step
def audio_in_a_container_of_voice_recorders(s):
    s.file("m.audio", "audio/ogg", "song.ogg")


@step
def voice(s):
    s.file("m.audio", "audio/ogg", "Voice message.ogg", **{"org.matrix.msc3245.voice": {}})


@step
def video(s):
    s.file("m.video", "video/mp4", "clip.mp4")


@step
def document(s):
    s.file("m.file", "application/pdf", "a.pdf")


@step
def document_without_a_type(s):
    uri = s.ann.upload(PNG, "application/octet-stream")
    s.ann.send(s.direct, {"msgtype": "m.file", "body": "data.bin", "url": uri})


@step
def image_without_a_type(s):
    s.ann.send(s.direct, {"msgtype": "m.image", "body": "dot.png", "url": s.ann.upload(PNG, "image/png")})


@step
def audio_without_a_type(s):
    s.ann.send(s.direct, {"msgtype": "m.audio", "body": "song.mp3", "url": s.ann.upload(PNG, "audio/mpeg")})


@step
def video_without_a_type(s):
    s.ann.send(s.direct, {"msgtype": "m.video", "body": "clip.mp4", "url": s.ann.upload(PNG, "video/mp4")})


@step
def sticker(s):
    info = {"mimetype": "image/png"}
    s.ann.send(s.direct, {"body": "a cat", "url": s.ann.upload(PNG, "image/png"), "info": info}, "m.sticker")


@step
def location(s):
    s.ann.send(s.direct, {"msgtype": "m.location", "body": "Here", "geo_uri": "geo:48.2,16.37"})


@step
def reaction(s):
    s.ann.send(s.direct, {"m.relates_to": {"rel_type": "m.annotation", "event_id": s.said, "key": "👍"}}, "m.reaction")


@step
def prompt_that_is_answered(s):
    options = [{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}]
    sent = s.link.act("prompt", platform="matrix", chat_id=s.direct, prompt_id="p1", prompt_kind="choice", content="Shall I?",
                      options=options)
    relates = {"rel_type": "m.annotation", "event_id": sent["message_id"], "key": "2\ufe0f\u20e3"}
    s.ann.send(s.direct, {"m.relates_to": relates}, "m.reaction")


@step
def redaction(s):
    s.ann.ask("PUT", f"/rooms/{quote(s.direct)}/redact/{quote(s.said)}/{unique('t')}", {})


@step
def member_leaves_and_comes_back(s):
    s.ben.ask("POST", f"/rooms/{quote(s.plain)}/leave", {})
    s.ann.ask("POST", f"/rooms/{quote(s.plain)}/invite", {"user_id": s.ben.id})
    s.ben.join(s.plain)


@step
def names_change(s):
    s.ann.ask("PUT", f"/rooms/{quote(s.plain)}/state/m.room.name", {"name": "Plain no more"})
    s.ann.ask("PUT", f"/rooms/{quote(s.plain)}/state/m.room.topic", {"topic": "New"})
    s.ben.ask("PUT", f"/profile/{quote(s.ben.id)}/displayname", {"displayname": "Benjamin"})
    # Synapse changes the name in the rooms later.
    member = f"/rooms/{quote(s.plain)}/state/m.room.member/{quote(s.ben.id)}"
    wait_for(lambda: s.ann.ask("GET", member).get("displayname") == "Benjamin", "the new name in the room")


@step
def text_after_names_changed(s):
    s.ben.say(s.plain, "so what")


@step
def encrypted_message(s):
    secret = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "session_id": "s", "device_id": "d", "sender_key": "k"}
    s.ann.send(s.direct, secret, "m.room.encrypted")


@step
def own_message(s):
    s.bot.say(s.direct, "mine")


@check
def no_difference_is_listed_in_vain(s):
    s.comparison.no_difference_is_listed_in_vain()


if __name__ == "__main__":
    python = synapse_python() if os.environ.get("FRONTDESK_BIN") else ""
    sys.exit(check.run([("", lambda: Scene(python))]))
