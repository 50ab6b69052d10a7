//! Requests of one or several clients at once, some of which are interrupted because a process is killed.
//!
//! An acknowledged request has happened. A request that failed because a process was killed has happened completely or
//! not at all: its sandbox is read to find out which. No two requests change one sandbox at once. But while one request
//! changes it, another may copy it: a snapshot, a fork, or a merge of it into a third sandbox. The copy is of the state
//! before or after the change.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::model::{Files, SandboxModel, SnapshotModel, Words};
use super::processes::{self, Victim};
use super::{EGRESS_KILLS_MAX, SANDBOXES_MAX, SNAPSHOTS_MAX, Scenario, text};
use crate::harness::eventually;

/// Maximum number of sandboxes that have a request at the same time.
const AT_ONCE_MAX: usize = 3;

/// Lines of the largest upload: long enough that a kill may interrupt it.
const LINES_MAX: usize = 200_000;

/// The kill happens within this time after the requests start, which is what most requests take.
const KILL_WITHIN_MS: usize = 200;

/// How often the launcher is killed during requests.
const LAUNCHER_KILLS: usize = 4;

#[derive(Clone, Debug)]
enum Operation {
    Hibernate,
    Wake,
    Stop,
    Remove,
    Snapshot,
    Fork,
    Restore {
        snapshot: String,
    },
    Upload {
        name: String,
        line: String,
        lines: usize,
        /// By `burrow cp`, otherwise by `burrow files write`.
        cp: bool,
    },
    Merge {
        child: String,
        /// Files of the common snapshot of both.
        base: Files,
    },
}

#[derive(Clone, Debug)]
struct Request {
    operation: Operation,
    id: String,
    before: SandboxModel,
    /// The sandbox that this request copies, if another request changes it at the same time.
    copies: Option<String>,
}

/// Possible contents of a sandbox when it was copied, by its id: before and after a change.
type ChangingContents = BTreeMap<String, [Words; 2]>;

/// A snapshot that did not exist before.
pub(super) struct FoundSnapshot {
    id: String,
    /// The sandbox of which it was taken.
    of: String,
    kind: String,
    words: Words,
}

/// How a request ended.
enum RequestResult {
    Acknowledged,
    Failed(String),
}

impl Request {
    fn shown(&self) -> String {
        let Self { operation, id, before, .. } = self;
        let what = match operation {
            Operation::Hibernate => "hibernate".to_owned(),
            Operation::Wake => "wake".to_owned(),
            Operation::Stop => "stop".to_owned(),
            Operation::Remove => "rm".to_owned(),
            Operation::Snapshot => "snapshot".to_owned(),
            Operation::Fork => "fork".to_owned(),
            Operation::Restore { snapshot } => format!("restore to {snapshot}"),
            Operation::Upload { name, lines, cp, .. } => {
                format!("upload of {name} ({lines} lines, {})", if *cp { "cp" } else { "files write" })
            }
            Operation::Merge { child, .. } => format!("merge of {child}"),
        };
        format!("{what} ({id}, which was {})", before.state)
    }

    /// `upload`: the file to upload.
    fn arguments(&self, upload: &str) -> Vec<String> {
        let id = self.id.as_str();
        let words: Vec<&str> = match &self.operation {
            Operation::Hibernate => vec!["hibernate", id],
            Operation::Wake => vec!["wake", id],
            Operation::Stop => vec!["stop", id],
            Operation::Remove => vec!["rm", "--purge", "-f", id],
            Operation::Snapshot => vec!["snapshot", "create", id],
            Operation::Fork => vec!["fork", id],
            Operation::Restore { snapshot } => {
                vec!["snapshot", "restore", snapshot, "--in-place", id, "--yes"]
            }
            Operation::Upload { name, cp: true, .. } => {
                return ["cp", upload, &format!("{id}:/root/{name}")].map(str::to_owned).into();
            }
            Operation::Upload { name, cp: false, .. } => {
                return ["files", "write", id, &format!("/root/{name}")].map(str::to_owned).into();
            }
            Operation::Merge { child, .. } => {
                vec!["merge", child, "--into", id, "--yes", "--policy", "theirs"]
            }
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

impl Scenario {
    /// Requests on several sandboxes at once, during which a process may be killed.
    pub(super) fn at_once(&mut self) -> Option<String> {
        let victim = [Victim::Daemon, Victim::Daemon, Victim::Launcher, Victim::Egress, Victim::None]
            [self.random.below(5)];
        let count = 1 + self.random.below(AT_ONCE_MAX);
        let (mut requests, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let Some((id, held)) = self.some_sandbox().filter(|(id, _)| !taken.contains(id)) else {
                continue;
            };
            let Some(request) = self.draw(id, held, &mut taken, requests.len()) else { continue };
            let copy = self.draw_copy(&request, &mut taken, requests.len() + 1);
            requests.push(request);
            requests.extend(copy);
        }
        (!requests.is_empty()).then(|| self.carry_out(requests, victim))
    }

    /// A single upload.
    pub(super) fn upload(&mut self, id: String, held: SandboxModel) -> Option<String> {
        let operation = self.new_upload(&held)?;
        Some(self.carry_out(vec![Request { operation, id, before: held, copies: None }], Victim::None))
    }

    /// A single merge.
    pub(super) fn merge(&mut self, id: String, held: SandboxModel) -> Option<String> {
        let operation = self.new_merge(&id, &held, &[])?;
        Some(self.carry_out(vec![Request { operation, id, before: held, copies: None }], Victim::None))
    }

    /// A request that is possible for this sandbox. `taken` are the sandboxes that already have a request, or are
    /// merged.
    fn draw(
        &mut self,
        id: String,
        before: SandboxModel,
        taken: &mut Vec<String>,
        requests: usize,
    ) -> Option<Request> {
        let stopped = before.state == "stopped";
        let operation = match self.random.below(14) {
            0..=1 if !stopped => Operation::Hibernate,
            2..=3 => Operation::Wake,
            4 => Operation::Stop,
            5 => Operation::Remove,
            6 => Operation::Snapshot,
            // Each of the other requests may be a fork, too.
            7 if self.sandboxes.len() + requests < SANDBOXES_MAX => Operation::Fork,
            8..=9 => Operation::Restore { snapshot: self.some_snapshot()? },
            10..=11 => self.new_upload(&before)?,
            12.. => self.new_merge(&id, &before, taken)?,
            _ => return None,
        };
        taken.push(id.clone());
        if let Operation::Merge { child, .. } = &operation {
            taken.push(child.clone());
        }
        Some(Request { operation, id, before, copies: None })
    }

    /// Sometimes returns a request that copies the sandbox while `change` changes it.
    fn draw_copy(&mut self, change: &Request, taken: &mut Vec<String>, requests: usize) -> Option<Request> {
        let changes = matches!(
            change.operation,
            Operation::Hibernate
                | Operation::Wake
                | Operation::Stop
                | Operation::Restore { .. }
                | Operation::Upload { .. }
                | Operation::Merge { .. }
        );
        if !changes || self.random.below(2) == 0 {
            return None;
        }
        let (id, before, copies) = (change.id.clone(), change.before.clone(), Some(change.id.clone()));
        match self.random.below(4) {
            0 => Some(Request { operation: Operation::Snapshot, id, before, copies }),
            1 if self.sandboxes.len() + requests < SANDBOXES_MAX => {
                Some(Request { operation: Operation::Fork, id, before, copies })
            }
            _ => {
                let fits = |life: &Self, other: &str| {
                    let same = life.sandboxes.get(other).is_some_and(|held| held.family == before.family);
                    same && other != id && !taken.iter().any(|taken| taken == other)
                };
                let parent = self.pick(fits)?;
                let base = self.merge_base(&id, &parent)?;
                let held = self.sandboxes[&parent].clone();
                taken.push(parent.clone());
                let operation = Operation::Merge { child: id, base };
                Some(Request { operation, id: parent, before: held, copies })
            }
        }
    }

    /// A new file, or a new version of one. Not possible in a stopped sandbox.
    fn new_upload(&mut self, held: &SandboxModel) -> Option<Operation> {
        if held.state == "stopped" {
            return None;
        }
        self.writes += 1;
        let old: Vec<&String> = held.words.files.keys().filter(|name| name.starts_with("up-")).collect();
        let replaced = old.get(self.random.below(2 * old.len() + 1)).map(|name| (*name).clone());
        let name = replaced.unwrap_or_else(|| format!("up-{}", self.writes));
        let lines = [1, 3_000, LINES_MAX][self.random.below(3)];
        let cp = self.random.below(2) == 0;
        Some(Operation::Upload { name, line: self.writes.to_string(), lines, cp })
    }

    /// A merge of another sandbox of the family into `id`.
    fn new_merge(&mut self, id: &str, held: &SandboxModel, taken: &[String]) -> Option<Operation> {
        let family = held.family;
        let fits = |life: &Self, other: &str| {
            let same = life.sandboxes.get(other).is_some_and(|held| held.family == family);
            same && other != id && !taken.iter().any(|taken| taken == other)
        };
        let child = self.pick(fits)?;
        let base = self.merge_base(&child, id)?;
        Some(Operation::Merge { child, base })
    }

    /// The files of the common snapshot of both.
    fn merge_base(&self, child: &str, parent: &str) -> Option<Files> {
        let foreseen = self.daemon.cli(&["merge", child, "--into", parent, "--dry-run", "--json"]);
        if !foreseen.status.success() && foreseen.stdout.is_empty() {
            // The snapshots between them and a common one may have been removed.
            let said = String::from_utf8_lossy(&foreseen.stderr);
            assert!(said.contains("no snapshot in common"), "{said}");
            return None;
        }
        let foreseen: Value = serde_json::from_slice(&foreseen.stdout).unwrap();
        let base = text(&foreseen["base"]);
        let base = self.past.get(&base).unwrap_or_else(|| panic!("a merge from the unknown snapshot {base}"));
        Some(base.files.clone())
    }

    fn carry_out(&mut self, requests: Vec<Request>, victim: Victim) -> String {
        let shown: Vec<String> = requests.iter().map(Request::shown).collect();
        let mut what = format!("{}, killed: {victim:?}", shown.join("; "));
        eprintln!("  {what}");
        let before = self.sandboxes.clone();
        let mut clients: Vec<Child> = requests.iter().map(|request| self.send(request)).collect();
        if victim != Victim::None {
            // A request uses a launcher for milliseconds, and the next launcher starts at once.
            for _ in 0..if victim == Victim::Launcher { LAUNCHER_KILLS } else { 1 } {
                // A random moment of the request.
                std::thread::sleep(Duration::from_millis(self.random.below(KILL_WITHIN_MS) as u64));
                self.kill(victim);
            }
        }
        if victim == Victim::Daemon {
            // Clients that still wait get no answer any more. Some have theirs and are about to exit.
            clients.iter_mut().for_each(|client| drop(client.kill()));
        }
        let ended: Vec<RequestResult> = clients.into_iter().map(ended).collect();
        if victim == Victim::Daemon {
            self.daemon.launch();
        }
        for (request, ended) in requests.iter().zip(&ended) {
            if let RequestResult::Failed(said) = ended {
                assert_ne!(victim, Victim::None, "{} failed: {said}", request.shown());
                what.push_str(&format!("; {} failed: {}", request.shown(), said.trim()));
            }
        }
        let copied = |id: &String| requests.iter().any(|request| request.copies.as_ref() == Some(id));
        let changes = requests.iter().filter(|request| request.copies.is_none() && copied(&request.id));
        let words =
            |request: &Request| self.done(request).map(|done| [request.before.words.clone(), done.words]);
        let changing: ChangingContents =
            changes.filter_map(|request| Some((request.id.clone(), words(request)?))).collect();
        let rows = self.rows();
        for (request, ended) in requests.iter().zip(&ended) {
            let state = rows.get(&request.id).map(|row| text(&row["state"]));
            match (&request.copies, ended) {
                (Some(copied), ended) => self.copied(request, &changing[copied], ended, &what),
                (None, RequestResult::Acknowledged) => self.acknowledged(request, state.as_deref()),
                (None, RequestResult::Failed(_)) => self.failed(request, state.as_deref(), &what),
            }
        }
        self.find_children(&requests, &rows, &changing);
        let snapshots = self.find_snapshots(&before, &changing);
        for (request, _) in
            requests.iter().zip(&ended).filter(|(_, ended)| matches!(ended, RequestResult::Acknowledged))
        {
            let child = |(id, row): (&String, &Value)| {
                !before.contains_key(id) && row["origin"]["sandbox"] == *request.id
            };
            let snapshot = |found: &FoundSnapshot| found.of == request.id && found.kind == "manual";
            let forked = !matches!(request.operation, Operation::Fork) || rows.iter().any(child);
            let taken = !matches!(request.operation, Operation::Snapshot) || snapshots.iter().any(snapshot);
            assert!(forked && taken, "{} was acknowledged, and is not there, {what}", request.shown());
        }
        what
    }

    fn send(&self, request: &Request) -> Child {
        let path = self.uploads.path().join(&request.id);
        let arguments = request.arguments(path.to_str().unwrap());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = self.daemon.command(&arguments);
        if let Operation::Upload { line, lines, .. } = &request.operation {
            fs::write(&path, format!("{line}\n").repeat(*lines)).unwrap();
            command.stdin(File::open(path).unwrap());
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The sandbox after the request; `None` if it is gone.
    fn done(&self, request: &Request) -> Option<SandboxModel> {
        let mut held = request.before.clone();
        match &request.operation {
            Operation::Hibernate => held.state = "hibernated",
            Operation::Wake => held.state = "running",
            Operation::Stop => held.stop(),
            Operation::Remove => return None,
            Operation::Snapshot | Operation::Fork => {}
            Operation::Restore { snapshot } => {
                held.words = self.snapshots[snapshot].clone();
                held.state = "running";
            }
            Operation::Upload { name, line, lines, .. } => {
                held.words.files.insert(name.clone(), format!("{lines} {line}"));
                held.state = "running";
            }
            Operation::Merge { child, base } => {
                held.words.files = held.words.merged(base, &self.sandboxes[child].words.files);
                if held.state == "hibernated" {
                    held.state = "running";
                }
            }
        }
        Some(held)
    }

    fn acknowledged(&mut self, request: &Request, state: Option<&str>) {
        let Some(mut held) = self.done(request) else {
            assert_eq!(state, None, "{} was acknowledged", request.shown());
            self.sandboxes.remove(&request.id);
            return;
        };
        // A stopped sandbox stays stopped if the snapshot has no processes.
        let restored = matches!(request.operation, Operation::Restore { .. });
        if restored && state == Some("stopped") && request.before.state == "stopped" {
            assert_eq!(held.words.ram, None, "{}: processes of the snapshot are lost", request.shown());
            held.state = "stopped";
        }
        self.sandboxes.insert(request.id.clone(), held);
    }

    /// The result for the parent of a merge whose child was changed at the same time. Snapshots and forks are found
    /// later.
    fn copied(&mut self, request: &Request, words: &[Words; 2], ended: &RequestResult, context: &str) {
        let Request { operation: Operation::Merge { base, .. }, id, before, .. } = request else { return };
        let mut possible: Vec<Words> = words
            .iter()
            .map(|theirs| Words { files: before.words.merged(base, &theirs.files), ..before.words.clone() })
            .collect();
        if matches!(ended, RequestResult::Failed(_)) {
            possible.push(before.words.clone());
        }
        self.daemon.ok(&["wake", id]);
        let words = self.look(id);
        assert!(possible.contains(&words), "{id} is {words:?}, and none of {possible:?}, {context}");
        self.sandboxes.insert(id.clone(), SandboxModel { state: "running", words, ..before.clone() });
    }

    /// The result for a sandbox whose request was interrupted.
    fn failed(&mut self, request: &Request, state: Option<&str>, context: &str) {
        let Request { operation, id, before, .. } = request;
        let Some(state) = state else {
            assert!(matches!(operation, Operation::Remove), "{id} is gone, {context}");
            self.sandboxes.remove(id);
            return;
        };
        let done = self.done(request);
        match operation {
            Operation::Restore { .. } | Operation::Upload { .. } | Operation::Merge { .. } => {
                let done = done.expect("it removes nothing");
                self.daemon.ok(&["wake", id]);
                let words = self.look(id);
                assert!(
                    [&before.words, &done.words].contains(&&words),
                    "{id} is {words:?}, neither as before {:?} nor as after {:?}, {context}",
                    before.words,
                    done.words
                );
                self.sandboxes.insert(id.clone(), SandboxModel { state: "running", words, ..done });
            }
            Operation::Stop if state == "stopped" => {
                self.sandboxes.insert(id.clone(), done.expect("it removes nothing"));
            }
            // It did not start. The next attempt must succeed.
            Operation::Wake if state == "failed" && before.state == "stopped" => {
                self.daemon.ok(&["wake", id]);
                self.sandboxes.insert(id.clone(), done.expect("it removes nothing"));
            }
            Operation::Hibernate
            | Operation::Wake
            | Operation::Stop
            | Operation::Remove
            | Operation::Snapshot
            | Operation::Fork => {
                let asleep = before.up().then_some("hibernated");
                let mut possible =
                    [Some(before.state), done.map(|held| held.state), asleep].into_iter().flatten();
                let found = possible.find(|possible| *possible == state);
                let state = found.unwrap_or_else(|| panic!("{id} is {state}, {context}"));
                self.sandboxes.insert(id.clone(), SandboxModel { state, ..before.clone() });
            }
        }
    }

    /// Adds the children of forks to the model.
    fn find_children(
        &mut self,
        requests: &[Request],
        rows: &BTreeMap<String, Value>,
        changing: &ChangingContents,
    ) {
        for (id, row) in rows {
            // A sandbox whose removal failed is still listed, and so is one that a request has just removed.
            if self.sandboxes.contains_key(id) || requests.iter().any(|request| request.id == *id) {
                continue;
            }
            let parent = requests.iter().find(|request| {
                matches!(request.operation, Operation::Fork) && row["origin"]["sandbox"] == *request.id
            });
            let parent = parent.unwrap_or_else(|| panic!("{id} was made by no request: {row}"));
            assert_eq!(row["state"], "running", "a fork of {}", parent.id);
            let mut child = parent.before.child(false);
            if let Some(possible) = changing.get(&parent.id) {
                child.words = self.look(id);
                assert!(possible.contains(&child.words), "{id} is {child:?}, and none of {possible:?}");
            }
            self.sandboxes.insert(id.clone(), child);
        }
    }

    /// Adds new snapshots of sandboxes in their state `before` to the model. Removes some if there are many.
    fn find_snapshots(
        &mut self,
        before: &BTreeMap<String, SandboxModel>,
        changing: &ChangingContents,
    ) -> Vec<FoundSnapshot> {
        let found = self.learn_snapshots(before, changing);
        for snapshot in found.iter().filter(|snapshot| snapshot.kind != "fork") {
            self.snapshots.insert(snapshot.id.clone(), snapshot.words.clone());
        }
        while self.snapshots.len() > SNAPSHOTS_MAX {
            let snapshot = self.some_snapshot().expect("there are several");
            self.daemon.ok(&["snapshot", "rm", &snapshot]);
            self.snapshots.remove(&snapshot);
        }
        found
    }

    /// Records every new snapshot for merges, including those that only forks use: all were taken of sandboxes in
    /// their state `before`, or in a state during a change.
    pub(super) fn learn_snapshots(
        &mut self,
        before: &BTreeMap<String, SandboxModel>,
        changing: &ChangingContents,
    ) -> Vec<FoundSnapshot> {
        let mut found = Vec::new();
        for row in self.daemon.json(&["snapshot", "ls", "--all", "--json"]).as_array().unwrap() {
            let id = text(&row["id"]);
            if self.past.contains_key(&id) {
                continue;
            }
            let of = text(&row["sandbox_id"]);
            let held = before.get(&of).unwrap_or_else(|| panic!("a snapshot of an unknown sandbox: {row}"));
            let files_only = row["processes"] != true;
            let mut words = held.words.copied(files_only);
            // Only the snapshot that a restore or a merge takes first certainly has the state before.
            let possible =
                changing.get(&of).filter(|_| ["manual", "fork"].contains(&text(&row["kind"]).as_str()));
            if let Some(possible) = possible {
                let possible = possible.clone().map(|words| words.copied(files_only));
                words = self.probe(&id);
                assert!(possible.contains(&words), "{id} of {of} is {words:?}, and none of {possible:?}");
            }
            self.past.insert(id.clone(), SnapshotModel { files: words.files.clone(), family: held.family });
            found.push(FoundSnapshot { id, of, kind: text(&row["kind"]), words });
        }
        found
    }

    /// The content of a snapshot, read from a sandbox that is created from it.
    pub(super) fn probe(&self, snapshot: &str) -> Words {
        let made = self.daemon.ok(&["snapshot", "restore", snapshot]);
        let words = self.look(&made);
        self.daemon.ok(&["rm", "--purge", "-f", &made]);
        words
    }

    /// Kills a process, and waits until it is gone.
    pub(super) fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::Daemon => {
                self.daemon.kill();
                self.egress_kills = 0;
            }
            Victim::Launcher => processes::kill(&processes::launchers(self.daemon.pid())),
            Victim::Egress => {
                let killed = self.daemon.egress_processes();
                processes::kill(&killed);
                self.egress_kills += 1;
                if self.egress_kills > EGRESS_KILLS_MAX {
                    eventually("another egress process", || {
                        self.daemon.egress_processes().into_iter().find(|pid| !killed.contains(pid))
                    });
                }
            }
            Victim::None => {}
        }
    }
}

fn ended(mut client: Child) -> RequestResult {
    let status = eventually("a client to end", || client.try_wait().unwrap());
    let mut said = String::new();
    // Less than the capacity of a pipe, so the client was able to exit.
    let _ = client.stderr.take().expect("it is a pipe").read_to_string(&mut said);
    if status.success() { RequestResult::Acknowledged } else { RequestResult::Failed(said) }
}
