//! btrfs: subvolumes, snapshots, simple quotas.
