//! The model: the expected content of a sandbox or a snapshot, and how a merge combines two sandboxes.

use std::collections::{BTreeMap, BTreeSet};

/// The files of the test, by name, each as printed by `uniq -c`: the number of equal lines, and the line. A partly
/// written file differs in the number.
pub(super) type Files = BTreeMap<String, String>;

/// A small random generator with the same sequence on every machine (xorshift64*).
pub(super) struct Random(u64);

impl Random {
    /// Neighbouring seeds start far apart. The state must not be zero.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1))
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// Files, and the word that a process keeps in RAM. `None`: the process does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) files: Files,
    pub(super) ram: Option<String>,
}

impl Words {
    /// The content of a snapshot or a fork.
    pub(super) fn copied(&self, files_only: bool) -> Self {
        Self { files: self.files.clone(), ram: self.ram.clone().filter(|_| !files_only) }
    }

    /// The files of `self` after `theirs` was merged into it with the policy `theirs`: where both changed a file since
    /// `base`, the version of `theirs` is taken.
    pub(super) fn merged(&self, base: &Files, theirs: &Files) -> Files {
        let names: BTreeSet<&String> = self.files.keys().chain(theirs.keys()).collect();
        let result = |name: &String| {
            let changed = theirs.get(name) != base.get(name);
            if changed { theirs.get(name) } else { self.files.get(name) }
        };
        names.into_iter().filter_map(|name| Some((name.clone(), result(name)?.clone()))).collect()
    }
}

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SandboxModel {
    pub(super) state: &'static str,
    pub(super) words: Words,
    /// Equal in a sandbox and its forks. Only used to decide which merges are tried.
    pub(super) family: u64,
}

impl SandboxModel {
    pub(super) fn up(&self) -> bool {
        ["running", "paused"].contains(&self.state)
    }

    pub(super) fn stop(&mut self) {
        (self.state, self.words.ram) = ("stopped", None);
    }

    /// A fork of it.
    pub(super) fn child(&self, files_only: bool) -> Self {
        Self { state: "running", words: self.words.copied(files_only), family: self.family }
    }
}

/// A snapshot, for merges of sandboxes that came from it.
pub(super) struct SnapshotModel {
    pub(super) files: Files,
    pub(super) family: u64,
}

/// The content of a file as `uniq -c` prints it, with single spaces.
pub(super) fn counted(text: &str) -> String {
    let mut groups: Vec<(usize, &str)> = Vec::new();
    for line in text.lines() {
        match groups.last_mut() {
            Some((count, last)) if *last == line => *count += 1,
            _ => groups.push((1, line)),
        }
    }
    groups.iter().map(|(count, line)| format!("{count} {line}")).collect::<Vec<_>>().join(" ")
}
