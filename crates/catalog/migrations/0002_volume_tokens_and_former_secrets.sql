-- The number of times that the tokens of E2B's clients for a volume were revoked, as `token_generations` for sandboxes.
CREATE TABLE volume_token_generations (
    volume      TEXT PRIMARY KEY REFERENCES volumes (id) ON DELETE CASCADE,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    generation  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Replaced values of secrets, encrypted as in `secrets`. They are never inserted into requests; responses are scrubbed of them
-- for a limited time.
CREATE TABLE former_secrets (
    tenant       TEXT NOT NULL REFERENCES tenants (id),
    secret       TEXT NOT NULL,
    version      INTEGER NOT NULL,
    sealed       TEXT NOT NULL,
    sealed_by    TEXT NOT NULL,
    replaced_ms  INTEGER NOT NULL,
    PRIMARY KEY (tenant, secret, version),
    FOREIGN KEY (tenant, secret) REFERENCES secrets (tenant, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
