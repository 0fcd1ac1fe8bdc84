//! Shared parts of these tests: agents that manage themselves, users in groups, and the server's explanations.

use frontdesk_core::directory::View;
use serde_json::{Value, json};

use crate::harness::{GatewayAccount, Harness, Reply, Socket};

/// The built-in chat's name on the wire.
pub(crate) const PLATFORM: &str = "relay";

// ---- agents -----------------------------------------------------------------------------------

/// `verb` is the path below `/manage`.
pub(crate) async fn manage(harness: &Harness, account: &GatewayAccount, verb: &str, body: Value) -> Reply {
    harness.post(&format!("/manage/{verb}"), &account.bearer(), &body).await
}

/// The same, and it must succeed.
pub(crate) async fn managed(harness: &Harness, account: &GatewayAccount, verb: &str, body: Value) {
    assert_eq!(manage(harness, account, verb, body).await.expect(200), json!({ "ok": true }), "{verb}");
}

/// A channel of the built-in chat.
pub(crate) fn channel(id: &str) -> Value {
    json!({ "platform": PLATFORM, "scope_id": "", "channel_id": id })
}

pub(crate) async fn set_policy(harness: &Harness, account: &GatewayAccount, policy: Value) {
    let mut policy = policy;
    policy["platform"] = json!(PLATFORM);
    assert_eq!(harness.post("/relay/policy", &account.bearer(), &policy).await.expect(200), json!({ "ok": true }));
}

/// The agent holds this channel and accepts messages of everyone in it.
pub(crate) async fn open_to_all(harness: &Harness, account: &GatewayAccount, chat: &str) {
    managed(harness, account, "scope", channel(chat)).await;
    managed(harness, account, "principal", json!({ "policy": "any" })).await;
}

/// A code that links its sender.
pub(crate) async fn code_of(harness: &Harness, account: &GatewayAccount) -> String {
    let offer = manage(harness, account, "link", json!({ "platform": PLATFORM })).await.expect(200);
    offer["code"].as_str().unwrap().to_owned()
}

/// Another gateway of an existing instance.
pub(crate) async fn second_gateway(harness: &Harness, account: &GatewayAccount, gateway: &str) -> GatewayAccount {
    let ask = json!({ "gatewayId": gateway, "platform": PLATFORM, "instanceId": account.gateway });
    let reply = harness.post("/relay/provision", &account.identity, &ask).await.expect(200);
    GatewayAccount { gateway: gateway.into(), secret: reply["secret"].as_str().unwrap().to_owned(), ..account.clone() }
}

/// Sets the wake URL of the gateway. Its secret stays the same.
pub(crate) async fn set_wake_url(harness: &Harness, account: &GatewayAccount, url: &str) {
    let ask = json!({ "gatewayId": account.gateway, "platform": PLATFORM, "wakeUrl": url });
    let reply = harness.post("/relay/provision", &account.identity, &ask).await.expect(200);
    assert_eq!(reply["secret"], json!(account.secret));
}

// ---- users ------------------------------------------------------------------------------------

/// Posts a message in a group; `more` has further fields of the message.
pub(crate) async fn say(
    harness: &Harness,
    account: &GatewayAccount,
    chat: &str,
    user: &str,
    text: &str,
    more: Value,
) -> Value {
    let mut body = json!({ "user_id": user, "user_name": name_of(user), "text": text, "chat_type": "group" });
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    harness.say_as(account, chat, body).await.expect(202)
}

pub(crate) fn name_of(user: &str) -> String {
    format!("{user} by name")
}

/// No further fields.
pub(crate) const PLAIN: Value = Value::Null;

/// Addressed to the bot.
pub(crate) fn to_the_bot() -> Value {
    json!({ "mentions_bot": true })
}

/// Posts a direct message.
pub(crate) async fn write(harness: &Harness, account: &GatewayAccount, chat: &str, user: &str, text: &str) -> Value {
    harness.say_as(account, chat, json!({ "user_id": user, "text": text })).await.expect(202)
}

pub(crate) async fn members(harness: &Harness, account: &GatewayAccount, chat: &str, members: &[&str]) {
    let path = format!("/chat/v1/chats/{chat}");
    harness.call("PUT", &path, &account.chat, &json!({ "members": members })).await.expect(200);
}

// ---- results ----------------------------------------------------------------------------------

pub(crate) async fn explain(harness: &Harness, posted: &Value) -> Value {
    let path = format!("/events/{}/explain", posted["event_id"].as_str().unwrap());
    harness.admin("GET", &path, &Value::Null).await.expect(200)
}

/// `ann+owner/linked team-principal/policy`: the considered agents and the deciding rules.
pub(crate) async fn ruling(harness: &Harness, posted: &Value) -> String {
    let response = explain(harness, posted).await;
    let line = |line: &Value| {
        let text = |field: &str| line[field].as_str().unwrap().to_owned();
        let name = if line["instance"] == "" { "nobody".into() } else { text("instance") };
        let sign = if line["outcome"] == "delivered" { "+" } else { "-" };
        format!("{name}{sign}{}/{}", text("layer"), text("rule"))
    };
    response["instances"].as_array().unwrap().iter().map(line).collect::<Vec<_>>().join(" ")
}

/// Takes the next delivery, which must have this text, and acks it; returns its event.
pub(crate) async fn receives(socket: &mut Socket, text: &str) -> Value {
    let frame = socket.event().await;
    assert_eq!(frame.text(), text);
    socket.ack(&frame).await;
    frame.json["event"].clone()
}

/// Nothing unread was received and nothing is pending: the ledger has exactly these rows.
pub(crate) async fn has_had(harness: &Harness, account: &GatewayAccount, socket: &mut Socket, rows: usize) {
    assert_eq!(socket.unread().await, 0, "{}", account.gateway);
    assert_eq!(harness.mail(account).await.len(), rows, "{}", account.gateway);
}

/// The last line of a chat, which must be one of the server.
pub(crate) async fn answer(harness: &Harness, account: &GatewayAccount, chat: &str) -> String {
    let line = harness.history(account, chat).await.pop().unwrap();
    assert_eq!((&line["direction"], &line["kind"]), (&json!("out"), &json!("notice")), "{line}");
    line["text"].as_str().unwrap().to_owned()
}

// ---- records ----------------------------------------------------------------------------------

/// All records that the management routes can change, as text.
pub(crate) fn facts(harness: &Harness) -> Vec<String> {
    let mut all = harness.app.desk.directory().read(|view: &View| {
        let kinds = ["binding", "gateway", "grant", "principal", "policy", "dm_default", "link_code"];
        let all = view.facts().into_iter().filter(|it| kinds.contains(&it.kind()));
        all.map(|it| format!("{it:?}")).collect::<Vec<String>>()
    });
    all.sort();
    all
}

/// Those of one instance, which each of them names.
pub(crate) fn facts_of(harness: &Harness, tenant: &str, instance: &str) -> Vec<String> {
    let named = [format!("tenant: {tenant:?}"), format!("instance: {instance:?}")];
    facts(harness).into_iter().filter(|fact| named.iter().all(|name| fact.contains(name))).collect()
}

/// Kinds of these records, such as `Binding` and `Grant`.
pub(crate) fn kinds(facts: &[String]) -> Vec<&str> {
    facts.iter().filter_map(|fact| fact.split('(').next()).collect()
}
