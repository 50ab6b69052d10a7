//! `burrow export`: writes a snapshot to a portable file.

use std::io;

use burrow_client::{ByteStream, ExportOptions};
use tokio::io::AsyncWriteExt as _;

use crate::commands::prelude::*;
use crate::transfer::bridge::{pour, to_blocking};
use crate::transfer::encrypt::{EncryptFlags, encrypt};
use crate::transfer::input::is_standard;
use crate::transfer::save::{commit, note_written, refuse_terminal, staged};

/// Export a snapshot to a portable file
///
/// The file contains the files, the processes and the memory of the snapshot; `burrow import` reads it on this or
/// another host. It is written atomically. It never contains secrets, but it contains the RAM of the processes: omit
/// them with `--files-only`, or encrypt the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow export before-upgrade web.burrow
  burrow export today web-today.burrow --since before-upgrade    only changes; the receiver has before-upgrade
  burrow export today - --recipient age1… | ssh host burrow import - --identity key.txt")]
pub(crate) struct ExportArgs {
    /// Name or id of the snapshot
    snapshot: String,
    /// File to write; `-` for standard output
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Write only the differences from this snapshot, which the receiver must have
    #[arg(long, value_name = "SNAPSHOT")]
    since: Option<String>,
    /// Omit the processes
    #[arg(long)]
    files_only: bool,
    #[command(flatten)]
    encrypt: EncryptFlags,
    #[command(flatten)]
    format: Format,
}

/// The result, for `--json`.
#[derive(Debug, serde::Serialize)]
struct ExportReport<'w> {
    file: &'w Path,
    bytes: u64,
    signer: Option<&'w str>,
    encrypted: bool,
}

pub(crate) async fn run(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    unless_interrupted(write(ctx, args)).await?
}

async fn write(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    let what = || format!("could not export snapshot `{}`", args.snapshot);
    let standard = is_standard(&args.file);
    refuse_terminal(Some(&args.file), what, "name a file, or redirect it")?;
    let encryptor = args.encrypt.encryptor()?;
    let encrypted = encryptor.is_some();
    let options = ExportOptions { since: args.since.clone(), files_only: args.files_only };
    let export = ctx.client()?.export_snapshot(&args.snapshot, &options).await.or_fail(what)?;
    let progress = Progress::bytes(&args.snapshot, None);
    let file = if standard { None } else { Some(staged(&args.file).or_fail(what)?) };
    let bytes = match (&file, encryptor) {
        (None, None) => {
            export.bytes.copy_to(&mut tokio::io::stdout(), |count| progress.add(count)).await.or_fail(what)?
        }
        (Some(file), None) => {
            let mut target = tokio::fs::File::from_std(file.reopen().or_fail(what)?);
            let bytes = export.bytes.copy_to(&mut target, |count| progress.add(count)).await.or_fail(what)?;
            target.flush().await.or_fail(what)?;
            bytes
        }
        (None, Some(encryptor)) => encrypt_to(export.bytes, encryptor, io::stdout(), &progress, what).await?,
        (Some(file), Some(encryptor)) => {
            encrypt_to(export.bytes, encryptor, file.reopen().or_fail(what)?, &progress, what).await?
        }
    };
    if let Some(file) = file {
        commit(file, &args.file).or_fail(what)?;
    }
    progress.finish();
    let signer = export.signer.as_deref();
    if standard {
        return Ok(());
    }
    args.format.show(&ExportReport { file: &args.file, bytes, signer, encrypted }, |_| {
        note_written(bytes, &args.file);
        print::notes(signer.map(|signer| format!("signed by {}", escape(signer))));
        Ok(())
    })
}

/// Encrypts the stream on its own thread.
async fn encrypt_to(
    bytes: ByteStream,
    encryptor: age::Encryptor,
    into: impl io::Write + Send + 'static,
    progress: &Progress,
    what: impl Describe + Copy,
) -> Result<u64, Stop> {
    let (sender, mut reader) = to_blocking();
    let sealing = tokio::task::spawn_blocking(move || encrypt(encryptor, &mut reader, into));
    let total = pour(bytes, sender, progress).await.or_fail(what)?;
    sealing.await.map_err(io::Error::other).and_then(|sealed| sealed).or_fail(what)?;
    Ok(total)
}
