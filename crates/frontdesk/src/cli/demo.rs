//! `frontdesk demo`: a server with an example agent that goes idle, and a chat page.

use std::path::PathBuf;

use anyhow::Context as _;
use frontdesk_client::Dial;
use frontdesk_client::wake::WakeListener;
use frontdesk_core::directory::Identity;
use frontdesk_wire::api::{BindingNew, ProvisionRequest};
use frontdesk_wire::{BotId, Secret};

use super::demo_agent;
use super::serve::{keep_files_private, stop_on_signal};
use crate::app::{FIRST_TENANT, Frontdesk};
use crate::config::Config;
use crate::logging::{self, LogForm};
use crate::print::err_line;

const AGENT: &str = "demo-agent";

pub(super) async fn demo(port: u16, data_dir: Option<PathBuf>) -> anyhow::Result<()> {
    keep_files_private();
    logging::begin(LogForm::Text);
    let folder = match data_dir {
        Some(folder) => DemoFolder { folder, fresh: false },
        None => DemoFolder::fresh(),
    };
    let mut config = Config::load(None)?;
    config.data_dir.clone_from(&folder.folder);
    config.listen = format!("127.0.0.1:{port}");
    config.outcall.allow = vec!["127.0.0.1/32".into()]; // wake URL of the example agent
    config.wake.cooldown_ms = 1_000; // the agent goes idle often, and no other service is called
    config.relay.settle_ms = 0; // the agent is ready as soon as it has sent hello
    let desk = Frontdesk::open(&config).await?;
    let stop = desk.app.stop.clone();
    let dial = invite_agent(&desk).await?;

    crate::print::try_out(format_args!("frontdesk ready {}\n", desk.url));
    if let Some(link) = desk.chat_link() {
        err_line!("\n  Open this in your browser and type something:\n\n    {link}\n");
        err_line!("  The agent answers, goes to sleep after a few idle seconds, and is woken by your next message.");
        err_line!("  Press Ctrl-C to stop.\n");
    }
    tokio::spawn(stop_on_signal(stop.clone()));
    tokio::spawn(async move {
        let (dial, listener) = dial;
        tokio::select! {
            ended = demo_agent::live(dial, listener) => if let Err(error) = ended {
                tracing::error!(%error, "example agent failed");
            },
            () = stop.cancelled() => {}
        }
    });
    desk.serve().await;
    Ok(())
}

/// Carries out the operator's steps: provisions the agent, and links the page's user to it.
async fn invite_agent(desk: &Frontdesk) -> anyhow::Result<(Dial, WakeListener)> {
    let listener = WakeListener::listen(([127, 0, 0, 1], 0).into())
        .await
        .context("cannot listen for the example agent's wake calls")?;
    let who = Identity { tenant: FIRST_TENANT.into(), instance: Some(AGENT.into()) };
    let ask = ProvisionRequest {
        gateway_id: AGENT.into(),
        platform: "relay".into(),
        bot_id: BotId::default(),
        gateway_endpoint: None,
        route_keys: Vec::new(),
        instance_id: None,
        wake_url: Some(listener.url.clone()),
    };
    let provisioned = desk.app.desk.directory().provision(&who, ask).await?;
    let link = BindingNew {
        platform: "relay".into(),
        user_id: "you".into(),
        tenant: FIRST_TENANT.into(),
        instance: AGENT.into(),
    };
    desk.app.desk.directory().bind(link).await?;
    let dial = Dial {
        url: desk.url.clone(),
        gateway_id: AGENT.into(),
        secret: Secret::new(provisioned.secret),
        identities: vec![("relay".into(), String::new())],
    };
    Ok((dial, listener))
}

/// A folder that is removed at the end, unless the user named one.
struct DemoFolder {
    folder: PathBuf,
    fresh: bool,
}

impl DemoFolder {
    fn fresh() -> Self {
        let folder = std::env::temp_dir().join(format!("frontdesk-demo-{}", std::process::id()));
        Self { folder, fresh: true }
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        if self.fresh {
            let _ = std::fs::remove_dir_all(&self.folder); // a leftover in the temporary folder is harmless
        }
    }
}
