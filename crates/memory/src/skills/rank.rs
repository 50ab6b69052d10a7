//! Estimates from outcomes how likely a skill succeeds next time.
//!
//! The estimate is the mean of a Beta distribution that starts as unknown (one success, one failure) and decays: each new outcome
//! reduces the weight of all earlier ones, so a skill that broke last week does not benefit from old successes. A new version
//! starts with a share of the weight of the previous version's outcomes, since versions are usually similar.

use super::Outcome;

/// The factor for the weight of earlier outcomes after one more: about the last ten count.
const KEPT_PER_OUTCOME: f64 = 0.9;
/// The factor for the next version.
const KEPT_PER_VERSION: f64 = 0.25;

/// The outcomes of one version of a skill, on one branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SkillOutcomes {
    pub(super) successes: u64,
    pub(super) failures: u64,
    /// The successes, each weighted by how recent it is.
    pub(super) recent_successes: f64,
    pub(super) recent_failures: f64,
}

impl SkillOutcomes {
    pub(super) const NOTHING: Self =
        Self { successes: 0, failures: 0, recent_successes: 0.0, recent_failures: 0.0 };

    pub(super) fn after(self, outcome: &Outcome) -> Self {
        let worked = u64::from(outcome.ok);
        let weigh = |before: f64, now: bool| before * KEPT_PER_OUTCOME + f64::from(u8::from(now));
        Self {
            successes: self.successes + worked,
            failures: self.failures + (1 - worked),
            recent_successes: weigh(self.recent_successes, outcome.ok),
            recent_failures: weigh(self.recent_failures, !outcome.ok),
        }
    }

    /// The initial estimate of the next version.
    pub(super) fn inherited(self) -> Self {
        Self {
            recent_successes: self.recent_successes * KEPT_PER_VERSION,
            recent_failures: self.recent_failures * KEPT_PER_VERSION,
            ..Self::NOTHING
        }
    }

    /// From 0 to 1, both excluded.
    pub(super) fn score(self) -> f64 {
        (self.recent_successes + 1.0) / (self.recent_successes + self.recent_failures + 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(outcomes: &[bool]) -> SkillOutcomes {
        outcomes.iter().fold(SkillOutcomes::NOTHING, |learned, ok| {
            learned.after(&Outcome { ok: *ok, exit_code: None, detail: String::new(), took_ms: 1 })
        })
    }

    #[test]
    fn successes_rank_above_unknown_skills_and_those_above_failures() {
        assert!(learned(&[true]).score() > learned(&[]).score());
        assert!(learned(&[]).score() > learned(&[false]).score());
        assert!(learned(&[true; 10]).score() > learned(&[true]).score());
        assert!((learned(&[]).score() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn recent_outcomes_weigh_more_than_old_ones() {
        let broke = learned(&[[true; 20].as_slice(), &[false; 8]].concat());
        let mended = learned(&[[false; 8].as_slice(), &[true; 20]].concat());
        assert_eq!((broke.successes, broke.failures), (mended.successes, mended.failures));
        assert!(broke.score() < 0.5 && mended.score() > 0.7, "{broke:?} {mended:?}");
    }

    #[test]
    fn a_new_version_inherits_less_than_its_own_outcomes_weigh() {
        let bad = learned(&[false; 20]).inherited();
        assert_eq!((bad.successes, bad.failures), (0, 0));
        assert!(bad.score() < 0.5);
        let tried = Outcome { ok: true, exit_code: Some(0), detail: String::new(), took_ms: 1 };
        assert!(bad.after(&tried).after(&tried).after(&tried).score() > 0.5);
    }
}
