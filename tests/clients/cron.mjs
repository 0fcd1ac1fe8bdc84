// Times of cron expressions: the TypeScript client, compared with the package cron-parser.
//
//   FRONTDESK_CLIENT=folder-with-the-package FRONTDESK_NODE_MODULES=folder-with-cron-parser node tests/clients/cron.mjs [seed]
//
// Random expressions in several zones, from random times on. On days when clocks change the two agree about single times,
// except that cron-parser moves 2:30 in a missing hour to 3:30 and not to 3:00. Those are compared with times that were worked
// out by hand. The last line is the tally.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";

const from = (folder, name) => createRequire(path.join(folder, "x.js"))(name);
const { CronExpressionParser } = from(process.env.FRONTDESK_NODE_MODULES, "cron-parser");
const { CronExpression } = await import(pathToFileURL(path.join(process.env.FRONTDESK_CLIENT, "dist/index.js")).href);

const ROUNDS = 400;
const STEPS = 12;
const DAY_MS = 86_400_000;
const ZONES = [
  "UTC",
  "Europe/Berlin",
  "America/New_York",
  "Australia/Lord_Howe",
  "Asia/Kathmandu",
  "America/Santiago",
  "Pacific/Auckland",
];
const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

// ---- random expressions --------------------------------------------------------------------

let seed = Number(process.argv[2] ?? 1);
console.log(`seed ${seed}`);
/** mulberry32 */
function random(below) {
  seed = (seed + 0x6d2b79f5) | 0;
  let it = Math.imul(seed ^ (seed >>> 15), 1 | seed);
  it = (it + Math.imul(it ^ (it >>> 7), 61 | it)) ^ it;
  return ((it ^ (it >>> 14)) >>> 0) % below;
}
const pick = (list) => list[random(list.length)];
const between = (min, max) => min + random(max - min + 1);

function part(min, max, names) {
  const name = (value) => (names && random(3) === 0 ? names[value - (names === MONTHS ? 1 : 0)] : String(value));
  const low = between(min, max);
  const high = between(low, max);
  return pick([
    () => name(low),
    () => name(low),
    () => `${name(low)}-${name(high)}`,
    () => `${low}-${high}/${between(1, 5)}`,
    () => `${name(low)},${name(low < max ? between(low + 1, max) : min)}`,
  ])();
}

function field(min, max, names) {
  return pick([() => "*", () => "*", () => part(min, max, names), () => part(min, max, names), () => `*/${between(2, 9)}`])();
}

function expression() {
  // Without Sunday: cron-parser takes 0-6 for a restriction.
  return [field(0, 59), field(0, 23), field(1, 28), field(1, 12, MONTHS), field(1, 6, DAYS)].join(" ");
}

/** Whether clocks are changed near this time. */
function changes(zone, time) {
  const offset = (at) =>
    new Intl.DateTimeFormat("en-US", { timeZone: zone, timeZoneName: "longOffset" }).format(at).split(", ")[1];
  return offset(time - 1.5 * DAY_MS) !== offset(time + 1.5 * DAY_MS);
}

// ---- checks --------------------------------------------------------------------------------

const results = [];
function check(name, work) {
  try {
    const note = work();
    console.log(`ok ${name}${note ? ` (${note})` : ""}`);
    results.push(true);
  } catch (error) {
    console.log(`FAILED ${name}: ${error.message}`);
    results.push(false);
  }
}

check("random expressions have the times of cron-parser", () => {
  let compared = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const [text, zone] = [expression(), pick(ZONES)];
    const ours = new CronExpression(text, zone);
    let time = Date.UTC(2024, 0, 1) + random(8 * 365) * DAY_MS + random(86_400) * 1000;
    for (let step = 0; step < STEPS; step++) {
      const seen = ours.next(new Date(time));
      if (!changes(zone, time) && !changes(zone, seen.getTime())) {
        const theirs = CronExpressionParser.parse(text, { tz: zone, currentDate: new Date(time) })
          .next()
          .toDate();
        assert.equal(seen.toISOString(), theirs.toISOString(), `${text} in ${zone} after ${new Date(time).toISOString()}`);
        compared++;
      }
      time = seen.getTime();
    }
  }
  assert.ok(compared > ROUNDS * 8, `only ${compared} times were compared`);
  return `${compared} times`;
});

/** What cron-parser says; `undefined` where it gives up, as it does near some changes of half an hour or at midnight. */
function next(text, zone, after) {
  try {
    return CronExpressionParser.parse(text, { tz: zone, currentDate: after }).next().toDate();
  } catch (error) {
    if (/loop limit/.test(error.message)) return undefined;
    throw error;
  }
}

check("daily jobs have the times of cron-parser where clocks change", () => {
  let compared = 0;
  for (const zone of ZONES) {
    for (let day = Date.UTC(2026, 0, 1); day < Date.UTC(2027, 0, 1); day += DAY_MS) {
      if (!changes(zone, day)) continue;
      const [hour, minute] = [random(24), random(60)];
      const text = `${minute} ${hour} * * *`;
      const ours = new CronExpression(text, zone).next(new Date(day));
      const shown = ours.toLocaleTimeString("en-GB", { timeZone: zone, hour: "2-digit", minute: "2-digit" });
      if (shown !== `${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")}`) continue; // missing on that day
      const theirs = next(text, zone, new Date(day));
      if (!theirs) continue;
      assert.equal(ours.toISOString(), theirs.toISOString(), `${text} in ${zone} after ${new Date(day).toISOString()}`);
      compared++;
    }
  }
  assert.ok(compared >= 20, `only ${compared} times were compared`);
  return `${compared} times`;
});

function times(text, zone, after, count) {
  const found = [];
  for (let time = new Date(after); found.length < count; found.push(time.toISOString().replace(":00.000Z", "Z"))) {
    time = new CronExpression(text, zone).next(time);
  }
  return found;
}

// Berlin: on 29 March 2026 the clock goes from 2 to 3, on 25 October 2026 from 3 back to 2.
check("a daily job keeps its hour across daylight saving", () => {
  assert.deepEqual(times("0 9 * * *", "Europe/Berlin", "2026-03-27T12:00Z", 3), [
    "2026-03-28T08:00Z",
    "2026-03-29T07:00Z",
    "2026-03-30T07:00Z",
  ]);
  assert.deepEqual(times("0 9 * * *", "Europe/Berlin", "2026-10-23T12:00Z", 2), ["2026-10-24T07:00Z", "2026-10-25T08:00Z"]);
});

check("a time that does not exist fires at the next minute that does, once", () => {
  assert.deepEqual(times("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", 2), ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]);
  assert.deepEqual(times("*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", 2), ["2026-03-29T01:00Z", "2026-03-30T00:00Z"]);
  assert.deepEqual(times("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:20Z", 3), [
    "2026-03-29T00:30Z",
    "2026-03-29T01:00Z",
    "2026-03-29T01:30Z",
  ]);
  // Lord Howe: half an hour, on 4 October 2026 from 2:00 to 2:30.
  assert.deepEqual(times("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00Z", 2), [
    "2026-10-03T15:30Z",
    "2026-10-04T15:15Z",
  ]);
  // Apia had no 30 December 2011.
  assert.deepEqual(times("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00Z", 1), ["2011-12-30T10:00Z"]);
});

check("a time that exists twice fires once", () => {
  assert.deepEqual(times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", 2), ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]);
  assert.deepEqual(
    times("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10Z", 1),
    ["2026-10-26T01:30Z"],
    "asked in the second hour",
  );
  assert.deepEqual(times("0 1 1 11 *", "America/New_York", "2026-10-30T00:00Z", 1), ["2026-11-01T05:00Z"]);
});

check("jobs of every hour go on in both of a doubled hour", () => {
  const all = ["2026-10-25T00:30Z", "2026-10-25T01:00Z", "2026-10-25T01:30Z", "2026-10-25T02:00Z"];
  assert.deepEqual(times("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:10Z", 4), all);
  assert.deepEqual(times("0 */2 * * *", "Europe/Berlin", "2026-10-24T22:30Z", 3), [
    "2026-10-25T00:00Z",
    "2026-10-25T01:00Z",
    "2026-10-25T03:00Z",
  ]);
  assert.deepEqual(times("45 * * * *", "Australia/Lord_Howe", "2026-04-04T14:30Z", 3), [
    "2026-04-04T14:45Z",
    "2026-04-04T15:15Z",
    "2026-04-04T16:15Z",
  ]);
});

check("days and names", () => {
  assert.deepEqual(
    times("0 0 13 * fri", "UTC", "2026-02-01T00:00Z", 3),
    ["2026-02-06T00:00Z", "2026-02-13T00:00Z", "2026-02-20T00:00Z"],
    "either day",
  );
  assert.deepEqual(times("0 0 * * 7", "UTC", "2026-11-17T00:00Z", 1), times("0 0 * * SUN", "UTC", "2026-11-17T00:00Z", 1));
  assert.deepEqual(times("0 0 * * fri-sun", "UTC", "2026-11-17T00:00Z", 3), [
    "2026-11-20T00:00Z",
    "2026-11-21T00:00Z",
    "2026-11-22T00:00Z",
  ]);
  assert.deepEqual(times("0 0 29 2 *", "UTC", "2096-03-01T00:00Z", 1), ["2104-02-29T00:00Z"]);
  assert.deepEqual(times("5/20 0 * * *", "UTC", "2026-11-17T00:00Z", 3), [
    "2026-11-17T00:05Z",
    "2026-11-17T00:25Z",
    "2026-11-17T00:45Z",
  ]);
});

check("what is not an expression is refused with the reason", () => {
  for (const [text, zone, why] of [
    ["* * * *", "UTC", /4 fields/],
    ["60 * * * *", "UTC", /"60" is not a minute/],
    ["* 24 * * *", "UTC", /hour/],
    ["* * 0 * *", "UTC", /day/],
    ["* * * 13 *", "UTC", /month/],
    ["* * * * 8", "UTC", /day of the week/],
    ["5-1 * * * *", "UTC", /minute/],
    ["*/0 * * * *", "UTC", /minute/],
    ["1,,2 * * * *", "UTC", /minute/],
    ["x * * * *", "UTC", /minute/],
    ["1-2-3 * * * *", "UTC", /minute/],
    ["-1 * * * *", "UTC", /minute/],
    ["1/2/3 * * * *", "UTC", /minute/],
    ["0 0 30 2 *", "UTC", /no such day/],
    ["* * * * *", "Europe/Atlantis", /not a time zone/],
  ]) {
    assert.throws(
      () => new CronExpression(text, zone),
      (error) => error.code === "bad_request" && why.test(error.message),
      text,
    );
  }
});

console.log(`${results.filter(Boolean).length} passed, ${results.filter((it) => !it).length} failed`);
process.exit(results.every(Boolean) ? 0 : 1);
