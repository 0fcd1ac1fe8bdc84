"""A world in the fake Discord server, and one library that looks at it."""

import asyncio
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import aiohttp

BOT, TOKEN = 1100000000000000001, "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-the-first-bot-of-the-fake-x"
ANN, BOB = 1100000000000000011, 1100000000000000012
GUILD, ROLE = 1100000000000000100, 1100000000000000150
GENERAL, FORUM, HIDDEN = 1100000000000000101, 1100000000000000102, 1100000000000000103
PNG = bytes.fromhex("89504e470d0a1a0a") + bytes(range(256))
SEND = "POST channels/:id/messages"
VIEW_CHANNEL = 1 << 10
SECONDS = 20


class Failed(Exception):
    pass


def same(seen, wanted, what):
    if seen != wanted:
        raise Failed(f"{what}: expected {wanted!r}, saw {seen!r}")


class Fake:
    """The process, and its control API."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        told = json.loads(self.process.stdout.readline())
        self.base_url, self.gateway_url = told["base_url"], told["gateway_url"]
        self.host = self.base_url.removesuffix("/api/v10")
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def control(self, path, body=None, **query):
        if query:
            path += "?" + urllib.parse.urlencode(query)
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(f"{self.host}/control/{path}", data=data, method="POST" if data else "GET")
        try:
            with self.opener.open(call, timeout=70) as reply:
                return json.load(reply)["result"]
        except urllib.error.HTTPError as exc:
            raise Failed(f"control {path}: {exc.read().decode()}") from None

    def act(self, act, **more):
        if "by" in more:
            more["from"] = more.pop("by")
        return self.control("act", {"act": act, **more})

    def fault(self, method, fault, **more):
        self.control("faults", {"method": method, "fault": fault, **more})

    def socket(self, fault, **more):
        return self.control("socket", {"bot": BOT, "fault": fault, **more})

    def channel(self, channel):
        return self.control("channel", id=channel)

    def last_number(self):
        calls = self.control("calls")
        return calls[-1]["number"] if calls else 0

    async def called(self, method, after=0, count=1):
        """Waits until a method was called so often, without keeping the library from its work."""
        wait = lambda: self.control("calls", method=method, after=after, count=count, wait_ms=SECONDS * 1000)  # noqa: E731
        found = await asyncio.to_thread(wait)
        if len(found) < count:
            raise Failed(f"{method} was called {len(found)} times, not {count}")
        return found

    async def answered(self, interaction):
        wait = lambda: self.control("interaction", id=interaction["id"], wait_ms=SECONDS * 1000)  # noqa: E731
        return await asyncio.to_thread(wait)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def make_world(fake, **bot):
    fake.control("reset", {})
    fake.control("limits", {"enabled": False})
    fake.control("gateway", {"identify_every_ms": 0, "heartbeat_interval_ms": 5000})
    fake.act("add_bot", id=BOT, token=TOKEN, username="desk", **bot)
    fake.act("add_user", id=ANN, username="ann", global_name="Ann Bee")
    fake.act("add_user", id=BOB, username="bob")
    hidden = [{"id": str(GUILD), "type": 0, "allow": "0", "deny": str(VIEW_CHANNEL)}]
    fake.act("add_guild", id=GUILD, name="Guild", owner=ANN, roles=[{"id": ROLE, "name": "Team"}],
             members=[{"user": BOT}, {"user": ANN, "nick": "Annie", "roles": [ROLE]}, {"user": BOB}],
             channels=[{"id": GENERAL, "name": "general", "topic": "all"},
                       {"id": FORUM, "name": "ideas", "kind": "forum", "tags": ["bug"]},
                       {"id": HIDDEN, "name": "hidden", "permission_overwrites": hidden}])


class Scene:
    def __init__(self, fake, library, judge, bot=None, **more):
        self.fake = fake
        make_world(fake, **(bot or {}))
        self.lib = library(fake, TOKEN, judge=judge, **more)
        self.judge = judge

    def say(self, text, channel=GENERAL, by=ANN, **more):
        return self.fake.act("say", channel=channel, by=by, text=text, **more)

    async def next(self, *names):
        """The next event of one of these names; others are skipped."""
        while True:
            try:
                event = await asyncio.wait_for(self.lib.events.get(), SECONDS)
            except asyncio.TimeoutError:
                raise Failed(f"no event of {names} came") from None
            if event["name"] in names:
                if "error" in event:
                    raise Failed(f"{event['name']} could not be read: {event['error']}")
                return event

    async def refused(self, code, awaitable, text=None):
        try:
            result = await awaitable
        except self.lib.refusal as error:
            seen = self.lib.code_of(error)
            if seen != code:
                raise Failed(f"refused with {seen}, not {code}: {error}") from None
            if text and text not in self.lib.text_of(error):
                raise Failed(f"expected {text!r} in {self.lib.text_of(error)!r}") from None
            return error
        raise Failed(f"not refused with {code}: {result!r}")


def watch_answers(seen):
    """Every answer of REST that a library gets is shown to `seen`."""
    request = aiohttp.ClientSession._request

    async def watched(self, method, url, **more):
        reply = await request(self, method, url, **more)
        if "/api/v10/" in str(url) and reply.status != 101:
            try:
                body = await reply.read()
            except aiohttp.ClientError:
                return reply
            seen(method, str(url).split("/api/v10", 1)[1].split("?")[0], reply.status, body)
        return reply

    aiohttp.ClientSession._request = watched
