//! Rules 16, 17 and 32: exchanges.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use frontdesk_core::agents::{AgentsCaller, AnswerChannel, Question};
use frontdesk_core::port::exchanges::{Exchange, Reply, ReplyOutcome, StoredAnswer};
use frontdesk_wire::agents::{Class, DeliveryPayload};
use frontdesk_wire::{DeskNo, Seq, TenantId};
use serde_json::{Value, json};

use crate::harness::{Source, TIME_LIMIT, outbound};
use crate::plane::{Plane, class};

fn question(plane: &Plane, correlation: &str, timeout_ms: u64) -> Value {
    let mut body = plane.augment("what is it?");
    body["meta"]["correlation_id"] = json!(correlation);
    body["timeout_ms"] = json!(timeout_ms);
    body
}

#[tokio::test]
async fn rule_32_a_polling_agent_answers_with_replies() {
    let plane = Plane::with_agents(&["alice", "eve"]).await;
    let body = question(&plane, "c-1", 20_000);
    let ask = plane.post("/v1/agents/alice/exchange", &body);
    let answer = async {
        let message = loop {
            if let Some(message) = plane.inbox("alice").await.pop() {
                break message;
            }
        };
        assert_eq!(message["meta"]["correlation_id"], "c-1");
        let reply = |content: &str| json!({ "correlation_id": "c-1", "content": content });
        assert_eq!(class(&plane.post("/v1/agents/eve/replies", &reply("no")).await, 403), "ForbiddenError");
        let in_flight = plane.post("/v1/agents/alice/exchange", &question(&plane, "c-1", 1_000)).await;
        assert_eq!(class(&in_flight, 409), "ConflictError");
        plane.post("/v1/agents/alice/replies", &reply("42")).await.expect(200);
        assert_eq!(class(&plane.post("/v1/agents/alice/replies", &reply("43")).await, 410), "GoneError");
    };
    let (response, ()) = tokio::join!(ask, answer);
    let response = response.expect(200);
    assert_eq!(
        (&response["correlation_id"], &response["content"], &response["agent_id"]),
        (&json!("c-1"), &json!("42"), &json!("alice"))
    );
    assert!(response["sent_at"].as_u64().unwrap() > 1_700_000_000_000);
    plane.finish().await;
}

#[tokio::test]
async fn rule_16_no_correlation_id_is_400_no_reply_is_504_and_frees_the_id() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut bare = question(&plane, "x", 100);
    bare["meta"].as_object_mut().unwrap().remove("correlation_id");
    assert_eq!(class(&plane.post("/v1/agents/alice/exchange", &bare).await, 400), "ValidationError");
    assert_eq!(
        class(&plane.post("/v1/agents/alice/exchange", &question(&plane, "", 100)).await, 400),
        "ValidationError"
    );
    for timeout in [0, 600_001] {
        let reply = plane.post("/v1/agents/alice/exchange", &question(&plane, "c", timeout)).await;
        assert_eq!(class(&reply, 400), "ValidationError");
    }
    let long = plane.post("/v1/agents/alice/exchange", &question(&plane, &"x".repeat(4097), 100)).await;
    assert_eq!(class(&long, 400), "ValidationError", "it is in memory while its caller waits");
    assert!(plane.inbox("alice").await.is_empty(), "nothing was stored");
    plane.post("/v1/agents/alice/exchange", &question(&plane, &"x".repeat(4096), 1)).await.expect(504);
    for _ in 0..2 {
        let late = plane.post("/v1/agents/alice/exchange", &question(&plane, "c", 50)).await;
        let response = late.expect(504);
        assert_eq!(
            (&response["error"]["class"], &response["error"]["timeout_ms"]),
            (&json!("TimeoutError"), &json!(50))
        );
    }
    let reply = json!({ "correlation_id": "c", "content": "too late" });
    assert_eq!(class(&plane.post("/v1/agents/alice/replies", &reply).await, 410), "GoneError");
    let unknown = plane.post("/v1/agents/nobody/exchange", &question(&plane, "c", 50)).await;
    assert_eq!(class(&unknown, 404), "UnknownAgentError");
    plane.finish().await;
}

#[tokio::test]
async fn a_late_reply_goes_to_the_inbox_of_the_caller() {
    let plane = Plane::with_agents(&["alice", "bob"]).await;
    let late = |content: &str| json!({ "correlation_id": "c", "content": content });
    let response = plane.post("/v1/agents/alice/exchange", &question(&plane, "c", 20)).await;
    assert_eq!(class(&response, 504), "TimeoutError");
    let plane = plane.again().await; // the caller is stored
    let received = plane.post("/v1/agents/alice/replies", &late("sorry, 42")).await.expect(200);
    assert_eq!(received, json!({ "ok": true, "delivered_to": "inbox" }));
    let again = plane.post("/v1/agents/alice/replies", &late("sorry, 42")).await.expect(200);
    assert_eq!(again["delivered_to"], "inbox", "a repeated reply has the same result");
    assert_eq!(class(&plane.post("/v1/agents/alice/replies", &late("43")).await, 410), "GoneError");
    let inbox = plane.inbox("bob").await;
    assert_eq!((inbox.len(), &inbox[0]["text"]), (1, &json!("sorry, 42")));
    let meta = &inbox[0]["meta"];
    assert_eq!((&meta["correlation_id"], &meta["event_type"]), (&json!("c"), &json!("exchange.late_reply")));
    assert_eq!(meta["origin"]["caller_agent_id"], "alice");

    // After a reply in time, later ones are refused.
    let body = question(&plane, "d", 20_000);
    let ask = plane.post("/v1/agents/alice/exchange", &body);
    let reply = json!({ "correlation_id": "d", "content": "in time" });
    let answer = async {
        while plane.harness.app.desk.agents().live().waiters().is_empty() {
            tokio::task::yield_now().await;
        }
        let received = plane.post("/v1/agents/alice/replies", &reply).await.expect(200);
        assert_eq!(received, json!({ "ok": true }));
    };
    let (response, ()) = tokio::join!(ask, answer);
    assert_eq!(response.expect(200)["content"], "in time");
    assert_eq!(class(&plane.post("/v1/agents/alice/replies", &reply).await, 410), "GoneError");
    assert_eq!(plane.inbox("bob").await.len(), 1);

    // A caller that is not an agent, and a caller that is deleted meanwhile.
    let mut stranger = question(&plane, "e", 20);
    stranger["meta"]["origin"]["caller_agent_id"] = json!("nobody");
    assert_eq!(class(&plane.post("/v1/agents/alice/exchange", &stranger).await, 504), "TimeoutError");
    let response = plane.post("/v1/agents/alice/exchange", &question(&plane, "f", 20)).await;
    assert_eq!(class(&response, 504), "TimeoutError");
    assert_eq!(plane.harness.call("DELETE", "/v1/agents/bob", &plane.operator, &Value::Null).await.status, 204);
    for id in ["e", "f"] {
        let reply = json!({ "correlation_id": id, "content": "x" });
        assert_eq!(class(&plane.post("/v1/agents/alice/replies", &reply).await, 410), "GoneError", "{id}");
    }
    plane.finish().await;
}

#[tokio::test]
async fn a_reply_that_races_with_a_disconnect_goes_to_the_callers_inbox() {
    let plane = Plane::with_agents(&["alice", "bob"]).await;
    let desk = plane.harness.app.desk.clone();
    let home = TenantId::from("home");
    let speaker = AgentsCaller::of(&home);
    let mut body = question(&plane, "c", 60_000);
    body.as_object_mut().unwrap().remove("timeout_ms");
    let payload: DeliveryPayload = serde_json::from_value(body).unwrap();
    let (to_asker, asker) = tokio::sync::oneshot::channel();
    let line = AnswerChannel::from(to_asker);
    let mut asking = Box::pin(desk.exchanges().ask(speaker, "alice", payload.into(), 60_000, line));
    let asked = async {
        while plane.inbox("alice").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = &mut asking => panic!("the exchange ended without a reply"),
        () = asked => {}
    }
    // The exchange is not polled from here on: the reply is accepted and the caller disconnects before it sees either.
    let received = desk.exchanges().reply(speaker, "alice", "c", "42".into()).await.unwrap();
    assert!(received.ok && received.delivered_to.is_none(), "{received:?}");
    drop(asker);
    tokio::time::timeout(TIME_LIMIT, asking).await.expect("the exchange did not end");
    let inbox = plane.inbox("bob").await;
    assert_eq!((inbox.len(), &inbox[0]["text"]), (1, &json!("42")));
    assert_eq!(inbox[0]["meta"]["correlation_id"], "c");
    drop(desk);
    plane.finish().await;
}

#[tokio::test]
async fn a_question_that_was_delivered_holds_nothing_while_its_caller_waits() {
    let plane = Plane::with_agents(&["alice", "bob"]).await;
    let desk = plane.harness.app.desk.clone();
    let home = TenantId::from("home");
    let speaker = AgentsCaller::of(&home);
    let mut body = question(&plane, "c", 60_000);
    body.as_object_mut().unwrap().remove("timeout_ms");
    let payload: DeliveryPayload = serde_json::from_value(body).unwrap();
    let held = Arc::new(());
    let is_held = Arc::downgrade(&held);
    let (asker, answer) = tokio::sync::oneshot::channel();
    let line = AnswerChannel::from(asker);
    let asked = Question { payload, held: Box::new(held) };
    let mut asking = Box::pin(desk.exchanges().ask(speaker, "alice", asked, 60_000, line));
    let given_back = async {
        while is_held.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = &mut asking => panic!("the exchange ended without a reply"),
        done = tokio::time::timeout(TIME_LIMIT, given_back) => done.expect("the question is still held"),
    }
    assert_eq!(plane.inbox("alice").await.len(), 1, "the question is there");
    desk.exchanges().reply(speaker, "alice", "c", "42".into()).await.unwrap();
    tokio::time::timeout(TIME_LIMIT, asking).await.expect("the exchange did not end");
    assert_eq!(answer.await.unwrap().unwrap_or_else(|fault| panic!("{fault}")).reply.content, "42");
    drop(desk);
    plane.finish().await;
}

/// An asker whose tenant has too many unread answers is told so, and the answer is not lost.
#[tokio::test]
async fn an_answer_without_room_goes_to_the_inbox_of_the_agent_that_asked() {
    let plane = Plane::with_agents(&["alice", "bob"]).await;
    let desk = plane.harness.app.desk.clone();
    for (caller, id, where_to) in [(Some("bob"), "c-1", "is in the inbox"), (None, "c-2", "another dispatch_id")] {
        let home = TenantId::from("home");
        let speaker = AgentsCaller { caller, ..AgentsCaller::of(&home) };
        let mut body = question(&plane, id, 60_000);
        body["meta"]["origin"] = json!({});
        body.as_object_mut().unwrap().remove("timeout_ms");
        let payload: DeliveryPayload = serde_json::from_value(body).unwrap();
        let (asker, answer) = tokio::sync::oneshot::channel();
        let (wanted, wants) = std::sync::mpsc::channel();
        let line = AnswerChannel::new(asker, move |bytes| {
            wanted.send(bytes).unwrap();
            None
        });
        let asking = desk.exchanges().ask(speaker, "alice", payload.into(), 60_000, line);
        let replying = async {
            while !plane.inbox("alice").await.iter().any(|it| it["meta"]["correlation_id"] == id) {}
            desk.exchanges().reply(speaker, "alice", id, "forty-two".into()).await.unwrap();
        };
        let both = async { tokio::join!(asking, replying) };
        tokio::time::timeout(TIME_LIMIT, both).await.expect("the exchange did not end");
        let fault = answer.await.unwrap().err().expect("there is no room").to_string();
        assert!(fault.contains("too many unread answers") && fault.contains(where_to), "{fault}");
        assert_eq!(wants.try_iter().collect::<Vec<_>>(), [9], "asked once, for what it takes");
    }
    let inbox = plane.inbox("bob").await;
    assert_eq!((inbox.len(), &inbox[0]["text"]), (1, &json!("forty-two")));
    drop(desk);
    plane.finish().await;
}

/// The server that took the answer is gone, and the asker asks again: too many wait here, and there is no room for the answer.
#[tokio::test]
async fn an_answer_to_the_same_question_asked_before_is_not_lost_if_too_many_wait() {
    static HOME: LazyLock<TenantId> = LazyLock::new(|| "home".into()); // some of the askers are tasks
    let plane = Plane::with_agents(&["alice", "bob"]).await;
    let desk = plane.harness.app.desk.clone();
    let speaker = AgentsCaller { caller: Some("bob"), ..AgentsCaller::of(&HOME) };
    let payload = |id: &str| -> DeliveryPayload {
        let mut body = question(&plane, id, 60_000);
        body.as_object_mut().unwrap().remove("timeout_ms");
        serde_json::from_value(body).unwrap()
    };
    let first = payload("c");
    desk.exchanges().exchange(speaker, "alice", &first, 1).await.expect_err("nobody answers so soon");
    let agent = desk.directory().read(|view| view.agent(&"home".into(), &"alice".into()).map(|it| it.no)).unwrap();
    let (gone, here, at_ms) = (DeskNo(99), DeskNo(1), 1);
    let exchange = Exchange {
        token: u64::MAX >> 1,
        tenant: "home".into(),
        correlation_id: "c".into(),
        desk: gone,
        asker: Some("bob".into()),
        agent,
        agent_id: "alice".into(),
        timeout_ms: 60_000,
        ..Exchange::default()
    };
    let answer = StoredAnswer { content: "forty-two".into(), at_ms };
    let reply = Reply { tenant: "home".into(), correlation_id: "c".into(), agent, answer, desk: here };
    let store = &desk.stores().exchanges;
    assert!(store.open_exchange(exchange, vec![here, gone], at_ms).await.unwrap());
    let taken = store.answer_exchange(reply, vec![here, gone], at_ms).await.unwrap();
    assert!(matches!(taken, ReplyOutcome::At(desk, _) if desk == gone));

    let waiting: Vec<_> = (0..2_500)
        .map(|n| {
            let (desk, payload) = (desk.clone(), payload(&format!("wait-{n}")));
            tokio::spawn(async move { desk.exchanges().exchange(speaker, "alice", &payload, 600_000).await })
        })
        .collect();
    let full = async {
        while desk.agents().live().waiters().len() < waiting.len() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(2), full).await.expect("the limit was not reached");
    let (asker, receiver) = tokio::sync::oneshot::channel();
    let line = AnswerChannel::new(asker, |_| None);
    let asking = desk.exchanges().ask(speaker, "alice", first.into(), 60_000, line);
    tokio::time::timeout(TIME_LIMIT, asking).await.expect("the exchange did not end");
    let fault = receiver.await.unwrap().err().expect("there is no room").to_string();
    assert!(fault.contains("is in the inbox"), "{fault}");
    let inbox = plane.inbox("bob").await;
    assert_eq!((inbox.len(), &inbox[0]["text"]), (1, &json!("forty-two")));
    let again = desk.exchanges().reply(speaker, "alice", "c", "forty-three".into()).await.unwrap_err();
    assert_eq!(again.class, Class::GoneError, "it was answered");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    for asked in waiting {
        asked.await.unwrap_err();
    }
    drop(desk);
    plane.finish().await;
}

#[tokio::test]
async fn the_caller_is_known_by_its_token_or_header() {
    let plane = Plane::with_agents(&["alice", "bob", "carol"]).await;
    let token = crate::bound::bound(&plane, "carol").await;
    let ask = async |token: &str, name: Option<&str>, id: &str| {
        let mut body = question(&plane, id, 500);
        body["meta"]["origin"] = json!({});
        let mut request = plane.harness.request("POST", "/v1/agents/alice/exchange").bearer_auth(token).json(&body);
        if let Some(name) = name {
            request = request.header("x-agent-id", name);
        }
        assert_eq!(class(&plane.harness.send(request).await, 504), "TimeoutError");
        let reply = json!({ "correlation_id": id, "content": format!("late {id}") });
        plane.post("/v1/agents/alice/replies", &reply).await.expect(200);
    };
    ask(&token, None, "c-1").await;
    ask(&plane.token, Some("bob"), "c-2").await;
    assert_eq!(plane.inbox("carol").await[0]["text"], "late c-1");
    assert_eq!(plane.inbox("bob").await[0]["text"], "late c-2");
    plane.finish().await;
}

#[tokio::test]
async fn a_question_repeated_after_a_crash_reaches_the_agent() {
    let plane = Plane::open().await;
    let account = plane.harness.add_gateway("gw-1").await;
    let body = question(&plane, "c", 60_000);
    let mut socket = plane.harness.socket(&account).await;
    let request = plane.harness.request("POST", "/v1/agents/gw-1/exchange").bearer_auth(&plane.token).json(&body);
    let asking = tokio::spawn(request.send());
    let first = socket.of("inbound").await;
    socket.ack(&first).await; // settled in the ledger
    let desk = plane.harness.app.desk.clone();
    let no = desk.directory().read(|view| view.instance(&"home".into(), &"gw-1".into()).map(|it| it.no)).unwrap();
    let settled = async {
        while !desk.stores().ledger.pending(no, Seq(0), 10).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIME_LIMIT, settled).await.expect("the question was not settled");
    drop((desk, socket));
    asking.abort();
    let plane = plane.again().await;
    let mut socket = plane.harness.socket(&account).await;
    let ask = plane.post("/v1/agents/gw-1/exchange", &body);
    let answer = async {
        let again = socket.of("inbound").await;
        let event = &again.json["event"];
        assert_eq!(
            event["message_id"], first.json["event"]["message_id"],
            "a repeated question has the same message id"
        );
        assert_eq!(event["delivery"]["meta"]["correlation_id"], "c");
        socket.ack(&again).await;
        let send = json!({ "op": "send", "chat_id": event["source"]["chat_id"], "content": "42",
            "reply_to": event["message_id"] });
        socket.frame(&outbound("r1", send)).await;
        socket
    };
    let (response, socket) = tokio::join!(ask, answer);
    assert_eq!(response.expect(200)["content"], "42");
    assert_eq!(plane.inbox("gw-1").await.len(), 1, "a repeated question is stored once");
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn rule_16_a_disconnected_caller_frees_the_waiter() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut stream = plane.listen("alice", "").await;
    let request = plane.harness.request("POST", "/v1/agents/alice/exchange").bearer_auth(&plane.token);
    let asking = tokio::spawn(request.json(&question(&plane, "c", 60_000)).send());
    stream.message().await;
    assert_eq!(plane.harness.app.desk.agents().live().waiters().len(), 1);
    asking.abort();
    let waiters = plane.harness.app.desk.agents().live().waiters().clone();
    let freed = async {
        while !waiters.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIME_LIMIT, freed).await.expect("the waiter was not freed");
    let reply = json!({ "correlation_id": "c", "content": "hello?" });
    assert_eq!(class(&plane.post("/v1/agents/alice/replies", &reply).await, 410), "GoneError");
    drop(stream);
    plane.finish().await;
}

#[tokio::test]
async fn rule_17_on_a_relay_socket_a_question_is_an_event_and_survives_a_reconnect() {
    let plane = Plane::open().await;
    let account = plane.harness.add_gateway("gw-1").await;
    let mut socket = plane.harness.socket(&account).await;
    let body = question(&plane, "c-7", 20_000);
    let ask = plane.post("/v1/agents/gw-1/exchange", &body);
    let answer = async {
        let asked = socket.of("inbound").await;
        let delivery = &asked.json["event"]["delivery"];
        assert_eq!((asked.text(), &delivery["meta"]["correlation_id"]), ("what is it?", &json!("c-7")));
        drop(socket); // unacked: the question is sent on the next socket, and the caller still waits
        let mut socket = plane.harness.socket(&account).await;
        let again = socket.of("inbound").await;
        assert_eq!(again.text(), asked.text());
        socket.ack(&again).await;
        let chat = again.json["event"]["source"]["chat_id"].clone();
        let aside = json!({ "op": "send", "chat_id": chat, "content": "to another", "reply_to": "dl_0" });
        socket.frame(&outbound("r1", aside)).await;
        let to = again.json["event"]["message_id"].clone();
        let send = json!({ "op": "send", "chat_id": chat, "content": "a teapot", "reply_to": to });
        socket.frame(&outbound("r2", send)).await;
        socket
    };
    let (response, socket) = tokio::join!(ask, answer);
    let response = response.expect(200);
    assert_eq!((&response["content"], &response["agent_id"]), (&json!("a teapot"), &json!("gw-1")));
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn rule_16_a_reply_is_returned_while_a_connector_hangs() {
    let source = Source::open("text/plain", b"ok").await;
    let plane = Plane::open().await;
    let hook = json!({ "type": "webhook", "url": source.url, "timeout_ms": 30_000 });
    plane.put("alice", json!({ "connectors": [hook] })).await.expect(200);
    let body = question(&plane, "c", 20_000);
    let ask = plane.post("/v1/agents/alice/exchange", &body);
    let answer = async {
        source.asked().await;
        let reply = json!({ "correlation_id": "c", "content": "quick" });
        plane.post("/v1/agents/alice/replies", &reply).await.expect(200);
    };
    let (response, ()) = tokio::join!(ask, answer);
    assert_eq!(response.expect(200)["content"], "quick");
    let desk = plane.harness.app.desk.clone();
    assert!(desk.agents().live().waiters().is_empty());
    source.answer(1); // the delivery to the connector completes, although nobody waits for it
    let carried = async {
        while !desk.agents().live().in_flight().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIME_LIMIT, carried).await.expect("a delivery to a connector never ended");
    plane.finish().await;
}

#[tokio::test]
async fn an_accepted_reply_is_returned_to_the_caller() {
    let plane = Plane::with_agents(&["alice"]).await;
    for round in 0..40 {
        let id = format!("c-{round}");
        let body = question(&plane, &id, 10);
        let reply = json!({ "correlation_id": id, "content": "just in time?" });
        let replies = async {
            loop {
                let response = plane.post("/v1/agents/alice/replies", &reply).await;
                if response.status == 200 || plane.inbox("alice").await.len() > round {
                    break response.status == 200 || plane.post("/v1/agents/alice/replies", &reply).await.status == 200;
                }
            }
        };
        let (asked, received) = tokio::join!(plane.post("/v1/agents/alice/exchange", &body), replies);
        assert_eq!(asked.status, if received { 200 } else { 504 }, "{}", asked.text());
    }
    plane.finish().await;
}

#[tokio::test]
async fn deleting_the_agent_ends_the_exchange() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut stream = plane.listen("alice", "").await;
    let body = question(&plane, "c", 60_000);
    let ask = plane.post("/v1/agents/alice/exchange", &body);
    let delete = async {
        stream.message().await;
        let gone = plane.harness.call("DELETE", "/v1/agents/alice", &plane.operator, &Value::Null).await;
        assert_eq!(gone.status, 204);
    };
    let (response, ()) = tokio::join!(ask, delete);
    assert_eq!(class(&response, 404), "UnknownAgentError");
    drop(stream);
    plane.finish().await;
}

#[tokio::test]
async fn rule_16_correlation_ids_may_be_any_text_and_are_per_tenant() {
    let plane = Plane::with_agents(&["alice"]).await;
    plane.harness.admin("POST", "/tenants", &json!({ "name": "other" })).await.expect(201);
    let other = plane.harness.token("other", "agents").await;
    plane.harness.call("PUT", "/v1/agents/alice", &other, &json!({})).await.expect(200);
    for id in ["\u{0}\n\u{1F600} \"'%00", &"x".repeat(4_000)] {
        let body = question(&plane, id, 20_000);
        let ask = plane.post("/v1/agents/alice/exchange", &body);
        let reply = json!({ "correlation_id": id, "content": id });
        let answer = async {
            while plane.harness.app.desk.agents().live().waiters().is_empty() {
                tokio::task::yield_now().await;
            }
            let theirs = plane.harness.post("/v1/agents/alice/replies", &other, &reply).await;
            assert_eq!(class(&theirs, 410), "GoneError", "another tenant's alice was not asked");
            plane.post("/v1/agents/alice/replies", &reply).await.expect(200);
        };
        let (response, ()) = tokio::join!(ask, answer);
        let response = response.expect(200);
        assert_eq!((response["correlation_id"].as_str(), response["content"].as_str()), (Some(id), Some(id)));
    }
    plane.finish().await;
}

#[tokio::test]
async fn rule_17_only_a_reply_to_the_question_answers_it() {
    let plane = Plane::open().await;
    let account = plane.harness.add_gateway("gw-1").await;
    let mut socket = plane.harness.socket(&account).await;
    plane.deliver("gw-1", &plane.augment("by the way")).await.expect(200);
    let message = socket.of("inbound").await;
    let source = &message.json["event"]["source"];
    assert!(
        source.get("thread_id").is_none_or(Value::is_null),
        "a message without a question is in the chat itself: {source}"
    );
    let (first, second) = (question(&plane, "c-1", 20_000), question(&plane, "c-2", 20_000));
    let ask = async |body: &Value| plane.post("/v1/agents/gw-1/exchange", body).await.expect(200);
    let answer = async {
        let mut number = 0;
        let mut say =
            async |socket: &mut crate::harness::Socket, asked: &Value, text: &str, notify: bool, to: &Value| {
                number += 1;
                // Like real gateways: thread and user of the question are copied to everything that is sent.
                let mut metadata = json!({ "thread_id": asked["thread_id"], "user_id": asked["user_id"] });
                if notify {
                    metadata["notify"] = json!(true);
                }
                let send = json!({ "op": "send", "chat_id": asked["chat_id"], "content": text, "reply_to": to,
                "metadata": metadata });
                socket.frame(&outbound(&format!("r{number}"), send)).await;
            };
        let mut asked = Vec::new();
        for _ in 0..2 {
            let frame = socket.of("inbound").await;
            let source = frame.json["event"]["source"].clone();
            assert_eq!(source["thread_id"], frame.json["event"]["message_id"], "a question has its own thread");
            assert_eq!(source["chat_id"], message.json["event"]["source"]["chat_id"]);
            asked
                .push((frame.json["event"]["delivery"]["meta"]["correlation_id"].as_str().unwrap().to_owned(), source));
        }
        for (id, source) in &asked {
            let thread = source["thread_id"].clone();
            let stray = json!({ "op": "send", "chat_id": source["chat_id"], "content": "about the previous message" });
            socket.frame(&outbound("r0", stray)).await;
            say(&mut socket, source, "no home channel is set", false, &Value::Null).await;
            say(&mut socket, source, "looking it up", false, &thread).await;
            say(&mut socket, source, &format!("the answer to {id}"), true, &thread).await;
        }
    };
    let (one, two, ()) = tokio::join!(ask(&first), ask(&second), answer);
    assert_eq!((&one["content"], &one["correlation_id"]), (&json!("the answer to c-1"), &json!("c-1")));
    assert_eq!((&two["content"], &two["correlation_id"]), (&json!("the answer to c-2"), &json!("c-2")));
    drop(socket);
    plane.finish().await;
}
