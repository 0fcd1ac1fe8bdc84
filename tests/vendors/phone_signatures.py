"""Signatures of Twilio and of WhatsApp: our verdicts against those of verifiers that others wrote.

  FRONTDESK_PHONE_SIGNATURE_BIN=path tests/vendors/phone_signatures.py [--count N] [--seed S]

The program reads requests as JSON, one a line, and prints true or false for each, by the functions of the doors. N requests
of each scheme are signed by twilio's RequestValidator and as pywa checks them, and each is spoiled in one way. All judges must
accept every good one and refuse every spoiled one, apart from what is signed in any order. The last line is the tally.
"""

import argparse
import base64
import collections
import hashlib
import hmac
import json
import os
import random
import subprocess
import sys
import unicodedata
from urllib.parse import parse_qsl, urlencode, urlsplit

from pywa.utils import webhook_updates_validator
from twilio.request_validator import RequestValidator

sys.dont_write_bytecode = True
LIMIT_S = 300
FORM = "application/x-www-form-urlencoded"


class Fields:
    """The fields of a form, as frameworks give them to the library."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __iter__(self):
        return iter(name for name, _ in self.pairs)

    def __len__(self):
        return len(self.pairs)

    def getlist(self, name):
        return [value for known, value in self.pairs if known == name]


def text_of(rng, least=0):
    alphabet = rng.choice(("abc 123", "äöüé日本語🙂\u2028", "\"\\\n\t{}[]:,&=+%", "0123456789+"))
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(least, 40)))


def with_bit_flipped(rng, data):
    at = rng.randrange(len(data) * 8)
    return bytes(byte ^ (1 << at % 8) if index == at // 8 else byte for index, byte in enumerate(data))


def other_text(rng, text):
    """One bit of an ASCII text, so that it stays one that a header can hold."""
    while True:
        turned = with_bit_flipped(rng, text.encode())
        if all(32 < byte < 127 for byte in turned):
            return turned.decode()


# ---- Twilio ------------------------------------------------------------------------------------


def pairs_of(rng):
    pairs = [("MessageSid", f"SM{rng.getrandbits(128):032x}"), ("From", f"+1555{rng.randint(0, 9_999_999):07}"),
             ("To", "+15559990000"), ("Body", text_of(rng)), ("NumMedia", str(rng.randint(0, 3)))]
    pairs += [(rng.choice(("FromCity", "ä", "Tag", "a b")) + str(rng.randint(0, 3)), text_of(rng)) for _ in range(rng.randint(0, 5))]
    rng.shuffle(pairs)
    return pairs


def url_of(rng):
    host = rng.choice(("desk.example", "desk.example:8443", "127.0.0.1:8787"))
    query = rng.choice(("", "?key=17.4.0", "?foo=1&bar=2", "?a=%20b&c="))
    return f"{rng.choice(('https', 'http'))}://{host}/twilio/bot{rng.choice(('', '/status'))}{query}"


def signed_form(rng, keys):
    key, url, pairs = rng.choice(keys), url_of(rng), pairs_of(rng)
    signature = RequestValidator(key).compute_signature(url, Fields(pairs))
    return {"scheme": "twilio", "key": key, "url": url, "content_type": FORM, "signatures": [signature],
            "body": urlencode(pairs).encode()}


def signed_json(rng, keys):
    key, body = rng.choice(keys), json.dumps({"Body": text_of(rng), "MessageSid": "SM1", "n": rng.randint(0, 99)})
    url = "https://desk.example/twilio/bot?x=1&bodySHA256=" + hashlib.sha256(body.encode()).hexdigest()
    return {"scheme": "twilio", "key": key, "url": url, "content_type": "application/json",
            "signatures": [RequestValidator(key).compute_signature(url, {})], "body": body.encode()}


def signed_for_twilio(rng, keys):
    return signed_form(rng, keys) if rng.random() < 0.8 else signed_json(rng, keys)


def changed_value(rng, good, _):
    if good["content_type"] != FORM:
        return {**good, "body": with_bit_flipped(rng, good["body"])}
    pairs = parse_qsl(good["body"].decode(), keep_blank_values=True)
    at = rng.randrange(len(pairs))
    name, value = pairs[at]
    pairs[at] = rng.choice(((name, value + "x"), (name + "x", value), (name.swapcase(), value)))
    return {**good, "body": urlencode(pairs).encode()} if pairs[at] != (name, value) else {**good, "body": b"a=1"}


def more_fields(rng, good, _):
    return {**good, "body": good["body"] + (b"&Extra=1" if good["content_type"] == FORM else b" ")}


def fewer_fields(_, good, __):
    return {**good, "body": good["body"].rpartition(b"&")[0] or b"{}"}


def swapped_values(_, good, __):
    """The same names and the same values, in other places."""
    pairs = parse_qsl(good["body"].decode(), keep_blank_values=True)
    values = [value for _, value in pairs]
    turned = [(name, value) for (name, _), value in zip(pairs, values[1:] + values[:1])]
    return {**good, "body": urlencode(turned).encode()} if sorted(turned) != sorted(pairs) else {**good, "body": b"a=1"}


def other_normal_form(_, good, __):
    """The text looks the same, and is another one."""
    if good["content_type"] != FORM:
        return {**good, "body": good["body"].replace(b"{", b"{ ", 1)}
    url, key = good["url"], good["key"]
    pairs = parse_qsl(good["body"].decode(), keep_blank_values=True) + [("Caf\u00e9", "\u00e9")]
    signature = RequestValidator(key).compute_signature(url, Fields(pairs))
    turned = [(unicodedata.normalize("NFD", name), unicodedata.normalize("NFD", value)) for name, value in pairs]
    return {**good, "signatures": [signature], "body": urlencode(turned).encode()}


def other_url(rng, good, _):
    parts = urlsplit(good["url"])
    other = rng.choice((
        parts._replace(scheme="http" if parts.scheme == "https" else "https"),
        parts._replace(netloc="evil.example"),
        parts._replace(path=parts.path + "x"),
        parts._replace(query=(parts.query + "&" if parts.query else "") + "z=1"),
    ))
    return {**good, "url": other.geturl()}


def reordered_query(_, good, __):
    parts = urlsplit(good["url"])
    fields = parts.query.split("&")
    if len(fields) < 2:
        return {**good, "url": good["url"] + "&"}
    return {**good, "url": parts._replace(query="&".join(reversed(fields))).geturl()}


def other_signature(rng, good, _):
    return {**good, "signatures": [other_text(rng, good["signatures"][0])]}


def cut_signature(rng, good, _):
    return {**good, "signatures": [good["signatures"][0][:rng.choice((0, 1, -1, -2))]]}


def no_signature(_, good, __):
    return {**good, "signatures": []}


def two_signatures(rng, good, _):
    other = other_text(rng, good["signatures"][0])
    return {**good, "signatures": rng.choice(([good["signatures"][0]] * 2, [good["signatures"][0], other], [other, good["signatures"][0]]))}


def other_key(rng, good, keys):
    return {**good, "key": rng.choice([key for key in keys if key != good["key"]])}


def other_type(_, good, __):
    """A form that is said to be something else has no hash of its body."""
    turned = "text/plain" if good["content_type"] == FORM else FORM
    return {**good, "content_type": turned}


def reordered_form(rng, good, _):
    """Genuine: names are signed in order."""
    if good["content_type"] != FORM:
        return good
    fields = good["body"].split(b"&")
    rng.shuffle(fields)
    return {**good, "body": b"&".join(fields)}


def any_bit(rng, good, _):
    """Whatever it is then: a percent sign may be followed by small or large digits."""
    return {**good, "body": with_bit_flipped(rng, good["body"])}


TWILIO = (changed_value, more_fields, fewer_fields, swapped_values, other_normal_form, other_url, reordered_query,
          other_signature, cut_signature, no_signature, two_signatures, other_key, other_type, reordered_form, any_bit)


def by_twilio(request):
    if len(request["signatures"]) != 1:
        return False  # the library is given one
    body = request["body"].decode("utf-8", "replace")
    is_form = request["content_type"] == FORM
    params = Fields(parse_qsl(body, keep_blank_values=True)) if is_form else body
    if not is_form and "bodySHA256" not in request["url"]:
        return False  # the library is not made for it
    return RequestValidator(request["key"]).validate(request["url"], params, request["signatures"][0])


# ---- WhatsApp ----------------------------------------------------------------------------------


def signed_for_hub(rng, keys):
    key = rng.choice(keys)
    kind = rng.random()
    if kind < 0.6:
        value = {"messages": [{"from": "15550001111", "id": f"wamid.{rng.getrandbits(60)}", "text": {"body": text_of(rng)}}]}
        made = {"object": "whatsapp_business_account", "entry": [{"changes": [{"field": "messages", "value": value}]}]}
        body = json.dumps(made, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    else:
        body = rng.randbytes(rng.choice((0, 1, 31, 64, 65, 5_000)))
    signature = "sha256=" + hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
    return {"scheme": "hub", "key": key, "url": "", "content_type": "application/json", "signatures": [signature], "body": body}


def other_body(rng, good, _):
    return {**good, "body": with_bit_flipped(rng, good["body"]) if good["body"] else b"x"}


def longer_body(rng, good, _):
    return {**good, "body": good["body"] + rng.choice((b" ", b"\n", b"\0", b"{}"))}


def reordered_body(_, good, __):
    turned = good["body"][::-1]
    return {**good, "body": turned if turned != good["body"] else turned + b"!"}


def other_form_of_text(_, good, __):
    body = good["body"].decode("utf-8", "replace")
    turned = unicodedata.normalize("NFD", body).encode()
    return {**good, "body": turned if turned != good["body"] else turned + b" "}


def other_digits(rng, good, _):
    digits = good["signatures"][0].removeprefix("sha256=")
    return {**good, "signatures": ["sha256=" + other_text(rng, digits)]}


def large_digits(_, good, __):
    digits = good["signatures"][0].removeprefix("sha256=")
    turned = digits.upper()
    return {**good, "signatures": ["sha256=" + (turned if turned != digits else "0" * 64)]}


HUB = (other_body, longer_body, reordered_body, other_form_of_text, other_digits, large_digits, cut_signature, no_signature,
       two_signatures, other_key)


def by_pywa(request):
    if len(request["signatures"]) != 1:
        return False  # the library is given one
    return webhook_updates_validator(request["key"], request["body"], request["signatures"][0])


# ---- the comparison ----------------------------------------------------------------------------


def by_program(requests):
    shown = [{**it, "body": base64.b64encode(it["body"]).decode()} for it in requests]
    lines = "".join(json.dumps(it) + "\n" for it in shown).encode()
    command = [os.environ["FRONTDESK_PHONE_SIGNATURE_BIN"]]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr.decode()[-2_000:]}")
    return [line == "true" for line in done.stdout.decode().split()]


def compare(title, library, make, spoils, rng, count):
    keys = [f"{rng.getrandbits(128):032x}" for _ in range(16)]
    requests, wanted, kinds = [], [], []
    for number in range(count):
        good, spoil = make(rng, keys), spoils[number % len(spoils)]
        requests += [good, spoil(rng, good, keys)]
        kinds += ["good", spoil.__name__]
        # What a flipped bit of a form means, the library decides.
        wanted += [True, library(requests[-1]) if spoil is any_bit else spoil is reordered_form]
    failed = 0
    for judge, verdicts in (("this server", by_program(requests)), (title, [library(it) for it in requests])):
        if len(verdicts) != len(wanted):
            sys.exit(f"{judge}: {len(verdicts)} verdicts for {len(wanted)} requests")
        wrong = [at for at, verdict in enumerate(verdicts) if verdict != wanted[at]]
        failed += len(wrong)
        print(f"{'ok' if not wrong else 'FAILED'}: {judge}: {sum(wanted)} good and {len(wanted) - sum(wanted)} bad requests")
        for at in wrong[:5]:
            print(f"    {kinds[at]}: said {verdicts[at]}: {requests[at]!r:.600}")
    counted = collections.Counter(kind for kind in kinds if kind != "good")
    print("spoiled: " + ", ".join(f"{number} {kind}" for kind, number in sorted(counted.items())))
    return 2 * len(wanted), failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    total, failed = 0, 0
    for title, library, make, spoils in (("RequestValidator of twilio", by_twilio, signed_for_twilio, TWILIO),
                                         ("the check of pywa", by_pywa, signed_for_hub, HUB)):
        judged, wrong = compare(title, library, make, spoils, rng, args.count)
        total, failed = total + judged, failed + wrong
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
