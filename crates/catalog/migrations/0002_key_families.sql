-- Keys that reach the forks of their sandbox, and keys that end with the key that created them.
-- Whether it also reaches the forks of its sandbox.
ALTER TABLE keys ADD COLUMN forks INTEGER NOT NULL DEFAULT 0;
-- The key that created it, if it ends with that key.
ALTER TABLE keys ADD COLUMN parent TEXT REFERENCES keys (id);
CREATE INDEX sandboxes_by_parent ON sandboxes (json_extract(origin, '$.sandbox')) WHERE origin IS NOT NULL;
