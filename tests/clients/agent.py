"""An agent of a few lines, for tests/clients/python.py. Its name, and how long it waits until it sleeps, are arguments."""

import asyncio
import sys

from frontdesk import Agent, Message

agent = Agent(sleep_after=float(sys.argv[1]) or None)
failed = set()


@agent.on_message
async def talk(m: Message) -> None:
    words = m.text.split()
    if "fail-once" in words and m.id not in failed:
        failed.add(m.id)
        raise ValueError("as the test wants it")
    if "slow" in words:
        async with m.typing():
            await asyncio.sleep(600)
    if "count" in words:
        async with m.stream() as stream:
            for number in range(5):
                await stream.write(f"{number} ")
    elif "ask" in words:
        await m.ask("Shall I?", yes="Yes", no="No")
    elif m.pressed:
        await m.reply(f"pressed {m.pressed.option}")
    else:
        await m.reply(f"heard {m.text}")


agent.run()
