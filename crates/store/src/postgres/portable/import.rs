//! From a file to a database, in one transaction that also creates the tables.

use std::error::Error;
use std::pin::{Pin, pin};

use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::SEQUENCES;
use crate::portable::{ImportFile, Kind, PortableError, Progress, Row, TABLES, Table, Value};
use crate::postgres::connection::{Connection, Fault, Target, fault};
use crate::postgres::data::hashes;
use crate::postgres::directory::number_of;
use crate::postgres::text::kept;
use crate::postgres::worker::Worker;
use crate::postgres::{PostgresStore, now, schema};
use crate::ranking::marks;

impl PostgresStore {
    /// Fills a database that is empty. If it fails, the database stays as it was.
    pub fn import(url: &str, file: ImportFile) -> Result<Progress, PortableError> {
        let worker = Worker::start(Target::of(url)?)?;
        worker.ask_blocking(async move |database| {
            crate::postgres::check_pooler(database).await?;
            let connection = database.connect().await?;
            // Without a commit all of it goes with the connection.
            Ok(fill(&connection, file).await)
        })?
    }
}

fn unwritten(fault: Fault) -> PortableError {
    match fault {
        Fault::Duplicate => {
            PortableError::Refused("a row of the file contradicts another one: a key is present twice".into())
        }
        other => PortableError::Store(other.unwritten()),
    }
}

async fn fill(connection: &Connection, mut file: ImportFile) -> Result<Progress, PortableError> {
    let begin = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; BEGIN";
    connection.batch(begin).await.map_err(unwritten)?;
    schema::migrate_by(connection, file.epoch()).await.map_err(unwritten)?;
    check_empty(connection).await?;
    prepare(connection, &file).await.map_err(unwritten)?;
    let mut counters = Vec::new();
    let mut next = file.next()?;
    while let Some((table, row)) = next {
        if TABLES[table].name == "counter" {
            counters.push(row);
            next = file.next()?;
            continue;
        }
        next = copy(connection, table, row, &mut file).await?;
    }
    complete(connection, &counters).await.map_err(unwritten)?;
    connection.batch("COMMIT").await.map_err(|fault| PortableError::Store(fault.maybe_written()))?;
    Ok(file.progress())
}

/// No server uses the database, none can begin to until the import has ended, and it is empty.
async fn check_empty(connection: &Connection) -> Result<(), PortableError> {
    let refused = |why: String| Err(PortableError::Refused(why));
    connection.batch("LOCK TABLE desk IN EXCLUSIVE MODE").await.map_err(unwritten)?;
    let sql = concat!("SELECT name FROM desk WHERE lease_until_ms > ", now!("NULL"), " LIMIT 1");
    if let Some(row) = connection.query_opt(sql, &[]).await.map_err(unwritten)? {
        let name: String = row.get(0);
        return refused(format!("the server {name:?} uses this database; stop all servers first"));
    }
    for table in &TABLES {
        let name = match table.name {
            "counter" => continue,
            "ledger" => "head",
            name => name,
        };
        let sql = format!("SELECT 1 FROM {name} LIMIT 1");
        if connection.query_opt(&sql, &[]).await.map_err(unwritten)?.is_some() {
            return refused(format!(
                "the database is not empty: its table {name:?} has rows; import into a new database or schema"
            ));
        }
    }
    Ok(())
}

async fn prepare(connection: &Connection, file: &ImportFile) -> Result<(), Fault> {
    schema::write(connection, "epoch", &file.epoch().to_string()).await?;
    // Servers with another master key are refused at their start.
    match file.key_check() {
        Some(check) => schema::write(connection, "check master key", check).await?,
        None => drop(connection.execute("DELETE FROM meta WHERE key = 'check master key'", &[]).await?),
    }
    connection.execute("DELETE FROM meta WHERE key = 'check admin token'", &[]).await?;
    let ledger =
        "CREATE TEMPORARY TABLE ledger (instance bigint NOT NULL, last_seq bigint NOT NULL, through bigint NOT NULL,
                  above bigint[] NOT NULL, sent bigint NOT NULL) ON COMMIT DROP";
    connection.batch(ledger).await
}

/// The rows of one table, and the first one of the next.
async fn copy(
    connection: &Connection,
    table: usize,
    first: Row,
    file: &mut ImportFile,
) -> Result<Option<(usize, Row)>, PortableError> {
    let (columns, types) = columns(&TABLES[table]);
    let sql = format!("COPY {} ({columns}) FROM STDIN (FORMAT binary)", TABLES[table].name);
    let writer = connection.copy_in(&sql, &types).await.map_err(unwritten)?;
    let mut writer = pin!(writer);
    let mut next = Some((table, first));
    while let Some((at, row)) = next {
        if at != table {
            next = Some((at, row));
            break;
        }
        put(writer.as_mut(), &adapted(&TABLES[table], row)?).await?;
        next = file.next()?;
    }
    writer.finish().await.map_err(|error| unwritten(fault(error)))?;
    Ok(next)
}

async fn put(writer: Pin<&mut BinaryCopyInWriter>, row: &Row) -> Result<(), PortableError> {
    let values = row.iter().map(|value| value as &(dyn ToSql + Sync));
    writer.write_raw(values).await.map_err(|error| unwritten(fault(error)))
}

/// The columns that the rows of a table go to, after [`adapted`].
fn columns(table: &Table) -> (String, Vec<Type>) {
    let kind = |kind| match kind {
        Kind::Int => Type::INT8,
        Kind::Bool => Type::BOOL,
        Kind::Text => Type::TEXT,
        Kind::Bytes => Type::BYTEA,
        Kind::Ints => Type::INT8_ARRAY,
    };
    let mut types: Vec<Type> = table.columns.iter().map(|column| kind(column.kind)).collect();
    let mut columns = table.column_list();
    match table.name {
        "record" => (columns, types) = (columns + ", no", [types, vec![Type::INT8]].concat()),
        "duty" => (columns, types) = (columns + ", desk", [types, vec![Type::INT8]].concat()),
        "data_row" => (columns, types) = (columns + ", words", [types, vec![Type::INT8_ARRAY]].concat()),
        "media" => columns = "id, tenant, mime, filename, size, expires_ms, upload".into(),
        "media_chunk" => (columns, types) = ("upload, no, bytes".into(), vec![Type::INT8, Type::INT4, Type::BYTEA]),
        _ => {}
    }
    (columns, types)
}

/// The row with what only this backend has.
fn adapted(table: &Table, mut row: Row) -> Result<Row, PortableError> {
    match table.name {
        "record" => row.push(number_of(row[3].text()).map_or(Value::Null, Value::Int)),
        "duty" => row.push(Value::Int(0)),
        "data_row" => {
            let parsed = serde_json::from_str(row[5].text())
                .map_err(|error| PortableError::Refused(format!("a data row is not valid: {error}")))?;
            row.push(Value::Ints(hashes(&row[0].text().into(), &marks(&parsed), row[6].text())));
        }
        // The file's number is that of its upload.
        "media_chunk" => drop(row.remove(0)),
        _ => {}
    }
    Ok(row)
}

/// Fills what is derived from the rows, and sets the next numbers.
async fn complete(connection: &Connection, counters: &[Row]) -> Result<(), Fault> {
    connection
        .batch(
            "INSERT INTO head (instance, last_seq) SELECT instance, last_seq FROM ledger;
             INSERT INTO position (instance, through, above, sent) SELECT instance, through, above, sent FROM ledger;
             INSERT INTO inbox_head (agent, last_place) SELECT agent, max(place) FROM inbox_message GROUP BY agent",
        )
        .await?;
    let last = |name: &str| counters.iter().find(|row| row[0].text() == name).map_or(0, |row| row[1].int());
    let sql = "UPDATE counter SET value = CASE name WHEN 'instance' THEN $2::bigint ELSE $1::bigint END";
    connection.execute(sql, &[&last("directory"), &last("instance")]).await?;
    let own = [("", "data_row_no_seq", "data_row", "no"), ("", "media_upload_upload_seq", "media", "upload")];
    for (name, sequence, table, column) in SEQUENCES.iter().chain(&own) {
        let sql = format!(
            "SELECT setval('{sequence}', greatest(last, 1), last > 0)
             FROM (SELECT greatest($1::bigint, coalesce(max({column}), 0)) AS last FROM {table}) AS given"
        );
        connection.execute(&sql, &[&last(name)]).await?;
    }
    Ok(())
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) if *ty == Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
            Self::Int(number) => number.to_sql(ty, out),
            Self::Bool(is_set) => is_set.to_sql(ty, out),
            Self::Text(text) => kept(text).to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
            Self::Ints(numbers) => numbers.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
