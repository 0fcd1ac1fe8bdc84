/** The name of a conversation, as in `crates/wire/src/session_key.rs`: the server names the turn of a `/stop` with it. */

import type { Json } from "./host.js";
import { text } from "./message.js";

export function sessionKey(source: Json): string {
  const platform = String(source.platform ?? "");
  const kind = String(source.chat_type ?? "dm");
  const profile = text(source.profile);
  const number = (id: string | undefined): string | undefined => (platform === "whatsapp" && id ? whatsappNumber(id) : id);
  const userId = text(source.user_id_alt) ?? text(source.user_id);
  const user = number(userId) || userId;
  const chatId = text(source.chat_id);
  const thread = text(source.thread_id);
  // In a group, each user has a session, but those in a thread share one.
  const rest = kind === "dm" ? [number(chatId) || user, thread] : [chatId, thread ?? user];
  const namespace = profile === undefined || profile === "default" ? "main" : profile;
  return ["agent", namespace, platform, kind, ...rest.filter((part) => part !== undefined)].join(":");
}

/** `4912` of `+4912:7@s.whatsapp.net`. Gateways strip an id twice. */
function whatsappNumber(id: string): string {
  const strip = (it: string): string =>
    it.replace(/^[\p{White_Space}\x1c-\x1f]+|[\p{White_Space}\x1c-\x1f]+$/gu, "").replace("+", "").replace(/[:@].*$/s, "");
  return strip(strip(id));
}
