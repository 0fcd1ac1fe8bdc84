"""The recipes in docs/recipes, run as they are printed there, against a real server and a stub model.

  FRONTDESK_BIN=path tests/recipes/run.py [--only PATTERN]

A code block whose first line is a comment with the name of a file is that file. One line per check; the last line is the tally.
"""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "hermes"))

from harness import Checks, Desk, Model, Wake, end_process, ensure, folder, request, same, start_process, wait_for  # noqa: E402

PAGES = here.parent.parent / "docs" / "recipes"
checks = Checks()


def page(name):
    """A folder with the files of a recipe."""
    home = folder(f"recipe-{name}")
    for block in re.findall(r"^```\w+\n(.*?)^```", (PAGES / f"{name}.md").read_text(), re.M | re.S):
        named = re.match(r"(?:#|//) ([\w.-]+\.\w+)\n", block)
        if named:
            (home / named.group(1)).write_text(block)
    ensure(any(home.iterdir()), f"{name}.md has no file")
    return home


class Stage:
    """A server, a model, and the agent of one recipe at a time, which is started when it is woken."""

    def __init__(self):
        self.desk = Desk("recipes")
        self.tenant = self.desk.tenant("t")
        self.model = Model()
        self.agents = []

    def agent(self, name, command, home, **env):
        agent = Agent(self, name, command, home, env)
        self.agents.append(agent)
        return agent

    def play(self, function):
        function(self)

    def tail(self):
        return "\n    ".join(["", *self.desk.log_tail(3).splitlines(), *(self.agents[-1].shown() if self.agents else [])])

    def close(self):
        for agent in self.agents:
            agent.close()
        self.desk.stop()
        self.model.close()


class Agent:
    def __init__(self, stage, name, command, home, env):
        self.stage, self.name, self.command, self.home, self.env = stage, name, command, home, env
        self.lock, self.process, self.account = threading.Lock(), None, None
        self.wake = Wake(on_poke=self.start)
        status, made = request("POST", f"{stage.desk.url}/relay/provision", token=stage.tenant.identity, body={
            "gatewayId": name, "platform": "relay", "botId": "", "gatewayEndpoint": "", "routeKeys": [],
            "instanceId": name, "wakeUrl": self.wake.url})
        same(status, 200, f"provision ({made})")
        self.account = made
        stage.tenant.bind(name, name)
        self.log = home / "agent.log"

    def start(self):
        with self.lock:
            if self.account is None:
                return False
            if self.process is not None and self.process.poll() is None:
                return None
            env = {name: value for name, value in os.environ.items()
                   if not name.startswith(("FRONTDESK_", "GATEWAY_")) and not name.lower().endswith("_proxy")}
            env.update(GATEWAY_RELAY_URL=self.stage.desk.url, GATEWAY_RELAY_ID=self.name,
                       GATEWAY_RELAY_SECRET=self.account["secret"], HOME=str(self.home), OPENAI_API_KEY="x",
                       OPENAI_BASE_URL=self.stage.model.url, **self.env)
            with open(self.log, "ab") as log:
                self.process = start_process(self.command, env=env, cwd=self.home, stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=subprocess.STDOUT)
            return None

    def ask(self, chat, text, wanted, timeout=60.0):
        self.stage.tenant.say(f"{self.name}-{chat}", text, user=self.name)
        return self.stage.tenant.answer(f"{self.name}-{chat}", wanted, timeout)

    def remembers(self):
        """It answers with the model, sleeps, is woken, and still knows what was said in the chat, and only there."""
        self.ask("one", "do tell mark-one", "The stub heard mark-one")
        wait_for(lambda: self.process.poll() is not None, "sleep", timeout=30)
        same(self.process.returncode, 0, "how it ended")
        for chat, mark, turns in (("one", "mark-two", 2), ("two", "mark-three", 1)):
            self.ask(chat, f"do tell {mark}", f"The stub heard {mark}")
            asked = [it for it in self.stage.model.asked if it["mark"] == mark]
            same([it["turns"] for it in asked], [turns], f"messages of the user that the model was asked with, for {mark}")

    def shown(self):
        return self.log.read_text(errors="replace").splitlines()[-12:] if self.log.exists() else []

    def close(self):
        if self.process is not None:
            end_process(self.process)
        self.wake.close()


@checks
def shell(s):
    home = page("shell")
    agent = s.agent("shell", [os.environ["FRONTDESK_BIN"], "agent", "run", "--exec", "--", "sh", "agent.sh"], home)
    agent.ask("one", "note buy milk", "Noted, 1 so far.")
    agent.ask("one", "note and bread", "Noted, 2 so far.")
    agent.ask("one", "notes", "buy milk\nand bread")
    agent.ask("two", "notes", "Nothing yet.")
    agent.ask("two", "what?", 'Say "note TEXT" or "notes".')


@checks
def vercel_ai_sdk(s):
    home = page("vercel-ai-sdk")
    (home / "node_modules").symlink_to(os.environ["FRONTDESK_RECIPES_NODE"])
    (home / "package.json").write_text('{"type": "module"}')
    agent = s.agent("vercel", [os.environ["FRONTDESK_NODE"], "agent.ts"], home, MODEL="stub-model", SLEEP_AFTER="1")
    agent.remembers()


@checks
def each_page_is_listed(s):
    listed = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (PAGES / "README.md").read_text()))
    same(listed, {path.name for path in PAGES.glob("*.md")} - {"README.md"}, "pages")


if __name__ == "__main__":
    sys.exit(checks.run([("recipe", Stage)]))
