"""Compares our session keys with those of the real gateway, for generated sources.

FRONTDESK_SESSION_KEY_BIN names a program that reads one source (JSON) per line
and prints its session key as one JSON string per line. Every supported version
of the gateway computes the same keys with its own build_session_key, from the
source as its own wire decoder builds it. For each version the block ends with
"N passed, N failed".

  session_keys.py [--count N] [--seed S] [--version V ...]
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

VERSIONS = ("0.19.0", "0.18.2", "0.17.0")

PLATFORMS = (
    "local", "telegram", "discord", "whatsapp", "whatsapp_cloud", "slack", "signal", "mattermost",
    "matrix", "homeassistant", "email", "sms", "dingtalk", "api_server", "webhook",
    "msgraph_webhook", "feishu", "wecom", "wecom_callback", "weixin", "bluebubbles", "qqbot",
    "yuanbao", "relay",
    # platforms of plug-ins that are bundled with each version
    "irc", "line", "teams", "google_chat", "ntfy", "simplex",
)
CHAT_TYPES = ("dm", "dm", "dm", "group", "group", "channel", "channel", "thread", "forum", "supergroup", "")
PROFILES = (None, "", "default", "main", "coder", "Default", "a:b", "büro", "profile-2")
ALPHABETS = (
    "0123456789",
    "0123456789abcdef",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "abcdefghijklmnopqrstuvwxyz-_.:@!#+/ ",
    "äöüßéñçøλжщ日本語漢字한국어עברית🙂👩‍👩‍👧‍👦\u2028\u200f\u0301",
    "\"\\'\n\t{}[]:,%\u0000\u007f",
)
WHATSAPP_TAILS = ("", "@s.whatsapp.net", "@lid", "@g.us", "@broadcast", ":47@s.whatsapp.net", ":3@lid", ":12", "@c.us")
WHATSAPP_EMPTY = ("@lid", "+", " ", ":47@s.whatsapp.net", "@s.whatsapp.net", " + ", "+@lid", "+:1")
SAFE = re.compile(r"^[A-Za-z0-9@.+\-]+$")


def random_text(rng, low=1, high=24):
    alphabet = rng.choice(ALPHABETS)
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(low, high)))


def strip_once(value):
    return value.strip().replace("+", "", 1).split(":", 1)[0].split("@", 1)[0]


def whatsapp_id(rng):
    """A WhatsApp identifier for which the gateway has a key (it fails on some others)."""
    while True:
        if rng.random() < 0.05:
            value = rng.choice(WHATSAPP_EMPTY)
        else:
            value = "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 18)))
            dice = rng.random()
            if dice < 0.3:
                value = "+" + value
            elif dice < 0.34:
                value = "++" + value
            elif dice < 0.38:
                value = "+ " + value
            elif dice < 0.42:
                value = value[:2] + "+" + value[2:] + "+1"
            elif dice < 0.46:
                value = value + "-" + value[:5]
            elif dice < 0.50:
                value = rng.choice((" ", "\t", "\n", "\u00a0", "\u2003")) + value + rng.choice(("", " ", "\n "))
            elif dice < 0.54:
                value = "status." + value
            value += rng.choice(WHATSAPP_TAILS)
        once = strip_once(value)
        if not once or SAFE.match(strip_once(once)):
            return value


def part(rng, platform, absent):
    """A value, or one of the forms of an absent one; MISSING omits the key."""
    if rng.random() < absent:
        return rng.choice((None, "", MISSING))
    if platform == "whatsapp":
        return whatsapp_id(rng)
    dice = rng.random()
    if dice < 0.3:
        return str(rng.randint(-10 ** 13, 10 ** 19))
    if dice < 0.34:
        # forms of one platform on another one: they must stay unchanged
        return "+" + str(rng.randint(1, 10 ** 12)) + rng.choice(WHATSAPP_TAILS)
    return random_text(rng)


MISSING = object()


def generate(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        platform = "whatsapp" if rng.random() < 0.12 else rng.choice(PLATFORMS)
        source = {
            "platform": platform,
            "chat_id": part(rng, platform, 0.12),
            "chat_type": rng.choice(CHAT_TYPES) if rng.random() < 0.97 else MISSING,
            "user_id": part(rng, platform, 0.2),
            "thread_id": part(rng, "", 0.6),
            "user_id_alt": part(rng, platform, 0.7),
            "profile": rng.choice(PROFILES) if rng.random() < 0.5 else MISSING,
        }
        if rng.random() < 0.5:
            scope = part(rng, "", 0.3)
            source["scope_id"] = scope
            source["guild_id"] = scope
        if rng.random() < 0.3:
            source.update(chat_name=random_text(rng), user_name=random_text(rng), chat_topic=None, is_bot=rng.random() < 0.5,
                          message_is_edit=False, message_id=str(rng.randint(1, 10 ** 9)))
        if rng.random() < 0.2:
            source.update(parent_chat_id=random_text(rng), chat_id_alt=random_text(rng))
        yield {key: value for key, value in source.items() if value is not MISSING}


def compute():
    """Worker: the keys of one version, from the sources on stdin."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from gateway.relay.ws_transport import _event_from_wire
    from gateway.session import build_session_key

    for line in sys.stdin:
        raw = json.loads(line)
        try:
            source = _event_from_wire({"text": "", "source": raw}).source
            out.write(json.dumps(build_session_key(source, profile=raw.get("profile"))) + "\n")
        except Exception as exc:
            out.write(json.dumps({"error": f"{type(exc).__name__}: {exc}"}) + "\n")
    out.flush()


def cache_root():
    base = os.environ.get("FRONTDESK_TEST_CACHE")
    if not base:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "frontdesk", "test")
    return Path(base) / "hermes"


def oracle(version, text, home):
    env = dict(os.environ, HERMES_HOME=home)
    env.pop("PYTHONPATH", None)
    unpacked = cache_root() / version
    if unpacked.is_dir():
        env["PYTHONPATH"] = str(unpacked)
    done = subprocess.run([sys.executable, __file__, "--compute"], input=text, env=env,
                          stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return done.stdout.split("\n")[:-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=20_240_607)
    parser.add_argument("--version", action="append", choices=VERSIONS)
    parser.add_argument("--compute", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.compute:
        compute()
        return 0

    program = os.environ.get("FRONTDESK_SESSION_KEY_BIN")
    if not program:
        print("FRONTDESK_SESSION_KEY_BIN is not set", file=sys.stderr)
        return 2
    sources = [json.dumps(source) for source in generate(args.count, args.seed)]
    text = "\n".join(sources) + "\n"
    done = subprocess.run([program], input=text, stdout=subprocess.PIPE, encoding="utf-8", timeout=300)
    ours = done.stdout.split("\n")[:-1]
    if done.returncode != 0 or len(ours) != len(sources):
        print(f"FAILED: {program} ended with {done.returncode} after {len(ours)} of {len(sources)} keys")
        ours += ["null"] * (len(sources) - len(ours))

    worst = 0
    with tempfile.TemporaryDirectory(prefix="frontdesk-keys-") as home:
        for version in args.version or VERSIONS:
            print(f"session keys of hermes-agent {version}")
            theirs = oracle(version, text, home)
            if len(theirs) != len(sources):
                print(f"FAILED: the gateway gave {len(theirs)} keys")
                theirs += ['"?"'] * (len(sources) - len(theirs))
            passed = failed = 0
            for source, mine, other in zip(sources, ours, theirs):
                try:
                    key = json.loads(other)
                    same = isinstance(key, str) and json.loads(mine) == key
                except ValueError:
                    same = False
                if same:
                    passed += 1
                    continue
                failed += 1
                if failed <= 10:
                    print(f"FAILED: {source}\n  theirs {other}\n  ours   {mine}")
            print(f"{passed} passed, {failed} failed", flush=True)
            worst |= failed
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
