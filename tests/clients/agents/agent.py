"""The agent of the scenarios, in Python. scenario.py says what it does."""

import asyncio
import os
import sys
from collections import Counter

from frontdesk import Agent, Message, Revoked

agent = Agent(sleep_after=float(os.environ["SLEEP_AFTER"]) if os.environ.get("SLEEP_AFTER") else None)
attempts: Counter[str] = Counter()


@agent.on_message
async def talk(m: Message) -> None:
    verb, _, rest = m.text.partition(" ")
    if m.pressed:
        await m.reply(f"pressed {m.pressed.option}")
    elif verb == "echo":
        await m.reply(rest)
    elif verb == "fail":
        count, _, text = rest.partition(" ")
        attempts[m.id] += 1
        if attempts[m.id] <= int(count):
            raise ValueError(f"attempt {attempts[m.id]} fails, as the test wants it")
        await m.reply(text)
    elif verb == "hold":
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await m.reply("stopped")
    elif verb == "stream":
        async with m.stream() as stream:
            for word in rest.split():
                await stream.write(f" {word}" if stream.text else word)
    elif verb == "ask":
        await m.ask("Shall I?", yes="Yes", no="No")


try:
    agent.run()
except Revoked as error:
    print(error, flush=True)
    sys.exit(3)
