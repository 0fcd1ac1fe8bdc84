"""The same messages of Signal, through the gateway's own adapter and through this server and its relay: sessions and events
must be equal, but for the differences that are listed here.

  FRONTDESK_BIN=path/to/frontdesk tests/vendors/signal_differential.py [--only PATTERN]

`setup.sh native` of tests/hermes must have run. Two stubs of the daemon of `signal-cli` 0.13 play the same scene, one for each
side, so that times and ids are equal. One line per check; the last line is the tally.
"""

import base64
import json
import os
import queue
import re
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import NamedTuple, Optional

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
# The folder has files with names of libraries that the adapters need, so it comes last.
sys.path = [path for path in sys.path if path and os.path.realpath(path) != str(here)] + [str(here)]
sys.path.insert(0, str(here.parent / "hermes"))

from differential import Comparison, open_native, open_relay  # noqa: E402
from harness import Checks, Desk, Quiet, Stub, ensure, same, unique, wait_for  # noqa: E402

ALIVE_S = 15
WAITING_MAX = 64
REQUEST_MAX_BYTES = 1 << 20
FIRST_MS = 1_760_000_000_000
MENTIONED = "\ufffc"


class Person(NamedTuple):
    number: Optional[str]
    aci: Optional[str]
    name: Optional[str]

    @property
    def theirs(self):
        """The id that the native adapter uses."""
        return self.number or self.aci

    @property
    def ours(self):
        return self.aci or self.number


BOT = Person("+15550000001", "9f9f9f9f-0000-4000-8000-000000000001", "Desk")
ANN = Person("+15550001111", "0b6d7c9e-1111-4222-8333-444455556666", "Ann B")
HIDDEN = ANN._replace(number=None)
BOB = Person(None, "1c7e8daf-1111-4222-8333-444455556666", "Bob")
OLD = Person("+15550003333", None, "Cy")
NAMELESS = Person("+15550004444", "2d8f9eb0-1111-4222-8333-444455556666", None)
ZED = Person("+15550009999", "3e90afc1-1111-4222-8333-444455556666", "Zed")
GROUP = {"groupId": "R3JvdXAgb2YgdGhlIG9wZXJhdG9ycyE=", "groupName": "Ops", "revision": 3, "type": "DELIVER"}
GROUP_CHAT = f"group:{GROUP['groupId']}"

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf"
                    "c0000003010100c9fe92ef0000000049454e44ae426082")
FILES = {"a.png": PNG, "a.ogg": b"OggS" + bytes(60), "a.mp4": b"\0\0\0\x18ftypisom" + bytes(60), "a.pdf": b"%PDF-1.4",
         "notes.txt": b"line one"}

BY_ACI = "a number can be given to somebody else and is an id of SMS too, so the account id names people and direct chats"
ALT = "the id of the account is the id already; the other one is the number"
ALONE = "the id of the account is the id already, and no number is known"
MEMBER = "a gateway names the member of a group by user_id_alt, which is the number here"
NAME = "without a name the id is shown"
NO_ID = "the native adapter does not name messages; the name makes a repetition known, and the message can be quoted"
QUOTED = "a message is named by its time and its author"
OWN = "a mention of the bot is no part of what it is told; the native adapter leaves it out in groups only"
OWN_ID = "the native adapter does not know the bot by its account id"
AS_WRITTEN = "the native adapter removes spaces of every text of a group; here a text is what the user wrote"
UTF16 = "positions are in UTF-16 units; the native adapter takes them for characters"
NOTHING_LOST = "the native adapter drops it; here nothing is lost silently"
LAZY = "files are fetched when an agent asks for them, so a fault of the daemon is no reason to leave them out"
NO_FILE = "the file cannot be fetched, but it was sent"
ONE_PERSON = "what the account of the bot writes on another device is no message to the bot"
REPEATED = "a repetition is known by its id"

# For a step and a field: what the native adapter says, what we say, why. `events` is how many there are. The differences of ids
# follow from who speaks and where: see `ids`.
DIFFERENCES = {
    "mention_in_a_direct_chat": {"text": (f"@{BOT.number} what is this?", "what is this?", OWN)},
    "mention_alone_in_a_direct_chat": {"text": (f"@{BOT.number}", "", OWN)},
    "mention_alone_in_a_group": {"events": (0, 1, NOTHING_LOST)},
    "mention_after_an_emoji": {"text": (f"🧊 {MENTIONED}@{BOB.aci}look", f"🧊 @{BOB.aci} look", UTF16)},
    "mention_in_the_middle_of_a_group_text": {"text": ("well what is this?", "well  what is this?", AS_WRITTEN)},
    "mention_by_account_id_in_a_group": {"text": (f"@{BOT.aci} what is this?", "what is this?", OWN_ID)},
    "group_text_of_several_lines": {"text": ("one\n\n\ttwo three", "  one\n\n\ttwo  three \n", AS_WRITTEN)},
    "reply": {"reply_to_message_id": (str(FIRST_MS - 1), f"{FIRST_MS - 1}:{ANN.aci}", QUOTED)},
    "reply_to_a_picture_in_a_group": {"reply_to_message_id": (str(FIRST_MS - 1), f"{FIRST_MS - 1}:{BOB.aci}", QUOTED)},
    "file_that_is_gone": {
        "message_type": ("text", "photo", LAZY),
        "media_kinds": ([], ["image"], LAZY),
        "media_types": ([], ["image/png"], LAZY)},
    "file_that_is_gone_without_text": {"events": (0, 1, LAZY)},
    "file_without_an_id": {"message_type": ("text", "photo", NO_FILE)},
    "sticker": {"events": (0, 1, NOTHING_LOST)},
    "note_to_self": {"events": (1, 0, ONE_PERSON)},
    "own_group_text_of_another_device": {"events": (1, 0, ONE_PERSON)},
    "repetition": {"events": (2, 1, REPEATED)},
}
# The text and kind of the only event, or of the first one, where the sides have different numbers of them.
LONE = {
    "mention_alone_in_a_group": ("", "text"),
    "file_that_is_gone_without_text": ("", "photo"),
    "sticker": ("[Sticker]", "sticker"),
    "note_to_self": ("remember this", "text"),
    "own_group_text_of_another_device": ("hi all", "text"),
    "repetition": ("again", "text"),
}
# Of a step: who speaks, and whether in the group.
SPEAKERS = {"edited_text_first": (ANN, False), "edited_text_in_a_group_first": (ANN, True)}
EDITS = ("edited_text", "edited_text_in_a_group")

check = Checks()


def step(by, in_group=False):
    """A part of the scene in which somebody speaks, or (`None`) neither side has an event of somebody else."""
    def added(function):
        def compare(s):
            function(s)
            s.compare(function.__name__)
        compare.__name__ = function.__name__
        check(compare)
        SPEAKERS[function.__name__] = (by, in_group)
        return function
    return added


def ids(by, in_group):
    """The differences of ids in events of this person."""
    name = re.compile(rf"\d{{13}}:{re.escape(by.ours)}")
    fields = {"message_id": (None, name, NO_ID), "source.message_id": (None, name, NO_ID)}
    if by.aci and by.number:
        fields["source.user_id"] = (by.number, by.aci, BY_ACI)
        fields["source.user_id_alt"] = (by.aci, by.number, ALT)
        if in_group:
            key = f"agent:main:signal:group:{GROUP_CHAT}"
            fields["session_key"] = (f"{key}:{by.aci}", f"{key}:{by.number}", MEMBER)
        else:
            key = "agent:main:signal:dm"
            fields["source.chat_id"] = (by.number, by.aci, BY_ACI)
            fields["session_key"] = (f"{key}:{by.number}", f"{key}:{by.aci}", BY_ACI)
        if by.name is None:
            fields["source.user_name"] = (by.number, by.aci, NAME)
    elif by.aci:
        fields["source.user_id_alt"] = (by.aci, None, ALONE)
    return fields


def listed(name):
    by, in_group = SPEAKERS[name]
    fields = DIFFERENCES.get(name, {})
    return fields if by is None or "events" in fields else {**ids(by, in_group), **fields}


class Daemon(Stub):
    """`signal-cli daemon --http`, as far as one account that listens needs it."""

    def __init__(self):
        self.streams = []
        self.fetched = []
        outer = self

        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def reply(self, status, value=None):
                # Without spaces, as signal-cli writes.
                raw = b"" if value is None else json.dumps(value, separators=(",", ":")).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                if url.path == "/api/v1/check":
                    self.reply(200)
                elif url.path != "/api/v1/events":
                    self.reply(404)
                elif urllib.parse.parse_qs(url.query).get("account") != [BOT.number]:
                    self.reply(400)
                else:
                    self.stream()

            def stream(self):
                waiting = queue.Queue(WAITING_MAX)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.close_connection = True
                outer.streams.append(waiting)
                try:
                    while True:
                        try:
                            text = waiting.get(timeout=ALIVE_S)
                        except queue.Empty:
                            text = ":\n"
                        if text is None:
                            return
                        raw = text.encode()
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
                except OSError:
                    pass  # the listener went away
                finally:
                    outer.streams.remove(waiting)

            def do_POST(self):
                length = int(self.headers.get("Content-Length") or 0)
                if self.path != "/api/v1/rpc" or not 0 < length <= REQUEST_MAX_BYTES:
                    self.close_connection = True
                    self.reply(404)
                    return
                request = json.loads(self.rfile.read(length))
                self.reply(200, {"jsonrpc": "2.0", **outer.answer(request["method"], request.get("params") or {}),
                                 "id": request["id"]})

        self.serve(Handler)

    def answer(self, method, params):
        if params.get("account") != BOT.number:
            return {"error": {"code": -32602, "message": "Method requires valid account parameter", "data": None}}
        if method == "getUserStatus":
            return {"result": [{"recipient": BOT.number, "number": BOT.number, "uuid": BOT.aci, "isRegistered": True}]}
        if method == "getAttachment":
            self.fetched.append(params["id"])
            content = FILES.get(params["id"])
            if content is None:
                return {"error": {"code": -1, "message": "Could not find attachment", "data": None}}
            return {"result": {"data": base64.b64encode(content).decode()}}
        return {"error": {"code": -32601, "message": "Method not implemented", "data": None}}

    def report(self, event):
        (stream,) = self.streams
        stream.put_nowait(f"event:receive\ndata:{json.dumps(event, ensure_ascii=False)}\n\n")

    def close(self):
        for stream in list(self.streams):
            stream.put_nowait(None)
        super().close()


class Scene:
    def __init__(self):
        self.now_ms = FIRST_MS
        self.names = []
        self.comparison = Comparison({name: listed(name) for name in SPEAKERS}, {})
        self.daemons = [Daemon(), Daemon()]
        self.native = open_native("signal", {}, {"http_url": self.daemons[0].url, "account": BOT.number},
                                  SIGNAL_GROUP_ALLOWED_USERS="*")
        self.desk = Desk("signal-differential")
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {"platform": "signal", "id": "bot", "tenant": self.tenant.name,
                                          "settings": {"url": self.daemons[1].url, "account": BOT.number}})
        people = (ANN, BOB, OLD, NAMELESS, ZED)
        self.relay, self.link = open_relay(self.desk, self.tenant, "signal", "bot", [person.ours for person in people])
        wait_for(lambda: all(daemon.streams for daemon in self.daemons), "listeners on both sides", timeout=20)

    def envelope(self, by, exception=None, **content):
        """An event of both streams. Returns its time."""
        self.now_ms += 1_000
        sent_ms = content.get("dataMessage", {}).get("timestamp") or self.now_ms
        envelope = {
            "source": by.theirs, "sourceNumber": by.number, "sourceUuid": by.aci, "sourceName": by.name, "sourceDevice": 1,
            "timestamp": sent_ms, "serverReceivedTimestamp": sent_ms + 20, "serverDeliveredTimestamp": sent_ms + 40, **content}
        for daemon in self.daemons:
            daemon.report({"envelope": envelope, "account": BOT.number, **({"exception": exception} if exception else {})})
        return sent_ms

    def message(self, text, **more):
        """What a data message has, with a time of its own."""
        return {"timestamp": self.now_ms + 1_000, "message": text, "expiresInSeconds": 0, "viewOnce": False, **more}

    def say(self, text, by=ANN, **more):
        sent_ms = self.envelope(by, dataMessage=self.message(text, **more))
        self.names.append(f"{sent_ms}:{by.ours}")
        return sent_ms

    def edit(self, said, text, **more):
        self.envelope(ANN, editMessage={"targetSentTimestamp": said, "dataMessage": self.message(text, **more)})
        self.names.append(f"{said}:{ANN.aci}")

    def sync(self, **content):
        return self.envelope(BOT, syncMessage=content)

    def sent_by_us(self, text, to=None, **more):
        """From another device of the bot's account."""
        destination = {"destination": to and to.theirs, "destinationNumber": to and to.number, "destinationUuid": to and to.aci}
        self.sync(sentMessage={**destination, **self.message(text, **more)})

    def compare(self, name):
        mark = unique("mark")
        self.say(mark, ZED)
        native, ours = [side.until(mark) for side in (self.native, self.relay)]
        if "events" not in DIFFERENCES.get(name, {}):
            count = 0 if SPEAKERS[name][0] is None else 1
            same((len(native), len(ours)), (count, count), "events on both sides")
        self.comparison.step(name, native, ours)
        for record in ours:
            ensure(record["message_id"] in self.names, f"{record['message_id']!r} is not one of {self.names}")
            same(record["wire"]["source"].get("message_is_edit", False), name in EDITS, "whether it is an edit")
        if name in LONE:
            first = [*native, *ours][0]
            same((first["text"], first["message_type"]), LONE[name], "the event that one side lacks")
        self.names.clear()

    def play(self, function):
        function(self)

    def tail(self):
        return ""

    def close(self):
        self.desk.stop()
        for daemon in self.daemons:
            daemon.close()


def mention(of, start):
    return {"name": of.theirs, "number": of.number, "uuid": of.aci, "start": start, "length": 1}


def quote(of, text, **more):
    return {"id": FIRST_MS - 1, "author": of.theirs, "authorNumber": of.number, "authorUuid": of.aci, "text": text,
            "attachments": [], **more}


def file(ident, mime, filename=None):
    return {"contentType": mime, "filename": filename, "id": ident, "size": len(FILES.get(ident, b"x")), "width": None,
            "height": None, "caption": None, "uploadTimestamp": FIRST_MS}


@step(ANN)
def direct_text(s):
    s.say("hello *you* <b>&amp;</b> 🧊")


@step(ANN)
def direct_text_of_several_lines(s):
    s.say("  one\n\n\ttwo  three \n")


@step(ANN)
def direct_text_with_styles(s):
    s.say("bold text", textStyles=[{"style": "BOLD", "start": 0, "length": 4}])


@step(ANN)
def text_that_disappears(s):
    s.say("not for long", expiresInSeconds=30)


@step(ANN)
def link_with_a_preview(s):
    preview = {"url": "https://a.example", "title": "A page", "description": "about it", "image": None}
    s.say("read https://a.example", previews=[preview])


@step(BOB)
def sender_without_a_number(s):
    s.say("who am I?", BOB)


@step(OLD)
def sender_with_a_number_alone(s):
    s.say("who am I?", OLD)


@step(NAMELESS)
def sender_without_a_name(s):
    s.say("who am I?", NAMELESS)


@step(ANN)
def command(s):
    s.say("/new now")


@step(ANN, in_group=True)
def command_in_a_group(s):
    s.say(f"{MENTIONED} /new now", mentions=[mention(BOT, 0)], groupInfo=GROUP)


@step(ANN)
def mention_in_a_direct_chat(s):
    s.say(f"{MENTIONED} what is this?", mentions=[mention(BOT, 0)])


@step(ANN)
def mention_alone_in_a_direct_chat(s):
    s.say(MENTIONED, mentions=[mention(BOT, 0)])


@step(ANN)
def mention_of_somebody_else(s):
    s.say(f"ask {MENTIONED} and {MENTIONED}", mentions=[mention(OLD, 4), mention(BOB, 10)])


@step(ANN)
def mention_after_an_emoji(s):
    s.say(f"🧊 {MENTIONED} look", mentions=[mention(BOB, 3)])


@step(ANN, in_group=True)
def group_text(s):
    s.say("hi all", groupInfo=GROUP)


@step(HIDDEN, in_group=True)
def group_text_of_somebody_whose_number_is_hidden(s):
    s.say("hi all", HIDDEN, groupInfo=GROUP)


@step(OLD, in_group=True)
def group_text_of_somebody_with_a_number_alone(s):
    s.say("hi all", OLD, groupInfo=GROUP)


@step(ANN, in_group=True)
def group_text_of_several_lines(s):
    s.say("  one\n\n\ttwo  three \n", groupInfo=GROUP)


@step(ANN, in_group=True)
def mention_in_a_group(s):
    s.say(f"{MENTIONED} what is this?", mentions=[mention(BOT, 0)], groupInfo=GROUP)


@step(ANN, in_group=True)
def mention_in_the_middle_of_a_group_text(s):
    s.say(f"well {MENTIONED} what is this?", mentions=[mention(BOT, 5)], groupInfo=GROUP)


@step(ANN, in_group=True)
def mention_by_account_id_in_a_group(s):
    s.say(f"{MENTIONED} what is this?", mentions=[mention(BOT._replace(number=None), 0)], groupInfo=GROUP)


@step(ANN, in_group=True)
def mention_of_two_people_in_a_group(s):
    s.say(f"{MENTIONED} ask {MENTIONED}", mentions=[mention(BOT, 0), mention(BOB, 6)], groupInfo=GROUP)


@step(ANN, in_group=True)
def mention_alone_in_a_group(s):
    s.say(MENTIONED, mentions=[mention(BOT, 0)], groupInfo=GROUP)


@step(ANN)
def reply(s):
    s.say("this one", quote=quote(ANN, "said before"))


@step(ANN)
def reply_to_the_bot(s):
    s.say("yes", quote=quote(BOT, "shall I?"))


@step(ANN, in_group=True)
def reply_to_the_bot_in_a_group(s):
    s.say("yes", quote=quote(BOT, "shall I?"), groupInfo=GROUP)


@step(ANN, in_group=True)
def reply_to_a_picture_in_a_group(s):
    picture = {"contentType": "image/png", "filename": None, "thumbnail": None}
    s.say("nice", quote=quote(BOB, None, attachments=[picture]), groupInfo=GROUP)


@step(ANN)
def reply_to_a_story(s):
    s.say("nice", storyContext={"authorNumber": BOT.number, "authorUuid": BOT.aci, "sentTimestamp": FIRST_MS - 1})


@step(ANN)
def picture(s):
    s.say(None, attachments=[file("a.png", "image/png")])


@step(ANN)
def picture_with_text(s):
    s.say("what is this?", attachments=[file("a.png", "image/png", "cat.png")])


@step(ANN, in_group=True)
def picture_in_a_group(s):
    s.say("look", attachments=[file("a.png", "image/png")], groupInfo=GROUP)


@step(ANN)
def picture_to_be_seen_once(s):
    s.say(None, attachments=[file("a.png", "image/png")], viewOnce=True)


@step(ANN)
def voice(s):
    s.say(None, attachments=[file("a.ogg", "audio/ogg")])


@step(ANN)
def voice_with_text(s):
    s.say("listen", attachments=[file("a.ogg", "audio/ogg", "v.ogg")])


@step(ANN)
def video(s):
    s.say(None, attachments=[file("a.mp4", "video/mp4")])


@step(ANN)
def document(s):
    s.say(None, attachments=[file("a.pdf", "application/pdf", "a.pdf")])


@step(ANN)
def document_with_text(s):
    s.say("my notes", attachments=[file("notes.txt", "text/plain", "notes.txt")])


@step(ANN)
def two_files(s):
    s.say("two", attachments=[file("a.pdf", "application/pdf", "a.pdf"), file("a.png", "image/png")])


@step(ANN)
def file_that_is_gone(s):
    s.say("look", attachments=[file("gone.png", "image/png")])


@step(ANN)
def file_that_is_gone_without_text(s):
    s.say(None, attachments=[file("gone.png", "image/png")])


@step(ANN)
def file_without_an_id(s):
    s.say("look", attachments=[file(None, "image/png")])


@step(ANN)
def sticker(s):
    s.say(None, sticker={"packId": "9acc9e8aba563d26a4994e69263e3b25", "stickerId": 4})


@step(ANN)
def edited_text(s):
    said = s.say("fist")
    s.compare("edited_text_first")
    s.edit(said, "first")


@step(ANN, in_group=True)
def edited_text_in_a_group(s):
    said = s.say("fist", groupInfo=GROUP)
    s.compare("edited_text_in_a_group_first")
    s.edit(said, "first", groupInfo=GROUP)


@step(ANN)
def repetition(s):
    message = s.message("again")
    for _ in range(2):
        s.envelope(ANN, dataMessage=message)
    s.names.append(f"{message['timestamp']}:{ANN.aci}")


@step(None)
def empty_text(s):
    for text in (None, "", " \n "):
        s.say(text)
        s.say(text, groupInfo=GROUP)


@step(None)
def reaction(s):
    for is_remove in (False, True):
        target = {"targetAuthor": BOT.number, "targetAuthorNumber": BOT.number, "targetAuthorUuid": BOT.aci,
                  "targetSentTimestamp": FIRST_MS - 1}
        s.say(None, reaction={"emoji": "👍", **target, "isRemove": is_remove})
        s.say(None, reaction={"emoji": "👍", **target, "isRemove": is_remove}, groupInfo=GROUP)


@step(None)
def deleted_message(s):
    s.say(None, remoteDelete={"timestamp": FIRST_MS - 1})
    s.say(None, remoteDelete={"timestamp": FIRST_MS - 1}, groupInfo=GROUP)


@step(None)
def time_after_which_messages_disappear(s):
    s.say(None, expiresInSeconds=3600, isExpirationUpdate=True)


@step(None)
def group_that_was_changed(s):
    s.say(None, groupInfo={**GROUP, "revision": 4, "type": "UPDATE"})


@step(None)
def story(s):
    s.envelope(ANN, storyMessage={"allowsReplies": True, "textAttachment": {"text": "my day"}})
    shown = file("a.png", "image/png")
    s.envelope(ANN, storyMessage={"allowsReplies": True, "groupId": GROUP["groupId"], "fileAttachment": shown})


@step(None)
def receipt(s):
    for kind in ("isDelivery", "isRead", "isViewed"):
        kinds = {name: name == kind for name in ("isDelivery", "isRead", "isViewed")}
        s.envelope(ANN, receiptMessage={"when": FIRST_MS, **kinds, "timestamps": [FIRST_MS - 1]})


@step(None)
def typing(s):
    for action in ("STARTED", "STOPPED"):
        s.envelope(ANN, typingMessage={"action": action, "timestamp": FIRST_MS})
        s.envelope(ANN, typingMessage={"action": action, "timestamp": FIRST_MS, "groupId": GROUP["groupId"]})


@step(None)
def call(s):
    s.envelope(ANN, callMessage={"offerMessage": {"id": 1, "type": "AUDIO_CALL", "opaque": "eA=="}})


@step(None)
def message_that_could_not_be_decrypted(s):
    s.envelope(ANN, exception={"message": "no session", "type": "ProtocolNoSessionException"})


@step(None)
def own_text(s):
    s.envelope(BOT, dataMessage=s.message("mine"))
    s.envelope(BOT, dataMessage=s.message("mine", groupInfo=GROUP))


@step(None)
def own_text_to_somebody_of_another_device(s):
    s.sent_by_us("hello Ann", ANN)


@step(None)
def receipts_and_settings_of_another_device(s):
    s.sync(readMessages=[{"sender": ANN.number, "senderNumber": ANN.number, "senderUuid": ANN.aci, "timestamp": FIRST_MS - 1}])
    s.sync(type="CONTACTS_SYNC")
    s.sync()


# Afterwards the native adapter knows the account id of the bot.
@step(None)
def note_to_self(s):
    s.sent_by_us("remember this", BOT)


@step(None)
def own_group_text_of_another_device(s):
    s.sent_by_us("hi all", groupInfo=GROUP)


@check
def files_are_fetched_when_they_are_asked_for(s):
    s.say("look", attachments=[file("a.png", "image/png", "cat.png")])
    mark = unique("mark")
    s.say(mark, ZED)
    (theirs,), (ours,) = [side.until(mark) for side in (s.native, s.relay)]
    s.names.clear()
    same((s.daemons[0].fetched[-1], s.daemons[1].fetched), ("a.png", []), "what was fetched")
    same(Path(theirs["media_urls"][0]).read_bytes(), PNG, "the file of the native adapter")
    driver = s.relay.driver
    made = driver.call("provision", url=s.desk.url, access_token=s.tenant.identity, gateway_id="agent", platform="signal",
                       bot_id="bot", gateway_endpoint=None, route_keys=[])
    token = driver.call("token", gateway_id="agent", secret=made["secret"])
    request = urllib.request.Request(ours["media_urls"][0], headers={"Authorization": f"Bearer {token}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as reply:
        same((reply.headers["Content-Type"], reply.read()), ("image/png", PNG), "the file")
    same(s.daemons[1].fetched, ["a.png"], "what was fetched")


@check
def no_difference_is_listed_in_vain(s):
    ensure(set(DIFFERENCES) <= set(SPEAKERS), f"differences of unknown steps: {set(DIFFERENCES) - set(SPEAKERS)}")
    same(set(LONE), {name for name, fields in DIFFERENCES.items() if "events" in fields}, "steps with a lone event")
    s.comparison.no_difference_is_listed_in_vain()


if __name__ == "__main__":
    sys.exit(check.run([("", Scene)]))
