//! Discord end to end: a whole server in front of a fake of the gateway and the REST API. The fake itself is judged by
//! Discord's client libraries (`tests/vendors/discord_fake.py`).
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use frontdesk::app::FIRST_TENANT;
use frontdesk_core::port::platform::ActingAs;
use frontdesk_testkit::fakes::discord::{FakeDiscord, GatewaySettings, Limits, Server, SocketFault};
use frontdesk_wire::{ChatId, TenantId, UserId};
use harness::{GatewayAccount, Harness, Socket, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::time::timeout;

const TOKEN: &str = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-the-first-bot-of-the-fake-x";
const BOT: u64 = 1_100_000_000_000_000_001;
const ANN: u64 = 1_100_000_000_000_000_011;
const BEN: u64 = 1_100_000_000_000_000_012;
const GUILD: u64 = 1_100_000_000_000_000_100;
const ROLE: u64 = 1_100_000_000_000_000_150;
const GENERAL: u64 = 1_100_000_000_000_000_101;
const FORUM: u64 = 1_100_000_000_000_000_102;
const HIDDEN: u64 = 1_100_000_000_000_000_103;
const VIEW_CHANNEL: u64 = 1 << 10;

/// A desk with one bot in a guild, in front of the agents of Ann and Ben.
struct Scene {
    harness: Harness,
    server: Server,
    ann: GatewayAccount,
    ben: GatewayAccount,
}

impl Scene {
    async fn open() -> Self {
        let fake = FakeDiscord::new();
        fake.set_limits(Limits { enabled: false, ..Limits::default() });
        fake.set_gateway(GatewaySettings { identify_every_ms: 0, max_concurrency: 0, ..GatewaySettings::default() });
        let server = fake.serve().await.unwrap();
        let harness = Harness::open().await;
        let (ann, ben) = (harness.add_gateway("ann").await, harness.add_gateway("ben").await);
        let scene = Self { harness, server, ann, ben };
        scene.act(json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk"}));
        scene.act(json!({"act": "add_user", "id": ANN, "username": "ann", "global_name": "Ann Bee"}));
        scene.act(json!({"act": "add_user", "id": BEN, "username": "ben"}));
        let hidden = json!([{"id": GUILD.to_string(), "type": 0, "allow": "0", "deny": VIEW_CHANNEL.to_string()},
            {"id": ROLE.to_string(), "type": 0, "allow": VIEW_CHANNEL.to_string(), "deny": "0"}]);
        scene.act(json!({"act": "add_guild", "id": GUILD, "name": "Guild", "owner": BOT,
            "roles": [{"id": ROLE, "name": "Team"}],
            "members": [{"user": BOT}, {"user": ANN, "nick": "Annie", "roles": [ROLE]}, {"user": BEN}],
            "channels": [{"id": GENERAL, "name": "general", "topic": "all"}, {"id": FORUM, "name": "ideas", "kind": "forum"},
                {"id": HIDDEN, "name": "hidden", "permission_overwrites": hidden}]}));
        for (user, instance) in [(ANN, "ann"), (BEN, "ben")] {
            let link = json!({ "tenant": FIRST_TENANT, "platform": "discord", "user_id": user.to_string(),
                "instance": instance });
            scene.harness.admin("POST", "/bindings", &link).await.expect(201);
        }
        scene.add_bot(TOKEN).await;
        scene
    }

    async fn add_bot(&self, token: &str) {
        let settings = json!({ "base_url": self.server.base_url, "gateway_url": self.server.gateway_url });
        let ask = json!({ "platform": "discord", "id": "dc", "tenant": FIRST_TENANT, "settings": settings,
            "secrets": { "token": token } });
        self.harness.admin("POST", "/bots", &ask).await.expect(201);
    }

    fn act(&self, act: Value) -> Value {
        let text = act.to_string();
        let now_ms = self.harness.app.desk.env().now_ms();
        let done = self.server.fake.act(now_ms, serde_json::from_value(act).unwrap());
        done.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn say(&self, channel: u64, from: u64, text: &str) -> Value {
        self.act(json!({"act": "say", "channel": channel, "from": from, "text": text}))
    }

    async fn agent(&self, account: &GatewayAccount) -> Socket {
        let mut socket = self.harness.dial(&account.bearer()).await;
        let descriptor = socket.hello("discord", "dc").await;
        assert_eq!((&descriptor["max_message_length"], &descriptor["len_unit"]), (&json!(2000), &json!("chars")));
        socket
    }

    /// Waits until the bot listens: it has identified, or resumed.
    async fn listening(&self, after: u64) {
        let is_there = |fake: &FakeDiscord| {
            let calls = fake.calls_after(after);
            calls.iter().any(|call| matches!(call.method.as_str(), "gateway identify" | "gateway resume")).then_some(())
        };
        timeout(TIME_LIMIT, self.server.fake.wait_for(is_there)).await.expect("the bot does not listen");
    }

    fn last_call(&self) -> u64 {
        self.server.fake.calls_after(0).last().map_or(0, |call| call.number)
    }

    fn messages(&self, channel: u64) -> Vec<Value> {
        let shown = self.server.fake.channel(channel.to_string().parse().unwrap()).unwrap_or_default();
        shown["messages"].as_array().cloned().unwrap_or_default()
    }

    fn trouble(&self, fault: &SocketFault) {
        self.server.fake.socket_fault(BOT.to_string().parse().unwrap(), fault);
    }
}

/// Ids are texts in what comes, and numbers in acts.
fn number(id: &Value) -> u64 {
    id.as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_say_reaches_their_own_agents() {
    let scene = Scene::open().await;
    let (mut ann, mut ben) = (scene.agent(&scene.ann).await, scene.agent(&scene.ben).await);
    scene.listening(0).await;
    let said = scene.say(GENERAL, ANN, &format!("<@{BOT}> hello"));
    let event = ann.event().await.json["event"].clone();
    assert_eq!(
        (&event["text"], &event["message_type"], &event["message_id"]),
        (&json!("hello"), &json!("text"), &said["id"])
    );
    let source = &event["source"];
    for (field, value) in [
        ("platform", json!("discord")),
        ("scope_id", json!(GUILD.to_string())),
        ("chat_id", json!(GENERAL.to_string())),
        ("chat_type", json!("group")),
        ("chat_name", json!("Guild / #general")),
        ("chat_topic", json!("all")),
        ("user_id", json!(ANN.to_string())),
        ("user_name", json!("Annie")),
        ("thread_id", Value::Null),
    ] {
        assert_eq!(source[field], value, "{field} in {source}");
    }
    scene.say(GENERAL, BEN, &format!("<@{BOT}> from ben"));
    assert_eq!(ben.event().await.text(), "from ben");

    let thread = scene.act(json!({"act": "open_thread", "channel": GENERAL, "from": ANN, "name": "plans",
        "message": number(&said["id"])}));
    let thread = number(&thread["id"]);
    scene.say(thread, ANN, &format!("in the thread <@{BOT}>"));
    let event = ann.event().await.json["event"].clone();
    let source = &event["source"];
    assert_eq!(
        (&source["chat_type"], &source["thread_id"]),
        (&json!("thread"), &json!(thread.to_string())),
        "{source}"
    );
    assert_eq!(source["parent_chat_id"], GENERAL.to_string());
    assert_eq!(source["chat_name"], "Guild / #general / plans");

    scene.act(json!({"act": "post_in_forum", "channel": FORUM, "from": ANN, "name": "an idea",
        "text": format!("<@{BOT}> what of this?")}));
    let event = ann.event().await.json["event"].clone();
    assert_eq!(
        (&event["text"], &event["source"]["chat_name"]),
        (&json!("what of this?"), &json!("Guild / ideas / an idea"))
    );

    let reply = ann.act(json!({ "op": "send", "chat_id": GENERAL.to_string(), "content": "one two three" })).await;
    let asked = json!({"act": "say", "channel": GENERAL, "from": ANN, "text": "why?", "reply_to": number(&reply["message_id"])});
    scene.act(asked);
    let event = ann.event().await.json["event"].clone();
    assert_eq!(event["reply_to_message_id"], reply["message_id"], "{event}");
    assert_eq!((&event["reply_to"]["text"], &event["reply_to"]["is_own"]), (&json!("one two three"), &json!(true)));
    assert_eq!((ann.unread().await, ben.unread().await), (0, 0), "no agent hears its own words, or those of others");
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_agents_do_is_seen() {
    let scene = Scene::open().await;
    let mut ann = scene.agent(&scene.ann).await;
    scene.listening(0).await;
    let said = scene.say(GENERAL, ANN, &format!("<@{BOT}> hello"));
    ann.event().await;
    let chat = GENERAL.to_string();
    let words: Vec<String> = (0..500).map(|number| format!("word{number}.")).collect();
    let sent =
        ann.act(json!({ "op": "send", "chat_id": chat, "content": words.join(" "), "reply_to": said["id"] })).await;
    assert_eq!(sent["success"], true, "{sent}");
    let me = BOT.to_string();
    let own: Vec<Value> = scene.messages(GENERAL).into_iter().filter(|it| it["author"]["id"] == me).collect();
    let seen: Vec<&str> = own.iter().flat_map(|it| it["content"].as_str().unwrap().split_whitespace()).collect();
    assert!(own.len() > 1 && seen == words, "{own:?}");
    assert_eq!(own[0]["message_reference"]["message_id"], said["id"]);

    let sent = ann.act(json!({ "op": "send", "chat_id": chat, "content": "**one**" })).await;
    let edit = json!({ "op": "edit", "chat_id": chat, "message_id": sent["message_id"], "content": "two" });
    assert_eq!(ann.act(edit).await["success"], true);
    let newest = scene.messages(GENERAL).pop().unwrap();
    assert_eq!((&newest["content"], &newest["id"]), (&json!("two"), &sent["message_id"]));
    for remove in [false, true] {
        let react =
            json!({ "op": "react", "chat_id": chat, "message_id": said["id"], "emoji": "👍", "remove": remove });
        assert_eq!(ann.act(react).await["success"], true);
    }
    assert_eq!(ann.act(json!({ "op": "typing", "chat_id": chat })).await["success"], true);
    let delete = json!({ "op": "delete", "chat_id": chat, "message_id": sent["message_id"] });
    for _ in 0..2 {
        assert_eq!(ann.act(delete.clone()).await["success"], true);
    }
    let thread = ann
        .act(json!({ "op": "thread_create", "chat_id": chat, "thread_name": "plans", "message_id": said["id"] }))
        .await;
    assert_eq!(thread["success"], true, "{thread}");
    let rename = |guard: Value| {
        let mut rename =
            json!({ "op": "thread_rename", "chat_id": chat, "message_id": thread["thread_id"], "thread_name": "new" });
        rename.as_object_mut().unwrap().extend(guard.as_object().unwrap().clone());
        rename
    };
    let refused = ann.act(rename(json!({ "only_if_current_name": "other" }))).await;
    assert_eq!((&refused["success"], &refused["code"]), (&json!(false), &json!("conflict")), "{refused}");
    assert_eq!(ann.act(rename(json!({ "only_if_connector_created": true }))).await["success"], true);
    let info = ann.act(json!({ "op": "get_chat_info", "chat_id": chat })).await;
    assert_eq!(info["chat_info"]["name"], "general", "{info}");
    // A thread must be one of the chat that the agent may write to.
    for elsewhere in [HIDDEN, FORUM] {
        let metadata = json!({ "thread_id": elsewhere.to_string() });
        let sent = ann.act(json!({ "op": "send", "chat_id": chat, "content": "x", "metadata": metadata })).await;
        assert_eq!((&sent["success"], &sent["code"]), (&json!(false), &json!("egress_declined")), "{sent}");
        let renamed =
            json!({ "op": "thread_rename", "chat_id": chat, "message_id": elsewhere.to_string(), "thread_name": "x" });
        assert_eq!(ann.act(renamed).await["code"], "egress_declined");
    }
    assert!(scene.messages(HIDDEN).is_empty());
    let metadata = json!({ "thread_id": thread["thread_id"] });
    let sent = ann.act(json!({ "op": "send", "chat_id": chat, "content": "in it", "metadata": metadata })).await;
    assert_eq!(sent["success"], true, "{sent}");
    assert_eq!(scene.messages(number(&thread["thread_id"])).pop().unwrap()["content"], "in it");
    let strange = ann.act(json!({ "op": "send", "chat_id": HIDDEN.to_string(), "content": "x" })).await;
    assert_eq!(strange["success"], false, "a chat that nobody wrote from: {strange}");
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sees_a_channel_follows_its_roles() {
    let scene = Scene::open().await;
    scene.listening(0).await;
    let desk = &scene.harness.app.desk;
    let (platform, bot) =
        (desk.platforms().get("discord").unwrap(), desk.directory().bots().bot("discord", &"dc".into()));
    let sees = async |user: u64, channel: u64| {
        let (channel, user) = (channel.to_string(), user.to_string());
        platform
            .look(
                ActingAs::new(&TenantId::from(FIRST_TENANT), &bot),
                &ChatId::from(&channel),
                Some(&UserId::from(&user)),
            )
            .await
            .unwrap()
            .unwrap()
            .visible
    };
    // Also by what the socket tells, which comes a moment later.
    let becomes = async |user: u64, channel: u64, wanted: bool| {
        let seen = timeout(TIME_LIMIT, async {
            while sees(user, channel).await != Some(wanted) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        seen.await.unwrap_or_else(|_| panic!("{user} sees {channel}: not {wanted}"));
    };
    assert_eq!(
        (sees(ANN, HIDDEN).await, sees(BEN, HIDDEN).await, sees(BEN, GENERAL).await),
        (Some(true), Some(false), Some(true))
    );
    assert_eq!(sees(999, GENERAL).await, Some(false), "somebody who is not in the guild");
    scene.act(json!({"act": "change_member", "guild": GUILD, "user": BEN, "roles": [ROLE]}));
    becomes(BEN, HIDDEN, true).await;
    let overwrites = json!([{"id": GUILD.to_string(), "type": 0, "allow": "0", "deny": VIEW_CHANNEL.to_string()}]);
    scene.act(json!({"act": "change_channel", "channel": HIDDEN, "permission_overwrites": overwrites}));
    becomes(BEN, HIDDEN, false).await;
    scene.act(json!({"act": "put_role", "guild": GUILD, "id": ROLE, "name": "Team", "permissions": 1_u64 << 3}));
    becomes(BEN, HIDDEN, true).await;
    let thread =
        scene.act(json!({"act": "open_thread", "channel": GENERAL, "from": BOT, "name": "inner", "private": true}));
    scene.act(json!({"act": "change_member", "guild": GUILD, "user": BEN, "roles": []}));
    becomes(BEN, number(&thread["id"]), false).await;
    scene.act(json!({"act": "join_thread", "thread": number(&thread["id"]), "user": BEN}));
    becomes(BEN, number(&thread["id"]), true).await;
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_when_the_socket_breaks() {
    let scene = Scene::open().await;
    let mut ann = scene.agent(&scene.ann).await;
    scene.listening(0).await;
    let mut wanted = Vec::new();
    let mut speak = |count: usize| {
        for _ in 0..count {
            let text = format!("message {}", wanted.len());
            scene.say(GENERAL, ANN, &format!("<@{BOT}> {text}"));
            wanted.push(text);
        }
    };
    speak(3);
    for fault in [
        SocketFault::Cut,
        SocketFault::CutAfter { dispatches: 2 },
        SocketFault::Reconnect,
        SocketFault::Duplicate { count: 3 },
        SocketFault::InvalidSession { resumable: true },
        SocketFault::InvalidSession { resumable: false },
        SocketFault::Close { code: 4000 },
    ] {
        let before = scene.last_call();
        let reconnects = !matches!(fault, SocketFault::Duplicate { .. });
        scene.trouble(&fault);
        speak(4);
        if reconnects {
            scene.listening(before).await;
        }
        speak(3);
    }
    let mut seen = Vec::new();
    for _ in 0..wanted.len() {
        let frame = ann.event().await;
        seen.push(frame.text().to_owned());
        ann.ack(&frame).await;
    }
    seen.sort_by_key(|text| text.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
    assert_eq!(seen, wanted);

    // After a restart of the server the session is resumed.
    let before = scene.last_call();
    let Scene { harness, server, ann: account, ben } = scene;
    ann.hang_up().await;
    let folder = harness.finish().await;
    let say = json!({"act": "say", "channel": GENERAL, "from": ANN, "text": format!("<@{BOT}> meanwhile")});
    server.fake.act(1_800_000_000_000, serde_json::from_value(say).unwrap()).unwrap();
    let scene = Scene { harness: Harness::again(folder, |_| {}).await, server, ann: account, ben };
    let mut ann = scene.agent(&scene.ann).await;
    assert_eq!(ann.event().await.text(), "meanwhile");
    let resumed = scene.server.fake.calls_after(before).iter().any(|call| call.method == "gateway resume");
    assert!(resumed, "the session was resumed");
    assert_eq!(ann.unread().await, 0);
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_explained() {
    let scene = Scene::open().await;
    scene.listening(0).await;
    scene.add_bot("MTEwMDAwMDAwMDAwMDAwMDAwMQ.wrong0.token-that-the-fake-does-not-know-x").await;
    let listed = timeout(TIME_LIMIT, async {
        loop {
            let bots = scene.harness.admin("GET", "/bots", &Value::Null).await.expect(200);
            let text = bots.to_string();
            if text.contains("does not know this token") {
                return text;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    assert!(listed.await.expect("the reason is not listed").contains("4004"));
    scene.harness.finish().await;
}

/// Else what came while the old token was not valid any more would be lost.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_new_token_the_listener_goes_on_where_it_was() {
    let harness = Harness::open().await;
    let account_of = async |token: &str| {
        let settings = json!({ "base_url": "http://127.0.0.1:9/api/v10", "socket": "off" });
        let bot = json!({ "platform": "discord", "id": "dc", "tenant": FIRST_TENANT, "settings": settings,
            "secrets": { "token": token } });
        harness.admin("POST", "/bots", &bot).await.expect(201);
        harness.app.desk.directory().bots().bot("discord", &"dc".into()).account().to_owned()
    };
    let first = account_of("MTEwMDAwMDAwMDAwMDAwMDAwMQ.first0.secret-of-the-token").await;
    assert_eq!(account_of("MTEwMDAwMDAwMDAwMDAwMDAwMQ.second.another-secret-of-it").await, first);
    assert_ne!(account_of("MTEwMDAwMDAwMDAwMDAwMDAwMg.first0.secret-of-the-token").await, first, "another bot");
    harness.finish().await;
}
