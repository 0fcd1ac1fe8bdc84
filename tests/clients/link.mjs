// The TypeScript client against a scripted server: frames, acks, reconnects, alarms and messages of the inbox at moments that a real server
// rarely shows.
//
//   FRONTDESK_CLIENT=folder-with-the-package node tests/clients/link.mjs [pattern]
//
// One line per check; the last line is the tally.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";

import { SECRET, Scene, until } from "./scripted.mjs";

const checks = {
  async "the token is offered as a protocol, and names the gateway"(scene) {
    const peer = await scene.start(() => undefined);
    const [protocol, bearer] = peer.protocols;
    assert.equal(protocol, "frontdesk.relay");
    const token = Buffer.from(bearer.replace(/^bearer\./, ""), "base64url").toString();
    const [, signed, tag] = /^(g:1:\d+):([0-9a-f]{64})$/.exec(token);
    assert.equal(tag, createHmac("sha256", SECRET).update(signed).digest("hex"));
    assert.deepEqual(peer.frames[0], { type: "hello", platform: "relay", botId: "", ready: true });
  },

  async "frames share messages and span them, and hold any character"(scene) {
    const received = [];
    const peer = await scene.start((m) => void received.push(m.text));
    const frame = (bufferId, text) => {
      const event = { text, source: { platform: "relay", chat_id: "c" } };
      return `${JSON.stringify({ type: "inbound", bufferId, event })}\n`;
    };
    const text = frame("1", "one") + frame("2", "line\u2028separator \u0085 and\nnewline") + frame("3", "three");
    peer.raw(text.slice(0, 90));
    peer.raw(text.slice(90, 200));
    peer.raw(`${text.slice(200)}not JSON\n{"type":"unknown"}\n`);
    await until(() => peer.acks.length === 3, "three acks");
    assert.deepEqual(received, ["one", "line\u2028separator \u0085 and\nnewline", "three"]);
  },

  async "a repeated delivery is acked again and not handled again"(scene) {
    let count = 0;
    const peer = await scene.start(() => void count++);
    peer.say("1", "one");
    await until(() => peer.acks.length === 1, "an ack");
    peer.say("1", "one");
    await until(() => peer.acks.length === 2, "a second ack");
    assert.deepEqual([count, peer.acks], [1, ["1", "1"]]);
  },

  async "an ack follows the handler, and waits for no other"(scene) {
    const open = {};
    const peer = await scene.start((m) => new Promise((resolve) => (open[m.text] = resolve)));
    for (const name of ["a", "b", "c"]) peer.say(name, name, { chat_id: name });
    await until(() => open.a && open.b && open.c, "three handlers at once");
    assert.deepEqual(peer.acks, []);
    open.c();
    await until(() => peer.acks.length === 1, "its ack");
    open.a();
    open.b();
    await until(() => peer.acks.length === 3, "the acks");
    assert.deepEqual(peer.acks.sort(), ["a", "b", "c"]);
  },

  async "the server is told what is being handled, so that it is not taken for lost"(scene) {
    let release;
    const peer = await scene.start((m) => (m.text === "slow" ? new Promise((resolve) => (release = resolve)) : undefined));
    peer.say("quick", "quick");
    peer.say("slow", "slow");
    const frame = await until(() => peer.frames.find((frame) => frame.type === "inbound_working"), "a frame");
    assert.deepEqual([frame.bufferIds, peer.acks], [["slow"], ["quick"]]);
    release();
  },

  async "messages of one chat wait for each other, threads are chats of their own"(scene) {
    const order = [];
    const open = {};
    const peer = await scene.start(async (m) => {
      order.push(m.text);
      await new Promise((resolve) => (open[m.text] = resolve));
    });
    peer.say("1", "first");
    peer.say("2", "second");
    peer.say("3", "in a thread", { thread_id: "t" });
    await until(() => order.length === 2, "two handlers");
    assert.deepEqual(order, ["first", "in a thread"]);
    open.first();
    await until(() => open.second, "the second message");
    open.second();
    open["in a thread"]();
    await until(() => peer.acks.length === 3, "the acks");
  },

  async "a result may come on the next connection, and what is being handled is not handled twice"(scene) {
    let count = 0;
    const peer = await scene.start(async (m) => {
      count++;
      await m.reply("answer");
    });
    peer.say("1", "one");
    const action = await until(() => peer.actions[0], "an action");
    assert.deepEqual(action.action, { op: "send", chat_id: "c", content: "answer", reply_to: "m-1" });
    peer.socket.destroy();
    const next = await scene.peer(1);
    next.say("1", "one");
    next.answer(action);
    await until(() => next.acks.length === 1, "the ack");
    assert.equal(count, 1);
  },

  async "an action waits for a connection"(scene) {
    const peer = await scene.start(async (m) => {
      peer.socket.destroy();
      await until(() => peer.closed, "the end of the connection");
      await sleep(20);
      await m.reply("later");
    });
    peer.say("1", "one");
    const next = await scene.peer(1);
    const action = await until(() => next.actions[0], "the action");
    next.answer(action);
    next.say("1", "one");
    await until(() => next.acks.length === 1, "the ack");
  },

  async "a refusal has a code and says whether it may have happened"(scene) {
    const peer = await scene.start(() => undefined);
    for (const result of [
      { success: false, error: "no such chat", code: "not_found" },
      { success: false, error: "timed out", code: "unknown", ambiguous: true },
    ]) {
      const sending = scene.agent.send("c", "text");
      sending.catch(() => undefined);
      const count = peer.actions.length;
      peer.answer(await until(() => peer.actions[count], "the action"), result);
      const { code, error: message, ambiguous = false } = result;
      await assert.rejects(sending, { code, message, ambiguous });
    }
    await assert.rejects(scene.agent.send("c", "x".repeat(1 << 20)), { code: "too_large", ambiguous: false });
  },

  async "a message to the chat of a question is its answer"(scene) {
    const peer = await scene.start(async (m) => void (await scene.agent.send(m.chat, "answer")));
    const sources = [
      [{ chat_id: "agent:bob", thread_id: "d-1" }, { thread_id: "d-1", notify: true }],
      [{ chat_id: "agent:bob" }, undefined],
      [{ chat_id: "c", thread_id: "t" }, { thread_id: "t" }],
      [{ platform: "slack", chat_id: "agent:bob", thread_id: "t" }, { thread_id: "t" }],
    ];
    for (const [number, [source, metadata]] of sources.entries()) {
      peer.say(String(number), "question", source);
      const action = await until(() => peer.actions[number], "the action");
      assert.deepEqual(action.action.metadata, metadata);
      peer.answer(action);
    }
  },

  async "a stream is shown while it grows, within one message, and where messages can be edited"(scene) {
    const pieces = { short: ["one ", "two"], long: ["one ", "two ", "three"], wide: ["\u{1f600}", "\u{1f600}".repeat(7)] };
    const peer = await scene.start(async (m) => void (await m.stream(pieces[m.text])));
    const run = async (text) => {
      const first = peer.actions.length;
      const acks = peer.acks.length;
      peer.say(`${text}-${first}`, text);
      for (let next = first; peer.acks.length === acks; ) {
        await until(() => peer.actions[next] || peer.acks.length > acks, "an action or the ack");
        if (peer.actions[next]) peer.answer(peer.actions[next++], { success: true, message_id: `s-${next - first}` });
      }
      return peer.actions.slice(first).map(({ action }) => [action.op, action.message_id, action.content].filter(Boolean));
    };
    const wide = "\u{1f600}".repeat(8);
    assert.deepEqual(await run("short"), [["send", "one two"]]); // nothing is known of the platform
    peer.describe({ supports_edit: true, max_message_length: 8, len_unit: "chars" });
    assert.deepEqual(await run("short"), [["send", "one "], ["edit", "s-1", "one two"]]);
    assert.deepEqual(await run("long"), [["send", "one "], ["send", "one two three"], ["delete", "s-1"]]);
    assert.deepEqual(await run("wide"), [["send", "\u{1f600}"], ["edit", "s-1", wide]]);
    peer.describe({ supports_edit: true, max_message_length: 8, len_unit: "utf16" });
    assert.deepEqual(await run("wide"), [["send", "\u{1f600}"], ["send", wide], ["delete", "s-1"]]);
    peer.describe({ supports_edit: false, max_message_length: 8, len_unit: "chars" });
    assert.deepEqual(await run("long"), [["send", "one two three"]]);
  },

  async "the last text of a stream is sent again if its edit is refused, and edited again if it may have happened"(scene) {
    const errors = [];
    const peer = await scene.start((m) => m.stream(["one ", "two"]).catch((error) => void errors.push(error)));
    peer.describe({ supports_edit: true, max_message_length: 100, len_unit: "chars" });
    const next = async (count, result) => {
      const { action, requestId } = await until(() => peer.actions[count], "an action");
      peer.answer({ requestId }, result);
      return [action.op, action.message_id, action.content];
    };
    const refused = { success: false, error: "too old", code: "platform_failed" };
    peer.say("1", "hello");
    assert.deepEqual(await next(0, { success: true, message_id: "s" }), ["send", undefined, "one "]);
    assert.deepEqual(await next(1, refused), ["edit", "s", "one two"]);
    assert.deepEqual(await next(2), ["send", undefined, "one two"]);
    assert.deepEqual(await next(3, refused), ["delete", "s", undefined]);
    await until(() => peer.acks.length === 1, "the ack");
    assert.deepEqual(errors, []);
    peer.say("2", "hello");
    await next(4, { success: true, message_id: "s" });
    await next(5, { ...refused, ambiguous: true });
    assert.deepEqual(await next(6, { ...refused, code: "rate_limited" }), ["edit", "s", "one two"]);
    assert.deepEqual(await next(7, { success: true }), ["edit", "s", "one two"]);
    await until(() => peer.acks.length === 2, "the ack");
    assert.deepEqual([errors, peer.actions.length], [[], 8]);
  },

  async "/stop aborts the handler of its thread only"(scene) {
    const stopped = [];
    let began = 0;
    const peer = await scene.start(async (m) => {
      began++;
      await new Promise((resolve) => m.signal.addEventListener("abort", resolve));
      stopped.push(m.text);
      throw new Error("aborted");
    });
    peer.say("1", "main", { user_id: "u" });
    peer.say("2", "thread", { user_id: "u", thread_id: "t" });
    await until(() => began === 2, "two handlers");
    peer.send({ type: "interrupt_inbound", session_key: "agent:main:relay:dm:c:t", chat_id: "c" });
    await until(() => stopped.length === 1, "the end of a handler");
    assert.deepEqual(stopped, ["thread"]);
    peer.send({ type: "interrupt_inbound", session_key: "agent:main:relay:dm:c", chat_id: "c" });
    await until(() => peer.acks.length === 2, "the acks: it counts as handled");
  },

  async "/stop of a user in a group, or in a thread, aborts no other handler"(scene) {
    const stopped = [];
    const received = [];
    const peer = await scene.start(async (m) => {
      received.push(m.text);
      await new Promise((resolve) => m.signal.addEventListener("abort", resolve));
      stopped.push(m.text);
    });
    const sources = {
      "channel:C:ann": { platform: "slack", chat_type: "channel", chat_id: "C", user_id: "ann" },
      "channel:C:7": { platform: "slack", chat_type: "channel", chat_id: "C", user_id: "ann", thread_id: "7" },
      "dm:4912": { platform: "whatsapp", chat_type: "dm", chat_id: " +4912:47@s.whatsapp.net " },
      "group:G:99": { platform: "whatsapp", chat_type: "group", chat_id: "G", user_id: "1", user_id_alt: "+ 99@lid" },
      "group:G:alt": { platform: "discord", chat_type: "group", chat_id: "G", user_id: "1", user_id_alt: "alt", profile: "coder" },
    };
    for (const [name, source] of Object.entries(sources)) peer.say(name, name, source);
    const names = Object.keys(sources);
    await until(() => received.length === names.length, "the handlers");
    const stop = (session_key, chat_id) => peer.send({ type: "interrupt_inbound", session_key, chat_id });
    // Of a user without a turn, and the name that a session in a thread of the /stop itself would have.
    for (const end of ["channel:C:bob", "channel:C:9", "channel:T:C:ann", "channel:C"]) stop(`agent:main:slack:${end}`, "C");
    for (const end of ["group:G", "group:G:1", "group:G:alt"]) stop(`agent:main:discord:${end}`, "G");
    for (const [count, name] of names.entries()) {
      const { platform, profile = "main", chat_id } = sources[name];
      stop(`agent:${profile}:${platform}:${name}`, chat_id);
      await until(() => peer.acks.length > count, `the ack of ${name}`);
      assert.deepEqual(stopped, names.slice(0, count + 1));
    }
  },

  async "a second name of one /stop does not abort the next message"(scene) {
    const signals = [];
    const peer = await scene.start(async (m) => {
      signals.push(m.signal);
      await new Promise((resolve) => m.signal.addEventListener("abort", resolve));
    });
    const stop = (session_key) => peer.send({ type: "interrupt_inbound", session_key, chat_id: "c" });
    peer.say("1", "first", { platform: "slack", chat_type: "channel", user_id: "u" });
    peer.say("2", "second", { platform: "slack", chat_type: "channel", user_id: "u" });
    await until(() => signals.length === 1, "the first handler");
    stop("agent:main:slack:channel:c:u");
    await until(() => signals.length === 2, "the second handler");
    stop("agent:main:slack:channel:T:c:u");
    stop("agent:main:slack:group:c:u");
    peer.say("3", "third", { chat_id: "other" });
    await until(() => signals.length === 3, "a handler after the frames");
    assert.deepEqual([signals[1].aborted, peer.acks], [false, ["1"]]);
  },

  async "a handler that ignores /stop does not hold up the chat for ever"(scene) {
    const received = [];
    const peer = await scene.start((m) => {
      received.push(m.text);
      return m.text === "deaf" ? new Promise(() => undefined) : undefined;
    });
    peer.say("1", "deaf");
    peer.say("2", "next");
    await until(() => received.length === 1, "the handler");
    peer.send({ type: "interrupt_inbound", session_key: "agent:main:relay:dm:c", chat_id: "c" });
    await until(() => peer.acks.length === 2, "the acks");
    assert.deepEqual(received, ["deaf", "next"]);
  },

  async "a message that is stopped before its handler began is acked and not handled"(scene) {
    const received = [];
    const peer = await scene.start(
      (m) => {
        received.push(m.text);
        return new Promise((resolve) => m.signal.addEventListener("abort", resolve));
      },
      { concurrency: 1 },
    );
    peer.say("1", "busy", { chat_id: "other" });
    peer.say("2", "waits");
    await until(() => received.length === 1, "a handler");
    peer.send({ type: "interrupt_inbound", session_key: "agent:main:relay:dm:c", chat_id: "c" });
    peer.send({ type: "interrupt_inbound", session_key: "agent:main:relay:dm:other", chat_id: "other" });
    await until(() => peer.acks.length === 2, "the acks");
    assert.deepEqual(received, ["busy"]);
  },

  async "what is not handled when the agent ends is not acked"(scene) {
    let began;
    const peer = await scene.start((m) => {
      began = true;
      return new Promise((_, reject) => m.signal.addEventListener("abort", () => reject(m.signal.reason)));
    });
    peer.say("1", "one");
    await until(() => began, "the handler");
    const sending = scene.agent.send("d", "text");
    sending.catch(() => undefined);
    await until(() => peer.actions[0], "an action");
    scene.end.abort();
    await scene.running;
    await until(() => peer.closed, "the end of the connection");
    assert.deepEqual(peer.acks, []);
    await assert.rejects(sending, { ambiguous: true });
  },

  async "an expired token is renewed, a revoked one ends the agent"(scene) {
    const first = await scene.start(() => undefined);
    first.close(4401, "expired");
    const second = await scene.peer(1);
    second.close(4401, "unauthorized");
    await assert.rejects(scene.running, { name: "Revoked", code: "unauthorized" });
  },

  async "of two processes with one id, each waits longer before it takes the connection again, and says so once"(scene) {
    await scene.start(() => undefined);
    const pauses = [];
    for (const number of [0, 1]) {
      const peer = scene.peers[number];
      peer.close(1000, "replaced by a newer socket of this gateway");
      const began = Date.now();
      await scene.peer(number + 1);
      pauses.push(Date.now() - began);
    }
    assert.ok(pauses[0] >= 990 && pauses[1] >= 1990, `the pauses were ${pauses} ms`);
    assert.equal(scene.logs.length, 1);
    assert.match(scene.logs[0], /^warn another process connected as gateway g:1 /);
  },

  async "a refused platform ends the agent with the reason"(scene) {
    scene.make(() => undefined, { platforms: { telegram: "bot" } });
    const peer = await until(() => scene.peers[0], "a connection");
    await until(() => peer.frames[0], "a hello");
    peer.close(4403, "this tenant has no such platform or bot");
    await assert.rejects(scene.running, { code: "unknown_identity", message: /no such platform or bot/ });
  },

  async "an agent without work tells the server, then sleeps"(scene) {
    const peer = await scene.start(() => undefined, { sleepAfter: 0.2 });
    await scene.running;
    assert.equal(peer.frames.at(-1).type, "going_idle");
    await until(() => peer.closed, "the end of the connection");
  },

  async "connections that are cut again and again do not keep it awake"(scene) {
    await scene.start(() => undefined, { sleepAfter: 7 });
    let isAsleep = false;
    void scene.running.then(() => (isAsleep = true));
    const cut = async (number) => {
      await sleep(6_500); // less than it waits for work, and more than it waits after a connect
      if (scene.peers[number].frames.at(-1).type === "going_idle") return;
      scene.peers[number].socket.destroy();
      if (number < 3) return await scene.peer(number + 1).then(() => cut(number + 1));
    };
    await cut(0);
    await until(() => isAsleep, "the end of the agent");
    assert.deepEqual([scene.peers.length, scene.peers[1].frames.at(-1).type], [2, "going_idle"]);
  },

  async "what comes while it goes to sleep is handled first"(scene) {
    let handled = false;
    const peer = await scene.start(
      async (m) => {
        await m.reply("answer");
        handled = true;
      },
      { sleepAfter: 0.2 },
    );
    const send = peer.send.bind(peer);
    peer.send = (frame) => {
      if (frame.type === "going_idle_ack") peer.say("1", "in between");
      send(frame);
    };
    peer.answer(await until(() => peer.actions[0], "the action"));
    await scene.running;
    assert.ok(handled);
    await until(() => peer.acks.length === 1, "the ack");
  },

  async "an agent with work for longer connects again, is served, and sleeps later"(scene) {
    const received = [];
    let release;
    const first = await scene.start(
      async (m) => {
        received.push(m.text);
        if (m.text !== "in between") return;
        await m.reply("working");
        await new Promise((resolve) => (release = resolve));
      },
      { sleepAfter: 0.2 },
    );
    const send = first.send.bind(first);
    first.send = (frame) => {
      if (frame.type === "going_idle_ack") first.say("1", "in between");
      send(frame);
    };
    const action = await until(() => first.actions[0], "the action");
    await sleep(200);
    assert.equal(scene.peers.length, 1, "it waits for the result of its action");
    first.answer(action);
    const second = await scene.peer(1);
    await until(() => first.closed, "the end of the first connection");
    second.say("1", "in between"); // as it is not acked
    second.say("2", "later", { chat_id: "other" });
    await until(() => second.acks.length === 1, "an ack");
    assert.deepEqual([received, second.acks, scene.logs], [["in between", "later"], ["2"], []]);
    release();
    await scene.running;
    assert.deepEqual([second.acks, second.frames.at(-1).type], [["2", "1"], "going_idle"]);
  },

  async "jobs are armed at the start, what is not declared is cancelled, and what is not ours is left alone"(scene) {
    const due = new Date(Date.now() - 1000).toISOString();
    for (const [id, at] of [
      ["cron:old", due],
      ["cron:due", due],
      ["cron:moved", due.replace(/^..../, "2099")],
    ])
      scene.armed.set(id, at);
    scene.armed.set("alarm:tea", due).set("somebody-else", due);
    const setUp = (agent) => {
      for (const name of ["due", "moved", "new"]) agent.cron(name, "0 0 1 1 *", () => undefined);
      agent.every("often", 3600, () => undefined);
    };
    await scene.start(() => undefined, { setUp, identityToken: "i" });
    await until(() => scene.calls.length === 4, "the calls");
    const wanted = [
      ["provision", "cron:moved"],
      ["provision", "cron:new"],
      ["provision", "cron:often"],
      ["cancel", "cron:old"],
    ];
    assert.deepEqual(scene.calls, wanted);
    assert.match(scene.armed.get("cron:new"), /^20\d\d-01-01T00:00:00Z$/);
    assert.match(scene.armed.get("cron:often"), /:00:00Z$/);
    assert.equal(scene.armed.get("cron:due"), due);
  },

  async "the next time of a job is armed before its handler runs, and once if that fails"(scene) {
    const seen = [];
    const setUp = (agent) =>
      agent.cron("job", "0 0 1 1 *", (fire) => {
        seen.push([fire.name, fire.at.toISOString(), scene.armed.has("cron:job")]);
        if (seen.length === 1) throw new Error("as the test wants it");
      });
    const peer = await scene.start(() => undefined, { setUp, identityToken: "i" });
    await until(() => scene.armed.has("cron:job"), "the first alarm");
    const at = scene.armed.get("cron:job");
    scene.armed.delete("cron:job");
    peer.fire("1", "cron:job", at);
    await until(() => seen.length === 1, "the handler");
    assert.deepEqual(peer.acks, []);
    await until(() => peer.acks.length === 1, "the ack after the second attempt");
    const run = ["job", new Date(at).toISOString(), true];
    assert.deepEqual(seen, [run, run]);
    assert.equal(Number(scene.armed.get("cron:job").slice(0, 4)), Number(at.slice(0, 4)) + 1);
    assert.equal(scene.calls.length, 2);
    peer.fire("2", "cron:forgotten", at);
    await until(() => peer.acks.length === 2, "the ack of a job that is not declared");
  },

  async "an alarm has its payload, also when it is set again by its handler"(scene) {
    const seen = [];
    const setUp = (agent) =>
      agent.onAlarm(async (fire) => {
        seen.push(fire.payload);
        if (seen.length === 1) await agent.alarm("tea", 3600, "second");
      });
    const peer = await scene.start(() => undefined, { setUp, identityToken: "i" });
    await scene.agent.alarm("tea", 60, "first");
    for (const number of [1, 2]) {
      peer.fire(String(number), "alarm:tea", scene.armed.get("alarm:tea"));
      await until(() => peer.acks.length === number, "the ack");
    }
    assert.deepEqual(seen, ["first", "second"]);
    assert.deepEqual(JSON.parse(scene.state), { alarms: {} });
  },

  async "a message is acked on the socket when the loop is done with it, and its place is remembered"(scene) {
    scene.state = JSON.stringify({ inbox: 4, letters: ["d-4"] }); // as earlier versions wrote it
    const received = [];
    let release;
    const read = async (agent) => {
      for await (const message of agent.inbox()) {
        received.push(message.text);
        await new Promise((resolve) => (release = resolve));
      }
    };
    const handler = () => assert.fail("a message came to onMessage");
    const peer = await scene.start(handler, { setUp: (agent) => void read(agent), agentToken: "a", sleepAfter: 1 });
    await until(() => scene.stream, "the stream");
    assert.equal(scene.after, "4");
    const copy = (seq) => {
      const source = { platform: "relay", chat_id: "agent:bob" };
      peer.send({ type: "inbound", bufferId: `b-${seq}`, event: { text: "x", source, delivery: { delivery_id: `d-${seq}` } } });
    };
    copy(4); // handled before, by a process that could not ack it
    await until(() => peer.acks.length === 1, "an ack at once");
    copy(5);
    scene.inboxMessage(5, "five");
    await until(() => release, "the message");
    await sleep(1500); // longer than it takes to fall asleep
    assert.deepEqual([received, peer.acks, JSON.parse(scene.state).inbox], [["five"], ["b-4"], 4]);
    release();
    await until(() => peer.acks.length === 2, "the ack");
    assert.deepEqual(JSON.parse(scene.state), { inbox: 5, handled: ["d-4", "d-5"] });
    await scene.running; // it sleeps, and the loop has ended
  },

  async "a message that the inbox does not have comes to onMessage, and one of many handled ones does not"(scene) {
    scene.state = JSON.stringify({ inbox: 1000, handled: Array.from({ length: 1000 }, (_, index) => `d-${index + 1}`) });
    const received = [];
    const read = async (agent) => {
      for await (const message of agent.inbox()) received.push(`inbox ${message.text}`);
    };
    const setUp = (agent) => void read(agent);
    const peer = await scene.start((m) => void received.push(`message ${m.text}`), { setUp, agentToken: "a" });
    const copy = (seq, text) => {
      const source = { platform: "relay", chat_id: "agent:bob" };
      peer.send({ type: "inbound", bufferId: `b-${seq}`, event: { text, source, delivery: { delivery_id: `d-${seq}` } } });
    };
    await until(() => scene.stream, "the stream");
    scene.inboxMessage(1001, "new");
    await until(() => JSON.parse(scene.state).inbox === 1001, "the place");
    copy(1, "old");
    await until(() => peer.acks.length === 1, "an ack at once");
    copy(2000, "not in the inbox");
    copy(2001, "in the inbox");
    scene.inboxMessage(2001, "late");
    await until(() => JSON.parse(scene.state).inbox === 2001, "the place");
    await sleep(100);
    assert.deepEqual([received, peer.acks], [["inbox new", "inbox late"], ["b-1"]]);
    const now = performance.now.bind(performance);
    try {
      performance.now = () => now() + 31_000; // longer than a copy waits
      await until(() => peer.acks.length === 3, "the acks");
    } finally {
      delete performance.now; // that of the prototype is left
    }
    assert.deepEqual(received, ["inbox new", "inbox late", "message not in the inbox"]);
  },

  async "a message whose loop fails stays, and a place above the newest message moves back"(scene) {
    scene.state = JSON.stringify({ inbox: 9 });
    let failure;
    const read = async (agent) => {
      for await (const message of agent.inbox()) throw new Error(message.text);
    };
    const setUp = (agent) => void read(agent).catch((error) => (failure = error));
    const peer = await scene.start(() => undefined, { setUp, agentToken: "a" });
    await until(() => scene.stream, "the stream");
    scene.stream.write('event: ready\ndata: {"newest":2}\n\n');
    await until(() => JSON.parse(scene.state).inbox === 2, "the place");
    const source = { platform: "relay", chat_id: "agent:bob" };
    peer.send({ type: "inbound", bufferId: "b", event: { text: "x", source, delivery: { delivery_id: "d-3" } } });
    scene.inboxMessage(3, "three");
    await until(() => failure, "the failure");
    assert.equal(failure.message, "three");
    assert.deepEqual([JSON.parse(scene.state).inbox, peer.acks], [2, []]);
  },

  async "secrets are in no text of an agent"(scene) {
    await scene.start(() => undefined, { agentToken: "token-1", identityToken: "token-2" });
    const shown = `${inspect(scene.agent, { depth: 9, showHidden: true })}${JSON.stringify(scene.agent)}${scene.logs}`;
    for (const secret of [SECRET, "token-1", "token-2"]) assert.ok(!shown.includes(secret));
  },
};

const results = [];
for (const [name, check] of Object.entries(checks)) {
  if (!new RegExp(process.argv[2] ?? "").test(name)) continue;
  const scene = new Scene();
  const began = Date.now();
  try {
    await scene.open();
    await check(scene);
    console.log(`ok ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    results.push(true);
  } catch (error) {
    console.log(`FAILED ${name}: ${error.message}\n    ${scene.logs.join("\n    ")}`);
    results.push(false);
  } finally {
    await scene.close();
  }
}
console.log(`${results.filter(Boolean).length} passed, ${results.filter((it) => !it).length} failed`);
process.exit(results.length > 0 && results.every(Boolean) ? 0 : 1);
