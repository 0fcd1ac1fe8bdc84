-- Files that are still at their platform, with the sealed handle by which it gives them out. Each has a row in `media`
-- as well, of size 0. The row here goes when its bytes come.
CREATE TABLE media_remote (
  id TEXT PRIMARY KEY, platform TEXT NOT NULL, bot TEXT NOT NULL, event INTEGER NOT NULL, size INTEGER,
  sealed BLOB NOT NULL
) WITHOUT ROWID;

-- Mail that refers to a file. While these rows are here the file does not expire; they go when all of them are settled.
CREATE TABLE media_mail (
  id TEXT NOT NULL, instance INTEGER NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY (id, instance, seq)
) WITHOUT ROWID;
