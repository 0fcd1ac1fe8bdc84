// Makes skill_status.json and skill_approval.json: the results of JavaScript's regular expressions and Node's
// Ed25519 for skill bodies. Run `node make_skill_vectors.mjs` in this folder; the bodies are the same each time,
// the signatures use a new key.

import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { writeFileSync } from "node:fs";

// How other stores change a status.
function bundled(source, status) {
  const line = `# Status: ${status}`;
  const old = /^#\s*Status\s*:\s*.+?\s*$/m;
  if (old.test(source)) return source.replace(old, () => line);
  const skill = /^(#\s*Skill\s*:\s*.+?)\s*$/m;
  if (skill.test(source)) return source.replace(skill, (_, head) => `${head}\n${line}`);
  return `${line}\n${source}`;
}

// The same with our two rules: a header is on one line and has a value, and the line that is read is also the
// one that is rewritten, indented or not.
const B = "[^\\S\\n\\r\\u2028\\u2029]*";
const READ = new RegExp(`^(${B})#${B}Status${B}:${B}(\\S|\\S.*?\\S)\\s*$`, "m");
function ours(source, status) {
  const line = `# Status: ${status}`;
  if (READ.test(source)) return source.replace(READ, (_, indent) => `${indent}${line}`);
  const skill = /^(#\s*Skill\s*:\s*.+?)\s*$/m;
  if (skill.test(source)) return source.replace(skill, (_, head) => `${head}\n${line}`);
  return `${line}\n${source}`;
}
function read(source) {
  const word = (source.match(READ)?.[2] ?? "").split(/\s+/)[0].toLowerCase();
  return { draft: "Draft", approved: "Approved", disabled: "Disabled" }[word] ?? "Draft";
}

const ends = ["\n", "\r\n", "\r", "\u2028", "\u2029"];
const blanks = ["", " ", "\t", "  \t", "\u00a0", "\ufeff", "\u3000", "\v", "\f", "\u0085"];
const heads = [
  "# Status: Draft", "#Status:Approved", "#\t Status \t:\tdisabled", "# Status: DRAFT and more words",
  "# Status: Approved v3:abc", "# status: Approved", "## Status: Approved", "# Status Approved", "# Status:",
  "# Status:   ", "# Statuses: Approved", "# Status: $1 $& $$", "# Status: Unheard", "# Status: : x",
  "\u00a0# Status: Approved", "   # Status: Disabled", "\ufeff# Status: Approved", "# Status: Draft\u0085",
  "# Status:\u2003Approved\u2003", "text # Status: Approved", "# Status: Approved\u2028# Status: Disabled",
];
const befores = ["", "# Skill: a\n", "# Skill: a\r\n", "\n\n", "body\n", "# Skill: a\n\n\n# Tags: x\n", "\ufeff", "# Skill:\nnext\n"];
const afters = [
  "", "\n", "\n\n\n", "\nbody", "\n\n\n  body\n", "\r\nbody\r\n", "\r\n\r\n \t\r\nbody", "  \n\n \n\n", "\rbody",
  "\u2028\u2029body", "\n\u0085\nbody", "\n\ufeff\n\n\tbody", "\n# Status: Approved\n", " \t", "\n   \u00a0", "\n\n# Status: Disabled",
];
const sources = new Set(["", "\n", "# Skill: a", "# Skill: a\n", "# Skill: a\n\n\nbody", "# Skill:  \n", "# Skill:", "# Skill:\n\n",
  " # Skill: a\nbody", "#\nSkill: a\nbody", "# Skill : a b  \r\n\r\nbody", "\r\n# Skill: a\r\nbody", "# Skill: $& a\nbody"]);
let turn = 0;
for (const head of heads) {
  for (const before of befores) {
    turn += 1;
    sources.add(before + head + afters[turn % afters.length]);
  }
}
for (const end of ends) {
  for (const blank of blanks) sources.add(`# Skill: a${end}# Status: Draft${blank}${end}${blank}${end}body${end}`);
}
for (const after of afters) sources.add(`# Skill: a${after}`);

const vectors = [];
for (const source of sources) {
  const status = ["Draft", "Approved", "Disabled"][vectors.length % 3];
  const expected = ours(source, status);
  const digest = createHash("sha256").update(expected, "utf8").digest("hex");
  vectors.push({ source, read: read(source), status, expected, hash: digest, bundled: bundled(source, status) === expected });
}
writeFileSync("skill_status.json", JSON.stringify(vectors, null, 1) + "\n");

// ---- approvals --------------------------------------------------------------------------------

function canonical(source) {
  const lines = source.replace(/\r\n/g, "\n").replace(/\r/g, "\n").split("\n");
  return lines.filter((it) => !/^\s*#\s*Status\s*:/i.test(it) && !/^\s*#\s*Tags\s*:/i.test(it)).join("\n");
}
const { publicKey, privateKey } = generateKeyPairSync("ed25519");
const other = generateKeyPairSync("ed25519");
const token = (source, key) => "v3:" + sign(null, Buffer.from(canonical(source), "utf8"), key).toString("base64url");
const bodies = [
  "# Skill: a\n# Status: STATUS\n# Tags: x, y\n\nsay hello\n",
  "# Skill: a\r\n# Status: STATUS\r\n# tags : x\r\nsay \u{1F600}\r\n",
  "\ufeff  # Status: STATUS\rold\rlines",
  "# Status: STATUS",
  "# Status: STATUS\n# status: not mine\n#Tags:\nbody\n\n",
];
const approvals = { public_key_pem: publicKey.export({ type: "spki", format: "pem" }), signed: [], unsigned: [] };
for (const body of bodies) {
  const word = token(body, privateKey);
  for (const status of ["Approved", "Draft", "Disabled"]) approvals.signed.push(body.replace("STATUS", () => `${status} ${word}`));
  const approved = body.replace("STATUS", () => `Approved ${word}`);
  approvals.signed.push(approved.replace(/\r\n/g, "\n"), approved.replace(/x/g, (x, at) => (/tags/i.test(approved.slice(0, at).split(/[\r\n]/).pop()) ? "other" : x)));
  approvals.unsigned.push(
    body.replace("STATUS", "Approved"), body.replace("STATUS", () => `Approved ${token(body, other.privateKey)}`),
    approved + "!", body.replace("STATUS", () => `Approved ${word.slice(0, -1)}`), body.replace("STATUS", () => `Approved ${word}A`),
    body.replace("STATUS", () => `Approved ${word.replace("v3:", "v2:")}`), body.replace("STATUS", () => `Approved x ${word}`),
    body.replace("STATUS", () => `Approved ${word.replace("v3:", "v3: ")}`), "first\n" + approved,
  );
}
approvals.other_keys = [
  generateKeyPairSync("ec", { namedCurve: "P-256" }).publicKey.export({ type: "spki", format: "pem" }),
  generateKeyPairSync("x25519").publicKey.export({ type: "spki", format: "pem" }),
  publicKey.export({ type: "spki", format: "pem" }).replaceAll("PUBLIC", "PRIVATE"),
];
writeFileSync("skill_approval.json", JSON.stringify(approvals, null, 1) + "\n");
console.log(vectors.length, "status vectors,", vectors.filter((it) => it.bundled).length, "as bundled;", approvals.signed.length, approvals.unsigned.length);
