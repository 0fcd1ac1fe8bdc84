"""Messages, and what can be done with them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._cut import cut
from ._errors import FrontdeskError

if TYPE_CHECKING:
    from ._agent import Agent

# Platforms show a typing indicator only for some seconds.
TYPING_EVERY_S = 4.0
# Platforms limit how often a message may be edited.
EDIT_EVERY_S = 1.0
# Pauses between attempts to write the final text.
EDIT_PAUSES_S = (1.0, 2.0, 3.0)
# Assumed message length if the platform reports none.
LENGTH_MAX = 2000
# The server's own limit, unless its operator changed it.
FILE_MAX_BYTES = 25 << 20

log = logging.getLogger("frontdesk")


@dataclass(frozen=True)
class Chat:
    """Where a message came from. Usable as a key: two messages of one conversation have equal chats."""

    platform: str
    id: str
    thread: str | None = None
    kind: str = field(default="dm", compare=False)
    name: str | None = field(default=None, compare=False)

    @property
    def is_question(self) -> bool:
        """True if another agent waits for an answer here; the first message counts as the answer."""
        return self.platform == "relay" and self.id.startswith("agent:") and self.thread is not None

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}" + (f":{self.thread}" if self.thread else "")


@dataclass(frozen=True)
class Media:
    """A file of a message. The server has it until the message is acked, and for about an hour more."""

    agent: Agent = field(repr=False, compare=False)
    url: str
    kind: str
    mime: str
    size: int
    filename: str | None
    caption: str | None

    async def read(self, *, max_bytes: int = FILE_MAX_BYTES) -> bytes:
        return await self.agent.read_file(self.url, max_bytes=max_bytes)


@dataclass(frozen=True)
class Pressed:
    """The answer to a prompt."""

    prompt: str
    option: str


@dataclass(frozen=True)
class Sent:
    """A message of this agent."""

    agent: Agent = field(repr=False, compare=False)
    chat: Chat
    id: str | None

    async def edit(self, text: str) -> None:
        await self.agent.act("edit", self.chat, message_id=self.id, content=text)

    async def delete(self) -> None:
        await self.agent.act("delete", self.chat, message_id=self.id)


class Stream:
    """A text that is shown while it grows, if the platform can edit messages. The complete text is written when the stream
    ends."""

    def __init__(self, agent: Agent, chat: Chat, reply_to: str | None) -> None:
        self._agent, self._chat, self._reply_to = agent, chat, reply_to
        self.text = ""
        self.sent: Sent | None = None
        self._shown: str = ""
        self._shown_s = 0.0

    def _cut(self) -> tuple[str, str]:
        described = self._agent.descriptor(self._chat)
        return cut(self.text, int(described.get("max_message_length") or LENGTH_MAX), str(described.get("len_unit") or "utf16"))

    async def write(self, more: str) -> None:
        self.text += more
        if time.monotonic() - self._shown_s < EDIT_EVERY_S or self._chat.is_question:
            return
        if not self._agent.descriptor(self._chat).get("supports_edit"):
            return
        first, _ = self._cut()
        if not first.strip():
            return
        try:
            if self.sent is None:
                self.sent = await self._send(first)
            elif first != self._shown:
                await self.sent.edit(first)
            self._shown = first
        except FrontdeskError as error:
            if self.sent is None:
                raise
            log.warning("showing a part of a text failed; the final edit shows all of it: %s", error)
        self._shown_s = time.monotonic()

    async def finish(self) -> None:
        if not self.text.strip():
            return
        if self.sent is None:
            self.sent = await self._send(self.text)  # the server splits what is sent, but not what is edited
            return
        first, rest = self._cut()
        if first != self._shown and not await self._edit_last(self.sent, first):
            preview, self.sent = self.sent, await self._send(self.text)
            with contextlib.suppress(FrontdeskError):  # its text is in the new message
                await preview.delete()
        elif rest.strip():
            await self._agent.send(self._chat, rest)

    async def _send(self, text: str) -> Sent:
        return await self._agent.send(self._chat, text, reply_to=self._reply_to)

    async def _edit_last(self, sent: Sent, text: str) -> bool:
        """False: the edit was certainly not carried out."""
        for pause_s in (*EDIT_PAUSES_S, None):
            try:
                await sent.edit(text)
                return True
            except FrontdeskError as error:
                # An edit may be carried out twice.
                if pause_s is not None and (error.ambiguous or error.code in ("rate_limited", "unavailable")):
                    await asyncio.sleep(pause_s)
                elif error.ambiguous:
                    raise
                else:
                    log.warning("the last edit of a text failed; it is sent as a new message: %s", error)
                    return False
        return False


@dataclass(frozen=True)
class Message:
    agent: Agent = field(repr=False, compare=False)
    chat: Chat
    text: str
    id: str | None
    user: str | None
    user_name: str | None
    kind: str
    media: tuple[Media, ...]
    reply_to: str | None
    pressed: Pressed | None
    # The agent that sent it, where it is not of a person.
    sender: str | None
    raw: dict[str, Any] = field(repr=False, compare=False)

    async def reply(self, text: str) -> Sent:
        return await self.agent.send(self.chat, text, reply_to=self.id)

    async def reply_file(self, file: str | os.PathLike[str] | bytes, *, filename: str | None = None, mime: str | None = None,
                         caption: str | None = None) -> Sent:
        return await self.agent.send_file(self.chat, file, filename=filename, mime=mime, caption=caption, reply_to=self.id)

    async def react(self, emoji: str) -> None:
        await self.agent.act("react", self.chat, message_id=self.id, emoji=emoji)

    async def ask(self, text: str, *, prompt: str | None = None, **options: str) -> Sent:
        """Shows a button for each of `options`: name=label. What is pressed comes as a message with `pressed`."""
        shown = [{"id": name, "label": label} for name, label in options.items()]
        ident = prompt or self.agent.new_prompt()
        result = await self.agent.act("prompt", self.chat, prompt_id=ident, prompt_kind="choice", content=text, options=shown)
        return Sent(self.agent, self.chat, result.get("message_id"))

    @contextlib.asynccontextmanager
    async def typing(self) -> AsyncGenerator[None, None]:
        """Shows that the agent is at work, as far as the platform can."""
        async def repeat() -> None:
            while True:
                with contextlib.suppress(Exception):  # a courtesy: its failure must not fail the answer
                    await self.agent.act("typing", self.chat)
                await asyncio.sleep(TYPING_EVERY_S)

        task = asyncio.ensure_future(repeat())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @contextlib.asynccontextmanager
    async def stream(self) -> AsyncGenerator[Stream, None]:
        stream = Stream(self.agent, self.chat, self.id)
        yield stream
        await stream.finish()


def message_of(agent: Agent, event: dict[str, Any]) -> Message:
    source: dict[str, Any] = event.get("source") or {}
    chat = Chat(str(source.get("platform") or ""), str(source.get("chat_id") or ""), source.get("thread_id"),
                str(source.get("chat_type") or "dm"), source.get("chat_name"))
    files: list[dict[str, Any]] = event.get("media") or []
    media = tuple(Media(agent, str(it["url"]), str(it["kind"]), str(it["mime"]), int(it.get("size") or 0), it.get("filename"),
                        it.get("caption")) for it in files)
    answer: dict[str, Any] | None = event.get("prompt_response")
    pressed = Pressed(str(answer["prompt_id"]), str(answer["option_id"])) if answer else None
    sender = source.get("user_name") if event.get("delivery") else None
    return Message(agent, chat, str(event.get("text") or ""), event.get("message_id"), source.get("user_id"), source.get("user_name"),
                   str(event.get("message_type") or "text"), media, event.get("reply_to_message_id"), pressed, sender, event)
