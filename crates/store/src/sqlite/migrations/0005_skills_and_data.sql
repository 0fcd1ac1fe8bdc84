-- Skills: the head of each name, every version behind it, and the bodies. A body that comes again under
-- the same name is kept once.
CREATE TABLE skill (
  tenant TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, content_hash TEXT NOT NULL, status TEXT NOT NULL,
  description TEXT, tags TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  status_changed_at INTEGER, author TEXT, bag TEXT,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
CREATE TABLE skill_version (
  tenant TEXT NOT NULL, name TEXT NOT NULL, no INTEGER NOT NULL, version TEXT NOT NULL, content_hash TEXT NOT NULL,
  status TEXT NOT NULL, previous_status TEXT, changed_at INTEGER NOT NULL, changed_by TEXT,
  PRIMARY KEY (tenant, name, no)
) WITHOUT ROWID;
CREATE INDEX skill_version_named ON skill_version (tenant, name, version, no);
CREATE TABLE skill_source (
  tenant TEXT NOT NULL, name TEXT NOT NULL, content_hash TEXT NOT NULL, source TEXT NOT NULL,
  PRIMARY KEY (tenant, name, content_hash)
);
-- Moves with every change of a head.
CREATE TABLE skill_token (tenant TEXT PRIMARY KEY, token TEXT NOT NULL) WITHOUT ROWID;

-- Data. A row's number carries its tenant's in the high bits, so one tenant's rows are one range of the
-- index of words.
CREATE TABLE data_tenant (no INTEGER PRIMARY KEY, tenant TEXT NOT NULL UNIQUE, last INTEGER NOT NULL);
CREATE TABLE data_row (
  no INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, id TEXT NOT NULL, expires_at INTEGER, has_detail INTEGER NOT NULL,
  json TEXT NOT NULL, marks TEXT NOT NULL, text TEXT NOT NULL
);
CREATE UNIQUE INDEX data_row_id ON data_row (tenant, id);
CREATE INDEX data_row_expires ON data_row (expires_at) WHERE expires_at IS NOT NULL;
-- `text` is what is searched; `marks` has one word for each value that a filter may name.
CREATE VIRTUAL TABLE data_word USING fts5 (
  text, marks, content = 'data_row', content_rowid = 'no', tokenize = "unicode61 remove_diacritics 2"
);
