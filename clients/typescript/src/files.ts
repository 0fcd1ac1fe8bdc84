/** Files on their way to and from the server. */

import { FrontdeskError } from "./errors.js";
import { errorText, files } from "./host.js";
import { open, readBounded, request } from "./http.js";
import type { FileOptions, FileSource } from "./message.js";

const TIME_MS = 120_000;
const UNKNOWN_MIME = "application/octet-stream";
const MIMES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  mp3: "audio/mpeg",
  ogg: "audio/ogg",
  mp4: "video/mp4",
  pdf: "application/pdf",
  json: "application/json",
  txt: "text/plain",
  csv: "text/csv",
  md: "text/markdown",
};

export interface Uploaded {
  url: string;
  kind: string;
  filename: string | undefined;
}

/** `bearer` is the upgrade token of the agent. */
export async function upload(base: string, bearer: string, file: FileSource, options: FileOptions): Promise<Uploaded> {
  const filename = options.filename ?? (typeof file === "string" ? file.replace(/^.*[/\\]/, "") : undefined);
  const known = file instanceof Blob ? file.type : "";
  const mime = options.mime ?? (known || MIMES[filename?.split(".").pop()?.toLowerCase() ?? ""] || UNKNOWN_MIME);
  const body = typeof file === "string" ? await readPath(file) : file;
  const headers: Record<string, string> = { "content-type": mime };
  if (filename) headers["x-media-filename"] = encodeURIComponent(filename);
  const { id } = await request<{ id: string }>(`${base}/relay/media`, { bearer, body, headers, timeoutMs: TIME_MS });
  return { url: `/relay/media/${id}`, kind: mediaKind(mime), filename };
}

/** The token goes to this server only, whatever it calls itself in the URLs of its files. */
export async function download(base: string, bearer: string, url: string, maxBytes: number): Promise<Uint8Array> {
  const id = /\/relay\/media\/([^/?#]+)$/.exec(url)?.[1];
  if (!id) throw new FrontdeskError("this is not the URL of a file at the server", "url_refused");
  const response = await open(`${base}/relay/media/${id}`, { bearer, signal: AbortSignal.timeout(TIME_MS) });
  return await readBounded(response, maxBytes);
}

function mediaKind(mime: string): string {
  if (/^audio\/(ogg|opus|webm|amr)/.test(mime)) return "voice";
  const kind = mime.split("/")[0] ?? "";
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
