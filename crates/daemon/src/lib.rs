//! `burrow serve`: configuration, authentication, the REST surface, metrics, logs, and the wiring of the seams.
//!
//! What is absent: SQL, system calls beyond files and sockets, and decisions about sandboxes, which are the engine's.

mod admin_key;
mod audit;
mod clearing;
mod code;
pub mod config;
mod convert;
mod e2b;
mod egress;
mod epoch;
mod gateway;
mod guest_binary;
mod image;
mod memory;
mod metrics;
mod openapi;
mod own;
mod rest;
mod restore;
mod runtimes;
mod server;
mod ssh;
mod telemetry;
#[cfg(test)]
mod testing;
mod vault;
mod wiring;

pub use clearing::Clearing;
pub use config::{Config, ConfigError};
pub use epoch::EpochError;
pub use memory::MemorySetupError;
pub use openapi::openapi;
pub use restore::{RestoreError, Restored, restore};
pub use server::TlsError;
pub use wiring::{ServeError, ServeOptions, run};

/// Processes the daemon starts of its own program.
pub mod roles {
    /// Starts machines; see the container driver. Call it before any thread starts.
    pub use burrow_runtime::container::launcher_main as launcher;

    /// The first argument of the egress process.
    pub const EGRESS: &str = crate::egress::ROLE;

    /// Lets sandboxes out, as far as their policies go. Call it before any thread starts; it does not come back.
    pub fn egress() -> ! {
        burrow_egress::process::main(burrow_egress::process::confine)
    }

    /// Ends the egress process of the daemon that used this run directory, which must not run any more. For
    /// uninstalling.
    pub async fn end_egress(run_dir: &std::path::Path) -> Result<(), String> {
        crate::egress::end(run_dir).await.map_err(|error| error.to_string())
    }
}

/// What `burrow doctor` asks.
pub mod probes {
    pub use burrow_network::linux::{Unable as NetworkUnable, probe as network};
    pub use burrow_runtime::container::bounds::{BOUNDS, Standing};
    pub use burrow_volumes::btrfs::{
        Backing as PoolBacking, Finding as VolumesFinding, Problem as VolumesProblem, probe as volumes,
    };

    pub use crate::wiring::POOL_FILE;
}
