-- One shot per job of an instance. Ids are never given twice: they tell one arming from the next.
CREATE TABLE shot (
  id INTEGER PRIMARY KEY AUTOINCREMENT, instance INTEGER NOT NULL, job_id TEXT NOT NULL, fire_at TEXT NOT NULL,
  due_ms INTEGER NOT NULL, next_ms INTEGER NOT NULL, lease_ms INTEGER NOT NULL DEFAULT 0, armed_ms INTEGER NOT NULL,
  first_ms INTEGER NOT NULL, attempts INTEGER NOT NULL, grace_ms INTEGER NOT NULL, skip_missed INTEGER NOT NULL,
  callback TEXT NOT NULL, schedule_id TEXT NOT NULL, state TEXT NOT NULL, note TEXT NOT NULL
);
CREATE UNIQUE INDEX shot_job ON shot (instance, job_id);
CREATE INDEX shot_next ON shot (next_ms, id) WHERE state = 'armed';
CREATE INDEX shot_dead ON shot (id) WHERE state = 'dead';

-- What became of shots that are over.
CREATE TABLE shot_end (
  id INTEGER PRIMARY KEY, instance INTEGER NOT NULL, job_id TEXT NOT NULL, fire_at TEXT NOT NULL,
  schedule_id TEXT NOT NULL, outcome TEXT NOT NULL, attempts INTEGER NOT NULL, at_ms INTEGER NOT NULL, note TEXT NOT NULL
);
CREATE INDEX shot_end_instance ON shot_end (instance, id);
CREATE INDEX shot_end_age ON shot_end (at_ms);
