//! Every route that changes something is cut off by its client at random points under load. A request must happen
//! completely or not at all, and memory must agree with the database.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

#[path = "cuts/compare.rs"]
mod compare;
#[path = "harness/mod.rs"]
mod harness;
#[path = "cuts/prepare.rs"]
mod prepare;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use compare::{assert_same, compare, stored};
use frontdesk::app::FIRST_TENANT;
use frontdesk_core::Desk;
use frontdesk_core::agents::{AgentsCaller, is_in_flight};
use frontdesk_core::directory::Identity;
use frontdesk_core::directory::View;
use frontdesk_core::directory::facts::Scope;
use frontdesk_core::port::alarms::{AlarmState, Concluded, Conclusion};
use frontdesk_core::port::store::Record;
use frontdesk_platforms::shared::standard_webhooks;
use frontdesk_platforms::{twilio, wecom, whatsapp};
use frontdesk_testkit::fakes::{discord, feishu, slack, telegram};
use frontdesk_wire::agents::{AgentPut, DeliveryMeta, DeliveryPayload, SkillNote, SkillStore as _};
use frontdesk_wire::api::{BindingNew, BotNew, ProvisionRequest, RouteNew, ScopeAsk};
use frontdesk_wire::{BotId, ChatId, GatewayId, InboxSeq, InstanceNo, MessageId, Seq, TenantId};
use harness::homeserver::{ANN, ME, homeserver};
use harness::{GatewayAccount, Harness, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Cuts per route.
const CUTS: usize = 200;
/// Requests that are cut concurrently.
const AT_ONCE: usize = 24;
/// Maximum time between the request and the cut.
const CUT_TIME_US: u64 = 4_000;
/// Cuts of each route that must meet a running handler: cuts before or after it prove nothing.
const CUTS_MET: u64 = 3;
/// How often `CUTS` are made until so many did.
const ROUNDS_MAX: usize = 5;
/// They store nothing, or little is in between: signed texts, a session in memory, a look at a bot. A question waits for its
/// client, and what is stored of it has tests of its own.
const UNSTORED: [&str; 5] = [
    "DELETE /mcp",
    "POST /_matrix/app/v1/ping",
    "POST /admin/v1/chat-link",
    "POST /chat/login",
    "POST /v1/agents/{id}/exchange",
];
/// Requests whose client disconnected before the response.
const ABANDONED: &str = "frontdesk_requests_abandoned_total";
const CHAT: &str = "room";
const HOOK: &str = "builds";
const HOOK_KEY: &str = "the key of the hook";
/// Of an external scheduler.
const RELAY_KEY: &str = "the key of the scheduler";
/// A Telegram bot in webhook mode, and its user.
const TG_BOT: i64 = 7001;
const TG_TOKEN: &str = "7001:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr";
const TG_SECRET: &str = "the-secret-of-the-webhook";
const TG_USER: u64 = 501;
/// A Discord bot without a socket, its application, a user and their chat.
const DC_TOKEN: &str = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-a-bot-that-nobody-asks-x";
const DC_BOT: u64 = 1_100_000_000_000_000_001;
const DC_USER: &str = "1100000000000000011";
const DC_CHAT: &str = "1100000000000000021";
/// A Matrix bot as an application service.
const MX_TOKEN: &str = "the-token-of-the-homeserver";
const MX_ROOM: &str = "!room:example.org";

/// Phone numbers at two vendors, and who writes to them.
const PHONE_SECRET: &str = "the-secret-of-a-phone-number";
const PHONE_USER: &str = "15550001111";
const NUMBER_ID: &str = "106540352242922";

/// The chat of a user of Slack with the bot.
const SLACK_CHAT: &str = "D1";

/// An app of `WeCom`.
const WC_CORP: &str = "ww5823bf96d3bd56c7";
const WC_TOKEN: &str = "the-token-of-the-callback";
const WC_KEY: &str = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C";

/// Whether the store is one of those that several servers share.
fn is_shared() -> bool {
    std::env::var_os("FRONTDESK_TEST_STORE").is_some()
}

/// A pseudorandom number, the same in every run.
fn dice(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

struct Scene {
    harness: Harness,
    account: GatewayAccount,
    agents: String,
    operator: String,
    /// Identity bound to its own instance, for alarms.
    sleeper: String,
    /// A session of tools, by the token of the agents.
    mcp_session: String,
    /// Ids of the messages, commands and presses that were sent as Slack.
    slack_ids: Mutex<Vec<String>>,
    /// How often each route was cut.
    cuts: Mutex<HashMap<String, usize>>,
    _telegram: telegram::Server,
}

/// A request that will be cut.
struct Request {
    path: String,
    bearer: String,
    kind: &'static str,
    body: Vec<u8>,
    /// Further header lines, each with its line end.
    headers: String,
}

impl Scene {
    async fn open() -> Self {
        let harness = Harness::with(|config| {
            config.agents.rate_per_s = 0;
            config.cron.relay_keys = vec![RELAY_KEY.into()];
        })
        .await;
        let account = harness.add_gateway("home-gw").await;
        let (agents, operator) =
            (harness.token(FIRST_TENANT, "agents").await, harness.token(FIRST_TENANT, "operator").await);
        let ask = json!({ "tenant": FIRST_TENANT, "scope": "identity", "instance": "sleeper" });
        let sleeper = harness.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned();
        let fake = telegram::FakeTelegram::new();
        let bot = telegram::NewBot { id: TG_BOT, token: TG_TOKEN.into(), username: "b".into(), ..Default::default() };
        fake.act(0, telegram::Act::AddBot(bot)).unwrap();
        let telegram = fake.serve().await.unwrap();
        let bot = json!({ "platform": "telegram", "id": "tg", "tenant": FIRST_TENANT,
            "settings": { "mode": "webhook", "base_url": telegram.base_url },
            "secrets": { "token": TG_TOKEN, "webhook_secret": TG_SECRET } });
        harness.admin("POST", "/bots", &bot).await.expect(201);
        // Nothing listens there: interactions are taken without asking Discord.
        let bot = json!({ "platform": "discord", "id": "dc", "tenant": FIRST_TENANT,
            "settings": { "socket": "off", "base_url": "http://127.0.0.1:9/api/v10",
                "application_id": DC_BOT.to_string(), "public_key": discord::public_key(DC_BOT) },
            "secrets": { "token": DC_TOKEN } });
        harness.admin("POST", "/bots", &bot).await.expect(201);
        let bot = json!({ "platform": "matrix", "id": "mx", "tenant": FIRST_TENANT,
            "settings": { "homeserver_url": homeserver().await.0, "user_id": ME, "mode": "appservice" },
            "secrets": { "as_token": "ours", "hs_token": MX_TOKEN } });
        harness.admin("POST", "/bots", &bot).await.expect(201);
        for bot in [
            json!({ "platform": "sms", "settings": { "account_sid": "AC1", "from": "+15559990000" },
                "secrets": { "auth_token": PHONE_SECRET } }),
            json!({ "platform": "whatsapp_cloud", "settings": { "phone_number_id": NUMBER_ID },
                "secrets": { "access_token": "a", "app_secret": PHONE_SECRET, "verify_token": "v" } }),
        ] {
            let mut bot = bot;
            (bot["id"], bot["tenant"]) = ("phone".into(), FIRST_TENANT.into());
            bot["settings"]["base_url"] = "http://127.0.0.1:9".into();
            harness.admin("POST", "/bots", &bot).await.expect(201);
        }
        let bot = json!({ "platform": "slack", "id": "sl", "tenant": FIRST_TENANT,
            "settings": { "base_url": "http://127.0.0.1:9/api" },
            "secrets": { "bot_token": "xoxb-1-2-x", "signing_secret": HOOK_KEY } });
        harness.admin("POST", "/bots", &bot).await.expect(201);
        let bot = json!({ "platform": "wecom_callback", "id": "wc", "tenant": FIRST_TENANT,
            "settings": { "base_url": "http://127.0.0.1:9", "corp_id": WC_CORP, "agent_id": "1" },
            "secrets": { "secret": "s", "token": WC_TOKEN, "aes_key": WC_KEY } });
        harness.admin("POST", "/bots", &bot).await.expect(201);
        let bot = json!({ "platform": "feishu", "id": "fs", "tenant": FIRST_TENANT,
            "settings": { "base_url": "http://127.0.0.1:9", "app_id": "cli_1" },
            "secrets": { "app_secret": "s", "encrypt_key": HOOK_KEY } });
        harness.admin("POST", "/bots", &bot).await.expect(201);
        let mcp_session = prepare::open_mcp(&harness, &agents).await;
        let (slack_ids, cuts) = (Mutex::default(), Mutex::default());
        let scene =
            Self { harness, account, agents, operator, sleeper, mcp_session, slack_ids, cuts, _telegram: telegram };
        for agent in ["alice", "bob"] {
            scene.desk().agents().put_agent(as_operator(), &agent.into(), AgentPut::default()).await.unwrap();
        }
        let hook = json!({ "platform": "hooks", "id": HOOK, "tenant": FIRST_TENANT, "secrets": { "key": HOOK_KEY } });
        scene.harness.admin("POST", "/bots", &hook).await.expect(201);
        scene
            .desk()
            .directory()
            .bind(BindingNew { platform: "hooks".into(), ..Self::link(HOOK, "home-gw") })
            .await
            .unwrap();
        let user = TG_USER.to_string();
        let link = BindingNew { platform: "telegram".into(), ..Self::link(&user, "home-gw") };
        scene.desk().directory().bind(link).await.unwrap();
        let link = BindingNew { platform: "discord".into(), ..Self::link(DC_USER, "home-gw") };
        scene.desk().directory().bind(link).await.unwrap();
        let number = format!("+{PHONE_USER}");
        let persons =
            [("feishu", "ann"), ("matrix", ANN), ("slack", "UANN"), ("sms", &number), ("whatsapp_cloud", PHONE_USER)];
        for (platform, user) in persons {
            let link = BindingNew { platform: platform.into(), ..Self::link(user, "home-gw") };
            scene.desk().directory().bind(link).await.unwrap();
        }
        let link = BindingNew { platform: "wecom_callback".into(), ..Self::link("wanda", "home-gw") };
        scene.desk().directory().bind(link).await.unwrap();
        scene
    }

    fn desk(&self) -> &Arc<Desk> {
        &self.harness.app.desk
    }
}

/// May do everything in the first tenant.
fn as_operator() -> AgentsCaller<'static> {
    static TENANT: LazyLock<TenantId> = LazyLock::new(|| FIRST_TENANT.into());
    AgentsCaller::operator(&TENANT)
}

impl Scene {
    /// How often this route was cut.
    fn cuts_of(&self, route: &str) -> usize {
        self.cuts.lock().unwrap()[route]
    }

    fn most_cuts(&self) -> usize {
        self.cuts.lock().unwrap().values().copied().max().unwrap()
    }

    async fn gateway(&self, id: &str) {
        let who = Identity { tenant: FIRST_TENANT.into(), instance: None };
        let ask = ProvisionRequest {
            gateway_id: id.into(),
            platform: "relay".into(),
            bot_id: BotId::default(),
            gateway_endpoint: None,
            route_keys: Vec::new(),
            instance_id: None,
            wake_url: None,
        };
        self.desk().directory().provision(&who, ask).await.unwrap();
    }

    fn link(user: &str, instance: &str) -> BindingNew {
        let [platform, user_id, tenant, instance] = ["relay", user, FIRST_TENANT, instance].map(str::to_owned);
        BindingNew { platform, user_id: user_id.into(), tenant: tenant.into(), instance: instance.into() }
    }

    /// A new request for this route, with everything that it needs in place.
    #[allow(clippy::too_many_lines, reason = "one or two lines per route")]
    async fn request(&self, route: &str, n: usize) -> Request {
        let (desk, t) = (self.desk().clone(), FIRST_TENANT);
        let admin = || self.harness.admin.clone();
        let gateway = || self.account.bearer();
        let made = |path: String, bearer: String, body: Value| {
            let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
            Request { path, bearer, kind: "application/json", body, headers: String::new() }
        };
        let meta = json!({ "dispatch_id": format!("{route}-{n}"), "sent_at": 1, "origin": {} });
        match route {
            "PUT /v1/agents/{id}" => {
                made(format!("/v1/agents/put-{n}"), self.agents.clone(), json!({ "agent_name": "x" }))
            }
            "DELETE /v1/agents/{id}" => {
                let id = format!("del-{n}");
                desk.agents().put_agent(as_operator(), &id.as_str().into(), AgentPut::default()).await.unwrap();
                let meta = DeliveryMeta { dispatch_id: id.clone(), ..DeliveryMeta::default() };
                let payload = DeliveryPayload::Augment { content: "x".into(), meta };
                desk.messages().deliver(as_operator(), &id, &payload).await.unwrap();
                made(format!("/v1/agents/{id}"), self.operator.clone(), Value::Null)
            }
            "POST /v1/agents/{id}/deliver" => {
                let body = json!({ "kind": "augment", "content": "x", "meta": meta });
                made("/v1/agents/alice/deliver".into(), self.agents.clone(), body)
            }
            "POST /v1/agents/{id}/wake" => {
                let when = if n.is_multiple_of(2) { json!("immediate") } else { json!(u64::MAX >> 20) };
                made(
                    "/v1/agents/alice/wake".into(),
                    self.agents.clone(),
                    json!({ "context": format!("wake-{n}"), "when": when }),
                )
            }
            "POST /v1/agents/{id}/exchange" => {
                let mut meta = meta;
                meta["correlation_id"] = format!("c-{n}").into();
                let body = json!({ "kind": "augment", "content": "x", "meta": meta, "timeout_ms": 60_000 });
                made("/v1/agents/alice/exchange".into(), self.agents.clone(), body)
            }
            "POST /v1/agents/{id}/replies" => {
                self.question(&format!("asked-{n}")).await;
                let body = json!({ "correlation_id": format!("asked-{n}"), "content": format!("reply-{n}") });
                made("/v1/agents/alice/replies".into(), self.agents.clone(), body)
            }
            "DELETE /admin/v1/agents/{id}" => {
                desk.agents().put_agent(as_operator(), &format!("rm-{n}").into(), AgentPut::default()).await.unwrap();
                made(format!("/admin/v1/agents/rm-{n}?tenant={t}"), admin(), Value::Null)
            }
            "POST /admin/v1/agents/{id}/say" => {
                let body = json!({ "tenant": t, "text": format!("say-{n}"), "wake": n.is_multiple_of(2) });
                made("/admin/v1/agents/alice/say".into(), admin(), body)
            }
            "POST /v1/notify" => {
                let body = json!({ "agent": "alice", "message": format!("notify-{n}"), "origin": {} });
                made("/v1/notify".into(), self.agents.clone(), body)
            }
            "PUT /v1/skills/{name}" => {
                made(format!("/v1/skills/put-{n}"), self.agents.clone(), json!({ "source": "# Skill: x\n" }))
            }
            "DELETE /v1/skills/{name}" | "POST /v1/skills/{name}/status" => {
                let name = format!("{}-{n}", if route.starts_with('D') { "del" } else { "status" });
                desk.tenant_stores()
                    .skills(as_operator())
                    .store(&name, "# Skill: x\n", &SkillNote::default())
                    .await
                    .unwrap();
                match route.starts_with('D') {
                    true => made(format!("/v1/skills/{name}"), self.operator.clone(), Value::Null),
                    false => {
                        made(format!("/v1/skills/{name}/status"), self.agents.clone(), json!({ "status": "Approved" }))
                    }
                }
            }
            "POST /v1/skill-store/query" => made("/v1/skill-store/query".into(), self.agents.clone(), json!({})),
            "POST /v1/data" => made("/v1/data".into(), self.agents.clone(), json!({ "content": format!("data-{n}") })),
            "POST /v1/data-store/query" => {
                made("/v1/data-store/query".into(), self.agents.clone(), json!({ "query": "data", "mode": "fts" }))
            }
            "POST /mcp" if n.is_multiple_of(4) => made("/mcp".into(), self.agents.clone(), prepare::initialize()),
            "POST /mcp" => {
                let arguments = json!({ "agent_id": "bob", "content": format!("mcp-{n}") });
                let params = json!({ "name": "agent_deliver", "arguments": arguments });
                let call = json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params });
                let headers = format!("mcp-session-id: {}\r\n", self.mcp_session);
                Request { headers, ..made("/mcp".into(), self.agents.clone(), call) }
            }
            "DELETE /mcp" => made("/mcp".into(), self.agents.clone(), Value::Null),
            "PUT /admin/v1/tenants/{id}/skills" => {
                made(format!("/admin/v1/tenants/{t}/skills"), admin(), json!({ "secured": false }))
            }
            "POST /relay/provision" => {
                let body = json!({ "gatewayId": format!("prov-{n}"), "platform": "relay" });
                made("/relay/provision".into(), self.account.identity.clone(), body)
            }
            "POST /relay/enroll" => {
                let token = desk.directory().create_enrollment(&TenantId::from(t), None).await.unwrap().token;
                let body = json!({ "enrollmentToken": token, "gatewayId": format!("enroll-{n}") });
                made("/relay/enroll".into(), self.account.identity.clone(), body)
            }
            "POST /relay/policy" => {
                let body = json!({ "platform": format!("p-{n}"), "requireAddress": true, "freeResponseScopes": [] });
                made("/relay/policy".into(), gateway(), body)
            }
            "POST /relay/media" | "POST /chat/v1/media" => {
                let (path, bearer) = match route {
                    "POST /relay/media" => ("/relay/media", gateway()),
                    _ => ("/chat/v1/media", self.account.chat.clone()),
                };
                Request { path: path.into(), bearer, kind: "image/png", body: vec![7; 20_000], headers: String::new() }
            }
            "POST /manage/link" => {
                let id = format!("linker-{n}");
                self.gateway(&id).await;
                let token = desk.directory().rotate(&GatewayId::from(&id)).await.unwrap().secret;
                let bearer = frontdesk_wire::token::mint(&id, &frontdesk_wire::Secret::new(token), 0);
                made("/manage/link".into(), bearer, json!({ "platform": "relay" }))
            }
            "POST /manage/scope" | "POST /manage/scope/release" => {
                let channel_id = format!("ch-{}-{n}", route.len());
                if route.ends_with("release") {
                    let ask = ScopeAsk {
                        platform: "relay".into(),
                        scope_id: "s".into(),
                        channel_id: channel_id.clone().into(),
                    };
                    let proven = desk.directory().prove_gateway(&gateway()).unwrap().proven_instance();
                    desk.management().claim_scope(&proven, ask).await.unwrap();
                }
                let body = json!({ "platform": "relay", "scope_id": "s", "channel_id": channel_id });
                made(route.trim_start_matches("POST ").into(), gateway(), body)
            }
            "POST /manage/principal" => {
                let body = json!({ "policy": "allow-list", "allow": [format!("user-{n}")] });
                made("/manage/principal".into(), gateway(), body)
            }
            "POST /manage/dm-default" => {
                let user = format!("dm-{n}");
                desk.directory().bind(Self::link(&user, "home-gw")).await.unwrap();
                made("/manage/dm-default".into(), gateway(), json!({ "platform": "relay", "user_id": user }))
            }
            "POST /manage/deprovision" => {
                let id = format!("leave-{n}");
                self.gateway(&id).await;
                let secret = desk.directory().rotate(&GatewayId::from(&id)).await.unwrap().secret;
                let bearer = frontdesk_wire::token::mint(&id, &frontdesk_wire::Secret::new(secret), 0);
                desk.directory().bind(Self::link(&format!("leaver-{n}"), &id)).await.unwrap();
                made("/manage/deprovision".into(), bearer, json!({}))
            }
            "POST /api/agent-cron/provision" | "POST /api/agent-cron/cancel" => {
                let job = format!("{}-{n}", if route.ends_with("cancel") { "cancel" } else { "arm" });
                let due_ms = i64::try_from(desk.env().now_ms() + 600_000 + n as u64).unwrap();
                let fire_at = jiff::Timestamp::from_millisecond(due_ms).unwrap().to_string();
                let ask = json!({ "job_id": job, "fire_at": fire_at, "agent_callback_url": "relay:" });
                if route.ends_with("cancel") {
                    let who = Identity { tenant: t.into(), instance: Some("sleeper".into()) };
                    let proven = desk.directory().proven_instance(&who).await.unwrap();
                    desk.cron().provision_alarm(&proven, serde_json::from_value(ask).unwrap()).await.unwrap();
                    return made("/api/agent-cron/cancel".into(), self.sleeper.clone(), json!({ "job_id": job }));
                }
                made("/api/agent-cron/provision".into(), self.sleeper.clone(), ask)
            }
            "POST /api/agent-cron/relay" => {
                let (job, now_s) = (format!("called-{n}"), desk.env().now_s());
                let due_ms = i64::try_from(desk.env().now_ms() + 600_000).unwrap();
                let fire_at = jiff::Timestamp::from_millisecond(due_ms).unwrap().to_string();
                let ask = json!({ "job_id": job, "fire_at": fire_at, "agent_callback_url": "relay:" });
                let who = Identity { tenant: t.into(), instance: Some("sleeper".into()) };
                let proven = desk.directory().proven_instance(&who).await.unwrap();
                desk.cron().provision_alarm(&proven, serde_json::from_value(ask).unwrap()).await.unwrap();
                let body = json!({ "agent_id": "sleeper", "job_id": job, "fire_at": fire_at }).to_string().into_bytes();
                let signature = standard_webhooks::sign(RELAY_KEY.as_bytes(), &job, now_s, &body);
                let headers =
                    format!("webhook-id: {job}\r\nwebhook-timestamp: {now_s}\r\nwebhook-signature: {signature}\r\n");
                let path = "/api/agent-cron/relay".into();
                Request { path, bearer: String::new(), kind: "application/json", body, headers }
            }
            "POST /chat/login" => made("/chat/login".into(), String::new(), json!({ "token": self.account.chat })),
            "PUT /chat/v1/chats/{chat_id}" => {
                made(format!("/chat/v1/chats/set-{n}"), self.account.chat.clone(), json!({ "name": "x" }))
            }
            "POST /chat/v1/chats/{chat_id}/messages" => {
                let body = json!({ "user_id": self.account.user, "text": "x", "message_id": format!("cut-{n}") });
                made(format!("/chat/v1/chats/{CHAT}/messages"), self.account.chat.clone(), body)
            }
            "POST /chat/v1/chats/{chat_id}/messages/{message_id}/press" => {
                let options = json!([{ "id": "yes", "label": "Yes" }]);
                let shown = json!({ "message_id": format!("ask-{n}"), "direction": "out", "text": "?", "at": 1, "seq": 0,
                    "edited": false, "deleted": false, "reactions": [],
                    "prompt": { "prompt_id": "p", "kind": "choice", "options": options } });
                let id = format!("ask-{n}");
                // The current time: on a slow machine the test takes over a minute, and retention would delete an old
                // line.
                desk.stores()
                    .chat
                    .chat_append(
                        &TenantId::from(t),
                        &ChatId::from(CHAT),
                        &MessageId::from(&id),
                        shown.to_string(),
                        desk.env().now_ms(),
                    )
                    .await
                    .unwrap();
                let body = json!({ "prompt_id": "p", "option_id": "yes", "user_id": self.account.user });
                made(format!("/chat/v1/chats/{CHAT}/messages/{id}/press"), self.account.chat.clone(), body)
            }
            "POST /hooks/{bot}" => {
                let (id, body, now_s) = (format!("hook-{n}"), json!({ "n": n }).to_string(), desk.env().now_s());
                let signature = standard_webhooks::sign(HOOK_KEY.as_bytes(), &id, now_s, body.as_bytes());
                let headers =
                    format!("webhook-id: {id}\r\nwebhook-timestamp: {now_s}\r\nwebhook-signature: {signature}\r\n");
                let path = format!("/hooks/{HOOK}");
                Request { path, bearer: String::new(), kind: "application/json", body: body.into_bytes(), headers }
            }
            "POST /telegram/{bot}" => {
                let from = json!({ "id": TG_USER, "is_bot": false, "first_name": "Ann" });
                let chat = json!({ "id": TG_USER, "type": "private" });
                let message = json!({ "message_id": n + 1, "from": from, "chat": chat, "date": 1, "text": "x" });
                let body = json!({ "update_id": n + 1, "message": message }).to_string().into_bytes();
                let headers = format!("X-Telegram-Bot-Api-Secret-Token: {TG_SECRET}\r\n");
                let (path, bearer) = ("/telegram/tg".into(), String::new());
                Request { path, bearer, kind: "application/json", body, headers }
            }
            "POST /twilio/{bot}" | "POST /twilio/{bot}/status" => {
                let path = route.trim_start_matches("POST ").replace("{bot}", "phone");
                let body =
                    format!("MessageSid=SM-{n}&From=%2B{PHONE_USER}&Body=x&MessageStatus=delivered").into_bytes();
                let url = format!("{}{path}", self.harness.url);
                let signature = twilio::signature::sign_body(PHONE_SECRET, &url, &body).unwrap();
                let headers = format!("X-Twilio-Signature: {signature}\r\n");
                Request { path, bearer: String::new(), kind: "application/x-www-form-urlencoded", body, headers }
            }
            "POST /wecom/{bot}" => {
                let message = format!(
                    "<xml><FromUserName>wanda</FromUserName><MsgType>text</MsgType><Content>x</Content><MsgId>wc-{n}</MsgId></xml>"
                );
                let key = wecom::crypt::key_of(WC_KEY).unwrap();
                let sealed = wecom::crypt::seal(&key, WC_CORP, [7; 16], message.as_bytes()).unwrap();
                let now_s = (self.desk().env().now_ms() / 1_000).to_string();
                let signature = wecom::crypt::sign(WC_TOKEN, &now_s, "n", &sealed);
                let path = format!("/wecom/wc?msg_signature={signature}&timestamp={now_s}&nonce=n");
                let body = format!("<xml><Encrypt>{sealed}</Encrypt></xml>").into_bytes();
                Request { path, bearer: String::new(), kind: "text/xml", body, headers: String::new() }
            }
            "POST /whatsapp/{bot}" => {
                let text =
                    json!({ "id": format!("wamid-{n}"), "from": PHONE_USER, "type": "text", "text": { "body": "x" } });
                let value = json!({ "metadata": { "phone_number_id": NUMBER_ID }, "messages": [text] });
                let entry = json!([{ "changes": [{ "field": "messages", "value": value }] }]);
                let body = json!({ "object": "whatsapp_business_account", "entry": entry }).to_string().into_bytes();
                let headers = format!("X-Hub-Signature-256: {}\r\n", whatsapp::signature::sign(PHONE_SECRET, &body));
                let (path, bearer) = ("/whatsapp/phone".into(), String::new());
                Request { path, bearer, kind: "application/json", body, headers }
            }
            "POST /interactions/{bot}" => {
                let body = json!({ "id": (n + 1).to_string(), "application_id": DC_BOT.to_string(), "type": 2,
                    "token": format!("aW50ZXJhY3Rpb24{n}"), "channel_id": DC_CHAT, "channel": { "id": DC_CHAT, "type": 1 },
                    "user": { "id": DC_USER, "username": "ann" }, "data": { "id": "1", "name": "ask", "type": 1 } });
                let body = body.to_string().into_bytes();
                let signed = discord::signature_headers(DC_BOT, desk.env().now_ms(), &body);
                let headers = signed.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
                let (path, bearer) = ("/interactions/dc".into(), String::new());
                Request { path, bearer, kind: "application/json", body, headers }
            }
            "POST /slack/{bot}/events" | "POST /slack/{bot}/commands" | "POST /slack/{bot}/interactions" => {
                let path = route.trim_start_matches("POST ").replace("{bot}", "sl");
                let (now_s, is_event) = (desk.env().now_s(), path.ends_with("events"));
                let (number, written_ts, asked_ts) = (n.to_string(), format!("{now_s}.{n:06}"), format!("{n}.1"));
                let event = json!({ "type": "message", "channel": SLACK_CHAT, "channel_type": "im", "user": "UANN",
                    "text": "x", "ts": written_ts });
                let who = json!([{ "team_id": "T1", "user_id": "UBOT", "is_bot": true }]);
                let press = json!({ "type": "block_actions", "user": { "id": "UANN" }, "channel": { "id": SLACK_CHAT },
                    "container": { "message_ts": asked_ts }, "actions": [{ "value": "hp1:p:y", "action_ts": "1.1" }] });
                let named = |parts: &[&str]| hex::encode(frontdesk_core::short_hash(parts));
                let (id, body) = match path.rsplit('/').next().unwrap() {
                    "events" => {
                        let callback = json!({ "type": "event_callback", "event": event, "authorizations": who });
                        (written_ts, callback.to_string())
                    }
                    "commands" => (
                        format!("command-{}", named(&[number.as_str(), "UANN", "/ask", ""])),
                        format!("team_id=T1&channel_id={SLACK_CHAT}&user_id=UANN&command=%2Fask&trigger_id={number}"),
                    ),
                    _ => (format!("press-{}", named(&[asked_ts.as_str(), "UANN", "1.1"])), format!("payload={press}")),
                };
                self.slack_ids.lock().unwrap().push(id);
                let signature = slack::signature(HOOK_KEY, now_s, body.as_bytes());
                let headers = format!("X-Slack-Request-Timestamp: {now_s}\r\nX-Slack-Signature: {signature}\r\n");
                let kind = if is_event { "application/json" } else { "application/x-www-form-urlencoded" };
                Request { path, bearer: String::new(), kind, body: body.into_bytes(), headers }
            }
            "POST /feishu/{bot}" => {
                let now_s = desk.env().now_s();
                let message = json!({ "message_id": format!("om_{n}"), "chat_id": "oc_ann", "chat_type": "p2p",
                    "message_type": "text", "content": "{\"text\":\"x\"}", "create_time": format!("{now_s}000") });
                let sender = json!({ "sender_id": { "user_id": "ann", "open_id": "ou_ann" }, "sender_type": "user" });
                let header =
                    json!({ "event_type": "im.message.receive_v1", "event_id": n.to_string(), "app_id": "cli_1" });
                let event = json!({ "message": message, "sender": sender });
                let body = feishu::sealed(HOOK_KEY, &json!({ "schema": "2.0", "header": header, "event": event }));
                let headers = format!(
                    "X-Lark-Request-Timestamp: {now_s}\r\nX-Lark-Request-Nonce: n\r\nX-Lark-Signature: {}\r\n",
                    feishu::signature(HOOK_KEY, now_s, "n", body.as_bytes())
                );
                let (path, bearer, body) = ("/feishu/fs".into(), String::new(), body.into_bytes());
                Request { path, bearer, kind: "application/json", body, headers }
            }
            "PUT /_matrix/app/v1/transactions/{txn}" => {
                let content = json!({ "msgtype": "m.text", "body": "x" });
                let event = json!({ "event_id": format!("$mx-{n}"), "room_id": MX_ROOM, "sender": ANN,
                    "type": "m.room.message", "content": content });
                let path = format!("/_matrix/app/v1/transactions/{n}");
                made(path, MX_TOKEN.into(), json!({ "events": [event] }))
            }
            "POST /_matrix/app/v1/ping" => made("/_matrix/app/v1/ping".into(), MX_TOKEN.into(), json!({})),
            "POST /admin/v1/tenants" => made("/admin/v1/tenants".into(), admin(), json!({ "name": format!("t-{n}") })),
            "POST /admin/v1/tokens" => {
                made("/admin/v1/tokens".into(), admin(), json!({ "tenant": t, "scope": "chat" }))
            }
            "DELETE /admin/v1/tokens/{id}" => {
                let id = desk.directory().create_token(&TenantId::from(t), Scope::Chat, None, None).await.unwrap().id;
                made(format!("/admin/v1/tokens/{id}"), admin(), Value::Null)
            }
            "POST /admin/v1/enrollment-tokens" => {
                made("/admin/v1/enrollment-tokens".into(), admin(), json!({ "tenant": t }))
            }
            "POST /admin/v1/bots" => {
                made("/admin/v1/bots".into(), admin(), json!({ "platform": "fake", "id": format!("bot-{n}") }))
            }
            "DELETE /admin/v1/bots/{platform}/{id}" => {
                let bot = json!({ "platform": "fake", "id": format!("gone-{n}") });
                desk.directory().bots().add(serde_json::from_value::<BotNew>(bot).unwrap()).await.unwrap();
                made(format!("/admin/v1/bots/fake/gone-{n}"), admin(), Value::Null)
            }
            "POST /admin/v1/routes" => {
                let body = json!({ "platform": "fake", "key": format!("r-{n}"), "tenant": t });
                made("/admin/v1/routes".into(), admin(), body)
            }
            "DELETE /admin/v1/routes/{platform}/{key}" => {
                let ask = RouteNew { platform: "fake".into(), key: format!("x-{n}"), tenant: t.into() };
                desk.directory().add_route(ask).await.unwrap();
                made(format!("/admin/v1/routes/fake/x-{n}"), admin(), Value::Null)
            }
            "POST /admin/v1/bindings" => {
                let body = serde_json::to_value(Self::link(&format!("bound-{n}"), &format!("bound-{n}"))).unwrap();
                made("/admin/v1/bindings".into(), admin(), body)
            }
            "DELETE /admin/v1/bindings" => {
                let link = Self::link(&format!("unbound-{n}"), "home-gw");
                desk.directory()
                    .bind(serde_json::from_value(serde_json::to_value(&link).unwrap()).unwrap())
                    .await
                    .unwrap();
                made("/admin/v1/bindings".into(), admin(), serde_json::to_value(link).unwrap())
            }
            "DELETE /admin/v1/grants" => {
                let ask = ScopeAsk {
                    platform: "relay".into(),
                    scope_id: "s".into(),
                    channel_id: format!("grant-{n}").into(),
                };
                let proven = desk.directory().prove_gateway(&gateway()).unwrap().proven_instance();
                desk.management().claim_scope(&proven, ask).await.unwrap();
                let body =
                    json!({ "tenant": t, "platform": "relay", "scope_id": "s", "channel_id": format!("grant-{n}") });
                made("/admin/v1/grants".into(), admin(), body)
            }
            "POST /admin/v1/gateways" => {
                made("/admin/v1/gateways".into(), admin(), json!({ "id": format!("added-{n}"), "tenant": t }))
            }
            "POST /admin/v1/gateways/{id}/rotate" => {
                self.gateway(&format!("rotate-{n}")).await;
                made(format!("/admin/v1/gateways/rotate-{n}/rotate"), admin(), Value::Null)
            }
            "POST /admin/v1/gateways/{id}/revoke" => {
                self.gateway(&format!("revoke-{n}")).await;
                made(format!("/admin/v1/gateways/revoke-{n}/revoke"), admin(), Value::Null)
            }
            "POST /admin/v1/mail/{id}/replay" => made("/admin/v1/mail/1.1/replay".into(), admin(), Value::Null),
            "POST /admin/v1/mail/{id}/drop" => {
                made(format!("/admin/v1/mail/1.{}/drop", n + 1), admin(), json!({ "reason": "a test" }))
            }
            "POST /admin/v1/alarms/{id}/replay" => {
                let id = self.dead_alarm(&format!("replay-{n}")).await;
                made(format!("/admin/v1/alarms/{id}/replay"), admin(), Value::Null)
            }
            "POST /admin/v1/signing-keys/rotate" => made("/admin/v1/signing-keys/rotate".into(), admin(), Value::Null),
            "POST /admin/v1/chat-link" => made("/admin/v1/chat-link".into(), admin(), json!({ "name": t })),
            "POST /admin/v1/backup" => {
                let file = self.harness.folder.path().join(format!("backup-{n}.db"));
                made("/admin/v1/backup".into(), admin(), json!({ "file": file }))
            }
            other => panic!("no request is known for {other}; add one here"),
        }
    }

    /// Sends the request and disconnects: after a part of it, or some time after all of it.
    async fn cut(&self, route: &str, request: Request, seed: u64) {
        let method = route.split(' ').next().unwrap();
        let Request { path, bearer, kind, body, headers } = request;
        let mut bytes = format!(
            "{method} {path} HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {bearer}\r\nContent-Type: {kind}\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(&body);
        let mut stream = TcpStream::connect(self.harness.url.trim_start_matches("http://")).await.unwrap();
        if seed.is_multiple_of(8) {
            bytes.truncate(usize::try_from(dice(seed)).unwrap_or(0) % bytes.len());
        }
        let _ = stream.write_all(&bytes).await; // the server may respond before it has read everything
        tokio::time::sleep(Duration::from_micros(dice(seed ^ 0xff) % CUT_TIME_US)).await;
        drop(stream);
    }
}

/// Read from the API description, so that a new route is tested automatically.
async fn changing_routes(harness: &Harness) -> Vec<String> {
    let page = harness.get("/openapi.json", "").await.expect(200);
    let mut routes = Vec::new();
    for (path, methods) in page["paths"].as_object().unwrap() {
        for method in ["post", "put", "patch", "delete"] {
            if methods.get(method).is_some() {
                routes.push(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    routes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cut_off_happens_completely_or_not_at_all() {
    let scene = Arc::new(Scene::open().await);
    let mut routes = changing_routes(&scene.harness).await;
    assert!(routes.len() > 50, "{routes:?}");
    // Last: the server looks for forgotten alarms each minute, and would find those that a cut has lost.
    routes.sort_by_key(|route| route.contains("/alarms/"));
    // Rows for the operator to drop: instance 1 is the first instance.
    for n in 0..CUTS * ROUNDS_MAX {
        scene.harness.say(&scene.account, "mail", &format!("row {n}")).await;
    }
    let resting = scene.harness.app.sessions.len();

    let (stop, posted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load = tokio::spawn({
        let (scene, stop, posted) = (scene.clone(), stop.clone(), posted.clone());
        async move {
            while !stop.load(Ordering::SeqCst) {
                scene.harness.say(&scene.account, "load", "x").await;
                posted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let mut met = scene.harness.metric(ABANDONED).await;
    for (at, route) in routes.iter().enumerate() {
        let met_before = met;
        let mut is_met = false;
        // Where a handler is quick, few cuts meet it: then there are more of them.
        for round in 0..ROUNDS_MAX {
            let room = Arc::new(Semaphore::new(AT_ONCE));
            let mut cuts = JoinSet::new();
            for n in round * CUTS..(round + 1) * CUTS {
                let (scene, route, room) = (scene.clone(), route.clone(), room.clone());
                cuts.spawn(async move {
                    let _turn = room.acquire_owned().await.unwrap();
                    let request = scene.request(&route, n).await;
                    scene.cut(&route, request, (at * CUTS * ROUNDS_MAX + n) as u64).await;
                });
            }
            cuts.join_all().await;
            let noticed = async {
                loop {
                    met = scene.harness.metric(ABANDONED).await; // the server may notice the last cuts later
                    let is_refused = is_shared() && route == "POST /admin/v1/backup"; // Postgres has backups of its own
                    if met >= met_before + CUTS_MET || is_refused || UNSTORED.contains(&route.as_str()) {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            scene.cuts.lock().unwrap().insert(route.clone(), (round + 1) * CUTS);
            is_met = timeout(TIME_LIMIT / 4, noticed).await.is_ok();
            if is_met {
                break;
            }
        }
        println!("{route}: {} of {} cuts met a running handler", met - met_before, scene.cuts_of(route));
        assert!(is_met, "too few cuts of {route} met a running handler");
    }
    stop.store(true, Ordering::SeqCst);
    load.await.unwrap();
    // Waits until all requests in progress have finished.
    let ended = async {
        while scene.harness.app.sessions.len() > resting {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TIME_LIMIT, ended).await.expect("requests did not finish");
    assert!(posted.load(Ordering::SeqCst) > 100, "too few messages were accepted meanwhile");

    compare(&scene).await;
    let Ok(scene) = Arc::try_unwrap(scene) else { panic!("a task still holds the scene") };
    let Scene { harness, .. } = scene;
    let before = stored(&harness.app.desk).await;
    let folder = harness.finish().await;
    let harness = Harness::again(folder, |_| {}).await;
    assert_same(&harness.app.desk.directory().read(View::records), &before);
    harness.finish().await;
}
