//! `burrow artifact`: named blobs that belong to memory.

use std::path::{Path, PathBuf};

use burrow_api::defaults;
use burrow_api::memory::Artifact;
use burrow_client::{DownloadRange, NewArtifact, PageQuery};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::io::IsTerminal as _;

use super::memory::flags::{ReadFlags, WriteFlags};
use super::memory::moving::{body, save};
use super::memory::{show, words};
use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print::{self, Format, quantity, table};
use crate::transfer::interrupt::unless_interrupted;

/// Characters of a hash shown in lists.
const HASH_SHOWN: usize = 12;

/// Named blobs with versions: reports, data, logs too large for an entry
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

/// Keep a file, or a new version of one, and print its hash
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow artifact put web report.pdf --meta quarter=3
  burrow artifact put web build.log --name logs/build
  pg_dump app | burrow artifact put web - --name dumps/app.sql --type application/sql")]
struct PutArgs {
    #[command(flatten)]
    whose: WriteFlags,
    /// The file; `-` for standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// What to call it; the file's name when not given
    #[arg(long)]
    name: Option<String>,
    /// Its media type; told by the file's ending when not given
    #[arg(long = "type", value_name = "TYPE")]
    media_type: Option<String>,
    /// Metadata; a value that is JSON is taken as JSON; may be repeated
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = words::metadata)]
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
    whose: ReadFlags,
    name: String,
    /// Version; the newest when not given
    #[arg(long)]
    version: Option<u64>,
    /// File to write, complete or not at all; `-` or absent for standard output
    #[arg(short = 'o', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// First byte
    #[arg(long, value_name = "BYTE")]
    from: Option<u64>,
    /// One past the last byte
    #[arg(long, value_name = "BYTE")]
    to: Option<u64>,
}

/// List artifacts, by prefix
#[derive(Debug, Args)]
#[command(visible_alias = "list")]
struct LsArgs {
    #[command(flatten)]
    whose: ReadFlags,
    /// Only those whose names begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    format: Format,
}

/// List the versions of an artifact, oldest first
#[derive(Debug, Args)]
struct VersionsArgs {
    #[command(flatten)]
    whose: ReadFlags,
    name: String,
    #[command(flatten)]
    format: Format,
}

/// Forget artifacts; their bytes go when no branch and no snapshot refers to them
#[derive(Debug, Args)]
struct RmArgs {
    #[command(flatten)]
    whose: WriteFlags,
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
    let what = || format!("could not keep `{}` as an artifact of `{}`", args.file.display(), args.whose.of);
    let name = name(&args).ok_or_else(|| {
        Failure::new(format!("{}: nothing says what to call it", what())).hint("add --name NAME")
    })?;
    let media_type = args.media_type.clone().or_else(|| told_by_ending(&name).map(str::to_owned));
    let new = NewArtifact { name, media_type, metadata: args.metadata.iter().cloned().collect() };
    let (body, progress) = body(&args.file, &what).await?;
    let memory = args.whose.memory(ctx)?;
    let kept = unless_interrupted(memory.artifact_put(&new, body)).await?;
    progress.finish();
    let kept = kept.or_fail(what)?;
    if args.format.json {
        return print::json::pretty(&kept);
    }
    print::line(&kept.hash)?;
    let size = quantity::bytes(kept.bytes);
    print::note(&format!("`{}` version {}, {size}", crate::print::escape::escape(&kept.name), kept.version));
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

/// The few that agents handle most; anything else is bytes.
fn told_by_ending(name: &str) -> Option<&'static str> {
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
    let what = || format!("could not get artifact `{}` of `{}`", args.name, args.whose.of);
    let range = match (args.from, args.to) {
        (None, None) => None,
        (from, to) => Some(DownloadRange { start: from.unwrap_or(0), end: to }),
    };
    let download =
        args.whose.memory(ctx)?.artifact_get(&args.name, args.version, range).await.or_fail(what)?;
    let to_terminal = args.output.as_deref().is_none_or(|output| output == Path::new("-"))
        && std::io::stdout().is_terminal();
    if to_terminal {
        // What it holds may do things to a terminal.
        let failure = Failure::new(format!("{}: standard output is a terminal", what()));
        return Err(failure.hint("give a file with -o, or pipe it into `less`").into());
    }
    save(download.bytes, download.length, args.output.as_deref(), &args.name, &what).await
}

async fn list(ctx: &Context, args: LsArgs) -> Result<(), Stop> {
    let what = || format!("could not list the artifacts of `{}`", args.whose.of);
    let memory = args.whose.memory(ctx)?;
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
    let what = || format!("could not list the versions of artifact `{}` of `{}`", args.name, args.whose.of);
    let artifacts = args.whose.memory(ctx)?.artifact_versions(&args.name).await.or_fail(what)?;
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
    let memory = args.whose.memory(ctx)?;
    for name in &args.names {
        let what = || format!("could not forget artifact `{name}` of `{}`", args.whose.of);
        memory.artifact_forget(name).await.or_fail(what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_tells_the_type_of_what_agents_handle() {
        assert_eq!(told_by_ending("reports/Q3.PDF"), Some("application/pdf"));
        assert_eq!(told_by_ending("a.jsonl"), Some("application/x-ndjson"));
        assert_eq!(told_by_ending("Makefile"), None);
        assert_eq!(told_by_ending("a.xyz"), None);
    }
}
