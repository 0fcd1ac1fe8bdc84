-- Several desks: who does an action, and numbers of desks that are never reused.
ALTER TABLE journal ADD COLUMN desk INTEGER NOT NULL DEFAULT 0;
-- Vendors that say later what became of a message.
ALTER TABLE journal ADD COLUMN receipt_id TEXT NOT NULL DEFAULT '';
CREATE INDEX journal_receipt ON journal (platform, bot, receipt_id) WHERE receipt_id != '';

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
