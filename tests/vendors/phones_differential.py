"""The same messages by SMS and WhatsApp, through the gateway's own adapters and through this server and its relay: sessions
and events must be equal, but for the differences that are listed here.

  FRONTDESK_BIN=path FRONTDESK_FAKE_TWILIO_BIN=path FRONTDESK_FAKE_WHATSAPP_BIN=path \\
      tests/vendors/phones_differential.py [--only PATTERN]

`setup.sh native` of tests/hermes must have run. Two fake servers play the same scene, one for each side, so that ids are
equal. One line per check; the last line is the tally.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
# The folder has files with the names of libraries that the adapters need, so it comes last.
sys.path = [path for path in sys.path if path and os.path.realpath(path) != str(here)] + [str(here)]
sys.path.insert(0, str(here.parent / "hermes"))

from differential import Comparison, open_native, open_relay  # noqa: E402
from harness import Checks, Desk, ensure, free_port, same, unique  # noqa: E402

LIMIT_S = 20
NOTHING_LOST = "the native adapter drops it; here nothing is lost silently"
OBEYED = "Twilio answers this word itself, and an agent must not answer too"
LAZY = "files are fetched when an agent asks for them, so their content is not part of the text"
NO_QUOTE = "Meta tells the id of a quoted message only; the native adapter keeps the texts of all messages on its disk"
EMPTY = "the native adapter makes an event without any content of it"

SMS_DIFFERENCES = {
    "sms_stop": {"events": (1, 0, OBEYED)},
    "sms_help": {"events": (1, 0, OBEYED)},
    "sms_file_without_text": {"events": (0, 1, NOTHING_LOST)},
    "sms_file": {
        "message_type": ("text", "photo", NOTHING_LOST),
        "media_kinds": ([], ["image"], NOTHING_LOST),
        "media_types": ([], ["image/png"], NOTHING_LOST)},
}
WHATSAPP_DIFFERENCES = {
    "whatsapp_location": {
        "text": ("", "[The user shared a location.]\nVenue: Cafe\nlatitude: 1.5\nlongitude: 2.25", NOTHING_LOST),
        "message_type": ("text", "location", NOTHING_LOST)},
    "whatsapp_contact": {"text": ("", "[Contact: Ben, +1555]", NOTHING_LOST)},
    "whatsapp_unsupported": {
        "text": ("", "[A message of the kind \"unsupported\", which WhatsApp does not pass on]", NOTHING_LOST)},
    "whatsapp_reply": {"reply_to_text": ("said before", None, NO_QUOTE)},
    "whatsapp_reaction": {"events": (1, 0, EMPTY)},
    "whatsapp_system": {"events": (1, 0, EMPTY)},
    "whatsapp_document_text": {
        "text": (re.compile(r"\[Content of \w+\.txt\]:\nline one\n\n\[Document: notes\.txt\]"), "[Document: notes.txt]", LAZY)},
}


class Fake:
    def __init__(self, variable):
        self.process = subprocess.Popen([os.environ[variable]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.told = json.loads(self.process.stdout.readline())
        self.url = self.told["base_url"]

    def control(self, name, /, **body):
        call = urllib.request.Request(f"{self.url}/control/{name}", data=json.dumps(body).encode(), method="POST")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(call, timeout=LIMIT_S) as reply:
            return json.load(reply)["result"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(LIMIT_S)


class Scene:
    def __init__(self):
        self.fakes = [Fake(self.variable), Fake(self.variable)]
        self.told = self.fakes[0].told
        self.comparison = Comparison(self.differences, {})
        port = free_port()
        self.native = self.open_native(port)
        self.desk = Desk(self.platform)
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {"platform": self.platform, "id": "bot", "tenant": self.tenant.name, **self.bot()})
        self.relay, self.link = open_relay(self.desk, self.tenant, self.platform, "bot", self.people)
        for fake, url in zip(self.fakes, (self.native_url(port), f"{self.desk.url}/{self.door}/bot")):
            fake.control("webhook", url=url)

    def both(self, name, /, **body):
        """In both servers; their answers must be equal."""
        one, other = [fake.control(name, **body) for fake in self.fakes]
        ensure(one.get("status", 200) == 200 and other.get("status", 200) == 200, f"{name} {body}: {one} {other}")
        same(other.get("id"), one.get("id"), "ids of the message")
        return one

    def compare(self, name):
        mark = unique("mark")
        self.say(self.people[-1], mark)
        native, ours = [side.until(mark) for side in (self.native, self.relay)]
        for record in native:
            # The native adapters name the message in the event only; the server names it in the source too, as others do.
            record["source"]["message_id"] = record["message_id"]
        self.comparison.step(name, native, ours)

    def play(self, function):
        function(self)

    def tail(self):
        return ""

    def close(self):
        self.comparison.no_difference_is_listed_in_vain()
        self.desk.stop()
        for fake in self.fakes:
            fake.close()


class Sms(Scene):
    platform, door, variable = "sms", "twilio", "FRONTDESK_FAKE_TWILIO_BIN"
    differences = SMS_DIFFERENCES
    people = ("+15550001111", "+15550002222", "+15550009999")

    def native_url(self, port):
        return f"http://127.0.0.1:{port}/webhooks/twilio"

    def open_native(self, port):
        told = self.told
        return open_native("sms", {}, {}, TWILIO_ACCOUNT_SID=told["account_sid"], TWILIO_AUTH_TOKEN=told["auth_token"],
                           TWILIO_PHONE_NUMBER=told["number"], SMS_WEBHOOK_PORT=str(port), SMS_WEBHOOK_URL=self.native_url(port))

    def bot(self):
        told = self.told
        return {"settings": {"base_url": self.fakes[1].url, "account_sid": told["account_sid"], "from": told["number"]},
                "secrets": {"auth_token": told["auth_token"]}}

    def say(self, person, text, files=()):
        return self.both("say", **{"from": person, "to": self.told["number"], "body": text, "files": list(files)})


class WhatsApp(Scene):
    platform, door, variable = "whatsapp_cloud", "whatsapp", "FRONTDESK_FAKE_WHATSAPP_BIN"
    differences = WHATSAPP_DIFFERENCES
    people = ("15550001111", "15550002222", "15550009999")

    def native_url(self, port):
        return f"http://127.0.0.1:{port}/whatsapp/webhook"

    def open_native(self, port):
        told = self.told
        extra = {"base_url": self.fakes[0].url, "webhook_host": "127.0.0.1", "webhook_port": port, "verify_token": "v",
                 **{name: told[name] for name in ("phone_number_id", "access_token", "app_secret")}}
        return open_native("whatsapp_cloud", {}, extra, WHATSAPP_CLOUD_ALLOW_ALL_USERS="true")

    def bot(self):
        told = self.told
        return {"settings": {"base_url": self.fakes[1].url, "phone_number_id": told["phone_number_id"]},
                "secrets": {"access_token": told["access_token"], "app_secret": told["app_secret"], "verify_token": "v"}}

    def send(self, person, content, name="Ann B"):
        return self.both("say", **{"from": person, "name": name, "content": content})["id"]

    def say(self, person, text, name="Ann B", **more):
        return self.send(person, {"type": "text", "text": {"body": text}, **more}, name)

    def file(self, kind, mime, content="x", **more):
        one, other = [fake.control("attach", mime=mime, content=content) for fake in self.fakes]
        same(one, other, "ids of the file")
        self.send(self.people[0], {"type": kind, kind: {"id": one, "mime_type": mime, "sha256": "x", **more}})


sms_checks, whatsapp_checks = Checks(), Checks()


def step(function):
    """A part of the scene. Afterwards the events of both sides are compared."""
    def compare(s):
        function(s)
        s.compare(function.__name__)
    compare.__name__ = function.__name__
    (sms_checks if function.__name__.startswith("sms_") else whatsapp_checks)(compare)
    return function


@step
def sms_text(s):
    s.say(s.people[0], "hello *you* <b>&amp;</b> + 🧊")
    s.say(s.people[1], "  one\n\n\ttwo \n")


@step
def sms_command(s):
    s.say(s.people[0], "/new now")
    s.say(s.people[0], "yes")


@step
def sms_nothing(s):
    s.say(s.people[0], "  ")


@step
def sms_own_number(s):
    s.say(s.told["number"], "mine")


@step
def sms_file(s):
    s.say(s.people[0], "look", [{"mime": "image/png", "content": "x"}])


@step
def sms_file_without_text(s):
    s.say(s.people[0], "", [{"mime": "image/png", "content": "x"}])


@step
def sms_help(s):
    s.say(s.people[1], "Help")


@step
def sms_stop(s):
    s.say(s.people[1], "STOP")


@step
def sms_start(s):
    s.say(s.people[1], "START")


@step
def whatsapp_text(s):
    s.say(s.people[0], "hello *you* <b>&amp;</b> 🧊")
    s.say(s.people[1], "  one\n\n\ttwo \n", name="*Ben* _x_")


@step
def whatsapp_without_a_name(s):
    s.say(s.people[1], "who am I?", name="")


@step
def whatsapp_command(s):
    s.say(s.people[0], "/new now")


@step
def whatsapp_reply(s):
    said = s.say(s.people[0], "said before")
    s.compare("whatsapp_reply_first")
    s.say(s.people[0], "this one", context={"from": s.people[0], "id": said})


@step
def whatsapp_forwarded(s):
    s.say(s.people[0], "somebody said", context={"forwarded": True})


@step
def whatsapp_picture(s):
    s.file("image", "image/png", caption="what is this?")


@step
def whatsapp_voice(s):
    s.file("audio", "audio/ogg", voice=True)


@step
def whatsapp_song(s):
    s.file("audio", "audio/mpeg")


@step
def whatsapp_video(s):
    s.file("video", "video/mp4", caption="look")


@step
def whatsapp_sticker(s):
    s.file("sticker", "image/webp")


@step
def whatsapp_document(s):
    s.file("document", "application/pdf", filename="a.pdf")


@step
def whatsapp_document_with_caption(s):
    s.file("document", "application/pdf", filename="a.pdf", caption="read it")


@step
def whatsapp_document_text(s):
    s.file("document", "text/plain", content="line one", filename="notes.txt")


@step
def whatsapp_button_of_a_template(s):
    s.send(s.people[0], {"type": "button", "button": {"payload": "p", "text": "Yes, please"}})


@step
def whatsapp_row_of_somebody_else(s):
    row = {"type": "list_reply", "list_reply": {"id": "x", "title": "Row", "description": "d"}}
    s.send(s.people[0], {"type": "interactive", "interactive": row})


@step
def whatsapp_location(s):
    s.send(s.people[0], {"type": "location", "location": {"latitude": 1.5, "longitude": 2.25, "name": "Cafe"}})


@step
def whatsapp_contact(s):
    s.send(s.people[0], {"type": "contacts", "contacts": [{"name": {"formatted_name": "Ben"}, "phones": [{"phone": "+1555"}]}]})


@step
def whatsapp_unsupported(s):
    s.send(s.people[0], {"type": "unsupported", "errors": [{"code": 131051, "title": "Message type unknown"}]})


@step
def whatsapp_reaction(s):
    s.send(s.people[0], {"type": "reaction", "reaction": {"message_id": "wamid.x", "emoji": "👍"}})


@step
def whatsapp_system(s):
    s.send(s.people[0], {"type": "system", "system": {"body": "Ann changed the number", "type": "user_changed_number"}})


@step
def whatsapp_group(s):
    s.say(s.people[0], "to all", chat="group-1")


if __name__ == "__main__":
    results = [checks.run([("", scene)]) for checks, scene in ((sms_checks, Sms), (whatsapp_checks, WhatsApp))]
    sys.exit(max(results))
