-- Several desks: who does an action, and numbers of desks that are never reused.
ALTER TABLE journal ADD COLUMN desk INTEGER NOT NULL DEFAULT 0;
-- Vendors that say later what became of a message.
CREATE TABLE journal_receipt (
    platform   TEXT NOT NULL,
    bot        TEXT NOT NULL,
    receipt_id TEXT NOT NULL,
    entry      INTEGER NOT NULL,
    PRIMARY KEY (platform, bot, receipt_id)
) WITHOUT ROWID;
CREATE INDEX journal_receipt_entry ON journal_receipt (entry);

-- Where each bot's listener goes on after a restart.
CREATE TABLE cursor (
    platform TEXT NOT NULL,
    bot      TEXT NOT NULL,
    value    TEXT NOT NULL,
    PRIMARY KEY (platform, bot)
) WITHOUT ROWID;

-- Each duty's token rises with every holder.
CREATE TABLE duty (
    name  TEXT PRIMARY KEY,
    desk  INTEGER NOT NULL,
    token INTEGER NOT NULL
) WITHOUT ROWID;
