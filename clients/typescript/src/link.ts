/** One connection to the server after another: frames, acks and results. */

import { Closed, FrontdeskError, Revoked } from "./errors.js";
import { errorText, pause, randomHex, steadyMs, type Json, type Log } from "./host.js";
import { upgradeToken } from "./http.js";

const PROTOCOL = "frontdesk.relay";
const RESULT_TIME_MS = 30_000;
const IDLE_ACK_TIME_MS = 10_000;
const OPEN_TIME_MS = 20_000;
const CLOSE_TIME_MS = 2_000;
/** How long an action waits for a connection. */
const UP_TIME_MS = 30_000;
/** Interval of `inbound_working`. Without it the server sends unacked deliveries again, and after 10 s settles alarm calls. */
const WORKING_EVERY_MS = 5_000;
const BACKOFF_FIRST_MS = 1_000;
const BACKOFF_MAX_MS = 30_000;
const FRAME_MAX_BYTES = 1 << 20;
/** Limit for an incomplete frame. */
const PARTIAL_MAX_CHARS = 4 << 20;
/** Limit for data that was written and is not sent yet. */
const UNSENT_MAX_BYTES = 16 << 20;
/** Actions that wait for their results. */
const WAITING_MAX = 1024;
/** Deliveries without an ack. The server sends a few dozen at most. */
const HELD_MAX = 1024;
/** Ids of handled deliveries, to drop repetitions. */
const SEEN_MAX = 4096;
const UNAUTHORIZED = 4401;
const FOREIGN_PLATFORM = 4403;
/** The reason of a close with 1000. */
const REPLACED = "replaced by a newer socket of this gateway";

/** A message or a forwarded request. The server delivers it again until it is acked. */
export interface Delivery {
  readonly id: string;
  readonly event?: Json;
  /** A forwarded request, such as the call of an alarm. */
  readonly forward?: Json;
}

export interface Dial {
  /** Base URL of the server. */
  base: string;
  gatewayId: string;
  secret: string;
  /** Platforms and the ids of their bots. */
  platforms: Record<string, string>;
}

export interface Receiver {
  /** Gets each delivery once. `done` reports its result. */
  take(delivery: Delivery): void;
  interrupt(session: string): void;
}

/** How a connection ended. */
interface Ended {
  wasUp: boolean;
  code: number;
  reason: string;
  failure: string | undefined;
  /** Closed by this side to open another connection. */
  isHungUp: boolean;
}

interface Waiting {
  resolve(result: Json): void;
  reject(error: Error): void;
}

/** Connects and reconnects. */
export class Link {
  readonly #dial: Dial;
  readonly #receiver: Receiver;
  readonly #log: Log;
  /** Set while the connection is up. */
  #socket: WebSocket | undefined;
  /** Deliveries in handlers. They may be repeated on the next connection. */
  readonly #held = new Set<string>();
  readonly #seen = new Set<string>();
  /** Deliveries that failed finally. The server keeps them, and gives them up after some repetitions. */
  readonly #givenUp = new Set<string>();
  readonly #waiting = new Map<string, Waiting>();
  readonly #requests = randomHex(4);
  #requestCount = 0;
  #idleAck: (() => void) | undefined;
  /** The connection on which the server was asked to keep messages. */
  #idle: WebSocket | undefined;
  /** Ends the connection, so that a new one is opened immediately. */
  #hangUp: (() => void) | undefined;
  /** Actions that wait for a connection. */
  readonly #waitingForUp = new Set<() => void>();
  /** Descriptors by platform. */
  readonly #descriptors = new Map<string, Json>();
  /** Time of the last activity, which decides when the agent sleeps. */
  lastMs = steadyMs();
  /** Start of the current connection. */
  upMs = steadyMs();

  constructor(dial: Dial, receiver: Receiver, log: Log) {
    this.#dial = dial;
    this.#receiver = receiver;
    this.#log = log;
  }

  get isUp(): boolean {
    return this.#socket !== undefined;
  }

  /** Whether the server was asked on this connection to keep messages. */
  get isIdle(): boolean {
    return this.#socket !== undefined && this.#socket === this.#idle;
  }

  /** Whether actions wait for a result or a connection. */
  get isActing(): boolean {
    return this.#waiting.size > 0 || this.#waitingForUp.size > 0;
  }

  /** Returns when the signal is aborted. Throws if a reconnect cannot help. */
  async keep(signal: AbortSignal): Promise<void> {
    let backoff = BACKOFF_FIRST_MS;
    let wasReplaced = false;
    while (!signal.aborted) {
      const { wasUp, code, reason, failure, isHungUp } = await this.#run(signal);
      if (signal.aborted) break;
      if (code === UNAUTHORIZED && reason !== "expired") {
        throw this.#fail(
          new Revoked(
            `the server does not accept this agent (${reason || "unauthorized"}): its id or secret is wrong or was revoked`,
          ),
        );
      }
      if (code === FOREIGN_PLATFORM) {
        throw this.#fail(new FrontdeskError(`the server refused a platform or bot of this agent: ${reason}`, "unknown_identity"));
      }
      if (isHungUp) continue;
      const isReplaced = reason === REPLACED;
      if (isReplaced && !wasReplaced) {
        this.#log(
          "warn",
          `another process connected as gateway ${this.#dial.gatewayId} and is served instead of this one: ` +
            `run one process for each gateway id. This one tries again, more and more rarely`,
        );
      } else if (!isReplaced) {
        this.#log("warn", `no connection to the server: ${failure ?? `closed with ${code} ${reason}`}`);
      }
      // Two processes would take the connection from each other every second.
      if (wasUp && !isReplaced) backoff = BACKOFF_FIRST_MS;
      if (wasUp) wasReplaced = isReplaced;
      await pause(backoff + (Math.random() * backoff) / 4, signal);
      backoff = Math.min(backoff * 2, BACKOFF_MAX_MS);
    }
    this.#fail(new Closed("the agent has ended"));
  }

  /** One connection, until it is closed. */
  async #run(signal: AbortSignal): Promise<Ended> {
    const { base, gatewayId, secret, platforms } = this.#dial;
    const token = await upgradeToken(gatewayId, secret);
    if (signal.aborted) return { wasUp: false, code: 1000, reason: "", failure: undefined, isHungUp: false };
    // Not every WebSocket can set headers, so the token is offered as a protocol.
    const socket = new WebSocket(`${base.replace(/^http/i, "ws")}/relay`, [PROTOCOL, `bearer.${token}`]);
    socket.binaryType = "arraybuffer";
    let wasUp = false;
    let isHungUp = false;
    let failure: string | undefined;
    let partial = "";
    return await new Promise((resolve) => {
      let closing: ReturnType<typeof setTimeout> | undefined;
      const working = setInterval(() => this.#sayWhatIsHandled(), WORKING_EVERY_MS);
      const opening = setTimeout(() => {
        failure = "the server did not answer in time";
        end(1006, "");
      }, OPEN_TIME_MS);
      const end = (code: number, reason: string): void => {
        clearTimeout(opening);
        clearTimeout(closing);
        clearInterval(working);
        signal.removeEventListener("abort", stop);
        this.#socket = this.#hangUp = undefined;
        socket.onopen = socket.onmessage = socket.onclose = socket.onerror = null;
        if (socket.readyState < WebSocket.CLOSING) socket.close();
        resolve({ wasUp, code, reason, failure, isHungUp });
      };
      const stop = (): void => {
        socket.close(1000);
        clearTimeout(closing);
        closing = setTimeout(() => end(1000, ""), CLOSE_TIME_MS);
      };
      signal.addEventListener("abort", stop);
      this.#hangUp = () => {
        isHungUp = true;
        this.#socket = undefined;
        stop();
      };
      socket.onopen = () => {
        for (const [platform, botId] of Object.entries(platforms)) {
          socket.send(`${JSON.stringify({ type: "hello", platform, botId, ready: true })}\n`);
        }
      };
      socket.onerror = (event) => {
        const { message, error } = event as Partial<ErrorEvent>;
        failure = message || errorText(error ?? "connection failed");
      };
      socket.onclose = (event) => end(event.code, event.reason);
      socket.onmessage = (event: MessageEvent<string | ArrayBuffer>) => {
        partial += typeof event.data === "string" ? event.data : new TextDecoder().decode(event.data);
        const lines = partial.split("\n");
        partial = lines.pop() ?? "";
        if (partial.length > PARTIAL_MAX_CHARS) {
          failure = "a frame of the server is too long";
          return end(1009, "");
        }
        for (const line of lines) {
          const frame = parsed(line);
          if (frame?.type === "descriptor" && !wasUp) {
            wasUp = true;
            clearTimeout(opening);
            this.#socket = socket;
            this.upMs = steadyMs();
            for (const resolve of this.#waitingForUp) resolve();
          }
          if (frame && !this.#frame(socket, frame)) {
            failure = "too many messages wait for their handlers";
            return end(1008, "");
          }
        }
      };
    });
  }

  /** False: too many deliveries are unacked. The server repeats this one on the next connection. */
  #frame(socket: WebSocket, frame: Json): boolean {
    if (frame.type === "inbound" || frame.type === "passthrough_forward") {
      this.lastMs = steadyMs();
      const id = String(frame.bufferId ?? "");
      if (this.#seen.has(id)) {
        ack(socket, id);
      } else if (!this.#held.has(id) && !this.#givenUp.has(id)) {
        if (this.#held.size >= HELD_MAX) return false;
        this.#held.add(id);
        this.#receiver.take(
          frame.type === "inbound" ? { id, event: frame.event as Json } : { id, forward: frame.forward as Json },
        );
      }
    } else if (frame.type === "outbound_result") {
      this.#waiting.get(String(frame.requestId))?.resolve(frame.result as Json);
    } else if (frame.type === "descriptor") {
      const descriptor = frame.descriptor as Json;
      this.#descriptors.set(String(descriptor.platform), descriptor);
    } else if (frame.type === "going_idle_ack") {
      this.#idleAck?.();
    } else if (frame.type === "interrupt_inbound") {
      this.#receiver.interrupt(String(frame.session_key ?? ""));
    }
    return true;
  }

  done(delivery: Delivery, handled: boolean): void {
    this.lastMs = steadyMs();
    remember(handled ? this.#seen : this.#givenUp, delivery.id);
    this.#held.delete(delivery.id);
    if (handled && this.#socket) ack(this.#socket, delivery.id);
  }

  #sayWhatIsHandled(): void {
    const bufferIds = [...this.#held];
    if (bufferIds.length > 0) this.#socket?.send(`${JSON.stringify({ type: "inbound_working", bufferIds })}\n`);
  }

  /** Waits for the next connection. */
  async #whenUp(): Promise<WebSocket> {
    if (this.#waitingForUp.size >= WAITING_MAX) throw new Closed();
    const limit = new AbortController();
    const go = (): void => limit.abort();
    this.#waitingForUp.add(go);
    await pause(UP_TIME_MS, limit.signal);
    this.#waitingForUp.delete(go);
    if (!this.#socket) throw new Closed();
    return this.#socket;
  }

  /** Whether this text fits into one message of the platform that can be edited. */
  isEditable(platform: string, text: string): boolean {
    const { supports_edit, max_message_length, len_unit } = this.#descriptors.get(platform) ?? {};
    const length = len_unit === "utf16" ? text.length : [...text].length;
    return supports_edit === true && length <= Number(max_message_length);
  }

  /** Sends an action and returns its result. */
  async act(action: Json, platform?: string): Promise<Json> {
    this.lastMs = steadyMs();
    const socket = this.#socket?.readyState === WebSocket.OPEN ? this.#socket : await this.#whenUp();
    if (this.#waiting.size >= WAITING_MAX || socket.bufferedAmount > UNSENT_MAX_BYTES) {
      throw new FrontdeskError("too many actions wait for the server", "rate_limited");
    }
    const requestId = `t${this.#requests}${(this.#requestCount++).toString(36)}`;
    const line = `${JSON.stringify({ type: "outbound", requestId, action, ...(platform ? { platform } : {}) })}\n`;
    if (new TextEncoder().encode(line).length > FRAME_MAX_BYTES) {
      throw new FrontdeskError(`the action is larger than ${FRAME_MAX_BYTES} bytes`, "too_large");
    }
    this.lastMs = steadyMs();
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      // The result may come on the next connection.
      const result = await new Promise<Json>((resolve, reject) => {
        this.#waiting.set(requestId, { resolve, reject });
        timer = setTimeout(
          () => reject(new FrontdeskError("the server did not answer in time", "timeout", true)),
          RESULT_TIME_MS,
        );
        socket.send(line);
      });
      if (result.success) return result;
      throw new FrontdeskError(String(result.error ?? "refused"), String(result.code ?? "unknown"), result.ambiguous === true);
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(requestId);
      this.lastMs = steadyMs();
    }
  }

  /** Asks the server to keep messages from now on. True once it has confirmed. */
  async goIdle(): Promise<boolean> {
    const socket = this.#socket;
    if (!socket) return false;
    const limit = new AbortController();
    const confirmed = new Promise<boolean>((resolve) => (this.#idleAck = () => resolve(true)));
    this.#idle = socket;
    socket.send(`${JSON.stringify({ type: "going_idle" })}\n`);
    const answer = await Promise.race([confirmed, pause(IDLE_ACK_TIME_MS, limit.signal).then(() => false)]);
    limit.abort();
    return answer && this.#socket === socket;
  }

  /** Connects again if the server may keep messages: it sends them on the next connection. */
  stayAwake(): void {
    if (this.isIdle) this.#hangUp?.();
  }

  /** Ends the link. Actions that were sent may have been carried out. */
  #fail<E extends FrontdeskError>(error: E): E {
    const unanswered = new FrontdeskError(`no answer: ${error.message}`, error.code, true);
    for (const waiting of this.#waiting.values()) waiting.reject(unanswered);
    for (const resolve of this.#waitingForUp) resolve();
    return error;
  }
}

function parsed(line: string): Json | undefined {
  if (!line) return undefined;
  try {
    return JSON.parse(line) as Json;
  } catch {
    return undefined; // not a frame; the server repeats its delivery
  }
}

function ack(socket: WebSocket, bufferId: string): void {
  // On a closed socket this has no effect: the delivery is repeated and acked then.
  socket.send(`${JSON.stringify({ type: "inbound_ack", bufferId })}\n`);
}

function remember(ids: Set<string>, id: string): void {
  ids.add(id);
  for (const oldest of ids) {
    if (ids.size <= SEEN_MAX) return;
    ids.delete(oldest);
  }
}
