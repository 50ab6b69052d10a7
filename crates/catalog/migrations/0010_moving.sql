-- Snapshots that travelled: by which files they are known elsewhere, and where they came from.

-- A snapshot is known by the identity of each file it was exported to or imported from. Whoever has a snapshot of the same
-- identity has the same content, so a file may hold no more than what differs from it.
CREATE TABLE snapshot_identities (
    tenant    TEXT NOT NULL REFERENCES tenants (id),
    identity  TEXT NOT NULL,
    snapshot  TEXT NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    noted_ms  INTEGER NOT NULL,
    PRIMARY KEY (tenant, identity, snapshot)
) STRICT, WITHOUT ROWID;
CREATE INDEX snapshot_identities_by_snapshot ON snapshot_identities (snapshot, noted_ms);
