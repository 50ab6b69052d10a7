//! `burrow import`: reads a snapshot from a portable file.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use burrow_client::{ImportOptions, UploadBody};
use clap::Args;

use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print::escape::escape;
use crate::print::{self, Format, quantity};
use crate::transfer::bridge::from_blocking;
use crate::transfer::encrypt::{DecryptFlags, decrypt};
use crate::transfer::interrupt::unless_interrupted;
use crate::transfer::progress::Progress;

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
    let standard = args.file.as_os_str() == "-";
    let total = if standard {
        None
    } else {
        let metadata = std::fs::metadata(&args.file).or_fail(what)?;
        if !metadata.is_file() {
            return Err(Failure::new(format!("{}: not a regular file", what())).into());
        }
        Some(metadata.len())
    };
    let body = match identities {
        Some(identities) => {
            let from: Box<dyn Read + Send> = match standard {
                true => Box::new(io::stdin()),
                false => Box::new(std::fs::File::open(&args.file).or_fail(what)?),
            };
            let (mut writer, stream) = from_blocking();
            tokio::task::spawn_blocking(move || {
                if let Err(error) = decrypt(&identities, from, &mut writer) {
                    writer.fail(&error);
                }
            });
            UploadBody::from_stream(stream, None)
        }
        None if standard => UploadBody::from_reader(tokio::io::stdin(), None),
        None => UploadBody::from_reader(tokio::fs::File::open(&args.file).await.or_fail(what)?, total),
    };
    let progress = Arc::new(Progress::bytes("sending", total));
    let counter = progress.clone();
    let body = body.inspect(move |bytes| counter.add(bytes.len() as u64));
    let options =
        ImportOptions { name: args.name.clone(), files_only: args.files_only, trust: args.trust.clone() };
    let imported = ctx.client()?.import_snapshot(&options, body).await;
    progress.finish();
    let imported = imported.or_fail(what)?;
    if args.format.json {
        return print::json::pretty(&imported);
    }
    print::line(&escape(&imported.snapshot.id))?;
    let processes = if imported.snapshot.processes { "with its processes" } else { "without processes" };
    let names = quantity::count(usize::try_from(imported.entries).unwrap_or(usize::MAX), "entry", "entries");
    let content = quantity::bytes(imported.content_bytes);
    print::note(&format!("snapshot `{}`, {names}, {content}, {processes}", escape(&imported.origin)));
    Ok(())
}
