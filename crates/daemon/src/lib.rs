//! `burrow serve`: configuration, authentication, the REST surface, metrics, logs, and the wiring of the seams.
//!
//! Not included: SQL, system calls beyond files and sockets, and decisions about sandboxes, which the engine makes.

mod admin_key;
mod clearing;
mod egress;
mod epoch;
mod error;
mod front;
mod guest_binary;
mod image;
mod instance;
mod mcp;
mod own_listeners;
mod periodic;
mod restore;
mod router;
mod runtimes;
mod server;
mod ssh;
mod telemetry;
#[cfg(test)]
mod tests;
mod vault;
mod wiring;

pub use burrow_config::{Config, ConfigError, PATH_VARIABLE, Pool};
pub use burrow_http::memory::MemorySetupError;
pub use burrow_rest::openapi;
pub use clearing::ClearingAllocator;
pub use epoch::EpochError;
pub use error::ServeError;
pub use restore::{BackupRestoreReport, RestoreError, restore};
pub use server::TlsError;
pub use wiring::{ServeOptions, run};

/// The roles of processes that the daemon starts from its own program.
pub mod roles {
    /// Starts machines; see the container driver. Call it before any thread starts.
    pub use burrow_runtime::container::launcher_main as launcher;

    /// The first argument of the egress process.
    pub const EGRESS: &str = crate::egress::ROLE;

    /// Connects sandboxes to the outside according to their policies. Call it before any thread starts; it does not
    /// return.
    pub fn egress() -> ! {
        burrow_egress::process::main(burrow_egress::process::confine)
    }

    /// Ends the egress process of the daemon that used this run directory; that daemon must have ended. For
    /// uninstalling.
    pub async fn end_egress(run_dir: &std::path::Path) -> Result<(), String> {
        crate::egress::end(run_dir).await.map_err(|error| error.to_string())
    }
}

/// Probes of the host for `burrow doctor`.
pub mod probes {
    pub use burrow_disks::btrfs::{
        Backing as PoolBacking, Finding as DisksFinding, Problem as DisksProblem, probe as volumes,
    };
    pub use burrow_network::linux::{NetworkUnavailable, probe as network};
    pub use burrow_runtime::container::apparmor;
    pub use burrow_runtime::container::bounds::{BOUNDS, LimitState};

    pub use burrow_config::POOL_FILE;
}
