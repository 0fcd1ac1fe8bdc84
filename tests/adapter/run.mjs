// Compiles the Skillscript adapter (strictly typed), starts the real server and drives the adapter end to end.
// Run: node tests/adapter/run.mjs
//
//   FRONTDESK_BIN             the server's binary (required)
//   FRONTDESK_NODE_MODULES    a folder that contains typescript (else NODE_PATH)
//
// No fixed sleeps: every step waits for its condition, with a time limit.

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { pathToFileURL, fileURLToPath } from "node:url";
import assert from "node:assert/strict";
import { LIMIT, check, checkEnd, run, startDesk } from "../node/desk.mjs";

const ADAPTER = path.join(path.dirname(fileURLToPath(import.meta.url)), "../../adapters/skillscript");

const require = createRequire(import.meta.url);
const modules = process.env.FRONTDESK_NODE_MODULES;
const ts = require(modules ? path.resolve(modules, "typescript") : "typescript");

/** The compiler's complaints about the adapter, by its own tsconfig. */
function complaints() {
  const file = path.join(ADAPTER, "tsconfig.json");
  const config = ts.parseJsonConfigFileContent(ts.readConfigFile(file, ts.sys.readFile).config, ts.sys, ADAPTER);
  const program = ts.createProgram(config.fileNames, { ...config.options, noEmit: true });
  const found = [...config.errors, ...ts.getPreEmitDiagnostics(program)];
  return found.map((one) => ts.flattenDiagnosticMessageText(one.messageText, "\n"));
}

async function compiled(folder) {
  const source = await readFile(path.join(ADAPTER, "frontdesk.ts"), "utf8");
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ES2022 };
  const file = path.join(folder, "frontdesk.mjs");
  await writeFile(file, ts.transpileModule(source, { compilerOptions: options }).outputText);
  return import(pathToFileURL(file).href);
}

/** A question beside the adapter: what an operator or an agent would ask. */
async function ask(url, token, method, body) {
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

let dispatches = 0;
function payload(content, more = {}) {
  dispatches += 1;
  const meta = { dispatch_id: `adapter-${dispatches}`, sent_at: Date.now(), origin: { skill_name: "watcher", trigger_kind: "inline" }, ...more };
  return { kind: "augment", content, meta };
}

/** The agent's own stream: collects messages; `when` resolves with the first match. */
function listen(base, token, agent, session) {
  const stop = new AbortController();
  const seen = [];
  const waiting = new Set();
  let opened;
  const ready = new Promise((resolve) => { opened = resolve; });
  const run = async () => {
    const response = await fetch(`${base}/v1/agents/${encodeURIComponent(agent)}/inbox/stream?session=${session}`, { headers: { authorization: `Bearer ${token}`, accept: "text/event-stream" }, signal: stop.signal });
    assert.equal(response.status, 200);
    let text = "";
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      for (let at = text.indexOf("\n\n"); at >= 0; at = text.indexOf("\n\n")) {
        const lines = text.slice(0, at).split("\n");
        text = text.slice(at + 2);
        const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
        if (field("event") === "ready") opened();
        if (field("event") === "message") {
          seen.push(JSON.parse(field("data")));
          for (const look of waiting) look();
        }
      }
    }
  };
  const ended = run().catch((error) => { if (!stop.signal.aborted) throw error; });
  const when = (fits) => new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no match in ${JSON.stringify(seen)}`)), LIMIT);
    const look = () => {
      const found = seen.find(fits);
      if (!found) return;
      clearTimeout(timer);
      waiting.delete(look);
      resolve(found);
    };
    waiting.add(look);
    look();
  });
  return { ready: Promise.race([ready, ended]), when, close: async () => { stop.abort(); await ended; } };
}

// Stands for the runtime's own classes, whose constructors have other parameters than ours.
class ConnectorError extends Error {}
class SkillNotFoundError extends ConnectorError {
  constructor(skill_name, implementation) {
    super(`never called with ${skill_name} ${implementation}`);
  }
}

async function drive(adapter, base, tokens) {
  const { FrontdeskAgentConnector, FrontdeskSkillStore, FrontdeskDataStore, FrontdeskError } = adapter;
  const errors = { SkillNotFoundError, NotAClass: 7 };
  const desk = { url: `${base}/`, token: tokens.agents, errors };
  const agents = new FrontdeskAgentConnector(desk);
  const skills = new FrontdeskSkillStore(desk);
  const data = new FrontdeskDataStore(desk);
  const inbox = async (agent, after = 0) => (await ask(`${base}/v1/agents/${encodeURIComponent(agent)}/inbox?after=${after}`, tokens.agents, "GET")).messages;

  await check("each class describes itself without a server", async () => {
    for (const [type, one] of Object.entries({ agent_connector: FrontdeskAgentConnector, skill_store: FrontdeskSkillStore, data_store: FrontdeskDataStore })) {
      const said = one.staticCapabilities();
      assert.deepEqual([said.connector_type, said.implementation, said.contract_version], [type, one.name, "1.0.0"]);
      assert.ok(Object.values(said.features).every((flag) => flag === true) && Object.keys(said.features).length > 0);
    }
  });

  await check("it is healthy with a token, and not without one or without a server", async () => {
    assert.equal(await agents.health_check(), true);
    assert.equal(await new FrontdeskAgentConnector({ ...desk, token: "wrong" }).health_check(), false);
    assert.equal(await new FrontdeskAgentConnector({ ...desk, url: await nobody() }).health_check(), false);
  });

  await check("a capability URL needs no token", async () => {
    const known = new FrontdeskAgentConnector({ url: `${base}/k/${tokens.agents}` });
    assert.deepEqual(await known.list_agents(), await agents.list_agents());
  });

  await check("a registered agent is listed, and asleep", async () => {
    await ask(`${base}/v1/agents/ann%20lee`, tokens.agents, "PUT", { agent_name: "Ann" });
    const listed = (await agents.list_agents()).find((one) => one.agent_id === "ann lee");
    assert.equal(listed?.agent_name, "Ann");
    assert.equal(await agents.agent_status("ann lee"), "asleep");
    assert.equal(await agents.agent_status("nobody"), "unknown");
  });

  await check("a delivery with a receipt is in the inbox; a retry returns the same", async () => {
    const sent = payload("good morning", { event_type: "greeting", x_extra: [1] });
    const receipt = await agents.deliver("ann lee", sent);
    assert.ok(receipt.delivered_at >= sent.meta.sent_at - 60_000);
    const message = (await inbox("ann lee")).find((one) => one.text === "good morning");
    assert.deepEqual([message?.type, message?.meta.event_type, message?.meta.x_extra], ["augment", "greeting", [1]]);
    const again = await agents.deliver("ann lee", sent);
    assert.equal(again.delivered_at, receipt.delivered_at);
    assert.ok(again.warnings?.length > 0);
    assert.equal((await inbox("ann lee")).filter((one) => one.text === "good morning").length, 1);
    await agents.deliver("ann lee", { kind: "template", prompt: "", meta: payload("").meta });
    assert.equal((await inbox("ann lee")).at(-1).type, "template");
  });

  await check("a wake of an absent agent is stored, and reported as not woken", async () => {
    const receipt = await agents.wake("ann lee", { context: "look here" });
    assert.equal(receipt.woken, false);
    assert.ok(receipt.warnings?.length > 0);
    assert.ok((await inbox("ann lee")).some((one) => one.text === "look here"));
    const later = await agents.wake("ann lee", { when: Date.now() + 3_600_000 });
    assert.ok(later.woken === false && later.scheduled_for > Date.now());
  });

  await check("a wake of a live session wakes it, and an exchange is answered", async () => {
    const stream = listen(base, tokens.agents, "ann lee", "desk-1");
    try {
      await stream.ready;
      const receipt = await agents.wake("ann lee@desk-1", { context: "now" });
      assert.deepEqual([receipt.woken, receipt.session_id], [true, "desk-1"]);
      await stream.when((one) => one.type === "wake" && one.text === "now");
      const asked = agents.request_response("ann lee", payload("what is it?", { correlation_id: "c-1" }), { timeout_ms: LIMIT });
      await stream.when((one) => one.meta?.correlation_id === "c-1");
      const said = { correlation_id: "c-1", content: "a bell" };
      await ask(`${base}/v1/agents/ann%20lee/replies`, tokens.agents, "POST", said);
      const reply = await asked;
      assert.deepEqual([reply.correlation_id, reply.content, reply.agent_id], ["c-1", "a bell", "ann lee"]);
      assert.ok(["active", "idle"].includes(await agents.agent_status("ann lee")));
    } finally {
      await stream.close();
    }
  });

  await check("an exchange without an answer is a TimeoutError with its limit", async () => {
    const late = await error(agents.request_response("ann lee", payload("anybody?", { correlation_id: "c-2" }), { timeout_ms: 50 }));
    assert.deepEqual([late.name, late.timeout_ms, late.connector_type], ["TimeoutError", 50, "agent_connector"]);
    const none = await error(agents.request_response("ann lee", payload("no id"), { timeout_ms: 50 }));
    assert.equal(none.name, "ValidationError");
  });

  await check("an unknown agent and an unreachable server are different errors", async () => {
    const unknown = await error(agents.deliver("nobody", payload("lost")));
    assert.deepEqual([unknown.name, unknown.http_status], ["UnknownAgentError", 404]);
    assert.equal((await error(agents.wake("nobody"))).name, "UnknownAgentError");
    assert.equal((await error(agents.deliver("..", payload("lost")))).name, "ValidationError");
    const away = { ...desk, url: await nobody() };
    const lost = await error(new FrontdeskAgentConnector(away).deliver("ann lee", payload("lost")));
    assert.deepEqual([lost.name, lost.cause_kind], ["DeliveryFailedError", "network"]);
    assert.equal((await error(new FrontdeskSkillStore(away).load("x"))).name, "UnavailableError");
    assert.equal((await error(new FrontdeskSkillStore({ ...desk, token: "wrong" }).load("x"))).name, "UnauthorizedError");
  });

  const body = "# Skill: hello\r\n# Status: Draft\r\n# Tags: Home, door\r\nemit \"hi\"  \r\n";

  await check("a skill is stored unchanged, with its versions", async () => {
    const before = await skills.version();
    const first = await skills.store("hello", body, { author: "ann" });
    assert.match(first.content_hash, /^[0-9a-f]{64}$/);
    assert.equal(first.version, first.content_hash.slice(0, 12));
    const loaded = await skills.load("hello");
    assert.deepEqual([loaded.source, loaded.metadata.status, loaded.metadata.author], [body, "Draft", "ann"]);
    assert.notEqual(await skills.version(), before);
    await skills.store("hello", `${body}more`);
    assert.equal((await skills.load("hello", first.version)).source, body);
    assert.deepEqual((await skills.metadata("hello")).tags, ["home", "door"]);
    assert.equal((await skills.manifest()).manifest !== undefined, true);
  });

  await check("a status changes the body, and versions are oldest first", async () => {
    const changed = await skills.update_status("hello", "Approved");
    assert.deepEqual([changed.status, changed.previous_status], ["Approved", "Draft"]);
    assert.match((await skills.load("hello")).source, /^# Status: Approved/m);
    const versions = await skills.versions("hello");
    assert.deepEqual(versions.map((one) => one.status), ["Draft", "Draft", "Approved"]);
  });

  await check("skills are found by status, author, tag and name", async () => {
    await skills.store("other", "# Skill: other\n");
    const names = async (filter) => (await skills.query(filter)).map((one) => one.name);
    assert.deepEqual(await names(), ["hello", "other"]);
    assert.deepEqual(await names({ status: "Approved" }), ["hello"]);
    assert.deepEqual(await names({ status: ["Draft", "Approved"], limit: 1, offset: 1 }), ["other"]);
    assert.deepEqual(await names({ author: "ann", tag: "door", name_pattern: "^he", unknown_key: 1 }), ["hello"]);
    assert.deepEqual(await names({ tag: ["door", "none"] }), []);
  });

  await check("a refusal of the skill store has its class and fields, and is the runtime's own error", async () => {
    const missing = await error(skills.load("nothing"));
    assert.ok(missing instanceof SkillNotFoundError && missing instanceof ConnectorError);
    assert.deepEqual([missing.name, missing.skill_name, missing.connector_type, missing.implementation], ["SkillNotFoundError", "nothing", "skill_store", "FrontdeskSkillStore"]);
    assert.ok(!missing.message.includes("never called"));
    assert.ok((await error(skills.load(".."))) instanceof SkillNotFoundError);
    const version = await error(skills.load("hello", "000000000000"));
    assert.ok(version instanceof FrontdeskError);
    assert.deepEqual([version.name, version.skill_name, version.version], ["VersionNotFoundError", "hello", "000000000000"]);
    const conflict = await error(skills.store("hello", body, { author: "bob" }));
    assert.deepEqual([conflict.name, conflict.skill_name, typeof conflict.reason], ["StorageConflictError", "hello", "string"]);
    assert.equal((await error(skills.metadata("nothing"))).name, "SkillNotFoundError");
    assert.equal((await error(skills.versions("nothing"))).name, "SkillNotFoundError");
    assert.equal((await error(skills.update_status("nothing", "Draft"))).name, "SkillNotFoundError");
    assert.equal((await error(skills.update_status("hello", "Gone"))).name, "ValidationError");
    for (const name of ["..", "a b"]) assert.equal((await error(skills.store(name, body))).name, "ValidationError");
  });

  await check("only an operator deletes, and then the name is free", async () => {
    assert.equal((await error(skills.delete("hello"))).name, "ForbiddenError");
    const operator = new FrontdeskSkillStore({ ...desk, token: tokens.operator });
    assert.equal(await operator.delete("hello"), undefined);
    assert.equal((await error(skills.load("hello"))).name, "SkillNotFoundError");
    assert.equal((await error(operator.delete("hello"))).name, "SkillNotFoundError");
    await skills.store("hello", "# Skill: hello\n", { author: "bob" });
    assert.equal((await skills.versions("hello")).length, 1);
  });

  await check("data is written, read and found; missing data is null or an empty list", async () => {
    const written = await data.write({ content: "The café opens at nine\nand closes at five", tags: ["place"], expires_at: null });
    assert.ok(written.created_at > 1_600_000_000 && written.created_at < 100_000_000_000, "unix seconds");
    const found = await data.get(written.id);
    assert.deepEqual([found.summary, found.detail], ["The café opens at nine", "The café opens at nine\nand closes at five"]);
    const items = await data.query({ query: "CAFE nine", limit: 5, mode: "fts" });
    assert.deepEqual(items.map((one) => one.id), [written.id]);
    assert.deepEqual(await data.query({ query: "bicycle", limit: 5, mode: "fts" }), []);
    for (const id of ["nothing", "", ".."]) assert.equal(await data.get(id), null);
    assert.ok(Array.isArray((await data.manifest()).manifest.supported_filters));
  });

  await check("a body that cannot be encoded is not a network error", async () => {
    assert.ok((await error(skills.load("\ud800"))) instanceof SkillNotFoundError);
    assert.equal((await error(skills.store("\ud800", body))).name, "ValidationError");
    assert.equal((await error(agents.deliver("\ud800", payload("lost")))).name, "ValidationError");
    assert.equal(await data.get("\ud800"), null);
    assert.equal((await error(data.write({ content: "x", metadata: { size: 1n } }))).name, "ValidationError");
    const stay = await error(agents.request_response("nobody", payload("?", { correlation_id: "c-3" }), { timeout_ms: Number.MAX_SAFE_INTEGER }));
    assert.equal(stay.name, "UnknownAgentError", "a long time is no short one");
  });

  await check("a response of another server is an error, not a skill or data", async () => {
    const skill = (desk) => error(new FrontdeskSkillStore(desk).load("hello"));
    const empty = await answered(200, "", skill);
    assert.deepEqual([empty.name, empty.cause_kind], ["InternalError", "malformed_response"]);
    const elsewhere = await answered(404, JSON.stringify({ error: "not here" }), skill);
    assert.deepEqual([elsewhere.name, elsewhere.http_status, elsewhere[0]], ["InternalError", 404, undefined]);
    const none = await answered(404, "<html>", (desk) => error(new FrontdeskDataStore(desk).get("x")));
    assert.deepEqual([none.name, none.http_status], ["InternalError", 404]);
  });

  await check("a response without its list is an error, not an empty list", async () => {
    for (const ask of [
      (desk) => new FrontdeskAgentConnector(desk).list_agents(),
      (desk) => new FrontdeskAgentConnector(desk).agent_status("x"),
      (desk) => new FrontdeskSkillStore(desk).query(),
      (desk) => new FrontdeskSkillStore(desk).versions("x"),
      (desk) => new FrontdeskSkillStore(desk).version(),
      (desk) => new FrontdeskDataStore(desk).query({ query: "x", limit: 1, mode: "fts" }),
    ]) {
      const empty = await answered(200, "{}", (desk) => error(ask(desk)));
      assert.deepEqual([empty.name, empty.cause_kind], ["InternalError", "malformed_response"], String(ask));
    }
  });

  await check("a rate limited call is retried a limited number of times", async () => {
    const refusal = JSON.stringify({ error: { class: "RateLimitedError", message: "slow down" } });
    let asked = 0;
    const twice = (_, response) => {
      asked += 1;
      if (asked <= 2) response.writeHead(429, { "retry-after": "0" }).end(refusal);
      else response.writeHead(200).end(JSON.stringify({ agents: [{ agent_id: "ann" }] }));
    };
    assert.deepEqual(await served(twice, (desk) => new FrontdeskAgentConnector(desk).list_agents()), [{ agent_id: "ann" }]);
    assert.equal(asked, 3);
    asked = 0;
    const always = (_, response) => { asked += 1; response.writeHead(429, { "retry-after": "0" }).end(refusal); };
    const late = await served(always, (desk) => error(new FrontdeskSkillStore({ ...desk, retries: 3 }).query()));
    assert.deepEqual([late.name, late.http_status, asked], ["RateLimitedError", 429, 4]);
    asked = 0;
    const since = Date.now();
    const once = (_, response) => {
      asked += 1;
      if (asked === 1) response.writeHead(429, { "retry-after": "1" }).end(refusal);
      else response.writeHead(200).end(JSON.stringify({ version: "v" }));
    };
    assert.equal(await served(once, (desk) => new FrontdeskSkillStore(desk).version()), "v");
    assert.ok(Date.now() - since >= 1_000, "it waits for the time of Retry-After");
  });

  await check("at most 64 calls at a time are sent to a server, and those that wait for an agent do not count", async () => {
    let [done, most] = [0, 0];
    const [held, waiting] = [[], []];
    const release = () => {
      most = Math.max(most, held.length);
      done += held.length;
      for (const response of held.splice(0)) response.writeHead(200).end(JSON.stringify({ version: "v" }));
    };
    const counted = (request, response) => {
      if (request.url.endsWith("/exchange")) return void waiting.push(response);
      held.push(response);
      if (held.length === Math.min(64, 300 - done)) setTimeout(release, 100); // more would come meanwhile
    };
    await served(counted, async (desk) => {
      const asked = Array.from({ length: 70 }, (_, number) => new FrontdeskAgentConnector(desk).request_response("ann", payload("?", { correlation_id: `${number}` }), { timeout_ms: LIMIT }));
      const versions = await Promise.all(Array.from({ length: 300 }, () => new FrontdeskSkillStore(desk).version()));
      assert.deepEqual([versions.length, most], [300, 64]);
      while (waiting.length < 70) await new Promise((resolve) => setTimeout(resolve, 5));
      for (const response of waiting) response.writeHead(200).end(JSON.stringify({ correlation_id: "c", content: "x", sent_at: 1, agent_id: "ann" }));
      assert.equal((await Promise.all(asked)).length, 70);
    });
  });

  await check("the health check names agents that are not registered", async () => {
    const told = [];
    const warn = (text) => told.push(text);
    assert.equal(await new FrontdeskAgentConnector({ ...desk, warn, agents: ["ann lee"] }).health_check(), true);
    assert.deepEqual(told, []);
    assert.equal(await new FrontdeskAgentConnector({ ...desk, warn, agents: ["ann lee", "ghost"] }).health_check(), true);
    assert.match(told.pop(), /not registered at the server: ghost;.*dispatched: \[\]/);
    assert.equal(await new FrontdeskAgentConnector({ ...desk, warn, token: tokens.empty }).health_check(), true);
    assert.match(told.pop(), /no agent is registered/);
    assert.equal(await new FrontdeskAgentConnector({ ...desk, warn, token: "wrong" }).health_check(), false);
    assert.match(told.pop(), /UnauthorizedError/);
  });

  await check("the default rate limit is enough for a runtime that starts 20 agents with 111 skills and 1,500 triggers", async () => {
    const names = Array.from({ length: 111 }, (_, number) => `start-${String(number).padStart(3, "0")}`);
    await Promise.all(names.map((name) => skills.store(name, `# Skill: ${name}\n`)));
    const ids = Array.from({ length: 20 }, (_, number) => `start-${number}`);
    for (const id of ids) await ask(`${base}/v1/agents/${id}`, tokens.agents, "PUT", {});
    const hasty = { ...desk, retries: 0, timeout_ms: 3 * LIMIT }; // one 429 fails the check
    const begun = async () => {
      const store = new FrontdeskSkillStore(hasty);
      const listed = [];
      let page;
      do {
        page = await store.query({ name_pattern: "^start-", limit: 25, offset: listed.length });
        listed.push(...page.map((one) => one.name));
      } while (page.length > 0);
      assert.deepEqual(listed, names);
      const known = await Promise.all(listed.map((name) => store.metadata(name)));
      assert.deepEqual(known.map((one) => one.name), names);
    };
    const at = Date.now() + 3_600_000;
    const triggers = new FrontdeskAgentConnector(hasty);
    const armed = Array.from({ length: 1_500 }, (_, number) => triggers.wake(ids[number % ids.length], { when: at, context: `${number}` }));
    const [receipts] = await Promise.all([Promise.all(armed), ...ids.map(begun)]);
    assert.ok(receipts.length === 1_500 && receipts.every((receipt) => receipt.scheduled_for === at));
  });

  await check("a refusal of the data store has its class and fields", async () => {
    const filter = await error(data.query({ query: "x", limit: 1, mode: "fts", no_such_filter: "y" }));
    assert.equal(filter.name, "UnsupportedFilterError");
    assert.deepEqual(filter.unsupportedKeys, ["no_such_filter"]);
    assert.ok(Array.isArray(filter.supportedKeys));
    assert.deepEqual(await data.query({ query: "x", limit: 1, mode: "fts", no_such_filter: "y", permissive_filters: true }), []);
    const mode = await error(data.query({ query: "x", limit: 1, mode: "telepathy" }));
    assert.deepEqual([mode.name, mode.mode], ["QueryError", "telepathy"]);
    assert.equal((await error(new FrontdeskDataStore({ ...desk, token: "wrong" }).get("nothing"))).name, "UnauthorizedError");
  });
}

/** What comes of a question when something in the desk's place gives this answer. */
async function answered(status, body, ask) {
  return served((_, response) => response.writeHead(status).end(body), ask);
}

async function served(answer, ask) {
  const server = createHttpServer(answer);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await ask({ url: `http://127.0.0.1:${server.address().port}` });
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

/** An address at which nobody listens. */
async function nobody() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

async function main() {
  const binary = process.env.FRONTDESK_BIN;
  if (!binary) throw new Error("FRONTDESK_BIN is not set");
  await check("the adapter is strictly typed", async () => assert.deepEqual(complaints(), []));
  const folder = await mkdtemp(path.join(tmpdir(), "frontdesk-adapter-"));
  const desk = startDesk(path.resolve(binary), path.join(folder, "data"));
  try {
    const adapter = await compiled(folder);
    const base = await desk.ready;
    const admin = (await readFile(path.join(folder, "data/admin.token"), "utf8")).trim();
    await ask(`${base}/admin/v1/tenants`, admin, "POST", { name: "adapter" });
    const token = async (scope) => (await ask(`${base}/admin/v1/tokens`, admin, "POST", { tenant: "adapter", scope })).token;
    await ask(`${base}/admin/v1/tenants`, admin, "POST", { name: "empty" });
    const empty = (await ask(`${base}/admin/v1/tokens`, admin, "POST", { tenant: "empty", scope: "agents" })).token;
    await drive(adapter, base, { agents: await token("agents"), operator: await token("operator"), empty });
    await checkEnd(desk);
  } finally {
    if (desk.child.exitCode === null) desk.child.kill("SIGKILL");
    await rm(folder, { recursive: true, force: true });
  }
}

await run(main);
