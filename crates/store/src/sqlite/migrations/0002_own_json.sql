-- An instance may get another form of an event than the rest: its context holds what it has not had yet.
ALTER TABLE mail ADD COLUMN json TEXT;
