-- Numbers of ledgers are drawn from here and never given twice.
INSERT INTO meta (key, value)
SELECT 'last_instance', MAX(
  COALESCE((SELECT MAX(json_extract(json, '$.no')) FROM record WHERE kind = 'instance'), 0),
  COALESCE((SELECT MAX(instance) FROM position WHERE instance < 4503599627370496), 0),
  COALESCE((SELECT MAX(instance) FROM presence WHERE instance < 4503599627370496), 0),
  COALESCE((SELECT MAX(instance) FROM shot WHERE instance < 4503599627370496), 0));

-- When a chat was last written in, and when a line was written: what is old can be forgotten.
ALTER TABLE reach ADD COLUMN at_ms INTEGER NOT NULL DEFAULT 0;
UPDATE reach SET at_ms = CAST(unixepoch() AS INTEGER) * 1000;
ALTER TABLE chat_line ADD COLUMN at_ms INTEGER NOT NULL DEFAULT 0;
UPDATE chat_line SET at_ms = COALESCE(json_extract(json, '$.at'), CAST(unixepoch() AS INTEGER) * 1000);

-- The bytes that a tenant has on the shelf are counted before more is put there.
CREATE INDEX media_tenant ON media (tenant, size);
CREATE INDEX media_expiry ON media (expires_ms);

-- A capability that ended takes its keys along.
CREATE INDEX capability_key_id ON capability_key (id);
