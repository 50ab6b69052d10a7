-- One space. Whatever carries (seq, branch) is a row of the log: written once, seen by the branches whose chain has
-- it, found through `sees(branch, seq)`. `fts`, `vectors`, `entries.signs` and `entries.model` are indices: `rebuild`
-- makes them anew from the rest.

-- === log and branches ===

-- The counters. None of them ever goes back, whatever is erased or collected.
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

-- One row per version: what the arena holds, apart from the texts so that a space opens without reading them.
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
    -- Some bits of the metadata, so that a filter reads only what may match.
    tags       INTEGER NOT NULL,
    -- Of the text, for finding the same one again. NULL once erased.
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
    -- Over the whole entry, so that `check` notices what the disk changed.
    sum           INTEGER NOT NULL
) STRICT;

-- The text is given again when a row is deleted, and `secure-delete` takes its words out of the index at once, so an
-- erased text leaves no trace in it.
CREATE VIRTUAL TABLE fts USING fts5 (
    text, content = 'texts', content_rowid = 'row', tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO fts (fts, rank) VALUES ('secure-delete', 1);

-- Forgotten, cooled, warmed, repeated.
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

-- What was erased, by number alone: an import does not bring it back.
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

-- One row per change of a key; the newest one a branch sees is what the key holds. `keys` and `bytes` are what the branch
-- held after it, so that a limit is checked without counting.
CREATE TABLE kv (
    seq        INTEGER PRIMARY KEY,
    branch     INTEGER NOT NULL,
    key        TEXT NOT NULL,
    -- NULL: it was deleted.
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

-- One row per version. `body` is NULL where the skill was forgotten. The vector is of name, description and when to use.
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

-- One row per run, with what the branch had learned of this version after it: sums, so that reading needs no counting.
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

-- One row per version. `hash` is NULL where the artifact was forgotten; `released` is 1 once its content may be gone,
-- since neither a branch nor a snapshot has it any more.
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

-- The hashes of the 1 MiB blocks of content that has more than one; they prove themselves against the hash.
CREATE TABLE artifact_blocks (
    hash   BLOB NOT NULL PRIMARY KEY,
    blocks BLOB NOT NULL
) STRICT;

-- === consolidation, sessions and merges ===

-- One row per merge: up to where another branch was brought into this one. What a merge brought are rows of their own.
CREATE TABLE merges (
    seq         INTEGER PRIMARY KEY,
    branch      INTEGER NOT NULL,
    from_space  TEXT NOT NULL,
    from_branch TEXT NOT NULL,
    upto        INTEGER NOT NULL
) STRICT;
CREATE INDEX merges_from ON merges (from_space, seq);

-- Another branch's entries that were here already under another id.
CREATE TABLE merge_joins (
    seq    INTEGER NOT NULL,
    branch INTEGER NOT NULL,
    theirs TEXT NOT NULL,
    ours   TEXT NOT NULL,
    PRIMARY KEY (seq, theirs)
) STRICT, WITHOUT ROWID;
CREATE INDEX merge_joins_theirs ON merge_joins (theirs);
