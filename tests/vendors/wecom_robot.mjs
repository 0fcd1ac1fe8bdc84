// The fake of WeCom's robot socket, driven by the vendor's own client, @wecom/aibot-node-sdk.
//
//   FRONTDESK_FAKE_WECOM_BIN=path FRONTDESK_NODE_MODULES=path node tests/vendors/wecom_robot.mjs
//
// One line per check; the last line is the tally.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(path.join(path.resolve(process.env.FRONTDESK_NODE_MODULES), "here.js"));
const { WSClient } = require("@wecom/aibot-node-sdk");

const LIMIT_MS = 20_000;
const quiet = { debug() {}, info() {}, warn() {}, error() {} };

const fake = spawn(process.env.FRONTDESK_FAKE_WECOM_BIN, { stdio: ["pipe", "pipe", "inherit"] });
const [line] = await once(createInterface({ input: fake.stdout }), "line");
const told = JSON.parse(line);

async function control(name, body = {}) {
  const reply = await fetch(`${told.base_url}/control/${name}`, { method: "POST", body: JSON.stringify(body) });
  const answer = await reply.json();
  assert.ok(answer.ok, JSON.stringify(answer));
  return answer.result;
}

function client(more = {}) {
  return new WSClient({ botId: told.bot_id, secret: told.bot_secret, wsUrl: told.socket_url, logger: quiet, reconnectInterval: 50,
    heartbeatInterval: 200, ...more });
}

function heard(emitter, name) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${name} in time`)), LIMIT_MS);
    emitter.once(name, (value) => { clearTimeout(timer); resolve(value); });
  });
}

async function opened(more) {
  const robot = client(more);
  robot.on("error", () => {});
  const ready = heard(robot, "authenticated");
  robot.connect();
  await ready;
  return robot;
}

const say = (content, group) => control("robot_say", { from: "ann", group, content });
const text = (content) => ({ msgtype: "text", text: { content } });
const last = async () => (await control("robot_sent")).at(-1);

const checks = {
  async a_wrong_secret_is_refused() {
    const robot = client({ secret: "other", maxAuthFailureAttempts: 0 });
    const failed = new Promise((resolve) => robot.on("error", (error) => /Authentication failed/.test(error.message) && resolve(error)));
    robot.connect();
    assert.match((await failed).message, /40001/);
    robot.disconnect();
  },

  async messages_come_and_are_answered() {
    const robot = await opened();
    let coming = heard(robot, "message.text");
    const { id } = await say(text("hello"), "group-1");
    let frame = await coming;
    assert.deepEqual([frame.body.msgid, frame.body.text.content, frame.body.chatid, frame.body.chattype, frame.body.from.userid],
      [id, "hello", "group-1", "group", "ann"]);
    await robot.reply(frame, { msgtype: "markdown", markdown: { content: "**hi**" } });
    assert.deepEqual([(await last()).to, (await last()).message.markdown.content], ["group-1", "**hi**"]);
    await robot.replyStream(frame, "s1", "a", false);
    await robot.replyStream(frame, "s1", "a b", true);
    assert.deepEqual((await last()).message.stream, { id: "s1", finish: true, content: "a b" });
    await assert.rejects(robot.replyStream(frame, "s1", "late", true), (ack) => ack.errcode === 846608);
    await assert.rejects(robot.reply({ headers: { req_id: "unknown" } }, { msgtype: "markdown", markdown: { content: "x" } }),
      (ack) => ack.errcode === 846605);
    await assert.rejects(robot.replyStream(frame, "s2", "x".repeat(20_481), true), (ack) => ack.errcode === 45002);
    await robot.sendMessage("ben", { msgtype: "markdown", markdown: { content: "by myself" } });
    assert.equal((await last()).to, "ben");
    coming = heard(robot, "event.enter_chat");
    await control("robot_event", { from: "ann", event: { eventtype: "enter_chat" } });
    assert.equal((await coming).body.event.eventtype, "enter_chat");
    robot.disconnect();
  },

  async files_go_both_ways() {
    const robot = await opened();
    const bytes = Buffer.alloc(1_300_000, "0123456789");
    const { media_id: mediaId, type } = await robot.uploadMedia(bytes, { type: "file", filename: "a.bin" });
    assert.equal(type, "file");
    const coming = heard(robot, "message.image");
    const image = await control("robot_attach", { mime: "image/png", filename: "p.png", content: "a picture" });
    await say({ msgtype: "image", image });
    const frame = await coming;
    await robot.replyMedia(frame, "file", mediaId);
    assert.equal((await last()).message.file.media_id, mediaId);
    const { buffer, filename } = await robot.downloadFile(frame.body.image.url, frame.body.image.aeskey);
    assert.deepEqual([buffer.toString(), filename], ["a picture", "p.png"]);
    await assert.rejects(robot.replyMedia(frame, "file", "absent"), (ack) => ack.errcode === 40007);
    robot.disconnect();
  },

  async a_heartbeat_is_answered_and_a_lost_socket_is_opened_again() {
    const robot = await opened();
    let connects = 0;
    robot.on("authenticated", () => connects++);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    assert.deepEqual([robot.isConnected, connects], [true, 0], "without answers to five pings it would have been given up");
    const again = heard(robot, "authenticated");
    await control("robot_hang_up");
    await again;
    robot.disconnect();
  },

  async a_second_connection_ends_the_first() {
    const first = await opened();
    const ended = heard(first, "event.disconnected_event");
    const second = await opened();
    assert.equal((await ended).body.event.eventtype, "disconnected_event");
    const coming = heard(second, "message.text");
    await say(text("to the second"));
    assert.equal((await coming).body.text.content, "to the second");
    second.disconnect();
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok: ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${name}: ${error.stack ?? JSON.stringify(error)}`);
  }
}
fake.stdin.end();
console.log(`${Object.keys(checks).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
