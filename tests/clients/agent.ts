// An agent of a few lines, for tests/clients/python.py. How long it waits until it sleeps is an argument.
import { setTimeout as sleep } from "node:timers/promises";
import { Agent } from "@frontdesk/client";
const agent = new Agent({ sleepAfter: Number(process.argv[2]) || undefined });
const failed = new Set<string | undefined>();
agent.onMessage(async (m) => {
  const words = m.text.split(" ");
  if (words.includes("fail-once") && failed.size < failed.add(m.id).size) throw new Error("as the test wants it");
  if (words.includes("slow")) await m.typing(() => sleep(600_000, undefined, { signal: m.signal }));
  if (words.includes("count")) await m.stream(["0 ", "1 ", "2 ", "3 ", "4"]);
  else if (words.includes("ask")) await m.ask("Shall I?", { yes: "Yes", no: "No" });
  else if (words.includes("send")) await agent.send(m.chat, `heard ${m.text}`);
  else await m.reply(m.pressed ? `pressed ${m.pressed.option}` : `heard ${m.text}`);
});
await agent.run();
