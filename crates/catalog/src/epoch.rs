//! The epoch of the catalog: a number that is also stored in the pool.
//!
//! Both are incremented together, the catalog first; between the two commits the pool may be one behind. Comparing them
//! shows whether the catalog or the pool was replaced by an earlier copy, before either is changed.

use serde::{Deserialize, Serialize};

use crate::connection::json;
use crate::{Catalog, CatalogError};

const SETTING: &str = "epoch";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Identifies this catalog among all others; chosen once.
    pub identity: String,
    pub number: u64,
    /// The pool is known to contain the same number. Until then it may contain the previous one.
    pub confirmed: bool,
}

impl Catalog {
    pub async fn epoch(&self) -> Result<Option<Epoch>, CatalogError> {
        let text = self.setting(SETTING.to_owned()).await?;
        let corrupt = |_| CatalogError::Corrupt { findings: vec![format!("the setting `{SETTING}`")] };
        text.map(|text| serde_json::from_str(&text).map_err(corrupt)).transpose()
    }

    /// Also possible on a full disk, from the reserve.
    pub async fn set_epoch(&self, epoch: Epoch) -> Result<(), CatalogError> {
        self.set_setting(SETTING.to_owned(), json(&epoch, SETTING)?).await
    }

    /// The latest time in any row; none for a catalog in which nothing has happened yet.
    pub async fn newest_ms(&self) -> Result<Option<u64>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT max(at) FROM (
                           SELECT max(updated_ms) AS at FROM sandboxes
                           UNION ALL SELECT at_ms FROM (SELECT at_ms FROM events ORDER BY seq DESC LIMIT 1))";
            let newest: Option<i64> = connection.prepare_cached(sql)?.query_row((), |row| row.get(0))?;
            Ok(newest.and_then(|newest| u64::try_from(newest).ok()))
        })
        .await
    }
}
