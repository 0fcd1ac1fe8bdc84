"""Passes every refusal text to the real gateway's own send function.

FRONTDESK_REFUSALS_BIN names a program that prints one refusal per line:
{"code", "text", "sent"}; `sent` says whether something of the answer may be in
the chat already. The gateway's _send_with_retry is run with a chat that refuses
with this text every time. An answer that may be there must not be sent again;
one that was refused temporarily may be sent again unchanged, and never as
"(Response formatting failed...)"; one that was refused permanently may be tried
once more as plain text, which is refused like the first.

The last line is "N passed, N failed".
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from gateway.platforms import base

ANSWER = "the answer"
LATER = ("rate_limited", "unavailable")


def sends_of(text):
    """Everything that the gateway sends if each send is refused with this text."""
    sends = []

    async def send(chat_id, content, reply_to=None, metadata=None):
        sends.append(content)
        return base.SendResult(success=False, error=text)

    adapter = SimpleNamespace(
        name="relay",
        send=send,
        _is_retryable_error=base.BasePlatformAdapter._is_retryable_error,
        _is_timeout_error=base.BasePlatformAdapter._is_timeout_error,
    )
    asyncio.run(base.BasePlatformAdapter._send_with_retry(adapter, "chat", ANSWER))
    return sends


def fault_of(refusal):
    """The problem with a refusal, or None."""
    sends = sends_of(refusal["text"])
    again = [content for content in sends[1:] if ANSWER in content]
    if refusal["sent"]:
        return f"the answer may be in the chat and is sent again: {again}" if again else None
    if refusal["code"] in LATER:
        if any(content != ANSWER for content in again):
            return f"refused temporarily, but sent in another form: {again}"
        return None if again else "refused temporarily, but never retried"
    return f"refused permanently, but retried {len(again)} times" if len(again) > 2 else None


async def no_sleep(_seconds):
    """Replaces the gateway's delay before a retry."""


def main():
    base.asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": no_sleep})
    base.logger.disabled = True
    program = os.environ["FRONTDESK_REFUSALS_BIN"]
    lines = subprocess.run([program, Path(__file__).resolve().parents[2] / "crates"], check=True, capture_output=True, text=True).stdout.splitlines()
    passed = failed = plain = 0
    for line in lines:
        refusal = json.loads(line)
        fault = fault_of(refusal)
        if fault is None:
            passed += 1
        else:
            failed += 1
            print(f"{refusal['code']}: {refusal['text']!r}: {fault}")
        if not refusal["sent"] and refusal["code"] not in LATER:
            plain += any(content.startswith("(Response formatting failed") for content in sends_of(refusal["text"]))
    print(f"{plain} texts of permanent refusals are retried once as plain text")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
