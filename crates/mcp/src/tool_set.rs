//! Which tools a connection offers.
//!
//! Every definition is part of each request to a model, so a connection offers a core set by default. The others are named,
//! or all of them are requested.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::server::tool_names;

/// What most work in a sandbox needs. A test limits the size of its definitions.
pub(crate) const CORE: &[&str] = &[
    "sandbox_run",
    "sandbox_run_code",
    "sandbox_process_output",
    "sandbox_read_file",
    "sandbox_write_file",
    "sandbox_edit_file",
    "sandbox_snapshot",
    "sandbox_restore",
    "sandbox_fork",
    "sandbox_diff",
    "sandbox_merge",
    "sandbox_delete_fork",
    "memory_remember",
    "memory_recall",
];

/// Names that are accepted in one list.
const NAMES_MAX: usize = 100;

/// The tools of a connection: `core`, `all`, or names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSet(BTreeSet<&'static str>);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no tool is named `{0}`: give `core`, `all`, or names separated by commas, such as `core,sandbox_ports`"
)]
pub struct UnknownTool(String);

impl ToolSet {
    pub fn core() -> Self {
        Self(CORE.iter().copied().collect())
    }

    pub fn all() -> Self {
        Self(tool_names().collect())
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

impl Default for ToolSet {
    fn default() -> Self {
        Self::core()
    }
}

impl FromStr for ToolSet {
    type Err = UnknownTool;

    fn from_str(text: &str) -> Result<Self, UnknownTool> {
        let mut set = BTreeSet::new();
        for word in text.split(',').take(NAMES_MAX).map(str::trim) {
            match word {
                "core" => set.extend(CORE),
                "all" => set.extend(tool_names()),
                name => {
                    let known = tool_names().find(|known| *known == name);
                    set.insert(known.ok_or_else(|| UnknownTool(name.chars().take(64).collect()))?);
                }
            }
        }
        Ok(Self(set))
    }
}

impl fmt::Display for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().copied().collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_consists_of_sets_and_names() {
        assert_eq!("core".parse(), Ok(ToolSet::core()));
        assert_eq!("all".parse(), Ok(ToolSet::all()));
        let set: ToolSet = "sandbox_ports, sandbox_run".parse().unwrap();
        assert_eq!(set.to_string(), "sandbox_ports,sandbox_run");
        let set: ToolSet = "core,sandbox_ports".parse().unwrap();
        assert!(
            set.contains("sandbox_ports") && set.contains("sandbox_run") && !set.contains("sandbox_status")
        );
        for bad in ["", "core,", "run", "Core", "sandbox_run;all"] {
            assert!(bad.parse::<ToolSet>().is_err(), "{bad}");
        }
    }
}
