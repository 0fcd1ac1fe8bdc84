//! Members, topics, blocks, migration, commands.

use serde_json::json;

use super::*;

#[test]
fn topics_and_general_differ() {
    let fake = world();
    updates(&fake);
    let topic =
        done(&fake, "createForumTopic", json!({"chat_id": FORUM, "name": "Plans"}))["message_thread_id"].clone();
    act(&fake, json!({"act": "say", "chat": FORUM, "from": ANN, "text": "in it", "topic": topic}));
    act(&fake, json!({"act": "say", "chat": FORUM, "from": ANN, "text": "in General"}));
    let seen = updates(&fake);
    let (inside, general) = (&seen[0]["message"], &seen[1]["message"]);
    assert_eq!((&inside["message_thread_id"], &inside["is_topic_message"]), (&topic, &json!(true)));
    assert!(inside["reply_to_message"]["forum_topic_created"].is_object());
    assert!(general.get("message_thread_id").is_none() && general["chat"]["is_forum"] == true);
    act(&fake, json!({"act": "say", "chat": FORUM, "from": ANN, "text": "a reply", "reply_to": general["message_id"]}));
    let reply = &updates(&fake)[0]["message"];
    assert_eq!(reply["message_thread_id"], general["message_id"], "an anchor");
    assert!(reply.get("is_topic_message").is_none());
    for thread in [1, 9_999] {
        let astray = json!({"chat_id": FORUM, "text": "a", "message_thread_id": thread});
        assert_eq!(refused(&fake, "sendMessage", astray), "Bad Request: message thread not found");
    }
    done(&fake, "editForumTopic", json!({"chat_id": FORUM, "message_thread_id": topic, "name": "Other"}));
    done(&fake, "closeForumTopic", json!({"chat_id": FORUM, "message_thread_id": topic}));
    assert_eq!(
        fake.chat(BOT, FORUM).unwrap()["topics"][0],
        json!({"message_thread_id": topic, "name": "Other",
        "icon_color": 7_322_096, "closed": true})
    );
}

#[test]
fn a_blocked_or_kicked_bot_is_told() {
    let fake = world();
    updates(&fake);
    act(&fake, json!({"act": "block", "chat": ANN, "blocked": true}));
    let change = &updates(&fake)[0]["my_chat_member"];
    assert_eq!(change["new_chat_member"]["status"], "kicked");
    let send = |chat: i64| refused(&fake, "sendMessage", json!({"chat_id": chat, "text": "a"}));
    assert_eq!(send(ANN), "Forbidden: bot was blocked by the user");
    act(&fake, json!({"act": "member", "chat": FORUM, "from": ANN, "user": BOT, "status": "kicked"}));
    assert_eq!(send(FORUM), "Forbidden: bot was kicked from the supergroup chat");
    assert_eq!(updates(&fake)[0]["my_chat_member"]["old_chat_member"]["status"], "administrator");
}

#[test]
fn a_migrated_group_names_its_successor() {
    let fake = world();
    updates(&fake);
    act(&fake, json!({"act": "migrate", "chat": GROUP, "from": ANN, "to": -1_001_000_000_009_i64}));
    let seen = updates(&fake);
    assert_eq!(seen[0]["message"]["migrate_to_chat_id"], -1_001_000_000_009_i64);
    assert_eq!(seen[1]["message"]["migrate_from_chat_id"], GROUP);
    let response = call(&fake, "sendMessage", json!({"chat_id": GROUP, "text": "a"}));
    assert_eq!(response.description(), "Bad Request: group chat was upgraded to a supergroup chat");
    assert_eq!(response.body["parameters"]["migrate_to_chat_id"], -1_001_000_000_009_i64);
    done(&fake, "sendMessage", json!({"chat_id": -1_001_000_000_009_i64, "text": "a"}));
}

#[test]
fn members_are_told_apart() {
    let fake = world();
    let ask = |user: i64| json!({"chat_id": GROUP, "user_id": user});
    assert_eq!(done(&fake, "getChatMember", ask(ANN))["status"], "creator");
    assert_eq!(refused(&fake, "getChatMember", ask(99)), "Bad Request: user not found");
    act(&fake, json!({"act": "add_user", "id": 502, "first_name": "Bob"}));
    assert_eq!(done(&fake, "getChatMember", ask(502))["status"], "left");
    updates(&fake);
    done(&fake, "getUpdates", json!({"allowed_updates": ["message", "chat_member"]}));
    act(&fake, json!({"act": "join", "chat": GROUP, "from": ANN, "users": [502]}));
    let seen = updates(&fake);
    assert_eq!(seen[0]["chat_member"]["new_chat_member"]["user"]["id"], 502);
    assert_eq!(seen[1]["message"]["new_chat_members"][0]["first_name"], "Bob");
    assert_eq!(done(&fake, "getChatAdministrators", json!({"chat_id": GROUP})).as_array().unwrap().len(), 2);
    assert_eq!(done(&fake, "getChat", json!({"chat_id": "@news"}))["id"], CHANNEL);
}

#[test]
fn privacy_mode_hides_what_is_not_for_the_bot() {
    let fake = world();
    act(&fake, json!({"act": "add_bot", "id": 7002, "token": "7002:b", "username": "shy_bot", "privacy": true}));
    act(&fake, json!({"act": "member", "chat": GROUP, "from": ANN, "user": 7002, "status": "member"}));
    let before = fake.updates_waiting(7002);
    for text in ["nothing", "/go", "hey @shy_bot", "more"] {
        act(&fake, json!({"act": "say", "chat": GROUP, "from": ANN, "text": text}));
    }
    assert_eq!(fake.updates_waiting(7002) - before, 2);
}

#[test]
fn command_lists_are_kept_by_scope_and_language() {
    let fake = world();
    let list = json!([{"command": "go", "description": "Go"}]);
    done(&fake, "setMyCommands", json!({"commands": list, "language_code": "de"}));
    assert_eq!(done(&fake, "getMyCommands", json!({"language_code": "de"})), list);
    assert_eq!(done(&fake, "getMyCommands", json!({})), json!([]));
    done(&fake, "deleteMyCommands", json!({"language_code": "de"}));
    assert_eq!(done(&fake, "getMyCommands", json!({"language_code": "de"})), json!([]));
    let wrong = json!({"commands": [{"command": "Go!", "description": "Go"}]});
    assert_eq!(refused(&fake, "setMyCommands", wrong), "Bad Request: BOT_COMMAND_INVALID");
}
