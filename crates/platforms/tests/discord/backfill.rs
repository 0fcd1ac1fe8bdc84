//! What was written while a session was lost.

use std::time::Duration;

use frontdesk_testkit::fakes::discord::{FakeDiscord, Fault, Scope, SocketFault};
use serde_json::json;

use super::scene::{ANN, BOT, FORUM, GENERAL, GUILD, HIDDEN, MUTE, OTHER, OTHER_GUILD, Scene};

const MESSAGES: &str = "GET channels/:id/messages";

/// The session is lost while no listener runs.
async fn lose_session(scene: &mut Scene) {
    scene.stop().await;
    scene.trouble(&SocketFault::ForgetSessions);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_that_heard_nothing_yet_reads_back_too() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    scene.has_saved(|cursor| cursor["shards"][0]["newest"].as_u64() > Some(0)).await;
    lose_session(&mut scene).await;
    scene.say(GENERAL, "meanwhile");
    scene.start().await;
    scene.has_taken(&["meanwhile"]).await;
    scene.has_read_back().await;
    assert_eq!(scene.gaps().len(), 1, "{:?}", scene.gaps());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_after_a_restart_and_a_resumed_session() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    scene.say(GENERAL, "first");
    scene.has_taken(&["first"]).await;
    lose_session(&mut scene).await;
    scene.say(GENERAL, "in one guild");
    scene.say(OTHER, "in the other guild");
    // The second channel cannot be read for now: the listener is stopped while it waits for it.
    scene.fault(MESSAGES, Fault::Slow { delay_ms: 0 }, 1);
    scene.fault(MESSAGES, Fault::RateLimited { retry_after_ms: 60_000, scope: Scope::User }, 1);
    scene.start().await;
    scene.has_taken(&["first", "in one guild"]).await;
    let is_left = |cursor: &serde_json::Value| {
        let guilds = &cursor["missed"]["guilds"];
        guilds[OTHER_GUILD.to_string()].is_u64() && guilds[GUILD.to_string()].is_null()
    };
    scene.has_saved(is_left).await;
    scene.stop().await;
    let before = scene.last_call();
    scene.start().await;
    assert_eq!(scene.connects_after(before), ["resume"], "no guild is told by the socket");
    scene.has_taken(&["first", "in one guild", "in the other guild"]).await;
    scene.has_read_back().await;
    assert_eq!(scene.gaps().len(), 1, "{:?}", scene.gaps());
    let names: Vec<_> = scene.taken().into_iter().map(|it| it.chat_name.unwrap()).collect();
    assert_eq!(names, ["Guild / #general", "Guild / #general", "Other / #other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_channels_threads_and_direct_chats_are_read_through_refusals() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    scene.say_directly("first");
    scene.has_taken(&["first"]).await;
    lose_session(&mut scene).await;
    let mut wanted = vec!["first".to_owned(), "directly".into(), "a post".into()];
    for number in 0..250 {
        wanted.push(format!("message {number}"));
        scene.say(GENERAL, &format!("message {number}"));
    }
    scene.say_directly("directly");
    scene.act(json!({"act": "post_in_forum", "channel": FORUM, "from": ANN, "name": "idea", "text": "a post"}));
    scene.say(HIDDEN, "unseen");
    scene.say(MUTE, "without history");
    scene.fault(MESSAGES, Fault::BadGateway, 1);
    scene.fault(MESSAGES, Fault::DropAfter, 1);
    scene.fault(MESSAGES, Fault::Cut, 1);
    scene.fault(MESSAGES, Fault::RateLimited { retry_after_ms: 50, scope: Scope::User }, 3);
    let before = scene.last_call();
    scene.start().await;
    scene.has_taken(&wanted.iter().map(String::as_str).collect::<Vec<_>>()).await;
    scene.has_read_back().await;
    let gaps = scene.gaps();
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    assert!(gaps[1].ends_with(&format!("channel {MUTE} of guild {GUILD}: the bot may not read the message history")));
    let asked = scene.asked_after(before);
    for channel in [FORUM, HIDDEN, MUTE] {
        let path = format!("channels/{channel}/");
        assert!(!asked.iter().any(|it| it.contains(&path)), "{channel} is of no use: {asked:?}");
    }
    let order: Vec<String> =
        scene.taken().into_iter().map(|it| it.text).filter(|it| it.starts_with("message")).collect();
    assert_eq!(order, wanted[3..], "oldest first");
    // What was stored before is not read for ever again.
    lose_session(&mut scene).await;
    scene.env.advance_ms(120_000);
    scene.say(GENERAL, "last");
    scene.start().await;
    wanted.push("last".into());
    scene.has_taken(&wanted.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guild_of_which_a_part_is_refused_is_not_left_out() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    scene.say(GENERAL, "first");
    scene.has_taken(&["first"]).await;
    lose_session(&mut scene).await;
    scene.say(GENERAL, "meanwhile");
    let busy = Fault::RateLimited { retry_after_ms: 600_000, scope: Scope::User };
    scene.fault(MESSAGES, busy, 1);
    scene.start().await;
    scene.has_saved(|cursor| cursor["missed"]["guilds"][GUILD.to_string()].is_u64()).await;
    scene.stop().await;
    // The session is resumed, so the guild is asked for.
    let before = scene.last_call();
    let refused = Fault::Status { status: 403, code: 40_333, message: "internal network error".into() };
    scene.fault("GET guilds/:id/threads/active", refused, 1);
    scene.start().await;
    let asked = |fake: &FakeDiscord| {
        fake.calls_after(before).iter().any(|call| call.path.ends_with("threads/active")).then_some(())
    };
    scene.fake.wait_for(asked).await;
    // The refusal arrives a moment after it was made. Then the question rests for 30 s.
    let env = scene.env.clone();
    let passing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        loop {
            env.advance_ms(31_000);
            tokio::time::sleep(Duration::from_secs(10)).await; // it arrived later than that
        }
    };
    tokio::select! {
        () = scene.has_taken(&["first", "meanwhile"]) => {}
        () = passing => {}
    }
    scene.has_read_back().await;
    assert_eq!(scene.gaps().len(), 1, "{:?}", scene.gaps());
}

const LARGE_GUILD: u64 = GUILD - (1 << 22); // it is read first

/// A guild with this many channels.
fn add_large_guild(scene: &Scene, channels: u64) {
    let channels: Vec<_> = (1..=channels).map(|it| json!({"id": LARGE_GUILD + it, "name": format!("c{it}")})).collect();
    scene.act(json!({"act": "add_guild", "id": LARGE_GUILD, "name": "Large", "owner": ANN,
        "members": [{"user": BOT}, {"user": ANN}], "channels": channels}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_lost_while_another_loss_is_read_back_is_read_back_too() {
    let mut scene = Scene::plain().await;
    add_large_guild(&scene, 2);
    scene.start().await;
    scene.say_directly("first");
    scene.has_taken(&["first"]).await;
    lose_session(&mut scene).await;
    scene.say(LARGE_GUILD + 1, "read second");
    scene.say(LARGE_GUILD + 2, "read first");
    // After the direct chat and the first channel it waits, and in the meantime the session is lost again.
    scene.fault(MESSAGES, Fault::Slow { delay_ms: 0 }, 2);
    scene.fault(MESSAGES, Fault::RateLimited { retry_after_ms: 15_000, scope: Scope::User }, 1);
    scene.start().await;
    scene.has_taken(&["first", "read first"]).await;
    scene.trouble(&SocketFault::Close { code: 4009 });
    scene.say(LARGE_GUILD + 2, "lost again");
    scene.say_directly("lost directly");
    scene.has_gaps(2).await;
    assert!(!scene.taken().iter().any(|it| it.text == "read second"), "it still waits");
    scene.has_taken(&["first", "read first", "read second", "lost again", "lost directly"]).await;
    scene.has_read_back().await;
    assert_eq!(scene.gaps().len(), 2, "{:?}", scene.gaps());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_guild_does_not_use_up_what_all_may_read() {
    let mut scene = Scene::plain().await;
    add_large_guild(&scene, 3);
    scene.start().await;
    scene.say(OTHER, "first");
    scene.has_taken(&["first"]).await;
    lose_session(&mut scene).await;
    for _ in 0..800 {
        (1..=3).for_each(|channel| drop(scene.say(LARGE_GUILD + channel, "too many")));
    }
    scene.say(OTHER, "few");
    scene.start().await;
    scene.has_gaps(2).await;
    scene.has_read_back().await;
    let gaps = scene.gaps();
    assert!(gaps.len() == 2 && gaps[1].contains("more than 2000 messages or 200 requests"), "{gaps:?}");
    let taken = scene.taken();
    assert!(taken.len() == 2_002 && taken.iter().any(|it| it.text == "few"), "{}", taken.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guild_that_refuses_its_channels_is_not_asked_for_all_of_them() {
    let mut scene = Scene::plain().await;
    add_large_guild(&scene, 8);
    scene.start().await;
    scene.say(OTHER, "first");
    scene.has_taken(&["first"]).await;
    lose_session(&mut scene).await;
    (1..=8).for_each(|channel| drop(scene.say(LARGE_GUILD + channel, "refused")));
    let status = Fault::Status { status: 403, code: 50001, message: "Missing Access".into() };
    scene.fault(MESSAGES, status, 5);
    scene.start().await;
    scene.has_gaps(2).await;
    scene.has_read_back().await;
    let gaps = scene.gaps();
    let count = |text: &str| gaps[1].matches(text).count();
    assert_eq!((count("Missing Access"), count("so this one was not read")), (5, 3), "{gaps:?}");
    scene.has_taken(&["first"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_read_is_named() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    scene.say(OTHER, "first");
    scene.has_taken(&["first"]).await;
    lose_session(&mut scene).await;
    scene.say(GENERAL, "refused");
    for _ in 0..1_100 {
        scene.say(OTHER, "too many");
    }
    let status = Fault::Status { status: 403, code: 50001, message: "Missing Access".into() };
    scene.fault(MESSAGES, status, 1);
    scene.start().await;
    scene.has_gaps(3).await;
    scene.has_read_back().await;
    let gaps = scene.gaps();
    assert!(gaps[0].contains("did not resume"), "{gaps:?}");
    assert!(gaps[1].contains(&format!("channel {GENERAL} of guild {GUILD}")) && gaps[1].contains("Missing Access"));
    assert!(gaps[2].contains(&format!("channel {OTHER} of guild {OTHER_GUILD}")), "{gaps:?}");
    assert!(gaps[2].contains("more than 1000 messages"), "{gaps:?}");
    assert_eq!(scene.taken().len(), 1_000, "the first one was read again, and stored once");
}
