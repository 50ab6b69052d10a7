//! Reads the file: TOML to values, each with its line number for error messages.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use burrow_model::{EgressRule, IpRange, Name};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key, TABLES};
use super::value::Value;

/// A configuration has a few pages; a much larger file is the wrong file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Beyond this edit distance no suggestion is made.
const TYPO_DISTANCE_MAX: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("could not read the configuration `{}`", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("line {line} of `{}` is not TOML: {problem}", .path.display())]
    Syntax { path: PathBuf, line: usize, problem: String },
    #[error("`{key}` on line {line} of `{}` is not a configuration key{}", .path.display(), suggestion(.nearest))]
    UnknownKey { path: PathBuf, line: usize, key: String, nearest: Option<&'static str> },
    #[error("`{key}` on line {line} of `{}` {problem}", .path.display())]
    BadValue { path: PathBuf, line: usize, key: String, problem: String },
    /// The key is not in the file; its default conflicts with another value.
    #[error("`{key}`, which `{}` does not set, {problem}", .path.display())]
    BadDefault { path: PathBuf, key: &'static str, problem: String },
}

impl ConfigError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Read { .. } => Some("check that the file exists and is readable by root"),
            Self::Syntax { .. } => None,
            Self::UnknownKey { .. } | Self::BadValue { .. } | Self::BadDefault { .. } => {
                Some("docs/configuration.md lists every key")
            }
        }
    }
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map(|key| format!(" (did you mean `{key}`?)")).unwrap_or_default()
}

/// A value from the file, or the default of its key.
#[derive(Debug)]
struct Setting {
    value: Value,
    line: Option<usize>,
}

/// All keys with their values.
#[derive(Debug)]
pub(super) struct Settings {
    path: PathBuf,
    settings: BTreeMap<&'static str, Setting>,
}

impl Settings {
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let cannot = |source| ConfigError::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(cannot)?.len() > FILE_BYTES_MAX {
            return Err(cannot(io::ErrorKind::FileTooLarge.into()));
        }
        Self::parse(path, &std::fs::read_to_string(path).map_err(cannot)?)
    }

    /// Like `read`, but a missing file counts as empty.
    pub(super) fn read_if_any(path: &Path) -> Result<Self, ConfigError> {
        match Self::read(path) {
            Err(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self::parse(path, "")
            }
            result => result,
        }
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut settings = Self { path: path.to_owned(), settings: BTreeMap::new() };
        for key in KEYS {
            let value = key.default.map_or(Value::Absent, |text| {
                key.kind.parse(text).expect("the defaults of the table are checked by a test")
            });
            settings.settings.insert(key.path, Setting { value, line: None });
        }
        let document = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            problem: error.message().to_owned(),
        })?;
        for (name, value) in document.get_ref() {
            let line = line_of(text, name.span().start);
            match value.get_ref() {
                DeValue::Table(table) if TABLES.iter().any(|(table, _)| *table == name.get_ref()) => {
                    for (inner, value) in table {
                        let line = line_of(text, inner.span().start);
                        let path = format!("{}.{}", name.get_ref(), inner.get_ref());
                        settings.set(text, path, line, value)?;
                    }
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)
                | DeValue::Table(_) => settings.set(text, name.get_ref().to_string(), line, value)?,
            }
        }
        Ok(settings)
    }

    fn set(
        &mut self,
        text: &str,
        path: String,
        line: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        let Some(key) = KEYS.iter().find(|key| key.path == path) else {
            let nearest = nearest(&path);
            let key = path.chars().take(80).flat_map(char::escape_default).collect();
            return Err(ConfigError::UnknownKey { path: self.path.clone(), line, key, nearest });
        };
        let value = key.kind.read(value).map_err(|problem| ConfigError::BadValue {
            path: self.path.clone(),
            line: problem.offset.map_or(line, |offset| line_of(text, offset)),
            key: problem.within.map_or(path.clone(), |within| format!("{path}.{within}")),
            problem: problem.text,
        })?;
        self.settings.insert(key.path, Setting { value, line: Some(line) });
        Ok(())
    }

    /// An error about a value that is valid by itself but conflicts with others.
    pub(super) fn refuse(&self, key: &'static str, problem: impl Into<String>) -> ConfigError {
        let (path, problem) = (self.path.clone(), problem.into());
        match self.setting(key).line {
            Some(line) => ConfigError::BadValue { path, line, key: key.to_owned(), problem },
            None => ConfigError::BadDefault { path, key, problem },
        }
    }

    fn setting(&self, key: &'static str) -> &Setting {
        self.settings.get(key).expect("callers ask for keys of the table")
    }

    /// In the order of the table.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static Key, &Value)> {
        KEYS.iter().map(|key| (key, &self.setting(key.path).value))
    }

    pub(super) fn address(&self, key: &'static str) -> SocketAddr {
        let Value::Address(address) = self.setting(key).value else {
            unreachable!("`{key}` is an address in the table and has a default")
        };
        address
    }

    pub(super) fn path_if_any(&self, key: &'static str) -> Option<PathBuf> {
        // The table declares it as a path, so any other value means that it is absent.
        if let Value::Path(path) = &self.setting(key).value { Some(path.clone()) } else { None }
    }

    pub(super) fn path(&self, key: &'static str) -> PathBuf {
        self.path_if_any(key).expect("callers ask for paths that have a default")
    }

    /// Whether the file sets it.
    pub(super) fn is_set(&self, key: &'static str) -> bool {
        self.setting(key).line.is_some()
    }

    pub(super) fn flag(&self, key: &'static str) -> bool {
        matches!(self.setting(key).value, Value::Flag(true))
    }

    /// For limits that are compared with lengths.
    pub(super) fn count(&self, key: &'static str) -> usize {
        usize::try_from(self.number(key)).expect("bounded by the table")
    }

    /// For counts, sizes and cores.
    pub(super) fn number(&self, key: &'static str) -> u64 {
        match self.setting(key).value {
            Value::Count(number) | Value::Bytes(number) => number,
            Value::Millis(millis) => u64::from(millis),
            Value::Absent
            | Value::Address(_)
            | Value::Path(_)
            | Value::Flag(_)
            | Value::Text(_)
            | Value::Rules(_)
            | Value::Ranges(_)
            | Value::Span(_)
            | Value::RuleSets(_) => unreachable!("`{key}` is a number in the table and has a default"),
        }
    }

    pub(super) fn rules(&self, key: &'static str) -> Vec<EgressRule> {
        // The table declares it as a list of rules, with a default.
        if let Value::Rules(rules) = &self.setting(key).value { rules.clone() } else { Vec::new() }
    }

    pub(super) fn ranges(&self, key: &'static str) -> Vec<IpRange> {
        if let Value::Ranges(ranges) = &self.setting(key).value { ranges.clone() } else { Vec::new() }
    }

    pub(super) fn rule_sets(&self, key: &'static str) -> BTreeMap<Name, Vec<EgressRule>> {
        if let Value::RuleSets(sets) = &self.setting(key).value { sets.clone() } else { BTreeMap::new() }
    }

    /// Milliseconds; `None` for never.
    pub(super) fn span_if_any(&self, key: &'static str) -> Option<u64> {
        if let Value::Span(span) = self.setting(key).value { span } else { None }
    }

    pub(super) fn text_if_any(&self, key: &'static str) -> Option<String> {
        let value = &self.setting(key).value;
        (*value != Value::Absent).then(|| value.to_string())
    }

    pub(super) fn text(&self, key: &'static str) -> String {
        self.setting(key).value.to_string()
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

fn nearest(path: &str) -> Option<&'static str> {
    let ranked = KEYS.iter().map(|key| (strsim::osa_distance(path, key.path), key.path));
    let typo = ranked.min().filter(|(distance, _)| *distance <= TYPO_DISTANCE_MAX).map(|(_, path)| path);
    // `ram` at the top level, or in `[limits]`: the right key in the wrong table.
    let last = path.rsplit('.').next();
    typo.or_else(|| KEYS.iter().map(|key| key.path).find(|known| known.rsplit('.').next() == last))
}
