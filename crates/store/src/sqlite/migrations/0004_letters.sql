-- What agents say to agents: one inbox per agent. It outlives the event that brought it. Rows are written in the
-- order of events, one after the other, whatever inbox they are for.
CREATE TABLE letter (
  event INTEGER PRIMARY KEY, agent INTEGER NOT NULL, tenant TEXT NOT NULL, at_ms INTEGER NOT NULL,
  delivery_id TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, meta TEXT, session_id TEXT, receipts TEXT NOT NULL
);
-- Each entry of these holds the event as well, so they are in the order of events.
CREATE INDEX letter_agent ON letter (agent);
CREATE INDEX letter_tenant ON letter (tenant);

-- Wakes that are asked for later; an alarm of the same name rings for each.
CREATE TABLE planned_wake (key TEXT PRIMARY KEY, agent INTEGER NOT NULL, json TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX planned_wake_agent ON planned_wake (agent);
