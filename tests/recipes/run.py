"""The recipes in docs/recipes and the shell blocks of README.md, run as they are printed there, against a real server and a stub
model.

  FRONTDESK_BIN=path [FRONTDESK_RECIPES=folder] tests/recipes/run.py [--only PATTERN]

FRONTDESK_RECIPES is the folder that setup.sh prints. A code block whose first line is a comment with the name of a file is that
file; only `sleep_after` is made shorter. `--only readme` runs the blocks of README.md (readme.py). One line per check; the last
line is the tally.
"""

import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "hermes"))

from harness import (  # noqa: E402
    Checks, Desk, Model, Sleeper, cache_root, clean_env, ensure, folder, same, wait_for)
import readme  # noqa: E402

PAGES = here.parent.parent / "docs" / "recipes"
SLEEP_AFTER_S = 2
# Libraries must not report to anybody.
QUIET = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false", "OTEL_SDK_DISABLED": "true",
         "LOGFIRE_SEND_TO_LOGFIRE": "false"}
checks = Checks()


def page(name):
    """A folder with the files of a recipe."""
    home = folder(f"recipe-{name}")
    for block in re.findall(r"^```\w+\n(.*?)^```", (PAGES / f"{name}.md").read_text(), re.M | re.S):
        named = re.match(r"(?:#|//) ([\w.-]+\.\w+)\n", block)
        if named:
            (home / named.group(1)).write_text(re.sub(r"(sleep_?after(?:=|: ))300", rf"\g<1>{SLEEP_AFTER_S}", block, flags=re.I))
    ensure(any(home.iterdir()), f"{name}.md has no file")
    return home


class Stage:
    """A server, a model, and the agent of one recipe at a time, which is started when it is woken."""

    def __init__(self):
        self.desk = Desk("recipes", FRONTDESK_WAKE_COOLDOWN_MS="1000")  # an agent that was killed is woken after that
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


class Agent(Sleeper):
    def __init__(self, stage, name, command, home, env):
        self.stage, self.command, self.home, self.env = stage, command, home, env
        super().__init__(stage.tenant, name, home / "agent.log", user=name)

    def invocation(self):
        env = {name: value for name, value in clean_env().items() if not name.lower().endswith("_proxy")}
        env.update(HOME=str(self.home), OPENAI_API_KEY="x", OPENAI_BASE_URL=self.stage.model.url)
        return self.command, {**env, **self.credentials(), **QUIET, **self.env}, {"cwd": self.home}

    def ask(self, chat, text, wanted, timeout=60.0):
        self.stage.tenant.say(f"{self.name}-{chat}", text, user=self.name)
        return self.stage.tenant.answer(f"{self.name}-{chat}", wanted, timeout)

    def slept(self):
        self.ended(code=0)

    def shown(self):
        return self.logged().splitlines()[-12:]


@checks
def shell(s):
    home = page("shell")
    agent = s.agent("shell", [os.environ["FRONTDESK_BIN"], "agent", "run", "--exec", "--", "sh", "agent.sh"], home)
    agent.ask("one", "note buy milk", "Noted, 1 so far.")
    agent.ask("one", "note and bread", "Noted, 2 so far.")
    agent.ask("one", "notes", "buy milk\nand bread")
    agent.ask("two", "notes", "Nothing yet.")
    agent.ask("two", "what?", 'Say "note TEXT" or "notes".')


def in_python(s, name):
    python = Path(os.environ.get("FRONTDESK_RECIPES") or cache_root("recipes")) / "venv" / "bin" / "python"
    ensure(python.exists(), "run tests/recipes/setup.sh first")
    return s.agent(name, [str(python), "agent.py"], page(name))


def remembers(s, agent, stopped, repeated):
    """`stopped`, `repeated`: how often the memory has a question that /stop ended, and one whose process was killed (at most)."""
    name = agent.name

    def turns(mark):
        """How many messages of the user the model got with each request about this mark."""
        return [it["turns"] for it in s.model.asked if it["mark"] == mark]

    def hear(chat, mark, *expected):
        agent.ask(chat, f"I say {mark}", f"The stub heard {mark}.")
        ensure(turns(mark) in [[it] for it in expected], f"messages with {mark}: {turns(mark)}, and not {expected}")

    def begin(chat, mark):
        s.tenant.say(f"{name}-{chat}", f"take-your-time {mark}", user=name)
        wait_for(lambda: turns(mark), f"a request with {mark}", 60)

    letter = name[0]
    hear("one", f"mark-{letter}1", 1)
    hear("one", f"mark-{letter}2", 2)
    agent.slept()
    pokes = len(agent.wake.pokes)
    hear("one", f"mark-{letter}3", 3)
    ensure(len(agent.wake.pokes) > pokes, "it was not woken")
    hear("two", f"mark-{letter}4", 1)

    begin("two", f"mark-{letter}5")
    s.tenant.say(f"{name}-two", "/stop", user=name)
    hear("two", f"mark-{letter}6", 2 + stopped)

    hear("three", f"mark-{letter}7", 1)
    begin("three", f"mark-{letter}8")
    agent.kill()
    s.model.slow.set()
    s.tenant.answer(f"{name}-three", f"The stub heard mark-{letter}8.", 60)
    s.model.slow.clear()
    hear("three", f"mark-{letter}9", 3, 2 + repeated)


@checks
def langgraph(s):
    remembers(s, in_python(s, "langgraph"), stopped=1, repeated=2)


@checks
def pydantic_ai(s):
    remembers(s, in_python(s, "pydantic-ai"), stopped=0, repeated=1)


@checks
def vercel_ai_sdk(s):
    home = page("vercel-ai-sdk")
    (home / "node_modules").symlink_to(os.environ["FRONTDESK_RECIPES_NODE"])
    (home / "package.json").write_text('{"type": "module"}')
    agent = s.agent("vercel-ai-sdk", [os.environ["FRONTDESK_NODE"], "agent.ts"], home)
    remembers(s, agent, stopped=0, repeated=1)


@checks
def each_page_is_listed(s):
    listed = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (PAGES / "README.md").read_text()))
    same(listed, {path.name for path in PAGES.glob("*.md")} - {"README.md"}, "pages")


for part in readme.PARTS:
    checks(part)

if __name__ == "__main__":
    sys.exit(checks.run([("recipe", Stage)]))
