//! Settings of every connection, and conversions between columns and Rust values.

use std::str::FromStr;
use std::time::Duration;

use rusqlite::types::Type;
use rusqlite::{Connection, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::CatalogError;

/// Only a backup tool or a person with a shell can lock the database for longer than a moment.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// More than the number of different statements in this crate.
const STATEMENTS_CACHED: usize = 128;

pub(crate) fn prepare(connection: &Connection) -> Result<(), CatalogError> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;")?;
    Ok(())
}

/// SQLite's integers are signed; larger times and counts do not occur.
pub(crate) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn json<T: Serialize>(value: &T, what: &'static str) -> Result<String, CatalogError> {
    serde_json::to_string(value).map_err(|source| CatalogError::Damaged { what, source })
}

/// A unit enum as serde writes it, so that stored words and wire words are the same.
pub(crate) fn word<T: Serialize>(value: &T, what: &'static str) -> Result<String, CatalogError> {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => Ok(word),
        Ok(other) => Ok(other.to_string()),
        Err(source) => Err(CatalogError::Damaged { what, source }),
    }
}

/// Reads columns by name, with the conversions that rows need.
pub(crate) trait Columns {
    fn count(&self, column: &str) -> Result<u64, CatalogError>;
    fn count_if_any(&self, column: &str) -> Result<Option<u64>, CatalogError>;
    fn text(&self, column: &str) -> Result<String, CatalogError>;
    fn parsed<T: FromStr>(&self, column: &'static str) -> Result<T, CatalogError>
    where
        T::Err: std::error::Error + Send + Sync + 'static;
    fn parsed_if_any<T: FromStr>(&self, column: &'static str) -> Result<Option<T>, CatalogError>
    where
        T::Err: std::error::Error + Send + Sync + 'static;
    fn json<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, CatalogError>;
    fn json_if_any<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, CatalogError>;
    fn word<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, CatalogError>;
    fn word_if_any<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, CatalogError>;
}

impl Columns for Row<'_> {
    fn count(&self, column: &str) -> Result<u64, CatalogError> {
        let value: i64 = self.get(column)?;
        Ok(u64::try_from(value).unwrap_or(0))
    }

    fn count_if_any(&self, column: &str) -> Result<Option<u64>, CatalogError> {
        let value: Option<i64> = self.get(column)?;
        Ok(value.map(|value| u64::try_from(value).unwrap_or(0)))
    }

    fn text(&self, column: &str) -> Result<String, CatalogError> {
        Ok(self.get(column)?)
    }

    fn parsed<T: FromStr>(&self, column: &'static str) -> Result<T, CatalogError>
    where
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        parse(self.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?)
    }

    fn parsed_if_any<T: FromStr>(&self, column: &'static str) -> Result<Option<T>, CatalogError>
    where
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        self.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?.map(parse).transpose()
    }

    fn json<T: DeserializeOwned>(&self, what: &'static str) -> Result<T, CatalogError> {
        let text = self.get_ref(what)?.as_str().map_err(rusqlite::Error::from)?;
        serde_json::from_str(text).map_err(|source| CatalogError::Damaged { what, source })
    }

    fn json_if_any<T: DeserializeOwned>(&self, what: &'static str) -> Result<Option<T>, CatalogError> {
        let text = self.get_ref(what)?.as_str_or_null().map_err(rusqlite::Error::from)?;
        text.map(|text| serde_json::from_str(text).map_err(|source| CatalogError::Damaged { what, source }))
            .transpose()
    }

    fn word<T: DeserializeOwned>(&self, what: &'static str) -> Result<T, CatalogError> {
        from_word(self.get(what)?, what)
    }

    fn word_if_any<T: DeserializeOwned>(&self, what: &'static str) -> Result<Option<T>, CatalogError> {
        let word: Option<String> = self.get(what)?;
        word.map(|word| from_word(word, what)).transpose()
    }
}

fn from_word<T: DeserializeOwned>(word: String, what: &'static str) -> Result<T, CatalogError> {
    serde_json::from_value(Value::String(word)).map_err(|source| CatalogError::Damaged { what, source })
}

fn parse<T: FromStr>(text: &str) -> Result<T, CatalogError>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let bad = |error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error));
    Ok(text.parse().map_err(bad)?)
}
