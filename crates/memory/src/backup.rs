//! Copies for backups: of a space's file while it is in use, and of the contents of artifacts.

use std::path::{Path, PathBuf};

use burrow_model::SpaceId;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStoreExt as _;
use object_store::path::Path as Place;
use rusqlite::{Connection, OpenFlags};

use crate::artifacts::Body;
use crate::{Memory, MemoryError, blocking};

/// The content of one artifact, wherever it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// `<2 digits>/<hash>`.
    pub place: String,
    pub bytes: u64,
}

impl Memory {
    /// Writes a copy of a space as it is at one moment, while others read and write it. False: it holds nothing, and
    /// there is no file of it.
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

    /// The contents of all artifacts of all spaces, those that nobody refers to any more among them.
    pub async fn blobs(&self) -> Result<Vec<Blob>, MemoryError> {
        let failed = |source| MemoryError::Blob { doing: "list", source };
        let listed = self.shared.artifacts.store().list(None);
        let all: Vec<_> = listed.try_collect().await.map_err(failed)?;
        let ours = all.into_iter().filter(|found| crate::artifacts::is_content(&found.location));
        Ok(ours.map(|found| Blob { place: found.location.to_string(), bytes: found.size }).collect())
    }

    /// One of them. `None`: it was removed meanwhile.
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
