//! P-K18: which files below `/proc` and `/sys` are writable inside, and what the readable ones reveal about the host.

use std::collections::BTreeSet;
use std::path::Path;

use crate::ground::{Ground, Run, Sandbox};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[Row {
    id: "P-K18",
    what: "write to /proc and /sys, read the host's disks and paths there",
    sandbox: &[],
    attack: pseudofiles,
    control: pseudofiles_unguarded,
}];

const PROBE: &str = include_str!("probes/pseudofiles.py");

/// All files that may be writable. A kernel may lack some of them, but may not have others.
const WRITABLE: &str = include_str!("probes/writable.txt");

/// The kernel prints a mount's source device and the directory it was bound from in every line about it.
const NAMES_MOUNTS: [&str; 3] = ["/proc/PID/mountinfo", "/proc/PID/mounts", "/proc/PID/mountstats"];

/// Texts that only the host may read.
struct Secrets {
    /// Names of disks, matched as whole words.
    disks: Vec<String>,
    /// Matched anywhere: files behind loop devices, the path of the pool, the kernel's command line.
    texts: Vec<String>,
}

impl Secrets {
    fn of_the_host(ground: &Ground) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let partitions = read("/proc/partitions");
        let disks = partitions.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
        let swaps = read("/proc/swaps");
        let swap_files = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        let mut texts: Vec<String> = swap_files.map(str::to_owned).collect();
        texts.extend(backing_files());
        texts.push(ground.control_root.ancestors().nth(2).unwrap_or(Path::new("/")).display().to_string());
        // Its words include `quiet` and `ro`; only the whole line is unambiguous.
        texts.push(read("/proc/cmdline").trim().to_owned());
        texts.retain(|text| text.len() > 5);
        Self { disks: disks.map(str::to_owned).collect(), texts }
    }

    /// Copies the probe and its search terms into a root. Not as arguments, in which the probe would find them again.
    fn put_probe(&self, root: &Path) {
        let secrets = serde_json::json!({ "words": self.disks, "texts": self.texts });
        std::fs::write(root.join("pseudofiles.py"), PROBE).unwrap();
        std::fs::write(root.join("pseudofiles.json"), secrets.to_string()).unwrap();
    }
}

fn backing_files() -> Vec<String> {
    let blocks = std::fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
    let files =
        blocks.filter_map(|block| std::fs::read_to_string(block.path().join("loop/backing_file")).ok());
    files.map(|text| text.trim().to_owned()).collect()
}

fn lines<'a>(run: &'a Run, word: &'a str) -> BTreeSet<&'a str> {
    run.lines_of(word).collect()
}

fn pseudofiles(sandbox: &Sandbox<'_>) -> Finding {
    Secrets::of_the_host(sandbox.ground).put_probe(&sandbox.root());
    let run = sandbox.sh("python3 /pseudofiles.py /pseudofiles.json");
    let read = run.number("read");
    ensure(run.ok() && read > 200, || format!("{run:?}"))?;
    let listed: BTreeSet<&str> =
        WRITABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let writable = lines(&run, "writable");
    let more: Vec<_> = writable.difference(&listed).collect();
    ensure(more.is_empty(), || format!("not in writable.txt: {more:?}"))?;
    let tells: Vec<_> =
        lines(&run, "tells").into_iter().filter(|path| !NAMES_MOUNTS.contains(path)).collect();
    ensure(tells.is_empty(), || format!("these name disks, paths or the command line: {tells:?}"))?;
    useful(sandbox)?;
    Ok(format!(
        "{} writable, all listed; none of {read} readable files tells of the host's disks",
        writable.len()
    ))
}

/// The parts of `/sys` that programs need exist.
fn useful(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    let script = "test -r /sys/devices/system/cpu/online && test -r /sys/class/net/lo/mtu && \
                  test -d /sys/fs/cgroup && echo there";
    let run = sandbox.sh(script);
    ensure(run.out.trim() == "there", || format!("a part of /sys that programs need is missing: {run:?}"))
}

fn pseudofiles_unguarded(ground: &Ground) -> Finding {
    Secrets::of_the_host(ground).put_probe(&ground.control_root);
    let run = ground.unguarded("python3 /pseudofiles.py /pseudofiles.json few");
    let (writable, tells) = (lines(&run, "writable"), lines(&run, "tells"));
    ensure(tells.contains("/proc/cmdline") && tells.contains("/proc/partitions"), || format!("{run:?}"))?;
    ensure(writable.contains("/proc/sys/kernel/core_pattern"), || format!("{run:?}"))?;
    Ok(format!("as the host's root {} are writable and {} tell", writable.len(), tells.len()))
}
