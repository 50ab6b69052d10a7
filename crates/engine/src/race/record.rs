//! The record of a race.

use burrow_model::{ExecId, RaceId, SandboxId, SnapshotId};
use burrow_trees::plan::{Policies, Policy};
use serde::{Deserialize, Serialize};

use crate::{MemoryPolicy, MergeOptions, MergeReport};

/// What to race. Stored as JSON, so fields are only ever added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceSpec {
    pub attempts: usize,
    /// Maximum number of attempts that run at once.
    pub parallel: usize,
    pub run: Vec<String>,
    /// Prints the score of an attempt on its last line. Without a judge, an attempt succeeds if its command exits with 0.
    pub judge: Option<Vec<String>>,
    pub timeout_ms: Option<u64>,
    /// The attempts boot from the parent's files.
    pub files_only: bool,
    /// Keep the attempts after the race.
    pub keep: bool,
    pub merge_winner: bool,
    pub merge: RaceMergeSpec,
}

/// How the winner is merged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceMergeSpec {
    /// Pattern and policy.
    pub policies: Vec<(String, String)>,
    pub policy: String,
    pub memory: MemoryPolicy,
}

impl RaceMergeSpec {
    pub fn of(options: &MergeOptions) -> Self {
        let rules = options.policies.rules.iter();
        Self {
            policies: rules.map(|(glob, policy)| (glob.to_string(), policy.as_str().to_owned())).collect(),
            policy: options.policies.otherwise.as_str().to_owned(),
            memory: options.memory,
        }
    }

    pub(super) fn options(&self) -> MergeOptions {
        let named =
            |name: &str| Policy::ALL.into_iter().find(|policy| policy.as_str() == name).unwrap_or_default();
        let rule = |(glob, policy): &(String, String)| Some((glob.parse().ok()?, named(policy)));
        let policies = Policies {
            rules: self.policies.iter().filter_map(rule).collect(),
            otherwise: named(&self.policy),
        };
        MergeOptions { dry_run: false, policies, all: false, memory: self.memory }
    }
}

/// The state of a race. Stored as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Race {
    pub id: RaceId,
    pub parent: SandboxId,
    /// Who started it, as the audit log names them.
    #[serde(default)]
    pub actor: Option<String>,
    pub spec: RaceSpec,
    pub stage: RaceStage,
    pub attempts: Vec<Attempt>,
    /// The snapshot that all attempts were created from.
    pub base: Option<SnapshotId>,
    /// Number of the attempt that won.
    pub winner: Option<usize>,
    pub merged: Option<RaceMerged>,
    /// Why it ended early.
    pub failure: Option<String>,
    pub created_ms: u64,
    pub ended_ms: Option<u64>,
    /// Incremented with every change, for clients that wait for one.
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RaceStage {
    Forking,
    Running,
    Choosing,
    Merging,
    Cleaning,
    Done,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// From 1.
    pub number: usize,
    pub sandbox: SandboxId,
    pub state: AttemptState,
    pub exec: Option<ExecId>,
    pub exit_code: Option<i32>,
    pub score: Option<f64>,
    pub started_ms: Option<u64>,
    /// How long its command took.
    pub took_ms: Option<u64>,
    /// Why it does not count.
    pub why: Option<String>,
    /// What it changed.
    pub changes: Option<AttemptChanges>,
    /// Its sandbox is deleted.
    pub gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptState {
    Waiting,
    Running,
    Judging,
    Ended,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptChanges {
    pub added: u64,
    pub changed: u64,
    pub deleted: u64,
}

/// The result of merging the winner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceMerged {
    pub applied: bool,
    pub total: u64,
    pub conflicts: Vec<String>,
    pub undo: Option<SnapshotId>,
}

impl RaceMerged {
    pub(super) fn of(merged: &MergeReport) -> Self {
        let conflicts = merged.conflicts.iter().take(100);
        Self {
            applied: merged.applied,
            total: merged.changes.total,
            conflicts: conflicts.map(|found| String::from_utf8_lossy(&found.path).into_owned()).collect(),
            undo: merged.undo.as_ref().map(|undo| undo.id.clone()),
        }
    }

    /// Whether the winner's work is in the parent.
    pub(super) fn is_merged(&self) -> bool {
        self.applied || self.conflicts.is_empty()
    }
}

impl Race {
    pub fn is_done(&self) -> bool {
        self.stage == RaceStage::Done
    }

    pub fn winner(&self) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| Some(attempt.number) == self.winner)
    }

    /// The best attempt that counts: by score, then by time, then by number.
    pub(super) fn best(&self) -> Option<usize> {
        let counts = |attempt: &&Attempt| match &self.spec.judge {
            Some(_) => attempt.score.is_some(),
            None => attempt.exit_code == Some(0),
        };
        let better = |one: &&Attempt, other: &&Attempt| {
            let score = |attempt: &Attempt| attempt.score.unwrap_or(0.0);
            let time = |attempt: &Attempt| attempt.took_ms.unwrap_or(u64::MAX);
            score(one)
                .total_cmp(&score(other))
                .then(time(other).cmp(&time(one)))
                .then(other.number.cmp(&one.number))
        };
        self.attempts.iter().filter(counts).max_by(better).map(|attempt| attempt.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race(judged: bool, attempts: &[(Option<i32>, Option<f64>, u64)]) -> Race {
        let attempt =
            |(index, (exit_code, score, took_ms)): (usize, &(Option<i32>, Option<f64>, u64))| Attempt {
                number: index + 1,
                sandbox: SandboxId::generate(),
                state: AttemptState::Ended,
                exec: None,
                exit_code: *exit_code,
                score: *score,
                started_ms: None,
                took_ms: Some(*took_ms),
                why: None,
                changes: None,
                gone: false,
            };
        Race {
            id: RaceId::generate(),
            parent: SandboxId::generate(),
            actor: None,
            spec: RaceSpec {
                attempts: attempts.len(),
                parallel: 1,
                run: vec!["true".to_owned()],
                judge: judged.then(|| vec!["true".to_owned()]),
                timeout_ms: None,
                files_only: false,
                keep: false,
                merge_winner: false,
                merge: RaceMergeSpec {
                    policies: Vec::new(),
                    policy: "fail".to_owned(),
                    memory: MemoryPolicy::List,
                },
            },
            stage: RaceStage::Choosing,
            attempts: attempts.iter().enumerate().map(attempt).collect(),
            base: None,
            winner: None,
            merged: None,
            failure: None,
            created_ms: 0,
            ended_ms: None,
            version: 1,
        }
    }

    #[test]
    fn the_best_is_chosen_by_score_or_exit_code_then_by_time() {
        for (judged, attempts, best) in [
            (false, &[(Some(1), None, 1), (Some(0), None, 9), (Some(0), None, 5)][..], Some(3)),
            (false, &[(Some(1), None, 1), (None, None, 1)], None),
            (true, &[(Some(0), Some(0.5), 1), (Some(1), Some(0.9), 9), (Some(0), None, 1)], Some(2)),
            (true, &[(Some(0), Some(1.0), 7), (Some(0), Some(1.0), 7)], Some(1)),
            (true, &[(Some(0), None, 7)], None),
        ] {
            assert_eq!(race(judged, attempts).best(), best);
        }
    }

    #[test]
    fn merge_policies_survive_serialization() {
        let policies =
            Policies { rules: vec![("*.md".parse().unwrap(), Policy::Union)], otherwise: Policy::Theirs };
        let options = MergeOptions { dry_run: false, policies, all: false, memory: MemoryPolicy::Both };
        let again = RaceMergeSpec::of(&options).options();
        assert_eq!(again.policies.rules, options.policies.rules);
        assert_eq!((again.policies.otherwise, again.memory), (Policy::Theirs, MemoryPolicy::Both));
    }
}
