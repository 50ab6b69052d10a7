//! Runs the program that unpacks and installs packages into an empty directory.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::progress::{Meter, Progress};
use super::sources::Sources;
use super::{Options, PACKAGES};
use crate::command::{command, find, shown};
use crate::{VolumeError, step};

/// Longer than any mirror that works at all.
const BUILD_TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// Lines kept to explain a failure.
const KEPT_LINES: usize = 60;

/// Nobody reads these in a sandbox, and they are a fifth of the image.
const NOT_UNPACKED: [&str; 5] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    // Licences must come along.
    "path-include=/usr/share/doc/*/copyright",
];

pub(super) fn run(
    options: &Options,
    sources: &Sources,
    progress: &mut impl FnMut(Progress),
) -> Result<(), VolumeError> {
    fs::create_dir_all(&options.cache).map_err(step("make the directory", &options.cache))?;
    let mut command = if find("mmdebstrap").is_some() {
        mmdebstrap(options, sources)?
    } else if find("debootstrap").is_some() {
        debootstrap(options, sources)?
    } else {
        return Err(VolumeError::NoBuilder);
    };
    watch(&mut command, progress)
}

fn mmdebstrap(options: &Options, sources: &Sources) -> Result<Command, VolumeError> {
    let (list, settings) = (options.cache.join("sources.list"), options.cache.join("apt.conf"));
    fs::write(&list, sources.list()).map_err(step("write", &list))?;
    let lines: String = sources.settings.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    // An empty file would not be taken for a file.
    fs::write(&settings, format!("# The host's own settings.\n{lines}")).map_err(step("write", &settings))?;

    let mut command = confined("mmdebstrap");
    // Hooks run in the current directory and are given the new root's: no path of ours needs quoting.
    command.current_dir(&options.cache);
    command.args(["--mode=root", "--variant=minbase", "--format=directory", "--verbose"]);
    command.arg("--aptopt").arg(&settings);
    command.arg("--aptopt=Acquire::Retries \"3\"");
    for option in NOT_UNPACKED.iter().chain(&["force-unsafe-io"]) {
        command.arg(format!("--dpkgopt={option}"));
    }
    command.arg(format!("--include={}", PACKAGES.join(",")));
    // Packages that were downloaded before are put where `apt` looks, and taken from there afterwards. `apt` checks
    // each against the signed lists, whoever put it there.
    command.args(["--skip=download/empty", "--skip=essential/unlink"]);
    command.arg(concat!(
        "--setup-hook=mkdir -p \"$1/var/cache/apt/archives\"; ",
        "find . -maxdepth 1 -name '*.deb' -exec cp -t \"$1/var/cache/apt/archives\" {} +"
    ));
    command.arg("--customize-hook=rm -f ./*.deb; cp \"$1\"/var/cache/apt/archives/*.deb .");
    // No suite: the list says it all.
    command.arg("").arg(&options.rootfs).arg(&list);
    Ok(command)
}

fn debootstrap(options: &Options, sources: &Sources) -> Result<Command, VolumeError> {
    let entry = sources.entries.first().ok_or(VolumeError::NoMirror)?;
    let mut command = confined("debootstrap");
    command.arg("--variant=minbase");
    command.arg(format!("--components={}", entry.components.join(",")));
    command.arg(format!("--include={}", PACKAGES.join(",")));
    command.arg(format!("--cache-dir={}", options.cache.display()));
    if let Some(keyring) = &entry.keyring {
        command.arg(format!("--keyring={}", keyring.display()));
    }
    command.arg(&entry.suite).arg(&options.rootfs).arg(&entry.url);
    Ok(command)
}

/// A program that ends, with all it started and mounted, when we do, however we end: the processes are in a pid namespace
/// whose first process dies with ours, and the mounts in a mount namespace that goes with the last of them. Otherwise a
/// build that was cut off would leave `/proc` mounted in an image, which could then not be removed.
fn confined(program: &str) -> Command {
    let have = |name: &str| find(name).is_some();
    if !have("setpriv") || !have("unshare") {
        return command(program);
    }
    let mut command = command("setpriv");
    command.args([
        "--pdeathsig",
        "KILL",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    command.arg(program);
    command
}

/// Runs to the end, reading what it prints; kills it with all it started when it takes too long.
fn watch(command: &mut Command, progress: &mut impl FnMut(Progress)) -> Result<(), VolumeError> {
    let shown = shown(command);
    let failed = |step| {
        let what = shown.clone();
        move |source| VolumeError::Step { step, what, source }
    };
    let (reader, writer) = std::io::pipe().map_err(failed("make a pipe for"))?;
    let errors = writer.try_clone().map_err(failed("make a pipe for"))?;
    let mut child =
        command.stdout(writer).stderr(errors).process_group(0).spawn().map_err(failed("start"))?;
    // The command holds the writing ends: without this the reading would never end.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());

    let group = Pid::from_child(&child);
    let (done, waiting) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if waiting.recv_timeout(BUILD_TIME_MAX) == Err(RecvTimeoutError::Timeout) {
            let _gone_already = kill_process_group(group, Signal::KILL);
        }
    });
    let last = read_lines(reader, progress);
    let status = child.wait();
    drop(done);
    let _it_only_waited = watchdog.join();
    let status = status.map_err(failed("wait for"))?;
    if status.success() {
        return Ok(());
    }
    Err(VolumeError::Command { command: shown, message: format!("{} ({status})", explain(&last)) })
}

fn read_lines(reader: std::io::PipeReader, progress: &mut impl FnMut(Progress)) -> VecDeque<String> {
    let mut meter = Meter::new();
    let mut last = VecDeque::with_capacity(KEPT_LINES);
    for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        if let Some(step) = meter.line(&line) {
            progress(step);
        }
        tracing::trace!(line, "bootstrap");
        if last.len() == KEPT_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    last
}

/// The lines that say what went wrong, or else the last few.
fn explain(lines: &VecDeque<String>) -> String {
    let errors: Vec<&str> = lines.iter().map(String::as_str).filter(|line| line.starts_with("E:")).collect();
    let chosen = if errors.is_empty() {
        lines.iter().rev().take(5).rev().map(String::as_str).collect()
    } else {
        errors
    };
    crate::command::tail(&chosen.join("; ")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_bootstrap_is_explained_by_its_error_lines() {
        let mut command = command("sh");
        command.args(["-c", "echo noise; echo 'E: the mirror is on fire' >&2; echo more; exit 1"]);
        let error = watch(&mut command, &mut |_| {}).unwrap_err().to_string();
        assert!(
            error.contains("E: the mirror is on fire")
                && error.ends_with("failed: E: the mirror is on fire (exit status: 1)"),
            "{error}"
        );
    }

    #[test]
    fn what_a_build_started_ends_with_it_also_when_it_left_its_group() {
        // A number that no other process has among its arguments.
        let mark = format!("{}.{}", 100_000 + std::process::id(), 25);
        let running = || {
            let lines = fs::read_dir("/proc")
                .unwrap()
                .filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
            lines.filter(|line| line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())).count()
        };
        let mut command = confined("sh");
        command.args(["-c", &format!("setsid sleep {mark} & echo up; wait")]);
        let (reader, writer) = std::io::pipe().unwrap();
        let mut child = command.stdout(writer).process_group(0).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        while running() == 0 {
            std::thread::yield_now();
        }
        kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while running() > 0 {
            assert!(std::time::Instant::now() < deadline, "it outlived the build");
            std::thread::yield_now();
        }
    }

    #[test]
    fn progress_is_reported_while_it_runs() {
        let mut command = command("sh");
        command.args([
            "-c",
            "echo 'I: downloading packages with apt...'; echo 'I: installing remaining packages'",
        ]);
        let mut seen = Vec::new();
        watch(&mut command, &mut |progress| seen.push(progress.percent)).unwrap();
        assert_eq!(seen, [5, 35]);
    }
}
