//! Context: messages near an addressed message are attached to it, read-only.

use frontdesk_wire::MessageId;
use serde_json::{Value, json};

use crate::harness::{GatewayAccount, Harness, Socket};
use crate::scene::{PLAIN, PLATFORM, managed, name_of, open_to_all, receives, say, set_policy, to_the_bot, write};

/// Ann's agent, and the team's agent, which holds `room`, accepts everyone there and requires to be addressed.
struct Room {
    harness: Harness,
    ann: GatewayAccount,
    team: GatewayAccount,
    anns: Socket,
    teams: Socket,
}

impl Room {
    async fn open() -> Self {
        let harness = Harness::open().await;
        let (ann, team) = (harness.add_gateway("ann").await, harness.add_gateway("team").await);
        harness.bind("home", "u-bob", "bob").await; // an agent that never connects
        open_to_all(&harness, &team, "room").await;
        set_policy(&harness, &team, json!({ "requireAddress": true })).await;
        let (anns, teams) = (harness.socket(&ann).await, harness.socket(&team).await);
        Self { harness, ann, team, anns, teams }
    }

    async fn say(&self, user: &str, text: &str, more: Value) -> Value {
        say(&self.harness, &self.ann, "room", user, text, more).await
    }

    /// Ann addresses the bot; returns the context for her agent and for the team's.
    async fn ask(&mut self, text: &str) -> (Vec<String>, Vec<String>) {
        self.say("u-ann", text, to_the_bot()).await;
        (texts(&receives(&mut self.anns, text).await), texts(&receives(&mut self.teams, text).await))
    }
}

/// Texts of the context, oldest first.
#[track_caller]
fn texts(event: &Value) -> Vec<String> {
    assert!(event["context_error"].is_null(), "{event}");
    let none = Vec::new();
    let lines = if event["context"].is_null() { &none } else { event["context"].as_array().unwrap() };
    lines.iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

const NOTHING: [&str; 0] = [];

#[tokio::test(flavor = "multi_thread")]
async fn the_descriptor_announces_context() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("ann").await;
    let mut socket = harness.dial(&account.bearer()).await;
    assert_eq!(socket.hello(PLATFORM, "").await["supports_context"], true);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn context_has_messages_that_the_agent_did_not_get_oldest_first() {
    let mut room = Room::open().await;
    room.say("u-bob", "one", PLAIN).await;
    room.say("u-ann", "two", PLAIN).await;
    receives(&mut room.anns, "two").await;
    room.say("stranger", "three", PLAIN).await;
    room.say("u-bob", "four", json!({ "is_bot": true })).await;
    let posted = room.say("u-ann", "what do you think?", to_the_bot()).await;
    let event = receives(&mut room.teams, "what do you think?").await;
    assert_eq!(texts(&event), ["one", "two", "three", "four"]);
    assert_eq!(event["message_id"], posted["message_id"]);
    let who: Vec<_> = event["context"].as_array().unwrap().iter().map(|line| &line["source"]).collect();
    for (source, user) in who.iter().zip(["u-bob", "u-ann", "stranger", "u-bob"]) {
        assert_eq!((&source["user_id"], &source["user_name"]), (&json!(user), &json!(name_of(user))), "{source}");
    }
    assert_eq!((&who[0]["is_bot"], &who[3]["is_bot"]), (&json!(false), &json!(true)));
    // Ann's own agent got her message as an event; the rest is new to it.
    let event = receives(&mut room.anns, "what do you think?").await;
    assert_eq!(texts(&event), ["one", "three", "four"]);
    assert_eq!(room.teams.unread().await, 0, "context starts no turns");
    room.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn context_is_of_the_same_tenant_chat_and_thread() {
    let mut room = Room::open().await;
    let rival = room.harness.add_gateway_in("rival", "r").await;
    say(&room.harness, &room.ann, "elsewhere", "u-bob", "another chat", PLAIN).await;
    say(&room.harness, &rival, "room", "u-r", "another tenant", PLAIN).await;
    room.say("u-bob", "in the room", PLAIN).await;
    room.say("u-bob", "in thread one", json!({ "thread_id": "t1" })).await;
    room.say("u-bob", "in thread two", json!({ "thread_id": "t2" })).await;
    for (thread, expected) in [(None, "in the room"), (Some("t1"), "in thread one"), (Some("t2"), "in thread two")] {
        let text = format!("asked in {thread:?}");
        let more = json!({ "mentions_bot": true, "thread_id": thread });
        room.say("u-ann", &text, more).await;
        assert_eq!(texts(&receives(&mut room.teams, &text).await), [expected]);
        assert_eq!(texts(&receives(&mut room.anns, &text).await), [expected]);
    }
    room.say("u-ann", "a new thread", json!({ "mentions_bot": true, "thread_id": "t3" })).await;
    assert_eq!(texts(&receives(&mut room.teams, "a new thread").await), NOTHING);
    room.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn context_excludes_earlier_events_bot_messages_and_the_message_itself() {
    let mut room = Room::open().await;
    room.say("u-bob", "an aside", PLAIN).await;
    room.say("u-bob", "you there?", to_the_bot()).await;
    assert_eq!(texts(&receives(&mut room.teams, "you there?").await), ["an aside"]);
    room.say("u-bob", "/weather oslo", PLAIN).await;
    receives(&mut room.teams, "/weather oslo").await;
    let sent = room.teams.act(json!({ "op": "send", "chat_id": "room", "content": "Rain." })).await;
    assert_eq!(sent["success"], true);
    room.say("u-bob", "as I thought", json!({ "reply_to": sent["message_id"] })).await;
    receives(&mut room.teams, "as I thought").await;
    room.say("u-team", "my own agent receives me", PLAIN).await;
    receives(&mut room.teams, "my own agent receives me").await;
    room.say("u-bob", "another aside", PLAIN).await;
    let (_, teams) = room.ask("summary?").await;
    assert_eq!(teams, ["another aside"], "the first one was context of an earlier turn");
    // A repeated message is the same event and adds no context.
    let post = json!({ "mentions_bot": true, "message_id": "m-1" });
    room.say("u-ann", "again?", post.clone()).await;
    room.say("u-ann", "again?", post).await;
    let event = receives(&mut room.teams, "again?").await;
    assert!(texts(&event).iter().all(|text| text != "again?"), "{event}");
    assert_eq!(room.teams.unread().await, 0);
    room.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn context_excludes_deleted_messages() {
    let mut room = Room::open().await;
    room.say("u-bob", "keep this", PLAIN).await;
    let posted = room.say("u-bob", "forget this", PLAIN).await;
    // There is no API for users to delete messages, so the line is changed in the store.
    let (store, id) = (&room.harness.app.desk.stores().chat, posted["message_id"].as_str().unwrap());
    let row = store.chat_line(&"home".into(), &"room".into(), &MessageId::from(id)).await.unwrap().unwrap();
    let mut line: Value = serde_json::from_str(&row.json).unwrap();
    line["deleted"] = json!(true);
    store.chat_amend(&"home".into(), &"room".into(), &MessageId::from(id), row.rev, line.to_string()).await.unwrap();
    let (anns, teams) = room.ask("well?").await;
    assert_eq!((anns, teams), (vec!["keep this".to_owned()], vec!["keep this".to_owned()]));
    room.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn context_has_at_most_the_latest_twenty_messages() {
    let mut room = Room::open().await;
    for number in 0..25 {
        room.say("u-bob", &format!("line {number}"), PLAIN).await;
    }
    let (anns, teams) = room.ask("well?").await;
    let latest: Vec<String> = (5..25).map(|number| format!("line {number}")).collect();
    assert_eq!((&anns, &teams), (&latest, &latest));
    room.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn context_has_at_most_the_latest_sixteen_kilobytes() {
    const MAX_BYTES: usize = 16 * 1024;
    let mut room = Room::open().await;
    // Quotes are twice as long in JSON.
    let said: Vec<String> = (0..12).map(|number| format!("{number:02} {}", "\"".repeat(1_500))).collect();
    for text in &said {
        room.say("u-bob", text, PLAIN).await;
    }
    room.say("u-ann", "well?", to_the_bot()).await;
    let event = receives(&mut room.teams, "well?").await;
    let bytes = event["context"].to_string().len();
    assert!((MAX_BYTES / 2..=MAX_BYTES).contains(&bytes), "{bytes}");
    let came = texts(&event);
    assert_eq!(came, said[said.len() - came.len()..], "the latest, without a gap");
    let next = json!({ "text": said[said.len() - came.len() - 1], "source": event["context"][0]["source"] });
    assert!(bytes + next.to_string().len() > MAX_BYTES, "one more would have fitted");
    room.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_context_in_direct_messages_or_on_unaddressed_messages() {
    let mut room = Room::open().await;
    room.say("u-bob", "an aside", PLAIN).await;
    room.say("u-ann", "not to the bot", PLAIN).await;
    let event = receives(&mut room.anns, "not to the bot").await;
    assert!(event["context"].is_null() && event["context_error"].is_null(), "{event}");
    // In a free-response scope the agent gets every message as an event.
    set_policy(&room.harness, &room.team, json!({ "requireAddress": true, "freeResponseScopes": ["room"] })).await;
    room.say("u-ann", "to everybody", PLAIN).await;
    for socket in [&mut room.anns, &mut room.teams] {
        let event = receives(socket, "to everybody").await;
        assert!(event["context"].is_null(), "{event}");
    }
    for user in ["stranger", "u-bob"] {
        write(&room.harness, &room.ann, "d", user, "somebody else's words").await;
    }
    for more in [to_the_bot(), json!({})] {
        let mut body = json!({ "user_id": "u-ann", "text": "between us" });
        body["mentions_bot"] = more["mentions_bot"].as_bool().unwrap_or_default().into();
        room.harness.say_as(&room.ann, "d", body).await.expect(202);
        let event = receives(&mut room.anns, "between us").await;
        assert!(event["context"].is_null(), "{event}");
    }
    write(&room.harness, &room.ann, "d", "u-ann", "/help").await;
    assert!(receives(&mut room.anns, "/help").await["context"].is_null());
    room.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn context_makes_no_rows() {
    let mut room = Room::open().await;
    for text in ["one", "two"] {
        room.say("u-bob", text, PLAIN).await;
    }
    let (_, teams) = room.ask("well?").await;
    assert_eq!(teams, ["one", "two"]);
    assert_eq!((room.harness.mail(&room.team).await.len(), room.harness.mail(&room.ann).await.len()), (1, 1));
    room.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resent_or_replayed_row_keeps_the_context_of_its_receiver() {
    let mut room = Room::open().await;
    room.say("u-bob", "bobs", PLAIN).await;
    room.say("u-ann", "anns", PLAIN).await;
    receives(&mut room.anns, "anns").await;
    room.say("u-ann", "well?", to_the_bot()).await;
    let (first, second) = (room.anns.event().await, room.teams.event().await);
    assert_eq!(
        (texts(&first.json["event"]), texts(&second.json["event"])),
        (vec!["bobs".to_owned()], vec!["bobs".to_owned(), "anns".to_owned()])
    );
    // Not acked and the socket replaced: the unacked rows are sent again unchanged.
    room.say("u-bob", "said since", PLAIN).await;
    for (account, before) in [(&room.ann, &first), (&room.team, &second)] {
        let mut socket = room.harness.socket(account).await;
        let again = socket.event().await;
        assert_eq!((&again.json["event"], again.buffer_id()), (&before.json["event"], before.buffer_id()));
        socket.ack(&again).await;
        // A replay by the operator is a new row with the same content.
        let row = room.harness.mail(account).await.pop().unwrap();
        let id = row["id"].as_str().unwrap();
        let shown = room.harness.admin("GET", &format!("/mail/{id}"), &Value::Null).await.expect(200);
        assert_eq!(shown["event"], before.json["event"], "the operator sees what was sent");
        let made = room.harness.admin("POST", &format!("/mail/{id}/replay"), &Value::Null).await.expect(200);
        let replayed = socket.event().await;
        assert_eq!(replayed.json["event"], before.json["event"]);
        assert_ne!(replayed.buffer_id(), before.buffer_id());
        socket.ack(&replayed).await;
        // A replay of the replay, too.
        let made = made["id"].as_str().unwrap();
        room.harness.admin("POST", &format!("/mail/{made}/replay"), &Value::Null).await.expect(200);
        assert_eq!(socket.event().await.json["event"], before.json["event"]);
    }
    room.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_rows_keep_the_context_of_their_time() {
    let harness = Harness::open().await;
    let (ann, team) = (harness.add_gateway("ann").await, harness.add_gateway("team").await);
    open_to_all(&harness, &team, "room").await;
    set_policy(&harness, &team, json!({ "requireAddress": true })).await;
    say(&harness, &ann, "room", "u-ann", "before", PLAIN).await;
    say(&harness, &ann, "room", "u-ann", "well?", to_the_bot()).await;
    say(&harness, &ann, "room", "u-ann", "after", PLAIN).await;
    managed(&harness, &team, "scope/release", crate::scene::channel("room")).await;
    let mut socket = harness.socket(&team).await;
    assert_eq!(texts(&receives(&mut socket, "well?").await), ["before"]);
    assert_eq!(socket.unread().await, 0);
    harness.finish().await;
}
