//! The listeners of one bot in front of the fake, one for each shard, and what they hand over. They are stopped and started
//! again with the cursors that they saved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, Outcall, OutcallError};
use frontdesk_core::port::platform::{
    ActingAs, Bot, Change, Gap, Inlet, LateReceipt, ListenEnd, Part, Partitioned as _, Platform as _,
};
use frontdesk_core::port::store::StoreError;
use frontdesk_core::{DeskError, Env as _};
use frontdesk_platforms::discord::Discord;
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::fakes::discord::{
    FakeDiscord, Fault, FaultRule, GatewaySettings, Limits, RestRequest, Server, SocketFault, Transport,
};
use frontdesk_wire::{EventId, Secret, TenantId};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) const TOKEN: &str = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-the-first-bot-of-the-fake-x";
pub(crate) const BOT: u64 = 1_100_000_000_000_000_001;
pub(crate) const ANN: u64 = 1_100_000_000_000_000_011;
pub(crate) const GUILD: u64 = 1_100_000_000_000_000_100;
pub(crate) const OTHER_GUILD: u64 = GUILD + (1 << 22); // on the next shard
pub(crate) const ROLE: u64 = 1_100_000_000_000_000_150;
pub(crate) const GENERAL: u64 = 1_100_000_000_000_000_101;
pub(crate) const FORUM: u64 = 1_100_000_000_000_000_102;
pub(crate) const HIDDEN: u64 = 1_100_000_000_000_000_103;
pub(crate) const MUTE: u64 = 1_100_000_000_000_000_104;
pub(crate) const OTHER: u64 = 1_100_000_000_000_000_105;
const BASE: &str = "http://127.0.0.1:9/api/v10";
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// Calls of the API go to the fake without a socket.
struct ToFake {
    fake: FakeDiscord,
    env: Arc<TestEnv>,
}

impl Outcall for ToFake {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            let method = match call.method {
                HttpMethod::Get => "GET",
                HttpMethod::Post => "POST",
                other => panic!("{other:?}"),
            };
            let body = if let Body::Json(text) = call.body { serde_json::from_str(text).unwrap() } else { Value::Null };
            let path = call.url.strip_prefix(BASE).unwrap_or_else(|| panic!("{} is elsewhere", call.url));
            let response = self.fake.handle(self.env.now_ms(), &RestRequest::new(method, path, TOKEN, body));
            tokio::time::sleep(Duration::from_millis(response.delay_ms)).await;
            let body = match response.transport {
                Transport::Dropped => return Err(OutcallError::Failed("the connection was closed".into())),
                Transport::Html(page) => page.into_bytes(),
                Transport::Whole => response.body.to_string().into_bytes(),
                Transport::Cut => b"{\"id\":".to_vec(),
            };
            let headers = response.headers.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
            Ok(HttpAnswer { status: response.status, headers, body })
        })
    }
}

/// One event that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) chat_name: Option<String>,
    pub(crate) addressed: bool,
    /// How often it came; the ledger stores it once.
    pub(crate) times: usize,
    edit_id: Option<String>,
}

#[derive(Default)]
struct Records {
    taken: Vec<Taken>,
    gaps: Vec<Gap>,
    /// As many as the bot has shards.
    cursors: BTreeMap<Part, String>,
}

#[derive(Default)]
pub(crate) struct Recorder {
    records: Mutex<Records>,
    changes: watch::Sender<u64>,
}

impl Recorder {
    fn change<T>(&self, with: impl FnOnce(&mut Records) -> T) -> T {
        let result = with(&mut self.records.lock().unwrap());
        self.changes.send_modify(|count| *count += 1);
        result
    }

    fn put(&self, intake: &Intake) -> bool {
        let event = &intake.event;
        let id = event.message_id.clone().unwrap();
        self.change(|records| {
            let mut known = records.taken.iter_mut();
            if let Some(known) = known.find(|it| it.id == id && it.edit_id == intake.edit_id) {
                known.times += 1;
                return false;
            }
            records.taken.push(Taken {
                id: id.to_string(),
                text: event.text.clone(),
                chat_name: event.source.chat_name.clone(),
                addressed: intake.addressed,
                times: 1,
                edit_id: intake.edit_id.clone(),
            });
            true
        })
    }
}

impl Recorder {
    fn cursor(&self, part: Part) -> Option<String> {
        self.records.lock().unwrap().cursors.get(&part).cloned()
    }

    /// 0: the bot did not listen yet.
    fn count(&self) -> u32 {
        self.records.lock().unwrap().cursors.keys().next().map_or(0, |part| part.count)
    }
}

/// What one shard hands over.
struct PartInlet {
    recorder: Arc<Recorder>,
    part: Part,
}

impl Inlet for PartInlet {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        let verdict = || serde_json::from_value(json!({ "outcome": "delivered", "text": "" })).unwrap();
        let receipt = |fresh| Receipt { event_id: EventId(1), verdict: verdict(), fresh, line: None };
        let taken = intakes.iter().map(|intake| Ok(receipt(self.recorder.put(intake)))).collect();
        Box::pin(std::future::ready(Ok(taken)))
    }

    fn changed(&self, _: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn receipt<'a>(&'a self, _: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    fn gap(&self, gap: Gap) {
        self.recorder.change(|records| records.gaps.push(gap));
    }

    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>> {
        self.recorder.change(|records| records.cursors.insert(self.part, cursor));
        Box::pin(std::future::ready(Ok(())))
    }
}

pub(crate) struct Scene {
    pub(crate) fake: FakeDiscord,
    pub(crate) env: Arc<TestEnv>,
    _server: Server,
    /// Of each server.
    discords: [Arc<Discord>; 2],
    bot: Arc<Bot>,
    inlet: Arc<Recorder>,
    task: Option<JoinHandle<ListenEnd>>,
}

impl Scene {
    /// A bot with a role in two guilds, which are on different shards if there are two.
    pub(crate) async fn new(settings: GatewaySettings) -> Self {
        let env = Arc::new(TestEnv::default());
        let fake = FakeDiscord::new();
        fake.set_limits(Limits::off());
        fake.set_gateway(settings);
        let server = fake.clone().serve_with(env.clone()).await.unwrap();
        let kit = Kit {
            env: env.clone(),
            outcall: Arc::new(ToFake { fake: fake.clone(), env: env.clone() }),
            media: Arc::new(NoMedia),
            public_url: String::new(),
            settings: toml::Table::new(),
        };
        let secrets = [("token".to_owned(), Secret::new(TOKEN))].into();
        let settings = [("base_url", BASE), ("gateway_url", &server.gateway_url)];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let scene = Self {
            discords: [Arc::new(Discord::new(&kit)), Arc::new(Discord::new(&kit))],
            bot: Arc::new(Bot::new("dc", Some("home".into()), settings, secrets)),
            inlet: Arc::default(),
            task: None,
            _server: server,
            fake,
            env,
        };
        scene.act(json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk"}));
        scene.act(json!({"act": "add_user", "id": ANN, "username": "ann", "global_name": "Ann Bee"}));
        let deny = |bits: u64| json!([{"id": GUILD.to_string(), "type": 0, "allow": "0", "deny": bits.to_string()}]);
        let members = json!([{"user": BOT, "roles": [ROLE]}, {"user": ANN}]);
        scene.act(json!({"act": "add_guild", "id": GUILD, "name": "Guild", "owner": ANN, "members": members,
            "roles": [{"id": ROLE, "name": "Team", "mentionable": true}],
            "channels": [{"id": GENERAL, "name": "general"}, {"id": FORUM, "name": "ideas", "kind": "forum"},
                {"id": HIDDEN, "name": "hidden", "permission_overwrites": deny(1 << 10)},
                {"id": MUTE, "name": "mute", "permission_overwrites": deny(1 << 16)}]}));
        scene.act(json!({"act": "add_guild", "id": OTHER_GUILD, "name": "Other", "owner": ANN,
            "members": [{"user": BOT}, {"user": ANN}], "channels": [{"id": OTHER, "name": "other"}]}));
        scene
    }

    /// One shard, and sessions that may begin at any time.
    pub(crate) async fn plain() -> Self {
        Self::new(Self::settings()).await
    }

    pub(crate) fn settings() -> GatewaySettings {
        GatewaySettings { identify_every_ms: 0, max_concurrency: 0, ..GatewaySettings::default() }
    }

    /// With the cursor that was saved last. Returns when the sockets are connected.
    pub(crate) async fn start(&mut self) {
        let before = self.last_call();
        self.begin();
        self.connected_after(before, 1).await;
    }

    /// As the server does it: with as many shards as are wanted, whose cursors are divided if these are others than before.
    pub(crate) fn begin(&mut self) {
        let (discord, bot, inlet) = (self.discords[0].clone(), self.bot.clone(), self.inlet.clone());
        self.task = Some(tokio::spawn(async move {
            let had = inlet.count();
            let count = match discord.count(&bot, had.max(1), inlet.cursor(Part::WHOLE).as_deref()).await {
                Ok(count) => count,
                Err(ended) => return ended,
            };
            if count != had {
                let cursors: Vec<_> = Part::all(had).map(|part| inlet.cursor(part)).collect();
                let divided = Part::all(count).zip(discord.divide(&cursors, count)).collect();
                inlet.change(|records| records.cursors = divided);
            }
            listen(discord, bot, inlet, Part::all(count).collect()).await
        }));
    }

    /// One of two servers runs these shards.
    pub(crate) fn run_at(&self, server: usize, parts: &[Part]) -> JoinHandle<ListenEnd> {
        tokio::spawn(listen(self.discords[server].clone(), self.bot.clone(), self.inlet.clone(), parts.to_vec()))
    }

    /// Who sees what, as one of the servers says.
    pub(crate) async fn sees(&self, server: usize, channel: u64, person: u64) -> Option<bool> {
        let home = TenantId::from("home");
        let acting_as = ActingAs::new(&home, &self.bot);
        let (channel, person) = (channel.to_string().into(), person.to_string().into());
        self.discords[server].look(acting_as, &channel, Some(&person)).await.unwrap().unwrap().visible
    }

    /// Sets the position of the bot.
    pub(crate) fn set_cursor(&self, part: Part, cursor: &Value) {
        self.inlet.change(|records| records.cursors.insert(part, cursor.to_string()));
    }

    /// The saved cursor of a part.
    pub(crate) fn cursor(&self, part: Part) -> Value {
        serde_json::from_str(&self.inlet.cursor(part).unwrap()).unwrap()
    }

    /// At any point, as when the server is killed.
    pub(crate) async fn stop(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        assert!(task.await.is_err(), "it ended by itself");
        let gone = |fake: &FakeDiscord| {
            let sessions = fake.sessions(Some(BOT));
            (!sessions.as_array().unwrap().iter().any(|it| it["is_connected"] == true)).then_some(())
        };
        timeout(TIME_LIMIT, self.fake.wait_for(gone)).await.expect("the socket stays open");
    }

    /// How the listener ended by itself.
    pub(crate) async fn ended(&mut self) -> ListenEnd {
        timeout(TIME_LIMIT, self.task.take().unwrap()).await.expect("it goes on").unwrap()
    }

    pub(crate) async fn connected_after(&self, call: u64, count: usize) {
        let is_there = |fake: &FakeDiscord| (connects(&fake.calls_after(call)).len() >= count).then_some(());
        timeout(TIME_LIMIT, self.fake.wait_for(is_there)).await.expect("the bot does not connect");
    }

    /// Waits until a socket was accepted.
    pub(crate) async fn dialled_after(&self, call: u64) {
        let is_dialled = |fake: &FakeDiscord| {
            fake.calls_after(call).iter().any(|call| call.method == "gateway connect").then_some(())
        };
        timeout(TIME_LIMIT, self.fake.wait_for(is_dialled)).await.expect("the bot does not dial");
    }

    /// `identify` and `resume`, in order.
    pub(crate) fn connects_after(&self, call: u64) -> Vec<String> {
        connects(&self.fake.calls_after(call))
    }

    pub(crate) fn last_call(&self) -> u64 {
        self.fake.calls_after(0).last().map_or(0, |call| call.number)
    }

    /// Paths of REST calls.
    pub(crate) fn asked_after(&self, call: u64) -> Vec<String> {
        let calls = self.fake.calls_after(call).into_iter().filter(|call| call.method.starts_with("GET"));
        calls.map(|call| call.path).collect()
    }

    pub(crate) fn act(&self, act: Value) -> Value {
        let text = act.to_string();
        let done = self.fake.act(self.env.now_ms(), serde_json::from_value(act).unwrap());
        done.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub(crate) fn say(&self, channel: u64, text: &str) -> Value {
        self.act(json!({"act": "say", "channel": channel, "from": ANN, "text": text}))
    }

    pub(crate) fn say_directly(&self, text: &str) -> Value {
        self.act(json!({"act": "say", "bot": BOT, "from": ANN, "text": text}))
    }

    pub(crate) fn trouble(&self, fault: &SocketFault) {
        self.fake.socket_fault(BOT, fault);
    }

    pub(crate) fn fault(&self, method: &str, fault: Fault, times: u32) {
        self.fake.fault(FaultRule { method: method.into(), fault, times });
    }

    async fn wait(&self, what: &str, is_so: impl Fn(&Records) -> bool) {
        let mut changes = self.inlet.changes.subscribe();
        let waited = timeout(TIME_LIMIT, async {
            while !is_so(&self.inlet.records.lock().unwrap()) {
                changes.changed().await.unwrap();
            }
        });
        let state =
            || format!("{what}: {:?} {:?} {:?}", self.texts(), self.gaps(), self.inlet.records.lock().unwrap().cursors);
        waited.await.unwrap_or_else(|_| panic!("{}", state()));
    }

    /// Waits until all of these were taken, and nothing else.
    pub(crate) async fn has_taken(&self, wanted: &[&str]) {
        let sorted = |texts: Vec<String>| {
            let mut texts = texts;
            texts.sort();
            texts
        };
        let wanted = sorted(wanted.iter().map(|text| (*text).to_owned()).collect());
        self.wait("not all was taken", |records| records.taken.len() >= wanted.len()).await;
        assert_eq!(sorted(self.texts()), wanted);
    }

    pub(crate) async fn has_gaps(&self, count: usize) {
        self.wait("a gap is not told", |records| records.gaps.len() >= count).await;
    }

    /// Waits until nothing is left to read back.
    pub(crate) async fn has_read_back(&self) {
        self.wait("reading back does not end", |records| {
            let is_read = |cursor: &String| {
                let cursor: Value = serde_json::from_str(cursor).unwrap();
                let (missed, former) = (&cursor["missed"], &cursor["former"]);
                former.is_null() && missed["guilds"] == json!({}) && missed["directs"] == json!({})
            };
            !records.cursors.is_empty() && records.cursors.values().all(is_read)
        })
        .await;
    }

    /// Waits until a saved cursor is so.
    pub(crate) async fn has_saved(&self, is_so: impl Fn(&Value) -> bool) {
        self.wait("the cursor is not saved", |records| {
            records.cursors.values().any(|it| is_so(&serde_json::from_str(it).unwrap()))
        })
        .await;
    }

    /// Waits until the saved cursor of this part is so.
    pub(crate) async fn has_saved_of(&self, part: Part, is_so: impl Fn(&Value) -> bool) {
        self.wait("the cursor is not saved", |records| {
            records.cursors.get(&part).is_some_and(|it| is_so(&serde_json::from_str(it).unwrap()))
        })
        .await;
    }

    pub(crate) fn forget_cursors(&self) {
        self.inlet.change(|records| records.cursors.clear());
    }

    pub(crate) fn taken(&self) -> Vec<Taken> {
        self.inlet.records.lock().unwrap().taken.clone()
    }

    fn texts(&self) -> Vec<String> {
        self.taken().into_iter().map(|it| it.text).collect()
    }

    pub(crate) fn gaps(&self) -> Vec<String> {
        self.inlet.records.lock().unwrap().gaps.iter().map(|gap| gap.reason.clone()).collect()
    }
}

/// Until the first of them ends.
async fn listen(discord: Arc<Discord>, bot: Arc<Bot>, recorder: Arc<Recorder>, parts: Vec<Part>) -> ListenEnd {
    let inlets: Vec<_> = parts.iter().map(|part| PartInlet { recorder: recorder.clone(), part: *part }).collect();
    let mut running: FuturesUnordered<_> =
        inlets.iter().map(|inlet| discord.listen(&bot, inlet.part, recorder.cursor(inlet.part), inlet)).collect();
    running.next().await.unwrap()
}

fn connects(calls: &[frontdesk_testkit::fakes::discord::CallRecord]) -> Vec<String> {
    let names = calls.iter().filter_map(|call| call.method.strip_prefix("gateway "));
    names.filter(|name| matches!(*name, "identify" | "resume")).map(str::to_owned).collect()
}
