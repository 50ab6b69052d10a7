//! Converts lineage trees and garbage reports to types of the API.

use burrow_api as api;
use burrow_engine::{GcAction, GcItem, GcObject, TreeItem, TreeNode};

use super::answers::state;
use super::snapshots::snapshot_kind;

pub fn tree_node(node: TreeNode) -> api::TreeNode {
    let parent = node.parent;
    match node.what {
        TreeItem::Sandbox(row) => api::TreeNode {
            kind: api::TreeNodeKind::Sandbox,
            id: row.id.into(),
            name: row.name.map(String::from),
            parent,
            created_ms: row.created_ms,
            state: Some(state(row.state)),
            snapshot_kind: None,
            processes: None,
            sandbox_id: None,
            sandbox_name: None,
        },
        TreeItem::Snapshot(snapshot) => api::TreeNode {
            kind: api::TreeNodeKind::Snapshot,
            id: snapshot.id.into(),
            name: snapshot.name.map(String::from),
            parent,
            created_ms: snapshot.created_ms,
            state: None,
            snapshot_kind: Some(snapshot_kind(snapshot.kind)),
            processes: Some(snapshot.dump.is_some()),
            sandbox_id: Some(snapshot.sandbox.into()),
            sandbox_name: snapshot.sandbox_name.map(String::from),
        },
    }
}

pub fn garbage_item(item: GcItem) -> api::GarbageItem {
    let (action, failure) = match item.action {
        GcAction::Kept => (api::GarbageAction::Keep, None),
        GcAction::WouldRemove | GcAction::Removed => (api::GarbageAction::Remove, None),
        GcAction::Failed(why) => (api::GarbageAction::Remove, Some(why)),
    };
    api::GarbageItem {
        kind: match item.thing {
            GcObject::Sandbox => api::GarbageKind::Sandbox,
            GcObject::Snapshot => api::GarbageKind::Snapshot,
            GcObject::Image => api::GarbageKind::Image,
        },
        id: item.id,
        name: item.name,
        why: item.why,
        bytes: item.bytes,
        action,
        failure,
    }
}
