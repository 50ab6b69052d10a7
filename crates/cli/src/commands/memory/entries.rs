//! `burrow memory ls|get|update|history|sessions`: single entries and lists of entries.

use burrow_api::memory::{MemoryEntry, MemorySession, MemoryVersion, UpdateEntry};
use burrow_client::{Memory, PageQuery};
use serde_json::Value;

use super::arguments;
use super::flags::{FilterFlags, ReadFlags, WriteFlags};
use super::input::TextArgs;
use super::show::{self, date, excerpt};
use crate::commands::pages;
use crate::commands::prelude::*;
use crate::print::escape::escape_lines;

/// Number of entries shown by default: about one screen.
const LIMIT: usize = 50;
const PAGE: u32 = 1_000;

/// List entries, newest first
#[derive(Debug, Args)]
#[command(
    visible_alias = "list",
    after_help = "\
Examples:
  burrow memory ls web
  burrow memory ls web --kind error --since 24h
  burrow memory ls web --all -q | wc -l
  burrow memory ls web --as-of before-upgrade --json"
)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    target: ReadFlags,
    /// Maximum number of entries
    #[arg(short = 'n', long, default_value_t = LIMIT, conflicts_with = "all")]
    limit: usize,
    /// Show all entries
    #[arg(short = 'a', long)]
    all: bool,
    /// Print ids only
    #[arg(short = 'q', long, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    format: Format,
}

/// Show an entry
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory get web mem7h3k2m9pqx1c8r5v7y
  burrow memory get web mem7h3k2m9pqx1c8r5v7y --text > note.txt      verbatim")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    target: ReadFlags,
    /// Id of the entry
    id: String,
    /// Print only the text
    #[arg(long, conflicts_with = "json")]
    text: bool,
    #[command(flatten)]
    format: Format,
}

/// Change an entry; the old version stays in its history
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory update web mem7h3k2m9pqx1c8r5v7y 'the deploy key is on db-3'
  burrow memory update web mem7h3k2m9pqx1c8r5v7y --importance 0.9 --meta ticket=OPS-12
  burrow memory update web mem7h3k2m9pqx1c8r5v7y --valid-to 2026-12-31 --if-version 2")]
pub(crate) struct UpdateArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// Id of the entry
    id: String,
    #[command(flatten)]
    text: TextArgs,
    /// New kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Metadata to set; may be repeated
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = arguments::metadata)]
    metadata: Vec<(String, Value)>,
    /// Metadata to remove; may be repeated
    #[arg(long = "unmeta", value_name = "KEY")]
    unmetadata: Vec<String>,
    /// Importance, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = arguments::share)]
    importance: Option<f32>,
    /// Start of its validity
    #[arg(long, value_name = "WHEN", value_parser = arguments::moment)]
    valid_from: Option<u64>,
    /// End of its validity
    #[arg(long, value_name = "WHEN", value_parser = arguments::moment)]
    valid_to: Option<u64>,
    /// Only if the entry still has this version
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    #[command(flatten)]
    format: Format,
}

/// Show all versions of an entry
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    target: ReadFlags,
    /// Id of the entry
    id: String,
    #[command(flatten)]
    format: Format,
}

/// List sessions
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory sessions web
  burrow memory ls web --session \"$(burrow memory sessions web --json | jq -r .[0].session)\"")]
pub(crate) struct SessionsArgs {
    #[command(flatten)]
    target: ReadFlags,
    /// Maximum number of sessions
    #[arg(short = 'n', long, default_value_t = LIMIT)]
    limit: usize,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn list(ctx: &Context, args: LsArgs) -> Result<(), Stop> {
    let what = || format!("could not list the memory of `{}`", args.target.of);
    let limit = if args.all { usize::MAX } else { args.limit };
    let filter = args.filter.filter();
    let memory = args.target.memory(ctx)?;
    let read = pages::read(limit, async |page| memory.list(&filter, page).await).await;
    let (entries, more) = read.or_fail(what)?;
    if args.quiet {
        return print::lines(entries.iter().map(|entry| &entry.id));
    }
    let width = show::text_width(60);
    args.format.table(&["NUMBER", "DATE", "KIND", "ID", "TEXT"], &entries, |entry| row(entry, width))?;
    if more && !args.format.json {
        print::note("there are more entries: --all shows all, -n N shows N");
    }
    Ok(())
}

fn row(entry: &MemoryEntry, width: usize) -> Vec<String> {
    let times = if entry.count > 1 { format!("({}×) ", entry.count) } else { String::new() };
    vec![
        entry.seq.to_string(),
        date(entry.at_ms),
        entry.kind.clone(),
        entry.id.clone(),
        format!("{times}{}", excerpt(&entry.text, width)),
    ]
}

pub(super) async fn get(ctx: &Context, args: GetArgs) -> Result<(), Stop> {
    let what = || format!("could not show entry `{}` of the memory of `{}`", args.id, args.target.of);
    let entry = args.target.memory(ctx)?.entry(&args.id).await.or_fail(what)?;
    if args.text {
        return show::verbatim(&entry.text);
    }
    args.format.show(&entry, |entry| {
        table::facts(show::facts(entry))?;
        print::line(format!("\n{}", escape_lines(entry.text.as_bytes())))
    })
}

pub(super) async fn update(ctx: &Context, args: UpdateArgs) -> Result<(), Stop> {
    let what = || format!("could not update entry `{}` of the memory of `{}`", args.id, args.target.of);
    let memory = args.target.memory(ctx)?;
    let mut change = UpdateEntry {
        text: args.text.read(what)?,
        kind: args.kind.clone(),
        metadata: None,
        importance: args.importance,
        valid_from_ms: args.valid_from,
        valid_to_ms: args.valid_to,
        artifacts: None,
        links: None,
        if_version: args.if_version,
    };
    let changes_metadata = !args.metadata.is_empty() || !args.unmetadata.is_empty();
    if !changes_metadata && change == (UpdateEntry { if_version: args.if_version, ..UpdateEntry::default() })
    {
        return fail(
            format!("{}: no change was given", what()),
            "give a text, --kind, --meta, --importance or another option; see `burrow memory update --help`",
        );
    }
    if changes_metadata {
        merge_metadata(&memory, &args, &mut change).await?;
    }
    let entry = memory.update(&args.id, &change).await.or_fail(what)?;
    args.format.show(&entry, |entry| {
        print::note(format!("version {}", entry.version));
        Ok(())
    })
}

/// The API replaces all metadata; this sets and removes single keys on the version that was read.
async fn merge_metadata(memory: &Memory, args: &UpdateArgs, change: &mut UpdateEntry) -> Result<(), Stop> {
    let what = || format!("could not read entry `{}` of the memory of `{}`", args.id, args.target.of);
    let known = memory.entry(&args.id).await.or_fail(what)?;
    let mut metadata = known.metadata;
    metadata.retain(|key, _| !args.unmetadata.contains(key));
    metadata.extend(args.metadata.iter().cloned());
    change.metadata = Some(metadata);
    change.if_version = change.if_version.or(Some(known.version));
    Ok(())
}

pub(super) async fn history(ctx: &Context, args: HistoryArgs) -> Result<(), Stop> {
    let what = || format!("could not show the history of entry `{}`", args.id);
    let versions = args.target.memory(ctx)?.history(&args.id).await.or_fail(what)?;
    let width = show::text_width(56);
    args.format.table(&["NUMBER", "DATE", "CHANGE", "VERSION", "TEXT"], &versions, |version| {
        version_row(version, width)
    })
}

fn version_row(version: &MemoryVersion, width: usize) -> Vec<String> {
    let (number, text) = match &version.entry {
        Some(entry) => (entry.version.to_string(), excerpt(&entry.text, width)),
        None => (String::new(), version.times.map(|times| format!("{times} times")).unwrap_or_default()),
    };
    vec![version.seq.to_string(), date(version.stored_ms), version.change.as_str().to_owned(), number, text]
}

pub(super) async fn sessions(ctx: &Context, args: SessionsArgs) -> Result<(), Stop> {
    let what = || format!("could not list the sessions of `{}`", args.target.of);
    let page =
        PageQuery { cursor: None, limit: Some(u32::try_from(args.limit).unwrap_or(PAGE).clamp(1, PAGE)) };
    let sessions = args.target.memory(ctx)?.sessions(&page).await.or_fail(what)?.items;
    let width = show::text_width(80);
    args.format.table(&["SESSION", "FROM", "TO", "ENTRIES", "STATE", "BEGINS"], &sessions, |session| {
        session_row(session, width)
    })
}

fn session_row(session: &MemorySession, width: usize) -> Vec<String> {
    vec![
        session.session.clone(),
        date(session.opened_ms),
        date(session.last_ms),
        session.entries.to_string(),
        if session.closed { "closed" } else { "open" }.to_owned(),
        excerpt(&session.first, width),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::memory::MemoryChange;

    #[test]
    fn a_repeated_entry_shows_its_count() {
        let mut entry = show::example("mem1", "make failed\nwith 2");
        assert_eq!(row(&entry, 40)[4], "make failed with 2");
        entry.count = 3;
        assert_eq!(row(&entry, 40)[4], "(3×) make failed with 2");
    }

    #[test]
    fn a_change_without_a_text_shows_its_kind() {
        let mut version = MemoryVersion {
            seq: 9,
            stored_ms: 1_794_710_393_000,
            branch: "brn".to_owned(),
            change: MemoryChange::Forgotten,
            entry: None,
            times: None,
        };
        assert_eq!(version_row(&version, 40), ["9", "2026-11-15 02:39", "forgotten", "", ""]);
        version.change = MemoryChange::Repeated;
        version.times = Some(3);
        assert_eq!(version_row(&version, 40)[2..], ["repeated", "", "3 times"]);
        version.change = MemoryChange::Written;
        version.entry = Some(show::example("mem1", "x"));
        assert_eq!(version_row(&version, 40)[2..], ["written", "1", "x"]);
    }
}
