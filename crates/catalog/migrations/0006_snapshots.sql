-- Snapshots, and sandboxes whose processes are on disk.
--
-- A snapshot outlives its sandbox, so it names it without a foreign key. Its row is durable before the first volume or
-- dump it names ('making'), and goes after the last of them. The columns beside `snapshot` are copied out of it,
-- so that what is asked for is found by index.

CREATE TABLE snapshots (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    sandbox     TEXT NOT NULL,
    name        TEXT,
    -- 'making' until everything it names is there, then 'ready'.
    state       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    parent      TEXT,
    image       TEXT NOT NULL,
    dump        TEXT,
    created_ms  INTEGER NOT NULL,
    expires_ms  INTEGER,
    -- All of it, as JSON, but for what was changed: that is long, and no list shows it.
    snapshot    TEXT NOT NULL,
    changes     TEXT
) STRICT;
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX snapshots_by_age ON snapshots (tenant, created_ms, id);
CREATE INDEX snapshots_by_sandbox ON snapshots (sandbox, created_ms, id);
CREATE INDEX snapshots_by_parent ON snapshots (parent) WHERE parent IS NOT NULL;
CREATE INDEX snapshots_by_expiry ON snapshots (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX snapshots_by_dump ON snapshots (dump) WHERE dump IS NOT NULL;
CREATE INDEX snapshots_by_image ON snapshots (image);

CREATE TABLE snapshot_labels (
    snapshot  TEXT NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    tenant    TEXT NOT NULL REFERENCES tenants (id),
    PRIMARY KEY (snapshot, key)
) STRICT, WITHOUT ROWID;

-- The dump a sandbox is woken from, and what it was made from, as JSON.
ALTER TABLE sandboxes ADD COLUMN dump TEXT;
ALTER TABLE sandboxes ADD COLUMN origin TEXT;
-- When something was last known to be done in it; since when it sleeps; when its policies last acted.
ALTER TABLE sandboxes ADD COLUMN active_ms INTEGER;
ALTER TABLE sandboxes ADD COLUMN slept_ms INTEGER;
ALTER TABLE sandboxes ADD COLUMN rotated_ms INTEGER;
ALTER TABLE sandboxes ADD COLUMN snapshotted_ms INTEGER;
CREATE INDEX sandboxes_by_dump ON sandboxes (dump) WHERE dump IS NOT NULL;
CREATE INDEX sandboxes_by_origin ON sandboxes (json_extract(origin, '$.snapshot')) WHERE origin IS NOT NULL;
CREATE INDEX sandboxes_by_rotation ON sandboxes (json_extract(spec, '$.rotate.snapshot'))
    WHERE json_extract(spec, '$.rotate.snapshot') IS NOT NULL;

-- What else undoing or completing an operation needs.
ALTER TABLE operations ADD COLUMN detail TEXT NOT NULL DEFAULT '{}';
