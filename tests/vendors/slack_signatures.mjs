// Judges signed requests on stdin with the vendor's framework for Node: one JSON object a line in, true or false a line out.
// FRONTDESK_NODE_MODULES is a folder that contains @slack/bolt. tests/vendors/slack_signatures.py drives it.

import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(path.join(path.resolve(process.env.FRONTDESK_NODE_MODULES), "here.js"));
const { isValidSlackRequest } = require("@slack/bolt");

const verdicts = [];
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { key, now_s, headers, body } = JSON.parse(line);
  verdicts.push(isValidSlackRequest({
    signingSecret: key,
    body: Buffer.from(body, "base64").toString(),
    headers: Object.fromEntries(headers),
    nowMilliseconds: now_s * 1000,
  }));
}
process.stdout.write(`${verdicts.join("\n")}\n`);
