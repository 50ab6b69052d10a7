-- What sandboxes asked the network for, and what was answered.

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
    -- How many alike the row stands for.
    times           INTEGER NOT NULL
) STRICT;
CREATE INDEX egress_log_by_sandbox ON egress_log (sandbox, seq);
CREATE INDEX egress_log_denied ON egress_log (sandbox, seq) WHERE verdict = 'denied';
CREATE INDEX egress_log_by_age ON egress_log (at_ms);
