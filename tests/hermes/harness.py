"""Shared parts of the gateway tests: servers, drivers, stub servers."""

import argparse
import contextlib
import http.server
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEWEST = "0.19.0"
VERSIONS = ("0.19.0", "0.18.2", "0.17.0")
# "postgres": servers use the Postgres at FRONTDESK_TEST_POSTGRES instead of their embedded store
STORE = os.environ.get("FRONTDESK_TEST_STORE", "")

_children = []
_folders = []
_counter = itertools.count(1)


class Failed(Exception):
    """A check failed; the text says what was seen."""


def ensure(condition, text):
    if not condition:
        raise Failed(text)


def same(seen, wanted, what):
    if seen != wanted:
        raise Failed(f"{what}: expected {wanted!r}, saw {seen!r}")


def wait_for(probe, what, timeout=10.0, interval=0.05):
    """Returns the first truthy result of probe(), which is polled until the timeout."""
    end = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {timeout:g} s")
        time.sleep(interval)


def unique(word):
    return f"{word}-{next(_counter)}"


def folder(word):
    path = Path(tempfile.mkdtemp(prefix=f"frontdesk-{word}-"))
    _folders.append(path)
    return path


def start_process(args, **options):
    process = subprocess.Popen(args, start_new_session=True, **options)
    _children.append(process)
    return process


def end_process(process, sign=signal.SIGTERM, wait=10.0):
    """Ends one of our processes and its children."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGCONT)
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            pass
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process in _children:
        _children.remove(process)


def clean_up(keep=False):
    for process in list(_children):
        end_process(process, signal.SIGKILL)
    for path in _folders:
        if keep:
            print(f"kept {path}")
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def cache_root(name="hermes"):
    base = os.environ.get("FRONTDESK_TEST_CACHE")
    if not base:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "frontdesk", "test")
    return Path(base) / name


def gateway_env(version, home, **extra):
    """A minimal environment, so that no settings of the caller leak into the gateway."""
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8", "HOME": str(home), "HERMES_HOME": str(home),
           "NO_COLOR": "1", "PYTHONUNBUFFERED": "1",
           "HERMES_DISABLE_LAZY_INSTALLS": "1"}  # by pip, of what no test needs, at each start
    # requests to the outside fail at once
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        env[name] = env[name.upper()] = "http://127.0.0.1:9"
    env["no_proxy"] = env["NO_PROXY"] = "127.0.0.1,localhost"
    if version != NEWEST:
        env["PYTHONPATH"] = str(cache_root() / version)
    env.update(extra)
    return env


def write_login(home, token):
    """Writes the gateway's login, whose access token is its identity."""
    login = {"access_token": token, "refresh_token": "unused", "token_type": "Bearer", "scope": "",
             "client_id": "hermes", "expires_at": "2099-01-01T00:00:00+00:00", "expires_in": 10 ** 9}
    (Path(home) / "auth.json").write_text(json.dumps({"version": 1, "active_provider": "nous", "providers": {"nous": login}}))


def request(method, url, body=None, token=None, timeout=15.0, more=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Accept": "application/json", **(more or {})}
    if data is not None:
        headers["Content-Type"] = "application/json"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    call = urllib.request.Request(url, data=data, method=method, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(call, timeout=timeout) as reply:
            status, raw = reply.status, reply.read()
    except urllib.error.HTTPError as exc:
        status, raw = exc.code, exc.read()
    try:
        return status, json.loads(raw) if raw else None
    except ValueError:
        return status, raw.decode(errors="replace")


def free_port():
    """For a server that needs a fixed port, and may start some seconds later. The system gives none of these to others."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(15_000, 32_000)))
            return probe.getsockname()[1]


def in_postgres(name):
    """The address of an empty schema in the private Postgres of the test command."""
    made = subprocess.run([HERE.parent.parent / "scripts" / "postgres", "schema", os.environ["FRONTDESK_TEST_POSTGRES"], name],
                          capture_output=True, text=True)
    ensure(made.returncode == 0, f"no schema {name}: {made.stderr}")
    return made.stdout.strip()


class Desk:
    """A server under test with its own data folder, and over Postgres with its own schema."""

    def __init__(self, word, **settings):
        self.data = folder(f"desk-{word}")
        self.log = Path(f"{self.data}.log")
        _folders.append(self.log)
        self.settings = settings
        self.port = 0
        self.process = None
        if STORE == "postgres":
            self.port = free_port()  # its URL must be known before the start
            self.settings = {
                "FRONTDESK_STORE_URL": in_postgres(re.sub(r"[^a-z0-9]", "_", self.data.name.lower())),
                "FRONTDESK_PUBLIC_URL": f"http://127.0.0.1:{self.port}",
                "FRONTDESK_KEYS_MASTER_FILE": str(self.data / "master.key"),
                "FRONTDESK_KEYS_ADMIN_TOKEN_FILE": str(self.data / "admin.token"), **settings}
        self.start()

    def start(self):
        env = {key: value for key, value in os.environ.items()
               if not key.startswith("FRONTDESK_") and not key.lower().endswith("_proxy")}
        env.update(FRONTDESK_OUTCALL_ALLOW="127.0.0.0/8", **self.settings)
        log = open(self.log, "ab")
        self.process = start_process(
            [os.environ["FRONTDESK_BIN"], "serve", "--data-dir", str(self.data), "--listen", f"127.0.0.1:{self.port}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=env)
        log.close()
        lines, ready = [], threading.Event()

        def read(stream):
            for line in stream:
                lines.append(line.decode(errors="replace").rstrip("\n"))
                ready.set()
            ready.set()

        threading.Thread(target=read, args=(self.process.stdout,), daemon=True).start()
        if not ready.wait(20) or not lines:
            raise Failed(f"the server was not ready in time: {self.log_tail()}")
        self.output = lines
        line = lines[0]
        match = re.fullmatch(r"frontdesk ready (http://127\.0\.0\.1:(\d+))/?", line)
        ensure(match, f"unexpected first line of the server: {line!r}")
        self.url = match.group(1)
        self.port = int(match.group(2))
        self.token = (self.data / "admin.token").read_text().strip()

    def log_tail(self, count=15):
        try:
            return "\n    ".join(self.log.read_text(errors="replace").splitlines()[-count:])
        except OSError:
            return ""

    def stop(self, sign=signal.SIGTERM):
        end_process(self.process, sign, wait=12)

    def restart(self, sign=signal.SIGTERM):
        self.stop(sign)
        self.start()

    def admin(self, method, path, body=None, expect=(200, 201, 202, 204)):
        status, reply = request(method, f"{self.url}/admin/v1{path}", body, self.token)
        ensure(status in expect, f"{method} /admin/v1{path} {body}: {status} {reply}")
        return reply

    def tenant(self, word="t"):
        return Tenant(self, unique(word))


class Tenant:
    def __init__(self, desk, name):
        self.desk = desk
        self.name = name
        made = desk.admin("POST", "/tenants", {"name": name})
        # if the response has a separate id, later calls still use the name
        self.id = (made or {}).get("id", name)
        self.identity = self.token("identity")
        self.chat_token = self.token("chat")

    def token(self, scope, **more):
        return self.desk.admin("POST", "/tokens", {"tenant": self.name, "scope": scope, **more})["token"]

    def enrollment(self):
        return self.desk.admin("POST", "/enrollment-tokens", {"tenant": self.name})["token"]

    def bot(self, platform, ident):
        """A bot of a platform that the server may know. Its vendor is a closed port on loopback."""
        more = {}
        if platform == "telegram":
            token = "7001:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr"
            more = {"settings": {"base_url": "http://127.0.0.1:9"}, "secrets": {"token": token}}
        if platform == "discord":
            settings = {"base_url": "http://127.0.0.1:9/api/v10", "gateway_url": "ws://127.0.0.1:9"}
            more = {"settings": settings, "secrets": {"token": "MTEwMDAwMDAwMDAwMDAwMDAwMQ.closed.port-of-the-loopback-interface"}}
        self.desk.admin("POST", "/bots", {"platform": platform, "id": ident, "tenant": self.name, **more})

    def bind(self, user, instance, platform="relay"):
        self.desk.admin("POST", "/bindings", {"platform": platform, "user_id": user, "tenant": self.name, "instance": instance})

    def say(self, chat, text, user="ann", **more):
        """Posts a message of a user in the built-in chat."""
        path = f"{self.desk.url}/chat/v1/chats/{urllib.parse.quote(chat, safe='')}/messages"
        status, reply = request("POST", path, {"user_id": user, "text": text, **more}, self.chat_token)
        ensure(status == 202, f"chat message: {status} {reply}")
        ensure(reply.get("event_id") and reply.get("message_id") and "verdict" in reply, f"chat message reply: {reply}")
        return reply

    def look(self, chat):
        path = f"{self.desk.url}/chat/v1/chats/{urllib.parse.quote(chat, safe='')}/messages"
        status, reply = request("GET", path, token=self.chat_token)
        ensure(status == 200, f"chat history: {status} {reply}")
        return reply

    def history(self, chat):
        return self.look(chat)["messages"]

    def answer(self, chat, text, timeout=10.0):
        """Waits for a message of the agent that contains the text."""
        def probe():
            return next((m for m in self.history(chat) if m["direction"] == "out" and text in (m.get("text") or "")), None)
        return wait_for(probe, f"an answer with {text!r} in the chat", timeout)


class Driver:
    """A process that runs one version of the gateway's relay classes, or one of its own adapters."""

    def __init__(self, version, python=sys.executable, **env):
        self.version = version
        self.home = folder(f"home-{version}")
        (self.home / "config.yaml").write_text(
            "discord:\n  require_mention: true\n  free_response_channels: [c1, c2]\n"
            "telegram:\n  require_mention: true\n")
        self.log = self.home / "driver.log"
        log = open(self.log, "wb")
        self.process = start_process([python, str(HERE / "driver.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=log, env=gateway_env(version, self.home, **env), cwd=self.home)
        log.close()
        self.lock = threading.Condition()
        self.events = []
        self.answers = {}
        self.ended = False
        self.ids = itertools.count(1)
        threading.Thread(target=self._read, daemon=True).start()
        ready = self.expect(None, "ready", timeout=60)
        if version != NEWEST:
            ensure(str(cache_root() / version) in ready["file"], f"the driver runs {ready['file']}, not {version}")

    def _read(self):
        for line in self.process.stdout:
            record = json.loads(line)
            with self.lock:
                if "event" in record:
                    self.events.append(record)
                else:
                    self.answers[record["id"]] = record
                self.lock.notify_all()
        with self.lock:
            self.ended = True
            self.lock.notify_all()

    def call(self, cmd, timeout=45.0, **arguments):
        ident = next(self.ids)
        line = json.dumps({"id": ident, "cmd": cmd, **arguments}) + "\n"
        with self.lock:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
            if not self.lock.wait_for(lambda: ident in self.answers or self.ended, timeout):
                raise Failed(f"driver: no answer to {cmd} within {timeout:g} s")
            if ident not in self.answers:
                raise Failed(f"driver ended: {self.log.read_text(errors='replace')[-800:]}")
            record = self.answers.pop(ident)
        if not record["ok"]:
            raise Failed(f"{cmd}: {record['error']}")
        return record["value"]

    def expect(self, name, kind, test=None, timeout=10.0, what=None):
        """Takes the first matching event, and waits for it if necessary."""
        found = []

        def look():
            for record in self.events:
                if record["event"] == kind and (name is None or record["name"] == name) and (test is None or test(record)):
                    found.append(record)
                    return True
            return self.ended

        with self.lock:
            ok = self.lock.wait_for(look, timeout)
            if not ok or not found:
                seen = [(r.get("name"), r["event"], r.get("text")) for r in self.events][-8:]
                raise Failed(f"{name} did not receive {what or kind} within {timeout:g} s; other events: {seen}")
            self.events.remove(found[0])
            return found[0]

    def inbound(self, name, text=None, timeout=10.0):
        """The next event of a link; if a text is given, it must match."""
        record = self.expect(name, "inbound", timeout=timeout, what=f"the message {text!r}" if text else "a message")
        if text is not None:
            same(record["text"], text, f"the next message to {name}")
        return record

    def left(self, name, kind="inbound"):
        with self.lock:
            return [r for r in self.events if r["event"] == kind and r.get("name") == name]

    def state(self, name):
        return self.call("state", name=name)


class Link:
    """An open adapter in a driver, identified by its name."""

    def __init__(self, driver, name):
        self.driver = driver
        self.name = name

    def send(self, chat, text, **more):
        return self.driver.call("adapter", name=self.name, method="send", args=[chat, text], kwargs=more)

    def adapter(self, method, *args, **kwargs):
        return self.driver.call("adapter", name=self.name, method=method, args=list(args), kwargs=kwargs)

    def transport(self, method, *args, **kwargs):
        return self.driver.call("transport", name=self.name, method=method, args=list(args), kwargs=kwargs)

    def act(self, op, platform=None, **fields):
        """Sends an action and returns its raw result."""
        kwargs = {"platform": platform} if platform else {}
        return self.transport("send_outbound", {"op": op, **fields}, **kwargs)

    def inbound(self, text=None, timeout=10.0):
        return self.driver.inbound(self.name, text, timeout)

    def interrupt(self, timeout=10.0):
        return self.driver.expect(self.name, "interrupt", timeout=timeout, what="an interrupt")

    def state(self):
        return self.driver.state(self.name)

    def close(self):
        self.driver.call("close", name=self.name)


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass


class Stub:
    """A stub server on a free loopback port, for the time of a check."""

    def serve(self, handler, path=""):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}{path}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Wake(Stub):
    """A local wake URL of a sleeping agent. `on_poke` may return False for "not now"."""

    def __init__(self, on_poke=None):
        self.pokes = []
        outer = self

        class Handler(Quiet):
            def do_GET(self):
                outer.pokes.append({"path": self.path, "headers": dict(self.headers), "at": time.monotonic()})
                ready = on_poke is None or on_poke() is not False
                self.send_response(200 if ready else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

        self.serve(Handler, "/wake")


class Sleeper:
    """An agent of a tenant: its account, and its process, which is started when it is woken. A subclass says by `invocation` how."""

    def __init__(self, tenant, name, log, user, identity=None):
        self.tenant, self.name, self.log, self.user = tenant, name, Path(log), user
        self.lock, self.process, self.starts, self.may_start, self.account = threading.Lock(), None, 0, True, None
        self.wake = Wake(on_poke=self.start)
        status, made = request("POST", f"{tenant.desk.url}/relay/provision", token=identity or tenant.identity, body={
            "gatewayId": name, "platform": "relay", "botId": "", "gatewayEndpoint": "", "routeKeys": [], "instanceId": name,
            "wakeUrl": self.wake.url})
        same(status, 200, f"provision ({made})")
        self.account = made
        tenant.bind(user, name)

    def invocation(self):
        """The command, its environment, and further options of the process."""
        raise NotImplementedError

    def credentials(self):
        return {"GATEWAY_RELAY_URL": self.tenant.desk.url, "GATEWAY_RELAY_ID": self.account["gatewayId"],
                "GATEWAY_RELAY_SECRET": self.account["secret"]}

    def start(self):
        """As whatever serves a wake URL does: where it runs already, nothing happens. False: not yet."""
        with self.lock:
            if self.account is None:
                return False
            if self.may_start and not self.runs():
                command, env, options = self.invocation()
                with open(self.log, "ab") as log:
                    self.process = start_process(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                                 **options)
                self.starts += 1
            return None

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        ensure(self.runs(), f"{self.name} does not run")
        self.process.kill()
        self.process.wait(10)

    def ended(self, timeout=20.0, code=None):
        """Waits until it has ended by itself."""
        wait_for(lambda: self.process is not None and self.process.poll() is not None, f"the end of {self.name}", timeout)
        if code is not None:
            same(self.process.returncode, code, f"exit code of {self.name}")

    def logged(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def close(self):
        with self.lock:
            self.may_start = False
        if self.process is not None:
            end_process(self.process)
        self.wake.close()


def clean_env():
    """The environment without settings of the server and of gateways, which are the caller's own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FRONTDESK_", "GATEWAY_"))}


class Model(Stub):
    """A stub of the chat completions API: it repeats the mark in its input."""

    MARK = re.compile(r"mark-[a-z0-9]+")

    def __init__(self):
        self.asked = []
        self.slow = threading.Event()
        outer = self

        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def reply(self, value):
                raw = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def do_GET(self):
                self.reply({"object": "list", "data": [{"id": "stub-model", "object": "model", "context_length": 131072}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                if "chat/completions" not in self.path:
                    self.reply({})
                    return
                try:
                    self.complete(body)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def complete(self, body):
                users = [m for m in body.get("messages", []) if m.get("role") == "user"]
                last = json.dumps(users[-1].get("content"), ensure_ascii=False) if users else ""
                marks = outer.MARK.findall(last)
                outer.asked.append({"mark": marks[-1] if marks else None, "stream": bool(body.get("stream")), "text": last,
                                    "turns": len(users)})
                words = ["The ", "stub ", "heard ", (marks[-1] if marks else "nothing"), "."]
                base = {"id": "chatcmpl-1", "created": int(time.time()), "model": "stub-model"}
                usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
                hold = "take-your-time" in last
                if not body.get("stream"):
                    if hold:
                        outer.slow.wait(120)
                    self.reply({**base, "object": "chat.completion", "usage": usage, "choices": [
                        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "".join(words)}}]})
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()

                def chunk(delta, reason=None, **more):
                    value = {**base, "object": "chat.completion.chunk", **more,
                             "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
                    self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
                    self.wfile.flush()

                chunk({"role": "assistant", "content": ""})
                for number, word in enumerate(words):
                    if hold and number == 1:
                        outer.slow.wait(120)
                    chunk({"content": word})
                chunk({}, "stop", usage=usage)
                self.wfile.write(b"data: [DONE]\n\n")
                self.wfile.flush()
                self.close_connection = True

        self.serve(Handler, "/v1")

    def close(self):
        self.slow.set()
        super().close()


class Identity(Stub):
    """A token endpoint for client credentials that returns one prepared token."""

    def __init__(self, token):
        self.grants = []
        outer = self

        class Handler(Quiet):
            def do_POST(self):
                form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                outer.grants.append(urllib.parse.parse_qs(form))
                raw = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 300}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        self.serve(Handler, "/token")


def use_environment(name):
    """Runs the checks with the interpreter that setup.sh installed."""
    root = cache_root(name)
    if not (root / "ready").exists():
        print(f"run tests/{name}/setup.sh first", file=sys.stderr)
        sys.exit(2)
    if os.path.realpath(sys.prefix) != os.path.realpath(root / "venv"):
        python = str(root / "venv" / "bin" / "python")
        os.execv(python, [python, *sys.argv])


class Checks(list):
    """The checks of a script in order, and their runner."""

    def __call__(self, function):
        self.append(function)
        return function

    def run(self, stages, environment="hermes"):
        """Each of `stages` is a name and a function that opens it; they run in parallel. A stage runs a check (`play`),
        returns details of a failure (`tail`), and is closed (`close`)."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--only", metavar="PATTERN")
        parser.add_argument("--keep", action="store_true", help="keep the temporary folders")
        args = parser.parse_args()
        if not os.environ.get("FRONTDESK_BIN"):
            print("FRONTDESK_BIN is not set", file=sys.stderr)
            return 2
        use_environment(environment)
        for sign in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, lambda *_: sys.exit(1))
        held = []
        try:
            runs = [threading.Thread(target=self.play, args=(*stage, args.only, held), daemon=True) for stage in stages]
            for run in runs:
                run.start()
            for run in runs:
                run.join()
        finally:
            clean_up(args.keep)
        print(f"{held.count(True)} passed, {held.count(False)} failed", flush=True)
        return 0 if held and all(held) else 1

    def play(self, title, open_stage, only, held):
        stage = None
        try:
            stage = open_stage()
            for function in self:
                name = f"{title} {function.__name__}".strip()
                if not only or re.search(only, name):
                    held.append(attempt(stage, name, function))
            stage.close()
        except Exception as exc:
            print(f"FAILED {title} {'to end' if stage else 'to begin'}: {type(exc).__name__}: {exc}", flush=True)
            held.append(False)


def attempt(stage, name, function):
    """True: the check passed."""
    began = time.monotonic()
    try:
        stage.play(function)
    except Exception as exc:
        text = str(exc) if isinstance(exc, Failed) else f"{type(exc).__name__}: {exc}"
        print(f"FAILED {name}: {text}{stage.tail()}", flush=True)
        return False
    print(f"ok {name} ({time.monotonic() - began:.1f} s)", flush=True)
    return True
