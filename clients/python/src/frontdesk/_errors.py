"""What can go wrong."""

from __future__ import annotations


class FrontdeskError(Exception):
    """The server refused an action, or did not answer.

    `code` is one of the server's error codes. `ambiguous`: it may have happened nevertheless, so do not repeat it blindly.
    """

    def __init__(self, text: str, code: str = "unknown", ambiguous: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.ambiguous = ambiguous


class Closed(FrontdeskError):
    """There is no connection to the server."""

    def __init__(self, text: str = "there is no connection to the server") -> None:
        super().__init__(text, "unavailable")


class Revoked(FrontdeskError):
    """The server does not accept the id and the secret of this agent any more."""

    def __init__(self, text: str = "the server does not accept the id and the secret of this agent") -> None:
        super().__init__(text, "unauthorized")
