//! Actions: what is sent, and what is made of the answers.

use std::time::Duration;

use frontdesk_core::port::outcall::OutcallError;
use frontdesk_core::port::platform::{Acted, ActingAs, MediaFault, Platform as _};
use frontdesk_wire::{Action, ChatId, Code, Secret, TenantId, UserId};
use serde_json::{Value, json};

use super::super::{Homeservers, PLATFORM};
use super::{ME, Table, bot, path, run, with_room, world};

const ROOM: &str = super::ROOM;

fn act(desk: &Homeservers, action: Value) -> Acted {
    let (bot, action) = (bot("sync"), Action::parse(&action.to_string()).unwrap());
    let home = TenantId::from("home");
    let acting_as = ActingAs { idempotency_key: Some("5.17.0"), ..ActingAs::new(&home, &bot) };
    run(desk.act(acting_as, &action, None))
}

fn with_answers(table: &Table) {
    with_room(table, &[ME, "@ann:example.org", "@ben:other.net"]);
    table.rule(&path("PUT", "send/m.room.message/"), 200, json!({ "event_id": "$sent" }));
    table.rule(&path("PUT", "send/m.reaction/"), 200, json!({ "event_id": "$reaction" }));
    table.rule(&path("PUT", "redact/"), 200, json!({ "event_id": "$redaction" }));
    table.rule(&path("PUT", "typing/"), 200, json!({}));
}

fn sent(table: &Table) -> Value {
    let sent = table.seen(&path("PUT", "send/m.room.message/"));
    sent.last().unwrap().body.clone()
}

#[test]
fn a_text_has_markup_mentions_and_a_key_of_the_journal() {
    let (table, desk) = world();
    with_answers(&table);
    let text = "**Done**, [Ann](https://matrix.to/#/@ann:example.org). Ask @ben:other.net.";
    let acted = act(&desk, json!({ "op": "send", "chat_id": ROOM, "content": text, "reply_to": "$q" }));
    assert_eq!(acted.result.message_id.as_deref(), Some("$sent"));
    let seen = table.seen(&path("PUT", "send/"));
    assert!(seen[0].what.ends_with("/m.room.message/fd.5.17.0"), "{}", seen[0].what);
    assert_eq!(
        seen[0].body,
        json!({
            "msgtype": "m.text",
            "body": "Done, Ann (https://matrix.to/#/@ann:example.org). Ask @ben:other.net.",
            "format": "org.matrix.custom.html",
            "formatted_body": "<strong>Done</strong>, <a href=\"https://matrix.to/#/@ann:example.org\">Ann</a>. Ask \
                               @ben:other.net.",
            "m.mentions": { "user_ids": ["@ann:example.org", "@ben:other.net"] },
            "m.relates_to": { "m.in_reply_to": { "event_id": "$q" } },
        })
    );
}

#[test]
fn a_thread_is_named_in_the_metadata() {
    let (table, desk) = world();
    with_answers(&table);
    let meta = json!({ "thread_id": "$root" });
    act(&desk, json!({ "op": "send", "chat_id": ROOM, "content": "hi", "metadata": meta }));
    let relates = json!({ "rel_type": "m.thread", "event_id": "$root", "is_falling_back": true,
                          "m.in_reply_to": { "event_id": "$root" } });
    assert_eq!(sent(&table)["m.relates_to"], relates);
    assert!(sent(&table).get("formatted_body").is_none());
    act(&desk, json!({ "op": "send", "chat_id": ROOM, "content": "hi", "reply_to": "$q", "metadata": meta }));
    assert_eq!(sent(&table)["m.relates_to"]["is_falling_back"], false);
    table.rule(&path("GET", "event/%24q"), 200, json!({ "content": {} }));
    table.rule(
        &path("GET", "event/%24inside"),
        200,
        json!({ "content": { "m.relates_to": { "rel_type": "m.thread" } } }),
    );
    let create = |id: &str| json!({ "op": "thread_create", "chat_id": ROOM, "thread_name": "t", "message_id": id });
    assert_eq!(act(&desk, create("$q")).result.thread_id.as_deref(), Some("$q"));
    // Regression: a thread was reported at a message that is not there.
    for (id, code) in [("$gone", Code::NotFound), ("$inside", Code::PlatformFailed)] {
        let refused = act(&desk, create(id)).result;
        assert_eq!((refused.code, refused.thread_id), (Some(code), None), "{id}");
    }
    let made = act(&desk, json!({ "op": "thread_create", "chat_id": ROOM, "thread_name": "Topic" }));
    assert_eq!((made.result.thread_id.as_deref(), &sent(&table)["body"]), (Some("$sent"), &json!("Topic")));
}

#[test]
fn edits_deletes_reactions_and_typing() {
    let (table, desk) = world();
    with_answers(&table);
    table.rule(&path("GET", "event/%24m"), 200, json!({ "sender": ME }));
    table.rule(&path("GET", "event/%24hers"), 200, json!({ "sender": "@ann:example.org" }));
    let foreign = act(&desk, json!({ "op": "edit", "chat_id": ROOM, "message_id": "$hers", "content": "x" })).result;
    assert_eq!(foreign.code, Some(Code::Forbidden), "{foreign:?}");
    let edited = act(&desk, json!({ "op": "edit", "chat_id": ROOM, "message_id": "$m", "content": "*new*" }));
    assert_eq!(edited.result.message_id.as_deref(), Some("$m"));
    assert_eq!(sent(&table)["m.relates_to"], json!({ "rel_type": "m.replace", "event_id": "$m" }));
    assert_eq!(sent(&table)["m.new_content"]["formatted_body"], "<em>new</em>");
    assert_eq!(sent(&table)["body"], "* new");
    act(&desk, json!({ "op": "edit", "chat_id": ROOM, "message_id": "$m", "content": "newer" }));
    assert_eq!(table.seen(&path("GET", "event/%24m")).len(), 1, "asked once");

    assert!(act(&desk, json!({ "op": "delete", "chat_id": ROOM, "message_id": "$m" })).result.success);
    assert_eq!(table.seen(&path("PUT", "redact/%24m/fd.5.17.0-redact")).len(), 1);

    let react = json!({ "op": "react", "chat_id": ROOM, "message_id": "$m", "emoji": "👍" });
    assert!(act(&desk, react).result.success);
    let relates = json!({ "rel_type": "m.annotation", "event_id": "$m", "key": "👍" });
    assert_eq!(table.seen(&path("PUT", "send/m.reaction/fd.5.17.0"))[0].body["m.relates_to"], relates);
    let of =
        |sender: &str, id: &str| json!({ "sender": sender, "event_id": id, "content": { "m.relates_to": relates } });
    let chunk = json!({ "chunk": [of("@ann:example.org", "$hers"), of(ME, "$mine")] });
    table.rule("GET client/v1/rooms/%21room%3Aexample.org/relations/%24m/m.annotation/m.reaction", 200, chunk);
    let unreact = json!({ "op": "react", "chat_id": ROOM, "message_id": "$m", "emoji": "👍", "remove": true });
    assert!(act(&desk, unreact).result.success);
    assert_eq!(table.seen(&path("PUT", "redact/%24mine/")).len(), 1);
    assert!(table.seen(&path("PUT", "redact/%24hers/")).is_empty());

    act(&desk, json!({ "op": "typing", "chat_id": ROOM }));
    act(&desk, json!({ "op": "typing", "chat_id": ROOM, "content": "" }));
    let typing: Vec<Value> =
        table.seen(&path("PUT", "typing/%40bot%3Aexample.org")).into_iter().map(|it| it.body).collect();
    assert_eq!(typing, [json!({ "typing": true, "timeout": 30_000 }), json!({ "typing": false })]);
}

#[test]
fn a_repeated_reaction_and_a_deleted_message_are_success() {
    let (table, desk) = world();
    with_room(&table, &[ME, "@ann:example.org"]);
    table.rule(&path("PUT", "send/m.reaction/"), 400, json!({ "errcode": "M_DUPLICATE_ANNOTATION", "error": "twice" }));
    assert!(act(&desk, json!({ "op": "react", "chat_id": ROOM, "message_id": "$m", "emoji": "👍" })).result.success);
    assert!(act(&desk, json!({ "op": "delete", "chat_id": ROOM, "message_id": "$gone" })).result.success);
    table.rule(&path("PUT", "redact/_/"), 400, json!({ "errcode": "M_INVALID_PARAM" }));
    let odd = act(&desk, json!({ "op": "delete", "chat_id": ROOM, "message_id": ".." })).result;
    assert!(!odd.success, "an id does not change the path: {odd:?}");
}

#[test]
fn a_prompt_is_a_numbered_text_with_reactions() {
    let (table, desk) = world();
    with_answers(&table);
    let options = json!([{ "id": "yes", "label": "*Yes*" }, { "id": "no", "label": "No" }]);
    let prompt = json!({ "op": "prompt", "chat_id": ROOM, "prompt_id": "p", "content": "Run it?", "options": options });
    assert_eq!(act(&desk, prompt).result.message_id.as_deref(), Some("$sent"));
    let content = sent(&table);
    assert_eq!(content["body"], "Run it?\n\n1\u{fe0f}\u{20e3} *Yes*\n2\u{fe0f}\u{20e3} No");
    assert_eq!(content["org.frontdesk.prompt"], json!({ "prompt_id": "p", "options": options }));
    let keys: Vec<Value> =
        table.seen(&path("PUT", "send/m.reaction/")).iter().map(|it| it.body["m.relates_to"]["key"].clone()).collect();
    assert_eq!(keys, [json!("1\u{fe0f}\u{20e3}"), json!("2\u{fe0f}\u{20e3}")]);
    let many: Vec<Value> = (0..11).map(|n| json!({ "id": format!("o{n}"), "label": "x" })).collect();
    act(&desk, json!({ "op": "prompt", "chat_id": ROOM, "prompt_id": "p", "content": "Which?", "options": many }));
    assert!(sent(&table)["body"].as_str().unwrap().contains("11. x (/o10)"), "{}", sent(&table));
    assert!(sent(&table).get("org.frontdesk.prompt").is_none());
}

#[test]
fn a_file_is_uploaded_and_then_sent() {
    let (table, desk) = world();
    with_answers(&table);
    table.rule("OPEN https://files.example/cat.png", 200, json!("bytes"));
    table.rule("POST media/v3/upload?filename=cat.png", 200, json!({ "content_uri": "mxc://example.org/new" }));
    let media = json!({ "op": "send_media", "chat_id": ROOM, "media_kind": "image", "filename": "cat.png",
                        "source_url": "https://files.example/cat.png", "content": "my **cat**" });
    assert!(act(&desk, media).result.success);
    let opened = &table.seen("OPEN ")[0];
    assert_eq!(opened.body, json!(false), "the token is not sent to others");
    assert_eq!(table.seen("POST media/")[0].body, json!({ "mime": "image/png", "text": "bytes", "length": 5 }));
    let content = sent(&table);
    assert_eq!((&content["msgtype"], &content["body"]), (&json!("m.image"), &json!("my cat")));
    assert_eq!((&content["url"], &content["filename"]), (&json!("mxc://example.org/new"), &json!("cat.png")));
    let own = json!({ "op": "send_media", "chat_id": ROOM, "media_kind": "image",
                      "source_url": "https://desk.example/relay/media/absent" });
    assert_eq!(act(&desk, own).result.code, Some(Code::Unavailable), "there is no store of files here");
}

#[test]
fn a_file_of_a_message_is_fetched_with_the_token() {
    let (table, desk) = world();
    let url = "OPEN http://127.0.0.1:8008/_matrix/client/v1/media/download/example.org/abc?";
    table.rule(url, 200, json!("bytes"));
    let fetch = |uri: &str| run(desk.fetch_media(&bot("sync"), &Secret::new(uri))).map(|it| it.mime);
    assert_eq!(fetch("mxc://example.org/abc"), Ok("image/png".into()));
    assert_eq!(table.seen("OPEN ")[0].body, json!(true));
    assert!(matches!(fetch("mxc://example.org/gone"), Err(MediaFault::Gone(_))));
    for bad in ["mxc://example.org", "https://example.org/x", "mxc:///x", "mxc://a/b/../c", "mxc://a/.."] {
        assert!(matches!(fetch(bad), Err(MediaFault::Gone(why)) if !why.contains(bad)), "{bad}");
    }
    assert_eq!(table.seen("OPEN ").len(), 2);
}

#[test]
fn what_was_lost_on_the_way_is_asked_again_with_the_same_key() {
    let (table, desk) = world();
    table.fail(&path("PUT", "send/m.room.message/"), OutcallError::TimedOut);
    with_answers(&table);
    let acted = act(&desk, json!({ "op": "send", "chat_id": ROOM, "content": "once" }));
    assert!(acted.result.success && !acted.result.ambiguous);
    let seen = table.seen(&path("PUT", "send/m.room.message/"));
    assert_eq!((seen.len(), &seen[0]), (2, &seen[1]));
}

#[test]
fn refusals_are_told_apart() {
    let send = json!({ "op": "send", "chat_id": ROOM, "content": "x" });
    let refused = |status: u16, body: Value| {
        let (table, desk) = world();
        with_room(&table, &[ME, "@ann:example.org"]);
        table.rule(&path("PUT", "send/"), status, body);
        act(&desk, send.clone())
    };
    let limited = refused(429, json!({ "errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 2_500 }));
    assert_eq!((limited.pace.retry_after_ms, limited.result.code), (Some(2_500), Some(Code::RateLimited)));
    let forbidden = refused(403, json!({ "errcode": "M_FORBIDDEN", "error": "not in the room" })).result;
    assert_eq!((forbidden.code, forbidden.ambiguous), (Some(Code::Forbidden), false));
    assert!(forbidden.error.unwrap().contains("not in the room"));
    let broken = refused(502, json!("bad gateway")).result;
    assert!(broken.ambiguous && !broken.success);
    let (table, desk) = world();
    table.fail(&path("GET", "joined_members"), OutcallError::TimedOut);
    let unreached = act(&desk, send.clone()).result;
    assert_eq!((unreached.code, unreached.ambiguous), (Some(Code::Unavailable), false), "nothing was sent");
    let (_, desk) = world();
    assert_eq!(act(&desk, send.clone()).result.code, Some(Code::NotFound));
}

/// Regression: what certainly did not happen was reported as in doubt.
#[test]
fn certain_failures_are_not_unknown_outcomes() {
    let send = json!({ "op": "send", "chat_id": ROOM, "content": "x" });
    let (table, desk) = world();
    table.fail(&path("PUT", "send/m.room.message/"), OutcallError::TimedOut);
    with_room(&table, &[ME, "@ann:example.org"]);
    let forbidden = json!({ "errcode": "M_FORBIDDEN", "error": "muted" });
    table.rule(&path("PUT", "send/m.room.message/"), 403, forbidden);
    let refused = act(&desk, send.clone()).result;
    assert_eq!((refused.code, refused.ambiguous), (Some(Code::Forbidden), false), "the second answer is certain");

    let (table, desk) = world();
    with_room(&table, &[ME, "@ann:example.org"]);
    table.fail(&path("PUT", "send/m.room.message/"), OutcallError::NotSent("connection refused".into()));
    let refused = act(&desk, send).result;
    assert_eq!((refused.code, refused.ambiguous), (Some(Code::Unavailable), false));
    assert!(refused.error.unwrap().contains("connection refused"));

    let (table, desk) = world();
    table.rule(&path("GET", "joined_members"), 502, json!({}));
    let unknown = act(&desk, json!({ "op": "get_chat_info", "chat_id": ROOM })).result;
    assert_eq!((unknown.code, unknown.ambiguous), (Some(Code::Unavailable), false), "a question changes nothing");

    let (table, desk) = world();
    with_answers(&table);
    table.rule("OPEN https://files.example/cat.png", 200, json!("bytes"));
    table.rule("POST media/v3/upload", 502, json!({}));
    let media = json!({ "op": "send_media", "chat_id": ROOM, "media_kind": "image",
                        "source_url": "https://files.example/cat.png" });
    let unsent = act(&desk, media).result;
    assert_eq!((unsent.code, unsent.ambiguous), (Some(Code::Unavailable), false), "nothing is in the room");
}

/// Regression: a reaction that the homeserver did not let the bot remove was reported as removed.
#[test]
fn a_reaction_that_stays_is_not_reported_as_removed() {
    let relations = "GET client/v1/rooms/%21room%3Aexample.org/relations/%24m/m.annotation/m.reaction";
    let unreact = json!({ "op": "react", "chat_id": ROOM, "message_id": "$m", "emoji": "👍", "remove": true });
    for (status, errcode, code) in [
        (403, "M_FORBIDDEN", Some(Code::Forbidden)),
        (404, "M_UNRECOGNIZED", Some(Code::NotFound)),
        (404, "M_NOT_FOUND", None),
        (502, "M_UNKNOWN", Some(Code::Unavailable)),
    ] {
        let (table, desk) = world();
        table.rule(relations, status, json!({ "errcode": errcode, "error": "no" }));
        let result = act(&desk, unreact.clone()).result;
        assert_eq!((result.code, result.success, result.ambiguous), (code, code.is_none(), false), "{errcode}");
    }
    let (table, desk) = world();
    let relates = json!({ "m.relates_to": { "key": "👍" } });
    let of = |sender: &str, id: &str| json!({ "sender": sender, "event_id": id, "content": relates });
    table.rule(&format!("{relations}?limit=100&from=p2"), 200, json!({ "chunk": [of(ME, "$mine")] }));
    table.rule(relations, 200, json!({ "chunk": [of("@ann:example.org", "$hers")], "next_batch": "p2" }));
    table.rule(&path("PUT", "redact/%24mine/"), 403, json!({ "errcode": "M_FORBIDDEN", "error": "no" }));
    let result = act(&desk, unreact).result;
    assert_eq!(result.code, Some(Code::Forbidden), "it is on the second page, and stays");
}

/// Regression: an edit in a script of three bytes per character was refused, although it fits without its markup.
#[test]
fn a_long_edit_fits_without_its_markup() {
    let (table, desk) = world();
    with_answers(&table);
    table.rule(&path("GET", "event/%24m"), 200, json!({ "sender": ME }));
    let text = format!("**標題**\n\n{}", "漢".repeat(15_900));
    let edited = act(&desk, json!({ "op": "edit", "chat_id": ROOM, "message_id": "$m", "content": text })).result;
    assert!(edited.success, "{edited:?}");
    let new = sent(&table)["m.new_content"].clone();
    assert!(new.get("formatted_body").is_none() && new["body"].as_str().unwrap().ends_with("漢漢"), "nothing is cut");
    assert!(sent(&table).to_string().len() < 60_000);
    let text = "🧊".repeat(16_000);
    let refused = act(&desk, json!({ "op": "edit", "chat_id": ROOM, "message_id": "$m", "content": text })).result;
    assert_eq!(refused.code, Some(Code::TooLarge), "the text alone is larger than an event");
}

#[test]
fn a_homeserver_that_limits_the_bot_slows_it_down() {
    let (table, desk) = world();
    with_room(&table, &[ME, "@ann:example.org"]);
    let bot = bot("sync");
    let send = Action::parse(&json!({ "op": "send", "chat_id": ROOM, "content": "x" }).to_string()).unwrap();
    let typing = Action::parse(&json!({ "op": "typing", "chat_id": ROOM }).to_string()).unwrap();
    let pace = || desk.cost(ActingAs::new(&"home".into(), &bot), &send).buckets[0].1.every_ms;
    assert_eq!(pace(), 100);
    let limit = json!({ "errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 2_500 });
    table.rule(&path("PUT", "send/"), 429, limit);
    let limited = act(&desk, json!({ "op": "send", "chat_id": ROOM, "content": "x" }));
    assert_eq!((limited.pace.retry_after_ms, limited.pace.bucket.as_deref()), (Some(2_500), Some("messages")));
    assert_eq!(pace(), 5_000, "as Synapse permits ordinary users");
    assert!(desk.cost(ActingAs::new(&"home".into(), &bot), &typing).buckets.is_empty(), "typing is not counted there");
}

#[test]
fn few_files_of_unknown_length_are_in_memory() {
    let (table, desk) = world();
    with_answers(&table);
    table.rule("OPEN https://files.example/", 200, json!("bytes"));
    let uploaded = json!({ "content_uri": "mxc://example.org/new" });
    table.slow("POST media/v3/upload", Duration::from_secs(10), 200, uploaded);
    let bot = bot("sync");
    let media =
        json!({ "op": "send_media", "chat_id": ROOM, "media_kind": "image", "source_url": "https://files.example/a" });
    let action = Action::parse(&media.to_string()).unwrap();
    let home = TenantId::from("home");
    let send = || desk.act(ActingAs::new(&home, &bot), &action, None);
    let results = run(futures_util::future::join_all([send(), send(), send()]));
    let codes: Vec<_> = results.into_iter().map(|acted| acted.result.code).collect();
    assert_eq!(codes, [None, None, Some(Code::RateLimited)]);
    assert_eq!(run(send()).result.code, None, "afterwards there is room again");
}

/// Regression: two people in a room with a name were a direct chat.
#[test]
fn a_room_with_a_name_is_a_direct_chat_only_if_the_account_says_so() {
    for (name, alias, direct, kind) in [
        (None, None, false, "dm"),
        (Some("Ops"), None, false, "group"),
        (None, Some("#ops:example.org"), false, "group"),
        (Some("Ann and bot"), None, true, "dm"),
    ] {
        let (table, desk) = world();
        with_room(&table, &[ME, "@ann:example.org"]);
        if let Some(name) = name {
            table.rule(&path("GET", "state/m.room.name/"), 200, json!({ "name": name }));
        }
        if let Some(alias) = alias {
            table.rule(&path("GET", "state/m.room.canonical_alias/"), 200, json!({ "alias": alias }));
        }
        if direct {
            let data = json!({ "@ann:example.org": [ROOM] });
            table.rule("GET client/v3/user/%40bot%3Aexample.org/account_data/m.direct", 200, data);
        }
        let bot = bot("sync");
        let look = run(desk.look(ActingAs::new(&"home".into(), &bot), &ChatId::from(ROOM), None)).unwrap().unwrap();
        assert_eq!(look.info.chat_type, kind, "{name:?} {alias:?}");
        assert_eq!(look.person.is_some(), kind == "dm");
    }
}

#[test]
fn nothing_is_sent_into_an_encrypted_room() {
    let (table, desk) = world();
    with_answers(&table);
    table.rule(&path("GET", "state/m.room.encryption/"), 200, json!({ "algorithm": "m.megolm.v1.aes-sha2" }));
    let refused = act(&desk, json!({ "op": "send", "chat_id": ROOM, "content": "secret" })).result;
    assert_eq!(refused.code, Some(Code::Forbidden));
    assert!(refused.error.unwrap().contains("encrypted"));
    assert!(table.seen(&path("PUT", "")).is_empty());
}

#[test]
fn members_see_the_room_and_others_do_not() {
    let (table, desk) = world();
    with_room(&table, &[ME, "@ann:example.org"]);
    let member = path("GET", "state/m.room.member/%40ann%3Aexample.org");
    table.rule(&member, 200, json!({ "membership": "join" }));
    table.rule(&path("GET", "state/m.room.member/%40cat%3Aexample.org"), 200, json!({ "membership": "leave" }));
    let bot = bot("sync");
    let look = |viewer: Option<&str>| {
        let viewer = viewer.map(UserId::from);
        run(desk.look(ActingAs::new(&"home".into(), &bot), &ROOM.into(), viewer.as_ref())).unwrap().unwrap()
    };
    let seen = look(Some("@ann:example.org"));
    assert_eq!((seen.visible, seen.person.as_deref()), (Some(true), Some("@ann:example.org")));
    assert_eq!((seen.scope_id.as_deref(), seen.info.chat_type.as_str()), (Some("example.org"), "dm"));
    assert_eq!(look(Some("@ben:other.net")).visible, Some(false));
    assert_eq!(look(Some("@cat:example.org")).visible, Some(false));
    look(Some("@ann:example.org"));
    assert_eq!((table.seen(&member).len(), table.seen(&path("GET", "joined_members")).len()), (2, 1));
    assert_eq!(look(None).visible, None);
    let other = run(desk.look(ActingAs::new(&"home".into(), &bot), &"!other:example.org".into(), None));
    assert!(other.unwrap().is_none());
}

#[test]
fn a_direct_chat_that_grew_is_one_until_somebody_names_it() {
    for (members, name, chat_type) in [
        (&[ME, "@ann:example.org"][..], Some("Us"), "dm"),
        (&[ME, "@ann:example.org", "@ben:other.net"], None, "dm"),
        (&[ME, "@ann:example.org", "@ben:other.net"], Some("Us three"), "group"),
    ] {
        let (table, desk) = world();
        match name {
            Some(name) => table.rule(&path("GET", "state/m.room.name/"), 200, json!({ "name": name })),
            None => table.rule(&path("GET", "state/m.room.name/"), 404, json!({ "errcode": "M_NOT_FOUND" })),
        }
        with_room(&table, members);
        let direct = "GET client/v3/user/%40bot%3Aexample.org/account_data/m.direct";
        table.rule(direct, 200, json!({ "@ann:example.org": [ROOM] }));
        let bot = bot("sync");
        let seen = run(desk.look(ActingAs::new(&"home".into(), &bot), &ChatId::from(ROOM), None)).unwrap().unwrap();
        assert_eq!(seen.info.chat_type, chat_type, "{members:?} {name:?}");
    }
}

#[test]
fn long_texts_fit_into_events() {
    let (_, desk) = world();
    for text in ["x".repeat(40_000), "🧊 **b** ".repeat(9_000), "<&\">\n".repeat(12_000), "`\u{1}`".repeat(15_000)] {
        let parts = desk.split(&text);
        assert!(parts.len() > 1);
        for part in &parts {
            assert!(part.chars().count() <= 16_000);
            assert!(super::super::content::fits(&super::super::content::text("m.text", part)), "{}", part.len());
        }
    }
    assert_eq!(desk.descriptor().platform, PLATFORM);
}

/// Regression: the bot was shown as typing for half a minute after its message.
#[test]
fn a_message_ends_the_typing_that_was_shown() {
    let (table, desk) = world();
    with_answers(&table);
    let send = || act(&desk, json!({ "op": "send", "chat_id": ROOM, "content": "hi" })).result.success;
    let typing = || table.seen(&path("PUT", "typing/")).into_iter().map(|it| it.body["typing"] == true);
    assert!(send());
    assert_eq!(typing().count(), 0, "none was shown");
    act(&desk, json!({ "op": "typing", "chat_id": ROOM }));
    assert!(send() && send());
    assert_eq!(typing().collect::<Vec<_>>(), [true, false]);
    let prompt = json!({ "op": "prompt", "chat_id": ROOM, "prompt_id": "p", "content": "?",
                         "options": [{ "id": "yes", "label": "Yes" }] });
    act(&desk, json!({ "op": "typing", "chat_id": ROOM }));
    assert!(act(&desk, prompt).result.success);
    assert_eq!(typing().count(), 4);
    act(&desk, json!({ "op": "typing", "chat_id": ROOM }));
    act(&desk, json!({ "op": "typing", "chat_id": ROOM, "content": "" }));
    assert!(send());
    assert_eq!(typing().count(), 6, "it was ended already");
}

#[test]
fn a_homeserver_that_does_not_end_the_typing_fails_no_message() {
    let (table, desk) = world();
    with_room(&table, &[ME, "@ann:example.org", "@ben:other.net"]);
    table.rule(&path("PUT", "send/m.room.message/"), 200, json!({ "event_id": "$sent" }));
    table.rule(&path("PUT", "typing/"), 200, json!({}));
    table.slow(&path("PUT", "typing/"), Duration::from_mins(1), 500, json!({}));
    let bot = bot("sync");
    let action = |value: Value| Action::parse(&value.to_string()).unwrap();
    let (typing, send) = (
        action(json!({ "op": "typing", "chat_id": ROOM })),
        action(json!({ "op": "send", "chat_id": ROOM, "content": "hi" })),
    );
    let (acted, took) = run(async {
        desk.act(super::acting_as(&bot), &typing, None).await;
        let began = tokio::time::Instant::now();
        (desk.act(super::acting_as(&bot), &send, None).await, began.elapsed())
    });
    assert!(acted.result.success && took <= Duration::from_secs(2), "{took:?}");
}

/// Regression: the refusal of a proxy, or of a token that was withdrawn in between, counted as certain.
#[test]
fn a_second_attempt_is_certain_only_if_the_homeserver_judged_it() {
    for (status, body, is_certain) in [
        (403, json!({ "errcode": "M_FORBIDDEN", "error": "muted" }), true),
        (403, json!({ "error": "of a proxy" }), false),
        (401, json!({ "errcode": "M_UNKNOWN_TOKEN" }), false),
    ] {
        let (table, desk) = world();
        with_room(&table, &[ME, "@ann:example.org", "@ben:other.net"]);
        table.fail(&path("PUT", "send/"), OutcallError::Failed("connection closed".into()));
        table.rule(&path("PUT", "send/"), status, body);
        let result = act(&desk, json!({ "op": "send", "chat_id": ROOM, "content": "hi" })).result;
        assert_eq!((result.success, result.ambiguous), (false, !is_certain), "{result:?}");
    }
}
