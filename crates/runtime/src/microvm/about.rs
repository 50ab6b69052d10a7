//! Where and by what a microVM's dump was made, and whether it can be restored here.

use serde::{Deserialize, Serialize};

use super::model::{Accelerator, Model};

/// Of what is in a dump's directory, and of this document.
const FORMAT: u32 = 1;

pub(super) const DRIVER: &str = "microvm";

/// How far two measurements of one clock may be apart, in parts: a thousandth. A guest whose clock is that wrong would
/// lose a minute and a half a day, were it not set right at every wake.
const CLOCK_TOLERANCE: u64 = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    format: u32,
    driver: String,
    arch: String,
    /// The emulator's version: each loads its own.
    emulator: String,
    /// What the processor is, where it runs the guest itself.
    processor: String,
    pub(super) model: Model,
    fingerprint: String,
}

/// What there is here.
#[derive(Clone, Debug)]
pub(super) struct Here {
    pub(super) emulator: String,
    pub(super) processor: String,
    pub(super) accelerator: Accelerator,
    pub(super) tsc_khz: u64,
}

/// The fields that every version has.
#[derive(Deserialize)]
struct Format {
    format: u32,
    driver: String,
}

impl About {
    pub(super) fn new(model: &Model, here: &Here) -> Self {
        Self {
            format: FORMAT,
            driver: DRIVER.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            emulator: here.emulator.clone(),
            processor: processor(model.accelerator, here),
            model: model.clone(),
            fingerprint: model.fingerprint(),
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("text and numbers are JSON")
    }

    /// Reads what a dump says about itself; else why it cannot be restored.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let not_ours = |error: serde_json::Error| format!("what it says about itself is unreadable: {error}");
        let Format { format, driver } = serde_json::from_str(text).map_err(not_ours)?;
        if driver != DRIVER {
            return Err(format!("the `{driver}` driver made them"));
        }
        if format > FORMAT {
            return Err(format!(
                "a newer version of Burrow made them (format {format}, this one reads {FORMAT})"
            ));
        }
        serde_json::from_str(text).map_err(not_ours)
    }

    /// Why it cannot work `here`, if it cannot.
    pub(super) fn misfit(&self, here: &Here) -> Option<String> {
        let arch = std::env::consts::ARCH;
        if self.arch != arch {
            return Some(format!("they are of a {} host, and this one is {arch}", self.arch));
        }
        if self.model.accelerator != here.accelerator {
            let words = |accelerator| match accelerator {
                Accelerator::Kvm => "KVM",
                Accelerator::Emulation => "emulation",
            };
            let (then, now) = (words(self.model.accelerator), words(here.accelerator));
            return Some(format!("the machine ran by {then}, and here machines run by {now}"));
        }
        if self.emulator != here.emulator {
            return Some(format!("QEMU {} made them, and this host has {}", self.emulator, here.emulator));
        }
        if self.fingerprint != self.model.fingerprint() {
            return Some("the machine has other devices than this version of Burrow gives".to_owned());
        }
        if self.processor != processor(self.model.accelerator, here) {
            return Some(format!("they need the processor `{}`", self.processor));
        }
        let (then, now) = (self.model.tsc_khz, here.tsc_khz);
        if self.model.accelerator == Accelerator::Emulation && then.abs_diff(now) > then / CLOCK_TOLERANCE {
            return Some(format!(
                "the machine's clock runs at {then} kHz, and this host's at {now}: its time would be wrong"
            ));
        }
        None
    }
}

/// An emulated processor is the same everywhere.
fn processor(accelerator: Accelerator, here: &Here) -> String {
    match accelerator {
        Accelerator::Kvm => here.processor.clone(),
        Accelerator::Emulation => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use burrow_model::Limits;

    use super::*;

    fn here() -> Here {
        Here {
            emulator: "10.0.2".to_owned(),
            processor: "a good one".to_owned(),
            accelerator: Accelerator::Emulation,
            tsc_khz: 2_000_000,
        }
    }

    fn about() -> About {
        let limits = Limits { ram_mib: 64, cpu_millis: 1000, pids: 64, disk_mib: 64 };
        About::new(&Model::new(&limits, Accelerator::Emulation, 2_000_000), &here())
    }

    #[test]
    fn what_was_made_here_fits_and_clocks_may_differ_a_little() {
        let read = About::read(&about().to_json()).unwrap();
        assert_eq!(read, about());
        assert_eq!(
            read.misfit(&Here { tsc_khz: 2_000_900, processor: "another".to_owned(), ..here() }),
            None
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_reason() {
        let misfit = |about: About, here: Here| about.misfit(&here).unwrap();
        assert!(misfit(about(), Here { tsc_khz: 2_100_000, ..here() }).contains("clock"));
        assert!(misfit(about(), Here { emulator: "11.0".to_owned(), ..here() }).contains("QEMU 10.0.2"));
        assert!(misfit(about(), Here { accelerator: Accelerator::Kvm, ..here() }).contains("KVM"));
        let other = About { fingerprint: "0".to_owned(), ..about() };
        assert!(misfit(other, here()).contains("devices"));
        assert!(misfit(About { arch: "z80".to_owned(), ..about() }, here()).contains("z80"));
        assert!(About::read("nonsense").is_err());
        assert!(About::read(r#"{"format":1,"driver":"container"}"#).unwrap_err().contains("container"));
        let newer = about().to_json().replace("\"format\":1", "\"format\":2");
        assert!(About::read(&newer).unwrap_err().contains("newer version"));
    }
}
