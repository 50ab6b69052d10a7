//! Volumes: named trees of files that outlive sandboxes and are mounted into them.
//!
//! A volume is not part of any sandbox's snapshot: it has its own snapshots.
//!
//! Invariant: at most one of all sandboxes that mount a volume may write to it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Name, VolumeId, VolumeSnapshotId};

/// Volumes of one sandbox: each is a mount, which a dump has to restore.
pub const MOUNTS_MAX: usize = 16;

/// Snapshots of one volume: as many as a list and a removal can process at once.
pub const VOLUME_SNAPSHOTS_MAX: usize = 1000;

const PATH_BYTES_MAX: usize = 512;
const PATH_DEPTH_MAX: usize = 32;

/// Created by the kernel or by the host: nothing may be mounted at or below these.
const RESERVED: [&str; 4] = ["/proc", "/sys", "/dev", "/.burrow"];

/// Nothing starts without these directories. Mounting below them is allowed.
const SYSTEM: [&str; 9] = ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/run", "/sbin", "/usr", "/var"];

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub id: VolumeId,
    pub name: Name,
    /// The most data that can be written to it, in MiB.
    pub disk_mib: u32,
    pub state: VolumeState,
    /// The snapshot it was created from, which may no longer exist.
    pub origin: Option<VolumeSnapshotId>,
    pub created_ms: u64,
}

/// The operation on a volume in progress. Stored, so names are only added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// Being created. After a crash, the creation is undone.
    Making,
    Ready,
    /// Being restored to one of its snapshots. After a crash, the restore is completed.
    Restoring,
    /// Being removed. After a crash, the removal is completed.
    Removing,
}

/// The files of a volume at one moment. Never changes, and is removed with its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSnapshot {
    pub id: VolumeSnapshotId,
    pub volume: VolumeId,
    /// Unique among the snapshots of its volume.
    pub name: Option<Name>,
    pub created_ms: u64,
}

/// A volume mounted in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    pub volume: VolumeId,
    /// The volume's name at that time; volumes keep their names.
    pub name: Name,
    pub path: MountPath,
    pub mode: MountMode,
}

impl VolumeMount {
    /// The same mount, read-only.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { mode: MountMode::Ro, ..self }
    }

    /// The volume and its mount point, regardless of who may write to it.
    pub fn place(&self) -> (&VolumeId, &MountPath) {
        (&self.volume, &self.path)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountMode {
    Ro,
    Rw,
}

impl MountMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
        }
    }
}

/// The mount point of a volume: absolute, without `.`, `..`, empty components and control characters; and without brackets,
/// because a dump puts it in brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MountPath(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    #[error(
        "a volume's path is absolute, at most {PATH_BYTES_MAX} bytes and {PATH_DEPTH_MAX} parts, without `.`, `..`, brackets and control characters"
    )]
    Shape,
    #[error("a volume cannot be at `{path}`, which belongs to the system")]
    Reserved { path: String },
    #[error("a sandbox has at most {MOUNTS_MAX} volumes")]
    TooMany,
    #[error("volumes cannot be nested: `{inner}` is inside `{outer}`")]
    Nested { outer: MountPath, inner: MountPath },
    #[error("volume `{name}` is listed twice")]
    Twice { name: Name },
}

impl MountPath {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without the leading slash.
    pub fn relative(&self) -> &str {
        &self.0[1..]
    }

    fn holds(&self, other: &Self) -> bool {
        is_within(&other.0, &self.0)
    }
}

impl FromStr for MountPath {
    type Err = MountError;

    fn from_str(text: &str) -> Result<Self, MountError> {
        let text = text.trim_end_matches('/');
        let rest = text.strip_prefix('/').ok_or(MountError::Shape)?;
        let parts: Vec<&str> = rest.split('/').collect();
        let good = |part: &&str| {
            let odd = |character: char| character.is_control() || matches!(character, '[' | ']');
            !matches!(*part, "" | "." | "..") && part.len() <= 255 && !part.chars().any(odd)
        };
        if text.len() > PATH_BYTES_MAX || parts.len() > PATH_DEPTH_MAX || !parts.iter().all(good) {
            return Err(MountError::Shape);
        }
        let reserved = RESERVED.iter().any(|place| is_within(text, place)) || SYSTEM.contains(&text);
        if reserved {
            return Err(MountError::Reserved { path: text.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for MountPath {
    type Error = MountError;

    fn try_from(text: String) -> Result<Self, MountError> {
        text.parse()
    }
}

impl From<MountPath> for String {
    fn from(path: MountPath) -> String {
        path.0
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Refuses mounts that cannot all be in one sandbox.
pub fn check_mounts(mounts: &[VolumeMount]) -> Result<(), MountError> {
    if mounts.len() > MOUNTS_MAX {
        return Err(MountError::TooMany);
    }
    for (index, one) in mounts.iter().enumerate() {
        for other in &mounts[index + 1..] {
            if one.volume == other.volume {
                return Err(MountError::Twice { name: other.name.clone() });
            }
            for (outer, inner) in [(one, other), (other, one)] {
                if outer.path.holds(&inner.path) {
                    let (outer, inner) = (outer.path.clone(), inner.path.clone());
                    return Err(MountError::Nested { outer, inner });
                }
            }
        }
    }
    Ok(())
}

/// Whether a path is `place` or below it.
fn is_within(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(text.parse::<MountPath>().ok().as_ref().map(MountPath::as_str), expected, "{text:?}");
    }

    #[test]
    fn a_path_is_plain_and_covers_nothing_that_a_machine_needs() {
        check("/data", Some("/data"));
        check("/data/", Some("/data"));
        check("/home/user/my data", Some("/home/user/my data"));
        check("/var/lib/thing", Some("/var/lib/thing"));
        check("/devices", Some("/devices"));
        for bad in [
            "", "/", "data", "/a/../b", "/a//b", "/./a", "/a\u{7}", "/proc", "/proc/1", "/dev/shm", "/etc",
            "/usr/",
        ] {
            check(bad, None);
        }
        check("/.burrow/x", None);
        check(&format!("/{}", "a/".repeat(40)), None);
    }

    fn mount(name: &str, path: &str) -> VolumeMount {
        let (name, path) = (name.parse().unwrap(), path.parse().unwrap());
        VolumeMount { volume: VolumeId::generate(), name, path, mode: MountMode::Rw }
    }

    #[test]
    fn volumes_of_one_sandbox_lie_beside_each_other() {
        let (data, models) = (mount("data", "/data"), mount("models", "/data-models"));
        assert_eq!(check_mounts(&[data.clone(), models]), Ok(()));
        let inner = mount("inner", "/data/inner");
        assert!(matches!(check_mounts(&[inner.clone(), data.clone()]), Err(MountError::Nested { .. })));
        let same_place = mount("other", "/data");
        assert!(matches!(check_mounts(&[same_place, data.clone()]), Err(MountError::Nested { .. })));
        let twice = VolumeMount { path: "/elsewhere".parse().unwrap(), ..data.clone() };
        assert!(matches!(check_mounts(&[data, twice]), Err(MountError::Twice { .. })));
        let many: Vec<_> = (0..=MOUNTS_MAX).map(|number| mount("x", &format!("/m{number}"))).collect();
        assert_eq!(check_mounts(&many), Err(MountError::TooMany));
    }

    #[test]
    fn who_may_not_write_sees_the_same_in_the_same_place() {
        let writer = mount("data", "/data");
        let reader = writer.clone().read_only();
        assert_eq!((reader.mode, reader.place()), (MountMode::Ro, writer.place()));
    }
}
