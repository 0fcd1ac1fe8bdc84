"""The cron expressions of the Python client, judged by croniter, by cronsim, and by a table of daylight saving cases.

  path/to/python tests/clients/cron.py        with croniter, cronsim and the package installed

One line per check; the last line is the tally.
"""

import datetime as dt
import itertools
import random
import sys
import zoneinfo

from croniter import croniter
from cronsim import CronSim
from frontdesk import FrontdeskError
from frontdesk._cron import Cron, Every

UTC = dt.timezone.utc
EXPRESSIONS = [
    "* * * * *", "*/5 * * * *", "0 9 * * 1-5", "30 2 * * *", "0 0 1 * *", "0 0 * * 0", "0 0 * * 7", "0 12 29 2 *", "15,45 8-18/2 * * *",
    "0 0 1,15 * 1", "0 0 13 * fri", "5 4 * jan,jul sun", "0 22 * * mon-fri", "10-50/10 0 * * *", "0 6 31 * *", "0 0 31 4,6,7 *",
    "59 23 31 12 *", "7/15 * * * *", "0 0 * * 5-7", "0 0 * feb-apr *", "23 0-20/2 * * *", "0 4 8-14 * *", "0 0,12 1 */2 *", "1 1 1 1 1",
]
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Asia/Beirut", "America/Santiago", "Africa/Cairo"]
IN_ZONES = ["0 9 * * *", "0 9 * * 1-5", "30 18 1 * *", "30 2 * * *", "30 1 * * *", "0 0 * * *", "15 2 * * sun", "0 * * * *", "*/20 * * * *"]
BAD = ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * 0 *", "* * * * 8",
       "5-1 * * * *", "*/0 * * * *", "*/x * * * *", "a * * * *", "1,,2 * * * *", "-1 * * * *", "1- * * * *", "* * * mon *", "* * * * jan",
       "１ * * * *", "+1 * * * *", "@daily"]
# Expression, zone, from when, and the next times, all in UTC.
CLOCK_CHANGES = [
    # Berlin: on 29 March 2026 from 2 to 3, on 25 October 2026 from 3 back to 2.
    ("0 9 * * *", "Europe/Berlin", "2026-03-27T12:00", ["2026-03-28T08:00", "2026-03-29T07:00", "2026-03-30T07:00"]),
    ("0 9 * * *", "Europe/Berlin", "2026-10-23T12:00", ["2026-10-24T07:00", "2026-10-25T08:00", "2026-10-26T08:00"]),
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
    ("0,30 1-3 * * *", "Europe/Berlin", "2026-03-29T00:15", ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30", "2026-03-29T23:00"]),
    ("0 2,3 * * *", "Europe/Berlin", "2026-10-24T23:30", ["2026-10-25T00:00", "2026-10-25T02:00", "2026-10-26T01:00"]),
    # One that runs every hour does not stop for an hour.
    ("0 * * * *", "Europe/Berlin", "2026-10-24T23:30", ["2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T02:00", "2026-10-25T03:00"]),
    ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:10", ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"]),
    # New York, in the other direction from UTC.
    ("30 2 * * *", "America/New_York", "2026-03-07T12:00", ["2026-03-08T07:00", "2026-03-09T06:30"]),
    ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["2026-11-01T05:30", "2026-11-02T06:30"]),
    # Half an hour: Lord Howe, on 4 October 2026 from 2:00 to 2:30.
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", ["2026-10-03T15:30", "2026-10-04T15:15"]),
    # At midnight: Beirut, on 29 March 2026 from 0 to 1.
    ("0 0 * * *", "Asia/Beirut", "2026-03-28T00:00", ["2026-03-28T22:00", "2026-03-29T21:00"]),
    # A day that was left out: Samoa, 30 December 2011.
    ("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00", ["2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00"]),
]
held = []


def check(name, wrong):
    held.append(not wrong)
    print(f"ok {name}" if not wrong else f"FAILED {name}: {wrong[:3]}", flush=True)


def at(text):
    return dt.datetime.fromisoformat(text).replace(tzinfo=UTC)


def runs(schedule, begin, count):
    found = []
    while len(found) < count and (begin := schedule.next_after(begin)):
        found.append(begin)
    return found


def judged(expression, zone, begin, count):
    judge = croniter(expression, begin.astimezone(zone), ret_type=dt.datetime)
    return [judge.get_next(dt.datetime).astimezone(UTC) for _ in range(count)]


def generated(dice):
    """A random expression of every form."""
    def field(low, high):
        def part():
            begin = dice.randint(low, high)
            end = dice.randint(begin, high)
            if begin == end:  # for croniter a range of one number is a whole turn
                return str(begin)
            return dice.choice([str(begin), f"{begin}-{end}", f"{begin}-{end}/{dice.randint(1, 9)}", f"*/{dice.randint(1, high)}"])
        return "*" if dice.random() < 0.4 else ",".join(part() for _ in range(dice.randint(1, 3)))
    words = [field(*limits) for limits in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))]
    found = Cron.parse(" ".join(words))
    # Whether all days, written otherwise than `*`, are a restriction: croniter says now yes, now no.
    is_odd = (words[2] != "*" and len(found.days) == 31) or (words[4] != "*" and len(found.weekdays) == 7)
    return generated(dice) if is_odd else " ".join(words)


def main():
    begins = [at("2026-01-01T00:00"), at("2024-02-28T23:59"), at("2027-12-31T23:58"), at("2026-06-15T12:34")]
    wrong = []
    for expression, begin in itertools.product(EXPRESSIONS, begins):
        seen, wanted = runs(Cron.parse(expression), begin, 20), judged(expression, UTC, begin, 20)
        if seen != wanted:
            wrong.append((expression, str(begin), [str(it) for it in seen if it not in wanted][:2]))
    check(f"{len(EXPRESSIONS)} expressions are as croniter has them", wrong)

    dice, wrong = random.Random(16), []
    for _ in range(1500):
        expression = generated(dice)
        begin = at("2020-01-01T00:00") + dt.timedelta(minutes=dice.randrange(10 * 365 * 1440))
        if runs(Cron.parse(expression), begin, 4) != judged(expression, UTC, begin, 4):
            wrong.append((expression, str(begin)))
    check("1500 random expressions are as croniter has them", wrong)

    # Where the clock changes croniter is wrong (Berlin, 29 March 2026: 9 o'clock at 8 and at 9), so another judge is asked there.
    wrong = []
    for name, expression in itertools.product(ZONES, IN_ZONES):
        zone, begin = zoneinfo.ZoneInfo(name), at("2026-01-01T00:00")
        seen, judge = runs(Cron.parse(expression, name), begin, 1000), CronSim(expression, begin.astimezone(zone))
        wanted = [next(judge).astimezone(UTC) for _ in range(1000)]
        if seen != wanted:
            wrong.append((name, expression, [str(it) for it in set(seen) ^ set(wanted)][:2]))
    check(f"{len(ZONES)} time zones across changes of the clock are as cronsim has them", wrong)

    wrong = []
    for expression, name, begin, wanted in CLOCK_CHANGES:
        seen = [it.strftime("%Y-%m-%dT%H:%M") for it in runs(Cron.parse(expression, name), at(begin), len(wanted))]
        if seen != wanted:
            wrong.append((expression, name, seen))
    check("a time that does not exist runs in the next minute that does, one that is there twice runs once", wrong)

    wrong = []
    for expression in BAD:
        try:
            wrong.append((expression, Cron.parse(expression)))
        except FrontdeskError as error:
            if error.code != "bad_request" or "is not a cron expression" not in str(error):
                wrong.append((expression, str(error)))
    check("what is no expression is refused with a reason", wrong)
    check("one that never comes has no next time", [it for it in [Cron.parse("0 0 30 2 *").next_after(at("2026-01-01T00:00"))] if it])

    seen = [it.strftime("%H:%M:%S") for it in runs(Every.parse(45), at("2026-01-01T00:00"), 3)]
    check("an interval continues its row", [] if seen == ["00:00:45", "00:01:30", "00:02:15"] else seen)

    print(f"{held.count(True)} passed, {held.count(False)} failed", flush=True)
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
