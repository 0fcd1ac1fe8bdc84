// Judges signed requests on stdin with the vendor's library for Node: one JSON object a line in, true or false a line out.
// FRONTDESK_NODE_MODULES is a folder that contains discord-interactions. tests/vendors/discord_signatures.py drives it.

import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(path.join(path.resolve(process.env.FRONTDESK_NODE_MODULES), "here.js"));
const { verifyKey } = require("discord-interactions");

const verdicts = [];
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { key, timestamp, signature, body } = JSON.parse(line);
  verdicts.push(await verifyKey(Buffer.from(body, "base64"), signature, timestamp, key));
}
process.stdout.write(`${verdicts.join("\n")}\n`);
