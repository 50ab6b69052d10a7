-- The foundation: who, what runs, what was run, who may ask, what happened.
--
-- Every table names its tenant. Times are milliseconds since the Unix epoch. Columns called spec, machine, command,
-- outcome, steps, config and detail hold JSON that only the code above reads.

CREATE TABLE tenants (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    created_ms  INTEGER NOT NULL
) STRICT;

-- Small facts the catalog keeps about itself, under the default tenant.
CREATE TABLE settings (
    tenant  TEXT NOT NULL REFERENCES tenants (id),
    key     TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE sandboxes (
    id           TEXT PRIMARY KEY,
    tenant       TEXT NOT NULL REFERENCES tenants (id),
    name         TEXT,
    spec         TEXT NOT NULL,
    state        TEXT NOT NULL,
    stop_reason  TEXT,
    image        TEXT NOT NULL,
    token        TEXT NOT NULL,
    machine      TEXT,
    created_ms   INTEGER NOT NULL,
    updated_ms   INTEGER NOT NULL,
    started_ms   INTEGER,
    stopped_ms   INTEGER,
    -- Copied out of the spec, so that what is due is found by index.
    expires_ms   INTEGER,
    failure      TEXT,
    generation   INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX sandboxes_by_name ON sandboxes (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX sandboxes_by_age ON sandboxes (tenant, created_ms, id);
CREATE INDEX sandboxes_by_expiry ON sandboxes (expires_ms) WHERE expires_ms IS NOT NULL;

-- Copied out of the spec, so that a filter by label is a lookup.
CREATE TABLE sandbox_labels (
    sandbox  TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    key      TEXT NOT NULL,
    value    TEXT NOT NULL,
    tenant   TEXT NOT NULL REFERENCES tenants (id),
    PRIMARY KEY (sandbox, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE execs (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    sandbox     TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    argv        TEXT NOT NULL,
    command     TEXT NOT NULL,
    started_ms  INTEGER NOT NULL,
    ended_ms    INTEGER,
    outcome     TEXT,
    state       TEXT NOT NULL,
    generation  INTEGER NOT NULL
) STRICT;
CREATE INDEX execs_by_age ON execs (sandbox, started_ms, id);
CREATE INDEX execs_running ON execs (sandbox) WHERE state = 'running';

CREATE TABLE keys (
    id            TEXT PRIMARY KEY,
    tenant        TEXT NOT NULL REFERENCES tenants (id),
    name          TEXT NOT NULL,
    scope         TEXT NOT NULL,
    sandbox       TEXT,
    created_ms    INTEGER NOT NULL,
    expires_ms    INTEGER,
    revoked_ms    INTEGER,
    last_used_ms  INTEGER,
    prefix        TEXT NOT NULL,
    -- SHA-256 of the whole secret. The secret itself is nowhere.
    hash          BLOB NOT NULL UNIQUE
) STRICT;
CREATE INDEX keys_by_age ON keys (tenant, created_ms, id);
CREATE INDEX keys_by_sandbox ON keys (sandbox) WHERE sandbox IS NOT NULL;

CREATE TABLE images (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    name        TEXT NOT NULL,
    -- Whether the name points at this image, or has moved on to a newer one.
    named       INTEGER NOT NULL,
    config      TEXT NOT NULL,
    size_bytes  INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX images_by_name ON images (tenant, name) WHERE named = 1;

-- The journal: a row exists exactly while an operation is under way.
CREATE TABLE operations (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    sandbox     TEXT NOT NULL,
    kind        TEXT NOT NULL,
    steps       TEXT NOT NULL,
    started_ms  INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant   TEXT NOT NULL REFERENCES tenants (id),
    at_ms    INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    sandbox  TEXT,
    exec     TEXT,
    detail   TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_tenant ON events (tenant, seq);

CREATE TABLE idempotency (
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    key         TEXT NOT NULL,
    route       TEXT NOT NULL,
    body_hash   BLOB NOT NULL,
    -- 'begun' until the reply is known, then 'done'.
    state       TEXT NOT NULL,
    status      INTEGER,
    body        BLOB,
    -- The sandbox a create made: its row is the reply.
    sandbox     TEXT,
    -- Which run of the daemon began it: what a dead one began will never be done, and does not count.
    boot        TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_ms);
CREATE INDEX idempotency_by_sandbox ON idempotency (sandbox) WHERE sandbox IS NOT NULL;
