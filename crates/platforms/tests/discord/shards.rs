//! A bot in so many guilds that it needs several connections.

use std::time::Duration;

use frontdesk_core::port::platform::{ListenEnd, Part};
use frontdesk_testkit::fakes::discord::{Fault, GatewaySettings, SocketFault};
use serde_json::json;

use super::scene::{ANN, BOT, GENERAL, GUILD, OTHER, OTHER_GUILD, Scene};

fn shard_of(guild: u64, count: u64) -> u32 {
    u32::try_from((guild >> 22) % count).unwrap()
}

fn two() -> GatewaySettings {
    GatewaySettings { shards: 2, ..Scene::settings() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_shard_hears_its_guilds_and_fails_alone() {
    let mut scene = Scene::new(two()).await;
    scene.begin();
    scene.connected_after(0, 2).await;
    scene.say(GENERAL, "one");
    scene.say(OTHER, "two");
    scene.say_directly("directly");
    scene.has_taken(&["one", "two", "directly"]).await;
    let sessions = scene.fake.sessions(Some(BOT));
    let shards: Vec<_> = sessions.as_array().unwrap().iter().map(|it| it["shard"].clone()).collect();
    assert!(shards.len() == 2 && shards.contains(&json!([0, 2])) && shards.contains(&json!([1, 2])), "{shards:?}");
    let before = scene.last_call();
    scene.trouble(&SocketFault::CutShard { shard: 1 });
    scene.connected_after(before, 1).await;
    scene.say(GENERAL, "three");
    scene.say(OTHER, "four");
    scene.has_taken(&["one", "two", "directly", "three", "four"]).await;
    assert_eq!(scene.connects_after(before), ["resume"], "only the shard that was cut");

    // Each continues where it was.
    scene.stop().await;
    scene.say(GENERAL, "five");
    scene.say(OTHER, "six");
    let before = scene.last_call();
    scene.begin();
    scene.connected_after(before, 2).await;
    assert_eq!(scene.connects_after(before), ["resume", "resume"]);
    scene.has_taken(&["one", "two", "directly", "three", "four", "five", "six"]).await;
    assert!(scene.gaps().is_empty(), "{:?}", scene.gaps());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_does_not_connect_ends_alone() {
    let scene = Scene::new(two()).await;
    let [first, second] = [GUILD, OTHER_GUILD].map(|guild| Part { index: shard_of(guild, 2), count: 2 });
    let others = scene.run_at(0, &[first]);
    scene.connected_after(0, 1).await;
    scene.trouble(&SocketFault::RefuseConnects { count: 3 });
    let failing = scene.run_at(0, &[second]).await.unwrap();
    assert!(matches!(&failing, ListenEnd::Lost(why) if why.contains("cannot be reached")), "{failing:?}");
    scene.say(GENERAL, "received");
    scene.has_taken(&["received"]).await;
    let before = scene.last_call();
    let again = scene.run_at(0, &[second]);
    scene.connected_after(before, 1).await;
    scene.say(OTHER, "received again");
    scene.has_taken(&["received", "received again"]).await;
    others.abort();
    again.abort();
}

/// Four shards, of which the guilds of the scene use two, and two servers.
#[tokio::test(flavor = "multi_thread")]
async fn two_servers_share_the_shards_and_one_takes_over_from_the_other() {
    let scene = Scene::new(GatewaySettings { shards: 4, ..Scene::settings() }).await;
    let parts: Vec<Part> = Part::all(4).collect();
    let of = |channel: u64| Part { index: shard_of(if channel == GENERAL { GUILD } else { OTHER_GUILD }, 4), count: 4 };
    assert_ne!(of(GENERAL), of(OTHER));
    let direct = parts[0];
    // One server hears the first guild, the other one everything else.
    let at_first: Vec<Part> = vec![of(GENERAL)];
    let at_second: Vec<Part> = parts.iter().copied().filter(|part| !at_first.contains(part)).collect();
    let first = scene.run_at(0, &at_first);
    let second = scene.run_at(1, &at_second);
    scene.connected_after(0, 4).await;
    scene.say(GENERAL, "one");
    scene.say(OTHER, "two");
    scene.say_directly("three");
    scene.has_taken(&["one", "two", "three"]).await;
    // The cursor is saved after what it names is stored.
    let is_saved = async || {
        while at_second.contains(&direct) && scene.cursor(direct)["directs"].as_array().is_none_or(|it| it.len() != 1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), is_saved()).await.expect("the direct chat is in the cursor");
    let sessions = scene.fake.sessions(Some(BOT));
    let mut shards: Vec<_> = sessions.as_array().unwrap().iter().map(|it| it["shard"].to_string()).collect();
    shards.sort();
    assert_eq!(shards, ["[0,4]", "[1,4]", "[2,4]", "[3,4]"]);

    // Who sees a channel is answered by both; where its shard is not, Discord is asked each time.
    for (server, is_asked) in [(0, true), (1, false)] {
        assert_eq!(scene.sees(server, OTHER, ANN).await, Some(true));
        let before = scene.last_call();
        assert_eq!(scene.sees(server, OTHER, ANN).await, Some(true));
        let asked = scene.asked_after(before);
        let (guild, channel) = (format!("guilds/{OTHER_GUILD}"), format!("channels/{OTHER}"));
        assert_eq!(asked.iter().any(|it| it.ends_with(&guild)), is_asked, "{asked:?}");
        assert_eq!(asked.iter().any(|it| it.ends_with(&channel)), is_asked, "{asked:?}");
    }

    // One server is gone. Its shards are resumed at the other, with what came in between.
    let before = scene.last_call();
    second.abort();
    assert!(second.await.is_err());
    scene.say(GENERAL, "four");
    scene.say(OTHER, "five");
    scene.say_directly("six");
    let taken_over = scene.run_at(0, &at_second);
    scene.connected_after(before, at_second.len()).await;
    assert_eq!(scene.connects_after(before), vec!["resume"; at_second.len()]);
    scene.say(OTHER, "seven");
    scene.has_taken(&["one", "two", "three", "four", "five", "six", "seven"]).await;
    assert!(scene.taken().iter().all(|it| it.times == 1), "{:?}", scene.taken());
    assert!(scene.gaps().is_empty(), "{:?}", scene.gaps());
    first.abort();
    taken_over.abort();
}

/// Until each shard had a listener of its own, one cursor had all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_with_all_shards_goes_on_as_one_for_each() {
    let mut scene = Scene::new(two()).await;
    scene.begin();
    scene.connected_after(0, 2).await;
    scene.say(GENERAL, "one");
    scene.say(OTHER, "two");
    scene.say_directly("three");
    scene.has_taken(&["one", "two", "three"]).await;
    for part in Part::all(2) {
        scene.has_saved_of(part, |cursor| cursor["shards"][0]["sequence"].as_u64() > Some(1)).await;
    }
    scene.stop().await;
    let [mut all, second] = [0, 1].map(|index| scene.cursor(Part { index, count: 2 }));
    all["shards"].as_array_mut().unwrap().push(second["shards"][0].clone());
    scene.forget_cursors();
    scene.set_cursor(Part::WHOLE, &all);
    scene.say(GENERAL, "four");
    scene.say(OTHER, "five");
    scene.say_directly("six");
    // Fewer are recommended by now, but not so few that all sessions should be given up.
    scene.fake.set_gateway(Scene::settings());
    let before = scene.last_call();
    scene.begin();
    scene.connected_after(before, 2).await;
    assert_eq!(scene.connects_after(before), ["resume", "resume"]);
    scene.has_taken(&["one", "two", "three", "four", "five", "six"]).await;
    assert!(scene.gaps().is_empty(), "{:?}", scene.gaps());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_count_of_shards_begins_anew_and_reads_back() {
    let mut scene = Scene::plain().await;
    scene.start().await;
    scene.say(GENERAL, "first");
    scene.say_directly("second");
    scene.has_taken(&["first", "second"]).await;
    scene.stop().await;
    scene.fake.set_gateway(two());
    scene.say(GENERAL, "one");
    scene.say(OTHER, "two");
    scene.say_directly("three");
    let before = scene.last_call();
    scene.begin();
    scene.connected_after(before, 2).await;
    assert_eq!(scene.connects_after(before), ["identify", "identify"]);
    scene.has_taken(&["first", "second", "one", "two", "three"]).await;
    scene.has_read_back().await;
    // Without an answer about the shards they stay as they are.
    scene.stop().await;
    scene.fault("GET gateway/bot", Fault::BadGateway, 5);
    let before = scene.last_call();
    scene.begin();
    scene.connected_after(before, 2).await;
    assert_eq!(scene.connects_after(before), ["resume", "resume"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_ends_when_none_of_its_shards_connects() {
    let mut scene = Scene::new(two()).await;
    scene.trouble(&SocketFault::RefuseConnects { count: 1_000 });
    scene.begin();
    let ListenEnd::Lost(why) = scene.ended().await else { panic!("it must be tried again") };
    assert!(why.contains("cannot be reached"), "{why}");
    let mut scene = Scene::new(GatewaySettings { shards: 1_000, ..Scene::settings() }).await;
    scene.begin();
    let ListenEnd::Misconfigured(why) = scene.ended().await else { panic!("too many") };
    assert!(why.contains("1000 connections"), "{why}");
}
