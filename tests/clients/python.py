"""The Python client against a real server: an agent of a few lines, installed from the built wheel, in processes of its own.

  FRONTDESK_BIN=path FRONTDESK_CLIENT_PYTHON=path/to/python tests/clients/python.py [--language typescript] [--only PATTERN]

FRONTDESK_CLIENT_PYTHON has the wheel installed. For another language FRONTDESK_CLIENT_TYPESCRIPT is the command that runs such an
agent. One line per check; the last line is the tally.
"""

import argparse
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "hermes"))

from harness import Desk, Sleeper, attempt, clean_env, clean_up, ensure, request, same  # noqa: E402

SLEEP_S = 1.0
checks = []


def check(function):
    checks.append(function)
    return function


class Agent(Sleeper):
    def __init__(self, tenant, command):
        self.command, self.sleep_s = command, SLEEP_S
        super().__init__(tenant, "agent", f"{tenant.desk.data}.agent.log", user="ann")

    def invocation(self):
        return [*self.command, str(self.sleep_s)], {**clean_env(), **self.credentials()}, {}


class Scene:
    """A server, and an agent that is started when it is woken."""

    def __init__(self, command):
        # A message that is left unacked comes again after six of these, and a killed agent is woken again after the cooldown.
        self.desk = Desk("client", FRONTDESK_RELAY_ACK_LIMIT_MS="500", FRONTDESK_WAKE_COOLDOWN_MS="1000")
        self.tenant = self.desk.tenant("t")
        self.agent = Agent(self.tenant, command)

    def outs(self, chat):
        return [m["text"] for m in self.tenant.history(chat) if m["direction"] == "out"]

    def play(self, function):
        function(self)

    def tail(self):
        shown = self.agent.logged().splitlines()[-6:]
        return "\n    ".join(["", *self.desk.log_tail(4).splitlines(), *shown])

    def close(self):
        self.desk.stop()
        self.agent.close()
        self.agent.log.unlink(missing_ok=True)


@check
def a_message_wakes_the_agent_which_answers_and_sleeps_again(s):
    s.tenant.say("c1", "hello")
    s.tenant.answer("c1", "heard hello", timeout=30)
    s.agent.ended()
    same((s.agent.starts, s.agent.process.returncode), (1, 0), "starts, and how it ended")
    s.tenant.say("c1", "again")
    s.tenant.answer("c1", "heard again", timeout=30)
    s.agent.ended()
    same((s.agent.starts, s.outs("c1")), (2, ["heard hello", "heard again"]), "after the second message")


@check
def messages_of_a_chat_are_answered_in_order(s):
    wanted = [f"heard number {number}" for number in range(40)]
    for number in range(40):
        s.tenant.say("c2", f"number {number}")
    s.tenant.answer("c2", wanted[-1], timeout=30)
    same(s.outs("c2"), wanted, "the answers")


@check
def a_handler_that_fails_gets_the_message_again(s):
    s.tenant.say("c3", "fail-once please")
    s.tenant.say("c3", "and another")
    s.tenant.answer("c3", "heard and another", timeout=30)
    same(s.outs("c3"), ["heard fail-once please", "heard and another"], "the answers, in order")
    ensure("as the test wants it" in s.agent.logged(), "the failure is not in the log")


@check
def a_stream_ends_with_its_whole_text(s):
    s.tenant.say("c4", "count")
    line = s.tenant.answer("c4", "0 1 2 3 4", timeout=20)
    same(len(s.outs("c4")), 1, f"messages ({line})")


@check
def a_pressed_button_reaches_the_handler(s):
    s.tenant.say("c5", "ask me")
    shown = s.tenant.answer("c5", "Shall I?", timeout=20)
    path = f"{s.desk.url}/chat/v1/chats/c5/messages/{shown['message_id']}/press"
    body = {"user_id": "ann", "prompt_id": shown["prompt"]["prompt_id"], "option_id": "no"}
    status, response = request("POST", path, body, s.tenant.chat_token)
    ensure(status in (200, 202), f"the press: {status} {response}")
    s.tenant.answer("c5", "pressed no", timeout=20)


@check
def a_question_of_another_agent_is_answered_by_a_reply_and_by_a_message_to_its_chat(s):
    for number, question in enumerate(["how is it", "send how it is"]):
        origin = {"trigger_kind": "cli"}
        meta = {"dispatch_id": f"d-{number}", "sent_at": 0, "correlation_id": f"q-{number}", "origin": origin}
        body = {"kind": "augment", "content": question, "meta": meta, "timeout_ms": 20_000}
        status, response = request("POST", f"{s.desk.url}/v1/agents/agent/exchange", body, s.tenant.token("agents"), 30)
        same((status, (response or {}).get("content")), (200, f"heard {question}"), f"the answer ({response})")


@check
def stop_cancels_the_handler_of_the_chat(s):
    s.tenant.say("c6", "slow one")
    time_limit = time.monotonic() + 20
    while True:
        s.tenant.say("c6", "/stop")
        s.tenant.say("c6", "next")
        try:
            s.tenant.answer("c6", "heard next", timeout=3)
            break
        except Exception:
            ensure(time.monotonic() < time_limit, "the handler was not cancelled")


@check
def what_a_killed_agent_had_not_acked_comes_again(s):
    s.tenant.say("c7", "ask me")
    s.tenant.answer("c7", "Shall I?", timeout=30)  # it is up
    for number in range(20):
        s.tenant.say("c8", f"number {number}")
    s.agent.kill()  # in the middle of them
    s.tenant.answer("c8", "heard number 19", timeout=60)
    same(set(s.outs("c8")), {f"heard number {number}" for number in range(20)}, "the answers")


@check
def the_agent_dials_again_when_the_server_was_killed(s):
    s.desk.restart(signal.SIGKILL)
    s.tenant.say("c9", "after the restart")
    s.tenant.answer("c9", "heard after the restart", timeout=40)


@check
def a_thousand_messages_with_kills_and_sleeps_lose_nothing(s):
    """Ten rounds: a hundred messages each, in five chats; in most the agent or the server is killed in the middle, then it sleeps."""
    for round_number in range(10):
        for number in range(100):
            s.tenant.say(f"many-{number % 5}", f"r{round_number}n{number}")
            if number == 50:
                if round_number % 3 == 1 and s.agent.runs():
                    s.agent.kill()
                if round_number % 3 == 2:
                    s.desk.restart(signal.SIGKILL)
        for chat in range(5):
            s.tenant.answer(f"many-{chat}", f"heard r{round_number}n{95 + chat}", timeout=60)
        s.agent.ended(60, code=0)
    answered = []
    for chat in range(5):
        after = 0
        while True:
            page = request("GET", f"{s.desk.url}/chat/v1/chats/many-{chat}/messages?after={after}", token=s.tenant.chat_token)[1]
            answered += [m["text"] for m in page["messages"] if m["direction"] == "out"]
            if not page.get("more"):
                break
            after = page["messages"][-1]["seq"]
    wanted = {f"heard r{round_number}n{number}" for round_number in range(10) for number in range(100)}
    same(wanted - set(answered), set(), "unanswered")
    repeated = len(answered) - len(set(answered))
    ensure(repeated <= 60, f"{repeated} repeated answers: more than acks can have been lost")
    print(f"    {len(wanted)} answered, {repeated} of them twice, {s.agent.starts} starts")


@check
def a_revoked_agent_ends_with_the_reason(s):
    s.agent.sleep_s = 0
    s.agent.ended(30)
    s.agent.start()
    s.tenant.say("c10", "there?")
    s.tenant.answer("c10", "heard there?", timeout=30)
    s.desk.admin("POST", f"/gateways/{s.agent.account['gatewayId']}/revoke", {})
    s.agent.ended()
    ensure(s.agent.process.returncode != 0 and "does not accept this agent" in s.agent.logged(), f"{s.agent.process.returncode}: {s.tail()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--language", choices=("python", "typescript"), default="python")
    parser.add_argument("--only", metavar="PATTERN")
    args = parser.parse_args()
    command = shlex.split(os.environ[f"FRONTDESK_CLIENT_{args.language.upper()}"])
    if args.language == "python":
        command.append(str(here / "agent.py"))
    held = []
    try:
        scene = Scene(command)
        for function in checks:
            if not args.only or re.search(args.only, function.__name__):
                held.append(attempt(scene, function.__name__, function))
        scene.close()
    finally:
        clean_up(False)
    print(f"{held.count(True)} passed, {held.count(False)} failed", flush=True)
    return 0 if held and all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
