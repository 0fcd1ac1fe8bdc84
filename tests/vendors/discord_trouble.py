"""Sockets that break, limits that are reached, and endpoints for interactions."""

import asyncio
import contextlib
import copy
import io
import json
import socket
import time

import aiohttp
import aiohttp.web
import discord
import discord_interactions
from discord_checks import CHECKS, check
from discord_scene import ANN, BOT, GENERAL, GUILD, SECONDS, SEND, TOKEN, Failed, same

__all__ = ["CHECKS"]


async def message(s):
    while (got := await s.next("message"))["author"] == BOT:
        pass
    return got


async def heard(s, text):
    """A message comes through, and only once."""
    s.say(text)
    same((await message(s))["text"], text, "message")


@check(only="discord.py", options={"plain": True})
async def a_socket_without_compression(s):
    await heard(s, "plain")


@check(starts_itself=True, options={"patience_s": 3})
async def withheld_acks_make_it_resume(s):
    s.fake.control("gateway", {"identify_every_ms": 0, "heartbeat_interval_ms": s.lib.heartbeat_ms})
    await s.lib.open()
    await s.next("ready")
    s.fake.socket("withhold_acks", count=1000)
    await s.fake.called("gateway resume")
    s.fake.socket("withhold_acks", count=0)
    await s.next("resumed")
    await heard(s, "back")
    same(len(await s.fake.called("gateway identify")), 1, "sessions")


@check(only="discord.py", starts_itself=True, options={"sharded": True})
async def shards_have_their_own_guilds(s):
    s.fake.control("gateway", {"identify_every_ms": 0, "shards": 2, "max_concurrency": 2})
    other, channel = GUILD + (1 << 22), GENERAL + (1 << 22)
    s.fake.act("add_guild", id=other, name="Other", owner=ANN, members=[{"user": BOT}, {"user": ANN}],
               channels=[{"id": channel, "name": "other"}])
    await s.lib.open()
    await s.next("ready")
    client = s.lib.client
    same(sorted(client.shards), [0, 1], "shards")
    same({guild.id: guild.shard_id for guild in client.guilds},
         {guild: (guild >> 22) % 2 for guild in (GUILD, other)}, "guilds")
    s.say("here")
    s.say("there", channel=channel)
    s.fake.act("say", bot=BOT, by=ANN, text="directly")
    same({(await message(s))["text"] for _ in range(3)}, {"here", "there", "directly"}, "messages")
    before = s.fake.last_number()
    same(s.fake.socket("cut_shard", shard=1), 1, "sockets")
    await s.fake.called("gateway resume", after=before)
    s.say("here again")
    s.say("there again", channel=channel)
    same({(await message(s))["text"] for _ in range(2)}, {"here again", "there again"}, "messages")
    same(len(await s.fake.called("gateway identify")), 2, "sessions")


@check
async def a_cut_socket_is_resumed_with_what_was_missed(s):
    s.fake.socket("cut_after", dispatches=1)
    for text in ("before", "missed", "missed too"):
        s.say(text)
    same([(await message(s))["text"] for _ in range(3)], ["before", "missed", "missed too"], "messages")
    await s.fake.called("gateway resume")
    await heard(s, "live again")
    same(len(await s.fake.called("gateway identify")), 1, "sessions")


@check
async def opcode_7_makes_it_resume(s):
    same(s.fake.socket("reconnect"), 1, "live sockets")
    await s.fake.called("gateway resume")
    await heard(s, "after opcode 7")


@check
async def opcode_9_that_is_resumable(s):
    s.fake.socket("invalid_session", resumable=True)
    await s.fake.called("gateway resume")
    await heard(s, "resumed")
    same(len(await s.fake.called("gateway identify")), 1, "sessions")


@check
async def opcode_9_that_is_not_resumable(s):
    s.fake.socket("invalid_session", resumable=False)
    await s.fake.called("gateway identify", count=2)
    await s.next("ready")
    await heard(s, "a new session")


@check
async def a_forgotten_session_is_begun_anew(s):
    s.fake.socket("cut")
    s.fake.socket("forget_sessions")
    s.fake.socket("cut")
    await s.fake.called("gateway identify", count=2)
    await s.next("ready")
    await heard(s, "a new session")


@check
async def what_is_no_longer_kept_ends_the_session(s):
    s.fake.control("gateway", {"identify_every_ms": 0, "heartbeat_interval_ms": 5000, "kept_dispatches": 2})
    s.fake.socket("refuse_connects", count=1)
    s.fake.socket("cut")
    for number in range(5):
        s.say(f"lost {number}")
    await s.fake.called("gateway identify", count=2)
    await s.next("ready")
    await heard(s, "a new session")


@check
async def refused_connections_are_tried_again(s):
    s.fake.socket("refuse_connects", count=2)
    s.fake.socket("close", code=4000)
    s.say("while it is away")
    same((await message(s))["text"], "while it is away", "missed message")


@check
async def dispatches_twice_and_with_a_gap(s):
    s.fake.socket("duplicate")
    s.fake.socket("skip_sequence")
    first, second = s.say("twice"), s.say("gap")
    ids = [(await message(s))["id"] for _ in range(3)]
    same(ids, [int(first["id"]), int(first["id"]), int(second["id"])], "messages")


@check(starts_itself=True, only="discord.py")
async def a_token_that_the_gateway_refuses(s):
    await s.lib.client.login(TOKEN)
    s.fake.act("add_bot", id=BOT, token="another", username="desk")
    s.lib.task = asyncio.create_task(s.lib.client.connect(reconnect=True))
    same(await s.lib.ended(), 4004, "close code")


@check(starts_itself=True)
async def a_token_that_rest_refuses(s):
    s.fake.act("add_bot", id=BOT, token="another", username="desk")
    with contextlib.suppress(discord.LoginFailure):
        await s.lib.open()
        same(await s.lib.ended(), 4004, "refusal")


@check(starts_itself=True, options={"bot": {"denied": ["message_content"]}})
async def an_intent_that_the_portal_denies(s):
    await s.lib.open()
    same(await s.lib.ended(), 4014, "close code")


@check(options={"intents": discord.Intents(guilds=True, guild_messages=True, dm_messages=True)})
async def content_is_only_seen_where_it_is_meant_for_the_bot(s):
    s.say("not for the bot", files=[{"name": "a", "content": "a"}])
    got = await message(s)
    same((got["text"], got["files"]), ("", []), "guarded")
    s.say(f"for <@{BOT}>")
    same((await message(s))["text"], f"for <@{BOT}>", "a mention")
    s.fake.act("say", bot=BOT, by=ANN, text="direct")
    same((await message(s))["text"], "direct", "a direct message")
    s.fake.act("react", channel=GENERAL, message=int(s.say("x")["id"]), by=ANN, emoji="🔥")
    await heard_nothing_but_messages(s)


async def heard_nothing_but_messages(s):
    await message(s)
    s.say(f"<@{BOT}> end")
    while True:
        event = await asyncio.wait_for(s.lib.events.get(), SECONDS)
        if event["name"] == "raw_reaction_add":
            raise Failed("a reaction came without its intent")
        if event["name"] == "message" and "end" in event["text"]:
            return


@check
async def rate_limits_are_obeyed_by_their_headers(s):
    s.fake.control("limits", {"enabled": True, "routes": {SEND: {"count": 3, "within_ms": 2000}}})
    began = time.monotonic()
    for number in range(5):
        await s.lib.send(GENERAL, f"n{number}")
    if not 1.5 < time.monotonic() - began < 10:
        raise Failed(f"five messages took {time.monotonic() - began:.1f} s")
    same(s.fake.control("state")["refused_for_rate"], 0, "429s")


@check
async def refusals_for_rate_are_waited_out(s):
    for scope in ("user", "shared", "global"):
        s.fake.fault(SEND, "rate_limited", retry_after_ms=400, scope=scope)
        before, began = s.fake.last_number(), time.monotonic()
        await s.lib.send(GENERAL, scope)
        # hikari holds back only other calls while a global limit lasts.
        if time.monotonic() - began < 0.4 and (scope, s.lib.title) != ("global", "hikari"):
            raise Failed(f"{scope}: the pause was not kept")
        same([it["status"] for it in await s.fake.called(SEND, after=before)], [429, 200], scope)
    same(s.fake.control("state")["invalid_requests"], 2, "shared limits are not held against the caller")


@check
async def server_errors_and_broken_answers(s):
    s.judge.ignores = True
    s.fake.fault(SEND, "bad_gateway")
    same((await s.lib.send(GENERAL, "after 502"))["text"], "after 502", "tried again")
    for fault, arrives in (("drop_before", False), ("drop_after", True), ("cut", True)):
        s.fake.fault(SEND, fault, times=5)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(s.lib.send(GENERAL, fault), SECONDS)
            raise Failed(f"{fault}: an answer came")
        seen = fault in [it["content"] for it in s.fake.channel(GENERAL)["messages"]]
        same(seen, arrives, f"{fault}: has had its effect")
        s.fake.control("act", [])
        while s.fake.control("state")["faults_waiting"]:
            with contextlib.suppress(Exception):
                await raw(s, "POST", f"channels/{GENERAL}/messages", json={"content": "spent"})


async def raw(s, method, path, **more):
    """A call without a library: status, headers and body."""
    async with aiohttp.ClientSession(headers={"authorization": f"Bot {TOKEN}"}) as session:
        async with session.request(method, f"{s.fake.base_url}/{path}", **more) as reply:
            return reply.status, reply.headers, await reply.json() if reply.status != 204 else None


@check(only="discord.py")
async def the_same_nonce_makes_one_message(s):
    body = {"content": "once", "nonce": "n-1", "enforce_nonce": True}
    first, second = [await raw(s, "POST", f"channels/{GENERAL}/messages", json=body) for _ in range(2)]
    same((second[0], second[2]["id"]), (200, first[2]["id"]), "second call")
    same(first[2]["nonce"], "n-1", "nonce")
    third = await raw(s, "POST", f"channels/{GENERAL}/messages", json={"content": "once", "nonce": "n-1"})
    same(third[2]["id"] != first[2]["id"], True, "without the wish to be told")
    s.fake.control("clock", {"advance_ms": 600_000})
    fourth = await raw(s, "POST", f"channels/{GENERAL}/messages", json=body)
    same(fourth[2]["id"] != first[2]["id"], True, "minutes later")


@check(only="discord.py")
async def commands_of_a_day_are_limited(s):
    s.fake.control("limits", {"enabled": True, "command_creates_a_day": 2, "other": {"count": 100, "within_ms": 1000}})
    path = f"applications/{BOT}/commands"
    made = [await raw(s, "POST", path, json={"name": f"c{number}", "description": "d"}) for number in range(3)]
    same([(status, body.get("code")) for status, _, body in made], [(201, None), (201, None), (400, 30034)], "creates")
    again = await raw(s, "POST", path, json={"name": "c0", "description": "other"})
    same((again[0], again[2]["id"]), (200, made[0][2]["id"]), "a change of one that is there")
    same((await raw(s, "PUT", path, json=[]))[2], [], "all removed")
    status, _, body = await raw(s, "PUT", path, json=[{"name": "c9", "description": "d"}])
    same((status, body["code"]), (400, 30034), "one more is too many")


@check(only="discord.py")
async def two_renames_in_ten_minutes(s):
    s.fake.control("limits", {"enabled": True})
    said = int(s.say("x")["id"])
    thread = (await raw(s, "POST", f"channels/{GENERAL}/messages/{said}/threads", json={"name": "t"}))[2]
    seen = [await raw(s, "PATCH", f"channels/{thread['id']}", json={"name": f"n{number}"}) for number in range(3)]
    same([status for status, _, _ in seen], [200, 200, 429], "renames")
    status, headers, body = seen[2]
    same((body["global"], body["retry_after"] > 500, headers["X-RateLimit-Remaining"] != "0"), (False, True, True), "refusal")


@check(only="discord.py")
async def the_session_limit_is_told(s):
    body = (await raw(s, "GET", "gateway/bot"))[2]
    same((body["url"], body["shards"]), (s.fake.gateway_url, 1), "gateway")
    same((body["session_start_limit"]["total"], body["session_start_limit"]["remaining"]), (1000, 999), "starts")


async def spoken(s, *frames, query="?v=10&encoding=json"):
    """A socket without a library: the frames that came, and the close code."""
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{s.fake.gateway_url}/{query}") as ws:
        got = []
        for frame in frames:
            await ws.send_str(frame if isinstance(frame, str) else json.dumps(frame))
        while (received := await ws.receive(SECONDS)).type == aiohttp.WSMsgType.TEXT:
            got.append(json.loads(received.data))
        return got, ws.close_code


@check(only="discord.py")
async def close_codes(s):
    identify = lambda **more: {"op": 2, "d": {"token": TOKEN, "intents": 1, "properties": {}, **more}}  # noqa: E731
    cases = [
        (4001, [{"op": 99, "d": None}]),
        (4002, ["{"]),
        (4002, [{"op": 1, "d": "x" * 5000}]),
        (4003, [{"op": 8, "d": {}}]),
        (4004, [identify(token="wrong")]),
        (4005, [identify(), identify()]),
        (4010, [identify(shard=[2, 2])]),
        (4013, [identify(intents=1 << 60)]),
        (4008, [{"op": 1, "d": None}] * 121),
    ]
    for wanted, frames in cases:
        same((await spoken(s, *frames))[1], wanted, f"close code for {str(frames)[:60]}")
    same((await spoken(s, query="?v=3&encoding=json"))[1], 4012, "close code for an old version")
    session = s.fake.control("state", bot=BOT)["sessions"][0]["session_id"]
    resume = {"op": 6, "d": {"token": TOKEN, "session_id": session, "seq": 9999}}
    same((await spoken(s, resume))[1], 4007, "close code for a number that is too high")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.asynccontextmanager
async def endpoint(key, answer, verifies=True):
    """An endpoint as an application has it; the vendor's library judges the signatures."""
    seen = []

    async def take(request):
        body = await request.read()
        signature, timestamp = request.headers["X-Signature-Ed25519"], request.headers["X-Signature-Timestamp"]
        # The library prints its verdict.
        with contextlib.redirect_stdout(io.StringIO()):
            is_valid = discord_interactions.verify_key(body, signature, timestamp, key)
        if verifies and not is_valid:
            seen.append(("bad signature", None))
            return aiohttp.web.Response(status=401, text="Bad request signature")
        given = json.loads(body)
        seen.append((given["type"], given))
        if given["type"] == discord_interactions.InteractionType.PING:
            return aiohttp.web.json_response({"type": discord_interactions.InteractionResponseType.PONG})
        return await answer(given)

    app = aiohttp.web.Application()
    app.router.add_post("/interactions", take)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}/interactions", seen
    finally:
        await runner.cleanup()


@check(only="discord.py")
async def signed_interactions_go_to_the_endpoint(s):
    key = (await s.lib.facts(GUILD))["key"]
    await s.lib.command("ask", "Ask something")

    async def answer(given):
        if given["data"]["name"] == "ask" and given["member"]["nick"] == "Annie":
            return aiohttp.web.json_response({"type": 4, "data": {"content": "noon"}})
        return aiohttp.web.Response(status=500)

    async with endpoint(key, answer) as (url, seen):
        changed = await raw(s, "PATCH", "applications/@me", json={"interactions_endpoint_url": url})
        same((changed[0], changed[2]["interactions_endpoint_url"]), (200, url), "registered")
        same([kind for kind, _ in seen], ["bad signature", 1], "how it was proved")
        ask = lambda **more: s.fake.act("interact", kind="command", bot=BOT, by=ANN, channel=GENERAL, name="ask", **more)  # noqa: E731
        result = await s.fake.answered(ask())
        same((result["endpoint"]["status"], result["endpoint"]["error"]), (200, None), "answer of the endpoint")
        same((result["original"]["content"], seen[-1][0]), ("noon", 2), "answer")
        result = await s.fake.answered(ask(bad_signature=True))
        same((result["endpoint"]["status"], result["original"]), (401, None), "a bad signature")
        same(s.lib.events.empty() or all(event["name"] != "interaction" for event in list(s.lib.events._queue)), True,
             "nothing over the socket")


@check(only="discord.py")
async def endpoints_that_are_slow_or_do_not_verify(s):
    key = (await s.lib.facts(GUILD))["key"]
    await s.lib.command("ask", "Ask something")
    release = asyncio.Event()

    async def never(given):
        await release.wait()
        return aiohttp.web.json_response({"type": 4, "data": {"content": "late"}})

    async with endpoint(key, never, verifies=False) as (url, _):
        status, _, body = await raw(s, "PATCH", "applications/@me", json={"interactions_endpoint_url": url})
        same((status, body["code"]), (400, 50035), "an endpoint that takes any signature")
    async with endpoint(key, never) as (url, _):
        await asyncio.to_thread(s.fake.control, "endpoint", {"bot": BOT, "url": url})
        made = s.fake.act("interact", kind="command", bot=BOT, by=ANN, channel=GENERAL, name="ask")
        result = await s.fake.answered(made)
        same((result["endpoint"]["status"], result["endpoint"]["error"], result["answer"]),
             (None, "no answer within 3 s", None), "a slow endpoint")
        release.set()


@check(only="discord.py")
async def the_description_finds_mistakes(s):
    if not s.judge.schema:
        return
    path = f"/channels/{GENERAL}/messages"
    _, _, good = await raw(s, "POST", path[1:], json={"content": "a", "embeds": [{"title": "t"}]})
    judged = lambda body, status=200: len(s.judge.schema.problems("POST", path, status, json.dumps(body)))  # noqa: E731
    same(judged(good), 0, "a good message")
    mistakes = {
        "a missing field": lambda it: it.pop("timestamp"),
        "an id as a number": lambda it: it.update(id=1),
        "a flag as a number": lambda it: it.update(tts=0),
        "an author without a name": lambda it: it["author"].pop("username"),
        "an embed without a type": lambda it: it["embeds"][0].pop("type"),
    }
    for what, change in mistakes.items():
        changed = copy.deepcopy(good)
        change(changed)
        same(judged(changed), 1, what)
    same(judged(good, 418) > 0, True, "a status that is not described")
    same(len(s.judge.schema.problems("POST", "/no/such/path", 200, b"{}")), 1, "an unknown route")
