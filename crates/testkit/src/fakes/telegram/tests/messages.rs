//! Sending, editing, deleting, reacting.

use serde_json::json;

use super::*;

#[test]
fn a_text_is_parsed_counted_and_shown() {
    let fake = world();
    let sent = done(&fake, "sendMessage", json!({"chat_id": ANN, "text": "*hi* \\.", "parse_mode": "MarkdownV2"}));
    assert_eq!((&sent["text"], &sent["entities"][0]["type"]), (&json!("hi ."), &json!("bold")));
    assert_eq!(sent["from"]["is_bot"], true);
    let seen = fake.chat(BOT, ANN).unwrap();
    assert_eq!(seen["messages"][1]["text"], "hi .");
    let long = "🧊".repeat(2_048);
    done(&fake, "sendMessage", json!({"chat_id": ANN, "text": format!("*{long}*"), "parse_mode": "MarkdownV2"}));
    let longer = json!({"chat_id": ANN, "text": format!("{long}a")});
    assert_eq!(refused(&fake, "sendMessage", longer), "Bad Request: message is too long");
    assert_eq!(
        refused(&fake, "sendMessage", json!({"chat_id": ANN, "text": " \n"})),
        "Bad Request: message text is empty"
    );
    assert_eq!(refused(&fake, "sendMessage", json!({"chat_id": 9, "text": "a"})), "Bad Request: chat not found");
    let unescaped = json!({"chat_id": ANN, "text": "a.", "parse_mode": "MarkdownV2"});
    assert!(refused(&fake, "sendMessage", unescaped).starts_with("Bad Request: can't parse entities: Character '.'"));
}

#[test]
fn replies_name_their_message_or_go_without() {
    let fake = world();
    let first = done(&fake, "sendMessage", json!({"chat_id": GROUP, "text": "the first one"}));
    let to = first["message_id"].clone();
    let reply = json!({"message_id": to, "quote": "first"});
    let sent = done(&fake, "sendMessage", json!({"chat_id": GROUP, "text": "b", "reply_parameters": reply}));
    assert_eq!((&sent["reply_to_message"]["message_id"], &sent["quote"]["position"]), (&to, &json!(4)));
    let astray = json!({"chat_id": GROUP, "text": "b", "reply_parameters": {"message_id": 999}});
    assert_eq!(refused(&fake, "sendMessage", astray), "Bad Request: message to be replied not found");
    let lenient = json!({"message_id": 999, "allow_sending_without_reply": true});
    let sent =
        done(&fake, "sendMessage", json!({"chat_id": GROUP, "text": "b", "reply_parameters": lenient.to_string()}));
    assert!(sent.get("reply_to_message").is_none());
    let other = json!({"message_id": to, "quote": "second"});
    let wrong = json!({"chat_id": GROUP, "text": "b", "reply_parameters": other});
    assert_eq!(refused(&fake, "sendMessage", wrong), "Bad Request: QUOTE_TEXT_INVALID");
}

#[test]
fn edits_and_deletions_are_checked() {
    let fake = world();
    let id = done(&fake, "sendMessage", json!({"chat_id": ANN, "text": "a"}))["message_id"].clone();
    let edit = json!({"chat_id": ANN, "message_id": id, "text": "b"});
    assert_eq!(done(&fake, "editMessageText", edit.clone())["text"], "b");
    assert!(refused(&fake, "editMessageText", edit).starts_with("Bad Request: message is not modified: "));
    assert_eq!(
        refused(&fake, "editMessageText", json!({"chat_id": ANN, "message_id": 1, "text": "b"})),
        "Bad Request: message can't be edited"
    );
    done(&fake, "deleteMessage", json!({"chat_id": ANN, "message_id": id}));
    assert_eq!(
        refused(&fake, "deleteMessage", json!({"chat_id": ANN, "message_id": id})),
        "Bad Request: message to delete not found"
    );
}

#[test]
fn only_listed_emoji_are_reactions() {
    let fake = world();
    let set = |emoji: &str| json!({"chat_id": ANN, "message_id": 1, "reaction": [{"type": "emoji", "emoji": emoji}]});
    done(&fake, "setMessageReaction", set("👀"));
    assert_eq!(fake.chat(BOT, ANN).unwrap()["messages"][0]["reactions"][0]["reaction"][0]["emoji"], "👀");
    assert_eq!(refused(&fake, "setMessageReaction", set("✅")), "Bad Request: REACTION_INVALID");
    done(&fake, "setMessageReaction", json!({"chat_id": ANN, "message_id": 1}));
    assert!(fake.chat(BOT, ANN).unwrap()["messages"][0].get("reactions").is_none());
}

#[test]
fn buttons_are_pressed_and_answered() {
    let fake = world();
    let keyboard = |data: &str| json!({"inline_keyboard": [[{"text": "Yes", "callback_data": data}]]});
    let long = json!({"chat_id": ANN, "text": "?", "reply_markup": keyboard(&"x".repeat(65))});
    assert_eq!(refused(&fake, "sendMessage", long), "Bad Request: BUTTON_DATA_INVALID");
    let asked = json!({"chat_id": ANN, "text": "?", "reply_markup": keyboard(&"x".repeat(64)).to_string()});
    let id = done(&fake, "sendMessage", asked)["message_id"].clone();
    updates(&fake);
    let query = act(&fake, json!({"act": "press", "chat": ANN, "from": ANN, "message_id": id, "label": "Yes"}));
    let query = query["callback_query_id"].as_str().unwrap().to_owned();
    let update = &updates(&fake)[0]["callback_query"];
    assert_eq!((update["id"].as_str(), update["data"].as_str()), (Some(query.as_str()), Some("x".repeat(64).as_str())));
    assert_eq!(update["message"]["message_id"], id);
    done(&fake, "answerCallbackQuery", json!({"callback_query_id": query, "text": "ok"}));
    assert_eq!(fake.callback_answer(&query).unwrap()["text"], "ok");
    assert!(refused(&fake, "answerCallbackQuery", json!({"callback_query_id": query})).contains("query is too old"));
    let same = json!({"chat_id": ANN, "message_id": id});
    assert!(done(&fake, "editMessageReplyMarkup", same.clone()).get("reply_markup").is_none());
    assert!(refused(&fake, "editMessageReplyMarkup", same).contains("message is not modified"));
}

#[test]
fn files_are_uploaded_reused_and_found() {
    let fake = world();
    let upload =
        Upload { field: "up".into(), filename: "a.txt".into(), mime: "text/plain".into(), bytes: b"abc".to_vec() };
    let params = Params::from(json!({"chat_id": ANN, "document": "attach://up", "caption": "see"}));
    let sent = fake.handle(NOW, TOKEN, "sendDocument", &params, &[upload]);
    let file = sent.result()["document"].clone();
    assert_eq!((&file["file_name"], &sent.result()["caption"]), (&json!("a.txt"), &json!("see")));
    let path = done(&fake, "getFile", json!({"file_id": file["file_id"]}))["file_path"].clone();
    let (bytes, mime) = fake.file(TOKEN, path.as_str().unwrap()).unwrap();
    assert_eq!((&bytes[..], mime.as_str()), (&b"abc"[..], "text/plain"));
    let again = done(&fake, "sendDocument", json!({"chat_id": GROUP, "document": file["file_id"]}));
    assert_eq!(again["document"]["file_unique_id"], file["file_unique_id"]);
    let as_photo = json!({"chat_id": GROUP, "photo": file["file_id"]});
    assert_eq!(refused(&fake, "sendPhoto", as_photo), "Bad Request: can't use file of type Document as Photo");
    let long = json!({"chat_id": GROUP, "photo": "https://a.example/b.jpg", "caption": "x".repeat(1_025)});
    assert_eq!(refused(&fake, "sendPhoto", long), "Bad Request: message caption is too long");
    let photo = done(&fake, "sendPhoto", json!({"chat_id": GROUP, "photo": "https://a.example/b.jpg"}));
    assert_eq!(photo["photo"].as_array().unwrap().len(), 3);
    let media = json!([{"type": "photo", "media": "https://a.example/1.jpg", "caption": "c"},
        {"type": "photo", "media": "https://a.example/2.jpg"}]);
    let album = done(&fake, "sendMediaGroup", json!({"chat_id": GROUP, "media": media.to_string()}));
    assert_eq!(album[0]["media_group_id"], album[1]["media_group_id"]);
}

#[test]
fn drafts_last_until_the_message() {
    let fake = world();
    done(&fake, "sendMessageDraft", json!({"chat_id": ANN, "draft_id": 5, "text": "thin"}));
    assert_eq!(fake.chat(BOT, ANN).unwrap()["drafts"]["5"]["text"], "thin");
    refused(&fake, "sendMessageDraft", json!({"chat_id": GROUP, "draft_id": 5, "text": "a"}));
    done(&fake, "sendMessage", json!({"chat_id": ANN, "text": "thinking"}));
    assert_eq!(fake.chat(BOT, ANN).unwrap()["drafts"], json!({}));
}
