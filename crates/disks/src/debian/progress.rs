//! The progress of a build, read from the output of the bootstrap program.

use std::fmt;

/// What the build is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Indexes,
    Essential,
    Packages,
    Settle,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Indexes => "reading the mirror's package lists",
            Self::Essential => "installing the base system",
            Self::Packages => "installing packages",
            Self::Settle => "settling the image",
        })
    }
}

/// A step forward. `percent` is of the whole build and never falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    pub percent: u8,
}

/// Counts packages as they are fetched, unpacked and set up.
#[derive(Debug)]
pub(super) struct Meter {
    stage: Stage,
    percent: u8,
    packages: u32,
    done: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    fetched: u32,
    unpacked: u32,
    set_up: u32,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { stage: Stage::Indexes, percent: 0, packages: 0, done: Counts::default() }
    }

    /// Reads one line; `Some` when it moved the build forward by a percent or a stage.
    pub(super) fn line(&mut self, line: &str) -> Option<Progress> {
        let before = (self.stage, self.percent);
        let first = line.split(' ').next().unwrap_or_default();
        match first {
            "I:" if line.contains("downloading packages") || line.contains("Retrieving Packages") => {
                self.enter(Stage::Essential);
            }
            "I:" if line.contains("installing remaining packages")
                || line.contains("Base system installed") =>
            {
                self.enter(Stage::Packages);
            }
            // `debootstrap` prints no total, and processes the packages of both stages in one run.
            "I:" if line.contains("Retrieving") => self.count(|done| &mut done.fetched, DEBOOTSTRAP_PACKAGES),
            "I:" if line.contains("Extracting") || line.contains("Unpacking") => {
                self.count(|done| &mut done.unpacked, DEBOOTSTRAP_PACKAGES);
            }
            "I:" if line.contains("Configuring") => self.count(|done| &mut done.set_up, DEBOOTSTRAP_PACKAGES),
            "Unpacking" => {
                // Everything has been fetched, or was in the cache.
                self.done.fetched = self.packages;
                self.count(|done| &mut done.unpacked, 0);
            }
            "Setting" => self.count(|done| &mut done.set_up, 0),
            _ if first.starts_with("Get:") && self.stage != Stage::Indexes => {
                self.count(|done| &mut done.fetched, 0);
            }
            // `0 upgraded, 69 newly installed, 0 to remove and 0 not upgraded.`
            _ => {
                if let Some((count, _)) = line.split_once(" newly installed") {
                    self.packages =
                        count.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
                }
            }
        }
        self.percent = self.percent.max(self.reckon());
        ((self.stage, self.percent) != before)
            .then_some(Progress { stage: self.stage, percent: self.percent })
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.packages = 0;
        self.done = Counts::default();
    }

    fn count(&mut self, which: impl FnOnce(&mut Counts) -> &mut u32, packages_at_least: u32) {
        *which(&mut self.done) += 1;
        self.packages = self.packages.max(packages_at_least);
    }

    fn reckon(&self) -> u8 {
        // Where each stage begins and ends, as measured on two cores and a mirror nearby.
        let (from, to) = match self.stage {
            Stage::Indexes => (0, 0),
            Stage::Essential => (5, 35),
            Stage::Packages => (35, 95),
            Stage::Settle => (95, 100),
        };
        if self.packages == 0 {
            return from;
        }
        let parts = 3 * self.packages;
        let done = (self.done.fetched + self.done.unpacked + self.done.set_up).min(parts);
        let percent = u32::from(from) + u32::from(to - from) * done / parts;
        u8::try_from(percent).unwrap_or(to)
    }
}

/// About how many packages `debootstrap` handles for our list.
const DEBOOTSTRAP_PACKAGES: u32 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentage_follows_the_packages_and_never_falls() {
        let log = "I: running apt-get update...\nGet:1 somewhere stable InRelease [151 kB]\n\
            I: downloading packages with apt...\n0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.\n\
            Get:1 somewhere stable/main a\nGet:2 somewhere stable/main b\nI: extracting archives...\n\
            Unpacking a (1) ...\nUnpacking b (1) ...\nSetting up a (1) ...\nSetting up b (1) ...\n\
            I: installing remaining packages inside the chroot...\n\
            0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.\nUnpacking c (1) ...\nSetting up c (1) ...";
        let mut meter = Meter::new();
        let seen: Vec<_> = log.lines().filter_map(|line| meter.line(line)).collect();
        let percents: Vec<_> = seen.iter().map(|progress| progress.percent).collect();
        assert_eq!(percents, [5, 10, 15, 20, 25, 30, 35, 35, 75, 95]);
        assert_eq!((seen[0].stage, seen[9].stage), (Stage::Essential, Stage::Packages));
    }

    #[test]
    fn more_lines_than_packages_do_not_pass_the_end_of_the_stage() {
        let mut meter = Meter::new();
        meter.line("I: installing remaining packages inside the chroot...");
        meter.line("0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.");
        for _ in 0..50 {
            meter.line("Setting up c (1) ...");
        }
        assert_eq!(meter.percent, 95);
    }
}
