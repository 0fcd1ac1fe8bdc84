//! A server to measure, with agents, and the load process beside it.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use frontdesk_core::Desk;
use frontdesk_core::directory::Identity;
use frontdesk_wire::api::{BindingNew, ProvisionRequest};
use frontdesk_wire::{BotId, TenantId};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::app::{FIRST_TENANT, Frontdesk};
use crate::config::Config;

pub(super) struct Stage {
    /// The first server, which makes the agents.
    pub(super) app: crate::edge::App,
    pub(super) url: String,
    /// The others on the same store.
    pub(super) others: Vec<(crate::edge::App, String)>,
    pub(super) gateways: Vec<Gateway>,
    folder: PathBuf,
    serving: Vec<tokio::task::JoinHandle<()>>,
}

/// One agent's credential.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Gateway {
    pub(super) id: String,
    pub(super) secret: String,
}

/// Where each agent has a tenant of its own.
pub(super) fn tenant_of(number: u64) -> TenantId {
    format!("tenant-{number}").into()
}

impl Stage {
    pub(super) async fn open() -> anyhow::Result<Self> {
        Self::open_shared(1, "", "").await
    }

    /// Several servers in this process, each with its own connections to the store.
    pub(super) async fn open_shared(desks: usize, store: &str, bus: &str) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("frontdesk-bench-{}", std::process::id()));
        let mut config = Config::load(None)?;
        config.listen = "127.0.0.1:0".into();
        config.relay.settle_ms = 0; // the load is ready when it says hello
        (config.store.url, config.bus.url) = (store.to_owned(), bus.to_owned());
        if !store.is_empty() {
            // Beside the folder: the keys of a shared store outlive a run.
            let keys = std::env::temp_dir().join("frontdesk-bench-keys");
            std::fs::create_dir_all(&keys)?;
            config.keys.master_file = keys.join("master.key");
            config.keys.admin_token_file = keys.join("admin.token");
        }
        let (mut apps, mut serving) = (Vec::new(), Vec::new());
        for number in 0..desks.max(1) {
            config.data_dir = if desks > 1 { folder.join(number.to_string()) } else { folder.clone() };
            config.desk.name = format!("bench-{number}");
            let desk = Frontdesk::open(&config).await?;
            apps.push((desk.app.clone(), desk.url.clone()));
            serving.push(tokio::spawn(desk.serve()));
        }
        let (app, url) = apps.remove(0);
        Ok(Self { app, url, others: apps, gateways: Vec::new(), folder, serving })
    }

    /// All servers.
    pub(super) fn desks(&self) -> Vec<Arc<Desk>> {
        let others = self.others.iter().map(|(app, _)| app.desk.clone());
        std::iter::once(self.app.desk.clone()).chain(others).collect()
    }

    pub(super) fn urls(&self) -> Vec<String> {
        let others = self.others.iter().map(|(_, url)| url.clone());
        std::iter::once(self.url.clone()).chain(others).collect()
    }

    /// Waits until the other servers know the agents.
    pub(super) async fn agree(&self) -> anyhow::Result<()> {
        for (app, _) in &self.others {
            app.desk.directory().refresh().await?;
            app.desk.lease().renew().await?;
        }
        self.app.desk.lease().renew().await?; // it learns of the others
        Ok(())
    }

    /// Agents `a0`..: each provisioned, each with one linked person `u0`.. and their chat `c0`...
    pub(super) async fn provision(&mut self, count: usize) -> anyhow::Result<()> {
        self.provision_in(count, |_| FIRST_TENANT.into()).await
    }

    /// The same, each in the tenant that is named for its number, which is there.
    pub(super) async fn provision_in(
        &mut self,
        count: usize,
        tenant_of: impl Fn(usize) -> TenantId,
    ) -> anyhow::Result<()> {
        for number in self.gateways.len()..count {
            let (id, tenant) = (format!("a{number}"), tenant_of(number));
            let who = Identity { tenant: tenant.clone(), instance: Some(id.as_str().into()) };
            let ask = ProvisionRequest {
                gateway_id: id.clone().into(),
                platform: "relay".into(),
                bot_id: BotId::default(),
                gateway_endpoint: None,
                route_keys: Vec::new(),
                instance_id: None,
                wake_url: None,
            };
            let provisioned = self.app.desk.directory().provision(&who, ask).await?;
            let link = BindingNew {
                platform: "relay".into(),
                user_id: format!("u{number}").into(),
                tenant: tenant.clone(),
                instance: id.clone().into(),
            };
            self.app.desk.directory().bind(link).await?;
            self.app.chat.change_facts(&tenant, &format!("c{number}").into(), |_| true).await?;
            self.gateways.push(Gateway { id, secret: provisioned.secret });
        }
        Ok(())
    }

    pub(super) async fn close(self) {
        self.app.stop.cancel();
        self.others.iter().for_each(|(app, _)| app.stop.cancel());
        for serving in self.serving {
            let _ = serving.await; // a panic of the server has been printed already
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The load process: told once what to do, answers in JSON lines.
pub(super) struct LoadProcess {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl LoadProcess {
    pub(super) async fn start(orders: &impl Serialize) -> anyhow::Result<Self> {
        Self::start_as("bench-load", orders).await
    }

    pub(super) async fn start_as(verb: &str, orders: &impl Serialize) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(verb)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting the load process failed")?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        stdin.write_all(serde_json::to_string(orders)?.as_bytes()).await?;
        drop(stdin); // the end of its input: it begins
        let said = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Self { child, said })
    }

    pub(super) async fn next<T: serde::de::DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        match self.said.next_line().await? {
            Some(line) => {
                serde_json::from_str(&line).with_context(|| format!("unexpected output of the load process: {line:?}"))
            }
            None => bail!("the load process exited early"),
        }
    }

    /// Its number; 0 if it has ended.
    pub(super) fn id(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    pub(super) async fn end(mut self) {
        let _ = self.child.kill().await; // it may have ended by itself
    }
}
