//! Comparisons and merges of the trees of sandboxes, snapshots and images.

pub(crate) mod diff;
pub(crate) mod disks;
pub(crate) mod held_tree;
pub(crate) mod held_trees;
pub(crate) mod merge;
pub(crate) mod merge_work;
