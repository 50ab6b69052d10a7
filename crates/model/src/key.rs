//! What an API key may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One permission of a key. `Admin` includes `Exec`, `Exec` includes `Read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// List and inspect.
    Read,
    /// Also create, run, change and delete sandboxes.
    Exec,
    /// Also manage keys, configuration and backups.
    Admin,
}

/// The widest scope of a key, and what it implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeSet(Scope);

impl ScopeSet {
    pub fn new(widest: Scope) -> Self {
        Self(widest)
    }

    pub fn allows(self, needed: Scope) -> bool {
        needed <= self.0
    }

    pub fn widest(self) -> Scope {
        self.0
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Exec => "exec",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Scope {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "read" => Ok(Self::Read),
            "exec" => Ok(Self::Exec),
            "admin" => Ok(Self::Admin),
            _ => Err("a scope is `read`, `exec` or `admin`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_scope_includes_the_narrower_ones() {
        assert!(ScopeSet::new(Scope::Admin).allows(Scope::Read));
        assert!(ScopeSet::new(Scope::Exec).allows(Scope::Exec));
        assert!(!ScopeSet::new(Scope::Read).allows(Scope::Exec));
        assert!(!ScopeSet::new(Scope::Exec).allows(Scope::Admin));
    }
}
