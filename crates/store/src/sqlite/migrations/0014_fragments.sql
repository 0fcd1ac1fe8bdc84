-- The token of the duty under which a cursor was saved: a desk that lost the duty cannot move it.
ALTER TABLE cursor ADD COLUMN token INTEGER NOT NULL DEFAULT 0;

-- Fragments of events that are not complete. `claim` 0: the group is open. `sealed` is null once it was joined; the row
-- stays for a while, so that a fragment that is sent again is known.
CREATE TABLE fragment (
    platform   TEXT NOT NULL,
    bot        TEXT NOT NULL,
    id         TEXT NOT NULL,
    chat_id    TEXT NOT NULL,
    grp        TEXT NOT NULL,
    at_ms      INTEGER NOT NULL,
    arrival    INTEGER NOT NULL,
    claim      INTEGER NOT NULL DEFAULT 0,
    claimed_ms INTEGER NOT NULL DEFAULT 0,
    sealed     BLOB,
    PRIMARY KEY (platform, bot, id)
) WITHOUT ROWID;
CREATE INDEX fragment_kept ON fragment (platform, bot, claim, chat_id, grp) WHERE sealed IS NOT NULL;
CREATE INDEX fragment_claimed ON fragment (claim, claimed_ms) WHERE sealed IS NOT NULL;
CREATE INDEX fragment_joined ON fragment (at_ms) WHERE sealed IS NULL;
