"""The fake server of WeCom's API, driven by wechatpy, a client library that others wrote.

  FRONTDESK_FAKE_WECOM_BIN=path tests/vendors/wecom.py [--only PATTERN]

What the fake sends to callbacks is opened by the library, too. One line per check; the last line is the tally.
"""

import argparse
import http.server
import io
import json
import os
import queue
import re
import subprocess
import sys
import threading
import traceback
import urllib.request
from urllib.parse import parse_qsl, urlsplit

import requests
from wechatpy.enterprise import WeChatClient, parse_message
from wechatpy.enterprise.crypto import WeChatCrypto
from wechatpy.exceptions import WeChatClientException

sys.dont_write_bytecode = True
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


def refused(function, code):
    try:
        function()
    except WeChatClientException as error:
        return same(error.errcode, code, "errcode")
    raise Failed("it was not refused")


class Fake:
    def __init__(self):
        command = [os.environ["FRONTDESK_FAKE_WECOM_BIN"]]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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


class Callback:
    """An app that opens what it is sent with the library."""

    def __init__(self, told):
        self.messages = messages = queue.Queue()
        crypto = WeChatCrypto(told["token"], told["aes_key"], told["corp_id"])

        class Handler(http.server.BaseHTTPRequestHandler):
            def signed(self):
                query = dict(parse_qsl(urlsplit(self.path).query))
                return query, (query["msg_signature"], query["timestamp"], query["nonce"])

            def do_GET(self):  # noqa: N802
                query, signed = self.signed()
                self.answer(crypto.check_signature(*signed, query["echostr"]).encode())

            def do_POST(self):  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages.put(parse_message(crypto.decrypt_message(body, *self.signed()[1])))
                self.answer(b"")

            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/wecom/app"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Scene:
    def __init__(self):
        self.fake = Fake()
        self.told = told = self.fake.told

        class Client(WeChatClient):
            API_BASE_URL = f"{told['base_url']}/cgi-bin/"

            def fetch_access_token(self):
                return self._fetch_access_token(f"{told['base_url']}/cgi-bin/gettoken",
                                                {"corpid": self.corp_id, "corpsecret": self.secret})

        self.client_class = Client
        self.client = Client(told["corp_id"], told["secret"], timeout=LIMIT_S)
        self.client._http.trust_env = False  # noqa: SLF001  no proxy to the loopback interface
        self.agent = told["agent_id"]

    def last(self):
        return self.fake.control("sent")[-1]


@check
def a_token_is_given_to_whoever_has_the_secret(s):
    s.client.fetch_access_token()
    for corp_id, secret, code in ((s.told["corp_id"], "other", 40001), ("ww-other", s.told["secret"], 40013)):
        other = s.client_class(corp_id, secret, timeout=LIMIT_S, auto_retry=False)
        other._http.trust_env = False  # noqa: SLF001
        refused(other.fetch_access_token, code)


@check
def texts_are_sent(s):
    answer = s.client.message.send_text(s.agent, "ann", "hello 你好 🙂")
    same(answer["errcode"], 0, "errcode")
    same((s.last()["to"], s.last()["message"]["text"]["content"], s.last()["id"]), ("ann", "hello 你好 🙂", answer["msgid"]), "message")
    s.client.message.send_markdown(s.agent, "ann", "**bold**")
    same(s.last()["message"]["markdown"]["content"], "**bold**", "markdown")


@check
def what_cannot_be_sent_is_refused(s):
    refused(lambda: s.client.message.send_text(s.agent, "ann", ""), 44004)
    refused(lambda: s.client.message.send_text(s.agent, "ann", "你" * 683), 45002)
    refused(lambda: s.client.message.send_text(s.agent + 1, "ann", "x"), 40056)
    refused(lambda: s.client.message.send_text(s.agent, "nobody", "x"), 81013)
    refused(lambda: s.client.message.send_image(s.agent, "ann", "absent"), 40007)
    refused(lambda: s.client.department.get(), 48002)


@check
def a_member_out_of_sight_is_named(s):
    s.fake.control("hide", member="eve")
    same(s.client.message.send_text(s.agent, "eve", "x").get("invaliduser"), "eve", "invaliduser")


@check
def an_expired_token_is_replaced_by_the_library(s):
    before = len([it for it in s.fake.control("calls") if it["path"] == "gettoken"])
    s.fake.control("expire")
    same(s.client.message.send_text(s.agent, "ann", "again")["errcode"], 0, "errcode")
    after = len([it for it in s.fake.control("calls") if it["path"] == "gettoken"])
    same(after - before, 1, "tokens that were asked for")


@check
def files_go_up_and_down(s):
    picture = io.BytesIO(b"\x89PNG a picture")
    picture.name = "a.png"
    uploaded = s.client.media.upload("image", picture)
    same(uploaded["type"], "image", "type")
    s.client.message.send_image(s.agent, "ann", uploaded["media_id"])
    same(s.last()["message"]["image"]["media_id"], uploaded["media_id"], "image")
    url = s.client.media.get_url(uploaded["media_id"]).replace("https://qyapi.weixin.qq.com", s.fake.url)
    session = requests.Session()
    session.trust_env = False
    found = session.get(url, timeout=LIMIT_S)
    same((found.content, "a.png" in found.headers["Content-disposition"]), (b"\x89PNG a picture", True), "file")
    same(session.get(url + "x", timeout=LIMIT_S).json()["errcode"], 40007, "an absent file")
    refused(lambda: s.client.media.upload("image", ("a.png", io.BytesIO(b"tiny"), "image/png")), 40006)
    refused(lambda: s.client.media.upload("hologram", ("a", io.BytesIO(b"long enough"), "image/png")), 40004)


@check
def the_app_shows_itself(s):
    shown = s.client.agent.get(s.agent)
    same((shown["name"], shown["close"]), ("Helper", 0), "app")
    refused(lambda: s.client.agent.get(7), 301002)


@check
def callbacks_are_opened_by_the_library(s):
    callback = Callback(s.told)
    s.fake.control("webhook", url=callback.url)
    checked = s.fake.control("check")
    same((checked["status"], checked["body"]), (200, checked["echo"]), "echo")
    for text in ("hello <b> & 你好 🙂", "]]> and more"):
        said = s.fake.control("say", **{"from": "ann", "text": text})
        message = callback.messages.get(timeout=LIMIT_S)
        same((said["status"], message.type, message.content), (200, "text", text), "text")
        same((str(message.id), message.source, message.target), (said["id"], "ann", s.told["corp_id"]), "ids")
        same(message.agent, s.agent, "app")
    media = s.fake.control("attach", mime="image/jpeg", filename="p.jpg", content="a picture")
    fields = f"<MsgType>image</MsgType><PicUrl>http://x</PicUrl><MediaId>{media}</MediaId><MsgId>1</MsgId>"
    same(s.fake.control("fields", **{"from": "ann", "fields": fields})["status"], 200, "status")
    message = callback.messages.get(timeout=LIMIT_S)
    same((message.type, message.media_id), ("image", media), "image")
    fields = "<MsgType>event</MsgType><Event>click</Event><EventKey>k</EventKey>"
    s.fake.control("fields", **{"from": "ann", "fields": fields})
    message = callback.messages.get(timeout=LIMIT_S)
    same((message.event, message.key), ("click", "k"), "event")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    scene, passed, failed = Scene(), 0, 0
    try:
        for function in checks:
            if not re.search(args.only, function.__name__):
                continue
            try:
                function(scene)
            except Exception as error:  # noqa: BLE001  each check has its own verdict
                failed += 1
                trace = "" if isinstance(error, Failed) else traceback.format_exc()
                print(f"FAILED: {function.__name__}: {error}\n{trace}")
            else:
                passed += 1
                print(f"ok: {function.__name__}")
    finally:
        scene.fake.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
