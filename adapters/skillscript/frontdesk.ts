// Connects the Skillscript runtime to a Frontdesk server: agents, skills and data over its /v1 API.
//
// No dependencies; it needs the fetch of Node 20. A refusal is thrown as an error whose `name` is the class from the
// server, with the server's fields, and as an instance of the runtime's class if `errors` has one of that name.

export interface DeskOptions {
  /** https://desk.example with a `token`, or a capability URL, https://desk.example/k/{token}, without one. */
  url: string;
  token?: string | undefined;
  /** Error classes to rethrow as: `import * as errors from "skillscript-runtime/errors"`. */
  errors?: Readonly<Record<string, unknown>>;
  /** Timeout of a call. At most 64 at a time are sent to a server, others wait for up to a minute before that. An exchange adds its own timeout. */
  timeout_ms?: number;
  /** Retries of a call that was refused with 429 (nothing was done then); default 10. */
  retries?: number;
  /** Agents that skills notify. `health_check` warns of those that the server does not know. */
  agents?: readonly string[];
  /** Receives warnings; default `console.warn`. */
  warn?: (text: string) => void;
}

export interface Origin { skill_name: string; entry_skill_name?: string; trigger_kind: string; caller_agent_id?: string }
export interface DeliveryMeta { dispatch_id: string; sent_at: number; origin: Origin; event_type?: string; correlation_id?: string }
export type DeliveryPayload = { kind: "augment"; content: string; meta: DeliveryMeta } | { kind: "template"; prompt: string; meta: DeliveryMeta };
export interface DeliveryReceipt { delivered_at: number; delivery_id?: string; session_id?: string; delivery_skipped?: boolean; warnings?: string[] }
export interface WakeOpts { context?: string; when?: "immediate" | number; session_id?: string }
export interface WakeReceipt { woken_at: number; woken: boolean; session_id?: string; warnings?: string[]; scheduled_for?: number }
export interface AgentDescriptor { agent_id: string; agent_name?: string; capabilities?: ReadonlyArray<"deliver" | "wake" | "augment" | "template"> }
export type AgentStatus = "active" | "idle" | "asleep" | "unknown";
export interface AgentReply { correlation_id: string; content: string; sent_at: number; agent_id: string }
export type SkillStatus = "Draft" | "Approved" | "Disabled";
export interface SkillMeta { name: string; version: string; content_hash: string; status: SkillStatus; description?: string; tags?: string[]; created_at: number; updated_at: number; status_changed_at?: number; author?: string; metadata_bag?: Record<string, unknown> }
export interface SkillSource { name: string; version: string; content_hash: string; source: string; metadata: SkillMeta }
export interface VersionInfo { name: string; version: string; content_hash: string; status: SkillStatus; previous_status?: SkillStatus; changed_at: number; changed_by?: string }
export interface PortableData { id: string; summary: string; detail?: string; score?: number; metadata?: Record<string, unknown>; [curated: string]: unknown }
export interface DataWrite { content: string; tags?: string[]; recipients?: string[]; expires_at?: number | null; metadata?: Record<string, unknown> }
// The runtime's manifest types differ per store, and each store defines its content.
export interface ManifestInfo { capabilities_version: string; manifest: any }
type Kind = "agent_connector" | "skill_store" | "data_store";

/** A refusal of the server, or a failed call. */
export class FrontdeskError extends Error {
  constructor(name: string, message: string, fields: Record<string, unknown>) {
    super(message);
    Object.assign(this, fields);
    this.name = name;
  }
}

/** `.` and `..` would be resolved as path segments even if encoded; a lone surrogate cannot be encoded. */
const nameable = (text: string): boolean => text !== "" && text !== "." && text !== ".." && !/\p{Surrogate}/u.test(text);
/** A timer with a longer delay fires at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;
/** Delay if the server sends no Retry-After; doubled with every attempt. */
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 30_000;
/**
 * Calls at a time to one server. A runtime that starts arms more than a thousand triggers at once; with a connection for each, some
 * would be given up before they are open. Calls that wait for an agent do not count.
 */
const CALLS_MAX = 64;
/** For how long a call waits until it is sent, if its timeout is not longer. */
const TURN_MAX_MS = 60_000;
/** The error class of a call without an answer. */
const noAnswer = (kind: Kind): string => kind === "agent_connector" ? "DeliveryFailedError" : "UnavailableError";
/** One path segment, encoded once. */
const segment = (text: string): string => encodeURIComponent(text);

class Slots {
  #free = CALLS_MAX;
  readonly #waiting = new Set<() => void>();

  /** False: it was not the caller's turn in time. */
  async take(limit_ms: number): Promise<boolean> {
    if (this.#free > 0) {
      this.#free -= 1;
      return true;
    }
    return new Promise((resolve) => {
      const begin = (): void => { clearTimeout(timer); resolve(true); };
      const timer = setTimeout(() => { this.#waiting.delete(begin); resolve(false); }, limit_ms);
      this.#waiting.add(begin);
    });
  }

  give(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free += 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}

/** By server: each adapter has a client of its own. */
const slotsOf = new Map<string, Slots>();

/** Client of the server's /v1 API with its credentials. The adapters below use it. */
export class Desk {
  readonly #base: string;
  readonly #options: DeskOptions;
  readonly #slots: Slots;
  constructor(options: DeskOptions) {
    this.#base = `${options.url.replace(/\/+$/, "")}/v1`;
    this.#options = options;
    const server = URL.canParse(options.url) ? new URL(options.url).origin : ""; // not the path, which may be a secret
    this.#slots = slotsOf.get(server) ?? new Slots();
    slotsOf.set(server, this.#slots);
  }

  async call<T>(kind: Kind, method: string, path: string, body?: unknown, extra_ms = 0): Promise<T> {
    const retries = Math.max(0, this.#options.retries ?? 10);
    for (let tried = 0; ; tried += 1) {
      const answer = await this.#inTurn(kind, extra_ms > 0, () => this.#ask<T>(kind, method, path, body, extra_ms));
      if ("value" in answer) return answer.value;
      if (answer.status !== 429 || tried >= retries) throw answer.refusal;
      await pause(answer.retry_ms ?? FIRST_WAIT_MS * 2 ** tried);
    }
  }

  async #inTurn<T>(kind: Kind, waits: boolean, ask: () => Promise<T>): Promise<T> {
    if (waits) return ask();
    if (!await this.#slots.take(Math.min(Math.max(TURN_MAX_MS, this.#options.timeout_ms ?? 0), TIMER_MAX_MS))) {
      throw this.error(kind, noAnswer(kind), `${CALLS_MAX} calls to the server are in progress; this one was not sent`, { cause_kind: "timeout" });
    }
    try { return await ask(); } finally { this.#slots.give(); }
  }

  /** One list or text of a response. A response without it is an error, not an empty list. */
  field<T>(kind: Kind, answer: unknown, name: string, fits: (value: unknown) => boolean): T {
    const value = (answer as Record<string, unknown> | null)?.[name];
    if (fits(value)) return value as T;
    throw this.error(kind, "InternalError", `the server's response has no ${name}`, { cause_kind: "malformed_response" });
  }

  warn(text: string): void { (this.#options.warn ?? console.warn)(`frontdesk: ${text}`); }
  get expected(): readonly string[] { return this.#options.agents ?? []; }

  async #ask<T>(kind: Kind, method: string, path: string, body: unknown, extra_ms: number): Promise<{ value: T } | { refusal: Error; status: number; retry_ms: number | undefined }> {
    const headers: Record<string, string> = {};
    if (this.#options.token !== undefined) headers["authorization"] = `Bearer ${this.#options.token}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    const signal = AbortSignal.timeout(Math.min((this.#options.timeout_ms ?? 15_000) + extra_ms, TIMER_MAX_MS));
    const sent = body === undefined ? {} : { body: this.#written(kind, body) };
    let status: number;
    let text: string;
    let retry_ms: number | undefined;
    try {
      // Redirects are not followed: the token is for this server only.
      const response = await fetch(`${this.#base}/${path}`, { method, headers, signal, redirect: "manual", ...sent });
      status = response.status;
      retry_ms = retryAfter(response.headers.get("retry-after"));
      text = await response.text();
    } catch (error) {
      throw this.#silent(kind, error instanceof Error && error.name === "TimeoutError" ? "timeout" : "network");
    }
    const said = parse(text);
    if (status >= 200 && status < 300 && (said !== undefined || status === 204)) return { value: said as T };
    if (status >= 200 && status < 300) throw this.error(kind, "InternalError", "the server's response is not JSON", { cause_kind: "malformed_response" });
    const refusal = (said as { error?: unknown } | null | undefined)?.error;
    const { class: name, message, ...fields } = (typeof refusal === "object" ? refusal ?? {} : {}) as Record<string, unknown>;
    const refusal_error = this.error(kind, typeof name === "string" ? name : "InternalError", typeof message === "string" ? message : `the server returned status ${status}`, { http_status: status, ...fields });
    return { refusal: refusal_error, status, retry_ms };
  }

  #silent(kind: Kind, cause_kind: "timeout" | "network"): Error {
    return this.error(kind, noAnswer(kind), `the server does not respond (${cause_kind})`, { cause_kind });
  }

  #written(kind: Kind, body: unknown): string {
    try { return JSON.stringify(body); } catch (error) {
      throw this.error(kind, "ValidationError", `the body cannot be encoded as JSON: ${String(error)}`, {});
    }
  }

  error(kind: Kind, name: string, message: string, fields: Record<string, unknown>): Error {
    const error = new FrontdeskError(name, message, { connector_type: kind, implementation: IMPLEMENTATIONS[kind], ...fields });
    const known = this.#options.errors?.[name];
    // Constructors of these classes differ, so only the prototype is set: instanceof and the fields are what matters.
    if (typeof known === "function" && known.prototype instanceof Error) Object.setPrototypeOf(error, known.prototype as object);
    return error;
  }
}

const IMPLEMENTATIONS: Record<Kind, string> = { agent_connector: "FrontdeskAgentConnector", skill_store: "FrontdeskSkillStore", data_store: "FrontdeskDataStore" };

/** Retry-After in seconds; the server never sends a date. */
function retryAfter(header: string | null): number | undefined {
  return header !== null && /^\d+$/.test(header.trim()) ? Number(header) * 1_000 : undefined;
}

/** Waits with jitter (once to twice the time), so that calls refused together are not retried together. */
function pause(wait_ms: number): Promise<void> {
  const wait = Math.min(wait_ms, LONGEST_WAIT_MS) * (1 + Math.random());
  return new Promise((resolve) => setTimeout(resolve, wait));
}

const isText = (value: unknown): boolean => typeof value === "string";

function parse(text: string): unknown {
  try { return JSON.parse(text); } catch { return undefined; }
}

function capabilities<K extends Kind>(connector_type: K, flags: string[]): { connector_type: K; implementation: string; contract_version: string; features: Record<string, boolean> } {
  return { connector_type, implementation: IMPLEMENTATIONS[connector_type], contract_version: "1.0.0", features: Object.fromEntries(flags.map((flag) => [flag, true])) };
}

export class FrontdeskAgentConnector {
  readonly #desk: Desk;
  constructor(options: DeskOptions) { this.#desk = new Desk(options); }
  static staticCapabilities() { return capabilities("agent_connector", ["list_agents", "deliver", "wake", "health_check", "request_response", "agent_status"]); }
  async #call<T>(method: string, path: string, body?: unknown, extra_ms?: number): Promise<T> { return this.#desk.call<T>("agent_connector", method, path, body, extra_ms); }

  async list_agents(): Promise<AgentDescriptor[]> { return this.#desk.field("agent_connector", await this.#call("GET", "agents"), "agents", Array.isArray); }
  #path(agent_id: string, rest: string): string {
    if (!nameable(agent_id)) throw this.#desk.error("agent_connector", "ValidationError", `agent_id ${JSON.stringify(agent_id)} cannot be used in a URL`, { agent_id });
    return `agents/${segment(agent_id)}/${rest}`;
  }

  async deliver(agent_id: string, payload: DeliveryPayload): Promise<DeliveryReceipt> { return this.#call("POST", this.#path(agent_id, "deliver"), payload); }
  async wake(agent_id: string, opts: WakeOpts = {}): Promise<WakeReceipt> { return this.#call("POST", this.#path(agent_id, "wake"), opts); }
  /** Called once, at registration. False makes the runtime refuse to start, so it means that no call would work. */
  async health_check(): Promise<boolean> {
    try {
      await this.#call("GET", "health");
      const known = new Set((await this.list_agents()).map((agent) => agent.agent_id)); // also checks the token
      // The runtime lists agents before each notify, and silently drops a notify to an agent that is not listed.
      const missing = this.#desk.expected.filter((id) => !known.has(id));
      if (known.size === 0) this.#desk.warn("no agent is registered at the server: a notify reaches no agent, and its result is dispatched: [] without an error");
      else if (missing.length > 0) this.#desk.warn(`not registered at the server: ${missing.join(", ")}; a notify does not reach them, and its result is dispatched: [] without an error`);
      return true;
    } catch (error) {
      this.#desk.warn(`health check failed: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`);
      return false;
    }
  }
  async request_response(agent_id: string, payload: DeliveryPayload, opts: { timeout_ms: number }): Promise<AgentReply> {
    return this.#call("POST", this.#path(agent_id, "exchange"), { ...payload, timeout_ms: opts.timeout_ms }, opts.timeout_ms);
  }
  async agent_status(agent_id: string): Promise<AgentStatus> { return this.#desk.field("agent_connector", await this.#call("GET", this.#path(agent_id, "status")), "status", isText); }
}

export class FrontdeskSkillStore {
  readonly #desk: Desk;
  constructor(options: DeskOptions) { this.#desk = new Desk(options); }
  static staticCapabilities() { return capabilities("skill_store", ["supports_writes", "supports_versioning", "supports_tag_filter", "supports_audit_trail", "supports_atomic_status_transitions"]); }
  async #call<T>(method: string, path: string, body?: unknown): Promise<T> { return this.#desk.call<T>("skill_store", method, path, body); }

  /** A name that cannot be used in a URL is not a skill name. */
  #path(name: string, rest = "", otherwise = "SkillNotFoundError"): string {
    if (!nameable(name)) throw this.#desk.error("skill_store", otherwise, `${JSON.stringify(name)} is not a valid skill name`, { skill_name: name });
    return `skills/${segment(name)}${rest}`;
  }

  async load(name: string, version?: string): Promise<SkillSource> { return this.#call("GET", this.#path(name, version === undefined ? "" : `?version=${encodeURIComponent(version)}`)); }
  async query(filter: Record<string, unknown> = {}): Promise<SkillMeta[]> { return this.#desk.field("skill_store", await this.#call("POST", "skill-store/query", filter), "skills", Array.isArray); }
  async metadata(name: string): Promise<SkillMeta> { return this.#call("GET", this.#path(name, "/metadata")); }
  async versions(name: string): Promise<VersionInfo[]> { return this.#desk.field("skill_store", await this.#call("GET", this.#path(name, "/versions")), "versions", Array.isArray); }
  async store(name: string, source: string, metadata?: Partial<SkillMeta>): Promise<VersionInfo> { return this.#call("PUT", this.#path(name, "", "ValidationError"), { source, ...(metadata === undefined ? {} : { metadata }) }); }
  async delete(name: string): Promise<void> { await this.#call("DELETE", this.#path(name)); }
  async update_status(name: string, status: SkillStatus): Promise<VersionInfo> { return this.#call("POST", this.#path(name, "/status"), { status }); }
  async manifest(): Promise<ManifestInfo> { return this.#call("GET", "skill-store/manifest"); }
  async version(): Promise<string> { return this.#desk.field("skill_store", await this.#call("GET", "skill-store/version"), "version", isText); }
}

export class FrontdeskDataStore {
  readonly #desk: Desk;
  constructor(options: DeskOptions) { this.#desk = new Desk(options); }
  static staticCapabilities() { return capabilities("data_store", ["supports_writes", "supports_tag_filter"]); }
  async #call<T>(method: string, path: string, body?: unknown): Promise<T> { return this.#desk.call<T>("data_store", method, path, body); }

  async query(filters: { query: string; limit: number; mode: string; permissive_filters?: boolean; [filter: string]: unknown }): Promise<PortableData[]> { return this.#desk.field("data_store", await this.#call("POST", "data-store/query", filters), "items", Array.isArray); }
  async write(entry: DataWrite): Promise<{ id: string; created_at: number }> { return this.#call("POST", "data", entry); }
  /** Null only for a missing row: any other 404 is an error. */
  async get(id: string): Promise<PortableData | null> {
    if (!nameable(id)) return null;
    try { return await this.#call<PortableData>("GET", `data/${segment(id)}`); } catch (error) {
      if (error instanceof Error && error.name === "DataNotFound") return null;
      throw error;
    }
  }
  async manifest(): Promise<ManifestInfo> { return this.#call("GET", "data-store/manifest"); }
}
