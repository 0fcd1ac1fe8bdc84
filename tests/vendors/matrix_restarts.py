"""1,000 messages through Synapse to a real gateway, while Synapse and the server are restarted: none is lost, none comes
twice, and of the agent's answers those that were claimed are there once.

  FRONTDESK_BIN=path/to/frontdesk tests/vendors/matrix_restarts.py [--only PATTERN]

By polling, and as an application service. One line per check; the last line is the tally.
"""

import os
import sys
import threading
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hermes"))
sys.path.insert(1, str(Path(__file__).resolve().parent))

import matrix  # noqa: E402
from harness import Checks, Failed, Link, end_process, ensure, request, same, unique, wait_for  # noqa: E402
from matrix import quote, synapse_python  # noqa: E402

COUNT = 1000
ANSWER_EVERY = 10
check = Checks()


class Scene(matrix.Scene):
    def dial(self):
        """The gateway dials again by itself."""
        link = Link(self.driver, unique("link"))
        result = self.driver.call("open", name=link.name, url=self.desk.url, gateway_id="agent", secret=self.secret,
                                  platform="matrix", bot_id="bot", reconnect=True)
        ensure(result["connected"], f"no handshake: {result}")
        return link

    def say_surely(self, room, text, txn):
        """Under one transaction id until Synapse has taken it."""
        def attempt():
            try:
                path = f"{self.server.url}/_matrix/client/v3/rooms/{quote(room)}/send/m.room.message/{txn}"
                return request("PUT", path, {"msgtype": "m.text", "body": text}, self.ann.token, timeout=10)[0] == 200
            except OSError:
                return False

        wait_for(attempt, f"Synapse takes {text!r}", timeout=120, interval=0.2)


def restart_synapse(s):
    end_process(s.server.process)
    s.server.start()
    wait_for(s.server.is_up, "Synapse after its restart", timeout=90)


@check
def a_thousand_messages_come_once_through_restarts_of_both(s):
    if s.dm is None:
        s.dm = s.ann.room(s.me, is_direct=True)
    group = s.ann.room(s.me, name="Ops")
    for room in (s.dm, group):
        wait_for(lambda: s.me in s.ann.members(room), "the bot in the room", timeout=60)
    rooms = (s.dm, group)
    plan = {COUNT // 5: s.desk.restart, 2 * COUNT // 5: lambda: restart_synapse(s),
            3 * COUNT // 5: s.desk.restart, 4 * COUNT // 5: lambda: restart_synapse(s)}
    problems = []

    def speak():
        try:
            for number in range(COUNT):
                if number in plan:
                    # The restart happens while people go on talking.
                    restart = threading.Thread(target=guarded(plan[number], problems), daemon=True)
                    restart.start()
                s.say_surely(rooms[number % 2], f"message {number}", f"m{number}")
        except Exception as exc:
            problems.append(exc)

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    seen, order, answers = Counter(), {room: [] for room in rooms}, {}
    while len(seen) < COUNT:
        ensure(not problems, f"{problems}")
        try:
            got = s.link.inbound(timeout=120)
        except Failed as exc:
            lost = [number for number in range(COUNT) if f"message {number}" not in seen]
            raise Failed(f"{exc}; {len(lost)} are missing, first {lost[:3]}, last {lost[-3:]}") from None
        text = got["text"]
        seen[text] += 1
        order[got["source"]["chat_id"]].append(int(text.removeprefix("message ")))
        if len(seen) % ANSWER_EVERY == 0 and text not in answers:
            answers[text] = (got["source"]["chat_id"], answer(s, got["source"]["chat_id"], f"answer to {text}"))
    speaker.join(120)
    same([text for text, count in seen.items() if count > 1], [], "messages that came twice")
    if s.mode == "sync":
        # What Synapse forgot to push when it stopped is found by a later poll, behind newer messages.
        for room in rooms:
            same(order[room], sorted(order[room]), "the order in a room")
    claimed = 0
    shown = {room: Counter(e["content"].get("body") for e in s.ann.messages(room, limit=1000)) for room in rooms}
    for text, (room, result) in answers.items():
        count = shown[room][f"answer to {text}"]
        if result.get("success"):
            claimed += 1
            same(count, 1, f"answers to {text!r}, which was claimed to be sent")
        else:
            ensure(count <= 1, f"{count} answers to {text!r}: {result}")
    ensure(claimed >= COUNT // ANSWER_EVERY // 2, f"only {claimed} of {len(answers)} answers went out")
    print(f"    {COUNT} messages, {len(answers)} answers, {claimed} of them claimed", flush=True)


def answer(s, room, text):
    """While the server is away the gateway cannot send: that is a failure of its own, and nothing was claimed."""
    try:
        return s.link.act("send", platform="matrix", chat_id=room, content=text)
    except Failed as exc:
        return {"error": str(exc)}


def guarded(action, problems):
    def run():
        try:
            action()
        except Exception as exc:
            problems.append(exc)

    return run


if __name__ == "__main__":
    python = synapse_python() if os.environ.get("FRONTDESK_BIN") else ""
    sys.exit(check.run([(mode, lambda mode=mode: Scene(mode, python)) for mode in ("sync", "appservice")]))
