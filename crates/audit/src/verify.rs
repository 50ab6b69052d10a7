//! Checks an export, line by line, in bounded memory: offline, by whoever holds a checkpoint or the key.
//!
//! | what somebody did | how it shows |
//! |---|---|
//! | removed an event, put one in, swapped two | a number is missing, or the root differs |
//! | changed an event | the root differs |
//! | cut off the end | no checkpoint, or fewer events than a checkpoint kept elsewhere counts |
//! | wrote a whole other log and signed it | the root at the size of the kept checkpoint differs |
//! | removed what an event said, as if by retention | no retention event covers it |
//! | another log's export | it is another tenant's, or another key's |

use burrow_model::TenantId;

use crate::export::{Line, parse_line};
use crate::note::{Checkpoint, NoteError, PublicKey};
use crate::tree::{Edge, Hash, empty_hash, leaf_hash};
use crate::{Action, Event};

/// What is wrong with the log.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("line {line} is no line of an export")]
    NoLine { line: u64 },
    #[error("event {index}, in line {line}, cannot be read: it was changed")]
    NoEvent { index: u64, line: u64 },
    #[error("event {expected} is missing: event {found} stands in its place, in line {line}")]
    Order { expected: u64, found: u64, line: u64 },
    #[error("event {index} is of `{found}`, and the log of `{tenant}`")]
    Tenant { index: u64, found: TenantId, tenant: TenantId },
    #[error("what event {index} said was removed, and no retention event says so")]
    Removed { index: u64 },
    #[error("line {line} follows the checkpoint at the end")]
    AfterTheEnd { line: u64 },
    #[error("the export has no checkpoint at its end: it was cut off after {events} events")]
    CutOff { events: u64 },
    #[error("the export has {events} events, and its checkpoint counts {size}")]
    Count { events: u64, size: u64 },
    #[error("the first {size} events are not those that the checkpoint was signed for: {which}")]
    Root { size: u64, which: &'static str },
    #[error(
        "the log has {events} events, fewer than the {size} of the checkpoint kept elsewhere: its end was removed"
    )]
    Shrunk { events: u64, size: u64 },
    #[error("the kept checkpoint is of `{found}`, and the log of `{tenant}`")]
    OtherLog { found: TenantId, tenant: TenantId },
    #[error("the checkpoint at the end of the export cannot be trusted")]
    Signature(#[from] NoteError),
}

/// A log that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub tenant: TenantId,
    pub events: u64,
    /// Those of them whose bodies retention removed.
    pub removed: u64,
    pub root: Hash,
    /// How many checkpoints that were kept elsewhere fit.
    pub kept: usize,
    /// Whether the signature at the end was checked.
    pub signed: bool,
    /// The checkpoint at the end: to be kept, elsewhere.
    pub note: String,
}

/// Takes the lines in order.
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
    /// Retention says that bodies below were removed.
    removed_below: u64,
    note: Option<String>,
}

impl Verifier {
    /// With the checkpoints that were kept elsewhere, whose signatures the caller has checked or chosen to trust.
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

    /// How many events were checked so far.
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
                self.in_order(index)?;
                self.look_at(index, body)?;
                self.edge.append(leaf_hash(body), |_| ());
            }
            Line::Hash { index, hash } => {
                self.in_order(index)?;
                self.removed += 1;
                self.removed_last = Some(index);
                self.edge.append(hash, |_| ());
            }
            Line::Checkpoint { note } => self.note = Some(note),
        }
        Ok(())
    }

    /// After the last line; with a key, the signature at the end is checked.
    pub fn finish(mut self, key: Option<&PublicKey>) -> Result<Verified, VerifyError> {
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
            return Err(VerifyError::Root { size: events, which: "the one at the end of the export" });
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
        Ok(Verified {
            tenant: last.tenant,
            events,
            removed: self.removed,
            root: last.root,
            kept: self.fitting.len(),
            signed: key.is_some(),
            note,
        })
    }

    fn in_order(&self, index: u64) -> Result<(), VerifyError> {
        let expected = self.events();
        if index == expected {
            return Ok(());
        }
        Err(VerifyError::Order { expected, found: index, line: self.line })
    }

    /// Whether it is an event at all, of this log, and what it says about retention.
    fn look_at(&mut self, index: u64, body: &[u8]) -> Result<(), VerifyError> {
        let event = Event::from_bytes(body).map_err(|_| VerifyError::NoEvent { index, line: self.line })?;
        if event.action == Action::AuditRetention {
            let below = event.target.and_then(|target| target.as_str().parse().ok()).unwrap_or(0);
            // It speaks of those before it.
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

    /// Compares with every kept checkpoint of the present size.
    fn compare_kept(&mut self) -> Result<(), VerifyError> {
        while let Some(kept) = self.kept.pop_if(|kept| kept.size == self.edge.size()) {
            let root = if kept.size == 0 { empty_hash() } else { self.edge.root() };
            if root != kept.root {
                return Err(VerifyError::Root { size: kept.size, which: "the one kept elsewhere" });
            }
            self.fitting.push(kept);
        }
        Ok(())
    }
}
