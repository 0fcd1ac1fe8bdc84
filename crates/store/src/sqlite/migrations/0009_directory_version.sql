-- One version for the whole directory: a writer that has not seen the newest one decides again. Versions of records are
-- those of the directory that changed them last, and deletions are remembered, so that other desks hear of them.
INSERT INTO meta (key, value) SELECT 'directory_version', COALESCE(MAX(version), 0) FROM record;
INSERT INTO meta (key, value) SELECT 'directory_floor', COALESCE(MAX(version), 0) FROM record;
CREATE INDEX record_version ON record (version);
CREATE TABLE tombstone (
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY (kind, key)
) WITHOUT ROWID;
