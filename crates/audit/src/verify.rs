//! Verifies an export line by line, in constant RAM, offline, for anyone who has a checkpoint or the public key.
//!
//! | manipulation | how it is detected |
//! |---|---|
//! | an event removed, added or swapped | an index is missing, or the root differs |
//! | an event changed | the root differs |
//! | the end removed | no checkpoint, or fewer events than in a checkpoint that was kept elsewhere |
//! | a different log created and signed | the root at the size of the kept checkpoint differs |
//! | the body of an event removed, as if by retention | no retention event covers it |
//! | the export of another log | its tenant or its key differs |

use burrow_model::TenantId;

use crate::export::{Line, parse_line};
use crate::note::{Checkpoint, NoteError, PublicKey};
use crate::tree::{Edge, Hash, empty_hash, leaf_hash};
use crate::{Action, Event};

/// Why a log is not valid.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("line {line} is not a line of an export")]
    NoLine { line: u64 },
    #[error("event {index}, in line {line}, cannot be read: it was changed")]
    NoEvent { index: u64, line: u64 },
    #[error("event {expected} is missing: line {line} contains event {found} instead")]
    Order { expected: u64, found: u64, line: u64 },
    #[error("event {index} belongs to `{found}`, but the log to `{tenant}`")]
    Tenant { index: u64, found: TenantId, tenant: TenantId },
    #[error("the body of event {index} was removed, and no retention event covers it")]
    Removed { index: u64 },
    #[error("line {line} follows the checkpoint at the end")]
    AfterTheEnd { line: u64 },
    #[error("the export has no checkpoint at its end: it was cut off after {events} events")]
    CutOff { events: u64 },
    #[error("the export has {events} events, but its checkpoint {size}")]
    Count { events: u64, size: u64 },
    #[error("the first {size} events do not match the checkpoint {which}")]
    Root { size: u64, which: &'static str },
    #[error(
        "the log has {events} events, fewer than the {size} of the checkpoint kept elsewhere: its end was removed"
    )]
    Shrunk { events: u64, size: u64 },
    #[error("the kept checkpoint belongs to `{found}`, but the log to `{tenant}`")]
    OtherLog { found: TenantId, tenant: TenantId },
    #[error("the checkpoint at the end of the export cannot be trusted")]
    Signature(#[from] NoteError),
}

/// A valid log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    pub tenant: TenantId,
    pub events: u64,
    /// How many of its events have no body because of retention.
    pub removed: u64,
    pub root: Hash,
    /// How many of the checkpoints that were kept elsewhere matched.
    pub kept: usize,
    /// Whether the signature at the end was checked.
    pub signed: bool,
    /// The checkpoint at the end, which should be kept elsewhere.
    pub note: String,
}

/// Verifies lines in order.
#[derive(Debug)]
pub struct Verifier {
    edge: Edge,
    line: u64,
    /// Checkpoints kept elsewhere that were not reached yet, the largest first.
    kept: Vec<Checkpoint>,
    fitting: Vec<Checkpoint>,
    tenant: Option<TenantId>,
    removed: u64,
    /// The last event without a body.
    removed_last: Option<u64>,
    /// Bodies below this index were removed according to retention events.
    removed_below: u64,
    note: Option<String>,
}

impl Verifier {
    /// Creates a verifier with checkpoints that were kept elsewhere, whose signatures the caller has checked or
    /// trusts.
    pub fn new(mut kept: Vec<Checkpoint>) -> Self {
        kept.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.size));
        Self {
            edge: Edge::default(),
            line: 0,
            kept,
            fitting: Vec::new(),
            tenant: None,
            removed: 0,
            removed_last: None,
            removed_below: 0,
            note: None,
        }
    }

    /// The number of events verified so far.
    pub fn events(&self) -> u64 {
        self.edge.size()
    }

    pub fn line(&mut self, line: &[u8]) -> Result<(), VerifyError> {
        self.line += 1;
        if self.note.is_some() {
            return Err(VerifyError::AfterTheEnd { line: self.line });
        }
        self.compare_kept()?;
        match parse_line(line).map_err(|_| VerifyError::NoLine { line: self.line })? {
            Line::Event { index, body } => {
                self.check_order(index)?;
                self.check_event(index, body)?;
                self.edge.append(leaf_hash(body), |_| ());
            }
            Line::Hash { index, hash } => {
                self.check_order(index)?;
                self.removed += 1;
                self.removed_last = Some(index);
                self.edge.append(hash, |_| ());
            }
            Line::Checkpoint { note } => self.note = Some(note),
        }
        Ok(())
    }

    /// Called after the last line; with a key, checks the signature at the end.
    pub fn finish(mut self, key: Option<&PublicKey>) -> Result<VerifyReport, VerifyError> {
        self.compare_kept()?;
        let events = self.events();
        if let Some(longer) = self.kept.pop() {
            return Err(VerifyError::Shrunk { events, size: longer.size });
        }
        let note = self.note.ok_or(VerifyError::CutOff { events })?;
        let last = match key {
            Some(key) => key.verify(&note)?,
            None => Checkpoint::read(&note)?,
        };
        if last.size != events {
            return Err(VerifyError::Count { events, size: last.size });
        }
        if last.root != self.edge.root() {
            return Err(VerifyError::Root { size: events, which: "at the end of the export" });
        }
        if let Some(found) = self.tenant.filter(|found| *found != last.tenant) {
            return Err(VerifyError::Tenant { index: 0, found, tenant: last.tenant });
        }
        if let Some(other) = self.fitting.iter().find(|kept| kept.tenant != last.tenant) {
            return Err(VerifyError::OtherLog { found: other.tenant.clone(), tenant: last.tenant });
        }
        if let Some(index) = self.removed_last.filter(|index| *index >= self.removed_below) {
            return Err(VerifyError::Removed { index });
        }
        Ok(VerifyReport {
            tenant: last.tenant,
            events,
            removed: self.removed,
            root: last.root,
            kept: self.fitting.len(),
            signed: key.is_some(),
            note,
        })
    }

    fn check_order(&self, index: u64) -> Result<(), VerifyError> {
        let expected = self.events();
        if index == expected {
            return Ok(());
        }
        Err(VerifyError::Order { expected, found: index, line: self.line })
    }

    /// Parses an event, checks that it belongs to this log, and applies retention events.
    fn check_event(&mut self, index: u64, body: &[u8]) -> Result<(), VerifyError> {
        let event = Event::from_bytes(body).map_err(|_| VerifyError::NoEvent { index, line: self.line })?;
        if event.action == Action::AuditRetention {
            let below = event.target.and_then(|target| target.as_str().parse().ok()).unwrap_or(0);
            // A retention event covers events before itself.
            self.removed_below = self.removed_below.max(below).min(index.max(self.removed_below));
        }
        match &self.tenant {
            None => self.tenant = Some(event.tenant),
            Some(tenant) if *tenant == event.tenant => {}
            Some(tenant) => {
                return Err(VerifyError::Tenant { index, found: event.tenant, tenant: tenant.clone() });
            }
        }
        Ok(())
    }

    /// Compares with every kept checkpoint of the current size.
    fn compare_kept(&mut self) -> Result<(), VerifyError> {
        while let Some(kept) = self.kept.pop_if(|kept| kept.size == self.edge.size()) {
            let root = if kept.size == 0 { empty_hash() } else { self.edge.root() };
            if root != kept.root {
                return Err(VerifyError::Root { size: kept.size, which: "that was kept elsewhere" });
            }
            self.fitting.push(kept);
        }
        Ok(())
    }
}
