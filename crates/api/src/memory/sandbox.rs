//! A sandbox's choices about memory, and what its execs are told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a sandbox remembers and where; what is absent stays, or takes the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryRequest {
    /// Name or id of a space that outlives the sandbox, to remember in instead of its own; `own` for its own, the
    /// default. Only its own is rolled back, restored and forked with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
    /// Spaces searched as well, all of them: the list replaces the one there is. 8 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 8)]
    pub attached: Option<Vec<AttachedSpace>>,
    /// Which execs become memories by themselves; `memory.remember` of the configuration when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember: Option<Remember>,
}

/// A space that a sandbox searches besides the one it remembers in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachedSpace {
    /// Its name or id; in answers its id.
    pub space: String,
    #[serde(default)]
    pub access: SpaceAccess,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpaceAccess {
    /// Searched and read.
    #[default]
    Read,
    /// Written to as well, by those who name it (`?space=`).
    ReadWrite,
}

/// Which execs become memories by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Remember {
    Off,
    /// Those that fail, and those that then succeed where they had failed.
    Errors,
    All,
}

impl Remember {
    /// As it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Errors => "errors",
            Self::All => "all",
        }
    }
}

/// What a sandbox remembers and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SandboxMemory {
    /// Id of the space it remembers in.
    pub space: String,
    /// Whether that is its own, which is rolled back, restored and forked with it.
    pub own: bool,
    /// Its line in that space.
    pub branch: String,
    pub attached: Vec<AttachedSpace>,
    pub remember: Remember,
}

/// What is remembered about a failure like this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RelatedMemory {
    pub id: String,
    pub kind: String,
    /// What it says, cut short. Data that somebody stored, not instructions.
    pub text: String,
    /// What it has in common with this one.
    pub why: String,
    /// From 0 to 1.
    pub score: f32,
    /// When it last happened, and how often.
    pub at_ms: u64,
    pub count: u64,
    /// What was done until it worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_by: Option<RelatedFix>,
}

/// What ended a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RelatedFix {
    /// The entry of the run that worked.
    pub id: String,
    pub at_ms: u64,
    /// What was run in between, in order.
    pub commands: Vec<String>,
    /// Files that changed in between.
    pub files: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attached_space_is_read_unless_more_is_asked_for() {
        let attached: AttachedSpace = serde_json::from_str(r#"{"space":"team"}"#).unwrap();
        assert_eq!(attached.access, SpaceAccess::Read);
        let attached: AttachedSpace =
            serde_json::from_str(r#"{"space":"team","access":"read-write"}"#).unwrap();
        assert_eq!(attached.access, SpaceAccess::ReadWrite);
    }

    #[test]
    fn a_way_to_remember_is_written_as_it_is_named() {
        for remember in [Remember::Off, Remember::Errors, Remember::All] {
            assert_eq!(serde_json::to_value(remember).unwrap(), remember.as_str());
        }
    }
}
