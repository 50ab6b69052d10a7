//! The tree of a tenant's sandboxes and snapshots: what came from what.

use std::collections::{HashMap, HashSet};

use burrow_catalog::SandboxRow;
use burrow_model::{SandboxId, Snapshot, SnapshotId};

/// A sandbox or a snapshot, and where it came from.
#[derive(Clone, Debug)]
pub struct TreeNode {
    pub what: TreeItem,
    /// Index of its parent node; nodes come after their parents.
    pub parent: Option<usize>,
}

#[derive(Clone, Debug)]
pub enum TreeItem {
    Sandbox(Box<SandboxRow>),
    Snapshot(Box<Snapshot>),
}

/// Builds the tree: the parent of a sandbox is the snapshot it was created from, the parent of a snapshot its sandbox.
pub(super) fn build_tree(sandboxes: Vec<SandboxRow>, snapshots: Vec<Snapshot>) -> Vec<TreeNode> {
    let alive: HashSet<SandboxId> = sandboxes.iter().map(|row| row.id.clone()).collect();
    let known: HashSet<SnapshotId> = snapshots.iter().map(|snapshot| snapshot.id.clone()).collect();
    let mut children: HashMap<String, Vec<TreeItem>> = HashMap::new();
    let mut roots = Vec::new();
    for row in sandboxes {
        let parent = row.origin.as_ref().map(|origin| &origin.snapshot).filter(|id| known.contains(id));
        let key = parent.map(ToString::to_string);
        let item = TreeItem::Sandbox(Box::new(row));
        match key {
            Some(key) => children.entry(key).or_default().push(item),
            None => roots.push(item),
        }
    }
    for snapshot in snapshots {
        let key = snapshot.sandbox.to_string();
        let hangs = alive.contains(&snapshot.sandbox);
        let item = TreeItem::Snapshot(Box::new(snapshot));
        if hangs {
            children.entry(key).or_default().push(item);
        } else {
            roots.push(item);
        }
    }
    let mut nodes: Vec<TreeNode> = Vec::new();
    let mut open: Vec<(TreeItem, Option<usize>)> = roots.into_iter().rev().map(|item| (item, None)).collect();
    while let Some((what, parent)) = open.pop() {
        let key = match &what {
            TreeItem::Sandbox(row) => row.id.to_string(),
            TreeItem::Snapshot(snapshot) => snapshot.id.to_string(),
        };
        let index = nodes.len();
        nodes.push(TreeNode { what, parent });
        let below = children.remove(&key).unwrap_or_default();
        open.extend(below.into_iter().rev().map(|item| (item, Some(index))));
    }
    nodes
}
