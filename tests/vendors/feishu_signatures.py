"""Requests of Feishu: our verdicts against those of the vendor's library.

  FRONTDESK_FEISHU_SIGNATURE_BIN=path tests/vendors/feishu_signatures.py [--count N] [--seed S]

The program reads requests as JSON, one a line, and prints the payload of each that it takes, by the function of the door. N
events are encrypted and signed as the library does it, and each is spoiled in every way of the list: the library's dispatcher
and our door must take every good one, with the same payload, and refuse every bad one. What the library takes and we do not is
listed. One request is also spoiled in each of its bits. The last line is the tally.
"""

import argparse
import base64
import collections
import hashlib
import json
import logging
import os
import random
import subprocess
import sys

from Crypto.Cipher import AES
from lark_oapi.core.model import RawRequest
from lark_oapi.core.utils import AESCipher
from lark_oapi.event.dispatcher_handler import EventDispatcherHandler

sys.dont_write_bytecode = True
LIMIT_S = 300
NOW_S = 1_800_000_000
STAMP, NONCE, SIGNATURE = "x-lark-request-timestamp", "x-lark-request-nonce", "x-lark-signature"
KIND = "im.message.receive_v1"


def text_of(rng):
    alphabet = rng.choice(("abc 123", "äöü日本語🙂\u2028", "\"\\\n\t{}[]:,&=%+", "0123456789"))
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 40)))


def encrypted(rng, key, plain):
    iv, digest = rng.randbytes(16), hashlib.sha256(key.encode()).digest()
    pad = 16 - len(plain) % 16
    sealed = iv + AES.new(digest, AES.MODE_CBC, iv).encrypt(plain + bytes([pad]) * pad)
    if AESCipher(key).decrypt(sealed) != plain:
        sys.exit("the library does not read what was encrypted for it")
    return base64.b64encode(sealed).decode()


def signed(request, stamp, nonce):
    made = hashlib.sha256(f"{stamp}{nonce}{request['key']}".encode() + request["body"]).hexdigest()
    return {**request, "headers": [[STAMP, stamp], [NONCE, nonce], [SIGNATURE, made]]}


def payload_of(rng, token):
    header = {"event_id": text_of(rng), "event_type": KIND, "app_id": "cli_1", "token": token, "create_time": "1"}
    message = {"message_id": "om_1", "content": json.dumps({"text": text_of(rng)}), "message_type": "text"}
    return {"schema": "2.0", "header": header, "event": {"message": message, "sender": {"sender_type": "user"}}}


def made(rng, keys, payload=None, token=None):
    key, own = rng.choice(keys)
    payload = payload or payload_of(rng, own if token is None else token)
    plain = json.dumps(payload, ensure_ascii=rng.random() < 0.5).encode()
    body = {"encrypt": encrypted(rng, key, plain)}
    request = {"key": key, "token": own, "payload": payload, "body": json.dumps(body).encode()}
    stamp = str(NOW_S + rng.choice((0, -1, 1, -300, 300, rng.randint(-300, 300))))
    return signed(request, stamp, text_of(rng).encode("ascii", "ignore").decode().strip().replace("\n", "") or "n")


def value(request, name):
    return next(value for known, value in request["headers"] if known == name)


def with_header(request, name, new):
    return {**request, "headers": [[known, new if known == name else old] for known, old in request["headers"]]}


def with_bit_flipped(data, at):
    return bytes(byte ^ (1 << at % 8) if index == at // 8 else byte for index, byte in enumerate(data))


def other_body(rng, good, _):
    return {**good, "body": with_bit_flipped(good["body"], rng.randrange(len(good["body"]) * 8))}


def longer_body(rng, good, _):
    return {**good, "body": good["body"] + rng.choice((b" ", b"\n"))}


def shorter_body(_, good, __):
    return {**good, "body": good["body"][:-1]}


def other_signature(rng, good, _):
    digits = bytes.fromhex(value(good, SIGNATURE))
    return with_header(good, SIGNATURE, with_bit_flipped(digits, rng.randrange(256)).hex())


def cut_signature(rng, good, _):
    return with_header(good, SIGNATURE, value(good, SIGNATURE)[:rng.choice((0, 2, 10, 62))])


def other_time(rng, good, _):
    return with_header(good, STAMP, str(int(value(good, STAMP)) + rng.choice((-1, 1, 60, -60))))


def other_nonce(rng, good, _):
    return with_header(good, NONCE, value(good, NONCE) + rng.choice("abc"))


def other_key(rng, good, keys):
    key, token = rng.choice([pair for pair in keys if pair[0] != good["key"]])
    return {**good, "key": key, "token": token}


def wrong_token(rng, good, keys):
    """Encrypted and signed with the key, and with another token."""
    return made(rng, [(good["key"], good["token"])], token=rng.choice(("guess", good["token"] + "x", good["token"][:-1])))


def no_signature(_, good, __):
    return {**good, "headers": [pair for pair in good["headers"] if pair[0] != SIGNATURE]}


def not_encrypted_with_the_key(rng, good, keys):
    """Signed with the key, and encrypted with another one."""
    other = rng.choice([key for key, _ in keys if key != good["key"]])
    body = json.dumps({"encrypt": encrypted(rng, other, json.dumps(good["payload"]).encode())}).encode()
    return signed({**good, "body": body}, value(good, STAMP), value(good, NONCE))


SPOILS = (other_body, longer_body, shorter_body, other_signature, cut_signature, other_time, other_nonce, other_key,
          wrong_token, no_signature, not_encrypted_with_the_key)


# The library keeps no window of time.
def replayed(rng, good, _):
    return signed(good, str(NOW_S - 301 - rng.randint(0, 10**6)), value(good, NONCE))


def from_the_future(rng, good, _):
    return signed(good, str(NOW_S + 301 + rng.randint(0, 10**6)), value(good, NONCE))


STRICTER = (replayed, from_the_future)


def by_library(request):
    took = []
    builder = EventDispatcherHandler.builder(request["key"], request["token"])
    handler = builder.register_p2_im_message_receive_v1(took.append).build()
    raw = RawRequest()
    names = {STAMP: "X-Lark-Request-Timestamp", NONCE: "X-Lark-Request-Nonce", SIGNATURE: "X-Lark-Signature"}
    raw.uri, raw.body = "/", request["body"]
    raw.headers = {names[name]: value for name, value in request["headers"]}
    answer = handler.do(raw)
    return answer.status_code == 200 and (bool(took) or b"challenge" in answer.content)


def by_program(command, requests):
    def line(it):
        return json.dumps({"encrypt_key": it["key"], "verification_token": it["token"], "now_s": NOW_S,
                           "headers": it["headers"], "body": base64.b64encode(it["body"]).decode()})

    lines = "\n".join(map(line, requests)) + "\n"
    done = subprocess.run([command], input=lines.encode(), capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr.decode()[-2_000:]}")
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    command = os.environ["FRONTDESK_FEISHU_SIGNATURE_BIN"]
    rng = random.Random(args.seed)
    keys = [(rng.randbytes(16).hex(), rng.randbytes(12).hex()) for _ in range(16)]
    requests, wanted, kinds = [], [], []

    def add(request, is_good, kind):
        requests.append(request)
        wanted.append(is_good)
        kinds.append(kind)

    for number in range(args.count):
        good = made(rng, keys)
        add(good, True, "good")
        spoil = SPOILS[number % len(SPOILS)]
        bad = spoil(rng, good, keys)
        # A blank behind the object is still the object, and not what was signed.
        add(bad, False, spoil.__name__)
    for number in range(100):
        challenge = {"type": "url_verification", "challenge": text_of(rng), "token": None}
        key, token = keys[number % len(keys)]
        good = made(rng, [(key, token)], payload={**challenge, "token": token})
        add({**good, "headers": []}, True, "check of the address")
        bad = made(rng, [(key, token)], payload={**challenge, "token": "guess"})
        add({**bad, "headers": []}, False, "check of the address with another token")
    good = made(rng, keys)
    for at in range(len(good["body"]) * 8):
        add({**good, "body": with_bit_flipped(good["body"], at)}, False, "each bit of a body")
    for at in range(256):
        digits = bytes.fromhex(value(good, SIGNATURE))
        add(with_header(good, SIGNATURE, with_bit_flipped(digits, at).hex()), False, "each bit of a signature")
    ours = by_program(command, requests)
    if len(ours) != len(requests):
        sys.exit(f"{len(ours)} verdicts for {len(requests)} requests")
    theirs = [by_library(request) for request in requests]
    wrong = []
    for request, kind, want, our, their in zip(requests, kinds, wanted, ours, theirs):
        if not (want == (our is not None) == their) or (want and our != request["payload"]):
            wrong.append((kind, want, our is not None, their))
    for kind, want, our, their in wrong[:20]:
        print(f"{kind}: {'good' if want else 'bad'}, but we say {our} and lark-oapi {their}")
    stricter = [spoil(rng, made(rng, keys), keys) for spoil in STRICTER for _ in range(200)]
    doubled = [{**good, "headers": good["headers"] + [[name, value(good, name)]]} for name in (STAMP, NONCE, SIGNATURE)]
    accepted = sum(it is not None for it in by_program(command, stricter + doubled))
    counts = collections.Counter(kinds)
    print(", ".join(f"{kind} {count}" for kind, count in counts.items()))
    print(f"{len(requests) - len(wrong)} of {len(requests)} verdicts agree; {accepted} of {len(stricter + doubled)} old, early or "
          "doubled requests accepted")
    sys.exit(1 if wrong or accepted else 0)


if __name__ == "__main__":
    main()
