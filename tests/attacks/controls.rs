//! Set-ups without the guard that a row tests, where the same attempt must succeed.
//!
//! The usual control runs a probe as the host's real root, in a sandbox's own files, with only `chroot` and a mount and a
//! pid namespace (so that its mounts and processes are removed with it): no user namespace, no filter, no dropped
//! capabilities, no masks, no limits.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ground::{Ground, Run};

/// Seconds after which a control is killed.
const SECONDS_MAX: &str = "60";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processes {
    /// A new pid namespace, whose PID 1 is the shell that runs the probe.
    Own,
    /// The host's pid namespace.
    Hosts,
}

/// Runs a line of shell in `root`, unguarded.
pub(crate) fn unguarded(root: &Path, processes: Processes, script: &str) -> Run {
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "5",
        SECONDS_MAX,
        "unshare",
        "--mount",
        "--ipc",
        "--uts",
        "--propagation",
        "private",
    ]);
    if processes == Processes::Own {
        command.args(["--pid", "--fork", "--kill-child"]);
    }
    // Set-user-id programs in the files would make us the sandbox's root instead of the host's.
    let wrapper = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,nosuid \"$1\" && cd \"$1\" && \
                   mount -t proc proc \"$1/proc\" && mount -t sysfs sysfs \"$1/sys\" && \
                   mount -t devpts -o newinstance,ptmxmode=0666 devpts \"$1/dev/pts\" && \
                   exec chroot \"$1\" /bin/sh -c \"$2\"";
    command.args(["sh", "-c", wrapper, "sh"]).arg(root).arg(script);
    run(&mut command)
}

/// Runs a command on the host and returns its output as a probe's.
pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

impl Ground {
    /// In the control's files, with a separate pid namespace.
    pub(crate) fn unguarded(&self, script: &str) -> Run {
        unguarded(&self.control_root, Processes::Own, script)
    }

    /// Compiles a probe in the control's files, with their compiler.
    pub(crate) fn compile_unguarded(&self, name: &str, source: &str) {
        std::fs::write(self.control_root.join(format!("{name}.c")), source).unwrap();
        let built = self.unguarded(&format!("gcc -O1 -w -o /{name} /{name}.c"));
        assert!(built.ok(), "the probe does not compile: {built:?}");
    }

    pub(crate) fn control_path(&self, inside: &str) -> PathBuf {
        self.control_root.join(inside.trim_start_matches('/'))
    }
}
