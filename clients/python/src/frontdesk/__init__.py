"""Write an agent that sleeps behind a Frontdesk server."""

from ._accounts import Credentials, enroll, provision
from ._agent import Agent
from ._alarms import Fire
from ._errors import Closed, FrontdeskError, Revoked
from ._message import Chat, Media, Message, Pressed, Sent, Stream
from ._peers import InboxMessage, Reply

__all__ = ["Agent", "Chat", "Closed", "Credentials", "Fire", "FrontdeskError", "InboxMessage", "Media", "Message", "Pressed", "Reply",
           "Revoked", "Sent", "Stream", "enroll", "provision"]
