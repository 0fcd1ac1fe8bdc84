"""Messages between agents with a real gateway: `hermes gateway run` of each known version is agent bob, who gets messages
from this script.

  FRONTDESK_BIN=path/to/frontdesk tests/hermes/agents.py [--only PATTERN]

The server and the gateway run in separate processes on free loopback ports; the model is a
stub that repeats the mark in its input. The checks depend on each other and run in order.
One line per check; the last line is the tally.
"""

import functools
import json
import subprocess
import sys
import threading
import time
import uuid

sys.dont_write_bytecode = True

from harness import (VERSIONS, Checks, Desk, Model, end_process, ensure, folder, gateway_env, request, same, start_process,
                     wait_for, write_login)

check = Checks()


class Gateway:
    """A real gateway with its own home folder and stub model; it can be started and stopped."""

    def __init__(self, version, tenant, ident, model):
        self.version = version
        self.tenant = tenant
        self.ident = ident
        self.home = folder(f"gateway-{ident}")
        self.out = self.home / "gateway.out"
        self.process = None
        write_login(self.home, tenant.identity)
        brain = {"default": "stub-model", "provider": "custom", "base_url": model.url, "api_key": "x", "context_length": 131072}
        (self.home / "config.yaml").write_text(json.dumps({"model": brain}))

    def start(self):
        env = gateway_env(self.version, self.home, GATEWAY_RELAY_URL=self.tenant.desk.url, GATEWAY_RELAY_ID=self.ident)
        if self.version == "0.17.0":
            env["GATEWAY_ALLOW_ALL_USERS"] = "true"  # it does not know that the server checked the author
        with open(self.out, "ab") as log:
            self.process = start_process([sys.executable, "-m", "hermes_cli.main", "gateway", "run", "-v", "--force", "--no-supervise"],
                                         env=env, cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def stop(self):
        if self.process is not None:
            end_process(self.process, wait=20)
            self.process = None

    def tail(self, count=15):
        lines = self.out.read_text(errors="replace").splitlines()[-count:] if self.out.exists() else []
        return "".join(f"\n    gateway: {line}" for line in lines)


class Scene:
    """Shared by the checks: a server, a tenant, bob, and callers."""

    def __init__(self, version):
        self.desk = Desk("talk")
        self.tenant = self.desk.tenant("talk")
        self.token = self.tenant.token("agents")
        self.model = Model()
        # provisioned once, so that bob is known before the gateway starts
        asked = {"gatewayId": "bob", "platform": "relay", "botId": "", "gatewayEndpoint": "", "routeKeys": []}
        status, made = request("POST", f"{self.desk.url}/relay/provision", asked, self.tenant.identity)
        same(status, 200, f"provision ({made})")
        self.bob = Gateway(version, self.tenant, "bob", self.model)
        self.said = []

    def play(self, function):
        function(self)

    def tail(self):
        return self.bob.tail()

    def close(self):
        self.bob.stop()
        self.model.close()
        self.desk.stop()

    def call(self, method, path, body=None, expect=200, timeout=15.0, caller="alice"):
        status, reply = request(method, f"{self.desk.url}/v1{path}", body, self.token, timeout, {"X-Agent-Id": caller})
        same(status, expect, f"{method} /v1{path} ({reply})")
        return reply

    # Each message that expects an answer has another caller: a busy gateway interrupts its turn for the next message of
    # the same caller, which is not tested here.

    def notify(self, caller, text):
        origin = {"skill_name": "greet", "trigger_kind": "agent", "caller_agent_id": caller}
        response = self.call("POST", "/notify", {"agent": "bob", "message": text, "origin": origin})
        self.said.append(("augment", caller, text, response["receipts"]))
        return response

    def wake(self, caller, text, **more):
        response = self.call("POST", "/agents/bob/wake", {"context": text, **more}, caller=caller)
        self.said.append(("wake" if response["woken"] else "wake_degraded", caller, text, None))
        return response

    def exchange(self, caller, text, correlation, expect=200, timeout_ms=60_000):
        meta = {"dispatch_id": str(uuid.uuid4()), "sent_at": int(time.time() * 1000), "correlation_id": correlation,
                "origin": {"skill_name": "asker", "trigger_kind": "agent", "caller_agent_id": caller}}
        body = {"kind": "augment", "content": text, "meta": meta, "timeout_ms": timeout_ms}
        self.said.append(("augment", caller, text, None))
        return self.call("POST", "/agents/bob/exchange", body, expect, timeout_ms / 1000 + 10)

    def status(self):
        return self.call("GET", "/agents/bob/status")["status"]

    def turns(self, mark):
        """Inputs of the model in turns of bob (it also gets requests for titles, which are not streamed)."""
        return [turn["text"] for turn in self.model.asked if turn["mark"] == mark and turn["stream"]]

    def answered(self, caller, mark, timeout=60.0):
        """Waits until bob's model got the message and its answer is in the chat of the caller."""
        wait_for(lambda: self.turns(mark), f"the model gets {mark}", timeout)
        self.tenant.answer(f"agent:{caller}", f"The stub heard {mark}.", timeout)

    def settled(self):
        """Waits until all messages to bob are acked, or settled without acks if his gateway sends none."""
        path = f"/instances/bob/mail?tenant={self.tenant.name}"
        wait_for(lambda: all(row["state"] == "acked" for row in self.desk.admin("GET", path)["mail"]), "all is acked", 120)


def receipt(response, connector):
    found = [one for one in response["receipts"] if one["connector"] == connector]
    same(len(found), 1, f"receipts of {connector} in {response}")
    same(found[0]["ok"], True, f"ok of {connector}")
    return found[0]["receipt"]


@check
def messages_for_a_stopped_gateway_are_stored(s):
    same(s.status(), "asleep", "status")
    response = s.notify("alice", "are you there? mark-early")
    same(response["route"], "deliver", "route")
    same(receipt(response, "relay")["delivery_skipped"], True, "skipped, by the socket")
    same(receipt(response, "inbox")["delivery_skipped"], True, "skipped, by the inbox")
    same(s.model.asked, [], "what the model was asked")


@check
def the_gateway_starts_and_gets_the_message(s):
    s.bob.start()
    s.answered("alice", "mark-early", 300)
    ensure("are you there?" in s.turns("mark-early")[0], f"the text: {s.turns('mark-early')}")
    s.settled()
    same(s.status(), "active", "status")


@check
def a_question_is_answered_by_its_model(s):
    response = s.exchange("alice", "what is it? mark-asked", "q-1")
    same((response["content"], response["correlation_id"], response["agent_id"]), ("The stub heard mark-asked.", "q-1", "bob"), "the answer")
    ensure(abs(response["sent_at"] - time.time() * 1000) < 60_000, f"sent_at {response['sent_at']}")


@check
def a_question_during_a_turn_does_not_disturb_it(s):
    s.notify("erin", "think about it: take-your-time mark-slow")
    wait_for(lambda: s.turns("mark-slow"), "the slow turn", 60)
    response = s.exchange("erin", "and what is this? mark-meanwhile", "q-2")
    same(response["content"], "The stub heard mark-meanwhile.", "the answer")
    s.model.slow.set()
    s.answered("erin", "mark-slow")
    s.settled()


@check
def a_message_during_a_question_is_not_its_answer(s):
    s.model.slow.clear()
    answers = []
    asker = threading.Thread(target=lambda: answers.append(s.exchange("kim", "ponder this: take-your-time mark-pondered", "q-4")))
    asker.start()
    wait_for(lambda: s.turns("mark-pondered"), "the question", 60)
    # the first message in that chat: the gateway sends a notice of its own, and then answers
    s.notify("kim", "by the way mark-byway")
    s.answered("kim", "mark-byway")
    same(answers, [], "answers before the model had answered")
    s.model.slow.set()
    asker.join()
    same([one["content"] for one in answers], ["The stub heard mark-pondered."], "the answer")


@check
def concurrent_questions_get_their_own_answers(s):
    answers = {}

    def ask(number, caller):
        try:
            answers[number] = s.exchange(caller, f"and number {number}? mark-number{number}", f"q-number-{number}")["content"]
        except Exception as exc:
            answers[number] = str(exc)
    askers = [threading.Thread(target=ask, args=one) for one in enumerate(("carol", "dave", "dave"))]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    same(answers, {number: f"The stub heard mark-number{number}." for number in range(3)}, "the answers")


@check
def a_wake_of_a_live_gateway_is_confirmed(s):
    response = s.wake("frank", "look up mark-woken")
    same((response["woken"], response["session_id"]), (True, "bob"), f"the receipt {response}")
    s.answered("frank", "mark-woken")
    response = s.wake("grace", "look here mark-aside", session_id="elsewhere")
    same(response["woken"], False, f"a session that is not attached: {response}")
    s.answered("grace", "mark-aside")
    s.settled()


@check
def a_message_to_a_live_gateway_is_delivered(s):
    response = s.notify("heidi", "good day mark-live")
    ensure(not receipt(response, "relay").get("delivery_skipped"), f"by the socket: {response}")
    s.answered("heidi", "mark-live")
    s.settled()


@check
def a_stopped_gateway_is_not_woken_and_does_not_answer(s):
    s.bob.stop()
    wait_for(lambda: s.status() == "asleep", "bob is asleep")
    response = s.wake("ivan", "up mark-late")
    same(response["woken"], False, f"the receipt {response}")
    ensure(response.get("warnings"), f"no warning: {response}")
    late = s.exchange("judy", "anybody? mark-nobody", "q-3", expect=504, timeout_ms=300)
    same((late["error"]["class"], late["error"]["timeout_ms"]), ("TimeoutError", 300), "the refusal")


@check
def messages_sent_meanwhile_are_delivered_once_after_a_restart(s):
    s.bob.start()
    s.answered("ivan", "mark-late", 300)
    s.answered("judy", "mark-nobody")
    s.settled()
    for _, _, text, _ in s.said:
        mark = Model.MARK.search(text).group()
        same(len(s.turns(mark)), 1, f"turns for {mark}")


@check
def the_admin_api_lists_the_same(s):
    shown = s.desk.admin("GET", f"/dispatches?tenant={s.tenant.name}")["dispatches"]
    same(sorted((one["type"], one["from"], one["text"], one["agent_id"]) for one in shown),
         sorted((kind, caller, text, "bob") for kind, caller, text, _ in s.said), "the dispatches")
    by_text = {one["text"]: one["receipts"] for one in shown}
    for kind, _, text, receipts in s.said:
        if receipts is not None:
            same(by_text[text], receipts, f"receipts of {text!r}")
        if kind.startswith("wake"):
            same(by_text[text][0]["receipt"]["woken"], kind == "wake", f"woken of {text!r}")


if __name__ == "__main__":
    sys.exit(check.run([(version, functools.partial(Scene, version)) for version in VERSIONS]))
