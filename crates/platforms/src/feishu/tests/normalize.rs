//! Messages as agents get them.

use frontdesk_core::intake::Verified;
use frontdesk_wire::event::ReplyTo;

use super::*;

async fn intake(stage: &Stage, payload: &Value) -> Option<Intake> {
    let received = stage.feishu.events(&stage.bot, Verified::by("a test"), payload, 1_700_000_000_000).await;
    received.unwrap().intakes.pop()
}

fn mentions() -> Value {
    json!([
        { "key": "@_user_1", "id": { "open_id": "ou_me", "union_id": "on_me" }, "name": "Desk", "tenant_key": "tk" },
        { "key": "@_user_2", "id": { "open_id": "ou_bob", "user_id": "bob" }, "name": "Bob", "tenant_key": "tk" },
    ])
}

#[tokio::test]
async fn a_message_has_the_ids_of_the_gateways_own_adapter() {
    let stage = stage();
    let direct = intake(&stage, &said("oc_direct", "hello", json!({}))).await.unwrap();
    let source = direct.event.source;
    assert_eq!(
        (source.platform.as_str(), source.chat_id.as_str(), source.chat_type.as_str()),
        ("feishu", "oc_direct", "dm")
    );
    assert_eq!((source.user_id.as_deref(), source.user_id_alt.as_deref()), (Some("ann"), Some("on_ann")));
    assert_eq!((source.user_name.as_deref(), source.chat_name.as_deref()), (Some("Ann"), Some("oc_direct")));
    assert_eq!((source.thread_id, source.scope_id, source.one_to_one_verified), (None, None, Some(true)));
    assert!(direct.author_sees && !direct.addressed, "a direct chat needs no mention");
    let group = intake(&stage, &said("oc_group", "hello", json!({}))).await.unwrap();
    let source = group.event.source;
    assert_eq!((source.chat_type.as_str(), source.chat_name.as_deref()), ("group", Some("Team")));
    assert!(source.one_to_one_verified.is_none() && !group.addressed);
}

#[tokio::test]
async fn people_of_another_organization_are_known_by_the_id_of_the_app() {
    let stage = stage();
    let of = async |payload: &Value| intake(&stage, payload).await.unwrap().event.source.user_id;
    let press = payload(
        "card.action.trigger",
        json!({
            "operator": { "open_id": "ou_ann", "user_id": "ann", "tenant_key": "tk" },
            "action": { "tag": "button", "value": { "hp1": "hp1:p:yes" } },
            "context": { "open_message_id": "om_7", "open_chat_id": "oc_group" },
        }),
    );
    for (given, at) in [(said("oc_group", "hi", json!({})), "/event/sender"), (press, "/event/operator")] {
        for (key, known) in [(json!("other"), "ou_ann"), (json!("tk"), "ann"), (Value::Null, "ann")] {
            let mut payload = given.clone();
            payload.pointer_mut(at).unwrap()["tenant_key"] = key.clone();
            assert_eq!(of(&payload).await.as_deref(), Some(known), "{at} {key}");
            payload["header"]["tenant_key"] = Value::Null;
            payload["event"]["context"]["open_message_id"] = format!("om_2{known}{}", key.is_null()).into();
            assert_eq!(of(&payload).await.as_deref(), Some("ann"), "{at} {key}");
        }
    }
    let users = json!([{ "user_id": { "open_id": "ou_ann", "user_id": "ann" }, "tenant_key": "other" }]);
    let added = payload("im.chat.member.user.added_v1", json!({ "chat_id": "oc_group", "users": users }));
    let received = stage.feishu.events(&stage.bot, Verified::by("a test"), &added, 0).await.unwrap();
    let member = Change::Member { chat_id: "oc_group".into(), user_id: "ou_ann".into() };
    assert_eq!(received.changes, [member]);
}

#[tokio::test]
async fn mentions_and_commands_address_the_bot() {
    let stage = stage();
    for (text, shown, kind, addressed) in [
        ("@_user_1 what is this?", "what is this?", "text", true),
        ("@_user_1 /model fast", "/model fast", "command", true),
        ("/help", "/help", "command", true),
        ("@_user_2 look", "[Mentioned: Bob (open_id=ou_bob)]\n\n@Bob look", "text", false),
        ("@_all look", "[Mentioned: @all]\n\n@all look", "text", true),
    ] {
        let listed: Vec<Value> = mentions()
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| text.contains(it["key"].as_str().unwrap()))
            .cloned()
            .collect();
        let said = said("oc_group", text, json!({ "mentions": listed }));
        let intake = intake(&stage, &said).await.unwrap();
        assert_eq!((intake.event.text.as_str(), intake.event.message_type.as_str()), (shown, kind), "{text}");
        assert_eq!(intake.addressed, addressed, "{text}");
    }
    let alone = said("oc_group", "@_user_1", json!({ "mentions": mentions() }));
    // Bob is listed too, but not named in the text.
    assert!(intake(&stage, &alone).await.is_none(), "nothing was said");
}

#[tokio::test]
async fn answers_and_topics_are_told() {
    let stage = stage();
    let parent = json!({ "msg_type": "text", "chat_id": "oc_group", "body": { "content": "{\"text\":\"mine\"}" },
        "sender": { "id": "cli_1", "id_type": "app_id", "sender_type": "app" } });
    stage.vendor.answers("GET /im/v1/messages/om_0", json!({ "items": [parent] }));
    let more = json!({ "parent_id": "om_0", "root_id": "om_0", "thread_id": "omt_1" });
    let found = intake(&stage, &said("oc_group", "and?", more)).await.unwrap();
    assert_eq!(found.event.source.thread_id.as_deref(), Some("omt_1"));
    assert_eq!(found.event.reply_to_message_id.as_deref(), Some("om_0"));
    let reply_to = ReplyTo { text: Some("mine".into()), is_own: Some(true), ..ReplyTo::default() };
    assert_eq!(found.event.reply_to, Some(reply_to));
    assert!(found.addressed, "an answer to the bot");
    let gone = json!({ "root_id": "om_9" });
    stage.vendor.refuses("GET /im/v1/messages/om_9", 231_003);
    let found = intake(&stage, &said("oc_group", "and?", gone)).await.unwrap();
    assert_eq!((found.event.source.thread_id.as_deref(), found.event.reply_to), (Some("om_9"), None));
}

#[tokio::test]
async fn files_stay_at_the_vendor() {
    let stage = stage();
    let more = json!({ "message_type": "file", "content": "{\"file_key\":\"file_1\",\"file_name\":\"a/b.pdf\"}" });
    let found = intake(&stage, &said("oc_direct", "", more)).await.unwrap();
    assert_eq!((found.event.message_type.as_str(), found.event.text.as_str()), ("document", ""));
    let file = &found.remote_media[0];
    assert_eq!((file.handle.expose(), file.mime.as_str()), ("om_1/file_1/file/a/b.pdf", "application/pdf"));
    stage.vendor.says("GET /im/v1/messages/om_1/resources/file_1", 200, json!("bytes"));
    let fetched = stage.feishu.fetch(&stage.bot, &file.handle).await.unwrap();
    assert_eq!(fetched.filename.as_deref(), Some("a/b.pdf"));
    let call = stage.vendor.calls("GET /im/v1/messages/om_1/resources/file_1").remove(0);
    assert!(call.what.ends_with("?type=file") && call.bearer.as_deref() == Some("t-1"), "{call:?}");
    stage.vendor.refuses("GET /im/v1/messages/om_2/resources/k", 231_003);
    let gone = stage.feishu.fetch(&stage.bot, &Secret::new("om_2/k/image/")).await.err().unwrap();
    assert!(matches!(gone, frontdesk_core::port::platform::MediaFault::Gone(_)), "{gone}");
    for odd in ["", "om_1", "om_1/../x/file/", "om_1/k/other/"] {
        assert!(stage.feishu.fetch(&stage.bot, &Secret::new(odd)).await.is_err(), "{odd}");
    }
}

#[tokio::test]
async fn own_messages_are_skipped_and_other_bots_marked() {
    let stage = stage();
    let mut own = said("oc_group", "mine", json!({}));
    own["event"]["sender"] = json!({ "sender_id": { "open_id": "ou_me" }, "sender_type": "app" });
    assert!(intake(&stage, &own).await.is_none());
    let mut other = said("oc_group", "I am a program", json!({}));
    other["event"]["sender"] = json!({ "sender_id": { "open_id": "ou_other" }, "sender_type": "bot" });
    assert!(intake(&stage, &other).await.unwrap().event.source.is_bot);
    let mut nobody = said("oc_group", "x", json!({}));
    nobody["event"]["sender"] = json!({});
    assert!(intake(&stage, &nobody).await.unwrap().refused.is_some());
    let system = said("oc_group", "", json!({ "message_type": "system" }));
    assert!(intake(&stage, &system).await.is_none());
}

#[tokio::test]
async fn reactions_to_the_bot_are_told_once_each() {
    let stage = stage();
    let item = |sender: &str| {
        json!({ "msg_type": "text", "chat_id": "oc_group", "body": { "content": "{\"text\":\"mine\"}" },
            "sender": { "id": sender, "id_type": "app_id", "sender_type": "app" } })
    };
    stage.vendor.answers("GET /im/v1/messages/om_5", json!({ "items": [item("cli_1")] }));
    stage.vendor.answers("GET /im/v1/messages/om_6", json!({ "items": [item("cli_2")] }));
    let reaction = |kind: &str, message: &str, operator: &str| {
        payload(
            &format!("im.message.reaction.{kind}_v1"),
            json!({ "message_id": message, "operator_type": operator,
            "reaction_type": { "emoji_type": "THUMBSUP" }, "user_id": { "open_id": "ou_ann", "user_id": "ann" } }),
        )
    };
    let found = intake(&stage, &reaction("created", "om_5", "user")).await.unwrap();
    assert_eq!(
        (found.event.text.as_str(), found.event.message_id.as_deref()),
        ("reaction:added:THUMBSUP", Some("om_5"))
    );
    assert_eq!((found.mark.as_str(), found.event.source.chat_type.as_str(), found.addressed), ("e1", "group", true));
    let found = intake(&stage, &reaction("deleted", "om_5", "user")).await.unwrap();
    assert_eq!(found.event.text, "reaction:removed:THUMBSUP");
    for (message, operator) in [("om_5", "app"), ("om_6", "user"), ("../om_5", "user")] {
        assert!(intake(&stage, &reaction("created", message, operator)).await.is_none(), "{message} {operator}");
    }
}
