"""What an agent remembers between two runs: its place in the inbox, and what belongs to its alarms."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import uuid
from pathlib import Path
from typing import Any, cast

from ._errors import FrontdeskError

# Remembered inbox messages whose copies on the socket may still arrive: a loop over the inbox reads ahead of the socket,
# and a copy that is not recognised would be handled again.
HANDLED_MAX = 4096


def state_path(given: str | os.PathLike[str] | None, base: str, name: str) -> Path:
    """Path of the state file; different for each agent and server."""
    if given is not None:
        return Path(given)
    root = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    readable = "".join(character if character.isalnum() else "_" for character in name)[:40]
    return Path(root) / "frontdesk" / f"{readable}-{uuid.uuid5(uuid.NAMESPACE_URL, f'{base}/agents/{name}').hex[:8]}.json"


class State:
    """A file that only this user can read, replaced as a whole. It is read when it is needed first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Any] | None = None

    @property
    def _data(self) -> dict[str, Any]:
        if self._known is None:
            try:
                known = dict(cast("dict[str, Any]", json.loads(self._path.read_text())))
                if "letters" in known:  # what earlier versions called it
                    known.setdefault("handled", known.pop("letters"))
                self._known = known
            except FileNotFoundError:
                self._known = {}
            except (OSError, ValueError, TypeError) as error:
                text = f"the state file {self._path} cannot be read ({error}); repair or delete it"
                raise FrontdeskError(text, "bad_request") from error
        return self._known

    def _save(self, **changes: Any) -> None:
        data = {**self._data, **changes}
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(json.dumps(data))
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        self._known = data

    # ---- the inbox -------------------------------------------------------------------------

    @property
    def inbox(self) -> int:
        """The number of the last message that was handled."""
        return int(self._data.get("inbox", 0))

    def has_handled(self, message: str) -> bool:
        return message in self._data.get("handled", ())

    def handled(self, seq: int, message: str) -> None:
        self._save(inbox=seq, handled=[*self._data.get("handled", ()), message][-HANDLED_MAX:])

    # ---- alarms ----------------------------------------------------------------------------
    # A payload belongs to a name and a time: the same name can be armed again before the last one is handled.

    def payload(self, alarm: str, fire_at: str) -> Any:
        at, payload = self._data.get("alarms", {}).get(alarm, (None, None))
        return payload if at == fire_at else None

    def keep_payload(self, alarm: str, fire_at: str, payload: Any) -> None:
        self._save(alarms={**self._data.get("alarms", {}), alarm: (fire_at, payload)})

    def forget_payload(self, alarm: str, fire_at: str | None = None) -> None:
        alarms: dict[str, Any] = self._data.get("alarms", {})
        if alarm in alarms and fire_at in (None, alarms[alarm][0]):
            self._save(alarms={name: kept for name, kept in alarms.items() if name != alarm})
