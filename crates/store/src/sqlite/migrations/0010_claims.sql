-- How often a shot was claimed: whoever was slow and lost its claim ends nothing.
ALTER TABLE shot ADD COLUMN claim INTEGER NOT NULL DEFAULT 0;
