//! The host properties of a microVM's dump, and whether it can be restored on this host.

use serde::{Deserialize, Serialize};

use super::model::{Accelerator, Model};

/// The format of a dump's directory, and of this document.
const FORMAT: u32 = 1;

pub(super) const DRIVER: &str = "microvm";

/// How far two measurements of one clock may differ, as a fraction: a thousandth. A guest whose clock is that wrong
/// would lose a minute and a half a day, if it were not set at every wake.
const CLOCK_TOLERANCE: u64 = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DumpOrigin {
    format: u32,
    driver: String,
    arch: String,
    /// The emulator's version: each loads only its own state.
    emulator: String,
    /// The model of the processor, if it executes the guest itself.
    processor: String,
    pub(super) model: Model,
    fingerprint: String,
}

/// The properties of this host.
#[derive(Clone, Debug)]
pub(super) struct HostProperties {
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

impl DumpOrigin {
    pub(super) fn new(model: &Model, here: &HostProperties) -> Self {
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

    /// Parses the description in a dump; else the reason why it cannot be restored.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let not_ours = |error: serde_json::Error| format!("the dump has an unreadable description: {error}");
        let Format { format, driver } = serde_json::from_str(text).map_err(not_ours)?;
        if driver != DRIVER {
            return Err(format!("the dump was created by the driver `{driver}`"));
        }
        if format > FORMAT {
            return Err(format!(
                "the dump was created by a newer version of Burrow (format {format}, this one reads {FORMAT})"
            ));
        }
        serde_json::from_str(text).map_err(not_ours)
    }

    /// The reason why it cannot be restored `here`, if any.
    pub(super) fn misfit(&self, here: &HostProperties) -> Option<String> {
        let arch = std::env::consts::ARCH;
        if self.arch != arch {
            return Some(format!("the dump was created on {}, and this host is {arch}", self.arch));
        }
        if self.model.accelerator != here.accelerator {
            let words = |accelerator| match accelerator {
                Accelerator::Kvm => "KVM",
                Accelerator::Emulation => "emulation",
            };
            let (then, now) = (words(self.model.accelerator), words(here.accelerator));
            return Some(format!("the machine ran with {then}, and machines on this host run with {now}"));
        }
        if self.emulator != here.emulator {
            return Some(format!(
                "the dump was created by QEMU {}, and this host has {}",
                self.emulator, here.emulator
            ));
        }
        if self.fingerprint != self.model.fingerprint() {
            return Some("the machine has other devices than this version of Burrow provides".to_owned());
        }
        if self.processor != processor(self.model.accelerator, here) {
            return Some(format!("the dump needs the processor `{}`", self.processor));
        }
        let (then, now) = (self.model.tsc_khz, here.tsc_khz);
        if self.model.accelerator == Accelerator::Emulation && then.abs_diff(now) > then / CLOCK_TOLERANCE {
            return Some(format!(
                "the machine's clock runs at {then} kHz, and this host's at {now} kHz, so its time would be wrong"
            ));
        }
        None
    }
}

/// An emulated processor is the same on every host.
fn processor(accelerator: Accelerator, here: &HostProperties) -> String {
    match accelerator {
        Accelerator::Kvm => here.processor.clone(),
        Accelerator::Emulation => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use burrow_model::Limits;

    use super::*;

    fn here() -> HostProperties {
        HostProperties {
            emulator: "10.0.2".to_owned(),
            processor: "a good one".to_owned(),
            accelerator: Accelerator::Emulation,
            tsc_khz: 2_000_000,
        }
    }

    fn about() -> DumpOrigin {
        let limits = Limits { ram_mib: 64, cpu_millis: 1000, pids: 64, disk_mib: 64 };
        DumpOrigin::new(&Model::new(&limits, Accelerator::Emulation, 2_000_000), &here())
    }

    #[test]
    fn a_dump_of_this_host_fits_and_clocks_may_differ_slightly() {
        let read = DumpOrigin::read(&about().to_json()).unwrap();
        assert_eq!(read, about());
        assert_eq!(
            read.misfit(&HostProperties { tsc_khz: 2_000_900, processor: "another".to_owned(), ..here() }),
            None
        );
    }

    #[test]
    fn incompatible_dumps_are_rejected_with_a_reason() {
        let misfit = |about: DumpOrigin, here: HostProperties| about.misfit(&here).unwrap();
        assert!(misfit(about(), HostProperties { tsc_khz: 2_100_000, ..here() }).contains("clock"));
        assert!(
            misfit(about(), HostProperties { emulator: "11.0".to_owned(), ..here() }).contains("QEMU 10.0.2")
        );
        assert!(misfit(about(), HostProperties { accelerator: Accelerator::Kvm, ..here() }).contains("KVM"));
        let other = DumpOrigin { fingerprint: "0".to_owned(), ..about() };
        assert!(misfit(other, here()).contains("devices"));
        assert!(misfit(DumpOrigin { arch: "z80".to_owned(), ..about() }, here()).contains("z80"));
        assert!(DumpOrigin::read("nonsense").is_err());
        assert!(DumpOrigin::read(r#"{"format":1,"driver":"container"}"#).unwrap_err().contains("container"));
        let newer = about().to_json().replace("\"format\":1", "\"format\":2");
        assert!(DumpOrigin::read(&newer).unwrap_err().contains("newer version"));
    }
}
