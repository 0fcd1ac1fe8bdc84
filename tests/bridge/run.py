"""`frontdesk agent run` against a real server: shell commands, agents on the official ACP packages, and children that misbehave.

  FRONTDESK_BIN=path FRONTDESK_BRIDGE=folder-of-setup.sh FRONTDESK_NODE=path/to/node FRONTDESK_ACP_MODULES=node_modules \\
    tests/bridge/run.py [--only PATTERN]

One line per check; the last line is the tally.
"""

import json
import os
import signal
import sys
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "hermes"))

from harness import (  # noqa: E402
    Checks, Desk, Model, Sleeper, clean_env, end_process, ensure, folder, gateway_env, request, same, wait_for)

checks = []


def check(function):
    checks.append(function)
    return function


class Agent(Sleeper):
    """An agent of one server: `frontdesk agent run`, started when it is woken unless it runs."""

    def __init__(self, stage, name, options, command, **env):
        self.stage, self.options, self.command, self.env = stage, options, command, env
        self.state = folder(f"state-{name}")
        super().__init__(stage.tenant, name, f"{stage.desk.data}.{name}.log", user=f"user-{name}")
        stage.agents.append(self)

    def invocation(self):
        bridge = [os.environ["FRONTDESK_BIN"], "agent", "run", *self.options, "--state", str(self.state), "--", *self.command]
        return bridge, {**clean_env(), **self.credentials(), **self.env}, {}

    def say(self, chat, text, **more):
        return self.stage.tenant.say(f"{self.name}-{chat}", text, user=self.user, **more)

    def answer(self, chat, text, timeout=30.0):
        return self.stage.tenant.answer(f"{self.name}-{chat}", text, timeout)

    def outs(self, chat):
        return [m["text"] for m in self.stage.tenant.history(f"{self.name}-{chat}") if m["direction"] == "out"]

    def press(self, chat, shown, label):
        option = next(o["id"] for o in shown["prompt"]["options"] if o["label"] == label)
        path = f"{self.stage.desk.url}/chat/v1/chats/{self.name}-{chat}/messages/{shown['message_id']}/press"
        body = {"user_id": self.user, "prompt_id": shown["prompt"]["prompt_id"], "option_id": option}
        status, response = request("POST", path, body, self.stage.tenant.chat_token)
        ensure(status in (200, 202), f"the press: {status} {response}")

    def settled(self):
        """Nothing waits for an ack."""
        def waiting():
            rows = self.stage.desk.admin("GET", f"/instances/{self.name}/mail?tenant={self.stage.tenant.name}")
            return all(row["state"] == "acked" for row in rows["mail"]) or None
        wait_for(waiting, "acks of all messages", timeout=20)

    def close(self):
        super().close()
        self.log.unlink(missing_ok=True)


class Stage:
    def __init__(self):
        self.desk = Desk("bridge")
        self.tenant = self.desk.tenant("t")
        self.agents = []
        self.model = None

    def shell(self, name, script, *options):
        return Agent(self, name, ["--exec", *options], ["sh", "-c", script])

    def acp(self, name, *options, **env):
        sessions = folder(f"sessions-{name}")
        python = Path(os.environ["FRONTDESK_BRIDGE"]) / "venv/bin/python"
        agent = Agent(self, name, ["--acp", *options], [str(python), str(here / "agent.py")], SESSIONS=str(sessions), **env)
        agent.sessions = sessions
        return agent

    def findings(self):
        return [f["text"] for f in self.desk.admin("GET", "/doctor")["findings"] if not f["ok"]]

    def told_to_the_operator(self, agent, words):
        wait_for(lambda: [t for t in self.findings() if agent.name in t and words in t], f"{words!r} in doctor", timeout=10)

    def play(self, function):
        function(self)

    def tail(self):
        shown = [line for agent in self.agents[-1:] for line in agent.logged().splitlines()[-12:]]
        return "\n    ".join(["", *self.desk.log_tail(4).splitlines(), *shown])

    def close(self):
        for agent in self.agents:
            agent.close()
        self.desk.stop()


# ---- one process for each message ---------------------------------------------------------------

@check
def a_shell_command_answers_and_sleeps(s):
    script = 'read -r text; echo "$FRONTDESK_USER_ID in $FRONTDESK_CHAT_ID said $text"; env | grep -c SECRET || true'
    a = s.shell("shell", script, "--sleep-after", "1")
    for number in range(2):
        a.say("c", f"hello {number}")
        shown = a.answer("c", f"user-shell in shell-c said hello {number}")
        ensure(shown["text"].endswith("\n0"), f"the command saw a secret: {shown['text']!r}")
        wait_for(lambda: a.process.poll() is not None, "sleep", timeout=20)
        same((a.process.returncode, a.starts), (0, number + 1), "how it ended, and starts")
    a.settled()


@check
def messages_of_a_chat_are_answered_in_order_and_chats_at_once(s):
    a = s.shell("order", 'read -r text; [ "$text" = slow ] && while [ ! -e "$GO" ]; do sleep 0.05; done; echo "got $text"')
    go = folder("go") / "go"
    a.env["GO"] = str(go)
    a.say("slow", "slow")
    for number in range(20):
        a.say("c", str(number))
    a.answer("c", "got 19", timeout=60)
    same(a.outs("c"), [f"got {number}" for number in range(20)], "the answers")
    same(a.outs("slow"), [], "the other chat, which waits")
    go.write_text("")
    a.answer("slow", "got slow")
    a.settled()


@check
def ten_thousand_lines_are_cut_off(s):
    a = s.shell("lines", "seq 1 10000 | sed 's/$/ of many lines that nobody wants to read/'")
    a.say("c", "go")
    a.answer("c", "(cut off after 327", timeout=60)
    ensure(sum(map(len, a.outs("c"))) < 40_000, f"{sum(map(len, a.outs('c')))} characters were sent")
    a.settled()


@check
def a_command_that_never_ends_is_stopped(s):
    marker = folder("never") / "alive"
    a = s.shell("never", f"sleep 1000 & echo $! > {marker}; wait", "--turn-time", "3")
    a.say("c", "go")
    a.answer("c", "The agent failed: the command did not end within 3 s and was stopped.")
    wait_for(lambda: not is_running(int(marker.read_text())), "the end of what it had started", timeout=10)
    s.told_to_the_operator(a, "did not end within 3 s")
    a.settled()


@check
def a_command_that_fails_is_tried_again_and_told(s):
    fails = s.shell("fails", 'read -r text; [ "$text" = fail ] && echo oops >&2 && exit 7; echo fine')
    status = "the command ended with exit status"
    agents = (
        (fails, f"The agent failed 4 times: {status}: 7; its standard error is in the log. Send the message again to retry."),
        (Agent(s, "missing", ["--exec"], ["/nowhere"]), 'the command "/nowhere" cannot be started: No such file'),
        (Agent(s, "exits", ["--acp"], ["sh", "-c", "exit 3"]), f"The agent failed 4 times: {status}: 3"),
        (Agent(s, "garbage", ["--acp"], ["sh", "-c", "while true; do echo this is no protocol; done"]),
         'does not speak the Agent Client Protocol; it wrote "this is no protocol"'),
        (Agent(s, "line", ["--acp"], ["sh", "-c", "yes | tr -d '\\n'"]), "the command wrote a line of more than 8388608 bytes"),
    )
    for agent, _ in agents:
        agent.say("c", "fail")
    for agent, wanted in agents:
        agent.answer("c", wanted, timeout=90)
        same(len(agent.outs("c")), 1, f"messages in the chat of {agent.name}")
        s.told_to_the_operator(agent, "the command")
        agent.settled()
    same(fails.logged().count("line=oops"), 4, "attempts")
    fails.say("c", "well")
    fails.answer("c", "fine")
    wait_for(lambda: not [t for t in s.findings() if "fails" in t], "the end of the problem in doctor", timeout=10)


@check
def an_endless_output_is_stopped(s):
    a = s.shell("endless", "yes")
    a.say("c", "go")
    a.answer("c", "The agent failed: the command wrote more than 16777216 bytes and was stopped.")
    s.told_to_the_operator(a, "16777216")
    a.settled()


@check
def stop_ends_the_command(s):
    a = s.shell("stop", 'read -r text; [ "$text" = slow ] && exec sleep 1000; echo "got $text"')
    a.say("c", "slow")
    wait_for(lambda: any("sleep 1000" in read_command(pid) for pid in children(a.process.pid)) if a.process else None, "the child", timeout=20)
    a.say("c", "/stop")
    a.answer("c", "(stopped)")
    a.say("c", "next")
    a.answer("c", "got next")
    a.settled()


@check
def a_killed_bridge_loses_nothing(s):
    go = folder("killed") / "go"
    a = s.shell("killed", f'read -r text; [ "$text" = wait ] && while [ ! -e {go} ]; do sleep 0.05; done; echo "got $text"')
    a.say("c", "wait")
    wait_for(lambda: children(a.process.pid) if a.process else None, "the child", timeout=20)
    end_process(a.process, signal.SIGKILL)
    go.write_text("")
    a.start()
    a.answer("c", "got wait", timeout=60)
    a.settled()


def children(pid):
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(status.parent.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def read_command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@check
def a_wrong_secret_is_told(s):
    a = s.shell("wrong", "cat")
    a.account["secret"] = "0" * 64
    a.start()
    wait_for(lambda: a.process.poll() is not None, "its end", timeout=30)
    same(a.process.returncode, 3, "how it ended")
    ensure("does not accept the id and the secret" in a.logged(), a.logged())


# ---- the Agent Client Protocol ------------------------------------------------------------------

@check
def each_chat_has_its_session_and_keeps_it(s):
    a = s.acp("talk", "--sleep-after", "1")
    for chat, word in (("one", "red"), ("two", "blue")):
        a.say(chat, f"remember {word}")
        a.answer(chat, f"noted {word}")
    wait_for(lambda: a.process.poll() is not None, "sleep", timeout=20)
    # In a new process, and a new child: the session is loaded, and its history is not said again.
    for chat, word in (("one", "red"), ("two", "blue")):
        a.say(chat, "recall")
        a.answer(chat, f"you said {word}")
        same(a.outs(chat), [f"noted {word}", f"you said {word}"], "the answers")
    ensure("this goes to the log" in a.logged(), "standard error is not in the log")
    a.settled()


@check
def sessions_are_resumed_or_begin_anew_and_say_so(s):
    for can, wanted in (("resume", "you said red"), ("", "you said\n\n(The earlier conversation could not be continued")):
        a = s.acp(f"can-{can or 'nothing'}", "--child-idle", "0.5", CAN=can)
        a.say("c", "remember red")
        a.answer("c", "noted red")
        wait_for(lambda: not children(a.process.pid), "the end of the idle child", timeout=20)
        a.say("c", "recall")
        a.answer("c", wanted)
        same((a.starts, (a.sessions / "starts").read_text().count("\n")), (1, 2), "starts of the bridge, and of the child")


@check
def an_answer_grows_and_ends_with_its_whole_text(s):
    a = s.acp("stream")
    a.say("c", "stream one two three four")
    seen = set()

    def look():
        seen.update(a.outs("c"))
        return "one two three four" in [text.strip() for text in a.outs("c")]

    wait_for(look, "the whole text", timeout=30)
    ensure(len(seen) > 1, f"it did not grow: {seen}")
    same(len(a.outs("c")), 1, "messages")
    a.say("c", "mute")
    a.answer("c", "(the agent ended without a text)")
    a.settled()


@check
def ten_thousand_chunks_are_cut_off(s):
    a = s.acp("chunks")
    a.say("c", "lines 10000")
    a.answer("c", "(cut off after 32768 of ", timeout=60)
    ensure(sum(map(len, a.outs("c"))) < 40_000, "too much was sent")
    a.say("c", "still there")
    a.answer("c", "heard still there")
    a.settled()


@check
def permission_is_asked_with_buttons(s):
    a = s.acp("permit", "--permission-time", "60")
    for chat, label, wanted in (("deny", "Deny", "no-once"), ("allow", "Allow", "yes-once")):
        a.say(chat, "permit")
        shown = a.answer(chat, 'The agent asks for permission: delete everything\n{"path":"/"}')
        same([o["label"] for o in shown["prompt"]["options"]], ["Allow", "Deny"], "the buttons: nothing is allowed for always")
        a.press(chat, shown, label)
        a.answer(chat, f"outcome {wanted}")
    c = s.acp("unanswered", "--permission-time", "1")
    c.say("c", "permit")
    c.answer("c", "outcome no-once")
    a.say("silently", "silently")
    a.answer("silently", "outcome cancelled")
    b = s.acp("refuse", "--permissions", "deny")
    b.say("c", "permit")
    b.answer("c", "outcome no-once")
    same(len(b.outs("c")), 1, "messages: nobody was asked")
    a.settled()


@check
def only_who_asked_may_allow(s):
    a = s.acp("others")
    s.tenant.bind("eve", "others")
    a.say("c", "permit")
    shown = a.answer("c", "The agent asks for permission")
    path = f"{s.desk.url}/chat/v1/chats/others-c/messages/{shown['message_id']}/press"
    body = {"user_id": "eve", "prompt_id": shown["prompt"]["prompt_id"], "option_id": "0"}
    request("POST", path, body, s.tenant.chat_token)
    a.press("c", a.answer("c", "Only the person who wrote the message may answer. The agent asks"), "Allow")
    a.answer("c", "outcome yes-once")


@check
def another_agent_gets_the_answer(s):
    a = s.acp("answers")
    meta = {"dispatch_id": "d-1", "sent_at": 0, "origin": {"trigger_kind": "cli"}, "correlation_id": "q-1"}
    status, response = request("POST", f"{s.desk.url}/v1/agents/answers/exchange", {
        "kind": "augment", "content": "stream one two", "meta": meta, "timeout_ms": 30000}, s.tenant.token("agents"), timeout=40)
    same((status, response.get("content")), (200, "one two"), f"the answer ({response})")
    a.settled()


@check
def a_slow_chat_holds_up_no_other_one(s):
    go = folder("slow") / "go"
    a = s.shell("slow", f'read -r text; [ "$text" = wait ] && while [ ! -e {go} ]; do sleep 0.05; done; echo "got $text"')
    for text in ("wait", *(str(number) for number in range(60))):
        a.say("c", text)
    a.say("d", "other")
    a.answer("d", "got other")
    same(a.outs("c"), [], "the slow chat")
    go.write_text("")
    a.answer("c", "got 59")
    same(a.outs("c"), ["got wait", *(f"got {number}" for number in range(60))], "its answers")
    a.settled()


@check
def stop_reaches_a_message_that_waits(s):
    go = folder("room") / "go"
    script = f'read -r text; [ "$text" = wait ] && while [ ! -e {go} ]; do sleep 0.05; done; echo "got $text"'
    a = s.shell("room", script, "--concurrency", "1")
    a.say("c", "wait")
    wait_for(lambda: children(a.process.pid) if a.process else None, "the child", timeout=20)
    same(a.say("d", "never")["verdict"]["delivery"], "pushed", "the second message")
    a.say("d", "/stop")

    def stopped():
        rows = s.desk.admin("GET", f"/instances/room/mail?tenant={s.tenant.name}")["mail"]
        return not [row for row in rows if row["chat_id"] == "room-d" and row["state"] != "acked"]

    # While the first message is being handled, the second one waits, or has been stopped already.
    go.write_text("")
    wait_for(stopped, "the end of both", timeout=20)
    a.answer("c", "got wait")
    a.say("d", "next")
    a.answer("d", "got next")
    same(a.outs("d"), ["got next"], "the message that was stopped was not handed over")


@check
def a_platform_that_the_tenant_does_not_have_is_told(s):
    a = s.shell("nobot", "cat", "--platform", "telegram=none")
    a.start()
    wait_for(lambda: a.process.poll() is not None, "its end", timeout=30)
    same(a.process.returncode, 1, "how it ended")
    ensure("this tenant has no such platform or bot" in a.logged(), a.logged())


@check
def a_child_that_dies_in_a_turn_is_started_again(s):
    for can in ("load", "resume"):
        a = s.acp(f"die-{can}", CAN=can)
        a.say("c", "remember red")
        a.answer("c", "noted red")
        a.say("c", "die one")
        a.answer("c", "alive again, red", timeout=60)
        same(a.outs("c"), ["noted red", "alive again, red"], "what is left in the chat")
        a.settled()


@check
def stop_cancels_the_turn(s):
    a = s.acp("cancel")
    a.say("c", "hang for me")
    a.answer("c", "waiting")
    a.say("c", "/stop")
    a.answer("c", "waiting\n\n(stopped)")
    same((a.sessions / "cancelled").read_text(), "for me", "what the agent heard")
    a.say("c", "hello")
    a.answer("c", "heard hello")
    a.settled()


@check
def an_agent_that_never_answers_is_stopped(s):
    a = s.acp("deaf", "--turn-time", "1")
    a.say("c", "deaf")
    a.answer("c", "The agent failed: it did not answer within 1 s and was stopped.", timeout=60)
    s.told_to_the_operator(a, "did not answer within 1 s")
    a.say("c", "hello")
    a.answer("c", "heard hello", timeout=60)
    # With another chat at work, the child stays, and the chat gets another session.
    starts = (a.sessions / "starts").read_text().count("\n")
    a.options[2] = "4"
    end_process(a.process)
    a.start()
    a.say("d", "deaf")
    a.say("f", "stream one")  # 0.7 s, so that one of the two is at work at any time
    for _ in range(14):
        a.say("e", "stream one two")  # 1.4 s each
        a.say("f", "stream one two")
    a.answer("d", "The agent failed: it did not answer within 4 s and was stopped.", timeout=60)
    a.say("d", "recall")
    a.answer("d", "you said\n\n(The earlier conversation could not be continued", timeout=30)
    same((a.sessions / "starts").read_text().count("\n"), starts + 1, "starts of the child")
    a.settled()


@check
def a_press_that_comes_too_late_is_told(s):
    a = s.acp("late", "--permission-time", "0.2")
    a.say("c", "permit")
    shown = a.answer("c", "The agent asks for permission")
    a.answer("c", "outcome no-once")
    a.press("c", shown, "Allow")
    a.answer("c", "(This question is not open any more.)")


@check
def files_reach_the_agent_and_others_are_refused(s):
    a = s.acp("files")
    call = urllib.request.Request(f"{s.desk.url}/chat/v1/media", data=bytes(range(256)) * 40, method="POST", headers={
        "Authorization": f"Bearer {s.tenant.chat_token}", "Content-Type": "application/pdf", "X-Media-Filename": "plan.pdf"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call, timeout=15) as reply:
        stored = json.load(reply)
    a.say("c", "file", media=[{"id": stored["id"]}])
    a.answer("c", "has 10240 bytes")
    wait_for(lambda: not list((a.state / "files").iterdir()), "the files are removed", timeout=10)
    a.say("c", "write")
    a.answer("c", "refused -32601")
    a.settled()


@check
def an_agent_of_the_npm_package_answers(s):
    modules = Path(os.environ["FRONTDESK_ACP_MODULES"])
    home = folder("npm")
    (home / "node_modules").symlink_to(modules)
    (home / "agent.mjs").write_text((here / "agent.mjs").read_text())
    a = Agent(s, "npm", ["--acp"], [os.environ["FRONTDESK_NODE"], str(home / "agent.mjs")])
    a.say("c", "hello")
    a.answer("c", "heard hello in session-1")
    a.say("c", "permit")
    a.press("c", a.answer("c", "The agent asks for permission: format the disk"), "Deny")
    a.answer("c", "outcome halt")
    a.settled()


@check
def hermes_acp_answers(s):
    home = folder("hermes-acp")
    model = Model()
    (home / "config.yaml").write_text(json.dumps({"model": {
        "default": "stub-model", "provider": "custom", "base_url": model.url, "api_key": "x", "context_length": 131072}}))
    python = Path(os.environ["FRONTDESK_BRIDGE"]) / "hermes/bin/python"
    a = Agent(s, "hermes", ["--acp"], [str(python), "-m", "acp_adapter.entry"])
    a.env.update({k: v for k, v in gateway_env("0.19.0", home).items() if k.startswith(("HERMES", "PYTHON", "HOME", "OPENAI"))})
    a.say("c", "do tell mark-one")
    a.answer("c", "The stub heard mark-one", timeout=120)
    a.settled()  # its turn has ended, and is in its session
    end_process(a.process, signal.SIGKILL)
    a.start()
    a.say("c", "do tell mark-two")
    a.answer("c", "The stub heard mark-two", timeout=120)
    # It also asks the model for a title of the session, with the last message alone.
    ensure(max(it["turns"] for it in model.asked if it["mark"] == "mark-two") > 1, "the session was not continued")
    a.settled()
    model.close()


@check
def a_problem_is_told_again_after_the_server_was_restarted(s):
    a = s.shell("again", "sleep 100", "--turn-time", "0.2")
    for number in range(2):
        a.say(f"c{number}", "go")
        a.answer(f"c{number}", "The agent failed: the command did not end")
        s.told_to_the_operator(a, "did not end within")
        s.desk.restart()


if __name__ == "__main__":
    sys.exit(Checks(checks).run([("agent run", Stage)]))
