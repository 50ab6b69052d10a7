//! `burrow import`: reads a snapshot from a portable file.

use std::sync::Arc;

use burrow_client::{ImportOptions, UploadBody};

use crate::commands::prelude::*;
use crate::transfer::bridge::from_blocking;
use crate::transfer::encrypt::{DecryptFlags, decrypt};
use crate::transfer::input::{self, is_standard};
use crate::transfer::upload::{body, counted, length};

/// Import a snapshot from a file and print its id
///
/// The file is verified as a whole before any part of it is used. Processes are accepted only from trusted hosts: this
/// host, those in the configuration, and those named by `--trust`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow import web.burrow
  burrow import web.burrow --name from-laptop --trust burrow-export+…
  burrow import web.burrow --files-only        files and memory, without processes
  burrow snapshot restore from-laptop --name web    a sandbox that continues from the snapshot")]
pub(crate) struct ImportArgs {
    /// File to import; `-` for standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Name of the snapshot; its original name by default, if that is free
    #[arg(long)]
    name: Option<String>,
    /// Omit the processes
    #[arg(long)]
    files_only: bool,
    /// Accept processes signed by this key, which `burrow export` prints
    #[arg(long, value_name = "KEY")]
    trust: Option<String>,
    #[command(flatten)]
    decrypt: DecryptFlags,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: ImportArgs) -> Result<(), Stop> {
    unless_interrupted(read(ctx, args)).await?
}

async fn read(ctx: &Context, args: ImportArgs) -> Result<(), Stop> {
    let what = || format!("could not import `{}`", escape(&args.file.display().to_string()));
    let identities = args.decrypt.identities()?;
    let (body, progress) = match identities {
        Some(identities) => {
            let total = if is_standard(&args.file) { None } else { Some(length(&args.file, what)?) };
            let from = input::open(&args.file).or_fail(what)?;
            let (mut writer, stream) = from_blocking();
            // Ends with the input, or at the next write after the upload has ended.
            drop(tokio::task::spawn_blocking(move || {
                if let Err(error) = decrypt(&identities, from, &mut writer) {
                    writer.fail(&error);
                }
            }));
            let progress = Arc::new(Progress::bytes("sending", total));
            (counted(UploadBody::from_stream(stream, None), &progress), progress)
        }
        None => body(&args.file, what).await?,
    };
    let options =
        ImportOptions { name: args.name.clone(), files_only: args.files_only, trust: args.trust.clone() };
    let imported = ctx.client()?.import_snapshot(&options, body).await;
    progress.finish();
    let imported = imported.or_fail(what)?;
    let processes = if imported.snapshot.processes { "with its processes" } else { "without processes" };
    let names = quantity::count(imported.entries, "entry", "entries");
    let content = quantity::bytes(imported.content_bytes);
    let note = format!("snapshot `{}`, {names}, {content}, {processes}", escape(&imported.origin));
    args.format.report(&imported, [escape(&imported.snapshot.id)], [note])
}
