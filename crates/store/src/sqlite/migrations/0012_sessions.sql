-- Presence in columns, each written by its own verb; several desks must not write over each other. `session` is the
-- number of the session that serves the instance, `desk` the desk that has it; 0 is none.
CREATE TABLE presence_by_column (
    instance        INTEGER PRIMARY KEY,
    desk            INTEGER NOT NULL DEFAULT 0,
    session         INTEGER NOT NULL DEFAULT 0,
    idle            INTEGER NOT NULL DEFAULT 0,
    seen_ms         INTEGER NOT NULL DEFAULT 0,
    noticed_through INTEGER NOT NULL DEFAULT 0,
    never_acks      INTEGER NOT NULL DEFAULT 0
);
INSERT INTO presence_by_column (instance, idle, seen_ms, noticed_through, never_acks)
    SELECT instance, COALESCE(json_extract(json, '$.idle'), 0), COALESCE(json_extract(json, '$.seen_ms'), 0),
           COALESCE(json_extract(json, '$.noticed_through'), 0), COALESCE(json_extract(json, '$.never_acks'), 0)
    FROM presence;
DROP TABLE presence;
ALTER TABLE presence_by_column RENAME TO presence;

-- The name of the attempt that stored the event; 0 is none.
ALTER TABLE event ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
