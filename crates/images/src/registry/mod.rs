//! Pulls images from OCI registries.
//!
//! [`Puller::resolve`] fetches manifest and configuration, which describe an image completely; then [`Puller::fetch`]
//! downloads the layers that are not known yet. Dropping a future ends its work.

mod blob;
mod challenge;
mod connect;
mod credentials;
mod http;
mod session;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_dial::tls_connector;
use futures_util::StreamExt;
use tokio_rustls::TlsConnector;

use self::connect::TargetPolicy;
use self::credentials::Login;
pub use self::credentials::{Credentials, Secret};
use self::http::Http;
use self::session::{Base, Session, Tokens};
use crate::manifest::{self, Document};
use crate::{CONFIG_BYTES_MAX, Digest, ImageError, ImageSpec, Platform, Reference};

/// Layers downloaded at a time, as in other tools: registries limit connections.
const AT_ONCE: usize = 3;

/// The maximum nesting of indexes; tools create none in registries.
const DEPTH_MAX: u32 = 3;

/// How registries are accessed.
#[derive(Clone, Debug)]
pub struct PullerOptions {
    pub credentials: Credentials,
    /// Allows plain HTTP if HTTPS does not work. Always allowed for loopback.
    pub insecure: bool,
    /// Certificates of private authorities in PEM form, in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// The platform to choose from images for several.
    pub platform: Platform,
}

/// Pulls from any number of registries; keeps connections and tokens.
pub struct Puller {
    options: PullerOptions,
    tls: TlsConnector,
    http: Http,
    tokens: Tokens,
    bases: tokio::sync::Mutex<HashMap<String, Base>>,
}

/// An image in a registry: its documents, whose digests were verified.
#[derive(Clone, Debug)]
pub struct ResolvedImage {
    pub reference: Reference,
    pub spec: ImageSpec,
}

/// How layers are downloaded.
#[derive(Clone)]
pub struct FetchOptions {
    /// The directory for layers, which are named by the hexadecimal digits of their digest; existing ones are used.
    pub cache: PathBuf,
    /// Keeps the files when [`FetchedLayers`] is dropped.
    pub keep: bool,
    pub progress: Arc<dyn Fn(Progress) + Send + Sync>,
}

/// The progress of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Counted from 0, in the image.
    pub layer: usize,
    pub done: u64,
    pub total: u64,
}

/// Downloaded layers, verified and on disk. Dropping it removes them, unless they are kept.
#[derive(Debug)]
pub struct FetchedLayers {
    files: Vec<(usize, PathBuf)>,
    keep: bool,
}

impl fmt::Debug for FetchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchOptions").field("cache", &self.cache).field("keep", &self.keep).finish()
    }
}

impl fmt::Debug for Puller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Puller").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Puller {
    /// Reads certificates, which takes some milliseconds.
    pub fn new(options: PullerOptions) -> Result<Self, ImageError> {
        let tls = tls_connector(options.ca_file.as_deref())?;
        let http = Http::new(&tls);
        Ok(Self { options, tls, http, tokens: Tokens::default(), bases: tokio::sync::Mutex::default() })
    }

    /// Fetches the description of an image: manifest, platform, configuration.
    pub async fn resolve(&self, reference: &Reference) -> Result<ResolvedImage, ImageError> {
        let session = self.session(reference).await?;
        let of = reference.to_string();
        let host = &self.options.platform;
        let mut fetched = session.manifest(&reference.wanted(), reference.digest()).await?;
        let mut depth = 0;
        let manifest = loop {
            match manifest::parse(&fetched.bytes, &of, fetched.media_type.as_deref())? {
                Document::Manifest(manifest) => break manifest,
                Document::Index(_) if depth == DEPTH_MAX => {
                    let reason = "indexes are nested too deeply";
                    return Err(ImageError::Document { document: "index", of, reason });
                }
                Document::Index(manifests) => {
                    let chosen = manifest::choose(&manifests, host, &of)?;
                    fetched = session.manifest(&chosen.digest.to_string(), Some(chosen.digest)).await?;
                    depth += 1;
                }
            }
        };
        let config = session.blob(manifest.config.digest, manifest.config.size, CONFIG_BYTES_MAX).await?;
        let config = manifest::parse_config(&config, &of)?;
        let spec = manifest::assemble(fetched.digest, &manifest, config, host, &of)?;
        Ok(ResolvedImage { reference: reference.clone(), spec })
    }

    /// Downloads the layers with these indices (from 0), a few at a time.
    ///
    /// # Panics
    ///
    /// If an index is not one of the image's layers.
    pub async fn fetch(
        &self,
        resolved: &ResolvedImage,
        layers: &[usize],
        options: &FetchOptions,
    ) -> Result<FetchedLayers, ImageError> {
        let session = self.session(&resolved.reference).await?;
        let mut fetched = FetchedLayers { files: Vec::new(), keep: options.keep };
        // An image may contain the same layer twice; it is stored in one file.
        let mut once: Vec<(usize, Digest)> = Vec::new();
        for &index in layers {
            let Some(digest) = resolved.spec.layers[index].digest else { continue };
            if !once.iter().any(|(_, known)| *known == digest) {
                once.push((index, digest));
            }
        }
        let session = &session;
        let mut downloads = futures_util::stream::iter(once)
            .map(|(index, digest)| async move {
                let path = blob::download(session, index, &resolved.spec.layers[index], options).await?;
                Ok::<_, ImageError>((digest, path))
            })
            .buffer_unordered(AT_ONCE);
        while let Some(downloaded) = downloads.next().await {
            let (digest, path) = downloaded?;
            for &index in layers.iter().filter(|index| resolved.spec.layers[**index].digest == Some(digest)) {
                fetched.files.push((index, path.clone()));
            }
        }
        Ok(fetched)
    }

    async fn session<'a>(&'a self, reference: &'a Reference) -> Result<Session<'a>, ImageError> {
        let base = self.base(reference.registry()).await?;
        let (credentials, registry) = (self.options.credentials.clone(), reference.registry().to_owned());
        let login = tokio::task::spawn_blocking(move || Login::find(&credentials, &registry)).await;
        let login = login.expect("reading credentials does not panic")?;
        Ok(Session { http: &self.http, tokens: &self.tokens, base, login, reference })
    }

    /// How to access a registry; determined once.
    async fn base(&self, registry: &str) -> Result<Base, ImageError> {
        let mut bases = self.bases.lock().await;
        if let Some(base) = bases.get(registry) {
            return Ok(base.clone());
        }
        // The only registry whose name differs from its address.
        let authority = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
        let plain = self.options.insecure || is_loopback(authority);
        let (host, port) = split(authority);
        let probed = connect::probe(&self.tls, &host, port.unwrap_or(443), plain).await;
        let probed = match (probed, port) {
            // Without an explicit port, plain HTTP uses another one.
            (Err(_), None) if plain => connect::probe(&self.tls, &host, 80, plain).await,
            (probed, _) => probed,
        };
        let probed = probed.map_err(|source| ImageError::Connect { host: authority.to_owned(), source })?;
        let scheme = if probed.encrypted { "https" } else { "http" };
        let elsewhere = if probed.public { TargetPolicy::Public } else { TargetPolicy::Private };
        let base = Base { url: format!("{scheme}://{authority}"), elsewhere };
        bases.insert(registry.to_owned(), base.clone());
        Ok(base)
    }
}

/// Only by name: a name that resolves to loopback now may resolve to another address later.
fn is_loopback(authority: &str) -> bool {
    let (host, _) = split(authority);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The host, without the brackets of IPv6, and the port.
fn split(authority: &str) -> (String, Option<u16>) {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        Some(_) | None => (authority, None),
    };
    (host.trim_start_matches('[').trim_end_matches(']').to_owned(), port)
}

impl FetchedLayers {
    /// The stored bytes of a layer, for [`crate::layer::apply`].
    ///
    /// # Panics
    ///
    /// If the layer was not among those fetched.
    pub fn layer(&self, index: usize) -> Result<File, ImageError> {
        let path = self.path(index);
        File::open(path).map_err(ImageError::io("open", path.display()))
    }

    fn path(&self, index: usize) -> &Path {
        let found = self.files.iter().find(|(layer, _)| *layer == index);
        &found.expect("the caller fetched this layer").1
    }
}

impl Drop for FetchedLayers {
    fn drop(&mut self) {
        if !self.keep {
            for (_, path) in &self.files {
                // On failure the file remains for the next cleanup of the directory.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests;
