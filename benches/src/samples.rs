//! Measured values and their percentiles.

use std::time::Duration;

use serde::Serialize;

/// Values of one kind; the caller chooses the unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

/// The percentiles for the report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn push_ms(&mut self, elapsed: Duration) {
        self.push(elapsed.as_secs_f64() * 1e3);
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Without samples: all zero.
    pub(crate) fn summary(&self) -> Summary {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        #[expect(clippy::cast_precision_loss, reason = "counts of samples are small")]
        let mean = if n == 0 { 0.0 } else { sorted.iter().sum::<f64>() / n as f64 };
        Summary {
            n,
            min: percentile(&sorted, 0),
            p50: percentile(&sorted, 50),
            p95: percentile(&sorted, 95),
            p99: percentile(&sorted, 99),
            max: percentile(&sorted, 100),
            mean,
        }
    }
}

/// Nearest rank: a value that was really measured, and at p99 of few samples the worst one.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: impl IntoIterator<Item = u32>) -> Samples {
        Samples(values.into_iter().map(f64::from).collect())
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let summary = samples((1..=200).rev()).summary();
        assert_eq!(
            (summary.n, summary.min, summary.p50, summary.p95, summary.p99, summary.max),
            (200, 1.0, 100.0, 190.0, 198.0, 200.0)
        );
        assert!((summary.mean - 100.5).abs() < 1e-9);
    }

    #[test]
    fn the_99th_percentile_of_few_samples_is_the_worst_of_them() {
        assert_eq!(samples([3, 1, 2]).summary().p99, 3.0);
        assert_eq!(samples([7]).summary().p50, 7.0);
    }

    #[test]
    fn no_samples_have_a_summary_too() {
        let summary = Samples::default().summary();
        assert_eq!((summary.n, summary.p50, summary.mean), (0, 0.0, 0.0));
    }
}
