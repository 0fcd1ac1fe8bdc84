//! One bot for many tenants: which tenant an event belongs to, who sees it, and where agents may send. Tested on the
//! core, with a platform that knows no tenants.
#![allow(clippy::unwrap_used, reason = "tests")]

mod platform;
mod stop;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frontdesk_core::DeskError;
use frontdesk_core::directory::{Caller, Identity};
use frontdesk_core::intake::{Intake, Receipt, TenantSource, Verified};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{Look, PlatformBot};
use frontdesk_core::port::store::{Ledger as _, StoreError};
use frontdesk_core::vault::Sealer;
use frontdesk_core::{Desk, Parts, Rules};
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_wire::api::{BindingNew, BotNew, LinkAsk, ProvisionRequest, RouteNew, ScopeAsk};
use frontdesk_wire::event::PromptResponse;
use frontdesk_wire::{Action, ActionResult, BotId, Code, MessageEvent, MessageId, Secret, Seq, Source, token};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use platform::{GuildChat, Mood, PLATFORM};

const BOT: &str = "bot";

struct NoWay;

impl Outcall for NoWay {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Err(OutcallError::Refused)
    }

    fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async { Err(OutcallError::Refused) })
    }
}

fn binding(tenant: &str, user: &str, instance: &str) -> BindingNew {
    let [platform, user_id, tenant, instance] = [PLATFORM, user, tenant, instance].map(str::to_owned);
    BindingNew { platform, user_id: user_id.into(), tenant: tenant.into(), instance: instance.into() }
}

struct Scene {
    desk: Desk,
    env: Arc<TestEnv>,
    store: Arc<MemoryStore>,
    platform: Arc<GuildChat>,
    next: std::cell::Cell<u64>,
}

impl Scene {
    /// Tenants `red` and `blue`, one shared bot, a guild routed to each.
    async fn open() -> Self {
        let (env, store) = (Arc::new(TestEnv::default()), Arc::new(MemoryStore::new(7)));
        let platform = Arc::new(GuildChat::new());
        let desk = Self::desk(&env, &store, &platform).await;
        let bot = BotNew {
            platform: PLATFORM.into(),
            id: BOT.into(),
            tenant: None,
            settings: std::collections::BTreeMap::default(),
            secrets: std::collections::BTreeMap::default(),
        };
        desk.directory().bots().add(bot).await.unwrap();
        for tenant in ["red", "blue"] {
            desk.directory().create_tenant(&tenant.into()).await.unwrap();
            let (platform, key) = (PLATFORM.into(), format!("{tenant}-guild"));
            desk.directory().add_route(RouteNew { platform, key, tenant: tenant.into() }).await.unwrap();
        }
        let scene = Self { desk, env, store, platform, next: std::cell::Cell::new(1) };
        for (chat, scope) in [("red-chat", "red-guild"), ("blue-chat", "blue-guild"), ("lost-chat", "lost-guild")] {
            scene.platform.has(chat, Look { scope_id: Some(scope.into()), ..Look::default() });
        }
        scene
    }

    async fn desk(env: &Arc<TestEnv>, store: &Arc<MemoryStore>, platform: &Arc<GuildChat>) -> Desk {
        let sealer = Sealer::new(Zeroizing::new([7; 32]));
        let platforms: Vec<Arc<dyn frontdesk_core::port::platform::Platform>> = vec![platform.clone()];
        let parts = Parts { platforms, ..Parts::new(env.clone(), sealer, Arc::new(NoWay), Rules::default()) };
        Desk::open(store.clone(), parts).await.unwrap()
    }

    async fn gateway(&self, tenant: &str, name: &str) -> Caller {
        let ask = ProvisionRequest {
            gateway_id: format!("{tenant}-{name}").into(),
            platform: PLATFORM.into(),
            bot_id: BOT.into(),
            gateway_endpoint: None,
            route_keys: vec!["somebody-elses-guild".into()],
            instance_id: Some(name.into()),
            wake_url: None,
        };
        let who = Identity { tenant: tenant.into(), instance: None };
        let account = self.desk.directory().provision(&who, ask).await.unwrap();
        let secret = Secret::new(account.secret);
        self.desk.directory().prove_gateway(&token::mint(&format!("{tenant}-{name}"), &secret, 0)).unwrap()
    }

    async fn bind(&self, tenant: &str, user: &str, instance: &str) {
        self.desk.directory().bind(binding(tenant, user, instance)).await.unwrap();
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
        MessageEvent {
            text: text.into(),
            message_type: "text".into(),
            source,
            message_id: message_id.map(MessageId::from),
            ..MessageEvent::default()
        }
    }

    async fn take(&self, event: MessageEvent) -> Receipt {
        self.take_as(TenantSource::Shared, event, false).await
    }

    async fn take_as(&self, tenant_source: TenantSource, event: MessageEvent, addressed: bool) -> Receipt {
        self.try_take(tenant_source, event, addressed).await.unwrap()
    }

    async fn try_take(
        &self,
        tenant_source: TenantSource,
        event: MessageEvent,
        addressed: bool,
    ) -> Result<Receipt, DeskError> {
        let mut intake = Intake::new(Verified::by("the test's own hands"), tenant_source, BOT.into(), event);
        intake.addressed = addressed;
        intake.press_of = intake.event.prompt_response.as_ref().and_then(|press| press.prompt_message_id.clone());
        Ok(self.desk.inbound().receive(vec![intake]).await?.remove(0))
    }

    /// A user presses the button of a prompt.
    fn press(&self, user: &str, prompt_id: &str, prompt_message_id: Option<String>) -> MessageEvent {
        let prompt_response = Some(PromptResponse {
            prompt_id: prompt_id.into(),
            option_id: "yes".into(),
            label: Some("Yes".into()),
            prompt_message_id: prompt_message_id.map(MessageId::from),
        });
        let event = self.message("red-chat", Some("red-guild"), user, "/yes");
        MessageEvent { message_type: "command".into(), prompt_response, ..event }
    }

    async fn explained(&self, receipt: &Receipt) -> Value {
        serde_json::to_value(self.desk.explanations().explain(&receipt.event_id.to_string()).await.unwrap()).unwrap()
    }

    async fn act(&self, caller: &Caller, action: Value) -> ActionResult {
        let identities = [(PLATFORM.to_owned(), BOT.into())];
        let action = Action::parse(&action.to_string()).unwrap();
        self.desk.outbound().act(caller, &identities[0], &identities, action, self.desk.env().steady_ms()).await
    }

    async fn send(&self, caller: &Caller, chat: &str, metadata: Value) -> Option<Code> {
        let send = json!({ "op": "send", "chat_id": chat, "content": "hello", "metadata": metadata });
        let result = self.act(caller, send).await;
        assert_eq!(result.success, result.code.is_none());
        if let Some(error) = &result.error {
            // The text is the same for a foreign chat and for one that does not exist.
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

/// Gateways up to 0.19 that serve several platforms do not name the platform in an action.
#[tokio::test]
async fn an_action_without_platform_goes_to_the_one_that_knows_its_chat() {
    let scene = Scene::open().await;
    let caller = scene.gateway("red", "r").await;
    scene.bind("red", "ann", "r").await;
    scene.take(scene.message("red-chat", Some("red-guild"), "ann", "hi")).await;
    let pair = |platform: &str, bot: &str| (platform.to_owned(), BotId::from(bot));
    let fronted = [pair("relay", "desk"), pair(PLATFORM, BOT), pair(PLATFORM, "second")];
    let meant = async |chat: &str, fronted: &[PlatformBot]| {
        let action = Action::parse(&json!({ "op": "send", "chat_id": chat, "content": "x" }).to_string()).unwrap();
        scene.desk.outbound().speaking_as(&caller, &fronted[0], &fronted[1..], &action).await.clone()
    };
    assert_eq!(meant("red-chat", &fronted).await, pair(PLATFORM, BOT));
    assert_eq!(meant("nowhere", &fronted).await, pair("relay", "desk"), "an unknown chat goes to the first platform");
    assert_eq!(
        meant("red-chat", &fronted[..1]).await,
        pair("relay", "desk"),
        "a single platform is used without a lookup"
    );
    let twice = [pair("relay", "desk"), pair(PLATFORM, BOT), pair(PLATFORM, BOT)];
    assert_eq!(meant("red-chat", &twice).await, pair("relay", "desk"), "known to several: the first platform");
}

#[tokio::test]
async fn the_tenant_comes_from_the_event_and_not_from_bot_or_author() {
    let scene = Scene::open().await;
    scene.gateway("red", "r").await;
    scene.gateway("blue", "b").await;
    for tenant in ["red", "blue"] {
        scene.bind(tenant, "ann", &tenant[..1]).await; // linked in both tenants, latest in blue
    }
    let in_red = scene.take(scene.message("red-chat", Some("red-guild"), "ann", "hi")).await;
    let red = scene.explained(&in_red).await;
    assert_eq!((&red["tenant"], &red["instances"][0]["instance"]), (&json!("red"), &json!("r")));
    let in_blue = scene.take(scene.message("blue-chat", Some("blue-guild"), "ann", "hi")).await;
    assert_eq!(scene.explained(&in_blue).await["tenant"], "blue");
    let direct = scene.take(scene.message("dm-ann", None, "ann", "hi")).await;
    assert_eq!(scene.explained(&direct).await["tenant"], "blue", "the latest link");
    // A webhook belongs to the tenant of its path.
    scene.platform.has("hook", Look::default());
    let (platform, key) = (PLATFORM.to_owned(), "/hooks/7".to_owned());
    scene.desk.directory().add_route(RouteNew { platform, key, tenant: "red".into() }).await.unwrap();
    let event = scene.message("hook", Some("blue-guild"), "ann", "hi");
    let hooked = scene.take_as(TenantSource::Path("/hooks/7".into()), event, false).await;
    assert_eq!(scene.explained(&hooked).await["tenant"], "red");
}

#[tokio::test]
async fn an_event_without_tenant_is_dropped_with_a_reason_and_counted() {
    let scene = Scene::open().await;
    scene.gateway("red", "r").await;
    scene.bind("red", "ann", "r").await;
    for (event, named) in [
        (scene.message("lost-chat", Some("lost-guild"), "ann", "hi"), "lost-guild"),
        (scene.message("somebody-elses", Some("somebody-elses-guild"), "ann", "hi"), "somebody-elses-guild"),
        (scene.message("dm-eve", None, "eve", "hi"), "dm-eve"),
    ] {
        let receipt = scene.take(event).await;
        assert_eq!(receipt.verdict.outcome, "withheld");
        let response = scene.explained(&receipt).await;
        assert_eq!(response["tenant"], "");
        let line = &response["instances"][0];
        assert_eq!((&line["layer"], &line["rule"], &line["value"]), (&json!("tenant"), &json!("route"), &json!(named)));
        assert!(line["text"].as_str().unwrap().contains("frontdesk route add"), "the text must name the solution");
    }
    let metrics = scene.metrics();
    assert!(metrics.contains("frontdesk_events_withheld_total{why=\"tenant\"} 3"), "{metrics}");
    assert!(metrics.contains("frontdesk_verdicts_total{verdict=\"withheld\",layer=\"tenant\"} 3"), "{metrics}");
    let unknown_path =
        scene.take_as(TenantSource::Path("/x".into()), scene.message("c", None, "ann", "hi"), false).await;
    assert_eq!(scene.explained(&unknown_path).await["instances"][0]["rule"], "route");
}

#[tokio::test]
async fn visibility_is_asked_from_the_platform_and_cached_briefly() {
    let scene = Scene::open().await;
    scene.gateway("red", "r").await;
    scene.bind("red", "ann", "r").await;
    let say = async || scene.take(scene.message("red-chat", Some("red-guild"), "ann", "hi")).await.verdict.outcome;
    assert_eq!(say().await, "delivered");
    scene.platform.blind.lock().unwrap().push("ann".into());
    assert_eq!((say().await.as_str(), scene.platform.looks()), ("delivered", 1), "the answer is cached");
    scene.env.advance_ms(30_000);
    assert_eq!((say().await.as_str(), scene.platform.looks()), ("withheld", 2), "the cache expires after 30 s");
    scene.platform.blind.lock().unwrap().clear();
    scene.desk.inbound().drop_cached_visibility(&"red".into(), PLATFORM, &BotId::from(BOT), &"red-chat".into());
    assert_eq!((say().await.as_str(), scene.platform.looks()), ("delivered", 3), "a change notice clears the cache");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_failing_or_hanging_visibility_check_withholds() {
    for mood in [Mood::Unknowing, Mood::Failing, Mood::Silent] {
        let scene = Scene::open().await;
        scene.gateway("red", "r").await;
        scene.bind("red", "ann", "r").await;
        *scene.platform.mood.lock().unwrap() = mood;
        let event = scene.message("red-chat", Some("red-guild"), "ann", "hi");
        let receipt = tokio::time::timeout(Duration::from_secs(10), scene.take(event)).await.unwrap();
        let line = &scene.explained(&receipt).await["instances"][0];
        assert_eq!((&line["layer"], &line["rule"]), (&json!("visibility"), &json!("unknown")));
        assert!(scene.store.waiting().await.unwrap().is_empty());
    }
}

/// Regression: while the database changed hands, messages were accepted and withheld from all agents.
#[tokio::test]
async fn an_event_is_not_accepted_while_the_store_cannot_say_who_sees_the_chat() {
    let scene = Scene::open().await;
    scene.gateway("red", "r").await;
    scene.bind("red", "ann", "r").await;
    *scene.platform.mood.lock().unwrap() = Mood::WithoutStore;
    let event = scene.message("red-chat", Some("red-guild"), "ann", "hi");
    let refused = scene.try_take(TenantSource::Shared, event.clone(), false).await;
    assert!(matches!(refused, Err(DeskError::Store(StoreError::Unavailable(_)))));
    *scene.platform.mood.lock().unwrap() = Mood::Well;
    assert_eq!(scene.take(event).await.verdict.outcome, "delivered", "sent again, it is not a duplicate");
}

#[tokio::test]
async fn an_agent_can_send_only_to_chats_of_its_tenant() {
    let scene = Scene::open().await;
    let (red, blue) = (scene.gateway("red", "r").await, scene.gateway("blue", "b").await);
    scene.bind("red", "ann", "r").await;
    scene.bind("blue", "bob", "b").await;
    let declined = Some(Code::EgressDeclined);
    // Chats in a scope of its tenant, with or without messages.
    assert_eq!(scene.send(&red, "red-chat", json!({})).await, None);
    assert_eq!(scene.send(&blue, "red-chat", json!({})).await, declined);
    // Chats without a tenant, and missing ones.
    for chat in ["lost-chat", "no-such-chat", ""] {
        assert_eq!(scene.send(&red, chat, json!({})).await, declined, "{chat}");
    }
    // Claims of the action about its chat are ignored.
    let lie = json!({ "scope_id": "red-guild", "user_id": "ann" });
    assert_eq!(scene.send(&red, "blue-chat", lie).await, declined);
    // Direct chats with users who are linked in the tenant.
    for (chat, person) in [("dm-ann", "ann"), ("dm-bob", "bob"), ("dm-eve", "eve")] {
        scene.platform.has(chat, Look { person: Some(person.into()), ..Look::default() });
    }
    let verdicts = [("dm-ann", None), ("dm-bob", declined), ("dm-eve", declined)];
    for (chat, expected) in verdicts {
        assert_eq!(scene.send(&red, chat, json!({ "user_id": "ann" })).await, expected, "{chat}");
    }
    // Threads belong to the tenant of their parent.
    let thread = |parent: &str| Look { parent_chat_id: Some(parent.into()), ..Look::default() };
    scene.platform.has("thread-of-nothing", thread("lost-chat"));
    scene.platform.has("thread-of-lost", thread("reached-chat"));
    assert_eq!(scene.send(&red, "thread-of-nothing", json!({})).await, declined);
    assert_eq!(scene.send(&red, "thread-of-lost", json!({})).await, declined);
    scene.platform.has("reached-chat", Look::default());
    let (platform, key) = (PLATFORM.to_owned(), "reached-chat".to_owned());
    scene.desk.directory().add_route(RouteNew { platform, key: key.clone(), tenant: "red".into() }).await.unwrap();
    let receipt = scene.take(scene.message("reached-chat", Some("another-guild"), "ann", "hi")).await;
    assert_eq!(receipt.verdict.outcome, "delivered");
    scene.desk.directory().remove_route(PLATFORM, &key).await.unwrap();
    assert_eq!(scene.send(&red, "thread-of-lost", json!({})).await, None, "its parent reached the tenant");
    assert_eq!(scene.send(&blue, "thread-of-lost", json!({})).await, declined);
    assert_eq!(scene.send(&red, "reached-chat", json!({})).await, None, "and so did the chat");
    let sent: Vec<String> = scene.platform.sent.lock().unwrap().iter().map(|(chat, _)| chat.clone()).collect();
    assert_eq!(sent, ["red-chat", "dm-ann", "thread-of-lost", "reached-chat"], "nothing else was sent");
}

#[tokio::test]
async fn link_in_a_direct_message_uses_the_tenant_of_the_code_and_runs_once() {
    let scene = Scene::open().await;
    let red = scene.gateway("red", "r").await;
    scene.platform.has("dm-ann", Look { person: Some("ann".into()), ..Look::default() });
    let offer = scene
        .desk
        .management()
        .offer_link(&red.proven_instance(), LinkAsk { platform: PLATFORM.into() })
        .await
        .unwrap();
    let before = scene.take(scene.message("dm-ann", None, "ann", "hello?")).await;
    assert_eq!(scene.explained(&before).await["instances"][0]["rule"], "route");
    let link = scene.message("dm-ann", None, "ann", &format!("/link {}", offer.code.to_lowercase()));
    let unlink = scene.message("dm-ann", None, "ann", "/unlink");
    assert!(scene.take(link.clone()).await.verdict.text.contains("linked to r"));
    let said = || scene.platform.said.lock().unwrap().len();
    assert_eq!(said(), 1);
    assert_eq!(scene.take(scene.message("dm-ann", None, "ann", "hello!")).await.verdict.outcome, "delivered");
    // The platform delivers both again: the user is linked now, but they are the same messages.
    assert!(!scene.take(link).await.fresh);
    assert_eq!(scene.take(unlink.clone()).await.verdict.text, "You are no longer linked to r.");
    assert_eq!(scene.take(scene.message("dm-ann", None, "ann", "hello?")).await.verdict.outcome, "withheld");
    scene.bind("red", "ann", "r").await;
    assert!(!scene.take(unlink).await.fresh);
    assert_eq!(scene.take(scene.message("dm-ann", None, "ann", "hello!")).await.verdict.outcome, "delivered");
    assert_eq!(said(), 2);
    let refused =
        scene.desk.management().offer_link(&red.proven_instance(), LinkAsk { platform: "nowhere".into() }).await;
    assert!(matches!(refused, Err(DeskError::BadRequest(_))));
}

#[tokio::test]
async fn a_channel_can_be_claimed_only_in_scopes_of_the_tenant() {
    let scene = Scene::open().await;
    let (red, blue) = (scene.gateway("red", "r").await, scene.gateway("blue", "b").await);
    let claim = async |who: &Caller, scope: &str, channel: &str| {
        let ask = ScopeAsk { platform: PLATFORM.into(), scope_id: scope.into(), channel_id: channel.into() };
        scene.desk.management().claim_scope(&who.proven_instance(), ask).await.map_err(|error| error.to_string())
    };
    claim(&red, "red-guild", "general").await.unwrap();
    let foreign = claim(&blue, "red-guild", "general").await.unwrap_err();
    let free = claim(&blue, "red-guild", "nobody-holds-this").await.unwrap_err();
    let lost = claim(&blue, "lost-guild", "general").await.unwrap_err();
    let scopeless = claim(&blue, "", "general").await.unwrap_err();
    assert!([&free, &lost, &scopeless].iter().all(|text| **text == foreign), "must not reveal who holds it");
    let held = scene.desk.directory().read(|view| view.grants().map(|it| it.instance.clone()).collect::<Vec<_>>());
    assert_eq!(held, ["r"]);
}

#[tokio::test]
async fn an_unreadable_context_is_omitted_and_reported() {
    let scene = Scene::open().await;
    let red = scene.gateway("red", "r").await;
    scene.bind("red", "ann", "r").await;
    let event = scene.message("red-chat", Some("red-guild"), "ann", "hi");
    scene.take_as(TenantSource::Shared, event, true).await;
    scene.take(scene.message("red-chat", Some("red-guild"), "ann", "not addressed")).await;
    let rows = scene.store.pending(red.instance.no, Seq(0), 9).await.unwrap();
    let first: Value = serde_json::from_str(&rows[0].1.json).unwrap();
    assert_eq!(first["context_error"], true);
    assert!(first.get("context").is_none());
    let second: Value = serde_json::from_str(&rows[1].1.json).unwrap();
    assert!(second.get("context_error").is_none(), "an unaddressed message needs no context");
    assert!(scene.metrics().contains("frontdesk_context_failed_total 1"));
}

#[tokio::test]
async fn an_edit_is_a_new_event_of_the_same_message_and_is_delivered_once() {
    let scene = Scene::open().await;
    scene.gateway("red", "r").await;
    scene.bind("red", "ann", "r").await;
    let first = scene.message("red-chat", Some("red-guild"), "ann", "helo");
    let mut edit = MessageEvent { text: "hello".into(), ..first.clone() };
    edit.source.message_is_edit = true;
    let fresh = async |event: &MessageEvent| scene.take(event.clone()).await.fresh;
    assert_eq!(
        [fresh(&first).await, fresh(&edit).await, fresh(&edit).await, fresh(&first).await],
        [true, true, false, false]
    );
    let again = MessageEvent { text: "hello!".into(), ..edit };
    assert!(fresh(&again).await);
}

/// Who may press is known by the id of the prompt's message, or by that of the prompt, as not every platform tells the first.
#[tokio::test]
async fn a_prompt_whose_message_has_no_id_is_answered_by_the_person_of_its_agent() {
    let scene = Scene::open().await;
    let (red, other) = (scene.gateway("red", "r").await, scene.gateway("red", "other").await);
    scene.bind("red", "ann", "r").await;
    scene.bind("red", "bob", "other").await;
    let ask = async |prompt_id: &str| {
        let options = json!([{ "id": "yes", "label": "Yes" }, { "id": "no", "label": "No" }]);
        let prompt = json!({ "op": "prompt", "chat_id": "red-chat", "prompt_id": prompt_id, "content": "Go?",
            "options": options });
        let result = scene.act(&red, prompt).await;
        assert!(result.success && result.error.is_none(), "{result:?}");
        result.message_id
    };
    let press = async |user: &str, prompt_id: &str, message_id: Option<String>| {
        let event = scene.press(user, prompt_id, message_id);
        scene.take_as(TenantSource::Shared, event, true).await.verdict.outcome
    };
    let answers = async |caller: &Caller| -> Vec<Value> {
        let rows = scene.store.pending(caller.instance.no, Seq(0), 9).await.unwrap();
        let events = rows.iter().map(|(_, it)| serde_json::from_str::<Value>(&it.json).unwrap());
        events.map(|event| event["prompt_response"]["prompt_id"].clone()).collect()
    };

    scene.platform.is_nameless.store(true, Ordering::SeqCst);
    assert_eq!(ask("p1").await, None);
    assert_eq!(press("bob", "p1", None).await, "withheld", "the agent of somebody else asked");
    assert_eq!(press("ann", "p1", None).await, "delivered");
    assert_eq!(press("ann", "p1", Some("only-now".into())).await, "delivered", "only the press names the message");
    scene.platform.is_nameless.store(false, Ordering::SeqCst);
    let named = ask("p2").await;
    assert_eq!(named.as_deref(), Some("out-1"));
    assert_eq!(
        press("bob", "p2", named.as_deref().map(str::to_owned)).await,
        "withheld",
        "the agent of somebody else asked"
    );
    assert_eq!(press("ann", "p2", named.map(Into::into)).await, "delivered");
    assert_eq!(answers(&red).await, [json!("p1"), json!("p1"), json!("p2")]);
    assert_eq!(answers(&other).await, [] as [Value; 0]);
}

/// Which press was first is in the store: all servers know it, also after a restart.
#[tokio::test]
async fn a_prompt_is_answered_once_by_whichever_server() {
    let mut scene = Scene::open().await;
    let red = scene.gateway("red", "r").await;
    scene.gateway("red", "other").await;
    for (user, instance) in [("ann", "r"), ("amy", "r"), ("bob", "other")] {
        scene.bind("red", user, instance).await;
    }
    let options = json!([{ "id": "yes", "label": "Yes" }]);
    let prompt =
        json!({ "op": "prompt", "chat_id": "red-chat", "prompt_id": "p1", "content": "Go?", "options": options });
    let asked = scene.act(&red, prompt).await.message_id;
    assert!(asked.is_some());
    let take =
        async |scene: &Scene, event: &MessageEvent| scene.take_as(TenantSource::Shared, event.clone(), true).await;

    let of_bob = scene.press("bob", "p1", asked.as_deref().map(str::to_owned));
    let refused = take(&scene, &of_bob).await;
    assert_eq!((refused.verdict.outcome.as_str(), refused.fresh), ("withheld", true), "his agent did not ask");
    scene.bind("red", "bob", "r").await;
    let refused = take(&scene, &of_bob).await;
    assert_eq!((refused.verdict.outcome.as_str(), refused.fresh), ("withheld", false), "a repeated one is what it was");
    let first = scene.press("ann", "p1", asked.as_deref().map(str::to_owned));
    let answered = take(&scene, &first).await;
    assert_eq!((answered.verdict.outcome.as_str(), answered.fresh), ("delivered", true), "the prompt was still open");
    for is_restarted in [false, true] {
        if is_restarted {
            scene.desk = Scene::desk(&scene.env, &scene.store, &scene.platform).await;
        }
        for user in ["ann", "amy"] {
            let late = take(&scene, &scene.press(user, "p1", asked.as_deref().map(str::to_owned))).await;
            let said = (late.verdict.outcome.as_str(), late.verdict.text.as_str(), late.verdict.delivery, late.fresh);
            assert_eq!(said, ("withheld", "This was answered already.", None, false), "{user}");
        }
        let repeated = take(&scene, &first).await;
        assert_eq!((repeated.verdict.outcome.as_str(), repeated.fresh), ("delivered", false), "the same press again");
        assert_eq!(repeated.event_id, answered.event_id);
    }
    scene.desk.directory().unbind(binding("red", "ann", "r")).await.unwrap();
    let repeated = take(&scene, &first).await;
    assert_eq!((repeated.verdict.outcome.as_str(), repeated.fresh), ("delivered", false), "her link has ended since");
    let of_other_prompt = take(&scene, &scene.press("amy", "p1", Some("asked again".into()))).await;
    assert_eq!((of_other_prompt.verdict.outcome.as_str(), of_other_prompt.fresh), ("delivered", true));
    assert_eq!(scene.store.pending(red.instance.no, Seq(0), 9).await.unwrap().len(), 2);
}
