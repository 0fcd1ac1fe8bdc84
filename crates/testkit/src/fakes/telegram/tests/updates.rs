//! Tokens, polls, webhooks, faults, limits, the record.

use serde_json::json;

use super::*;

#[test]
fn tokens_are_checked() {
    let fake = world();
    let status = |token: &str| fake.handle(NOW, token, "getMe", &Params::default(), &[]).status;
    assert_eq!((status(TOKEN), status("7001:other"), status("nonsense")), (200, 401, 404));
    assert_eq!(call(&fake, "noSuchMethod", json!({})).status, 404);
    assert_eq!(done(&fake, "GETME", json!({}))["username"], "desk_bot");
}

#[test]
fn an_older_poll_is_ended_by_a_newer_one() {
    let fake = world();
    updates(&fake);
    let poll = fake.begin_poll(TOKEN).unwrap();
    assert!(fake.try_poll(NOW, &poll, &Params::default(), false).is_none());
    let newer = fake.begin_poll(TOKEN).unwrap();
    let ended = fake.try_poll(NOW, &poll, &Params::default(), false).unwrap();
    let text = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
    assert_eq!((ended.status, ended.description()), (409, text));
    act(&fake, json!({"act": "say", "chat": ANN, "from": ANN, "text": "a"}));
    assert!(fake.try_poll(NOW, &newer, &Params::default(), false).is_some_and(|it| it.is_ok()));
}

#[test]
fn a_webhook_takes_the_updates() {
    let fake = world();
    updates(&fake);
    assert_eq!(
        refused(&fake, "setWebhook", json!({"url": "http://a.example/"})),
        "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"
    );
    done(&fake, "setWebhook", json!({"url": "http://127.0.0.1:9/hook", "secret_token": "s-1"}));
    assert!(refused(&fake, "getUpdates", json!({})).starts_with("Conflict: can't use getUpdates method while webhook"));
    act(&fake, json!({"act": "say", "chat": ANN, "from": ANN, "text": "a"}));
    let (due, _) = fake.due_deliveries(NOW);
    assert_eq!((due.len(), due[0].secret.as_deref()), (1, Some("s-1")));
    assert_eq!(fake.due_deliveries(NOW).0.len(), 0, "one at a time");
    fake.delivered(NOW, &due[0], Ok((500, Vec::new())));
    let (none, next) = fake.due_deliveries(NOW);
    assert_eq!((none.len(), next), (0, Some(NOW + 500)));
    let (due, _) = fake.due_deliveries(NOW + 500);
    let answer = json!({"method": "sendMessage", "chat_id": ANN, "text": "by webhook"}).to_string();
    fake.delivered(NOW + 500, &due[0], Ok((200, answer.into_bytes())));
    assert_eq!(fake.updates_waiting(BOT), 0);
    assert_eq!(fake.chat(BOT, ANN).unwrap()["messages"][2]["text"], "by webhook");
    assert_eq!(done(&fake, "getWebhookInfo", json!({}))["last_error_message"], "Wrong response from the webhook: 500");
    done(&fake, "deleteWebhook", json!({}));
    assert_eq!(updates(&fake).len(), 0);
}

#[test]
fn faults_come_before_or_after_the_effect() {
    let fake = world();
    let say = json!({"chat_id": ANN, "text": "a"});
    let count = || fake.chat(BOT, ANN).unwrap()["messages"].as_array().unwrap().len();
    let faults = [
        (Fault::RetryAfter { seconds: 7 }, 429, 1),
        (Fault::Status { code: 500, description: "Internal Server Error".into() }, 500, 1),
        (Fault::BadGateway, 502, 1),
        (Fault::DropBefore, 500, 1),
        (Fault::DropAfter, 200, 2),
        (Fault::Slow { delay_ms: 9 }, 200, 3),
        (Fault::Cut, 200, 4),
    ];
    for (fault, status, messages) in faults {
        fake.fault(FaultRule { method: "sendMessage".into(), fault: fault.clone(), times: 1 });
        let response = call(&fake, "sendMessage", say.clone());
        assert_eq!((response.status, count()), (status, messages), "{fault:?}");
    }
    assert_eq!((fake.faults_waiting(), fake.refused_for_rate()), (0, 1));
    let last = fake.calls_after(0).pop().unwrap();
    assert_eq!((last.method.as_str(), last.fault.as_deref(), last.at_ms), ("sendMessage", Some("Cut"), NOW));
}

#[test]
fn updates_come_twice_or_in_reverse() {
    let fake = world();
    act(&fake, json!({"act": "say", "chat": ANN, "from": ANN, "text": "b"}));
    let texts = || -> Vec<String> {
        let list = done(&fake, "getUpdates", json!({}));
        list.as_array().unwrap().iter().map(|it| it["message"]["text"].as_str().unwrap().to_owned()).collect()
    };
    fake.fault(FaultRule { method: "getUpdates".into(), fault: Fault::DuplicateUpdates, times: 1 });
    assert_eq!(texts(), ["/start", "/start", "b", "b"]);
    fake.fault(FaultRule { method: "getUpdates".into(), fault: Fault::ReverseUpdates, times: 1 });
    assert_eq!(texts(), ["b", "/start"]);
    assert_eq!(texts(), ["/start", "b"]);
    act(&fake, json!({"act": "raw", "update": {"message": {"message_id": "not a number"}}}));
    assert_eq!(updates(&fake)[2]["message"]["message_id"], "not a number");
}

#[test]
fn too_many_messages_are_refused() {
    let fake = world();
    fake.set_limits(Limits::default());
    let say = Params::from(json!({"chat_id": ANN, "text": "a"}));
    let statuses: Vec<u16> = (0..4).map(|_| fake.handle(NOW, TOKEN, "sendMessage", &say, &[]).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    let refused = fake.handle(NOW, TOKEN, "sendMessage", &say, &[]);
    assert_eq!(
        refused.body,
        json!({"ok": false, "error_code": 429, "description": "Too Many Requests: retry after 1",
        "parameters": {"retry_after": 1}})
    );
    assert_eq!(fake.handle(NOW + 1_000, TOKEN, "sendMessage", &say, &[]).status, 200);
    assert_eq!(fake.refused_for_rate(), 2);
}
