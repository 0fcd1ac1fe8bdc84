"""The fake Feishu server, driven by the vendor's own client library: lark-oapi (client, dispatcher, persistent connection).

  FRONTDESK_FAKE_FEISHU_BIN=path/to/examples/fake_feishu tests/vendors/feishu.py [--only PATTERN]

One line per check; the last line is the tally.
"""

import argparse
import io
import json
import logging
import os
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import lark_oapi as lark
import lark_oapi.ws.client as ws
from lark_oapi.api.contact.v3 import GetUserRequest
from lark_oapi.api.im import v1 as im
from lark_oapi.core.model import RawRequest
from lark_oapi.core.token import TokenManager
from lark_oapi.event.callback.model.p2_card_action_trigger import P2CardActionTriggerResponse

sys.dont_write_bytecode = True
LIMIT_S = 20
APP, SECRET, TOKEN, KEY = "cli_a1", "secret-of-the-app", "verification-token", "encrypt-key"


class Failed(Exception):
    pass


def equal(found, wanted, what=""):
    if found != wanted:
        raise Failed(f"{what or 'it'} is {found!r}, not {wanted!r}")


class Fake:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.base_url = json.loads(self.process.stdout.readline())["base_url"]

    def control(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base_url}/control/{path}", data=data)
        with urllib.request.urlopen(request, timeout=70) as answer:
            return json.load(answer)["result"]

    def act(self, act, **fields):
        return self.control("act", {"act": act, **fields})

    def say(self, text, chat="oc_team", **more):
        return self.act("say", chat=chat, text=text, **{"from": "ou_ann"}, **more)["message_id"]

    def begin(self, **app):
        self.control("reset", {})
        self.act("set_app", id=APP, secret=SECRET, name="Desk", open_id="ou_me", verification_token=TOKEN, encrypt_key=KEY,
                 **{"ping_s": 1, **app})
        self.act("add_user", open_id="ou_ann", user_id="ann", union_id="on_ann", name="Ann")
        self.act("add_user", open_id="ou_bob", user_id="bob", union_id="on_bob", name="Bob")
        self.act("add_user", open_id="ou_eve", user_id="eve", union_id="on_eve", name="Eve")
        self.act("add_chat", id="oc_team", mode="group", name="Team", members=["ou_ann", "ou_bob", "ou_eve"])
        self.act("add_chat", id="oc_dm", mode="p2p", members=["ou_ann"])
        self.act("add_chat", id="oc_other", mode="group", has_bot=False, members=["ou_ann"])
        # The library keeps tokens for all clients of a process.
        TokenManager.cache.set(f"self_tenant_token:{APP}", "", 0)

    def client(self, secret=SECRET):
        return lark.Client.builder().app_id(APP).app_secret(secret).domain(self.base_url) \
            .log_level(lark.LogLevel.CRITICAL).build()

    def messages(self, chat="oc_team"):
        return self.control(f"messages?chat={chat}")

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def fine(response):
    if not response.success():
        raise Failed(f"refused: {response.code} {response.msg}")
    return getattr(response, "data", None)


def refused(response, code):
    equal((response.success(), response.code), (False, code), "the answer")


def create(client, content, chat="oc_team", msg_type="text", id_type="chat_id", mark=None):
    body = im.CreateMessageRequestBody.builder().receive_id(chat).msg_type(msg_type).content(json.dumps(content))
    if mark:
        body = body.uuid(mark)
    return client.im.v1.message.create(
        im.CreateMessageRequest.builder().receive_id_type(id_type).request_body(body.build()).build())


def reply(client, to, text, in_thread=False):
    body = im.ReplyMessageRequestBody.builder().msg_type("text").content(json.dumps({"text": text}))
    body = body.reply_in_thread(in_thread).build()
    return client.im.v1.message.reply(im.ReplyMessageRequest.builder().message_id(to).request_body(body).build())


def tokens_and_who_the_bot_is(fake):
    client = fake.client()
    request = lark.BaseRequest.builder().http_method(lark.HttpMethod.GET).uri("/open-apis/bot/v3/info") \
        .token_types({lark.AccessTokenType.TENANT}).build()
    response = json.loads(client.request(request).raw.content)
    equal((response["code"], response["bot"]["open_id"], response["bot"]["app_name"]), (0, "ou_me", "Desk"))
    fake.act("end_tokens")
    refused(create(client, {"text": "x"}), 99991663)
    TokenManager.cache.set(f"self_tenant_token:{APP}", "", 0)
    try:
        create(fake.client("wrong"), {"text": "x"})
    except lark.exception.ObtainAccessTokenException as error:
        equal(error.code, 10014)
    else:
        raise Failed("a wrong secret was taken")


def messages_are_sent_answered_changed_and_withdrawn(fake):
    client = fake.client()
    sent = fine(create(client, {"text": "hello"}, mark="m1"))
    equal(fine(create(client, {"text": "hello"}, mark="m1")).message_id, sent.message_id, "the same mark")
    answer = fine(reply(client, sent.message_id, "below"))
    equal((answer.parent_id, answer.root_id, answer.thread_id), (sent.message_id, sent.message_id, None))
    topic = fine(reply(client, sent.message_id, "topic", in_thread=True))
    equal(bool(topic.thread_id), True, "a topic")
    inside = fine(create(client, {"text": "inside"}, chat=topic.thread_id, id_type="thread_id"))
    equal((inside.thread_id, inside.chat_id), (topic.thread_id, "oc_team"))
    body = im.UpdateMessageRequestBody.builder().msg_type("post").content(
        json.dumps({"zh_cn": {"content": [[{"tag": "md", "text": "**new**"}]]}})).build()
    fine(client.im.v1.message.update(im.UpdateMessageRequest.builder().message_id(sent.message_id).request_body(body).build()))
    got = fine(client.im.v1.message.get(im.GetMessageRequest.builder().message_id(sent.message_id).build())).items[0]
    equal((got.msg_type, got.sender.id, got.sender.sender_type, got.updated), ("post", APP, "app", True))
    delete = im.DeleteMessageRequest.builder().message_id(sent.message_id).build()
    fine(client.im.v1.message.delete(delete))
    refused(client.im.v1.message.delete(delete), 230011)
    refused(reply(client, sent.message_id, "too late"), 230011)
    refused(create(client, {"text": "x"}, chat="oc_other"), 230002)
    refused(create(client, {"text": "x"}, msg_type="post"), 230001)
    refused(client.im.v1.message.delete(im.DeleteMessageRequest.builder().message_id(fake.say("mine")).build()), 230071)


def cards_are_changed(fake):
    client = fake.client()
    card = {"config": {"update_multi": True}, "elements": [{"tag": "markdown", "content": "one"}]}
    sent = fine(create(client, card, msg_type="interactive"))

    def patch(message_id, card):
        body = im.PatchMessageRequestBody.builder().content(json.dumps(card)).build()
        return client.im.v1.message.patch(im.PatchMessageRequest.builder().message_id(message_id).request_body(body).build())

    card["elements"][0]["content"] = "two"
    fine(patch(sent.message_id, card))
    equal(fake.messages()[-1]["content"]["elements"][0]["content"], "two")
    refused(patch(fine(create(client, {"text": "x"})).message_id, card), 230054)
    refused(create(client, {"elements": [{"tag": "markdown", "content": "x" * 31_000}]}, msg_type="interactive"), 230025)


def reactions_come_and_go(fake):
    client, said = fake.client(), fake.say("hello")
    emoji = im.Emoji.builder().emoji_type("THUMBSUP").build()
    body = im.CreateMessageReactionRequestBody.builder().reaction_type(emoji).build()
    made = fine(client.im.v1.message_reaction.create(
        im.CreateMessageReactionRequest.builder().message_id(said).request_body(body).build()))
    listed = fine(client.im.v1.message_reaction.list(
        im.ListMessageReactionRequest.builder().message_id(said).reaction_type("THUMBSUP").build())).items
    equal([(it.reaction_id, it.operator.operator_id) for it in listed], [(made.reaction_id, APP)])
    delete = im.DeleteMessageReactionRequest.builder().message_id(said).reaction_id(made.reaction_id).build()
    fine(client.im.v1.message_reaction.delete(delete))
    refused(client.im.v1.message_reaction.delete(delete), 231007)


def files_are_sent_and_fetched(fake):
    client = fake.client()
    image = im.CreateImageRequestBody.builder().image_type("message").image(io.BytesIO(b"picture")).build()
    key = fine(client.im.v1.image.create(im.CreateImageRequest.builder().request_body(image).build())).image_key
    sent = fine(create(client, {"image_key": key}, msg_type="image"))
    file = im.CreateFileRequestBody.builder().file_type("pdf").file_name("a.pdf").file(io.BytesIO(b"pdf")).build()
    file_key = fine(client.im.v1.file.create(im.CreateFileRequest.builder().request_body(file).build())).file_key
    fine(create(client, {"file_key": file_key}, msg_type="file"))
    refused(create(client, {"file_key": "file_none"}, msg_type="file"), 230017)

    def fetch(message, key, kind):
        request = im.GetMessageResourceRequest.builder().message_id(message).file_key(key).type(kind).build()
        return client.im.v1.message_resource.get(request)

    got = fetch(sent.message_id, key, "image")
    equal((got.success(), got.file.read()), (True, b"picture"))
    refused(fetch(sent.message_id, file_key, "file"), 234003)


def chats_members_and_people(fake):
    client = fake.client()
    chat = fine(client.im.v1.chat.get(im.GetChatRequest.builder().chat_id("oc_team").build()))
    equal((chat.name, chat.chat_mode, chat.chat_type), ("Team", "group", "private"))
    refused(client.im.v1.chat.get(im.GetChatRequest.builder().chat_id("oc_other").build()), 232011)
    found, page = [], None
    while True:
        builder = im.GetChatMembersRequest.builder().chat_id("oc_team").member_id_type("user_id")
        members = fine(client.im.v1.chat_members.get((builder.page_token(page) if page else builder).build()))
        found += [member.member_id for member in members.items]
        page = members.page_token
        if not members.has_more:
            break
    equal(found, ["ann", "bob", "eve"])
    user = fine(client.contact.v3.user.get(GetUserRequest.builder().user_id("on_ann").user_id_type("union_id").build()))
    equal((user.user.name, user.user.open_id), ("Ann", "ou_ann"))


def limits_are_told(fake):
    fake.control("faults", {"method": "POST im/v1/messages", "fault": "limited", "seconds": 7})
    answer = create(fake.client(), {"text": "x"})
    equal((answer.code, answer.raw.status_code, answer.raw.headers["x-ogw-ratelimit-reset"]), (99991400, 429, "7"))


class Sockets:
    """A persistent connection of the library, in its own thread."""

    def __init__(self, fake, answer=None):
        self.got = queue.Queue()

        def press(data):
            self.got.put(data)
            return P2CardActionTriggerResponse(answer or {})

        handler = lark.EventDispatcherHandler.builder("", "").register_p2_im_message_receive_v1(self.got.put) \
            .register_p2_card_action_trigger(press).build()
        self.client = ws.Client(APP, SECRET, event_handler=handler, domain=fake.base_url, log_level=lark.LogLevel.CRITICAL)
        self.task = None
        self.call(self.client._connect())
        self.pings = ws.asyncio.run_coroutine_threadsafe(self.client._ping_loop(), LOOP)

    def call(self, coroutine):
        return ws.asyncio.run_coroutine_threadsafe(coroutine, LOOP).result(LIMIT_S)

    def next(self):
        return self.got.get(timeout=LIMIT_S)

    def close(self):
        self.pings.cancel()
        self.client._auto_reconnect = False
        try:
            self.call(self.client._disconnect())
        except Exception:  # it may be closed already
            pass


# The library runs everything on one loop.
LOOP = ws.loop
threading.Thread(target=LOOP.run_forever, daemon=True).start()


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
        said = fake.say("@_user_1 hello", mentions=["ou_me"])
        event = sockets.next().event
        equal((event.message.message_id, event.message.chat_id, event.sender.sender_id.open_id), (said, "oc_team", "ou_ann"))
        equal((event.message.mentions[0].key, event.message.mentions[0].id.open_id), ("@_user_1", "ou_me"))
        until("an acknowledgement", lambda: fake.control("deliveries"))
        equal(fake.control("deliveries")[0]["status"], 200)
        equal(fake.control("state")["waiting"], 0)
    finally:
        sockets.close()


def long_events_come_in_parts(fake):
    fake.begin(part_bytes=100)
    sockets = Sockets(fake)
    try:
        said = fake.say("long " * 200)
        event = sockets.next().event
        equal((event.message.message_id, json.loads(event.message.content)["text"]), (said, "long " * 200))
    finally:
        sockets.close()


def pings_are_answered_with_the_settings(fake):
    sockets = Sockets(fake)
    try:
        fake.act("set_app", id=APP, secret=SECRET, ping_s=3)
        until("the new interval", lambda: sockets.client._ping_interval == 3)
    finally:
        sockets.close()


def what_is_not_acknowledged_comes_again(fake):
    silent = Sockets(fake)
    silent.client._write_message = lambda data: ws.asyncio.sleep(0)
    said = fake.say("hello")
    equal(silent.next().event.message.message_id, said)
    silent.close()
    sockets = Sockets(fake)
    try:
        equal(sockets.next().event.message.message_id, said)
        until("nothing waits", lambda: fake.control("state")["waiting"] == 0)
    finally:
        sockets.close()


def buttons_are_pressed(fake):
    button = {"tag": "button", "text": {"tag": "plain_text", "content": "Yes"}, "value": {"hp1": "yes"}}
    card = {"config": {"update_multi": True}, "elements": [{"tag": "action", "actions": [button]}]}
    sent = fine(create(fake.client(), card, msg_type="interactive")).message_id
    done = {"elements": [{"tag": "markdown", "content": "done"}]}
    sockets = Sockets(fake, {"toast": {"type": "success", "content": "ok"}, "card": {"type": "raw", "data": done}})
    try:
        fake.act("press", message=sent, token="yes", **{"from": "ou_ann"})
        event = sockets.next().event
        equal((event.action.value, event.context.open_message_id, event.operator.user_id), ({"hp1": "yes"}, sent, "ann"))
        answer = until("an answer", lambda: fake.control("deliveries"))[0]
        equal((answer["status"], answer["body"]["toast"]["content"]), (200, "ok"))
        equal(fake.messages()[-1]["content"], done)
    finally:
        sockets.close()


def a_wrong_secret_opens_no_socket(fake):
    client = ws.Client(APP, "wrong", domain=fake.base_url, log_level=lark.LogLevel.CRITICAL)
    try:
        client._get_conn_url()
    except ws.ClientException as error:
        equal(error.code, 514)
    else:
        raise Failed("a wrong secret was taken")


class Door:
    """Takes requests, and judges them by the dispatcher of the library."""

    def __init__(self, statuses):
        self.got, self.taken, left = [], [], list(statuses)
        handler = lark.EventDispatcherHandler.builder(KEY, TOKEN).register_p2_im_message_receive_v1(self.taken.append).build()
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                raw = RawRequest()
                raw.uri, raw.body = self.path, self.rfile.read(int(self.headers["content-length"]))
                raw.headers = dict(self.headers.items())
                answer = handler.do(raw)
                got.append((raw.body, answer.status_code))
                self.send_response(left.pop(0) if left else answer.status_code)
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}/door"


def requests_are_signed_encrypted_and_repeated(fake):
    door = Door([200, 503, 200])
    fake.begin(request_url=door.url)
    challenge = fake.act("challenge")["id"]
    answer = until("an answer", lambda: fake.control("deliveries"))[0]
    equal((answer["id"], answer["body"]), (challenge, {"challenge": "the-challenge"}))
    said = fake.say("hello")
    until("a repetition", lambda: len(door.got) == 3)
    equal([status for _, status in door.got], [200, 200, 200], "the verdicts of the library")
    equal([it.event.message.message_id for it in door.taken], [said, said])
    equal(b"hello" in door.got[1][0], False, "a text that can be read")
    door.server.shutdown()


CHECKS = (tokens_and_who_the_bot_is, messages_are_sent_answered_changed_and_withdrawn, cards_are_changed,
          reactions_come_and_go, files_are_sent_and_fetched, chats_members_and_people, limits_are_told, events_come_by_socket,
          long_events_come_in_parts, pings_are_answered_with_the_settings, what_is_not_acknowledged_comes_again,
          buttons_are_pressed, a_wrong_secret_opens_no_socket, requests_are_signed_encrypted_and_repeated)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    fake = Fake(os.environ["FRONTDESK_FAKE_FEISHU_BIN"])
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
    sys.stdout.flush()
    os._exit(1 if failures or not done else 0)  # the library's loop goes on


if __name__ == "__main__":
    main()
