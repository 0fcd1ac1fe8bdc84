-- One ledger, one owner: two records with one number would share their messages.
CREATE UNIQUE INDEX record_number ON record (json_extract(json, '$.no')) WHERE kind IN ('instance', 'agent');
