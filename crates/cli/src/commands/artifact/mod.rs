//! `burrow artifact`: named blobs with versions that belong to memory.

use std::path::{Path, PathBuf};

use burrow_api::defaults;
use burrow_api::memory::Artifact;
use burrow_client::{DownloadRange, NewArtifact, PageQuery};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::io::IsTerminal as _;

use super::memory::flags::{ReadFlags, WriteFlags};
use super::memory::transfer::{body, save};
use super::memory::{arguments, show};
use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print::{self, Format, quantity, table};
use crate::transfer::interrupt::unless_interrupted;

/// Characters of a hash shown in lists.
const HASH_SHOWN: usize = 12;

/// Manage artifacts: named blobs with versions
///
/// Artifacts hold reports, data and logs that are too large for a memory entry.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow artifact put web report.pdf
  burrow artifact get web report.pdf -o report.pdf
  burrow artifact ls web reports/
  burrow memory add web 'the report is done' --artifact report.pdf")]
pub(crate) struct ArtifactArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Put(PutArgs),
    Get(GetArgs),
    Ls(LsArgs),
    Versions(VersionsArgs),
    Rm(RmArgs),
}

/// Store a file as an artifact, or as a new version of one, and print its hash
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow artifact put web report.pdf --meta quarter=3
  burrow artifact put web build.log --name logs/build
  pg_dump app | burrow artifact put web - --name dumps/app.sql --type application/sql")]
struct PutArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// File to store; `-` for standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Name of the artifact; the file name by default
    #[arg(long)]
    name: Option<String>,
    /// Media type; derived from the file extension by default
    #[arg(long = "type", value_name = "TYPE")]
    media_type: Option<String>,
    /// Metadata; a value that is valid JSON is stored as JSON; may be repeated
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = arguments::metadata)]
    metadata: Vec<(String, Value)>,
    #[command(flatten)]
    format: Format,
}

/// Write an artifact to a file or to standard output
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow artifact get web report.pdf -o report.pdf
  burrow artifact get web logs/build --version 1 | less
  burrow artifact get web dumps/app.sql --from 1048576 | head -c 100")]
struct GetArgs {
    #[command(flatten)]
    target: ReadFlags,
    name: String,
    /// Version; the newest by default
    #[arg(long)]
    version: Option<u64>,
    /// File to write, atomically; standard output by default, or with `-`
    #[arg(short = 'o', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Offset of the first byte
    #[arg(long, value_name = "BYTE")]
    from: Option<u64>,
    /// Offset after the last byte
    #[arg(long, value_name = "BYTE")]
    to: Option<u64>,
}

/// List artifacts, by prefix
#[derive(Debug, Args)]
#[command(visible_alias = "list")]
struct LsArgs {
    #[command(flatten)]
    target: ReadFlags,
    /// Only artifacts whose names start with this prefix
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    format: Format,
}

/// List the versions of an artifact, oldest first
#[derive(Debug, Args)]
struct VersionsArgs {
    #[command(flatten)]
    target: ReadFlags,
    name: String,
    #[command(flatten)]
    format: Format,
}

/// Remove artifacts; their content is deleted when no branch and no snapshot refers to it
#[derive(Debug, Args)]
struct RmArgs {
    #[command(flatten)]
    target: WriteFlags,
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) async fn run(ctx: &Context, args: ArtifactArgs) -> Result<(), Stop> {
    match args.action {
        Action::Put(args) => put(ctx, args).await,
        Action::Get(args) => unless_interrupted(get(ctx, args)).await?,
        Action::Ls(args) => list(ctx, args).await,
        Action::Versions(args) => versions(ctx, args).await,
        Action::Rm(args) => remove(ctx, args).await,
    }
}

async fn put(ctx: &Context, args: PutArgs) -> Result<(), Stop> {
    let what = || format!("could not store `{}` as an artifact of `{}`", args.file.display(), args.target.of);
    let name = name(&args)
        .ok_or_else(|| Failure::new(format!("{}: no name was given", what())).hint("add --name NAME"))?;
    let media_type = args.media_type.clone().or_else(|| media_type_of(&name).map(str::to_owned));
    let new = NewArtifact { name, media_type, metadata: args.metadata.iter().cloned().collect() };
    let (body, progress) = body(&args.file, &what).await?;
    let memory = args.target.memory(ctx)?;
    let stored = unless_interrupted(memory.artifact_put(&new, body)).await?;
    progress.finish();
    let stored = stored.or_fail(what)?;
    if args.format.json {
        return print::json::pretty(&stored);
    }
    print::line(&stored.hash)?;
    let size = quantity::bytes(stored.bytes);
    print::note(&format!(
        "`{}` version {}, {size}",
        crate::print::escape::escape(&stored.name),
        stored.version
    ));
    Ok(())
}

fn name(args: &PutArgs) -> Option<String> {
    if let Some(name) = &args.name {
        return Some(name.clone());
    }
    if args.file == Path::new("-") {
        return None;
    }
    Some(args.file.file_name()?.to_string_lossy().into_owned())
}

/// The media types that agents use most; other extensions have none.
fn media_type_of(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "txt" | "log" => "text/plain; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "html" | "htm" => "text/html; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "json" => "application/json",
        "jsonl" | "ndjson" => "application/x-ndjson",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "tar" => "application/x-tar",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

async fn get(ctx: &Context, args: GetArgs) -> Result<(), Stop> {
    let what = || format!("could not get artifact `{}` of `{}`", args.name, args.target.of);
    let range = match (args.from, args.to) {
        (None, None) => None,
        (from, to) => Some(DownloadRange { start: from.unwrap_or(0), end: to }),
    };
    let download =
        args.target.memory(ctx)?.artifact_get(&args.name, args.version, range).await.or_fail(what)?;
    let to_terminal = args.output.as_deref().is_none_or(|output| output == Path::new("-"))
        && std::io::stdout().is_terminal();
    if to_terminal {
        // Control characters in the content could change the terminal.
        let failure = Failure::new(format!("{}: standard output is a terminal", what()));
        return Err(failure.hint("give a file with -o, or pipe it into `less`").into());
    }
    save(download.bytes, download.length, args.output.as_deref(), &args.name, &what).await
}

async fn list(ctx: &Context, args: LsArgs) -> Result<(), Stop> {
    let what = || format!("could not list the artifacts of `{}`", args.target.of);
    let memory = args.target.memory(ctx)?;
    let mut artifacts = Vec::new();
    let mut query = PageQuery { cursor: None, limit: Some(defaults::PAGE_LIMIT_MAX) };
    loop {
        let page = memory.artifacts(&args.prefix, &query).await.or_fail(what)?;
        artifacts.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if args.format.json { print::json::pretty(&artifacts) } else { print_table(&artifacts) }
}

async fn versions(ctx: &Context, args: VersionsArgs) -> Result<(), Stop> {
    let what = || format!("could not list the versions of artifact `{}` of `{}`", args.name, args.target.of);
    let artifacts = args.target.memory(ctx)?.artifact_versions(&args.name).await.or_fail(what)?;
    if args.format.json { print::json::pretty(&artifacts) } else { print_table(&artifacts) }
}

fn print_table(artifacts: &[Artifact]) -> Result<(), Stop> {
    let rows: Vec<_> = artifacts.iter().map(row).collect();
    table::print(&["NAME", "VERSION", "SIZE", "TYPE", "HASH", "DATE", "METADATA"], &rows)
}

fn row(artifact: &Artifact) -> Vec<String> {
    vec![
        artifact.name.clone(),
        artifact.version.to_string(),
        quantity::bytes(artifact.bytes),
        artifact.media_type.clone(),
        artifact.hash.chars().take(HASH_SHOWN).collect(),
        show::date(artifact.at_ms),
        show::excerpt(&show::metadata(&artifact.metadata), 60),
    ]
}

async fn remove(ctx: &Context, args: RmArgs) -> Result<(), Stop> {
    let memory = args.target.memory(ctx)?;
    for name in &args.names {
        let what = || format!("could not remove artifact `{name}` of `{}`", args.target.of);
        memory.artifact_forget(name).await.or_fail(what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_follow_from_file_extensions() {
        assert_eq!(media_type_of("reports/Q3.PDF"), Some("application/pdf"));
        assert_eq!(media_type_of("a.jsonl"), Some("application/x-ndjson"));
        assert_eq!(media_type_of("Makefile"), None);
        assert_eq!(media_type_of("a.xyz"), None);
    }
}
