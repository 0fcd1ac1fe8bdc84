// A scripted server with an agent of the TypeScript client, for tests/clients/link.mjs.

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import path from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const { Agent } = await import(pathToFileURL(path.join(process.env.FRONTDESK_CLIENT, "dist/index.js")).href);
export const SECRET = "a-secret-that-is-never-shown";
const LIMIT_MS = 10_000;

export async function until(probe, what) {
  for (const end = Date.now() + LIMIT_MS; ; await sleep(5)) {
    const value = probe();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${LIMIT_MS / 1000} s`);
  }
}

/** One connection: the frames that came, and whether it is closed. */
class Peer {
  frames = [];
  closed = false;
  #rest = Buffer.alloc(0);

  constructor(request, socket) {
    this.socket = socket;
    this.protocols = request.headers["sec-websocket-protocol"].split(/, */);
    const accept = createHash("sha1").update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`);
    const lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"];
    lines.push(`Sec-WebSocket-Accept: ${accept.digest("base64")}`, "Sec-WebSocket-Protocol: frontdesk.relay");
    socket.write(`${lines.join("\r\n")}\r\n\r\n`);
    socket.on("data", (data) => this.#read(data));
    socket.on("error", () => undefined);
    socket.on("close", () => (this.closed = true));
  }

  #read(data) {
    this.#rest = Buffer.concat([this.#rest, data]);
    for (;;) {
      if (this.#rest.length < 2) return;
      let [size, at] = [this.#rest[1] & 127, 2];
      if (size >= 126 && this.#rest.length < 10) return;
      if (size === 126) [size, at] = [this.#rest.readUInt16BE(2), 4];
      else if (size === 127) [size, at] = [Number(this.#rest.readBigUInt64BE(2)), 10];
      if (this.#rest.length < at + 4 + size) return;
      const mask = this.#rest.subarray(at, at + 4);
      const body = Buffer.from(this.#rest.subarray(at + 4, at + 4 + size).map((byte, index) => byte ^ mask[index % 4]));
      if ((this.#rest[0] & 15) === 1)
        for (const line of body.toString().split("\n").filter(Boolean)) this.#take(JSON.parse(line));
      if ((this.#rest[0] & 15) === 8) this.socket.end();
      this.#rest = this.#rest.subarray(at + 4 + size);
    }
  }

  #take(frame) {
    this.frames.push(frame);
    if (frame.type === "going_idle") this.send({ type: "going_idle_ack" });
  }

  #write(opcode, body) {
    const head = body.length < 126 ? [body.length] : [126, body.length >> 8, body.length & 255];
    this.socket.write(Buffer.concat([Buffer.from([0x80 | opcode, ...head]), body]));
  }

  raw(text) {
    this.#write(1, Buffer.from(text));
  }

  send(...frames) {
    this.raw(frames.map((frame) => `${JSON.stringify(frame)}\n`).join(""));
  }

  close(code, reason) {
    this.#write(8, Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]));
  }

  /** As `hello` is answered. */
  async welcome() {
    await until(() => this.frames.some((frame) => frame.type === "hello"), "a hello");
    this.describe({});
    return this;
  }

  describe(abilities) {
    this.send({ type: "descriptor", descriptor: { platform: "relay", supported_ops: ["send"], ...abilities } });
  }

  say(bufferId, text, source = {}) {
    const event = { text, message_id: `m-${bufferId}`, source: { platform: "relay", chat_id: "c", ...source } };
    this.send({ type: "inbound", bufferId, event });
  }

  /** The call of an alarm. */
  fire(bufferId, job_id, fire_at) {
    const bodyB64 = Buffer.from(JSON.stringify({ job_id, fire_at })).toString("base64");
    this.send({ type: "passthrough_forward", bufferId, forward: { platform: "cron", path: "/api/cron/fire", bodyB64 } });
  }

  get acks() {
    return this.frames.filter((frame) => frame.type === "inbound_ack").map((frame) => frame.bufferId);
  }

  get actions() {
    return this.frames.filter((frame) => frame.type === "outbound");
  }

  answer(frame, result = { success: true, message_id: "1" }) {
    this.send({ type: "outbound_result", requestId: frame.requestId, result });
  }
}

export class Scene {
  peers = [];
  logs = [];
  /** Alarms at the server, by job; and the calls that changed them. */
  armed = new Map();
  calls = [];
  /** The stream of the inbox, and from where it was read. */
  stream = undefined;
  after = undefined;
  state = undefined;

  #serve(request, response) {
    const call = request.url.replace("/api/agent-cron/", "");
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      if (request.url.includes("/inbox/stream")) {
        this.after = new URL(request.url, "http://x").searchParams.get("after");
        response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
        this.stream = response;
        return;
      }
      const { job_id, fire_at } = JSON.parse(body || "{}");
      if (job_id) this.calls.push([call, job_id]);
      if (call === "provision") this.armed.set(job_id, fire_at);
      if (call === "cancel") this.armed.delete(job_id);
      const armed = [...this.armed].map(([id, at]) => ({ job_id: id, fire_at: at, schedule_id: id }));
      response.writeHead(200).end(JSON.stringify(call === "list" ? { armed } : {}));
    });
  }

  inboxMessage(seq, text, meta = {}) {
    const data = JSON.stringify({ seq, delivery_id: `d-${seq}`, type: "augment", text, meta, at: 0 });
    this.stream.write(`id: ${seq}\nevent: message\ndata: ${data}\n\n`);
  }

  async open() {
    this.server = createServer((request, response) => this.#serve(request, response)).on("upgrade", (request, socket) =>
      this.peers.push(new Peer(request, socket)),
    );
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
  }

  /** Starts an agent with this handler and returns its first connection. */
  async start(handler, options = {}) {
    this.make(handler, options);
    return await this.peer(0);
  }

  make(handler, { setUp, ...options } = {}) {
    const url = `http://127.0.0.1:${this.server.address().port}`;
    const state = { load: async () => this.state, save: async (text) => void (this.state = text) };
    const log = (level, text) => this.logs.push(`${level} ${text}`);
    this.agent = new Agent({ url, gatewayId: "g:1", secret: SECRET, state, log, ...options });
    this.agent.onMessage(handler);
    setUp?.(this.agent);
    this.end = new AbortController();
    this.running = this.agent.run({ signal: this.end.signal });
    this.running.catch(() => undefined);
  }

  async peer(number) {
    return await (await until(() => this.peers[number], `connection ${number + 1}`)).welcome();
  }

  async close() {
    this.end.abort();
    await this.running.catch(() => undefined);
    this.server.closeAllConnections();
    for (const peer of this.peers) peer.socket.destroy();
    this.server.close();
  }
}
