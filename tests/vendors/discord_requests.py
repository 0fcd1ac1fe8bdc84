"""What the server sends to Discord, judged by Discord's OpenAPI document: every action, answer and list of commands.

  FRONTDESK_BIN=path/to/frontdesk FRONTDESK_FAKE_DISCORD_BIN=path/to/examples/fake_discord FRONTDESK_SCHEMAS=folder \\
      tests/vendors/discord_requests.py [--only PATTERN]

One line per check; the last line is the tally.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
sys.path.insert(0, str(here))
sys.path.insert(0, str(here.parent / "hermes"))

import discord_scene  # noqa: E402
import discord_schema  # noqa: E402
from discord_scene import ANN, BOT, FORUM, GENERAL, PNG, TOKEN  # noqa: E402
from harness import NEWEST, Checks, Desk, Driver, Link, cache_root, ensure, request, same, unique, wait_for  # noqa: E402

check = Checks()
KIND = "discord.interaction_token"
ROUTES = ("POST channels/:id/messages", "PATCH channels/:id/messages/:id", "DELETE channels/:id/messages/:id",
          "POST channels/:id/typing", "PUT channels/:id/messages/:id/reactions/:emoji/@me", "POST channels/:id/threads",
          "POST channels/:id/messages/:id/threads", "PATCH channels/:id", "POST interactions/:id/:token/callback",
          "PATCH webhooks/:id/:token/messages/@original", "POST webhooks/:id/:token", "PUT applications/:id/commands")


class Scene:
    def __init__(self, schema):
        self.schema = schema
        self.fake = discord_scene.Fake(os.environ["FRONTDESK_FAKE_DISCORD_BIN"])
        discord_scene.make_world(self.fake)
        self.desk = Desk("discord-requests")
        self.tenant = self.desk.tenant("t")
        self.desk.admin("POST", "/bots", {
            "platform": "discord", "id": "bot", "tenant": self.tenant.name, "secrets": {"token": TOKEN},
            "settings": {"base_url": self.fake.base_url, "gateway_url": self.fake.gateway_url}})
        status, made = request("POST", f"{self.desk.url}/relay/provision", token=self.tenant.identity, body={
            "gatewayId": "agent", "platform": "discord", "botId": "bot", "gatewayEndpoint": "", "routeKeys": [],
            "instanceId": "agent", "wakeUrl": None})
        same(status, 200, f"provision ({made})")
        self.tenant.bind(str(ANN), "agent", platform="discord")
        self.driver = Driver(NEWEST, str(cache_root() / "venv" / "bin" / "python"))
        self.link = Link(self.driver, unique("link"))
        opened = self.driver.call("open", name=self.link.name, url=self.desk.url, gateway_id="agent", secret=made["secret"],
                                  platform="discord", bot_id="bot")
        ensure(opened["connected"], f"no handshake: {opened}")
        self.secret = made["secret"]
        wait_for(lambda: self.fake.control("calls", method="gateway identify"), "the bot at the gateway", timeout=30)
        self.said = self.say("hello")
        self.judged = set()

    def say(self, text):
        said = self.fake.act("say", channel=GENERAL, by=ANN, text=text)["id"]
        self.link.inbound(text, timeout=30)
        return said

    def act(self, op, chat_id=GENERAL, **fields):
        result = self.link.act(op, platform="discord", chat_id=str(chat_id), **fields)
        ensure(result.get("success"), f"{op}: {result}")
        return result

    def play(self, function):
        before = self.fake.last_number()
        function(self)
        calls = [call for call in self.fake.control("calls", after=before) if not call["method"].startswith("gateway")]
        ensure(calls or getattr(function, "is_silent", False), "nothing was sent")
        problems = [problem for call in calls for problem in self.schema.problems_of_request(call)]
        ensure(not problems, f"not as described: {'; '.join(problems[:5])}")
        same([call for call in calls if call["status"] >= 400], [], "refused requests")
        self.judged.update(call["method"] for call in calls)

    def tail(self):
        return "\n    " + self.desk.log_tail(4)

    def close(self):
        self.desk.stop()
        self.fake.close()


@check
def texts_answers_and_long_ones(s):
    s.sent = s.act("send", content="**hello** <@&5> @everyone")["message_id"]
    s.act("send", content="as an answer", reply_to=s.said)
    s.act("send", content="word " * 900)


@check
def edits_and_deletions(s):
    s.act("edit", message_id=s.sent, content="*changed*")
    s.act("delete", message_id=s.sent)


@check
def typing_and_reactions(s):
    s.link.act("typing", platform="discord", chat_id=str(GENERAL))
    s.act("react", message_id=s.said, emoji="👀")


@check
def chat_information(s):
    ensure(s.link.adapter("get_chat_info", str(GENERAL)), "no information")


chat_information.is_silent = True  # it may be known


@check
def files(s):
    token = s.driver.call("token", gateway_id="agent", secret=s.secret)
    status, made = upload(f"{s.desk.url}/relay/media", PNG, token, "image/png")
    same(status, 200, "upload")
    s.act("send_media", media_kind="image", source_url=f"{s.desk.url}/relay/media/{made['id']}", content="a dot", filename="d.png")


def upload(url, data, token, mime):
    call = urllib.request.Request(url, data=data, method="POST", headers={"Authorization": f"Bearer {token}", "Content-Type": mime})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call, timeout=15) as reply:
        return reply.status, json.load(reply)


@check
def threads(s):
    s.act("thread_create", message_id=s.say("a long story"), thread_name="Story")
    made = s.act("thread_create", thread_name="alone")["thread_id"]
    s.act("thread_rename", chat_id=made, message_id=made, thread_name="renamed", only_if_current_name="alone")


@check
def posts_of_a_forum(s):
    s.fake.act("post_in_forum", channel=FORUM, by=ANN, name="An idea", text="what about it?")
    post = s.link.inbound("what about it?", timeout=30)["source"]["chat_id"]
    s.act("send", chat_id=post, content="good")


def options(count):
    return [{"id": f"o{number}", "label": f"Option {number}"} for number in range(count)]


@check
def prompts_as_buttons_and_as_a_menu(s):
    for count in (2, 26):
        sent = s.act("prompt", prompt_id=f"p{count}", prompt_kind="choice", content="Which?", options=options(count))
        shown = next(m for m in s.fake.channel(GENERAL)["messages"] if m["id"] == sent["message_id"])
        part = shown["components"][0]["components"][0]
        if part["type"] == 2:
            s.fake.act("interact", kind="button", bot=BOT, by=ANN, channel=GENERAL, message=int(sent["message_id"]), custom_id=part["custom_id"])
        else:
            s.fake.act("interact", kind="select", bot=BOT, by=ANN, channel=GENERAL, message=int(sent["message_id"]),
                       custom_id=part["custom_id"], values=[part["options"][0]["value"]])
        s.link.inbound("/o0", timeout=30)


@check
def commands_and_follow_ups(s):
    wait_for(lambda: s.fake.control("calls", method="PUT applications/:id/commands"), "the list of commands", timeout=60)
    # In a direct chat the server answers this one itself.
    made = s.fake.act("interact", kind="command", bot=BOT, by=ANN, name="whoami")
    answered = s.fake.control("interaction", id=made["id"], wait_ms=10000)
    ensure(answered["answer"], f"not answered: {answered}")
    status, _ = request("POST", f"{s.fake.base_url}/applications/{BOT}/commands", {"name": "ask", "description": "x"},
                        more={"Authorization": f"Bot {TOKEN}"})
    same(status, 201, "a command of the agent")
    s.fake.act("interact", kind="command", bot=BOT, by=ANN, channel=GENERAL, name="ask")
    key = s.link.inbound(timeout=30)["session_key"]
    for text in ("first", "second"):
        sent = s.link.adapter("send_follow_up", key, KIND, text)
        ensure(sent["success"], f"follow_up: {sent}")


@check
def nothing_was_left_out(s):
    def left():
        # The fake records a call when it has answered it, which may be after the answer was read.
        for call in s.fake.control("calls"):
            if call["method"] in ROUTES:
                same(s.schema.problems_of_request(call), [], call["method"])
                s.judged.add(call["method"])
        return [route for route in ROUTES if route not in s.judged]

    wait_for(lambda: not left(), f"a request to each route; left: {left()}")


nothing_was_left_out.is_silent = True


if __name__ == "__main__":
    found, path = discord_schema.find()
    if found is None:
        print(f"skipped: requests are not judged by Discord's OpenAPI document, because {path} is not there")
        sys.exit(0)
    sys.exit(check.run([("", lambda: Scene(found))], environment="vendors"))
