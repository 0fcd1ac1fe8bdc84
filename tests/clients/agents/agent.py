"""The agent of the scenarios, in Python. scenario.py says what it does."""

import asyncio
import os
import sys
from collections import Counter

from frontdesk import Agent, Fire, FrontdeskError, Message, Revoked

agent = Agent(sleep_after=float(os.environ["SLEEP_AFTER"]) if os.environ.get("SLEEP_AFTER") else None)
attempts: Counter[str] = Counter()


@agent.on_message
async def talk(m: Message) -> None:
    verb, _, rest = m.text.partition(" ")
    first, _, more = rest.partition(" ")
    if m.pressed:
        await m.reply(f"pressed {m.pressed.option}")
    elif verb == "echo":
        await m.reply(rest)
    elif verb == "fail":
        attempts[m.id] += 1
        if attempts[m.id] <= int(first):
            raise ValueError(f"attempt {attempts[m.id]} fails, as the test wants it")
        await m.reply(more)
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
    elif verb == "file":
        for file in m.media:
            await m.reply_file(await file.read(), filename=file.filename, mime=file.mime)
    elif verb == "exchange":
        try:
            await m.reply((await agent.exchange(first, more)).text)
        except FrontdeskError as error:
            await m.reply(f"error {error.code}")
    elif verb == "tell":
        await agent.deliver(first, more)
    elif verb == "remind":
        await agent.alarm(f"remind {m.id}", float(rest), m.chat.id)


@agent.on_alarm
async def ring(fire: Fire) -> None:
    await agent.send(fire.payload, "reminded")


@agent.on_start
async def read() -> None:
    async for message in agent.inbox():
        if message.expects_reply:
            await message.reply(f"answer to {message.text}")
        else:
            await agent.send("inbox", f"inbox {message.text}")


if os.environ.get("TICK"):
    @agent.cron("tick", os.environ["TICK"])
    async def tick(fire: Fire) -> None:
        await agent.send("cron", "tick")


try:
    agent.run()
except Revoked as error:
    print(error, flush=True)
    sys.exit(3)
