//! `/link`, `/unlink` and `/whoami`, typed into the built-in chat.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;

use crate::harness::{GatewayAccount, Harness};
use crate::scene::{
    PLATFORM, answer, code_of, explain, facts, facts_of, has_had, kinds, manage, managed, receives, ruling, say, write,
};

/// Sends a command in a direct message; returns the server's answer in that chat.
async fn ask(harness: &Harness, account: &GatewayAccount, user: &str, text: &str) -> String {
    let chat = format!("dm-{user}");
    let posted = write(harness, account, &chat, user, text).await;
    assert_eq!(posted["verdict"]["outcome"], "withheld", "{posted}");
    let said = answer(harness, account, &chat).await;
    assert_eq!(posted["verdict"]["text"], json!(said), "the poster gets the same text");
    said
}

async fn counted(harness: &Harness, why: &str) -> u64 {
    harness.metric(&format!("frontdesk_links_total{{why=\"{why}\"}}")).await
}

/// Instances that the user is linked to, in the order of the records.
async fn links(harness: &Harness, user: &str) -> Vec<String> {
    let all = harness.admin("GET", "/bindings", &Value::Null).await.expect(200);
    let of_user = |link: &&Value| link["user_id"] == user;
    let name = |link: &Value| link["instance"].as_str().unwrap().to_owned();
    all["bindings"].as_array().unwrap().iter().filter(of_user).map(name).collect()
}

// ---- linking ----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_code_links_its_sender_and_the_next_message_reaches_the_agent() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let (mut anns, mut bobs) = (harness.socket(&ann).await, harness.socket(&bob).await);
    let code = code_of(&harness, &ann).await;
    let before = write(&harness, &ann, "dm-new", "new", "hello?").await;
    assert_eq!(ruling(&harness, &before).await, "nobody-owner/linked");
    let said = ask(&harness, &ann, "new", &format!("/link {code}")).await;
    assert!(said.contains("linked to ann"), "{said}");
    assert_eq!(links(&harness, "new").await, ["ann"]);
    write(&harness, &ann, "dm-new", "new", "hello!").await;
    receives(&mut anns, "hello!").await;
    has_had(&harness, &ann, &mut anns, 1).await;
    has_had(&harness, &bob, &mut bobs, 0).await;
    // The author is linked, not the chat: other users in it stay unlinked.
    let other = write(&harness, &ann, "dm-new", "other", "me too").await;
    assert_eq!(ruling(&harness, &other).await, "nobody-owner/linked");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_to_the_server_reach_no_agent_and_are_explained() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut socket = harness.socket(&ann).await;
    let code = code_of(&harness, &ann).await;
    // By a linked user, whose other messages reach an agent.
    for (text, command) in [
        (format!("/link {code}"), "/link"),
        ("/link".into(), "/link"),
        ("/link WRONG-ONE".into(), "/link"),
        ("  /LINK   wrong again\n".into(), "/link"),
        ("/unlink somebody".into(), "/unlink"),
        ("/whoami".into(), "/whoami"),
        ("/whoami please".into(), "/whoami"),
    ] {
        let posted = write(&harness, &ann, "d", "u-ann", &text).await;
        assert_eq!(posted["verdict"]["outcome"], "withheld", "{text}");
        let response = explain(&harness, &posted).await;
        assert_eq!((&response["outcome"], &response["tenant"]), (&json!("withheld"), &json!("home")), "{text}");
        let line = &response["instances"][0];
        assert_eq!(response["instances"].as_array().unwrap().len(), 1);
        assert_eq!((&line["layer"], &line["rule"], &line["value"]), (&json!("owner"), &json!("desk"), &json!(command)));
        assert_eq!((&line["instance"], &line["outcome"]), (&json!(""), &json!("withheld")));
        answer(&harness, &ann, "d").await;
    }
    has_had(&harness, &ann, &mut socket, 0).await;
    // Similar texts are ordinary messages.
    for text in ["/links", "/linkage x", "see /link", "link x", "//link x"] {
        write(&harness, &ann, "d", "u-ann", text).await;
        receives(&mut socket, text).await;
    }
    has_had(&harness, &ann, &mut socket, 5).await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn link_without_a_code_shows_its_usage_and_counts_as_no_attempt() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    for text in ["/link", "/link   ", "/Link"] {
        for _ in 0..3 {
            let said = ask(&harness, &ann, "new", text).await;
            assert!(said.contains("/link ABCD-EFGH"), "{said}");
        }
    }
    let code = code_of(&harness, &ann).await;
    assert!(ask(&harness, &ann, "new", &format!("/link {code}")).await.contains("linked to ann"));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_dashes_and_spaces_of_a_code_do_not_matter() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let forms: [fn(&str) -> String; 6] = [
        |code| code.into(),
        |code| code.to_lowercase(),
        |code| code.replace('-', ""),
        |code| code.replace('-', " "),
        |code| code.to_lowercase().replace('-', " - "),
        |code| format!("  {}  ", code.replace('-', "\u{2013}")),
    ];
    for (number, form) in forms.iter().enumerate() {
        let (user, typed) = (format!("p{number}"), form(&code_of(&harness, &ann).await));
        let said = ask(&harness, &ann, &user, &format!("/link {typed}")).await;
        assert!(said.contains("linked to ann"), "{typed}: {said}");
        assert_eq!(links(&harness, &user).await, ["ann"]);
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_or_foreign_code_is_refused_and_links_nobody() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let rival = harness.add_gateway_in("rival", "r").await;
    let bot = json!({ "platform": "semaphore", "id": "b1", "tenant": "home" });
    harness.admin("POST", "/bots", &bot).await.expect(201);
    let elsewhere = manage(&harness, &ann, "link", json!({ "platform": "semaphore" })).await.expect(200);
    let before = facts(&harness);
    let elsewhere = elsewhere["code"].as_str().unwrap();
    let foreign = code_of(&harness, &rival).await;
    let known = facts(&harness);
    assert_eq!(known.len(), before.len() + 1);
    let wrong = ["AAAA-AAAA", elsewhere, &foreign];
    let mut words = Vec::new();
    for (number, code) in wrong.iter().enumerate() {
        words.push(ask(&harness, &ann, &format!("p{number}"), &format!("/link {code}")).await);
        assert_eq!(facts(&harness), known, "nobody was linked, and the code is still valid");
    }
    words.dedup();
    assert_eq!(words.len(), 1, "a foreign code must look like an unknown one: {words:?}");
    assert!(words[0].contains("do not know"), "{words:?}");
    assert!(ask(&harness, &rival, "p1", &format!("/link {foreign}")).await.contains("linked to r"));
    assert_eq!(counted(&harness, "wrong").await, 3);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_works_once_and_its_user_is_told_about_the_existing_link() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let code = code_of(&harness, &ann).await;
    assert!(ask(&harness, &ann, "first", &format!("/link {code}")).await.contains("linked to ann"));
    let linked = facts(&harness);
    let said = ask(&harness, &ann, "first", &format!("/link {code}")).await;
    assert!(said.contains("already linked to ann"), "{said}");
    let said = ask(&harness, &ann, "second", &format!("/link {code}")).await;
    assert!(said.contains("already used") && !said.contains("first") && !said.contains("ann"), "{said}");
    assert_eq!(facts(&harness), linked);
    assert_eq!(links(&harness, "second").await, [""; 0]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_code_is_refused_and_links_nobody() {
    let harness = Harness::with(|config| config.link.ttl_s = 0).await;
    let ann = harness.add_gateway("ann").await;
    let code = code_of(&harness, &ann).await;
    let before = facts(&harness);
    let said = ask(&harness, &ann, "late", &format!("/link {code}")).await;
    assert!(said.contains("expired"), "{said}");
    assert_eq!(facts(&harness), before);
    assert_eq!(counted(&harness, "expired").await, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_uses_of_a_code_one_succeeds() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let code = code_of(&harness, &ann).await;
    let people: Vec<String> = (0..10).map(|number| format!("p{number}")).collect();
    let text = format!("/link {code}");
    let asks = people.iter().map(|user| ask(&harness, &ann, user, &text));
    let said = futures_util::future::join_all(asks).await;
    assert_eq!(said.iter().filter(|words| words.contains("linked to ann")).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|words| words.contains("already used")).count(), 9, "{said:?}");
    let mut linked = 0;
    for user in &people {
        linked += links(&harness, user).await.len();
    }
    assert_eq!(linked, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_too_many_wrong_codes_even_a_valid_one_must_wait() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let rival = harness.add_gateway_in("rival", "r").await;
    let code = code_of(&harness, &ann).await;
    for number in 0..5 {
        let said = ask(&harness, &ann, "guesser", &format!("/link AAAA-AAA{number}")).await;
        assert!(said.contains("do not know"), "{said}");
    }
    for text in [format!("/link {code}"), "/link BBBB-BBBB".into(), format!("/link {}", code.to_lowercase())] {
        let said = ask(&harness, &ann, "guesser", &text).await;
        assert!(said.contains("Too many"), "{said}");
    }
    assert_eq!(links(&harness, "guesser").await, [""; 0]);
    assert_eq!((counted(&harness, "wrong").await, counted(&harness, "limited").await), (5, 3));
    // Other users are not affected, including one of the same name in another tenant.
    let theirs = code_of(&harness, &rival).await;
    assert!(ask(&harness, &rival, "guesser", &format!("/link {theirs}")).await.contains("linked to r"));
    assert!(ask(&harness, &ann, "honest", &format!("/link {code}")).await.contains("linked to ann"));
    // The other commands still work.
    assert!(ask(&harness, &ann, "guesser", "/whoami").await.contains("not linked"));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_linked_user_can_link_another_agent_which_becomes_the_latest() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let mut bobs = harness.socket(&bob).await;
    let code = code_of(&harness, &bob).await;
    assert!(ask(&harness, &ann, "u-ann", &format!("/link {code}")).await.contains("linked to bob"));
    assert_eq!(links(&harness, "u-ann").await, ["ann", "bob"]);
    let posted = write(&harness, &ann, "d", "u-ann", "to the latest").await;
    assert_eq!(ruling(&harness, &posted).await, "bob+owner/linked ann-owner/latest");
    receives(&mut bobs, "to the latest").await;
    // A new code of the first agent makes that the latest again.
    let code = code_of(&harness, &ann).await;
    ask(&harness, &ann, "u-ann", &format!("/link {code}")).await;
    let posted = write(&harness, &ann, "d", "u-ann", "back").await;
    assert_eq!(ruling(&harness, &posted).await, "ann+owner/linked bob-owner/latest");
    harness.finish().await;
}

// ---- unlink and whoami ------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn unlink_removes_the_only_link_and_asks_if_there_are_several() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let mut anns = harness.socket(&ann).await;
    harness.bind("home", "u-ann", "bob").await;
    let said = ask(&harness, &ann, "u-ann", "/unlink").await;
    assert!(said.contains("ann") && said.contains("bob") && said.contains("/unlink NAME"), "{said}");
    let said = ask(&harness, &ann, "u-ann", "/unlink team").await;
    assert!(said.contains("not linked to \"team\"") && said.contains("ann and bob"), "{said}");
    assert_eq!(links(&harness, "u-ann").await, ["ann", "bob"], "nothing was removed yet");
    assert_eq!(counted(&harness, "unlinked").await, 0);
    managed(&harness, &bob, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;
    assert!(kinds(&facts(&harness)).contains(&"DmDefault"));

    let said = ask(&harness, &ann, "u-ann", "/unlink bob").await;
    assert!(said.contains("no longer linked to bob"), "{said}");
    assert_eq!(links(&harness, "u-ann").await, ["ann"]);
    assert!(!kinds(&facts(&harness)).contains(&"DmDefault"), "the default was removed with the link");
    write(&harness, &ann, "d", "u-ann", "to the one that is left").await;
    receives(&mut anns, "to the one that is left").await;

    let said = ask(&harness, &ann, "u-ann", "/UNLINK").await;
    assert!(said.contains("no longer linked to ann"), "{said}");
    assert_eq!(links(&harness, "u-ann").await, [""; 0]);
    let posted = write(&harness, &ann, "d", "u-ann", "anybody?").await;
    assert_eq!(ruling(&harness, &posted).await, "nobody-owner/linked");
    for text in ["/unlink", "/unlink ann"] {
        let said = ask(&harness, &ann, "u-ann", text).await;
        assert!(said.contains("not linked to any agent"), "{said}");
    }
    assert_eq!(counted(&harness, "unlinked").await, 2);
    assert_eq!(links(&harness, "u-bob").await, ["bob"], "other users are not affected");
    has_had(&harness, &ann, &mut anns, 1).await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unlink_affects_only_the_own_user_and_tenant() {
    let harness = Harness::open().await;
    let (ann, rival) = (harness.add_gateway("ann").await, harness.add_gateway_in("rival", "r").await);
    harness.bind("rival", "u-ann", "r").await;
    assert!(ask(&harness, &rival, "u-ann", "/unlink ann").await.contains("not linked to \"ann\""));
    assert!(ask(&harness, &rival, "u-ann", "/unlink").await.contains("no longer linked to r"));
    assert_eq!(links(&harness, "u-ann").await, ["ann"]);
    assert!(ask(&harness, &ann, "u-r", "/unlink r").await.contains("not linked to any agent"));
    assert_eq!(links(&harness, "u-r").await, ["r"]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoami_shows_the_user_and_the_linked_agents() {
    let harness = Harness::open().await;
    let (ann, rival) = (harness.add_gateway("ann").await, harness.add_gateway_in("rival", "r").await);
    let bob = harness.add_gateway("bob").await;
    harness.bind("rival", "new", "r").await;
    let said = ask(&harness, &ann, "new", "/whoami").await;
    assert!(said.contains("You are new on relay") && said.contains("not linked to any agent"), "{said}");
    assert!(ask(&harness, &rival, "new", "/whoami").await.contains("linked to r"));
    let said = ask(&harness, &ann, "u-ann", "/whoami").await;
    assert!(said.contains("You are u-ann on relay") && said.contains("linked to ann."), "{said}");
    harness.bind("home", "u-ann", "bob").await;
    let said = ask(&harness, &ann, "u-ann", "/whoami").await;
    assert!(said.contains("ann and bob") && said.contains("Direct messages go to bob"), "{said}");
    managed(&harness, &ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;
    assert!(ask(&harness, &ann, "u-ann", "/whoami").await.contains("Direct messages go to ann"));
    managed(&harness, &bob, "deprovision", json!({})).await;
    assert!(ask(&harness, &ann, "u-ann", "/whoami").await.ends_with("linked to ann."));
    harness.finish().await;
}

// ---- where the commands work ------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn outside_of_direct_messages_and_by_bots_they_are_ordinary_text() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut socket = harness.socket(&ann).await;
    let code = code_of(&harness, &ann).await;
    let before = facts(&harness);
    let mut taken = 0;
    for command in [format!("/link {code}"), "/unlink".into(), "/whoami".into()] {
        for kind in ["group", "channel", "thread", "forum"] {
            let more = json!({ "chat_type": kind });
            let posted = say(&harness, &ann, &format!("room-{kind}"), "stranger", &command, more.clone()).await;
            assert_eq!(ruling(&harness, &posted).await, "nobody-owner/linked", "{kind}");
            say(&harness, &ann, &format!("room-{kind}"), "u-ann", &command, more).await;
            assert_eq!(receives(&mut socket, &command).await["message_type"], "command", "{kind}");
            taken += 1;
        }
        let more = json!({ "chat_type": "dm", "is_bot": true });
        let posted = say(&harness, &ann, "d", "robot", &command, more.clone()).await;
        assert_eq!(ruling(&harness, &posted).await, "nobody-owner/linked");
        say(&harness, &ann, "d", "u-ann", &command, more).await;
        receives(&mut socket, &command).await;
        taken += 1;
    }
    assert_eq!(facts(&harness), before);
    has_had(&harness, &ann, &mut socket, taken).await;
    for chat in ["room-group", "room-channel", "room-thread", "room-forum", "d"] {
        let lines = harness.history(&ann, chat).await;
        assert!(lines.iter().all(|line| line["direction"] == "in"), "the server must not answer there: {lines:?}");
    }
    let text = harness.get("/metrics", "").await.text();
    assert!(!text.contains("frontdesk_links_total{"), "nothing was counted: {text}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pressed_button_is_not_a_server_command() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut socket = harness.socket(&ann).await;
    write(&harness, &ann, "d", "u-ann", "hi").await;
    receives(&mut socket, "hi").await;
    let options = json!([{ "id": "unlink", "label": "/unlink" }, { "id": "whoami", "label": "/whoami" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "d", "prompt_id": "p", "content": "?", "options": options });
    let id = socket.act(prompt).await["message_id"].as_str().unwrap().to_owned();
    let press = json!({ "prompt_id": "p", "option_id": "unlink", "user_id": "u-ann" });
    harness.post(&format!("/chat/v1/chats/d/messages/{id}/press"), &ann.chat, &press).await.expect(202);
    receives(&mut socket, "/unlink").await;
    assert_eq!(links(&harness, "u-ann").await, ["ann"]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_message_runs_its_command_once() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let code = code_of(&harness, &ann).await;
    let post = |text: &str, id: &str| json!({ "user_id": "new", "text": text, "message_id": id });
    let link = post(&format!("/link {code}"), "m-1");
    let first = harness.say_as(&ann, "d", link.clone()).await.expect(202);
    let linked = facts(&harness);
    // A message repeated after another command does not run again.
    harness.say_as(&ann, "d", post("/unlink", "m-2")).await.expect(202);
    for body in [link.clone(), post("/unlink", "m-2"), link] {
        let again = harness.say_as(&ann, "d", body).await.expect(202);
        assert_eq!(again["verdict"]["outcome"], "withheld");
    }
    assert_eq!(links(&harness, "new").await, [""; 0]);
    assert_ne!(facts(&harness), linked);
    assert_eq!((counted(&harness, "linked").await, counted(&harness, "unlinked").await), (1, 1));
    let lines = harness.history(&ann, "d").await;
    assert_eq!(lines.len(), 4, "two commands, two answers: {lines:?}");
    assert!(!first["event_id"].as_str().unwrap().is_empty());
    let posts = (0..20).map(|_| harness.say_as(&ann, "d", post("/whoami", "m-3")));
    futures_util::future::join_all(posts).await.iter().for_each(|reply| drop(reply.expect(202)));
    assert_eq!(harness.history(&ann, "d").await.len(), 6, "concurrent repeats run once, too");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_counted_by_outcome() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let (code, bobs) = (code_of(&harness, &ann).await, code_of(&harness, &bob).await);
    for (user, text) in [
        ("p", format!("/link {code}")),
        ("p", format!("/link {code}")),
        ("q", format!("/link {code}")),
        ("p", "/link AAAA-AAAA".into()),
        ("p", format!("/link {bobs}")),
        ("p", "/unlink".into()),
        ("p", "/unlink ann".into()),
        ("p", "/unlink ann".into()),
        ("p", "/whoami".into()),
        ("p", "/link".into()),
    ] {
        ask(&harness, &ann, user, &text).await;
    }
    let text = harness.get("/metrics", "").await.text();
    let mut counts: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("frontdesk_links_total{why=")).collect();
    counts.sort_unstable();
    assert_eq!(counts, ["\"again\"} 1", "\"linked\"} 2", "\"unlinked\"} 1", "\"used\"} 1", "\"wrong\"} 1"]);
    let withheld = harness.metric("frontdesk_verdicts_total{verdict=\"withheld\",layer=\"owner\"}").await;
    assert_eq!(withheld, 10, "each was withheld from every agent");
    harness.finish().await;
}

// ---- secrecy ----------------------------------------------------------------------------------

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// On one thread, so that all log lines go to this test's subscriber.
#[tokio::test]
async fn a_code_appears_in_no_log_metric_or_explanation() {
    let log = Log::default();
    let copy = log.clone();
    let builder = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false);
    let logging = tracing::subscriber::set_default(builder.with_writer(move || copy.clone()).finish());
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut socket = harness.socket(&ann).await;
    let (used, open) = (code_of(&harness, &ann).await, code_of(&harness, &ann).await);
    let wrong = "ZZZZ-YYYY";
    let mut explained = String::new();
    for code in [&used, &used, wrong] {
        let posted = write(&harness, &ann, "d", "new", &format!("/link {code}")).await;
        explained.push_str(&explain(&harness, &posted).await.to_string());
        let why = format!("/manage/why?message_id={}", posted["message_id"].as_str().unwrap());
        explained.push_str(&harness.get(&why, &ann.bearer()).await.text());
    }
    explained.push_str(&harness.get("/metrics", "").await.text());
    explained.push_str(&harness.admin("GET", "/bindings", &Value::Null).await.text());
    explained.push_str(&format!("{:?}", facts_of(&harness, "home", "ann")));
    has_had(&harness, &ann, &mut socket, 0).await;
    harness.finish().await;
    drop(logging);
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("a link code was handled"), "the log was not captured: {} bytes", logged.len());
    for code in [used.as_str(), &open, wrong] {
        for form in [code.to_owned(), code.replace('-', ""), code.to_lowercase()] {
            assert!(!logged.contains(&form), "{form} in the log");
            assert!(!explained.contains(&form), "{form} in {explained}");
        }
    }
}
