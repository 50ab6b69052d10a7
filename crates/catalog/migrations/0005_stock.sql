-- Volumes, networks and machines made ahead of the sandboxes that will have them.
--
-- A row is durable before the first of them exists, and goes in the commit that makes a sandbox of its id, or when
-- what it names has been removed. The id is that of no sandbox yet.

CREATE TABLE stock (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    image       TEXT NOT NULL,
    disk_bytes  INTEGER NOT NULL,
    made_ms     INTEGER NOT NULL
) STRICT;
