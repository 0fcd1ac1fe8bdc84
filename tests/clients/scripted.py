"""The Python client against a scripted server: refusals and moments that a real server rarely shows. parts.py runs it."""

import asyncio
import json
import logging
import time
from unittest import mock

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from frontdesk import Agent, Chat, FrontdeskError
from frontdesk._cut import cut
from frontdesk._session import session_key
from harness import ensure, folder, same

LIMIT_S = 20.0
checks = []
logging.getLogger("websockets").setLevel(logging.CRITICAL)  # agents end in the middle of a handshake


def check(function):
    checks.append(function)
    return function


class Server:
    """Accepts any agent, keeps the frames of all connections, and carries out actions in a chat of its own."""

    def __init__(self, **descriptor):
        self.descriptor = {"platform": "discord", "supports_edit": True, "max_message_length": 2000, "len_unit": "chars", **descriptor}
        self.sockets, self.frames, self.acks, self.messages = [], [], [], {}
        # Of an action: its result, or None to carry it out, or "" to say nothing.
        self.judge = lambda action: None
        # When the first descriptor is sent, and until then; and how long after a descriptor the connection is cut.
        self.described_s, self.late_s, self.cut_s = None, 0, None

    async def __aenter__(self):
        self._server = await serve(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, socket):
        self.sockets.append(socket)
        try:
            async for text in socket:
                for line in filter(None, text.split("\n")):
                    await self._take(socket, json.loads(line))
        except ConnectionClosed:
            pass

    async def _take(self, socket, frame):
        self.frames.append(frame)
        if frame["type"] == "hello":
            await asyncio.sleep(self.late_s)
            self.described_s = self.described_s or time.monotonic()
            await self.tell({"type": "descriptor", "descriptor": self.descriptor}, socket)
            if self.cut_s is not None:
                asyncio.get_running_loop().call_later(self.cut_s, socket.transport.abort)
        elif frame["type"] == "going_idle":
            await self.tell({"type": "going_idle_ack"}, socket)
        elif frame["type"] == "inbound_ack":
            self.acks.append(frame["bufferId"])
        elif frame["type"] == "outbound":
            result = self.judge(frame["action"])
            if result != "":
                result = result or self._carry_out(frame["action"])
                await self.tell({"type": "outbound_result", "requestId": frame["requestId"], "result": result}, socket)

    def _carry_out(self, action):
        if action["op"] == "edit":
            if len(action["content"]) > self.descriptor["max_message_length"]:
                return {"success": False, "code": "too_large", "error": "the text does not fit into one message"}
            self.messages[action["message_id"]] = action["content"]
            return {"success": True}
        if action["op"] == "delete":
            del self.messages[action["message_id"]]
            return {"success": True}
        ident = f"m{len(self.messages)}"
        self.messages[ident] = action["content"]
        return {"success": True, "message_id": ident}

    async def tell(self, frame, socket=None):
        await (socket or self.sockets[-1]).send(json.dumps(frame) + "\n")

    async def say(self, ident, text="hello", **source):
        source = {"platform": "discord", "chat_id": "c1", "chat_type": "group", "user_id": "ann", **source}
        await self.tell({"type": "inbound", "bufferId": ident, "event": {"text": text, "message_id": ident, "source": source}})

    @property
    def ops(self):
        return [frame["action"]["op"] for frame in self.frames if frame["type"] == "outbound"]

    def agent(self, **more):
        return Agent(url=self.url, gateway_id="g", secret="s", platforms={"discord": "b"}, state=folder("state") / "state.json", **more)


async def until(probe, what):
    end = asyncio.get_running_loop().time() + LIMIT_S
    while not probe():
        ensure(asyncio.get_running_loop().time() < end, f"{what}: not within {LIMIT_S:g} s")
        await asyncio.sleep(0.01)


async def ended(serving):
    serving.cancel()
    await asyncio.wait({serving})


async def streamed(server, pieces):
    """A message whose answer is streamed. Returns how often the handler was called."""
    agent, calls = server.agent(), []

    @agent.on_message
    async def talk(m):
        calls.append(m.id)
        async with m.stream() as stream:
            for piece in pieces:
                await stream.write(piece)

    with mock.patch("frontdesk._message.EDIT_EVERY_S", 0), mock.patch("frontdesk._message.EDIT_PAUSES_S", (0.01,)):
        serving = asyncio.ensure_future(agent.serve())
        await until(lambda: "hello" in [frame["type"] for frame in server.frames], "a connection")
        await server.say("e1")
        await until(lambda: server.acks or len(calls) > 1, "an ack")
        await ended(serving)
    return len(calls)


WORDS = [f"word{number} " for number in range(40)]


@check
async def a_stream_is_sent_once_where_messages_cannot_be_edited(s):
    async with Server(supports_edit=False) as server:
        same(await streamed(server, WORDS), 1, "calls of the handler")
        same((server.ops, list(server.messages.values())), (["send"], ["".join(WORDS)]), "what was sent")


@check
async def a_stream_that_outgrows_a_message_is_complete(s):
    async with Server(max_message_length=100) as server:
        same(await streamed(server, WORDS), 1, "calls of the handler")
        same((" ".join(server.messages.values()).split(), len(server.messages)), ("".join(WORDS).split(), 2), "what is shown")
        shown = [frame["action"]["content"] for frame in server.frames if frame["type"] == "outbound"][:-1]
        ensure(len(shown) > 5 and max(map(len, shown)) <= 100, f"{shown}")


@check
async def an_edit_that_fails_does_not_fail_the_stream(s):
    async with Server() as server:
        server.judge = lambda action: action["op"] == "edit" and server.ops.count("edit") in (2, 3) and {
            "success": False, "code": "rate_limited", "error": "try again later", "ambiguous": server.ops.count("edit") == 3} or None
        same(await streamed(server, WORDS), 1, "calls of the handler")
        same(list(server.messages.values()), ["".join(WORDS)], "what is shown")


@check
async def a_last_edit_that_is_refused_is_sent_as_a_message(s):
    async with Server() as server:
        server.judge = lambda action: {"success": False, "code": "not_found", "error": "gone"} if action["op"] == "edit" else None
        same(await streamed(server, WORDS), 1, "calls of the handler")
        same(list(server.messages.values()), ["".join(WORDS)], "what is shown")
    async with Server() as server:  # one that may have been carried out is repeated, and nothing else
        unclear = {"success": False, "code": "timeout", "error": "no answer", "ambiguous": True}
        server.judge = lambda action: unclear if action["op"] == "edit" and server.ops.count("edit") <= 2 else None
        same(await streamed(server, ["one ", "two"]), 1, "calls of the handler")
        same((server.ops, list(server.messages.values())), (["send", "edit", "edit", "edit"], ["one two"]), "what is shown")


@check
async def a_text_is_cut_between_words_and_code_stays_code(s):
    same(cut("short", 5, "chars"), ("short", ""), "a short one")
    same(cut("one two three", 9, "chars"), ("one two", "three"), "at a space")
    same(cut("\U0001f600" * 4, 5, "utf16"), ("\U0001f600" * 2, "\U0001f600" * 2), "characters of two units")
    first, rest = cut("Code:\n```py\n" + "x = 1\n" * 20 + "```\nend", 60, "chars")
    ensure(len(first) <= 60 and first.endswith("x = 1\n```") and rest.startswith("```py\nx = 1\n"), f"{first!r} {rest!r}")
    same(first.count("x = 1") + rest.count("x = 1"), 20, "lines")
    first, rest = cut("```\na\n```\n```b```\n" + "word " * 20, 60, "chars")
    ensure(first.endswith("word") and rest.startswith("word"), f"{first!r} {rest!r}")


# ---- /stop ----------------------------------------------------------------------------------

@check
async def stop_ends_the_turn_of_its_own_session_only(s):
    async with Server() as server:
        agent, seen, stopped = server.agent(), [], []

        @agent.on_message
        async def talk(m):
            seen.append(m.id)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append(m.id)
                raise

        serving = asyncio.ensure_future(agent.serve())
        await until(lambda: server.frames, "a connection")
        await server.say("root")
        await server.say("queued", user_id="bob")
        await server.say("t1", thread_id="t1")
        await server.say("t2", thread_id="t2")
        await server.say("elsewhere", chat_id="c2")
        await server.say("direct", chat_type="dm", platform="telegram")
        await until(lambda: len(seen) == 5, "five turns")

        async def stop(*sessions):
            for session in sessions:
                await server.tell({"type": "interrupt_inbound", "session_key": session, "chat_id": "c1"})

        # Of a user without a turn, and other names of the session, as the server sends them.
        await stop("agent:main:discord:group:c1:bob", "agent:main:discord:channel:c1:t2", "agent:main:discord:group:c1:m77")
        await stop("agent:main:discord:group:c1:t1")
        await until(lambda: server.acks, "an ack")
        same((server.acks, stopped), (["t1"], ["t1"]), "after /stop in a thread")
        await stop("agent:main:discord:group:c1:ann")
        await until(lambda: "queued" in seen, "the next turn")
        same((server.acks, stopped), (["t1", "root"], ["t1", "root"]), "after /stop outside of threads")
        await ended(serving)


@check
async def sessions_have_the_names_that_the_server_gives_them(s):
    for name, source in (("main:slack:dm:c", {"platform": "slack", "chat_id": "c"}),
                         ("main:slack::c", {"platform": "slack", "chat_id": "c", "chat_type": ""}),
                         ("main:slack:dm:c:t", {"platform": "slack", "chat_id": "c", "thread_id": "t", "user_id": "u"}),
                         ("main:slack:group:c:u2", {"platform": "slack", "chat_id": "c", "chat_type": "group", "user_id": "u", "user_id_alt": "u2"}),
                         ("main:slack:group:c:t", {"platform": "slack", "chat_id": "c", "chat_type": "group", "user_id": "u", "thread_id": "t"}),
                         ("work:relay:dm:u", {"platform": "relay", "chat_id": "", "user_id": "u", "profile": "work"}),
                         ("main:relay:dm:c", {"platform": "relay", "chat_id": "c", "profile": "default"}),
                         ("main:whatsapp:dm:4912", {"platform": "whatsapp", "chat_id": " +4912:47@s.whatsapp.net "}),
                         ("main:whatsapp:dm:99", {"platform": "whatsapp", "chat_id": "@lid", "user_id": "99@lid"}),
                         ("main:whatsapp:dm:12+3", {"platform": "whatsapp", "chat_id": "+1+2+3"})):
        same(session_key(source), f"agent:{name}", f"{source}")


# ---- sleep ----------------------------------------------------------------------------------

@check
async def the_time_before_sleep_begins_with_the_connection(s):
    async with Server() as server:
        server.late_s = 1.0
        agent = server.agent(sleep_after=0.5)
        agent.on_message(lambda m: asyncio.sleep(0))
        await asyncio.wait_for(agent.serve(), LIMIT_S)
        took_s = time.monotonic() - server.described_s
        ensure(took_s >= 0.5, f"it slept {took_s} s after the descriptor, before its messages could come")


@check
async def connections_that_are_cut_again_and_again_do_not_keep_it_awake(s):
    async with Server() as server:
        server.cut_s = 0.8
        agent = server.agent(sleep_after=1.0)
        agent.on_message(lambda m: asyncio.sleep(0))
        with mock.patch("frontdesk._agent.COMES_S", 0.1):
            await asyncio.wait_for(agent.serve(), LIMIT_S)
        ensure(len(server.sockets) > 1, "no connection was cut")


@check
async def an_agent_does_not_sleep_while_an_action_has_no_result(s):
    async with Server() as server:
        agent, sent = server.agent(sleep_after=0.1), []
        server.judge = lambda action: ""

        @agent.on_start
        async def work():
            sent.append((await agent.send(Chat("discord", "c1"), "hello")).id)

        serving = asyncio.ensure_future(agent.serve())
        await until(lambda: server.ops, "the action")
        await asyncio.wait({serving}, timeout=0.5)  # five times as long as it waits for work
        ensure(not serving.done() and "going_idle" not in [frame["type"] for frame in server.frames], "it went to sleep")
        result = {"success": True, "message_id": "m1"}
        await server.tell({"type": "outbound_result", "requestId": server.frames[-1]["requestId"], "result": result})
        await asyncio.wait_for(serving, LIMIT_S)
        same(sent, ["m1"], "what came after the action")


# ---- the inbox ------------------------------------------------------------------------------

@check
async def an_inbox_that_does_not_answer_is_asked_again(s):
    asked = []

    async def silent(reader, writer):
        asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
        await reader.read()  # until the client hangs up
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    with mock.patch("frontdesk._peers.ANSWER_TIME_S", 0.1), mock.patch("frontdesk._peers.PAUSE_FIRST_S", 0.01):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        agent = Agent(url=url, gateway_id="g", secret="s", agent_token="t", state=folder("state") / "state.json")
        inbox = agent.inbox()
        reading = asyncio.ensure_future(inbox.__anext__())
        await until(lambda: len(asked) >= 2, "a second request")
        ensure(not reading.done() and asked[0].startswith(b"/v1/agents/g/inbox/stream"), f"{asked}")
        await ended(reading)
    server.close()


# ---- connections ----------------------------------------------------------------------------

@check
async def an_agent_that_is_replaced_dials_more_and_more_rarely_and_says_why(s):
    dialled, pauses, sleep, errors = [], [], asyncio.sleep, []

    async def replace(socket):
        """As the server does when another process connects."""
        dialled.append(socket)
        await socket.recv()
        await socket.send('{"type": "descriptor", "descriptor": {"platform": "discord"}}\n')
        await (socket.close(1000, "replaced by a newer socket of this gateway") if len(dialled) != 4 else socket.close(1001, "restarting"))

    async def pause(seconds):
        if seconds >= 1 and asyncio.current_task().get_coro().__name__ == "keep":
            pauses.append(seconds)
            seconds = 0
        await sleep(seconds)

    async with serve(replace, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        agent = Agent(url=url, gateway_id="twice", secret="s", platforms={"discord": "b"}, state=folder("state") / "state.json")
        agent.on_message(lambda m: sleep(0))
        with mock.patch("asyncio.sleep", pause), mock.patch("frontdesk._link.log.error", lambda *said: errors.append(said)), \
                mock.patch("random.random", lambda: 0.0):
            serving = asyncio.ensure_future(agent.serve())
            await until(lambda: len(pauses) >= 6, "six connections")
            await ended(serving)
    # The fourth one ended for another reason: it begins anew.
    same((pauses[:6], len(errors)), ([1, 2, 4, 1, 2, 4], 2), "pauses in seconds, and log lines")
    ensure("another process uses the gateway id" in errors[0][0] and "twice" in errors[0], f"{errors}")


@check
async def an_action_over_the_limit_of_the_server_is_refused_and_the_connection_stays(s):
    async with Server() as server:
        agent, chat, errors = server.agent(), Chat("discord", "c1"), []

        @agent.on_start
        async def work():
            for text in ("x" * (1 << 20), "\u5b57" * 350_000, "a lone \ud800"):
                try:
                    await agent.send(chat, text)
                except FrontdeskError as error:
                    errors.append((error.code, error.ambiguous))
            await agent.send(chat, "\u5b57" * 340_000)

        serving = asyncio.ensure_future(agent.serve())
        await until(lambda: server.messages, "the last one")
        same(errors, [("too_large", False), ("too_large", False), ("bad_request", False)], "the refusals")
        same((list(server.messages.values()) == ["\u5b57" * 340_000], len(server.sockets)), (True, 1), "what was sent, and connections")
        await ended(serving)
