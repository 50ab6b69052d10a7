-- Public keys by which people log in over SSH.

-- A key stands for the API key with which it was added: it may do what that one may, for as long as that one may.
CREATE TABLE ssh_keys (
    id           TEXT PRIMARY KEY,
    tenant       TEXT NOT NULL REFERENCES tenants (id),
    api_key      TEXT NOT NULL REFERENCES keys (id),
    name         TEXT NOT NULL,
    public_key   TEXT NOT NULL,
    -- `SHA256:…`. A key that meant two would mean neither.
    fingerprint  TEXT NOT NULL UNIQUE,
    created_ms   INTEGER NOT NULL,
    last_used_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX ssh_keys_by_tenant ON ssh_keys (tenant, created_ms DESC, id DESC);
