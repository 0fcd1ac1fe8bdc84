"""The same messages by WeCom, through the gateway's own adapters and through this server and its relay: sessions and events must be
equal, but for the differences that are listed here.

  FRONTDESK_BIN=path FRONTDESK_FAKE_WECOM_BIN=path tests/vendors/wecom_differential.py [--only PATTERN]

`setup.sh native` of tests/hermes must have run. Two fake servers play the same scene, one for each side, so that ids are
equal. One line per check; the last line is the tally.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
# The folder has files with the names of libraries that the adapters need, so it comes last.
sys.path = [path for path in sys.path if path and os.path.realpath(path) != str(here)] + [str(here)]
sys.path.insert(0, str(here.parent / "hermes"))

from differential import Comparison, open_native, open_relay  # noqa: E402
from harness import Checks, Desk, ensure, free_port, same, unique, wait_for  # noqa: E402

LIMIT_S = 20
NOTHING_LOST = "the native adapter drops it; here nothing is lost silently"
NOBODY_SAID = "the native adapter takes it for /start, although the client reports it by itself"
BY_ITS_FILES = "the server says of every message with files what they are; the native adapter does not if there is a text, too"
EMPTY = "the native adapter makes an event without any content of it"

APP_DIFFERENCES = {
    "app_image": {"events": (0, 1, NOTHING_LOST)},
    "app_voice": {"events": (0, 1, NOTHING_LOST)},
    "app_video": {"events": (0, 1, NOTHING_LOST)},
    "app_location": {"events": (0, 1, NOTHING_LOST)},
    "app_link": {"events": (0, 1, NOTHING_LOST)},
    "app_reported_location": {"events": (1, 0, NOBODY_SAID)},
    "app_nothing": {"events": (1, 0, EMPTY)},
}
ROBOT_DIFFERENCES = {
    "robot_mixed": {"message_type": ("text", "photo", BY_ITS_FILES)},
    "robot_quoted_image": {"message_type": ("text", "photo", BY_ITS_FILES)},
    "robot_video": {"events": (0, 1, NOTHING_LOST)},
}


class Fake:
    def __init__(self):
        command = [os.environ["FRONTDESK_FAKE_WECOM_BIN"]]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
    people = ("ann", "Ben.B-c_d", "mark")

    def __init__(self):
        self.fakes = [Fake(), Fake()]
        self.told = self.fakes[0].told
        self.comparison = Comparison(self.differences, {})
        self.port = free_port()
        self.native = self.open_native()
        self.desk = Desk(self.platform)
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {"platform": self.platform, "id": "bot", "tenant": self.tenant.name, **self.bot()})
        self.relay, self.link = open_relay(self.desk, self.tenant, self.platform, "bot", self.people)
        self.ready()

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


class App(Scene):
    platform, differences = "wecom_callback", APP_DIFFERENCES

    def open_native(self):
        told = self.told
        extra = {"corp_id": told["corp_id"], "corp_secret": told["secret"], "agent_id": str(told["agent_id"]), "token": told["token"],
                 "encoding_aes_key": told["aes_key"], "host": "127.0.0.1", "port": self.port}
        return open_native("wecom_callback", {}, extra, WECOM_CALLBACK_ALLOW_ALL_USERS="true")

    def bot(self):
        told = self.told
        return {"settings": {"base_url": self.fakes[1].url, "corp_id": told["corp_id"], "agent_id": str(told["agent_id"])},
                "secrets": {name: told[name] for name in ("secret", "token", "aes_key")}}

    def ready(self):
        for fake, url in zip(self.fakes, (f"http://127.0.0.1:{self.port}/wecom/callback", f"{self.desk.url}/wecom/bot")):
            fake.control("webhook", url=url)
            told = fake.control("check")
            same((told["status"], told["body"]), (200, told["echo"]), "the echo")

    def say(self, person, text):
        return self.both("say", now_s=int(time.time()), **{"from": person, "text": text})

    def fields(self, fields, person="ann"):
        return self.both("fields", now_s=int(time.time()), **{"from": person, "fields": fields})


class Robot(Scene):
    platform, differences = "wecom", ROBOT_DIFFERENCES

    def open_native(self):
        told = self.told
        extra = {"bot_id": told["bot_id"], "secret": told["bot_secret"], "websocket_url": told["socket_url"], "dm_policy": "pairing",
                 "group_policy": "open"}
        return open_native("wecom", {}, extra, HERMES_ALLOW_PRIVATE_URLS="true", WECOM_ALLOW_ALL_USERS="true")

    def bot(self):
        told = self.fakes[1].told
        return {"settings": {"socket_url": told["socket_url"], "bot_id": told["bot_id"]}, "secrets": {"secret": told["bot_secret"]}}

    def ready(self):
        for fake in self.fakes:
            wait_for(lambda fake=fake: fake.control("robot_is_connected"), "a socket")

    def send(self, content, person="ann", group=None):
        return self.both("robot_say", **{"from": person, "group": group, "content": content})

    def say(self, person, text, group=None, **more):
        return self.send({"msgtype": "text", "text": {"content": text}, **more}, person, group)

    def file(self, kind, mime, content="GIF89a a picture", wrap=None, **more):
        """Each side has a link of its own."""
        one, other = [fake.control("robot_attach", mime=mime, filename="a.bin", content=content) for fake in self.fakes]
        wrap = wrap or (lambda link: {"msgtype": kind, kind: link})
        for fake, link in zip(self.fakes, (one, other)):
            fake.control("robot_say", **{"from": "ann", "group": more.get("group"), "content": wrap(link)})


app_checks, robot_checks = Checks(), Checks()


def step(function):
    """A part of the scene. Afterwards the events of both sides are compared."""
    def compare(s):
        function(s)
        s.compare(function.__name__)
    compare.__name__ = function.__name__
    (app_checks if function.__name__.startswith("app_") else robot_checks)(compare)
    return function


@step
def app_text(s):
    s.say("ann", "hello *you* <b>&amp;</b> ]]> 你好 🧊")
    s.say("Ben.B-c_d", "  one\n\n\ttwo \n")


@step
def app_command(s):
    s.say("ann", "/new now")


@step
def app_nothing(s):
    s.say("ann", "  ")


@step
def app_menu(s):
    s.fields("<MsgType><![CDATA[event]]></MsgType><Event><![CDATA[click]]></Event><EventKey><![CDATA[k]]></EventKey>")


@step
def app_enters(s):
    s.fields("<MsgType>event</MsgType><Event>enter_agent</Event><EventKey></EventKey>")
    s.fields("<MsgType>event</MsgType><Event>subscribe</Event>", "Ben.B-c_d")


@step
def app_reported_location(s):
    s.fields("<MsgType>event</MsgType><Event>LOCATION</Event><Latitude>1</Latitude><Longitude>2</Longitude>", "Ben.B-c_d")


@step
def app_image(s):
    s.fields("<MsgType>image</MsgType><PicUrl>http://x</PicUrl><MediaId>M</MediaId><MsgId>901</MsgId>")


@step
def app_voice(s):
    s.fields("<MsgType>voice</MsgType><MediaId>M</MediaId><Format>amr</Format><MsgId>902</MsgId>")


@step
def app_video(s):
    s.fields("<MsgType>video</MsgType><MediaId>M</MediaId><ThumbMediaId>T</ThumbMediaId><MsgId>903</MsgId>")


@step
def app_location(s):
    s.fields("<MsgType>location</MsgType><Location_X>1.5</Location_X><Location_Y>2</Location_Y><Label>L</Label><MsgId>904</MsgId>")


@step
def app_link(s):
    s.fields("<MsgType>link</MsgType><Title>T</Title><Description>D</Description><Url>https://a.example</Url><MsgId>905</MsgId>")


@step
def app_retry(s):
    s.fields("<MsgType>text</MsgType><Content>once</Content><MsgId>906</MsgId>")
    s.fields("<MsgType>text</MsgType><Content>once</Content><MsgId>906</MsgId>")


@step
def robot_text(s):
    s.say("ann", " hello *you* <b>&amp;</b> 你好 🧊 ")
    s.say("Ben.B-c_d", "one\n\n\ttwo")


@step
def robot_command(s):
    s.say("ann", "/new now")


@step
def robot_in_a_group(s):
    s.say("ann", "@Robot hello all", group="wrGroup1")


@step
def robot_command_in_a_group(s):
    s.say("Ben.B-c_d", "@Robot /approve", group="wrGroup1")


@step
def robot_mention_alone(s):
    s.say("ann", "@Robot", group="wrGroup1")


@step
def robot_nothing(s):
    s.say("ann", "  ")


@step
def robot_quote(s):
    s.say("ann", "this one", quote={"msgtype": "text", "text": {"content": "said before"}})


@step
def robot_quote_alone(s):
    s.say("ann", "", quote={"msgtype": "voice", "voice": {"content": "spoken before"}})


@step
def robot_voice(s):
    s.send({"msgtype": "voice", "voice": {"content": "spoken words"}})


@step
def robot_image(s):
    s.file("image", "image/jpeg")


@step
def robot_file(s):
    s.file("file", "application/octet-stream", content="%PDF-1.4 a plan")


@step
def robot_mixed(s):
    text = {"msgtype": "text", "text": {"content": "what is this?"}}
    s.file("image", "image/jpeg", wrap=lambda link: {
        "msgtype": "mixed", "mixed": {"msg_item": [text, {"msgtype": "image", "image": link}, {"msgtype": "text", "text": {"content": "and?"}}]}})


@step
def robot_quoted_image(s):
    s.file("image", "image/jpeg", wrap=lambda link: {
        "msgtype": "text", "text": {"content": "look again"}, "quote": {"msgtype": "image", "image": link}})


@step
def robot_attachment(s):
    s.file("file", "application/octet-stream", content="%PDF-1.4 a plan", wrap=lambda link: {
        "msgtype": "appmsg", "appmsg": {"title": "plan.pdf", "file": link}})


@step
def robot_video(s):
    s.file("video", "video/mp4", content="a video")


@step
def robot_event(s):
    for fake in s.fakes:
        fake.control("robot_event", **{"from": "ann", "event": {"eventtype": "enter_chat"}})


@step
def robot_repeated(s):
    s.send({"msgtype": "text", "text": {"content": "once"}, "msgid": "same"})
    s.send({"msgtype": "text", "text": {"content": "once"}, "msgid": "same"})


if __name__ == "__main__":
    results = [checks.run([("", scene)]) for checks, scene in ((app_checks, App), (robot_checks, Robot))]
    sys.exit(max(results))
