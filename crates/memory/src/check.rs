//! Checks that a space's file is consistent, and rebuilds its indices from the log.
//!
//! `check` examines the whole file, not only what a branch sees, and reports what is wrong, but never stored texts.
//! Writers wait while it runs, so that it compares one moment.

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::entries::{fetch, tags};
use crate::space::arena::{ERASED, Row};
use crate::space::checksum::hash;
use crate::space::load::{self, number};
use crate::space::queue::WriteSide;
use crate::space::slots::Access;
use crate::space::{Space, signs};
use crate::{MemoryError, View, blocking};

/// Findings that are reported; a file with more is thoroughly damaged.
const FINDINGS_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Versions of entries in the file, of all branches.
    pub rows: u64,
    pub vectors: u64,
    /// Rows whose vector is not computed yet.
    pub pending: u64,
    pub branches: u64,
    pub seq: u64,
    /// Contents of artifacts that were read and compared with their hashes, each once; and their bytes.
    pub artifacts: u64,
    pub artifact_bytes: u64,
    /// Empty if the file is consistent.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The part that was checked: `file`, `log`, `branches`, `entries`, `texts`, `fts`, `vectors`, `arena`, …
    pub part: String,
    pub why: String,
}

impl View {
    /// Checks the whole file of the space.
    pub async fn check(&self) -> Result<CheckReport, MemoryError> {
        let space = self.space(Access::Read).await?;
        let mut report = blocking(move || space.alone(|side| check(&space, side))).await?;
        self.check_artifacts(&mut report).await?;
        Ok(report)
    }

    /// Runs without blocking writers: a content is never modified, and a content that is swept has no references.
    async fn check_artifacts(&self, report: &mut CheckReport) -> Result<(), MemoryError> {
        let proven = self.artifacts_proven().await?;
        (report.artifacts, report.artifact_bytes) = (proven.contents, proven.bytes);
        let room = FINDINGS_MAX.saturating_sub(report.findings.len());
        let part = || "artifacts".to_owned();
        report
            .findings
            .extend(proven.damaged.into_iter().take(room).map(|why| Finding { part: part(), why }));
        Ok(())
    }

    /// Rebuilds the text index, signs and columns from the log, drops damaged vectors (they are computed again),
    /// and checks.
    pub async fn rebuild(&self) -> Result<CheckReport, MemoryError> {
        let space = self.space(Access::Read).await?;
        let mut report = blocking(move || {
            space.alone(|side| {
                rebuild(&side.connection)?;
                space.reload(side)?;
                check(&space, side)
            })
        })
        .await?;
        self.shared.slots.pending.notify_one();
        self.check_artifacts(&mut report).await?;
        Ok(report)
    }
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, part: &str, why: impl Into<String>) {
        if self.0.len() < FINDINGS_MAX {
            self.0.push(Finding { part: part.to_owned(), why: why.into() });
        }
    }

    /// Runs one part of the check. If a part cannot run, that is a finding.
    fn part(&mut self, part: &str, work: impl FnOnce(&mut Self) -> Result<(), MemoryError>) {
        if let Err(error) = work(self) {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            self.add(part, format!("{error}{}", source.unwrap_or_default()));
        }
    }
}

fn check(space: &Space, side: &mut WriteSide) -> Result<CheckReport, MemoryError> {
    let connection = &side.connection;
    let mut findings = Findings(Vec::new());
    findings.part("file", |findings| integrity(connection, findings));
    findings.part("log", |findings| agreements(connection, findings));
    findings.part("log", |findings| logged(connection, findings));
    findings.part("texts", |findings| contents(connection, findings));
    findings.part("vectors", |findings| all_vectors(connection, findings));
    findings.part("fts", |findings| text_index(connection, findings));
    findings.part("arena", |findings| columns(space, connection, findings));
    let count = |sql: &str| -> u64 {
        let counted = connection.query_row(sql, (), |row| load::unsigned(row, 0));
        counted.unwrap_or(0)
    };
    Ok(CheckReport {
        rows: count("SELECT count(*) FROM entries WHERE erased = 0"),
        vectors: count("SELECT count(*) FROM vectors"),
        pending: space.arena().pending,
        branches: count("SELECT count(*) FROM branches WHERE head > 0"),
        seq: side.counters.seq,
        artifacts: 0,
        artifact_bytes: 0,
        findings: findings.0,
    })
}

fn integrity(connection: &Connection, findings: &mut Findings) -> Result<(), MemoryError> {
    let mut statement = connection.prepare("PRAGMA integrity_check(20)")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            findings.add("file", line);
        }
    }
    Ok(())
}

/// Counts that must be zero.
const AGREEMENTS: &[(&str, &str, &str)] = &[
    ("log", "rows with a sequence number above the counter", "SELECT count(*) FROM log, state WHERE seq > last_seq OR at_ms > last_ms"),
    ("log", "rows older than the previous row", "SELECT count(*) FROM (SELECT at_ms, lag(at_ms) OVER (ORDER BY seq) AS before FROM log)
        WHERE at_ms < before"),
    ("log", "rows of a branch that does not exist", "SELECT count(*) FROM log WHERE branch NOT IN (SELECT no FROM branches)"),
    ("branches", "branches whose parent is missing or newer", "SELECT count(*) FROM branches
        WHERE parent IS NOT NULL AND (parent >= no OR parent NOT IN (SELECT no FROM branches) OR parent_seq IS NULL)"),
    ("branches", "branches whose head is not their newest row", "SELECT count(*) FROM branches b
        WHERE head < (SELECT coalesce(max(seq), 0) FROM log l WHERE l.branch = b.no)"),
    ("entries", "rows with a number above the counter", "SELECT count(*) FROM entries, state WHERE row > last_row"),
    ("entries", "rows without an id", "SELECT count(*) FROM entries WHERE entity NOT IN (SELECT entity FROM ids)"),
    ("entries", "ids without a row", "SELECT count(*) FROM ids i WHERE NOT EXISTS
        (SELECT 1 FROM entries e WHERE e.row = i.entity AND e.entity = i.entity)
        AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.entity = i.entity AND (e.version > 1 OR e.row <> e.entity))"),
    ("entries", "erased rows that have content", "SELECT count(*) FROM entries e WHERE erased <> 0 AND
        (hash IS NOT NULL OR signs IS NOT NULL OR EXISTS (SELECT 1 FROM texts t WHERE t.row = e.row)
         OR EXISTS (SELECT 1 FROM vectors v WHERE v.row = e.row))"),
    ("texts", "rows without a text", "SELECT count(*) FROM entries e
        WHERE erased = 0 AND NOT EXISTS (SELECT 1 FROM texts t WHERE t.row = e.row)"),
    ("texts", "texts without a row", "SELECT count(*) FROM texts WHERE row NOT IN (SELECT row FROM entries WHERE erased = 0)"),
    ("vectors", "rows whose vector is missing", "SELECT count(*) FROM entries e WHERE model IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.row = e.row AND v.model = e.model)"),
    ("vectors", "vectors without a row", "SELECT count(*) FROM vectors v
        WHERE NOT EXISTS (SELECT 1 FROM entries e WHERE e.row = v.row AND e.model = v.model)"),
    ("marks", "marks of an entry that does not exist", "SELECT count(*) FROM marks WHERE entity NOT IN (SELECT entity FROM ids)"),
    ("keys", "keys of an entry that does not exist", "SELECT count(*) FROM keys WHERE entity NOT IN (SELECT entity FROM ids)"),
    ("supersedes", "references to an entry that does not exist", "SELECT count(*) FROM supersedes
        WHERE target NOT IN (SELECT entity FROM ids) OR row NOT IN (SELECT row FROM entries)"),
];

fn agreements(connection: &Connection, findings: &mut Findings) -> Result<(), MemoryError> {
    for (part, what, sql) in AGREEMENTS {
        let count = connection.query_row(sql, (), |row| load::unsigned(row, 0))?;
        if count > 0 {
            findings.add(part, format!("{what}: {count}"));
        }
    }
    Ok(())
}

/// Checks that every row with (seq, branch), in any table, is in the log with the same branch.
fn logged(connection: &Connection, findings: &mut Findings) -> Result<(), MemoryError> {
    let mut statement = connection.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'log'
         AND (SELECT count(*) FROM pragma_table_info(sqlite_schema.name) WHERE name IN ('seq', 'branch')) = 2",
    )?;
    let tables: Vec<String> = statement.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
    for table in tables {
        let sql = format!(
            "SELECT count(*) FROM \"{table}\" t WHERE NOT EXISTS
             (SELECT 1 FROM log l WHERE l.seq = t.seq AND l.branch = t.branch)"
        );
        let count = connection.query_row(&sql, (), |row| load::unsigned(row, 0))?;
        if count > 0 {
            findings.add(&table, format!("rows that are missing from the log: {count}"));
        }
    }
    Ok(())
}

fn contents(connection: &Connection, findings: &mut Findings) -> Result<(), MemoryError> {
    let mut statement =
        connection.prepare("SELECT row, bytes, hash, tags FROM entries WHERE erased = 0 ORDER BY row")?;
    let mut rows = statement.query(())?;
    while let Some(found) = rows.next()? {
        let row = Row(number(found, 0)?);
        match fetch(connection, row) {
            Ok(Some(fetched)) => {
                let text = fetched.entry.text.as_bytes();
                let same = load::unsigned(found, 1)? == text.len() as u64
                    && found.get::<_, Option<i64>>(2)? == Some(hash(text))
                    && found.get::<_, i64>(3)?.cast_unsigned() == tags::of(&fetched.entry.metadata);
                if !fetched.sound {
                    findings.add("texts", format!("the checksum of row {} does not match", row.number()));
                } else if !same {
                    findings
                        .add("entries", format!("the columns of row {} do not match its text", row.number()));
                }
            }
            Ok(None) => findings.add("texts", format!("row {} cannot be read", row.number())),
            Err(error) => findings.add("texts", format!("row {}: {error}", row.number())),
        }
    }
    Ok(())
}

fn all_vectors(connection: &Connection, findings: &mut Findings) -> Result<(), MemoryError> {
    let mut statement = connection.prepare(
        "SELECT v.row, v.scale, v.data, v.sum, e.signs FROM vectors v JOIN entries e ON e.row = v.row ORDER BY v.row",
    )?;
    let mut rows = statement.query(())?;
    while let Some(found) = rows.next()? {
        let packed = signs::PackedVector { scale: found.get::<_, f64>(1)? as f32, data: found.get(2)? };
        let stored: Option<Vec<u8>> = found.get(4)?;
        let sound = found.get::<_, i64>(3)? == signs::sum(&packed);
        if !sound || stored.is_none_or(|stored| !signs::agree(&stored, &packed)) {
            findings.add("vectors", format!("the vector of row {} is damaged", number(found, 0)?));
        }
    }
    Ok(())
}

/// The text index has a command that compares it with the texts.
fn text_index(connection: &Connection, findings: &mut Findings) -> Result<(), MemoryError> {
    if let Err(error) = connection.execute("INSERT INTO fts (fts, rank) VALUES ('integrity-check', 1)", ()) {
        findings.add("fts", format!("the text index does not match the texts: {error}"));
    }
    Ok(())
}

/// Compares the columns in RAM with the file.
fn columns(space: &Space, connection: &Connection, findings: &mut Findings) -> Result<(), MemoryError> {
    let known = space.arena();
    let found = load::load(connection, space.embedder.model())?.arena;
    let mut differing = 0u64;
    let end = known.end.max(found.end);
    for row in (1..end).map(Row) {
        let same = match (known.place(row), found.place(row)) {
            (Some((a, i)), Some((b, j))) => {
                (
                    a.seq[i],
                    a.branch[i],
                    a.entity[i],
                    a.at_ms[i],
                    a.kind[i],
                    a.session[i],
                    a.tags[i],
                    a.covered[i],
                ) == (
                    b.seq[j],
                    b.branch[j],
                    b.entity[j],
                    b.at_ms[j],
                    b.kind[j],
                    b.session[j],
                    b.tags[j],
                    b.covered[j],
                ) && a.flags(i) & ERASED == b.flags(j) & ERASED
                    && (!a.covered[i]
                        || a.signs[i * known.stride..][..known.stride]
                            == b.signs[j * found.stride..][..found.stride])
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        differing += u64::from(!same);
    }
    if differing > 0 {
        findings.add("arena", format!("rows in RAM that differ from the file: {differing}"));
    }
    if (known.head, known.pending) != (found.head, found.pending) {
        findings.add(
            "arena",
            format!(
                "the head or the number of pending rows differs from the file: {} {}",
                known.head, found.head
            ),
        );
    }
    Ok(())
}

/// Checks that a file is consistent, without the columns in RAM; returns the first finding.
pub(crate) fn agree(connection: &Connection) -> Result<(), String> {
    let mut findings = Findings(Vec::new());
    findings.part("log", |findings| agreements(connection, findings));
    findings.part("log", |findings| logged(connection, findings));
    findings.part("texts", |findings| contents(connection, findings));
    findings.part("fts", |findings| text_index(connection, findings));
    findings.0.first().map_or(Ok(()), |first| Err(format!("its {}: {}", first.part, first.why)))
}

pub(crate) fn rebuild(connection: &Connection) -> Result<(), MemoryError> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let result = rebuild_within(connection).and_then(|()| Ok(connection.execute_batch("COMMIT")?));
    if result.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    result
}

fn rebuild_within(connection: &Connection) -> Result<(), MemoryError> {
    connection.execute_batch(
        "INSERT INTO fts (fts) VALUES ('rebuild');
         UPDATE branches SET head = max(head, (SELECT coalesce(max(seq), 0) FROM log WHERE branch = no));
         DELETE FROM vectors WHERE row NOT IN (SELECT row FROM entries WHERE erased = 0);",
    )?;
    let mut columns = connection.prepare("UPDATE entries SET bytes = ?, hash = ?, tags = ? WHERE row = ?")?;
    let mut rows = connection.prepare("SELECT row FROM entries WHERE erased = 0")?;
    let rows: Vec<u32> = rows.query_map((), |row| number(row, 0))?.collect::<Result<_, _>>()?;
    let mut index = connection.prepare("SELECT model, scale, data, sum FROM vectors WHERE row = ?")?;
    let mut cover = connection.prepare("UPDATE entries SET model = ?, signs = ? WHERE row = ?")?;
    let mut drop_vector = connection.prepare("DELETE FROM vectors WHERE row = ?")?;
    for row in rows {
        if let Ok(Some(fetched)) = fetch(connection, Row(row)) {
            let text = fetched.entry.text.as_bytes();
            let bits = tags::of(&fetched.entry.metadata).cast_signed();
            columns.execute((text.len() as i64, hash(text), bits, row))?;
        }
        let mut found = index.query([row])?;
        let mut vector = None;
        if let Some(found) = found.next()? {
            let packed = signs::PackedVector { scale: found.get::<_, f64>(1)? as f32, data: found.get(2)? };
            if found.get::<_, i64>(3)? == signs::sum(&packed) {
                vector = Some((number(found, 0)?, signs::of_packed(&packed)));
            }
        }
        drop(found);
        match vector {
            Some((model, bytes)) => cover.execute((model, bytes, row))?,
            None => {
                drop_vector.execute([row])?;
                cover.execute((None::<u32>, None::<Vec<u8>>, row))?
            }
        };
    }
    Ok(())
}
