// The small parts that the chat page is built from: elements, icons, times and sizes, text with
// links and code, files, reactions, and the words for the states of agents and messages.
// Nothing here keeps state or talks to the server. Text is always set as text, never as markup.

/** Builds an element. Children are nodes or plain text; `on…` attributes are listeners. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child || child === 0));
  return node;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "web-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const clock = (at, seconds) =>
  new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined });
export const dayOf = (at) => new Date(at).toLocaleDateString([], { weekday: "long", day: "numeric", month: "long" });
export const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60000)} min`);
export const fileSize = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1048576 ? `${Math.round(bytes / 1024)} KB` : `${(bytes / 1048576).toFixed(1)} MB`);
export const shorten = (text, limit) => (text.length > limit ? `${text.slice(0, limit - 1).trimEnd()}…` : text);

// ---- Contents of a message ----------------------------------------------------------------

/** Text with code fences, `code`, **bold** and links, built from nodes. */
export function richText(text) {
  const out = document.createDocumentFragment();
  text.split("```").forEach((part, index) => {
    if (index % 2 === 1) {
      out.append(el("pre", { tabindex: "0" }, el("code", {}, part.replace(/^[\w+#.-]*\n/, "").replace(/\n$/, ""))));
      return;
    }
    const plain = part.replace(index > 0 ? /^\n/ : /^$/, "");
    let done = 0;
    for (const hit of plain.matchAll(/`([^`\n]+)`|\*\*([^*\n]+)\*\*|https?:\/\/[^\s<>"'`)\]]*[^\s<>"'`)\].,;:!?]/g)) {
      out.append(plain.slice(done, hit.index));
      if (hit[1]) out.append(el("code", {}, hit[1]));
      else if (hit[2]) out.append(el("strong", {}, hit[2]));
      else out.append(el("a", { href: hit[0], target: "_blank", rel: "noopener noreferrer" }, hit[0]));
      done = hit.index + hit[0].length;
    }
    out.append(plain.slice(done));
  });
  return out;
}

export const fileChip = (item) => el("p", { class: "file" }, icon("file"), el("span", {}, item.filename || "file"));

export function mediaNode(item) {
  const url = `/chat/v1/media/${encodeURIComponent(item.id)}`;
  const name = item.filename || item.kind || "file";
  const is = (kind) => item.kind === kind || (item.mime ?? "").startsWith(`${kind}/`);
  const link = (...children) => el("a", { href: url, download: name, class: "file", "aria-label": `Download ${name}` }, ...children);
  let body;
  if (is("image")) body = el("img", { src: url, alt: item.caption || name, loading: "lazy" });
  else if (is("video")) body = el("video", { src: url, controls: true, preload: "metadata", "aria-label": name });
  else if (is("audio") || item.kind === "voice") body = el("audio", { src: url, controls: true, preload: "metadata", "aria-label": name });
  else body = null;
  const label = link(icon("file"), el("span", {}, name), item.size ? el("small", {}, fileSize(item.size)) : null);
  return el("figure", { class: "media", "data-kind": item.kind }, body, el("figcaption", {}, item.caption && el("span", {}, item.caption), label));
}

export function reactionNodes(message) {
  const counts = new Map();
  for (const { emoji, by } of message.reactions ?? []) counts.set(emoji, [...(counts.get(emoji) ?? []), by]);
  if (counts.size === 0) return [];
  const chips = [...counts].map(([emoji, people]) => el("li", { title: people.join(", ") }, emoji, people.length > 1 && el("small", {}, String(people.length)), el("span", { class: "visually-hidden" }, ` from ${people.join(", ")}`)));
  return [el("ul", { class: "reactions", "aria-label": "Reactions" }, ...chips)];
}

// ---- Words --------------------------------------------------------------------------------

export const AGENT = {
  awake: { word: "Awake", icon: "sun", text: "Connected. Messages go straight to it." },
  asleep: { word: "Asleep", icon: "moon", text: "The next message wakes it." },
  waking: { word: "Waking", icon: "dawn", text: "Its wake URL was called. Messages are stored until it connects." },
  unknown: { word: "Unknown", icon: "unknown", text: "No agent has connected yet." },
};

export const STEPS = {
  accepted: "Accepted", withheld: "Withheld", sent: "Sent", acked: "Acknowledged", waking: "Waking", wake_failed: "Wake failed",
  awake: "Awake", asleep: "Asleep", notice: "Notice", interrupted: "Interrupted", not_interrupted: "Not interrupted", action: "Agent acted",
};
export const STATUS = {
  accepted: "Accepted", withheld: "Withheld", waking: "Waking the agent", wake_failed: "Agent not reached, kept", sent: "Sent to the agent", acked: "Received by the agent", interrupted: "Interrupted", not_interrupted: "Not interrupted, send /stop again",
};
