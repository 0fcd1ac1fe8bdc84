-- What a tenant has stored, of files whose bytes are here, so that an upload need not count them. It is counted anew at
-- each start.
CREATE TABLE media_total (tenant TEXT PRIMARY KEY, files INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
DROP INDEX media_tenant;
