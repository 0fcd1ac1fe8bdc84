"""A world in the fake Telegram server, and one library that looks at it."""

import contextlib
import json
import subprocess
import urllib.error
import urllib.request

BOT, TOKEN = 7001, "7001:AAfake-token-of-the-first-bot"
ANN, BOB = 501, 502
GROUP, FORUM, CHANNEL, OLD, NEW = -4001, -1001000000001, -1001000000002, -4002, -1001000000003
JPEG = bytes.fromhex("ffd8ffe000104a464946") + bytes(range(256))


class Failed(Exception):
    pass


def same(seen, wanted, what):
    if seen != wanted:
        raise Failed(f"{what}: expected {wanted!r}, saw {seen!r}")


class Fake:
    """The process, and its control API."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["base_url"]
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def control(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(f"{self.url}/control/{path}", data=data, method="POST" if data else "GET")
        try:
            with self.opener.open(call, timeout=30) as reply:
                return json.load(reply)["result"]
        except urllib.error.HTTPError as exc:
            raise Failed(f"control {path}: {exc.read().decode()}") from None

    def act(self, act, **more):
        return self.control("act", {"act": act, **more})

    def fault(self, method, fault, **more):
        self.control("faults", {"method": method, "fault": fault, **more})

    def chat(self, chat):
        return self.control(f"chat?bot={BOT}&chat={chat}")

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


class Scene:
    def __init__(self, fake, library, schema):
        self.fake, self.schema, self.judged, self.problems = fake, schema, 0, []
        fake.control("reset", {})
        fake.control("limits", {"enabled": False})
        members = [[BOT, "administrator"], [ANN, "creator"]]
        fake.act("add_bot", id=BOT, token=TOKEN, username="desk_bot", first_name="Desk")
        fake.act("add_user", id=ANN, first_name="Ann", last_name="Bee", username="ann_b", language_code="de")
        fake.act("add_user", id=BOB, first_name="Bob")
        fake.act("add_chat", id=GROUP, kind="group", title="Group", members=members)
        fake.act("add_chat", id=OLD, kind="group", title="Old", members=members)
        fake.act("add_chat", id=FORUM, kind="supergroup", title="Forum", is_forum=True, members=members)
        fake.act("add_chat", id=CHANNEL, kind="channel", title="News", username="news_of", members=members)
        fake.act("say", chat=ANN, **{"from": ANN}, text="/start")
        self.lib = library(fake.url, TOKEN, self.judge)
        self.bot = self.lib.bot

    def judge(self, method, payload):
        with contextlib.suppress(ValueError):
            body = json.loads(payload)
            if self.schema:
                self.problems += self.schema.problems_of_answer(method, body)
                if method.lower() == "getupdates" and body.get("ok"):
                    self.problems += [found for update in body["result"] for found in self.schema.problems_of_update(update)]
            self.judged += 1

    async def updates(self, count, **more):
        """Polls until as many updates came, and confirms them."""
        got = []
        while len(got) < count:
            offset = got[-1].update_id + 1 if got else None
            page = list(await self.bot.get_updates(offset=offset, timeout=5, **more))
            if not page:
                raise Failed(f"{len(got)} of {count} updates came")
            got += page
        await self.bot.get_updates(offset=got[-1].update_id + 1, timeout=0)
        return got

    async def drain(self, kinds=None):
        await self.bot.get_updates(offset=-1, allowed_updates=kinds or [])
        last = await self.bot.get_updates(offset=-1)
        if last:
            await self.bot.get_updates(offset=last[-1].update_id + 1)

    async def refused(self, kind, awaitable, text=None):
        try:
            result = await awaitable
        except self.lib.errors[kind] as error:
            if text and text.lower() not in self.lib.text_of(error).lower():
                raise Failed(f"expected {text!r} in {self.lib.text_of(error)!r}") from None
            return error
        raise Failed(f"not refused as {kind}: {result!r}")

    def say(self, chat, text, by=ANN, **more):
        return self.fake.act("say", chat=chat, **{"from": by}, text=text, **more)
