//! Why the daemon did not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use burrow_catalog::CatalogError;
use burrow_config::ConfigError;
use burrow_engine::EngineError;
use burrow_http::hints;
use burrow_http::memory::MemorySetupError;

use crate::epoch::EpochError;
use crate::server::TlsError;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("another daemon uses `{}`", .state_dir.display())]
    Running { state_dir: PathBuf },
    #[error("could not {step} `{}`", .path.display())]
    Directory { step: &'static str, path: PathBuf, source: io::Error },
    #[error("could not open the catalog")]
    Catalog { source: CatalogError },
    #[error("could not use the catalog and the pool together")]
    Epoch(#[from] EpochError),
    #[error("could not open the pool")]
    Disks { source: burrow_disks::DiskError },
    #[error("could not open the network")]
    Network { source: burrow_network::NetworkError },
    #[error("could not start the egress process")]
    Egress { source: burrow_egress::EgressError },
    #[error("could not open a runtime driver")]
    Runtime { source: burrow_runtime::RuntimeError },
    #[error("could not open the audit log")]
    Audit { source: burrow_audit::StoreError },
    #[error("could not open memory")]
    Memory {
        #[from]
        source: MemorySetupError,
    },
    #[error("could not open the vault of secrets")]
    Vault { source: burrow_vault::VaultError },
    #[error("could not open the key that signs exports")]
    ExportKey { source: burrow_portable::PortableError },
    #[error("could not install the guest agent `{}` in the pool", .path.display())]
    Guest { path: PathBuf, source: io::Error },
    #[error("could not recover the sandboxes")]
    Engine { source: EngineError },
    #[error("could not write the first admin key to `{}`", .path.display())]
    AdminKey { path: PathBuf, source: io::Error },
    #[error("could not listen on `{address}`")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("could not open the SSH host key")]
    SshHostKey { source: burrow_ssh::KeyFileError },
    #[error("could not prepare TLS")]
    Tls(#[from] TlsError),
    #[error("could not start the daemon's threads")]
    Threads { source: io::Error },
}

impl ServeError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Config(error) => error.hint()?,
            Self::Running { .. } => {
                "stop it first (`burrow down`), or give this one another `state_dir` and `run_dir`"
            }
            Self::Directory { .. } | Self::AdminKey { .. } => "run it as root (`sudo burrow serve`)",
            Self::Catalog { source } => hints::of_catalog(source)?,
            Self::Epoch(error) => error.hint()?,
            Self::Disks { .. } | Self::Network { .. } | Self::Runtime { .. } => {
                "run `burrow doctor` to see what this host lacks"
            }
            Self::Egress { source } => source.hint()?,
            Self::Audit { source } => hints::of_audit(source)?,
            Self::Memory { source } => source.hint()?,
            Self::Vault { source } => source.hint()?,
            Self::ExportKey { .. } => {
                "remove it to create a new one: other hosts then have to trust the new key"
            }
            Self::Guest { .. } => {
                "put `burrow-guest` beside `burrow`, or set `runtime.guest` in the configuration"
            }
            Self::Engine { source } => hints::of_engine(source)?,
            Self::Listen { .. } => "another program may use this address; set `listen` in the configuration",
            Self::SshHostKey { .. } => {
                "`ssh_host_ed25519_key` in the state directory must be readable by root only; if it is removed, a new one is created, and clients warn"
            }
            Self::Tls(_) => "check `tls.cert` and `tls.key` in the configuration",
            Self::Threads { .. } => return None,
        };
        Some(text.to_owned())
    }
}
