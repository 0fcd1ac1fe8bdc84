//! `/link`, `/unlink` and `/whoami`, typed into the built-in chat.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;

use crate::harness::{Harness, Seat};
use crate::scene::{
    PLATFORM, answer, code_of, explain, facts, facts_of, has_had, hears, kinds, manage, managed, ruling, say, write,
};

/// Types a command to the bot alone; the words with which the desk answers in that chat.
async fn ask(house: &Harness, seat: &Seat, user: &str, text: &str) -> String {
    let chat = format!("dm-{user}");
    let posted = write(house, seat, &chat, user, text).await;
    assert_eq!(posted["verdict"]["outcome"], "withheld", "{posted}");
    let said = answer(house, seat, &chat).await;
    assert_eq!(posted["verdict"]["text"], json!(said), "whoever posts it reads the same");
    said
}

async fn counted(house: &Harness, why: &str) -> u64 {
    house.metric(&format!("frontdesk_links_total{{why=\"{why}\"}}")).await
}

/// The instances that somebody is linked to, in the order of the records.
async fn links(house: &Harness, user: &str) -> Vec<String> {
    let all = house.admin("GET", "/bindings", &Value::Null).await.expect(200);
    let of_user = |link: &&Value| link["user_id"] == user;
    let name = |link: &Value| link["instance"].as_str().unwrap().to_owned();
    all["bindings"].as_array().unwrap().iter().filter(of_user).map(name).collect()
}

// ---- linking ----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_code_links_whoever_sends_it_and_the_next_message_reaches_that_agent() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let (mut anns, mut bobs) = (house.socket(&ann).await, house.socket(&bob).await);
    let code = code_of(&house, &ann).await;
    let before = write(&house, &ann, "dm-new", "new", "hello?").await;
    assert_eq!(ruling(&house, &before).await, "nobody-owner/linked");
    let said = ask(&house, &ann, "new", &format!("/link {code}")).await;
    assert!(said.contains("linked to ann"), "{said}");
    assert_eq!(links(&house, "new").await, ["ann"]);
    write(&house, &ann, "dm-new", "new", "hello!").await;
    hears(&mut anns, "hello!").await;
    has_had(&house, &ann, &mut anns, 1).await;
    has_had(&house, &bob, &mut bobs, 0).await;
    // It is the author who is linked, not the chat: anybody else in it is a stranger still.
    let other = write(&house, &ann, "dm-new", "other", "me too").await;
    assert_eq!(ruling(&house, &other).await, "nobody-owner/linked");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_to_the_desk_reaches_no_agent_and_is_explained() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut socket = house.socket(&ann).await;
    let code = code_of(&house, &ann).await;
    // By somebody who is linked, so that everything else they write does reach an agent.
    for (text, command) in [
        (format!("/link {code}"), "/link"),
        ("/link".into(), "/link"),
        ("/link WRONG-ONE".into(), "/link"),
        ("  /LINK   wrong again\n".into(), "/link"),
        ("/unlink somebody".into(), "/unlink"),
        ("/whoami".into(), "/whoami"),
        ("/whoami please".into(), "/whoami"),
    ] {
        let posted = write(&house, &ann, "d", "u-ann", &text).await;
        assert_eq!(posted["verdict"]["outcome"], "withheld", "{text}");
        let told = explain(&house, &posted).await;
        assert_eq!((&told["outcome"], &told["tenant"]), (&json!("withheld"), &json!("home")), "{text}");
        let line = &told["instances"][0];
        assert_eq!(told["instances"].as_array().unwrap().len(), 1);
        assert_eq!((&line["layer"], &line["rule"], &line["value"]), (&json!("owner"), &json!("desk"), &json!(command)));
        assert_eq!((&line["instance"], &line["outcome"]), (&json!(""), &json!("withheld")));
        answer(&house, &ann, "d").await;
    }
    has_had(&house, &ann, &mut socket, 0).await;
    // What only looks like one is ordinary.
    for text in ["/links", "/linkage x", "see /link", "link x", "//link x"] {
        write(&house, &ann, "d", "u-ann", text).await;
        hears(&mut socket, text).await;
    }
    has_had(&house, &ann, &mut socket, 5).await;
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_without_a_code_explains_itself_and_counts_as_no_try() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    for text in ["/link", "/link   ", "/Link"] {
        for _ in 0..3 {
            let said = ask(&house, &ann, "new", text).await;
            assert!(said.contains("/link ABCD-EFGH"), "{said}");
        }
    }
    let code = code_of(&house, &ann).await;
    assert!(ask(&house, &ann, "new", &format!("/link {code}")).await.contains("linked to ann"));
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_dashes_and_spaces_of_a_code_do_not_matter() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let forms: [fn(&str) -> String; 6] = [
        |code| code.into(),
        |code| code.to_lowercase(),
        |code| code.replace('-', ""),
        |code| code.replace('-', " "),
        |code| code.to_lowercase().replace('-', " - "),
        |code| format!("  {}  ", code.replace('-', "\u{2013}")),
    ];
    for (number, form) in forms.iter().enumerate() {
        let (user, typed) = (format!("p{number}"), form(&code_of(&house, &ann).await));
        let said = ask(&house, &ann, &user, &format!("/link {typed}")).await;
        assert!(said.contains("linked to ann"), "{typed}: {said}");
        assert_eq!(links(&house, &user).await, ["ann"]);
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_is_wrong_or_anothers_is_answered_and_links_nobody() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let rival = house.seat_in("rival", "r").await;
    let bot = json!({ "platform": "semaphore", "id": "b1", "tenant": "home" });
    house.admin("POST", "/bots", &bot).await.expect(201);
    let elsewhere = manage(&house, &ann, "link", json!({ "platform": "semaphore" })).await.expect(200);
    let before = facts(&house);
    let elsewhere = elsewhere["code"].as_str().unwrap();
    let foreign = code_of(&house, &rival).await;
    let known = facts(&house);
    assert_eq!(known.len(), before.len() + 1);
    let wrong = ["AAAA-AAAA", elsewhere, &foreign];
    let mut words = Vec::new();
    for (number, code) in wrong.iter().enumerate() {
        words.push(ask(&house, &ann, &format!("p{number}"), &format!("/link {code}")).await);
        assert_eq!(facts(&house), known, "nobody is linked, and the code is as good as before");
    }
    words.dedup();
    assert_eq!(words.len(), 1, "what is another's is as unknown as what never was: {words:?}");
    assert!(words[0].contains("do not know"), "{words:?}");
    assert!(ask(&house, &rival, "p1", &format!("/link {foreign}")).await.contains("linked to r"));
    assert_eq!(counted(&house, "wrong").await, 3);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_works_once_and_its_user_is_told_that_they_are_linked_already() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let code = code_of(&house, &ann).await;
    assert!(ask(&house, &ann, "first", &format!("/link {code}")).await.contains("linked to ann"));
    let linked = facts(&house);
    let said = ask(&house, &ann, "first", &format!("/link {code}")).await;
    assert!(said.contains("already linked to ann"), "{said}");
    let said = ask(&house, &ann, "second", &format!("/link {code}")).await;
    assert!(said.contains("already used") && !said.contains("first") && !said.contains("ann"), "{said}");
    assert_eq!(facts(&house), linked);
    assert_eq!(links(&house, "second").await, [""; 0]);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_whose_time_is_over_is_answered_and_links_nobody() {
    let house = Harness::with(|config| config.link.ttl_s = 0).await;
    let ann = house.seat("ann").await;
    let code = code_of(&house, &ann).await;
    let before = facts(&house);
    let said = ask(&house, &ann, "late", &format!("/link {code}")).await;
    assert!(said.contains("expired"), "{said}");
    assert_eq!(facts(&house), before);
    assert_eq!(counted(&house, "expired").await, 1);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_send_one_code_at_once_one_is_linked() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let code = code_of(&house, &ann).await;
    let people: Vec<String> = (0..10).map(|number| format!("p{number}")).collect();
    let text = format!("/link {code}");
    let asks = people.iter().map(|user| ask(&house, &ann, user, &text));
    let said = futures_util::future::join_all(asks).await;
    assert_eq!(said.iter().filter(|words| words.contains("linked to ann")).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|words| words.contains("already used")).count(), 9, "{said:?}");
    let mut linked = 0;
    for user in &people {
        linked += links(&house, user).await.len();
    }
    assert_eq!(linked, 1);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_too_many_wrong_codes_even_a_right_one_must_wait() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let rival = house.seat_in("rival", "r").await;
    let code = code_of(&house, &ann).await;
    for number in 0..5 {
        let said = ask(&house, &ann, "guesser", &format!("/link AAAA-AAA{number}")).await;
        assert!(said.contains("do not know"), "{said}");
    }
    for text in [format!("/link {code}"), "/link BBBB-BBBB".into(), format!("/link {}", code.to_lowercase())] {
        let said = ask(&house, &ann, "guesser", &text).await;
        assert!(said.contains("Too many"), "{said}");
    }
    assert_eq!(links(&house, "guesser").await, [""; 0]);
    assert_eq!((counted(&house, "wrong").await, counted(&house, "limited").await), (5, 3));
    // Nobody else is held up by that: not in this tenant, and not a namesake in another.
    let theirs = code_of(&house, &rival).await;
    assert!(ask(&house, &rival, "guesser", &format!("/link {theirs}")).await.contains("linked to r"));
    assert!(ask(&house, &ann, "honest", &format!("/link {code}")).await.contains("linked to ann"));
    // And the other commands still answer.
    assert!(ask(&house, &ann, "guesser", "/whoami").await.contains("not linked"));
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_linked_person_may_link_another_agent_which_is_then_the_latest() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let mut bobs = house.socket(&bob).await;
    let code = code_of(&house, &bob).await;
    assert!(ask(&house, &ann, "u-ann", &format!("/link {code}")).await.contains("linked to bob"));
    assert_eq!(links(&house, "u-ann").await, ["ann", "bob"]);
    let posted = write(&house, &ann, "d", "u-ann", "to the latest").await;
    assert_eq!(ruling(&house, &posted).await, "bob+owner/linked ann-owner/latest");
    hears(&mut bobs, "to the latest").await;
    // A code of the first one makes that the latest again.
    let code = code_of(&house, &ann).await;
    ask(&house, &ann, "u-ann", &format!("/link {code}")).await;
    let posted = write(&house, &ann, "d", "u-ann", "back").await;
    assert_eq!(ruling(&house, &posted).await, "ann+owner/linked bob-owner/latest");
    house.finish().await;
}

// ---- the other two ----------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn unlink_undoes_the_one_link_and_asks_which_of_several() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let mut anns = house.socket(&ann).await;
    house.bind("home", "u-ann", "bob").await;
    let said = ask(&house, &ann, "u-ann", "/unlink").await;
    assert!(said.contains("ann") && said.contains("bob") && said.contains("/unlink NAME"), "{said}");
    let said = ask(&house, &ann, "u-ann", "/unlink team").await;
    assert!(said.contains("not linked to \"team\"") && said.contains("ann and bob"), "{said}");
    assert_eq!(links(&house, "u-ann").await, ["ann", "bob"], "nothing yet");
    assert_eq!(counted(&house, "unlinked").await, 0);
    managed(&house, &bob, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;

    let said = ask(&house, &ann, "u-ann", "/unlink bob").await;
    assert!(said.contains("no longer linked to bob"), "{said}");
    assert_eq!(links(&house, "u-ann").await, ["ann"]);
    assert!(!kinds(&facts(&house)).contains(&"DmDefault"), "the choice of it is gone, too");
    write(&house, &ann, "d", "u-ann", "to the one that is left").await;
    hears(&mut anns, "to the one that is left").await;

    let said = ask(&house, &ann, "u-ann", "/UNLINK").await;
    assert!(said.contains("no longer linked to ann"), "{said}");
    assert_eq!(links(&house, "u-ann").await, [""; 0]);
    let posted = write(&house, &ann, "d", "u-ann", "anybody?").await;
    assert_eq!(ruling(&house, &posted).await, "nobody-owner/linked");
    for text in ["/unlink", "/unlink ann"] {
        let said = ask(&house, &ann, "u-ann", text).await;
        assert!(said.contains("not linked to any agent"), "{said}");
    }
    assert_eq!(counted(&house, "unlinked").await, 2);
    assert_eq!(links(&house, "u-bob").await, ["bob"], "nobody else is touched");
    has_had(&house, &ann, &mut anns, 1).await;
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_unlinks_themselves_in_their_own_tenant_only() {
    let house = Harness::open().await;
    let (ann, rival) = (house.seat("ann").await, house.seat_in("rival", "r").await);
    house.bind("rival", "u-ann", "r").await;
    assert!(ask(&house, &rival, "u-ann", "/unlink ann").await.contains("not linked to \"ann\""));
    assert!(ask(&house, &rival, "u-ann", "/unlink").await.contains("no longer linked to r"));
    assert_eq!(links(&house, "u-ann").await, ["ann"]);
    assert!(ask(&house, &ann, "u-r", "/unlink r").await.contains("not linked to any agent"));
    assert_eq!(links(&house, "u-r").await, ["r"]);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoami_says_who_one_is_here_and_where_it_goes() {
    let house = Harness::open().await;
    let (ann, rival) = (house.seat("ann").await, house.seat_in("rival", "r").await);
    let bob = house.seat("bob").await;
    house.bind("rival", "new", "r").await;
    let said = ask(&house, &ann, "new", "/whoami").await;
    assert!(said.contains("You are new on relay") && said.contains("not linked to any agent"), "{said}");
    assert!(ask(&house, &rival, "new", "/whoami").await.contains("linked to r"));
    let said = ask(&house, &ann, "u-ann", "/whoami").await;
    assert!(said.contains("You are u-ann on relay") && said.contains("linked to ann."), "{said}");
    house.bind("home", "u-ann", "bob").await;
    let said = ask(&house, &ann, "u-ann", "/whoami").await;
    assert!(said.contains("ann and bob") && said.contains("Direct messages go to bob"), "{said}");
    managed(&house, &ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;
    assert!(ask(&house, &ann, "u-ann", "/whoami").await.contains("Direct messages go to ann"));
    managed(&house, &bob, "deprovision", json!({})).await;
    assert!(ask(&house, &ann, "u-ann", "/whoami").await.ends_with("linked to ann."));
    house.finish().await;
}

// ---- where and by whom ------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn elsewhere_than_in_a_direct_message_and_by_a_bot_they_are_ordinary_text() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut socket = house.socket(&ann).await;
    let code = code_of(&house, &ann).await;
    let before = facts(&house);
    let mut taken = 0;
    for command in [format!("/link {code}"), "/unlink".into(), "/whoami".into()] {
        for kind in ["group", "channel", "thread", "forum"] {
            let more = json!({ "chat_type": kind });
            let posted = say(&house, &ann, &format!("room-{kind}"), "stranger", &command, more.clone()).await;
            assert_eq!(ruling(&house, &posted).await, "nobody-owner/linked", "{kind}");
            say(&house, &ann, &format!("room-{kind}"), "u-ann", &command, more).await;
            assert_eq!(hears(&mut socket, &command).await["message_type"], "command", "{kind}");
            taken += 1;
        }
        let more = json!({ "chat_type": "dm", "is_bot": true });
        let posted = say(&house, &ann, "d", "robot", &command, more.clone()).await;
        assert_eq!(ruling(&house, &posted).await, "nobody-owner/linked");
        say(&house, &ann, "d", "u-ann", &command, more).await;
        hears(&mut socket, &command).await;
        taken += 1;
    }
    assert_eq!(facts(&house), before);
    has_had(&house, &ann, &mut socket, taken).await;
    for chat in ["room-group", "room-channel", "room-thread", "room-forum", "d"] {
        let lines = house.history(&ann, chat).await;
        assert!(lines.iter().all(|line| line["direction"] == "in"), "the desk says nothing there: {lines:?}");
    }
    let text = house.get("/metrics", "").await.text();
    assert!(!text.contains("frontdesk_links_total{"), "nothing was counted: {text}");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pressed_button_is_no_command_to_the_desk() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut socket = house.socket(&ann).await;
    write(&house, &ann, "d", "u-ann", "hi").await;
    hears(&mut socket, "hi").await;
    let options = json!([{ "id": "unlink", "label": "/unlink" }, { "id": "whoami", "label": "/whoami" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "d", "prompt_id": "p", "content": "?", "options": options });
    let id = socket.act(prompt).await["message_id"].as_str().unwrap().to_owned();
    let press = json!({ "prompt_id": "p", "option_id": "unlink", "user_id": "u-ann" });
    house.post(&format!("/chat/v1/chats/d/messages/{id}/press"), &ann.chat, &press).await.expect(202);
    hears(&mut socket, "/unlink").await;
    assert_eq!(links(&house, "u-ann").await, ["ann"]);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_message_twice_runs_its_command_once() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let code = code_of(&house, &ann).await;
    let post = |text: &str, id: &str| json!({ "user_id": "new", "text": text, "message_id": id });
    let link = post(&format!("/link {code}"), "m-1");
    let first = house.say_as(&ann, "d", link.clone()).await.expect(202);
    let linked = facts(&house);
    // A message that is sent again after something else happened does not do it again.
    house.say_as(&ann, "d", post("/unlink", "m-2")).await.expect(202);
    for body in [link.clone(), post("/unlink", "m-2"), link] {
        let again = house.say_as(&ann, "d", body).await.expect(202);
        assert_eq!(again["verdict"]["outcome"], "withheld");
    }
    assert_eq!(links(&house, "new").await, [""; 0]);
    assert_ne!(facts(&house), linked);
    assert_eq!((counted(&house, "linked").await, counted(&house, "unlinked").await), (1, 1));
    let lines = house.history(&ann, "d").await;
    assert_eq!(lines.len(), 4, "two commands, two answers: {lines:?}");
    assert!(!first["event_id"].as_str().unwrap().is_empty());
    let posts = (0..20).map(|_| house.say_as(&ann, "d", post("/whoami", "m-3")));
    futures_util::future::join_all(posts).await.iter().for_each(|reply| drop(reply.expect(202)));
    assert_eq!(house.history(&ann, "d").await.len(), 6, "many at once are one, too");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tries_are_counted_by_their_outcome() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let (code, bobs) = (code_of(&house, &ann).await, code_of(&house, &bob).await);
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
        ask(&house, &ann, user, &text).await;
    }
    let text = house.get("/metrics", "").await.text();
    let mut counts: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("frontdesk_links_total{why=")).collect();
    counts.sort_unstable();
    assert_eq!(counts, ["\"again\"} 1", "\"linked\"} 2", "\"unlinked\"} 1", "\"used\"} 1", "\"wrong\"} 1"]);
    let withheld = house.metric("frontdesk_verdicts_total{verdict=\"withheld\",layer=\"owner\"}").await;
    assert_eq!(withheld, 10, "each was withheld from every agent");
    house.finish().await;
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

/// On one thread, so that everything the desk logs goes through this test's own subscriber.
#[tokio::test]
async fn a_code_is_in_no_log_no_metric_and_no_explanation() {
    let log = Log::default();
    let copy = log.clone();
    let builder = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false);
    let logging = tracing::subscriber::set_default(builder.with_writer(move || copy.clone()).finish());
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut socket = house.socket(&ann).await;
    let (used, open) = (code_of(&house, &ann).await, code_of(&house, &ann).await);
    let wrong = "ZZZZ-YYYY";
    let mut explained = String::new();
    for code in [&used, &used, wrong] {
        let posted = write(&house, &ann, "d", "new", &format!("/link {code}")).await;
        explained.push_str(&explain(&house, &posted).await.to_string());
        let why = format!("/manage/why?message_id={}", posted["message_id"].as_str().unwrap());
        explained.push_str(&house.get(&why, &ann.bearer()).await.text());
    }
    explained.push_str(&house.get("/metrics", "").await.text());
    explained.push_str(&house.admin("GET", "/bindings", &Value::Null).await.text());
    explained.push_str(&format!("{:?}", facts_of(&house, "home", "ann")));
    has_had(&house, &ann, &mut socket, 0).await;
    house.finish().await;
    drop(logging);
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("a link code was handled"), "the log was read: {} bytes", logged.len());
    for code in [used.as_str(), &open, wrong] {
        for form in [code.to_owned(), code.replace('-', ""), code.to_lowercase()] {
            assert!(!logged.contains(&form), "{form} in the log");
            assert!(!explained.contains(&form), "{form} in {explained}");
        }
    }
}
