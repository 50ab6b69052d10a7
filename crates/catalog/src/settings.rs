//! Settings of the catalog itself: short texts by key, which the callers encode.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::writer::WriteMode;
use crate::{Catalog, CatalogError};

/// The kinds of state that a driver has restored, by the name of the driver.
const RESTORED_KINDS: &str = "restored-kinds";

impl Catalog {
    /// What [`Catalog::set_restored_kinds`] stored for a driver.
    pub async fn restored_kinds(&self, driver: &str) -> Result<Option<String>, CatalogError> {
        self.setting(format!("{RESTORED_KINDS}/{driver}")).await
    }

    /// Replaces the record of the kinds of state that a driver has restored.
    pub async fn set_restored_kinds(&self, driver: &str, record: String) -> Result<(), CatalogError> {
        self.set_setting(format!("{RESTORED_KINDS}/{driver}"), record).await
    }

    pub(crate) async fn setting(&self, key: String) -> Result<Option<String>, CatalogError> {
        let tenant = self.default_tenant();
        self.read(move |connection| {
            let sql = "SELECT value FROM settings WHERE tenant = ? AND key = ?";
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.query_row([tenant.as_str(), &key], |row| row.get(0)).optional()?)
        })
        .await
    }

    /// Also possible on a full disk, from the reserve: settings are few and short.
    pub(crate) async fn set_setting(&self, key: String, value: String) -> Result<(), CatalogError> {
        let tenant = self.default_tenant();
        self.write(WriteMode::UPKEEP, move |connection: &Connection| {
            connection
                .prepare_cached("INSERT OR REPLACE INTO settings (tenant, key, value) VALUES (?, ?, ?)")?
                .execute(params![tenant.as_str(), key, value])?;
            Ok(())
        })
        .await
    }
}
