"""Splits a text that is too long for one message."""

from __future__ import annotations

# Characters reserved for the line that closes a code block.
CLOSING_ROOM = 10


def _length(text: str, unit: str) -> int:
    return len(text) if unit == "chars" else len(text) + sum(character > "\uffff" for character in text)


def _fence(text: str) -> tuple[str, str]:
    """Opening line and fence of the code block that is still open at the end of the text; empty if there is none."""
    opening = marks = ""
    for line in text.split("\n"):
        bare = line.strip()
        run = bare[:len(bare) - len(bare.lstrip(bare[:1]))]
        if marks:
            if bare == run and run.startswith(marks):
                opening = marks = ""
        elif run.startswith("~~~") or (run.startswith("```") and "`" not in bare[len(run):]):
            opening, marks = bare, run
    return opening, marks


def cut(text: str, limit: int, unit: str) -> tuple[str, str]:
    """The first part, which fits into one message, and the rest. A code block that is cut is closed and opened again."""
    if _length(text, unit) <= limit:
        return text, ""
    room = limit - CLOSING_ROOM if limit > 4 * CLOSING_ROOM else limit
    first = text[:room]
    while _length(first, unit) > room:
        first = first[:-max((_length(first, unit) - room) // 2, 1)]
    for separator in ("\n", " "):
        at = first.rfind(separator)
        if at > len(first) // 2:
            first = first[:at]
            break
    rest = text[len(first):]
    opening, marks = _fence(first)
    if marks and room < limit and len(marks) < CLOSING_ROOM:
        return f"{first}\n{marks}", f"{opening}\n{rest.removeprefix(chr(10))}"
    return first.rstrip(), rest.lstrip(" \n")
