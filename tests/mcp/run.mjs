// Tests the MCP endpoint of the real server with the official MCP client.
// Run: node tests/mcp/run.mjs
//
//   FRONTDESK_BIN             the server's binary (required)
//   FRONTDESK_NODE_MODULES    a folder that contains @modelcontextprotocol/sdk (else NODE_PATH)
//
// No fixed sleeps: every step waits for its condition, with a time limit.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import assert from "node:assert/strict";
import { LIMIT, check, checkEnd, run, startDesk } from "../node/desk.mjs";


const modules = process.env.FRONTDESK_NODE_MODULES;
const require = createRequire(modules ? path.join(path.resolve(modules), "here.js") : import.meta.url);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { McpError } = require("@modelcontextprotocol/sdk/types.js");

/** A question by the other doors: what an operator or an agent would ask. */
async function ask(url, token, method = "GET", body = undefined) {
  const headers = { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { "content-type": "application/json" }) };
  const response = await fetch(url, { method, headers, signal: AbortSignal.timeout(LIMIT), ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${new URL(url).pathname}: ${response.status} ${text}`);
  return text === "" ? undefined : JSON.parse(text);
}

/** The error of a promise that must fail. */
async function error(promise) {
  const end = await promise.then((value) => ({ value }), (error) => ({ error }));
  assert.ok(end.error instanceof Error, `the call did not fail: ${JSON.stringify(end.value)}`);
  return end.error;
}

/** A connected client, and short ways to its tools. */
async function connect(url, headers = {}) {
  const client = new Client({ name: "frontdesk-tests", version: "1.0.0" });
  const broken = [];
  client.onerror = (error) => broken.push(error);
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  await client.connect(transport, { timeout: LIMIT });
  const call = async (name, args = {}) => {
    const result = await client.callTool({ name, arguments: args }, undefined, { timeout: LIMIT });
    assert.notEqual(result.isError, true, JSON.stringify(result));
    assert.deepEqual(result.content.map((one) => one.type), ["text"]);
    return JSON.parse(result.content[0].text);
  };
  const fault = async (name, args = {}) => {
    const refused = await error(call(name, args));
    assert.ok(refused instanceof McpError, `${refused}`);
    assert.ok(refused.code < 0 && refused.message.includes(refused.data.class), `${refused}`);
    return refused.data;
  };
  return { client, transport, call, fault, broken };
}

const ARGUMENTS = {
  agents_list: [],
  agent_deliver: ["agent_id", "kind", "content", "prompt", "event_type", "correlation_id"],
  agent_wake: ["agent_id", "context", "when", "session_id"],
  agent_status: ["agent_id"],
  agent_exchange: ["agent_id", "content", "timeout_ms", "correlation_id"],
  agent_register: ["agent_id", "agent_name", "wake_url"],
  agent_inbox: ["agent_id", "after"],
  agent_reply: ["agent_id", "correlation_id", "content"],
  skill_read: ["name", "version"],
  skill_write: ["name", "source", "overwrite"],
  skill_list: ["status", "author", "if_none_match"],
  data_read: ["query", "mode", "limit"],
  data_get: ["id"],
  data_write: ["content"],
  cron_list: [],
};

async function drive(base, tokens) {
  const bearer = { authorization: `Bearer ${tokens.agents}` };
  const inbox = async (agent) => (await ask(`${base}/v1/agents/${agent}/inbox`, tokens.agents)).messages;
  let desk;

  await check("it connects and gets the server's name", async () => {
    desk = await connect(`${base}/mcp`, { ...bearer, "x-agent-id": "bob" });
    assert.equal(desk.client.getServerVersion().name, "frontdesk");
    assert.ok(desk.client.getServerCapabilities().tools);
    assert.ok(desk.transport.sessionId);
    await desk.client.ping({ timeout: LIMIT });
  });
  if (!desk) return;

  await check("every tool is listed with its arguments", async () => {
    const { tools } = await desk.client.listTools(undefined, { timeout: LIMIT });
    for (const [name, wanted] of Object.entries(ARGUMENTS)) {
      const tool = tools.find((one) => one.name === name);
      assert.equal(tool?.inputSchema.type, "object", name);
      for (const one of wanted) assert.ok(one in tool.inputSchema.properties, `${name} ${one}`);
    }
  });

  await check("agents are listed with their status", async () => {
    assert.deepEqual((await desk.call("agents_list")).agents.map((one) => [one.agent_id, one.agent_name]), [["ann", "Ann"]]);
    assert.equal((await desk.call("agent_status", { agent_id: "ann" })).status, "asleep");
    assert.equal((await desk.call("agent_status", { agent_id: "nobody" })).status, "unknown");
  });

  await check("a message is in the inbox with its metadata", async () => {
    const receipt = await desk.call("agent_deliver", { agent_id: "ann", kind: "augment", content: "good\nmorning", event_type: "greeting" });
    assert.equal(receipt.delivery_skipped, true);
    await desk.call("agent_deliver", { agent_id: "ann", kind: "template", prompt: "do this", correlation_id: "c-1" });
    const [message, plan] = await inbox("ann");
    assert.deepEqual([message.type, message.text, message.meta.event_type, message.delivery_id], ["augment", "good\nmorning", "greeting", receipt.delivery_id]);
    assert.deepEqual(message.meta.origin, { trigger_kind: "agent", caller_agent_id: "bob" });
    assert.deepEqual([plan.type, plan.text, plan.meta.correlation_id], ["template", "do this", "c-1"]);
    assert.notEqual(message.meta.dispatch_id, plan.meta.dispatch_id);
  });

  await check("a wake reports its result, immediate and scheduled", async () => {
    const now = await desk.call("agent_wake", { agent_id: "ann", context: "up", when: "immediate" });
    assert.equal(now.woken, false);
    assert.equal((await inbox("ann")).at(-1).type, "wake_degraded");
    assert.deepEqual((await desk.call("cron_list")).armed, []);
    const at = Date.now() + 3_600_000;
    const later = await desk.call("agent_wake", { agent_id: "ann", when: at });
    assert.deepEqual([later.woken, later.scheduled_for], [false, at]);
    const { armed } = await desk.call("cron_list");
    assert.deepEqual(armed.map((one) => [one.agent_id, Date.parse(one.fire_at)]), [["ann", at]]);
  });

  await check("an agent can register, receive, be asked and reply with tools alone", async () => {
    const carol = await connect(`${base}/mcp`, { authorization: `Bearer ${tokens.carol}` });
    assert.equal((await carol.call("agent_register", { agent_id: "carol", agent_name: "Carol" })).agent_id, "carol");
    const asked = desk.call("agent_exchange", { agent_id: "carol", content: "tea?", timeout_ms: LIMIT });
    let question;
    while (!question) question = (await carol.call("agent_inbox", { agent_id: "carol" })).messages.at(-1);
    assert.deepEqual([question.text, question.meta.origin.caller_agent_id], ["tea?", "bob"]);
    const { correlation_id } = question.meta;
    assert.deepEqual(await carol.call("agent_reply", { agent_id: "carol", correlation_id, content: "yes" }), { ok: true });
    const reply = await asked;
    assert.deepEqual([reply.content, reply.agent_id, reply.correlation_id], ["yes", "carol", correlation_id]);
    const rest = await carol.call("agent_inbox", { agent_id: "carol", after: question.seq });
    assert.deepEqual(rest, { messages: [], newest: question.seq });
    // Its token is bound: it can act for no other agent.
    assert.equal((await carol.fault("agent_inbox", { agent_id: "ann" })).class, "ForbiddenError");
    assert.equal((await carol.fault("agent_reply", { agent_id: "ann", correlation_id: "c", content: "x" })).class, "ForbiddenError");
    await carol.client.close();
    await ask(`${base}/v1/agents/carol`, tokens.operator, "DELETE");
  });

  await check("skills are stored as drafts, and are not overwritten by accident", async () => {
    const made = await desk.call("skill_write", { name: "hello", source: "# Skill: hello\n# Status: Approved\nemit 1\n" });
    assert.equal(made.status, "Draft");
    const read = await desk.call("skill_read", { name: "hello" });
    assert.deepEqual([read.source, read.metadata.author], ["# Skill: hello\n# Status: Draft\nemit 1\n", "bob"]);
    assert.equal((await desk.fault("skill_write", { name: "hello", source: "x" })).class, "StorageConflictError");
    await desk.call("skill_write", { name: "hello", source: "# Skill: hello\nmore\n", overwrite: true });
    assert.equal((await desk.call("skill_read", { name: "hello", version: read.version })).source, read.source);
    const listed = await desk.call("skill_list", { status: "Draft", author: "bob" });
    assert.deepEqual(listed.skills.map((one) => one.name), ["hello"]);
    const again = await desk.call("skill_list", { if_none_match: listed.catalog_version });
    assert.deepEqual(again, { not_modified: true, catalog_version: listed.catalog_version });
  });

  await check("data is written, read, found and filtered", async () => {
    const { id } = await desk.call("data_write", { content: "The café opens at nine", tags: ["place"] });
    assert.equal((await desk.call("data_get", { id })).summary, "The café opens at nine");
    assert.equal(await desk.call("data_get", { id: "none" }), null);
    const found = async (args) => (await desk.call("data_read", args)).items.map((one) => one.id);
    assert.deepEqual(await found({ query: "cafe NINE", mode: "fts", limit: 3 }), [id]);
    assert.deepEqual(await found({ query: "cafe", domain_tags: ["place"] }), [id]);
    assert.deepEqual(await found({ query: "cafe", domain_tags: ["money"] }), []);
  });

  await check("a failure rejects with its class and fields", async () => {
    assert.equal((await desk.fault("agent_deliver", { agent_id: "nobody", content: "x" })).class, "UnknownAgentError");
    assert.equal((await desk.fault("agent_wake", { agent_id: "ann", when: "tomorrow" })).class, "ValidationError");
    assert.equal((await desk.fault("skill_read", { name: "none" })).skill_name, "none");
    const filter = await desk.fault("data_read", { query: "x", shoe_size: 5 });
    assert.deepEqual([filter.class, filter.unsupportedKeys], ["UnsupportedFilterError", ["shoe_size"]]);
    assert.equal((await desk.fault("no_such_tool")).class, "NotFoundError");
    assert.match((await desk.fault("agent_wake", { agent_id: "ann", message: "x" })).message, /no argument "message"/);
    assert.match((await desk.fault("skill_list", { status: "Gone" })).message, /Draft.*Approved.*Disabled/);
    assert.deepEqual((await desk.call("skill_list", { status: [] })).skills, []);
  });

  await check("concurrent calls get their own results", async () => {
    const ids = Array.from({ length: 20 }, (_, number) => `agent-${number}`);
    const statuses = await Promise.all(ids.map((agent_id) => desk.call("agent_status", { agent_id })));
    assert.deepEqual(statuses.map((one) => one.agent_id), ids);
  });

  await check("a capability URL needs no header", async () => {
    const bare = await connect(`${base}/k/${tokens.agents}/mcp`);
    assert.equal((await bare.call("agents_list")).agents.length, 1);
    await bare.transport.terminateSession();
    await bare.client.close();
  });

  await check("without a valid token it does not connect", async () => {
    for (const headers of [{}, { authorization: "Bearer wrong" }, { authorization: `Bearer ${tokens.chat}` }]) {
      const refused = await error(connect(`${base}/mcp`, headers));
      assert.match(`${refused.code} ${refused.name} ${refused.message}`, /401|Unauthorized/);
    }
  });

  await check("a session belongs to its token, and is gone after it was ended", async () => {
    const other = await connect(`${base}/mcp`, { authorization: `Bearer ${tokens.operator}` });
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "agent_deliver", arguments: { agent_id: "ann", content: "psst" } } });
    const headers = { ...bearer, "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-session-id": other.transport.sessionId };
    const before = (await inbox("ann")).length;
    const borrowed = await fetch(`${base}/mcp`, { method: "POST", headers, body, signal: AbortSignal.timeout(LIMIT) });
    assert.equal(borrowed.status, 404);
    await borrowed.text();
    await other.call("agents_list");
    const ended = other.transport.sessionId;
    await other.transport.terminateSession();
    const late = await fetch(`${base}/mcp`, { method: "POST", headers: { ...headers, authorization: `Bearer ${tokens.operator}`, "mcp-session-id": ended }, body, signal: AbortSignal.timeout(LIMIT) });
    assert.equal(late.status, 404);
    await late.text();
    assert.equal((await inbox("ann")).length, before);
    await other.client.close();
  });

  await check("there were no errors besides the calls", async () => {
    assert.deepEqual(desk.broken, []);
    await desk.client.close();
  });
}

async function main() {
  const binary = process.env.FRONTDESK_BIN;
  if (!binary) throw new Error("FRONTDESK_BIN is not set");
  const folder = await mkdtemp(path.join(tmpdir(), "frontdesk-mcp-"));
  const desk = startDesk(path.resolve(binary), path.join(folder, "data"));
  try {
    const base = await desk.ready;
    const admin = (await readFile(path.join(folder, "data/admin.token"), "utf8")).trim();
    await ask(`${base}/admin/v1/tenants`, admin, "POST", { name: "tools" });
    const tokens = {};
    for (const scope of ["agents", "operator", "chat"]) tokens[scope] = (await ask(`${base}/admin/v1/tokens`, admin, "POST", { tenant: "tools", scope })).token;
    tokens.carol = (await ask(`${base}/admin/v1/tokens`, admin, "POST", { tenant: "tools", scope: "agents", instance: "carol" })).token;
    await ask(`${base}/v1/agents/ann`, tokens.agents, "PUT", { agent_name: "Ann" });
    await drive(base, tokens);
    await checkEnd(desk);
  } finally {
    if (desk.child.exitCode === null) desk.child.kill("SIGKILL");
    await rm(folder, { recursive: true, force: true });
  }
}

await run(main);
