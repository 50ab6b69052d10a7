//! Copies for backups: the file of a space while it is in use, and the contents of artifacts.

use std::fs;
use std::path::{Path, PathBuf};

use burrow_model::SpaceId;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStoreExt as _;
use object_store::path::Path as Place;
use rusqlite::{Connection, OpenFlags};

use crate::artifacts::Body;
use crate::{Memory, MemoryError, blocking};

/// The content of one artifact, which several spaces may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// `<2 digits>/<hash>`.
    pub place: String,
    pub bytes: u64,
}

impl Memory {
    /// The size of a space's file; a copy is not larger.
    pub fn file_bytes(&self, space: &SpaceId) -> u64 {
        let database = self.shared.slots.path(space);
        let log = database.with_extension("db-wal");
        [database, log].iter().map(|path| fs::metadata(path).map_or(0, |found| found.len())).sum()
    }

    /// Writes a copy of a space at one moment, while it is read and written. Returns false if the space is empty and
    /// has no file.
    pub async fn copy_to(&self, space: &SpaceId, path: &Path) -> Result<bool, MemoryError> {
        let (from, into): (PathBuf, PathBuf) = (self.shared.slots.path(space), path.to_owned());
        blocking(move || {
            if !from.exists() {
                return Ok(false);
            }
            let connection = Connection::open_with_flags(&from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            connection.execute("VACUUM INTO ?", [into.to_string_lossy()])?;
            Ok(true)
        })
        .await
    }

    /// The contents of all artifacts of all spaces, including those without references.
    pub async fn blobs(&self) -> Result<Vec<Blob>, MemoryError> {
        let failed = |source| MemoryError::Blob { doing: "list", source };
        let listed = self.shared.artifacts.store().list(None);
        let all: Vec<_> = listed.try_collect().await.map_err(failed)?;
        let ours = all.into_iter().filter(|found| crate::artifacts::is_content(&found.location));
        Ok(ours.map(|found| Blob { place: found.location.to_string(), bytes: found.size }).collect())
    }

    /// One content. `None` if it was removed meanwhile.
    pub async fn blob(&self, blob: &Blob) -> Result<Option<Body>, MemoryError> {
        match self.shared.artifacts.store().get(&Place::from(blob.place.as_str())).await {
            Ok(found) => {
                Ok(Some(found.into_stream().map(|piece| piece.map_err(std::io::Error::other)).boxed()))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(MemoryError::Blob { doing: "read from", source }),
        }
    }
}
