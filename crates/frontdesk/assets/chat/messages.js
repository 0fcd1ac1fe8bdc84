// The lower part of the right pane: what agents said to each other, newest first, with how every
// connector took it. The stream only says that something happened; the list is read again then.

import { clock, el, shorten } from "/chat/parts.js";

const $ = (id) => document.getElementById(id);
const KINDS = { augment: "Context", template: "Template", wake: "Wake", wake_degraded: "Wake, stored" };
const PAUSE_MS = 300; // many messages in a row are read once

let timer = null;

export function refreshAgentMessages() {
  timer ??= setTimeout(() => { timer = null; read().catch(() => {}); }, PAUSE_MS);
}

async function read() {
  const answer = await fetch("/chat/v1/dispatches", { credentials: "same-origin" });
  if (!answer.ok) return;
  const { dispatches } = await answer.json();
  $("agent-messages").hidden = dispatches.length === 0;
  $("agent-messages-list").replaceChildren(...dispatches.map(messageNode));
}

function messageNode(message) {
  const head = el("p", { class: "trail-title" }, `${message.from ?? "The server"} → ${message.agent_id || "a deleted agent"}`);
  const about = el("span", { class: "step-text" }, shorten(message.text, 160) || "(no text)");
  const rows = message.receipts.map((it) => el("li", { "data-connector": it.connector, "data-ok": String(it.ok) },
    el("span", { class: "step-name" }, it.connector), el("span", { class: "step-text" }, outcome(it))));
  return el("li", { class: "trail", "data-event-id": message.event_id, "data-kind": message.type }, head,
    el("p", { class: "dispatch" }, el("span", { class: "step-name" }, KINDS[message.type] ?? message.type),
      el("time", { datetime: new Date(message.at).toISOString() }, clock(message.at, true)), about),
    el("ol", {}, ...rows));
}

/** What a receipt says. */
function outcome({ connector, ok, receipt, error }) {
  if (!ok) return `failed: ${error?.message ?? "no reason given"}`;
  const said = receipt?.woken === true ? "woken"
    : receipt?.woken === false ? "stored; not woken"
    : receipt?.delivery_skipped ? (connector === "inbox" ? "stored; nobody listens to the inbox now" : "stored; the agent is away") : "delivered";
  return [said, receipt?.session_id && `session ${receipt.session_id}`, ...(receipt?.warnings ?? [])].filter(Boolean).join("; ");
}
