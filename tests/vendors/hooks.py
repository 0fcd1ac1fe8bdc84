"""Signed webhooks against the scheme's own library: what it signs is accepted, what it would refuse is refused.

  FRONTDESK_BIN=path/to/frontdesk tests/vendors/hooks.py [--only PATTERN]

One line per check; the last line is the tally.
"""

import base64
import datetime
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hermes"))

from harness import Checks, Desk, ensure, request, same  # noqa: E402
from standardwebhooks.webhooks import Webhook, WebhookVerificationError  # noqa: E402

check = Checks()


class Scene:
    def __init__(self):
        self.desk = Desk("hooks")
        self.tenant = self.desk.tenant("hooked")
        self.key = "whsec_" + base64.b64encode(os.urandom(32)).decode()
        self.library = Webhook(self.key)
        self.desk.admin("POST", "/bots", {"platform": "hooks", "id": "builds", "tenant": self.tenant.name,
                                          "secrets": {"key": self.key}})
        ask = {"gatewayId": "ann", "platform": "relay", "instanceId": "ann"}
        status, reply = request("POST", f"{self.desk.url}/relay/provision", ask, self.tenant.identity)
        ensure(status == 200, f"provision: {status} {reply}")
        self.tenant.bind("builds", "ann", platform="hooks")

    def play(self, function):
        function(self)

    def tail(self):
        return "\n    " + self.desk.log_tail()

    def close(self):
        self.desk.stop()

    def headers(self, ident, body, key=None, age_s=0):
        """As the library signs."""
        when = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=age_s)
        signature = (Webhook(key) if key else self.library).sign(ident, when, body)
        return {"webhook-id": ident, "webhook-timestamp": str(int(when.timestamp())), "webhook-signature": signature}

    def post(self, headers, body):
        call = urllib.request.Request(f"{self.desk.url}/hooks/builds", data=body.encode(), method="POST", headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(call, timeout=15) as reply:
                return reply.status
        except urllib.error.HTTPError as exc:
            return exc.code

    def believed_by_library(self, headers, body):
        try:
            self.library.verify(body, headers)
            return True
        except WebhookVerificationError:
            return False

    def agree(self, headers, body, what):
        ours, theirs = self.post(headers, body), self.believed_by_library(headers, body)
        same((ours == 202), theirs, f"{what}: the server answered {ours}, the library says {theirs}")
        return theirs


@check
def what_the_library_signs_is_accepted(s):
    for number, body in enumerate(['{"a":1}', '{"text":"Grüße 🧊"}', "[]", '"a text"', '{"a": "' + "x" * 60_000 + '"}']):
        headers = s.headers(f"msg_{number}", body)
        ensure(s.agree(headers, body, f"body {number}"), f"the library does not believe its own signature of {body[:40]!r}")


@check
def what_the_library_refuses_is_refused(s):
    body = '{"a":1}'
    good = s.headers("msg_good", body)
    other = "whsec_" + base64.b64encode(b"another key").decode()
    cases = {
        "another key": (s.headers("msg_a", body, key=other), body),
        "another body": (good, body + " "),
        "another id": ({**good, "webhook-id": "msg_b"}, body),
        "another time": ({**good, "webhook-timestamp": str(int(good["webhook-timestamp"]) + 1)}, body),
        "too old": (s.headers("msg_c", body, age_s=600), body),
        "in the future": (s.headers("msg_d", body, age_s=-600), body),
        "no signature": ({**good, "webhook-signature": ""}, body),
        "unknown version": ({**good, "webhook-signature": good["webhook-signature"].replace("v1,", "v1a,")}, body),
        "no time": ({**good, "webhook-timestamp": "now"}, body),
    }
    for what, (headers, sent) in cases.items():
        ensure(not s.agree(headers, sent, what), f"{what}: the library believed it")
    for missing in good:
        rest = {name: value for name, value in good.items() if name != missing}
        ensure(not s.agree(rest, body, f"without {missing}"), f"without {missing}: the library believed it")


@check
def one_of_several_signatures_is_enough(s):
    body = '{"a":2}'
    good = s.headers("msg_many", body)
    other = s.headers("msg_many", body, key="whsec_" + base64.b64encode(b"old key").decode())["webhook-signature"]
    headers = {**good, "webhook-signature": f"v1a,zzz {other} {good['webhook-signature']}"}
    ensure(s.agree(headers, body, "several signatures"), "the library did not believe it")


@check
def each_message_is_stored_once(s):
    rows = s.desk.admin("GET", f"/instances/ann/mail?tenant={s.tenant.name}")["mail"]
    ids = sorted(row["message_id"] for row in rows if row["platform"] == "hooks")
    same(ids, sorted([f"msg_{number}" for number in range(5)] + ["msg_many"]), "the stored webhooks")


if __name__ == "__main__":
    sys.exit(check.run([("1.1.0", Scene)], environment="vendors"))
