-- Ports that anybody may open. Not part of a sandbox's specification: a restore must never revive one.
CREATE TABLE published_ports (
    sandbox     TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    port        INTEGER NOT NULL,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (sandbox, port)
) STRICT, WITHOUT ROWID;
