//! Where and by what a dump was made, and whether it can be restored here.
//!
//! Refused beforehand is what cannot work. A dump of another kernel or another CRIU mostly does work; that they differ is
//! told when it does not.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// Of what is kept beside CRIU's own images, whose form CRIU looks after itself.
const FORMAT: u32 = 1;

const DRIVER: &str = "container";

/// Abilities of x86_64 processors that programs look for when they start, and then rely on. The kernel lists others that
/// are its own business, and change with its version.
const RELIED_ON: [&str; 24] = [
    "sse", "ssse", "pni", "avx", "amx", "fma", "bmi", "f16c", "aes", "vaes", "pclmul", "vpclmul", "gfni",
    "sha", "adx", "abm", "popcnt", "movbe", "cx16", "rdrand", "rdseed", "rdpid", "xsave", "rtm",
];

/// Begins as one of those, but only the kernel can use it.
const KERNELS_OWN: &str = "xsaves";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    format: u32,
    driver: String,
    criu: String,
    kernel: String,
    arch: String,
    /// What the processor can do, of what programs rely on.
    cpu: Vec<String>,
}

/// The one field that every version has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl About {
    /// A dump made here and now.
    pub(super) fn here(criu: &str) -> io::Result<Self> {
        Ok(Self {
            format: FORMAT,
            driver: DRIVER.to_owned(),
            criu: criu.to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            cpu: abilities(&fs::read_to_string("/proc/cpuinfo")?),
        })
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("text and numbers are JSON")
    }

    /// Reads what a dump says about itself; else why it cannot be restored.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let not_ours = |error: serde_json::Error| format!("what it says about itself is unreadable: {error}");
        let Format { format } = serde_json::from_str(text).map_err(not_ours)?;
        if format > FORMAT {
            return Err(format!(
                "a newer version of Burrow made them (format {format}, this one reads {FORMAT})"
            ));
        }
        serde_json::from_str(text).map_err(not_ours)
    }

    /// Why it cannot work `here`, if it cannot.
    pub(super) fn misfit(&self, here: &Self) -> Option<String> {
        if self.driver != here.driver {
            return Some(format!("the `{}` driver made them", self.driver));
        }
        if self.arch != here.arch {
            return Some(format!("they are of a {} host, and this one is {}", self.arch, here.arch));
        }
        let missing: Vec<&str> =
            self.cpu.iter().filter(|ability| !here.cpu.contains(ability)).map(String::as_str).collect();
        (!missing.is_empty()).then(|| format!("this host's processor lacks `{}`", missing.join("`, `")))
    }

    /// Whether it was made under a kernel that may know what the one `here` does not.
    pub(super) fn is_of_newer_kernel(&self, here: &Self) -> Option<String> {
        let newer = release(&self.kernel) > release(&here.kernel);
        newer.then(|| {
            format!("they are of kernel {}, and this host has the older {}", self.kernel, here.kernel)
        })
    }

    /// What may be why it failed `here`.
    pub(super) fn suspicion(&self, here: &Self) -> Option<String> {
        let differ = |what: &str, then: &str, now: &str| {
            (then != now).then(|| format!("they were kept by {what} {then}, and this is {now}"))
        };
        let both = [differ("kernel", &self.kernel, &here.kernel), differ("CRIU", &self.criu, &here.criu)];
        let found: Vec<String> = both.into_iter().flatten().collect();
        (!found.is_empty()).then(|| found.join("; "))
    }
}

/// The first two numbers of a kernel's release; the others change what is mended, not what is known.
fn release(kernel: &str) -> (u32, u32) {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// From `/proc/cpuinfo`: of the first processor, since all are alike to programs.
fn abilities(cpuinfo: &str) -> Vec<String> {
    let line = |name: &str| {
        let found = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        found.and_then(|line| line.split_once(':')).map(|(_, words)| words.split_whitespace())
    };
    let relied_on =
        |word: &&str| RELIED_ON.iter().any(|start| word.starts_with(start)) && *word != KERNELS_OWN;
    let mut found: Vec<String> = match (line("flags"), line("Features")) {
        (Some(flags), _) => flags.filter(relied_on).map(str::to_owned).collect(),
        // On aarch64 the list is of what programs may use, and of nothing else.
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

    fn about() -> About {
        About::here("4.2.1").unwrap()
    }

    #[test]
    fn a_dump_of_this_host_fits_it() {
        let here = about();
        assert!(!here.cpu.is_empty());
        let read = About::read(&here.to_json()).unwrap();
        assert_eq!(read, here);
        assert_eq!((read.misfit(&here), read.suspicion(&here)), (None, None));
    }

    #[test]
    fn what_cannot_work_is_refused_and_what_may_is_only_suspected() {
        let here = about();
        let check = |there: About, expected: &str| assert_eq!(there.misfit(&here).unwrap(), expected);
        check(About { driver: "microvm".to_owned(), ..about() }, "the `microvm` driver made them");
        let mut cpu = here.cpu.clone();
        cpu.push("avx9000".to_owned());
        check(About { cpu, ..about() }, "this host's processor lacks `avx9000`");
        let arch = About { arch: "riscv64".to_owned(), ..about() };
        assert!(arch.misfit(&here).unwrap().starts_with("they are of a riscv64 host"));
        let older = About { kernel: "5.15.0".to_owned(), cpu: Vec::new(), ..about() };
        assert_eq!(older.misfit(&here), None);
        assert!(older.suspicion(&here).unwrap().starts_with("they were kept by kernel 5.15.0, and this is "));
    }

    #[test]
    fn processes_of_a_newer_kernel_are_told_before_they_are_taken() {
        let here = About { kernel: "6.1.0-13-amd64".to_owned(), ..about() };
        let of = |kernel: &str| About { kernel: kernel.to_owned(), ..about() }.is_of_newer_kernel(&here);
        for fits in ["6.1.0-13-amd64", "6.1.99", "6.0.5", "5.19.0", "strange"] {
            assert_eq!(of(fits), None, "{fits}");
        }
        for newer in ["6.2.0", "6.10.1", "7.0"] {
            assert!(of(newer).unwrap().contains("this host has the older 6.1.0-13-amd64"), "{newer}");
        }
    }

    #[test]
    fn a_newer_form_is_told_from_nonsense() {
        let newer = About::read(r#"{"format":2,"something":"else"}"#).unwrap_err();
        assert!(newer.starts_with("a newer version of Burrow made them (format 2"), "{newer}");
        assert!(About::read("{}").unwrap_err().contains("unreadable"));
    }

    #[test]
    fn only_abilities_that_programs_rely_on_count() {
        let x86 =
            "processor\t: 0\nflags\t\t: fpu vme sse2 avx512f pti xsaves avx2 sse2\n\nflags\t\t: other\n";
        assert_eq!(abilities(x86), ["avx2", "avx512f", "sse2"]);
        assert_eq!(abilities("Features\t: fp asimd sve\n"), ["asimd", "fp", "sve"]);
    }
}
