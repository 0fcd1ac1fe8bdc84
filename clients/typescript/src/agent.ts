/** The agent: handlers, one message at a time in each chat, and sleep. */

import { Closed, FrontdeskError } from "./errors.js";
import { consoleLog, environment, errorText, files, given, pause, type Json, type Log } from "./host.js";
import { baseUrl, open, readBounded, request, upgradeToken } from "./http.js";
import { Jobs, fireOf, type FireHandler } from "./jobs.js";
import { Letters, type Answer, type DeliverOptions, type Letter, type Receipt } from "./letters.js";
import { Link, type Delivery, type Dial } from "./link.js";
import { Message, Sent, chatKey, text, type Chat, type FileOptions, type FileSource, type SendOptions, type Sender } from "./message.js";
import { Remembered, defaultState, fileState, type StateStore } from "./state.js";

/** Between the attempts of a handler that fails. */
const RETRY_PAUSES_MS = [1_000, 5_000, 25_000];
/** How long a handler may clean up after /stop, before the chat goes on without it. */
const STOP_GRACE_MS = 5_000;
const LOOK_EVERY_MS = 50;
const FILE_TIME_MS = 120_000;
const MIMES: Record<string, string> = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", mp3: "audio/mpeg", ogg: "audio/ogg",
  mp4: "video/mp4", pdf: "application/pdf", json: "application/json", txt: "text/plain", csv: "text/csv", md: "text/markdown",
};

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

/** One delivery in the hands of its handler. */
interface Turn {
  readonly source: Json;
  readonly abort: AbortController;
  byUser: boolean;
}

/** An agent behind a Frontdesk server. What is not given is read from the environment. */
export class Agent implements Sender {
  readonly #dial: Dial;
  readonly #sleepMs: number | undefined;
  readonly #log: Log;
  readonly #state: Remembered;
  readonly #jobs: Jobs;
  readonly #letters: Letters;
  #handler: MessageHandler | undefined;
  #link: Link | undefined;
  #stop = new AbortController();
  readonly #queues = new Map<string, Delivery[]>();
  readonly #turns = new Map<string, Turn>();
  #room: number;
  readonly #waitingForRoom: (() => void)[] = [];

  constructor(options: AgentOptions = {}) {
    const how = "run `frontdesk gateway add` and put its id and secret into the environment";
    const gatewayId = given(options.gatewayId, "GATEWAY_RELAY_ID", how);
    const base = baseUrl(given(options.url, "GATEWAY_RELAY_URL", how));
    const secret = given(options.secret, "GATEWAY_RELAY_SECRET", how);
    this.#dial = { base, gatewayId, secret, platforms: options.platforms ?? platformsFromEnvironment() };
    this.#sleepMs = options.sleepAfter === undefined ? undefined : options.sleepAfter * 1000;
    this.#room = options.concurrency ?? 16;
    this.#log = options.log ?? consoleLog;
    const { state } = options;
    this.#state = new Remembered(state === undefined ? defaultState(base, gatewayId) : typeof state === "string" ? fileState(state) : state);
    const identity = options.identityToken ?? environment("FRONTDESK_IDENTITY_TOKEN");
    const name = options.name ?? environment("GATEWAY_RELAY_INSTANCE_ID") ?? gatewayId;
    this.#jobs = new Jobs(base, identity, this.#state, this.#log);
    this.#letters = new Letters(base, options.agentToken ?? environment("FRONTDESK_AGENT_TOKEN"), name, this.#state, this.#log);
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
    if (!this.#handler && !this.#jobs.areDeclared && !this.#letters.areRead) {
      throw new FrontdeskError("the agent has nothing to do: call agent.onMessage", "bad_request");
    }
    const stop = this.#stop;
    const end = (): void => stop.abort();
    if (options.signal?.aborted) return;
    options.signal?.addEventListener("abort", end);
    const receiver = { take: (it: Delivery) => this.#take(it), interrupt: (key: string, chat: string) => this.#interrupt(key, chat) };
    const link = (this.#link = new Link(this.#dial, receiver, this.#log));
    const keeping = link.keep(stop.signal);
    try {
      await Promise.race([keeping, this.#serve(link, stop.signal)]);
    } finally {
      options.signal?.removeEventListener("abort", end);
      stop.abort();
      for (const turn of this.#turns.values()) turn.abort.abort();
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
      const left = link.lastMs + this.#sleepMs - Date.now();
      if (link.isUp && !this.#isBusy && left <= 0) {
        // The server confirms before it keeps messages; what came in between is handled first.
        if (await link.goIdle()) {
          while (this.#isBusy && !stopped.aborted) await pause(LOOK_EVERY_MS, stopped);
          return;
        }
      }
      await pause(Math.max(Math.min(left, 1_000), LOOK_EVERY_MS), stopped);
    }
  }

  get #isBusy(): boolean {
    return this.#queues.size > 0 || this.#letters.isBusy;
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
    const result = await this.act("send", where, { content, reply_to: options.replyTo });
    return new Sent(this, where, text(result.message_id));
  }

  /** Uploads a file to the server and sends it. `file` are the bytes, or a path. */
  async sendFile(chat: Chat | string, file: FileSource, options: FileOptions = {}): Promise<Sent> {
    const where = chatOf(chat);
    const filename = options.filename ?? (typeof file === "string" ? file.replace(/^.*[/\\]/, "") : undefined);
    const guessed = MIMES[filename?.split(".").pop()?.toLowerCase() ?? ""];
    const mime = options.mime ?? ((file instanceof Blob && file.type) || guessed || "application/octet-stream");
    const body = typeof file === "string" ? await readPath(file) : file;
    const headers: Record<string, string> = { "content-type": mime };
    if (filename) headers["x-media-filename"] = encodeURIComponent(filename);
    const bearer = await this.#bearer();
    const { id } = await request<{ id: string }>(`${this.#dial.base}/relay/media`, { bearer, body, headers, timeoutMs: FILE_TIME_MS });
    const result = await this.act("send_media", where, {
      media_kind: mediaKind(mime), source_url: `${this.#dial.base}/relay/media/${id}`, content: options.caption, filename,
      reply_to: options.replyTo,
    });
    return new Sent(this, where, text(result.message_id));
  }

  /** For `media.read()`. Files of messages are always at the server itself, whatever it calls itself in their URLs. */
  async download(url: string, maxBytes: number): Promise<Uint8Array> {
    const id = /\/relay\/media\/([^/?#]+)$/.exec(url)?.[1];
    if (!id) throw new FrontdeskError("this is not the URL of a file at the server", "bad_request");
    const signal = AbortSignal.timeout(FILE_TIME_MS);
    return await readBounded(await open(`${this.#dial.base}/relay/media/${id}`, { bearer: await this.#bearer(), signal }), maxBytes);
  }

  #bearer(): Promise<string> {
    return upgradeToken(this.#dial.gatewayId, this.#dial.secret);
  }

  // ---- other agents ------------------------------------------------------------------------

  /** Puts a message into the inbox of another agent. Returns when it is durable there. */
  deliver(agent: string, content: string, options?: DeliverOptions): Promise<Receipt> {
    return this.#letters.deliver(agent, content, options);
  }

  /** Delivers, or wakes if the address has an `@`. Returns what each connector did. */
  notify(address: string, message: string, options?: { eventType?: string }): Promise<Json> {
    return this.#letters.notify(address, message, options);
  }

  /** Asks another agent and waits for its answer. */
  exchange(agent: string, content: string, options?: DeliverOptions & { timeoutS?: number }): Promise<Answer> {
    return this.#letters.exchange(agent, content, options);
  }

  /**
   * What other agents sent, from the remembered place on. A letter counts as handled when the loop asks for the next one. The
   * loop ends when `run` does. While there is one, letters do not reach `onMessage`.
   */
  inbox(): AsyncGenerator<Letter, void, void> {
    return this.#letters.read(this.#stop.signal);
  }

  // ---- receiving ---------------------------------------------------------------------------

  #take(delivery: Delivery): void {
    const lane = laneOf(delivery);
    const queue = this.#queues.get(lane);
    if (queue) {
      queue.push(delivery);
      return;
    }
    this.#queues.set(lane, [delivery]);
    void this.#work(lane);
  }

  /** The messages of one chat, one after another. */
  async #work(lane: string): Promise<void> {
    const queue = this.#queues.get(lane) ?? [];
    const { signal } = this.#stop;
    for (let delivery = queue[0]; delivery && !signal.aborted; delivery = queue[0]) {
      const handled = await this.#settle(lane, delivery).catch((error: unknown) => {
        this.#log("error", "a message could not be handled; the server keeps it", error);
        return false;
      });
      queue.shift();
      this.#link?.done(delivery, handled);
    }
    this.#queues.delete(lane);
  }

  /** Whether it is to be acked. */
  async #settle(lane: string, { event, forward }: Delivery): Promise<boolean> {
    const letter = event?.delivery as { delivery_id?: string } | undefined;
    if (letter?.delivery_id && this.#letters.areRead) return await this.#letters.isHandled(letter.delivery_id);
    const turn: Turn = { source: (event?.source ?? {}) as Json, abort: new AbortController(), byUser: false };
    const work = forward ? this.#jobs.work(forward, turn.abort.signal) : this.#handlerOf(event ?? {}, turn);
    if (!work) {
      this.#log("warn", "a message that this agent has no handler for stays with the server");
      return false;
    }
    this.#turns.set(lane, turn);
    await this.#takeRoom();
    try {
      if (turn.abort.signal.aborted) return turn.byUser; // before it began
      return await Promise.race([this.#attempts(work, turn), this.#stoppedByUser(turn)]);
    } finally {
      this.#turns.delete(lane);
      this.#giveRoom();
    }
  }

  #handlerOf(event: Json, turn: Turn): (() => Promise<void>) | undefined {
    const handler = this.#handler;
    return handler && (async () => await handler(new Message(this, event, turn.abort.signal)));
  }

  /** Repeated where it fails. The messages behind it in the chat wait, so that their order stays. */
  async #attempts(work: () => Promise<void>, turn: Turn): Promise<boolean> {
    for (const pauseMs of [...RETRY_PAUSES_MS, undefined]) {
      try {
        await work();
        return true;
      } catch (error) {
        if (turn.abort.signal.aborted) return turn.byUser;
        if (pauseMs === undefined) {
          this.#log("error", `the handler failed ${RETRY_PAUSES_MS.length + 1} times; the server keeps the message`, error);
          return false;
        }
        this.#log("error", `the handler failed; the message is delivered again in ${pauseMs / 1000} s`, error);
        await pause(pauseMs, turn.abort.signal);
        if (turn.abort.signal.aborted) return turn.byUser;
      }
    }
    return false;
  }

  /** A handler that does not end when it is told to counts as ended after a while. */
  async #stoppedByUser({ abort: { signal } }: Turn): Promise<boolean> {
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    await pause(STOP_GRACE_MS, this.#stop.signal);
    return !this.#stop.signal.aborted;
  }

  /** The user said /stop. */
  #interrupt(sessionKey: string, chatId: string): void {
    const inChat = [...this.#turns.values()].filter((turn) => turn.source.chat_id === chatId);
    const inSession = inChat.filter((turn) => isOfSession(sessionKey, turn.source));
    for (const turn of inSession.length > 0 ? inSession : inChat) {
      turn.byUser = true;
      turn.abort.abort(new FrontdeskError("the user stopped it", "gone"));
    }
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

/** What has one lane is handled one after another. */
function laneOf({ id, event, forward }: Delivery): string {
  if (forward) return `job ${fireOf(forward)?.id ?? id}`;
  const source = (event?.source ?? {}) as Json;
  return chatKey({ platform: String(source.platform ?? ""), id: String(source.chat_id ?? ""), thread: text(source.thread_id) });
}

/** Session keys end with the chat, and its thread or, in groups, the user. */
function isOfSession(key: string, source: Json): boolean {
  const chat = String(source.chat_id);
  const ends = source.thread_id ? [`${chat}:${String(source.thread_id)}`] : [chat, ...[source.user_id_alt, source.user_id].map((user) => `${chat}:${String(user)}`)];
  return ends.some((end) => key.endsWith(`:${end}`));
}

function chatOf(chat: Chat | string): Chat {
  return typeof chat === "string" ? { platform: "relay", id: chat } : chat;
}

function mediaKind(mime: string): string {
  const kind = mime.split("/")[0] ?? "";
  if (/^audio\/(ogg|opus|webm|amr)/.test(mime)) return "voice";
  return ["image", "audio", "video"].includes(kind) ? kind : "document";
}

async function readPath(path: string): Promise<Uint8Array> {
  const fs = files();
  if (!fs) throw new FrontdeskError("this runtime has no files: pass the bytes", "bad_request");
  try {
    return await fs.readFile(path);
  } catch (error) {
    throw new FrontdeskError(`the file cannot be read: ${errorText(error)}`, "bad_request", false, { cause: error });
  }
}

/** In the variables that gateways use. */
function platformsFromEnvironment(): Record<string, string> {
  const names = environment("GATEWAY_RELAY_PLATFORMS") ?? "relay";
  const bots = JSON.parse(environment("GATEWAY_RELAY_BOT_IDS") ?? "{}") as Record<string, { botId?: string } | undefined>;
  return Object.fromEntries(names.split(",").map((name) => name.trim()).filter(Boolean).map((name) => [name, bots[name]?.botId ?? ""]));
}
