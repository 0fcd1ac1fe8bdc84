//! Several servers over one Postgres.

use std::time::Duration;

use frontdesk_testkit::postgres::TestSchema;
use frontdesk_testkit::proxy::{CUT_TO_CLIENT, CUT_TO_SERVER, Proxy};
use frontdesk_testkit::redis;

use super::{Desk, GatewayAccount, Socket, until};

/// Long, because it costs nothing where all is well, and slow machines stall for seconds.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// What carries hints between the servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusKind {
    Notify,
    Redis,
    /// Redis does not answer any more from the moment at which all servers run: they hear nothing of each other.
    RedisCut,
}

/// Servers that share a schema and keys.
pub(crate) struct Cluster {
    pub(crate) desks: Vec<Desk>,
    bus: BusKind,
    // Dropped after the servers.
    keys: tempfile::TempDir,
    pub(crate) schema: TestSchema,
    _redis: Option<Proxy>,
}

impl Cluster {
    pub(crate) async fn start(names: &[&str], settings: &[(&str, &str)]) -> Self {
        Self::start_over(BusKind::Notify, names, settings).await
    }

    pub(crate) async fn start_over(bus: BusKind, names: &[&str], settings: &[(&str, &str)]) -> Self {
        let (schema, keys) = (TestSchema::create(), tempfile::tempdir().unwrap());
        let file = |name: &str| keys.path().join(name).to_str().unwrap().to_owned();
        let (url, master, admin) = (schema.url(), file("master.key"), file("admin.token"));
        let (redis, bus_url) = match bus {
            BusKind::Notify => (None, String::new()),
            BusKind::Redis => (None, redis::url()),
            BusKind::RedisCut => {
                let (proxy, url) = Proxy::before(&redis::url()).await;
                (Some(proxy), url)
            }
        };
        let mut desks = Vec::new();
        for name in names {
            let shared = [
                ("STORE_URL", url.as_str()),
                ("BUS_URL", &bus_url),
                ("KEYS_MASTER_FILE", &master),
                ("KEYS_ADMIN_TOKEN_FILE", &admin),
                ("PUBLIC_URL", "http://desk.example"),
                ("DESK_NAME", name),
            ];
            desks.push(Desk::start(&[&shared, settings].concat()).await);
        }
        // Each has read what the others wrote at their start.
        let list = desks[0].api.look("/admin/v1/desks").await;
        assert_eq!(list["desks"].as_array().unwrap().len(), names.len(), "{list}");
        if let Some(proxy) = &redis {
            proxy.cut(CUT_TO_CLIENT | CUT_TO_SERVER);
        }
        Self { desks, bus, keys, schema, _redis: redis }
    }

    /// Starts one more server, which must be refused. Returns what it says.
    pub(crate) fn refused_start(&self) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| self.keys.path().join(name);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_frontdesk"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
        command.env("FRONTDESK_STORE_URL", self.schema.url()).env("FRONTDESK_PUBLIC_URL", "http://desk.example");
        command.env("FRONTDESK_KEYS_MASTER_FILE", file("master.key"));
        command.env("FRONTDESK_KEYS_ADMIN_TOKEN_FILE", file("admin.token"));
        let said = command.output().unwrap();
        assert!(!said.status.success(), "it started");
        String::from_utf8_lossy(&said.stderr).into_owned()
    }

    pub(crate) fn logs(&self) -> String {
        self.desks.iter().map(Desk::log).collect::<Vec<_>>().join("\n---\n")
    }

    /// The last server hears the bus, if there is one.
    pub(crate) async fn check_bus(&self) {
        let (api, cut_off) = (&self.desks.last().unwrap().api, u64::from(self.bus == BusKind::RedisCut));
        let is_known = async || (api.metric("frontdesk_bus_deaf").await == cut_off).then_some(());
        until("whether the bus delivers", SOON, is_known).await;
    }
}

/// Connects as soon as the server knows the gateway.
pub(crate) async fn dial(desk: &Desk, account: &GatewayAccount) -> Socket {
    until("the gateway can connect", SOON, async || Socket::dial(&desk.api.url, account).await.ok()).await
}
