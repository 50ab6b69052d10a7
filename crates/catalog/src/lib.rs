//! The durable state: sandboxes, execs, keys, images, the operation journal and events, in SQLite.
//!
//! ```text
//!            ┌─ write ─► one thread, one connection: batches of jobs, one commit each (writer)
//!  Catalog ──┤
//!            └─ read ──► a few threads with read-only connections (reader)
//! ```
//!
//! Acknowledged means durable: a method that changes something returns after the commit is synced. (For records of execs
//! and for events: when they would survive the death of this process; a power failure ends the processes anyway.)
//! Dropping the future of a queued change does not cancel the change.
//!
//! Every row has a tenant, and lookups for a caller include the tenant: the id of another tenant gives the same answer as
//! an unknown one. This crate contains no decisions and no clock. It stores and answers.

mod catalog;
mod connection;
mod egress;
mod epoch;
mod error;
mod events;
mod execs;
mod family;
mod feed;
mod former_secrets;
mod id_prefix;
mod idempotency;
mod images;
mod key_cache;
mod keys;
mod layers;
mod limits;
mod merges;
mod migrate;
mod moving;
mod opening;
mod operations;
mod page;
mod page_query;
mod port_cache;
mod ports;
mod races;
mod reader;
mod reserve;
mod rows;
mod sandboxes;
mod search;
mod secrets;
mod settings;
mod snapshots;
mod spaces;
mod ssh_keys;
mod tenants;
mod token_cache;
mod token_generations;
mod transforms;
mod upkeep;
mod volumes;
mod warm_pool;
mod writer;

pub use catalog::Catalog;
pub use egress::{EGRESS_KEPT, EGRESS_KEPT_MS, EgressFilter, EgressKind, EgressRow, EgressVerdict};
pub use epoch::Epoch;
pub use error::CatalogError;
pub use execs::{EXECS_KEPT, PROMISE, UNREMEMBERED};
pub use family::FAMILY_MAX;
pub use former_secrets::{FORMER_KEPT_MS, FORMER_MAX, FormerSecretRow};
pub use idempotency::{IDEMPOTENCY_KEPT_MS, Idempotency, IdempotencyState};
pub use keys::KeySecret;
pub use limits::{SECRETS_MAX, SPACES_MAX, SSH_KEYS_MAX, SSH_KEYS_OF_KEY_MAX, VOLUMES_MAX};
pub use merges::{MergeRow, MergeState};
pub use migrate::VERSION;
pub use page::{PAGE_LIMIT_MAX, Page, PageRequest};
pub use ports::{PUBLISHED_MAX, PublishResult};
pub use races::{RACES_KEPT, RaceRow};
pub use rows::{
    EventRow, ExecRow, ExecState, ImageRow, InsertResult, KeyRow, LayerRow, Lineage, NewEvent, NewKey,
    OperationRow, SandboxChange, SandboxFilter, SandboxRow, SnapshotFilter, SnapshotRow,
};
pub use secrets::{AuthorityRow, PlaceholderRow, SealedValue, SecretRow, SecretStoreResult};
pub use snapshots::{LINEAGE_MAX, SnapshotTotals};
pub use spaces::{SpaceChange, SpaceRow, SpaceUsers};
pub use ssh_keys::SshKeyRow;
pub use transforms::TransformsRow;
pub use upkeep::Size;
pub use volumes::{VolumeRow, VolumeSnapshotRow, VolumeUser};
pub use warm_pool::WarmRow;
