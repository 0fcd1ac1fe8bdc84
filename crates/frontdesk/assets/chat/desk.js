// The right pane of the chat page: the state of the agent, and the timeline of what the server did
// with each message. It keeps the steps that the stream told, grouped by message, newest first.

import { AGENT, STATUS, STEPS, clock, duration, el } from "/chat/parts.js";

const $ = (id) => document.getElementById(id);

// ---- The agent's state --------------------------------------------------------------------

const agents = new Map(); // instance -> {value, text}

/** The first instance is drawn large; others of the same person are a list below it. */
export function setAgent(instance, value, text) {
  const known = AGENT[value] ? value : "unknown";
  agents.set(instance ?? "", { value: known, text: text || AGENT[known].text });
  if (instance) agents.delete("");
  const [[first, main], ...others] = agents;
  const look = AGENT[main.value];
  $("agent-state").dataset.state = $("toggle-desk").dataset.state = main.value;
  if (first) $("agent-state").dataset.instance = first;
  $("agent-icon").setAttribute("href", `#i-${look.icon}`);
  $("agent-status").textContent = look.word;
  $("agent-text").textContent = main.text;
  $("agent-pill").textContent = `Agent: ${look.word.toLowerCase()}`;
  $("agent-others").hidden = others.length === 0;
  $("agent-others").replaceChildren(...others.map(([name, agent]) =>
    el("li", { "data-instance": name, "data-state": agent.value, title: agent.text }, el("span", { class: "dot", "aria-hidden": "true" }), el("span", {}, name), el("small", {}, AGENT[agent.value].word))));
}

// ---- The timeline -------------------------------------------------------------------------

const trails = new Map(); // chat_id -> groups of steps, newest first
let shown = { chatId: null, titleOf: () => null }; // the chat on the screen

const trailsOf = (chatId) => trails.get(chatId) ?? trails.set(chatId, []).get(chatId);
const find = (chatId, messageId) => trailsOf(chatId).find((group) => group.messageId === messageId);

/** Puts the trails of a chat on the screen; `titleOf` says what a message is called there. */
export function showTrails(chatId, titleOf) {
  shown = { chatId, titleOf };
  drawAll();
}

/** Adds one step and says which message it belongs to, if any. */
export function addStep(chatId, step) {
  const groups = trailsOf(chatId);
  let group = groups.find((other) => (step.message_id && other.messageId === step.message_id) || (step.event_id && other.events.has(step.event_id)));
  if (!group && step.step === "awake") group = groups.find((other) => other.steps.at(-1)?.step === "waking"); // what it was woken for
  if (!group) {
    group = { messageId: step.message_id, events: new Set(), steps: [], node: el("li", { class: "trail" }) };
    groups.unshift(group);
    groups.length = Math.min(groups.length, 100);
  }
  const same = (other) => other.step === step.step && other.at === step.at && other.event_id === step.event_id && other.text === step.text;
  if (group.steps.some(same)) return group.messageId; // told again after a reconnect
  if (step.event_id) group.events.add(step.event_id);
  group.steps.push(step);
  group.steps.sort((a, b) => a.at - b.at || rank(a) - rank(b));
  draw(group);
  if (shown.chatId === chatId && !group.node.isConnected) drawAll();
  return group.messageId;
}

/** In one millisecond much can happen; then the order of the server's work decides. */
function rank({ step }) {
  const order = ['accepted', 'withheld', 'waking', 'wake_failed', 'awake', 'sent', 'acked'];
  return (order.indexOf(step) + 1) || order.length + 1;
}

/** How far a message has come: its last step that says something about delivery. */
export function lastStep(chatId, messageId) {
  return find(chatId, messageId)?.steps.filter(({ step }) => STATUS[step]).at(-1)?.step;
}

/** A message has come whose trail began before it. */
export function retitle(messageId) {
  const group = find(shown.chatId, messageId);
  if (group && !group.title) draw(group);
}

export function pickTrail(messageId) {
  for (const group of trailsOf(shown.chatId)) group.node.toggleAttribute("data-picked", group.messageId === messageId);
  find(shown.chatId, messageId)?.node.scrollIntoView({ block: "nearest" });
}

function drawAll() {
  const groups = trailsOf(shown.chatId);
  $("timeline-empty").hidden = groups.length > 0;
  $("timeline").replaceChildren(...groups.map((group) => group.node));
}

/** One message's steps in order: equal ones in a row are counted, times run from "accepted". */
function draw(group) {
  const rows = [];
  let accepted = null;
  for (const step of group.steps) {
    if (step.step === "accepted") accepted = step.at;
    const last = rows.at(-1);
    if (last && last.step.step === step.step && last.step.text === step.text) last.count += 1;
    else rows.push({ step, count: 1, since: accepted === null || step.step === "accepted" ? null : step.at - accepted });
  }
  const row = ({ step, count, since }) => el("li", { "data-step": step.step, "data-event-id": step.event_id },
    el("span", { class: "step-name" }, STEPS[step.step] ?? step.step, count > 1 && el("small", {}, ` ×${count}`)),
    el("time", { datetime: new Date(step.at).toISOString(), title: clock(step.at, true) }, since === null ? clock(step.at, true) : `+${duration(since)}`),
    el("span", { class: "step-text" }, step.text));
  group.title ||= group.messageId && shown.titleOf(group.messageId);
  group.node.toggleAttribute("data-alone", !group.messageId);
  if (group.messageId) group.node.dataset.trailOf = group.messageId;
  group.node.replaceChildren(...(group.messageId ? [el("p", { class: "trail-title" }, group.title || "A message")] : []), el("ol", {}, ...rows.map(row)));
}
