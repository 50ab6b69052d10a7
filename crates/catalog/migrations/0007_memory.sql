-- Where what agents remember is kept. What they remember is in files of its own, one per space.
--
-- A sandbox's own space needs no row: it is named after the sandbox it began with. A space under a name outlives
-- sandboxes, and is a row here.

CREATE TABLE spaces (
    id           TEXT PRIMARY KEY,
    tenant       TEXT NOT NULL REFERENCES tenants (id),
    name         TEXT NOT NULL,
    description  TEXT NOT NULL,
    -- JSON.
    labels       TEXT NOT NULL,
    created_ms   INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX spaces_by_name ON spaces (tenant, name);

-- The branch a sandbox remembers on, as JSON. NULL: the one it was born with.
ALTER TABLE sandboxes ADD COLUMN memory TEXT;
CREATE INDEX sandboxes_by_space ON sandboxes (json_extract(memory, '$.space')) WHERE memory IS NOT NULL;
CREATE INDEX sandboxes_by_named_space ON sandboxes (json_extract(spec, '$.memory.space'))
    WHERE json_extract(spec, '$.memory.space') IS NOT NULL;
CREATE INDEX snapshots_by_space ON snapshots (json_extract(snapshot, '$.memory.space'))
    WHERE json_extract(snapshot, '$.memory.space') IS NOT NULL;
