/** Messages, and what can be done with them. */

import { FrontdeskError } from "./errors.js";
import { pause, randomHex, steadyMs, type Json } from "./host.js";

/** Platforms show a typing indicator for some seconds only. */
const TYPING_EVERY_MS = 4_000;
/** Platforms limit how often a message may be edited. */
const EDIT_EVERY_MS = 1_000;
const EDIT_PAUSES_MS = [1_000, 2_000, 3_000];
const PASSING_CODES = new Set(["rate_limited", "unavailable"]);
/** What the server accepts at most, unless its operator changed that. */
const FILE_MAX_BYTES = 25 << 20;

/** Where a message came from. */
export interface Chat {
  readonly platform: string;
  readonly id: string;
  readonly thread?: string | undefined;
  /** `dm`, `group`, `channel`, ... */
  readonly kind?: string | undefined;
  readonly name?: string | undefined;
}

/** Equal for two messages of one conversation, so usable as a key. */
export function chatKey(chat: Chat): string {
  return JSON.stringify([chat.platform, chat.id, ...(chat.thread ? [chat.thread] : [])]);
}

/** Another agent waits for an answer here. Messages that are not marked as the answer count as progress. */
export function isQuestion(chat: Chat): boolean {
  return chat.platform === "relay" && chat.id.startsWith("agent:") && chat.thread !== undefined;
}

/** The answer to a prompt. */
export interface Pressed {
  readonly prompt: string;
  readonly option: string;
}

export interface SendOptions {
  /** The id of the message that this answers. */
  replyTo?: string | undefined;
}

export interface FileOptions extends SendOptions {
  filename?: string | undefined;
  mime?: string | undefined;
  caption?: string | undefined;
}

/** A path, in runtimes that have files, or the bytes themselves. */
export type FileSource = string | Uint8Array | Blob;

/** What messages need of their agent. */
export interface Sender {
  act(op: string, chat: Chat, fields?: Json, metadata?: Json): Promise<Json>;
  send(chat: Chat | string, text: string, options?: SendOptions): Promise<Sent>;
  sendFile(chat: Chat | string, file: FileSource, options?: FileOptions): Promise<Sent>;
  download(url: string, maxBytes: number): Promise<Uint8Array>;
  /** Whether this text fits into one message of the chat that can be edited. */
  isEditable(chat: Chat, text: string): boolean;
}

/** A message of this agent. */
export class Sent {
  readonly #sender: Sender;
  constructor(
    sender: Sender,
    readonly chat: Chat,
    readonly id: string | undefined,
  ) {
    this.#sender = sender;
  }

  async edit(text: string): Promise<void> {
    await this.#sender.act("edit", this.chat, { message_id: this.#known(), content: text });
  }

  async delete(): Promise<void> {
    await this.#sender.act("delete", this.chat, { message_id: this.#known() });
  }

  #known(): string {
    if (this.id === undefined) throw new FrontdeskError("the platform gave this message no id", "unsupported_op");
    return this.id;
  }
}

/** A file that came with a message. */
export class Media {
  readonly #sender: Sender;
  readonly url: string;
  /** `image`, `voice`, `audio`, `video` or `document`. */
  readonly kind: string;
  readonly mime: string;
  /** Bytes, as far as the platform said. */
  readonly size: number;
  readonly filename: string | undefined;
  readonly caption: string | undefined;

  constructor(sender: Sender, raw: Json) {
    this.#sender = sender;
    this.url = String(raw.url ?? "");
    this.kind = String(raw.kind ?? "document");
    this.mime = String(raw.mime ?? "application/octet-stream");
    this.size = Number(raw.size ?? 0);
    this.filename = text(raw.filename);
    this.caption = text(raw.caption);
  }

  /** Downloads it from the server. Fails with `too_large` if it has more than `maxBytes`. */
  read(maxBytes = FILE_MAX_BYTES): Promise<Uint8Array> {
    return this.#sender.download(this.url, maxBytes);
  }
}

/** A text that grows in front of the reader. Its last form is certain: it is written when the stream ends. */
export class Stream {
  readonly #send: (text: string) => Promise<Sent>;
  readonly #isShown: (text: string) => boolean;
  #text = "";
  #shown = "";
  #shownMs = -Infinity;
  #sent: Sent | undefined;

  /** `isShown`: whether this text may be shown before the end. */
  constructor(send: (text: string) => Promise<Sent>, isShown: (text: string) => boolean) {
    this.#send = send;
    this.#isShown = isShown;
  }

  get text(): string {
    return this.#text;
  }

  async write(more: string): Promise<void> {
    this.#text += more;
    if (steadyMs() - this.#shownMs < EDIT_EVERY_MS) return;
    this.#shownMs = steadyMs();
    if (!this.#isShown(this.#text)) return;
    // An edit that fails is made up for by the next one, or by the last.
    await this.#show().catch((error: unknown) => {
      if (!this.#sent) throw error;
    });
    this.#shownMs = steadyMs();
  }

  /** For `Message.stream`: writes the last form. */
  async finish(): Promise<Sent | undefined> {
    const preview = this.#sent;
    try {
      if (!preview || this.#shown === this.#text || this.#isShown(this.#text)) {
        await this.#showLast();
        return this.#sent;
      }
    } catch (error) {
      const isRefused = error instanceof FrontdeskError && !error.ambiguous;
      if (!preview || !isRefused) throw error;
    }
    // The server splits a text that is sent, but not one that replaces another.
    this.#sent = undefined;
    await this.#show();
    await preview.delete().catch(() => undefined); // its text is in the new message
    return this.#sent;
  }

  /** An edit may be carried out twice, so one that may go better the next time is repeated. */
  async #showLast(): Promise<void> {
    for (const pauseMs of EDIT_PAUSES_MS) {
      try {
        return await this.#show();
      } catch (error) {
        const mayPass = error instanceof FrontdeskError && (error.ambiguous || PASSING_CODES.has(error.code));
        if (!this.#sent || !mayPass) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    await this.#show();
  }

  async #show(): Promise<void> {
    const shown = this.#text;
    if (!shown.trim() || shown === this.#shown) return;
    if (this.#sent) await this.#sent.edit(shown);
    else this.#sent = await this.#send(shown);
    this.#shown = shown;
  }
}

export class Message {
  readonly #sender: Sender;
  readonly chat: Chat;
  readonly text: string;
  /** The same when the message is delivered again. */
  readonly id: string | undefined;
  readonly user: string | undefined;
  readonly userName: string | undefined;
  /** `text`, `command`, `photo`, `document`, ... */
  readonly kind: string;
  readonly media: readonly Media[];
  /** The id of the message that this one answers. */
  readonly replyTo: string | undefined;
  readonly pressed: Pressed | undefined;
  /** The event as the server sent it. */
  readonly raw: Json;
  /** Aborted when the user says /stop, or the agent ends. */
  readonly signal: AbortSignal;
  /** Set if another agent asks: the answer must name it. */
  readonly #question: string | undefined;

  constructor(sender: Sender, event: Json, signal: AbortSignal) {
    const source = (event.source ?? {}) as Json;
    this.#sender = sender;
    this.raw = event;
    this.signal = signal;
    this.chat = {
      platform: String(source.platform ?? ""),
      id: String(source.chat_id ?? ""),
      thread: text(source.thread_id),
      kind: String(source.chat_type ?? "dm"),
      name: text(source.chat_name),
    };
    this.text = String(event.text ?? "");
    this.id = text(event.message_id);
    this.user = text(source.user_id);
    this.userName = text(source.user_name);
    this.kind = String(event.message_type ?? "text");
    this.media = ((event.media ?? []) as Json[]).map((it) => new Media(sender, it));
    this.replyTo = text(event.reply_to_message_id);
    const answer = event.prompt_response as Json | undefined;
    this.pressed = answer ? { prompt: String(answer.prompt_id), option: String(answer.option_id) } : undefined;
    const meta = (event.delivery as { meta?: Json } | undefined)?.meta;
    this.#question = this.chat.thread ? text(meta?.correlation_id) : undefined;
  }

  async reply(content: string): Promise<Sent> {
    const metadata = this.#question ? { correlation_id: this.#question } : {};
    const result = await this.#sender.act("send", this.chat, { content, reply_to: this.id }, metadata);
    return new Sent(this.#sender, this.chat, text(result.message_id));
  }

  replyFile(file: FileSource, options: FileOptions = {}): Promise<Sent> {
    return this.#sender.sendFile(this.chat, file, { replyTo: this.id, ...options });
  }

  async react(emoji: string): Promise<void> {
    await this.#sender.act("react", this.chat, { message_id: this.id, emoji });
  }

  /** Shows a button for each of `options`, a name and its label. What is pressed comes as a message with `pressed`. */
  async ask(content: string, options: Record<string, string>, prompt: string = randomHex(8)): Promise<Sent> {
    const shown = Object.entries(options).map(([id, label]) => ({ id, label }));
    const fields = { prompt_id: prompt, prompt_kind: "choice", content, options: shown };
    const result = await this.#sender.act("prompt", this.chat, fields);
    return new Sent(this.#sender, this.chat, text(result.message_id));
  }

  /** Shows that the agent is at work while `work` runs, as far as the platform can. */
  async typing<T>(work: () => Promise<T>): Promise<T> {
    const ended = new AbortController();
    const repeat = async (): Promise<void> => {
      while (!ended.signal.aborted) {
        // A courtesy: its failure must not fail the answer.
        await this.#sender.act("typing", this.chat).catch(() => undefined);
        await pause(TYPING_EVERY_MS, ended.signal);
      }
    };
    void repeat();
    try {
      return await work();
    } finally {
      ended.abort();
    }
  }

  /**
   * Replies with a text that grows: sent once and then edited, at most once a second. Where messages cannot be edited, the
   * whole text is sent at the end. `source` are pieces of text, such as the output of a model, or a function that writes them.
   * Returns what was sent, if there was any text.
   */
  async stream(
    source: AsyncIterable<string> | Iterable<string> | ((stream: Stream) => Promise<void>),
  ): Promise<Sent | undefined> {
    // An agent that asked takes the first text for the answer.
    const isShown = (content: string): boolean => this.#question === undefined && this.#sender.isEditable(this.chat, content);
    const stream = new Stream((content) => this.reply(content), isShown);
    if (typeof source === "function") await source(stream);
    else for await (const piece of source) await stream.write(piece);
    return await stream.finish();
  }
}

export function text(value: unknown): string | undefined {
  return value === null || value === undefined || value === "" ? undefined : String(value);
}
