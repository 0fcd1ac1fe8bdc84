//! Actions of agents, as users see them.

use frontdesk_testkit::fakes::slack::{Fault, FaultRule};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_answers_in_the_thread_edits_reacts_and_deletes() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    let said = scene.say("C1", "UANN", "<@UBOT> hello");
    let ts = said["ts"].as_str().unwrap().to_owned();
    agent.event().await;
    let typing = json!({ "op": "typing", "chat_id": "C1", "metadata": { "thread_id": ts, "scope_id": "T1" } });
    assert_eq!(agent.act(typing).await["success"], true);
    assert_eq!(scene.server.fake.status("C1", &ts), "is typing...");
    let sent = agent.act(send("C1", "**hi** there", Some(&ts))).await;
    assert_eq!(sent["success"], true, "{sent}");
    let id = sent["message_id"].as_str().unwrap().to_owned();
    let shown = |scene: &Scene| scene.server.fake.messages("C1").into_iter().find(|it| it["ts"] == id.as_str());
    let message = shown(&scene).unwrap();
    assert_eq!((&message["text"], &message["thread_ts"]), (&json!("*hi* there"), &json!(ts)));
    assert_eq!(scene.server.fake.status("C1", &ts), "", "the answer clears it");
    let edit = json!({ "op": "edit", "chat_id": "C1", "message_id": id, "content": "hi _you_" });
    assert_eq!(agent.act(edit).await["success"], true);
    assert_eq!(shown(&scene).unwrap()["text"], "hi _you_");
    let react =
        |remove: bool| json!({ "op": "react", "chat_id": "C1", "message_id": ts, "emoji": "👀", "remove": remove });
    for (remove, names) in [(false, json!(["eyes"])), (false, json!(["eyes"])), (true, json!([])), (true, json!([]))] {
        assert_eq!(agent.act(react(remove)).await["success"], true);
        let on = scene.server.fake.messages("C1").into_iter().find(|it| it["ts"] == ts.as_str()).unwrap();
        assert_eq!(on["reactions"], names);
    }
    for _ in 0..2 {
        let delete = json!({ "op": "delete", "chat_id": "C1", "message_id": id });
        assert_eq!(agent.act(delete).await["success"], true);
    }
    assert!(shown(&scene).is_none());
    let chat = agent.act(json!({ "op": "get_chat_info", "chat_id": "C1" })).await;
    assert_eq!(chat["chat_info"], json!({ "name": "name-of-c1", "type": "group" }), "{chat}");
    let elsewhere = agent.act(send("C3", "not my chat", None)).await;
    assert_eq!(elsewhere["code"], "egress_declined", "{elsewhere}");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_long_texts_and_drafts_go_out() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    scene.say("D1", "UANN", "hello");
    agent.event().await;
    let upload = scene.harness.request("POST", "/relay/media").bearer_auth(scene.ann.bearer());
    let upload =
        upload.header("content-type", "application/pdf").header("x-media-filename", "plan.pdf").body("pdf bytes");
    let id = scene.harness.send(upload).await.json()["id"].as_str().unwrap().to_owned();
    let media = json!({ "op": "send_media", "chat_id": "D1", "media_kind": "document", "content": "the plan",
        "source_url": format!("{}/relay/media/{id}", scene.harness.url) });
    let sent = agent.act(media).await;
    assert_eq!(sent["success"], true, "{sent}");
    let message = scene.server.fake.messages("D1").pop().unwrap();
    assert_eq!((&message["text"], &message["files"][0]["name"]), (&json!("the plan"), &json!("plan.pdf")));
    assert_eq!(sent["message_id"], message["ts"], "Slack is asked where the file is shown");
    for (text, sealed) in [("He", false), ("Hello", false), ("Hello **Ann**", true)] {
        let draft = json!({ "op": "draft", "chat_id": "D1", "draft_id": 5, "content": text, "final": sealed });
        let result = agent.act(draft).await;
        assert_eq!(result["success"], true, "{result}");
        let newest = scene.server.fake.messages("D1").pop().unwrap();
        assert_eq!(newest["text"], text.replace("**", "*"));
        assert!(!sealed || result["message_id"] == newest["ts"], "{result}");
    }
    let before = scene.server.fake.messages("D1").len();
    let long = "All work and no play. ".repeat(4_000);
    assert_eq!(agent.act(send("D1", &long, None)).await["success"], true);
    let messages = scene.server.fake.messages("D1").split_off(before);
    assert!(messages.len() >= 3, "{}", messages.len());
    let words: usize = messages.iter().map(|it| it["text"].as_str().unwrap().matches("play").count()).sum();
    assert_eq!(words, 4_000);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_waited_for_and_an_unknown_outcome_is_reported() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    scene.say("D1", "UANN", "hello");
    agent.event().await;
    let fault =
        |method: &str, fault: Fault| scene.server.fake.fault(FaultRule { method: method.into(), fault, times: 1 });
    fault("chat.postMessage", Fault::RetryAfter { seconds: 1 });
    assert_eq!(agent.act(send("D1", "after a second", None)).await["success"], true);
    fault("chat.postMessage", Fault::DropAfter);
    let unknown = agent.act(send("D1", "did it go?", None)).await;
    assert_eq!((&unknown["success"], &unknown["ambiguous"]), (&json!(false), &json!(true)), "{unknown}");
    assert!(unknown["error"].as_str().unwrap().contains("timed out"), "{unknown}");
    fault("chat.postMessage", Fault::Error { error: "is_archived".into() });
    let refused = agent.act(send("D1", "no", None)).await;
    assert_eq!((&refused["code"], refused.get("ambiguous")), (&json!("forbidden"), None), "{refused}");
    let texts: Vec<Value> = scene.server.fake.messages("D1").iter().map(|it| it["text"].clone()).collect();
    assert_eq!(texts, ["hello", "after a second", "did it go?"]);
    scene.finish().await;
}
