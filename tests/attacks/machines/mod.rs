//! The threat list with microVMs as sandboxes: guest root may do anything to its own kernel, and the host stays
//! unchanged. Attempts that are the same as in a container use the same row; rows with another expected result are here.
//!
//! ```text
//!   SAME             the container's row, unchanged
//!   resources … network   separate rows: attempts may succeed in the guest's kernel, the host is compared
//!   NOT_OF_MACHINES  omitted, each for a reason
//! ```
//!
//! After every row: the emulator is as confined as before (uid, capabilities, `no_new_privs`, filter, namespaces,
//! cgroups, root), and the host's kernel and the base files of all machines are unchanged.
//!
//! Instructions are emulated and run ten to thirty times slower, so the same attempts use smaller numbers.

mod boundaries;
mod emulator;
mod files;
mod kernel;
mod network;
mod resources;

use crate::ground::{Ground, Run, Sandbox};
use crate::report::{Finding, Report, Row, RowFailure, ensure};

/// Rows of containers with the same expected result.
const SAME: [&str; 5] = ["P-R11", "P-K13", "P-F1", "P-F4", "P-F6"];

/// Rows about egress with the same expected result, although a machine has raw sockets and its own network interface.
const SAME_NETWORK: [&str; 6] = ["P-N1", "P-N2", "P-N5", "E-N3", "E-N4", "E-N8"];

/// Rows that every run tries; see `in_time`.
pub(crate) const OFTEN: [&str; 13] = [
    "P-R1", "P-R2", "P-R3", "P-K1", "P-K4", "P-K7", "P-K11", "P-K13", "P-K15", "P-F1", "P-N1", "P-N2", "P-N5",
];

/// Rows of containers that are not tried on machines, and why.
pub(crate) const NOT_OF_MACHINES: &[(&[&str], &str)] = &[
    (&["P-R13"], "the daemon counts what is stored, whatever the sandbox runs in"),
    (
        &["P-K16", "P-K17", "P-K18"],
        "a microVM has a kernel of its own, with no filter of ours in it and no file that tells of the host",
    ),
    (
        &["P-S1", "P-S2", "P-S3", "P-S4", "P-S5", "P-S6", "P-S7", "P-S8", "P-S9"],
        "they are about what the daemon answers to clients, whatever the sandbox runs in",
    ),
    (&["P-R14"], "what its processes send each other is counted by its own kernel"),
    (&["P-R12", "P-R15"], "what its kernel keeps for sockets is RAM of the machine, which P-R2 is about"),
    (
        &["P-N4"],
        "raw sockets are its own kernel's to give; what it sends by them is what P-N3 and E-N4 are about",
    ),
    (
        &["P-N6", "P-N7", "P-N10", "E-N1", "E-N2", "E-N5", "E-N6", "E-N9", "E-N10", "E-T5", "E-T7"],
        "they are about what the egress process does with a connection, and that does not know what sent it",
    ),
];

/// A row whose expected result differs from a container's.
#[derive(Clone, Copy)]
struct MachineRow {
    id: &'static str,
    what: &'static str,
    sandbox: &'static [&'static str],
    attack: fn(&Sandbox<'_>) -> Finding,
    /// `None`: the control of the container's row, whose attempt is the same.
    control: Option<fn(&Ground) -> Finding>,
}

const fn own(id: &'static str, what: &'static str, attack: fn(&Sandbox<'_>) -> Finding) -> MachineRow {
    MachineRow { id, what, sandbox: &[], attack, control: None }
}

impl MachineRow {
    const fn with(self, sandbox: &'static [&'static str]) -> Self {
        Self { sandbox, ..self }
    }

    const fn controlled(self, control: fn(&Ground) -> Finding) -> Self {
        Self { control: Some(control), ..self }
    }

    fn row(&self, containers: &[Row]) -> Row {
        let Self { id, what, sandbox, attack, control } = *self;
        let known = || containers.iter().find(|row| row.id == id).map(|row| row.control);
        let control = control.or_else(known).unwrap_or_else(|| panic!("{id} has no control"));
        Row { id, what, sandbox, attack, control }
    }
}

/// All rows for machines, unordered.
pub(crate) fn rows(containers: &[Row]) -> Vec<Row> {
    let groups = [resources::ROWS, kernel::ROWS, boundaries::ROWS, files::ROWS];
    gathered(containers, &SAME, groups.into_iter().flatten())
}

/// The same for egress.
pub(crate) fn network_rows(containers: &[Row]) -> Vec<Row> {
    gathered(containers, &SAME_NETWORK, network::ROWS.iter())
}

fn gathered<'a>(containers: &[Row], same: &[&str], own: impl Iterator<Item = &'a MachineRow>) -> Vec<Row> {
    let same = containers.iter().filter(|row| same.contains(&row.id)).copied();
    same.chain(own.map(|own| own.row(containers))).collect()
}

/// A report that also checks the emulator and the host after every row.
pub(crate) fn report(driver: &'static str, ground: &Ground) -> Report {
    emulator::remember(ground);
    Report::new(driver).named("", emulator::aftermath)
}

/// Checks that it continues after every attempt.
fn lives(sandbox: &Sandbox<'_>) -> Result<Run, RowFailure> {
    let run = sandbox.sh("echo alive");
    ensure(run.out.trim() == "alive", || format!("the machine is gone: {run:?}"))?;
    Ok(run)
}

/// Leaves only this much of its disk free, so that filling it is quick.
fn nearly_full(sandbox: &Sandbox<'_>, left_kib: u32) -> Result<(), RowFailure> {
    let filled = sandbox.sh(&format!(
        "sync; free=$(df -k --output=avail / | tail -1); fallocate -l $((free-{left_kib}))K /filler && df -k --output=avail / | tail -1"
    ));
    let left: Option<u32> = filled.out.trim().parse().ok();
    ensure(left.is_some_and(|left| left <= left_kib), || format!("the disk is not nearly full: {filled:?}"))
}
