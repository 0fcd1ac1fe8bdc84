//! Puts the server together. The only place that names a concrete backend.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context as _, bail};
use frontdesk_connectors::Bundled;
use frontdesk_core::port::bus::{Bus, NoBus};
use frontdesk_core::port::platform::Platform;
use frontdesk_core::port::stores::Stores;
use frontdesk_core::vault::Sealer;
use frontdesk_core::{Desk, Env, Parts, RetentionDays};
use frontdesk_platforms::Kit;
use frontdesk_platforms::chat::BuiltInChat;
use frontdesk_store::bus::{notify_bus, redis_bus};
use frontdesk_store::portable::{ExportFile, ImportFile, Progress};
use frontdesk_store::postgres::{Clock, PostgresStore};
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_wire::Secret;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use frontdesk_store::portable::Report;

use crate::config::Config;
use crate::drain::Drain;
use crate::edge::{
    self, Answers, App, AppParts, Budgets, ConnectionLimits, page::Pages, scheduler_webhook::SchedulerWebhook,
};
use crate::env::SystemEnv;
use crate::identity::{AgentJwt, Verifier};
use crate::keys::{self, Keys};
use crate::outcall::GuardedClient;
use crate::work;

/// The tenant of a new data folder, so that nothing needs to be configured to begin.
pub const FIRST_TENANT: &str = "home";

/// Uploads of one tenant in progress: their bytes are not counted by a quota yet.
const UPLOADS_PER_TENANT: usize = 16;

/// A lease that is not given up in this time runs out by itself.
const RESIGN_TIME: Duration = Duration::from_secs(5);

/// A server that listens but does not serve yet.
pub struct Frontdesk {
    pub app: App,
    pub address: SocketAddr,
    pub url: String,
    listener: TcpListener,
    limits: ConnectionLimits,
    retention: RetentionDays,
    drain_time: Duration,
}

impl Frontdesk {
    pub async fn open(config: &Config) -> anyhow::Result<Self> {
        Self::open_by(config, Arc::new(SystemEnv)).await
    }

    /// With another clock than the machine's, which a test can move.
    pub async fn open_by(config: &Config, env: Arc<dyn Env>) -> anyhow::Result<Self> {
        Self::open_with(config, env, Vec::new()).await
    }

    /// With platforms besides the built-in ones.
    pub async fn open_with(config: &Config, env: Arc<dyn Env>, more: Vec<Arc<dyn Platform>>) -> anyhow::Result<Self> {
        let is_shared = !config.store.url.is_empty();
        let may_be_new = is_shared || SqliteStore::is_in(&config.data_dir) || config.fresh;
        let keys = keys::open(&config.data_dir, &config.keys, &*env, may_be_new)?;
        let (store, bus) = match is_shared {
            true => shared_store(config, &keys, &*env)?,
            false => embedded_store(config, &*env)?,
        };
        let listener = edge::listen(&config.listen).await.with_context(|| {
            format!("cannot listen on {}; is the port in use? (--listen 127.0.0.1:0 picks a free port)", config.listen)
        })?;
        let address = listener.local_addr()?;
        let url = format!("http://{address}");
        let public_url = match config.public_url.trim_end_matches('/') {
            "" => url.clone(),
            given => given.to_owned(),
        };
        let outcall = Arc::new(GuardedClient::new(&config.outcall.allow));
        let mut rules = config.rules();
        rules.issuer.clone_from(&public_url);
        config.skills.apply(&mut rules)?;
        let chat_rules = config.chat.rules(&rules, &public_url);
        let (log, media) = (store.chat.clone(), store.media.clone());
        let chat = BuiltInChat::new(env.clone(), log, media, outcall.clone(), bus.clone(), chat_rules);
        let chat = Arc::new(chat);
        let kit = Kit {
            env: env.clone(),
            outcall: outcall.clone(),
            media: store.media.clone(),
            public_url: public_url.clone(),
            settings: config.platform.clone(),
        };
        let mut platforms = frontdesk_platforms::in_the_box(&kit)?;
        platforms.push(chat.clone());
        platforms.extend(more);
        let page_key = keys.sealer.derive(&["chat pages"]);
        let agent_jwt = AgentJwt::open(&config.manage, env.clone(), outcall.clone()).await?;
        let identities = Verifier::open(&config.identity, env.clone(), outcall.clone()).await?;
        let connectors = Bundled { env: env.clone(), outcall: outcall.clone(), settings: config.agents.connectors() };
        let connectors = Arc::new(connectors);
        let parts = Parts { env, sealer: keys.sealer, outcall, platforms, connectors, bus, rules };
        let desk = Desk::open(store, parts).await?;
        let mut metrics = Registry::with_prefix("frontdesk");
        desk.meters().register(&mut metrics);
        let stop = CancellationToken::new();
        let app = App::new(AppParts {
            agent_jwt,
            identities,
            desk: Arc::new(desk),
            chat,
            admin_token: keys.admin_token,
            pages: Pages::new(&page_key),
            answers: Answers::new(config.server.answers_per_tenant_kib),
            replies: Budgets::new(config.server.answers_per_tenant_kib),
            uploads: Budgets::new(UPLOADS_PER_TENANT),
            readiness: edge::Readiness::default(),
            public_answers: edge::PublicAnswers::default(),
            body_memory: edge::BodyMemory::new(config.server.requests_per_tenant_kib),
            doors_refused: AtomicU64::default(),
            scheduler_webhook: SchedulerWebhook::new(&config.cron.relay_keys),
            limits: config.agents.limits()?,
            metrics,
            public_url,
            sessions: TaskTracker::new(),
            drain: Drain::new(&stop),
            stop,
        });
        let (limits, retention) = (config.server.limits(), config.retention());
        let drain_time = config.server.drain_time();
        let desk = Self { app, address, url, listener, limits, retention, drain_time };
        desk.first_start(config.chat.open_locally).await?;
        // The command line finds the server by this file.
        keys::write_private(&config.data_dir.join("url"), &desk.url)?;
        Ok(desk)
    }

    /// A new data folder gets one tenant, and its chat opens on this machine.
    async fn first_start(&self, open_locally: bool) -> anyhow::Result<()> {
        let desk = &self.app.desk;
        if desk.directory().read(|view| view.tenants().len() == 0 && view.unreadable().is_empty()) {
            desk.directory().create_tenant(&FIRST_TENANT.into()).await?;
        }
        let first = desk.directory().read(|view| view.tenants().next().map(|it| it.name.clone()));
        if let Some(tenant) = first.filter(|_| open_locally) {
            self.app.pages.open_locally(&tenant);
        }
        Ok(())
    }

    /// A link that opens the chat page once.
    pub fn chat_link(&self) -> Option<String> {
        let tenant = self.app.desk.directory().read(|view| view.tenants().next().map(|it| it.name.clone()))?;
        let code = self.app.pages.new_code(self.app.desk.env(), &tenant);
        Some(format!("{}/chat?code={code}", self.app.public_url))
    }

    pub fn admin_token(&self) -> &Secret {
        &self.app.admin_token
    }

    /// Serves until `app.drain` is asked to leave, or `app.stop` is cancelled, and all requests and tasks in progress
    /// have ended.
    pub async fn serve(self) {
        let app = self.app.clone();
        let AppParts { desk, sessions, stop, drain, .. } = &*app;
        let duties = work::begin(desk, self.retention, sessions, stop, drain.leaving());
        // The lease is kept until all work in progress has ended: until then no other server may take over.
        tokio::select! {
            () = edge::serve(self.listener, self.app, self.limits) => {}
            never = work::keep_lease(desk) => match never {},
            never = drain.run(desk, duties, self.drain_time) => match never {},
        }
        match tokio::time::timeout(RESIGN_TIME, desk.lease().resign()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "giving up the lease of this server failed; it expires by itself"),
            Err(_) => tracing::warn!("giving up the lease of this server took too long; it expires by itself"),
        }
    }
}

type Backend = (Stores, Arc<dyn Bus>);

fn embedded_store(config: &Config, env: &dyn Env) -> anyhow::Result<Backend> {
    let store = SqliteStore::open(&config.data_dir, epoch(env)).context("opening the database failed")?;
    Ok((Arc::new(store).into(), Arc::new(NoBus)))
}

/// A database that several servers use. They must have the same keys, so that each can open what the others seal.
fn shared_store(config: &Config, keys: &Keys, env: &dyn Env) -> anyhow::Result<Backend> {
    let url = &config.store.url;
    if !config.fresh {
        check_same_database(config)?;
    }
    let store = PostgresStore::open(url, epoch(env), Clock::Database).context("opening the database failed")?;
    let checks = [
        ("master key", key_check(&keys.sealer), "keys.master_file"),
        ("admin token", keys.sealer.derive(&["admin token check", keys.admin_token.expose()]), "keys.admin_token_file"),
    ];
    for (name, check, setting) in checks {
        if !store.is_agreed(name, &check).context("comparing the keys with the database failed")? {
            bail!(
                "the {name} of this server differs from the one that the database was created with: give all servers \
                 the same file ({setting})"
            );
        }
    }
    let store: Stores = Arc::new(store).into();
    let epoch = store.ledger.epoch();
    keys::write_private(&config.data_dir.join(DATABASE_FILE), &epoch.to_string())?;
    let bus = match config.bus.url.as_str() {
        "" => notify_bus(url, epoch),
        redis => redis_bus(redis, epoch),
    };
    let bus = bus.context("starting the bus failed")?;
    Ok((store, Arc::new(bus)))
}

/// In the data folder: the epoch of the shared database that the server used last.
const DATABASE_FILE: &str = "database";

/// In an empty or another database all gateways are unknown, and they take that for a revocation. A typing error in the
/// address, or a fail-over to an empty server, must not create a new one.
fn check_same_database(config: &Config) -> anyhow::Result<()> {
    let known = std::fs::read_to_string(config.data_dir.join(DATABASE_FILE)).unwrap_or_default();
    if known.is_empty() {
        return Ok(()); // the folder is new, as that of each server that is added may be
    }
    let found = PostgresStore::epoch_at(&config.store.url).context("opening the database failed")?;
    let what = match found {
        Some(epoch) if epoch.to_string() == known.trim() => return Ok(()),
        Some(_) => "is not the one that this server used before",
        None => "is empty, and this server used one before",
    };
    bail!(
        "the database at store.url {what} ({}): all known gateways would be rejected as unknown. Check the address, or \
         restore the database; if the change is intended, start once with --new",
        config.data_dir.display()
    )
}

/// Tells one master key from another.
fn key_check(sealer: &Sealer) -> String {
    sealer.derive(&["key check"])
}

/// For a new database.
fn epoch(env: &dyn Env) -> u32 {
    let mut seed = [0; 4];
    env.fill(&mut seed);
    u32::from_be_bytes(seed)
}

/// Repairs problems that a start refuses, in a data folder that no server uses. Returns a sentence for each repair.
pub fn repair(config: &Config) -> anyhow::Result<Vec<String>> {
    SqliteStore::repair(&config.data_dir).context("repairing the database failed")
}

/// Writes everything that the store has to a file. The second number counts media files that were not there any more.
pub fn export(config: &Config, to: &Path, report: Report) -> anyhow::Result<(Progress, usize)> {
    let file = ExportFile::create(to, report).context("creating the file failed")?;
    let done = match config.store.url.as_str() {
        "" => {
            let key = keys::master(&config.data_dir, &config.keys)?;
            SqliteStore::export(&config.data_dir, key.as_ref().map(key_check), file)
        }
        url => PostgresStore::export(url, file).map(|done| (done, 0)),
    };
    done.context("the export failed")
}

/// Fills an empty store from a file. The file is checked first, so that nothing is written from a damaged one.
pub fn import(config: &Config, from: &Path, mut report: impl FnMut(&str) -> Report) -> anyhow::Result<Progress> {
    ImportFile::open(from, report("checked"))?.check()?;
    let file = ImportFile::open(from, report("imported"))?;
    let key = keys::master(&config.data_dir, &config.keys)?;
    match (file.key_check(), key) {
        (Some(check), Some(key)) if key_check(&key) != check => bail!(
            "the file was exported from a server with another master key, so its secrets cannot be decrypted: use the \
             master.key of that server"
        ),
        (Some(_), None) if config.store.url.is_empty() => bail!(
            "{} has no master.key: copy that of the exported server there first, the file has secrets that were sealed \
             with it",
            config.data_dir.display()
        ),
        _ => {}
    }
    let done = match config.store.url.as_str() {
        "" => SqliteStore::import(&config.data_dir, file),
        url => PostgresStore::import(url, file),
    };
    done.context("the import failed; nothing was written")
}
