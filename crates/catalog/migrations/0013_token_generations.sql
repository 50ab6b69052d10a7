-- How often the tokens of a sandbox that E2B's clients use were revoked. The number is part of what a token is an HMAC of.

-- No row: never. A token of such a sandbox is what it was before there was this table.
CREATE TABLE token_generations (
    sandbox     TEXT PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    generation  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
