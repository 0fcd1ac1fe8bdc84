//! Calls over REST.

use super::*;

fn messages() -> String {
    format!("channels/{GENERAL}/messages")
}

#[test]
fn calls_need_a_token_that_is_known() {
    let fake = world();
    let request = RestRequest { authorization: None, ..RestRequest::new("GET", "users/@me", TOKEN, Value::Null) };
    assert_eq!(fake.handle(NOW, &request).status, 401);
    assert_eq!(done(&fake, "GET", "users/@me", Value::Null)["id"], BOT.to_string());
    assert_eq!(fake.invalid_requests(), (1, 0));
}

#[test]
fn faults_are_before_or_behind_the_effect() {
    let fake = world();
    let rule = |fault: Value| serde_json::from_value::<FaultRule>(fault).unwrap();
    let route = "POST channels/:id/messages";
    fake.fault(rule(json!({"method": route, "fault": "drop_before"})));
    fake.fault(rule(json!({"method": route, "fault": "drop_after"})));
    for (text, arrives) in [("lost", false), ("kept", true)] {
        let response = call(&fake, "POST", &messages(), json!({"content": text}));
        assert_eq!(response.transport, Transport::Dropped);
        assert_eq!(fake.newest(GENERAL).is_some_and(|message| message["content"] == text), arrives);
    }
    let methods: Vec<String> = fake.calls_after(0).into_iter().map(|call| call.method).collect();
    assert_eq!(methods, [route, route]);
}

#[test]
fn limits_refuse_with_headers_and_without_effect() {
    let fake = world();
    fake.set_limits(Limits::default());
    for _ in 0..5 {
        done(&fake, "POST", &messages(), json!({"content": "x"}));
    }
    let response = call(&fake, "POST", &messages(), json!({"content": "sixth"}));
    assert_eq!((response.status, response.header("x-ratelimit-scope")), (429, Some("user")));
    assert_eq!((response.header("retry-after"), &response.body["retry_after"]), (Some("5"), &json!(5.0)));
    assert_ne!(fake.newest(GENERAL).unwrap()["content"], "sixth");
}

#[test]
fn permissions_decide() {
    let fake = world();
    assert_eq!(refused(&fake, "GET", &format!("channels/{HIDDEN}"), Value::Null), (403, 50001));
    let mute = json!([{"id": BOT.to_string(), "type": 1, "allow": "0", "deny": "2048"}]);
    act(&fake, json!({"act": "change_channel", "channel": GENERAL, "permission_overwrites": mute}));
    assert_eq!(refused(&fake, "POST", &messages(), json!({"content": "x"})), (403, 50013));
    act(&fake, json!({"act": "put_role", "guild": GUILD, "id": 5, "name": "admin", "permissions": 8}));
    act(&fake, json!({"act": "change_member", "guild": GUILD, "user": BOT, "roles": [5]}));
    done(&fake, "POST", &messages(), json!({"content": "x"}));
    done(&fake, "GET", &format!("channels/{HIDDEN}"), Value::Null);
}

#[test]
fn a_thread_has_the_id_of_its_message() {
    let fake = world();
    let said = say(&fake, "story");
    let thread = done(&fake, "POST", &format!("{}/{said}/threads", messages()), json!({"name": "t"}));
    assert_eq!(id_of(&thread), said);
    assert_eq!(fake.newest(said).unwrap()["type"], 21);
    let post = done(
        &fake,
        "POST",
        &format!("channels/{FORUM}/threads"),
        json!({"name": "p", "message": {"content": "first"}}),
    );
    assert_eq!(post["message"]["id"], post["id"]);
}

#[test]
fn interactions_have_three_seconds_and_fifteen_minutes() {
    let fake = world();
    let sent = done(
        &fake,
        "POST",
        &messages(),
        json!({"content": "?", "components": [{"type": 1, "components": [
            {"type": 2, "style": 1, "label": "y", "custom_id": "y"}]}]}),
    );
    let press = json!({"act": "interact", "kind": "button", "bot": BOT, "from": ANN, "channel": GENERAL,
        "message": id_of(&sent), "custom_id": "y"});
    let made = act(&fake, press);
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let callback = format!("interactions/{id}/{token}/callback");
    let answer = RestRequest::new("POST", &callback, TOKEN, json!({"type": 6}));
    assert_eq!(fake.handle(NOW + 3_001, &answer).body["code"], 10062);
    assert_eq!(fake.handle(NOW + 2_999, &answer).status, 204);
    assert_eq!(fake.handle(NOW + 2_999, &answer).body["code"], 40060);
    let more = RestRequest {
        authorization: None,
        ..RestRequest::new("POST", &format!("webhooks/{BOT}/{token}"), "", json!({"content": "more"}))
    };
    assert_eq!(fake.handle(NOW + 900_000, &more).status, 200);
    assert_eq!(fake.handle(NOW + 900_001, &more).body["code"], 50027);
}

#[tokio::test]
async fn calls_without_sockets_carry_headers_and_faults() {
    use std::sync::Arc;
    use std::time::Duration;

    use frontdesk_core::port::outcall::{Call, Outcall as _};

    let fake = world();
    fake.set_limits(Limits::default());
    let direct = Direct { fake: fake.clone(), env: Arc::new(crate::TestEnv::new(1)), latency: Duration::ZERO };
    let url = format!("http://discord.test/api/v10/{}", messages());
    let token = format!("Bot {TOKEN}");
    let headers = [("authorization", token.as_str())];
    let send = || Call { headers: &headers, ..Call::post(&url, r#"{"content":"hi"}"#, 1_000_000) };
    let answer = direct.call(send()).await.unwrap();
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("4")));
    fake.fault(FaultRule { method: "*".into(), fault: Fault::Slow { delay_ms: 60_000 }, times: 1 });
    let soon = Call { time: Some(Duration::from_millis(50)), ..send() };
    assert!(direct.call(soon).await.is_err(), "it took too long");
    assert_eq!(fake.channel(GENERAL).unwrap()["messages"].as_array().unwrap().len(), 2);
}
