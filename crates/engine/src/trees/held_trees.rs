//! Trees for comparisons, held unchanged: of images, of snapshots, and of sandboxes at one moment. And their common ancestor.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use burrow_catalog::SandboxRow;
use burrow_disks::{DiskError, DiskId, Tree};
use burrow_model::{Image, ImageId, SandboxId, Snapshot, SnapshotId, State, TenantId};

use super::held_tree::HeldTree;
use crate::actor::command::{Command, Reply, StateCommand};
use crate::shared::Shared;
use crate::snapshots::pins::Pins;
use crate::{EngineError, ObjectKind};

/// Ancestors that are followed at most: more than one sandbox and some of its ancestors have snapshots.
const ANCESTORS_MAX: usize = 4_000;

/// Something that can be compared.
#[derive(Clone, Debug)]
pub enum TreeSource {
    Sandbox(Box<SandboxRow>),
    Snapshot(Box<Snapshot>),
    Image(Box<Image>),
}

impl TreeSource {
    pub fn id(&self) -> &str {
        match self {
            Self::Sandbox(row) => row.id.as_str(),
            Self::Snapshot(snapshot) => snapshot.id.as_str(),
            Self::Image(image) => image.id.as_str(),
        }
    }
}

/// Holds a tree. The tree of a sandbox is copied by its actor between two operations, so that the copy never has half of a merge.
/// An actor must not call this for its own sandbox; see [`freeze`].
pub(crate) async fn hold(shared: &Arc<Shared>, of: &TreeSource) -> Result<HeldTree, EngineError> {
    match of {
        TreeSource::Sandbox(row) => {
            between_operations(shared, &row.id, |reply| StateCommand::Freeze { reply }).await
        }
        TreeSource::Snapshot(snapshot) => pinned(shared, Tree::Snapshot(snapshot.id.clone())).await,
        TreeSource::Image(image) => pinned(shared, Tree::Image(image.id.clone())).await,
    }
}

/// Copies a sandbox's tree at this moment, without what its machine has not written yet; see [`settle`]. Only for the task that carries
/// out its operations.
pub(crate) async fn freeze(shared: &Arc<Shared>, row: &SandboxRow) -> Result<HeldTree, EngineError> {
    let disks = &shared.seams.disks;
    let frozen = SnapshotId::generate();
    disks.snapshot(DiskId::Frozen(frozen.clone()), (&row.id).into()).await?;
    Ok(HeldTree::frozen(disks.clone(), frozen).await?)
}

/// Holds a tree that does not change by itself.
pub(crate) async fn pinned(shared: &Arc<Shared>, tree: Tree) -> Result<HeldTree, EngineError> {
    let pin = match &tree {
        Tree::Snapshot(id) => Some(Pins::pin(&shared.pins, id).await),
        Tree::Image(_) | Tree::Frozen(_) => None,
    };
    let path = match shared.seams.disks.locate((&tree).into()).await {
        Err(DiskError::NotFound { disk: DiskId::Snapshot(snapshot) }) => {
            return Err(EngineError::NotFound { kind: ObjectKind::Snapshot, what: snapshot.to_string() });
        }
        located => located?,
    };
    Ok(HeldTree::pinned(tree, path, shared.seams.disks.clone(), pin))
}

/// Makes a sandbox's actor copy its files, between two of its operations. An actor must not call this for its own sandbox.
async fn between_operations<T>(
    shared: &Arc<Shared>,
    id: &SandboxId,
    command: impl FnOnce(Reply<T>) -> StateCommand,
) -> Result<T, EngineError> {
    match shared.registry.get(id) {
        Some(actor) => actor.ask(|reply| Command::State(command(reply))).await,
        None => Err(match shared.recovering.reason(id) {
            Some(reason) => EngineError::Recovering { id: id.clone(), reason },
            None => EngineError::Gone { id: id.clone() },
        }),
    }
}

/// Makes a writable copy of a sandbox's files, to make an image of it; returns its path.
pub(crate) async fn stage_image(
    shared: &Arc<Shared>,
    image: &ImageId,
    of: &SandboxId,
) -> Result<PathBuf, EngineError> {
    let image = image.clone();
    between_operations(shared, of, |reply| StateCommand::StageImage { image, reply }).await
}

/// Flushes what its processes have written to a disk that only its machine has mounted. If the machine does not respond, the disk is
/// as after a power failure: its file system has a journal.
pub(crate) async fn settle(shared: &Shared, row: &SandboxRow) {
    if row.state != State::Running {
        return;
    }
    let settled = async {
        match shared.runtime(&row.spec.driver)?.own_disks() {
            Some(disks) => Ok::<_, EngineError>(disks.settle_files(&row.id).await?),
            None => Ok(()),
        }
    };
    if let Err(error) = settled.await {
        tracing::warn!(
            sandbox = %row.id, error = &error as &dyn std::error::Error,
            "a machine could not flush its files: the copy of its disk may lack recent writes"
        );
    }
}

/// The ancestors of a tree, nearest first, beginning with the tree itself if it does not change.
pub(crate) async fn ancestors(
    shared: &Shared,
    tenant: &TenantId,
    of: &TreeSource,
) -> Result<Vec<Tree>, EngineError> {
    let catalog = &shared.seams.catalog;
    let (mut next, image): (Option<SnapshotId>, &ImageId) = match of {
        TreeSource::Sandbox(row) => {
            let latest = catalog.latest_snapshot_of(&row.id).await?.map(|latest| latest.id);
            (latest.or_else(|| row.origin.as_ref().map(|origin| origin.snapshot.clone())), &row.image)
        }
        TreeSource::Snapshot(snapshot) => (Some(snapshot.id.clone()), &snapshot.image),
        TreeSource::Image(image) => (None, &image.id),
    };
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut image = image.clone();
    while let Some(id) = next.take() {
        if found.len() >= ANCESTORS_MAX || !seen.insert(id.clone()) {
            break;
        }
        // A removed snapshot has no ancestors; its image is all that is left.
        let Some(snapshot) = catalog.snapshot(tenant, &id).await? else { break };
        found.push(Tree::Snapshot(id));
        image = snapshot.image;
        next = snapshot.parent;
    }
    // A fork's own image is its parent's, so both lines end in the same image.
    found.push(Tree::Image(image));
    Ok(found)
}

/// The nearest common ancestor of two trees.
pub(crate) async fn common(
    shared: &Shared,
    tenant: &TenantId,
    one: &TreeSource,
    other: &TreeSource,
) -> Result<Option<Tree>, EngineError> {
    let others: HashSet<Tree> = ancestors(shared, tenant, other).await?.into_iter().collect();
    Ok(ancestors(shared, tenant, one).await?.into_iter().find(|tree| others.contains(tree)))
}
