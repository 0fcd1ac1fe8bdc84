//! Rules 30 and 31: the inbox as a stream, and agent status.

use frontdesk_core::directory::facts::Fact;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::TIME_LIMIT;
use crate::plane::{Plane, class};

#[tokio::test]
async fn rule_30_a_stream_gets_new_messages_or_replays_from_a_position() {
    let plane = Plane::with_agents(&["alice"]).await;
    for text in ["1", "2", "3"] {
        plane.deliver("alice", &plane.augment(text)).await.expect(200);
    }
    let mut fresh = plane.listen("alice", "").await;
    let mut from_one = plane.listen("alice", "?after=1").await;
    plane.deliver("alice", &plane.augment("4")).await.expect(200);
    assert_eq!(fresh.message().await["text"], "4");
    for text in ["2", "3", "4"] {
        assert_eq!(from_one.message().await["text"], text);
    }
    let path = "/v1/agents/alice/inbox/stream?after=0";
    let resumed = plane.harness.request("GET", path).bearer_auth(&plane.token).header("Last-Event-ID", "3");
    let mut response = plane.harness.response(resumed).await;
    let came = plane.harness.follow(&mut response, &["event: message", "\"4\""]).await;
    assert!(came.contains("event: ready") && !came.contains("\"text\":\"3\""), "{came}");
    drop((fresh, from_one, response));
    plane.finish().await;
}

/// A reader that was disconnected while its agent was deleted and created again misses nothing of the new inbox.
#[tokio::test]
async fn rule_30_a_position_in_a_deleted_inbox_hides_nothing_of_the_next() {
    let plane = Plane::with_agents(&["alice"]).await;
    for text in ["1", "2", "3"] {
        plane.deliver("alice", &plane.augment(text)).await.expect(200);
    }
    let last = plane.inbox("alice").await[2]["seq"].clone();
    assert_eq!(plane.harness.call("DELETE", "/v1/agents/alice", &plane.operator, &Value::Null).await.status, 204);
    plane.register("alice").await;
    for text in ["a", "b", "c", "d"] {
        plane.deliver("alice", &plane.augment(text)).await.expect(200);
    }
    let found = plane.get(&format!("/v1/agents/alice/inbox?after={last}")).await.expect(200);
    let texts: Vec<Value> = found["messages"].as_array().unwrap().iter().map(|it| it["text"].clone()).collect();
    assert_eq!(texts, ["a", "b", "c", "d"]);
    let mut stream = plane.listen("alice", &format!("?after={last}")).await;
    assert_eq!(stream.message().await["text"], "a");
    drop(stream);
    plane.finish().await;
}

/// A crash between the two steps of a deletion leaves unreachable messages; the next start deletes them.
#[tokio::test]
async fn leftovers_of_a_deletion_are_removed_at_the_next_start() {
    let plane = Plane::with_agents(&["alice", "bob"]).await;
    for id in ["alice", "bob"] {
        plane.deliver(id, &plane.augment("psst")).await.expect(200);
    }
    let desk = plane.harness.app.desk.clone();
    let gone = desk.directory().write(|view, draft| {
        draft.remove(&Fact::Agent((**view.agent(&"home".into(), &"alice".into()).unwrap()).clone()));
        Ok::<_, ()>(())
    });
    assert!(gone.await.is_ok());
    assert_eq!(desk.stores().inbox.inboxes().await.unwrap().len(), 2);
    drop(desk);
    let plane = plane.again().await;
    assert_eq!(plane.harness.app.desk.stores().inbox.inboxes().await.unwrap().len(), 1);
    assert_eq!(plane.inbox("bob").await.len(), 1);
    plane.finish().await;
}

/// After a restore from an older backup the newest message is before the position of a reader.
#[tokio::test]
async fn a_position_after_the_newest_replays_nothing_and_is_reported() {
    let plane = Plane::with_agents(&["alice"]).await;
    let empty = plane.get("/v1/agents/alice/inbox?after=7").await.expect(200);
    assert_eq!(empty, json!({ "messages": [], "newest": 0 }));
    for text in ["1", "2"] {
        plane.deliver("alice", &plane.augment(text)).await.expect(200);
    }
    let newest = plane.inbox("alice").await[1]["seq"].as_u64().unwrap();
    for after in [newest, newest + 1, newest + 1_000] {
        let page = plane.get(&format!("/v1/agents/alice/inbox?after={after}")).await.expect(200);
        assert_eq!(page, json!({ "messages": [], "newest": newest }), "after {after}");
    }
    let path = format!("/v1/agents/alice/inbox/stream?after={}", newest + 1_000);
    let mut stream = plane.harness.open_stream(&path, &plane.token).await;
    let ready = plane.harness.follow(&mut stream, &["event: ready", "\n\n"]).await;
    assert!(ready.contains(&format!("\"newest\":{newest}")) && ready.contains(&format!("id: {newest}\n")), "{ready}");
    plane.deliver("alice", &plane.augment("3")).await.expect(200);
    let came = plane.harness.follow(&mut stream, &["event: message"]).await;
    assert!(came.contains("\"text\":\"3\"") && !came.contains("\"text\":\"2\""), "{came}");
    drop(stream);
    plane.finish().await;
}

#[tokio::test]
async fn a_position_that_is_not_a_number_is_refused() {
    let plane = Plane::with_agents(&["alice"]).await;
    for path in ["/v1/agents/alice/inbox?after=x", "/v1/agents/alice/inbox/stream?after=-1"] {
        assert_eq!(plane.get(path).await.status, 400, "{path}");
    }
    for (id, status) in [("junk", 400), ("-1", 400), ("1.5", 400), ("", 200), (" 3 ", 200)] {
        let request = plane.harness.request("GET", "/v1/agents/alice/inbox/stream").bearer_auth(&plane.token);
        let reply = plane.harness.response(request.header("Last-Event-ID", id)).await;
        assert_eq!(reply.status(), status, "{id:?}");
        if status == 400 {
            let response: Value = reply.json().await.unwrap();
            assert_eq!(response["error"]["class"], "ValidationError");
            assert!(response["error"]["message"].as_str().unwrap().contains("Last-Event-ID"), "{response}");
        }
    }
    plane.finish().await;
}

#[tokio::test]
async fn rule_30_a_session_gets_messages_of_the_agent_and_its_own() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut a = plane.listen("alice", "?session=a").await;
    let mut b = plane.listen("alice", "?session=b").await;
    plane.wake("alice@a", json!({ "context": "for a" })).await.expect(200);
    plane.wake("alice@b", json!({ "context": "for b" })).await.expect(200);
    plane.deliver("alice", &plane.augment("for all")).await.expect(200);
    assert_eq!([a.message().await["text"].clone(), a.message().await["text"].clone()], ["for a", "for all"]);
    assert_eq!([b.message().await["text"].clone(), b.message().await["text"].clone()], ["for b", "for all"]);
    assert_eq!(plane.inbox("alice").await.len(), 3, "the inbox has everything");
    drop((a, b));
    plane.finish().await;
}

#[tokio::test]
async fn rule_31_status_is_active_idle_asleep_or_unknown() {
    let plane = Plane::with_agents(&["alice"]).await;
    assert_eq!((plane.status("alice").await.as_str(), plane.status("nobody").await.as_str()), ("asleep", "unknown"));
    assert_eq!(class(&plane.get("/v1/agents/nobody/inbox").await, 404), "UnknownAgentError");
    assert_eq!(class(&plane.get("/v1/agents/nobody/inbox/stream").await, 404), "UnknownAgentError");
    let stream = plane.listen("alice", "?session=s").await;
    assert_eq!(plane.status("alice").await, "active");
    assert_eq!(plane.status("alice@s").await, "active");
    let desk = plane.harness.app.desk.clone();
    let (_, no) = desk.inboxes().inbox_of(&"home".into(), "alice").unwrap();
    desk.agents().live().streams().note_traffic(no.unwrap(), desk.env().now_ms() - 300_001);
    assert_eq!(plane.status("alice").await, "idle", "five minutes without messages");
    drop(stream);
    let streams = &desk.agents().live().streams();
    let left = async {
        while streams.has_open_stream(no.unwrap()) {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIME_LIMIT, left).await.expect("the stream stays registered");
    assert_eq!(plane.status("alice").await, "asleep");
    plane.finish().await;
}

#[tokio::test]
async fn a_stream_ends_with_its_token_or_agent() {
    let plane = Plane::with_agents(&["alice", "carol"]).await;
    let mut carol = plane.listen("carol", "").await;
    let gone = plane.harness.call("DELETE", "/v1/agents/carol", &plane.operator, &Value::Null).await;
    assert_eq!(gone.status, 204);
    assert!(carol.next().await.is_none(), "the agent was deleted");
    let mut alice = plane.listen("alice", "").await;
    let tokens = plane.harness.admin("GET", "/tokens", &Value::Null).await.expect(200);
    let mine = tokens["tokens"].as_array().unwrap().iter().find(|it| it["scope"] == "agents").unwrap()["id"].clone();
    let revoked = plane.harness.admin("DELETE", &format!("/tokens/{}", mine.as_str().unwrap()), &Value::Null).await;
    assert!(revoked.status < 300, "{}", revoked.text());
    assert_eq!(class(&plane.get("/v1/health").await, 401), "UnauthorizedError");
    let said = plane.augment("after the token");
    plane.harness.call("POST", "/v1/agents/alice/deliver", &plane.operator, &said).await.expect(200);
    assert!(alice.next().await.is_none(), "the token was revoked");
    plane.finish().await;
}

#[tokio::test]
async fn the_number_of_streams_per_agent_is_limited() {
    let plane = Plane::with_agents(&["alice", "carol"]).await;
    let desk = plane.harness.app.desk.clone();
    let no = desk.inboxes().inbox_of(&"home".into(), "alice").unwrap().1.unwrap();
    let open = |order| desk.agents().live().streams().open(no, None, order, 1);
    let mut streams: Vec<_> = (1..=256).map(|order| open(order).unwrap()).collect();
    let over = plane.get("/v1/agents/alice/inbox/stream").await;
    assert_eq!(class(&over, 429), "RateLimitedError");
    drop(plane.listen("carol", "").await);
    desk.agents().live().streams().close(&streams.pop().unwrap());
    drop(plane.listen("alice", "").await);
    plane.finish().await;
}

#[tokio::test]
async fn an_instance_has_an_empty_inbox_before_its_first_message() {
    let plane = Plane::open().await;
    plane.harness.add_gateway("gw-1").await;
    assert!(plane.inbox("gw-1").await.is_empty());
    let listed = plane.get("/v1/agents").await.expect(200);
    assert_eq!(listed["agents"].as_array().map(Vec::len), Some(1));
    let reply = json!({ "correlation_id": "c", "content": "" });
    assert_eq!(class(&plane.post("/v1/agents/gw-1/replies", &reply).await, 410), "GoneError");
    let mut stream = plane.listen("gw-1", "").await;
    plane.deliver("gw-1", &plane.augment("first")).await.expect(200);
    assert_eq!(stream.message().await["text"], "first");
    let listed = plane.get("/v1/agents").await.expect(200);
    assert_eq!(listed["agents"].as_array().map(Vec::len), Some(1), "the instance and its inbox are one agent");
    drop(stream);
    plane.finish().await;
}

#[tokio::test]
async fn rule_14_a_client_that_does_not_read_is_not_woken_and_loses_nothing() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut stream = plane.listen("alice", "?session=slow").await;
    let large = "x".repeat(1 << 20);
    for _ in 0..32 {
        plane.deliver("alice", &plane.augment(&large)).await.expect(200); // more than socket buffers hold
    }
    let response = plane.wake("alice", json!({ "context": "up" })).await.expect(200);
    assert_eq!(response["woken"], false, "the stream is open, but the client does not read");
    assert!(response["warnings"].to_string().contains("did not take"), "{response}");
    for seq in 1..=32 {
        assert_eq!(stream.message().await["seq"], seq);
    }
    let message = stream.message().await;
    assert_eq!((&message["seq"], &message["text"]), (&json!(33), &json!("up")));
    assert_eq!(plane.wake("alice", json!({})).await.expect(200)["woken"], true, "the client reads now");
    drop(stream);
    plane.finish().await;
}

/// Also while the stream is being opened: a message reported as pushed is in the stream.
#[tokio::test]
async fn rule_11_a_message_reported_as_pushed_is_in_the_stream() {
    let plane = Plane::with_agents(&["alice"]).await;
    let desk = plane.harness.app.desk.clone();
    let no = desk.inboxes().inbox_of(&"home".into(), "alice").unwrap().1.unwrap();
    for round in 0..20 {
        // Keeps the store's readers busy, but not its writer.
        let busy = futures_util::future::join_all((0..64).map(|_| desk.upkeep().report()));
        let body = plane.augment(&round.to_string());
        let deliver = async {
            while !desk.agents().live().streams().has_open_stream(no) {
                tokio::task::yield_now().await;
            }
            plane.deliver("alice", &body).await.expect(200)
        };
        let (_, mut stream, receipt) = tokio::join!(busy, plane.listen("alice", ""), deliver);
        plane.deliver("alice", &plane.augment("end")).await.expect(200);
        let first = stream.message().await;
        let skipped = receipt.get("delivery_skipped").is_some();
        assert!(skipped || first["delivery_id"] == receipt["delivery_id"], "{receipt}, and the stream began: {first}");
        drop(stream);
        let left = async {
            while desk.agents().live().streams().has_open_stream(no) {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIME_LIMIT, left).await.expect("the stream stays registered");
    }
    plane.finish().await;
}

/// Asks for a stream on a connection that the test can cut.
async fn ask_for_stream(plane: &Plane, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(plane.harness.url.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "GET /v1/agents/{id}/inbox/stream?after=0 HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {}\r\n\r\n",
        plane.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// The first stream of an instance creates its inbox. The server runs on the thread of the test, so that a yield lets it
/// do a step, and each round cuts the request at another one.
#[tokio::test]
async fn a_stream_that_is_cut_off_while_it_opens_stops_no_delivery() {
    let plane = Plane::open().await;
    for round in 0..40 {
        let id = format!("gw-{round}");
        plane.harness.add_gateway(&id).await;
        let cut = ask_for_stream(&plane, &id).await;
        for _ in 0..round * 4 {
            tokio::task::yield_now().await;
        }
        drop(cut);
        let receipt = plane.deliver(&id, &plane.augment("after the cut")).await.expect(200);
        let mut stream = plane.listen(&id, "?after=0").await;
        let message = stream.message().await;
        assert_eq!((&message["text"], &message["delivery_id"]), (&json!("after the cut"), &receipt["delivery_id"]));
        assert_eq!(plane.inbox(&id).await.len(), 1, "round {round}");
    }
    plane.finish().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_within_a_message_finds_it_and_the_next_one_in_its_next_stream() {
    let plane = Plane::with_agents(&["alice"]).await;
    let large = "x".repeat(1 << 20);
    plane.deliver("alice", &plane.augment(&large)).await.expect(200);
    let mut cut = ask_for_stream(&plane, "alice").await;
    let mut part = vec![0; 100_000];
    timeout(TIME_LIMIT, cut.read_exact(&mut part)).await.expect("the stream did not begin").unwrap();
    assert!(String::from_utf8_lossy(&part).contains("event: message"), "the message has begun");
    drop(cut);
    plane.deliver("alice", &plane.augment("after the cut")).await.expect(200);
    let mut stream = plane.listen("alice", "?after=0").await;
    assert_eq!(stream.message().await["text"], large);
    assert_eq!(stream.message().await["text"], "after the cut");
    drop(stream);
    plane.finish().await;
}
