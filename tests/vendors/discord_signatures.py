"""Signatures of Discord interactions: our verdicts against those of the vendor's two libraries.

  FRONTDESK_DISCORD_SIGNATURE_BIN=path FRONTDESK_NODE_MODULES=folder tests/vendors/discord_signatures.py [--count N] [--seed S]

The first is a program that reads requests as JSON, one a line, and prints true or false for each, by the function of the
interactions endpoint. The second contains discord-interactions for Node. N bodies are signed as Discord signs, and each is
spoiled in one way: all judges must accept every good one and refuse every bad one. The last line is the tally.
"""

import argparse
import base64
import collections
import contextlib
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from discord_interactions import verify_key
from nacl.signing import SigningKey

sys.dont_write_bytecode = True
LIMIT_S = 120
KEYS = 16


def text_of(rng):
    alphabet = rng.choice(("abc 123", "äöü日本語🙂\u2028", "\"\\\n\t{}[]:,\u0000", "0123456789"))
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 40)))


def body_of(rng):
    """An interaction, any JSON, or any bytes: the signature is over bytes."""
    kind = rng.random()
    if kind < 0.5:
        data = {"name": text_of(rng), "options": [{"name": text_of(rng), "value": text_of(rng)} for _ in range(rng.randint(0, 4))]}
        made = {"id": str(rng.getrandbits(60)), "type": rng.randint(1, 5), "token": text_of(rng), "data": data}
        return json.dumps(made, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if kind < 0.7:
        return json.dumps([rng.random(), text_of(rng), None, True]).encode()
    return rng.randbytes(rng.choice((0, 1, 2, 31, 32, 64, 200, 5_000)))


def signed(rng, keys):
    key = rng.choice(keys)
    timestamp, body = str(1_700_000_000 + rng.randint(0, 10**8)), body_of(rng)
    signature = key.sign(timestamp.encode() + body).signature.hex()
    if rng.random() < 0.2:
        signature = signature.upper()
    return {"key": key.verify_key.encode().hex(), "timestamp": timestamp, "signature": signature, "body": body}


def with_bit_flipped(rng, data):
    at = rng.randrange(len(data) * 8)
    return bytes(byte ^ (1 << at % 8) if index == at // 8 else byte for index, byte in enumerate(data))


def other_body(rng, good, _):
    body = good["body"]
    return {**good, "body": with_bit_flipped(rng, body) if body else b"x"}


def longer_body(rng, good, _):
    return {**good, "body": good["body"] + rng.choice((b" ", b"\n", b"\0", b"{}"))}


def shorter_body(_, good, __):
    return {**good, "body": good["body"][:-1]} if good["body"] else {**good, "body": b"{}"}


def reordered_body(_, good, __):
    turned = good["body"][::-1]
    return {**good, "body": turned if turned != good["body"] else turned + b"!"}


def other_signature(rng, good, _):
    return {**good, "signature": with_bit_flipped(rng, bytes.fromhex(good["signature"])).hex()}


# The library for Node takes what is no hexadecimal digit for a zero, and half a byte for a whole one: where the signature
# has such bytes, it accepts what the other two refuse. These bytes are left alone.


def cut_signature(rng, good, _):
    return {**good, "signature": good["signature"][:rng.choice((0, 1, 2, 64, 126))]}


def no_hex(_, good, __):
    signature = good["signature"]
    at = next(at for at in range(0, len(signature), 2) if signature[at:at + 2] != "00")
    return {**good, "signature": signature[:at] + "zz" + signature[at + 2:]}


def other_time(rng, good, _):
    return {**good, "timestamp": str(int(good["timestamp"]) + rng.choice((-1, 1, 60, 300)))}


def no_time(_, good, __):
    return {**good, "timestamp": ""}


def other_key(rng, good, keys):
    others = [key for key in keys if key.verify_key.encode().hex() != good["key"]]
    return {**good, "key": rng.choice(others).verify_key.encode().hex()}


def signed_body_only(_, good, keys):
    """By the right key, over the body without the time."""
    key = next(key for key in keys if key.verify_key.encode().hex() == good["key"])
    return {**good, "signature": key.sign(good["body"]).signature.hex()}


SPOILS = (other_body, longer_body, shorter_body, reordered_body, other_signature, cut_signature, no_hex, other_time, no_time,
          other_key, signed_body_only)


def by_python(requests):
    with contextlib.redirect_stdout(io.StringIO()):  # the library prints its reasons
        return [verify_key(it["body"], it["signature"], it["timestamp"], it["key"]) for it in requests]


def by_program(command, lines):
    done = subprocess.run(command, input=lines, capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr.decode()[-2_000:]}")
    return [line == "true" for line in done.stdout.decode().split()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    keys = [SigningKey(rng.randbytes(32)) for _ in range(KEYS)]
    requests, wanted, kinds = [], [], []
    for number in range(args.count):
        good, spoil = signed(rng, keys), SPOILS[number % len(SPOILS)]
        requests += [good, spoil(rng, good, keys)]
        wanted += [True, False]
        kinds += ["good", spoil.__name__]
    shown = [{**it, "body": base64.b64encode(it["body"]).decode()} for it in requests]
    lines = "".join(json.dumps(it) + "\n" for it in shown).encode()
    node = str(Path(__file__).resolve().parent / "discord_signatures.mjs")
    judges = {
        "this server": by_program([os.environ["FRONTDESK_DISCORD_SIGNATURE_BIN"]], lines),
        "discord-interactions for Python": by_python(requests),
        "discord-interactions for Node": by_program(["node", node], lines),
    }
    failed = 0
    for judge, verdicts in judges.items():
        if len(verdicts) != len(wanted):
            sys.exit(f"{judge}: {len(verdicts)} verdicts for {len(wanted)} requests")
        wrong = [at for at, verdict in enumerate(verdicts) if verdict != wanted[at]]
        failed += len(wrong)
        print(f"{'ok' if not wrong else 'FAILED'}: {judge}: {sum(wanted)} good and {len(wanted) - sum(wanted)} bad requests")
        for at in wrong[:5]:
            print(f"    {kinds[at]}: said {verdicts[at]}: {json.dumps(shown[at])[:400]}")
    print("spoiled: " + ", ".join(f"{count} {kind}" for kind, count in sorted(collections.Counter(kinds).items()) if kind != "good"))
    print(f"{len(judges) * len(wanted) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
