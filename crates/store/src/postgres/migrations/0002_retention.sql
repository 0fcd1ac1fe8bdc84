-- Expired files are read in pages, in this order; all that were released together have one time.
CREATE INDEX media_expires ON media (expires_ms, id);
DROP INDEX media_expiry;

-- A fired alarm is found by its result.
DROP INDEX alarm_fired;
