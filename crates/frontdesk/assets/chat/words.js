// The lower part of the right pane: what agents said to each other, newest first, with how every
// connector took it. The stream only says that something happened; the list is read again then.

import { clock, el, shorten } from "/chat/parts.js";

const $ = (id) => document.getElementById(id);
const KINDS = { augment: "Context", template: "Playbook", wake: "Wake", wake_degraded: "Wake, kept" };
const PAUSE_MS = 300; // many words in a row are read once

let timer = null;

export function refreshWords() {
  timer ??= setTimeout(() => { timer = null; read().catch(() => {}); }, PAUSE_MS);
}

async function read() {
  const answer = await fetch("/chat/v1/dispatches", { credentials: "same-origin" });
  if (!answer.ok) return;
  const { dispatches } = await answer.json();
  $("words").hidden = dispatches.length === 0;
  $("words-list").replaceChildren(...dispatches.map(wordNode));
}

function wordNode(word) {
  const head = el("p", { class: "trail-title" }, `${word.from ?? "The desk"} → ${word.agent_id || "an agent that is gone"}`);
  const about = el("span", { class: "step-text" }, shorten(word.text, 160) || "(no text)");
  const rows = word.receipts.map((it) => el("li", { "data-connector": it.connector, "data-ok": String(it.ok) },
    el("span", { class: "step-name" }, it.connector), el("span", { class: "step-text" }, outcome(it))));
  return el("li", { class: "trail", "data-event-id": word.event_id, "data-kind": word.type }, head,
    el("p", { class: "word" }, el("span", { class: "step-name" }, KINDS[word.type] ?? word.type),
      el("time", { datetime: new Date(word.at).toISOString() }, clock(word.at, true)), about),
    el("ol", {}, ...rows));
}

/** What a receipt says, in words. */
function outcome({ connector, ok, receipt, error }) {
  if (!ok) return `failed: ${error?.message ?? "no reason given"}`;
  const said = receipt?.woken === true ? "woken"
    : receipt?.woken === false ? "kept; not woken"
    : receipt?.delivery_skipped ? (connector === "inbox" ? "kept; nobody listens to it now" : "kept; the agent is away") : "delivered";
  return [said, receipt?.session_id && `session ${receipt.session_id}`, ...(receipt?.warnings ?? [])].filter(Boolean).join("; ");
}
