"""The fake servers of Twilio and WhatsApp, driven by client libraries that others wrote: twilio and pywa.

  FRONTDESK_FAKE_TWILIO_BIN=path FRONTDESK_FAKE_WHATSAPP_BIN=path FRONTDESK_WHATSAPP_BODIES_BIN=path tests/vendors/phones.py

What our adapter sends to WhatsApp is also judged by Meta's published description, if it is there (FRONTDESK_SCHEMAS names its
folder). One line per check; the last line is the tally.
"""

import argparse
import contextlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import traceback
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import jsonschema
import pywa
import yaml
from pywa import errors, types
from twilio.base.exceptions import TwilioRestException
from twilio.http.http_client import TwilioHttpClient
from twilio.request_validator import RequestValidator
from twilio.rest import Client

sys.dont_write_bytecode = True
ANN, ANN_WA = "+15550001111", "15550001111"
LIMIT_S = 20
checks = []


class Failed(Exception):
    pass


def check(function):
    checks.append(function)
    return function


def same(seen, wanted, what):
    if seen != wanted:
        raise Failed(f"{what}: expected {wanted!r}, saw {seen!r}")


def refused(kind, function, probe):
    try:
        function()
    except kind as error:
        return probe(error)
    raise Failed("it was not refused")


class Fake:
    """A fake server as a program of its own."""

    def __init__(self, variable):
        self.process = subprocess.Popen([os.environ[variable]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.told = json.loads(self.process.stdout.readline())
        self.url = self.told["base_url"]

    def control(self, name, /, **body):
        call = urllib.request.Request(f"{self.url}/control/{name}", data=json.dumps(body).encode(), method="POST")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(call, timeout=LIMIT_S) as reply:
            return json.load(reply)["result"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(LIMIT_S)


class Webhook:
    """A server that keeps what it is sent, and gives out one file."""

    def __init__(self):
        self.requests = requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                requests.append((self.path, dict(self.headers.items()), body))
                self.answer(b"{}", "application/json")

            def do_GET(self):  # noqa: N802
                self.answer(b"a picture", "image/png")

            def answer(self, body, mime):
                self.send_response(200)
                self.send_header("Content-Type", mime)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class ToFake(TwilioHttpClient):
    """Twilio's client has its address built in."""

    def __init__(self, url):
        super().__init__()
        self.url = url
        self.session.trust_env = False

    def request(self, method, url, *args, **kwargs):
        return super().request(method, url.replace("https://api.twilio.com", self.url), *args, **kwargs)


class Scene:
    def __init__(self):
        self.twilio, self.whatsapp, self.webhook = Fake("FRONTDESK_FAKE_TWILIO_BIN"), Fake("FRONTDESK_FAKE_WHATSAPP_BIN"), Webhook()
        told = self.twilio.told
        self.number, self.auth_token = told["number"], told["auth_token"]
        self.sms = Client(told["account_sid"], told["auth_token"], http_client=ToFake(self.twilio.url))
        self.wa = self.client(self.whatsapp.told["access_token"])

    def client(self, token):
        told = self.whatsapp.told
        made = pywa.WhatsApp(told["phone_number_id"], token, session=httpx.Client(trust_env=False, timeout=LIMIT_S),
                             app_secret=told["app_secret"], verify_token="x", server=None)
        made.api._session.base_url = f"{self.whatsapp.url}/v23.0"
        return made

    def last(self):
        return self.whatsapp.control("sent")[-1]["message"]

    def close(self):
        self.twilio.close()
        self.whatsapp.close()


# ---- Twilio ------------------------------------------------------------------------------------


@check
def twilio_sends_a_text(s):
    sent = s.sms.messages.create(to=ANN, from_=s.number, body="Grüße 🧊", status_callback=f"{s.webhook.url}/status")
    same((sent.status, sent.to, sent.from_, sent.body, sent.direction), ("queued", ANN, s.number, "Grüße 🧊", "outbound-api"), "message")
    same((sent.num_media, sent.error_code, sent.sid[:2], len(sent.sid)), ("0", None, "SM", 34), "message")
    same(s.sms.messages(sent.sid).fetch().body, "Grüße 🧊", "the message that was fetched")
    same(sent.sid in [it.sid for it in s.sms.messages.list(limit=20)], True, "the list of messages")


@check
def twilio_sends_a_file(s):
    sent = s.sms.messages.create(to=ANN, from_=s.number, media_url=[f"{s.webhook.url}/a.png"])
    same((sent.num_media, sent.sid[:2]), ("1", "MM"), "message")
    same(s.twilio.control("sent")[-1]["files"], [[200, "a picture"]], "the file that was fetched")


@check
def twilio_refuses(s):
    for fields, code in [({"to": "nobody", "from_": s.number, "body": "x"}, 21211), ({"to": ANN, "from_": s.number}, 21602),
                         ({"to": ANN, "from_": s.number, "body": "x" * 1601}, 21617), ({"to": ANN, "from_": "+15550000000", "body": "x"}, 21606),
                         ({"to": ANN, "body": "x"}, 21603)]:
        same(refused(TwilioRestException, lambda: s.sms.messages.create(**fields), lambda e: (e.status, e.code)), (400, code), str(code))
    other = Client(s.twilio.told["account_sid"], "wrong", http_client=ToFake(s.twilio.url))
    same(refused(TwilioRestException, lambda: other.messages.create(to=ANN, from_=s.number, body="x"), lambda e: e.code), 20003, "token")
    same(refused(TwilioRestException, lambda: s.sms.messages("SM" + "0" * 32).fetch(), lambda e: e.status), 404, "no such message")


@check
def twilio_shows_the_account_and_its_numbers(s):
    same(s.sms.api.accounts(s.twilio.told["account_sid"]).fetch().status, "active", "account")
    found = s.sms.incoming_phone_numbers.list(phone_number=s.number)
    same([(it.phone_number, it.capabilities["sms"]) for it in found], [(s.number, True)], "numbers")


@check
def twilio_signs_webhooks(s):
    url = f"{s.webhook.url}/in?a=1&b=2"
    s.twilio.control("webhook", url=url)
    s.twilio.control("say", **{"from": ANN, "to": s.number, "body": "Grüße & mehr + 🧊", "files": [{"mime": "image/png", "content": "x"}]})
    sent = s.sms.messages.create(to=ANN, from_=s.number, body="x", status_callback=f"{s.webhook.url}/status?key=1.2.0")
    s.twilio.control("report", sid=sent.sid, status="undelivered", error=30003)
    for (path, headers, body), called in zip(s.webhook.requests[-2:], (url, f"{s.webhook.url}/status?key=1.2.0")):
        fields = {name: values[0] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
        genuine = RequestValidator(s.auth_token).validate(called, fields, headers["X-Twilio-Signature"])
        same(genuine, True, f"the library's verdict on {path}")
    same((fields["MessageStatus"], fields["ErrorCode"], fields["MessageSid"]), ("undelivered", "30003", sent.sid), "status")


@check
def twilio_keeps_to_stop(s):
    s.twilio.control("webhook", url=f"{s.webhook.url}/in")
    s.twilio.control("say", **{"from": "+15550002222", "to": s.number, "body": "STOP", "files": []})
    send = lambda: s.sms.messages.create(to="+15550002222", from_=s.number, body="x")  # noqa: E731
    same(refused(TwilioRestException, send, lambda e: e.code), 21610, "after STOP")
    s.twilio.control("say", **{"from": "+15550002222", "to": s.number, "body": "START", "files": []})
    same(send().status, "queued", "after START")


# ---- WhatsApp ----------------------------------------------------------------------------------


@check
def whatsapp_sends_texts_and_questions(s):
    sent = s.wa.send_message(to=ANN_WA, text="hello *you*")
    same(str(sent.id).startswith("wamid."), True, "the id of the message")
    same(s.last()["text"]["body"], "hello *you*", "text")
    s.wa.send_message(to=ANN_WA, text="Go?", buttons=[types.Button("Yes", callback_data="y"), types.Button("No", callback_data="n")])
    same(len(s.last()["interactive"]["action"]["buttons"]), 2, "buttons")
    rows = [types.SectionRow(title=f"Row {at}", callback_data=str(at)) for at in range(10)]
    s.wa.send_message(to=ANN_WA, text="Which?", buttons=types.SectionList("Open", sections=[types.Section(title="All", rows=rows)]))
    same(s.last()["interactive"]["type"], "list", "list")
    s.wa.send_reaction(to=ANN_WA, emoji="👍", message_id=sent.id)
    same(s.last()["reaction"]["emoji"], "👍", "reaction")


@check
def whatsapp_takes_and_gives_files(s):
    s.wa.send_image(to=ANN_WA, image=b"\x89PNG\r\n\x1a\nxyz", mime_type="image/png", caption="look")
    image = s.last()["image"]
    same(image["caption"], "look", "caption")
    found = s.wa.get_media_url(image["id"])
    same((found.mime_type, found.file_size), ("image/png", 11), "the file that was uploaded")
    same(s.wa.get_media_bytes(url=found.url), b"\x89PNG\r\n\x1a\nxyz", "its bytes")
    with contextlib.suppress(errors.WhatsAppError):
        s.wa.get_media_url("999")
        raise Failed("a file of nowhere")


@check
def whatsapp_refuses(s):
    code = lambda e: e.code  # noqa: E731
    s.whatsapp.control("close", person="15550009999")
    send = lambda: s.wa.send_message(to="15550009999", text="x")  # noqa: E731
    same(refused(errors.ReEngagementMessage, send, code), 131047, "after 24 hours")
    other = s.client("wrong")
    same(refused(errors.WhatsAppError, lambda: other.send_message(to=ANN_WA, text="x"), code), 190, "token")
    long = lambda: s.wa.send_message(to=ANN_WA, text="x" * 4097)  # noqa: E731
    same(refused(errors.WhatsAppError, long, code), 131009, "a long text")
    four = [types.Button(f"B{at}", callback_data=str(at)) for at in range(4)]
    same(refused(errors.WhatsAppError, lambda: s.wa.send_message(to=ANN_WA, text="?", buttons=four), code), 131009, "four buttons")


@check
def whatsapp_shows_the_number(s):
    number = s.wa.get_business_phone_number()
    same((number.id, number.verified_name), (s.whatsapp.told["phone_number_id"], "Fake"), "number")


@check
def whatsapp_signs_webhooks_that_the_library_reads(s):
    seen = []
    s.wa.on_message(lambda _, message: seen.append(("message", message.from_user.wa_id, message.from_user.name, message.text)))
    s.wa.on_callback_button(lambda _, press: seen.append(("press", press.data, press.title)))
    s.wa.on_message_status(lambda _, status: seen.append(("status", str(status.status.value), status.id, status.error and status.error.code)))
    s.whatsapp.control("webhook", url=f"{s.webhook.url}/wa")
    said = s.whatsapp.control("say", **{"from": ANN_WA, "name": "Ann", "content": {"type": "text", "text": {"body": "Grüße 🧊"}}})
    same(said["status"], 200, "the webhook")
    sent = s.wa.send_message(to=ANN_WA, text="Go?", buttons=[types.Button("Yes", callback_data="y")])
    press = {"type": "button_reply", "button_reply": {"id": "y", "title": "Yes"}}
    content = {"type": "interactive", "interactive": press, "context": {"from": "15559990000", "id": sent.id}}
    s.whatsapp.control("say", **{"from": ANN_WA, "name": "Ann", "content": content})
    s.whatsapp.control("report", id=sent.id, status="delivered")
    s.whatsapp.control("report", id=sent.id, status="failed", code=131026, title="Message undeliverable")
    for _, headers, body in s.webhook.requests[-4:]:
        same(s.wa.webhook_update_validator(body, headers["X-Hub-Signature-256"]), None, "the library's verdict on the signature")
        s.wa.webhook_update_handler(body)
    wanted = [("message", ANN_WA, "Ann", "Grüße 🧊"), ("press", "y", "Yes"), ("status", "delivered", sent.id, None),
              ("status", "failed", sent.id, 131026)]
    same(seen, wanted, "what the library's handlers saw")


# ---- what is sent, by Meta's own description -----------------------------------------------------


# Described by Meta in its documents, and in this description only for calls.
KNOWN_GAPS = {"biz_opaque_callback_data"}


def faults(components, examples, body):
    """Why a body is not as it is described. The description forbids in each part of a message what the other parts require, so
    that not even its examples pass: the parts are put together, and every field must be one of them."""
    if "status" in body:
        shaped = [it for it in examples if it.keys() == body.keys() and it["typing_indicator"].keys() == body["typing_indicator"].keys()]
        return [] if shaped else ["no example has these fields"]
    schemas = components["schemas"]
    resolved = lambda part: schemas[part["$ref"].rpartition("/")[2]] if "$ref" in part else part  # noqa: E731
    whole = resolved({"$ref": schemas["Message"]["discriminator"]["mapping"][body["type"]]})
    parts = [resolved(part) for part in whole.get("allOf", [whole])]
    known = set().union(*(part.get("properties", {}) for part in parts)) | KNOWN_GAPS
    found = [f"{name} is not known" for name in sorted(body.keys() - known)]
    for part in parts:
        schema = {**{name: value for name, value in part.items() if name != "additionalProperties"}, "components": components}
        errors_ = jsonschema.Draft202012Validator(schema).iter_errors(body)
        found += [f"{'/'.join(map(str, error.path))}: {error.message:.300}" for error in errors_]
    return found


@check
def what_is_sent_is_as_meta_describes_it(_):
    beside = Path(__file__).resolve().parents[3] / "shared" / "data" / "schemas"
    path = Path(os.environ.get("FRONTDESK_SCHEMAS") or beside) / "whatsapp-business-messaging-v23.yaml"
    if not path.is_file():
        print("    skipped: FRONTDESK_SCHEMAS names no folder with whatsapp-business-messaging-v23.yaml")
        return
    description = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    lines = subprocess.run([os.environ["FRONTDESK_WHATSAPP_BODIES_BIN"]], capture_output=True, timeout=LIMIT_S, check=True).stdout
    bodies = [json.loads(line) for line in lines.decode().splitlines()]
    post = description["paths"]["/{Version}/{Phone-Number-ID}/messages"]["post"]["requestBody"]["content"]["application/json"]
    examples = [example["value"] for example in post["examples"].values()]
    for body in bodies:
        same(faults(description["components"], examples, body), [], f"what Meta's description says about {json.dumps(body)}")
    kinds = {body.get("type", body.get("status")) for body in bodies}
    same(kinds, {"text", "read", "reaction", "interactive", "image", "video", "audio", "document", "template"}, "the kinds of bodies")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    scene, failed, passed = Scene(), 0, 0
    try:
        for function in checks:
            if not re.search(args.only, function.__name__):
                continue
            try:
                function(scene)
                passed += 1
                print(f"ok: {function.__name__}")
            except Exception as error:  # noqa: BLE001
                failed += 1
                text = str(error) if isinstance(error, Failed) else traceback.format_exc()
                print(f"FAILED: {function.__name__}: {text}")
    finally:
        scene.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
