//! Disk quotas: each sandbox and each volume has one quota group with a limit, which its subvolume is in.
//!
//! The limit is set on a group *above* the subvolume and not on the subvolume's own group: a process inside may create a
//! nested subvolume, whose own group would have no limit, but which is charged to the group it inherits.
//!
//! The group of a destroyed sandbox can be removed only after the kernel has freed the last extent charged to it, in the
//! background. Such groups are *retired*: the pool's housekeeper tries to remove them until they are gone. For each, the
//! pool contains a mark, a file named after the sandbox, which tells the next start which groups remain. Only these
//! marks count: the pool of another daemon, with its own groups, may be on the same file system.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burrow_model::{SandboxId, VolumeId};

use super::ioctl;

/// Level of Burrow's quota groups: `77/…`. Other programs' groups on a shared file system are on level 1 and left alone.
const LEVEL: u64 = 77;
const LEVEL_SHIFT: u32 = 48;

/// How often the removal of a retired group is tried before it is left to the next start: an hour at the housekeeper's pace.
const REMOVE_TRIES_MAX: u32 = 720;

/// How many groups are remembered for removal; others are found again at the next start.
const RETIRED_MAX: usize = 100_000;

/// How many groups one round removes, so that housekeeping never occupies the disk for long.
const REMOVALS_PER_ROUND_MAX: usize = 64;

/// The maximum age of a result about usage.
const USAGE_AGE_MAX: Duration = Duration::from_millis(500);

/// How many children of one group are read: a sandbox has one subvolume, and the nested ones that it created.
const CHILDREN_MAX: usize = 10_000;

/// Whether this pool limits sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaSupport {
    Enforced,
    /// Sandboxes work, but may fill the pool.
    Unavailable {
        reason: String,
    },
}

#[derive(Debug)]
pub(super) struct Quotas {
    support: QuotaSupport,
    /// `/sys/fs/btrfs/<uuid>/qgroups`: the kernel's figures for each group.
    sysfs: PathBuf,
    /// Groups of destroyed owners.
    retired: Mutex<BTreeMap<u64, RetiredGroup>>,
    /// Where the marks are.
    marks: PathBuf,
    /// When [`Self::used`] last had everything committed.
    committed: Mutex<Option<Instant>>,
}

/// A group whose owner was destroyed.
#[derive(Debug)]
struct RetiredGroup {
    id: Owner,
    /// How often its removal failed.
    tries: u32,
}

/// The owner of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Sandbox(SandboxId),
    Volume(VolumeId),
}

impl Owner {
    fn as_str(&self) -> &str {
        match self {
            Self::Sandbox(id) => id.as_str(),
            Self::Volume(id) => id.as_str(),
        }
    }
}

impl FromStr for Owner {
    type Err = burrow_model::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::Volume).or_else(|_| text.parse().map(Self::Sandbox))
    }
}

/// The owner's quota group, derived from the random bits of the id, so that no table is needed to find it again. With 48
/// bits, two of a million owners share a group with a probability of one in 500.
pub(super) fn group_of(owner: &Owner) -> u64 {
    let mut number = 0u64;
    for byte in owner.as_str().bytes().skip(SandboxId::PREFIX.len()).take(10) {
        let digit = if byte.is_ascii_lowercase() { byte - b'a' } else { byte - b'2' + 26 };
        number = (number << 5) | u64::from(digit);
    }
    (LEVEL << LEVEL_SHIFT) | (number & ((1 << LEVEL_SHIFT) - 1))
}

impl Quotas {
    /// Enables simple quotas if the kernel supports them. Marks are kept in the directory `marks`.
    pub(super) fn open(pool: &File, marks: &Path) -> io::Result<Self> {
        let sysfs = PathBuf::from("/sys/fs/btrfs").join(ioctl::filesystem_uuid(pool)?).join("qgroups");
        let support = match ioctl::enable_simple_quotas(pool) {
            Ok(()) => match fs::read_to_string(sysfs.join("mode")).as_deref().map(str::trim) {
                Ok("squota") => QuotaSupport::Enforced,
                // Classic groups slow down every snapshot as they grow, and charge a fork for its parent's data.
                Ok(mode) => QuotaSupport::Unavailable {
                    reason: format!(
                        "the file system already has quotas of the kind `{mode}`, and not simple ones"
                    ),
                },
                Err(error) => QuotaSupport::Unavailable {
                    reason: format!("the kernel does not say which quotas are on: {error}"),
                },
            },
            Err(error) => QuotaSupport::Unavailable {
                reason: format!("the kernel refused simple quotas (Linux 6.7 brought them): {error}"),
            },
        };
        let marks = marks.to_owned();
        Ok(Self { support, sysfs, retired: Mutex::default(), marks, committed: Mutex::default() })
    }

    pub(super) fn support(&self) -> &QuotaSupport {
        &self.support
    }

    fn enforced(&self) -> bool {
        matches!(self.support, QuotaSupport::Enforced)
    }

    /// Creates the owner's group with its limit and passes it to `make`; `None` without quotas. Until `make` has returned (it
    /// takes the snapshot that joins the group), the housekeeper cannot remove a retired group of the same number.
    pub(super) fn with_group<T>(
        &self,
        pool: &File,
        owner: &Owner,
        bytes: u64,
        make: impl FnOnce(Option<u64>) -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.enforced() {
            return make(None);
        }
        let group = group_of(owner);
        // Removed from the list under the lock, so the housekeeper cannot remove the group.
        if let Some(retired) = self.retired().remove(&group) {
            self.unmark(&retired.id);
        }
        match ioctl::create_qgroup(pool, group) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        ioctl::limit_qgroup(pool, group, bytes)?;
        make(Some(group))
    }

    /// Changes a limit. If more is used already, nothing can be written until enough is removed.
    pub(super) fn limit(&self, pool: &File, owner: &Owner, bytes: u64) -> io::Result<()> {
        if !self.enforced() {
            return Ok(());
        }
        ioctl::limit_qgroup(pool, group_of(owner), bytes)?;
        ioctl::commit(pool)
    }

    /// Bytes charged to the owner's group. The kernel charges at a commit, so this commits first, unless that happened
    /// a moment ago: reading the usage of many sandboxes must not commit once for each.
    pub(super) fn used(&self, pool: &File, owner: &Owner) -> io::Result<u64> {
        {
            let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
            if committed.is_none_or(|at| at.elapsed() > USAGE_AGE_MAX) {
                ioctl::commit(pool)?;
                *committed = Some(Instant::now());
            }
        }
        let group = group_of(owner);
        let number = group & ((1 << LEVEL_SHIFT) - 1);
        let text = fs::read_to_string(self.sysfs.join(format!("{LEVEL}_{number}")).join("referenced"))?;
        text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Leaves the group of a destroyed owner to the housekeeper.
    pub(super) fn retire(&self, owner: &Owner) {
        if !self.enforced() {
            return;
        }
        let id = owner.clone();
        let mut retired = self.retired();
        if retired.len() < RETIRED_MAX {
            self.mark(&id);
            retired.insert(group_of(&id), RetiredGroup { id, tries: 0 });
        }
    }

    /// Retires the groups that an earlier daemon retired and could not remove. Marks of owners in `live` are ignored and
    /// removed: their destruction was not finished.
    pub(super) fn retire_marked(&self, marked: Vec<Owner>, live: &[Owner]) {
        if !self.enforced() {
            return;
        }
        let mut retired = self.retired();
        for id in marked {
            if live.contains(&id) {
                self.unmark(&id);
            } else if retired.len() < RETIRED_MAX {
                retired.insert(group_of(&id), RetiredGroup { id, tries: 0 });
            }
        }
    }

    /// Removes retired groups that have no more charges, those with the fewest failed attempts first.
    pub(super) fn sweep(&self, pool: &File) {
        let mut round: Vec<(u32, u64)> =
            self.retired().iter().map(|(group, retired)| (retired.tries, *group)).collect();
        round.sort_unstable();
        round.truncate(REMOVALS_PER_ROUND_MAX);
        for (_, group) in round {
            // Locked for one group at a time: a create may need to take a group back, and must not wait long.
            let mut all = self.retired();
            let Some(retired) = all.get_mut(&group) else { continue };
            match remove(pool, group) {
                Ok(()) => {
                    self.unmark(&retired.id);
                    all.remove(&group);
                }
                Err(error) => {
                    retired.tries += 1;
                    if retired.tries >= REMOVE_TRIES_MAX {
                        tracing::debug!(group, %error, "a quota group is left to the next start");
                        all.remove(&group);
                    }
                }
            }
        }
    }

    /// A mark that cannot be created or removed costs an unused group, or an attempt to remove a missing one.
    fn mark(&self, id: &Owner) {
        let mut options = File::options();
        let made =
            options.write(true).create(true).truncate(false).mode(0o600).open(self.marks.join(id.as_str()));
        if let Err(error) = made {
            tracing::debug!(id = id.as_str(), %error, "could not mark a quota group as retired");
        }
    }

    fn unmark(&self, id: &Owner) {
        if let Err(error) = fs::remove_file(self.marks.join(id.as_str()))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(id = id.as_str(), %error, "could not remove the mark of a quota group");
        }
    }

    fn retired(&self) -> MutexGuard<'_, BTreeMap<u64, RetiredGroup>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a group and the groups of its subvolumes, if those subvolumes are gone.
fn remove(pool: &File, group: u64) -> io::Result<()> {
    let mut first = 0;
    for _ in 0..CHILDREN_MAX {
        let children = ioctl::search(pool, ioctl::QUOTA_TREE, group, ioctl::QGROUP_RELATION_KEY, first)?;
        let Some(last) = children.last() else { break };
        first = last + 1;
        // Kernels before 6.11 would remove the group of an existing subvolume too.
        for child in children.into_iter().filter(|child| child >> LEVEL_SHIFT == 0) {
            let subvolume = ioctl::search(pool, ioctl::ROOT_TREE, child, ioctl::ROOT_ITEM_KEY, 0)?;
            if !subvolume.is_empty() {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            ioctl::remove_qgroup(pool, child)?;
        }
    }
    match ioctl::remove_qgroup(pool, group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_on_our_level_and_differ_between_owners() {
        let (one, two) = (Owner::Sandbox(SandboxId::generate()), Owner::Volume(VolumeId::generate()));
        for owner in [&one, &two] {
            assert_eq!(owner.as_str().parse::<Owner>().unwrap(), *owner, "parsed from its mark");
        }
        assert_eq!(group_of(&one) >> LEVEL_SHIFT, LEVEL);
        assert_eq!(group_of(&one), group_of(&one.clone()));
        assert_ne!(group_of(&one), group_of(&two));
    }
}
