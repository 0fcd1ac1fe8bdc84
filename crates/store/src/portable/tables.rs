//! The tables of the file: what a store keeps, whatever the backend. Numbers and ids are those of the store.

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    Bool,
    Text,
    Bytes,
    /// A list of integers.
    Ints,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) is_optional: bool,
}

impl Column {
    /// Name and type as written in the header of an export file.
    pub(super) fn described(&self) -> String {
        let kind = match self.kind {
            Kind::Int => "int",
            Kind::Bool => "bool",
            Kind::Text => "text",
            Kind::Bytes => "base64",
            Kind::Ints => "ints",
        };
        format!("{} {kind}{}", self.name, if self.is_optional { " or null" } else { "" })
    }

    const fn or_null(self) -> Self {
        Self { is_optional: true, ..self }
    }
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_optional: false }
}
const fn int(name: &'static str) -> Column {
    column(name, Kind::Int)
}
const fn flag(name: &'static str) -> Column {
    column(name, Kind::Bool)
}
const fn text(name: &'static str) -> Column {
    column(name, Kind::Text)
}
const fn bytes(name: &'static str) -> Column {
    column(name, Kind::Bytes)
}

pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Columns that give the order of the rows. (Texts with U+0000 or U+10FFFF may be ordered differently by backends.)
    pub(crate) key: &'static str,
    pub(crate) columns: &'static [Column],
}

const fn table(name: &'static str, key: &'static str, columns: &'static [Column]) -> Table {
    Table { name, key, columns }
}

/// In the order of the file. The bytes of media come before the rows that name them: an export then knows which files
/// are there.
pub(crate) const TABLES: [Table; 29] = [
    // The last numbers that were given out, by name. They are never given out again.
    table("counter", "name", &[text("name"), int("value")]),
    table("record", "kind, key", &[text("kind"), text("key"), int("version"), text("json")]),
    table(
        "event",
        "id",
        &[
            int("id"),
            bytes("dedup"),
            int("attempt"),
            text("tenant"),
            int("at_ms"),
            flag("passthrough"),
            text("platform"),
            text("bot"),
            text("chat_id"),
            text("session_key"),
            text("message_id"),
            text("json"),
            text("verdict"),
        ],
    ),
    table(
        "ledger",
        "instance",
        &[int("instance"), int("last_seq"), int("through"), column("above", Kind::Ints), int("sent")],
    ),
    table(
        "mail",
        "instance, seq",
        &[int("instance"), int("seq"), int("event"), text("reason").or_null(), text("json").or_null()],
    ),
    table(
        "presence",
        "instance",
        &[int("instance"), flag("idle"), int("seen_ms"), int("noticed_through"), flag("never_acks")],
    ),
    table(
        "reach",
        "tenant, platform, bot, chat_id",
        &[text("tenant"), text("platform"), text("bot"), text("chat_id"), int("at_ms")],
    ),
    table(
        "capability",
        "id",
        &[
            text("id"),
            text("tenant"),
            text("kind"),
            text("platform"),
            text("bot"),
            text("chat_id"),
            bytes("sealed"),
            int("expires_ms"),
        ],
    ),
    table(
        "capability_key",
        "tenant, session_key, kind",
        &[text("tenant"), text("session_key"), text("kind"), text("id")],
    ),
    table(
        "journal",
        "id",
        &[
            int("id"),
            text("tenant"),
            text("instance"),
            text("platform"),
            text("bot"),
            text("chat_id"),
            text("op"),
            int("at_ms"),
            text("outcome"),
            int("parts"),
            int("cursor"),
            text("note"),
            int("desk"),
        ],
    ),
    table(
        "journal_receipt",
        "platform, bot, receipt_id",
        &[text("platform"), text("bot"), text("receipt_id"), int("entry")],
    ),
    table("chat", "tenant, chat_id", &[text("tenant"), text("chat_id"), text("json"), int("last_seq")]),
    table(
        "chat_line",
        "tenant, chat_id, seq",
        &[text("tenant"), text("chat_id"), int("seq"), text("message_id"), int("rev"), text("json"), int("at_ms")],
    ),
    // `file` counts the files that have bytes, from 1.
    table("media_chunk", "id, no", &[text("id"), int("file"), int("no"), bytes("bytes")]),
    table(
        "media",
        "id",
        &[
            text("id"),
            text("tenant"),
            text("mime"),
            text("filename").or_null(),
            int("size"),
            int("expires_ms"),
            int("file").or_null(),
        ],
    ),
    table(
        "media_remote",
        "id",
        &[text("id"), text("platform"), text("bot"), int("event"), int("size").or_null(), bytes("sealed")],
    ),
    table("media_mail", "id, instance, seq", &[text("id"), int("instance"), int("seq")]),
    table(
        "alarm",
        "id",
        &[
            int("id"),
            int("instance"),
            text("job_id"),
            text("fire_at"),
            int("due_ms"),
            int("next_ms"),
            int("lease_ms"),
            int("armed_ms"),
            int("first_ms"),
            int("attempts"),
            int("grace_ms"),
            flag("skip_missed"),
            text("callback"),
            text("schedule_id"),
            text("state"),
            text("note"),
            int("claim"),
        ],
    ),
    table(
        "alarm_end",
        "id",
        &[
            int("id"),
            int("instance"),
            text("job_id"),
            text("fire_at"),
            text("schedule_id"),
            text("outcome"),
            int("attempts"),
            int("at_ms"),
            text("note"),
        ],
    ),
    table(
        "inbox_message",
        "agent, place",
        &[
            int("agent"),
            int("place"),
            int("event"),
            text("tenant"),
            int("at_ms"),
            text("delivery_id"),
            text("kind"),
            text("text"),
            text("meta").or_null(),
            text("session_id").or_null(),
            text("receipts"),
        ],
    ),
    table("planned_wake", "key", &[text("key"), int("agent"), text("json")]),
    table(
        "skill",
        "tenant, name",
        &[
            text("tenant"),
            text("name"),
            text("version"),
            text("content_hash"),
            text("status"),
            text("description").or_null(),
            text("tags"),
            int("created_at"),
            int("updated_at"),
            int("status_changed_at").or_null(),
            text("author").or_null(),
            text("bag").or_null(),
        ],
    ),
    table(
        "skill_version",
        "tenant, name, no",
        &[
            text("tenant"),
            text("name"),
            int("no"),
            text("version"),
            text("content_hash"),
            text("status"),
            text("previous_status").or_null(),
            int("changed_at"),
            text("changed_by").or_null(),
        ],
    ),
    table(
        "skill_source",
        "tenant, name, content_hash",
        &[text("tenant"), text("name"), text("content_hash"), text("source")],
    ),
    table("skill_token", "tenant", &[text("tenant"), text("token")]),
    // `no` rises within a tenant. The index of words is made again from the text.
    table(
        "data_row",
        "tenant, no",
        &[
            text("tenant"),
            int("no"),
            text("id"),
            int("expires_at").or_null(),
            flag("has_detail"),
            text("json"),
            text("text"),
        ],
    ),
    table("cursor", "platform, bot", &[text("platform"), text("bot"), text("value"), int("token")]),
    table("duty", "name", &[text("name"), int("token")]),
    table(
        "fragment",
        "platform, bot, id",
        &[
            text("platform"),
            text("bot"),
            text("id"),
            text("chat_id"),
            text("grp"),
            int("at_ms"),
            int("arrival"),
            int("claim"),
            int("claimed_ms"),
            bytes("sealed").or_null(),
        ],
    ),
];

impl Table {
    /// Names of the columns, as a statement lists them.
    pub(crate) fn column_list(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }
}
