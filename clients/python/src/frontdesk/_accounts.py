"""How an agent gets its id and secret."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from ._errors import FrontdeskError
from ._http import Http, Json


@dataclass(frozen=True)
class Credentials:
    gateway_id: str
    secret: str = field(repr=False)
    tenant: str
    url: str

    def environment(self) -> dict[str, str]:
        """The variables from which `Agent()` reads them."""
        return {"GATEWAY_RELAY_URL": self.url, "GATEWAY_RELAY_ID": self.gateway_id, "GATEWAY_RELAY_SECRET": self.secret}


def identity_token(given: str | None) -> str:
    found = given or os.environ.get("FRONTDESK_IDENTITY_TOKEN")
    if not found:
        text = ("FRONTDESK_IDENTITY_TOKEN is not set: cron, alarms, enroll and provision need the token that "
                "`frontdesk token create --tenant TENANT --scope identity --instance NAME` prints")
        raise FrontdeskError(text, "unauthorized")
    return found


async def _ask(url: str, path: str, identity: str | None, body: Json) -> Credentials:
    http = Http(url)
    made = await http.json("POST", path, identity_token(identity), body)
    return Credentials(str(made["gatewayId"]), str(made["secret"]), str(made["tenant"]), http.base)


async def enroll(url: str, token: str, gateway_id: str, *, identity: str | None = None) -> Credentials:
    """With a one-time token (`frontdesk enroll-token`). `identity`: of the same tenant, default FRONTDESK_IDENTITY_TOKEN."""
    return await _ask(url, "/relay/enroll", identity, {"enrollmentToken": token, "gatewayId": gateway_id})


async def provision(url: str, gateway_id: str, *, identity: str | None = None, platform: str = "relay", bot: str = "",
                    instance: str | None = None, wake_url: str | None = None) -> Credentials:
    """Makes the account of an agent, or changes its wake URL. Within ten minutes it returns the same secret again."""
    body: Json = {"gatewayId": gateway_id, "platform": platform, "botId": bot, "gatewayEndpoint": "", "routeKeys": []}
    body.update({name: value for name, value in (("instanceId", instance), ("wakeUrl", wake_url)) if value is not None})
    return await _ask(url, "/relay/provision", identity, body)
