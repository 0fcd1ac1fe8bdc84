//! The store in Postgres as a file, and back. Tables are named as in the file, with few exceptions.

mod export;
mod import;

use crate::portable::Table;

/// Where the rows of a table are read.
fn select(table: &Table) -> String {
    match table.name {
        "counter" => counters(),
        "ledger" => "SELECT instance, coalesce(h.last_seq, 0), coalesce(p.through, 0), coalesce(p.above, '{}'),
                       coalesce(p.sent, 0) FROM head h FULL JOIN position p USING (instance) ORDER BY instance"
            .into(),
        "media_chunk" => format!(
            "SELECT m.id, m.file, c.no::bigint, c.bytes FROM ({FILES}) AS m JOIN media_chunk c ON c.upload = m.upload
             ORDER BY m.id, c.no"
        ),
        "media" => format!(
            "SELECT m.id, m.tenant, m.mime, m.filename, m.size, m.expires_ms, f.file
             FROM media m LEFT JOIN ({FILES}) AS f ON f.id = m.id ORDER BY m.id"
        ),
        name => format!("SELECT {} FROM {name} ORDER BY {}", table.column_list(), table.key),
    }
}

/// Files that have bytes, counted.
const FILES: &str = "SELECT id, upload, row_number() OVER (ORDER BY id) AS file FROM media WHERE upload IS NOT NULL";

/// The source of each number: a sequence, with the table and column of the assigned ones.
const SEQUENCES: [(&str, &str, &str, &str); 9] = [
    ("alarm", "alarm_id_seq", "alarm", "id"),
    ("alarm_end", "alarm_end_id_seq", "alarm_end", "id"),
    ("claim", "fragment_claim_number", "fragment", "claim"),
    ("desk", "desk_number", "journal", "desk"),
    ("event", "event_number", "event", "id"),
    ("fragment", "fragment_arrival_seq", "fragment", "arrival"),
    ("journal", "journal_id_seq", "journal", "id"),
    ("place", "inbox_place", "inbox_message", "place"),
    ("session", "session_number", "head", "session"),
];

/// Sequences are outside of snapshots: their numbers may be higher than those in the rows, never lower.
fn counters() -> String {
    let last = |(name, sequence, ..): &(&str, &str, &str, &str)| {
        format!(
            "SELECT '{name}'::text COLLATE \"C\" AS name, CASE WHEN is_called THEN last_value ELSE 0 END AS value FROM {sequence}"
        )
    };
    let sequences: Vec<String> = SEQUENCES.iter().map(last).collect();
    format!(
        "SELECT name, value FROM (SELECT name, value FROM counter WHERE name IN ('directory', 'instance')
         UNION ALL {}) AS last ORDER BY name",
        sequences.join(" UNION ALL ")
    )
}
