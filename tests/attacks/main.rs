//! Hostile code in a sandbox: every row of the threat list, against the real daemon and real sandboxes.
//!
//! ```text
//!   for each row:  control (the same attempt where nothing guards) must succeed ─┐
//!                  attack  (in a fresh sandbox) must fail as stated              ├─► one line of the report
//!                  aftermath: canaries, daemon, neighbour, nothing left behind  ─┘
//! ```
//!
//! A row is blocked when its attempt failed *and* its surroundings are unchanged. Its control proves that the attempt is
//! effective: a probe that fails everywhere proves nothing. A skipped row counts as neither.
//!
//! Needs root and the set-up of `scripts/test.sh`; `make attacks` does both. `BURROW_ATTACKS=P-K3,P-F` runs the rows
//! whose ids begin with these prefixes. All load is limited, and no packet leaves the machine.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

#[path = "../e2e/harness.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest of it")]
mod harness;
#[path = "../e2e/inventory.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest of it")]
mod inventory;

#[path = "../e2e/island.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest of it")]
mod island;

#[path = "../e2e/ssh_client.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest of it")]
mod ssh_client;

mod archives;
mod boundaries;
mod canaries;
mod controls;
mod egress;
mod fence;
mod files;
mod flights;
mod ground;
mod kernel;
mod machines;
mod neighbour;
mod network;
mod protocols;
mod pseudofiles;
mod report;
mod resources;
mod storage;
mod strangers;
mod streams;
mod surfaces;
mod syscalls;
mod test_network;
mod wire;

use ground::Ground;
use report::{Report, Row};

/// The rows, in the order of the threat list.
fn rows() -> Vec<Row> {
    let resources = [resources::ROWS, storage::ROWS, streams::ROWS, flights::ROWS];
    let kernel = [kernel::ROWS, syscalls::ROWS, boundaries::ROWS, pseudofiles::ROWS];
    let files = [files::ROWS, archives::ROWS];
    let groups = resources.into_iter().chain(kernel).chain(files);
    in_order(groups.flatten().copied().collect())
}

/// With the ids of the threat list.
fn in_order(mut rows: Vec<Row>) -> Vec<Row> {
    let groups = ["P-R", "P-K", "P-F", "P-N", "P-S", "E-N", "E-T"];
    rows.sort_by_key(|row| {
        let (group, number) = row.id.split_at(3);
        (groups.iter().position(|known| *known == group), number.parse::<u32>().unwrap())
    });
    rows
}

/// The requested ones of `rows`; `None` if none of them is requested.
fn wanted(rows: Vec<Row>) -> Option<Vec<Row>> {
    let wanted = std::env::var("BURROW_ATTACKS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split(',').filter(|prefix| !prefix.is_empty()).collect();
    let asked = |row: &Row| wanted.is_empty() || wanted.iter().any(|prefix| row.id.starts_with(prefix));
    let rows: Vec<Row> = rows.into_iter().filter(asked).collect();
    (!rows.is_empty()).then_some(rows)
}

#[test]
fn hostile_code_stays_in_its_sandbox() {
    let Some(rows) = wanted(rows()) else { return };
    let ground = Ground::prepare();
    let mut report = Report::new("container");
    for row in &rows {
        report.take(row, &ground);
    }
    report.finish(&ground);
}

/// The rows on machines for which every run has time. The others take minutes on an emulated processor; they run in `make
/// test-all`, or on request.
fn in_time(rows: Vec<Row>) -> Vec<Row> {
    let asked = std::env::var("BURROW_ATTACKS").is_ok_and(|rows| !rows.is_empty());
    if asked || std::env::var_os("BURROW_TEST_ALL").is_some() {
        return rows;
    }
    let (often, seldom): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| machines::OFTEN.contains(&row.id));
    let seldom: Vec<&str> = seldom.iter().map(|row| row.id).collect();
    eprintln!("skipped: on microVMs, {}: `make test-all` tries them", seldom.join(", "));
    often
}

#[test]
fn hostile_code_stays_in_its_machine() {
    let Some(rows) = wanted(in_order(machines::rows(&rows()))) else { return };
    let rows = in_time(rows);
    let ground = Ground::prepare_machines("");
    let mut report = machines::report("microvm, emulated", &ground);
    for row in &rows {
        report.take(row, &ground);
    }
    report.finish(&ground);
}

#[test]
fn a_hostile_machine_reaches_only_allowed_hosts() {
    if !island::landed("a_hostile_machine_reaches_only_allowed_hosts") {
        return;
    }
    let Some(rows) = wanted(in_order(machines::network_rows(&network_rows()))) else { return };
    let rows = in_time(rows);
    test_network::fill();
    let ground = Ground::prepare_machines(test_network::CONFIG);
    let mut report = machines::report("microvm, emulated, network out", &ground);
    for row in &rows {
        report.take(row, &ground);
    }
    report.finish(&ground);
}

/// The rows about egress, which need a separate network.
fn network_rows() -> Vec<Row> {
    in_order([network::ROWS, protocols::ROWS].into_iter().flatten().copied().collect())
}

#[test]
fn hostile_code_reaches_only_allowed_hosts() {
    if !island::landed("hostile_code_reaches_only_allowed_hosts") {
        return;
    }
    let Some(rows) = wanted(network_rows()) else { return };
    test_network::fill();
    let ground = Ground::prepare_with(test_network::CONFIG);
    let mut report = Report::new("container, network out");
    for row in &rows {
        report.take(row, &ground);
    }
    report.finish(&ground);
}

#[test]
fn secrets_stay_outside() {
    if !island::landed("secrets_stay_outside") {
        return;
    }
    let Some(rows) = wanted(egress::rows()) else { return };
    let _folder = egress::fill();
    let mut spool = None;
    let config = egress::outside().config();
    let ground = Ground::prepare_after(&config, |daemon| spool = Some(egress::SmallSpool::under(daemon)));
    // Declared after the ground, so it is dropped first: the daemon's folder cannot be removed while something is
    // mounted in it.
    let _spool = spool;
    egress::outside().declare(&ground);
    let mut report = Report::new("container, secrets").named("egress: ", egress::aftermath);
    for row in &rows {
        report.take(row, &ground);
    }
    report.finish(&ground);
}

#[test]
fn strangers_stay_outside_of_ssh() {
    let Some(rows) = wanted(strangers::ROWS.to_vec()) else { return };
    let ground = Ground::prepare_with(strangers::CONFIG);
    let mut report = Report::new("container, SSH");
    for row in &rows {
        report.take(row, &ground);
    }
    report.finish(&ground);
}

#[test]
fn clients_get_no_more_than_their_keys_allow() {
    let Some(rows) = wanted(surfaces::ROWS.to_vec()) else { return };
    let ground = Ground::prepare_with(surfaces::CONFIG);
    let mut report = Report::new("container, clients");
    for row in &rows {
        report.take(row, &ground);
    }
    report.finish(&ground);
}

#[test]
fn the_list_of_client_rows_is_complete() {
    let found: Vec<&str> = surfaces::ROWS.iter().map(|row| row.id).collect();
    assert_eq!(found, ["P-S1", "P-S2", "P-S3", "P-S4", "P-S5", "P-S6", "P-S7", "P-S8", "P-S9"]);
}

#[test]
fn the_list_of_secret_rows_is_complete() {
    // The other rows of E-T are about egress; E-S18 and E-S19 are about protocols that are not implemented yet.
    let expected = [1, 2, 3, 4, 6, 8, 9, 10, 11]
        .map(|number| format!("E-T{number}"))
        .into_iter()
        .chain((1..=17).chain([20, 21]).map(|number| format!("E-S{number}")))
        .chain(["E-A1", "D19"].map(str::to_owned));
    let found: Vec<String> = egress::rows().iter().map(|row| row.id.to_owned()).collect();
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn the_list_of_egress_rows_is_complete() {
    let expected = (1..=7)
        .chain([10])
        .map(|number| format!("P-N{number}"))
        .chain((1..=10).map(|number| format!("E-N{number}")))
        .chain([5, 7].map(|number| format!("E-T{number}")));
    let found: Vec<String> = network_rows().iter().map(|row| row.id.to_owned()).collect();
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn the_threat_list_is_complete() {
    let expected = (1..=15)
        .map(|number| format!("P-R{number}"))
        .chain((1..=14).chain(16..=18).map(|number| format!("P-K{number}")))
        .chain((1..=6).map(|number| format!("P-F{number}")));
    let found: Vec<String> = rows().iter().map(|row| row.id.to_owned()).collect();
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn every_row_runs_on_machines_or_has_a_reason_not_to() {
    let ids = |rows: Vec<Row>| rows.iter().map(|row| row.id.to_owned()).collect::<Vec<_>>();
    // The only row that has no attempt in containers: device emulation.
    let mut expected =
        [ids(rows()), ids(network_rows()), ids(surfaces::ROWS.to_vec()), vec!["P-K15".to_owned()]].concat();
    let tried = [machines::rows(&rows()), machines::network_rows(&network_rows())].concat();
    let left_out = machines::NOT_OF_MACHINES.iter().flat_map(|(rows, reason)| {
        assert!(!reason.is_empty());
        rows.iter().map(|id| (*id).to_owned())
    });
    let mut found: Vec<String> = ids(tried).into_iter().chain(left_out).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}
