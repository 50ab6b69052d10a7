//! Random sequences of requests, crashes and reboots on the real driver. After each step, every sandbox and snapshot is
//! compared with a simple model.
//!
//! The engine's simulation runs thousands of such sequences; this test runs dozens with real processes. It prints a seed
//! that fails: add it to `SEEDS`, and it stays a test. For longer runs:
//!
//! ```text
//! BURROW_TEST_LIVES=10                 number of seeds, of 100 steps each, instead of the usual ones
//! BURROW_TEST_LIVES_FROM=5000          the first seed; 1000 by default
//! ```

mod model;
mod processes;
mod requests;

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::harness::{Daemon, all_on_microvms, eventually};
use crate::sleep_crash::check_inventory;
use model::{Files, Random, SandboxModel, SnapshotModel, Words, counted};
use processes::Victim;

const SEEDS: [u64; 2] = [1, 0xb077_0e5e];
const STEPS: usize = 40;
const SANDBOXES_MAX: usize = 4;
const SNAPSHOTS_MAX: usize = 5;

/// Seeds of `make test-all`, which has more time.
const MORE_SEEDS: u64 = 20;
const MORE_FROM: u64 = 1000;
const MORE_STEPS: usize = 100;

/// How often the egress process may be killed under one daemon. The daemon doubles its pause before each restart, and a
/// request waits only seconds for the process.
const EGRESS_KILLS_MAX: u32 = 4;

/// Keeps a word in RAM, and prints or replaces it through two named pipes.
const KEEPER: &str = "exec 3<>/root/ask 4<>/root/answer\nheld=none\n\
    while read -r verb word <&3; do\n  [ $verb = set ] && held=$word\n  echo $held >&4\ndone\n";

/// The content of a sandbox: a line for each file, then the word of the process.
const LOOK: &str = "cd /root; for f in file up-*; do [ -e $f ] && echo $f $(uniq -c $f); done\n\
    if pgrep -f '^sh /root/keeper' >/dev/null; then echo get > /root/ask; timeout 20 head -n 1 /root/answer; else echo gone; fi";

struct Scenario {
    daemon: Daemon,
    random: Random,
    sandboxes: BTreeMap<String, SandboxModel>,
    snapshots: BTreeMap<String, Words>,
    /// Every snapshot that ever existed, including those that only forks use: merges start from them.
    past: BTreeMap<String, SnapshotModel>,
    /// Ids of both in order of creation, which is determined by the seed, unlike the random ids themselves.
    born: Vec<String>,
    /// Counts writes, so that no two states are equal.
    writes: u64,
    families: u64,
    /// Kills of the egress process since the daemon was started.
    egress_kills: u32,
    /// Folder of the files to upload.
    uploads: tempfile::TempDir,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

impl Scenario {
    fn new(seed: u64) -> Self {
        Self {
            daemon: Daemon::start(),
            random: Random::new(seed),
            sandboxes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            past: BTreeMap::new(),
            born: Vec::new(),
            writes: 0,
            families: 0,
            egress_kills: 0,
            uploads: tempfile::tempdir().unwrap(),
        }
    }

    fn pick(&mut self, known: impl Fn(&Self, &str) -> bool) -> Option<String> {
        let all = self.sandboxes.keys().chain(self.snapshots.keys());
        let new: Vec<String> = all.filter(|id| !self.born.contains(id)).cloned().collect();
        self.born.extend(new);
        let choice: Vec<String> = self.born.iter().filter(|id| known(self, id)).cloned().collect();
        let index = self.random.below(choice.len().max(1));
        choice.get(index).cloned()
    }

    fn some_sandbox(&mut self) -> Option<(String, SandboxModel)> {
        let id = self.pick(|life, id| life.sandboxes.contains_key(id))?;
        let held = self.sandboxes[&id].clone();
        Some((id, held))
    }

    fn some_snapshot(&mut self) -> Option<String> {
        self.pick(|life, id| life.snapshots.contains_key(id))
    }

    fn room(&self) -> bool {
        self.sandboxes.len() < SANDBOXES_MAX
    }

    /// Starts the process that keeps a word, unless it runs.
    fn settle(&mut self, id: &str) {
        let write = format!("cat > /root/keeper; test -p /root/ask || mkfifo /root/ask /root/answer; {LOOK}");
        let seen = self.daemon.fed(&["exec", "-i", id, "--", "sh", "-c", &write], KEEPER.as_bytes());
        assert!(String::from_utf8_lossy(&seen.stdout).ends_with("gone\n"), "{seen:?}");
        self.daemon.ok(&["exec", "-d", id, "--", "sh", "/root/keeper"]);
        eventually("the process to answer", || (self.look(id).ram.is_some()).then_some(()));
        let held = self.sandboxes.get_mut(id).expect("it is known");
        held.words.ram = Some("none".to_owned());
    }

    fn look(&self, id: &str) -> Words {
        let said = self.daemon.sh(id, LOOK);
        let mut lines: Vec<&str> = said.lines().collect();
        let ram = lines.pop().unwrap_or_else(|| panic!("{id} answers nothing"));
        let file = |line: &&str| line.split_once(' ').map(|(name, held)| (name.to_owned(), held.to_owned()));
        let files = lines.iter().filter_map(file).collect();
        Words { files, ram: (ram != "gone").then(|| ram.to_owned()) }
    }

    /// The files of a sleeping sandbox, read from the pool, so that it is not woken.
    fn look_from_outside(&self, id: &str) -> Files {
        let folder = self.daemon.pool().join("sandboxes").join(id).join("rootfs/root");
        let names = fs::read_dir(&folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let known = names.filter(|name| name == "file" || name.starts_with("up-"));
        known.map(|name| (name.clone(), counted(&fs::read_to_string(folder.join(name)).unwrap()))).collect()
    }

    fn rows(&self) -> BTreeMap<String, Value> {
        let rows = self.daemon.json(&["ls", "--all", "--json"]);
        rows.as_array().unwrap().iter().map(|row| (text(&row["id"]), row.clone())).collect()
    }

    fn new_family(&mut self) -> u64 {
        self.families += 1;
        self.families
    }

    /// Performs one step, and returns its description.
    fn step(&mut self) -> String {
        loop {
            if let Some(what) = self.try_step() {
                return what;
            }
        }
    }

    /// Returns nothing if the drawn step is impossible in the present state.
    fn try_step(&mut self) -> Option<String> {
        let choice = if self.sandboxes.is_empty() { 0 } else { self.random.below(46) };
        match choice {
            0..=2 if self.room() => {
                let id = self.daemon.ok(&["create"]);
                let held =
                    SandboxModel { state: "running", words: Words::default(), family: self.new_family() };
                self.sandboxes.insert(id.clone(), held);
                self.settle(&id);
                Some(format!("create {id}"))
            }
            28..=29 => {
                self.kill(Victim::Daemon);
                self.daemon.launch();
                Some("kill -9 of the daemon".to_owned())
            }
            30 => {
                if all_on_microvms() {
                    // A microVM has its own page cache, which a reboot loses. A container uses the
                    // host's.
                    let running = self.sandboxes.iter().filter(|(_, held)| held.state == "running");
                    running.for_each(|(id, _)| drop(self.daemon.sh(id, "sync")));
                }
                self.daemon.reboot();
                self.egress_kills = 0;
                self.daemon.launch();
                self.sandboxes.values_mut().filter(|held| held.up()).for_each(SandboxModel::stop);
                Some("reboot".to_owned())
            }
            31..=32 => {
                self.kill(Victim::Launcher);
                Some("kill -9 of the launcher".to_owned())
            }
            33 => {
                self.kill(Victim::Egress);
                Some("kill -9 of the egress process".to_owned())
            }
            40.. => self.at_once(),
            choice => {
                let (id, held) = self.some_sandbox()?;
                match choice {
                    34..=37 => self.upload(id, held),
                    38.. => self.merge(id, held),
                    ..=12 => self.power(choice, &id, held),
                    _ => self.keep(choice, &id, held),
                }
            }
        }
    }

    fn power(&mut self, choice: usize, id: &str, mut held: SandboxModel) -> Option<String> {
        let state = held.state;
        let (word, after) = match choice {
            0..=3 => ("wake", "running"),
            4 => ("stop", "stopped"),
            5..=6 => ("pause", if held.up() { "paused" } else { state }),
            7..=11 => ("hibernate", if state == "stopped" { state } else { "hibernated" }),
            _ => ("rm", ""),
        };
        if after == state && self.random.below(4) != 0 {
            // Tried, but seldom.
            return None;
        }
        let arguments = if word == "rm" { vec![word, "-f", "--purge", id] } else { vec![word, id] };
        let output = self.daemon.cli(&arguments);
        let may = state != "stopped" || !["pause", "hibernate"].contains(&word);
        assert_eq!(output.status.success(), may, "{word} of a {state} sandbox: {output:?}");
        match word {
            "rm" => drop(self.sandboxes.remove(id)),
            "stop" => {
                held.stop();
                self.sandboxes.insert(id.to_owned(), held);
            }
            _ => drop(self.sandboxes.insert(id.to_owned(), SandboxModel { state: after, ..held })),
        }
        Some(format!("{word} of {id}, which was {state}"))
    }

    fn keep(&mut self, choice: usize, id: &str, held: SandboxModel) -> Option<String> {
        let state = held.state;
        match choice {
            13..=18 if state != "stopped" => {
                self.write(id);
                Some(format!("write in {id}, which was {state}"))
            }
            19..=21 if self.snapshots.len() < SNAPSHOTS_MAX => {
                let files_only = self.random.below(3) == 0;
                let mut arguments = vec!["snapshot", "create", "--json", id];
                arguments.extend(files_only.then_some("--files-only"));
                let taken = self.daemon.json(&arguments);
                assert_eq!(taken["processes"], !files_only && state != "stopped", "{taken}");
                self.snapshots.insert(text(&taken["id"]), held.words.copied(files_only));
                Some(format!("snapshot {} of {id}, which was {state}", taken["id"]))
            }
            22..=23 => {
                let snapshot = self.some_snapshot()?;
                Some(self.restore(id, &held, &snapshot))
            }
            24..=25 if self.room() => {
                let files_only = self.random.below(3) == 0;
                let mut arguments = vec!["fork", "--json", id];
                arguments.extend(files_only.then_some("--files-only"));
                let forked = self.daemon.json(&arguments);
                self.sandboxes.insert(text(&forked["children"][0]["id"]), held.child(files_only));
                Some(format!("fork of {id}, which was {state}"))
            }
            26 if self.room() => {
                let snapshot = self.some_snapshot()?;
                let made = self.daemon.ok(&["snapshot", "restore", &snapshot]);
                let (words, family) = (self.snapshots[&snapshot].clone(), self.past[&snapshot].family);
                self.sandboxes.insert(made, SandboxModel { state: "running", words, family });
                Some(format!("a sandbox from {snapshot}"))
            }
            27 => {
                let snapshot = self.some_snapshot()?;
                self.daemon.ok(&["snapshot", "rm", &snapshot]);
                self.snapshots.remove(&snapshot);
                Some(format!("removal of {snapshot}"))
            }
            _ => None,
        }
    }

    /// Through an exec, so that a sleeping sandbox wakes.
    fn write(&mut self, id: &str) {
        let held = self.sandboxes.get_mut(id).expect("it is known");
        held.state = "running";
        if held.words.ram.is_none() {
            self.settle(id);
        }
        self.writes += 1;
        let word = self.writes.to_string();
        let line = format!(
            "echo {word} > /root/file; echo set {word} > /root/ask; timeout 20 head -n 1 /root/answer"
        );
        assert_eq!(self.daemon.sh(id, &line), word);
        let held = self.sandboxes.get_mut(id).expect("it is known");
        held.words.files.insert("file".to_owned(), format!("1 {word}"));
        held.words.ram = Some(word);
    }

    fn restore(&mut self, id: &str, held: &SandboxModel, snapshot: &str) -> String {
        let back = |daemon: &Daemon, snapshot: &str| {
            let restored =
                daemon.json(&["snapshot", "restore", snapshot, "--in-place", id, "--yes", "--json"]);
            (text(&restored["undo"]["id"]), text(&restored["sandbox"]["state"]))
        };
        let (undo, _) = back(&self.daemon, snapshot);
        // The previous state can be restored, which is done; then the original restore is repeated.
        let (second, state) = back(&self.daemon, &undo);
        if state == "running" {
            assert_eq!(self.look(id), held.words, "undone, {id}");
        }
        let (third, state) = back(&self.daemon, snapshot);
        self.daemon.ok(&["snapshot", "rm", &undo, &second, &third]);
        let words = self.snapshots[snapshot].clone();
        let after = if state == "running" { "running" } else { "stopped" };
        assert_eq!(state, after, "a restored sandbox");
        self.sandboxes.insert(id.to_owned(), SandboxModel { state: after, words, family: held.family });
        format!("restore of {id} to {snapshot}")
    }

    /// Every sandbox and every snapshot has the expected content, and the host has no other resources.
    fn check(&self, context: &str) {
        let rows = self.rows();
        let states: BTreeMap<String, String> =
            rows.iter().map(|(id, row)| (id.clone(), text(&row["state"]))).collect();
        let expected: BTreeMap<String, String> =
            self.sandboxes.iter().map(|(id, held)| (id.clone(), held.state.to_owned())).collect();
        assert_eq!(states, expected, "{context}");
        for (id, held) in &self.sandboxes {
            if held.state == "running" {
                assert_eq!(self.look(id), held.words, "what {id} holds, {context}");
            } else if !all_on_microvms() {
                // The host cannot read the disk of a microVM.
                assert_eq!(self.look_from_outside(id), held.words.files, "the files of {id}, {context}");
            }
        }
        let snapshots = self.daemon.json(&["snapshot", "ls", "--json"]);
        let snapshots: Vec<String> =
            snapshots.as_array().unwrap().iter().map(|snapshot| text(&snapshot["id"])).collect();
        assert_eq!(snapshots.len(), self.snapshots.len(), "{context}");
        assert!(snapshots.iter().all(|id| self.snapshots.contains_key(id)), "{context}: {snapshots:?}");
        check_inventory(&self.daemon, context);
    }

    /// Every sleeping sandbox is woken, and every snapshot is started.
    fn judgement(&mut self, context: &str) {
        for (id, held) in &mut self.sandboxes {
            self.daemon.ok(&["wake", id]);
            held.state = "running";
        }
        self.check(&format!("{context}: all awake"));
        for (snapshot, words) in &self.snapshots {
            assert_eq!(self.probe(snapshot), *words, "what {snapshot} holds, {context}");
        }
        for id in self.sandboxes.keys() {
            self.daemon.ok(&["rm", "--purge", "-f", id]);
        }
        for id in self.snapshots.keys() {
            self.daemon.ok(&["snapshot", "rm", id]);
        }
        (self.sandboxes, self.snapshots) = Default::default();
        self.check(&format!("{context}: all gone"));
        assert!(self.daemon.inventory().sandboxes().is_empty(), "{context}");
    }
}

fn live(seed: u64, steps: usize) {
    eprintln!("a life of seed {seed:#x}");
    let mut life = Scenario::new(seed);
    for number in 0..steps {
        eprintln!("seed {seed:#x}, step {number}");
        let before = life.sandboxes.clone();
        let what = life.step();
        let context = format!("seed {seed:#x}, step {number}: {what}");
        eprintln!("{context}");
        life.learn_snapshots(&before, &BTreeMap::new());
        life.check(&context);
    }
    life.judgement(&format!("seed {seed:#x}, at the end"));
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text:?}")))
}

#[test]
fn random_lives_of_real_sandboxes_match_the_model() {
    let more = number("BURROW_TEST_LIVES");
    if more.is_none() {
        SEEDS.into_iter().for_each(|seed| live(seed, STEPS));
    }
    let all = std::env::var_os("BURROW_TEST_ALL").map_or(0, |_| MORE_SEEDS);
    let from = number("BURROW_TEST_LIVES_FROM").unwrap_or(MORE_FROM);
    for seed in from..from + more.unwrap_or(all) {
        live(seed, MORE_STEPS);
    }
}
