//! One bot in front of many tenants: whose an event is, who sees it, and where agents may speak. Over
//! the desk itself, with a platform that knows nothing of tenants.
#![allow(clippy::unwrap_used, reason = "tests")]

mod platform;

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::DeskError;
use frontdesk_core::directory::{Caller, Identity};
use frontdesk_core::intake::{Intake, Receipt, Verified, Whose};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Answer, Call, Outcall, OutcallError};
use frontdesk_core::port::platform::Look;
use frontdesk_core::port::store::Ledger as _;
use frontdesk_core::vault::Sealer;
use frontdesk_core::{Desk, Parts, Rules};
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_wire::api::{BindingNew, BotNew, LinkAsk, ProvisionRequest, RouteNew, ScopeAsk};
use frontdesk_wire::{Action, Code, MessageEvent, Secret, Source, token};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use platform::{GuildChat, Mood, PLATFORM};

const BOT: &str = "bot";

struct NoWay;

impl Outcall for NoWay {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Err(OutcallError::Refused)
    }

    fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<Answer, OutcallError>> {
        Box::pin(async { Err(OutcallError::Refused) })
    }
}

struct Hall {
    desk: Desk,
    env: Arc<TestEnv>,
    store: Arc<MemoryStore>,
    platform: Arc<GuildChat>,
    next: std::cell::Cell<u64>,
}

impl Hall {
    /// Tenants `red` and `blue`, one shared bot, a guild routed to each.
    async fn open() -> Self {
        let (env, store) = (Arc::new(TestEnv::default()), Arc::new(MemoryStore::new(7)));
        let platform = Arc::new(GuildChat::new());
        let sealer = Sealer::new(Zeroizing::new([7; 32]));
        let platforms: Vec<Arc<dyn frontdesk_core::port::platform::Platform>> = vec![platform.clone()];
        let desk = Desk::open(
            store.clone(),
            Parts { platforms, ..Parts::new(env.clone(), sealer, Arc::new(NoWay), Rules::default()) },
        );
        let desk = desk.await.unwrap();
        let bot = BotNew {
            platform: PLATFORM.into(),
            id: BOT.into(),
            tenant: None,
            settings: std::collections::BTreeMap::default(),
            secrets: std::collections::BTreeMap::default(),
        };
        desk.directory().add_bot(bot).await.unwrap();
        for tenant in ["red", "blue"] {
            desk.directory().create_tenant(tenant).await.unwrap();
            let (platform, key) = (PLATFORM.into(), format!("{tenant}-guild"));
            desk.directory().add_route(RouteNew { platform, key, tenant: tenant.into() }).await.unwrap();
        }
        let hall = Self { desk, env, store, platform, next: std::cell::Cell::new(1) };
        for (chat, scope) in [("red-chat", "red-guild"), ("blue-chat", "blue-guild"), ("lost-chat", "lost-guild")] {
            hall.platform.has(chat, Look { scope_id: Some(scope.into()), ..Look::default() });
        }
        hall
    }

    async fn gateway(&self, tenant: &str, name: &str) -> Caller {
        let ask = ProvisionRequest {
            gateway_id: format!("{tenant}-{name}"),
            platform: PLATFORM.into(),
            bot_id: BOT.into(),
            gateway_endpoint: None,
            route_keys: vec!["somebody-elses-guild".into()],
            instance_id: Some(name.into()),
            wake_url: None,
        };
        let who = Identity { tenant: tenant.into(), instance: None };
        let seat = self.desk.directory().provision(&who, ask).await.unwrap();
        let secret = Secret::new(seat.secret);
        self.desk.directory().prove_gateway(&token::mint(&format!("{tenant}-{name}"), &secret, 0)).unwrap()
    }

    async fn bind(&self, tenant: &str, user: &str, instance: &str) {
        let [platform, user_id, tenant, instance] = [PLATFORM, user, tenant, instance].map(str::to_owned);
        self.desk.directory().bind(BindingNew { platform, user_id, tenant, instance }).await.unwrap();
    }

    fn message(&self, chat: &str, scope: Option<&str>, user: &str, text: &str) -> MessageEvent {
        let number = self.next.replace(self.next.get() + 1);
        let chat_type = if scope.is_some() { "group" } else { "dm" };
        let mut source = Source {
            platform: PLATFORM.into(),
            chat_id: chat.into(),
            chat_type: chat_type.into(),
            user_id: Some(user.into()),
            ..Source::default()
        };
        source.set_scope(scope.map(str::to_owned));
        let message_id = Some(format!("m{number}"));
        MessageEvent { text: text.into(), message_type: "text".into(), source, message_id, ..MessageEvent::default() }
    }

    async fn take(&self, event: MessageEvent) -> Receipt {
        self.take_as(Whose::Shared, event, false).await
    }

    async fn take_as(&self, whose: Whose, event: MessageEvent, addressed: bool) -> Receipt {
        let mut intake = Intake::new(Verified::by("the test's own hands"), whose, BOT.into(), event);
        intake.addressed = addressed;
        self.desk.inbound().receive(vec![intake]).await.unwrap().remove(0)
    }

    async fn explained(&self, receipt: &Receipt) -> Value {
        serde_json::to_value(self.desk.inbound().explain(&receipt.event_id).await.unwrap()).unwrap()
    }

    async fn send(&self, caller: &Caller, chat: &str, metadata: Value) -> Option<Code> {
        let raw = json!({ "op": "send", "chat_id": chat, "content": "hello", "metadata": metadata }).to_string();
        let identities = [(PLATFORM.to_owned(), BOT.to_owned())];
        let action = Action::parse(&raw).unwrap();
        let result =
            self.desk.outbound().act(caller, (PLATFORM, BOT), &identities, action, self.desk.env().steady_ms()).await;
        assert_eq!(result.success, result.code.is_none());
        if let Some(error) = &result.error {
            // The same words for a chat that is somebody else's and for one that nobody has.
            let uniform = "guildchat egress declined: target is not an approved destination for this connection";
            assert_eq!(error, uniform);
        }
        result.code
    }

    fn metrics(&self) -> String {
        let mut registry = prometheus_client::registry::Registry::with_prefix("frontdesk");
        self.desk.meters().register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }
}

/// A gateway up to 0.19 that fronts several platforms does not say which of them it means.
#[tokio::test]
async fn an_answer_that_names_no_platform_goes_where_its_chat_is_known() {
    let hall = Hall::open().await;
    let caller = hall.gateway("red", "r").await;
    hall.bind("red", "ann", "r").await;
    hall.take(hall.message("red-chat", Some("red-guild"), "ann", "hi")).await;
    let pair = |platform: &str, bot: &str| (platform.to_owned(), bot.to_owned());
    let fronted = [pair("relay", "desk"), pair(PLATFORM, BOT), pair(PLATFORM, "second")];
    let meant = async |chat: &str, fronted: &[(String, String)]| {
        let action = Action::parse(&json!({ "op": "send", "chat_id": chat, "content": "x" }).to_string()).unwrap();
        let (platform, bot) = hall.desk.outbound().speaking_as(&caller, fronted, &action).await;
        pair(platform, bot)
    };
    assert_eq!(meant("red-chat", &fronted).await, pair(PLATFORM, BOT));
    assert_eq!(meant("nowhere", &fronted).await, pair("relay", "desk"), "an unknown chat is the first one's");
    assert_eq!(meant("red-chat", &fronted[..1]).await, pair("relay", "desk"), "one that is named is not questioned");
    let twice = [pair("relay", "desk"), pair(PLATFORM, BOT), pair(PLATFORM, BOT)];
    assert_eq!(meant("red-chat", &twice).await, pair("relay", "desk"), "known to several: as before");
}

#[tokio::test]
async fn the_tenant_is_the_events_own_and_not_the_bots_or_the_linked_authors() {
    let hall = Hall::open().await;
    hall.gateway("red", "r").await;
    hall.gateway("blue", "b").await;
    for tenant in ["red", "blue"] {
        hall.bind(tenant, "ann", &tenant[..1]).await; // Ann is linked in both; latest in blue
    }
    let in_red = hall.take(hall.message("red-chat", Some("red-guild"), "ann", "hi")).await;
    let red = hall.explained(&in_red).await;
    assert_eq!((&red["tenant"], &red["instances"][0]["instance"]), (&json!("red"), &json!("r")));
    let in_blue = hall.take(hall.message("blue-chat", Some("blue-guild"), "ann", "hi")).await;
    assert_eq!(hall.explained(&in_blue).await["tenant"], "blue");
    let direct = hall.take(hall.message("dm-ann", None, "ann", "hi")).await;
    assert_eq!(hall.explained(&direct).await["tenant"], "blue", "the latest link");
    // A webhook is its path's.
    hall.platform.has("hook", Look::default());
    let (platform, key) = (PLATFORM.to_owned(), "/hooks/7".to_owned());
    hall.desk.directory().add_route(RouteNew { platform, key, tenant: "red".into() }).await.unwrap();
    let event = hall.message("hook", Some("blue-guild"), "ann", "hi");
    let hooked = hall.take_as(Whose::Path("/hooks/7".into()), event, false).await;
    assert_eq!(hall.explained(&hooked).await["tenant"], "red");
}

#[tokio::test]
async fn what_nobody_owns_is_dropped_with_a_reason_and_counted() {
    let hall = Hall::open().await;
    hall.gateway("red", "r").await;
    hall.bind("red", "ann", "r").await;
    for (event, named) in [
        (hall.message("lost-chat", Some("lost-guild"), "ann", "hi"), "lost-guild"),
        (hall.message("somebody-elses", Some("somebody-elses-guild"), "ann", "hi"), "somebody-elses-guild"),
        (hall.message("dm-eve", None, "eve", "hi"), "dm-eve"),
    ] {
        let receipt = hall.take(event).await;
        assert_eq!(receipt.verdict.outcome, "withheld");
        let told = hall.explained(&receipt).await;
        assert_eq!(told["tenant"], "");
        let line = &told["instances"][0];
        assert_eq!((&line["layer"], &line["rule"], &line["value"]), (&json!("tenant"), &json!("route"), &json!(named)));
        assert!(line["text"].as_str().unwrap().contains("frontdesk route add"), "how to mend it");
    }
    let metrics = hall.metrics();
    assert!(metrics.contains("frontdesk_events_withheld_total{why=\"tenant\"} 3"), "{metrics}");
    assert!(metrics.contains("frontdesk_verdicts_total{verdict=\"withheld\",layer=\"tenant\"} 3"), "{metrics}");
    let unknown_path = hall.take_as(Whose::Path("/x".into()), hall.message("c", None, "ann", "hi"), false).await;
    assert_eq!(hall.explained(&unknown_path).await["instances"][0]["rule"], "route");
}

#[tokio::test]
async fn the_platform_is_asked_who_sees_the_chat_and_believed_for_a_short_while() {
    let hall = Hall::open().await;
    hall.gateway("red", "r").await;
    hall.bind("red", "ann", "r").await;
    let say = async || hall.take(hall.message("red-chat", Some("red-guild"), "ann", "hi")).await.verdict.outcome;
    assert_eq!(say().await, "delivered");
    hall.platform.blind.lock().unwrap().push("ann".into());
    assert_eq!((say().await.as_str(), hall.platform.looks()), ("delivered", 1), "what it said is believed");
    hall.env.advance_ms(30_000);
    assert_eq!((say().await.as_str(), hall.platform.looks()), ("withheld", 2), "for thirty seconds");
    hall.platform.blind.lock().unwrap().clear();
    hall.desk.inbound().forget_sight("red", PLATFORM, BOT, "red-chat");
    assert_eq!((say().await.as_str(), hall.platform.looks()), ("delivered", 3), "unless it says that it changed");
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_does_not_know_fails_or_hangs_is_a_no() {
    for mood in [Mood::Unknowing, Mood::Failing, Mood::Silent] {
        let hall = Hall::open().await;
        hall.gateway("red", "r").await;
        hall.bind("red", "ann", "r").await;
        *hall.platform.mood.lock().unwrap() = mood;
        let event = hall.message("red-chat", Some("red-guild"), "ann", "hi");
        let receipt = tokio::time::timeout(Duration::from_secs(10), hall.take(event)).await.unwrap();
        let line = &hall.explained(&receipt).await["instances"][0];
        assert_eq!((&line["layer"], &line["rule"]), (&json!("visibility"), &json!("unknown")));
        assert!(hall.store.waiting().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn an_agent_speaks_only_where_its_tenant_was_reached_or_what_is_its_own() {
    let hall = Hall::open().await;
    let (red, blue) = (hall.gateway("red", "r").await, hall.gateway("blue", "b").await);
    hall.bind("red", "ann", "r").await;
    hall.bind("blue", "bob", "b").await;
    let declined = Some(Code::EgressDeclined);
    // Its scope, whoever spoke there or not.
    assert_eq!(hall.send(&red, "red-chat", json!({})).await, None);
    assert_eq!(hall.send(&blue, "red-chat", json!({})).await, declined);
    // Nobody's, and nothing at all.
    for chat in ["lost-chat", "no-such-chat", ""] {
        assert_eq!(hall.send(&red, chat, json!({})).await, declined, "{chat}");
    }
    // What the action says about the chat is not asked.
    let lie = json!({ "scope_id": "red-guild", "user_id": "ann" });
    assert_eq!(hall.send(&red, "blue-chat", lie).await, declined);
    // Direct chats: of people linked in the tenant.
    for (chat, person) in [("dm-ann", "ann"), ("dm-bob", "bob"), ("dm-eve", "eve")] {
        hall.platform.has(chat, Look { person: Some(person.into()), ..Look::default() });
    }
    let verdicts = [("dm-ann", None), ("dm-bob", declined), ("dm-eve", declined)];
    for (chat, expected) in verdicts {
        assert_eq!(hall.send(&red, chat, json!({ "user_id": "ann" })).await, expected, "{chat}");
    }
    // Threads: their parent's.
    let thread = |parent: &str| Look { parent_chat_id: Some(parent.into()), ..Look::default() };
    hall.platform.has("thread-of-nothing", thread("lost-chat"));
    hall.platform.has("thread-of-lost", thread("reached-chat"));
    assert_eq!(hall.send(&red, "thread-of-nothing", json!({})).await, declined);
    assert_eq!(hall.send(&red, "thread-of-lost", json!({})).await, declined);
    hall.platform.has("reached-chat", Look::default());
    let (platform, key) = (PLATFORM.to_owned(), "reached-chat".to_owned());
    hall.desk.directory().add_route(RouteNew { platform, key: key.clone(), tenant: "red".into() }).await.unwrap();
    let receipt = hall.take(hall.message("reached-chat", Some("another-guild"), "ann", "hi")).await;
    assert_eq!(receipt.verdict.outcome, "delivered");
    hall.desk.directory().remove_route(PLATFORM, &key).await.unwrap();
    assert_eq!(hall.send(&red, "thread-of-lost", json!({})).await, None, "its parent reached the tenant");
    assert_eq!(hall.send(&blue, "thread-of-lost", json!({})).await, declined);
    assert_eq!(hall.send(&red, "reached-chat", json!({})).await, None, "and so did the chat");
    let sent: Vec<String> = hall.platform.sent.lock().unwrap().iter().map(|(chat, _)| chat.clone()).collect();
    assert_eq!(sent, ["red-chat", "dm-ann", "thread-of-lost", "reached-chat"], "nothing else went out");
}

#[tokio::test]
async fn a_link_in_a_direct_message_brings_the_codes_tenant_and_runs_once() {
    let hall = Hall::open().await;
    let red = hall.gateway("red", "r").await;
    hall.platform.has("dm-ann", Look { person: Some("ann".into()), ..Look::default() });
    let offer = hall.desk.management().offer_link(&red.guest(), LinkAsk { platform: PLATFORM.into() }).await.unwrap();
    let before = hall.take(hall.message("dm-ann", None, "ann", "hello?")).await;
    assert_eq!(hall.explained(&before).await["instances"][0]["rule"], "route");
    let link = hall.message("dm-ann", None, "ann", &format!("/link {}", offer.code.to_lowercase()));
    let unlink = hall.message("dm-ann", None, "ann", "/unlink");
    assert!(hall.take(link.clone()).await.verdict.text.contains("linked to r"));
    let said = || hall.platform.said.lock().unwrap().len();
    assert_eq!(said(), 1);
    assert_eq!(hall.take(hall.message("dm-ann", None, "ann", "hello!")).await.verdict.outcome, "delivered");
    // The platform delivers both once more: the person is linked now, yet they are the same messages.
    assert!(!hall.take(link).await.fresh);
    assert_eq!(hall.take(unlink.clone()).await.verdict.text, "You are no longer linked to r.");
    assert_eq!(hall.take(hall.message("dm-ann", None, "ann", "hello?")).await.verdict.outcome, "withheld");
    hall.bind("red", "ann", "r").await;
    assert!(!hall.take(unlink).await.fresh);
    assert_eq!(hall.take(hall.message("dm-ann", None, "ann", "hello!")).await.verdict.outcome, "delivered");
    assert_eq!(said(), 2);
    let refused = hall.desk.management().offer_link(&red.guest(), LinkAsk { platform: "nowhere".into() }).await;
    assert!(matches!(refused, Err(DeskError::BadRequest(_))));
}

#[tokio::test]
async fn a_channel_is_claimed_only_where_the_tenant_is_at_home() {
    let hall = Hall::open().await;
    let (red, blue) = (hall.gateway("red", "r").await, hall.gateway("blue", "b").await);
    let claim = async |who: &Caller, scope: &str, channel: &str| {
        let ask = ScopeAsk { platform: PLATFORM.into(), scope_id: scope.into(), channel_id: channel.into() };
        hall.desk.management().claim_scope(&who.guest(), ask).await.map_err(|error| error.to_string())
    };
    claim(&red, "red-guild", "general").await.unwrap();
    let foreign = claim(&blue, "red-guild", "general").await.unwrap_err();
    let free = claim(&blue, "red-guild", "nobody-holds-this").await.unwrap_err();
    let lost = claim(&blue, "lost-guild", "general").await.unwrap_err();
    let scopeless = claim(&blue, "", "general").await.unwrap_err();
    assert!([&free, &lost, &scopeless].iter().all(|text| **text == foreign), "nothing is told about who has it");
    let held =
        hall.desk.directory().read(|view| view.grants.values().map(|it| it.instance.clone()).collect::<Vec<_>>());
    assert_eq!(held, ["r"]);
}

#[tokio::test]
async fn a_context_that_cannot_be_read_is_none_and_says_so() {
    let hall = Hall::open().await;
    let red = hall.gateway("red", "r").await;
    hall.bind("red", "ann", "r").await;
    let event = hall.message("red-chat", Some("red-guild"), "ann", "hi");
    hall.take_as(Whose::Shared, event, true).await;
    hall.take(hall.message("red-chat", Some("red-guild"), "ann", "not addressed")).await;
    let rows = hall.store.pending(red.instance.no, 0, 9).await.unwrap();
    let first: Value = serde_json::from_str(&rows[0].1.json).unwrap();
    assert_eq!(first["context_error"], true);
    assert!(first.get("context").is_none());
    let second: Value = serde_json::from_str(&rows[1].1.json).unwrap();
    assert!(second.get("context_error").is_none(), "an unaddressed turn asks for none");
    assert!(hall.metrics().contains("frontdesk_context_failed_total 1"));
}

#[tokio::test]
async fn an_edit_is_another_event_of_the_same_message_and_comes_once() {
    let hall = Hall::open().await;
    hall.gateway("red", "r").await;
    hall.bind("red", "ann", "r").await;
    let first = hall.message("red-chat", Some("red-guild"), "ann", "helo");
    let mut edit = MessageEvent { text: "hello".into(), ..first.clone() };
    edit.source.message_is_edit = true;
    let fresh = async |event: &MessageEvent| hall.take(event.clone()).await.fresh;
    assert_eq!(
        [fresh(&first).await, fresh(&edit).await, fresh(&edit).await, fresh(&first).await],
        [true, true, false, false]
    );
    let again = MessageEvent { text: "hello!".into(), ..edit };
    assert!(fresh(&again).await);
}
