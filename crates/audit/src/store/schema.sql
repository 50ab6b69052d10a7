-- One row per tenant: the edge of its tree and the newest checkpoint, signed in the same commit as its leaves.
CREATE TABLE trees (
    number    INTEGER PRIMARY KEY,
    tenant    TEXT NOT NULL UNIQUE,
    size      INTEGER NOT NULL,
    edge      BLOB NOT NULL,
    note      TEXT NOT NULL,
    -- Bodies below this were removed by retention.
    kept_from INTEGER NOT NULL DEFAULT 0
) STRICT;

-- `body` is the hashed content. The columns after it are for searching, and are removed with the body.
CREATE TABLE leaves (
    tree    INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    -- By the daemon's clock, never less than that of the previous event; retention uses it.
    seen_ms INTEGER NOT NULL,
    body    BLOB,
    at_ms   INTEGER,
    action  TEXT,
    outcome TEXT,
    sandbox TEXT,
    actor   TEXT,
    secret  TEXT,
    PRIMARY KEY (tree, place)
) STRICT, WITHOUT ROWID;

CREATE INDEX leaves_of_sandboxes ON leaves (tree, sandbox, place) WHERE sandbox IS NOT NULL;

-- Full subtrees of 256, 65,536, … leaves, so that a proof reads hundreds of hashes instead of all.
CREATE TABLE nodes (
    tree  INTEGER NOT NULL,
    level INTEGER NOT NULL,
    place INTEGER NOT NULL,
    hash  BLOB NOT NULL,
    PRIMARY KEY (tree, level, place)
) STRICT, WITHOUT ROWID;

-- How far each segment of the spool was read; changes in the same commit as the events that were read.
CREATE TABLE segments (number INTEGER PRIMARY KEY, place INTEGER NOT NULL) STRICT;

-- How far the journal was moved into the log; changes in the same commit as the events.
CREATE TABLE journal (segment INTEGER NOT NULL, place INTEGER NOT NULL) STRICT;
INSERT INTO journal VALUES (0, 0);

-- Incremented so that a commit has something to sync.
CREATE TABLE synced (count INTEGER NOT NULL) STRICT;
INSERT INTO synced VALUES (0);
