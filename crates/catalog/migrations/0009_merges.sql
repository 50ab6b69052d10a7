-- Merges of one sandbox's work into another, and races between forks.
--
-- A merge's row is durable before the first file of the parent changes ('applying'), with its operation in the journal. It
-- says 'remembering' from the commit that makes the files final until what the child remembered has come too, and 'done'
-- after that. Neither sandbox is a foreign key: both may go, and what was done stays told for a while.

CREATE TABLE merges (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    -- Into which, and from which.
    sandbox     TEXT NOT NULL,
    child       TEXT NOT NULL,
    state       TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    -- All of it, as JSON.
    merge       TEXT NOT NULL
) STRICT;
CREATE INDEX merges_by_sandbox ON merges (sandbox, created_ms, id);
CREATE INDEX merges_by_state ON merges (state) WHERE state <> 'done';

CREATE TABLE races (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    sandbox     TEXT NOT NULL,
    -- 'running' until all is settled, then 'done': only those that run are gone on with.
    state       TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    -- All of it, as JSON.
    race        TEXT NOT NULL
) STRICT;
CREATE INDEX races_by_age ON races (tenant, created_ms, id);
CREATE INDEX races_by_state ON races (state) WHERE state <> 'done';
