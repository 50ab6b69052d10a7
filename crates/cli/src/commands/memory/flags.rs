//! Flags that the memory commands share: the memory, the time of reads, filters.

use burrow_api::memory::{EntryFilter, MetadataTest};
use burrow_client::{Memory, MemorySelection};

use super::arguments;
use crate::commands::prelude::*;

/// The memory to search in all its spaces, and the time of the read.
#[derive(Clone, Debug, Args)]
pub(crate) struct SearchFlags {
    /// Sandbox or space; `space:NAME` if both have this name
    #[arg(value_name = "SANDBOX")]
    pub(crate) of: String,
    /// Read the state as of then: a number of the log, a time, how long ago (2h), or a snapshot
    #[arg(long, value_name = "WHEN", value_parser = arguments::as_of)]
    as_of: Option<String>,
}

impl SearchFlags {
    pub(crate) fn memory(&self, ctx: &Context) -> Result<Memory, Stop> {
        let selection = MemorySelection { of: self.of.clone(), as_of: self.as_of.clone(), space: None };
        Ok(ctx.client()?.memory(selection))
    }
}

/// The memory to read, the time of the read, and the space.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReadFlags {
    /// Sandbox or space; `space:NAME` if both have this name
    #[arg(value_name = "SANDBOX")]
    pub(crate) of: String,
    /// Read the state as of then: a number of the log, a time, how long ago (2h), or a snapshot
    #[arg(long, value_name = "WHEN", value_parser = arguments::as_of)]
    as_of: Option<String>,
    /// Attached space, instead of the main space of the sandbox
    #[arg(long, value_name = "SPACE")]
    space: Option<String>,
}

impl ReadFlags {
    pub(crate) fn memory(&self, ctx: &Context) -> Result<Memory, Stop> {
        let selection =
            MemorySelection { of: self.of.clone(), as_of: self.as_of.clone(), space: self.space.clone() };
        Ok(ctx.client()?.memory(selection))
    }
}

/// The memory to write to.
#[derive(Clone, Debug, Args)]
pub(crate) struct WriteFlags {
    /// Sandbox or space; `space:NAME` if both have this name
    #[arg(value_name = "SANDBOX")]
    pub(crate) of: String,
    /// Attached space, instead of the main space of the sandbox
    #[arg(long, value_name = "SPACE")]
    space: Option<String>,
}

impl WriteFlags {
    pub(crate) fn memory(&self, ctx: &Context) -> Result<Memory, Stop> {
        let selection = MemorySelection { of: self.of.clone(), as_of: None, space: self.space.clone() };
        Ok(ctx.client()?.memory(selection))
    }
}

// The types below have no documentation for clap: each command documents itself.

// Arguments of a command that reads a memory.
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) target: ReadFlags,
    #[command(flatten)]
    pub(crate) format: Format,
}

// Arguments of a command that reads an object of a memory.
#[derive(Debug, Args)]
pub(crate) struct ReadNamedArgs {
    #[command(flatten)]
    pub(crate) target: ReadFlags,
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) format: Format,
}

// Arguments of a command that changes a memory.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) target: WriteFlags,
    #[command(flatten)]
    pub(crate) format: Format,
}

// Arguments of a command that removes objects of a memory.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    pub(crate) target: WriteFlags,
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// Filters for entries.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterFlags {
    /// Only entries of this kind; may be repeated for several kinds
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only entries with this metadata: KEY=VALUE, KEY!=VALUE, KEY<VALUE, KEY>VALUE, or KEY; may be repeated
    #[arg(long = "meta", value_name = "CONDITION", value_parser = arguments::condition)]
    metadata: Vec<MetadataTest>,
    /// Only entries from then or later: a time, or how long ago (2h)
    #[arg(long, value_name = "WHEN", value_parser = arguments::moment)]
    since: Option<u64>,
    /// Only entries from before then
    #[arg(long, value_name = "WHEN", value_parser = arguments::moment)]
    until: Option<u64>,
    /// Only entries of this session
    #[arg(long)]
    session: Option<String>,
    /// Only entries from this source
    #[arg(long)]
    source: Option<String>,
    /// Only entries of this user
    #[arg(long)]
    user: Option<String>,
    /// Only entries of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Include entries in the cold tier
    #[arg(long)]
    pub(crate) cold: bool,
    /// Include entries that others replaced
    #[arg(long)]
    superseded: bool,
}

impl FilterFlags {
    pub(crate) fn filter(&self) -> EntryFilter {
        EntryFilter {
            kinds: self.kinds.clone(),
            metadata: self.metadata.clone(),
            since_ms: self.since,
            until_ms: self.until,
            session: self.session.clone(),
            source: self.source.clone(),
            user: self.user.clone(),
            agent: self.agent.clone(),
            ids: Vec::new(),
            include_cold: self.cold,
            include_superseded: self.superseded,
        }
    }

    /// `None` when no flag is set.
    pub(crate) fn given(&self) -> Option<EntryFilter> {
        Some(self.filter()).filter(|filter| *filter != EntryFilter::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::memory::MetadataOperator;

    #[test]
    fn flags_become_the_filter_of_the_api() {
        let line = "--kind fact --kind error --meta cost<3 --meta ticket --session s --cold";
        let filter = parse::arguments::<FilterFlags>(line).filter();
        assert_eq!(filter.kinds, ["fact", "error"]);
        assert_eq!(filter.metadata[0].operator, MetadataOperator::Lt);
        assert_eq!(filter.metadata[1].operator, MetadataOperator::Exists);
        assert_eq!(filter.session.as_deref(), Some("s"));
        assert!(filter.include_cold && !filter.include_superseded);
        assert!(parse::arguments::<FilterFlags>("").given().is_none());
    }
}
