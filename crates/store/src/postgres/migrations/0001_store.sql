-- Text is compared byte by byte, as in the embedded store. Small tables that change often leave room in their pages, so
-- that an update stays in the page and touches no index.
CREATE TABLE counter (name text COLLATE "C" PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO counter (name, value) VALUES ('directory', 0), ('directory floor', 0), ('instance', 0);

-- The directory: one version for all of it. Deletions are remembered, so that other servers hear of them.
CREATE TABLE record (
  kind text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, version bigint NOT NULL, no bigint,
  json text COLLATE "C" NOT NULL,
  PRIMARY KEY (kind, key)
);
CREATE INDEX record_version ON record (version);
-- One ledger, one owner: two records with one number would share their messages.
CREATE UNIQUE INDEX record_number ON record (no) WHERE kind IN ('instance', 'agent');
CREATE TABLE tombstone (
  kind text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, version bigint NOT NULL, at_ms bigint NOT NULL,
  PRIMARY KEY (kind, key)
);
CREATE INDEX tombstone_version ON tombstone (version);

-- Servers, their leases by the clock of the database, and their duties. Numbers and tokens are never reused.
CREATE SEQUENCE desk_number;
CREATE TABLE desk (
  number bigint PRIMARY KEY, name text COLLATE "C" NOT NULL, version text COLLATE "C" NOT NULL, lease_until_ms bigint NOT NULL,
  directory_seen bigint NOT NULL DEFAULT 0, is_leaving boolean NOT NULL DEFAULT false,
  report text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE TABLE duty (
  name text COLLATE "C" PRIMARY KEY, desk bigint NOT NULL, token bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX duty_desk ON duty (desk);
CREATE TABLE cursor (
  platform text COLLATE "C" NOT NULL, bot text COLLATE "C" NOT NULL, value text COLLATE "C" NOT NULL,
  token bigint NOT NULL,
  PRIMARY KEY (platform, bot)
) WITH (fillfactor = 50);

-- The ledger. Events and rows are written once; only the small tables of heads and positions change.
CREATE SEQUENCE event_number;
CREATE TABLE event (
  id bigint PRIMARY KEY, dedup bytea NOT NULL, attempt bigint NOT NULL,
  tenant text COLLATE "C" NOT NULL, at_ms bigint NOT NULL, passthrough boolean NOT NULL,
  platform text COLLATE "C" NOT NULL, bot text COLLATE "C" NOT NULL, chat_id text COLLATE "C" NOT NULL,
  session_key text COLLATE "C" NOT NULL, message_id text COLLATE "C" NOT NULL, json text COLLATE "C" NOT NULL,
  verdict text COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX event_dedup ON event (dedup);
-- For what deletes old events; the same holds for `mail_event` and the other indexes of times.
CREATE INDEX event_age ON event (at_ms, id);
-- `reason` is set when somebody ended the row; `json` where the receiver gets another form of the event.
CREATE TABLE mail (
  instance bigint NOT NULL, seq bigint NOT NULL, event bigint NOT NULL, reason text COLLATE "C", json text COLLATE "C",
  PRIMARY KEY (instance, seq)
);
CREATE INDEX mail_event ON mail (event);
-- The last number of each ledger, and the server and session that serve it (0: none). The lock of the row is held from
-- drawing a number until the commit is visible. So the order of numbers is the order of commits, and a session that begins
-- either finds a new row in the ledger or is named to whoever writes it.
CREATE TABLE head (
  instance bigint PRIMARY KEY, last_seq bigint NOT NULL DEFAULT 0, desk bigint NOT NULL DEFAULT 0,
  session bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX head_desk ON head (desk) WHERE desk <> 0;
CREATE TABLE position (
  instance bigint PRIMARY KEY, through bigint NOT NULL, above bigint[] NOT NULL, sent bigint NOT NULL
) WITH (fillfactor = 50);
CREATE SEQUENCE session_number;
CREATE TABLE presence (
  instance bigint PRIMARY KEY,
  idle boolean NOT NULL DEFAULT false, seen_ms bigint NOT NULL DEFAULT 0, noticed_through bigint NOT NULL DEFAULT 0,
  never_acks boolean NOT NULL DEFAULT false, waked_by bigint NOT NULL DEFAULT 0, waked_ms bigint NOT NULL DEFAULT 0,
  gateway text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE TABLE reach (
  tenant text COLLATE "C" NOT NULL, platform text COLLATE "C" NOT NULL, bot text COLLATE "C" NOT NULL,
  chat_id text COLLATE "C" NOT NULL, at_ms bigint NOT NULL,
  PRIMARY KEY (tenant, platform, bot, chat_id)
);
CREATE INDEX reach_age ON reach (at_ms);

CREATE TABLE capability (
  id text COLLATE "C" PRIMARY KEY, tenant text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
  platform text COLLATE "C" NOT NULL, bot text COLLATE "C" NOT NULL, chat_id text COLLATE "C" NOT NULL,
  sealed bytea NOT NULL, expires_ms bigint NOT NULL
);
CREATE INDEX capability_expiry ON capability (expires_ms);
CREATE TABLE capability_key (
  tenant text COLLATE "C" NOT NULL, session_key text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, session_key, kind)
);
CREATE INDEX capability_key_id ON capability_key (id);

-- What agents sent.
CREATE TABLE journal (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, tenant text COLLATE "C" NOT NULL,
  instance text COLLATE "C" NOT NULL, platform text COLLATE "C" NOT NULL, bot text COLLATE "C" NOT NULL,
  chat_id text COLLATE "C" NOT NULL, op text COLLATE "C" NOT NULL, at_ms bigint NOT NULL,
  outcome text COLLATE "C" NOT NULL, parts bigint NOT NULL, cursor bigint NOT NULL, note text COLLATE "C" NOT NULL,
  desk bigint NOT NULL
);
CREATE INDEX journal_open ON journal (id) WHERE outcome = 'open';
CREATE INDEX journal_age ON journal (at_ms) WHERE outcome <> 'open';
CREATE INDEX journal_tenant ON journal (tenant, id);
CREATE TABLE journal_receipt (
  platform text COLLATE "C" NOT NULL, bot text COLLATE "C" NOT NULL, receipt_id text COLLATE "C" NOT NULL,
  entry bigint NOT NULL,
  PRIMARY KEY (platform, bot, receipt_id)
);
CREATE INDEX journal_receipt_entry ON journal_receipt (entry);

-- The built-in chat.
CREATE TABLE chat (
  tenant text COLLATE "C" NOT NULL, chat_id text COLLATE "C" NOT NULL, json text COLLATE "C" NOT NULL,
  last_seq bigint NOT NULL,
  PRIMARY KEY (tenant, chat_id)
);
CREATE TABLE chat_line (
  tenant text COLLATE "C" NOT NULL, chat_id text COLLATE "C" NOT NULL, seq bigint NOT NULL,
  message_id text COLLATE "C" NOT NULL, rev bigint NOT NULL, json text COLLATE "C" NOT NULL, at_ms bigint NOT NULL,
  PRIMARY KEY (tenant, chat_id, seq)
);
CREATE UNIQUE INDEX chat_line_message ON chat_line (tenant, chat_id, message_id);

-- Files. `media_remote` are those whose bytes are still at their platform: they have no `upload`. While mail in
-- `media_mail` is owed, the file does not expire.
CREATE TABLE media (
  id text COLLATE "C" PRIMARY KEY, tenant text COLLATE "C" NOT NULL, mime text COLLATE "C" NOT NULL,
  filename text COLLATE "C", size bigint NOT NULL, expires_ms bigint NOT NULL, upload bigint
);
CREATE INDEX media_tenant ON media (tenant, size);
CREATE INDEX media_expiry ON media (expires_ms);
-- Uploads that are under way, and bytes that are to be deleted (`is_dropped`). Bytes without a row here are those of a file.
CREATE TABLE media_upload (
  upload bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  is_dropped boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
CREATE TABLE media_chunk (
  upload bigint NOT NULL, no integer NOT NULL, bytes bytea NOT NULL,
  PRIMARY KEY (upload, no)
);
-- Encrypted or compressed already, most of them.
ALTER TABLE media_chunk ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE media_remote (
  id text COLLATE "C" PRIMARY KEY, platform text COLLATE "C" NOT NULL, bot text COLLATE "C" NOT NULL,
  event bigint NOT NULL, size bigint, sealed bytea NOT NULL
);
CREATE TABLE media_mail (
  id text COLLATE "C" NOT NULL, instance bigint NOT NULL, seq bigint NOT NULL,
  PRIMARY KEY (id, instance, seq)
);
CREATE INDEX media_mail_row ON media_mail (instance, seq);

-- One alarm per job of an instance. Ids are never given twice: they tell one arming from the next.
CREATE TABLE alarm (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, instance bigint NOT NULL, job_id text COLLATE "C" NOT NULL,
  fire_at text COLLATE "C" NOT NULL, due_ms bigint NOT NULL, next_ms bigint NOT NULL, lease_ms bigint NOT NULL DEFAULT 0,
  armed_ms bigint NOT NULL, first_ms bigint NOT NULL, attempts bigint NOT NULL, grace_ms bigint NOT NULL,
  skip_missed boolean NOT NULL, callback text COLLATE "C" NOT NULL, schedule_id text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL, note text COLLATE "C" NOT NULL, claim bigint NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX alarm_job ON alarm (instance, job_id);
CREATE INDEX alarm_next ON alarm (next_ms, id) WHERE state = 'armed';
CREATE INDEX alarm_dead ON alarm (id) WHERE state = 'dead';
CREATE INDEX alarm_fired ON alarm (due_ms) WHERE state = 'fired';
CREATE INDEX alarm_retry ON alarm (next_ms) WHERE state = 'armed' AND attempts > 0;
CREATE INDEX alarm_claim ON alarm (lease_ms) WHERE state = 'armed' AND lease_ms > 0;
CREATE INDEX alarm_armed ON alarm (instance, id) WHERE state = 'armed';
CREATE TABLE alarm_end (
  instance bigint NOT NULL, id bigint GENERATED BY DEFAULT AS IDENTITY, job_id text COLLATE "C" NOT NULL,
  fire_at text COLLATE "C" NOT NULL, schedule_id text COLLATE "C" NOT NULL, outcome text COLLATE "C" NOT NULL,
  attempts bigint NOT NULL, at_ms bigint NOT NULL, note text COLLATE "C" NOT NULL,
  PRIMARY KEY (instance, id)
);
CREATE INDEX alarm_end_age ON alarm_end (at_ms);

-- Inboxes. A place is drawn under the inbox's lock: messages become readable in the order of their places. A new inbox
-- goes on above all others, so that a reader of a former inbox of the same agent misses nothing.
CREATE SEQUENCE inbox_place;
CREATE TABLE inbox_head (agent bigint PRIMARY KEY, last_place bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE inbox_message (
  agent bigint NOT NULL, place bigint NOT NULL, event bigint NOT NULL, tenant text COLLATE "C" NOT NULL,
  at_ms bigint NOT NULL, delivery_id text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
  text text COLLATE "C" NOT NULL, meta text COLLATE "C", session_id text COLLATE "C", receipts text COLLATE "C" NOT NULL,
  PRIMARY KEY (agent, place)
);
CREATE UNIQUE INDEX inbox_message_event ON inbox_message (event);
CREATE INDEX inbox_message_tenant ON inbox_message (tenant, event);
CREATE INDEX inbox_message_age ON inbox_message (at_ms);
CREATE TABLE planned_wake (
  key text COLLATE "C" PRIMARY KEY, agent bigint NOT NULL, json text COLLATE "C" NOT NULL
);
CREATE INDEX planned_wake_agent ON planned_wake (agent);

-- Skills: the head of each name, every version behind it, and the bodies. A body that comes again under the same name
-- is kept once. The token moves with every change of a head.
CREATE TABLE skill (
  tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, version text COLLATE "C" NOT NULL,
  content_hash text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL, description text COLLATE "C",
  tags text COLLATE "C" NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, status_changed_at bigint,
  author text COLLATE "C", bag text COLLATE "C",
  PRIMARY KEY (tenant, name)
);
CREATE TABLE skill_version (
  tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, no bigint NOT NULL, version text COLLATE "C" NOT NULL,
  content_hash text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL, previous_status text COLLATE "C",
  changed_at bigint NOT NULL, changed_by text COLLATE "C",
  PRIMARY KEY (tenant, name, no)
);
CREATE INDEX skill_version_named ON skill_version (tenant, name, version, no);
CREATE TABLE skill_source (
  tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, content_hash text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, name, content_hash)
);
CREATE TABLE skill_token (tenant text COLLATE "C" PRIMARY KEY, token text COLLATE "C" NOT NULL) WITH (fillfactor = 50);

-- Data of agents. `words` has a hash of each word and of each value that a filter may name, with the tenant in it.
CREATE TABLE data_row (
  tenant text COLLATE "C" NOT NULL, no bigint GENERATED BY DEFAULT AS IDENTITY, id text COLLATE "C" NOT NULL,
  expires_at bigint, has_detail boolean NOT NULL, json text COLLATE "C" NOT NULL, text text COLLATE "C" NOT NULL,
  words bigint[] NOT NULL,
  PRIMARY KEY (tenant, no)
);
CREATE UNIQUE INDEX data_row_id ON data_row (tenant, id);
CREATE INDEX data_row_expires ON data_row (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX data_row_words ON data_row USING gin (words);

-- Fragments of events that are not complete. `claim` 0: the group is open. `sealed` is null once it was joined; the row
-- stays for a while, so that a fragment that is sent again is known.
CREATE SEQUENCE fragment_claim_number;
CREATE TABLE fragment (
  platform text COLLATE "C" NOT NULL, bot text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
  chat_id text COLLATE "C" NOT NULL, grp text COLLATE "C" NOT NULL, at_ms bigint NOT NULL,
  arrival bigint GENERATED BY DEFAULT AS IDENTITY, claim bigint NOT NULL DEFAULT 0, claimed_ms bigint NOT NULL DEFAULT 0,
  sealed bytea,
  PRIMARY KEY (platform, bot, id)
);
CREATE INDEX fragment_kept ON fragment (platform, bot, claim, chat_id, grp) WHERE sealed IS NOT NULL;
CREATE INDEX fragment_claimed ON fragment (claim, claimed_ms) WHERE sealed IS NOT NULL;
CREATE INDEX fragment_joined ON fragment (at_ms) WHERE sealed IS NULL;

-- Questions that somebody waits for at a server. `name` is a hash of the correlation id, which may be long. `is_taken`: the
-- asker has the answer.
CREATE TABLE exchange (
  tenant text COLLATE "C" NOT NULL, name bytea NOT NULL, correlation_id text COLLATE "C" NOT NULL, token bigint NOT NULL,
  desk bigint NOT NULL,
  asker text COLLATE "C", agent bigint NOT NULL, agent_id text COLLATE "C" NOT NULL, delivery_id text COLLATE "C" NOT NULL,
  chat_id text COLLATE "C" NOT NULL, instances bigint[] NOT NULL, timeout_ms bigint NOT NULL, until_ms bigint NOT NULL,
  answer text COLLATE "C", answered_ms bigint NOT NULL DEFAULT 0, is_taken boolean NOT NULL DEFAULT false,
  PRIMARY KEY (tenant, name)
);
CREATE UNIQUE INDEX exchange_token ON exchange (token);

-- Messages for the connectors on the machine of a server.
CREATE TABLE errand (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, server text COLLATE "C" NOT NULL, event bigint NOT NULL,
  from_ms bigint NOT NULL
);
CREATE UNIQUE INDEX errand_server ON errand (server, event);
CREATE INDEX errand_event ON errand (event);

-- What servers do at the moment, and counts of tries. They may be lost in a crash of the database.
CREATE UNLOGGED TABLE claim (mark bytea PRIMARY KEY, desk bigint NOT NULL, until_ms bigint NOT NULL);
-- Results for gateways that are on their way to another server.
CREATE UNLOGGED TABLE parked (
  no bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, instance bigint NOT NULL, at_ms bigint NOT NULL,
  line text COLLATE "C" NOT NULL
);
CREATE INDEX parked_instance ON parked (instance);
CREATE UNLOGGED TABLE tries (mark bytea PRIMARY KEY, count bigint NOT NULL, until_ms bigint NOT NULL);
