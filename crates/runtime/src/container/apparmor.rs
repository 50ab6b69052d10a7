//! The AppArmor profile of containers, on hosts that have AppArmor.
//!
//! The daemon loads the profile at its start with `apparmor_parser`, and again if it was removed. PID 1 of a machine
//! enters it with its `execve`, and all processes inside inherit it. CRIU restores the profile by the names in a dump,
//! see `criu::labels`.
//!
//! With [`ProfileUse::Auto`], sandboxes run without the profile where it cannot be loaded: it is a second barrier behind the
//! namespaces and the filter.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// The name of the profile.
pub const PROFILE: &str = "burrow-sandbox";

const SOURCE: &str = include_str!("apparmor.profile");
const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";
const PARSER: &str = "apparmor_parser";
const OWN_LABEL: [&str; 2] = ["/proc/self/attr/apparmor/current", "/proc/self/attr/current"];
const LABEL_OF_EXEC: [&str; 2] = ["/proc/thread-self/attr/apparmor/exec", "/proc/thread-self/attr/exec"];

/// Whether the daemon shall use the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileUse {
    /// Where the kernel has AppArmor and the profile can be loaded.
    Auto,
    /// Everywhere: a daemon that cannot load the profile does not start.
    Always,
    Never,
}

/// Whether sandboxes have the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileState {
    /// The kernel has no AppArmor, or it is disabled.
    NoAppArmor,
    Loaded,
    NotLoaded,
}

/// The state that the kernel reports.
pub fn standing() -> ProfileState {
    if !is_enabled() {
        return ProfileState::NoAppArmor;
    }
    let profiles = fs::read_to_string(LOADED).unwrap_or_default();
    let is_ours = |line: &str| line.split_once(" (").is_some_and(|(name, _)| name == PROFILE);
    if profiles.lines().any(is_ours) { ProfileState::Loaded } else { ProfileState::NotLoaded }
}

/// Whether `apparmor_parser` is installed.
pub fn has_parser() -> bool {
    let found = |folder: &str| Path::new(folder).join(PARSER).exists();
    ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"].into_iter().any(found)
}

/// Loads the profile when the daemon starts, as far as the configuration says, and returns whether machines enter it.
pub(crate) fn prepare(wanted: ProfileUse) -> io::Result<bool> {
    match wanted {
        ProfileUse::Never => Ok(false),
        ProfileUse::Auto | ProfileUse::Always => {
            decide(wanted, if is_enabled() { load() } else { Err(no_apparmor()) })
        }
    }
}

/// Whether machines enter the profile after an attempt to load it.
fn decide(wanted: ProfileUse, loaded: io::Result<()>) -> io::Result<bool> {
    match (wanted, loaded) {
        (ProfileUse::Auto | ProfileUse::Always, Ok(())) => Ok(true),
        (ProfileUse::Always, Err(error)) => Err(error),
        // Not a warning: most hosts without AppArmor never had it. `burrow doctor` reports it.
        (ProfileUse::Auto, Err(error)) => {
            tracing::info!(%error, "containers run without an AppArmor profile");
            Ok(false)
        }
        (ProfileUse::Never, _) => Ok(false),
    }
}

fn no_apparmor() -> io::Error {
    io::Error::other("AppArmor is not enabled in this kernel")
}

/// Loads the profile, so that machines can enter it.
fn load() -> io::Result<()> {
    let label = read_first(OWN_LABEL).unwrap_or_default();
    // From another profile, the kernel does not allow a change to ours after `no_new_privs` is set.
    match label.trim() {
        "unconfined" => replace(),
        own => Err(io::Error::other(format!("the daemon itself runs in the AppArmor profile `{own}`"))),
    }
}

/// Whether a machine can enter the profile now. An upgrade of AppArmor may have removed it since the start; then it is
/// loaded again.
pub(crate) fn is_ready() -> bool {
    match standing() {
        ProfileState::Loaded => true,
        ProfileState::NotLoaded => load().map_or_else(
            |error| {
                tracing::warn!(%error, "could not load the AppArmor profile `{PROFILE}` again: a container runs without it");
                false
            },
            |()| true,
        ),
        ProfileState::NoAppArmor => false,
    }
}

/// Makes the next `execve` of this thread enter the profile.
pub(crate) fn enter_by_exec() -> io::Result<()> {
    let request = format!("exec {PROFILE}");
    let [path, older] = LABEL_OF_EXEC;
    match fs::write(path, &request) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::write(older, request),
        outcome => outcome,
    }
}

fn is_enabled() -> bool {
    fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "Y")
}

fn read_first(paths: [&str; 2]) -> io::Result<String> {
    paths
        .into_iter()
        .map(fs::read_to_string)
        .find(Result::is_ok)
        .unwrap_or(Err(io::ErrorKind::NotFound.into()))
}

fn replace() -> io::Result<()> {
    let missing = |error: io::Error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        if is_missing { io::Error::other(format!("`{PARSER}` is not installed")) } else { error }
    };
    let mut parser = Command::new(PARSER)
        // Without the cache: the profile is small, and its source is in this program.
        .args(["--replace", "--skip-cache"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    // Dropped at once, so that the parser sees end-of-file.
    parser.stdin.take().map_or(Ok(()), |mut input| input.write_all(SOURCE.as_bytes()))?;
    let ended = parser.wait_with_output()?;
    if ended.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&ended.stderr);
    Err(io::Error::other(format!("{PARSER}: {}: {}", ended.status, reason.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_cannot_be_loaded_stops_the_daemon_only_if_it_is_required() {
        let failed = || Err(no_apparmor());
        assert!(decide(ProfileUse::Auto, Ok(())).unwrap());
        assert!(decide(ProfileUse::Always, Ok(())).unwrap());
        assert!(!decide(ProfileUse::Auto, failed()).unwrap());
        assert!(decide(ProfileUse::Always, failed()).unwrap_err().to_string().contains("not enabled"));
        assert!(!prepare(ProfileUse::Never).unwrap());
    }

    #[test]
    fn the_profile_has_the_name_that_machines_enter() {
        assert!(SOURCE.contains(&format!("profile {PROFILE} ")));
    }
}
