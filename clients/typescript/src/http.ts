/** Requests to the server. Redirects are not followed, because the tokens are only for this server. */

import { FrontdeskError } from "./errors.js";
import { errorText, hex, pause, steadyMs } from "./host.js";

const TIMEOUT_MS = 15_000;
const TOKEN_TTL_S = 300;
const SHOWN_CHARS = 300;
// Pauses between the attempts of a request that the server carries out only once.
const REPEAT_PAUSES_MS = [500, 1_000, 2_000, 4_000];

/** Codes of refusals that have none of their own. */
const CODES: Record<number, string> = {
  400: "bad_request",
  401: "unauthorized",
  403: "forbidden",
  404: "not_found",
  409: "conflict",
  410: "gone",
  413: "too_large",
  415: "unsupported_media_type",
  422: "bad_request",
  429: "rate_limited",
  501: "unsupported_op",
  502: "platform_failed",
  503: "unavailable",
  504: "timeout",
};

export interface Ask {
  method?: "GET" | "POST";
  bearer: string;
  json?: unknown;
  body?: Uint8Array | Blob;
  headers?: Record<string, string>;
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** The base URL of a server, from it or from the URL of its relay socket. */
export function baseUrl(url: string): string {
  const plain = url
    .trim()
    .replace(/\/+$/, "")
    .replace(/^ws(s?):/i, "http$1:")
    .replace(/\/relay$/, "");
  if (!/^https?:\/\/./i.test(plain) || !URL.canParse(plain)) {
    throw new FrontdeskError(`the URL of the server is not valid: ${JSON.stringify(url)}`, "bad_request");
  }
  return plain;
}

/** What authenticates a gateway for some minutes. */
export async function upgradeToken(gatewayId: string, secret: string): Promise<string> {
  const encode = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
  const signed = `${gatewayId}:${Math.floor(Date.now() / 1000) + TOKEN_TTL_S}`;
  const key = await crypto.subtle.importKey("raw", encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const tag = hex(new Uint8Array(await crypto.subtle.sign("HMAC", key, encode(signed))));
  const bytes = String.fromCharCode(...encode(`${signed}:${tag}`));
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** A 2xx response whose body was not read yet. */
export async function open(url: string, ask: Ask): Promise<Response> {
  const headers: Record<string, string> = { authorization: `Bearer ${ask.bearer}`, ...ask.headers };
  let body: BodyInit | undefined = ask.body as BodyInit | undefined;
  if (ask.json !== undefined) {
    headers["content-type"] = "application/json";
    body = JSON.stringify(ask.json);
  }
  const method = ask.method ?? (body === undefined ? "GET" : "POST");
  let response: Response;
  try {
    const init: RequestInit = { method, headers, redirect: "manual" };
    if (body !== undefined) init.body = body;
    if (ask.signal) init.signal = ask.signal;
    response = await fetch(url, init);
  } catch (error) {
    const late = error instanceof Error && error.name === "TimeoutError";
    const mayHaveArrived = method !== "GET" && !isUnreached(error);
    const text = late ? "the server did not answer in time" : `the server does not respond: ${errorText(error)}`;
    throw new FrontdeskError(text, late ? "timeout" : "unavailable", mayHaveArrived, { cause: error });
  }
  if (response.ok) return response;
  throw refusal(response.status, await response.text().catch(() => ""));
}

/** Whether there was no connection at all. */
function isUnreached(error: unknown): boolean {
  const code = ((error as Error).cause as { code?: string } | undefined)?.code ?? "";
  return ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"].includes(code);
}

/** A request and its whole JSON answer. */
export async function request<T>(url: string, ask: Ask): Promise<T> {
  const limit = AbortSignal.timeout(ask.timeoutMs ?? TIMEOUT_MS);
  const signal = ask.signal ? AbortSignal.any([ask.signal, limit]) : limit;
  const response = await open(url, { ...ask, signal });
  try {
    return (await response.json()) as T;
  } catch (error) {
    const text = limit.aborted ? "the server did not answer in time" : `the server sent an invalid response: ${errorText(error)}`;
    throw new FrontdeskError(text, limit.aborted ? "timeout" : "unknown", ask.method !== "GET", { cause: error });
  }
}

/** For requests that name themselves, so that the server carries them out once however often they come. */
export async function requestOnce<T>(url: string, ask: Ask): Promise<T> {
  const end = steadyMs() + (ask.timeoutMs ?? TIMEOUT_MS);
  for (const pauseMs of [...REPEAT_PAUSES_MS, undefined]) {
    try {
      return await request<T>(url, { ...ask, timeoutMs: Math.max(end - steadyMs(), 1) });
    } catch (error) {
      const mayPass = error instanceof FrontdeskError && ["unavailable", "unknown"].includes(error.code);
      if (!mayPass || pauseMs === undefined || steadyMs() + pauseMs >= end) throw error;
      await pause(pauseMs, ask.signal);
    }
  }
  throw new FrontdeskError("the server does not respond", "unavailable", true);
}

/** Reads a body into memory, up to a limit. */
export async function readBounded(response: Response, maxBytes: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  const reader = response.body?.getReader();
  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    size += part.value.length;
    if (size > maxBytes) {
      await reader?.cancel();
      throw new FrontdeskError(`the file is larger than ${maxBytes} bytes`, "too_large");
    }
    parts.push(part.value);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** The error that the server sent, in any of its three forms, or one made from the status if a proxy answered. */
function refusal(status: number, body: string): FrontdeskError {
  let said: { error?: string | { message?: string }; code?: string; detail?: string } = {};
  try {
    said = (JSON.parse(body) as typeof said) ?? {};
  } catch {
    // not JSON: the status and the text are all there is
  }
  const text = (typeof said.error === "string" ? said.error : said.error?.message) ?? said.detail;
  const code = said.code ?? CODES[status] ?? "unknown";
  return new FrontdeskError(
    text ?? `the server answered ${status}: ${body.slice(0, SHOWN_CHARS)}`,
    code,
    code === "timeout" || (status >= 500 && status !== 503),
  );
}
