//! Egress: an agent can act only in chats of its own tenant, whatever its action claims.

use serde_json::{Value, json};

use crate::harness::{GatewayAccount, Harness, Socket};
use crate::scene::{PLAIN, members, receives, say, write};

const DECLINED: &str = "{\"success\":false,\"error\":\"relay egress declined: target is not an approved destination for \
                        this connection\",\"code\":\"egress_declined\"}}";

/// Two tenants with one agent each, both connected.
async fn neighbours() -> (Harness, [(GatewayAccount, Socket); 2]) {
    let harness = Harness::open().await;
    let (ours, theirs) = (harness.add_gateway("ann").await, harness.add_gateway_in("rival", "r").await);
    let (our_socket, their_socket) = (harness.socket(&ours).await, harness.socket(&theirs).await);
    (harness, [(ours, our_socket), (theirs, their_socket)])
}

/// Every action on a chat and on a message in it.
fn every_act(chat: &str, message: &str) -> Vec<Value> {
    let options = json!([{ "id": "a", "label": "A" }]);
    vec![
        json!({ "op": "send", "chat_id": chat, "content": "boo" }),
        json!({ "op": "send", "chat_id": chat, "content": "x".repeat(20_000) }),
        json!({ "op": "send", "chat_id": chat, "content": "boo", "reply_to": message }),
        json!({ "op": "edit", "chat_id": chat, "message_id": message, "content": "boo" }),
        json!({ "op": "delete", "chat_id": chat, "message_id": message }),
        json!({ "op": "react", "chat_id": chat, "message_id": message, "emoji": "x" }),
        json!({ "op": "react", "chat_id": chat, "message_id": message, "emoji": "x", "remove": true }),
        json!({ "op": "typing", "chat_id": chat }),
        json!({ "op": "typing", "chat_id": chat, "content": "" }),
        json!({ "op": "get_chat_info", "chat_id": chat }),
        json!({ "op": "prompt", "chat_id": chat, "prompt_id": "p", "content": "?", "options": options }),
        json!({ "op": "thread_create", "chat_id": chat, "thread_name": "t" }),
        json!({ "op": "thread_rename", "chat_id": chat, "message_id": "t", "thread_name": "u" }),
        json!({ "op": "draft", "chat_id": chat, "draft_id": "d", "content": "boo", "final": false }),
        json!({ "op": "draft", "chat_id": chat, "draft_id": "d", "content": "boo", "final": true }),
        json!({ "op": "send_media", "chat_id": chat, "media_kind": "image", "source_url": "http://127.0.0.1:1/x" }),
    ]
}

/// Every action in that chat is declined with identical bytes.
async fn declined(socket: &mut Socket, chat: &str, message: &str, metadata: &Value) {
    for mut act in every_act(chat, message) {
        if !metadata.is_null() {
            act["metadata"] = metadata.clone();
        }
        let what = act["op"].to_string();
        assert_eq!(socket.act_frame(act).await.result(), DECLINED, "{what} in {chat:?} with {metadata}");
    }
}

async fn chats(harness: &Harness, account: &GatewayAccount) -> Value {
    harness.get("/chat/v1/chats", &account.chat).await.expect(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_chat_and_a_missing_chat_are_declined_with_identical_bytes() {
    let (harness, [(ours, mut our_socket), (theirs, mut their_socket)]) = neighbours().await;
    let posted = say(&harness, &theirs, "theirs", "u-r", "private", PLAIN).await;
    receives(&mut their_socket, "private").await;
    let sent = their_socket.act(json!({ "op": "send", "chat_id": "theirs", "content": "yes" })).await;
    let before =
        (harness.history(&theirs, "theirs").await, chats(&harness, &theirs).await, chats(&harness, &ours).await);
    let long = "x".repeat(5_000);
    for message in [&posted["message_id"], &sent["message_id"]] {
        let message = message.as_str().unwrap();
        for chat in ["theirs", "never", "", "THEIRS", " theirs", "../theirs", "rival/theirs", &long] {
            declined(&mut our_socket, chat, message, &Value::Null).await;
        }
    }
    let after =
        (harness.history(&theirs, "theirs").await, chats(&harness, &theirs).await, chats(&harness, &ours).await);
    assert_eq!(before, after, "nothing was sent, changed or created");
    let history = harness.get("/chat/v1/chats/theirs/messages", &theirs.chat).await.expect(200);
    assert_eq!(history["typing"], false);
    let journal = harness.admin("GET", "/journal", &Value::Null).await.expect(200);
    let of_ours: Vec<&Value> =
        journal["actions"].as_array().unwrap().iter().filter(|entry| entry["tenant"] == "home").collect();
    let refused = |entry: &&Value| entry["outcome"] == "rejected" && entry["cursor"] == 0;
    assert!(!of_ours.is_empty() && of_ours.iter().all(refused), "no action was started: {of_ours:?}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_an_action_about_its_chat_have_no_effect() {
    let (harness, [(_ours, mut our_socket), (theirs, _their_socket)]) = neighbours().await;
    let posted = say(&harness, &theirs, "theirs", "u-r", "private", json!({ "scope_id": "wing" })).await;
    write(&harness, &theirs, "direct", "u-r", "private").await;
    // The foreign scope is routed to the other tenant, another scope to ours.
    for (key, tenant) in [("wing", "rival"), ("theirs", "rival"), ("ours", "home")] {
        let route = json!({ "platform": "relay", "key": key, "tenant": tenant });
        harness.admin("POST", "/routes", &route).await.expect(201);
    }
    let message = posted["message_id"].as_str().unwrap();
    let before = (harness.history(&theirs, "theirs").await, harness.history(&theirs, "direct").await);
    let lies = [
        json!({ "scope_id": "wing" }),
        json!({ "scope_id": "ours" }),
        json!({ "guild_id": "ours" }),
        json!({ "user_id": "u-r" }),
        json!({ "user_id": "u-ann" }),
        json!({ "scope_id": "ours", "user_id": "u-ann", "tenant": "rival", "chat_type": "dm" }),
        json!({ "tenant": "rival", "tenant_id": "rival", "instance": "r" }),
        json!({ "profile": "coder", "thread_id": "t" }),
        json!({ "parent_chat_id": "ours", "chat_id": "ours" }),
    ];
    for lie in &lies {
        for chat in ["theirs", "direct", "never"] {
            declined(&mut our_socket, chat, message, lie).await;
        }
    }
    let after = (harness.history(&theirs, "theirs").await, harness.history(&theirs, "direct").await);
    assert_eq!(before, after);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chats_of_the_same_name_in_two_tenants_are_separate() {
    let (harness, mut both) = neighbours().await;
    for (account, socket) in &mut both {
        let posted =
            harness.say_as(account, "room", json!({ "user_id": account.user, "text": "hi", "message_id": "m" })).await;
        posted.expect(202);
        receives(socket, "hi").await;
        harness
            .call("PUT", "/chat/v1/chats/room", &account.chat, &json!({ "name": account.gateway }))
            .await
            .expect(200);
    }
    let mut sent = Vec::new();
    for (account, socket) in &mut both {
        let info = socket.act(json!({ "op": "get_chat_info", "chat_id": "room" })).await;
        assert_eq!(info["chat_info"]["name"], json!(account.gateway));
        let said = socket.act(json!({ "op": "send", "chat_id": "room", "content": account.gateway })).await;
        sent.push(said["message_id"].as_str().unwrap().to_owned());
        socket.act(json!({ "op": "react", "chat_id": "room", "message_id": "m", "emoji": account.gateway })).await;
        socket.act(json!({ "op": "typing", "chat_id": "room" })).await;
        let typing: Vec<bool> = vec![
            harness.app.chat.is_typing(&"home".into(), &"room".into()),
            harness.app.chat.is_typing(&"rival".into(), &"room".into()),
        ];
        assert_eq!(typing, [account.tenant == "home", account.tenant == "rival"]);
        socket.act(json!({ "op": "typing", "chat_id": "room", "content": "" })).await;
    }
    // A message of the other tenant is not in the own chat of the same name.
    let [(_, our_socket), _] = &mut both;
    let edit = json!({ "op": "edit", "chat_id": "room", "message_id": sent[1], "content": "boo" });
    assert_eq!(our_socket.act(edit).await["code"], "not_found");
    our_socket.act(json!({ "op": "delete", "chat_id": "room", "message_id": sent[1] })).await;
    for (account, _) in &both {
        let lines = harness.history(account, "room").await;
        let texts: Vec<&str> = lines.iter().map(|line| line["text"].as_str().unwrap()).collect();
        assert_eq!(texts, ["hi", &account.gateway]);
        assert_eq!(lines[0]["reactions"], json!([{ "emoji": account.gateway, "by": "desk" }]));
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_is_open_to_agents_of_its_tenant_once_it_exists() {
    let (harness, [(ours, mut our_socket), (_theirs, mut their_socket)]) = neighbours().await;
    declined(&mut our_socket, "new", "m", &Value::Null).await;
    // Withheld from every agent, but in a chat of this tenant.
    say(&harness, &ours, "new", "stranger", "anybody?", PLAIN).await;
    let sent = our_socket.act(json!({ "op": "send", "chat_id": "new", "content": "yes" })).await;
    assert_eq!(sent["success"], true, "{sent}");
    members(&harness, &ours, "made", &["u-ann"]).await;
    let sent = our_socket.act(json!({ "op": "send", "chat_id": "made", "content": "welcome" })).await;
    assert_eq!(sent["success"], true, "{sent}");
    for chat in ["new", "made"] {
        declined(&mut their_socket, chat, "m", &Value::Null).await;
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_linked_users_can_still_answer_in_its_chats() {
    let (harness, [(ours, mut our_socket), _]) = neighbours().await;
    write(&harness, &ours, "d", "u-ann", "hi").await;
    receives(&mut our_socket, "hi").await;
    write(&harness, &ours, "d", "u-ann", "/unlink").await;
    let sent = our_socket.act(json!({ "op": "send", "chat_id": "d", "content": "bye" })).await;
    assert_eq!(sent["success"], true, "the chat belongs to its tenant: {sent}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decline_is_counted_as_rejected() {
    let (harness, [(_ours, mut our_socket), _]) = neighbours().await;
    for op in ["send", "typing", "get_chat_info"] {
        our_socket.act(json!({ "op": op, "chat_id": "never", "content": "x" })).await;
        let name = format!("frontdesk_actions_total{{op=\"{op}\",outcome=\"rejected\"}}");
        assert_eq!(harness.metric(&name).await, 1, "{op}");
    }
    harness.finish().await;
}
