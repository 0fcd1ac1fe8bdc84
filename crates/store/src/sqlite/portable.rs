//! The embedded store as a file, and back. Tables are named as in the file, with few exceptions.

mod export;
mod import;

use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::portable::{Kind, Table, Value};

/// Where the rows of a table are read.
fn select(table: &Table) -> String {
    let (columns, key) = (table.column_list(), table.key);
    match table.name {
        "counter" => COUNTERS.into(),
        // The last number of a ledger is not stored: it is that of its newest row, or of one that was settled and deleted.
        "ledger" => {
            "SELECT p.instance, MAX(p.through, COALESCE((SELECT MAX(seq) FROM mail m WHERE m.instance = p.instance), 0),
                       COALESCE((SELECT MAX(value) FROM json_each(p.above)), 0)), p.through, p.above, p.sent
                     FROM position p ORDER BY p.instance"
                .into()
        }
        "inbox_message" => "SELECT agent, event, COALESCE(origin, event), tenant, at_ms, delivery_id, kind, text, meta,
                              session_id, receipts FROM inbox_message ORDER BY agent, event"
            .into(),
        "media" => "SELECT m.id, m.tenant, m.mime, m.filename, m.size, m.expires_ms, CASE WHEN r.id IS NULL THEN 0 END
                    FROM media m LEFT JOIN media_remote r ON r.id = m.id ORDER BY m.id"
            .into(),
        // The bits above the number are those of the tenant.
        "data_row" => "SELECT t.tenant, d.no & 1099511627775, d.id, d.expires_at, d.has_detail, d.json, d.text
                       FROM data_tenant t JOIN data_row d ON d.tenant = t.no ORDER BY t.tenant, d.no"
            .into(),
        name => format!("SELECT {columns} FROM {name} ORDER BY {key}"),
    }
}

fn insert(table: &Table) -> String {
    match table.name {
        "ledger" => "INSERT INTO position (instance, through, above, sent) VALUES (?1, ?3, ?4, ?5)".into(),
        "inbox_message" => {
            "INSERT INTO inbox_message (agent, event, origin, tenant, at_ms, delivery_id, kind, text, meta,
                              session_id, receipts) VALUES (?1, ?2, NULLIF(?3, ?2), ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
                .into()
        }
        "media" => {
            "INSERT INTO media (id, tenant, mime, filename, size, expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)".into()
        }
        "duty" => "INSERT INTO duty (name, desk, token) VALUES (?1, 0, ?2)".into(),
        name => {
            let places: Vec<String> = (1..=table.columns.len()).map(|at| format!("?{at}")).collect();
            format!("INSERT INTO {name} ({}) VALUES ({})", table.column_list(), places.join(", "))
        }
    }
}

/// The place of a message is the number of its event here, so that both count from one number.
const COUNTERS: &str = "WITH last_event (value) AS (
       SELECT MAX(COALESCE((SELECT MAX(id) FROM event), 0),
                  COALESCE((SELECT value FROM meta WHERE key = 'last_event'), 0)))
     SELECT name, COALESCE(value, 0) FROM (
       SELECT 'alarm' AS name, (SELECT seq FROM sqlite_sequence WHERE name = 'alarm') AS value
       UNION ALL SELECT 'alarm_end', (SELECT MAX(id) FROM alarm_end)
       UNION ALL SELECT 'claim', (SELECT value FROM meta WHERE key = 'last claim')
       UNION ALL SELECT 'desk', (SELECT value FROM meta WHERE key = 'last desk')
       UNION ALL SELECT 'directory', (SELECT value FROM meta WHERE key = 'directory_version')
       UNION ALL SELECT 'event', (SELECT value FROM last_event)
       UNION ALL SELECT 'fragment', (SELECT value FROM meta WHERE key = 'last fragment')
       UNION ALL SELECT 'instance', (SELECT value FROM meta WHERE key = 'last_instance')
       UNION ALL SELECT 'journal', (SELECT MAX(id) FROM journal)
       UNION ALL SELECT 'place', (SELECT value FROM last_event)
       UNION ALL SELECT 'session', (SELECT value FROM meta WHERE key = 'last session'))
     ORDER BY name";

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Int(number) => (*number).into(),
            Self::Bool(is_set) => (*is_set).into(),
            Self::Text(text) => text.as_str().into(),
            Self::Bytes(bytes) => bytes.as_slice().into(),
            Self::Ints(numbers) => serde_json::to_string(numbers).unwrap_or_default().into(),
        })
    }
}

fn value(kind: Kind, row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Value> {
    if row.get_ref(at)? == ValueRef::Null {
        return Ok(Value::Null);
    }
    Ok(match kind {
        Kind::Int => Value::Int(row.get(at)?),
        Kind::Bool => Value::Bool(row.get(at)?),
        Kind::Text => Value::Text(row.get(at)?),
        Kind::Bytes => Value::Bytes(row.get(at)?),
        Kind::Ints => Value::Ints(serde_json::from_str(&row.get::<_, String>(at)?).unwrap_or_default()),
    })
}
