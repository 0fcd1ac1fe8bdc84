"""Discord's published OpenAPI document as a judge of requests, of answers, and of objects in dispatches."""

import json
import os
import re
import urllib.parse
from pathlib import Path

import jsonschema

NAME = "discord-openapi.json"
# Dispatches are not described themselves; their objects are those of REST.
DISPATCHES = {
    "MESSAGE_CREATE": "MessageResponse", "MESSAGE_UPDATE": "MessageResponse", "GUILD_CREATE": "GuildResponse",
    "CHANNEL_CREATE": "GuildChannelResponse", "CHANNEL_UPDATE": "GuildChannelResponse", "CHANNEL_DELETE": "GuildChannelResponse",
    "THREAD_CREATE": "ThreadResponse", "THREAD_UPDATE": "ThreadResponse", "GUILD_MEMBER_ADD": "GuildMemberResponse",
    "GUILD_MEMBER_UPDATE": "GuildMemberResponse",
}


def find():
    """The judge, or None and the path where the document was looked for."""
    folder = os.environ.get("FRONTDESK_SCHEMAS")
    path = Path(folder or "/nonexistent") / NAME
    return (Schema(json.loads(path.read_text())), path) if path.is_file() else (None, path)


def lenient(value):
    """Answers may fit several kinds of a channel or component at once: one of them is enough."""
    if isinstance(value, dict):
        return {("anyOf" if key == "oneOf" else key): lenient(item) for key, item in value.items()}
    return [lenient(item) for item in value] if isinstance(value, list) else value


class Schema:
    def __init__(self, document):
        self.document = lenient(document)
        # The document says that codes inside a form's errors are numbers; its own examples have names.
        coded = {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
                 "required": ["code", "message"]}
        self.document["components"]["schemas"]["InnerErrors"]["properties"]["_errors"]["items"] = coded
        # It knows replies, but not yet forwarded messages, which its own snapshots are about.
        self.document["components"]["schemas"]["MessageReferenceType"] = {"type": "integer", "enum": [0, 1]}
        self.routes = []
        for path, methods in document["paths"].items():
            pattern = re.compile("/".join("[^/]+" if part.startswith("{") else re.escape(part) for part in path.split("/")))
            self.routes.append((path.count("{"), path, pattern, methods))
        # "@me" is found before "{id}".
        self.routes.sort(key=lambda route: route[0])
        self.validators = {}

    def problems(self, method, path, status, body):
        path = urllib.parse.unquote(path)
        for _, name, pattern, methods in self.routes:
            if pattern.fullmatch(path) and method.lower() in methods:
                return self._judged(method.lower(), name, status, body)
        return [f"{method} {path} is not described"]

    def problems_of_request(self, call):
        """Of a call as the fake records it."""
        method, path = call["method"].split(" ")[0].lower(), "/" + call["path"].split("?")[0].lstrip("/")
        for _, name, pattern, methods in self.routes:
            if pattern.fullmatch(urllib.parse.unquote(path)) and method in methods:
                content = methods[method].get("requestBody", {}).get("content", {})
                schema = content.get("application/json", {}).get("schema")
                params = call["params"]
                if schema is None:
                    return [f"{method} {name}: a body that is not described"] if params else []
                return self._found(f"{method} {name}", lenient(schema), strict(params))
        return [f"{method} {path} is not described"]

    def _judged(self, method, name, status, body):
        where = f"{method} {name} {status}"
        described = self.document["paths"][name][method]["responses"]
        answer = described.get(str(status)) or described.get(f"{status // 100}XX")
        if answer is None:
            return [] if status >= 500 else [f"{where}: this status is not described"]
        if "$ref" in answer:
            answer = self.document["components"]["responses"][answer["$ref"].rsplit("/", 1)[-1]]
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        if schema is None:
            return [f"{where}: a body that is not described"] if body else []
        try:
            value = json.loads(body)
        except ValueError:
            return [f"{where}: the body is not JSON"]
        return self._found(where, schema, value)

    def problems_of_dispatch(self, frame):
        """The object of a dispatch, or those in it."""
        name, data = frame["t"], frame["d"]
        found = []
        if name in DISPATCHES:
            found += self._found(name, self._of(DISPATCHES[name]), data)
        if name == "GUILD_CREATE":
            for field, kind in (("channels", "GuildChannelResponse"), ("threads", "ThreadResponse"), ("members", "GuildMemberResponse")):
                for item in data[field]:
                    found += self._found(f"{name} {field}", self._of(kind), item)
        if name in ("GUILD_ROLE_CREATE", "GUILD_ROLE_UPDATE"):
            found += self._found(name, self._of("GuildRoleResponse"), data["role"])
        if name == "INTERACTION_CREATE" and "message" in data:
            found += self._found(f"{name} message", self._of("MessageResponse"), data["message"])
        return found

    def _of(self, kind):
        return {"$ref": f"#/components/schemas/{kind}"}

    def _found(self, where, schema, value):
        validator = self._validator(schema)
        errors = sorted(validator.iter_errors(value), key=lambda error: len(error.absolute_path))
        return [f"{where} at {'/'.join(map(str, error.absolute_path))}: {explain(error)}" for error in errors[:3]]

    def _validator(self, schema):
        key = json.dumps(schema, sort_keys=True)
        if key not in self.validators:
            whole = {**schema, "components": self.document["components"]}
            self.validators[key] = jsonschema.Draft202012Validator(whole)
        return self.validators[key]


def strict(params):
    """Without files, which are parts of their own beside the JSON."""
    return {name: value for name, value in params.items() if not name.startswith("files[")} if isinstance(params, dict) else params


def explain(error):
    while error.context:
        error = max(error.context, key=lambda inner: len(inner.absolute_path))
    return error.message[:200]
