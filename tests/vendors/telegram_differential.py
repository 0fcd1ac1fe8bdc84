"""The same updates of Telegram, through the gateway's own adapter and through this server and its relay: sessions and
events must be equal, but for the differences that are listed here.

  FRONTDESK_BIN=path/to/frontdesk FRONTDESK_FAKE_TELEGRAM_BIN=path/to/examples/fake_telegram \\
      tests/vendors/telegram_differential.py [--only PATTERN]

`setup.sh native` of tests/hermes must have run. Two fake Telegram servers play the same scene, so that neither side takes
the updates of the other. The native adapter polls, the server under test polls or is called by Telegram. One line per
check; the last line is the tally.
"""

import copy
import json
import os
import re
import sys
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
# The folder has a file with the name of a library that the adapters need, so it comes last.
sys.path = [path for path in sys.path if path and os.path.realpath(path) != str(here)] + [str(here)]
sys.path.insert(0, str(here.parent / "hermes"))

from differential import Comparison, open_native, open_relay  # noqa: E402
from harness import Checks, Desk, ensure, same, unique  # noqa: E402
from telegram_scene import ANN, BOB, BOT, CHANNEL, FORUM, GROUP, JPEG, TOKEN, Fake  # noqa: E402

# Who ends each step.
ZED = 599
EVE = 503
SUPER = -1001000000009
USERS = (ANN, BOB, EVE, ZED, GROUP, SUPER, FORUM, CHANNEL)
ANONYMOUS = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}

NO_HANDLER = "the native adapter has no handler for this kind and drops it; here nothing is lost silently"
TOPIC = "a message in a topic names the message that opened the topic; that is no reply, and topics get no reply_to"
SPACE = "the native adapter removes the space behind the name of the bot too, and makes another command of it"
PLACE = "what the agent should ask about a place, and a link to a map service, are not what the user sent"
STICKER = "the native adapter lets a model describe the picture; here the agent gets the file"
LAZY = "files are fetched when an agent asks for them, so their content is not part of the text"
REPLIED = "the file of the other message is attached; no sentence about it is added to the text"
ANONYMOUS_WHY = "the user beside an anonymous administrator is the same in all groups, so nobody can be linked to it"

# For a step and a field: what the native adapter says, what we say, why. `events` is how many there are.
DIFFERENCES = {
    "private_text_that_the_client_split": {
        "events": (1, 2, "the native adapter waits for more and joins it; here every message is delivered at once")},
    "topic_text": {"reply_to_message_id": ("2", None, TOPIC)},
    "command_in_a_topic": {"reply_to_message_id": ("2", None, TOPIC)},
    "reply_to_a_photo_with_caption": {
        "text": (re.compile(r"nice\n\n\[Replied-to image '[^']+' saved at: /[^]]+\]"), "nice", REPLIED)},
    "quote_of_another_chat": {
        "reply_to_text": (None, "far away", "the selected words are all that a reply to another chat has")},
    "mention_of_another_bot": {
        "events": (0, 1, "whether an agent hears what its user says to others is for the gate, not for the adapter")},
    "command_for_the_bot": {
        "text": ("/startarg one", "/start arg one", SPACE),
        "command": ("startarg", "start", SPACE),
        "command_args": ("one", "arg one", SPACE)},
    "video_note": {"events": (0, 1, NO_HANDLER)},
    "dice": {"events": (0, 1, NO_HANDLER)},
    "channel_photo": {"events": (0, 1, NO_HANDLER)},
    "edited_caption": {"events": (0, 1, "the native adapter drops edits of messages with files; edits of texts it delivers")},
    "document_text": {"text": ("[Content of notes.txt]:\nline one\n\nmy notes", "my notes", LAZY)},
    "document_with_a_type_that_its_name_denies": {
        "media_types": (["text/csv"], ["application/vnd.ms-excel"], "the type is the one that Telegram reports")},
    "sticker": {
        "text": ('[The user sent a sticker 👍~ It shows: "a sticker with emoji 👍" (=^.w.^=)]', "[Sticker 👍]", STICKER),
        "media_kinds": ([], ["image"], STICKER),
        "media_types": ([], ["image/webp"], STICKER)},
    "location": {"text": (
        "[The user shared a location pin.]\nlatitude: 48.2\nlongitude: 16.37\n"
        "Map: https://www.google.com/maps/search/?api=1&query=48.2,16.37\n"
        "Ask what they'd like to find nearby (restaurants, cafes, etc.) and any preferences.",
        "[The user shared a location.]\nlatitude: 48.2\nlongitude: 16.37", PLACE)},
    "venue": {"text": (
        "[The user shared a location pin.]\nVenue: Café\nAddress: Street 1\nlatitude: 1.5\nlongitude: 2.25\n"
        "Map: https://www.google.com/maps/search/?api=1&query=1.5,2.25\n"
        "Ask what they'd like to find nearby (restaurants, cafes, etc.) and any preferences.",
        "[The user shared a location.]\nVenue: Café\nAddress: Street 1\nlatitude: 1.5\nlongitude: 2.25", PLACE)},
    "button_of_a_prompt": {
        "events": (0, 1, "the native adapter answers its own prompts inside; over the relay the press is an event")},
    "anonymous_administrator": {
        "source.user_id": ("1087968824", str(SUPER), ANONYMOUS_WHY),
        "source.user_name": ("Group", "Super", ANONYMOUS_WHY),
        "source.is_bot": (True, False, ANONYMOUS_WHY),
        "session_key": (f"agent:main:telegram:group:{SUPER}:1087968824", f"agent:main:telegram:group:{SUPER}:{SUPER}",
                        ANONYMOUS_WHY)},
    "channel_in_the_discussion_group": {
        "events": (1, 0, "the channel speaks, which is not a member of the group: the gate withholds it")},
}
# What the native adapter calls a type, and its registered name.
SPELLINGS = {"image/jpg": "image/jpeg", "audio/mp3": "audio/mpeg"}

check = Checks()


def step(function):
    """A part of the scene. Afterwards the events of both sides are compared."""
    def compare(s):
        function(s)
        s.compare(function.__name__)
    compare.__name__ = function.__name__
    check(compare)
    return function


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(it) for name, it in value.items() if name not in ("date", "edit_date")}
    return [without_times(it) for it in value] if isinstance(value, list) else value


def place_of(record):
    message_id = record["message_id"] or ""
    return record["source"]["chat_id"], len(message_id), message_id


def send(fake, **body):
    call = urllib.request.Request(f"{fake.url}/bot{TOKEN}/sendMessage", data=json.dumps(body).encode(), method="POST",
                                  headers={"Content-Type": "application/json"})
    with fake.opener.open(call, timeout=15) as reply:
        return json.load(reply)["result"]["message_id"]


class Scene:
    def __init__(self, mode):
        binary = os.environ["FRONTDESK_FAKE_TELEGRAM_BIN"]
        self.fakes = [Fake(binary), Fake(binary)]
        self.of_native, self.of_desk = self.fakes
        for fake in self.fakes:
            fake.control("limits", {"enabled": False})
        members = [[BOT, "administrator"], [ANN, "creator"], [BOB, "member"], [EVE, "member"]]
        self.act("add_bot", id=BOT, token=TOKEN, username="desk_bot", first_name="Desk")
        self.act("add_user", id=ANN, first_name="Ann", last_name="Bee", username="ann_b", language_code="de")
        self.act("add_user", id=BOB, first_name="Bob")
        self.act("add_user", id=EVE, first_name="*Eve* <b>[x](http://a.example/)", last_name="_`~|\\ 🧊")
        self.act("add_user", id=ZED, first_name="Zed")
        self.act("add_chat", id=GROUP, kind="group", title="Group & <i>Friends</i>", members=members)
        self.act("add_chat", id=SUPER, kind="supergroup", title="Super", members=members)
        self.act("add_chat", id=FORUM, kind="supergroup", title="Forum", is_forum=True, members=members)
        self.act("add_chat", id=CHANNEL, kind="channel", title="News", username="news_of", members=members)
        self.message_id = 9000  # of messages that no act makes
        self.comparison = Comparison(DIFFERENCES, SPELLINGS)
        self.native = open_native(
            "telegram", {"token": TOKEN},
            {"base_url": f"{self.of_native.url}/bot", "base_file_url": f"{self.of_native.url}/file/bot",
             # With an address it asks no name server for one; it is not used.
             "require_mention": False, "fallback_ips": ["149.154.167.220"]},
            # It asks the environment for a proxy to the real host, and would send everything through it.
            NO_PROXY="127.0.0.1,localhost,api.telegram.org", no_proxy="127.0.0.1,localhost,api.telegram.org",
            HERMES_TELEGRAM_DISABLE_FALLBACK_IPS="1",
            HERMES_TELEGRAM_TEXT_BATCH_DELAY_SECONDS="0.08", HERMES_TELEGRAM_MEDIA_BATCH_DELAY_SECONDS="0.05")
        self.desk = Desk("telegram-differential")
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {
            "platform": "telegram", "id": "bot", "tenant": self.tenant.name,
            "settings": {"base_url": self.of_desk.url, "mode": mode},
            "secrets": {"token": TOKEN, **({"webhook_secret": "a-secret-of-the-webhook"} if mode == "webhook" else {})}})
        self.relay, self.link = open_relay(self.desk, self.tenant, "telegram", "bot", USERS)

    def act(self, act, **more):
        """In both servers; what they answer must be equal."""
        one, other = [fake.act(act, **copy.deepcopy(more)) for fake in self.fakes]
        same(without_times(other), without_times(one), f"the answers of the two servers to {act}")
        return one

    def say(self, chat, text, by=ANN, **more):
        return self.act("say", chat=chat, **{"from": by}, text=text, **more)

    def media(self, chat, kind, by=ANN, **more):
        return self.act("media", chat=chat, **{"from": by}, kind=kind, content_hex=JPEG.hex(), **more)

    def raw(self, kind, chat, **more):
        """A message that no act makes."""
        title = {GROUP: "Group & <i>Friends</i>", SUPER: "Super", CHANNEL: "News"}.get(chat)
        shown = {"id": chat, "type": "private", "first_name": "Ann", "last_name": "Bee", "username": "ann_b"}
        if title:
            shown = {"id": chat, "title": title, "type": {GROUP: "group", SUPER: "supergroup", CHANNEL: "channel"}[chat]}
        self.message_id += 1
        update = {kind: {"message_id": self.message_id, "date": 1700000000, "chat": shown, **more}}
        for fake in self.fakes:
            fake.act("raw", update=update)

    def bot_says(self, chat, text):
        """Through the Bot API itself, so that neither side knows of it."""
        one, other = [send(fake, chat_id=chat, text=text) for fake in self.fakes]
        same(one, other, "ids of the message of the bot")
        return one

    def compare(self, name):
        mark = unique("mark")
        self.say(ZED, mark, by=ZED)
        # The native adapter holds albums back, and hands over a text that came later before them.
        native, ours = [sorted(side.until(mark), key=place_of) for side in (self.native, self.relay)]
        self.comparison.step(name, native, ours)

    def play(self, function):
        function(self)

    def tail(self):
        return ""

    def close(self):
        self.desk.stop()
        for fake in self.fakes:
            fake.close()


PERSON = {"id": ANN, "is_bot": False, "first_name": "Ann", "last_name": "Bee", "username": "ann_b"}


@step
def private_text(s):
    s.say(ANN, "hello *you* <b>&amp;</b>")


@step
def private_text_of_several_lines(s):
    s.say(ANN, "  one\n\n\ttwo 🧊\n")


@step
def private_text_that_the_client_split(s):
    s.say(ANN, "a" * 4096)
    s.say(ANN, "and the rest")


@step
def group_text(s):
    s.say(GROUP, "hi all")


@step
def supergroup_text(s):
    s.say(SUPER, "hi all", by=BOB)


@step
def topic_is_opened(s):
    s.topic = s.act("open_topic", chat=FORUM, **{"from": ANN}, name="Plans")["message_thread_id"]


@step
def topic_text(s):
    s.in_topic = s.say(FORUM, "in the topic", topic=s.topic)["message_id"]


@step
def topic_reply(s):
    s.say(FORUM, "about that", topic=s.topic, reply_to=s.in_topic)


@step
def general_topic_text(s):
    s.in_general = s.say(FORUM, "in general")["message_id"]


@step
def general_topic_reply(s):
    s.say(FORUM, "about that", reply_to=s.in_general, by=BOB)


@step
def private_topic_text(s):
    s.raw("message", ANN, **{"from": PERSON}, message_thread_id=77, is_topic_message=True, text="in a private topic")


@step
def reply_to_a_person(s):
    said = s.say(SUPER, "what time is it?", by=BOB)["message_id"]
    s.compare("reply_to_a_person_first")
    s.say(SUPER, "noon", reply_to=said)


@step
def reply_in_a_private_chat(s):
    said = s.say(ANN, "first")["message_id"]
    s.compare("reply_in_a_private_chat_first")
    s.say(ANN, "second", reply_to=said)


@step
def reply_to_the_bot(s):
    said = s.bot_says(GROUP, "one two three")
    s.say(GROUP, "why?", reply_to=said)


@step
def partial_quote(s):
    said = s.bot_says(GROUP, "one two three")
    s.say(GROUP, "that part", reply_to=said, quote="two")


@step
def reply_to_a_photo_with_caption(s):
    said = s.media(GROUP, "photo", caption="the plan")["message_id"]
    s.compare("reply_to_a_photo_with_caption_first")
    s.say(GROUP, "nice", reply_to=said)


@step
def quote_of_another_chat(s):
    s.raw("message", SUPER, **{"from": PERSON}, text="see there", quote={"text": "far away", "position": 0},
          external_reply={"origin": {"type": "hidden_user", "date": 1, "sender_user_name": "Al"}})


@step
def mention_behind_an_emoji(s):
    s.say(GROUP, "👋🏽🧊 @desk_bot, what is up?")


@step
def mention_only(s):
    s.say(GROUP, "@Desk_Bot")


@step
def mention_in_the_middle(s):
    s.say(GROUP, "hey @desk_bot: do it, and tell @ann_b")


@step
def mention_twice(s):
    s.say(GROUP, "@desk_bot @desk_bot - now")


@step
def mention_of_another_bot(s):
    s.say(GROUP, "@other_bot do it")


@step
def mention_of_both_bots(s):
    s.say(GROUP, "@other_bot and @desk_bot do it")


@step
def mention_by_name(s):
    bot = {"id": BOT, "is_bot": True, "first_name": "Desk", "username": "desk_bot"}
    s.raw("message", GROUP, **{"from": PERSON}, text="Desk help me",
          entities=[{"type": "text_mention", "offset": 0, "length": 4, "user": bot}])


@step
def mention_in_an_address(s):
    s.say(GROUP, "mail me@desk_bot.example or @desk_bot_two")


@step
def command_in_private(s):
    s.say(ANN, "/start now")


@step
def command_in_a_group(s):
    s.say(GROUP, "/status")


@step
def command_for_the_bot(s):
    s.say(GROUP, "/start@desk_bot arg one")


@step
def command_for_the_bot_without_an_argument(s):
    s.say(GROUP, "/start@desk_bot")


@step
def command_for_another_bot(s):
    s.say(GROUP, "/start@other_bot arg")


@step
def command_for_another_bot_in_private(s):
    s.say(ANN, "/start@other_bot arg")


@step
def command_behind_a_mention(s):
    s.say(GROUP, "@desk_bot /status please")


@step
def command_in_the_middle(s):
    s.say(ANN, "use /status for that")


@step
def slash_without_a_command(s):
    s.say(ANN, "/ is a path, /usr/bin too")


@step
def command_in_a_topic(s):
    s.say(FORUM, "/status", topic=s.topic)


@step
def edited_text(s):
    said = s.say(ANN, "fist")["message_id"]
    s.compare("edited_text_first")
    s.act("edit", chat=ANN, **{"from": ANN}, message_id=said, text="first")


@step
def edited_caption(s):
    said = s.media(GROUP, "photo", caption="fist")["message_id"]
    s.compare("edited_caption_first")
    s.act("edit", chat=GROUP, **{"from": ANN}, message_id=said, text="first")


@step
def album_of_photos(s):
    files = [{"kind": "photo", "content_hex": JPEG.hex(), "caption": caption} for caption in ("all @desk_bot of them", None, "last")]
    s.act("album", chat=GROUP, **{"from": ANN}, files=files)
    s.say(GROUP, "what is it?")  # which completes the album


@step
def photo(s):
    s.media(ANN, "photo")


@step
def photo_with_caption(s):
    s.media(GROUP, "photo", caption="@desk_bot what is this?")


@step
def photo_with_a_command_as_caption(s):
    s.media(ANN, "photo", caption="/describe it")


@step
def voice(s):
    s.media(ANN, "voice")


@step
def audio(s):
    s.media(ANN, "audio", file_name="song.mp3")


@step
def video(s):
    s.media(ANN, "video", file_name="clip.mp4", caption="look")


@step
def animation(s):
    s.media(ANN, "animation", file_name="a.mp4")


@step
def video_note(s):
    note = {"file_id": "note", "file_unique_id": "n", "length": 240, "duration": 1, "file_size": 9}
    s.raw("message", ANN, **{"from": PERSON}, video_note=note)


@step
def document(s):
    s.media(ANN, "document", file_name="data.bin", mime="application/octet-stream", caption="raw")


@step
def document_pdf(s):
    s.media(ANN, "document", file_name="a.pdf", mime="application/pdf")


@step
def document_text(s):
    s.act("media", chat=ANN, **{"from": ANN}, kind="document", content="line one", file_name="notes.txt", mime="text/plain",
          caption="my notes")


@step
def document_that_is_an_image(s):
    s.media(ANN, "document", file_name="shot.jpg", mime="image/jpeg", caption="screen")


@step
def document_that_is_a_video(s):
    s.media(ANN, "document", file_name="clip.mp4", mime="video/mp4")


@step
def document_with_a_type_that_its_name_denies(s):
    s.media(ANN, "document", file_name="a.csv", mime="application/vnd.ms-excel")


@step
def sticker(s):
    s.media(ANN, "sticker")


@step
def location(s):
    s.act("location", chat=ANN, **{"from": ANN}, latitude=48.2, longitude=16.37)


@step
def venue(s):
    place = {"latitude": 1.5, "longitude": 2.25}
    s.raw("message", ANN, **{"from": PERSON}, location=place, venue={"location": place, "title": "Café", "address": "Street 1"})


@step
def dice(s):
    s.raw("message", ANN, **{"from": PERSON}, dice={"emoji": "🎲", "value": 6})


@step
def channel_post(s):
    s.act("say", chat=CHANNEL, text="news of @desk_bot")


@step
def channel_photo(s):
    s.act("media", chat=CHANNEL, kind="photo", content_hex=JPEG.hex(), caption="seen")


@step
def button_of_a_prompt(s):
    result = s.link.act("prompt", platform="telegram", chat_id=str(GROUP), content="Deploy?", prompt_id="p1",
                        options=[{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}])
    ensure(result.get("success"), f"prompt: {result}")
    shown = s.of_desk.chat(GROUP)["messages"][-1]
    copied = send(s.of_native, chat_id=GROUP, text=shown["text"], reply_markup=shown["reply_markup"])
    same(copied, shown["message_id"], "id of the prompt")
    s.act("press", chat=GROUP, **{"from": ANN}, message_id=shown["message_id"], label="Yes")


@step
def names_with_markup(s):
    s.say(GROUP, "it is me", by=EVE)


@step
def names_with_markup_in_private(s):
    s.say(EVE, "it is me", by=EVE)


@step
def forwarded_message(s):
    origin = {"type": "user", "date": 1, "sender_user": {"id": BOB, "is_bot": False, "first_name": "Bob"}}
    s.raw("message", ANN, **{"from": PERSON}, text="said by Bob", forward_origin=origin)


@step
def members_join(s):
    s.act("join", chat=GROUP, **{"from": ANN}, users=[BOB])


@step
def member_leaves(s):
    s.raw("message", GROUP, **{"from": PERSON}, left_chat_member={"id": BOB, "is_bot": False, "first_name": "Bob"})


@step
def member_is_restricted(s):
    s.act("member", chat=SUPER, **{"from": ANN}, user=EVE, status="restricted")


@step
def title_changes(s):
    s.raw("message", GROUP, **{"from": PERSON}, new_chat_title="Other")


@step
def reaction(s):
    said = s.say(ANN, "react to this")["message_id"]
    s.compare("reaction_first")
    s.act("react", chat=ANN, **{"from": ANN}, message_id=said, emoji="🔥")


@step
def anonymous_administrator(s):
    group = {"id": SUPER, "type": "supergroup", "title": "Super"}
    s.raw("message", SUPER, **{"from": ANONYMOUS}, sender_chat=group, author_signature="boss", text="as the group")


@step
def channel_in_the_discussion_group(s):
    channel = {"id": CHANNEL, "type": "channel", "title": "News", "username": "news_of"}
    s.raw("message", SUPER, **{"from": {"id": 777000, "is_bot": False, "first_name": "Telegram"}}, sender_chat=channel,
          is_automatic_forward=True, text="a post, copied")


@step
def own_message(s):
    s.raw("message", GROUP, **{"from": {"id": BOT, "is_bot": True, "first_name": "Desk", "username": "desk_bot"}}, text="mine")


@step
def another_bot(s):
    s.raw("message", GROUP, **{"from": {"id": EVE, "is_bot": True, "first_name": "Other", "username": "other_bot"}}, text="beep")


@check
def no_difference_is_listed_in_vain(s):
    s.comparison.no_difference_is_listed_in_vain()


if __name__ == "__main__":
    if not os.environ.get("FRONTDESK_FAKE_TELEGRAM_BIN"):
        print("FRONTDESK_FAKE_TELEGRAM_BIN is not set", file=sys.stderr)
        sys.exit(2)
    sys.exit(check.run([(mode, lambda mode=mode: Scene(mode)) for mode in ("poll", "webhook")]))
