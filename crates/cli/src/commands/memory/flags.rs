//! Flags that the commands about memory share: whose, of when, which entries.

use burrow_api::memory::{EntryFilter, MetadataOperator, MetadataTest};
use burrow_client::{Memory, MemoryOf};
use clap::Args;

use super::words::{self, Comparison, Condition};
use crate::context::Context;
use crate::failure::Stop;

/// Whose memory is looked through, in all its spaces, and of when.
#[derive(Clone, Debug, Args)]
pub(crate) struct LookFlags {
    /// A sandbox, or a space; `space:NAME` where both have the name
    #[arg(value_name = "SANDBOX")]
    pub(crate) of: String,
    /// As it was then: a number of the log, a time, how long ago (2h), or a snapshot
    #[arg(long, value_name = "WHEN", value_parser = words::as_of)]
    as_of: Option<String>,
}

impl LookFlags {
    pub(crate) fn memory(&self, ctx: &Context) -> Result<Memory, Stop> {
        let whose = MemoryOf { of: self.of.clone(), as_of: self.as_of.clone(), space: None };
        Ok(ctx.client()?.memory(whose))
    }
}

/// Whose memory is read, of when, and in which space.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReadFlags {
    /// A sandbox, or a space; `space:NAME` where both have the name
    #[arg(value_name = "SANDBOX")]
    pub(crate) of: String,
    /// As it was then: a number of the log, a time, how long ago (2h), or a snapshot
    #[arg(long, value_name = "WHEN", value_parser = words::as_of)]
    as_of: Option<String>,
    /// An attached space instead of the one the sandbox remembers in
    #[arg(long, value_name = "SPACE")]
    space: Option<String>,
}

impl ReadFlags {
    pub(crate) fn memory(&self, ctx: &Context) -> Result<Memory, Stop> {
        let whose = MemoryOf { of: self.of.clone(), as_of: self.as_of.clone(), space: self.space.clone() };
        Ok(ctx.client()?.memory(whose))
    }
}

/// Whose memory is written to.
#[derive(Clone, Debug, Args)]
pub(crate) struct WriteFlags {
    /// A sandbox, or a space; `space:NAME` where both have the name
    #[arg(value_name = "SANDBOX")]
    pub(crate) of: String,
    /// An attached space instead of the one the sandbox remembers in
    #[arg(long, value_name = "SPACE")]
    space: Option<String>,
}

impl WriteFlags {
    pub(crate) fn memory(&self, ctx: &Context) -> Result<Memory, Stop> {
        let whose = MemoryOf { of: self.of.clone(), as_of: None, space: self.space.clone() };
        Ok(ctx.client()?.memory(whose))
    }
}

/// Which entries.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which entries")]
pub(crate) struct FilterFlags {
    /// Of this kind; may be repeated, for any of them
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// With such metadata: KEY=VALUE, KEY!=VALUE, KEY<VALUE, KEY>VALUE, or KEY; may be repeated
    #[arg(long = "meta", value_name = "CONDITION", value_parser = words::condition)]
    metadata: Vec<Condition>,
    /// Happened then or later: a time, or how long ago (2h)
    #[arg(long, value_name = "WHEN", value_parser = words::moment)]
    since: Option<u64>,
    /// Happened before then
    #[arg(long, value_name = "WHEN", value_parser = words::moment)]
    until: Option<u64>,
    /// Of this session
    #[arg(long)]
    session: Option<String>,
    /// From this source
    #[arg(long)]
    source: Option<String>,
    /// Of this user
    #[arg(long)]
    user: Option<String>,
    /// Of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Those in the cold tier too
    #[arg(long)]
    pub(crate) cold: bool,
    /// Those that others replaced too
    #[arg(long)]
    superseded: bool,
}

impl FilterFlags {
    pub(crate) fn filter(&self) -> EntryFilter {
        EntryFilter {
            kinds: self.kinds.clone(),
            metadata: self.metadata.iter().map(test).collect(),
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

    /// `None` when it asks for nothing in particular.
    pub(crate) fn given(&self) -> Option<EntryFilter> {
        Some(self.filter()).filter(|filter| *filter != EntryFilter::default())
    }
}

fn test(condition: &Condition) -> MetadataTest {
    let operator = match condition.comparison {
        Comparison::Equal => MetadataOperator::Eq,
        Comparison::Unequal => MetadataOperator::Ne,
        Comparison::Less => MetadataOperator::Lt,
        Comparison::More => MetadataOperator::Gt,
        Comparison::Exists => MetadataOperator::Exists,
    };
    MetadataTest { path: condition.path.clone(), operator, value: condition.value.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        filter: FilterFlags,
    }

    #[test]
    fn flags_become_the_filter_that_the_daemon_takes() {
        let line = Line::parse_from([
            "x",
            "--kind",
            "fact",
            "--kind",
            "error",
            "--meta",
            "cost<3",
            "--meta",
            "ticket",
            "--session",
            "s",
            "--cold",
        ]);
        let filter = line.filter.filter();
        assert_eq!(filter.kinds, ["fact", "error"]);
        assert_eq!(filter.metadata[0].operator, MetadataOperator::Lt);
        assert_eq!(filter.metadata[1].operator, MetadataOperator::Exists);
        assert_eq!(filter.session.as_deref(), Some("s"));
        assert!(filter.include_cold && !filter.include_superseded);
        assert!(Line::parse_from(["x"]).filter.given().is_none());
    }
}
