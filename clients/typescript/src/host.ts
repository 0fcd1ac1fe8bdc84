/** What differs between runtimes: the environment, files, the log. */

import { FrontdeskError } from "./errors.js";

export type Json = Record<string, unknown>;

/** Receives log messages. They never contain secrets. */
export type Log = (level: "info" | "warn" | "error", text: string, cause?: unknown) => void;

interface Process {
  env?: Record<string, string | undefined>;
  getBuiltinModule?(name: string): unknown;
}

interface FileSystem {
  mkdir(path: string, options: { recursive: boolean; mode: number }): Promise<unknown>;
  open(
    path: string,
    flags: string,
    mode: number,
  ): Promise<{ writeFile(text: string): Promise<void>; sync(): Promise<void>; close(): Promise<void> }>;
  readFile(path: string): Promise<Uint8Array>;
  rename(from: string, to: string): Promise<void>;
}

const host = (globalThis as { process?: Process }).process;

export function environment(name: string): string | undefined {
  return host?.env?.[name] || undefined;
}

/** `undefined` in runtimes without files. */
export function files(): FileSystem | undefined {
  return host?.getBuiltinModule?.("node:fs/promises") as FileSystem | undefined;
}

export function given(value: string | undefined, name: string, what: string): string {
  const found = value || environment(name);
  if (!found) throw new FrontdeskError(`${name} is not set: ${what}`, "bad_request");
  return found;
}

export const consoleLog: Log = (level, text, cause) => {
  if (level !== "info") console[level](`frontdesk: ${text}`, ...(cause === undefined ? [] : [cause]));
};

/** Resolves early when the signal is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
}

export function randomHex(bytes: number): string {
  return hex(crypto.getRandomValues(new Uint8Array(bytes)));
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function errorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // fetch says only "fetch failed"; the reason is its cause.
  return error.cause instanceof Error && error.cause.message ? `${error.message}: ${error.cause.message}` : error.message;
}

/** Milliseconds of a clock that is never set: for durations and time limits. Whole ones: timers refuse fractions. */
export function steadyMs(): number {
  return Math.floor(performance.now());
}
