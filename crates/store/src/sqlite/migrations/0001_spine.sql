CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE record (
  kind TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, json TEXT NOT NULL,
  PRIMARY KEY (kind, key)
) WITHOUT ROWID;

CREATE TABLE event (
  id INTEGER PRIMARY KEY, dedup BLOB NOT NULL, tenant TEXT NOT NULL, at_ms INTEGER NOT NULL,
  passthrough INTEGER NOT NULL, platform TEXT NOT NULL, bot TEXT NOT NULL, chat_id TEXT NOT NULL,
  session_key TEXT NOT NULL, message_id TEXT NOT NULL, json TEXT NOT NULL, verdict TEXT NOT NULL
);
CREATE UNIQUE INDEX event_dedup ON event (dedup);

-- One row per receiving instance. `reason` is set when the operator ended it.
CREATE TABLE mail (
  instance INTEGER NOT NULL, seq INTEGER NOT NULL, event INTEGER NOT NULL, reason TEXT,
  PRIMARY KEY (instance, seq)
) WITHOUT ROWID;

-- What is settled: everything through a watermark, and the few rows above it (JSON list).
CREATE TABLE position (
  instance INTEGER PRIMARY KEY, through INTEGER NOT NULL, above TEXT NOT NULL, sent INTEGER NOT NULL
);
CREATE TABLE presence (instance INTEGER PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE reach (
  tenant TEXT NOT NULL, platform TEXT NOT NULL, bot TEXT NOT NULL, chat_id TEXT NOT NULL,
  PRIMARY KEY (tenant, platform, bot, chat_id)
) WITHOUT ROWID;

CREATE TABLE capability (
  id TEXT PRIMARY KEY, tenant TEXT NOT NULL, kind TEXT NOT NULL, platform TEXT NOT NULL, bot TEXT NOT NULL,
  chat_id TEXT NOT NULL, sealed BLOB NOT NULL, expires_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX capability_expiry ON capability (expires_ms);
CREATE TABLE capability_key (
  tenant TEXT NOT NULL, session_key TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
  PRIMARY KEY (tenant, session_key, kind)
) WITHOUT ROWID;

CREATE TABLE journal (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, instance TEXT NOT NULL, platform TEXT NOT NULL, bot TEXT NOT NULL,
  chat_id TEXT NOT NULL, op TEXT NOT NULL, at_ms INTEGER NOT NULL, outcome TEXT NOT NULL, parts INTEGER NOT NULL,
  cursor INTEGER NOT NULL, note TEXT NOT NULL
);
CREATE INDEX journal_open ON journal (id) WHERE outcome = 'open';

CREATE TABLE chat (
  tenant TEXT NOT NULL, chat_id TEXT NOT NULL, json TEXT NOT NULL, last_seq INTEGER NOT NULL,
  PRIMARY KEY (tenant, chat_id)
) WITHOUT ROWID;
CREATE TABLE chat_line (
  tenant TEXT NOT NULL, chat_id TEXT NOT NULL, seq INTEGER NOT NULL, message_id TEXT NOT NULL,
  rev INTEGER NOT NULL, json TEXT NOT NULL,
  PRIMARY KEY (tenant, chat_id, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX chat_line_message ON chat_line (tenant, chat_id, message_id);

CREATE TABLE media (
  id TEXT PRIMARY KEY, tenant TEXT NOT NULL, mime TEXT NOT NULL, filename TEXT, size INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL
) WITHOUT ROWID;
