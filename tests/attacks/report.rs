//! Runs a row, judges it and prints the result.

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ground::{Ground, Sandbox};
use crate::neighbour::Watch;

/// One line of the threat list.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    /// Options of the sandbox that is attacked from within.
    pub(crate) sandbox: &'static [&'static str],
    /// Ok: it was blocked, and how.
    pub(crate) attack: fn(&Sandbox<'_>) -> Finding,
    /// Ok: without the guard the same attempt succeeds, and where that was observed.
    pub(crate) control: fn(&Ground) -> Finding,
}

pub(crate) type Finding = Result<String, RowFailure>;

#[derive(Debug)]
pub(crate) enum RowFailure {
    /// The attack succeeded, or the control failed.
    Failed(String),
    /// This host cannot show it, for this reason.
    Skipped(String),
}

impl From<String> for RowFailure {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

/// Fails the row unless `holds`.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), RowFailure> {
    if holds { Ok(()) } else { Err(RowFailure::Failed(otherwise())) }
}

const REASON_CHARACTERS_MAX: usize = 1500;

/// A check after every row, while its sandbox still exists.
pub(crate) type Aftermath = fn(&Sandbox<'_>) -> Result<(), RowFailure>;

pub(crate) struct Report {
    /// The beginning of its last line.
    name: &'static str,
    aftermath: Option<Aftermath>,
    rows: usize,
    blocked: usize,
    skipped: usize,
    live: usize,
    failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(driver: &'static str) -> Self {
        println!("driver {driver}");
        Self { name: "", aftermath: None, rows: 0, blocked: 0, skipped: 0, live: 0, failures: Vec::new() }
    }

    /// A report whose last line begins with `name`, with an additional check after every row.
    pub(crate) fn named(self, name: &'static str, aftermath: Aftermath) -> Self {
        Self { name, aftermath: Some(aftermath), ..self }
    }

    pub(crate) fn take(&mut self, row: &Row, ground: &Ground) {
        self.rows += 1;
        let control = guarded(|| (row.control)(ground));
        let attack = guarded(|| attack(row, ground, self.aftermath));
        let shown = match &attack {
            Ok(_) => "blocked",
            Err(RowFailure::Failed(_)) => "GOT THROUGH",
            Err(RowFailure::Skipped(_)) => "skipped",
        };
        let seen = match &control {
            Ok(_) => "control live",
            Err(RowFailure::Failed(_)) => "CONTROL DEAD",
            Err(RowFailure::Skipped(_)) => "control skipped",
        };
        println!("{:<6} {shown}  {seen}  {}", row.id, row.what);
        for (side, finding) in [("attack", &attack), ("control", &control)] {
            match finding {
                Ok(note) if note.is_empty() => {}
                Ok(note) | Err(RowFailure::Skipped(note)) => println!("         {side}: {note}"),
                Err(RowFailure::Failed(why)) => {
                    let why = shortened(why);
                    println!("         {side}: {why}");
                    self.failures.push(format!("{} {side}: {why}", row.id));
                }
            }
        }
        self.blocked += usize::from(attack.is_ok());
        self.live += usize::from(control.is_ok());
        self.skipped += usize::from(matches!(attack, Err(RowFailure::Skipped(_))));
    }

    #[track_caller]
    pub(crate) fn finish(self, ground: &Ground) {
        println!("neighbour: {}", ground.neighbour.summary());
        println!(
            "{}blocked {}/{}, skipped {}, controls live {}/{}",
            self.name, self.blocked, self.rows, self.skipped, self.live, self.rows
        );
        assert!(self.failures.is_empty(), "{:#?}", self.failures);
    }
}

/// The attack, and the checks after it.
fn attack(row: &Row, ground: &Ground, aftermath: Option<Aftermath>) -> Finding {
    let sandbox = ground.sandbox(row.sandbox);
    let watch = Watch::begin(ground);
    let finding = guarded(|| (row.attack)(&sandbox));
    let latencies = watch.end();
    ground.neighbour.note(row.id, &latencies);
    let said = sandbox.said();
    let survived = guarded(|| {
        if let Some(aftermath) = aftermath {
            aftermath(&sandbox)?;
        }
        sandbox.delete();
        ground.check(&said)?;
        Ok(String::new())
    });
    let note = finding?;
    survived?;
    Ok(note)
}

/// A daemon's log of a thousand lines hides the rows around it; its beginning has the cause.
fn shortened(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { ' ' } else { c }).take(REASON_CHARACTERS_MAX).collect()
}

/// A panic fails its row, not those after it.
fn guarded(work: impl FnOnce() -> Finding) -> Finding {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(RowFailure::Failed(text.unwrap_or_else(|| "it panicked".to_owned())))
    })
}
