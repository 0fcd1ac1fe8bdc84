-- The place of a message is the number of its event, unless the message came from a store that counts places by themselves:
-- then `event` holds the place, which readers have saved, and `origin` the event.
ALTER TABLE letter ADD COLUMN origin INTEGER;
CREATE UNIQUE INDEX letter_origin ON letter (origin) WHERE origin IS NOT NULL;
