// Seals and signs texts with the vendor's library for Node: one JSON object a line in, {sealed, signature} a line out.
// FRONTDESK_NODE_MODULES is a folder that contains @wecom/crypto. tests/vendors/wecom_signatures.py drives it.

import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(path.join(path.resolve(process.env.FRONTDESK_NODE_MODULES), "here.js"));
const { decrypt, encrypt, getSignature } = require("@wecom/crypto");

const lines = [];
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { token, aes_key: key, corp_id: corpId, timestamp, nonce, inner } = JSON.parse(line);
  const sealed = encrypt(key, inner, corpId);
  const opened = decrypt(key, sealed);
  if (opened.message !== inner || opened.id !== corpId) throw new Error("the library cannot read what it wrote");
  lines.push(JSON.stringify({ sealed, signature: getSignature(token, timestamp, nonce, sealed) }));
}
process.stdout.write(`${lines.join("\n")}\n`);
