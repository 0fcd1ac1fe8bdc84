"""Write an agent that sleeps behind a Frontdesk server."""

from ._agent import Agent
from ._errors import Closed, FrontdeskError, Revoked
from ._message import Chat, Media, Message, Pressed, Sent, Stream

__all__ = ["Agent", "Chat", "Closed", "FrontdeskError", "Media", "Message", "Pressed", "Revoked", "Sent", "Stream"]
