//! Moving memory between hosts: writes what a branch sees at one moment, and reads it into a new file.
//!
//! ```text
//!  space ─► the chain of a point ─► its visible rows, as lines ─► … ─► a new file, fully checked ─► contents of artifacts
//! ```
//!
//! The whole past is included: versions, marks, sessions, keys, skills with their outcomes, artifacts, merges. So reads of the
//! past work as before. Rows that the branch does not see are not written, including their labels and branches.
//! Indices and vectors are not included: the receiver computes them again with its own model.
//!
//! A line is a JSON array: the table, then its columns in the order of [`TABLES`]; bytes are `{"x": "<hex>"}`. The first
//! line is an object. Rows and branches are renumbered without gaps, so no number in a file makes its reader
//! allocate more than the file's own length justifies. The reader trusts nothing: values must have the types of the schema, and a
//! file that is not consistent (see `check`) is refused and removed.

mod take_in;
#[cfg(test)]
mod tests;
mod write_out;

use serde::{Deserialize, Serialize};

use crate::artifacts::BlobHash;

pub use take_in::ImportedMemory;

/// The format of the lines.
pub const ROWS_VERSION: u32 = 1;

/// Bytes of one line: a text with all of its fields.
const LINE_BYTES_MAX: usize = 2 << 20;

/// Bytes of lines that are passed on together.
const BATCH_BYTES: usize = 512 << 10;

/// The content of an artifact that must be moved as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CarriedBlob {
    pub hash: BlobHash,
    pub bytes: u64,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeaderLine {
    rows: u32,
    /// The version of the tables.
    format: u32,
    branch: String,
    seq: u64,
    /// The time of the newest row.
    ms: u64,
}

/// A table that is included.
struct Table {
    name: &'static str,
    columns: &'static str,
    /// The query that reads it, with renumbered rows and branches.
    select: &'static str,
}

/// Ordered so that referenced tables come first.
///
/// `r` maps rows and entities, `b` branches; rows and branches that are in neither are not visible.
const TABLES: &[Table] = &[
    Table {
        name: "branches",
        columns: "no, id, parent, parent_seq, head",
        select: "SELECT b.new, t.id, (SELECT p.new FROM temp.b AS p WHERE p.old = t.parent), t.parent_seq,
                 (SELECT coalesce(max(seq), 0) FROM log WHERE branch = t.no AND seq <= b.bound)
                 FROM branches t JOIN temp.b AS b ON b.old = t.no ORDER BY b.new",
    },
    Table {
        name: "log",
        columns: "seq, branch, at_ms, what",
        select: "SELECT t.seq, b.new, t.at_ms, t.what FROM log t JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound
                 ORDER BY t.seq",
    },
    Table {
        name: "words",
        columns: "no, word",
        select: "SELECT no, word FROM words WHERE no IN (SELECT kind FROM temp.e UNION SELECT session FROM temp.e
                 UNION SELECT source FROM temp.e UNION SELECT user FROM temp.e UNION SELECT agent FROM temp.e) ORDER BY no",
    },
    Table {
        name: "ids",
        columns: "entity, id",
        select: "SELECT r.new, t.id FROM ids t JOIN temp.r AS r ON r.old = t.entity
                 WHERE t.entity IN (SELECT entity FROM temp.e) ORDER BY r.new",
    },
    Table {
        name: "entries",
        columns: "row, entity, seq, branch, version, at_ms, importance, kind, session, source, user, agent, count, erased",
        select: "SELECT r.new, n.new, t.seq, b.new, t.version, t.at_ms, t.importance, t.kind, t.session, t.source, t.user,
                 t.agent, t.count, t.erased
                 FROM temp.e AS t JOIN temp.r AS r ON r.old = t.row JOIN temp.r AS n ON n.old = t.entity
                 JOIN temp.b AS b ON b.old = t.branch ORDER BY r.new",
    },
    Table {
        name: "texts",
        columns: "row, text, metadata, valid_from_ms, valid_to_ms, supersedes, artifacts, links, sum",
        select: "SELECT r.new, t.text, t.metadata, t.valid_from_ms, t.valid_to_ms, t.supersedes, t.artifacts, t.links, t.sum
                 FROM texts t JOIN temp.e AS e ON e.row = t.row JOIN temp.r AS r ON r.old = t.row ORDER BY r.new",
    },
    Table {
        name: "marks",
        columns: "seq, branch, entity, what, value",
        select: "SELECT t.seq, b.new, r.new, t.what, t.value FROM marks t
                 JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound JOIN temp.r AS r ON r.old = t.entity
                 WHERE t.entity IN (SELECT entity FROM temp.e) ORDER BY t.seq",
    },
    Table {
        name: "supersedes",
        columns: "row, target",
        select: "SELECT r.new, n.new FROM supersedes t JOIN temp.r AS r ON r.old = t.row JOIN temp.r AS n ON n.old = t.target
                 WHERE t.row IN (SELECT row FROM temp.e) AND t.target IN (SELECT entity FROM temp.e) ORDER BY 1, 2",
    },
    Table {
        name: "keys",
        columns: "key, seq, branch, entity",
        select: "SELECT t.key, t.seq, b.new, r.new FROM keys t
                 JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound JOIN temp.r AS r ON r.old = t.entity
                 WHERE t.entity IN (SELECT entity FROM temp.e) ORDER BY t.key, t.seq",
    },
    Table {
        name: "erased",
        columns: "entity, seq",
        select: "SELECT r.new, t.seq FROM erased t JOIN temp.r AS r ON r.old = t.entity
                 WHERE t.entity IN (SELECT entity FROM temp.e) ORDER BY 1",
    },
    Table {
        name: "kv",
        columns: "seq, branch, key, value, at_ms, created_ms, expires_ms, keys, bytes",
        select: "SELECT t.seq, b.new, t.key, t.value, t.at_ms, t.created_ms, t.expires_ms, t.keys, t.bytes FROM kv t
                 JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound ORDER BY t.seq",
    },
    Table {
        name: "skills",
        columns: "seq, branch, name, version, at_ms, description, when_to_use, body, model, vector",
        select: "SELECT t.seq, b.new, t.name, t.version, t.at_ms, t.description, t.when_to_use, t.body, t.model, t.vector
                 FROM skills t JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound ORDER BY t.seq",
    },
    Table {
        name: "skill_outcomes",
        columns: "seq, branch, name, version, at_ms, ok, exit_code, detail, took_ms, successes, failures,
                  recent_successes, recent_failures",
        select: "SELECT t.seq, b.new, t.name, t.version, t.at_ms, t.ok, t.exit_code, t.detail, t.took_ms, t.successes,
                 t.failures, t.recent_successes, t.recent_failures FROM skill_outcomes t
                 JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound ORDER BY t.seq",
    },
    Table {
        name: "artifacts",
        columns: "seq, branch, name, version, at_ms, hash, bytes, media_type, metadata, released",
        select: "SELECT t.seq, b.new, t.name, t.version, t.at_ms, t.hash, t.bytes, t.media_type, t.metadata, t.released
                 FROM artifacts t JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound ORDER BY t.seq",
    },
    Table {
        name: "merges",
        columns: "seq, branch, from_space, from_branch, upto",
        select: "SELECT t.seq, b.new, t.from_space, t.from_branch, t.upto FROM merges t
                 JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound ORDER BY t.seq",
    },
    Table {
        name: "merge_joins",
        columns: "seq, branch, theirs, ours",
        select: "SELECT t.seq, b.new, t.theirs, t.ours FROM merge_joins t
                 JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound ORDER BY t.seq, t.theirs",
    },
    Table {
        name: "contradictions",
        columns: "seq, branch, thing, what, settles",
        select: "SELECT t.seq, b.new, t.thing, t.what, t.settles FROM contradictions t
                 JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound ORDER BY t.seq",
    },
];

/// The maximum depth and number of branches.
const BRANCHES_MAX: usize = 100_000;
