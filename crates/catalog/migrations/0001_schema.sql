-- The schema of the catalog.
--
-- Every table has a tenant. Times are milliseconds since the Unix epoch. Columns named spec, machine, command, outcome,
-- steps, config and detail contain JSON that only the Rust code reads.

CREATE TABLE tenants (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    created_ms  INTEGER NOT NULL
) STRICT;

-- Settings of the catalog itself, under the default tenant.
CREATE TABLE settings (
    tenant  TEXT NOT NULL REFERENCES tenants (id),
    key     TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE sandboxes (
    id           TEXT PRIMARY KEY,
    tenant       TEXT NOT NULL REFERENCES tenants (id),
    name         TEXT,
    spec         TEXT NOT NULL,
    state        TEXT NOT NULL,
    stop_reason  TEXT,
    image        TEXT NOT NULL,
    token        TEXT NOT NULL,
    machine      TEXT,
    created_ms   INTEGER NOT NULL,
    updated_ms   INTEGER NOT NULL,
    started_ms   INTEGER,
    stopped_ms   INTEGER,
    -- Copied from the spec for the index.
    expires_ms   INTEGER,
    failure      TEXT,
    generation   INTEGER NOT NULL,
    -- The dump that the sandbox is woken from, and the snapshot that it was created from, as JSON.
    dump         TEXT,
    origin       TEXT,
    -- The last known activity; the start of the present sleep; the last actions of the policies.
    active_ms    INTEGER,
    slept_ms     INTEGER,
    rotated_ms   INTEGER,
    snapshotted_ms INTEGER,
    -- The memory branch of the sandbox, as JSON. NULL: the branch it was created with.
    memory       TEXT
) STRICT;
CREATE UNIQUE INDEX sandboxes_by_name ON sandboxes (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX sandboxes_by_age ON sandboxes (tenant, created_ms, id);
CREATE INDEX sandboxes_by_expiry ON sandboxes (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX sandboxes_by_image ON sandboxes (image);
CREATE INDEX sandboxes_by_dump ON sandboxes (dump) WHERE dump IS NOT NULL;
CREATE INDEX sandboxes_by_origin ON sandboxes (json_extract(origin, '$.snapshot')) WHERE origin IS NOT NULL;
CREATE INDEX sandboxes_by_rotation ON sandboxes (json_extract(spec, '$.rotate.snapshot'))
    WHERE json_extract(spec, '$.rotate.snapshot') IS NOT NULL;
CREATE INDEX sandboxes_by_space ON sandboxes (json_extract(memory, '$.space')) WHERE memory IS NOT NULL;
CREATE INDEX sandboxes_by_named_space ON sandboxes (json_extract(spec, '$.memory.space'))
    WHERE json_extract(spec, '$.memory.space') IS NOT NULL;

-- Copied from the spec, so that a filter by label uses an index.
CREATE TABLE sandbox_labels (
    sandbox  TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    key      TEXT NOT NULL,
    value    TEXT NOT NULL,
    tenant   TEXT NOT NULL REFERENCES tenants (id),
    PRIMARY KEY (sandbox, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE execs (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    sandbox     TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    argv        TEXT NOT NULL,
    command     TEXT NOT NULL,
    started_ms  INTEGER NOT NULL,
    ended_ms    INTEGER,
    outcome     TEXT,
    state       TEXT NOT NULL,
    generation  INTEGER NOT NULL
) STRICT;
CREATE INDEX execs_by_age ON execs (sandbox, started_ms, id);
CREATE INDEX execs_running ON execs (sandbox) WHERE state = 'running';

CREATE TABLE keys (
    id            TEXT PRIMARY KEY,
    tenant        TEXT NOT NULL REFERENCES tenants (id),
    name          TEXT NOT NULL,
    scope         TEXT NOT NULL,
    sandbox       TEXT,
    created_ms    INTEGER NOT NULL,
    expires_ms    INTEGER,
    revoked_ms    INTEGER,
    last_used_ms  INTEGER,
    prefix        TEXT NOT NULL,
    -- SHA-256 of the whole secret, which is not stored.
    hash          BLOB NOT NULL UNIQUE
) STRICT;
CREATE INDEX keys_by_age ON keys (tenant, created_ms, id);
CREATE INDEX keys_by_sandbox ON keys (sandbox) WHERE sandbox IS NOT NULL;

-- An image may have several names, or none. A removed image keeps its row while sandboxes created from it exist, without
-- files and names: its configuration still applies to the processes in them.
CREATE TABLE images (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    config      TEXT NOT NULL,
    size_bytes  INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    origin      TEXT NOT NULL DEFAULT '{}',
    layer       TEXT,
    removed_ms  INTEGER
) STRICT;
CREATE INDEX images_by_age ON images (tenant, created_ms, id);

CREATE TABLE image_names (
    tenant  TEXT NOT NULL REFERENCES tenants (id),
    name    TEXT NOT NULL,
    image   TEXT NOT NULL REFERENCES images (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX image_names_by_image ON image_names (image);

-- A layer is a disk with all layers below it applied, found by a chain id or by the key of a build step. Images and other
-- layers refer to its disk, since a key may be assigned to a newer disk later. Layers belong to one tenant: knowing a
-- digest gives no access to its content.
CREATE TABLE layers (
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    key         TEXT NOT NULL,
    disk        TEXT NOT NULL UNIQUE,
    parent      TEXT,
    what        TEXT NOT NULL,
    size_bytes  INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    used_ms     INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

-- The journal: a row exists exactly while an operation is in progress. `detail` is what undoing or completing it needs.
CREATE TABLE operations (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    sandbox     TEXT NOT NULL,
    kind        TEXT NOT NULL,
    steps       TEXT NOT NULL,
    started_ms  INTEGER NOT NULL,
    detail      TEXT NOT NULL DEFAULT '{}'
) STRICT;

CREATE TABLE events (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant   TEXT NOT NULL REFERENCES tenants (id),
    at_ms    INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    sandbox  TEXT,
    exec     TEXT,
    detail   TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_tenant ON events (tenant, seq);

CREATE TABLE idempotency (
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    key         TEXT NOT NULL,
    route       TEXT NOT NULL,
    body_hash   BLOB NOT NULL,
    -- 'begun' until the reply is known, then 'done'.
    state       TEXT NOT NULL,
    status      INTEGER,
    body        BLOB,
    -- The sandbox that a create made: its row is the reply.
    sandbox     TEXT,
    -- The run of the daemon that received the request. Requests of earlier runs never finish and are ignored.
    boot        TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_ms);
CREATE INDEX idempotency_by_sandbox ON idempotency (sandbox) WHERE sandbox IS NOT NULL;

-- Ports that are open to every client. They are no part of a sandbox's specification: a restore must never publish one again.
CREATE TABLE published_ports (
    sandbox     TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    port        INTEGER NOT NULL,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (sandbox, port)
) STRICT, WITHOUT ROWID;

-- Connections and lookups of sandboxes, with their verdicts.
CREATE TABLE egress_log (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant          TEXT NOT NULL REFERENCES tenants (id),
    sandbox         TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    at_ms           INTEGER NOT NULL,
    -- 'dns', 'tls', 'http' or 'tcp'.
    kind            TEXT NOT NULL,
    -- 'allowed', 'denied', 'failed' or 'closed'.
    verdict         TEXT NOT NULL,
    host            TEXT NOT NULL,
    port            INTEGER,
    rule            TEXT,
    reason          TEXT,
    address         TEXT,
    sent_bytes      INTEGER,
    received_bytes  INTEGER,
    duration_ms     INTEGER,
    -- The number of equal entries that the row stands for.
    times           INTEGER NOT NULL
) STRICT;
CREATE INDEX egress_log_by_sandbox ON egress_log (sandbox, seq);
CREATE INDEX egress_log_denied ON egress_log (sandbox, seq) WHERE verdict = 'denied';
CREATE INDEX egress_log_by_age ON egress_log (at_ms);

-- Disks, networks and machines that were created ahead of the sandboxes that will use them.
--
-- A row is durable before the first of them exists. It is deleted in the commit that creates a sandbox with its id, or when
-- everything it names has been removed. Until then no sandbox has the id.
CREATE TABLE warm_pool (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    image       TEXT NOT NULL,
    disk_bytes  INTEGER NOT NULL,
    made_ms     INTEGER NOT NULL
) STRICT;

-- A snapshot outlives its sandbox, so `sandbox` is no foreign key. Its row is durable before the first disk or dump that it
-- names exists ('making'), and is deleted after the last of them. The columns beside `snapshot` are copied from it for the
-- indexes.
CREATE TABLE snapshots (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    sandbox     TEXT NOT NULL,
    name        TEXT,
    -- 'making' until everything that it names exists, then 'ready'.
    state       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    parent      TEXT,
    image       TEXT NOT NULL,
    dump        TEXT,
    created_ms  INTEGER NOT NULL,
    expires_ms  INTEGER,
    -- The snapshot as JSON, without its changed files: that list is long, and shown for one snapshot only.
    snapshot    TEXT NOT NULL,
    changes     TEXT
) STRICT;
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX snapshots_by_age ON snapshots (tenant, created_ms, id);
CREATE INDEX snapshots_by_sandbox ON snapshots (sandbox, created_ms, id);
CREATE INDEX snapshots_by_parent ON snapshots (parent) WHERE parent IS NOT NULL;
CREATE INDEX snapshots_by_expiry ON snapshots (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX snapshots_by_dump ON snapshots (dump) WHERE dump IS NOT NULL;
CREATE INDEX snapshots_by_image ON snapshots (image);
CREATE INDEX snapshots_by_space ON snapshots (json_extract(snapshot, '$.memory.space'))
    WHERE json_extract(snapshot, '$.memory.space') IS NOT NULL;

CREATE TABLE snapshot_labels (
    snapshot  TEXT NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    tenant    TEXT NOT NULL REFERENCES tenants (id),
    PRIMARY KEY (snapshot, key)
) STRICT, WITHOUT ROWID;

-- Named memory spaces, which outlive sandboxes. The memory itself is in one file per space. A sandbox's own space has no
-- row: its id is derived from that of the sandbox it began with.
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

-- Encrypted secrets; the certificate authorities that sandboxes trust; and the placeholders of secrets inside sandboxes.
--
-- A lineage is identified by the memory space of its sandboxes: forks and restored children share it with their origin.
-- `sealed` can be decrypted only with the row's tenant, kind, name and version. `sealed_by` names the key, so that values
-- encrypted with an old key can be found.
CREATE TABLE secrets (
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    name        TEXT NOT NULL,
    -- Incremented with every new value.
    version     INTEGER NOT NULL,
    -- Incremented with every new format of its placeholder.
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

-- Merges of one sandbox into another, and races between forks.
--
-- A merge's row is durable before the first file of the parent changes ('applying'), with its operation in the journal. The
-- state is 'remembering' from the commit that makes the files final until the child's memory is merged, then 'done'. Neither
-- sandbox is a foreign key: both may be deleted while the merge is still listed.
CREATE TABLE merges (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    -- The parent and the child.
    sandbox     TEXT NOT NULL,
    child       TEXT NOT NULL,
    state       TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    -- All fields, as JSON.
    merge       TEXT NOT NULL
) STRICT;
CREATE INDEX merges_by_sandbox ON merges (sandbox, created_ms, id);
CREATE INDEX merges_by_state ON merges (state) WHERE state <> 'done';

CREATE TABLE races (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    sandbox     TEXT NOT NULL,
    -- 'running' until it is settled, then 'done'. A start continues the running ones.
    state       TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    -- All fields, as JSON.
    race        TEXT NOT NULL
) STRICT;
CREATE INDEX races_by_age ON races (tenant, created_ms, id);
CREATE INDEX races_by_state ON races (state) WHERE state <> 'done';

-- The identities of files that a snapshot was exported to or imported from. Snapshots with the same identity on two hosts
-- have the same content, so an export can contain the differences only.
CREATE TABLE snapshot_identities (
    tenant    TEXT NOT NULL REFERENCES tenants (id),
    identity  TEXT NOT NULL,
    snapshot  TEXT NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    noted_ms  INTEGER NOT NULL,
    PRIMARY KEY (tenant, identity, snapshot)
) STRICT, WITHOUT ROWID;
CREATE INDEX snapshot_identities_by_snapshot ON snapshot_identities (snapshot, noted_ms);

-- Public keys for logins over SSH. Each has the rights of the API key with which it was added, as long as that key is valid.
CREATE TABLE ssh_keys (
    id           TEXT PRIMARY KEY,
    tenant       TEXT NOT NULL REFERENCES tenants (id),
    api_key      TEXT NOT NULL REFERENCES keys (id),
    name         TEXT NOT NULL,
    public_key   TEXT NOT NULL,
    -- `SHA256:…`. Unique, because it identifies the login.
    fingerprint  TEXT NOT NULL UNIQUE,
    created_ms   INTEGER NOT NULL,
    last_used_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX ssh_keys_by_tenant ON ssh_keys (tenant, created_ms DESC, id DESC);

-- Volumes, their snapshots, and the sandboxes that mount them.
CREATE TABLE volumes (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    name        TEXT NOT NULL,
    disk_mib    INTEGER NOT NULL,
    -- The operation in progress, if any; with `goes_to` everything that the next start needs to undo or complete it.
    state       TEXT NOT NULL,
    goes_to     TEXT,
    origin      TEXT,
    created_ms  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX volumes_by_name ON volumes (tenant, name);
CREATE INDEX volumes_by_age ON volumes (tenant, created_ms, id);

CREATE TABLE volume_snapshots (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    volume      TEXT NOT NULL REFERENCES volumes (id) ON DELETE CASCADE,
    name        TEXT,
    -- 0 until its files exist.
    ready       INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX volume_snapshots_by_name ON volume_snapshots (volume, name) WHERE name IS NOT NULL;
CREATE INDEX volume_snapshots_by_age ON volume_snapshots (volume, created_ms, id);

-- Copied from the specs of sandboxes in the same commit: finds the users of a volume, and makes two writers impossible.
CREATE TABLE volume_mounts (
    sandbox  TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    volume   TEXT NOT NULL REFERENCES volumes (id),
    path     TEXT NOT NULL,
    mode     TEXT NOT NULL,
    tenant   TEXT NOT NULL REFERENCES tenants (id),
    PRIMARY KEY (sandbox, volume)
) STRICT, WITHOUT ROWID;
CREATE INDEX volume_mounts_by_volume ON volume_mounts (volume);
CREATE UNIQUE INDEX volume_mounts_writer ON volume_mounts (volume) WHERE mode = 'rw';

-- The number of times that the tokens of E2B's clients for a sandbox were revoked, which is part of each token's HMAC. No row
-- means never.
CREATE TABLE token_generations (
    sandbox     TEXT PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    generation  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

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
