//! The zoo: common programs of a distribution, taken through sleep, snapshots, forks and restores.
//!
//! `programs.sh` is the table of the programs and of the steps inside. There are two valid outcomes. Either every step
//! preserves a program, with its acknowledged data and the connections of its clients; or a step is refused beforehand,
//! with the process and the reason, and the program continues unaffected. The expected outcome of each program is listed.
//!
//! Needs an image of gigabytes and up to a minute per program, so `make test` skips it; `make test-all` runs it.
//! `BURROW_TEST_ZOO` names the programs to test, separated by commas.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::harness::Daemon;
use crate::mirrors;

const TABLE: &str = include_str!("programs.sh");

const CYCLES: usize = 3;

/// Programs that are refused, because CRIU cannot save what they use. All others are preserved.
pub(crate) const REFUSED: [&str; 6] =
    ["deep_path", "gdb", "memfd", "message_queues", "thread_stats", "too_many_files"];

/// A program that does not work after this time counts as not started.
const START_MAX: Duration = Duration::from_secs(600);

/// The packages that programs need, from the table.
fn packages(programs: &[&str]) -> String {
    let lines = TABLE.lines().filter_map(|line| line.strip_prefix("# packages of ")?.split_once(": "));
    let needed = lines.filter(|(name, _)| *name == "all" || programs.contains(name));
    let needed: BTreeSet<&str> = needed.flat_map(|(_, packages)| packages.split(' ')).collect();
    Vec::from_iter(needed).join(",")
}

/// The programs of the table.
pub(crate) fn all_programs() -> Vec<&'static str> {
    TABLE.lines().filter_map(|line| line.split_once("_start() {")).map(|(name, _)| name).collect()
}

/// All programs, or those that were requested.
fn programs() -> Vec<&'static str> {
    let all = all_programs();
    let Ok(asked) = std::env::var("BURROW_TEST_ZOO") else { return all };
    let named = |name: &&str| asked.split(',').any(|asked| asked == *name);
    let found: Vec<&str> = all.into_iter().filter(named).collect();
    assert!(!found.is_empty(), "BURROW_TEST_ZOO names no program of the table: {asked}");
    found
}

fn has_load(program: &str) -> bool {
    TABLE.contains(&format!("\n{program}_load() {{"))
}

/// The result for a program.
#[derive(Debug)]
enum Outcome {
    Kept,
    /// Refused beforehand, and it continues to run.
    Refused(String),
    /// An invalid outcome.
    Lost(String),
}

/// A program in its own sandbox.
struct Specimen<'a> {
    daemon: &'a Daemon,
    program: &'a str,
    sandbox: String,
    /// The program itself, and its clients.
    execs: BTreeSet<String>,
}

impl<'a> Specimen<'a> {
    fn start(daemon: &'a Daemon, program: &'a str) -> Result<Self, String> {
        let sandbox = program.replace('_', "-");
        daemon.ok(&["create", "--name", &sandbox, "--image", "zoo", "--ram", "1500M", "--disk", "4G"]);
        let written = daemon.fed(&["files", "write", &sandbox, "/root/zoo.sh"], TABLE.as_bytes());
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let parts = if has_load(program) { &["start", "load"][..] } else { &["start"] };
        let begin =
            |part: &&str| daemon.ok(&["exec", "-d", &sandbox, "--", "bash", "/root/zoo.sh", program, part]);
        let execs = parts.iter().map(begin).collect();
        let specimen = Self { daemon, program, sandbox, execs };
        let deadline = Instant::now() + START_MAX;
        loop {
            match (specimen.works_in(&specimen.sandbox), specimen.ended()) {
                (_, Some(ended)) => return Err(format!("it did not start: {ended}")),
                (Ok(()), None) => return Ok(specimen),
                (Err(why), None) if Instant::now() > deadline => {
                    return Err(format!("it did not start: {why}"));
                }
                (Err(_), None) => std::thread::sleep(Duration::from_millis(500)),
            }
        }
    }

    /// Output of an exec that should still run.
    fn ended(&self) -> Option<String> {
        let running = self.daemon.json(&["ps", &self.sandbox, "--running", "--json"]);
        let running = running.as_array().unwrap();
        let ended =
            self.execs.iter().find(|exec| !running.iter().any(|found| found["id"] == exec.as_str()))?;
        let said = self.daemon.cli(&["logs", ended]);
        let text = [said.stdout, said.stderr].concat();
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// The table's own check, which wakes a sleeping sandbox.
    fn works_in(&self, sandbox: &str) -> Result<(), String> {
        let check = ["timeout", "600", "bash", "/root/zoo.sh", self.program, "check"];
        let output = self.daemon.cli(&[&["exec", sandbox, "--"], &check[..]].concat());
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }

    /// It works, and none of its processes has ended.
    fn is_whole(&self) -> Result<(), String> {
        self.works_in(&self.sandbox)?;
        self.ended().map_or(Ok(()), |ended| Err(format!("something ended: {ended}")))
    }

    /// A step on the program's sandbox: done, or refused with the reason.
    fn step(&self, arguments: &[&str]) -> Result<(), Outcome> {
        let output = self.daemon.cli(arguments);
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let state = self.daemon.inspect(&self.sandbox)["state"].clone();
        match self.is_whole() {
            Ok(()) if said.contains("process ") && state == "running" => Err(Outcome::Refused(said)),
            Ok(()) => Err(Outcome::Lost(format!("{arguments:?} failed, {state}: {said}"))),
            Err(broken) => Err(Outcome::Lost(format!("{arguments:?} failed: {said}; afterwards: {broken}"))),
        }
    }

    fn run(&self) -> Result<(), Outcome> {
        let sandbox = self.sandbox.as_str();
        let (child, snapshot) = (format!("{sandbox}-child"), format!("{sandbox}-snapshot"));
        let lost = |when: &'static str| move |why: String| Outcome::Lost(format!("after {when}: {why}"));
        for _ in 0..CYCLES {
            self.step(&["hibernate", sandbox])?;
            self.is_whole().map_err(lost("waking"))?;
        }
        self.step(&["snapshot", "create", sandbox, "--name", &snapshot])?;
        let shown = self.daemon.json(&["snapshot", "inspect", &snapshot, "--json"]);
        if shown["processes"] != true {
            return Err(Outcome::Lost(format!("the snapshot has no processes: {shown}")));
        }
        self.is_whole().map_err(lost("a snapshot"))?;
        self.step(&["fork", sandbox, "--name", &child])?;
        self.works_in(&child).map_err(lost("a fork, in the child"))?;
        self.daemon.ok(&["rm", "--purge", &child]);
        self.is_whole().map_err(lost("a fork"))?;
        self.step(&["snapshot", "restore", &snapshot, "--in-place", sandbox])?;
        self.is_whole().map_err(lost("a restore"))
    }
}

fn outcome_of(daemon: &Daemon, program: &str) -> Outcome {
    let outcome = match Specimen::start(daemon, program) {
        Err(failure) => Outcome::Lost(failure),
        Ok(specimen) => specimen.run().err().unwrap_or(Outcome::Kept),
    };
    daemon.ok(&["rm", "--purge", &program.replace('_', "-")]);
    let _ = daemon.cli(&["snapshot", "rm", &format!("{}-snapshot", program.replace('_', "-"))]);
    outcome
}

/// Not printed by a macro, whose output the test runner hides when a test passes.
fn report(program: &str, outcome: &Outcome) {
    use std::io::Write as _;
    let said = match outcome {
        Outcome::Kept => "kept".to_owned(),
        Outcome::Refused(reason) => {
            format!("refused, runs on: {}", reason.lines().next().unwrap_or_default())
        }
        Outcome::Lost(why) => format!("LOST: {why}"),
    };
    let _ = writeln!(std::io::stderr(), "zoo: {program}: {said}");
}

#[test]
fn programs_survive_every_step_or_are_refused_beforehand_and_continue() {
    let rules = mirrors::apt_rules();
    if rules.is_empty() || rules.iter().any(|rule| mirrors::addresses_of(rule).is_empty()) {
        let why = "the host's package sources cannot be looked up";
        // There, a skipped test would look like a passed one.
        assert!(std::env::var_os("BURROW_TEST_ALL").is_none(), "the zoo: {why}");
        return mirrors::skipped("the zoo", why);
    }
    let (daemon, programs) = (mirrors::daemon(&rules), programs());
    daemon.ok(&["image", "build", "--packages", &packages(&programs), "--name", "zoo"]);
    let mut unexpected = Vec::new();
    for program in programs {
        let outcome = outcome_of(&daemon, program);
        report(program, &outcome);
        let expected = match outcome {
            Outcome::Kept => !REFUSED.contains(&program),
            Outcome::Refused(_) => REFUSED.contains(&program),
            Outcome::Lost(_) => false,
        };
        if !expected {
            unexpected.push(format!("{program}: {outcome:?}"));
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}
