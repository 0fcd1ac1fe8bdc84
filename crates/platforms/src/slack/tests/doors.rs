//! Requests of Slack, from the raw bytes to what is stored and answered.

use frontdesk_core::intake::Receipt;
use frontdesk_core::port::platform::{Change, DoorAnswer, RawRequest, ReceivedRequest, Reply};
use frontdesk_wire::Secret;
use serde_json::{Value, json};

use super::super::form::encoded;
use super::super::signature::sign;
use super::super::{Slack, door};
use super::{NOW_MS, SIGNING, Stage, envelope, receipt, said, stage, stage_with};
use frontdesk_core::port::platform::Platform as _;

pub(super) fn request(door: &'static str, body: String) -> RawRequest {
    let signature = sign(&Secret::new(SIGNING), NOW_MS / 1_000, body.as_bytes());
    let headers = vec![
        ("x-slack-request-timestamp".to_owned(), (NOW_MS / 1_000).to_string()),
        ("x-slack-signature".to_owned(), signature),
    ];
    RawRequest { door, headers, body: body.into(), now_ms: NOW_MS, ..RawRequest::default() }
}

async fn receive(stage: &Stage, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
    stage.slack.receive(Some(&stage.bot), request).await
}

fn reply(received: ReceivedRequest, receipts: &[Receipt]) -> Reply {
    match received.answer {
        DoorAnswer::Fixed(reply) => reply,
        DoorAnswer::FromReceipts(make) => make(receipts),
        DoorAnswer::File(..) => panic!("a file"),
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    pairs.join("&")
}

fn command(channel: &str, name: &str) -> String {
    form(&[
        ("token", "deprecated"),
        ("team_id", "T1"),
        ("channel_id", channel),
        ("channel_name", name),
        ("user_id", "UANN"),
        ("user_name", "ann"),
        ("command", "/model"),
        ("text", "gpt & co"),
        ("response_url", "https://hooks.slack.com/commands/T1/2/secret"),
        ("trigger_id", "1.2.abc"),
    ])
}

#[tokio::test]
async fn the_address_is_confirmed_and_strangers_are_refused() {
    let stage = stage();
    let body = json!({ "type": "url_verification", "challenge": "abc", "token": "x" }).to_string();
    let received = receive(&stage, &request(door::EVENTS, body.clone())).await.ok().unwrap();
    assert_eq!(reply(received, &[]).body, r#"{"challenge":"abc"}"#);
    let mut forged = request(door::EVENTS, body);
    forged.body = bytes::Bytes::from_static(b"{\"type\":\"url_verification\",\"challenge\":\"abd\"}");
    assert_eq!(receive(&stage, &forged).await.err().unwrap().status, 401);
    for door in [door::EVENTS, door::COMMANDS, door::INTERACTIONS] {
        let unsigned = RawRequest { door, now_ms: NOW_MS, ..RawRequest::default() };
        assert_eq!(receive(&stage, &unsigned).await.err().unwrap().status, 401);
        let broken = receive(&stage, &request(door, "\u{0}not json".into())).await;
        assert!(broken.is_err_and(|reply| reply.status == 400) || door == door::COMMANDS);
    }
}

#[tokio::test]
async fn a_message_has_the_name_of_its_author_and_a_late_answer_does_not_hold_it_up() {
    let stage = stage();
    let body = envelope(said("C1", "channel", "hello")).to_string();
    let received = receive(&stage, &request(door::EVENTS, body.clone())).await.ok().unwrap();
    assert_eq!(received.intakes[0].event.source.user_name.as_deref(), Some("Ann"));
    receive(&stage, &request(door::EVENTS, body)).await.ok().unwrap();
    assert_eq!(stage.vendor.calls("users.info").len(), 1, "asked once");
    assert_eq!(stage.vendor.calls("auth.test").len(), 0, "the event says who the bot is");
    let mut old = envelope(said("C1", "channel", "<@UBOT> hello"));
    old["authorizations"] = Value::Null;
    let received = receive(&stage, &request(door::EVENTS, old.to_string())).await.ok().unwrap();
    assert!(received.intakes[0].addressed, "an old app does not, so Slack is asked");
}

#[tokio::test]
async fn other_events_are_confirmed_and_gaps_reported() {
    let stage = stage();
    for event in [json!({ "type": "reaction_added" }), json!({}), Value::Null] {
        let received = receive(&stage, &request(door::EVENTS, envelope(event).to_string())).await.ok().unwrap();
        assert!(received.intakes.is_empty() && received.changes.is_empty());
        assert_eq!(reply(received, &[]).status, 200);
    }
    let limited = json!({ "type": "app_rate_limited", "minute_rate_limited": 1_700_000_000, "team_id": "T1" });
    let received = receive(&stage, &request(door::EVENTS, limited.to_string())).await.ok().unwrap();
    assert_eq!((received.gaps[0].since_ms, received.gaps[0].until_ms), (1_700_000_000_000, 1_700_000_060_000));
    let left = json!({ "type": "member_left_channel", "channel": "C1", "user": "UANN" });
    let received = receive(&stage, &request(door::EVENTS, envelope(left).to_string())).await.ok().unwrap();
    assert_eq!(received.changes, [Change::Member { chat_id: "C1".into(), user_id: "UANN".into() }]);
}

#[tokio::test]
async fn a_token_ends_with_the_app_unless_slack_still_takes_it() {
    let secrets = [("app_token", "xapp-1-A1-x"), ("signing_secret", SIGNING), ("workspace:T1", "xoxb-one")];
    let stage = stage_with(&[("mode", "socket")], &secrets);
    let gone = request(door::EVENTS, envelope(json!({ "type": "app_uninstalled" })).to_string());
    for error in ["account_inactive", "internal_error"] {
        stage.vendor.answers("auth.test", json!({ "ok": false, "error": error }));
    }
    // First the token is good: the app was installed again before the report came.
    assert_eq!(receive(&stage, &gone).await.ok().unwrap().changes, []);
    let received = receive(&stage, &gone).await.ok().unwrap();
    assert_eq!(received.changes, [Change::grant_ended("workspace:T1".into(), &Secret::new("xoxb-one"))]);
    let refused = receive(&stage, &gone).await.err().unwrap();
    assert_eq!(refused.status, 503, "Slack should tell it again");
    // Regression: the report came while the app was being installed again, and the new token was removed.
    let stage = stage_with(&[("mode", "socket")], &secrets[..2]);
    assert_eq!(receive(&stage, &gone).await.ok().unwrap().changes, [], "there is no token that could have ended");
}

/// All workspaces share a socket, and an event that is not taken closes it.
#[tokio::test]
async fn an_event_of_a_workspace_whose_token_has_ended_is_taken() {
    let secrets = [("app_token", "xapp-1-A1-x"), ("signing_secret", SIGNING), ("workspace:T1", "xoxb-one")];
    let mut old = envelope(said("D1", "im", "hello"));
    old["authorizations"] = Value::Null;
    let old = request(door::EVENTS, old.to_string());
    let ended = stage_with(&[("mode", "socket")], &secrets);
    ended.vendor.answers("auth.test", json!({ "ok": false, "error": "account_inactive" }));
    let removed = request(door::EVENTS, envelope(json!({ "type": "app_uninstalled" })).to_string());
    receive(&ended, &removed).await.ok().unwrap(); // the first answer is that the token is valid
    let received = receive(&ended, &old).await.ok().unwrap();
    assert_eq!(received.intakes[0].event.text, "hello");
    assert_eq!(ended.vendor.calls("auth.test").len(), 2);
    let not_yet_known = stage_with(&[("mode", "socket")], &secrets[..2]);
    assert_eq!(receive(&not_yet_known, &old).await.err().unwrap().status, 503, "Slack sends it again");
}

#[tokio::test]
async fn a_command_is_an_event_and_its_address_a_capability() {
    let stage = stage();
    for (channel, name, chat_type) in [
        ("C1", "general", "group"),
        ("D1", "directmessage", "dm"),
        ("G1", "mpdm-ann--ben-1", "dm"),
        ("G1", "privategroup", "group"),
    ] {
        let received = receive(&stage, &request(door::COMMANDS, command(channel, name))).await.ok().unwrap();
        let intake = &received.intakes[0];
        assert_eq!((intake.event.text.as_str(), intake.event.message_type.as_str()), ("/model gpt & co", "command"));
        assert_eq!((intake.event.source.chat_type.as_str(), intake.addressed), (chat_type, true));
        assert!(intake.is_interaction && intake.event.source.thread_id.is_none());
        assert_eq!(intake.capabilities[0].kind, "slack.response_url");
        let json = serde_json::to_string(&intake.event).unwrap();
        assert!(!json.contains("secret") && !json.contains("1.2.abc") && !json.contains("deprecated"), "{json}");
    }
    let received = receive(&stage, &request(door::COMMANDS, command("C1", "x"))).await.ok().unwrap();
    let not_stored = received.if_not_stored.unwrap();
    let error = frontdesk_core::DeskError::BadRequest("too large".into());
    assert!(not_stored(&error).body.contains("Nothing was done: too large"));
    let check = receive(&stage, &request(door::COMMANDS, "ssl_check=1&token=x".into())).await.ok().unwrap();
    assert!(check.intakes.is_empty());
    let foreign = command("C1", "x").replace("hooks.slack.com", "hooks.evil.example");
    let received = receive(&stage, &request(door::COMMANDS, foreign)).await.ok().unwrap();
    assert!(received.intakes[0].capabilities.is_empty());
    let nowhere = receive(&stage, &request(door::COMMANDS, "command=%2Fx".into())).await.ok().unwrap();
    assert!(nowhere.intakes.is_empty() && reply(nowhere, &[]).body.contains("Nothing was done"));
}

#[tokio::test]
async fn whoever_gives_a_command_is_told_why_no_agent_gets_it() {
    let stage = stage();
    let answer = async |receipts: &[Receipt]| {
        let received = receive(&stage, &request(door::COMMANDS, command("C1", "x"))).await.ok().unwrap();
        reply(received, receipts)
    };
    assert_eq!(answer(&[receipt("delivered", "")]).await.body, "");
    let body = answer(&[receipt("withheld", "no <agent>")]).await.body;
    assert!(body.contains("ephemeral") && body.contains("no &lt;agent&gt;"), "{body}");
    let body = answer(&[receipt("withheld", "run `frontdesk route add slack T1 --tenant home`")]).await.body;
    assert!(body.contains("!link") && !body.contains("home"), "{body}");
}

fn press(value: &str) -> Value {
    json!({
        "type": "block_actions", "team": { "id": "T1" }, "user": { "id": "UANN", "username": "ann", "team_id": "T1" },
        "channel": { "id": "C1", "name": "general" }, "trigger_id": "x",
        "container": { "type": "message", "message_ts": "1700000000.000200", "channel_id": "C1", "thread_ts": "1699999999.000001" },
        "message": { "ts": "1700000000.000200", "text": "Sure?", "blocks": [
            { "type": "section", "text": { "type": "mrkdwn", "text": "Sure?" } }, { "type": "actions", "elements": [] }] },
        "actions": [{ "type": "button", "action_id": value, "value": value, "text": { "text": "Yes" }, "action_ts": "1700000001.5" }],
        "response_url": "https://hooks.slack.com/actions/T1/2/secret",
    })
}

async fn interact(stage: &Stage, payload: &Value) -> ReceivedRequest {
    let body = form(&[("payload", &payload.to_string())]);
    receive(stage, &request(door::INTERACTIONS, body)).await.ok().unwrap()
}

#[tokio::test]
async fn a_press_is_an_answer_of_the_person_and_closes_the_prompt() {
    let stage = stage();
    stage.vendor.answers("secret", json!({ "ok": true }));
    let mut received = interact(&stage, &press("hp1:p1:yes")).await;
    let event = &received.intakes[0].event;
    let response = event.prompt_response.as_ref().unwrap();
    assert_eq!((response.prompt_id.as_str(), response.option_id.as_str()), ("p1", "yes"));
    assert_eq!((response.label.as_deref(), event.text.as_str()), (Some("Yes"), "/yes"));
    assert_eq!(event.source.thread_id.as_deref(), Some("1699999999.000001"));
    assert_eq!((event.source.user_id.as_deref(), event.source.scope_id.as_deref()), (Some("UANN"), Some("T1")));
    received.afterwards.take().unwrap()(&[receipt("delivered", "")]).await;
    let shown = stage.vendor.calls("secret").pop().unwrap().body;
    assert_eq!((&shown["replace_original"], &shown["text"]), (&json!(true), &json!("Sure?\n<@UANN>: Yes")));
}

#[tokio::test]
async fn a_person_whose_press_no_agent_gets_is_told_why() {
    let stage = stage();
    stage.vendor.answers("secret", json!({ "ok": true }));
    let mut received = interact(&stage, &press("hp1:p1:yes")).await;
    received.afterwards.take().unwrap()(&[receipt("withheld", "not linked")]).await;
    let body = stage.vendor.calls("secret").pop().unwrap().body;
    assert_eq!((&body["response_type"], &body["text"]), (&json!("ephemeral"), &json!("not linked")));
}

#[tokio::test]
async fn forms_and_foreign_buttons_are_refused_readably() {
    let stage = stage();
    stage.vendor.answers("secret", json!({ "ok": true }));
    let mut foreign = interact(&stage, &press("other_app")).await;
    assert!(foreign.intakes.is_empty());
    foreign.afterwards.take().unwrap()(&[]).await;
    assert_eq!(stage.vendor.calls("secret")[0].body["text"], "This button no longer works. Ask the agent again.");
    let form = interact(&stage, &json!({ "type": "view_submission", "view": { "id": "V1" } })).await;
    let body = reply(form, &[]).body;
    assert!(body.contains("response_action") && body.contains("Forms are not supported here"), "{body}");
    for kind in ["view_closed", "shortcut", "block_suggestion", "x", ""] {
        let received = interact(&stage, &json!({ "type": kind })).await;
        assert!(received.intakes.is_empty());
        assert_eq!(reply(received, &[]).status, 200);
    }
    let mut elsewhere = press("hp1:p1:yes");
    elsewhere["response_url"] = "https://evil.example/secret".into();
    let mut received = interact(&stage, &elsewhere).await;
    let before = stage.vendor.made.lock().unwrap().len();
    received.afterwards.take().unwrap()(&[receipt("delivered", "")]).await;
    assert_eq!(stage.vendor.made.lock().unwrap().len(), before, "nothing is posted elsewhere");
}

#[tokio::test]
async fn a_bot_without_a_signing_secret_takes_nothing() {
    let stage = stage_with(&[], &[("bot_token", "xoxb-1-2-abc"), ("app_token", "xapp-1")]);
    let refused = receive(&stage, &request(door::EVENTS, "{}".into())).await.err().unwrap();
    assert_eq!(refused.status, 404);
    assert!(refused.body.contains("signing_secret"));
    let none: &Slack = &stage.slack;
    assert_eq!(none.receive(None, &request(door::EVENTS, "{}".into())).await.err().unwrap().status, 404);
}

#[tokio::test]
async fn a_mention_that_comes_alone_is_of_the_same_chat() {
    let stage = stage();
    let mention = |channel: &str| {
        let mut event = said(channel, "", "<@UBOT> x");
        event["type"] = "app_mention".into();
        event.as_object_mut().unwrap().remove("channel_type");
        request(door::EVENTS, envelope(event).to_string())
    };
    let chat_type = async |request: RawRequest| {
        let received = receive(&stage, &request).await.ok().unwrap();
        received.intakes[0].event.source.chat_type.clone()
    };
    assert_eq!(chat_type(mention("C1")).await, "group", "Slack does not say");
    stage.vendor.answers("conversations.info", json!({ "ok": true, "channel": { "is_mpim": true } }));
    assert_eq!(chat_type(mention("C2")).await, "dm");
    assert_eq!(chat_type(mention("C2")).await, "dm");
    assert_eq!(stage.vendor.calls("conversations.info").len(), 2, "asked once where it was answered");
    assert_eq!(chat_type(request(door::EVENTS, envelope(said("C3", "mpim", "x")).to_string())).await, "dm");
    assert_eq!(chat_type(mention("C3")).await, "dm");
    assert_eq!(stage.vendor.calls("conversations.info").len(), 2, "the message has told it");
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_stalls_does_not_hold_up_an_event_for_three_seconds() {
    let stage = stage();
    stage.vendor.stalls(&["users.info", "conversations.info"]);
    let mut event = said("C1", "", "<@UBOT> x");
    event["type"] = "app_mention".into();
    let began = tokio::time::Instant::now();
    let received = receive(&stage, &request(door::EVENTS, envelope(event.clone()).to_string())).await.ok().unwrap();
    assert_eq!(received.intakes[0].event.source.user_name.as_deref(), Some("UANN"), "an id is better than no name");
    assert!(began.elapsed() < std::time::Duration::from_millis(2_500));
    stage.vendor.stalls(&["auth.test", "users.info", "conversations.info"]);
    let mut old = envelope(event);
    old["authorizations"] = Value::Null;
    let refused = receive(&stage, &request(door::EVENTS, old.to_string())).await.err().unwrap();
    assert_eq!(refused.status, 503, "Slack sends it again");
    assert!(began.elapsed() < std::time::Duration::from_secs(5));
}
