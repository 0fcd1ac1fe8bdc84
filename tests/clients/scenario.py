"""The same scenarios for the client of each language: scenario.json, run against a real server.

  FRONTDESK_BIN=path FRONTDESK_CLIENT_PYTHON=path/to/python tests/clients/scenario.py --language python [--only PATTERN]

FRONTDESK_CLIENT_PYTHON is an interpreter with the package installed; it runs agents/agent.py. FRONTDESK_CLIENT_TYPESCRIPT and
FRONTDESK_CLIENT_RUST are whole commands. Such an agent is started when its wake URL is called, with this environment:

  GATEWAY_RELAY_URL, GATEWAY_RELAY_ID, GATEWAY_RELAY_SECRET    its account; its name is the id
  FRONTDESK_AGENT_TOKEN       for messages between agents (scope `agents`, bound to it)
  FRONTDESK_IDENTITY_TOKEN    for cron and alarms (scope `identity`, bound to it)
  XDG_STATE_HOME              a folder that stays when it is started again
  SLEEP_AFTER                 seconds without work after which it goes to sleep, i.e. ends with exit code 0; absent: never
  TICK                        a cron expression for its job `tick`; absent: no job. Scenarios write {soon} for the minute
                              that begins in 20 to 80 s: by then the agent has armed it and sleeps

It ends with exit code 3 when the server does not accept its id and secret (any more). What it does with a message:

  echo T            replies T
  fail N T          fails N times for this message in this process, then replies T
  hold              waits for ever; replies `stopped` when it is interrupted
  stream A B C      streams the words; the last text is `A B C`
  ask               asks `Shall I?` with the options yes and no; replies `pressed yes` to the answer
  file              replies with a file that has the bytes and the name of the one that came
  exchange NAME T   asks the agent NAME and replies with its answer, or with `error CODE`
  tell NAME T       delivers T to the agent NAME
  remind S          in S seconds, as an alarm: `reminded` in that chat

Other texts are ignored. Messages of other agents it reads in its inbox. A message T that expects an answer gets
`answer to T`; another one is told as `inbox T` in the built-in chat `inbox`. The job `tick` says `tick` in the chat `cron`.
(An agent may write only where somebody has written to it, so the scenarios say something there first.)

Each scenario has a server of its own; several run at once. One line for each; the last line is the tally.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import signal
import sys
import time
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "hermes"))

from harness import (Desk, Failed, Sleeper, attempt, clean_up, ensure, folder, request, same, wait_for)  # noqa: E402

WITHIN_S = 30.0
# Some wait for the next minute.
AT_ONCE = 4
SETTINGS = {
    # What is left unacked comes again after six of these, and a dead agent is woken again after the cooldown.
    "FRONTDESK_RELAY_ACK_LIMIT_MS": "500",
    "FRONTDESK_WAKE_COOLDOWN_MS": "1000",
}


def command(language):
    given = os.environ.get(f"FRONTDESK_CLIENT_{language.upper()}")
    if not given:
        raise SystemExit(f"FRONTDESK_CLIENT_{language.upper()} is not set")
    return [given, str(here / "agents" / "agent.py")] if language == "python" else shlex.split(given)


class Child(Sleeper):
    def __init__(self, scene, name, env):
        self.scene = scene
        self.state = folder(f"state-{name}")
        soon = str(time.localtime(time.time() + 80).tm_min)
        self.env = {name: str(value).replace("{soon}", soon) for name, value in env.items()}
        self.identity = scene.tenant.token("identity", instance=name)
        super().__init__(scene.tenant, name, self.state / "log", user=f"user-of-{name}", identity=self.identity)

    def invocation(self):
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
        env.update(self.credentials(), FRONTDESK_AGENT_TOKEN=self.tenant.token("agents", instance=self.name),
                   FRONTDESK_IDENTITY_TOKEN=self.identity, XDG_STATE_HOME=str(self.state))
        env.update(self.env)
        return self.scene.command, env, {}

    def shown(self, count=8):
        return [f"{self.name}: {line}" for line in self.logged().splitlines()[-count:]]


class Scene:
    """One scenario: a server, and its agents (one with the name `agent`, unless it names others)."""

    def __init__(self, scenario, words):
        self.command, self.scenario = words, scenario
        self.desk = Desk("scenario", **SETTINGS)
        self.tenant = self.desk.tenant("t")
        named = scenario.get("agents", ["agent"])
        self.agents = {name: Child(self, name, dict(scenario.get("env", {}))) for name in named}

    def child(self, step):
        return self.agents[step.get("agent", "agent")]

    def play(self, _):
        for number, step in enumerate(self.scenario["steps"], 1):
            verb = next(iter(step))
            try:
                getattr(self, f"do_{verb}")(step[verb], step)
            except Exception as error:
                text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
                raise Failed(f"step {number} ({json.dumps(step)[:120]}): {text}") from error

    def tail(self):
        lines = self.desk.log_tail(4).splitlines()
        for child in self.agents.values():
            lines += child.shown()
        return "\n    ".join(["", *lines])

    def close(self):
        for child in self.agents.values():
            child.may_start = False
        self.desk.stop()
        for child in self.agents.values():
            child.close()

    # ---- what the agent said ---------------------------------------------------------------

    def outs(self, chat):
        """All messages of agents in a chat."""
        found, after = [], 0
        while True:
            url = f"{self.desk.url}/chat/v1/chats/{chat}/messages?after={after}"
            page = request("GET", url, token=self.tenant.chat_token)[1]
            found += [m for m in page["messages"] if m["direction"] == "out" and not m["deleted"]]
            if not page.get("more"):
                return found
            after = page["messages"][-1]["seq"]

    def texts(self, chat):
        return [m["text"] for m in self.outs(chat)]

    @staticmethod
    def spread(text, step):
        """A text with {n} for each of `repeat` numbers, in each of `chats` in turn: pairs of chat and text."""
        chats = step.get("chats") or [step.get("chat", "c")]
        return [(chats[n % len(chats)], text.replace("{n}", str(n))) for n in range(step.get("repeat", 1))]

    # ---- steps -----------------------------------------------------------------------------
    # Each is named by its first key. `agent` is whom it is about, `chat` where (default `c`), `within` a limit in seconds.

    def do_say(self, text, step):
        """A user says it, `repeat` times with a number for {n}, in `chats` in turn. `file` is attached as `filename`."""
        more = {}
        if "file" in step:
            call = urllib.request.Request(f"{self.desk.url}/chat/v1/media", data=step["file"].encode(), method="POST", headers={
                "Authorization": f"Bearer {self.tenant.chat_token}", "Content-Type": "text/plain",
                "X-Media-Filename": urllib.parse.quote(step["filename"])})
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call, timeout=15) as reply:
                more = {"media": [{"id": json.load(reply)["id"]}]}
        for chat, said in self.spread(text, step):
            self.tenant.say(chat, said, user=self.child(step).user, **more)

    def do_inbox(self, text, step):
        """Another program delivers it to the inbox."""
        meta = {"dispatch_id": str(uuid.uuid4()), "sent_at": int(time.time() * 1000), "origin": {"trigger_kind": "cli"}}
        status, response = request("POST", f"{self.desk.url}/v1/agents/{self.child(step).name}/deliver",
                               {"kind": "augment", "content": text, "meta": meta}, self.tenant.token("agents"))
        same(status, 200, f"deliver ({response})")

    def do_expect(self, texts, step):
        """Exactly these, in this order, and nothing else. With `repeat`, one text with {n}, as in `say`."""
        wanted = {}
        pairs = self.spread(texts, step) if isinstance(texts, str) else [(step.get("chat", "c"), text) for text in texts]
        for chat, text in pairs:
            wanted.setdefault(chat, []).append(text)
        for chat, all_of_it in wanted.items():
            try:
                wait_for(lambda: len(self.texts(chat)) >= len(all_of_it) and self.texts(chat)[-1:] == all_of_it[-1:],
                         f"the texts in {chat}", step.get("within", WITHIN_S))
            finally:
                same(self.texts(chat), all_of_it, f"texts in {chat}")

    def do_expect_each(self, text, step):
        """Each at least once and at most `at_most` times, in the order of their first times: for lost acks."""
        wanted = {}
        for chat, said in self.spread(text, step):
            wanted.setdefault(chat, []).append(said)
        for chat, all_of_it in wanted.items():
            wait_for(lambda: set(all_of_it) <= set(self.texts(chat)), f"{len(all_of_it)} texts in {chat}", step.get("within", WITHIN_S))
            seen = self.texts(chat)
            same(list(dict.fromkeys(seen)), all_of_it, f"texts in {chat} without repetitions")
            often = {said: seen.count(said) for said in all_of_it if seen.count(said) > step.get("at_most", 2)}
            same(often, {}, f"repeated too often in {chat}")

    def do_expect_file(self, content, step):
        def probe():
            return next((m["media"][0] for m in self.outs(step.get("chat", "c")) if m.get("media")), None)
        found = wait_for(probe, "a file", step.get("within", WITHIN_S))
        status, seen = request("GET", f"{self.desk.url}/chat/v1/media/{found['id']}", token=self.tenant.chat_token)
        same((status, seen, found.get("filename")), (200, content, step["filename"]), "the file")

    def do_press(self, option, step):
        chat = step.get("chat", "c")
        shown = wait_for(lambda: next((m for m in self.outs(chat) if m.get("prompt")), None), "a prompt", step.get("within", WITHIN_S))
        body = {"user_id": self.child(step).user, "prompt_id": shown["prompt"]["prompt_id"], "option_id": option}
        status, response = request("POST", f"{self.desk.url}/chat/v1/chats/{chat}/messages/{shown['message_id']}/press", body,
                               self.tenant.chat_token)
        ensure(status in (200, 202), f"the press: {status} {response}")

    def do_interrupt(self, until, step):
        """The user says /stop until the agent says this. Before the message is with the agent, /stop is an ordinary message."""
        chat, end = step.get("chat", "c"), time.monotonic() + step.get("within", WITHIN_S)
        while until not in self.texts(chat):
            ensure(time.monotonic() < end, f"{until!r} was not said")
            self.tenant.say(chat, "/stop", user=self.child(step).user)
            try:
                wait_for(lambda: until in self.texts(chat), "the end of the handler", 2)
            except Failed:
                pass

    def do_start(self, what, step):
        if what == "desk":
            self.desk.start()
        else:
            self.child(step).env.update((name, str(value)) for name, value in step.get("env", {}).items())
            self.child(step).start()

    def do_kill(self, what, step):
        """SIGKILL, of `desk` or `agent`."""
        if what == "desk":
            self.desk.stop(signal.SIGKILL)
        else:
            self.child(step).kill()

    def do_asleep(self, _, step):
        self.child(step).ended(step.get("within", WITHIN_S), code=0)

    def do_starts(self, count, step):
        """How often it has been started so far."""
        wait_for(lambda: self.child(step).starts >= count, f"start {count}", step.get("within", WITHIN_S))
        same(self.child(step).starts, count, "starts")

    def do_revoke(self, _, step):
        self.child(step).may_start = False
        self.desk.admin("POST", f"/gateways/{self.child(step).name}/revoke", {})

    def do_exits(self, code, step):
        """It ends with this exit code; `log` is a pattern in what it printed."""
        child = self.child(step)
        child.ended(step.get("within", WITHIN_S), code)
        printed = child.log.read_text(errors="replace")
        ensure(re.search(step.get("log", ""), printed), f"the log does not say {step.get('log')!r}")
        ensure(child.account["secret"] not in printed, "the secret is in the log")

    def do_armed(self, names, step):
        """The jobs with an alarm at the server, by the ends of their ids."""
        def probe():
            armed = request("GET", f"{self.desk.url}/api/agent-cron/list", token=self.child(step).identity)[1]["armed"]
            return [[name for name in names if one["job_id"].endswith(name)][:1] for one in armed] == [[name] for name in names]
        wait_for(probe, f"armed jobs {names}", step.get("within", WITHIN_S))

    def do_settled(self, _, step):
        """Everything that was sent to it is acked."""
        path = f"/instances/{self.child(step).name}/mail?tenant={self.tenant.name}"
        wait_for(lambda: all(row["state"] == "acked" for row in self.desk.admin("GET", path)["mail"]), "acks", step.get("within", WITHIN_S))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--language", choices=("python", "typescript", "rust"), default="python")
    parser.add_argument("--only", metavar="PATTERN")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folders")
    args = parser.parse_args()
    words = command(args.language)
    scenarios = [it for it in json.loads((here / "scenario.json").read_text()) if re.search(args.only or "", it["name"])]

    def run(scenario):
        name = f"{args.language} {scenario['name']}"
        scene = None
        try:
            scene = Scene(scenario, words)
            return attempt(scene, name, None)
        except Exception as error:
            print(f"FAILED {name} to begin: {type(error).__name__}: {error}", flush=True)
            return False
        finally:
            if scene is not None:
                scene.close()

    try:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            held = list(pool.map(run, scenarios))
    finally:
        clean_up(args.keep)
    print(f"{held.count(True)} passed, {held.count(False)} failed", flush=True)
    return 0 if held and all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
