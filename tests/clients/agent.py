"""An agent of 15 lines, for tests/clients/python.py. How long it waits until it sleeps is an argument."""

import asyncio, sys
from frontdesk import Agent, Message

agent, failed = Agent(sleep_after=float(sys.argv[1]) or None), set()

@agent.on_message
async def talk(m: Message) -> None:
    if "fail-once" in m.text and m.id not in failed:
        raise ValueError("as the test wants it", failed.add(m.id))
    await asyncio.sleep(600 if "slow" in m.text else 0)
    if "count" in m.text:
        async with m.stream() as stream:
            [await stream.write(f"{number} ") for number in range(5)]
    else:
        reply = f"pressed {m.pressed.option}" if m.pressed else f"heard {m.text}"
        await (m.ask("Shall I?", yes="Yes", no="No") if "ask" in m.text else m.reply(reply))

agent.run()
