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
use crate::{DiskError, step};

/// Longer than a build with any working mirror takes.
const BUILD_TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// Lines kept to explain a failure.
const KEPT_LINES: usize = 60;

/// Not needed in a sandbox, and a fifth of the image.
const NOT_UNPACKED: [&str; 5] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    // Licences must be included.
    "path-include=/usr/share/doc/*/copyright",
];

pub(super) fn run(
    options: &Options,
    sources: &Sources,
    progress: &mut impl FnMut(Progress),
) -> Result<(), DiskError> {
    fs::create_dir_all(&options.cache).map_err(step("make the directory", &options.cache))?;
    let mut command = if find("mmdebstrap").is_some() {
        mmdebstrap(options, sources)?
    } else if find("debootstrap").is_some() {
        debootstrap(options, sources)?
    } else {
        return Err(DiskError::NoBuilder);
    };
    watch(&mut command, progress)
}

fn mmdebstrap(options: &Options, sources: &Sources) -> Result<Command, DiskError> {
    let (list, settings) = (options.cache.join("sources.list"), options.cache.join("apt.conf"));
    fs::write(&list, sources.list()).map_err(step("write", &list))?;
    let lines: String = sources.settings.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    // An empty file would not be accepted as a file.
    fs::write(&settings, format!("# The host's own settings.\n{lines}")).map_err(step("write", &settings))?;

    let mut command = confined("mmdebstrap");
    // Hooks run in the current directory and get the new root's path, so no path needs quoting.
    command.current_dir(&options.cache);
    command.args(["--mode=root", "--variant=minbase", "--format=directory", "--verbose"]);
    command.arg("--aptopt").arg(&settings);
    command.arg("--aptopt=Acquire::Retries \"3\"");
    for option in NOT_UNPACKED.iter().chain(&["force-unsafe-io"]) {
        command.arg(format!("--dpkgopt={option}"));
    }
    command.arg(format!("--include={}", PACKAGES.join(",")));
    // Downloaded packages are put where `apt` looks for them, and collected from there afterwards. `apt` checks each of
    // them against the signed lists.
    command.args(["--skip=download/empty", "--skip=essential/unlink"]);
    command.arg(concat!(
        "--setup-hook=mkdir -p \"$1/var/cache/apt/archives\"; ",
        "find . -maxdepth 1 -name '*.deb' -exec cp -t \"$1/var/cache/apt/archives\" {} +"
    ));
    command.arg("--customize-hook=rm -f ./*.deb; cp \"$1\"/var/cache/apt/archives/*.deb .");
    // No suite: the list contains it.
    command.arg("").arg(&options.rootfs).arg(&list);
    Ok(command)
}

fn debootstrap(options: &Options, sources: &Sources) -> Result<Command, DiskError> {
    let entry = sources.entries.first().ok_or(DiskError::NoMirror)?;
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

/// A program that ends, with everything it started and mounted, when the daemon ends for any reason: the processes are in a
/// pid namespace whose first process dies with the daemon, and the mounts in a mount namespace that ends with its last
/// process. Otherwise an interrupted build would leave `/proc` mounted in an image, which could then not be removed.
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

/// Runs the program to its end and reads its output; kills it and everything it started if it takes too long.
fn watch(command: &mut Command, progress: &mut impl FnMut(Progress)) -> Result<(), DiskError> {
    let shown = shown(command);
    let failed = |step| {
        let what = shown.clone();
        move |source| DiskError::Step { step, what, source }
    };
    let (reader, writer) = std::io::pipe().map_err(failed("make a pipe for"))?;
    let errors = writer.try_clone().map_err(failed("make a pipe for"))?;
    let mut child =
        command.stdout(writer).stderr(errors).process_group(0).spawn().map_err(failed("start"))?;
    // The command keeps the writing ends: without this, the reading would never end.
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
    Err(DiskError::Command { command: shown, message: format!("{} ({status})", explain(&last)) })
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

/// The lines that report the error, or else the last few.
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
    fn processes_of_a_build_end_with_it_even_outside_its_process_group() {
        // A number that no other process has in its arguments.
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
