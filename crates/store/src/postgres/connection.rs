//! One connection: statements that are prepared once, and errors in the terms of the port.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error as _;
use std::rc::Rc;
use std::time::Duration;

use frontdesk_core::port::store::StoreError;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type, WrongType};
use tokio_postgres::{AsyncMessage, Client, Config, Row, RowStream, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A server that does not answer in this time counts as gone.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The same for one of several addresses.
const ADDRESS_MAX: Duration = Duration::from_secs(1);
/// Statements that a connection keeps prepared; there are about a hundred of ours.
const PREPARED_MAX: usize = 500;

/// Settings of each connection. A client that vanished in the middle of a transaction must not hold its locks for long;
/// an answered commit is on disk.
const SESSION: &str = "SET application_name = 'frontdesk'; SET client_encoding = 'UTF8'; SET TimeZone = 'UTC';
    SET synchronous_commit = on; SET statement_timeout = '10s'; SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '5s'; SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2;
    SET tcp_keepalives_count = 3; SET tcp_user_timeout = 8000; SET jit = off";

pub(crate) type Param<'a> = &'a (dyn ToSql + Sync);

/// Why work on a connection ended.
#[derive(Debug)]
pub(crate) enum Fault {
    Store(StoreError),
    /// Conflict with another transaction: nothing was written, and repeating the work may succeed immediately.
    Retry(String),
    /// A unique index refused the row.
    Duplicate,
    /// The connection was lost or cannot be used any more.
    Lost(String),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    /// For work of which nothing was written.
    pub(crate) fn unwritten(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Duplicate => StoreError::Conflict,
            Self::Retry(why) | Self::Lost(why) => StoreError::Unavailable(why),
        }
    }

    /// For work that may have been written if the connection was lost.
    pub(crate) fn maybe_written(self) -> StoreError {
        match self {
            Self::Lost(why) => StoreError::Unknown(why),
            other => other.unwritten(),
        }
    }
}

pub(crate) fn fault(error: tokio_postgres::Error) -> Fault {
    let Some(db) = error.as_db_error() else {
        // A value that cannot be sent is an error of ours, and the connection is still usable.
        let is_ours = error.source().is_some_and(<dyn std::error::Error>::is::<WrongType>);
        return match is_ours && !error.is_closed() {
            true => Fault::Store(StoreError::Unavailable(describe(&error))),
            false => Fault::Lost(describe(&error)),
        };
    };
    let why = format!("Postgres: {} (SQLSTATE {})", db.message(), db.code().code());
    match db.code() {
        code if [
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::T_R_DEADLOCK_DETECTED,
            &SqlState::LOCK_NOT_AVAILABLE,
            // Its plan changed: the statement is prepared again.
            &SqlState::FEATURE_NOT_SUPPORTED,
        ]
        .contains(&code) =>
        {
            Fault::Retry(why)
        }
        &SqlState::UNIQUE_VIOLATION => Fault::Duplicate,
        // A demoted server refuses all writes, so the connection is dropped: another server may be the primary.
        &SqlState::READ_ONLY_SQL_TRANSACTION => Fault::Lost(why),
        &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => Fault::Store(StoreError::Corrupt(why)),
        // Class 57, operator intervention: shutdown, crash, cancelled. Class 08: connection.
        code if code.code().starts_with("57P") || code.code().starts_with("08") => Fault::Lost(why),
        _ => Fault::Store(StoreError::Unavailable(why)),
    }
}

/// The error with its causes; the driver's own text leaves them out.
fn describe(error: &tokio_postgres::Error) -> String {
    let mut text = format!("Postgres: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

pub(crate) struct Connection {
    client: Client,
    prepared: RefCell<HashMap<Rc<str>, Statement>>,
    driver: JoinHandle<()>,
    ended: watch::Receiver<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort(); // it would wait for a server that is gone
    }
}

/// How to reach the database.
#[derive(Clone)]
pub(crate) struct Target {
    config: Config,
    tls: MakeRustlsConnect,
}

impl Target {
    pub(crate) fn of(url: &str) -> Result<Self, StoreError> {
        let mut config: Config = url
            .parse()
            .map_err(|error| StoreError::Unavailable(format!("the address of the store is not valid: {error}")))?;
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.connect_timeout(ADDRESS_MAX).keepalives_idle(Duration::from_secs(5));
        config.tcp_user_timeout(Duration::from_secs(8));
        let tls = rustls::ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())
            .and_then(|builder| builder.with_platform_verifier().map_err(|error| error.to_string()))
            .map_err(|error| StoreError::Unavailable(format!("TLS cannot be used: {error}")))?;
        Ok(Self { config, tls: MakeRustlsConnect::new(tls.with_no_client_auth()) })
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Fault> {
        self.connect_listening(|_| {}).await
    }

    /// A connection that may LISTEN: `on_notification` is called with each notification.
    pub(crate) async fn connect_listening(
        &self,
        on_notification: impl Fn(&str) + 'static,
    ) -> Result<Connection, Fault> {
        let connecting = async {
            let (client, mut connection) = self.config.connect(self.tls.clone()).await.map_err(fault)?;
            let (alive, ended) = watch::channel(());
            let driver = tokio::task::spawn_local(async move {
                let _alive = alive;
                loop {
                    match std::future::poll_fn(|context| connection.poll_message(context)).await {
                        Some(Ok(AsyncMessage::Notification(note))) => on_notification(note.payload()),
                        Some(Ok(_)) => {} // a notice of the server
                        // Other users of the client get an error as well.
                        Some(Err(error)) => {
                            tracing::warn!(error = describe(&error), "a connection to Postgres ended");
                            return;
                        }
                        None => return,
                    }
                }
            });
            let connection = Connection { client, prepared: RefCell::default(), driver, ended };
            connection.batch(SESSION).await?;
            Ok(connection)
        };
        // Hosts are tried one after another: one that does not answer must leave time for the next.
        let limit = CONNECT_MAX + ADDRESS_MAX * u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX);
        let connected = tokio::time::timeout(limit, connecting).await;
        let gave_up = || Fault::Lost(format!("Postgres did not answer within {} s", limit.as_secs()));
        let connected = connected.unwrap_or_else(|_| Err(gave_up()));
        // Nothing was sent yet.
        connected.map_err(|fault| Fault::Store(fault.unwritten()))
    }
}

impl Connection {
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns when the connection has ended.
    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    async fn statement(&self, sql: &str) -> Result<Statement, Fault> {
        let known = self.prepared.borrow().get(sql).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let statement = self.client.prepare(sql).await.map_err(fault)?;
        let mut prepared = self.prepared.borrow_mut();
        if prepared.len() >= PREPARED_MAX {
            prepared.clear();
        }
        prepared.insert(sql.into(), statement.clone());
        Ok(statement)
    }

    pub(crate) async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let statement = self.statement(sql).await?;
        self.client.query(&statement, params).await.map_err(|error| self.failed(sql, error))
    }

    /// At most one row.
    pub(crate) async fn query_opt(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>, Fault> {
        Ok(self.query(sql, params).await?.pop())
    }

    pub(crate) async fn query_one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Fault> {
        let found = self.query_opt(sql, params).await?;
        found.ok_or_else(|| StoreError::Corrupt(format!("the database returned no row for the query: {sql}")).into())
    }

    /// The number of rows that were changed.
    pub(crate) async fn execute(&self, sql: &str, params: &[Param<'_>]) -> Result<u64, Fault> {
        let statement = self.statement(sql).await?;
        self.client.execute(&statement, params).await.map_err(|error| self.failed(sql, error))
    }

    /// Statements without parameters.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), Fault> {
        self.client.batch_execute(sql).await.map_err(fault)
    }

    /// Rows as they come, for results that do not fit into memory.
    pub(crate) async fn stream(&self, sql: &str) -> Result<RowStream, Fault> {
        self.client.query_raw(sql, std::iter::empty::<Param<'_>>()).await.map_err(fault)
    }

    /// `COPY ... FROM STDIN (FORMAT binary)`.
    pub(crate) async fn copy_in(&self, sql: &str, types: &[Type]) -> Result<BinaryCopyInWriter, Fault> {
        let sink = self.client.copy_in(sql).await.map_err(fault)?;
        Ok(BinaryCopyInWriter::new(sink, types))
    }

    fn failed(&self, sql: &str, error: tokio_postgres::Error) -> Fault {
        self.prepared.borrow_mut().remove(sql); // it may have been prepared for a table that changed
        fault(error)
    }
}
