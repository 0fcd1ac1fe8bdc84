/** Messages between agents: deliver, notify, exchange, and the inbox. */

import { FrontdeskError } from "./errors.js";
import { errorText, given, pause, steadyMs, type Json, type Log } from "./host.js";
import { open, request, requestOnce } from "./http.js";
import { text } from "./message.js";
import type { Remembered } from "./state.js";

const RETRY_FIRST_MS = 250;
const RETRY_MAX_MS = 15_000;
const EXCHANGE_TIMEOUT_S = 30;
const SILENCE_MAX_MS = 60_000;
/** Remembered inbox messages whose copies on the socket may still arrive: the loop may be far ahead of the socket. */
const REMEMBERED_MAX = 4096;
/** How long the copy of a message waits while the inbox is quiet. After that the inbox no longer has the message. */
const COPY_TIME_MS = 30_000;
const LOOK_EVERY_MS = 1_000;
/** Enough for a message of 1 MiB with escapes. */
const EVENT_MAX_CHARS = 8 << 20;

export interface DeliverOptions {
  /** `augment` is context to absorb, `template` a playbook to execute. */
  kind?: "augment" | "template";
  eventType?: string;
  /** Repeating a message with the same id delivers it once. */
  dispatchId?: string;
}

/** What the server did with a message, which is stored durably. */
export interface Receipt {
  readonly deliveryId: string | undefined;
  /** No session or connector has taken the message yet; it waits in the inbox. */
  readonly waits: boolean;
  readonly warnings: readonly string[];
}

export interface Answer {
  readonly text: string;
  readonly agent: string;
  readonly sentAt: Date;
}

/** A message from another agent or a program. */
export class InboxMessage {
  readonly #inbox: AgentInbox;
  /** Its position in the inbox. */
  readonly seq: number;
  readonly id: string;
  /** `augment`, `template`, `wake` or `wake_degraded`. */
  readonly kind: string;
  readonly text: string;
  readonly from: string | undefined;
  readonly eventType: string | undefined;
  readonly at: Date;
  readonly raw: Json;
  readonly #question: string | undefined;

  constructor(inbox: AgentInbox, raw: Json) {
    const meta = (raw.meta ?? {}) as Json;
    const origin = (meta.origin ?? {}) as Json;
    this.#inbox = inbox;
    this.raw = raw;
    this.seq = Number(raw.seq);
    this.id = String(raw.delivery_id);
    this.kind = String(raw.type);
    this.text = String(raw.text ?? "");
    this.from = text(origin.caller_agent_id ?? origin.skill_name);
    this.eventType = text(meta.event_type);
    this.at = new Date(Number(raw.at));
    this.#question = this.eventType === "exchange.late_reply" ? undefined : text(meta.correlation_id);
  }

  /** Whether the message is a question, so that a caller may wait for `reply`. */
  get expectsReply(): boolean {
    return this.#question !== undefined;
  }

  /** Answers an exchange. Fails with `gone` if no caller waits any more and no agent asked, or the question was answered. */
  async reply(content: string): Promise<void> {
    if (this.#question === undefined) throw new FrontdeskError("this message expects no reply", "bad_request");
    await this.#inbox.reply(this.#question, content);
  }
}

export class AgentInbox {
  readonly #base: string;
  readonly #token: string | undefined;
  readonly #name: string;
  readonly #state: Remembered;
  readonly #log: Log;
  /** Copies on the socket that wait for their message to be handled. */
  readonly #waiting = new Map<string, (handled: boolean) => void>();
  #readers = 0;
  /** Since when the inbox stream is open and has no message for the loop. */
  #quietSinceMs: number | undefined;
  /** Messages that the loop is handling. */
  #open = 0;

  constructor(base: string, token: string | undefined, name: string, state: Remembered, log: Log) {
    this.#base = base;
    this.#token = token;
    this.#name = name;
    this.#state = state;
    this.#log = log;
  }

  get areRead(): boolean {
    return this.#readers > 0;
  }

  get isBusy(): boolean {
    return this.#open > 0;
  }

  #ask(): { bearer: string; headers: Record<string, string> } {
    const why = "messages between agents need the token that `frontdesk token create --scope agents --instance NAME` prints";
    return { bearer: given(this.#token, "FRONTDESK_AGENT_TOKEN", why), headers: { "x-agent-id": this.#name } };
  }

  #url(agent: string, call: string): string {
    if (["", ".", ".."].includes(agent))
      throw new FrontdeskError(`${JSON.stringify(agent)} is not the name of an agent`, "bad_request");
    return `${this.#base}/v1/agents/${encodeURIComponent(agent)}/${call}`;
  }

  // ---- sending -----------------------------------------------------------------------------

  #payload(content: string, options: DeliverOptions, more: Json = {}): Json {
    const { kind = "augment", eventType, dispatchId = crypto.randomUUID() } = options;
    const meta = {
      dispatch_id: dispatchId,
      sent_at: Date.now(),
      origin: this.#origin(),
      ...(eventType ? { event_type: eventType } : {}),
      ...more,
    };
    return { kind, [kind === "template" ? "prompt" : "content"]: content, meta };
  }

  /** For tokens that are not bound to an agent; those that are say it themselves. */
  #origin(): Json {
    return { trigger_kind: "agent", caller_agent_id: this.#name };
  }

  async deliver(agent: string, content: string, options: DeliverOptions = {}): Promise<Receipt> {
    const json = this.#payload(content, options);
    const made = await requestOnce<Json>(this.#url(agent, "deliver"), { ...this.#ask(), json });
    return {
      deliveryId: text(made.delivery_id),
      waits: made.delivery_skipped === true,
      warnings: (made.warnings ?? []) as string[],
    };
  }

  async notify(address: string, message: string, options: { eventType?: string } = {}): Promise<Json> {
    const json = {
      agent: address,
      message,
      origin: this.#origin(),
      ...(options.eventType ? { event_type: options.eventType } : {}),
    };
    return await request<Json>(`${this.#base}/v1/notify`, { ...this.#ask(), json });
  }

  /** Retries under the same id while the server is unavailable, so that the question is asked once. */
  async exchange(agent: string, content: string, options: DeliverOptions & { timeoutS?: number } = {}): Promise<Answer> {
    const timeoutMs = Math.round((options.timeoutS ?? EXCHANGE_TIMEOUT_S) * 1000); // timers refuse fractions
    const json = { ...this.#payload(content, options, { correlation_id: crypto.randomUUID() }), timeout_ms: timeoutMs };
    const made = await requestOnce<Json>(this.#url(agent, "exchange"), { ...this.#ask(), json, timeoutMs: timeoutMs + 5_000 });
    return { text: String(made.content ?? ""), agent: String(made.agent_id ?? agent), sentAt: new Date(Number(made.sent_at)) };
  }

  async reply(correlationId: string, content: string): Promise<void> {
    await request(this.#url(this.#name, "replies"), { ...this.#ask(), json: { correlation_id: correlationId, content } });
  }

  // ---- inbox -------------------------------------------------------------------------------

  /**
   * Called for the copy of an inbox message on the socket: waits until the loop over the inbox has handled the message.
   * Undefined: the inbox does not have the message.
   */
  async isHandled(deliveryId: string, stopped: AbortSignal): Promise<boolean | undefined> {
    const before = (await this.#state.get()).handled ?? [];
    if (before.includes(deliveryId)) return true;
    let handled: boolean | undefined;
    const settled = new AbortController();
    this.#waiting.set(deliveryId, (it) => {
      handled = it;
      settled.abort();
    });
    const signal = AbortSignal.any([settled.signal, stopped]);
    const cameMs = steadyMs();
    while (!signal.aborted && steadyMs() - Math.max(cameMs, this.#quietSinceMs ?? Infinity) < COPY_TIME_MS) {
      await pause(LOOK_EVERY_MS, signal);
    }
    this.#waiting.delete(deliveryId);
    return stopped.aborted ? (handled ?? false) : handled;
  }

  /** Messages from the saved position on. The position is saved when the loop requests the next message. */
  read(stopped: AbortSignal): AsyncGenerator<InboxMessage, void, void> {
    this.#ask();
    this.#readers++; // now, and not when the first message is asked for
    return this.#read(stopped);
  }

  async *#read(stopped: AbortSignal): AsyncGenerator<InboxMessage, void, void> {
    let wait = RETRY_FIRST_MS;
    try {
      while (!stopped.aborted) {
        try {
          for await (const message of this.#stream(stopped)) {
            wait = RETRY_FIRST_MS;
            this.#open++;
            this.#quietSinceMs = undefined;
            try {
              yield message;
            } finally {
              this.#open--;
            }
            await this.#passed(message);
            this.#quietSinceMs = steadyMs();
          }
        } catch (error) {
          const mayPass =
            error instanceof FrontdeskError && ["unavailable", "timeout", "rate_limited", "unknown"].includes(error.code);
          if (!mayPass && !stopped.aborted) throw error;
          if (!stopped.aborted) this.#log("info", `reading the inbox failed, trying again: ${errorText(error)}`);
        }
        await pause(wait, stopped);
        wait = Math.min(wait * 2, RETRY_MAX_MS);
      }
    } finally {
      this.#readers--;
      if (this.#readers === 0) {
        // No loop handles these messages any more. The server keeps what is not acked.
        for (const resolve of this.#waiting.values()) resolve(false);
        this.#waiting.clear();
      }
    }
  }

  async #passed(message: InboxMessage): Promise<void> {
    await this.#state.change((state) => {
      state.inbox = message.seq;
      state.handled = [...(state.handled ?? []), message.id].slice(-REMEMBERED_MAX);
    });
    this.#waiting.get(message.id)?.(true);
    this.#waiting.delete(message.id);
  }

  /** One connection. Messages are read only when the loop requests them, so the server waits. */
  async *#stream(stopped: AbortSignal): AsyncGenerator<InboxMessage, void, void> {
    const { inbox: place = 0 } = await this.#state.get();
    const closed = new AbortController();
    const signal = AbortSignal.any([stopped, closed.signal]);
    const url = this.#url(this.#name, `inbox/stream?after=${place}`);
    const { bearer, headers } = this.#ask();
    const response = await open(url, { bearer, headers: { ...headers, accept: "text/event-stream" }, signal });
    this.#quietSinceMs = steadyMs();
    try {
      for await (const { name, data } of events(response, () => closed.abort())) {
        if (name === "message") yield new InboxMessage(this, JSON.parse(data) as Json);
        if (name === "ready") await this.#comparePlace(Number((JSON.parse(data || "{}") as Json).newest ?? place));
      }
    } finally {
      this.#quietSinceMs = undefined;
      closed.abort();
    }
  }

  /** A saved position above the newest message means that the server was restored from an older backup. */
  async #comparePlace(newest: number): Promise<void> {
    const { inbox: place = 0 } = await this.#state.get();
    if (place <= newest) return;
    this.#log("warn", `the saved position ${place} is beyond the end of the inbox (${newest}): the server was restored from a backup`);
    await this.#state.change((state) => void (state.inbox = newest));
  }
}

/** Server-sent events of a response. The server sends something every 15 s, so a silent connection is dead. */
async function* events(response: Response, close: () => void): AsyncGenerator<{ name: string; data: string }, void, void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let partial = "";
  let name = "message";
  let data: string[] = [];
  for (;;) {
    let part;
    const silence = setTimeout(close, SILENCE_MAX_MS);
    try {
      part = await reader?.read();
    } catch (error) {
      throw new FrontdeskError(`the connection was lost: ${errorText(error)}`, "unavailable", false, { cause: error });
    } finally {
      clearTimeout(silence);
    }
    if (!part || part.done) return;
    const lines = (partial + part.value).split(/\r?\n/);
    partial = lines.pop() ?? "";
    if (partial.length > EVENT_MAX_CHARS) throw new FrontdeskError("an event of the inbox is too long", "too_large");
    for (const line of lines) {
      if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      else if (line === "") {
        if (data.length > 0) yield { name, data: data.join("\n") };
        name = "message";
        data = [];
      }
    }
  }
}
