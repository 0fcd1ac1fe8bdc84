-- What a tenant has stored, of files whose bytes are here, so that an upload need not count them. Triggers change it,
-- because servers of the version before write files as well. (These use the index `media_tenant`, too.)
CREATE TABLE media_total (
  tenant text COLLATE "C" PRIMARY KEY, files bigint NOT NULL, bytes bigint NOT NULL
) WITH (fillfactor = 50);

-- Totals are locked in the order of tenants.
CREATE FUNCTION media_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO media_total AS t (tenant, files, bytes)
  SELECT tenant, count(*) * sign, sum(size)::bigint * sign
  FROM changed, (SELECT CASE TG_OP WHEN 'DELETE' THEN -1 ELSE 1 END AS sign) AS this
  WHERE upload IS NOT NULL GROUP BY tenant, sign ORDER BY tenant
  ON CONFLICT (tenant) DO UPDATE SET files = t.files + excluded.files, bytes = t.bytes + excluded.bytes;
  RETURN NULL;
END $$;
CREATE FUNCTION media_fetched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO media_total AS t (tenant, files, bytes) VALUES (NEW.tenant, 1, NEW.size)
  ON CONFLICT (tenant) DO UPDATE SET files = t.files + 1, bytes = t.bytes + excluded.bytes;
  RETURN NULL;
END $$;
CREATE TRIGGER media_inserted AFTER INSERT ON media REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION media_changed();
CREATE TRIGGER media_deleted AFTER DELETE ON media REFERENCING OLD TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION media_changed();
-- The bytes of a file that was at its platform are here now.
CREATE TRIGGER media_fetched AFTER UPDATE OF upload ON media
  FOR EACH ROW WHEN (OLD.upload IS NULL AND NEW.upload IS NOT NULL) EXECUTE FUNCTION media_fetched();

-- The triggers have locked the table: nothing is written meanwhile.
INSERT INTO media_total (tenant, files, bytes)
SELECT tenant, count(*), sum(size)::bigint FROM media WHERE upload IS NOT NULL GROUP BY tenant;
