// The built-in chat page: everything that happens in the browser.
//
// Read it top to bottom: the state, the way to the server, then one section for each part of the
// page (connection, messages, composer, chats), then the start. The pane with the agent and the
// timeline is desk.js; the parts that know nothing of the chat (elements, text, files, words) are
// in parts.js.
// Two rules hold throughout. Text from others reaches the page only as text, never as markup.
// A message that was typed is kept, here and in the browser's storage, until the server has it.

import { refreshAgentMessages } from "/chat/messages.js";
import { retitle, setAgent, addStep, showTrails, lastStep, pickTrail } from "/chat/desk.js";
import { STATUS, clock, dayOf, el, fileChip, fileSize, icon, mediaNode, randomId, reactionNodes, richText, shorten } from "/chat/parts.js";

const $ = (id) => document.getElementById(id);
const MEDIA_LIMIT = 25 * 1024 * 1024;
const DEFAULT_CHAT = "lobby";

const CHATS_SHOWN_MAX = 5000; // a longer list helps nobody
const chatPath = (chatId, rest = "") => `/chat/v1/chats/${encodeURIComponent(chatId)}${rest}`;

// ---- State --------------------------------------------------------------------------------

const state = {
  me: null, // who is signed in, from /chat/v1/me
  chats: new Map(), // chat_id -> chat, as listed by the server
  seen: new Map(), // chat_id -> highest seq that was on the screen
  outbox: new Map(), // message_id -> a message of ours that the server has not shown us yet
  verdicts: new Map(), // message_id -> why the server withheld it
  drafts: new Map(), // chat_id -> text left in the box
  attachments: [], // files chosen for the next message
  replyTo: null, // message that the next one answers
  session: null, // the chat on the screen, and its stream
};

// ---- The way to the server ----------------------------------------------------------------

class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The server answered with status ${status}.`);
    this.status = status;
  }
}

async function api(method, path, body, headers = {}) {
  const request = { method, credentials: "same-origin", headers: { accept: "application/json", ...headers } };
  if (body instanceof Blob) {
    request.body = body;
    request.signal = AbortSignal.timeout(300000);
  } else {
    request.signal = AbortSignal.timeout(20000);
    if (body !== undefined) {
      request.body = JSON.stringify(body);
      request.headers["content-type"] = "application/json";
    }
  }
  const reply = await fetch(path, request);
  if (reply.status === 401) showLogin();
  if (!reply.ok) throw new Problem(reply.status, (await reply.json().catch(() => null)) ?? {});
  return reply.status === 204 ? null : reply.json().catch(() => null);
}

const reason = (error) => (error instanceof Problem ? error.message : "The server cannot be reached.");

// Unconfirmed messages survive a reload: one storage key for each, so that tabs do not collide.
const outboxPrefix = () => `frontdesk.outbox/${state.me.tenant}/${state.me.user_id}/`;
function remember(entry) {
  try { localStorage.setItem(outboxPrefix() + entry.message_id, JSON.stringify(entry)); } catch { /* storage is off */ }
}
function forget(messageId) {
  try { localStorage.removeItem(outboxPrefix() + messageId); } catch { /* storage is off */ }
}
function recallOutbox() {
  try {
    for (const key of Object.keys(localStorage).filter((name) => name.startsWith(outboxPrefix()))) {
      const entry = JSON.parse(localStorage.getItem(key));
      state.outbox.set(entry.message_id, { ...entry, status: "failed", error: "The page closed before the server confirmed it." });
    }
  } catch { /* storage is off or was edited */ }
}

// ---- Opening a chat, and staying connected to it ------------------------------------------

function openChat(chatId) {
  const before = state.session;
  if (before) {
    state.drafts.set(before.chatId, $("composer-input").value);
    leave(before);
  }
  const session = { chatId, messages: new Map(), nodes: new Map(), lastSeq: 0, version: 0, stamps: new Map(), attempt: 0, stuck: true, loaded: false };
  state.session = session;
  setReply(null);
  $("messages").replaceChildren();
  $("to-latest").hidden = true;
  $("composer-input").value = state.drafts.get(chatId) ?? "";
  growComposer();
  showTyping(false);
  history.replaceState(null, "", `/chat#chat=${encodeURIComponent(chatId)}`);
  drawChats();
  showTrails(chatId, (id) => titleOf(session, id));
  setConnection("connecting");
  closePane();
  follow(session);
}

function leave(session) {
  session.source?.close();
  clearTimeout(session.timer);
}

/** Reads the history, then opens the stream; comes back to it whenever the stream drops. */
async function follow(session) {
  leave(session);
  try {
    await resync(session);
  } catch (error) {
    if (state.session === session) retryLater(session);
    return;
  }
  if (state.session !== session || session.absent) return;
  const source = new EventSource(chatPath(session.chatId, `/stream?after=${session.lastSeq}`));
  const on = (name, handle) => source.addEventListener(name, (event) => session.source === source && handle(JSON.parse(event.data)));
  session.source = source;
  source.onopen = () => {
    session.attempt = 0;
    setConnection("live");
    refreshAgentMessages();
    resync(session).catch(() => {}); // what changed between the history and the stream
  };
  source.onerror = () => {
    source.close();
    if (session.source === source && state.session === session) retryLater(session);
  };
  on("message", (message) => receive(session, message));
  on("typing", (event) => showTyping(event.typing));
  on("agent", (event) => setAgent(event.instance, event.state, event.text));
  on("timeline", (event) => timelineStep(session, event));
  on("dispatch", refreshAgentMessages);
}

function retryLater(session) {
  setConnection("reconnecting");
  showTyping(false);
  clearTimeout(session.timer);
  session.timer = setTimeout(() => follow(session), Math.min(1000 * 2 ** session.attempt, 15000));
  session.attempt += 1;
}

/** Makes the page equal to the server's history, except for what the stream said meanwhile. */
async function resync(session) {
  const started = session.version;
  const found = new Map();
  let typing = false;
  for (let after = 0; ; ) {
    let page;
    try {
      page = await api("GET", chatPath(session.chatId, `/messages?after=${after}`));
    } catch (error) {
      if (error.status !== 404) throw error;
      session.absent = true; // made by the first message
      setConnection("live");
      break;
    }
    session.absent = false;
    typing = page.typing;
    for (const message of page.messages) found.set(message.message_id, message);
    const last = Math.max(after, ...page.messages.map((message) => message.seq));
    if (last === after) break;
    after = last;
  }
  if (state.session !== session) return;
  const fresh = (id) => (session.stamps.get(id) ?? 0) > started;
  for (const id of session.messages.keys()) {
    if (!found.has(id) && !fresh(id)) {
      session.messages.delete(id);
      session.nodes.get(id)?.remove();
      session.nodes.delete(id);
    }
  }
  $("messages").setAttribute("aria-busy", "true"); // history is not read out
  for (const message of found.values()) if (!fresh(message.message_id)) store(session, message);
  for (const entry of state.outbox.values()) if (entry.chat_id === session.chatId) drawMessage(session, entry.message_id);
  session.loaded = true;
  settle(session);
  showTyping(typing);
  $("messages").removeAttribute("aria-busy");
}

function setConnection(value) {
  const words = { connecting: "Connecting…", live: "Live", reconnecting: "Connection lost. Reconnecting…" };
  $("connection").dataset.state = value;
  $("connection").textContent = words[value];
  $("agent-state").toggleAttribute("data-stale", value === "reconnecting");
}

// ---- Messages -----------------------------------------------------------------------------

function receive(session, message) {
  session.version += 1;
  session.stamps.set(message.message_id, session.version);
  store(session, message);
  settle(session);
  if (message.direction === "out") announceSoon(message);
  if (!session.stuck && message.direction === "out") $("to-latest").hidden = false;
}

function store(session, message) {
  const known = session.messages.get(message.message_id);
  session.lastSeq = Math.max(session.lastSeq, message.seq);
  session.messages.set(message.message_id, message);
  if (state.outbox.delete(message.message_id)) forget(message.message_id);
  if (!known || JSON.stringify(known) !== JSON.stringify(message)) drawMessage(session, message.message_id);
}

/** What to show for an id: the server's record, or else our own copy that is under way. */
function viewOf(session, id) {
  const entry = state.outbox.get(id);
  return session.messages.get(id) ?? (entry && { ...entry, direction: "in", user_id: state.me.user_id, user_name: state.me.user_name, local: entry });
}

function drawMessage(session, id) {
  const message = viewOf(session, id);
  if (!message || state.session !== session) return;
  let node = session.nodes.get(id);
  const focused = node?.contains(document.activeElement) ? document.activeElement.dataset : null;
  if (!node) {
    node = el("article", { "data-message-id": id });
    session.nodes.set(id, node);
  }
  const mine = message.direction === "in" && message.user_id === state.me.user_id;
  const author = mine ? "You" : message.kind === "notice" ? "Front desk" : message.user_name || (message.direction === "out" ? "Agent" : message.user_id || "Someone");
  const canReply = !message.local && !message.deleted && !message.draft;
  const failed = message.local?.status === "failed";
  node.className = `message ${mine ? "mine" : message.direction === "out" ? "agent-message" : "theirs"}`;
  node.dataset.direction = message.direction;
  node.dataset.author = author;
  node.dataset.at = message.at;
  node.toggleAttribute("data-draft", Boolean(message.draft));
  node.toggleAttribute("data-failed", failed);
  node.toggleAttribute("data-pending", message.local?.status === "sending");
  if (message.kind) node.dataset.kind = message.kind;
  if (message.direction === "out") node.setAttribute("aria-live", "off"); // read out once, when it stands still

  const bubble = el("div", { class: "bubble" });
  if (message.reply_to) bubble.append(quoteOf(session, message.reply_to));
  if (message.deleted) bubble.append(el("p", { class: "message-text gone" }, "This message was deleted."));
  else {
    if (message.text) bubble.append(el("div", { class: "message-text", dir: "auto" }, richText(message.text)));
    for (const item of message.media ?? []) bubble.append(message.local ? fileChip(item) : mediaNode(item));
    if (message.prompt) bubble.append(promptNode(session, message));
  }
  node.replaceChildren(
    el("header", { class: "message-head" }, el("span", { class: "author" }, author), el("time", { datetime: new Date(message.at).toISOString() }, clock(message.at))),
    el("div", { class: "line" }, bubble, canReply && el("button", { type: "button", class: "icon-button small reply", "data-action": "reply", title: "Reply", "aria-label": `Reply to: ${shorten(message.text || "this message", 40)}`, onclick: () => setReply(message) }, icon("reply"))),
    ...reactionNodes(message),
    footOf(session, message, mine),
  );
  const withheld = state.verdicts.get(id);
  if (withheld) node.append(el("p", { class: "verdict", role: "note" }, withheld));
  if (failed) {
    node.append(el("div", { class: "unsent", role: "alert" }, el("span", {}, `Not sent. ${message.local.error}`),
      el("button", { type: "button", class: "button small", "data-action": "retry", onclick: () => deliver(message.local) }, "Retry"),
      el("button", { type: "button", class: "button small quiet", onclick: () => discard(session, message.local) }, "Discard")));
  }
  place(node, message.seq ?? Infinity);
  if (focused?.optionId) node.querySelector(`[data-option-id="${CSS.escape(focused.optionId)}"]`)?.focus();
  else if (focused?.action) node.querySelector(`[data-action="${focused.action}"]`)?.focus();
  retitle(id);
}

function place(node, seq) {
  const list = $("messages");
  if (node.parentNode === list && node.seq === seq) return;
  node.seq = seq;
  node.remove();
  let before = list.lastElementChild;
  while (before && before.seq > seq) before = before.previousElementSibling;
  if (before) before.after(node);
  else list.prepend(node);
}

/** After one or many changes: day lines, runs of one author, the empty page, the scroll. */
function settle(session) {
  let previous = null;
  for (const node of $("messages").children) {
    const day = dayOf(Number(node.dataset.at));
    const newDay = !previous || dayOf(Number(previous.dataset.at)) !== day;
    if (newDay) node.dataset.day = day;
    else delete node.dataset.day;
    node.toggleAttribute("data-continues", !newDay && previous.dataset.author === node.dataset.author && node.dataset.at - previous.dataset.at < 300000);
    previous = node;
  }
  $("empty").hidden = !session.loaded || previous !== null;
  state.seen.set(session.chatId, session.lastSeq);
  stick();
}

function stick() {
  if (state.session?.stuck) $("messages").scrollTop = $("messages").scrollHeight;
}

function quoteOf(session, reply) {
  const target = typeof reply === "string" ? viewOf(session, reply) : reply;
  const jump = () => session.nodes.get(reply)?.scrollIntoView({ block: "center" });
  return el("button", { type: "button", class: "quote", onclick: jump, "aria-label": `In reply to: ${target?.text ?? "an earlier message"}` }, shorten(target?.text || "An earlier message", 120));
}

function promptNode(session, message) {
  const { prompt } = message;
  const label = { approval: "The agent asks for approval", clarify: "The agent asks" }[prompt.kind] ?? "The agent offers a choice";
  const group = el("div", { class: "prompt", role: "group", "aria-label": label, "data-prompt-id": prompt.prompt_id });
  const error = el("p", { class: "error", role: "alert", hidden: true });
  const press = async (event, option) => {
    if (group.dataset.busy || prompt.chosen) return;
    group.dataset.busy = event.currentTarget.dataset.busy = "yes";
    error.hidden = true;
    try {
      await api("POST", chatPath(session.chatId, `/messages/${encodeURIComponent(message.message_id)}/press`), { prompt_id: prompt.prompt_id, option_id: option.id, user_id: state.me.user_id });
      group.dataset.sent = "yes";
    } catch (problem) {
      error.textContent = `That press did not arrive. ${reason(problem)}`;
      error.hidden = false;
      for (const node of [group, ...group.children]) delete node.dataset.busy;
    }
  };
  for (const option of prompt.options) {
    const chosen = prompt.chosen === option.id;
    group.append(el("button", { type: "button", class: "button option", "data-option-id": option.id, "data-style": option.style, "data-chosen": chosen,
      "aria-disabled": prompt.chosen ? "true" : null, "aria-pressed": prompt.chosen ? String(chosen) : null, onclick: (event) => press(event, option) }, option.label));
  }
  return el("div", {}, group, error);
}

function footOf(session, message, mine) {
  const foot = el("footer", { class: "message-foot" });
  const status = mine ? statusOf(session.chatId, message) : null;
  if (message.thread_id) foot.append(el("span", {}, `thread ${shorten(message.thread_id, 16)}`));
  if (message.edited && !message.deleted && !message.draft) foot.append(el("span", {}, "edited"));
  if (status) foot.append(el("button", { type: "button", class: "status", "data-status": status.step, "data-action": "trail", title: "What the server did with it", onclick: () => { openPane("desk"); pickTrail(message.message_id); } }, status.text));
  return foot;
}

function statusOf(chatId, message) {
  if (message.local?.status === "sending") return { step: "sending", text: "Sending…" };
  if (message.local?.status === "failed") return null;
  const step = lastStep(chatId, message.message_id) ?? (state.verdicts.has(message.message_id) ? "withheld" : message.local && "accepted");
  return step ? { step, text: STATUS[step] } : null;
}

function timelineStep(session, step) {
  const messageId = addStep(session.chatId, step);
  if (messageId && STATUS[step.step]) drawMessage(session, messageId);
}

function titleOf(session, id) {
  const message = viewOf(session, id);
  return message && shorten(message.text || (message.media?.length ? "A file" : "A message"), 70);
}

/** Screen readers hear an answer once, when it has stopped changing, not at every edit. */
let announceTimer;
function announceSoon(message) {
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => {
    if (message.draft || message.deleted) return;
    const options = message.prompt && !message.prompt.chosen ? ` Choices: ${message.prompt.options.map((option) => option.label).join(", ")}.` : "";
    $("announcer").textContent = `${message.user_name || "Agent"}: ${message.text}${options}`;
  }, 900);
}

function showTyping(typing) {
  $("typing").hidden = !typing;
  stick();
}

// ---- Sending ------------------------------------------------------------------------------

let sending = Promise.resolve(); // one after the other, so that order is kept

function submit(text, media = [], replyTo = null) {
  const { session } = state;
  const entry = { chat_id: session.chatId, message_id: randomId(), text, media, at: Date.now(), reply_to: replyTo?.message_id, thread_id: replyTo?.thread_id, status: "sending" };
  session.stuck = true;
  deliver(entry);
}

function deliver(entry) {
  entry.status = "sending";
  state.outbox.set(entry.message_id, entry);
  remember(entry);
  redraw(entry);
  sending = sending.then(() => post(entry));
}

async function post(entry) {
  const { session } = state;
  const body = { user_id: state.me.user_id, user_name: state.me.user_name, text: entry.text, chat_type: state.chats.get(entry.chat_id)?.chat_type,
    message_id: entry.message_id, reply_to: entry.reply_to, thread_id: entry.thread_id, media: entry.media.length ? entry.media.map(({ id }) => ({ id })) : undefined };
  try {
    const reply = await api("POST", chatPath(entry.chat_id, "/messages"), body);
    entry.status = "accepted";
    forget(entry.message_id);
    if (reply?.verdict?.outcome === "withheld") state.verdicts.set(entry.message_id, reply.verdict.text || "The server withheld this message.");
    if (session.absent && session === state.session) follow(session);
    if (!state.chats.has(entry.chat_id)) loadChats().catch(() => {});
  } catch (error) {
    entry.status = "failed";
    entry.error = reason(error);
  }
  redraw(entry);
}

function redraw(entry) {
  const { session } = state;
  if (session.chatId !== entry.chat_id) return;
  drawMessage(session, entry.message_id);
  settle(session);
}

function discard(session, entry) {
  state.outbox.delete(entry.message_id);
  forget(entry.message_id);
  session.nodes.get(entry.message_id)?.remove();
  session.nodes.delete(entry.message_id);
  settle(session);
  $("composer-input").focus();
}

function setReply(message) {
  state.replyTo = message;
  $("reply-bar").hidden = !message;
  if (!message) return;
  $("reply-text").textContent = `Reply to: ${shorten(message.text || "a message", 90)}`;
  $("composer-input").focus();
}

function growComposer() {
  const input = $("composer-input");
  input.rows = Math.min(8, input.value.split("\n").length); // older browsers; newer ones size it by its content
  const waiting = state.attachments.some((file) => file.status !== "ready");
  $("send").disabled = waiting || (!input.value.trim() && state.attachments.length === 0);
}

function sendComposed() {
  growComposer();
  if ($("send").disabled) return;
  submit($("composer-input").value, state.attachments.map(({ id, name, size }) => ({ id, filename: name, size })), state.replyTo);
  $("composer-input").value = "";
  state.attachments = [];
  setReply(null);
  drawAttachments();
}

// Files go up as soon as they are chosen; the message then only names them.
function attachFiles(files) {
  for (const blob of files) {
    const file = { blob, name: blob.name || "pasted file", size: blob.size, status: "uploading" };
    state.attachments.push(file);
    upload(file);
  }
  $("file-input").value = "";
}

async function upload(file) {
  file.status = "uploading";
  drawAttachments();
  try {
    if (file.size > MEDIA_LIMIT) throw new Problem(413, { detail: "Larger than 25 MB." });
    const reply = await api("POST", "/chat/v1/media", file.blob, { "content-type": file.blob.type || "application/octet-stream", "x-media-filename": encodeURIComponent(file.name) });
    file.id = reply.id;
    file.status = "ready";
  } catch (error) {
    file.status = "failed";
    file.error = reason(error);
  }
  drawAttachments();
}

function drawAttachments() {
  const remove = (file) => {
    state.attachments = state.attachments.filter((other) => other !== file);
    drawAttachments();
    $("composer-input").focus();
  };
  $("attachments").hidden = state.attachments.length === 0;
  $("attachments").replaceChildren(...state.attachments.map((file) => el("li", { "data-status": file.status }, icon("file"),
    el("span", {}, file.name), el("small", {}, { uploading: "uploading…", ready: fileSize(file.size), failed: file.error }[file.status]),
    file.status === "failed" && el("button", { type: "button", class: "link", onclick: () => upload(file) }, "Retry"),
    el("button", { type: "button", class: "icon-button small", "aria-label": `Remove ${file.name}`, onclick: () => remove(file) }, icon("close")))));
  growComposer();
}

// ---- Chats --------------------------------------------------------------------------------

async function loadChats() {
  const chats = [];
  for (let after = ""; ; after = chats.at(-1).chat_id) {
    const page = await api("GET", `/chat/v1/chats?after=${encodeURIComponent(after)}`);
    chats.push(...page.chats);
    if (!page.more || chats.length >= CHATS_SHOWN_MAX) break;
  }
  state.chats = new Map(chats.map((chat) => [chat.chat_id, chat]));
  for (const chat of chats) if (!state.seen.has(chat.chat_id)) state.seen.set(chat.chat_id, chat.last_seq ?? 0);
  drawChats();
}

const chatName = (chatId) => state.chats.get(chatId)?.name || chatId;

function drawChats() {
  const current = state.session?.chatId;
  const ids = new Set([DEFAULT_CHAT, ...state.chats.keys(), ...(current ? [current] : [])]);
  const focused = $("chat-list").contains(document.activeElement) ? document.activeElement.dataset.chatId : null;
  $("chat-list").replaceChildren(...[...ids].map((id) => {
    const unread = id !== current && (state.chats.get(id)?.last_seq ?? 0) > (state.seen.get(id) ?? 0);
    return el("li", {}, el("button", { type: "button", class: "chat-item", "data-chat-id": id, "aria-current": id === current ? "page" : null, onclick: () => openChat(id) },
      el("span", { class: "hash", "aria-hidden": "true" }, "#"), el("span", { class: "chat-item-name" }, chatName(id)), unread && el("span", { class: "unread" }, el("span", { class: "visually-hidden" }, "new messages"))));
  }));
  if (focused) $("chat-list").querySelector(`[data-chat-id="${CSS.escape(focused)}"]`)?.focus();
  if (!current) return;
  $("chat-name").textContent = chatName(current);
  document.title = `${chatName(current)} · Frontdesk`;
}

function slugFor(name) {
  const slug = name.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40) || "chat";
  let id = slug;
  for (let n = 2; state.chats.has(id); n += 1) id = `${slug}-${n}`;
  return id;
}

function toggleNewChat(open) {
  $("new-chat-form").hidden = !open;
  $("new-chat").setAttribute("aria-expanded", String(open));
  $("new-chat-error").hidden = true;
  if (open) $("new-chat-name").focus();
  else $("new-chat-name").value = "";
}

async function createChat(event) {
  event.preventDefault();
  const name = $("new-chat-name").value.trim();
  if (!name) return;
  const id = slugFor(name);
  try {
    await api("PUT", chatPath(id), { name });
    toggleNewChat(false);
    await loadChats();
    openChat(id);
    $("composer-input").focus();
  } catch (error) {
    $("new-chat-error").textContent = reason(error);
    $("new-chat-error").hidden = false;
  }
}

// ---- Side panes on narrow screens ---------------------------------------------------------

const PANES = { chats: ["chats-pane", "toggle-chats"], desk: ["desk-pane", "toggle-desk"] };

function openPane(name) {
  const [pane, toggle] = PANES[name];
  if (getComputedStyle($(pane)).position !== "fixed") return; // it is on the screen already
  closePane();
  document.body.dataset.pane = name;
  $(toggle).setAttribute("aria-expanded", "true");
  $("chat-pane").inert = true;
  $(pane).focus();
}

function closePane() {
  const open = document.body.dataset.pane;
  if (!open) return;
  delete document.body.dataset.pane;
  $("chat-pane").inert = false;
  $(PANES[open][1]).setAttribute("aria-expanded", "false");
  $(PANES[open][1]).focus();
}

// ---- Start --------------------------------------------------------------------------------

function showLogin() {
  $("app").hidden = true;
  $("login").hidden = false;
  if (state.session) leave(state.session);
  $("login-token").focus();
}

async function login(event) {
  event.preventDefault();
  const reply = await fetch("/chat/login", { method: "POST", credentials: "same-origin", headers: { "content-type": "application/json" }, body: JSON.stringify({ token: $("login-token").value.trim() }) }).catch(() => null);
  if (reply?.ok) return location.replace("/chat");
  $("login-error").textContent = !reply ? "The server cannot be reached." : (await reply.json().catch(() => null))?.detail ?? "That token was not accepted.";
  $("login-error").hidden = false;
}

function listen() {
  const input = $("composer-input");
  $("login-form").addEventListener("submit", login);
  $("composer").addEventListener("submit", (event) => { event.preventDefault(); sendComposed(); });
  input.addEventListener("input", growComposer);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    sendComposed();
  });
  input.addEventListener("paste", (event) => event.clipboardData.files.length && attachFiles([...event.clipboardData.files]));
  $("chat-pane").addEventListener("dragover", (event) => event.preventDefault());
  $("chat-pane").addEventListener("drop", (event) => { event.preventDefault(); attachFiles([...event.dataTransfer.files]); });
  $("attach").addEventListener("click", () => $("file-input").click());
  $("file-input").addEventListener("change", () => attachFiles([...$("file-input").files]));
  $("reply-cancel").addEventListener("click", () => { setReply(null); input.focus(); });
  $("stop").addEventListener("click", () => submit("/stop"));
  $("new-chat").addEventListener("click", () => toggleNewChat($("new-chat-form").hidden));
  $("new-chat-cancel").addEventListener("click", () => { toggleNewChat(false); $("new-chat").focus(); });
  $("new-chat-form").addEventListener("submit", createChat);
  $("toggle-chats").addEventListener("click", () => openPane("chats"));
  $("toggle-desk").addEventListener("click", () => openPane("desk"));
  for (const node of document.querySelectorAll("[data-close-pane]")) node.addEventListener("click", closePane);
  document.addEventListener("keydown", (event) => event.key === "Escape" && closePane());
  $("to-latest").addEventListener("click", () => { state.session.stuck = true; stick(); input.focus(); });
  $("messages").addEventListener("load", stick, true); // pictures arrive late
  $("messages").addEventListener("scroll", () => {
    const list = $("messages");
    state.session.stuck = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
    if (state.session.stuck) $("to-latest").hidden = true;
  });
  new ResizeObserver(stick).observe($("messages"));
  window.addEventListener("online", () => state.session && $("connection").dataset.state === "reconnecting" && follow(state.session));
  document.addEventListener("visibilitychange", () => !document.hidden && state.session?.loaded && resync(state.session).catch(() => {}));
  setInterval(() => !document.hidden && !$("app").hidden && loadChats().catch(() => {}), 15000);
}

async function start() {
  listen();
  try {
    state.me = await api("GET", "/chat/v1/me");
    const wanted = new URLSearchParams(location.hash.slice(1)).get("chat");
    recallOutbox();
    await loadChats();
    $("who-name").textContent = state.me.user_name || state.me.user_id;
    $("who-mark").textContent = (state.me.user_name || state.me.user_id).slice(0, 1).toUpperCase();
    $("who-tenant").textContent = state.me.tenant;
    for (const { instance, state: value } of state.me.instances) setAgent(instance, value);
    $("app").hidden = false;
    openChat(wanted || DEFAULT_CHAT);
    $("composer-input").focus();
  } catch (error) {
    if (error.status === 401) return;
    $("fatal").textContent = `The chat could not start. ${reason(error)} Reload the page to try again.`;
    $("fatal").hidden = false;
  }
}

start();
