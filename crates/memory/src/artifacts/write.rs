//! Writes artifacts: first the content, then the row that refers to it.

use rusqlite::params;
use serde_json::Value;

use super::hash::Proof;
use super::room::{SpaceUsage, UploadInProgress, used};
use super::rows::{NAMES, StoredArtifact, find, head};
use super::store::Body;
use super::{ARTIFACTS_MAX, Artifact, NewArtifact, check_name};
use crate::newest::links;
use crate::shown::shown;
use crate::space::chain::BranchNo;
use crate::space::growth::{Growth, file_bytes};
use crate::space::load::{integer, unsigned};
use crate::space::writer::{LogKind, Writer};
use crate::{MemoryError, View};

impl View {
    /// Stores content under a name: a new artifact, or the next version of the existing one.
    ///
    /// The body is read to its end with constant RAM. A future that is dropped while the body is read
    /// leaves nothing. One that is dropped later leaves the complete artifact, or an object that the next sweep removes. The upload
    /// is refused at the byte that exceeds the space's quota or the disk.
    pub async fn artifact_put(&self, new: NewArtifact, body: Body) -> Result<Artifact, MemoryError> {
        new.check()?;
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        let space = &self.of().space;
        let mut arriving = self.blob_store().room().arriving(space, self.used().await?);
        let incoming = self.blob_store().receive(&new.name, body, &mut arriving).await?;
        if let Err(error) = self.settle(&arriving).await {
            self.blob_store().discard(&incoming).await;
            return Err(error);
        }
        // A separate task: if it were dropped midway, the row could be committed after the lock was released.
        let view = self.clone();
        let placed = tokio::spawn(async move {
            let _placing = view.blob_store().placing().await;
            if let Err(error) = view.blob_store().place(&incoming).await {
                view.blob_store().discard(&incoming).await;
                return Err(error);
            }

            let stored = view.write(move |writer| insert(writer, &new, &incoming.proof)).await;
            drop(arriving);
            stored
        });
        placed.await.map_err(|_| MemoryError::Panicked)?
    }

    /// Whether this many more bytes would fit into the space and on the disk now.
    pub async fn artifact_room(&self, bytes: u64) -> Result<(), MemoryError> {
        self.blob_store().room().check(&self.of().space, self.used().await?, bytes)
    }

    /// Refuses to add to a sandbox's own memory that has reached the sandbox's disk limit.
    pub async fn check_quota(&self) -> Result<(), MemoryError> {
        if self.quota_bytes.is_none() { Ok(()) } else { self.used().await?.check_sandbox(1) }
    }

    /// The last check, because other uploads may have ended meanwhile.
    async fn settle(&self, arriving: &UploadInProgress) -> Result<(), MemoryError> {
        let in_flight = arriving.in_flight();
        arriving.settle(self.used().await?, in_flight)
    }

    async fn used(&self) -> Result<SpaceUsage, MemoryError> {
        let (path, sandbox_max) = (self.shared.slots.path(&self.of.space), self.quota_bytes);
        self.read(move |reader| {
            let artifacts = used(reader.connection())?;
            let file = file_bytes(reader.connection(), &path)?;
            Ok(SpaceUsage { artifacts, file, sandbox_max })
        })
        .await
    }

    /// Forgets an artifact with all its versions. Its content is removed once no other branch and no snapshot refers to it.
    pub async fn artifact_forget(&self, name: &str) -> Result<(), MemoryError> {
        check_name(name)?;
        let name = name.to_owned();
        self.write_as(Growth::Frees, 1, move |writer| forget(writer, &name)).await
    }
}

fn insert(writer: &mut Writer<'_>, new: &NewArtifact, proof: &Proof) -> Result<Artifact, MemoryError> {
    let metadata = (!new.metadata.is_empty()).then(|| Value::Object(new.metadata.clone()).to_string());
    if !proof.list().is_empty() {
        writer
            .connection()
            .prepare_cached(
                "INSERT INTO artifact_blocks (hash, blocks) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            )?
            .execute(params![proof.hash.as_bytes(), proof.list()])?;
    }
    let row = NewRow {
        name: &new.name,
        hash: proof.hash.as_bytes(),
        bytes: proof.bytes,
        media_type: &new.media_type,
        metadata: metadata.as_deref(),
    };
    append(writer, &row)
}

/// Adds a version of another branch of this space to this branch: the same content, another row.
pub(crate) fn adopt(writer: &mut Writer<'_>, stored: &StoredArtifact) -> Result<Artifact, MemoryError> {
    let (Some(hash), false) = (&stored.hash, stored.released) else {
        return Err(MemoryError::BlobGone { name: shown(&stored.name), version: stored.version });
    };
    let row = NewRow {
        name: &stored.name,
        hash,
        bytes: stored.bytes,
        media_type: &stored.media_type,
        metadata: stored.metadata.as_deref(),
    };
    append(writer, &row)
}

struct NewRow<'a> {
    name: &'a str,
    hash: &'a [u8],
    bytes: u64,
    media_type: &'a str,
    metadata: Option<&'a str>,
}

fn append(writer: &mut Writer<'_>, new: &NewRow<'_>) -> Result<Artifact, MemoryError> {
    let links = links(writer.chain());
    let before = head(writer.connection(), &links, new.name)?;
    if before.as_ref().is_none_or(|stored| stored.hash.is_none()) {
        check_room(writer, &links)?;
    }
    let version = before.map_or(0, |stored| stored.version) + 1;
    let (seq, at_ms) = writer.next(LogKind::Artifact)?;
    writer
        .connection()
        .prepare_cached(
            "INSERT INTO artifacts (seq, branch, name, version, at_ms, hash, bytes, media_type, metadata, released)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0)",
        )?
        .execute(params![
            integer(seq),
            writer.branch(),
            new.name,
            integer(version),
            integer(at_ms),
            new.hash,
            integer(new.bytes),
            new.media_type,
            new.metadata
        ])?;
    find(writer.connection(), &links, new.name, None)?.artifact()
}

/// Counting walks over all names, so it is done only if there are many rows.
fn check_room(writer: &Writer<'_>, links: &[(BranchNo, u64)]) -> Result<(), MemoryError> {
    let connection = writer.connection();
    let rows =
        connection.prepare_cached("SELECT count(*) FROM artifacts")?.query_row((), |row| unsigned(row, 0))?;
    if rows < ARTIFACTS_MAX {
        return Ok(());
    }
    let mut count = 0;
    NAMES.walk(connection, "", None, |name| {
        count += u64::from(head(connection, links, name)?.is_some_and(|stored| stored.hash.is_some()));
        Ok::<_, MemoryError>(count < ARTIFACTS_MAX)
    })?;
    if count >= ARTIFACTS_MAX {
        return Err(MemoryError::Full { what: "an artifact", max: ARTIFACTS_MAX });
    }
    Ok(())
}

pub(crate) fn forget(writer: &mut Writer<'_>, name: &str) -> Result<(), MemoryError> {
    let stored = find(writer.connection(), &links(writer.chain()), name, None)?;
    let (seq, at_ms) = writer.next(LogKind::Artifact)?;
    writer
        .connection()
        .prepare_cached(
            "INSERT INTO artifacts (seq, branch, name, version, at_ms, hash, bytes, media_type, metadata, released)
             VALUES (?1, ?2, ?3, ?4, ?5, NULL, 0, '', NULL, 1)",
        )?
        .execute(params![integer(seq), writer.branch(), name, integer(stored.version), integer(at_ms)])?;
    Ok(())
}
