"""Alarms with the real provider: chronos of hermes-agent 0.19.0, and the fire webhook of its dashboard.

  FRONTDESK_BIN=path/to/frontdesk tests/hermes/alarms.py [--only PATTERN]

The provider runs in separate processes, one home folder each, against servers that are
started here on free loopback ports. One line per check; the last line is the tally.
(It is not called cron.py: that name would hide the agent's own package from every script here.)
"""

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path

sys.dont_write_bytecode = True

import harness
from harness import (NEWEST, Checks, Desk, end_process, ensure, folder, free_port, gateway_env, request, same, start_process,
                     unique, wait_for, write_login)

FAR = "2099-01-01T00:00:00.5+05:30"
check = Checks()


def soon(seconds=0.0):
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).isoformat()


# ── the provider's side, in a separate process ─────────────────────────────

def serve_agent():
    """Runs the commands of stdin with the provider's own classes; one JSON answer per line."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of the provider is not an answer
    from cron import jobs
    from plugins.cron_providers.chronos import ChronosCronScheduler
    from plugins.cron_providers.chronos._nas_client import NasCronClient
    from plugins.cron_providers.chronos.verify import verify_nas_fire_token

    provider = ChronosCronScheduler()
    for line in sys.stdin:
        ask = json.loads(line)
        what, arguments = ask["do"], ask.get("with", {})
        try:
            if what == "client":
                value = getattr(NasCronClient(ask["portal"]), ask["call"])(**arguments)
            elif what == "jobs":
                value = getattr(jobs, ask["call"])(**arguments)
            elif what == "provider":
                value = getattr(provider, ask["call"])(**arguments)
            elif what == "start":
                value = provider.start(threading.Event())
            elif what == "fresh":
                value = (provider := ChronosCronScheduler()).name
            elif what == "verify":
                value = verify_nas_fire_token(**arguments)
            else:
                raise ValueError(what)
            answer = {"value": value}
        except Exception as exc:
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        answers.write(json.dumps(answer, default=str) + "\n")


class Agent:
    """A home folder with login and provider settings; its process and its dashboard."""

    def __init__(self, desk, port=None, audience=None, token=None, instance=None):
        self.desk = desk
        self.instance = instance or unique("agent")
        ask = {"tenant": "home", "scope": "identity", "instance": self.instance}
        self.token = token or desk.admin("POST", "/tokens", ask)["token"]
        self.home = folder(self.instance)
        self.port = port or free_port()
        self.callback = f"http://127.0.0.1:{self.port}"
        chronos = {"portal_url": desk.url, "callback_url": self.callback,
                   "expected_audience": audience or f"agent:{self.instance}",
                   "nas_jwks_url": f"{desk.url}/.well-known/jwks.json"}
        # JSON is YAML
        (self.home / "config.yaml").write_text(json.dumps({"cron": {"provider": "chronos", "chronos": chronos}}))
        write_login(self.home, self.token)
        scripts = self.home / "scripts"
        scripts.mkdir()
        self.ran_file = self.home / "ran"
        script = scripts / "job.sh"
        script.write_text(f"#!/bin/sh\necho ran >> '{self.ran_file}'\n")
        script.chmod(0o755)
        self.env = gateway_env(NEWEST, self.home)
        self.process = None
        self.dashboard = None
        self.log = self.home / "agent.log"

    def ask(self, do, call=None, **arguments):
        if self.process is None:
            with open(self.log, "ab") as log:
                self.process = start_process([sys.executable, __file__, "--agent"], stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=log, env=self.env, cwd=self.home)
        line = json.dumps({"do": do, "call": call, "with": arguments, "portal": self.desk.url}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        ensure(answer, f"the provider's process ended: {self.log.read_text(errors='replace')[-800:]}")
        return json.loads(answer)

    def good(self, do, call=None, **arguments):
        answer = self.ask(do, call, **arguments)
        ensure("error" not in answer, f"{do} {call}: {answer.get('error')}")
        return answer["value"]

    def provision(self, job, fire_at, callback=None):
        arguments = {"job_id": job, "fire_at": fire_at, "agent_callback_url": callback or self.callback,
                     "dedup_key": f"{job}:{fire_at}"}
        return self.ask("client", "provision", **arguments)

    def arm(self, job, fire_at, callback=None):
        answer = self.provision(job, fire_at, callback)
        ensure("error" not in answer, f"provision: {answer}")
        ensure(answer["value"].get("schedule_id"), f"no schedule_id: {answer}")
        return answer["value"]["schedule_id"]

    def armed(self):
        """Job to time, as the real client reads the list."""
        return {item["job_id"]: item["fire_at"] for item in self.good("client", "list_armed")}

    def job(self, schedule="every 10m", **more):
        return self.good("jobs", "create_job", prompt=None, schedule=schedule, script="job.sh", no_agent=True, **more)

    def jobs(self):
        return {job["id"]: job for job in self.good("jobs", "load_jobs")}

    def history(self, job):
        status, reply = request("GET", f"{self.desk.url}/api/agent-cron/history?job_id={job}", token=self.token)
        same(status, 200, f"history: {reply}")
        return reply["history"]

    def ended(self, job, fire_at=None, timeout=20.0):
        """Waits until the alarm (of that time) was fired."""
        def probe():
            return next((past for past in self.history(job)
                         if past["outcome"] == "fired" and fire_at in (None, past["fire_at"])), None)
        return wait_for(probe, f"a fire in the history of {job}", timeout)

    def runs(self):
        return self.ran_file.read_text().count("ran") if self.ran_file.exists() else 0

    def hermes(self, *arguments):
        hermes = str(Path(sys.executable).with_name("hermes"))
        done = subprocess.run([hermes, *arguments], env=self.env, cwd=self.home, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        ensure(done.returncode == 0, f"hermes {arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def open_dashboard(self):
        hermes = str(Path(sys.executable).with_name("hermes"))
        with open(self.home / "dashboard.log", "ab") as log:
            self.dashboard = start_process([hermes, "dashboard", "--no-open", "--skip-build", "--port", str(self.port)],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, cwd=self.home)

        def answers():
            ensure(self.dashboard.poll() is None, f"the dashboard ended: {self.dashboard_log()}")
            with contextlib.suppress(OSError):
                return request("POST", f"{self.callback}/api/cron/fire", {})[0] == 401
        wait_for(answers, "the dashboard's webhook", 60)

    def dashboard_log(self):
        return (self.home / "dashboard.log").read_text(errors="replace")[-1500:]

    def close_dashboard(self, sign=signal.SIGTERM):
        if self.dashboard is not None:
            end_process(self.dashboard, sign)
            self.dashboard = None

    def close(self):
        self.close_dashboard(signal.SIGKILL)
        if self.process is not None:
            end_process(self.process, signal.SIGKILL)
            self.process = None


class Door(harness.Stub):
    """A stub of an agent's webhook: it records the tokens and responds with 202."""

    def __init__(self):
        self.fires = []
        outer = self

        class Handler(harness.Quiet):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                outer.fires.append({"token": token, "body": body, "path": self.path})
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

        self.serve(Handler)


class Keys(harness.Stub):
    """Our own key with its JWKS: its tokens differ from the server's only in the given claims."""

    def __init__(self):
        import jwt
        from cryptography.hazmat.primitives.asymmetric import ec

        self.private = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.private.public_key()))
        raw = json.dumps({"keys": [{**public, "kid": "ours", "use": "sig", "alg": "ES256"}]}).encode()

        class Handler(harness.Quiet):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        self.serve(Handler, "/jwks.json")

    def sign(self, issuer, audience, **more):
        import jwt

        now = int(time.time())
        claims = {"iss": issuer, "aud": audience, "purpose": "cron_fire", "iat": now, "nbf": now, "exp": now + 90,
                  "jti": uuid.uuid4().hex}
        claims.update(more)
        claims = {key: value for key, value in claims.items() if value is not None}
        return jwt.encode(claims, self.private, algorithm="ES256", headers={"kid": "ours"})


def parts_of(token):
    """Header and claims, unchecked."""
    def part(text):
        return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    header, claims, _ = token.split(".")
    return part(header), part(claims)


def fired_token(agent, door):
    """A valid token: the server fires an alarm of this agent at a stub."""
    job, before = unique("probe"), len(door.fires)
    agent.arm(job, soon(), door.url)
    wait_for(lambda: len(door.fires) > before, "a fire", 20)
    fire = door.fires[-1]
    same((fire["path"], fire["body"]["job_id"]), ("/api/cron/fire", job), "the fire")
    return fire["token"]


def accepted(agent, token, **more):
    """The result of the agent's own verifier for a token."""
    options = {"expected_audience": f"agent:{agent.instance}", "jwks_or_key": f"{agent.desk.url}/.well-known/jwks.json",
               "issuer": agent.desk.url, **more}
    return agent.good("verify", token=token, **options)


class Bench:
    """Passed to a check: a server, and agents that end with the check."""

    def __init__(self, desk):
        self.desk = desk
        self.open = []

    def agent(self, desk=None, **more):
        agent = Agent(desk or self.desk, **more)
        self.open.append(agent)
        return agent

    def keep(self, thing):
        self.open.append(thing)
        return thing

    def close(self):
        for thing in self.open:
            thing.close()


# ── the client ──────────────────────────────────────────────────────────────

@check
def arming_is_an_upsert(b):
    agent = b.agent()
    first = agent.arm("tea", FAR)
    same(agent.arm("tea", FAR), first, "the schedule_id of the same time again")
    same(agent.armed(), {"tea": FAR}, "armed, byte for byte")
    later = "2099-06-01T12:00:00+00:00"
    ensure(agent.arm("tea", later) != first, "a new time has the old schedule_id")
    same(agent.armed(), {"tea": later}, "armed after a new time")
    same([past["outcome"] for past in agent.history("tea")], ["replaced"], "history")
    for form in ("2099-01-01T00:00:00Z", "2099-01-01T00:00:00.123456+00:00", "2099-01-01T02:00:00-11:00"):
        agent.arm("form", form)
        same(agent.armed()["form"], form, "a time in the list")
    listed = agent.good("client", "list_armed")
    same(sorted(listed[0]), ["fire_at", "job_id", "schedule_id"], "keys of the list")


@check
def cancelling_is_safe_to_repeat(b):
    agent, other = b.agent(), b.agent()
    agent.arm("tea", FAR)
    other.arm("tea", FAR)
    for job in ("tea", "tea", "never-there"):
        same(agent.good("client", "cancel", job_id=job), {"ok": True}, f"cancel {job}")
    same(agent.armed(), {}, "armed")
    same(other.armed(), {"tea": FAR}, "another agent's job of the same name")
    same([past["outcome"] for past in agent.history("tea")], ["cancelled"], "history")


@check
def invalid_requests_are_errors_of_the_client(b):
    agent = b.agent()
    agent.arm("tea", FAR)
    for fire_at in ("tomorrow", "2099-01-01T00:00:00", "", "2099-13-01T00:00:00Z"):
        error = agent.provision("tea", fire_at).get("error", "")
        ensure("NasCronClientError" in error and "returned 400" in error and '"error"' in error, f"{fire_at!r}: {error!r}")
    error = agent.provision("tea", FAR, "ftp://nowhere").get("error", "")
    ensure("returned 400" in error, f"a bad callback: {error!r}")
    same(agent.armed(), {"tea": FAR}, "armed after all that")
    stranger = b.agent(token="nobody-knows-this")
    ensure("returned 401" in stranger.provision("tea", FAR).get("error", ""), "an unknown token")
    ensure("returned 401" in stranger.ask("client", "list_armed").get("error", ""), "list with an unknown token")
    ensure("returned 401" in stranger.ask("client", "cancel", job_id="tea").get("error", ""), "cancel with an unknown token")
    unbound = b.agent(token=b.desk.admin("POST", "/tokens", {"tenant": "home", "scope": "identity"})["token"])
    ensure("returned 403" in unbound.provision("tea", FAR).get("error", ""), "a token without an instance")


# ── the provider ────────────────────────────────────────────────────────────

def wanted(agent):
    return {ident: job["next_run_at"] for ident, job in agent.jobs().items() if job["enabled"] and job["state"] != "paused"}


@check
def reconcile_arms_every_job_and_cancels_orphans(b):
    agent = b.agent()
    ensure(agent.good("provider", "is_available"), "the provider is not available")
    made = [agent.job("every 10m"), agent.job("0 9 * * *"), agent.job("30m"), agent.job("2099-01-01T10:00:00+02:00")]
    paused = agent.job("every 20m")
    agent.good("jobs", "pause_job", job_id=paused["id"])
    agent.arm("orphan", FAR)
    agent.good("start")
    same(agent.armed(), {job["id"]: job["next_run_at"] for job in made}, "armed after the start")
    same(agent.armed(), wanted(agent), "armed and wanted")
    same([past["outcome"] for past in agent.history("orphan")], ["cancelled"], "history of the orphan")
    # a new process asks the server, finds everything in place and changes nothing
    before = agent.good("client", "list_armed")
    agent.good("fresh")
    agent.good("provider", "reconcile")
    same(agent.good("client", "list_armed"), before, "armed after another reconcile")


@check
def changed_jobs_change_the_armed_alarms(b):
    agent = b.agent()
    one, two = agent.job("every 10m")["id"], agent.job("every 1h")["id"]
    agent.good("provider", "on_jobs_changed")
    same(sorted(agent.armed()), sorted([one, two]), "armed")
    agent.good("jobs", "update_job", job_id=one, updates={"schedule": "every 30m"})
    agent.good("jobs", "pause_job", job_id=two)
    agent.good("provider", "on_jobs_changed")
    same(agent.armed(), wanted(agent), "armed after a change and a pause")
    same(sorted(agent.armed()), [one], "the paused one is not armed")
    agent.good("jobs", "resume_job", job_id=two)
    agent.good("jobs", "remove_job", job_id=one)
    agent.good("provider", "on_jobs_changed")
    same(agent.armed(), wanted(agent), "armed after a resume and a removal")
    same(sorted(agent.armed()), [two], "the removed one is not armed")


@check
def the_command_line_arms_by_itself(b):
    agent = b.agent()
    said = agent.hermes("cron", "create", "every 10m", "--script", "job.sh", "--no-agent")
    ident = re.search(r"Created job: (\w+)", said).group(1)
    same(agent.armed(), {ident: agent.jobs()[ident]["next_run_at"]}, "armed after `hermes cron create`")
    agent.hermes("cron", "pause", ident)
    same(agent.armed(), {}, "armed after `hermes cron pause`")
    agent.hermes("cron", "resume", ident)
    same(agent.armed(), wanted(agent), "armed after `hermes cron resume`")
    agent.hermes("cron", "remove", ident)
    same(agent.armed(), {}, "armed after `hermes cron remove`")


# ── the tokens ──────────────────────────────────────────────────────────────

def check_token(b, desk, algorithm):
    agent, other, door = b.agent(desk), b.agent(desk), b.keep(Door())
    token = fired_token(agent, door)
    header, claims = parts_of(token)
    same(header["alg"], algorithm, "alg")
    ensure(header.get("kid"), "no kid")
    same((claims["iss"], claims["aud"], claims["purpose"]), (desk.url, f"agent:{agent.instance}", "cron_fire"), "claims")
    ensure(60 <= claims["exp"] - claims["iat"] <= 120 and claims["nbf"] <= claims["iat"], f"times: {claims}")
    same(accepted(agent, token), claims, "what the verifier returns")
    ensure(parts_of(fired_token(agent, door))[1]["jti"] != claims["jti"], "two tokens have one jti")
    same(accepted(agent, token, expected_audience=f"agent:{other.instance}"), None, "for another agent")
    same(accepted(agent, token, issuer=desk.url + "/"), None, "an issuer with one more byte")
    same(accepted(agent, token, issuer="http://127.0.0.1:1"), None, "another issuer")
    same(accepted(agent, token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB")), None, "a broken signature")
    same(accepted(agent, "garbage"), None, "not a token")
    return agent, token


@check
def tokens_are_accepted_by_the_real_verifier(b):
    agent, token = check_token(b, b.desk, "ES256")
    other = Desk("other-keys")
    try:
        same(accepted(agent, token, jwks_or_key=f"{other.url}/.well-known/jwks.json"), None, "the keys of another server")
    finally:
        other.stop()


@check
def rsa_tokens_are_accepted_too(b):
    desk = Desk("rs256", FRONTDESK_CRON_ALG="RS256")
    try:
        check_token(b, desk, "RS256")
    finally:
        desk.stop()


@check
def only_claims_and_times_of_the_contract_are_accepted(b):
    """Uses the agent's verifier, to show that only the claims decide between our tokens and refused ones."""
    agent, keys = b.agent(), b.keep(Keys())
    now = int(time.time())
    audience = f"agent:{agent.instance}"

    def taken(audience_of=audience, **more):
        return accepted(agent, keys.sign(b.desk.url, audience_of, **more), jwks_or_key=keys.url) is not None

    ensure(taken(), "a token like ours is refused")
    ensure(taken(exp=now - 10), "a token within the leeway is refused")
    for what, more in (("no purpose", {"purpose": None}), ("another purpose", {"purpose": "session"}), ("too old", {"exp": now - 60}),
                       ("too early", {"nbf": now + 60}), ("no end", {"exp": None}), ("no audience", {"aud": None}),
                       ("another audience", {"aud": "agent:somebody"}), ("another issuer", {"iss": "http://127.0.0.1:1"})):
        ensure(not taken(**more), f"{what}: accepted")
    same(accepted(agent, keys.sign(b.desk.url, audience)), None, "a key that the server does not publish")


@check
def tokens_from_before_a_rotation_stay_valid(b):
    agent, door = b.agent(), b.keep(Door())
    before = fired_token(agent, door)
    ensure(accepted(agent, before), "an old token, before the rotation")
    made = b.desk.admin("POST", "/signing-keys/rotate")
    after = fired_token(agent, door)
    same(parts_of(after)[0]["kid"], made["id"], "the key that signs now")
    ensure(parts_of(before)[0]["kid"] != made["id"], "the key is the old one")
    ensure(accepted(agent, after), "a new token, in a process that knows the old key")
    ensure(accepted(agent, before), "an old token, after the rotation")
    newcomer = b.agent(instance=agent.instance)
    ensure(accepted(newcomer, before) and accepted(newcomer, after), "both, in a new process")
    b.desk.restart()
    ensure(accepted(newcomer, before) and accepted(newcomer, fired_token(agent, door)), "after a restart of the server")


# ── the dashboard ───────────────────────────────────────────────────────────

def ran(agent, count, timeout=20.0):
    wait_for(lambda: agent.runs() >= count, f"run {count} of the job's script", timeout)


@check
def a_fire_runs_the_job_and_the_agent_arms_the_next(b):
    agent = b.agent()
    agent.open_dashboard()
    job = agent.job("every 10m")["id"]
    for count in (1, 2):
        due = agent.good("jobs", "trigger_job", job_id=job)["next_run_at"]
        agent.good("fresh")
        agent.good("provider", "reconcile")
        same(agent.ended(job, due)["note"], "answered 202", "history")
        ran(agent, count)

        def next_armed():
            at = agent.armed().get(job)
            return at if at and at != due else None
        at = wait_for(next_armed, f"the next alarm; {agent.dashboard_log()}", 20)
        same(at, agent.jobs()[job]["next_run_at"], "the time of the next alarm")
        ahead = (datetime.fromisoformat(at) - datetime.now(timezone.utc)).total_seconds()
        ensure(540 < ahead <= 601, f"the next alarm is {ahead} s away")
        same(agent.runs(), count, "runs")
        # the claim has ended, so the next fire finds the job free
        wait_for(lambda: not agent.jobs()[job].get("fire_claim"), "the end of the run")


@check
def a_finished_job_leaves_nothing_armed(b):
    agent = b.agent()
    agent.open_dashboard()
    agent.jobs()  # its process runs from here on
    due = datetime.now(timezone.utc) + timedelta(seconds=5)
    once = agent.job(due.isoformat())["id"]
    agent.good("provider", "on_jobs_changed")
    same(agent.armed(), {once: due.isoformat()}, "armed")
    agent.ended(once)
    ran(agent, 1)
    ensure(datetime.now(timezone.utc) >= due, "the job ran before its time")
    last = agent.job("every 10m", repeat=1)["id"]
    agent.good("jobs", "trigger_job", job_id=last)
    agent.good("fresh")
    agent.good("provider", "reconcile")
    agent.ended(last)
    ran(agent, 2)
    wait_for(lambda: not wanted(agent), "the end of both jobs")
    wait_for(lambda: not agent.armed(), "nothing armed")
    same(agent.runs(), 2, "runs")


@check
def a_deleted_job_ends_the_alarm(b):
    agent = b.agent()
    agent.open_dashboard()
    agent.arm("gone", soon())
    past = agent.ended("gone")
    same((past["note"], past["attempts"]), ("answered 200", 1), "history")
    same(agent.armed(), {}, "armed")


@check
def a_stopped_dashboard_is_fired_when_it_is_back(b):
    agent = b.agent()
    job = agent.job("every 10m")["id"]
    agent.good("jobs", "trigger_job", job_id=job)
    tries = 'frontdesk_alarm_tries_total{why="failed"}'
    before = metric(b.desk, tries)
    agent.good("start")
    wait_for(lambda: metric(b.desk, tries) > before, "a failed try")
    same(sorted(agent.armed()), [job], "still armed")
    agent.open_dashboard()
    past = agent.ended(job, timeout=40)
    ensure(past["attempts"] > 1, f"history: {past}")
    ran(agent, 1)
    wait_for(lambda: list(agent.armed().values()) == [agent.jobs()[job]["next_run_at"]], "the next shot")
    # killed while it runs, and again
    agent.close_dashboard(signal.SIGKILL)
    agent.good("jobs", "trigger_job", job_id=job)
    agent.good("fresh")
    before = metric(b.desk, tries)
    agent.good("provider", "reconcile")
    wait_for(lambda: metric(b.desk, tries) > before, "a failed try")
    agent.open_dashboard()
    ran(agent, 2, 40)
    same(agent.runs(), 2, "runs")


@check
def a_dashboard_of_another_agent_runs_nothing(b):
    agent = b.agent(audience="agent:somebody-else")
    agent.open_dashboard()
    job = agent.job("every 10m")["id"]
    agent.good("jobs", "trigger_job", job_id=job)
    tries = 'frontdesk_alarm_tries_total{why="refused"}'
    before = metric(b.desk, tries)
    agent.good("start")
    wait_for(lambda: metric(b.desk, tries) > before, "a refused try")
    same((agent.runs(), sorted(agent.armed())), (0, [job]), "runs and armed alarms")
    agent.good("client", "cancel", job_id=job)


@check
def a_killed_server_fires_alarms_that_came_due_meanwhile(b):
    agent = b.agent()
    agent.open_dashboard()
    agent.jobs()  # its process runs from here on
    due = datetime.now(timezone.utc) + timedelta(seconds=10)
    job = agent.job(due.isoformat())["id"]
    agent.good("provider", "on_jobs_changed")
    b.desk.stop(signal.SIGKILL)
    wait_for(lambda: datetime.now(timezone.utc) > due, "its time")
    same(agent.runs(), 0, "runs while the server is down")
    b.desk.start()
    agent.ended(job)
    ran(agent, 1)


def metric(desk, name):
    status, text = request("GET", f"{desk.url}/metrics")
    same(status, 200, "metrics")
    line = next((line for line in text.splitlines() if line.startswith(name + " ")), None)
    return float(line.rsplit(" ", 1)[1]) if line else 0.0


class Stage:
    """One server, and separate agents for each check."""

    def __init__(self):
        self.desk = Desk("cron")

    def play(self, function):
        if self.desk.process.poll() is not None:
            self.desk.start()  # a failed check may have left it stopped
        bench = Bench(self.desk)
        try:
            function(bench)
        finally:
            bench.close()

    def tail(self):
        return ""

    def close(self):
        self.desk.stop()


if __name__ == "__main__":
    if sys.argv[1:] == ["--agent"]:
        serve_agent()
    else:
        sys.exit(check.run([("", Stage)]))
