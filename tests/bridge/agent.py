"""An agent on the official package `agent-client-protocol`, for the tests of `frontdesk agent run --acp`.

SESSIONS is a folder where it keeps its sessions; CAN is `load`, `resume` or empty. The first word of a prompt says what to do.
"""

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path

import acp
from acp.schema import AgentCapabilities, PermissionOption, SessionCapabilities, SessionResumeCapabilities

FOLDER, CAN = Path(os.environ["SESSIONS"]), os.environ.get("CAN", "load")


class Agent(acp.Agent):
    def __init__(self):
        self.cancelled = {}

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **_):
        (FOLDER / "starts").open("a").write("started\n")
        resume = SessionCapabilities(resume=SessionResumeCapabilities()) if CAN == "resume" else SessionCapabilities()
        return acp.InitializeResponse(protocol_version=1, agent_capabilities=AgentCapabilities(
            load_session=CAN == "load", session_capabilities=resume))

    async def new_session(self, cwd, **_):
        session = uuid.uuid4().hex
        self.path(session).write_text("[]")
        return acp.NewSessionResponse(session_id=session)

    async def load_session(self, cwd, session_id, **_):
        for line in self.history(session_id):
            await self.say(session_id, f"history: {line}")
        return acp.LoadSessionResponse()

    async def resume_session(self, session_id, cwd, **_):
        self.history(session_id)
        return acp.schema.ResumeSessionResponse()

    def path(self, session):
        return FOLDER / f"{session}.json"

    def history(self, session):
        return json.loads(self.path(session).read_text())

    async def say(self, session, text):
        await self.client.session_update(session, acp.update_agent_message_text(text))

    async def cancel(self, session_id, **_):
        self.cancelled.setdefault(session_id, asyncio.Event()).set()

    async def prompt(self, session_id, prompt, **_):
        text = "".join(block.text for block in prompt if block.type == "text")
        stopped = self.cancelled[session_id] = asyncio.Event()
        word, _, rest = text.partition(" ")
        history = self.history(session_id)
        if word == "remember":
            self.path(session_id).write_text(json.dumps([*history, rest]))
            await self.say(session_id, f"noted {rest}")
        elif word == "recall":
            await self.say(session_id, f"you said {', '.join(history)}")
        elif word == "stream":
            for part in rest.split():
                await self.say(session_id, part + " ")
                await asyncio.sleep(0.7)
        elif word == "lines":
            for number in range(int(rest)):
                await self.say(session_id, f"line {number} of many that nobody wants to read\n")
        elif word == "permit":
            await self.client.session_update(session_id, acp.start_tool_call("call-1", "delete everything"))
            answer = await self.client.request_permission(
                session_id=session_id, tool_call=acp.schema.ToolCallUpdate(tool_call_id="call-1", raw_input={"path": "/"}),
                options=[PermissionOption(option_id="yes-always", name="Always", kind="allow_always"),
                         PermissionOption(option_id="yes-once", name="Allow", kind="allow_once"),
                         PermissionOption(option_id="no-once", name="Deny", kind="reject_once")])
            await self.say(session_id, f"outcome {getattr(answer.outcome, 'option_id', 'cancelled')}")
        elif word == "silently":
            answer = await self.client.request_permission(
                session_id=session_id, tool_call=acp.schema.ToolCallUpdate(tool_call_id="call-2"),
                options=[PermissionOption(option_id="yes-once", name="Allow", kind="allow_once")])
            await self.say(session_id, f"outcome {answer.outcome.outcome}")
        elif word == "hang":
            await self.say(session_id, "waiting")
            await stopped.wait()
            (FOLDER / "cancelled").write_text(rest)
            return acp.PromptResponse(stop_reason="cancelled")
        elif word == "deaf":
            await asyncio.Event().wait()
        elif word == "die":
            marker = FOLDER / f"died-{rest}"
            if not marker.exists():
                marker.write_text("")
                await self.say(session_id, "half an ans")
                await asyncio.sleep(0.5)
                os._exit(9)
            await self.say(session_id, f"alive again, {', '.join(history)}")
        elif word == "file":
            link = next(block for block in prompt if block.type == "resource_link")
            content = Path(link.uri.removeprefix("file://")).read_bytes()
            await self.say(session_id, f"{link.name} has {len(content)} bytes")
        elif word == "write":
            try:
                await self.client.write_text_file(session_id=session_id, path="/nowhere", content="x")
            except acp.RequestError as error:
                await self.say(session_id, f"refused {error.code}")
        elif word == "mute":
            pass
        else:
            await self.say(session_id, f"heard {text}")
        return acp.PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    print("this goes to the log", file=sys.stderr)
    asyncio.run(acp.run_agent(Agent(), use_unstable_protocol=True))
