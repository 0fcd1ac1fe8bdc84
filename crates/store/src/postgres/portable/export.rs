//! From a database to a file. A transaction in REPEATABLE READ is one snapshot, also while servers write.

use std::pin::pin;

use futures_util::TryStreamExt as _;
use tokio_postgres::Row as PgRow;

use super::select;
use crate::portable::{ExportFile, Kind, PortableError, Progress, Row, TABLES, Value};
use crate::postgres::connection::{Connection, Fault, Target, fault};
use crate::postgres::text::given;
use crate::postgres::worker::Worker;
use crate::postgres::{PostgresStore, schema};

impl PostgresStore {
    /// Writes everything in a database to a file.
    pub fn export(url: &str, file: ExportFile) -> Result<Progress, PortableError> {
        let worker = Worker::start(Target::of(url)?)?;
        worker.ask_blocking(async move |database| {
            let connection = database.connect().await?;
            Ok(write(&connection, file).await)
        })?
    }
}

async fn write(connection: &Connection, mut file: ExportFile) -> Result<Progress, PortableError> {
    let unread = |fault: Fault| PortableError::Store(fault.unwritten());
    // The disk of this machine may be slow: no time limit may end the transaction meanwhile.
    let begin = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
                 BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    connection.batch(begin).await.map_err(unread)?;
    let epoch = schema::check(connection).await.map_err(unread)?;
    let key_check = schema::read(connection, "check master key").await.map_err(unread)?;
    file.begin(epoch, key_check)?;
    for (at, table) in TABLES.iter().enumerate() {
        let rows = connection.stream(&select(table)).await.map_err(unread)?;
        let mut rows = pin!(rows);
        while let Some(row) = rows.try_next().await.map_err(|error| unread(fault(error)))? {
            file.row(at, &values(at, &row))?;
        }
    }
    file.finish()
}

fn values(table: usize, row: &PgRow) -> Row {
    let value = |(at, kind): (usize, Kind)| {
        let value = match kind {
            Kind::Int => row.get::<_, Option<i64>>(at).map(Value::Int),
            Kind::Bool => row.get::<_, Option<bool>>(at).map(Value::Bool),
            Kind::Text => row.get::<_, Option<String>>(at).map(|text| Value::Text(given(text))),
            Kind::Bytes => row.get::<_, Option<Vec<u8>>>(at).map(Value::Bytes),
            Kind::Ints => row.get::<_, Option<Vec<i64>>>(at).map(Value::Ints),
        };
        value.unwrap_or(Value::Null)
    };
    TABLES[table].columns.iter().map(|column| column.kind).enumerate().map(value).collect()
}
