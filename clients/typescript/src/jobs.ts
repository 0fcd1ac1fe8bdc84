/**
 * Jobs that run at times, also while the agent sleeps: the server keeps one alarm per job, calls the agent through its
 * socket (and wakes it for that), and the agent arms the next one.
 */

import { CronExpression } from "./cron.js";
import { FrontdeskError } from "./errors.js";
import { errorText, given, pause, type Json, type Log } from "./host.js";
import { request } from "./http.js";
import type { Work } from "./lanes.js";
import type { Remembered } from "./state.js";

/** Calls come through the socket, which has authenticated both sides. */
const BY_RELAY = "relay:";
/** Only ids that begin so are ours: others at the same instance are left alone. */
const CRON = "cron:";
const ALARM = "alarm:";
const ID_MAX_CHARS = 256;
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 30_000;

/** A job that is due. */
export interface Fire {
  readonly name: string;
  /** When it was to run. */
  readonly at: Date;
  /** What was given to `agent.alarm`. */
  readonly payload?: unknown;
  /** Aborted when the agent ends. */
  readonly signal: AbortSignal;
}

export type FireHandler = (fire: Fire) => Promise<void> | void;

/** The first time after this one. */
type Timing = (after: Date) => Date;

interface Job {
  readonly next: Timing;
  readonly handler: FireHandler;
}

interface Armed {
  job_id: string;
  fire_at: string;
}

export class Jobs {
  readonly #base: string;
  readonly #identity: string | undefined;
  readonly #state: Remembered;
  readonly #log: Log;
  readonly #jobs = new Map<string, Job>();
  readonly #armed = new Map<string, Date>();
  #onAlarm: FireHandler | undefined;

  constructor(base: string, identity: string | undefined, state: Remembered, log: Log) {
    this.#base = base;
    this.#identity = identity;
    this.#state = state;
    this.#log = log;
  }

  get areDeclared(): boolean {
    return this.#jobs.size > 0 || this.#onAlarm !== undefined;
  }

  cron(name: string, expression: string, tz: string, handler: FireHandler): void {
    const parsed = new CronExpression(expression, tz);
    this.#declare(name, { next: (after) => parsed.next(after), handler });
  }

  every(name: string, seconds: number, handler: FireHandler): void {
    if (!Number.isInteger(seconds) || seconds < 1)
      throw new FrontdeskError(`${seconds} is not a whole number of seconds`, "bad_request");
    const everyMs = seconds * 1000;
    // At whole multiples since 1970, so that a process that starts again continues the same row.
    this.#declare(name, { next: (after) => new Date((Math.floor(after.getTime() / everyMs) + 1) * everyMs), handler });
  }

  onAlarm(handler: FireHandler): void {
    this.#onAlarm = handler;
  }

  #declare(name: string, job: Job): void {
    if (!name || name.length + CRON.length > ID_MAX_CHARS)
      throw new FrontdeskError("a job needs a name of at most 250 characters", "bad_request");
    if (this.#jobs.has(name)) throw new FrontdeskError(`there are two jobs with the name ${JSON.stringify(name)}`, "bad_request");
    this.#jobs.set(name, job);
  }

  // ---- alarms at the server ----------------------------------------------------------------

  /** Once, at this time. The same name again replaces it. `onAlarm` gets it, in whichever process runs then. */
  async alarm(name: string, at: Date, payload?: unknown): Promise<void> {
    const id = ALARM + name;
    if (!name || id.length > ID_MAX_CHARS)
      throw new FrontdeskError("an alarm needs a name of at most 250 characters", "bad_request");
    const { alarms = {} } = await this.#state.get();
    if (payload !== undefined || name in alarms) {
      await this.#state.change((state) => void ((state.alarms ??= {})[name] = { at: at.toISOString(), payload }));
    }
    await this.#ask("provision", provision(id, at));
  }

  async cancel(name: string): Promise<void> {
    await this.#ask("cancel", { job_id: ALARM + name });
    await this.#forget(name);
  }

  /** Arms what is missing or has changed, cancels what is not declared any more. Repeated while the server is away. */
  async reconcile(signal: AbortSignal): Promise<void> {
    if (this.#jobs.size === 0) {
      // There may be some of an earlier version. The token may be for other things.
      if (this.#identity)
        await this.#reconcile(signal).catch((error: unknown) =>
          this.#log("info", `earlier jobs were not looked for: ${errorText(error)}`),
        );
      return;
    }
    await this.#reconcile(signal);
  }

  async #reconcile(signal: AbortSignal): Promise<void> {
    await this.#repeat("the jobs could not be compared with the server", signal, async () => {
      const before = new Date();
      const { armed } = await this.#ask<{ armed: Armed[] }>("list");
      const found = new Map(armed.map((it) => [it.job_id, new Date(it.fire_at)]));
      for (const [name, job] of this.#jobs) {
        const at = found.get(CRON + name);
        const next = job.next(new Date());
        // One that is due is left alone: to replace it would skip it. It may have become due since it was listed.
        const isKnown = at && [next.getTime(), job.next(before).getTime()].includes(at.getTime());
        if (at && (isKnown || at.getTime() <= Date.now())) this.#armed.set(name, at);
        else await this.#arm(name, next);
      }
      for (const id of found.keys()) {
        if (id.startsWith(CRON) && !this.#jobs.has(id.slice(CRON.length))) await this.#ask("cancel", { job_id: id });
      }
    });
  }

  async #arm(name: string, at: Date): Promise<void> {
    await this.#ask("provision", provision(CRON + name, at));
    this.#armed.set(name, at);
  }

  async #ask<T>(call: string, json?: Json): Promise<T> {
    const what = "jobs and alarms need a token of scope `identity` that is bound to this agent";
    const bearer = given(this.#identity, "FRONTDESK_IDENTITY_TOKEN", what);
    try {
      return await request<T>(`${this.#base}/api/agent-cron/${call}`, json ? { bearer, json } : { bearer });
    } catch (error) {
      const isRefused = error instanceof FrontdeskError && ["unauthorized", "forbidden"].includes(error.code);
      if (isRefused) throw new FrontdeskError(`${error.message} (${what})`, error.code, false, { cause: error });
      throw error;
    }
  }

  async #repeat(what: string, signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    for (let wait = RETRY_FIRST_MS; !signal.aborted; wait = Math.min(wait * 2, RETRY_MAX_MS)) {
      try {
        return await work();
      } catch (error) {
        const mayPass =
          error instanceof FrontdeskError && ["unavailable", "timeout", "rate_limited", "unknown"].includes(error.code);
        if (!mayPass) throw error;
        this.#log("warn", `${what}, trying again: ${errorText(error)}`);
        await pause(wait, signal);
      }
    }
  }

  // ---- calls -------------------------------------------------------------------------------

  /** The work of a call that came through the socket; `undefined` if the forwarded request is something else. */
  work(forward: Json): Work | undefined {
    const fire = fireOf(forward);
    if (!fire) return undefined;
    const { id, at } = fire;
    if (id.startsWith(ALARM)) return (signal) => this.#runAlarm(id.slice(ALARM.length), at, signal);
    return (signal) => this.#runJob(id, at, signal);
  }

  async #runJob(id: string, at: Date, signal: AbortSignal): Promise<void> {
    const name = id.startsWith(CRON) ? id.slice(CRON.length) : id;
    const job = this.#jobs.get(name);
    if (!job) return this.#log("warn", `the job ${JSON.stringify(id)} is due, but it is not declared any more`);
    // The next one first: a handler that fails or takes long must not stop the job.
    const armed = this.#armed.get(name);
    if (!armed || armed.getTime() <= at.getTime()) {
      const planned = job.next(at);
      const next = planned.getTime() > Date.now() ? planned : job.next(new Date());
      await this.#repeat(`the job ${JSON.stringify(name)} could not be armed`, signal, () => this.#arm(name, next));
    }
    await job.handler({ name, at, signal });
  }

  async #runAlarm(name: string, at: Date, signal: AbortSignal): Promise<void> {
    if (!this.#onAlarm)
      throw new FrontdeskError(
        `the alarm ${JSON.stringify(name)} is due, and there is no handler: call agent.onAlarm`,
        "bad_request",
      );
    const { alarms = {} } = await this.#state.get();
    const known = alarms[name];
    await this.#onAlarm({ name, at, signal, ...(known ? { payload: known.payload } : {}) });
    const now = (await this.#state.get()).alarms?.[name];
    if (now?.at === at.toISOString()) await this.#forget(name); // else it was armed again in the meantime
  }

  async #forget(name: string): Promise<void> {
    const { alarms = {} } = await this.#state.get();
    if (name in alarms) await this.#state.change((state) => void delete state.alarms?.[name]);
  }
}

function provision(id: string, at: Date): Json {
  // To the second, if it is one: the server returns the text as it was given.
  const fireAt = at.toISOString().replace(".000Z", "Z");
  return { job_id: id, fire_at: fireAt, agent_callback_url: BY_RELAY, dedup_key: `${id}:${fireAt}` };
}

/** The job and the time of a forwarded alarm call; `undefined` if the request is something else. */
export function fireOf(forward: Json): { id: string; at: Date } | undefined {
  if (forward.platform !== "cron" || forward.path !== "/api/cron/fire") return undefined;
  try {
    const bytes = Uint8Array.from(atob(String(forward.bodyB64)), (char) => char.charCodeAt(0));
    const body = JSON.parse(new TextDecoder().decode(bytes)) as { job_id: string; fire_at?: string };
    return { id: body.job_id, at: new Date(body.fire_at || Date.now()) };
  } catch {
    return undefined;
  }
}
