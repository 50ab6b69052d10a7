//! The handle of an open catalog, and its two ways to the database.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use burrow_model::TenantId;
use rusqlite::Connection;

use crate::CatalogError;
use crate::feed::Feed;
use crate::key_cache::KeyCache;
use crate::port_cache::PortCache;
use crate::reader::Readers;
use crate::token_cache::TokenGenerations;
use crate::writer::{WriteMode, Writer};

/// The catalog. Cheap to clone; dropping the last clone closes it and waits for queued changes.
#[derive(Clone)]
pub struct Catalog {
    pub(crate) inner: Arc<Inner>,
}

/// The parts that the clones of a catalog share.
pub(crate) struct Inner {
    // Dropped in this order: readers close before the writer, so that the writer can truncate the log; the lock is released
    // last.
    pub(crate) readers: Option<Readers>,
    pub(crate) writer: Writer,
    pub(crate) keys: Arc<KeyCache>,
    pub(crate) ports: Arc<PortCache>,
    pub(crate) tokens: Arc<TokenGenerations>,
    pub(crate) events: Arc<Feed>,
    pub(crate) egress: Arc<Feed>,
    pub(crate) default_tenant: TenantId,
    /// Identifies this run of the daemon, to recognise entries of earlier runs.
    pub(crate) boot: String,
    pub(crate) path: Option<PathBuf>,
    pub(crate) _lock: Option<File>,
}

impl Catalog {
    /// The tenant that was created with the catalog.
    pub fn default_tenant(&self) -> TenantId {
        self.inner.default_tenant.clone()
    }

    pub(crate) async fn write<T, F>(&self, manner: WriteMode, work: F) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, CatalogError> + Send + 'static,
    {
        self.inner.writer.write(manner, work).await
    }

    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, CatalogError> + Send + 'static,
    {
        match &self.inner.readers {
            Some(readers) => readers.read(work).await,
            None => self.inner.writer.alone(move |connection| work(connection)).await,
        }
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("path", &self.inner.path).finish_non_exhaustive()
    }
}
