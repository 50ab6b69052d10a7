//! Images, from which sandboxes are created. A name refers to the image that received it last.

use std::str::FromStr;

use burrow_model::{Image, ImageId, ImageName, ImageNameError, SandboxId, TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::connection::{Columns, integer, json};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, ImageRow};

/// The maximum number of sandboxes listed as an image's users: enough to see which kind they are.
const USERS_MAX: u32 = 100;

/// An image with its names as one text, separated by a character that cannot occur in a name.
const SELECT: &str = "SELECT images.*,
    (SELECT group_concat(name, ' ') FROM image_names WHERE image = images.id) AS names FROM images";

impl Catalog {
    /// Stores an image and gives it its names, in one commit. Older images with these names stay until they are removed, with
    /// the names that they have left. Returns those that lost a name.
    pub async fn insert_image(&self, tenant: &TenantId, image: Image) -> Result<Vec<ImageId>, CatalogError> {
        let tenant = tenant.clone();
        self.write(WriteMode::GROWTH, move |connection| {
            insert(connection, &tenant, &image)?;
            let mut older = Vec::new();
            for name in &image.names {
                older.extend(point(connection, &tenant, name, &image.id)?);
            }
            Ok(older)
        })
        .await
    }

    pub async fn image(&self, tenant: &TenantId, id: &ImageId) -> Result<Option<ImageRow>, CatalogError> {
        let row = self.image_record(tenant, id).await?;
        Ok(row.filter(|row| row.removed_ms.is_none()))
    }

    /// Also finds a removed image whose record is kept for the sandboxes created from it and their snapshots.
    pub async fn image_record(
        &self,
        tenant: &TenantId,
        id: &ImageId,
    ) -> Result<Option<ImageRow>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| {
            let sql = format!("{SELECT} WHERE id = ? AND tenant = ?");
            let mut statement = connection.prepare_cached(&sql)?;
            statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
        })
        .await
    }

    /// The image that a name refers to.
    pub async fn image_by_name(
        &self,
        tenant: &TenantId,
        name: &ImageName,
    ) -> Result<Option<ImageRow>, CatalogError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.read(move |connection| {
            let sql =
                format!("{SELECT} WHERE id = (SELECT image FROM image_names WHERE tenant = ? AND name = ?)");
            let mut statement = connection.prepare_cached(&sql)?;
            let found = statement.query_row([tenant.as_str(), name.as_str()], |row| Ok(decode(row)));
            found.optional()?.transpose()
        })
        .await
    }

    /// A tenant's images, newest first, including those without a name. Not paged.
    pub async fn list_images(&self, tenant: &TenantId) -> Result<Vec<ImageRow>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql =
                format!("{SELECT} WHERE tenant = ? AND removed_ms IS NULL ORDER BY created_ms DESC, id DESC");
            let mut statement = connection.prepare_cached(&sql)?;
            statement.query_and_then([tenant.as_str()], decode)?.collect()
        })
        .await
    }

    /// Every image of every tenant that has files: for recovery and backups.
    pub async fn all_images(&self) -> Result<Vec<ImageRow>, CatalogError> {
        self.read(|connection| {
            let sql = format!("{SELECT} WHERE removed_ms IS NULL ORDER BY created_ms, id");
            let mut statement = connection.prepare_cached(&sql)?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }

    /// Gives an image one more name. Returns the image that had it before, if it was another one.
    pub async fn tag_image(
        &self,
        tenant: &TenantId,
        id: &ImageId,
        name: ImageName,
    ) -> Result<Option<ImageId>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(WriteMode::GROWTH, move |connection| {
            let sql = "SELECT count(*) FROM images WHERE id = ? AND tenant = ? AND removed_ms IS NULL";
            let mut statement = connection.prepare_cached(sql)?;
            let found: u32 = statement.query_row([id.as_str(), tenant.as_str()], |row| row.get(0))?;
            if found == 0 {
                return Err(CatalogError::Unknown { kind: "image", id: id.to_string() });
            }
            point(connection, &tenant, &name, &id)
        })
        .await
    }

    /// Removes a name. Returns the image that had it; the image stays even without names.
    pub async fn untag_image(
        &self,
        tenant: &TenantId,
        name: &ImageName,
    ) -> Result<Option<ImageId>, CatalogError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let mut statement = connection
                .prepare_cached("DELETE FROM image_names WHERE tenant = ? AND name = ? RETURNING image")?;
            let found = statement.query_row([tenant.as_str(), name.as_str()], |row| Ok(row.parsed("image")));
            found.optional()?.transpose()
        })
        .await
    }

    /// Removes an image from the lists, with all its names. While sandboxes created from it, or snapshots of these, exist,
    /// its row is kept as a record of its defaults for processes. Returns whether the image existed.
    pub async fn remove_image(
        &self,
        tenant: &TenantId,
        id: &ImageId,
        now_ms: u64,
    ) -> Result<bool, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let removed = connection
                .prepare_cached(
                    "UPDATE images SET removed_ms = ? WHERE id = ? AND tenant = ? AND removed_ms IS NULL",
                )?
                .execute(params![integer(now_ms), id.as_str(), tenant.as_str()])?;
            if removed > 0 {
                connection
                    .prepare_cached("DELETE FROM image_names WHERE image = ?")?
                    .execute([id.as_str()])?;
                forget_unused(connection)?;
            }
            Ok(removed > 0)
        })
        .await
    }

    /// Removes the records of removed images without sandboxes and snapshots.
    pub async fn forget_removed_images(&self) -> Result<usize, CatalogError> {
        self.write(WriteMode::UPKEEP, forget_unused).await
    }

    /// Images without a name, a sandbox and a snapshot of one: those that a clean-up removes.
    pub async fn unused_images(&self, tenant: &TenantId) -> Result<Vec<ImageRow>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = format!(
                "{SELECT} WHERE tenant = ? AND removed_ms IS NULL AND names IS NULL
                 AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.image = images.id)
                 AND NOT EXISTS (SELECT 1 FROM snapshots WHERE snapshots.image = images.id)
                 ORDER BY created_ms, id"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            statement.query_and_then([tenant.as_str()], decode)?.collect()
        })
        .await
    }

    /// Sandboxes created from an image, newest first: a hundred at most.
    pub async fn image_users(&self, tenant: &TenantId, id: &ImageId) -> Result<Vec<SandboxId>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| {
            let sql =
                "SELECT id FROM sandboxes WHERE image = ? AND tenant = ? ORDER BY created_ms DESC, id LIMIT ?";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement
                .query_and_then(params![id.as_str(), tenant.as_str(), USERS_MAX], |row| row.parsed("id"))?;
            rows.collect()
        })
        .await
    }
}

pub(crate) fn insert(connection: &Connection, tenant: &TenantId, image: &Image) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "INSERT INTO images (id, tenant, config, origin, layer, size_bytes, created_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            image.id.as_str(),
            tenant.as_str(),
            json(&image.config, "config")?,
            json(&image.origin, "origin")?,
            image.layer.as_ref().map(|layer| layer.as_str()),
            integer(image.size_bytes),
            integer(image.created_ms),
        ])?;
    Ok(())
}

/// Makes a name refer to an image. Returns the previous image, if it was another one.
fn point(
    connection: &Connection,
    tenant: &TenantId,
    name: &ImageName,
    id: &ImageId,
) -> Result<Option<ImageId>, CatalogError> {
    let mut statement =
        connection.prepare_cached("SELECT image FROM image_names WHERE tenant = ? AND name = ?")?;
    let older: Option<ImageId> = statement
        .query_row([tenant.as_str(), name.as_str()], |row| Ok(row.parsed("image")))
        .optional()?
        .transpose()?;
    connection
        .prepare_cached(
            "INSERT INTO image_names (tenant, name, image) VALUES (?, ?, ?)
             ON CONFLICT (tenant, name) DO UPDATE SET image = excluded.image",
        )?
        .execute([tenant.as_str(), name.as_str(), id.as_str()])?;
    Ok(older.filter(|older| older != id))
}

fn forget_unused(connection: &Connection) -> Result<usize, CatalogError> {
    let sql = "DELETE FROM images WHERE removed_ms IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.image = images.id)
               AND NOT EXISTS (SELECT 1 FROM snapshots WHERE snapshots.image = images.id)";
    Ok(connection.prepare_cached(sql)?.execute(())?)
}

/// Names as [`SELECT`] returns them.
#[derive(Default)]
struct Names(Vec<ImageName>);

impl FromStr for Names {
    type Err = ImageNameError;

    fn from_str(text: &str) -> Result<Self, ImageNameError> {
        let mut names = text.split(' ').map(str::parse).collect::<Result<Vec<ImageName>, _>>()?;
        names.sort_unstable();
        Ok(Self(names))
    }
}

fn decode(row: &Row<'_>) -> Result<ImageRow, CatalogError> {
    let names: Names = row.parsed_if_any("names")?.unwrap_or_default();
    Ok(ImageRow {
        tenant: row.parsed("tenant")?,
        removed_ms: row.count_if_any("removed_ms")?,
        image: Image {
            id: row.parsed("id")?,
            names: names.0,
            config: row.json("config")?,
            origin: row.json("origin")?,
            layer: row.parsed_if_any("layer")?,
            size_bytes: row.count("size_bytes")?,
            created_ms: row.count("created_ms")?,
        },
    })
}
