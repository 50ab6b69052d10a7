//! Finds this host's cgroup controllers.
//!
//! ```text
//!   pure v2     /sys/fs/cgroup            one tree with the controllers        (current systemd hosts)
//!   hybrid      /sys/fs/cgroup/unified    v2 tree with the core files only,
//!               /sys/fs/cgroup/memory …   controllers in v1 trees
//!   pure v1     /sys/fs/cgroup/memory …   no v2 tree: `freezer` stands in for its core files
//! ```
//!
//! Each controller is looked up separately, so mixtures of these layouts work too. A controller belongs to one tree at
//! a time: a controller of the v2 tree is in no v1 tree.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// A controller that every sandbox needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Memory,
    Cpu,
    Pids,
}

impl Controller {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}

/// The mounted trees of this host, by purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Mount point of the v2 tree.
    pub(crate) unified: Option<PathBuf>,
    /// Controllers in the v2 tree.
    pub(crate) in_unified: Vec<Controller>,
    /// Mount points of controllers in v1 trees.
    pub(crate) legacy: BTreeMap<Controller, PathBuf>,
    /// Mount point of the v1 freezer, used only if there is no v2 tree.
    pub(crate) legacy_freezer: Option<PathBuf>,
}

impl Layout {
    /// Reads the mounts of this process and the controllers of the v2 tree.
    pub(crate) fn detect() -> std::io::Result<Self> {
        Ok(Self::from_mountinfo(&fs::read_to_string("/proc/self/mountinfo")?))
    }

    /// `text` is the content of `/proc/self/mountinfo`; the trees it names are read.
    pub(crate) fn from_mountinfo(text: &str) -> Self {
        let mounts: Vec<Mount> = text.lines().filter_map(Mount::parse).collect();
        let unified = mounts.iter().find(|mount| mount.kind == "cgroup2").map(|mount| mount.point.clone());
        let offered = unified
            .as_deref()
            .and_then(|point| fs::read_to_string(point.join("cgroup.controllers")).ok())
            .unwrap_or_default();
        let in_unified: Vec<Controller> = Controller::ALL
            .into_iter()
            .filter(|controller| offered.split_whitespace().any(|word| word == controller.name()))
            .collect();
        let legacy_mount = |name: &str| {
            let found = mounts.iter().find(|mount| mount.kind == "cgroup" && mount.has_option(name));
            found.map(|mount| mount.point.clone())
        };
        let legacy = Controller::ALL
            .into_iter()
            .filter(|controller| !in_unified.contains(controller))
            .filter_map(|controller| Some((controller, legacy_mount(controller.name())?)))
            .collect();
        let legacy_freezer = if unified.is_none() { legacy_mount("freezer") } else { None };
        Self { unified, in_unified, legacy, legacy_freezer }
    }

    /// Controllers that no tree of this host has.
    pub(crate) fn missing(&self) -> Vec<Controller> {
        let has = |controller| self.in_unified.contains(&controller) || self.legacy.contains_key(&controller);
        Controller::ALL.into_iter().filter(|controller| !has(*controller)).collect()
    }

    pub(crate) fn can_freeze(&self) -> bool {
        self.unified.is_some() || self.legacy_freezer.is_some()
    }

    /// Every tree in which a sandbox has a directory; the tree with its processes comes first. Controllers that are
    /// mounted together (`cpu,cpuacct`) share one tree.
    pub(crate) fn trees(&self) -> Vec<&Path> {
        let mut trees: Vec<&Path> = Vec::new();
        let all = self.unified.iter().chain(&self.legacy_freezer).chain(self.legacy.values());
        for tree in all.map(PathBuf::as_path) {
            if !trees.contains(&tree) {
                trees.push(tree);
            }
        }
        trees
    }
}

struct Mount<'a> {
    point: PathBuf,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// `36 35 98:0 /root /point rw,noatime optional… - kind source super-options`
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        let mut after = after.split(' ');
        let kind = after.next()?;
        let options = after.nth(1)?;
        Some(Self { point: unescape(point), kind, options })
    }

    fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// Spaces and some other characters are escaped as `\040`.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mountinfo(point: &Path, trees: &[(&str, &str, &str)]) -> String {
        let mut text = String::from("22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n");
        for (directory, kind, options) in trees {
            let point = point.join(directory);
            text.push_str(&format!(
                "30 22 0:26 / {} rw,nosuid shared:9 - {kind} {kind} {options}\n",
                point.display()
            ));
        }
        text
    }

    fn tree(controllers: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("unified")).unwrap();
        fs::write(directory.path().join("unified/cgroup.controllers"), controllers).unwrap();
        directory
    }

    #[test]
    fn a_pure_v2_host_has_all_controllers_in_one_tree() {
        let directory = tree("cpuset cpu io memory hugetlb pids\n");
        let layout =
            Layout::from_mountinfo(&mountinfo(directory.path(), &[("unified", "cgroup2", "rw,nsdelegate")]));
        assert_eq!(layout.in_unified, Controller::ALL);
        assert_eq!(layout.missing(), []);
        assert_eq!(layout.trees(), [directory.path().join("unified")]);
        assert!(layout.can_freeze());
    }

    #[test]
    fn a_hybrid_host_freezes_in_v2_and_limits_in_v1() {
        let directory = tree("hugetlb\n");
        let layout = Layout::from_mountinfo(&mountinfo(
            directory.path(),
            &[
                ("cpu,cpuacct", "cgroup", "rw,cpu,cpuacct"),
                ("memory", "cgroup", "rw,memory"),
                ("pids", "cgroup", "rw,pids"),
                ("freezer", "cgroup", "rw,freezer"),
                ("unified", "cgroup2", "rw"),
            ],
        ));
        assert_eq!(layout.in_unified, []);
        assert_eq!(layout.missing(), []);
        assert_eq!(layout.legacy[&Controller::Cpu], directory.path().join("cpu,cpuacct"));
        assert_eq!(layout.legacy_freezer, None);
        assert_eq!(layout.trees().len(), 4);
        assert_eq!(layout.trees()[0], directory.path().join("unified"));
    }

    #[test]
    fn a_pure_v1_host_freezes_with_its_freezer() {
        let directory = tree("");
        let layout = Layout::from_mountinfo(&mountinfo(
            directory.path(),
            &[
                ("all", "cgroup", "rw,cpu,memory,pids"),
                ("freezer", "cgroup", "rw,freezer"),
                ("systemd", "cgroup", "rw,name=systemd"),
            ],
        ));
        assert_eq!(layout.unified, None);
        assert_eq!(layout.trees(), [directory.path().join("freezer"), directory.path().join("all")]);
    }

    #[test]
    fn a_missing_controller_is_named() {
        let directory = tree("cpu pids\n");
        let layout = Layout::from_mountinfo(&mountinfo(directory.path(), &[("unified", "cgroup2", "rw")]));
        assert_eq!(layout.missing(), [Controller::Memory]);
        let layout = Layout::from_mountinfo("");
        assert_eq!(layout.missing(), Controller::ALL);
        assert!(!layout.can_freeze());
    }

    #[test]
    fn escaped_mount_points_are_decoded() {
        assert_eq!(unescape("/a\\040b\\134c"), PathBuf::from("/a b\\c"));
        assert_eq!(unescape("/plain\\"), PathBuf::from("/plain\\"));
    }
}
