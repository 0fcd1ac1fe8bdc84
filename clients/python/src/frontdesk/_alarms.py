"""Jobs at fixed times. The server holds one alarm for each, wakes the agent, and hands the fire over like a message."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ._cron import Schedule
from ._errors import FrontdeskError
from ._http import Http, Json

# Prefixes of our own alarms. Others are not touched.
CRON = "cron:"
ALARM = "alarm:"
# Callback for alarms through the agent's own connection.
BY_RELAY = "relay:"


@dataclass(frozen=True)
class Fire:
    """A due job: its name, its planned time in UTC, and the payload given to `alarm`."""

    name: str
    at: dt.datetime
    payload: Any = None


FireHandler = Callable[[Fire], Awaitable[None]]


@dataclass(frozen=True)
class Job:
    schedule: Schedule
    handler: FireHandler


def to_text(time: dt.datetime) -> str:
    """The time as text. The server returns it unchanged, so texts can be compared."""
    if time.tzinfo is None:
        raise FrontdeskError(f"the time {time.isoformat()} has no time zone", "bad_request")
    return time.astimezone(dt.timezone.utc).isoformat().replace("+00:00", "Z")


def from_text(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00"))


def fire_of(forward: Json) -> tuple[str, dt.datetime] | None:
    """Id and time of a due job; None for other forwards. Not signed: it comes over the authenticated connection."""
    if (forward.get("platform"), forward.get("path")) != ("cron", "/api/cron/fire"):
        return None
    try:
        body = cast(Json, json.loads(base64.b64decode(str(forward["bodyB64"]))))
        return str(body["job_id"]), from_text(str(body["fire_at"]))
    except (KeyError, TypeError, ValueError):
        return None


class Alarms:
    """The alarms of this agent at the server."""

    def __init__(self, http: Http, token: Callable[[], str]) -> None:
        self._http, self._token = http, token

    async def _call(self, method: str, name: str, body: Json | None = None) -> Json:
        return await self._http.json(method, f"/api/agent-cron/{name}", self._token(), body)

    async def arm(self, job_id: str, at: dt.datetime) -> None:
        fire_at = to_text(at)
        await self._call("POST", "provision", {"job_id": job_id, "fire_at": fire_at, "agent_callback_url": BY_RELAY,
                                               "dedup_key": f"{job_id}:{fire_at}"})

    async def arm_next(self, name: str, job: Job, after: dt.datetime) -> None:
        if at := job.schedule.next_after(after):
            await self.arm(CRON + name, at)

    async def cancel(self, job_id: str) -> None:
        await self._call("POST", "cancel", {"job_id": job_id})

    async def reconcile(self, jobs: Mapping[str, Job], now: dt.datetime) -> None:
        """Arms what is missing or differs, and cancels the jobs that are not declared any more."""
        armed: list[dict[str, Any]] = (await self._call("GET", "list"))["armed"]
        known = {str(it["job_id"])[len(CRON):]: str(it["fire_at"]) for it in armed if str(it["job_id"]).startswith(CRON)}
        for name, job in jobs.items():
            at = job.schedule.next_after(now)
            # One that is due already is about to fire, and the next is armed then.
            is_due = name in known and from_text(known[name]) <= now
            if at is not None and not is_due and known.get(name) != to_text(at):
                await self.arm(CRON + name, at)
        for name in known.keys() - jobs.keys():
            await self.cancel(CRON + name)
