// The API page: reads /openapi.json and lays out every operation with its method, path, summary,
// authentication, parameters and the shapes of its request and replies. Text only, no markup.

const $ = (id) => document.getElementById(id);
const METHODS = ["get", "post", "put", "patch", "delete"];

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter(Boolean));
  return node;
}

/** Follows a local reference such as "#/components/schemas/Chat". */
function resolve(api, value) {
  for (let depth = 0; value?.$ref && depth < 20; depth += 1) {
    value = value.$ref.slice(2).split("/").reduce((at, key) => at?.[key.replaceAll("~1", "/").replaceAll("~0", "~")], api);
  }
  return value ?? {};
}

/** A schema as an indented sketch: one line for each field, with its type and what it means. */
function sketch(api, raw, indent = "", seen = []) {
  const name = raw?.$ref?.split("/").at(-1);
  if (name && seen.includes(name)) return name;
  const schema = resolve(api, raw);
  const path = name ? [...seen, name] : seen;
  const parts = schema.oneOf ?? schema.anyOf;
  if (parts) return parts.map((part) => sketch(api, part, indent, path)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.items) return `[${sketch(api, schema.items, indent, path)}]`;
  const all = (schema.allOf ?? []).map((part) => resolve(api, part));
  const fields = Object.assign({}, ...all.map((part) => part.properties ?? {}), schema.properties);
  const required = new Set([...all, schema].flatMap((part) => part.required ?? []));
  if (Object.keys(fields).length > 0) {
    const lines = Object.entries(fields).map(([key, field]) => {
      const note = resolve(api, field).description;
      return `${indent}  ${key}${required.has(key) ? "" : "?"}: ${sketch(api, field, `${indent}  `, path)}${note ? `   // ${note.split("\n")[0]}` : ""}`;
    });
    return `{\n${lines.join("\n")}\n${indent}}`;
  }
  if (schema.additionalProperties && typeof schema.additionalProperties === "object") return `{ [key]: ${sketch(api, schema.additionalProperties, indent, path)} }`;
  const type = [schema.type ?? "any"].flat().join(" | ");
  return schema.format ? `${type} (${schema.format})` : type;
}

function bodies(api, content = {}) {
  return Object.entries(content).map(([type, { schema }]) => el("pre", { tabindex: "0", "aria-label": type }, `${type}\n${schema ? sketch(api, schema) : "raw bytes"}`));
}

function authOf(api, operation) {
  const needs = operation.security ?? api.security ?? [];
  if (needs.length === 0) return "none";
  const schemes = api.components?.securitySchemes ?? {};
  const one = (name) => [name, schemes[name]?.scheme ?? schemes[name]?.type, schemes[name]?.description].filter(Boolean).join(", ");
  return needs.map((need) => Object.keys(need).map(one).join(" and ") || "none").join("; or ");
}

function operationNode(api, path, method, operation, shared) {
  const inside = el("div", {});
  const parameters = [...(shared ?? []), ...(operation.parameters ?? [])].map((parameter) => resolve(api, parameter));
  if (operation.description) inside.append(el("p", {}, operation.description));
  inside.append(el("h3", {}, "Authentication"), el("p", {}, authOf(api, operation)));
  if (parameters.length > 0) {
    const rows = parameters.flatMap((parameter) => [el("dt", {}, el("code", {}, parameter.name)), el("dd", {}, [parameter.in, sketch(api, parameter.schema), parameter.description].filter(Boolean).join(" · "))]);
    inside.append(el("h3", {}, "Parameters"), el("dl", {}, ...rows));
  }
  const request = resolve(api, operation.requestBody);
  if (request.content) inside.append(el("h3", {}, "Request body"), ...bodies(api, request.content));
  for (const [status, raw] of Object.entries(operation.responses ?? {})) {
    const reply = resolve(api, raw);
    inside.append(el("h3", {}, `Reply ${status}${reply.description ? `: ${reply.description}` : ""}`), ...bodies(api, reply.content));
  }
  const summary = el("summary", {}, el("span", { class: "method", "data-method": method }, method.toUpperCase()), el("code", {}, path), el("span", {}, operation.summary ?? ""));
  const node = el("details", { class: "operation" }, summary, inside);
  node.words = `${method} ${path} ${operation.summary ?? ""} ${operation.description ?? ""}`.toLowerCase();
  return node;
}

function applyFilter() {
  const wanted = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const section of $("operations").children) {
    let any = false;
    for (const node of section.querySelectorAll(".operation")) {
      node.hidden = !wanted.every((word) => node.words.includes(word));
      if (!node.hidden) shown += 1;
      any ||= !node.hidden;
    }
    section.hidden = !any;
  }
  $("count").textContent = `${shown} operations`;
}

async function start() {
  try {
    const reply = await fetch("/openapi.json", { headers: { accept: "application/json" } });
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    const api = await reply.json();
    const sections = new Map();
    for (const [path, item] of Object.entries(api.paths ?? {})) {
      for (const method of METHODS.filter((name) => item[name])) {
        const tag = item[method].tags?.[0] ?? `/${path.split("/")[1]}`;
        if (!sections.has(tag)) sections.set(tag, el("section", { "aria-label": tag }, el("h2", {}, tag)));
        sections.get(tag).append(operationNode(api, path, method, item[method], item.parameters));
      }
    }
    $("title").textContent = api.info?.title ?? "API";
    $("about").replaceChildren([api.info?.description, api.info?.version && `Version ${api.info.version}.`].filter(Boolean).join(" "), " Source: ", el("a", { href: "/openapi.json" }, "/openapi.json"));
    $("operations").replaceChildren(...sections.values());
    $("filter").addEventListener("input", applyFilter);
    applyFilter();
  } catch (error) {
    $("about").textContent = `The description of the API could not be read: ${error.message}.`;
  }
}

start();
