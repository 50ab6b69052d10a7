//! Parses the arguments of `burrow-memory`: options in any position, words in their order.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;

use super::Failure;

/// Options without a value.
const FLAGS: [&str; 2] = ["json", "help"];

/// Options with a value.
const OPTIONS: [&str; 8] = ["kind", "importance", "session", "source", "key", "limit", "budget", "ttl"];

#[derive(Debug)]
pub(super) struct Arguments {
    words: VecDeque<String>,
    flags: Vec<&'static str>,
    options: BTreeMap<&'static str, String>,
}

impl Arguments {
    pub(super) fn parse(given: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut parsed = Self { words: VecDeque::new(), flags: Vec::new(), options: BTreeMap::new() };
        let mut given = given.into_iter();
        let mut only_words = false;
        while let Some(argument) = given.next() {
            let argument =
                argument.into_string().map_err(|other| format!("`{}` is not UTF-8", other.display()))?;
            let name = match argument.strip_prefix("--") {
                Some("") if !only_words => {
                    only_words = true;
                    continue;
                }
                Some(name) if !only_words => name,
                _ if argument == "-h" && !only_words => "help",
                _ => {
                    parsed.words.push_back(argument);
                    continue;
                }
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            if let (Some(flag), None) = (FLAGS.into_iter().find(|flag| *flag == name), &value) {
                parsed.flags.push(flag);
            } else if let Some(option) = OPTIONS.into_iter().find(|option| *option == name) {
                let value = match value {
                    Some(value) => Some(value),
                    None => given.next().and_then(|value| value.into_string().ok()),
                };
                parsed.options.insert(option, value.ok_or_else(|| format!("`--{name}` needs a value"))?);
            } else {
                return Err(format!("unknown option `--{name}`"));
            }
        }
        Ok(parsed)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.flags.contains(&name)
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    pub(super) fn word(&mut self, what: &str) -> Result<String, Failure> {
        self.next().ok_or_else(|| Failure::Usage(format!("{what} is missing")))
    }

    pub(super) fn rest(&mut self) -> Vec<String> {
        std::mem::take(&mut self.words).into()
    }

    pub(super) fn option(&mut self, name: &str) -> Result<Option<String>, Failure> {
        Ok(self.options.remove(name))
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(text) = self.options.remove(name) else { return Ok(None) };
        let number =
            text.parse().map_err(|_| Failure::Usage(format!("`--{name}` must be a number, not `{text}`")))?;
        Ok(Some(number))
    }

    /// Fails if an argument was not used by the command, instead of ignoring it.
    pub(super) fn end(&self) -> Result<(), Failure> {
        if let Some(word) = self.words.front() {
            return Err(Failure::Usage(format!("unexpected argument `{word}`")));
        }
        match self.options.keys().next() {
            Some(option) => Err(Failure::Usage(format!("`--{option}` cannot be used with this command"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &[&str]) -> Result<Arguments, String> {
        Arguments::parse(given.iter().map(OsString::from))
    }

    #[test]
    fn options_are_accepted_in_any_position() {
        let mut parsed =
            parse(&["add", "--kind", "fact", "the", "--json", "sky", "--importance=0.9"]).unwrap();
        assert!(parsed.flag("json") && !parsed.flag("help"));
        assert_eq!(parsed.option("kind").unwrap().as_deref(), Some("fact"));
        assert_eq!(parsed.option("importance").unwrap().as_deref(), Some("0.9"));
        assert_eq!(parsed.rest(), ["add", "the", "sky"]);
    }

    #[test]
    fn arguments_after_two_dashes_are_words() {
        let mut parsed = parse(&["add", "--", "--kind", "-h"]).unwrap();
        assert_eq!(parsed.rest(), ["add", "--kind", "-h"]);
    }

    #[test]
    fn unknown_and_unused_arguments_are_refused() {
        assert_eq!(parse(&["--kinds", "x"]).unwrap_err(), "unknown option `--kinds`");
        assert_eq!(parse(&["--kind"]).unwrap_err(), "`--kind` needs a value");
        let parsed = parse(&["--ttl", "3"]).unwrap();
        assert!(parsed.end().is_err());
        assert!(parse(&["one"]).unwrap().end().is_err());
    }
}
