"""Signatures of Slack's requests: our verdicts against those of the vendor's libraries, for Python and for Node.

  FRONTDESK_SLACK_SIGNATURE_BIN=path FRONTDESK_NODE_MODULES=path tests/vendors/slack_signatures.py [--count N] [--seed S]

The program reads requests as JSON, one a line, and prints true or false for each, by the function of the doors; so does
`slack_signatures.mjs` with @slack/bolt. N bodies are signed by slack_sdk, and each is spoiled in a way of the list: all three
must accept every good one and refuse every bad one. One body is also spoiled in each of its bits. The last line is the tally.
"""

import argparse
import base64
import collections
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from slack_sdk.signature import Clock, SignatureVerifier

sys.dont_write_bytecode = True
LIMIT_S = 300
NOW_S = 1_800_000_000
STAMP, SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"


class Still(Clock):
    def now(self):
        return float(NOW_S)


def text_of(rng):
    alphabet = rng.choice(("abc 123", "äöü日本語🙂\u2028", "\"\\\n\t{}[]:,&=%+", "0123456789"))
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 40)))


def body_of(rng):
    """Text, because the library reads bytes as UTF-8."""
    if rng.random() < 0.5:
        event = {"type": "message", "text": text_of(rng), "ts": f"{rng.randint(1, 10**9)}.000100"}
        return json.dumps({"type": "event_callback", "event": event}, ensure_ascii=rng.random() < 0.5)
    return "&".join(f"{name}={text_of(rng)}" for name in ("token", "team_id", "command", "text")[:rng.randint(0, 4)])


def signed(rng, keys):
    key, body = rng.choice(keys), body_of(rng)
    stamp = str(NOW_S + rng.choice((0, -1, 1, -299, 299, -300, 300, rng.randint(-300, 300))))
    signature = SignatureVerifier(key, Still()).generate_signature(timestamp=stamp, body=body)
    return {"key": key, "headers": [[STAMP, stamp], [SIGNATURE, signature]], "body": body.encode()}


def value(request, name):
    return next(value for known, value in request["headers"] if known == name)


def with_header(request, name, new):
    return {**request, "headers": [[known, new if known == name else old] for known, old in request["headers"]]}


def with_bit_flipped(data, at):
    return bytes(byte ^ (1 << at % 8) if index == at // 8 else byte for index, byte in enumerate(data))


def other_body(rng, good, _):
    body = good["body"]
    return {**good, "body": with_bit_flipped(body, rng.randrange(len(body) * 8)) if body else b"x"}


def longer_body(rng, good, _):
    return {**good, "body": good["body"] + rng.choice((b" ", b"\n", b"\0", b"{}", b"&a=b"))}


def shorter_body(_, good, __):
    return {**good, "body": good["body"][:-1]} if good["body"] else {**good, "body": b"{}"}


def other_signature(rng, good, _):
    digits = bytes.fromhex(value(good, SIGNATURE)[3:])
    return with_header(good, SIGNATURE, "v0=" + with_bit_flipped(digits, rng.randrange(256)).hex())


def cut_signature(rng, good, _):
    return with_header(good, SIGNATURE, value(good, SIGNATURE)[:rng.choice((0, 2, 3, 10, 66))])


def other_version(_, good, __):
    return with_header(good, SIGNATURE, "v1" + value(good, SIGNATURE)[2:])


def other_time(rng, good, _):
    return with_header(good, STAMP, str(int(value(good, STAMP)) + rng.choice((-1, 1, 60, -60))))


def replayed(rng, good, _):
    """Genuine, and older than five minutes."""
    stamp = str(NOW_S - 301 - rng.randint(0, 10**6))
    signature = SignatureVerifier(good["key"], Still()).generate_signature(timestamp=stamp, body=good["body"].decode())
    return {**good, "headers": [[STAMP, stamp], [SIGNATURE, signature]]}


def from_the_future(rng, good, _):
    stamp = str(NOW_S + 301 + rng.randint(0, 10**6))
    signature = SignatureVerifier(good["key"], Still()).generate_signature(timestamp=stamp, body=good["body"].decode())
    return {**good, "headers": [[STAMP, stamp], [SIGNATURE, signature]]}


def other_key(rng, good, keys):
    return {**good, "key": rng.choice([key for key in keys if key != good["key"]])}


def no_time(_, good, __):
    return {**good, "headers": [pair for pair in good["headers"] if pair[0] != STAMP]}


def no_signature(_, good, __):
    return {**good, "headers": [pair for pair in good["headers"] if pair[0] != SIGNATURE]}


# What @slack/bolt accepts nevertheless, because it does not look for it.
BOLT_ALLOWS = ("from_the_future",)

SPOILS = (other_body, longer_body, shorter_body, other_signature, cut_signature, other_version, other_time, replayed,
          from_the_future, other_key, no_time, no_signature)


def by_library(request):
    headers = dict(request["headers"])
    try:
        return SignatureVerifier(request["key"], Still()).is_valid_request(request["body"], headers)
    except UnicodeDecodeError:  # the library reads text only; a body that is none was not signed by it
        return False


def by_program(command, requests):
    def line(it):
        made = {"key": it["key"], "now_s": NOW_S, "headers": it["headers"], "body": base64.b64encode(it["body"]).decode()}
        return json.dumps(made)

    lines = "\n".join(map(line, requests)) + "\n"
    done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr.decode()[-2_000:]}")
    return [line == "true" for line in done.stdout.decode().split()]


def twice(name):
    """A header that is there twice. The library sees one of them; we refuse both."""
    def spoil(good):
        return {**good, "headers": good["headers"] + [[name, value(good, name)]]}
    return spoil


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    keys = [rng.randbytes(16).hex() for _ in range(16)]
    requests, wanted, kinds = [], [], []

    def add(request, is_good, kind):
        requests.append(request)
        wanted.append(is_good)
        kinds.append(kind)

    for number in range(args.count):
        good = signed(rng, keys)
        add(good, True, "good")
        spoil = SPOILS[number % len(SPOILS)]
        add(spoil(rng, good, keys), False, spoil.__name__)
    good = signed(rng, keys)
    for at in range(len(good["body"]) * 8):
        add({**good, "body": with_bit_flipped(good["body"], at)}, False, "each bit of a body")
    for at in range(256):
        digits = bytes.fromhex(value(good, SIGNATURE)[3:])
        add(with_header(good, SIGNATURE, "v0=" + with_bit_flipped(digits, at).hex()), False, "each bit of a signature")
    program = [os.environ["FRONTDESK_SLACK_SIGNATURE_BIN"]]
    ours = by_program(program, requests)
    theirs = [by_library(request) for request in requests]
    bolt = by_program(["node", str(Path(__file__).resolve().with_suffix(".mjs"))], requests)
    if not len(ours) == len(bolt) == len(requests):
        sys.exit(f"{len(ours)} and {len(bolt)} verdicts for {len(requests)} requests")
    wrong = []
    for kind, want, *verdicts in zip(kinds, wanted, ours, theirs, bolt):
        expected = [want, want, True if kind in BOLT_ALLOWS else want]
        if verdicts != expected:
            wrong.append(f"{kind}: {'good' if want else 'bad'}, but we say {verdicts[0]}, slack_sdk {verdicts[1]}, bolt {verdicts[2]}")
    print("\n".join(wrong[:20]), end="\n" if wrong else "")
    doubled = [twice(name)(good) for name in (STAMP, SIGNATURE)]
    accepted = sum(by_program(program, doubled))
    counts = collections.Counter(kinds)
    print(", ".join(f"{kind} {count}" for kind, count in counts.items()))
    print(f"{len(requests) - len(wrong)} of {len(requests)} verdicts agree; {accepted} of 2 doubled headers accepted")
    sys.exit(1 if wrong or accepted else 0)


if __name__ == "__main__":
    main()
