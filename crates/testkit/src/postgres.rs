//! A schema of its own in the private Postgres that the test command starts.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::NoTls;

/// Names the server: `postgres://user@host:port/database`.
const SERVER: &str = "FRONTDESK_TEST_POSTGRES";

/// Set to `postgres`, the end-to-end tests run over it instead of the embedded store; set to `postgres+redis`, with Redis
/// as the bus; set to `postgres+cut`, with a Redis that cannot be reached.
const STORE: &str = "FRONTDESK_TEST_STORE";

/// Nothing listens on this port of the loopback interface.
const UNREACHABLE: &str = "redis://127.0.0.1:9";

/// The shared store and bus of a server under test. An empty `bus`: the one that the store has.
pub struct Shared {
    pub store: String,
    pub bus: String,
}

/// What the server of this data folder uses, if tests run over Postgres. Its tables are in a schema that is named for the
/// folder, so that a server that starts again finds them. It stays until the private server goes.
pub fn shared(data_dir: &std::path::Path) -> Option<Shared> {
    let bus = match std::env::var(STORE).ok()?.as_str() {
        "postgres" => String::new(),
        "postgres+redis" => crate::redis::url(),
        "postgres+cut" => UNREACHABLE.into(),
        other => panic!("{STORE} is not postgres, postgres+redis or postgres+cut, but {other:?}"),
    };
    let name = data_dir.to_string_lossy().replace(|letter: char| !letter.is_ascii_alphanumeric(), "_").to_lowercase();
    let schema = TestSchema { server: server(), name: format!("t{name}") };
    run(&schema.server, format!("CREATE SCHEMA IF NOT EXISTS {}", schema.name));
    let store = schema.url();
    std::mem::forget(schema);
    Some(Shared { store, bus })
}

pub fn server() -> String {
    std::env::var(SERVER).unwrap_or_else(|_| {
        panic!("{SERVER} is not set; `./scripts/test postgres` starts a private server and prints its address")
    })
}

/// An empty schema, dropped with its content at the end.
pub struct TestSchema {
    server: String,
    name: String,
}

/// Of the schemas of this process.
static LAST: AtomicU64 = AtomicU64::new(0);

impl TestSchema {
    pub fn create() -> Self {
        let server = server();
        let name = format!("test_{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
        run(&server, format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"));
        Self { server, name }
    }

    /// The address under which a store finds this schema.
    pub fn url(&self) -> String {
        let joint = if self.server.contains('?') { '&' } else { '?' };
        format!("{}{joint}options=-csearch_path%3D{}", self.server, self.name)
    }

    /// Runs statements in the schema.
    pub fn run(&self, sql: &str) {
        run(&self.server, format!("SET search_path = {}; {sql}", self.name));
    }
}

impl Drop for TestSchema {
    fn drop(&mut self) {
        run(&self.server, format!("SET lock_timeout = '5s'; DROP SCHEMA IF EXISTS {} CASCADE", self.name));
    }
}

/// Runs statements. On a thread of its own: tests call it inside and outside of a runtime.
pub fn run(server: &str, sql: String) {
    let server = server.to_owned();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&server, NoTls).await.expect("the private Postgres");
            tokio::spawn(connection);
            client.batch_execute(&sql).await.expect("statements of a test");
        });
    });
    thread.join().unwrap();
}
