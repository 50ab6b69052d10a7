//! Random lives on the real driver: requests, crashes, reboots, each step compared with a simple model of what every
//! sandbox and every snapshot must hold.
//!
//! The same as the simulation of the engine does thousands of times, here dozens of times with real processes. A seed
//! that fails is printed; put it into `SEEDS` and it stays a test.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Daemon, all_on_microvms, eventually};
use crate::sleep_crash::check_inventory;

const SEEDS: [u64; 2] = [1, 0xb077_0e5e];
const STEPS: usize = 50;
const SANDBOXES_MAX: usize = 4;
const SNAPSHOTS_MAX: usize = 5;

/// Seeds of `make test-all`, which has the time.
const MORE_SEEDS: u64 = 20;

/// Holds a word in RAM, and tells it or takes another over two pipes with names.
const KEEPER: &str = "exec 3<>/root/ask 4<>/root/answer\nheld=none\n\
    while read -r verb word <&3; do\n  [ $verb = set ] && held=$word\n  echo $held >&4\ndone\n";

/// What a sandbox holds: the file's word, then the process's.
const LOOK: &str = "cat /root/file 2>/dev/null || echo none\n\
    if pgrep -f '^sh /root/keeper' >/dev/null; then echo get > /root/ask; timeout 20 head -n 1 /root/answer; else echo gone; fi";

/// A small generator, so that a seed means the same everywhere and for ever (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// A file and a process's RAM. `None`: the process is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Words {
    file: String,
    ram: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    state: &'static str,
    words: Words,
}

impl Held {
    fn up(&self) -> bool {
        ["running", "paused"].contains(&self.state)
    }

    fn stop(&mut self) {
        (self.state, self.words.ram) = ("stopped", None);
    }

    /// What a snapshot or a child of it holds.
    fn copied(&self, files_only: bool) -> Words {
        Words { file: self.words.file.clone(), ram: self.words.ram.clone().filter(|_| !files_only) }
    }
}

struct Life {
    daemon: Daemon,
    random: Random,
    sandboxes: BTreeMap<String, Held>,
    snapshots: BTreeMap<String, Words>,
    /// Ids of both in the order they came, which a seed decides as their letters do not.
    born: Vec<String>,
    /// Counts what was written, so that no two moments are alike.
    writes: u64,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

impl Life {
    fn new(seed: u64) -> Self {
        Self {
            daemon: Daemon::start(),
            random: Random(seed | 1),
            sandboxes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            born: Vec::new(),
            writes: 0,
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

    fn some_sandbox(&mut self) -> Option<(String, Held)> {
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

    /// Starts the process that holds a word, where there is none.
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
        let (file, ram) = said.split_once('\n').unwrap_or_else(|| panic!("{said:?}"));
        Words { file: file.to_owned(), ram: (ram != "gone").then(|| ram.to_owned()) }
    }

    /// Does one thing, and says what.
    fn step(&mut self) -> String {
        loop {
            if let Some(what) = self.try_step() {
                return what;
            }
        }
    }

    /// Nothing where what was drawn makes no sense now.
    fn try_step(&mut self) -> Option<String> {
        let choice = if self.sandboxes.is_empty() { 0 } else { self.random.below(34) };
        match choice {
            0..=2 if self.room() => {
                let id = self.daemon.ok(&["create"]);
                let words = Words { file: "none".to_owned(), ram: None };
                self.sandboxes.insert(id.clone(), Held { state: "running", words });
                self.settle(&id);
                Some(format!("create {id}"))
            }
            28..=29 => {
                self.daemon.kill();
                self.daemon.launch();
                Some("kill -9 of the daemon".to_owned())
            }
            30 => {
                self.daemon.reboot();
                self.daemon.launch();
                self.sandboxes.values_mut().filter(|held| held.up()).for_each(Held::stop);
                Some("reboot".to_owned())
            }
            choice => {
                let (id, held) = self.some_sandbox()?;
                match choice {
                    31.. => Some(self.interrupted(&id, &held)),
                    ..=12 => self.power(choice, &id, held),
                    _ => self.keep(choice, &id, held),
                }
            }
        }
    }

    fn power(&mut self, choice: usize, id: &str, mut held: Held) -> Option<String> {
        let state = held.state;
        let (word, after) = match choice {
            0..=3 => ("wake", "running"),
            4 => ("stop", "stopped"),
            5..=6 => ("pause", if held.up() { "paused" } else { state }),
            7..=11 => ("hibernate", if state == "stopped" { state } else { "hibernated" }),
            _ => ("rm", ""),
        };
        if after == state && self.random.below(4) != 0 {
            // It is tried, but seldom.
            return None;
        }
        let arguments = if word == "rm" { vec![word, "-f", id] } else { vec![word, id] };
        let output = self.daemon.cli(&arguments);
        let may = state != "stopped" || !["pause", "hibernate"].contains(&word);
        assert_eq!(output.status.success(), may, "{word} of a {state} sandbox: {output:?}");
        match word {
            "rm" => drop(self.sandboxes.remove(id)),
            "stop" => {
                held.stop();
                self.sandboxes.insert(id.to_owned(), held);
            }
            _ => drop(self.sandboxes.insert(id.to_owned(), Held { state: after, ..held })),
        }
        Some(format!("{word} of {id}, which was {state}"))
    }

    fn keep(&mut self, choice: usize, id: &str, held: Held) -> Option<String> {
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
                self.snapshots.insert(text(&taken["id"]), held.copied(files_only));
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
                let child = Held { state: "running", words: held.copied(files_only) };
                self.sandboxes.insert(text(&forked["children"][0]["id"]), child);
                Some(format!("fork of {id}, which was {state}"))
            }
            26 if self.room() => {
                let snapshot = self.some_snapshot()?;
                let made = self.daemon.ok(&["snapshot", "restore", &snapshot]);
                let words = self.snapshots[&snapshot].clone();
                self.sandboxes.insert(made, Held { state: "running", words });
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

    /// Through an exec, so that whatever sleeps wakes.
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
        held.words = Words { file: word.clone(), ram: Some(word) };
    }

    fn restore(&mut self, id: &str, held: &Held, snapshot: &str) -> String {
        let back = |daemon: &Daemon, snapshot: &str| {
            let restored =
                daemon.json(&["snapshot", "restore", snapshot, "--in-place", id, "--yes", "--json"]);
            (text(&restored["undo"]["id"]), text(&restored["sandbox"]["state"]))
        };
        let (undo, _) = back(&self.daemon, snapshot);
        // What it was can be gone back to, and is; then it is done for good.
        let (second, state) = back(&self.daemon, &undo);
        if state == "running" {
            assert_eq!(self.look(id), held.words, "undone, {id}");
        }
        let (third, state) = back(&self.daemon, snapshot);
        self.daemon.ok(&["snapshot", "rm", &undo, &second, &third]);
        let words = self.snapshots[snapshot].clone();
        let after = if state == "running" { "running" } else { "stopped" };
        assert_eq!(state, after, "a restored sandbox");
        self.sandboxes.insert(id.to_owned(), Held { state: after, words });
        format!("restore of {id} to {snapshot}")
    }

    /// The daemon dies at some moment of an operation, which then has happened or has not.
    fn interrupted(&mut self, id: &str, held: &Held) -> String {
        let choices = if self.room() { 4 } else { 3 };
        let operation = ["hibernate", "wake", "snapshot", "fork"][self.random.below(choices)];
        let arguments =
            if operation == "snapshot" { vec![operation, "create", id] } else { vec![operation, id] };
        let mut client = self.daemon.command(&arguments);
        let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Not to wait for something, but for a moment that nobody chose.
        std::thread::sleep(Duration::from_millis(self.random.below(250) as u64));
        self.daemon.kill();
        let _ = client.kill();
        let _ = client.wait();
        self.daemon.launch();
        for row in self.daemon.json(&["ls", "--all", "--json"]).as_array().unwrap() {
            let (found, state) = (text(&row["id"]), text(&row["state"]));
            if found == id {
                let done = match operation {
                    "hibernate" if held.up() => "hibernated",
                    "wake" => "running",
                    _ => held.state,
                };
                let known = [done, held.state].into_iter().find(|known| *known == state);
                let state = known.unwrap_or_else(|| panic!("{operation} of a {} one: {state}", held.state));
                self.sandboxes.insert(found, Held { state, ..held.clone() });
                continue;
            }
            self.sandboxes.entry(found).or_insert_with(|| {
                assert_eq!((operation, state.as_str()), ("fork", "running"), "a sandbox from nowhere");
                Held { state: "running", words: held.copied(false) }
            });
        }
        for snapshot in self.daemon.json(&["snapshot", "ls", "--json"]).as_array().unwrap() {
            let found = text(&snapshot["id"]);
            self.snapshots.entry(found).or_insert_with(|| {
                assert_eq!(operation, "snapshot", "a snapshot from nowhere");
                held.copied(false)
            });
        }
        format!("kill -9 in the middle of {operation} of {id}, which was {}", held.state)
    }

    /// Every sandbox and every snapshot holds what it must, and the host holds nothing else.
    fn check(&self, context: &str) {
        let rows = self.daemon.json(&["ls", "--all", "--json"]);
        let states: BTreeMap<String, String> =
            rows.as_array().unwrap().iter().map(|row| (text(&row["id"]), text(&row["state"]))).collect();
        let expected: BTreeMap<String, String> =
            self.sandboxes.iter().map(|(id, held)| (id.clone(), held.state.to_owned())).collect();
        assert_eq!(states, expected, "{context}");
        for (id, held) in &self.sandboxes {
            if held.state == "running" {
                assert_eq!(self.look(id), held.words, "what {id} holds, {context}");
            } else if !all_on_microvms() {
                // Whoever sleeps is not woken to be looked at. Nobody looks into the disk of a machine.
                let file = self.daemon.pool().join("sandboxes").join(id).join("rootfs/root/file");
                let file = fs::read_to_string(file).unwrap_or_else(|_| "none".to_owned());
                assert_eq!(file.trim(), held.words.file, "the file of {id}, {context}");
            }
        }
        let snapshots = self.daemon.json(&["snapshot", "ls", "--json"]);
        let snapshots: Vec<String> =
            snapshots.as_array().unwrap().iter().map(|snapshot| text(&snapshot["id"])).collect();
        assert_eq!(snapshots.len(), self.snapshots.len(), "{context}");
        assert!(snapshots.iter().all(|id| self.snapshots.contains_key(id)), "{context}: {snapshots:?}");
        check_inventory(&self.daemon, context);
    }

    /// All that sleeps is woken, and all that was kept is brought to life.
    fn judgement(&mut self, context: &str) {
        for (id, held) in &mut self.sandboxes {
            self.daemon.ok(&["wake", id]);
            held.state = "running";
        }
        self.check(&format!("{context}: all awake"));
        for (snapshot, words) in &self.snapshots {
            let made = self.daemon.ok(&["snapshot", "restore", snapshot]);
            assert_eq!(self.look(&made), *words, "what {snapshot} holds, {context}");
            self.daemon.ok(&["rm", "-f", &made]);
        }
        for id in self.sandboxes.keys() {
            self.daemon.ok(&["rm", "-f", id]);
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
    let mut life = Life::new(seed);
    for number in 0..steps {
        let what = life.step();
        let context = format!("seed {seed:#x}, step {number}: {what}");
        eprintln!("{context}");
        life.check(&context);
    }
    life.judgement(&format!("seed {seed:#x}, at the end"));
}

#[test]
fn random_lives_of_real_sandboxes_match_the_model() {
    for seed in SEEDS {
        live(seed, STEPS);
    }
    if std::env::var_os("BURROW_TEST_ALL").is_some() {
        for seed in 1000..1000 + MORE_SEEDS {
            live(seed, 2 * STEPS);
        }
    }
}
