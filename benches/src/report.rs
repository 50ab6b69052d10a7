//! Figures as a table for people and as JSON for programs that track them over time.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use crate::daemon::BenchSetup;
use crate::error::BenchError;
use crate::machine::{self, Machine, Revision};
use crate::samples::{Samples, Summary};

/// Version of the JSON; increased when a field changes its meaning.
const FORMAT: u32 = 1;
const HEADER: [&str; 6] = ["name", "value", "unit", "ratio-to-peer", "target", "verdict"];

/// One measured figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// `value` divided by the peer's.
    pub(crate) ratio: Option<f64>,
    pub(crate) peer: Option<Peer>,
    pub(crate) target: Option<Target>,
    /// Whether the target was met; absent without a target.
    pub(crate) met: Option<bool>,
    pub(crate) samples: Option<Summary>,
    /// Exact description of the measurement.
    pub(crate) note: &'static str,
}

/// The value to compare with, measured in the same run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) samples: Option<Summary>,
}

/// The promised value.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Target {
    /// A multiple of the peer's value; `wish` is the value we would like to reach.
    RatioAtMost {
        limit: f64,
        wish: f64,
    },
    RatioAtLeast {
        limit: f64,
    },
    Below {
        limit: f64,
    },
    AtMost {
        limit: f64,
    },
    AtLeast {
        limit: f64,
    },
}

impl Target {
    fn met(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::RatioAtMost { limit, wish: _ } => ratio.map(|ratio| ratio <= limit),
            Self::RatioAtLeast { limit } => ratio.map(|ratio| ratio >= limit),
            Self::Below { limit } => Some(value < limit),
            Self::AtMost { limit } => Some(value <= limit),
            Self::AtLeast { limit } => Some(value >= limit),
        }
    }

    fn shown(self) -> String {
        match self {
            Self::RatioAtMost { limit, wish } if wish < limit => format!("<= {limit}x (wish {wish}x)"),
            Self::RatioAtMost { limit, wish: _ } => format!("<= {limit}x"),
            Self::RatioAtLeast { limit } => format!(">= {limit}x"),
            Self::Below { limit } => format!("< {limit}"),
            Self::AtMost { limit } => format!("<= {limit}"),
            Self::AtLeast { limit } => format!(">= {limit}"),
        }
    }
}

impl Figure {
    pub(crate) fn new(name: &'static str, value: f64, unit: &'static str, note: &'static str) -> Self {
        let (ratio, peer, target, met, samples) = (None, None, None, None, None);
        Self { name, value, unit, ratio, peer, target, met, samples, note }
    }

    /// The median of some samples.
    pub(crate) fn median(
        name: &'static str,
        samples: &Samples,
        unit: &'static str,
        note: &'static str,
    ) -> Self {
        let summary = samples.summary();
        Self { samples: Some(summary), ..Self::new(name, summary.p50, unit, note) }
    }

    /// Their 99th percentile.
    pub(crate) fn p99(name: &'static str, samples: &Samples, unit: &'static str, note: &'static str) -> Self {
        let summary = samples.summary();
        Self { samples: Some(summary), ..Self::new(name, summary.p99, unit, note) }
    }

    /// Compared with the median of a peer's samples.
    pub(crate) fn against(self, name: &'static str, samples: &Samples) -> Self {
        let summary = samples.summary();
        let ratio = (summary.p50 > 0.0).then(|| self.value / summary.p50);
        Self { ratio, peer: Some(Peer { name, value: summary.p50, samples: Some(summary) }), ..self }
    }

    /// After [`Self::against`], where the target is a ratio.
    pub(crate) fn target(self, target: Target) -> Self {
        Self { met: target.met(self.value, self.ratio), target: Some(target), ..self }
    }
}

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    format: u32,
    date: String,
    revision: Revision,
    /// Too few samples to be meaningful.
    quick: bool,
    machine: Machine,
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn begin(prepared: &BenchSetup, quick: bool) -> Self {
        Self {
            format: FORMAT,
            date: machine::date(),
            revision: Revision::look(),
            quick,
            machine: Machine::look(prepared),
            figures: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    pub(crate) fn finish(&mut self) {
        self.machine.load_after = machine::load();
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), BenchError> {
        let mut text = serde_json::to_string_pretty(self).map_err(|source| BenchError::Encode { source })?;
        text.push('\n');
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(BenchError::io("make", parent.display()))?;
        }
        fs::write(path, text).map_err(BenchError::io("write", path.display()))
    }

    pub(crate) fn print(&self) -> io::Result<()> {
        let machine = &self.machine;
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{} cores, {} MiB RAM, Linux {}, cgroups {}, {}, load {:.1} before and {:.1} after{}",
            machine.cores,
            machine.ram_mib,
            machine.kernel,
            machine.cgroups,
            machine.crun.as_deref().unwrap_or("no crun"),
            machine.load_before,
            machine.load_after,
            if self.quick { ", QUICK: too few samples to compare" } else { "" },
        )?;
        out.write_all(table(&self.figures).as_bytes())
    }
}

fn table(figures: &[Figure]) -> String {
    let rows: Vec<[String; 6]> =
        std::iter::once(HEADER.map(str::to_owned)).chain(figures.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let [name, value, unit, ratio, target, verdict] = row;
        let line = format!(
            "{name:<0$}  {value:>1$}  {unit:<2$}  {ratio:>3$}  {target:<4$}  {verdict}",
            widths[0], widths[1], widths[2], widths[3], widths[4]
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn row(figure: &Figure) -> [String; 6] {
    let dash = || "-".to_owned();
    [
        figure.name.to_owned(),
        number(figure.value),
        figure.unit.to_owned(),
        figure.ratio.map_or_else(dash, |ratio| format!("{ratio:.2}x")),
        figure.target.map_or_else(dash, Target::shown),
        figure.met.map_or_else(dash, |met| if met { "ok".to_owned() } else { "missed".to_owned() }),
    ]
}

/// Formats three significant digits.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::default();
        values.iter().for_each(|value| samples.push(*value));
        samples
    }

    #[test]
    fn a_latency_is_met_when_it_is_few_times_the_peers() {
        let figure = Figure::median("exec", &samples(&[2.0]), "ms", "").against("crun", &samples(&[8.0]));
        assert_eq!(figure.ratio, Some(0.25));
        assert_eq!(figure.clone().target(Target::RatioAtMost { limit: 0.5, wish: 0.5 }).met, Some(true));
        assert_eq!(figure.target(Target::RatioAtMost { limit: 0.2, wish: 0.2 }).met, Some(false));
    }

    #[test]
    fn a_throughput_is_met_when_it_is_much_of_the_floors() {
        let figure =
            Figure::median("read", &samples(&[600.0]), "MiB/s", "").against("cat", &samples(&[1000.0]));
        assert_eq!(figure.target(Target::RatioAtLeast { limit: 0.5 }).met, Some(true));
    }

    #[test]
    fn a_ratio_without_a_peer_is_neither_met_nor_missed() {
        let figure = Figure::new("exec", 1.0, "ms", "").target(Target::RatioAtLeast { limit: 0.5 });
        assert_eq!(figure.met, None);
        assert_eq!(row(&figure)[3], "-");
        assert_eq!(row(&figure)[5], "-");
    }

    #[test]
    fn columns_of_the_table_are_aligned() {
        let figures = [
            Figure::new("a", 1234.5, "ms", ""),
            Figure::new("longer", 0.1234, "MiB", "").target(Target::Below { limit: 5.0 }),
        ];
        assert_eq!(
            table(&figures),
            "name    value  unit  ratio-to-peer  target  verdict\n\
             a        1234  ms                -  -       -\n\
             longer  0.123  MiB               -  < 5     ok\n"
        );
    }
}
