"""When a job runs: a cron expression in a time zone, or an interval."""

from __future__ import annotations

import datetime as dt
import functools
import math
import zoneinfo
from dataclasses import dataclass
from typing import Protocol

from ._errors import FrontdeskError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MINUTE = dt.timedelta(minutes=1)
# 29 February can be eight years away.
DAYS_AHEAD = 8 * 366 + 1


class Schedule(Protocol):
    def next_after(self, time: dt.datetime) -> dt.datetime | None:
        """The first time after this one, in UTC. None: there is none."""
        ...


def _bad(expression: str, why: str) -> FrontdeskError:
    return FrontdeskError(f"{expression!r} is not a cron expression: {why}", "bad_request")


def _field(text: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    """Lists of `*`, `a`, `a-b`, each with an optional step. Raises ValueError."""
    def number(word: str) -> int:
        if word.lower() in names:
            return names.index(word.lower()) + low
        if not (word.isascii() and word.isdigit() and low <= int(word) <= high):
            raise ValueError(f"{word!r} is not between {low} and {high}" + (f" or {names[0]} to {names[-1]}" if names else ""))
        return int(word)

    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdigit() and int(step) > 0):
            raise ValueError(f"{step!r} is not a step")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = low, high
        elif dash:
            begin, end = number(first), number(last)
        else:
            begin = number(first)
            end = high if slash else begin
        if begin > end:
            raise ValueError(f"{span!r} runs backwards")
        found.update(range(begin, end + 1, int(step) if slash else 1))
    return frozenset(found)


@dataclass(frozen=True)
class Cron:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    # With both kinds of days restricted, one of them is enough.
    any_day: bool
    # An expression for every hour goes on through an hour that is there twice; one for certain hours runs once.
    every_hour: bool
    zone: dt.tzinfo

    @classmethod
    def parse(cls, expression: str, zone: str = "UTC") -> Cron:
        words = expression.split()
        if len(words) != 5:
            raise _bad(expression, f"it has {len(words)} fields and not 5 (minute, hour, day, month, weekday)")
        try:
            minutes, hours, days = _field(words[0], 0, 59), _field(words[1], 0, 23), _field(words[2], 1, 31)
            months, weekdays = _field(words[3], 1, 12, MONTHS), _field(words[4], 0, 7, DAYS)
        except ValueError as error:
            raise _bad(expression, str(error)) from None
        try:
            tz = dt.timezone.utc if zone == "UTC" else zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            text = f"the time zone {zone!r} is not known here (without a system database, install the package tzdata)"
            raise FrontdeskError(text, "bad_request") from None
        weekdays = frozenset(day % 7 for day in weekdays)
        any_day, every_hour = len(days) < 31 and len(weekdays) < 7, words[1].startswith("*") or len(hours) == 24
        return cls(minutes, hours, days, months, weekdays, any_day, every_hour, tz)

    def _has(self, day: dt.date) -> bool:
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (by_date or by_weekday if self.any_day else by_date and by_weekday)

    def next_after(self, time: dt.datetime) -> dt.datetime | None:
        begin = time.astimezone(self.zone).date() - dt.timedelta(days=1)  # what was put off may be of the day before
        for ahead in range(DAYS_AHEAD + 1):
            day = begin + dt.timedelta(days=ahead)
            later = [instant for instant in _instants(self, day) if instant > time] if self._has(day) else []
            if later:
                return min(later)
        return None


@functools.lru_cache(maxsize=8)
def _instants(cron: Cron, day: dt.date) -> list[dt.datetime]:
    """The times of a day in UTC."""
    found: list[dt.datetime] = []
    for hour in cron.hours:
        for minute in cron.minutes:
            local = dt.datetime(day.year, day.month, day.day, hour, minute)
            while not _exists(local, cron.zone):
                local += MINUTE  # the clock was put forward: the next minute that exists
            found.append(local.replace(tzinfo=cron.zone).astimezone(dt.timezone.utc))
            if cron.every_hour:
                found.append(local.replace(tzinfo=cron.zone, fold=1).astimezone(dt.timezone.utc))
    return found


def _exists(local: dt.datetime, zone: dt.tzinfo) -> bool:
    return local.replace(tzinfo=zone).astimezone(dt.timezone.utc).astimezone(zone).replace(tzinfo=None) == local


@dataclass(frozen=True)
class Every:
    """At whole multiples of the interval since 1970, so that a process that starts again continues the same row."""

    seconds: int

    @classmethod
    def parse(cls, seconds: float) -> Every:
        if seconds != int(seconds) or seconds < 1:
            raise FrontdeskError(f"every={seconds!r} is not a whole number of seconds", "bad_request")
        return cls(int(seconds))

    def next_after(self, time: dt.datetime) -> dt.datetime | None:
        return dt.datetime.fromtimestamp((math.floor(time.timestamp()) // self.seconds + 1) * self.seconds, dt.timezone.utc)
