/** The agent: handlers, one message at a time in each chat, and sleep. */

import { Closed, FrontdeskError } from "./errors.js";
import { download, upload } from "./files.js";
import { consoleLog, environment, given, pause, steadyMs, type Json, type Log } from "./host.js";
import { baseUrl, upgradeToken } from "./http.js";
import { Jobs, fireOf, type FireHandler } from "./jobs.js";
import { Lanes, type Work } from "./lanes.js";
import { AgentInbox, type Answer, type DeliverOptions, type InboxMessage, type Receipt } from "./inbox.js";
import { Link, type Delivery, type Dial } from "./link.js";
import {
  Message,
  Sent,
  chatKey,
  isQuestion,
  text,
  type Chat,
  type FileOptions,
  type FileSource,
  type SendOptions,
  type Sender,
} from "./message.js";
import { Remembered, defaultState, fileState, type StateStore } from "./state.js";

const LOOK_EVERY_MS = 50;
/** What waits at the server comes within this time after a connect. Before that the agent does not sleep. */
const COMES_MS = 5_000;

export type MessageHandler = (message: Message) => Promise<void> | void;

export interface AgentOptions {
  /** URL of the server (GATEWAY_RELAY_URL). */
  url?: string | undefined;
  /** GATEWAY_RELAY_ID */
  gatewayId?: string | undefined;
  /** GATEWAY_RELAY_SECRET */
  secret?: string | undefined;
  /** The name of this agent to others, if it is not the gateway id (GATEWAY_RELAY_INSTANCE_ID). */
  name?: string | undefined;
  /** Platforms and the ids of their bots (GATEWAY_RELAY_PLATFORMS, GATEWAY_RELAY_BOT_IDS; default: the built-in chat). */
  platforms?: Record<string, string> | undefined;
  /** `run` returns after so many seconds without work. */
  sleepAfter?: number | undefined;
  /** How many chats are served at once. */
  concurrency?: number | undefined;
  /** A token of scope `agents`, for messages between agents (FRONTDESK_AGENT_TOKEN). */
  agentToken?: string | undefined;
  /** A token of scope `identity`, for jobs and alarms (FRONTDESK_IDENTITY_TOKEN). */
  identityToken?: string | undefined;
  /** A file, or an object that keeps a text. Default: a file in the user's state folder. */
  state?: string | StateStore | undefined;
  log?: Log | undefined;
}

export interface CronTiming {
  /** A time zone such as `Europe/Berlin`. Default: UTC. */
  tz?: string;
}

/** An agent behind a Frontdesk server. What is not given is read from the environment. */
export class Agent implements Sender {
  readonly #dial: Dial;
  readonly #sleepMs: number | undefined;
  readonly #concurrency: number;
  readonly #log: Log;
  readonly #state: Remembered;
  readonly #jobs: Jobs;
  readonly #inbox: AgentInbox;
  #handler: MessageHandler | undefined;
  #link: Link | undefined;
  #lanes: Lanes;
  #stop = new AbortController();

  constructor(options: AgentOptions = {}) {
    const how = "run `frontdesk gateway add` and put its id and secret into the environment";
    const gatewayId = given(options.gatewayId, "GATEWAY_RELAY_ID", how);
    const base = baseUrl(given(options.url, "GATEWAY_RELAY_URL", how));
    const secret = given(options.secret, "GATEWAY_RELAY_SECRET", how);
    this.#dial = { base, gatewayId, secret, platforms: options.platforms ?? platformsFromEnvironment() };
    this.#sleepMs = options.sleepAfter === undefined ? undefined : options.sleepAfter * 1000;
    this.#concurrency = options.concurrency ?? 16;
    this.#log = options.log ?? consoleLog;
    this.#lanes = new Lanes(this.#concurrency, this.#log);
    const { state } = options;
    this.#state = new Remembered(
      state === undefined ? defaultState(base, gatewayId) : typeof state === "string" ? fileState(state) : state,
    );
    const identity = options.identityToken ?? environment("FRONTDESK_IDENTITY_TOKEN");
    const name = options.name ?? environment("GATEWAY_RELAY_INSTANCE_ID") ?? gatewayId;
    this.#jobs = new Jobs(base, identity, this.#state, this.#log);
    this.#inbox = new AgentInbox(base, options.agentToken ?? environment("FRONTDESK_AGENT_TOKEN"), name, this.#state, this.#log);
  }

  // ---- handlers ----------------------------------------------------------------------------

  /** A message is acked when the handler has returned. If it throws, it gets the message again. */
  onMessage(handler: MessageHandler): void {
    this.#handler = handler;
  }

  /** A job at times such as `0 9 * * 1-5` (minute, hour, day, month, day of week). */
  cron(name: string, expression: string, handler: FireHandler): void;
  cron(name: string, expression: string, timing: CronTiming, handler: FireHandler): void;
  cron(name: string, expression: string, timing: CronTiming | FireHandler, handler?: FireHandler): void {
    const given = typeof timing === "function" ? timing : handler;
    if (!given) throw new FrontdeskError(`the job ${JSON.stringify(name)} has no handler`, "bad_request");
    this.#jobs.cron(name, expression, (typeof timing === "function" ? undefined : timing.tz) ?? "UTC", given);
  }

  /** A job every so many seconds. */
  every(name: string, seconds: number, handler: FireHandler): void {
    this.#jobs.every(name, seconds, handler);
  }

  /** Handles what `alarm` has armed. */
  onAlarm(handler: FireHandler): void {
    this.#jobs.onAlarm(handler);
  }

  /** Once, at this time, also if the agent sleeps then. `at` is a date, or a number of seconds from now. */
  async alarm(name: string, at: Date | number, payload?: unknown): Promise<void> {
    await this.#jobs.alarm(name, typeof at === "number" ? new Date(Date.now() + at * 1000) : at, payload);
  }

  async cancelAlarm(name: string): Promise<void> {
    await this.#jobs.cancel(name);
  }

  // ---- running -----------------------------------------------------------------------------

  /**
   * Serves until the agent sleeps or the signal is aborted. Throws `Revoked` when the server does not accept the agent (any
   * more). Whoever ends the process loses nothing: what is not acked comes again.
   */
  async run(options: { signal?: AbortSignal } = {}): Promise<void> {
    if (this.#link) throw new FrontdeskError("the agent is running", "conflict");
    if (typeof WebSocket === "undefined")
      throw new FrontdeskError("this runtime has no WebSocket: use Node 22 or newer", "unsupported_op");
    if (!this.#handler && !this.#jobs.areDeclared && !this.#inbox.areRead) {
      throw new FrontdeskError("the agent has nothing to do: call agent.onMessage", "bad_request");
    }
    const stop = this.#stop;
    const end = (): void => stop.abort();
    if (options.signal?.aborted) return;
    options.signal?.addEventListener("abort", end);
    const lanes = (this.#lanes = new Lanes(this.#concurrency, this.#log));
    const interrupt = (session: string): void => lanes.interrupt(session);
    const link: Link = (this.#link = new Link(this.#dial, { take: (it) => this.#take(link, it), interrupt }, this.#log));
    const keeping = link.keep(stop.signal);
    try {
      await Promise.race([keeping, this.#serve(link, stop.signal)]);
    } finally {
      options.signal?.removeEventListener("abort", end);
      stop.abort();
      lanes.stop();
      await keeping.catch(() => undefined);
      this.#link = undefined;
      this.#stop = new AbortController();
    }
  }

  /** Returns when the agent may sleep. */
  async #serve(link: Link, stopped: AbortSignal): Promise<void> {
    await this.#jobs.reconcile(stopped);
    while (!stopped.aborted) {
      if (this.#sleepMs === undefined) {
        await new Promise<void>((resolve) => stopped.addEventListener("abort", () => resolve()));
        return;
      }
      const left = Math.max(link.lastMs + this.#sleepMs, link.upMs + Math.min(this.#sleepMs, COMES_MS)) - steadyMs();
      if (link.isUp && !this.#isBusy && left <= 0) {
        const isConfirmed = await link.goIdle();
        // A result would be lost with its connection.
        while (link.isActing && link.isIdle && !stopped.aborted) await pause(LOOK_EVERY_MS, stopped);
        if (isConfirmed && link.isIdle && !this.#isBusy) return;
        link.stayAwake(); // what came before the server confirmed is being handled
      }
      await pause(Math.max(Math.min(left, 1_000), LOOK_EVERY_MS), stopped);
    }
  }

  get #isBusy(): boolean {
    return !this.#lanes.areEmpty || this.#inbox.isBusy || this.#link?.isActing === true;
  }

  // ---- sending -----------------------------------------------------------------------------

  /** Any action of the relay protocol. Returns its result. */
  async act(op: string, chat: Chat, fields: Json = {}, metadata: Json = {}): Promise<Json> {
    if (!this.#link) throw new Closed("the agent is not running");
    const about = chat.thread ? { thread_id: chat.thread, ...metadata } : metadata;
    const action = { op, chat_id: chat.id, ...fields, ...(Object.keys(about).length > 0 ? { metadata: about } : {}) };
    return await this.#link.act(action, chat.platform || undefined);
  }

  /** The name of a chat alone is one of the built-in chat. */
  async send(chat: Chat | string, content: string, options: SendOptions = {}): Promise<Sent> {
    const where = chatOf(chat);
    const metadata = isQuestion(where) ? { notify: true } : {};
    const result = await this.act("send", where, { content, reply_to: options.replyTo }, metadata);
    return new Sent(this, where, text(result.message_id));
  }

  /** For `m.stream()`. */
  isEditable(chat: Chat, content: string): boolean {
    return this.#link?.isEditable(chat.platform, content) === true;
  }

  /** Uploads a file to the server and sends it. `file` are the bytes, or a path. */
  async sendFile(chat: Chat | string, file: FileSource, options: FileOptions = {}): Promise<Sent> {
    const where = chatOf(chat);
    const { url, kind, filename } = await upload(this.#dial.base, await this.#bearer(), file, options);
    const fields = { media_kind: kind, source_url: url, content: options.caption, filename, reply_to: options.replyTo };
    const result = await this.act("send_media", where, fields);
    return new Sent(this, where, text(result.message_id));
  }

  /** For `media.read()`. */
  async download(url: string, maxBytes: number): Promise<Uint8Array> {
    return await download(this.#dial.base, await this.#bearer(), url, maxBytes);
  }

  #bearer(): Promise<string> {
    return upgradeToken(this.#dial.gatewayId, this.#dial.secret);
  }

  // ---- other agents ------------------------------------------------------------------------

  /** Puts a message into the inbox of another agent. Returns when it is durable there. */
  deliver(agent: string, content: string, options?: DeliverOptions): Promise<Receipt> {
    return this.#inbox.deliver(agent, content, options);
  }

  /** Delivers, or wakes if the address has an `@`. Returns what each connector did. */
  notify(address: string, message: string, options?: { eventType?: string }): Promise<Json> {
    return this.#inbox.notify(address, message, options);
  }

  /** Asks another agent and waits for its answer. */
  exchange(agent: string, content: string, options?: DeliverOptions & { timeoutS?: number }): Promise<Answer> {
    return this.#inbox.exchange(agent, content, options);
  }

  /**
   * What other agents sent, from the remembered place on. A message counts as handled when the loop asks for the next one. The
   * loop ends when `run` does. While there is one, messages of the inbox do not reach `onMessage`.
   */
  inbox(): AsyncGenerator<InboxMessage, void, void> {
    return this.#inbox.read(this.#stop.signal);
  }

  // ---- receiving ---------------------------------------------------------------------------

  #take(link: Link, delivery: Delivery): void {
    const done = (handled: boolean): void => link.done(delivery, handled);
    this.#lanes.add(laneOf(delivery), { settle: () => this.#settle(delivery), done });
  }

  /** Whether it is to be acked. */
  async #settle({ event, forward }: Delivery): Promise<boolean> {
    const message = event?.delivery as { delivery_id?: string } | undefined;
    if (message?.delivery_id && this.#inbox.areRead) {
      const handled = await this.#inbox.isHandled(message.delivery_id, this.#stop.signal);
      if (handled !== undefined) return handled;
    }
    const work = forward ? this.#jobs.work(forward) : this.#workOf(event ?? {});
    if (work) return await this.#lanes.attempt((event?.source ?? {}) as Json, work);
    this.#log("warn", "a message that this agent has no handler for stays with the server");
    return false;
  }

  #workOf(event: Json): Work | undefined {
    const handler = this.#handler;
    return handler && (async (signal) => await handler(new Message(this, event, signal)));
  }
}

/** What has one lane is handled one after another. */
function laneOf({ id, event, forward }: Delivery): string {
  if (forward) return `job ${fireOf(forward)?.id ?? id}`;
  const source = (event?.source ?? {}) as Json;
  return chatKey({ platform: String(source.platform ?? ""), id: String(source.chat_id ?? ""), thread: text(source.thread_id) });
}

function chatOf(chat: Chat | string): Chat {
  return typeof chat === "string" ? { platform: "relay", id: chat } : chat;
}

/** In the variables that gateways use. */
function platformsFromEnvironment(): Record<string, string> {
  const names = environment("GATEWAY_RELAY_PLATFORMS") ?? "relay";
  let bots: Record<string, { botId?: string } | undefined>;
  try {
    bots = JSON.parse(environment("GATEWAY_RELAY_BOT_IDS") ?? "{}") as typeof bots;
  } catch (error) {
    throw new FrontdeskError(
      'GATEWAY_RELAY_BOT_IDS is not JSON such as {"telegram": {"botId": "my-bot"}}',
      "bad_request",
      false,
      {
        cause: error,
      },
    );
  }
  return Object.fromEntries(
    names
      .split(",")
      .map((name) => name.trim())
      .filter(Boolean)
      .map((name) => [name, bots[name]?.botId ?? ""]),
  );
}
