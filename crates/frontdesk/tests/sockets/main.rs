//! End-to-end tests of relay sockets: upgrade, frames, deliveries, results.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls only the server")]

mod actions;
mod delivery;
mod frames;
#[path = "../harness/mod.rs"]
mod harness;
mod pressure;
mod upgrade;

use std::ops::RangeInclusive;

use harness::{Socket, Source, outbound};
use serde_json::{Value, json};

/// An action that lasts until the source answers: later ones in the same chat wait for it.
async fn send_slow(socket: &mut Socket, request: &str, chat: &str, source: &Source) {
    let media = json!({ "op": "send_media", "chat_id": chat, "media_kind": "image", "source_url": source.url });
    socket.frame(&outbound(request, media)).await;
    source.asked().await;
}

/// Actions 1 to `count` in the chat `c`, in one write: on a slow disk a thousand writes would take longer than an action may
/// wait.
async fn send_burst(socket: &mut Socket, count: u32) {
    let info = json!({ "op": "get_chat_info", "chat_id": "c" });
    let ask = |number: u32| format!("{}\n", outbound(&number.to_string(), info.clone()));
    socket.text((1..=count).map(ask).collect::<String>()).await;
}

/// The results of these actions, all of them successful.
async fn expect_done(socket: &mut Socket, numbers: RangeInclusive<u32>) {
    for number in numbers {
        let result = result(socket, number).await;
        assert_eq!(result["success"], true, "{number}: {result}");
    }
}

/// The results of these actions, all of them refused because too many wait.
async fn expect_too_many(socket: &mut Socket, numbers: RangeInclusive<u32>) {
    for number in numbers {
        let result = result(socket, number).await;
        assert_eq!((&result["success"], &result["code"]), (&json!(false), &json!("rate_limited")), "{number}");
        assert!(result["error"].as_str().unwrap().contains("network"), "{result}");
    }
}

async fn result(socket: &mut Socket, number: u32) -> Value {
    socket.result(&number.to_string()).await.json["result"].clone()
}
