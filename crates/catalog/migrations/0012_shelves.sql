-- Volumes that outlive sandboxes ("shelves", since every disk in the pool is a volume), their snapshots, and who has them.

CREATE TABLE shelves (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    name        TEXT NOT NULL,
    disk_mib    INTEGER NOT NULL,
    -- What is being done to it; with `goes_to` all that the next start needs to undo or complete it.
    state       TEXT NOT NULL,
    goes_to     TEXT,
    origin      TEXT,
    created_ms  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX shelves_by_name ON shelves (tenant, name);
CREATE INDEX shelves_by_age ON shelves (tenant, created_ms, id);

CREATE TABLE shelf_snapshots (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    shelf       TEXT NOT NULL REFERENCES shelves (id) ON DELETE CASCADE,
    name        TEXT,
    -- 0 until its files are there.
    ready       INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX shelf_snapshots_by_name ON shelf_snapshots (shelf, name) WHERE name IS NOT NULL;
CREATE INDEX shelf_snapshots_by_age ON shelf_snapshots (shelf, created_ms, id);

-- Copied out of the sandboxes' specs in the same commit, so that who has a volume is a lookup, and two writers are impossible.
CREATE TABLE shelf_mounts (
    sandbox  TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    shelf    TEXT NOT NULL REFERENCES shelves (id),
    path     TEXT NOT NULL,
    mode     TEXT NOT NULL,
    tenant   TEXT NOT NULL REFERENCES tenants (id),
    PRIMARY KEY (sandbox, shelf)
) STRICT, WITHOUT ROWID;
CREATE INDEX shelf_mounts_by_shelf ON shelf_mounts (shelf);
CREATE UNIQUE INDEX shelf_mounts_writer ON shelf_mounts (shelf) WHERE mode = 'rw';
