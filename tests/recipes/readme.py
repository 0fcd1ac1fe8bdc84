"""The shell blocks of README.md, run as a new user types them: in a fresh folder, with the binary under test in the path."""

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

from harness import Failed, clean_env, end_process, ensure, folder, request, same, start_process, wait_for

README = Path(__file__).resolve().parent.parent.parent / "README.md"
URL = "http://127.0.0.1:8787"  # the default, which README.md uses
LIMIT_S = 60
RUN = {"Connect a Hermes gateway", "Any command as an agent", "Send a webhook to an agent", "Send messages between agents",
       "Run several servers"}
# Other sections, and why they are not run.
NOT_RUN = {
    "Quick start": "compiles the server, and puts into the path what it compiled",
    "Put a Telegram bot in front of a sleeping agent": "needs a bot of Telegram and the network",
}
# Beginnings of lines that are left out of the sections that are run, and why.
LEFT_OUT = {
    "hermes gateway run": "tests/hermes runs it; here `frontdesk agent run` takes its place",
    "frontdesk agent run --acp": "needs an agent that speaks ACP; tests/bridge runs some",
    "frontdesk import": "needs a Postgres server at db.internal",
    "frontdesk serve --store": "needs a Postgres server at db.internal",
}


def blocks():
    """The heading above each shell block, and its text."""
    heading, found = "", []
    for it in re.finditer(r"^## ([^\n]+)$|^```(?:sh|shell|bash|console)\n(.*?)^```", README.read_text(), re.M | re.S):
        heading = it.group(1) or heading
        if it.group(2) is not None:
            found.append((heading, it.group(2)))
    return found


def commands(heading):
    """The lines of a section that are run. A line that ends with a backslash goes on in the next one."""
    text = "".join(text for title, text in blocks() if title == heading)
    return [line for line in re.findall(r"(?:[^\n]*\\\n)*[^\n]+", text) if not line.startswith(tuple(LEFT_OUT))]


class Shell:
    """Lines that a user types, in a process group of their own. They end at the first one that fails."""

    def __init__(self, user, name, lines):
        self.name, self.out, self.err = name, user.home / f"{name}.out", user.home / f"{name}.err"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = start_process(["sh", "-e", "-c", "\n".join(lines)], cwd=user.home, env=user.env,
                                         stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def printed(self):
        return self.out.read_text(errors="replace")

    def tail(self):
        return "\n    ".join(["", *self.printed().splitlines()[-5:], *self.err.read_text(errors="replace").splitlines()[-10:]])

    def runs(self):
        return self.process.poll() is None

    def wait(self):
        try:
            code = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name}: not done within {LIMIT_S} s{self.tail()}") from None
        ensure(code == 0, f"{self.name}: exit code {code}{self.tail()}")
        return self.printed()

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)  # also what it left in the background
        except ProcessLookupError:
            pass
        end_process(self.process, wait=12)


class User:
    def __init__(self, **settings):
        self.home, self.shells = folder("readme"), []
        path = self.home / "bin"
        path.mkdir()
        (path / "frontdesk").symlink_to(Path(os.environ["FRONTDESK_BIN"]).resolve())
        env = {name: value for name, value in clean_env().items() if not name.lower().endswith("_proxy")}
        self.env = {**env, "HOME": str(self.home), "PATH": f"{path}:{env.get('PATH', '/usr/bin:/bin')}", **settings}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for shell in reversed(self.shells):
            shell.close()

    def start(self, name, *lines):
        self.shells.append(Shell(self, name, lines))
        return self.shells[-1]

    def run(self, name, *lines):
        return self.start(name, *lines).wait()

    def until(self, shell, probe, what):
        """Waits for something while this shell runs."""
        try:
            seen = wait_for(lambda: probe() or not shell.runs(), what, 30)
        except Failed as late:
            raise Failed(f"{late}{shell.tail()}") from None
        ensure(seen is not True, f"{what}: {shell.name} has ended{shell.tail()}")
        return seen


def values(text):
    """The JSON objects in an output, which nothing needs to separate."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while (at := text.find("{", at)) >= 0:
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def answers(url):
    try:
        socket.create_connection(tuple(url.removeprefix("http://").rsplit(":", 1)), 1).close()
    except OSError:
        return False
    return True


def readme_has_no_block_that_is_forgotten(s):
    same({title for title, _ in blocks()}, RUN | set(NOT_RUN), "sections of README.md with shell blocks")
    lines = [line for title, text in blocks() if title in RUN for line in text.splitlines()]
    same([it for it in LEFT_OUT if not any(line.startswith(it) for line in lines)], [], "lines that README.md does not have")


def readme_gateway_command_webhook_and_export(s):
    ensure(not answers(URL), f"{URL} is in use; README.md uses this address, so nothing else may")
    with User() as user:
        serve, *verbs, variables = commands("Connect a Hermes gateway")
        server = user.start("serve", f"exec {serve}")  # its own terminal
        ready = user.until(server, lambda: re.search(r"^frontdesk ready (\S+)$", server.printed(), re.M), "a server that is ready")
        same(ready.group(1), URL, "address of the server")
        user.until(server, lambda: f"chat: {URL}/chat?code=" in server.err.read_text() and "printed", "the link of the chat page")
        secret = re.search(r"^secret: (\S+)$", user.run("gateway", *verbs), re.M)
        ensure(secret, "`frontdesk gateway add` printed no secret")
        ensure(variables.endswith("GATEWAY_RELAY_SECRET=..."), f"the user puts the secret here: {variables}")

        [command] = commands("Any command as an agent")
        agent = user.start("agent", variables.removesuffix("...") + secret.group(1), f"exec {command}")
        admin = (user.home / "frontdesk-data" / "admin.token").read_text().strip()
        status, made = request("POST", f"{URL}/admin/v1/tokens", {"tenant": "home", "scope": "chat"}, admin)
        same(status, 201, f"a token for the chat ({made})")
        chat = f"{URL}/chat/v1/chats/readme/messages"
        status, said = request("POST", chat, {"user_id": "you", "text": "hello"}, made["token"])
        same((status, said["verdict"]["outcome"]), (202, "delivered"), f"a message of the user of the chat page ({said})")

        def answer():
            lines = request("GET", chat, token=made["token"])[1]["messages"]
            return [line for line in lines if line["direction"] == "out" and line["text"] == "You said: hello"]

        user.until(agent, answer, "the answer of the agent")

        response = values(user.run("webhook", *commands("Send a webhook to an agent")))[-1]
        same((response["outcome"], response["duplicate"]), ("delivered", False), f"the webhook ({response})")
        ensure('"my-agent"' in response["text"], f"the response says which agent receives it: {response}")
        output = user.run("export", *commands("Run several servers"))
        ensure(re.search(r"^exported [1-9]\d* rows to desk\.jsonl", output, re.M), f"export: {output!r}")
        ensure("my-agent" in (user.home / "desk.jsonl").read_text(), "the agent is not in the exported file")

        end_process(agent.process)
        end_process(server.process, wait=12)
        same(server.process.returncode, 0, f"exit code of the server{server.tail()}")


def readme_messages_between_agents(s):
    # The server of the sections before may still be running.
    with socket.create_server(("127.0.0.1", 8787)), User() as user:
        talk = user.start("talk", *commands("Send messages between agents"))
        printed = values(talk.wait())
        asked = [it for answer in printed for it in answer.get("messages", [])]
        same([(it["text"], it["meta"]["correlation_id"]) for it in asked], [("Is the report done?", "q-1")], "what Alice reads")
        answer = [(it["content"], it["agent_id"]) for it in printed if it.get("correlation_id") == "q-1"]
        same(answer, [("Yes, since noon.", "alice")], f"what Bob's call returns ({printed})")
        url = (user.home / "frontdesk-talk" / "url").read_text().strip()
        talk.close()
        wait_for(lambda: not answers(url), "the end of the server", 12)


PARTS = (readme_has_no_block_that_is_forgotten, readme_gateway_command_webhook_and_export, readme_messages_between_agents)
