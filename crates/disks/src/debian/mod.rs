//! Builds the default image from packages of Debian (or of Ubuntu, on its hosts).
//!
//! ```text
//!   sources ──► bootstrap ──► settle ──► shift
//!   whose       mmdebstrap    user,      owners to the
//!   mirror?     fills it      devices    sandboxes' range
//! ```
//!
//! By default, the mirror is the one that the host itself installs from, so that whatever makes `apt` work on the host (a
//! proxy, an internal mirror) works here too. Downloaded packages are kept in a cache.

mod bootstrap;
mod progress;
mod settle;
mod sources;

use std::collections::BTreeMap;
use std::path::PathBuf;

use burrow_model::ImageConfig;

use crate::{DiskError, UID_SHIFT, shift_owners};

pub use progress::{Progress, Stage};
pub use settle::make_devices;
pub use sources::Mirror;

/// Packages of the default image beyond the essential ones: those that coding agents use first.
pub const PACKAGES: [&str; 23] = [
    "attr",
    "build-essential",
    "ca-certificates",
    "curl",
    "file",
    "git",
    "iproute2",
    "iputils-ping",
    "jq",
    "less",
    // Resolves the sandbox's own name, so that `sudo` never waits for a resolver.
    "libnss-myhostname",
    "nano",
    "netbase",
    "openssh-client",
    "procps",
    "python-is-python3",
    "python3",
    "python3-pip",
    "python3-venv",
    // Both sides of a transfer need it: `rsync` over SSH starts it in the sandbox.
    "rsync",
    "sudo",
    "tzdata",
    "unzip",
];

/// What to build, where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The staged `rootfs/`, empty.
    pub rootfs: PathBuf,
    /// Where downloaded packages are kept for the next build.
    pub cache: PathBuf,
    /// Where packages come from; `None`: from the host's own mirror.
    pub mirror: Option<Mirror>,
}

/// A finished image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltImage {
    pub config: ImageConfig,
    pub size_bytes: u64,
}

/// Fills the staged disk. Blocks for a minute or two; ends early with an error when a program fails.
pub fn build(options: &Options, mut progress: impl FnMut(Progress)) -> Result<BuiltImage, DiskError> {
    progress(Progress { stage: Stage::Indexes, percent: 0 });
    let sources = match &options.mirror {
        Some(mirror) => sources::of_mirror(mirror),
        None => sources::of_host()?,
    };
    bootstrap::run(options, &sources, &mut progress)?;
    progress(Progress { stage: Stage::Settle, percent: 95 });
    settle::settle(&options.rootfs, &sources)?;
    let shifted = shift_owners(&options.rootfs, UID_SHIFT)?;
    make_devices(&options.rootfs)?;
    progress(Progress { stage: Stage::Settle, percent: 100 });
    Ok(BuiltImage { config: config(), size_bytes: shifted.bytes })
}

/// The URLs that packages come from; empty if the host's configuration has none. Reads a few files.
pub fn source_urls(mirror: Option<&Mirror>) -> Vec<String> {
    match mirror {
        Some(mirror) => vec![mirror.url.clone()],
        None => sources::urls_of_host(std::path::Path::new("/etc/apt")),
    }
}

fn config() -> ImageConfig {
    let env = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("LANG", "C.UTF-8"),
        // No package may ask questions while an agent works.
        ("DEBIAN_FRONTEND", "noninteractive"),
    ];
    let env =
        env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>();
    ImageConfig { env, ..ImageConfig::default() }
}
