-- Shots that were tried and are to be tried again, and shots that are claimed: few of all that are armed.
CREATE INDEX shot_retry ON shot (next_ms) WHERE state = 'armed' AND attempts > 0;
CREATE INDEX shot_claim ON shot (lease_ms) WHERE state = 'armed' AND lease_ms > 0;
