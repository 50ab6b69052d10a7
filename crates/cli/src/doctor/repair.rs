//! Runs the commands that fix a problem, for `burrow doctor --fix`.

use std::io;
use std::time::Duration;

use super::Check;
use super::program::{self, find};

/// A package with its dependencies is installed in less, even from a slow mirror.
const COMMAND_LIMIT: Duration = Duration::from_secs(600);

/// The next problem that can be fixed and was not tried yet.
pub(crate) fn next<'a>(checks: &'a [Check], tried: &[(&str, &str)]) -> Option<&'a Check> {
    let is_new = |check: &&Check| !tried.contains(&(check.area, check.name));
    checks.iter().filter(|check| check.is_problem() && !check.repair.is_empty()).find(is_new)
}

/// Runs the commands until one fails. Their output goes to standard error.
pub(crate) async fn run(commands: &[Vec<String>]) -> io::Result<()> {
    for words in commands {
        let [name, arguments @ ..] = words.as_slice() else { continue };
        let failed = |reason: String| io::Error::other(format!("`{}` {reason}", words.join(" ")));
        let program = find(name).ok_or_else(|| failed("failed: the program is not installed".to_owned()))?;
        let status = program::run(&program, arguments, COMMAND_LIMIT).await;
        let status = status.map_err(|error| failed(format!("failed: {error}")))?;
        if !status.success() {
            return Err(failed(format!("failed: {status}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_problems_that_commands_fix_are_repaired_and_each_only_once() {
        let checks = [
            Check::ok("fine", "").repair([["true"]]),
            Check::fail("by hand", "").fix("reboot"),
            Check { area: "disk", ..Check::fail("modules", "").repair([["modprobe", "btrfs"]]) },
            Check { area: "kernel", ..Check::warn("limits", "").repair([["sysctl", "-w", "a.b=1"]]) },
        ];
        assert_eq!(checks[2].fix.as_deref(), Some("sudo modprobe btrfs"));
        assert_eq!(next(&checks, &[]).map(|check| check.name), Some("modules"));
        assert_eq!(next(&checks, &[("disk", "modules")]).map(|check| check.name), Some("limits"));
        assert!(next(&checks, &[("disk", "modules"), ("kernel", "limits")]).is_none());
    }

    #[tokio::test]
    async fn commands_run_in_order_until_one_fails() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        fs::write(&file, "").unwrap();
        let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let shown = file.display();
        let chmod = |mode: &str| words(format!("chmod {mode} {shown}"));
        run(&[chmod("644"), chmod("600")]).await.unwrap();
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        let error = run(&[words("false".to_owned()), chmod("644")]).await.unwrap_err();
        assert!(error.to_string().starts_with("`false` failed: "), "{error}");
        assert_eq!(mode(), 0o600);
        let error = run(&[words("no-such-program x".to_owned())]).await.unwrap_err();
        assert!(error.to_string().contains("not installed"), "{error}");
    }
}
