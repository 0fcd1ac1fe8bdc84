"""Two ways from a platform to a gateway, compared: the gateway's own adapter of that platform, and the server under
test with the gateway's relay client behind it."""

import re

from harness import NEWEST, Driver, Failed, Link, cache_root, ensure, unique, wait_for

# Of the gateway's SessionSource.
SOURCE = ("platform", "chat_id", "chat_type", "chat_name", "user_id", "user_name", "thread_id", "chat_topic", "user_id_alt",
          "chat_id_alt", "scope_id", "parent_chat_id", "message_id")
# Of its MessageEvent.
EVENT = ("session_key", "text", "message_type", "message_id", "command", "command_args", "reply_to_message_id")


def kind_of(mime):
    major = mime.split("/")[0]
    return major if major in ("image", "audio", "video") else "document"


def of_native(record):
    """The fields of an event of the gateway's own adapter."""
    fields = {f"source.{name}": record["source"][name] for name in SOURCE}
    fields.update({name: record[name] for name in EVENT})
    fields["source.is_bot"] = record["source"]["is_bot"]
    fields["reply_to_text"] = record["reply_to_text"]
    fields["media_types"] = record["media_types"] or []
    fields["media_kinds"] = [kind_of(mime) for mime in fields["media_types"]]
    ensure(len(record["media_urls"] or []) == len(fields["media_types"]), f"native files without a type: {record}")
    return fields


def of_relay(record):
    """The same of an event that came over the relay. What the gateway does not read there is taken from the wire."""
    wire = record["wire"]
    fields = {f"source.{name}": record["source"][name] for name in SOURCE}
    fields.update({name: record[name] for name in EVENT})
    fields["source.is_bot"] = wire["source"].get("is_bot", False)
    fields["reply_to_text"] = (wire.get("reply_to") or {}).get("text")
    media = wire.get("media") or []
    # On the relay a voice note is a kind of its own.
    fields["media_kinds"] = ["audio" if it["kind"] == "voice" else it["kind"] for it in media]
    fields["media_types"] = [it["mime"] for it in media]
    ensure(record["media_urls"] == [it["url"] for it in media], f"files of the event and of the wire differ: {record}")
    return fields


def agrees(listed, value):
    if isinstance(listed, re.Pattern):
        return isinstance(value, str) and listed.fullmatch(value) is not None
    return listed == value


def native_driver(**env):
    python = cache_root() / "native" / "bin" / "python"
    ensure((cache_root() / "native" / "ready").exists(), "run tests/hermes/setup.sh native first")
    return Driver(NEWEST, str(python), **env)


class Comparison:
    """Compares the events of each step of a scene.

    `differences` has, for a step, the fields that differ, each with what the native adapter says, what we say, and why.
    What varies from run to run is a pattern. `spellings` has other names of media types that the native adapter uses.
    """

    def __init__(self, differences, spellings):
        self.table = {(step, field): rest for step, fields in differences.items() for field, rest in fields.items()}
        self.spellings = spellings
        self.unseen = {*self.table, *(("any step", mime) for mime in spellings)}

    def spelled(self, mime):
        self.unseen.discard(("any step", mime))
        return self.spellings.get(mime, mime)

    def take_late(self, name, side, native, ours):
        """Waits for events that the native adapter owes: while it loads a file, it hears what is said after it."""
        wanted = self.table.get((name, "events"), (len(ours),))[0]
        while len(native) < wanted:
            native.append(side.driver.inbound(side.name))

    def step(self, name, native, ours):
        """Compares the events of one step."""
        found = {}
        if len(native) != len(ours):
            found["events"] = (len(native), len(ours))
        else:
            for one, other in zip(map(of_native, native), map(of_relay, ours)):
                one["media_types"] = [self.spelled(mime) for mime in one["media_types"]]
                for field in one:
                    if one[field] != other[field]:
                        found[field] = (one[field], other[field])
        problems = []
        for field, (theirs, mine) in found.items():
            listed = self.table.get((name, field))
            self.unseen.discard((name, field))
            if listed is None:
                problems.append(f"{field}: native {theirs!r}, ours {mine!r}")
            elif not (agrees(listed[0], theirs) and agrees(listed[1], mine)):
                problems.append(f"{field}: listed with {listed[0]!r} and {listed[1]!r}, saw {theirs!r} and {mine!r}")
        if problems:
            raise Failed("differs: " + "; ".join(problems))

    def no_difference_is_listed_in_vain(self):
        if self.unseen:
            raise Failed(f"listed, but equal: {', '.join(f'{field} of {step}' for step, field in sorted(self.unseen))}")


class Side:
    """One of the two ways: the driver of a gateway, and the name of the adapter in it."""

    def __init__(self, driver, name):
        self.driver, self.name = driver, name

    def until(self, mark, timeout=30.0):
        """The events before the one with this text."""
        got = []
        while True:
            record = self.driver.expect(self.name, "inbound", timeout=timeout, what=f"the message {mark!r}")
            if record["text"] == mark:
                return got
            got.append(record)


class Native(Side):
    def until(self, mark, timeout=30.0):
        got = super().until(mark, timeout)
        # Some messages are held back for a moment, to be merged with the next ones.
        wait_for(lambda: not self.driver.call("waiting", name=self.name), "messages that are held back")
        while self.driver.left(self.name):
            got.append(self.driver.inbound(self.name))
        return got


def open_native(platform, config, extra, **env):
    driver = native_driver(**env)
    name = unique("native")
    made = driver.call("native", name=name, platform=platform, config=config, extra=extra, timeout=60)
    ensure(made["connected"], f"the native adapter did not connect: {made} {driver.log.read_text(errors='replace')[-800:]}")
    return Native(driver, name)


def open_relay(desk, tenant, platform, bot_id, users):
    """A gateway on the relay, to which these users are linked. Returns its side and its link."""
    driver = Driver(NEWEST)
    made = driver.call("provision", url=desk.url, access_token=tenant.identity, gateway_id="agent", platform=platform,
                       bot_id=bot_id, gateway_endpoint=None, route_keys=[])
    ensure("secret" in made, f"provision: {made}")
    for user in users:
        tenant.bind(str(user), "agent", platform=platform)
    link = Link(driver, unique("relay"))
    opened = driver.call("open", name=link.name, url=desk.url, gateway_id="agent", secret=made["secret"], platform=platform,
                         bot_id=bot_id)
    ensure(opened["connected"], f"no handshake: {opened}")
    return Side(driver, link.name), link
