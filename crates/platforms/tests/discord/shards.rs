//! A bot in so many guilds that it needs several connections.

use frontdesk_core::port::platform::Ended;
use frontdesk_testkit::fakes::discord::{Fault, GatewaySettings, SocketFault};
use serde_json::json;

use super::scene::{BOT, GENERAL, OTHER, Scene};

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

    // Each goes on where it was.
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
async fn a_shard_that_fails_alone_is_reported_once() {
    let mut scene = Scene::new(two()).await;
    scene.begin();
    scene.connected_after(0, 2).await;
    scene.has_saved(|cursor| cursor["shards"][1]["session_id"].as_str().is_some_and(|it| !it.is_empty())).await;
    scene.trouble(&SocketFault::RefuseConnects { count: 4 });
    let before = scene.last_call();
    scene.trouble(&SocketFault::CutShard { shard: 1 });
    scene.connected_after(before, 1).await;
    scene.say(OTHER, "heard again");
    scene.has_taken(&["heard again"]).await;
    let gaps = scene.gaps();
    assert!(gaps.len() == 1 && gaps[0].starts_with("connection 2 of 2 fails"), "{gaps:?}");
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
    let Ended::Lost(why) = scene.ended().await else { panic!("it must be tried again") };
    assert!(why.contains("cannot be reached"), "{why}");
    let mut scene = Scene::new(GatewaySettings { shards: 1_000, ..Scene::settings() }).await;
    scene.begin();
    let Ended::Misconfigured(why) = scene.ended().await else { panic!("too many") };
    assert!(why.contains("1000 connections"), "{why}");
}
