//! Images: what sandboxes start from. A name points at the newest image that was given it.

use burrow_model::{Image, ImageId, Name, TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::connection::{Columns, integer, json};
use crate::writer::Manner;
use crate::{Catalog, CatalogError, ImageRow};

impl Catalog {
    /// Stores an image and points its name at it, in one commit. An older image of the name stays, nameless, until it
    /// is deleted. Answers that older one, if there was one.
    pub async fn insert_image(
        &self,
        tenant: &TenantId,
        image: Image,
    ) -> Result<Option<ImageId>, CatalogError> {
        let tenant = tenant.clone();
        self.write(Manner::GROWTH, move |connection| {
            let older = find_by_name(connection, &tenant, image.name.as_str())?.map(|row| row.image.id);
            connection
                .prepare_cached("UPDATE images SET named = 0 WHERE tenant = ? AND name = ? AND named = 1")?
                .execute([tenant.as_str(), image.name.as_str()])?;
            insert(connection, &tenant, &image)?;
            Ok(older)
        })
        .await
    }

    pub async fn image(&self, tenant: &TenantId, id: &ImageId) -> Result<Option<ImageRow>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM images WHERE id = ? AND tenant = ?")?;
            statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
        })
        .await
    }

    /// The image a name points at.
    pub async fn image_by_name(
        &self,
        tenant: &TenantId,
        name: &Name,
    ) -> Result<Option<ImageRow>, CatalogError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.read(move |connection| find_by_name(connection, &tenant, name.as_str())).await
    }

    /// A tenant's images, newest first, nameless ones included. There are as many as somebody built.
    pub async fn list_images(&self, tenant: &TenantId) -> Result<Vec<ImageRow>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = "SELECT * FROM images WHERE tenant = ? ORDER BY created_ms DESC, id DESC";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([tenant.as_str()], decode)?.collect()
        })
        .await
    }

    /// Every image of every tenant: for recovery.
    pub async fn all_images(&self) -> Result<Vec<ImageRow>, CatalogError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT * FROM images ORDER BY created_ms, id")?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }

    /// Forgets an image. Answers whether there was one.
    pub async fn delete_image(&self, tenant: &TenantId, id: &ImageId) -> Result<bool, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(Manner::UPKEEP, move |connection| {
            let deleted = connection
                .prepare_cached("DELETE FROM images WHERE id = ? AND tenant = ?")?
                .execute([id.as_str(), tenant.as_str()])?;
            Ok(deleted > 0)
        })
        .await
    }
}

fn insert(connection: &Connection, tenant: &TenantId, image: &Image) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "INSERT INTO images (id, tenant, name, named, config, size_bytes, created_ms) VALUES (?, ?, ?, 1, ?, ?, ?)",
        )?
        .execute(params![
            image.id.as_str(),
            tenant.as_str(),
            image.name.as_str(),
            json(&image.config, "config")?,
            integer(image.size_bytes),
            integer(image.created_ms),
        ])?;
    Ok(())
}

fn find_by_name(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
) -> Result<Option<ImageRow>, CatalogError> {
    let mut statement =
        connection.prepare_cached("SELECT * FROM images WHERE tenant = ? AND name = ? AND named = 1")?;
    statement.query_row([tenant.as_str(), name], |row| Ok(decode(row))).optional()?.transpose()
}

fn decode(row: &Row<'_>) -> Result<ImageRow, CatalogError> {
    Ok(ImageRow {
        tenant: row.parsed("tenant")?,
        named: row.get("named")?,
        image: Image {
            id: row.parsed("id")?,
            name: row.parsed("name")?,
            config: row.json("config")?,
            size_bytes: row.count("size_bytes")?,
            created_ms: row.count("created_ms")?,
        },
    })
}
