//! An agent sends one typing action, and users see the indicator until there is an answer.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::ANN;
use super::paused::World;

fn shown(world: &World) -> usize {
    world.fake.calls_after(0).iter().filter(|call| call.method == "sendChatAction").count()
}

#[tokio::test(start_paused = true)]
async fn typing_is_shown_until_there_is_an_answer() {
    let world = World::open().await;
    let agent = world.tenant("t").await;
    world.person("t", ANN).await;
    let chat_id = ANN.to_string();
    let typing = json!({"op": "typing", "chat_id": chat_id});
    assert!(world.send(&agent, typing.clone()).await.success);
    sleep(Duration::from_secs(30)).await;
    let calls = world.fake.calls_after(0);
    let times: Vec<u64> = calls.iter().filter(|call| call.method == "sendChatAction").map(|call| call.at_ms).collect();
    assert!(times.len() >= 6, "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] < 5_000), "without a gap: {times:?}");

    assert!(world.send(&agent, json!({"op": "send", "chat_id": chat_id, "content": "done"})).await.success);
    let so_far = shown(&world);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(shown(&world), so_far, "after the answer");

    assert!(world.send(&agent, typing.clone()).await.success);
    assert!(world.send(&agent, json!({"op": "typing", "chat_id": chat_id, "content": ""})).await.success);
    let so_far = shown(&world);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(shown(&world), so_far, "after it was cleared");

    // An agent that died does not type for ever.
    assert!(world.send(&agent, typing.clone()).await.success);
    sleep(Duration::from_secs(70)).await;
    let so_far = shown(&world);
    sleep(Duration::from_secs(70)).await;
    assert_eq!(shown(&world), so_far, "a minute later");

    // Nor does one whose bot is gone.
    assert!(world.send(&agent, typing).await.success);
    let so_far = shown(&world);
    world.desk.directory().bots().remove("telegram", &"tg".into()).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(shown(&world), so_far, "without a bot");
}
