//! Sessions that are resumed, lost and refused, and what is known after them.

use std::time::Duration;

use frontdesk_core::port::platform::ListenEnd;
use frontdesk_testkit::fakes::discord::{Fault, GatewaySettings, Scope, SocketFault};
use serde_json::json;

use super::scene::{GENERAL, ROLE, Scene};

#[tokio::test(flavor = "multi_thread")]
async fn after_a_resumed_session_guilds_are_asked_for_once() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    scene.say(GENERAL, "first");
    scene.has_taken(&["first"]).await;
    scene.stop().await;
    scene.fault("GET guilds/:id", Fault::BadGateway, 1);
    scene.fault("GET guilds/:id/channels", Fault::RateLimited { retry_after_ms: 50, scope: Scope::User }, 1);
    let before = scene.last_call();
    scene.start().await;
    assert_eq!(scene.connects_after(before), ["resume"]);
    let role = format!("<@&{ROLE}> hello");
    let mut wanted = vec!["first"];
    for _ in 0..10 {
        scene.say(GENERAL, &role);
        wanted.push(&role);
    }
    scene.has_taken(&wanted).await;
    let taken = scene.taken();
    assert!(taken[1..].iter().all(|it| it.addressed), "a mention of the bot's role: {taken:?}");
    assert!(taken[1..].iter().all(|it| it.chat_name.as_deref() == Some("Guild / #general")));
    let mut asked = scene.asked_after(before);
    asked.retain(|path| path.contains("guilds/"));
    assert_eq!(asked.len(), 6, "four questions, two of them twice: {asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_goes_on_though_its_place_stays_unknown() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    scene.say(GENERAL, "first");
    scene.has_taken(&["first"]).await;
    scene.stop().await;
    for route in ["GET guilds/:id", "GET channels/:id"] {
        scene.fault(route, Fault::Status { status: 500, code: 0, message: "no".into() }, 100);
    }
    let before = scene.last_call();
    scene.start().await;
    for number in 0..5 {
        scene.say(GENERAL, &format!("<@&{ROLE}> {number}"));
    }
    let texts: Vec<String> = (0..5).map(|number| format!("<@&{ROLE}> {number}")).collect();
    let mut wanted = vec!["first"];
    wanted.extend(texts.iter().map(String::as_str));
    scene.has_taken(&wanted).await;
    assert!(scene.taken()[1..].iter().all(|it| !it.addressed), "an unknown role is not the bot's");
    assert_eq!(scene.connects_after(before), ["resume"], "the listener goes on");
    let asked = scene.asked_after(before).len();
    assert!(asked < 20, "not for every message: {asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_discord_ended_is_not_resumed() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    let mut wanted = vec!["first".to_owned()];
    scene.say(GENERAL, "first");
    scene.has_taken(&["first"]).await;
    for code in [4007, 4009, 4003] {
        let before = scene.last_call();
        scene.trouble(&SocketFault::Close { code });
        let text = format!("after {code}");
        scene.say(GENERAL, &text);
        wanted.push(text);
        scene.has_taken(&wanted.iter().map(String::as_str).collect::<Vec<_>>()).await;
        scene.has_read_back().await;
        assert_eq!(scene.connects_after(before), ["identify"], "{code}");
    }
    assert_eq!(scene.gaps().len(), 3);
}

#[tokio::test]
async fn a_socket_that_stays_silent_is_dropped() {
    let mut scene = Scene::plain().await;
    scene.trouble(&SocketFault::Silence { count: 1 });
    let before = scene.last_call();
    scene.begin();
    scene.dialled_after(before).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(21)).await;
    tokio::time::resume();
    scene.connected_after(before, 1).await;
    scene.say(GENERAL, "received");
    scene.has_taken(&["received"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_cannot_be_read_is_reported_and_passed_over() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    scene.say(GENERAL, "first");
    scene.has_taken(&["first"]).await;
    let before = scene.last_call();
    scene.trouble(&SocketFault::Spoil);
    scene.say(GENERAL, "spoilt");
    scene.say(GENERAL, "last");
    scene.has_taken(&["first", "last"]).await;
    let gaps = scene.gaps();
    assert!(gaps.len() == 1 && gaps[0].contains("could not be read") && !gaps[0].contains("spoilt"), "{gaps:?}");
    assert_eq!(scene.connects_after(before), [""; 0], "the socket stays open");
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_that_end_a_listener_say_what_to_do() {
    for (code, text) in [(4004, "copy it again"), (4013, "update"), (4014, "Message Content Intent")] {
        let mut scene = Scene::plain().await;
        scene.start().await;
        scene.has_saved(|_| true).await;
        scene.trouble(&SocketFault::Close { code });
        let ListenEnd::Misconfigured(why) = scene.ended().await else { panic!("{code}") };
        assert!(why.contains(text) && why.contains(&code.to_string()), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_without_session_starts_waits_for_the_next_day() {
    let mut scene = Scene::new(GatewaySettings { session_starts: 1, ..Scene::settings() }).await;
    scene.start().await;
    scene.has_saved(|cursor| cursor["shards"][0]["session_id"] != "").await;
    scene.stop().await;
    scene.trouble(&SocketFault::ForgetSessions);
    let before = scene.last_call();
    scene.begin();
    let ListenEnd::Lost(why) = scene.ended().await else { panic!("it must be tried again") };
    assert!(why.contains("no further session") && why.contains("1440 min"), "{why}");
    assert_eq!(scene.connects_after(before), ["resume"], "it did not identify");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_comes_once_however_often_it_is_told() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    let said = scene.say(GENERAL, "one");
    scene.has_taken(&["one"]).await;
    scene.trouble(&SocketFault::Duplicate { count: 1 });
    let (channel, message) = (GENERAL, said["id"].as_str().unwrap().parse::<u64>().unwrap());
    scene.act(json!({"act": "edit", "channel": channel, "message": message, "text": "two"}));
    scene.has_taken(&["one", "two"]).await;
    scene.env.advance_ms(1_000);
    scene.act(json!({"act": "edit", "channel": channel, "message": message, "text": "two"}));
    scene.has_taken(&["one", "two", "two"]).await;
    assert_eq!(scene.taken().iter().map(|it| it.times).collect::<Vec<_>>(), [1, 2, 1]);
    scene.act(json!({"act": "delete", "channel": channel, "message": message}));
    scene.say(GENERAL, "three");
    scene.has_taken(&["one", "two", "two", "three"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_by_a_socket_in_trouble() {
    let mut scene = Scene::new(GatewaySettings { heartbeat_interval_ms: 300, ..Scene::settings() }).await;
    scene.start().await;
    let mut wanted: Vec<String> = Vec::new();
    let say = |scene: &Scene, wanted: &mut Vec<String>| {
        for channel in [GENERAL, super::scene::OTHER] {
            let text = format!("message {}", wanted.len());
            scene.say(channel, &text);
            wanted.push(text);
        }
    };
    say(&scene, &mut wanted);
    for fault in [
        SocketFault::WithholdAcks { count: 2 },
        SocketFault::Cut,
        SocketFault::SkipSequence,
        SocketFault::CutAfter { dispatches: 1 },
        SocketFault::Reconnect,
        SocketFault::InvalidSession { resumable: true },
        SocketFault::Delay { ms: 300 },
        SocketFault::InvalidSession { resumable: false },
        SocketFault::RefuseConnects { count: 1 },
        SocketFault::Close { code: 4008 },
        SocketFault::AskHeartbeat,
    ] {
        let before = scene.last_call();
        scene.fault("*", Fault::RateLimited { retry_after_ms: 20, scope: Scope::Global }, 2);
        scene.fault("*", Fault::Slow { delay_ms: 100 }, 1);
        scene.trouble(&fault);
        let is_silent = matches!(fault, SocketFault::WithholdAcks { .. });
        if is_silent {
            scene.connected_after(before, 1).await; // without any message in between
        }
        say(&scene, &mut wanted);
        scene.has_taken(&wanted.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    let connects = scene.connects_after(0);
    assert_eq!(connects.iter().filter(|it| *it == "identify").count(), 2, "{connects:?}");
    scene.has_read_back().await;
    assert_eq!(scene.gaps().len(), 1, "{:?}", scene.gaps());
}
