//! What these tests have in common: agents that manage themselves, people who speak in groups, and
//! what the desk says that it made of it.

use frontdesk_core::directory::View;
use serde_json::{Value, json};

use crate::harness::{Harness, Reply, Seat, Socket};

/// The built-in chat's name on the wire.
pub(crate) const PLATFORM: &str = "relay";

// ---- agents -----------------------------------------------------------------------------------

/// `verb` is the path below `/manage`.
pub(crate) async fn manage(house: &Harness, seat: &Seat, verb: &str, body: Value) -> Reply {
    house.post(&format!("/manage/{verb}"), &seat.bearer(), &body).await
}

/// The same, and it must be done.
pub(crate) async fn managed(house: &Harness, seat: &Seat, verb: &str, body: Value) {
    assert_eq!(manage(house, seat, verb, body).await.expect(200), json!({ "ok": true }), "{verb}");
}

/// A channel of the built-in chat.
pub(crate) fn channel(id: &str) -> Value {
    json!({ "platform": PLATFORM, "scope_id": "", "channel_id": id })
}

pub(crate) async fn set_policy(house: &Harness, seat: &Seat, policy: Value) {
    let mut policy = policy;
    policy["platform"] = json!(PLATFORM);
    assert_eq!(house.post("/relay/policy", &seat.bearer(), &policy).await.expect(200), json!({ "ok": true }));
}

/// The agent holds this channel and hears everyone in it.
pub(crate) async fn open_to_all(house: &Harness, seat: &Seat, chat: &str) {
    managed(house, seat, "scope", channel(chat)).await;
    managed(house, seat, "principal", json!({ "policy": "any" })).await;
}

/// A code that links whoever sends it to the bot.
pub(crate) async fn code_of(house: &Harness, seat: &Seat) -> String {
    let offer = manage(house, seat, "link", json!({ "platform": PLATFORM })).await.expect(200);
    offer["code"].as_str().unwrap().to_owned()
}

/// Another gateway of an instance that is there already.
pub(crate) async fn second_gateway(house: &Harness, seat: &Seat, gateway: &str) -> Seat {
    let ask = json!({ "gatewayId": gateway, "platform": PLATFORM, "instanceId": seat.gateway });
    let reply = house.post("/relay/provision", &seat.identity, &ask).await.expect(200);
    Seat { gateway: gateway.into(), secret: reply["secret"].as_str().unwrap().to_owned(), ..seat.clone() }
}

/// From now on it can be woken here. The secret stays: it is the same gateway a moment later.
pub(crate) async fn set_wake_url(house: &Harness, seat: &Seat, url: &str) {
    let ask = json!({ "gatewayId": seat.gateway, "platform": PLATFORM, "wakeUrl": url });
    let reply = house.post("/relay/provision", &seat.identity, &ask).await.expect(200);
    assert_eq!(reply["secret"], json!(seat.secret));
}

// ---- people -----------------------------------------------------------------------------------

/// Somebody says something in a group; `more` is what else the message carries.
pub(crate) async fn say(house: &Harness, seat: &Seat, chat: &str, user: &str, text: &str, more: Value) -> Value {
    let mut body = json!({ "user_id": user, "user_name": name_of(user), "text": text, "chat_type": "group" });
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    house.say_as(seat, chat, body).await.expect(202)
}

pub(crate) fn name_of(user: &str) -> String {
    format!("{user} by name")
}

/// Something that carries nothing else.
pub(crate) const PLAIN: Value = Value::Null;

/// Said to the bot.
pub(crate) fn to_the_bot() -> Value {
    json!({ "mentions_bot": true })
}

/// Somebody writes to the bot alone.
pub(crate) async fn write(house: &Harness, seat: &Seat, chat: &str, user: &str, text: &str) -> Value {
    house.say_as(seat, chat, json!({ "user_id": user, "text": text })).await.expect(202)
}

pub(crate) async fn members(house: &Harness, seat: &Seat, chat: &str, members: &[&str]) {
    let path = format!("/chat/v1/chats/{chat}");
    house.call("PUT", &path, &seat.chat, &json!({ "members": members })).await.expect(200);
}

// ---- what came of it --------------------------------------------------------------------------

pub(crate) async fn explain(house: &Harness, posted: &Value) -> Value {
    let path = format!("/events/{}/explain", posted["event_id"].as_str().unwrap());
    house.admin("GET", &path, &Value::Null).await.expect(200)
}

/// `ann+owner/linked team-principal/policy`: who was considered, and which rule decided.
pub(crate) async fn ruling(house: &Harness, posted: &Value) -> String {
    let told = explain(house, posted).await;
    let line = |line: &Value| {
        let text = |field: &str| line[field].as_str().unwrap().to_owned();
        let name = if line["instance"] == "" { "nobody".into() } else { text("instance") };
        let sign = if line["outcome"] == "delivered" { "+" } else { "-" };
        format!("{name}{sign}{}/{}", text("layer"), text("rule"))
    };
    told["instances"].as_array().unwrap().iter().map(line).collect::<Vec<_>>().join(" ")
}

/// The next delivery has these words; it is acked, and its event returned.
pub(crate) async fn hears(socket: &mut Socket, text: &str) -> Value {
    let frame = socket.event().await;
    assert_eq!(frame.text(), text);
    socket.ack(&frame).await;
    frame.json["event"].clone()
}

/// Nothing came that was not looked at, and nothing is on its way: the ledger has these rows and no more.
pub(crate) async fn has_had(house: &Harness, seat: &Seat, socket: &mut Socket, rows: usize) {
    assert_eq!(socket.unread().await, 0, "{}", seat.gateway);
    assert_eq!(house.mail(seat).await.len(), rows, "{}", seat.gateway);
}

/// The last line of a chat, which must be the desk's own.
pub(crate) async fn answer(house: &Harness, seat: &Seat, chat: &str) -> String {
    let line = house.history(seat, chat).await.pop().unwrap();
    assert_eq!((&line["direction"], &line["kind"]), (&json!("out"), &json!("notice")), "{line}");
    line["text"].as_str().unwrap().to_owned()
}

// ---- what is written down ---------------------------------------------------------------------

/// Everything that the doors of management can change, as text.
pub(crate) fn facts(house: &Harness) -> Vec<String> {
    let mut all = house.app.desk.directory().read(|view: &View| {
        let mut all: Vec<String> = Vec::new();
        all.extend(view.bindings.values().map(|it| format!("{it:?}")));
        all.extend(view.gateways.values().map(|it| format!("{it:?}")));
        all.extend(view.grants.values().map(|it| format!("{it:?}")));
        all.extend(view.principals.values().map(|it| format!("{it:?}")));
        all.extend(view.policies.values().map(|it| format!("{it:?}")));
        all.extend(view.dm_defaults.values().map(|it| format!("{it:?}")));
        all.extend(view.link_codes.values().map(|it| format!("{it:?}")));
        all
    });
    all.sort();
    all
}

/// Those of one instance: it is named in each of them.
pub(crate) fn facts_of(house: &Harness, tenant: &str, instance: &str) -> Vec<String> {
    let named = [format!("tenant: {tenant:?}"), format!("instance: {instance:?}")];
    facts(house).into_iter().filter(|fact| named.iter().all(|name| fact.contains(name))).collect()
}

/// `Binding`, `Grant` and so on: the kinds of these facts.
pub(crate) fn kinds(facts: &[String]) -> Vec<&str> {
    facts.iter().filter_map(|fact| fact.split(' ').next()).collect()
}
