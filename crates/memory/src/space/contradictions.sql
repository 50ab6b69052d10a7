-- Contradictions that a merge listed and did not decide: the number of the merge, and the object. `settles` is NULL for such a
-- row; a later merge that decides it adds a row with the number of that row.
CREATE TABLE contradictions (
    seq     INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    thing   INTEGER NOT NULL,
    what    TEXT NOT NULL,
    settles INTEGER
) STRICT;
CREATE INDEX contradictions_seq ON contradictions (seq);
CREATE INDEX contradictions_settles ON contradictions (settles) WHERE settles IS NOT NULL;

-- Watchers of keys read which keys expire next.
CREATE INDEX kv_expires ON kv (expires_ms) WHERE expires_ms IS NOT NULL;
