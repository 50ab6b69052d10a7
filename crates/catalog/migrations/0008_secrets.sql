-- Secrets, sealed; the authorities that lineages trust; and what stands for a secret inside a sandbox.
--
-- A lineage is named by the space its sandboxes remember in: forks and restored children share it with their origin.
-- `sealed` opens only under the row's tenant, kind, name and version. `sealed_by` names the key, so that what an old
-- key sealed is found.

CREATE TABLE secrets (
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    name        TEXT NOT NULL,
    -- Raised by every new value.
    version     INTEGER NOT NULL,
    -- Raised by every new shape of its placeholder.
    epoch       INTEGER NOT NULL,
    -- JSON.
    spec        TEXT NOT NULL,
    sealed      TEXT NOT NULL,
    sealed_by   TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    changed_ms  INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE authorities (
    lineage      TEXT PRIMARY KEY,
    tenant       TEXT NOT NULL REFERENCES tenants (id),
    -- DER.
    certificate  BLOB NOT NULL,
    sealed       TEXT NOT NULL,
    sealed_by    TEXT NOT NULL,
    created_ms   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE placeholders (
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    secret      TEXT NOT NULL,
    lineage     TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    value       TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (tenant, secret, lineage, epoch),
    FOREIGN KEY (tenant, secret) REFERENCES secrets (tenant, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
