"""The fake Slack server, driven by the vendor's own client library: slack_sdk (WebClient, SocketModeClient).

  FRONTDESK_FAKE_SLACK_BIN=path/to/examples/fake_slack tests/vendors/slack.py [--only PATTERN]

One line per check; the last line is the tally.
"""

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.webhook import WebhookClient

sys.dont_write_bytecode = True
LIMIT_S = 20
TOKEN, APP_TOKEN, SIGNING = "xoxb-1-2-abc", "xapp-1-A1-abc", "8f742231b10e8888abcd99yyyzzz85a5"


class Failed(Exception):
    pass


def equal(found, wanted, what=""):
    if found != wanted:
        raise Failed(f"{what or 'it'} is {found!r}, not {wanted!r}")


class Fake:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.base_url = json.loads(self.process.stdout.readline())["base_url"]
        self.origin = self.base_url.removesuffix("/api")

    def control(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.origin}/control/{path}", data=data)
        with urllib.request.urlopen(request, timeout=70) as answer:
            return json.load(answer)["result"]

    def act(self, act, **fields):
        return self.control("act", {"act": act, **fields})

    def begin(self, request_url=""):
        self.control("reset", {})
        self.act("set_app", id="A1", app_token=APP_TOKEN, signing_secret=SIGNING, client_id="1.2", client_secret="s",
                 request_url=request_url)
        self.act("add_team", id="T1", token=TOKEN, bot_user="UBOT", installed=True)
        self.act("add_user", id="UANN", team="T1", name="Ann", display_name="Annie")
        for channel, kind in (("C1", "channel"), ("D1", "im"), ("G1", "group")):
            self.act("add_channel", id=channel, team="T1", name=channel.lower(), kind=kind, members=["UBOT", "UANN"])

    def client(self, token=TOKEN):
        return WebClient(token=token, base_url=self.base_url + "/", timeout=10)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def refused(call, error):
    try:
        call()
    except SlackApiError as refusal:
        return equal(refusal.response["error"], error, "the error")
    raise Failed(f"it succeeded, and {error} was expected")


def who_the_bot_is(fake):
    response = fake.client().auth_test()
    equal((response["user_id"], response["team_id"], response["bot_id"]), ("UBOT", "T1", "BBOT"))
    refused(lambda: fake.client("xoxb-wrong").auth_test(), "invalid_auth")
    equal(fake.client().users_info(user="UANN")["user"]["profile"]["display_name"], "Annie")
    refused(lambda: fake.client().users_info(user="UX"), "user_not_found")


def messages_are_sent_changed_and_deleted(fake):
    client = fake.client()
    sent = client.chat_postMessage(channel="C1", text="hello")
    thread = client.chat_postMessage(channel="C1", text="below", thread_ts=sent["ts"])
    equal(thread["message"]["thread_ts"], sent["ts"])
    equal([it["text"] for it in client.conversations_replies(channel="C1", ts=sent["ts"])["messages"]], ["hello", "below"])
    equal(client.chat_update(channel="C1", ts=sent["ts"], text="hi")["text"], "hi")
    client.chat_delete(channel="C1", ts=sent["ts"])
    refused(lambda: client.chat_delete(channel="C1", ts=sent["ts"]), "message_not_found")
    refused(lambda: client.chat_postMessage(channel="CX", text="x"), "channel_not_found")
    refused(lambda: client.chat_postMessage(channel="C1", text="x" * 40_001), "msg_too_long")
    equal([it["text"] for it in fake.control("messages?channel=C1")], ["below"])


def reactions_are_idempotent_errors(fake):
    client = fake.client()
    ts = client.chat_postMessage(channel="C1", text="x")["ts"]
    client.reactions_add(channel="C1", timestamp=ts, name="eyes")
    refused(lambda: client.reactions_add(channel="C1", timestamp=ts, name="eyes"), "already_reacted")
    client.reactions_remove(channel="C1", timestamp=ts, name="eyes")
    refused(lambda: client.reactions_remove(channel="C1", timestamp=ts, name="eyes"), "no_reaction")


def places_and_members(fake):
    client = fake.client()
    channel = client.conversations_info(channel="C1")["channel"]
    equal((channel["is_channel"], channel["is_im"], channel["name"]), (True, False, "c1"))
    equal(client.conversations_info(channel="D1")["channel"]["user"], "UANN")
    first = client.conversations_members(channel="C1", limit=1)
    equal((first["members"], bool(first["response_metadata"]["next_cursor"])), (["UBOT"], True))
    # The library reads all pages by itself.
    equal([member for page in client.conversations_members(channel="C1", limit=1) for member in page["members"]],
          ["UBOT", "UANN"])


def files_by_the_external_upload(fake):
    client = fake.client()
    done = client.files_upload_v2(channel="C1", content="some text", filename="a.txt", title="A", initial_comment="see")
    info = client.files_info(file=done["file"]["id"])["file"]
    request = urllib.request.Request(info["url_private_download"], headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        equal((answer.read(), answer.headers["content-type"]), (b"some text", "text/plain"))
    with urllib.request.urlopen(info["url_private_download"], timeout=10) as answer:
        equal(answer.headers["content-type"].split(";")[0], "text/html", "without a token: the type")
    message = fake.control("messages?channel=C1")[-1]
    equal((message["text"], message["files"][0]["name"]), ("see", "a.txt"))
    equal(info["shares"]["public"]["C1"][0]["ts"], message["ts"])


def status_lines(fake):
    client = fake.client()
    ts = client.chat_postMessage(channel="C1", text="x")["ts"]
    client.assistant_threads_setStatus(channel_id="C1", thread_ts=ts, status="is typing...")


def limits_are_told(fake):
    fake.control("faults", {"method": "chat.postMessage", "fault": "retry_after", "seconds": 7})
    try:
        fake.client().chat_postMessage(channel="C1", text="x")
    except SlackApiError as refusal:
        equal((refusal.response.status_code, refusal.response.headers["retry-after"]), (429, "7"))
    else:
        raise Failed("it was not limited")


class Sockets:
    """A client of Socket Mode that keeps what it gets."""

    def __init__(self, fake, answers=True):
        self.got = queue.Queue()
        self.client = SocketModeClient(app_token=APP_TOKEN, web_client=fake.client(), ping_interval=5)

        def listener(client, request):
            self.got.put(request)
            if answers:
                payload = {"text": "taken"} if request.type == "slash_commands" else None
                client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id, payload=payload))

        self.client.socket_mode_request_listeners.append(listener)
        self.client.connect()

    def next(self):
        return self.got.get(timeout=LIMIT_S)

    def close(self):
        self.client.close()


def until(what, probe):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if found := probe():
            return found
        time.sleep(0.05)
    raise Failed(f"not seen: {what}")


def events_come_by_socket(fake):
    sockets = Sockets(fake)
    try:
        said = fake.act("say", channel="C1", **{"from": "UANN"}, text="<@UBOT> hello")
        kinds = []
        for _ in range(2):
            request = sockets.next()
            event = request.payload["event"]
            equal((request.type, event["text"], event["ts"]), ("events_api", "<@UBOT> hello", said["ts"]))
            kinds.append(event["type"])
        equal(sorted(kinds), ["app_mention", "message"])
        fake.act("command", channel="C1", **{"from": "UANN"}, command="/model", text="x")
        request = sockets.next()
        equal((request.type, request.payload["command"], request.accepts_response_payload), ("slash_commands", "/model", True))
        answers = until("three acknowledgements", lambda: [it for it in [fake.control("deliveries")] if len(it) == 3])[0]
        # The library answers from several threads, in any order.
        equal([it["body"] for it in answers if it["body"] is not None], [{"text": "taken"}])
        answer = WebhookClient(request.payload["response_url"]).send(text="done", response_type="in_channel")
        equal((answer.status_code, fake.control("responses")[0]["body"]["text"]), (200, "done"))
    finally:
        sockets.close()


def what_is_not_acknowledged_comes_again(fake):
    silent = Sockets(fake, answers=False)
    fake.act("say", channel="D1", **{"from": "UANN"}, text="hello")
    first = silent.next()
    silent.close()
    sockets = Sockets(fake)
    try:
        again = sockets.next()
        equal((again.envelope_id, again.retry_attempt), (first.envelope_id, 1))
        until("nothing waits", lambda: fake.control("state")["waiting"] == 0)
    finally:
        sockets.close()


def sockets_are_replaced(fake):
    sockets = Sockets(fake)
    try:
        until("a socket", lambda: fake.control("state")["sockets"] == 1)
        fake.act("disconnect", reason="warning")
        until("calls for a second one", lambda: len(fake.control("calls?method=apps.connections.open")) >= 2)
        fake.act("say", channel="D1", **{"from": "UANN"}, text="after it")
        equal(sockets.next().payload["event"]["text"], "after it")
    finally:
        sockets.close()


def buttons_are_pressed(fake):
    client = fake.client()
    elements = [{"type": "button", "action_id": "a", "value": "yes", "text": {"type": "plain_text", "text": "Yes"}}]
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "Sure?"}}, {"type": "actions", "elements": elements}]
    ts = client.chat_postMessage(channel="C1", text="Sure?", blocks=blocks)["ts"]
    refused(lambda: client.chat_postMessage(channel="C1", text="x", blocks=[{"type": "actions", "elements": []}]),
            "invalid_blocks")
    sockets = Sockets(fake)
    try:
        fake.act("press", channel="C1", **{"from": "UANN"}, ts=ts, value="yes")
        payload = sockets.next().payload
        equal((payload["type"], payload["actions"][0]["value"], payload["container"]["message_ts"]), ("block_actions", "yes", ts))
        WebhookClient(payload["response_url"]).send(text="Yes it is", replace_original=True)
        equal(fake.control("messages?channel=C1")[-1]["text"], "Yes it is")
    finally:
        sockets.close()


class Door:
    """Takes requests, and judges their signatures by the library."""

    def __init__(self, statuses):
        self.got, verifier = [], SignatureVerifier(SIGNING)
        got, left = self.got, list(statuses)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                got.append((self.path, headers, body, verifier.is_valid_request(body, headers)))
                self.send_response(left.pop(0) if left else 200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"


def requests_are_signed_and_repeated(fake):
    door = Door([503, 200])
    fake.begin(request_url=door.url)
    fake.act("say", channel="D1", **{"from": "UANN"}, text="hello")
    until("a repetition", lambda: len(door.got) == 2)
    fake.act("command", channel="C1", **{"from": "UANN"}, command="/x", text="a & b")
    until("a command", lambda: len(door.got) == 3)
    equal([path for path, *_ in door.got], ["/events", "/events", "/commands"])
    equal([is_valid for *_, is_valid in door.got], [True, True, True], "the verdicts")
    equal(door.got[0][2], door.got[1][2], "the repeated body")
    equal(door.got[1][1].get("x-slack-retry-num"), "1")
    door.server.shutdown()


def workspaces_install_the_app(fake):
    fake.act("add_team", id="T2", token="xoxb-2", bot_user="UBOT2")
    refused(lambda: fake.client("xoxb-2").auth_test(), "invalid_auth")
    code = fake.act("agree", team="T2")["code"]
    granted = WebClient(base_url=fake.base_url + "/").oauth_v2_access(client_id="1.2", client_secret="s", code=code)
    equal((granted["access_token"], granted["team"]["id"]), ("xoxb-2", "T2"))
    equal(fake.client("xoxb-2").auth_test()["team_id"], "T2")
    refused(lambda: fake.client("xoxb-2").conversations_info(channel="C1"), "channel_not_found")


CHECKS = (who_the_bot_is, messages_are_sent_changed_and_deleted, reactions_are_idempotent_errors, places_and_members,
          files_by_the_external_upload, status_lines, limits_are_told, events_come_by_socket,
          what_is_not_acknowledged_comes_again, sockets_are_replaced, buttons_are_pressed, requests_are_signed_and_repeated,
          workspaces_install_the_app)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    fake = Fake(os.environ["FRONTDESK_FAKE_SLACK_BIN"])
    failures = done = 0
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        if not re.search(args.only, name):
            continue
        done += 1
        try:
            fake.begin()
            check(fake)
            print(f"ok    {name}", flush=True)
        except Exception as error:  # each check stands for itself
            failures += 1
            print(f"FAIL  {name}: {type(error).__name__}: {error}", flush=True)
    fake.close()
    print(f"{done - failures} of {done} checks passed")
    sys.exit(1 if failures or not done else 0)


if __name__ == "__main__":
    main()
