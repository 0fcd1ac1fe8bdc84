"""The name of a conversation, computed as the server does (crates/wire/src/session_key.rs). Interrupts name it."""

from __future__ import annotations

from typing import Any


def _whatsapp(ident: str) -> str:
    """`+4912:7@s.whatsapp.net` and similar ids are reduced to the number. Gateways do it twice."""
    for _ in range(2):
        ident = ident.strip().replace("+", "", 1).split(":")[0].split("@")[0]
    return ident


def session_key(source: dict[str, Any]) -> str:
    platform, kind = str(source.get("platform") or ""), source.get("chat_type")
    kind = "dm" if kind is None else str(kind)
    chat, thread = str(source.get("chat_id") or ""), str(source.get("thread_id") or "")
    user = str(source.get("user_id_alt") or source.get("user_id") or "")
    profile = str(source.get("profile") or "default")
    if platform == "whatsapp":
        user = _whatsapp(user) or user
    if kind == "dm":
        chat = (_whatsapp(chat) if platform == "whatsapp" else chat) or user
        last = thread
    else:
        last = thread or user  # participants share a thread
    return ":".join(["agent", "main" if profile == "default" else profile, platform, kind, *filter(None, (chat, last))])
