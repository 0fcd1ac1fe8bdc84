/** The order of work: one delivery at a time in each chat, several chats at once, again where a handler fails. */

import { FrontdeskError } from "./errors.js";
import { pause, type Json, type Log } from "./host.js";
import { sessionKey } from "./session.js";

/** Between the attempts of a handler that fails. */
const RETRY_PAUSES_MS = [1_000, 5_000, 25_000];
/** How long a handler may clean up after /stop, before the chat goes on without it. */
const STOP_GRACE_MS = 5_000;

export type Work = (signal: AbortSignal) => Promise<void>;

interface Entry {
  /** Whether it is to be acked. */
  settle(): Promise<boolean>;
  done(handled: boolean): void;
}

/** A delivery in the hands of its handler. */
interface Turn {
  readonly session: string;
  readonly abort: AbortController;
  byUser: boolean;
}

export class Lanes {
  readonly #log: Log;
  /** What waits in each lane; the first of them is being handled. Deliveries are bounded by the connection. */
  readonly #lanes = new Map<string, Entry[]>();
  readonly #turns = new Set<Turn>();
  readonly #stopped = new AbortController();
  readonly #waitingForRoom: (() => void)[] = [];
  #room: number;

  constructor(room: number, log: Log) {
    this.#room = room;
    this.#log = log;
  }

  get areEmpty(): boolean {
    return this.#lanes.size === 0;
  }

  add(lane: string, entry: Entry): void {
    const queue = this.#lanes.get(lane);
    if (queue) {
      queue.push(entry);
      return;
    }
    const started = [entry];
    this.#lanes.set(lane, started);
    void this.#work(lane, started);
  }

  async #work(lane: string, queue: Entry[]): Promise<void> {
    for (let entry = queue[0]; entry && !this.#stopped.signal.aborted; entry = queue[0]) {
      const handled = await entry.settle().catch((error: unknown) => {
        this.#log("error", "a message could not be handled; the server keeps it", error);
        return false;
      });
      queue.shift();
      entry.done(handled);
    }
    this.#lanes.delete(lane);
  }

  /** Runs a handler until it succeeds, is stopped by the user, or has failed too often. Returns whether to ack. */
  async attempt(source: Json, work: Work): Promise<boolean> {
    const turn: Turn = { session: sessionKey(source), abort: new AbortController(), byUser: false };
    this.#turns.add(turn);
    await this.#takeRoom();
    try {
      if (turn.abort.signal.aborted) return turn.byUser; // before it began
      return await Promise.race([this.#attempts(work, turn), this.#abandoned(turn)]);
    } finally {
      this.#turns.delete(turn);
      this.#giveRoom();
    }
  }

  /** What is behind it in its lane waits, so that the order stays. */
  async #attempts(work: Work, turn: Turn): Promise<boolean> {
    const { signal } = turn.abort;
    for (const pauseMs of [...RETRY_PAUSES_MS, undefined]) {
      try {
        await work(signal);
        return true;
      } catch (error) {
        if (signal.aborted) break;
        if (pauseMs === undefined) {
          this.#log("error", `the handler failed ${RETRY_PAUSES_MS.length + 1} times; the server keeps the message`, error);
          break;
        }
        this.#log("error", `the handler failed; the message is delivered again in ${pauseMs / 1000} s`, error);
        await pause(pauseMs, signal);
        if (signal.aborted) break;
      }
    }
    return turn.byUser;
  }

  /** A handler that does not end when it is told to counts as ended after a while. */
  async #abandoned(turn: Turn): Promise<boolean> {
    await new Promise<void>((resolve) => turn.abort.signal.addEventListener("abort", () => resolve()));
    await pause(STOP_GRACE_MS, this.#stopped.signal);
    return turn.byUser;
  }

  /** The user said /stop. The server tells it once under each name that a session may have. */
  interrupt(session: string): void {
    for (const turn of this.#turns) {
      if (turn.session !== session) continue;
      turn.byUser = true;
      turn.abort.abort(new FrontdeskError("the user stopped it", "gone"));
    }
  }

  /** The agent ends. What is not done is not acked. */
  stop(): void {
    this.#stopped.abort();
    for (const turn of this.#turns) turn.abort.abort(new FrontdeskError("the agent has ended", "unavailable"));
  }

  async #takeRoom(): Promise<void> {
    if (this.#room > 0) this.#room--;
    else await new Promise<void>((resolve) => this.#waitingForRoom.push(resolve));
  }

  #giveRoom(): void {
    const next = this.#waitingForRoom.shift();
    if (next) next();
    else this.#room++;
  }
}
