-- Retention finds chats by their age, a few at a time.
CREATE INDEX reach_age ON reach (at_ms);
