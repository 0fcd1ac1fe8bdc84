//! Telegram with many faults: refusals, broken connections, lost answers, updates twice and out of order. Nothing is
//! lost, nothing comes twice, and the results that agents get are true.

use std::time::Duration;

use frontdesk_testkit::fakes::telegram::{Fault, FaultRule, Limits};
use frontdesk_wire::ActionResult;
use serde_json::json;
use tokio::time::sleep;

use super::paused::World;
use super::{ANN, BOT};

/// Until every pause that the fake has asked for has ended.
const QUIET: Duration = Duration::from_secs(61);

fn fault(method: &str, fault: Fault) -> FaultRule {
    FaultRule { method: method.into(), fault, times: 1 }
}

/// All kinds, in an order that differs from round to round.
fn faults(round: u64) -> Vec<Fault> {
    let mut all = vec![
        Fault::RetryAfter { seconds: 1 + round % 4 },
        Fault::Status { code: 500, description: "Internal Server Error".into() },
        Fault::BadGateway,
        Fault::DropBefore,
        Fault::DropAfter,
        Fault::Slow { delay_ms: 4_000 },
        Fault::Slow { delay_ms: 40_000 },
        Fault::Cut,
        // Longer than the agent waits, and a plain refusal.
        Fault::RetryAfter { seconds: 60 },
        Fault::Status { code: 403, description: "Forbidden: not now".into() },
    ];
    let by = usize::try_from(round * 3).unwrap() % all.len();
    all.rotate_left(by);
    all
}

#[tokio::test(start_paused = true)]
async fn every_update_of_a_storm_comes_once_and_in_order() {
    let world = World::open().await;
    world.fake.set_limits(Limits::off());
    let ann = world.tenant("t").await;
    world.person("t", ANN).await;
    world.listen_until_empty().await;
    let mut wanted = vec!["/start".to_owned()];
    let mut failures = Vec::new();
    for round in 0..25 {
        let more = [Fault::DuplicateUpdates, Fault::ReverseUpdates];
        for each in faults(round).into_iter().chain(more.into_iter().cycle().take(4)) {
            world.fake.fault(fault("getUpdates", each));
        }
        // Other calls that a listener makes when it begins.
        world.fake.fault(fault("getWebhookInfo", faults(round).swap_remove(3)));
        let mut number = 0;
        while world.fake.faults_waiting() > 0 {
            for _ in 0..5 {
                number += 1;
                let text = format!("{round}.{number}");
                world.act(json!({"act": "say", "chat": ANN, "from": ANN, "text": text}));
                wanted.push(text);
            }
            failures.extend(world.listen_until_empty().await);
        }
    }
    assert_eq!(world.mail(&ann).await, wanted);
    assert!(failures.len() >= 100, "{} failures", failures.len());
    assert!(failures.iter().all(|why| why.starts_with("Telegram ")), "{failures:?}");
}

/// Copies of a text that are in the chat.
fn copies(world: &World, text: &str) -> usize {
    let shown = world.fake.chat(BOT, ANN).unwrap();
    shown["messages"].as_array().unwrap().iter().filter(|message| message["text"] == text).count()
}

fn check(world: &World, text: &str, result: &ActionResult) {
    let count = copies(world, text);
    match (result.success, result.ambiguous) {
        (true, _) => assert_eq!(count, 1, "{text} was sent: {result:?}"),
        (false, false) => assert_eq!(count, 0, "{text} was not sent: {result:?}"),
        (false, true) => assert!(count <= 1, "{text} is there {count} times: {result:?}"),
    }
    assert_eq!(result.success, result.error.is_none(), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_agent_is_told_about_a_storm_is_true() {
    let world = World::open().await;
    world.fake.set_limits(Limits::off());
    let agent = world.tenant("t").await;
    world.person("t", ANN).await;
    world.listen_until_empty().await;
    let (mut sent, mut certain, mut unknown) = (0, 0, 0);
    for round in 0..30 {
        for (number, each) in faults(round).into_iter().enumerate() {
            // The second of two faults meets the repetition, if there is one.
            world.fake.fault(fault("sendMessage", each));
            if round % 2 == 1 {
                world.fake.fault(fault("sendMessage", faults(round).swap_remove(number)));
            }
            let text = format!("answer {round} {number}");
            let result = world.send(&agent, json!({"op": "send", "chat_id": ANN.to_string(), "content": text})).await;
            check(&world, &text, &result);
            match (result.success, result.ambiguous) {
                (true, _) => sent += 1,
                (false, false) => certain += 1,
                (false, true) => unknown += 1,
            }
            sleep(QUIET).await;
        }
    }
    // Faults that were not used up would hide others.
    while world.fake.faults_waiting() > 0 {
        world.send(&agent, json!({"op": "send", "chat_id": ANN.to_string(), "content": "after it"})).await;
        sleep(QUIET).await;
    }
    assert!(sent > 30 && certain > 30 && unknown > 30, "{sent} sent, {certain} refused, {unknown} unknown");

    // An edit may be repeated: its last text is there, whatever happened before.
    let first = world.send(&agent, json!({"op": "send", "chat_id": ANN.to_string(), "content": "..."})).await;
    let message = first.message_id.unwrap();
    for round in 0..30 {
        for (number, each) in faults(round).into_iter().enumerate() {
            world.fake.fault(fault("editMessageText", each));
            let text = format!("edit {round} {number}");
            let edit = json!({"op": "edit", "chat_id": ANN.to_string(), "message_id": message, "content": text});
            let result = world.send(&agent, edit).await;
            check(&world, &text, &result);
            sleep(QUIET).await;
        }
    }
}
