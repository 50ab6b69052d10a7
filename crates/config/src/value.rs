//! The kinds of configuration values: how each is parsed and printed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use burrow_model::network::RULES_MAX;
use burrow_model::{EgressRule, IpRange, Name, parse_bytes};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ranges, span};

/// Maximum number of host sets in one configuration.
const SETS_MAX: usize = 256;

/// Maximum number of address ranges: each is an exception that an operator is responsible for.
const RANGES_MAX: usize = 64;

/// The kinds of values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `address:port`.
    Address,
    /// An absolute path.
    Path,
    Flag,
    /// An integer between the two bounds.
    Count(u64, u64),
    /// Bytes in the notation of sizes, between the two bounds.
    Size(u64, u64),
    /// Processor cores, stored in thousandths.
    Cores,
    /// `true`, `false` or `auto`.
    FlagOrAuto,
    /// One of these words.
    Choice(&'static [&'static str]),
    Text,
    /// A list of egress rules.
    Rules,
    /// A list of address ranges that are not public and may be connected to nevertheless.
    Ranges,
    /// A table of lists of egress rules, by name.
    RuleSets,
    /// A duration in milliseconds between the two bounds, or `never`.
    SpanOrNever(u64, u64),
}

/// What is wrong with a value, and where, if not the whole value is wrong.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) text: String,
    /// Byte offset in the file.
    pub(super) offset: Option<usize>,
    /// The key within the value, if the value is a table.
    pub(super) within: Option<String>,
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self { text, offset: None, within: None }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Absent,
    Address(SocketAddr),
    Path(PathBuf),
    Flag(bool),
    Count(u64),
    Bytes(u64),
    Millis(u32),
    Text(String),
    Rules(Vec<EgressRule>),
    Ranges(Vec<IpRange>),
    RuleSets(BTreeMap<Name, Vec<EgressRule>>),
    /// Milliseconds; `None` is never.
    Span(Option<u64>),
}

impl Kind {
    /// Parses a value of the file. The error message does not contain the key.
    pub(super) fn read(self, value: &Spanned<DeValue<'_>>) -> Result<Value, Problem> {
        match (self, value.get_ref()) {
            (Self::Rules, DeValue::Array(_)) => rules(value).map(Value::Rules),
            (Self::Ranges, DeValue::Array(items)) => {
                if items.len() > RANGES_MAX {
                    return Err(format!("has more than {RANGES_MAX} entries").into());
                }
                items
                    .iter()
                    .map(|item| entry(item, ranges::parse))
                    .collect::<Result<_, _>>()
                    .map(Value::Ranges)
            }
            (Self::RuleSets, DeValue::Table(table)) => rule_sets(table).map(Value::RuleSets),
            (_, other) => self.read_plain(other).map_err(Problem::from),
        }
    }

    fn read_plain(self, value: &DeValue<'_>) -> Result<Value, String> {
        match (self, value) {
            (Self::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (Self::FlagOrAuto, DeValue::Boolean(flag)) => Ok(Value::Text(flag.to_string())),
            (Self::Count(..) | Self::Size(..) | Self::Cores, DeValue::Integer(number)) => {
                let digits = number.as_str().replace('_', "");
                match i64::from_str_radix(&digits, number.radix()) {
                    Ok(number) => self.parse(&number.to_string()),
                    Err(_) => Err(self.problem(number.as_str())),
                }
            }
            (Self::Cores, DeValue::Float(number)) => self.parse(number.as_str()),
            (
                Self::Address
                | Self::Path
                | Self::Size(..)
                | Self::Cores
                | Self::FlagOrAuto
                | Self::Choice(_)
                | Self::Text
                | Self::SpanOrNever(..),
                DeValue::String(text),
            ) => self.parse(text),
            (_, DeValue::String(text)) => Err(self.problem(text)),
            (_, other) => {
                Err(format!("must be {}, not {} {}", self.expected(), article(other), other.type_str()))
            }
        }
    }

    /// Parses the notation of this kind; defaults use it too.
    pub(super) fn parse(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Address => text.parse().ok().map(Value::Address),
            Self::Path => absolute(text).map(Value::Path),
            Self::Flag => text.parse().ok().map(Value::Flag),
            Self::Count(min, max) => {
                text.parse().ok().filter(|count| (min..=max).contains(count)).map(Value::Count)
            }
            Self::Size(min, max) => {
                parse_bytes(text).filter(|size| (min..=max).contains(size)).map(Value::Bytes)
            }
            Self::Cores => millis(text).map(Value::Millis),
            Self::FlagOrAuto => {
                matches!(text, "true" | "false" | "auto").then(|| Value::Text(text.to_owned()))
            }
            Self::Choice(words) => words.contains(&text).then(|| Value::Text(text.to_owned())),
            Self::Text => plain(text).then(|| Value::Text(text.to_owned())),
            // Only the default has this notation.
            Self::Rules => (text == "[]").then(|| Value::Rules(Vec::new())),
            Self::Ranges => (text == "[]").then(|| Value::Ranges(Vec::new())),
            Self::RuleSets => (text == "{}").then(|| Value::RuleSets(BTreeMap::new())),
            Self::SpanOrNever(..) if text == span::NEVER => Some(Value::Span(None)),
            Self::SpanOrNever(min, max) => {
                let ms = span::parse(text).filter(|ms| (min..=max).contains(ms));
                ms.map(|ms| Value::Span(Some(ms)))
            }
        };
        value.ok_or_else(|| self.problem(text))
    }

    fn problem(self, text: &str) -> String {
        let shown: String = text.chars().take(80).flat_map(char::escape_default).collect();
        format!("must be {}, not `{shown}`", self.expected())
    }

    /// For messages and for the reference.
    pub(super) fn expected(self) -> String {
        match self {
            Self::Address => "an address and a port, like `127.0.0.1:7700`".to_owned(),
            Self::Path => "an absolute path".to_owned(),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::Count(min, max) => format!("a whole number from {min} to {max}"),
            Self::Size(min, max) => format!("a size from `{}` to `{}`", size(min), size(max)),
            Self::Cores => "a number of cores from 0.05 to 1024".to_owned(),
            Self::FlagOrAuto => "`true`, `false` or `auto`".to_owned(),
            Self::Choice(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                format!("one of {}", words.join(", "))
            }
            Self::Text => "a string of 1 to 255 printable characters".to_owned(),
            Self::Rules => "a list of rules, like `[\"*.example.com:443\"]`".to_owned(),
            Self::Ranges => "a list of address ranges, like `[\"10.20.0.0/16\"]`".to_owned(),
            Self::RuleSets => "a table of lists of rules, like `{ ours = [\"*.example.com\"] }`".to_owned(),
            Self::SpanOrNever(min, max) => format!(
                "a time from `{}` to `{}`, like `90s`, `5m`, `1h` or `7d`, or `never`",
                span::show(min),
                span::show(max)
            ),
        }
    }
}

impl Value {
    pub(super) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Absent => serde_json::Value::Null,
            Self::Flag(flag) => (*flag).into(),
            Self::Count(count) => (*count).into(),
            Self::Millis(millis) => (f64::from(*millis) / 1000.0).into(),
            Self::Address(_) | Self::Path(_) | Self::Bytes(_) | Self::Text(_) | Self::Span(_) => {
                self.to_string().into()
            }
            Self::Rules(rules) => texts(rules).into(),
            Self::Ranges(ranges) => texts(ranges).into(),
            Self::RuleSets(sets) => {
                let sets = sets.iter().map(|(name, rules)| (name.to_string(), texts(rules).into()));
                serde_json::Value::Object(sets.collect())
            }
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => Ok(()),
            Self::Address(address) => address.fmt(f),
            Self::Path(path) => path.display().fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Bytes(bytes) => f.write_str(&size(*bytes)),
            Self::Millis(millis) => (f64::from(*millis) / 1000.0).fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Rules(_) | Self::Ranges(_) | Self::RuleSets(_) => self.to_json().fmt(f),
            Self::Span(Some(ms)) => f.write_str(&span::show(*ms)),
            Self::Span(None) => f.write_str(span::NEVER),
        }
    }
}

fn texts<T: fmt::Display>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

/// One string of a list; the error has its own place in the file.
fn entry<T, E: fmt::Display>(
    item: &Spanned<DeValue<'_>>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Problem> {
    let at = |text| Problem { text, offset: Some(item.span().start), within: None };
    let DeValue::String(text) = item.get_ref() else {
        let other = item.get_ref();
        return Err(at(format!("must contain strings, not {} {}", article(other), other.type_str())));
    };
    parse(text).map_err(|error| {
        let shown: String = text.chars().take(80).flat_map(char::escape_default).collect();
        at(format!("contains `{shown}`: {error}"))
    })
}

fn rules(value: &Spanned<DeValue<'_>>) -> Result<Vec<EgressRule>, Problem> {
    let at = |text| Problem { text, offset: Some(value.span().start), within: None };
    let DeValue::Array(items) = value.get_ref() else {
        let other = value.get_ref();
        let expected = Kind::Rules.expected();
        return Err(at(format!("must be {expected}, not {} {}", article(other), other.type_str())));
    };
    if items.len() > RULES_MAX {
        return Err(at(format!("has more than {RULES_MAX} rules")));
    }
    items.iter().map(|item| entry(item, str::parse::<EgressRule>)).collect()
}

fn rule_sets(table: &DeTable<'_>) -> Result<BTreeMap<Name, Vec<EgressRule>>, Problem> {
    if table.len() > SETS_MAX {
        return Err(format!("has more than {SETS_MAX} sets").into());
    }
    let mut sets = BTreeMap::new();
    for (name, value) in table {
        let shown: String = name.get_ref().chars().take(80).flat_map(char::escape_default).collect();
        let parsed = name.get_ref().parse::<Name>().map_err(|error| Problem {
            text: format!("is not a valid name of a set: {error}"),
            offset: Some(name.span().start),
            within: Some(shown.clone()),
        })?;
        let rules = rules(value).map_err(|problem| Problem { within: Some(shown), ..problem })?;
        sets.insert(parsed, rules);
    }
    Ok(sets)
}

fn article(value: &DeValue<'_>) -> &'static str {
    if value.type_str().starts_with(['a', 'i']) { "an" } else { "a" }
}

fn absolute(text: &str) -> Option<PathBuf> {
    (text.starts_with('/') && !text.contains('\0')).then(|| PathBuf::from(text))
}

fn plain(text: &str) -> bool {
    (1..=255).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

fn millis(text: &str) -> Option<u32> {
    let cores: f64 = text.parse().ok()?;
    // The bounds of `burrow_model::Limits`, so the cast is exact and defaults are valid.
    (0.05..=1024.0).contains(&cores).then(|| (cores * 1000.0).round() as u32)
}

/// The largest unit that divides it.
pub(super) fn size(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}
