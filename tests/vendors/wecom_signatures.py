"""Callbacks of WeCom: our verdicts on requests that others sealed and signed, good ones and spoiled ones.

  FRONTDESK_WECOM_SIGNATURE_BIN=path FRONTDESK_NODE_MODULES=path tests/vendors/wecom_signatures.py [--count N] [--seed S]

The program reads requests as JSON, one a line, and answers as the door does. N requests are made by wechatpy and N by
@wecom/crypto (through wecom_sign.mjs); each is spoiled in one way. Every good one must be taken, with the text that was sealed;
every spoiled one must be refused. wechatpy judges them too, apart from what it does not look at. The last line is the tally.
"""

import argparse
import base64
import collections
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from wechatpy.enterprise.crypto import WeChatCrypto

sys.dont_write_bytecode = True
here = Path(__file__).resolve().parent
LIMIT_S = 600
NOW_S = 1_700_000_000
AGENT = "1000002"


def signature_of(token, timestamp, nonce, sealed):
    return hashlib.sha1("".join(sorted((token, timestamp, nonce, sealed))).encode()).hexdigest()


def text_of(rng):
    alphabet = rng.choice(("abc 123", "äöüé日本語🙂你好", "\"\\\n\t{}[]:,&=+%<>", "0123456789"))
    return "x" + "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 60))) + "x"


def cdata(text):
    return "<![CDATA[" + text.replace("]]>", "]]]]><![CDATA[>") + "]]>"


def account_of(rng):
    key = base64.b64encode(rng.randbytes(32)).decode().rstrip("=")
    # The last character holds two bits that belong to nothing.
    key = key[:-1] + rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") if rng.random() < 0.5 else key
    token = "".join(rng.choice("abcXYZ0189") for _ in range(rng.randint(3, 32)))
    return {"token": token, "aes_key": key, "corp_id": f"ww{rng.getrandbits(64):016x}"}


def spec_of(rng, accounts):
    account, number = rng.choice(accounts), rng.getrandbits(60)
    stamp, nonce = NOW_S + rng.randint(-300, 300), str(rng.getrandbits(32))
    is_echo = rng.random() < 0.2
    text = str(number) if is_echo else text_of(rng)
    inner = text if is_echo else (
        f"<xml><ToUserName><![CDATA[{account['corp_id']}]]></ToUserName><FromUserName><![CDATA[ann]]></FromUserName>"
        f"<CreateTime>{stamp}</CreateTime><MsgType><![CDATA[text]]></MsgType><Content>{cdata(text)}</Content>"
        f"<MsgId>{number}</MsgId><AgentID>{AGENT}</AgentID></xml>")
    return {**account, "timestamp": str(stamp), "nonce": nonce, "inner": inner, "text": text, "id": str(number), "is_echo": is_echo}


def by_wechatpy(specs):
    made = []
    for it in specs:
        crypto = WeChatCrypto(it["token"], it["aes_key"], it["corp_id"])
        # The library signs a whole answer, which has the form of a request.
        whole = crypto.encrypt_message(it["inner"], it["nonce"], it["timestamp"])
        sealed = whole.split("<Encrypt><![CDATA[")[1].split("]]>")[0]
        signature = whole.split("<MsgSignature><![CDATA[")[1].split("]]>")[0]
        made.append({**it, "sealed": sealed, "signature": signature})
    return made


def by_node(specs):
    lines = "".join(json.dumps(it) + "\n" for it in specs).encode()
    done = subprocess.run(["node", str(here / "wecom_sign.mjs")], input=lines, capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"wecom_sign.mjs: {done.stderr.decode()[-2_000:]}")
    signed = [json.loads(line) for line in done.stdout.decode().splitlines()]
    return [{**it, **other} for it, other in zip(specs, signed, strict=True)]


def request_of(made, sealed=None, body=None, query=None, now_s=NOW_S):
    """As it comes over HTTP."""
    sealed = made["sealed"] if sealed is None else sealed
    fields = [("msg_signature", made["signature"]), ("timestamp", made["timestamp"]), ("nonce", made["nonce"])]
    if made["is_echo"] and body is None:
        fields.append(("echostr", sealed))
        body = ""
    if body is None:
        body = (f"<xml><ToUserName><![CDATA[{made['corp_id']}]]></ToUserName><Encrypt><![CDATA[{sealed}]]></Encrypt>"
                f"<AgentID><![CDATA[{AGENT}]]></AgentID></xml>")
    return {"token": made["token"], "aes_key": made["aes_key"], "corp_id": made["corp_id"], "now_s": now_s, "body": body,
            "query": urlencode(fields) if query is None else query(fields)}


# ---- ways to spoil one -------------------------------------------------------------------------


def with_bit_flipped(rng, text):
    """One bit of an ASCII text, so that it can still be in a query and in XML."""
    while True:
        at, bit = rng.randrange(len(text)), rng.randrange(7)
        turned = chr(ord(text[at]) ^ (1 << bit))
        if turned.isprintable() and turned not in "<>&]'\" ":
            return text[:at] + turned + text[at + 1:]


def resigned(made, sealed):
    """Sealed by somebody who knows the token."""
    return {**made, "sealed": sealed, "signature": signature_of(made["token"], made["timestamp"], made["nonce"], sealed)}


def sealed_by_hand(made, plain, key=None):
    key = key or base64.b64decode(made["aes_key"] + "=")
    encryptor = Cipher(algorithms.AES(key), modes.CBC(key[:16])).encryptor()
    return base64.b64encode(encryptor.update(plain) + encryptor.finalize()).decode()


def plain_of(made, length=None, corp_id=None, pad=None):
    inner = made["inner"].encode()
    plain = b"0123456789abcdef" + struct.pack(">I", len(inner) if length is None else length) + inner
    plain += (corp_id or made["corp_id"]).encode()
    count = 32 - len(plain) % 32
    return plain + bytes([count] * count if pad is None else pad(count))


def sealed_bit(rng, made, _):
    return request_of(made, sealed=with_bit_flipped(rng, made["sealed"]))


def signature_bit(rng, made, _):
    return request_of({**made, "signature": with_bit_flipped(rng, made["signature"])})


def other_timestamp(rng, made, _):
    return request_of({**made, "timestamp": str(int(made["timestamp"]) + rng.choice((-1, 1)))})


def other_nonce(rng, made, _):
    return request_of({**made, "nonce": with_bit_flipped(rng, made["nonce"])})


def moved_border(_, made, __):
    """The same characters, with the border between time and nonce elsewhere."""
    return request_of({**made, "timestamp": made["timestamp"] + made["nonce"][:1], "nonce": made["nonce"][1:] or "0"})


def other_token(rng, made, accounts):
    return request_of({**made, "token": rng.choice([it["token"] for it in accounts if it["token"] != made["token"]])})


def other_key(rng, made, accounts):
    return request_of({**made, "aes_key": rng.choice([it["aes_key"] for it in accounts if it["aes_key"] != made["aes_key"]])})


def other_corp(rng, made, accounts):
    return request_of({**made, "corp_id": rng.choice([it["corp_id"] for it in accounts if it["corp_id"] != made["corp_id"]])})


def sealed_for_other_corp(_, made, __):
    return request_of(resigned(made, sealed_by_hand(made, plain_of(made, corp_id="ww-other"))))


def corp_with_more(_, made, __):
    return request_of(resigned(made, sealed_by_hand(made, plain_of(made, corp_id=made["corp_id"] + "x"))))


def wrong_length(rng, made, _):
    length = rng.choice((len(made["inner"].encode()) + 1, len(made["inner"].encode()) - 1, 0, 2**32 - 1, 2**31))
    return request_of(resigned(made, sealed_by_hand(made, plain_of(made, length=length))))


def wrong_padding(rng, made, _):
    pad = rng.choice((lambda count: [count] * (count - 1) + [0], lambda count: [count] * (count - 1) + [33],
                      lambda count: [count ^ 1] * (count - 1) + [count] if count > 1 else [255]))
    return request_of(resigned(made, sealed_by_hand(made, plain_of(made, pad=pad))))


def cut_seal(rng, made, _):
    raw = base64.b64decode(made["sealed"])
    return request_of(resigned(made, base64.b64encode(raw[:-rng.choice((1, 15, 16, 32))]).decode()))


def no_base64(rng, made, _):
    return request_of(resigned(made, rng.choice((made["sealed"].rstrip("=")[:-1] + "*", made["sealed"] + "A", "%"))))


def late_replay(rng, made, _):
    return request_of(made, now_s=int(made["timestamp"]) + rng.choice((301, 3_600, 86_400)))


def from_the_future(_, made, __):
    return request_of(made, now_s=int(made["timestamp"]) - 301)


def large_digits(_, made, __):
    turned = made["signature"].upper()
    return request_of({**made, "signature": turned if turned != made["signature"] else "0" * 40})


def parameter_twice(rng, made, _):
    return request_of(made, query=lambda fields: urlencode(fields + [rng.choice(fields[:3])]))


def parameter_missing(rng, made, _):
    gone = rng.choice(("msg_signature", "timestamp", "nonce"))
    return request_of(made, query=lambda fields: urlencode([it for it in fields if it[0] != gone]))


def signature_of_another(rng, made, _):
    return request_of({**made, "signature": signature_of(made["token"], made["timestamp"], made["nonce"], "another")})


def two_seals(_, made, __):
    seal = f"<Encrypt>{made['sealed']}</Encrypt>"
    return request_of(made, body=f"<xml>{seal}{seal}</xml>")


def with_document_type(_, made, __):
    return request_of(made, body=f"<!DOCTYPE xml [<!ENTITY e \"{made['sealed']}\">]><xml><Encrypt>&e;</Encrypt></xml>")


def other_agent(_, made, __):
    if made["is_echo"]:
        return request_of({**made, "nonce": made["nonce"] + "1"})
    inner = {**made, "inner": made["inner"].replace(AGENT, "1000003")}
    return request_of(resigned(made, sealed_by_hand(made, plain_of(inner))))


SPOILS = (sealed_bit, signature_bit, other_timestamp, other_nonce, moved_border, other_token, other_key, other_corp,
          sealed_for_other_corp, corp_with_more, wrong_length, wrong_padding, cut_seal, no_base64, late_replay, from_the_future,
          large_digits, parameter_twice, parameter_missing, signature_of_another, two_seals, with_document_type, other_agent)
# wechatpy looks neither at the time (with which a moved border is a time far away) nor at padding and length, reads the last of
# two parameters, expands entities, and is not told the id of the app.
NOT_JUDGED = {"moved_border", "wrong_padding", "wrong_length", "late_replay", "from_the_future", "parameter_twice", "two_seals",
              "with_document_type", "other_agent", "no_base64", "cut_seal"}


def judged_by_wechatpy(request):
    query = dict(parse_qsl(request["query"]))
    crypto = WeChatCrypto(request["token"], request["aes_key"], request["corp_id"])
    try:
        signed = (query["msg_signature"], query["timestamp"], query["nonce"])
        if request["body"]:
            crypto.decrypt_message(request["body"], *signed)
        else:
            crypto.check_signature(*signed, query["echostr"])
    except Exception:  # noqa: BLE001  whatever it is, it is a refusal
        return False
    return True


def by_program(requests):
    shown = [{**it, "body": base64.b64encode(it["body"].encode()).decode()} for it in requests]
    lines = "".join(json.dumps(it) + "\n" for it in shown).encode()
    command = [os.environ["FRONTDESK_WECOM_SIGNATURE_BIN"]]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr.decode()[-2_000:]}")
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def is_taken(made, answer):
    if answer["status"] != 200:
        return False
    if made["is_echo"]:
        return answer["body"] == made["text"] and answer["id"] is None
    return (answer["body"], answer["text"], answer["id"]) == ("", made["text"].strip(), made["id"])


def compare(title, make, rng, count):
    accounts = [account_of(rng) for _ in range(16)]
    all_made = make([spec_of(rng, accounts) for _ in range(count)])
    goods = [request_of(made) for made in all_made]
    kinds = [SPOILS[at % len(SPOILS)] for at in range(count)]
    bads = [spoil(rng, made, accounts) for spoil, made in zip(kinds, all_made)]
    answers = by_program(goods + bads)
    if len(answers) != 2 * count:
        sys.exit(f"{len(answers)} answers to {2 * count} requests")
    wrong = [f"good: {answer} to {request!r:.600}" for made, request, answer in zip(all_made, goods, answers)
             if not is_taken(made, answer)]
    wrong += [f"{spoil.__name__}: {answer} to {request!r:.600}" for spoil, request, answer in zip(kinds, bads, answers[count:])
              if answer["status"] not in (400, 403)]
    total = 2 * count
    print(f"{'ok' if not wrong else 'FAILED'}: this server: {count} good and {count} bad requests of {title}")
    judged = [(request, True, "good") for request in goods]
    judged += [(request, False, spoil.__name__) for spoil, request in zip(kinds, bads) if spoil.__name__ not in NOT_JUDGED]
    others = [f"wechatpy on {kind}: {request!r:.600}" for request, wanted, kind in judged if judged_by_wechatpy(request) != wanted]
    print(f"{'ok' if not others else 'FAILED'}: wechatpy: {len(judged)} requests of {title}")
    for line in (wrong + others)[:8]:
        print(f"    {line}")
    counted = collections.Counter(spoil.__name__ for spoil in kinds)
    print("spoiled: " + ", ".join(f"{number} {kind}" for kind, number in sorted(counted.items())))
    return total + len(judged), len(wrong) + len(others)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    total, failed = 0, 0
    for title, make in (("wechatpy", by_wechatpy), ("@wecom/crypto", by_node)):
        judged, wrong = compare(title, make, rng, args.count)
        total, failed = total + judged, failed + wrong
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
