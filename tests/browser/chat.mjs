// Drives the built-in chat page in a real browser against `frontdesk demo`, as a person would:
// opens the one-time link, writes, watches the answer stream in, presses a button, lets the agent
// go idle and wakes it. Run: node tests/browser/chat.mjs
//
//   FRONTDESK_BIN             the server's binary (required)
//   FRONTDESK_NODE_MODULES    a folder that contains playwright-core (else NODE_PATH)
//   FRONTDESK_CHROMIUM        the browser, default /usr/bin/chromium
//   FRONTDESK_SCREENSHOT      file for a screenshot of the page (optional)
//
// No fixed sleeps: every step waits for its condition, with a time limit.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import assert from "node:assert/strict";
import { LIMIT, check, run, start } from "../node/desk.mjs";

const SLEEP_LIMIT = 60_000;
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

const require = createRequire(import.meta.url);
const modules = process.env.FRONTDESK_NODE_MODULES;
const { chromium } = require(modules ? path.resolve(modules, "playwright-core") : "playwright-core");

/** Starts the demo; resolves with its address and its one-time link once both were printed. */
function startDemo(binary, dataDir) {
  return start(binary, ["demo", "--port", "0", "--data-dir", dataDir], ({ stdout, stderr }) => {
    const base = stdout.match(/^frontdesk ready (http:\/\/\S+)$/m)?.[1];
    const link = stderr.match(/http:\/\/[^\s"'<>]+\/chat\?code=[^\s"'<>]+/)?.[0];
    return base && link && { base, link };
  });
}

/** Keeps, inside the page, every text that an answer showed and every state that the agent had. */
function record() {
  window.recorded = { texts: {}, agent: [] };
  const note = () => {
    for (const node of document.querySelectorAll("#messages [data-direction='out']")) {
      const text = node.querySelector(".message-text")?.textContent ?? "";
      const list = (window.recorded.texts[node.dataset.messageId] ??= []);
      if (text && list.at(-1) !== text) list.push(text);
    }
    const agent = document.getElementById("agent-state").dataset.state;
    if (window.recorded.agent.at(-1) !== agent) window.recorded.agent.push(agent);
  };
  note();
  new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ["data-state"] });
}

async function drive(page, { base, link }, dataDir) {
  const origin = new URL(base).origin;
  const problems = [];
  const foreign = [];
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.context().on("request", (request) => new URL(request.url()).origin === origin || foreign.push(request.url()));

  const answer = (text) => page.locator("#messages [data-direction='out'] .message-text").getByText(text, { exact: true });
  const own = (text) => page.locator("#messages [data-direction='in']").filter({ has: page.locator(".message-text").getByText(text, { exact: true }) });
  const say = async (text) => {
    await page.locator("#composer-input").fill(text);
    await page.locator("#composer-input").press("Enter");
  };
  /** The timeline steps of one of our messages, as soon as it has all of `steps`. */
  const trail = async (text, steps) => {
    const id = await own(text).getAttribute("data-message-id");
    for (const step of steps) await page.locator(`#timeline [data-trail-of="${id}"] li[data-step="${step}"]`).first().waitFor({ state: "attached" });
    return page.locator(`#timeline [data-trail-of="${id}"] li`).evaluateAll((nodes) => nodes.map((node) => node.dataset.step));
  };
  const inOrder = (all, wanted) => assert.deepEqual(all.filter((step) => wanted.includes(step)), wanted);

  await check("the one-time link opens the chat, connected, without the code in the address", async () => {
    await page.goto(link);
    await page.locator("#composer-input").waitFor();
    await page.locator('#connection[data-state="live"]').waitFor();
    assert.equal(new URL(page.url()).searchParams.get("code"), null);
    await page.evaluate(record);
  });

  await check("a message is answered, and the answer is streamed", async () => {
    const text = "good morning from the browser, how are you today";
    await say(text);
    await own(text).waitFor();
    await answer(`echo: ${text}`).waitFor();
    assert.equal(await page.locator("#composer-input").inputValue(), "");
    const stages = await page.evaluate((final) => Object.values(window.recorded.texts).find((list) => list.at(-1) === final), `echo: ${text}`);
    assert.ok(stages.length >= 2, `the answer was not streamed: ${JSON.stringify(stages)}`);
  });

  await check("the timeline shows accepted, sent, acked", async () => {
    const steps = await trail("good morning from the browser, how are you today", ["accepted", "sent", "acked"]);
    inOrder(steps, ["accepted", "sent", "acked"]);
  });

  await check("text is shown as text, never as markup", async () => {
    const text = "<img src=x onerror=alert(1)> & <b>bold</b>";
    await say(text);
    await answer(`echo: ${text}`).waitFor();
    assert.equal(await page.locator("#messages img, #messages b").count(), 0);
  });

  await check("a prompt has buttons; a press is answered and stays marked", async () => {
    await say("/buttons");
    const prompt = page.locator("#messages [data-direction='out']").filter({ has: page.locator("[data-option-id]") }).last();
    await prompt.locator('[data-option-id="no"]').waitFor();
    await prompt.locator('[data-option-id="yes"]').focus();
    await page.keyboard.press("Enter");
    await answer("you pressed yes").waitFor();
    await prompt.locator('[data-option-id="yes"][data-chosen]').waitFor();
  });

  await check("the agent goes idle and the page shows it", async () => {
    await page.locator('#agent-state[data-state="asleep"]').waitFor({ timeout: SLEEP_LIMIT });
  });

  await check("the next message wakes it and is answered", async () => {
    await page.evaluate(() => { window.recorded.agent.length = 0; });
    await say("wake up please");
    await answer("echo: wake up please").waitFor({ timeout: SLEEP_LIMIT });
    const steps = await trail("wake up please", ["accepted", "waking", "sent", "acked"]);
    inOrder(steps, ["accepted", "waking", "sent", "acked"]);
    const states = await page.evaluate(() => window.recorded.agent);
    assert.ok(states.includes("waking"), `the states seen were ${states}`);
    assert.ok(states.includes("awake"), `the states seen were ${states}`);
  });

  await check("every control has a name, and the landmarks exist", async () => {
    const nameless = await page.locator("button:visible, input:visible, textarea:visible").evaluateAll((nodes) =>
      nodes.filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length)).map((node) => node.outerHTML));
    assert.deepEqual(nameless, []);
    for (const role of ["navigation", "main", "complementary", "log"]) assert.equal(await page.getByRole(role).count(), 1, role);
  });

  if (process.env.FRONTDESK_SCREENSHOT) await page.screenshot({ path: process.env.FRONTDESK_SCREENSHOT });

  await check("a reload shows the same conversation", async () => {
    const ids = () => page.locator("#messages [data-message-id]").evaluateAll((nodes) => nodes.map((node) => node.dataset.messageId));
    const before = await ids();
    await page.reload();
    await answer("echo: wake up please").waitFor();
    await page.locator('#connection[data-state="live"]').waitFor();
    assert.deepEqual(await ids(), before);
  });

  await check("a new chat is created by name and is a separate conversation", async () => {
    await page.locator("#new-chat").click();
    await page.locator("#new-chat-name").fill("Second floor");
    await page.keyboard.press("Enter");
    await page.locator('#chat-list [data-chat-id="second-floor"][aria-current="page"]').waitFor();
    await page.locator('#connection[data-state="live"]').waitFor();
    assert.equal(await page.locator("#messages [data-message-id]").count(), 0);
    await say("hello upstairs");
    await answer("echo: hello upstairs").waitFor({ timeout: SLEEP_LIMIT });
  });

  await check("messages between agents are shown live, with the receipts of every connector", async () => {
    const post = async (route, token, body, method = "POST") => {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const answer = await fetch(base + route, { method, headers, body: JSON.stringify(body), signal: AbortSignal.timeout(LIMIT) });
      assert.ok(answer.ok, `${route}: ${answer.status}`);
      return answer.json();
    };
    const admin = (await readFile(path.join(dataDir, "admin.token"), "utf8")).trim();
    const { token } = await post("/admin/v1/tokens", admin, { tenant: "home", scope: "agents" });
    await post("/v1/agents/alice", token, { agent_name: "Alice", connectors: [{ type: "noop" }] }, "PUT");
    await post("/v1/notify", token, { agent: "alice", message: "<b>the report</b> is there", origin: { skill_name: "reporter" } });
    const item = page.locator("#agent-messages-list > li").filter({ hasText: "reporter → alice" });
    await item.getByText("<b>the report</b> is there").waitFor();
    assert.deepEqual(await item.locator("li").evaluateAll((nodes) => nodes.map((node) => node.dataset.connector)), ["inbox", "noop"]);
    await item.getByText("stored; nobody listens to the inbox now").waitFor();
    assert.equal(await item.locator("b").count(), 0);
  });

  await check("no console errors, and no requests to other sites", async () => {
    assert.deepEqual(problems, []);
    assert.deepEqual(foreign, []);
  });

  // From here on the network is interrupted on purpose, so console errors are expected.
  await check("a message that could not be sent is kept, and Retry sends it once", async () => {
    const posts = (url) => url.pathname.endsWith("/messages");
    await page.route(posts, (route) => (route.request().method() === "POST" ? route.abort() : route.continue()));
    await say("do not lose me");
    await own("do not lose me").locator('[data-action="retry"]').waitFor();
    await page.reload();
    await own("do not lose me").locator('[data-action="retry"]').waitFor();
    await page.unroute(posts);
    await own("do not lose me").locator('[data-action="retry"]').click();
    await answer("echo: do not lose me").waitFor({ timeout: SLEEP_LIMIT });
    assert.equal(await own("do not lose me").count(), 1);
    assert.equal(await page.locator('[data-action="retry"]').count(), 0);
  });
}

async function main() {
  const binary = process.env.FRONTDESK_BIN;
  if (!binary) throw new Error("FRONTDESK_BIN is not set");
  const dataDir = await mkdtemp(path.join(tmpdir(), "frontdesk-browser-"));
  const demo = startDemo(path.resolve(binary), dataDir);
  let browser;
  try {
    const address = await demo.ready;
    browser = await chromium.launch({ executablePath: process.env.FRONTDESK_CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
    const page = await browser.newPage({ viewport: { width: 1360, height: 860 } });
    page.setDefaultTimeout(LIMIT);
    await drive(page, address, dataDir);

    await check("the page shows a lost connection, and the demo stops cleanly", async () => {
      demo.child.kill("SIGTERM");
      await page.locator('#connection[data-state="reconnecting"]').waitFor();
      const late = new Promise((_, reject) => setTimeout(() => reject(new Error("still running after 12 s")), 12_000).unref());
      const { code } = await Promise.race([demo.exited, late]);
      assert.equal(code, 0);
      assert.equal(demo.output.stdout.trim().split("\n").length, 1, "stdout has exactly one line");
    });
  } finally {
    await browser?.close();
    if (demo.child.exitCode === null) demo.child.kill("SIGKILL");
    await rm(dataDir, { recursive: true, force: true });
  }
}

await run(main);
