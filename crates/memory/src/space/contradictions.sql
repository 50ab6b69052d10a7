-- What a merge listed and did not decide: the number of its merge, and what it is about. `settles` is NULL for such a
-- row; a later merge that decides adds one with the number of the row it decides.
CREATE TABLE contradictions (
    seq     INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    thing   INTEGER NOT NULL,
    what    TEXT NOT NULL,
    settles INTEGER
) STRICT;
CREATE INDEX contradictions_seq ON contradictions (seq);
CREATE INDEX contradictions_settles ON contradictions (settles) WHERE settles IS NOT NULL;

-- A watcher of keys asks which of them expire next.
CREATE INDEX kv_expires ON kv (expires_ms) WHERE expires_ms IS NOT NULL;
