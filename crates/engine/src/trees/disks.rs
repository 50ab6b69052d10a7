//! Trees on disks: read in a temporary machine, as far as they are needed.
//!
//! ```text
//!   disks held ─► a machine with copies of them ─► which paths differ ─► these paths of each, as partial trees in the pool
//!                                                  ─► compared and planned with like any other trees
//!   a plan ─► applied by the parent's own agent, all other processes frozen; for a stopped parent, by a machine with its disk
//! ```
//!
//! The host mounts none of the disks. Partial trees are in a staged disk, so that a start after a crash removes them; their owners
//! are shifted as everywhere in the pool. Files of a partial tree are identified by their inode numbers on their disk.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_disks::{ChangedPath, Tree, UID_COUNT, UID_SHIFT, shift_attribute, unshift_attribute};
use burrow_model::{ChangeKind, ImageId, TenantId};
use burrow_runtime::disks::{DiskAccess, DiskSpec, Names, OpenDisks, ReceiveFn, SendFn};
use burrow_runtime::{Form, Runtime};
use burrow_trees::apply::Sources;
use burrow_trees::carry::{self, Bounds};
use burrow_trees::plan::{Action, OtherNames, Trees};
use burrow_trees::survey::{NameChange, Survey};
use burrow_trees::{Identity, Node, Root, TreeError};

use super::diff::blocking;
use super::held_tree::HeldTree;
use super::held_trees::{self, TreeSource};
use crate::EngineError;
use crate::images::layer_locks::LayerReadLock;
use crate::images::layers::discard;
use crate::images::starting_points;
use crate::shared::Shared;

/// Limits of one copy from a disk. A whole system fits; anything larger would take hours under emulation.
const BOUNDS: Bounds = Bounds { records_max: 2_000_000, bytes_max: 32 << 30, length_max: 1 << 40 };

/// Attributes that are copied from a disk. Others are specific to the host, or meaningless.
const ATTRIBUTES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.capability", b"system.posix_acl_"];

/// The driver whose disk this is on; `None`: it is a tree of files on the host.
pub(crate) fn driver_of(shared: &Shared, of: &TreeSource) -> Result<Option<Arc<dyn Runtime>>, EngineError> {
    let driver = match of {
        TreeSource::Sandbox(row) => &row.spec.driver,
        TreeSource::Snapshot(snapshot) => &snapshot.spec.driver,
        TreeSource::Image(_) => return Ok(None),
    };
    with_disks(shared, driver)
}

/// A driver, if it stores files on disks.
pub(crate) fn with_disks(shared: &Shared, driver: &str) -> Result<Option<Arc<dyn Runtime>>, EngineError> {
    let runtime = shared.runtime(driver)?;
    Ok((runtime.form() == Form::Disk).then_some(runtime))
}

/// Holds a sandbox, snapshot or image as a disk of this driver.
pub(crate) async fn hold(
    shared: &Arc<Shared>,
    tenant: &TenantId,
    runtime: &Arc<dyn Runtime>,
    of: &TreeSource,
) -> Result<HeldDisk, EngineError> {
    if let TreeSource::Image(image) = of {
        let (volume, kept) = starting_points::disk_of(shared, tenant, &image.id, runtime).await?;
        let held = held_trees::pinned(shared, Tree::Image(volume)).await?;
        return Ok(HeldDisk { held, _kept: Some(kept) });
    }
    match driver_of(shared, of)? {
        Some(driver) if driver.name() == runtime.name() => {
            Ok(HeldDisk { held: held_trees::hold(shared, of).await?, _kept: None })
        }
        Some(_) | None => Err(EngineError::OtherForm { what: of.id().to_owned(), driver: runtime.name() }),
    }
}

/// A disk that stays unchanged until it is released.
#[derive(Debug)]
pub(crate) struct HeldDisk {
    pub(crate) held: HeldTree,
    /// For an image: keeps its disk from being removed.
    _kept: Option<LayerReadLock>,
}

/// Temporary space in the pool, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PoolScratch {
    root: PathBuf,
    /// What may be copied into it: the pool's reserve is not used.
    bounds: Bounds,
    disk: Option<ImageId>,
    shared: Arc<Shared>,
}

impl PoolScratch {
    async fn make(shared: &Arc<Shared>) -> Result<Self, EngineError> {
        let disk = ImageId::generate();
        let room = shared.seams.disks.space().await?.free_bytes;
        let room = room.saturating_sub(shared.policy.pool_reserve_bytes);
        let bounds = Bounds { bytes_max: BOUNDS.bytes_max.min(room), ..BOUNDS };
        let root = shared.seams.disks.stage((&disk).into(), None).await?;
        Ok(Self { root, bounds, disk: Some(disk), shared: shared.clone() })
    }

    pub(crate) async fn release(mut self) {
        if let Some(disk) = self.disk.take() {
            discard(&self.shared, &disk).await;
        }
    }
}

impl Drop for PoolScratch {
    fn drop(&mut self) {
        if let (Some(disk), Ok(runtime)) = (self.disk.take(), tokio::runtime::Handle::try_current()) {
            let (shared, alive) = (self.shared.clone(), self.shared.actor_guard());
            // The shutdown waits for it, since it holds a guard.
            drop(runtime.spawn(async move {
                discard(&shared, &disk).await;
                drop(alive);
            }));
        }
    }
}

pub(crate) type Identities = HashMap<Vec<u8>, Identity>;

/// The paths at which two or three disks differ, with the contents of each.
#[derive(Debug)]
pub(crate) struct DiskParts {
    /// One tree for each disk, in order.
    pub(crate) trees: Vec<PathBuf>,
    /// The identities of files on each disk, by path.
    pub(crate) identities: Vec<Identities>,
    /// What each disk but the first has changed compared with the first.
    pub(crate) changed: Vec<Vec<ChangedPath>>,
    pub(crate) scratch: PoolScratch,
}

/// Reads, from the disks in these directories, the paths that differ from the first and that `wanted` accepts.
pub(crate) async fn parts(
    shared: &Arc<Shared>,
    runtime: &Arc<dyn Runtime>,
    roots: &[&Path],
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<DiskParts, EngineError> {
    let scratch = PoolScratch::make(shared).await?;
    let disks = roots.iter().map(|root| DiskSpec { root: root.to_path_buf(), writable: false }).collect();
    let mut disks =
        runtime.needs_own_disks()?.open_disks(OpenDisks { disks, scratch: scratch.root.clone() }).await?;
    let read = async {
        let (mut changed, mut names) = (Vec::new(), BTreeSet::new());
        for number in 1..roots.len() {
            let Survey { found, more } = disks.changes(0, number).await?;
            if more {
                return Err(EngineError::TooDifferent { changed: found.len() });
            }
            let found: Vec<ChangedPath> = found.into_iter().map(changed_path).collect();
            names.extend(found.iter().map(|one| one.path.clone()).filter(|path| wanted(path)));
            changed.push(found);
        }
        let (mut trees, mut identities) = (Vec::new(), Vec::new());
        for number in 0..roots.len() {
            let tree = folder(&scratch.root, &number.to_string())?;
            let mut known = Identities::new();
            if !names.is_empty() {
                known = copy_out(&mut *disks, number, Names::These(names.clone()), &tree, &scratch, u32::MAX)
                    .await?;
            }
            trees.push(tree);
            identities.push(known);
        }
        Ok((trees, identities, changed))
    };
    let read = read.await;
    let closed = disks.close().await;
    match read {
        Ok((trees, identities, changed)) => {
            closed?;
            Ok(DiskParts { trees, identities, changed, scratch })
        }
        Err(error) => {
            scratch.release().await;
            Err(error)
        }
    }
}

/// Copies a whole disk into an empty tree, for sandboxes of every driver: refused if an owner does not exist in containers.
pub(crate) async fn unpack(
    shared: &Arc<Shared>,
    runtime: &Arc<dyn Runtime>,
    disk: &HeldTree,
    into: &Path,
) -> Result<(), EngineError> {
    let scratch = PoolScratch::make(shared).await?;
    let disks = vec![DiskSpec { root: disk.path.clone(), writable: false }];
    let unpacked = async {
        let mut disks =
            runtime.needs_own_disks()?.open_disks(OpenDisks { disks, scratch: scratch.root.clone() }).await?;
        copy_out(&mut *disks, 0, Names::All, into, &scratch, UID_COUNT).await?;
        Ok::<_, EngineError>(disks.close().await?)
    };
    let unpacked = unpacked.await;
    scratch.release().await;
    unpacked
}

/// Applies a plan to the files of a paused sandbox: the agent of a live one does it.
pub(crate) async fn change(
    shared: &Arc<Shared>,
    runtime: &Arc<dyn Runtime>,
    id: &burrow_model::SandboxId,
    lives: bool,
    trees: Trees,
    actions: Vec<Action>,
) -> Result<(), EngineError> {
    let give: SendFn = Box::new(move |out| {
        let sources = Sources { ours: &trees.ours, theirs: &trees.theirs };
        carry::send_actions(&actions, sources, &from_pool, out).map_err(with_cause)
    });
    if lives {
        runtime.needs_own_disks()?.change_files(id, give).await?;
    } else {
        let scratch = PoolScratch::make(shared).await?;
        let root = shared.seams.disks.locate(id.into()).await?;
        let disks = vec![DiskSpec { root, writable: true }];
        let mut disks =
            runtime.needs_own_disks()?.open_disks(OpenDisks { disks, scratch: scratch.root.clone() }).await?;
        disks.apply(0, give).await?;
        disks.close().await?;
        scratch.release().await;
    }
    Ok(shared.seams.disks.sync(id).await?)
}

fn changed_path((path, became): (Vec<u8>, NameChange)) -> ChangedPath {
    let kind = match became {
        NameChange::Added => ChangeKind::Added,
        NameChange::Changed => ChangeKind::Changed,
        NameChange::Deleted => ChangeKind::Deleted,
    };
    ChangedPath { path, kind, written: false }
}

/// Copies paths of a disk into a tree; returns the identities of the copied files.
async fn copy_out(
    disks: &mut dyn DiskAccess,
    number: usize,
    names: Names,
    into: &Path,
    scratch: &PoolScratch,
    ids_max: u32,
) -> Result<Identities, EngineError> {
    let staging = folder(&scratch.root, &format!("staging-{number}"))?;
    let (into, bounds) = (into.to_owned(), scratch.bounds);
    let (send, received) = std::sync::mpsc::channel();
    let take: ReceiveFn = Box::new(move |input| {
        let (live, staging) = (Root::open(&into), Root::open(&staging));
        let (live, staging) = (live.map_err(with_cause)?, staging.map_err(with_cause)?);
        let mut known = Identities::new();
        let mut adjust = |path: &[u8], node: &mut Node| {
            known.extend(node.identity.map(|identity| (path.to_vec(), identity)));
            to_pool(node, ids_max)
        };
        carry::receive(&live, &staging, input, bounds, &mut adjust).map_err(with_cause)?;
        // If the receiver is gone, the result is not needed.
        let _ = send.send(known);
        Ok(())
    });
    disks.copy_out(number, names, take).await?;
    Ok(received.try_recv().unwrap_or_default())
}

fn folder(scratch: &Path, name: &str) -> Result<PathBuf, EngineError> {
    let path = scratch.join(name);
    std::fs::create_dir(&path).map_err(|source| TreeError::Step {
        step: "make",
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        source,
    })?;
    Ok(path)
}

/// Converts a node of a disk to its form in the pool. Ids from `ids_max` on are refused.
fn to_pool(node: &mut Node, ids_max: u32) -> io::Result<()> {
    for id in [&mut node.uid, &mut node.gid] {
        let shifted = if *id < ids_max { id.checked_add(UID_SHIFT) } else { None };
        *id = shifted.ok_or_else(|| io::Error::other(format!("owner id {id} is out of range")))?;
    }
    let attributes = std::mem::take(&mut node.attributes);
    let known =
        attributes.into_iter().filter(|(name, _)| ATTRIBUTES.iter().any(|known| name.starts_with(known)));
    node.attributes = known
        .filter_map(|(name, value)| Some((name.clone(), shift_attribute(&name, &value, UID_SHIFT)?)))
        .collect();
    Ok(())
}

/// The reverse of [`to_pool`].
fn from_pool(node: &mut Node) {
    node.uid = node.uid.saturating_sub(UID_SHIFT);
    node.gid = node.gid.saturating_sub(UID_SHIFT);
    let attributes = std::mem::take(&mut node.attributes);
    node.attributes = attributes
        .into_iter()
        .filter_map(|(name, value)| Some((name.clone(), unshift_attribute(&name, &value, UID_SHIFT)?)))
        .collect();
}

/// Converts a tree error to an IO error, with its cause.
fn with_cause(error: TreeError) -> io::Error {
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    io::Error::other(cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")))
}

/// All names of a file in a partial tree, which are all names that it has: see [`burrow_trees::survey`].
pub(crate) struct PartialTreeNames {
    names: HashMap<(u64, u64), Vec<Vec<u8>>>,
    root: Root,
}

impl PartialTreeNames {
    pub(crate) async fn read(tree: PathBuf) -> Result<Self, EngineError> {
        blocking(move || {
            let root = Root::open(&tree)?;
            let mut names: HashMap<_, Vec<_>> = HashMap::new();
            for path in root.walk(usize::MAX)? {
                let several =
                    |node: &Node| node.is_file() && node.identity.is_some_and(|found| found.links > 1);
                if root.node(&path)?.as_ref().is_some_and(several)
                    && let Some(identity) = root.identity(&path)?
                {
                    names.entry(identity).or_default().push(path);
                }
            }
            Ok(Self { names, root })
        })
        .await
    }
}

impl PartialTreeNames {
    /// A file that was sent under one name has an identity under that name only; this adds its other names.
    pub(crate) fn complete(&self, identities: &mut Identities) {
        for names in self.names.values() {
            let known = names.iter().find_map(|name| identities.get(name).copied());
            for name in names {
                if let Some(known) = known {
                    identities.entry(name.clone()).or_insert(known);
                }
            }
        }
    }
}

impl OtherNames for PartialTreeNames {
    fn names_of(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, TreeError> {
        let identity = self.root.identity(path)?;
        Ok(identity.and_then(|identity| self.names.get(&identity)).cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use burrow_trees::Kind;

    use super::*;

    fn node(uid: u32, attributes: &[(&str, &[u8])]) -> Node {
        let attributes: BTreeMap<_, _> =
            attributes.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect();
        Node { kind: Kind::Directory, mode: 0, uid, gid: 7, attributes, modified: (0, 0), identity: None }
    }

    #[test]
    fn a_node_survives_a_round_trip_through_the_pool_without_host_attributes() {
        let capability: Vec<u8> =
            [0x0200_0001_u32, 1 << 13, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
        let kept = [("user.note", &b"x"[..]), ("security.capability", &capability)];
        let plain = node(1000, &kept);
        let mut there =
            node(1000, &[&kept[..], &[("security.ima", b"x"), ("system.nfs4_acl", b"x")]].concat());
        to_pool(&mut there, UID_COUNT).unwrap();
        assert_eq!((there.uid, there.gid), (UID_SHIFT + 1000, UID_SHIFT + 7));
        assert_ne!(there.attributes, plain.attributes);
        from_pool(&mut there);
        assert_eq!(there, plain);
        to_pool(&mut node(UID_COUNT, &[]), u32::MAX).unwrap();
        assert!(to_pool(&mut node(UID_COUNT, &[]), UID_COUNT).is_err());
        assert!(to_pool(&mut node(u32::MAX, &[]), u32::MAX).is_err());
        // An invalid capability is dropped, not refused: a program inside the sandbox wrote it.
        let mut odd = node(0, &[("security.capability", b"rubbish")]);
        to_pool(&mut odd, UID_COUNT).unwrap();
        assert!(odd.attributes.is_empty());
    }

    #[tokio::test]
    async fn all_names_of_a_file_are_found_in_its_partial_tree() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("one"), "").unwrap();
        std::fs::write(tree.path().join("alone"), "").unwrap();
        std::fs::hard_link(tree.path().join("one"), tree.path().join("two")).unwrap();
        let part = PartialTreeNames::read(tree.path().to_owned()).await.unwrap();
        let mut names = part.names_of(b"/two").unwrap();
        names.sort();
        assert_eq!(names, [b"/one".to_vec(), b"/two".to_vec()]);
        assert_eq!(part.names_of(b"/alone").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(part.names_of(b"/missing").unwrap(), Vec::<Vec<u8>>::new());
    }
}
