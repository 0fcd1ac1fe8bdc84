/** The agent of the scenarios, in TypeScript. scenario.py says what it does. */

import process from "node:process";

import { Agent, FrontdeskError, Revoked } from "@frontdesk/client";

const { SLEEP_AFTER, TICK } = process.env;
const agent = new Agent({ sleepAfter: SLEEP_AFTER ? Number(SLEEP_AFTER) : undefined });
const attempts = new Map<string | undefined, number>();

/** The first word and the rest. */
function split(text: string): [string, string] {
  const [, word = "", rest = ""] = /^(\S*) ?(.*)$/s.exec(text) ?? [];
  return [word, rest];
}

agent.onMessage(async (m) => {
  const [verb, rest] = split(m.text);
  const [word, text] = split(rest);
  if (m.pressed) {
    await m.reply(`pressed ${m.pressed.option}`);
  } else if (verb === "echo") {
    await m.reply(rest);
  } else if (verb === "fail") {
    const attempt = (attempts.get(m.id) ?? 0) + 1;
    attempts.set(m.id, attempt);
    if (attempt <= Number(word)) throw new Error(`attempt ${attempt} fails, as the test wants it`);
    await m.reply(text);
  } else if (verb === "hold") {
    await new Promise((resolve) => m.signal.addEventListener("abort", resolve));
    await m.reply("stopped");
  } else if (verb === "stream") {
    await m.stream(rest.split(" ").map((it, index) => (index > 0 ? ` ${it}` : it)));
  } else if (verb === "ask") {
    await m.ask("Shall I?", { yes: "Yes", no: "No" });
  } else if (verb === "file" && m.media[0]) {
    const { filename, mime } = m.media[0];
    await m.replyFile(await m.media[0].read(), { filename, mime });
  } else if (verb === "exchange") {
    try {
      await m.reply((await agent.exchange(word, text)).text);
    } catch (error) {
      if (!(error instanceof FrontdeskError)) throw error;
      await m.reply(`error ${error.code}`);
    }
  } else if (verb === "tell") {
    await agent.deliver(word, text);
  } else if (verb === "remind") {
    await agent.alarm(`remind ${m.id}`, Number(word), m.chat.id);
  }
});

agent.onAlarm(async (fire) => {
  await agent.send(String(fire.payload), "reminded");
});

if (TICK) {
  agent.cron("tick", TICK, async () => {
    await agent.send("cron", "tick");
  });
}

async function readInbox(): Promise<void> {
  for await (const message of agent.inbox()) {
    if (message.expectsReply) await message.reply(`answer to ${message.text}`);
    else await agent.send("inbox", `inbox ${message.text}`);
  }
}

try {
  await Promise.all([agent.run(), readInbox()]);
} catch (error) {
  console.log(error instanceof Error ? error.message : error);
  process.exit(error instanceof Revoked ? 3 : 1);
}
