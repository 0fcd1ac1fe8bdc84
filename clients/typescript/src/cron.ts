/**
 * Cron expressions of five fields in a time zone.
 *
 * A local time that does not exist, because clocks go forward, fires at the next minute that does. One that exists twice,
 * because clocks go back, fires once, at the first of the two; but jobs of every hour go on in both.
 */

import { FrontdeskError } from "./errors.js";

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
// 29 February is at most eight years away.
const SEARCH_DAYS = 366 * 8 + 1;
/** Clocks are not put back by more. */
const BACK_MAX_MS = 3 * 3_600_000;

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

export class CronExpression {
  readonly #minutes: number[];
  readonly #hours: number[];
  readonly #daysOfMonth: Set<number>;
  readonly #months: Set<number>;
  readonly #daysOfWeek: Set<number>;
  /** Both days are restricted: then one of them is enough. */
  readonly #eitherDay: boolean;
  readonly #everyHour: boolean;
  readonly #zone: Zone;

  constructor(
    readonly text: string,
    readonly tz = "UTC",
  ) {
    const fields = text.trim().split(/\s+/);
    if (fields.length !== 5)
      throw invalid(text, `it has ${fields.length} fields and not 5: minute, hour, day, month, day of week`);
    const [minute, hour, day, month, weekday] = fields as [string, string, string, string, string];
    this.#minutes = [...parse(text, "minute", minute, 0, 59)].sort(ascending);
    this.#hours = [...parse(text, "hour", hour, 0, 23)].sort(ascending);
    this.#daysOfMonth = parse(text, "day of the month", day, 1, 31);
    this.#months = parse(text, "month", month, 1, 12, MONTHS);
    this.#daysOfWeek = new Set([...parse(text, "day of the week", weekday, 0, 7, DAYS)].map((it) => it % 7));
    this.#eitherDay = this.#daysOfMonth.size < 31 && this.#daysOfWeek.size < 7;
    this.#everyHour = hour.startsWith("*") || this.#hours.length === 24;
    this.#zone = new Zone(text, tz);
    if (Number.isNaN(this.next(new Date()).getTime())) throw invalid(text, "there is no such day");
  }

  /** The first time after this one. */
  next(after: Date): Date {
    const first = this.#firstAfter(after.getTime());
    return new Date(this.#everyHour ? this.#again(after.getTime(), first) : first);
  }

  /** The first after `after` of the times that exist twice, if it is before `limit`. */
  #again(after: number, limit: number): number {
    const offset = (time: number): number => this.#zone.local(time) - time;
    if (offset(after - BACK_MAX_MS) <= offset(after + BACK_MAX_MS)) return limit;
    const end = Math.min(limit, after + BACK_MAX_MS);
    for (let time = Math.floor(after / MINUTE_MS + 1) * MINUTE_MS; time < end; time += MINUTE_MS) {
      const shown = new Date(this.#zone.local(time));
      if (this.#isOn(shown) && this.#hours.includes(shown.getUTCHours()) && this.#minutes.includes(shown.getUTCMinutes()))
        return time;
    }
    return limit;
  }

  #firstAfter(after: number): number {
    // Local times are counted as if they were UTC. Times up to the local time of `after` are not later than `after`.
    const from = this.#zone.local(after);
    const firstDay = Math.floor(from / DAY_MS) * DAY_MS;
    for (let day = firstDay; day < firstDay + SEARCH_DAYS * DAY_MS; day += DAY_MS) {
      if (!this.#isOn(new Date(day))) continue;
      for (const hour of this.#hours) {
        for (const minute of this.#minutes) {
          const local = day + (hour * 60 + minute) * MINUTE_MS;
          if (local <= from) continue;
          const time = this.#zone.instant(local);
          if (time > after) return time;
        }
      }
    }
    return NaN;
  }

  #isOn(day: Date): boolean {
    const ofMonth = this.#daysOfMonth.has(day.getUTCDate());
    const ofWeek = this.#daysOfWeek.has(day.getUTCDay());
    return this.#months.has(day.getUTCMonth() + 1) && (this.#eitherDay ? ofMonth || ofWeek : ofMonth && ofWeek);
  }
}

function ascending(a: number, b: number): number {
  return a - b;
}

function invalid(text: string, why: string): FrontdeskError {
  return new FrontdeskError(`${JSON.stringify(text)} is not a valid cron expression: ${why}`, "bad_request");
}

/** The numbers that a field names: lists of `*`, `n`, `a-b`, each with an optional step `/n`. */
function parse(text: string, field: string, value: string, min: number, max: number, names: string[] = []): Set<number> {
  const bad = (part: string): FrontdeskError => invalid(text, `${JSON.stringify(part)} is not a ${field} (${min} to ${max})`);
  const number = (part: string, word: string): number => {
    const named = names.indexOf(word.toLowerCase());
    const found = named >= 0 ? named + (names === MONTHS ? 1 : 0) : /^\d{1,2}$/.test(word) ? Number(word) : NaN;
    if (!(found >= min && found <= max)) throw bad(part);
    return found;
  };
  const found = new Set<number>();
  for (const part of value.split(",")) {
    const [, range, step] = /^([^/]+)(?:\/(\d{1,2}))?$/.exec(part) ?? [];
    if (range === undefined || step === "0" || step === "00") throw bad(part);
    const [low, high, ...rest] = range === "*" ? [String(min), String(max)] : range.split("-");
    if (low === undefined || rest.length > 0) throw bad(part);
    const first = number(part, low);
    // `5/15` begins at 5 and goes on to the end.
    let last = high !== undefined ? number(part, high) : step !== undefined ? max : first;
    if (names === DAYS && last === 0 && first > 0) last = 7; // fri-sun
    if (last < first) throw bad(part);
    for (let it = first; it <= last; it += Number(step ?? 1)) found.add(it);
  }
  return found;
}

class Zone {
  readonly #format: Intl.DateTimeFormat;

  constructor(text: string, tz: string) {
    const two = "2-digit";
    try {
      this.#format = new Intl.DateTimeFormat("en-US", {
        timeZone: tz,
        hourCycle: "h23",
        year: "numeric",
        month: two,
        day: two,
        hour: two,
        minute: two,
        second: two,
      });
    } catch {
      throw invalid(text, `${JSON.stringify(tz)} is not a time zone`);
    }
  }

  /** What the clock shows at this time, to the second, as if it were UTC. */
  local(time: number): number {
    const shown: Record<string, number> = {};
    for (const { type, value } of this.#format.formatToParts(time)) shown[type] = Number(value);
    const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = shown;
    return Date.UTC(year, month - 1, day, hour, minute, second);
  }

  /** When the clock shows this: the first time, or the next minute that exists. */
  instant(local: number): number {
    for (let shown = local; ; shown += MINUTE_MS) {
      // The offsets a day before and after are those on both sides of a change.
      const times = [shown - DAY_MS, shown + DAY_MS].map((near) => shown - (this.local(near) - near));
      const exact = times.filter((time) => this.local(time) === shown);
      if (exact.length > 0) return Math.min(...exact);
    }
  }
}
