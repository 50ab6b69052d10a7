-- One space. Every row with (seq, branch) is a row of the log: it is written once, is visible to the branches whose chain
-- contains it, and is selected with `sees(branch, seq)`. `fts`, `vectors`, `entries.signs` and `entries.model` are indices:
-- `rebuild` creates them again from the rest.

-- === log and branches ===

-- The counters. They never decrease, even if rows are erased or collected.
CREATE TABLE state (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    last_seq INTEGER NOT NULL,
    last_ms  INTEGER NOT NULL,
    last_row INTEGER NOT NULL
) STRICT;
INSERT INTO state VALUES (1, 0, 0, 0);

CREATE TABLE branches (
    no         INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    parent     INTEGER,
    parent_seq INTEGER,
    -- Its highest number in the log.
    head       INTEGER NOT NULL
) STRICT;

CREATE TABLE log (
    seq    INTEGER PRIMARY KEY,
    branch INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL,
    what   INTEGER NOT NULL
) STRICT;

-- === entries ===

-- Kinds, sessions, sources, users and agents, each stored once.
CREATE TABLE words (
    no   INTEGER PRIMARY KEY,
    word TEXT NOT NULL UNIQUE
) STRICT;

-- `entity` is the row of an entry's first version.
CREATE TABLE ids (
    entity INTEGER PRIMARY KEY,
    id     TEXT NOT NULL UNIQUE
) STRICT;

-- One row per version: the columns of the arena, separate from the texts, so that a space opens without reading those.
CREATE TABLE entries (
    row        INTEGER PRIMARY KEY,
    entity     INTEGER NOT NULL,
    seq        INTEGER NOT NULL UNIQUE,
    branch     INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    importance REAL NOT NULL,
    kind       INTEGER NOT NULL,
    session    INTEGER NOT NULL,
    source     INTEGER NOT NULL,
    user       INTEGER NOT NULL,
    agent      INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    -- A Bloom filter of the metadata, so that a filter reads only metadata that may match.
    tags       INTEGER NOT NULL,
    -- The hash of the text, to find equal texts. NULL if erased.
    hash       INTEGER,
    erased     INTEGER NOT NULL,
    model      INTEGER,
    signs      BLOB
) STRICT;
CREATE INDEX entries_hash ON entries (hash) WHERE hash IS NOT NULL;
CREATE INDEX entries_versions ON entries (entity) WHERE version > 1 OR row <> entity;

CREATE TABLE texts (
    row           INTEGER PRIMARY KEY,
    text          TEXT NOT NULL,
    metadata      TEXT,
    valid_from_ms INTEGER,
    valid_to_ms   INTEGER,
    supersedes    TEXT,
    artifacts     TEXT,
    links         TEXT,
    -- The checksum of the whole entry, so that `check` detects disk errors.
    sum           INTEGER NOT NULL
) STRICT;

-- A deletion passes the old text, and `secure-delete` removes its words from the index at once, so an erased text leaves
-- no trace in it.
CREATE VIRTUAL TABLE fts USING fts5 (
    text, content = 'texts', content_rowid = 'row', tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO fts (fts, rank) VALUES ('secure-delete', 1);

-- Marks of entries: forgotten, cooled, warmed, repeated.
CREATE TABLE marks (
    seq    INTEGER PRIMARY KEY,
    branch INTEGER NOT NULL,
    entity INTEGER NOT NULL,
    what   INTEGER NOT NULL,
    value  INTEGER NOT NULL
) STRICT;
CREATE INDEX marks_entity ON marks (entity);

CREATE TABLE supersedes (
    row    INTEGER NOT NULL,
    target INTEGER NOT NULL,
    PRIMARY KEY (row, target)
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    key    TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    branch INTEGER NOT NULL,
    entity INTEGER NOT NULL,
    PRIMARY KEY (key, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_entity ON keys (entity);

-- Erased entries, without content: an import does not restore them.
CREATE TABLE erased (
    entity INTEGER PRIMARY KEY,
    seq    INTEGER NOT NULL
) STRICT;

CREATE TABLE models (
    no         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    UNIQUE (name, dimensions)
) STRICT;

CREATE TABLE vectors (
    row   INTEGER PRIMARY KEY,
    model INTEGER NOT NULL,
    scale REAL NOT NULL,
    data  BLOB NOT NULL,
    sum   INTEGER NOT NULL
) STRICT;

-- === working memory (kv) ===

-- One row per change of a key; the newest one that a branch sees is the value. `keys` and `bytes` are the usage of the branch
-- after it, so that a limit is checked without counting.
CREATE TABLE kv (
    seq        INTEGER PRIMARY KEY,
    branch     INTEGER NOT NULL,
    key        TEXT NOT NULL,
    -- NULL if it was deleted.
    value      TEXT,
    at_ms      INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    keys       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL
) STRICT;
CREATE INDEX kv_key ON kv (key, branch, seq);
CREATE INDEX kv_branch ON kv (branch, seq);

-- === procedural memory (skills) ===

-- One row per version. `body` is NULL if the skill was forgotten. The vector is of name, description and when to use.
CREATE TABLE skills (
    seq         INTEGER PRIMARY KEY,
    branch      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    description TEXT NOT NULL,
    when_to_use TEXT NOT NULL,
    body        TEXT,
    model       TEXT,
    vector      BLOB
) STRICT;
CREATE INDEX skills_name ON skills (name, branch, seq);

-- One row per run, with the sums of the branch's outcomes of this version after it, so that reading needs no counting.
CREATE TABLE skill_outcomes (
    seq              INTEGER PRIMARY KEY,
    branch           INTEGER NOT NULL,
    name             TEXT NOT NULL,
    version          INTEGER NOT NULL,
    at_ms            INTEGER NOT NULL,
    ok               INTEGER NOT NULL,
    exit_code        INTEGER,
    detail           TEXT NOT NULL,
    took_ms          INTEGER NOT NULL,
    successes        INTEGER NOT NULL,
    failures         INTEGER NOT NULL,
    recent_successes REAL NOT NULL,
    recent_failures  REAL NOT NULL
) STRICT;
CREATE INDEX skill_outcomes_version ON skill_outcomes (name, version, branch, seq);

-- === artifacts ===

-- One row per version. `hash` is NULL if the artifact was forgotten; `released` is 1 when its content may be removed,
-- because neither a branch nor a snapshot refers to it.
CREATE TABLE artifacts (
    seq        INTEGER PRIMARY KEY,
    branch     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    hash       BLOB,
    bytes      INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    metadata   TEXT,
    released   INTEGER NOT NULL
) STRICT;
CREATE INDEX artifacts_name ON artifacts (name, branch, seq);
CREATE INDEX artifacts_hash ON artifacts (hash) WHERE released = 0;

-- The hashes of the 1 MiB blocks of content with several blocks; they are verified with the hash of the content.
CREATE TABLE artifact_blocks (
    hash   BLOB NOT NULL PRIMARY KEY,
    blocks BLOB NOT NULL
) STRICT;

-- === consolidation, sessions and merges ===

-- One row per merge: the point up to which another branch was merged into this one. The merged objects are separate rows.
CREATE TABLE merges (
    seq         INTEGER PRIMARY KEY,
    branch      INTEGER NOT NULL,
    from_space  TEXT NOT NULL,
    from_branch TEXT NOT NULL,
    upto        INTEGER NOT NULL
) STRICT;
CREATE INDEX merges_from ON merges (from_space, seq);

-- Entries of another branch that existed here under another id.
CREATE TABLE merge_joins (
    seq    INTEGER NOT NULL,
    branch INTEGER NOT NULL,
    theirs TEXT NOT NULL,
    ours   TEXT NOT NULL,
    PRIMARY KEY (seq, theirs)
) STRICT, WITHOUT ROWID;
CREATE INDEX merge_joins_theirs ON merge_joins (theirs);
