//! How many rows of each kind a tenant can have.

/// The maximum number of secrets of one tenant: a list shows all of them.
pub const SECRETS_MAX: usize = 1_000;

/// The maximum number of named spaces of one tenant: a list, a backup and a sweep process all of them.
pub const SPACES_MAX: usize = 10_000;

/// The maximum of one tenant.
pub const SSH_KEYS_MAX: u64 = 1000;

/// The maximum of one API key.
pub const SSH_KEYS_OF_KEY_MAX: u64 = 64;

/// The maximum number of volumes of one tenant: a start, a backup and a sweep process all of them.
pub const VOLUMES_MAX: usize = 10_000;
