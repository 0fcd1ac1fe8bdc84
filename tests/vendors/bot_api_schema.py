"""Judges JSON by the published description of the Bot API: types, required fields, and no unknown fields.

The description is not part of this project. It is read from the folder that FRONTDESK_SCHEMAS names, or from
../shared/data/schemas beside the project, if it is there.
"""

import json
import os
import re
from pathlib import Path

FILE = "telegram-bot-api.json"
SIMPLE = {"Integer": int, "String": str, "Boolean": bool, "Float": (int, float)}
# Fields that a later version of the API added, and that libraries of that version require.
NEWER = {"ChatMemberAdministrator": {"can_send_welcome_messages"}}
FIXED = re.compile(r'(?:always|must be) ["“]([^"”]+)["”]')


def find():
    """The description, or None and where it was looked for."""
    project = Path(__file__).resolve().parent.parent.parent
    folder = os.environ.get("FRONTDESK_SCHEMAS")
    path = Path(folder) / FILE if folder else project.parent / "shared" / "data" / "schemas" / FILE
    return (Schema(json.loads(path.read_text())) if path.is_file() else None), path


class Schema:
    def __init__(self, description):
        self.types = description["types"]
        self.methods = {name.lower(): method for name, method in description["methods"].items()}

    def problems_of_answer(self, method, body):
        """What is wrong with the answer to a call of this method."""
        if not isinstance(body, dict) or not isinstance(body.get("ok"), bool):
            return [f"{method}: not the envelope of the API: {body!r}"]
        if not body["ok"]:
            return self._error(method, body)
        unknown = set(body) - {"ok", "result"}
        if unknown:
            return [f"{method}: unknown fields {unknown} beside the result"]
        if method.lower() not in self.methods:
            return [f"{method} is not described"]
        return self._any(body["result"], self.methods[method.lower()]["returns"], method)

    def problems_of_update(self, update):
        found = self._one(update, "Update", "update")
        if len(update) != 2:
            found.append(f"update: one kind is expected: {sorted(update)}")
        return found

    def _error(self, method, body):
        found = [f"{method}: error without {name}" for name in ("error_code", "description") if name not in body]
        unknown = set(body) - {"ok", "error_code", "description", "parameters"}
        if unknown:
            found.append(f"{method}: unknown fields {unknown} beside the error")
        if "parameters" in body:
            found += self._one(body["parameters"], "ResponseParameters", f"{method}.parameters")
        return found

    def _any(self, value, types, where):
        attempts = [self._one(value, name, where) for name in types]
        return min(attempts, key=len) if attempts else []

    def _one(self, value, name, where):
        if name.startswith("Array of "):
            if not isinstance(value, list):
                return [f"{where}: a list is expected, not {value!r}"]
            inner = name.removeprefix("Array of ")
            return [problem for at, item in enumerate(value) for problem in self._one(item, inner, f"{where}[{at}]")]
        if name in SIMPLE:
            is_flag = isinstance(value, bool)
            fits = isinstance(value, SIMPLE[name]) and (name == "Boolean" or not is_flag)
            return [] if fits else [f"{where}: {name} is expected, not {value!r}"]
        if name == "True":
            return [] if value is True else [f"{where}: true is expected, not {value!r}"]
        described = self.types.get(name)
        if described is None:
            return [f"{where}: type {name} is not described"]
        if described.get("subtypes"):
            return self._any(value, described["subtypes"], where)
        if not isinstance(value, dict):
            return [f"{where}: {name} is expected, not {value!r}"]
        return self._fields(value, described.get("fields", []), name, where)

    def _fields(self, value, fields, name, where):
        known = {field["name"]: field for field in fields}
        found = [f"{where}.{key}: unknown field of {name}" for key in value
                 if key not in known and key not in NEWER.get(name, ())]
        for key, field in known.items():
            if key not in value:
                if field["required"]:
                    found.append(f"{where}.{key}: required in {name}")
                continue
            found += self._any(value[key], field["types"], f"{where}.{key}")
            fixed = FIXED.search(field["description"]) if key in ("type", "status", "source") else None
            if fixed and value[key] != fixed[1]:
                found.append(f"{where}.{key}: {name} has {fixed[1]!r}, not {value[key]!r}")
        return found
