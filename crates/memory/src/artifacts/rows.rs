//! Artifacts as rows: the versions that a branch sees, and which contents are still referenced.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value};

use super::hash::{BlobHash, Proof};
use super::{Artifact, ArtifactRead, Blobs, Part, check_name};
use crate::newest::{Names, links, newest};
use crate::shown::shown;
use crate::space::chain::{BranchNo, Chain};
use crate::space::load::{integer, unsigned};
use crate::{Memory, MemoryError, Page, PageRequest, View};

/// Versions that the list of versions returns, newest first.
const VERSIONS_SHOWN_MAX: usize = 1000;

pub(super) const NAMES: Names = Names {
    from: "SELECT name FROM artifacts WHERE name >= ?1 ORDER BY name LIMIT 1",
    after: "SELECT name FROM artifacts WHERE name > ?1 ORDER BY name LIMIT 1",
};

const COLUMNS: &str = "seq, name, version, at_ms, hash, bytes, media_type, metadata, released";

/// A version in its stored form.
#[derive(Clone, Debug)]
pub(crate) struct StoredArtifact {
    pub(crate) seq: u64,
    pub(crate) name: String,
    pub(crate) version: u64,
    at_ms: u64,
    /// `None`: forgotten.
    pub(crate) hash: Option<Vec<u8>>,
    pub(crate) bytes: u64,
    pub(crate) media_type: String,
    pub(crate) metadata: Option<String>,
    pub(crate) released: bool,
}

impl StoredArtifact {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: unsigned(row, 0)?,
            name: row.get(1)?,
            version: unsigned(row, 2)?,
            at_ms: unsigned(row, 3)?,
            hash: row.get(4)?,
            bytes: unsigned(row, 5)?,
            media_type: row.get(6)?,
            metadata: row.get(7)?,
            released: row.get(8)?,
        })
    }

    fn damaged(&self, why: impl Into<String>) -> MemoryError {
        MemoryError::DamagedRow { what: "artifact", id: shown(&self.name), why: why.into() }
    }

    fn hash(&self) -> Result<BlobHash, MemoryError> {
        let bytes =
            self.hash.as_ref().ok_or_else(|| MemoryError::not_found("artifact", shown(&self.name)))?;
        BlobHash::from_bytes(bytes).ok_or_else(|| self.damaged("its hash is not 32 bytes long"))
    }

    pub(super) fn artifact(&self) -> Result<Artifact, MemoryError> {
        let metadata: Map<String, Value> = match &self.metadata {
            Some(text) => serde_json::from_str(text).map_err(|error| self.damaged(error.to_string()))?,
            None => Map::new(),
        };
        Ok(Artifact {
            hash: self.hash()?.to_string(),
            name: self.name.clone(),
            version: self.version,
            bytes: self.bytes,
            media_type: self.media_type.clone(),
            metadata,
            seq: self.seq,
            at_ms: self.at_ms,
        })
    }

    /// The hashes that verify the content.
    fn proof(&self, connection: &Connection) -> Result<Proof, MemoryError> {
        let hash = self.hash()?;
        let list: Option<Vec<u8>> = connection
            .prepare_cached("SELECT blocks FROM artifact_blocks WHERE hash = ?1")?
            .query_row(params![hash.as_bytes()], |row| row.get(0))
            .optional()?;
        Proof::restore(hash, self.bytes, list.as_deref().unwrap_or_default())
            .ok_or_else(|| self.damaged("the list of block hashes does not match its hash"))
    }
}

/// The newest row of an artifact: its newest version, or the mark that it was forgotten.
pub(super) fn head(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    name: &str,
) -> rusqlite::Result<Option<StoredArtifact>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM artifacts WHERE name = ?1 AND branch = ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    newest(links, |branch, bound| {
        let found = statement.query_row(params![name, branch, bound], StoredArtifact::read).optional()?;
        Ok(found.map(|stored| (stored.seq, stored)))
    })
}

/// The versions since it was last forgotten, newest first.
fn versions(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    name: &str,
    versions_max: usize,
) -> Result<Vec<StoredArtifact>, MemoryError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM artifacts WHERE name = ?1 AND branch = ?2 AND seq <= ?3 ORDER BY seq DESC"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut versions = Vec::new();
    for (branch, bound) in links {
        for stored in statement.query_map(params![name, branch, integer(*bound)], StoredArtifact::read)? {
            let stored = stored?;
            if stored.hash.is_none() || versions.len() == versions_max {
                return Ok(versions);
            }
            versions.push(stored);
        }
    }
    Ok(versions)
}

/// A version, or the newest one.
pub(super) fn find(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    name: &str,
    version: Option<u64>,
) -> Result<StoredArtifact, MemoryError> {
    match version {
        None => head(connection, links, name)?
            .filter(|stored| stored.hash.is_some())
            .ok_or_else(|| MemoryError::not_found("artifact", shown(name))),
        Some(version) => versions(connection, links, name, usize::MAX)?
            .into_iter()
            .find(|stored| stored.version == version)
            .ok_or_else(|| MemoryError::not_found("artifact version", format!("{}@{version}", shown(name)))),
    }
}

/// The number of artifacts of a chain, and the bytes of their newest versions.
pub(crate) fn count(connection: &Connection, chain: &Chain) -> Result<(u64, u64), MemoryError> {
    let links = links(chain);
    let (mut count, mut bytes) = (0, 0);
    NAMES.walk(connection, "", None, |name| {
        if let Some(stored) = head(connection, &links, name)?.filter(|stored| stored.hash.is_some()) {
            count += 1;
            bytes += stored.bytes;
        }
        Ok::<_, MemoryError>(true)
    })?;
    Ok((count, bytes))
}

/// Marks rows whose content no kept chain refers to, because it was forgotten everywhere. Returns how many.
///
/// Rows newer than `before_ms` are kept: a branch that was just created may not be in `kept` yet.
pub(crate) fn release(connection: &Connection, kept: &[Chain], before_ms: u64) -> Result<u64, MemoryError> {
    let mut needed = HashSet::new();
    for chain in kept {
        let links = links(chain);
        NAMES.walk(connection, "", None, |name| {
            needed.extend(versions(connection, &links, name, usize::MAX)?.iter().map(|stored| stored.seq));
            Ok::<_, MemoryError>(true)
        })?;
    }
    let rows: Vec<u64> = connection
        .prepare_cached("SELECT seq FROM artifacts WHERE released = 0 AND hash IS NOT NULL AND at_ms < ?1")?
        .query_map(params![integer(before_ms)], |row| unsigned(row, 0))?
        .collect::<Result<_, _>>()?;
    let mut released = 0;
    for seq in rows.into_iter().filter(|seq| !needed.contains(seq)) {
        connection
            .prepare_cached("UPDATE artifacts SET released = 1 WHERE seq = ?1")?
            .execute(params![integer(seq)])?;
        released += 1;
    }
    connection.execute(
        "DELETE FROM artifact_blocks WHERE hash NOT IN
             (SELECT hash FROM artifacts WHERE released = 0 AND hash IS NOT NULL)",
        (),
    )?;
    Ok(released)
}

/// The result of reading all contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContentReport {
    pub(crate) contents: u64,
    pub(crate) bytes: u64,
    /// Descriptions of the damaged ones, each with its name and hash.
    pub(crate) damaged: Vec<String>,
}

impl Memory {
    pub(crate) fn blob_store(&self) -> &Blobs {
        &self.shared.artifacts
    }
}

impl View {
    pub(super) fn blob_store(&self) -> &Blobs {
        &self.shared.artifacts
    }

    /// The metadata of an artifact: of this version, or of the newest.
    pub async fn artifact(&self, name: &str, version: Option<u64>) -> Result<Artifact, MemoryError> {
        check_name(name)?;
        let name = name.to_owned();
        self.read(move |reader| find(reader.connection(), &links(reader.chain()), &name, version)?.artifact())
            .await
    }

    /// An artifact and its content, or a range of it.
    pub async fn artifact_get(
        &self,
        name: &str,
        version: Option<u64>,
        part: Part,
    ) -> Result<ArtifactRead, MemoryError> {
        check_name(name)?;
        let asked = name.to_owned();
        let (artifact, proof) = self
            .read(move |reader| {
                let stored = find(reader.connection(), &links(reader.chain()), &asked, version)?;
                if stored.released {
                    return Err(MemoryError::BlobGone { name: shown(&stored.name), version: stored.version });
                }
                Ok((stored.artifact()?, stored.proof(reader.connection())?))
            })
            .await?;
        let Some(range) = part.of(artifact.bytes) else {
            return Err(MemoryError::Range { name: shown(name), bytes: artifact.bytes });
        };
        let content = self.blob_store().read(name, proof, range.clone()).await?;
        Ok(ArtifactRead { artifact, range, content })
    }

    /// The artifacts whose names begin with a prefix, sorted by name, the newest version of each.
    pub async fn artifact_list(
        &self,
        prefix: &str,
        page: PageRequest,
    ) -> Result<Page<Artifact>, MemoryError> {
        let prefix = prefix.to_owned();
        self.read(move |reader| {
            let (connection, links) = (reader.connection(), links(reader.chain()));
            let after = page.after()?;
            let mut rows = Vec::new();
            NAMES.walk(connection, &prefix, after.as_deref(), |name| {
                let stored = head(connection, &links, name)?.filter(|stored| stored.hash.is_some());
                if let Some(stored) = stored {
                    rows.push(stored.artifact()?);
                }
                Ok::<_, MemoryError>(rows.len() <= page.rows_max())
            })?;
            Ok(Page::cut(rows, page.rows_max(), |artifact: &Artifact| artifact.name.clone()))
        })
        .await
    }

    /// The versions of an artifact, newest first.
    pub async fn artifact_versions(&self, name: &str) -> Result<Vec<Artifact>, MemoryError> {
        check_name(name)?;
        let name = name.to_owned();
        self.read(move |reader| {
            let versions = versions(reader.connection(), &links(reader.chain()), &name, VERSIONS_SHOWN_MAX)?;
            if versions.is_empty() {
                return Err(MemoryError::not_found("artifact", shown(&name)));
            }
            versions.iter().map(StoredArtifact::artifact).collect()
        })
        .await
    }

    /// Reads every content that the space refers to, on any branch, and compares it with its hash, block by block and with
    /// constant RAM. Returns the number of contents, their bytes, and descriptions of the damaged ones.
    pub(crate) async fn artifacts_proven(&self) -> Result<ContentReport, MemoryError> {
        // One name per content is enough for the report.
        let sql = format!(
            "SELECT {COLUMNS} FROM artifacts WHERE seq IN
             (SELECT max(seq) FROM artifacts WHERE released = 0 AND hash IS NOT NULL GROUP BY hash) ORDER BY name"
        );
        let referred: Vec<(StoredArtifact, Result<Proof, MemoryError>)> = self
            .read(move |reader| {
                let mut statement = reader.connection().prepare(&sql)?;
                let rows: Vec<StoredArtifact> =
                    statement.query_map((), StoredArtifact::read)?.collect::<Result<_, _>>()?;
                let proven = |stored: StoredArtifact| {
                    let proof = stored.proof(reader.connection());
                    (stored, proof)
                };
                Ok(rows.into_iter().map(proven).collect())
            })
            .await?;
        let mut proven = ContentReport::default();
        for (stored, proof) in referred {
            proven.contents += 1;
            proven.bytes += stored.bytes;
            let sound = match proof {
                Ok(proof) => self.blob_store().prove(&stored.name, proof).await,
                Err(error) => Err(error),
            };
            match sound {
                Ok(()) => {}
                // It may have been released and swept since it was listed.
                Err(_) if !self.is_referred(&stored).await? => {}
                Err(error @ (MemoryError::DamagedBlob { .. } | MemoryError::DamagedRow { .. })) => {
                    proven.damaged.push(format!("version {}: {error}", stored.version));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(proven)
    }

    async fn is_referred(&self, stored: &StoredArtifact) -> Result<bool, MemoryError> {
        let hash = stored.hash.clone();
        self.read(move |reader| {
            let sql = "SELECT 1 FROM artifacts WHERE hash = ?1 AND released = 0";
            Ok(reader.connection().prepare_cached(sql)?.exists(params![hash])?)
        })
        .await
    }

    /// The artifact that an entry's link refers to: by name, or by the hash of its content.
    pub async fn artifact_linked(&self, link: &str) -> Result<Artifact, MemoryError> {
        let link = link.to_owned();
        self.read(move |reader| linked(reader.connection(), reader.chain(), &link)).await
    }
}

fn linked(connection: &Connection, chain: &Chain, link: &str) -> Result<Artifact, MemoryError> {
    let links = links(chain);
    let missing = || MemoryError::not_found("artifact", shown(link));
    if let Some(stored) = head(connection, &links, link)?.filter(|stored| stored.hash.is_some()) {
        return stored.artifact();
    }
    let hash = BlobHash::parse(link).ok_or_else(missing)?;
    let names: Vec<String> = connection
        .prepare_cached("SELECT DISTINCT name FROM artifacts WHERE hash = ?1 AND released = 0")?
        .query_map(params![hash.as_bytes()], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for name in names {
        let versions = versions(connection, &links, &name, usize::MAX)?;
        let found = versions.iter().find(|stored| stored.hash.as_deref() == Some(hash.as_bytes()));
        if let Some(stored) = found {
            return stored.artifact();
        }
    }
    Err(missing())
}
