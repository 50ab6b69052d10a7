//! Trees that are on disks: read in a machine that is thrown away, as far as they are needed.
//!
//! ```text
//!   disks held still ─► a machine with copies of them ─► which names differ ─► these of each, as parts of trees in the pool
//!                                                        ─► looked at and planned with as any other trees
//!   what was planned ─► the parent's own agent, all others held; of a stopped one, a machine with its disk
//! ```
//!
//! The host mounts none of them. Parts of trees are in a staged volume, so that a start after a crash removes them; their
//! owners are shifted as everywhere in the pool. Files of a part are told apart by the numbers they have on their disk.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_model::{ChangeKind, ImageId, TenantId};
use burrow_runtime::disks::{DiskOf, Disks, Give, Names, OpenDisks, Take};
use burrow_runtime::{Form, Runtime};
use burrow_trees::apply::Sources;
use burrow_trees::carry::{self, Bounds};
use burrow_trees::plan::{Action, OtherNames, Trees};
use burrow_trees::survey::{Became, Survey};
use burrow_trees::{Identity, Node, Root, TreeError};
use burrow_volumes::{ChangedPath, Tree, UID_COUNT, UID_SHIFT, shift_attribute, unshift_attribute};

use crate::diff::blocking;
use crate::frozen::{Held, TreeOf};
use crate::images::layers::{Hold, discard};
use crate::shared::Shared;
use crate::{EngineError, forms};

/// What is copied out of one disk at once. A whole system fits; what does not would take hours emulated.
const BOUNDS: Bounds = Bounds { records_max: 2_000_000, bytes_max: 32 << 30, length_max: 1 << 40 };

/// Attributes that come out of a disk. Others mean something to the host, or nothing.
const ATTRIBUTES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.capability", b"system.posix_acl_"];

/// The driver on whose disk this is; `None`: it is a tree of the host's files.
pub(crate) fn driver_of(shared: &Shared, of: &TreeOf) -> Result<Option<Arc<dyn Runtime>>, EngineError> {
    let driver = match of {
        TreeOf::Sandbox(row) => &row.spec.driver,
        TreeOf::Snapshot(snapshot) => &snapshot.spec.driver,
        TreeOf::Image(_) => return Ok(None),
    };
    with_disks(shared, driver)
}

/// A driver, if it is one with disks.
pub(crate) fn with_disks(shared: &Shared, driver: &str) -> Result<Option<Arc<dyn Runtime>>, EngineError> {
    let runtime = shared.runtime(driver)?;
    Ok((runtime.form() == Form::Disk).then_some(runtime))
}

/// Something as a disk of this driver, held still.
pub(crate) async fn hold(
    shared: &Arc<Shared>,
    tenant: &TenantId,
    runtime: &Arc<dyn Runtime>,
    of: &TreeOf,
) -> Result<HeldDisk, EngineError> {
    if let TreeOf::Image(image) = of {
        let (volume, kept) = forms::disk_of(shared, tenant, &image.id, runtime).await?;
        let held = Held::pinned(shared, Tree::Image(volume)).await?;
        return Ok(HeldDisk { held, _kept: Some(kept) });
    }
    match driver_of(shared, of)? {
        Some(driver) if driver.name() == runtime.name() => {
            Ok(HeldDisk { held: Held::hold(shared, of).await?, _kept: None })
        }
        Some(_) | None => Err(EngineError::OtherForm { what: of.id().to_owned(), driver: runtime.name() }),
    }
}

/// A disk that stays as it is until it is let go.
#[derive(Debug)]
pub(crate) struct HeldDisk {
    pub(crate) held: Held,
    /// Of an image: keeps its disk from being removed.
    _kept: Option<Hold>,
}

/// Room in the pool that goes with this.
#[derive(Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
    /// What may come into it: the pool's reserve is left alone.
    bounds: Bounds,
    volume: Option<ImageId>,
    shared: Arc<Shared>,
}

impl Scratch {
    async fn make(shared: &Arc<Shared>) -> Result<Self, EngineError> {
        let volume = ImageId::generate();
        let room = shared.seams.volumes.space().await?.free_bytes;
        let room = room.saturating_sub(shared.policy.pool_reserve_bytes);
        let bounds = Bounds { bytes_max: BOUNDS.bytes_max.min(room), ..BOUNDS };
        let root = shared.seams.volumes.stage_image(&volume).await?;
        Ok(Self { root, bounds, volume: Some(volume), shared: shared.clone() })
    }

    pub(crate) async fn let_go(mut self) {
        if let Some(volume) = self.volume.take() {
            discard(&self.shared, &volume).await;
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let (Some(volume), Ok(runtime)) = (self.volume.take(), tokio::runtime::Handle::try_current()) {
            let shared = self.shared.clone();
            runtime.spawn(async move { discard(&shared, &volume).await });
        }
    }
}

pub(crate) type Identities = HashMap<Vec<u8>, Identity>;

/// The names at which two or three disks differ, with what each has there.
#[derive(Debug)]
pub(crate) struct Parts {
    /// One tree for each disk, in order.
    pub(crate) trees: Vec<PathBuf>,
    /// How each disk tells its files apart, by path.
    pub(crate) identities: Vec<Identities>,
    /// What each but the first has that the first has not.
    pub(crate) changed: Vec<Vec<ChangedPath>>,
    pub(crate) scratch: Scratch,
}

/// Reads, of the disks in these directories, what `wanted` of what differs from the first.
pub(crate) async fn parts(
    shared: &Arc<Shared>,
    runtime: &Arc<dyn Runtime>,
    roots: &[&Path],
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Parts, EngineError> {
    let scratch = Scratch::make(shared).await?;
    let disks = roots.iter().map(|root| DiskOf { root: root.to_path_buf(), writable: false }).collect();
    let mut disks = runtime.open_disks(OpenDisks { disks, scratch: scratch.root.clone() }).await?;
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
            Ok(Parts { trees, identities, changed, scratch })
        }
        Err(error) => {
            scratch.let_go().await;
            Err(error)
        }
    }
}

/// Copies a whole disk into an empty tree, for sandboxes of every driver: whose owners no container has is refused.
pub(crate) async fn unpack(
    shared: &Arc<Shared>,
    runtime: &Arc<dyn Runtime>,
    disk: &Held,
    into: &Path,
) -> Result<(), EngineError> {
    let scratch = Scratch::make(shared).await?;
    let disks = vec![DiskOf { root: disk.path.clone(), writable: false }];
    let unpacked = async {
        let mut disks = runtime.open_disks(OpenDisks { disks, scratch: scratch.root.clone() }).await?;
        copy_out(&mut *disks, 0, Names::All, into, &scratch, UID_COUNT).await?;
        Ok::<_, EngineError>(disks.close().await?)
    };
    let unpacked = unpacked.await;
    scratch.let_go().await;
    unpacked
}

/// Does what was planned to the files of a sandbox that stands still: one that lives has it done by its agent.
pub(crate) async fn change(
    shared: &Arc<Shared>,
    runtime: &Arc<dyn Runtime>,
    id: &burrow_model::SandboxId,
    lives: bool,
    trees: Trees,
    actions: Vec<Action>,
) -> Result<(), EngineError> {
    let give: Give = Box::new(move |out| {
        let sources = Sources { ours: &trees.ours, theirs: &trees.theirs };
        carry::send_actions(&actions, sources, &inward, out).map_err(explained)
    });
    if lives {
        runtime.change_files(id, give).await?;
    } else {
        let scratch = Scratch::make(shared).await?;
        let root = shared.seams.volumes.locate(id).await?;
        let disks = vec![DiskOf { root, writable: true }];
        let mut disks = runtime.open_disks(OpenDisks { disks, scratch: scratch.root.clone() }).await?;
        disks.apply(0, give).await?;
        disks.close().await?;
        scratch.let_go().await;
    }
    Ok(shared.seams.volumes.sync(id).await?)
}

fn changed_path((path, became): (Vec<u8>, Became)) -> ChangedPath {
    let kind = match became {
        Became::Added => ChangeKind::Added,
        Became::Changed => ChangeKind::Changed,
        Became::Deleted => ChangeKind::Deleted,
    };
    ChangedPath { path, kind, written: false }
}

/// Copies names of a disk into a tree; answers how the disk tells apart what it sent.
async fn copy_out(
    disks: &mut dyn Disks,
    number: usize,
    names: Names,
    into: &Path,
    scratch: &Scratch,
    ids_max: u32,
) -> Result<Identities, EngineError> {
    let staging = folder(&scratch.root, &format!("staging-{number}"))?;
    let (into, bounds) = (into.to_owned(), scratch.bounds);
    let (send, received) = std::sync::mpsc::channel();
    let take: Take = Box::new(move |input| {
        let (live, staging) = (Root::open(&into), Root::open(&staging));
        let (live, staging) = (live.map_err(explained)?, staging.map_err(explained)?);
        let mut known = Identities::new();
        let mut adjust = |path: &[u8], node: &mut Node| {
            known.extend(node.identity.map(|identity| (path.to_vec(), identity)));
            outward(node, ids_max)
        };
        carry::receive(&live, &staging, input, bounds, &mut adjust).map_err(explained)?;
        // Whoever does not wait any more does not miss it.
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

/// A node of a disk as the pool keeps it. Ids from `ids_max` on are refused.
fn outward(node: &mut Node, ids_max: u32) -> io::Result<()> {
    for id in [&mut node.uid, &mut node.gid] {
        let shifted = if *id < ids_max { id.checked_add(UID_SHIFT) } else { None };
        *id = shifted.ok_or_else(|| io::Error::other(format!("nobody can be owner {id} here")))?;
    }
    let attributes = std::mem::take(&mut node.attributes);
    let known =
        attributes.into_iter().filter(|(name, _)| ATTRIBUTES.iter().any(|known| name.starts_with(known)));
    node.attributes = known
        .filter_map(|(name, value)| Some((name.clone(), shift_attribute(&name, &value, UID_SHIFT)?)))
        .collect();
    Ok(())
}

/// The way back.
fn inward(node: &mut Node) {
    node.uid = node.uid.saturating_sub(UID_SHIFT);
    node.gid = node.gid.saturating_sub(UID_SHIFT);
    let attributes = std::mem::take(&mut node.attributes);
    node.attributes = attributes
        .into_iter()
        .filter_map(|(name, value)| Some((name.clone(), unshift_attribute(&name, &value, UID_SHIFT)?)))
        .collect();
}

/// An error of a tree where only one of IO fits, with what caused it.
fn explained(error: TreeError) -> io::Error {
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    io::Error::other(cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")))
}

/// All names that a file has in a part of a tree, which are all that it has: see [`burrow_trees::survey`].
pub(crate) struct InPart {
    names: HashMap<(u64, u64), Vec<Vec<u8>>>,
    root: Root,
}

impl InPart {
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

impl InPart {
    /// A file that was sent under one name has been told apart by that one only.
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

impl OtherNames for InPart {
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
    fn a_node_comes_out_and_goes_back_as_it_was_without_what_concerns_hosts() {
        let capability: Vec<u8> =
            [0x0200_0001_u32, 1 << 13, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
        let kept = [("user.note", &b"x"[..]), ("security.capability", &capability)];
        let plain = node(1000, &kept);
        let mut there =
            node(1000, &[&kept[..], &[("security.ima", b"x"), ("system.nfs4_acl", b"x")]].concat());
        outward(&mut there, UID_COUNT).unwrap();
        assert_eq!((there.uid, there.gid), (UID_SHIFT + 1000, UID_SHIFT + 7));
        assert_ne!(there.attributes, plain.attributes);
        inward(&mut there);
        assert_eq!(there, plain);
        outward(&mut node(UID_COUNT, &[]), u32::MAX).unwrap();
        assert!(outward(&mut node(UID_COUNT, &[]), UID_COUNT).is_err());
        assert!(outward(&mut node(u32::MAX, &[]), u32::MAX).is_err());
        // What is no capability is left behind, not refused: whoever wrote it made it so.
        let mut odd = node(0, &[("security.capability", b"rubbish")]);
        outward(&mut odd, UID_COUNT).unwrap();
        assert!(odd.attributes.is_empty());
    }

    #[tokio::test]
    async fn all_names_of_a_file_are_found_in_its_part() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("one"), "").unwrap();
        std::fs::write(tree.path().join("alone"), "").unwrap();
        std::fs::hard_link(tree.path().join("one"), tree.path().join("two")).unwrap();
        let part = InPart::read(tree.path().to_owned()).await.unwrap();
        let mut names = part.names_of(b"/two").unwrap();
        names.sort();
        assert_eq!(names, [b"/one".to_vec(), b"/two".to_vec()]);
        assert_eq!(part.names_of(b"/alone").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(part.names_of(b"/missing").unwrap(), Vec::<Vec<u8>>::new());
    }
}
