"""The fake Discord server, driven by client libraries that others wrote: discord.py and hikari.

  FRONTDESK_FAKE_DISCORD_BIN=path/to/examples/fake_discord tests/vendors/discord_fake.py [--only PATTERN]

Every REST answer and the objects of dispatches are also judged by Discord's OpenAPI document, if it is there (FRONTDESK_SCHEMAS names its folder), and
signatures of interactions by discord-interactions. One line per check; the last line is the tally.
"""

import argparse
import asyncio
import json
import logging
import os
import re
import sys
import time
import warnings
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import discord_schema  # noqa: E402
from discord_trouble import CHECKS  # noqa: E402
from discord_libraries import LIBRARIES  # noqa: E402
from discord_scene import Failed, Fake, Scene, watch_answers  # noqa: E402


class Judge:
    def __init__(self, schema):
        self.schema, self.judged, self.dispatches, self.problems, self.ignores = schema, 0, 0, [], False

    def seen(self, method, path, status, body):
        if self.schema and not self.ignores:
            self.judged += 1
            self.problems += self.schema.problems(method, path, status, body)

    def dispatched(self, text):
        frame = json.loads(text)
        if self.schema and frame.get("op") == 0:
            self.dispatches += 1
            self.problems += self.schema.problems_of_dispatch(frame)


async def attempt(fake, library, judge, function):
    judge.problems, judge.ignores = [], False
    options = getattr(function, "options", {})
    scene = Scene(fake, library, judge, **options)
    try:
        if not getattr(function, "starts_itself", False):
            await scene.lib.open()
            await scene.next("ready")
        await asyncio.wait_for(function(scene), 60)
        if judge.problems:
            raise Failed(f"not as described: {'; '.join(judge.problems[:5])}")
    finally:
        await asyncio.wait_for(scene.lib.close(), 30)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", metavar="PATTERN")
    args = parser.parse_args()
    # The libraries log the faults that are put before them.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    binary = os.environ.get("FRONTDESK_FAKE_DISCORD_BIN")
    if not binary:
        print("FRONTDESK_FAKE_DISCORD_BIN is not set", file=sys.stderr)
        return 2
    schema, path = discord_schema.find()
    if schema is None:
        print(f"skipped: answers are not judged by Discord's OpenAPI document, because {path} is not there")
    judge = Judge(schema)
    watch_answers(judge.seen)
    passed, failed = 0, 0
    fake = Fake(binary)
    try:
        for library in LIBRARIES:
            for function in CHECKS:
                name = f"{library.title} {function.__name__}"
                if library.title not in getattr(function, "only", library.title) or args.only and not re.search(args.only, name):
                    continue
                began = time.monotonic()
                try:
                    asyncio.run(attempt(fake, library, judge, function))
                    passed += 1
                    print(f"ok {name} ({time.monotonic() - began:.1f} s)", flush=True)
                except Exception as exc:
                    failed += 1
                    text = str(exc) if isinstance(exc, Failed) else f"{type(exc).__name__}: {exc}"
                    print(f"FAILED {name}: {text}", flush=True)
    finally:
        fake.close()
    if schema:
        print(f"{judge.judged} answers and {judge.dispatches} dispatches were judged by Discord's OpenAPI document")
    print(f"{passed} passed, {failed} failed", flush=True)
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
