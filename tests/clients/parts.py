"""Parts of the Python client that the scenarios do not reach: accounts, refusals, frames, HTTP, what it
remembers, and (scripted.py) what it does when a server behaves badly.

  FRONTDESK_BIN=path path/to/python tests/clients/parts.py [--only PATTERN]        with the package installed

One line per check; the last line is the tally.
"""

import argparse
import asyncio
import datetime as dt
import json
import logging
import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "hermes"))

import scripted  # noqa: E402
from frontdesk import Agent, Closed, FrontdeskError, Revoked, enroll, provision  # noqa: E402
from frontdesk._http import Http, base_url  # noqa: E402
from frontdesk._link import Lines, relay_url  # noqa: E402
from frontdesk._state import State  # noqa: E402
from frontdesk._wait import within  # noqa: E402
from harness import Desk, attempt, clean_up, ensure, folder, request, same, wait_for  # noqa: E402

checks = []


def check(function):
    checks.append(function)
    return function


class Scene:
    def __init__(self):
        for name in [name for name in os.environ if name.startswith(("GATEWAY_", "FRONTDESK_")) and name != "FRONTDESK_BIN"]:
            del os.environ[name]
        os.environ["XDG_STATE_HOME"] = str(folder("state"))
        self.desk = Desk("parts")
        self.tenant = self.desk.tenant("t")

    def play(self, function):
        asyncio.run(asyncio.wait_for(function(self), 60))

    def tail(self):
        return f"\n    {self.desk.log_tail(4)}"

    async def account(self, name, **more):
        made = await provision(self.desk.url, name, identity=self.tenant.token("identity", instance=name), instance=name, **more)
        self.tenant.bind(f"user-of-{name}", name)
        return made

    def agent(self, made, **more):
        return Agent(url=made.url, gateway_id=made.gateway_id, secret=made.secret, identity_token=self.tenant.token("identity", instance=made.gateway_id),
                     agent_token=self.tenant.token("agents", instance=made.gateway_id), **more)

    def say(self, made, chat, text):
        self.tenant.say(chat, text, user=f"user-of-{made.gateway_id}")


async def refused(awaitable):
    """The error; it must be one."""
    try:
        seen = await awaitable
    except FrontdeskError as error:
        return error
    raise AssertionError(f"not refused: {seen!r}")


async def until(probe, what):
    """As wait_for, in the loop of the agent."""
    await asyncio.get_running_loop().run_in_executor(None, wait_for, probe, what, 30)


# ---- accounts and refusals ------------------------------------------------------------------

@check
async def an_account_is_made_and_used(s):
    made = await s.account("made")
    again = await s.account("made")
    same((again.secret, made.gateway_id, made.tenant), (made.secret, "made", s.tenant.name), "the account")
    ensure(made.secret not in repr(made), "the secret is in the repr")
    same(made.environment(), {"GATEWAY_RELAY_URL": s.desk.url, "GATEWAY_RELAY_ID": "made", "GATEWAY_RELAY_SECRET": made.secret}, "variables")
    agent = s.agent(made, sleep_after=2)

    @agent.on_message
    async def talk(m):
        await m.reply("hello")

    s.say(made, "c1", "hi")
    await agent.serve()
    s.tenant.answer("c1", "hello")


@check
async def a_one_time_token_makes_an_account_once(s):
    token, identity = s.tenant.enrollment(), s.tenant.token("identity")
    made = await enroll(s.desk.url, token, "enrolled", identity=identity)
    ensure(made.secret and made.gateway_id == "enrolled", f"{made}")
    error = await refused(enroll(s.desk.url, token, "other", identity=identity))
    same((error.code, error.ambiguous, "already used" in str(error)), ("forbidden", False, True), str(error))
    error = await refused(enroll(s.desk.url, token, "other", identity="wrong"))
    same(error.code, "unauthorized", str(error))


@check
async def a_missing_token_is_named(s):
    made = await s.account("tokenless")
    agent = Agent(url=made.url, gateway_id=made.gateway_id, secret=made.secret)
    error = await refused(agent.deliver("made", "hello"))
    same((error.code, "FRONTDESK_AGENT_TOKEN" in str(error)), ("unauthorized", True), str(error))
    error = await refused(enroll(s.desk.url, "t", "g"))
    same((error.code, "FRONTDESK_IDENTITY_TOKEN" in str(error)), ("unauthorized", True), str(error))

    @agent.cron("job", "0 9 * * *")
    async def job(fire):
        pass

    error = await refused(agent.serve())
    same((error.code, "FRONTDESK_IDENTITY_TOKEN" in str(error)), ("unauthorized", True), str(error))


@check
async def a_platform_that_the_tenant_does_not_have_ends_the_agent(s):
    made = await s.account("strange")
    agent = s.agent(made, platforms={"telegram": "nobody"})
    agent.on_message(lambda m: asyncio.sleep(0))
    error = await refused(agent.serve())
    same((error.code, isinstance(error, Revoked)), ("unknown_identity", False), str(error))


@check
async def refusals_have_codes(s):
    made = await s.account("asker")
    agent = s.agent(made)
    error = await refused(agent.send("c", "too early"))
    same((type(error), error.code, error.ambiguous), (Closed, "unavailable", False), str(error))
    error = await refused(agent.exchange("made", "anybody?", timeout=0.5))
    same((error.code, error.ambiguous), ("timeout", True), str(error))
    error = await refused(agent.deliver("nobody", "hello"))
    same((error.code, error.ambiguous), ("not_found", False), str(error))
    error = await refused(agent.read_file("https://elsewhere.example/file"))
    same(error.code, "url_refused", str(error))
    response = await agent.notify("made", "hello")
    same(response["route"], "deliver", f"{response}")
    for wrong in (lambda: agent.cron("j", "* * *"), lambda: agent.cron("j"), lambda: agent.cron("j", "* * * * *", tz="Mars/North"),
                  lambda: agent.cron("j", every=0.5), lambda: agent.cron("j", "0 0 30 2 *"), lambda: Agent(url="ftp://x", gateway_id="g", secret="s")):
        try:
            wrong()
        except FrontdeskError as error:
            same(error.code, "bad_request", str(error))
        else:
            raise AssertionError("not refused")


# ---- turns ----------------------------------------------------------------------------------

@check
async def a_handler_that_is_cancelled_by_something_else_is_not_acked(s):
    made = await s.account("cancelled")
    agent, seen = s.agent(made), []

    @agent.on_message
    async def talk(m):
        seen.append(m.text)
        if m.text == "inner":
            inner = asyncio.ensure_future(asyncio.sleep(60))
            inner.cancel()
            await inner
        elif m.text == "outer":
            await asyncio.sleep(60)

    def states():
        return [it["state"] for it in s.desk.admin("GET", f"/instances/cancelled/mail?tenant={s.tenant.name}")["mail"]]

    serving = asyncio.ensure_future(agent.serve())
    s.say(made, "c1", "plain")
    await until(lambda: states() == ["acked"], "an ack")
    s.say(made, "c1", "inner")
    s.say(made, "c2", "outer")
    await until(lambda: len(seen) == 3, "all three")
    serving.cancel()  # in the middle of the last one
    await asyncio.wait({serving})
    same(sorted(states()), ["accepted", "accepted", "acked"], "what is acked")


@check
async def what_comes_while_it_goes_to_sleep_is_handled(s):
    made = await s.account("sleepy")
    agent, seen = s.agent(made), []

    @agent.on_message
    async def talk(m):
        seen.append(m.text)

    serving = asyncio.ensure_future(agent.serve())
    s.say(made, "c1", "one")
    await until(lambda: seen == ["one"], "the first")
    ensure(await agent._link.go_idle(), "not idle")
    s.say(made, "c1", "two")
    await agent._link.redial()
    await until(lambda: seen == ["one", "two"], "the second")
    serving.cancel()


# ---- jobs -----------------------------------------------------------------------------------

@check
async def a_job_whose_handler_fails_runs_again_and_stays_armed(s):
    made = await s.account("worker")
    agent, seen = s.agent(made), []

    @agent.cron("often", every=5)
    async def often(fire):
        seen.append(fire)
        if len(seen) < 2:
            raise ValueError("as the test wants it")

    serving = asyncio.ensure_future(agent.serve())
    await until(lambda: len(seen) >= 2, "two calls")
    same((seen[0], seen[0].name, seen[0].at.timestamp() % 5), (seen[1], "often", 0), "the calls")
    armed = request("GET", f"{s.desk.url}/api/agent-cron/list", token=s.tenant.token("identity", instance="worker"))[1]["armed"]
    same([it["job_id"] for it in armed], ["cron:often"], "armed")
    ensure(dt.datetime.fromisoformat(armed[0]["fire_at"].replace("Z", "+00:00")) > seen[-1].at, f"{armed}")
    serving.cancel()


@check
async def an_alarm_has_its_payload_and_can_be_cancelled(s):
    made = await s.account("ringer")
    agent, seen = s.agent(made), []

    @agent.on_alarm
    async def ring(fire):
        seen.append((fire.name, fire.payload))

    agent.on_message(lambda m: asyncio.sleep(0))
    serving = asyncio.ensure_future(agent.serve())
    await agent.alarm("gone", 3, "never")
    await agent.cancel_alarm("gone")
    await agent.alarm("tea", dt.timedelta(seconds=30), {"first": True})
    await agent.alarm("tea", 1, {"cups": 2})
    await agent.alarm("plain", dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=5))
    await until(lambda: len(seen) == 2, "two alarms")
    same(seen, [("tea", {"cups": 2}), ("plain", None)], "the alarms")
    same((await refused(agent.alarm("naive", dt.datetime(2030, 1, 1)))).code, "bad_request", "a time without a zone")
    serving.cancel()


# ---- pieces ---------------------------------------------------------------------------------

@check
async def frames_are_lines(s):
    lines = Lines()
    seen = [frame for text in ('{"a":"x\u2028y\x85"}\n{"b"', ":1}\n\n", 'not json\n[1]\n"x"\n{"c":2}\n') for frame in lines.push(text)]
    same(seen, [{"a": "x\u2028y\x85"}, {"b": 1}, {"c": 2}], "the frames")
    try:
        list(lines.push("x" * (2 << 20)))
    except FrontdeskError as error:
        same(error.code, "too_large", str(error))
    for url in ("http://h:1", "http://h:1/", "ws://h:1/relay", " ws://h:1 "):
        same((relay_url(url), base_url(url)), ("ws://h:1/relay", "http://h:1"), url)
    same((relay_url("https://h/b/"), base_url("wss://h/b/relay")), ("wss://h/b/relay", "https://h/b"), "with a path")


@check
async def a_cancellation_is_not_lost_when_the_result_comes_with_it(s):
    answer = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(within(30, answer))
    await asyncio.sleep(0)  # it waits now
    answer.set_result(1)
    waiting.cancel()
    await asyncio.wait({waiting})
    ensure(waiting.cancelled(), "it went on")
    try:
        await within(0.01, asyncio.Event().wait())
    except asyncio.TimeoutError:
        return
    raise AssertionError("no limit")


@check
async def http_answers_of_every_form_are_read(s):
    answers = {
        "/plain": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello and more",
        "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
        "/open": b"HTTP/1.1 200 OK\r\n\r\nhello",
        "/cut": b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello",
        "/nothing": b"", "/noise": b"SSH-2.0-x\r\n", "/moved": b"HTTP/1.1 302 Found\r\nlocation: /plain\r\ncontent-length: 0\r\n\r\n",
        "/problem": b'HTTP/1.1 409 C\r\n\r\n{"code":"conflict","detail":"it was changed"}',
        "/error": b'HTTP/1.1 503 U\r\n\r\n{"error":"try again later"}',
        "/classed": b'HTTP/1.1 410 G\r\n\r\n{"error":{"class":"GoneError","message":"nobody waits"}}',
        "/page": b"HTTP/1.1 500 I\r\n\r\n<html>",
    }

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(answers[head.split()[1].decode()])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    http = Http(f"http://127.0.0.1:{port}")
    for path in ("/plain", "/chunked", "/open"):
        same(await http.call("GET", path, "token"), b"hello", path)
    for path, wanted in (("/cut", ("unknown", True)), ("/nothing", ("unknown", True)), ("/noise", ("unknown", True)),
                         ("/moved", ("unknown", False)), ("/problem", ("conflict", False)), ("/error", ("unavailable", False)),
                         ("/classed", ("gone", False)), ("/page", ("unknown", True))):
        error = await refused(http.call("POST", path, "token"))
        same((error.code, error.ambiguous), wanted, f"{path}: {error}")
    same(str(await refused(http.call("GET", "/classed", "token"))), "nobody waits", "the text")
    same((await refused(http.call("GET", "/plain", "token", max_bytes=4))).code, "too_large", "a long one")
    same((await refused(http.call("GET", "/plain", "to\r\nken"))).code, "bad_request", "a header with a line end")
    server.close()
    error = await refused(Http(f"http://127.0.0.1:{port}").call("POST", "/plain", "token"))
    same((error.code, error.ambiguous), ("unavailable", False), str(error))


@check
async def the_state_is_a_file_of_this_user(s):
    path = folder("state") / "deeper" / "state.json"
    state = State(path)
    same(state.inbox, 0, "at first")
    state.handled(1, "l")  # makes the folder
    path.write_text(json.dumps({"inbox": 4095, "letters": [f"l{number}" for number in range(4096)]}))
    state = State(path)  # as earlier versions wrote it
    state.handled(4096, "l4096")
    state.keep_payload("a", "t1", [1])
    state.forget_payload("a", "t0")
    again = State(path)
    same((again.inbox, again.has_handled("l4096"), again.has_handled("l1"), again.has_handled("l0"), again.payload("a", "t1"), again.payload("a", "t2")),
         (4096, True, True, False, [1], None), "what is remembered")
    same(sorted(json.loads(path.read_text())), ["alarms", "handled", "inbox"], "its keys")
    same((path.stat().st_mode & 0o777, [it.name for it in path.parent.iterdir()]), (0o600, ["state.json"]), "the file")
    path.write_text("{")
    error = await refused(Agent(url=s.desk.url, gateway_id="g", secret="s", state=path).serve())
    ensure("no handler" in str(error), str(error))
    agent = Agent(url=s.desk.url, gateway_id="g", secret="s", state=path)
    agent.on_message(lambda m: asyncio.sleep(0))
    error = await refused(agent.serve())
    same((error.code, str(path) in str(error)), ("bad_request", True), str(error))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", metavar="PATTERN")
    args = parser.parse_args()
    logging.getLogger("frontdesk").setLevel(logging.CRITICAL)
    held = []
    try:
        scene = Scene()
        for function in (*checks, *scripted.checks):
            if re.search(args.only or "", function.__name__):
                held.append(attempt(scene, function.__name__, function))
        scene.desk.stop()
    finally:
        clean_up(False)
    print(f"{held.count(True)} passed, {held.count(False)} failed", flush=True)
    return 0 if held and all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
