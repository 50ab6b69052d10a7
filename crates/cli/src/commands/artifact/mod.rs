//! `burrow artifact`: named blobs with versions that belong to memory.

use burrow_api::memory::Artifact;
use burrow_client::{DownloadRange, NewArtifact};
use serde_json::Value;

use super::memory::flags::{ReadFlags, ReadNamedArgs, RemoveArgs, WriteFlags};
use super::memory::{arguments, show};
use crate::commands::pages;
use crate::commands::prelude::*;
use crate::transfer::input::is_standard;
use crate::transfer::save::{refuse_terminal, save};
use crate::transfer::upload::body;

/// Characters of a hash shown in lists.
const HASH_SHOWN: usize = 12;

subcommands! {
    /// Manage artifacts: named blobs with versions
    ///
    /// Artifacts hold reports, data and logs that are too large for a memory entry.
    #[command(after_help = "\
Examples:
  burrow artifact put web report.pdf
  burrow artifact get web report.pdf -o report.pdf
  burrow artifact ls web reports/
  burrow memory add web 'the report is done' --artifact report.pdf")]
    pub(crate) enum ArtifactCommand {
        Put(PutArgs) => put,
        Get(GetArgs) => get,
        Ls(LsArgs) => list,
        /// List the versions of an artifact, oldest first
        Versions(ReadNamedArgs) => versions,
        /// Remove artifacts; their content is deleted when no branch and no snapshot refers to it
        Rm(RemoveArgs) => remove,
    }
}

/// Store a file as an artifact, or as a new version of one, and print its hash
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow artifact put web report.pdf --meta quarter=3
  burrow artifact put web build.log --name logs/build
  pg_dump app | burrow artifact put web - --name dumps/app.sql --type application/sql")]
pub(crate) struct PutArgs {
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
pub(crate) struct GetArgs {
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
pub(crate) struct LsArgs {
    #[command(flatten)]
    target: ReadFlags,
    /// Only artifacts whose names start with this prefix
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    format: Format,
}

async fn put(ctx: &Context, args: PutArgs) -> Result<(), Stop> {
    let what = || format!("could not store `{}` as an artifact of `{}`", args.file.display(), args.target.of);
    let name = name(&args)
        .ok_or_else(|| Failure::new(format!("{}: no name was given", what())).hint("add --name NAME"))?;
    let media_type = args.media_type.clone().or_else(|| media_type_of(&name).map(str::to_owned));
    let new = NewArtifact { name, media_type, metadata: args.metadata.iter().cloned().collect() };
    let (body, progress) =
        body(&args.file, || format!("{}: could not read `{}`", what(), args.file.display())).await?;
    let memory = args.target.memory(ctx)?;
    let stored = unless_interrupted(memory.artifact_put(&new, body)).await?;
    progress.finish();
    let stored = stored.or_fail(what)?;
    let (shown, size) = (escape(&stored.name), quantity::bytes(stored.bytes));
    let note = format!("`{shown}` version {}, {size}", stored.version);
    args.format.report(&stored, [&stored.hash], [note])
}

fn name(args: &PutArgs) -> Option<String> {
    let of_file = || args.file.file_name().filter(|_| !is_standard(&args.file));
    args.name.clone().or_else(|| Some(of_file()?.to_string_lossy().into_owned()))
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
    unless_interrupted(async {
        let memory = args.target.memory(ctx)?;
        let download = memory.artifact_get(&args.name, args.version, range).await.or_fail(what)?;
        let output = args.output.as_deref();
        refuse_terminal(output, what, "give a file with -o, or pipe it into `less`")?;
        save(download.bytes, download.length, output, &args.name, what).await
    })
    .await?
}

async fn list(ctx: &Context, args: LsArgs) -> Result<(), Stop> {
    let what = || format!("could not list the artifacts of `{}`", args.target.of);
    let memory = args.target.memory(ctx)?;
    let read = pages::read(usize::MAX, async |page| memory.artifacts(&args.prefix, page).await).await;
    let (artifacts, _) = read.or_fail(what)?;
    args.format.table(HEADER, &artifacts, row)
}

async fn versions(ctx: &Context, args: ReadNamedArgs) -> Result<(), Stop> {
    let what = || format!("could not list the versions of artifact `{}` of `{}`", args.name, args.target.of);
    let artifacts = args.target.memory(ctx)?.artifact_versions(&args.name).await.or_fail(what)?;
    args.format.table(HEADER, &artifacts, row)
}

const HEADER: &[&str] = &["NAME", "VERSION", "SIZE", "TYPE", "HASH", "DATE", "METADATA"];

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

async fn remove(ctx: &Context, args: RemoveArgs) -> Result<(), Stop> {
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
