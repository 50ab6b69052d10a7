//! The host properties of a dump, and whether it can be restored on this host.
//!
//! Only dumps that certainly cannot work are rejected beforehand. A dump from another kernel or another CRIU usually
//! does work; the difference is mentioned if the restore fails.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// The format of the files beside CRIU's own images, whose format CRIU checks itself.
const FORMAT: u32 = 1;

const DRIVER: &str = "container";

/// Features of x86_64 processors that programs detect when they start, and then rely on. The kernel lists others that
/// only it uses, and that change with its version.
const REQUIRED_FEATURES: [&str; 24] = [
    "sse", "ssse", "pni", "avx", "amx", "fma", "bmi", "f16c", "aes", "vaes", "pclmul", "vpclmul", "gfni",
    "sha", "adx", "abm", "popcnt", "movbe", "cx16", "rdrand", "rdseed", "rdpid", "xsave", "rtm",
];

/// Starts like one of those, but only the kernel can use it.
const KERNEL_ONLY: &str = "xsaves";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DumpOrigin {
    format: u32,
    driver: String,
    criu: String,
    kernel: String,
    arch: String,
    /// The processor's features that programs rely on.
    cpu: Vec<String>,
}

/// The one field that every version has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl DumpOrigin {
    /// A dump that is created now, on this host.
    pub(super) fn here(criu: &str) -> io::Result<Self> {
        Ok(Self {
            format: FORMAT,
            driver: DRIVER.to_owned(),
            criu: criu.to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            cpu: features_of(&fs::read_to_string("/proc/cpuinfo")?),
        })
    }

    /// The properties on which the result of a restore depends, in one line: those of a dump, the build of the kernel,
    /// and the version of this program, which changes dumps before they are restored.
    pub(super) fn restore_conditions(&self) -> String {
        let build = rustix::system::uname().version().to_string_lossy().into_owned();
        format!("{} {build} burrow {}", self.to_json(), env!("CARGO_PKG_VERSION"))
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("text and numbers are JSON")
    }

    /// Parses the description in a dump; else the reason why it cannot be restored.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let not_ours = |error: serde_json::Error| format!("the dump has an unreadable description: {error}");
        let Format { format } = serde_json::from_str(text).map_err(not_ours)?;
        if format > FORMAT {
            return Err(format!(
                "the dump was created by a newer version of Burrow (format {format}, this one reads {FORMAT})"
            ));
        }
        serde_json::from_str(text).map_err(not_ours)
    }

    /// The reason why it cannot be restored `here`, if any.
    pub(super) fn misfit(&self, here: &Self) -> Option<String> {
        if self.driver != here.driver {
            return Some(format!("the dump was created by the driver `{}`", self.driver));
        }
        if self.arch != here.arch {
            return Some(format!("the dump was created on {}, and this host is {}", self.arch, here.arch));
        }
        let missing: Vec<&str> =
            self.cpu.iter().filter(|ability| !here.cpu.contains(ability)).map(String::as_str).collect();
        (!missing.is_empty()).then(|| format!("this host's processor lacks `{}`", missing.join("`, `")))
    }

    /// Whether the dump's kernel may have features that the kernel of `here` lacks.
    pub(super) fn is_of_newer_kernel(&self, here: &Self) -> Option<String> {
        let newer = release(&self.kernel) > release(&here.kernel);
        newer.then(|| {
            format!(
                "the dump was created on kernel {}, and this host has the older {}",
                self.kernel, here.kernel
            )
        })
    }

    /// A possible reason why it failed `here`.
    pub(super) fn suspicion(&self, here: &Self) -> Option<String> {
        let differ = |what: &str, then: &str, now: &str| {
            (then != now).then(|| format!("the dump was created with {what} {then}, and this host has {now}"))
        };
        let both = [differ("kernel", &self.kernel, &here.kernel), differ("CRIU", &self.criu, &here.criu)];
        let found: Vec<String> = both.into_iter().flatten().collect();
        (!found.is_empty()).then(|| found.join("; "))
    }
}

/// The first two numbers of a kernel's release; the others only change with bug fixes.
fn release(kernel: &str) -> (u32, u32) {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// From `/proc/cpuinfo`, of the first processor, since all have the same features for programs.
fn features_of(cpuinfo: &str) -> Vec<String> {
    let line = |name: &str| {
        let found = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        found.and_then(|line| line.split_once(':')).map(|(_, words)| words.split_whitespace())
    };
    let relied_on =
        |word: &&str| REQUIRED_FEATURES.iter().any(|start| word.starts_with(start)) && *word != KERNEL_ONLY;
    let mut found: Vec<String> = match (line("flags"), line("Features")) {
        (Some(flags), _) => flags.filter(relied_on).map(str::to_owned).collect(),
        // On aarch64 the list contains only features that programs may use.
        (None, Some(features)) => features.map(str::to_owned).collect(),
        (None, None) => Vec::new(),
    };
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> DumpOrigin {
        DumpOrigin::here("4.2.1").unwrap()
    }

    #[test]
    fn a_dump_of_this_host_fits_it() {
        let here = about();
        assert!(!here.cpu.is_empty());
        let read = DumpOrigin::read(&here.to_json()).unwrap();
        assert_eq!(read, here);
        assert_eq!((read.misfit(&here), read.suspicion(&here)), (None, None));
    }

    #[test]
    fn incompatible_dumps_are_rejected_and_others_only_suspected() {
        let here = about();
        let check = |there: DumpOrigin, expected: &str| assert_eq!(there.misfit(&here).unwrap(), expected);
        check(
            DumpOrigin { driver: "microvm".to_owned(), ..about() },
            "the dump was created by the driver `microvm`",
        );
        let mut cpu = here.cpu.clone();
        cpu.push("avx9000".to_owned());
        check(DumpOrigin { cpu, ..about() }, "this host's processor lacks `avx9000`");
        let arch = DumpOrigin { arch: "riscv64".to_owned(), ..about() };
        assert!(arch.misfit(&here).unwrap().starts_with("the dump was created on riscv64"));
        let older = DumpOrigin { kernel: "5.15.0".to_owned(), cpu: Vec::new(), ..about() };
        assert_eq!(older.misfit(&here), None);
        assert!(
            older
                .suspicion(&here)
                .unwrap()
                .starts_with("the dump was created with kernel 5.15.0, and this host has ")
        );
    }

    #[test]
    fn dumps_of_a_newer_kernel_are_detected() {
        let here = DumpOrigin { kernel: "6.1.0-13-amd64".to_owned(), ..about() };
        let of = |kernel: &str| DumpOrigin { kernel: kernel.to_owned(), ..about() }.is_of_newer_kernel(&here);
        for fits in ["6.1.0-13-amd64", "6.1.99", "6.0.5", "5.19.0", "strange"] {
            assert_eq!(of(fits), None, "{fits}");
        }
        for newer in ["6.2.0", "6.10.1", "7.0"] {
            assert!(of(newer).unwrap().contains("this host has the older 6.1.0-13-amd64"), "{newer}");
        }
    }

    #[test]
    fn a_newer_format_is_distinguished_from_invalid_data() {
        let newer = DumpOrigin::read(r#"{"format":2,"something":"else"}"#).unwrap_err();
        assert!(newer.starts_with("the dump was created by a newer version of Burrow (format 2"), "{newer}");
        assert!(DumpOrigin::read("{}").unwrap_err().contains("unreadable"));
    }

    #[test]
    fn only_features_that_programs_rely_on_are_compared() {
        let x86 =
            "processor\t: 0\nflags\t\t: fpu vme sse2 avx512f pti xsaves avx2 sse2\n\nflags\t\t: other\n";
        assert_eq!(features_of(x86), ["avx2", "avx512f", "sse2"]);
        assert_eq!(features_of("Features\t: fp asimd sve\n"), ["asimd", "fp", "sve"]);
    }
}
