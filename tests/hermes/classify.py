"""Feeds every wording of our refusals to the real gateway's own sending function.

FRONTDESK_REFUSALS_BIN names a program that prints one refusal per line:
{"code", "text", "sent"}; `sent` says whether something of the answer may be in
the chat already. The gateway's _send_with_retry is run with a chat that refuses
in these words every time. An answer that may be there must not be sent again;
one that was refused for now may be sent again as it is, and never as
"(Response formatting failed...)"; one that was refused for good may be tried
once more as plain text, which is refused like the first.

The last line is "N passed, N failed".
"""

import asyncio
import json
import os
import subprocess
import sys
from types import SimpleNamespace

from gateway.platforms import base

ANSWER = "the answer"
LATER = ("rate_limited", "unavailable")


def sends_of(text):
    """What the gateway sends in all, if each send is refused with this text."""
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
    """What is wrong with a refusal, or nothing."""
    sends = sends_of(refusal["text"])
    again = [content for content in sends[1:] if ANSWER in content]
    if refusal["sent"]:
        return f"the answer may be in the chat and is sent again: {again}" if again else None
    if refusal["code"] in LATER:
        if any(content != ANSWER for content in again):
            return f"it is refused for now and is sent as something else: {again}"
        return None if again else "it is refused for now and never tried again"
    return f"it is refused for good and tried {len(again)} times more" if len(again) > 2 else None


async def no_sleep(_seconds):
    """The gateway waits some seconds before it tries again; nobody here has to."""


def main():
    base.asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": no_sleep})
    base.logger.disabled = True
    program = os.environ["FRONTDESK_REFUSALS_BIN"]
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
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
    print(f"{plain} wordings of a refusal for good are tried once more as plain text")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
