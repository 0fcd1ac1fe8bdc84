//! The way of a browser from `/install` to a token.

use frontdesk_core::port::platform::{Bot, DoorAnswer, Platform as _, RawRequest, ReceivedRequest, Reply};
use serde_json::{Value, json};

use super::super::door;
use super::super::form::{encoded, field};
use super::{NOW_MS, SIGNING, Stage, stage_with};

fn app() -> Stage {
    let secrets = [("client_secret", "very-secret"), ("signing_secret", SIGNING)];
    let stage = stage_with(&[("client_id", "11.22"), ("mode", "events")], &secrets);
    stage.vendor.answers("oauth.v2.access", granted());
    stage
}

fn granted() -> Value {
    json!({
        "ok": true, "access_token": "xoxb-9-9-z", "token_type": "bot", "bot_user_id": "UBOT",
        "team": { "id": "T7", "name": "Seven <b>" }, "is_enterprise_install": false,
    })
}

fn get(door: &'static str, query: String, cookie: Option<&str>) -> RawRequest {
    let headers = cookie.map(|cookie| ("cookie".to_owned(), cookie.to_owned())).into_iter().collect();
    RawRequest { door, query, headers, now_ms: NOW_MS, ..RawRequest::default() }
}

fn fixed(received: &ReceivedRequest) -> &Reply {
    match &received.answer {
        DoorAnswer::Fixed(reply) => reply,
        DoorAnswer::FromReceipts(_) | DoorAnswer::File(..) => panic!("not fixed"),
    }
}

fn header<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str()).unwrap()
}

/// The state and the cookie of a browser that begins.
async fn begin(stage: &Stage) -> (String, String) {
    let received = stage.slack.receive(Some(&stage.bot), &get(door::INSTALL, String::new(), None)).await.ok().unwrap();
    let reply = fixed(&received);
    assert_eq!(reply.status, 302);
    let location = header(reply, "location");
    let query = location.strip_prefix("https://slack.com/oauth/v2/authorize?").unwrap().as_bytes();
    assert_eq!(field(query, "client_id").as_deref(), Some("11.22"));
    assert_eq!(field(query, "redirect_uri").as_deref(), Some("https://desk.example/slack/sl/oauth"));
    assert!(field(query, "scope").unwrap().contains("chat:write"));
    let cookie = header(reply, "set-cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && cookie.contains("Secure"), "{cookie}");
    (field(query, "state").unwrap(), cookie.split(';').next().unwrap().to_owned())
}

async fn finish(stage: &Stage, state: &str, cookie: Option<&str>, now_ms: u64) -> Result<ReceivedRequest, Reply> {
    let query = format!("code=abc&state={}", encoded(state));
    let request = RawRequest { now_ms, ..get(door::OAUTH, query, cookie) };
    stage.slack.receive(Some(&stage.bot), &request).await
}

#[tokio::test]
async fn a_workspace_that_agrees_grants_a_token() {
    let stage = app();
    let (state, cookie) = begin(&stage).await;
    let received = finish(&stage, &state, Some(&format!("a=b; {cookie}")), NOW_MS).await.ok().unwrap();
    assert_eq!(received.granted[0].name, "workspace:T7");
    assert_eq!(received.granted[0].value.expose(), "xoxb-9-9-z");
    let page = fixed(&received);
    assert!(page.body.contains("Seven &lt;b&gt; (T7)") && !page.body.contains("xoxb"), "{}", page.body);
    let asked = stage.vendor.calls("oauth.v2.access").pop().unwrap();
    assert_eq!((&asked.body["code"], &asked.body["client_secret"]), (&json!("abc"), &json!("very-secret")));
    assert_eq!(asked.bearer, None);
}

#[tokio::test]
async fn only_the_browser_that_began_can_finish_and_not_late() {
    let stage = app();
    let (state, cookie) = begin(&stage).await;
    let (other, other_cookie) = begin(&stage).await;
    assert_ne!(state, other);
    let forged = format!("frontdesk_slack_install={NOW_MS}.aa.bb");
    for (state, cookie, now_ms) in [
        (state.as_str(), None, NOW_MS),
        (&state, Some(other_cookie.as_str()), NOW_MS),
        ("", Some("frontdesk_slack_install="), NOW_MS),
        (&format!("{NOW_MS}.aa.bb"), Some(&forged), NOW_MS),
        (&state, Some(&cookie), NOW_MS + 601_000),
        (&"x".repeat(300), Some(&cookie), NOW_MS),
    ] {
        let refused = finish(&stage, state, cookie, now_ms).await.err().unwrap();
        assert_eq!(refused.status, 403);
        assert!(refused.body.contains("begin again"));
    }
    let of_other_bot = Stage { bot: Bot::new("other", None, settings(), secrets()), ..app() };
    assert_eq!(finish(&of_other_bot, &state, Some(&cookie), NOW_MS).await.err().unwrap().status, 403);
    assert!(stage.vendor.calls("oauth.v2.access").is_empty());
}

fn settings() -> std::collections::BTreeMap<String, String> {
    [("client_id".to_owned(), "11.22".to_owned())].into()
}

fn secrets() -> std::collections::BTreeMap<String, frontdesk_wire::Secret> {
    [("client_secret".to_owned(), frontdesk_wire::Secret::new("very-secret"))].into()
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_with_a_reason() {
    for (change, expected) in [
        (json!({ "is_enterprise_install": true }), "whole organization"),
        (json!({ "team": null }), "whole organization"),
        (json!({ "access_token": "xoxp-1" }), "bot user"),
        (json!({ "expires_in": 43200 }), "token rotation"),
    ] {
        let secrets = [("client_secret", "very-secret"), ("signing_secret", SIGNING)];
        let stage = stage_with(&[("client_id", "11.22")], &secrets);
        let mut answer = granted();
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        stage.vendor.answers("oauth.v2.access", answer);
        let (state, cookie) = begin(&stage).await;
        let refused = finish(&stage, &state, Some(&cookie), NOW_MS).await.err().unwrap();
        assert!(refused.status == 409 && refused.body.contains(expected), "{refused:?}");
    }
    let stage = app();
    let (state, cookie) = begin(&stage).await;
    let query = format!("error=access_denied%3Cscript%3E&state={}", encoded(&state));
    let denied = stage.slack.receive(Some(&stage.bot), &get(door::OAUTH, query, Some(&cookie))).await.err().unwrap();
    assert!(denied.body.contains("access_denied&lt;script&gt;"), "{}", denied.body);
    let plain = super::stage();
    let refused = plain.slack.receive(Some(&plain.bot), &get(door::INSTALL, String::new(), None)).await.err().unwrap();
    assert!(refused.status == 404 && refused.body.contains("client_id"));
}
