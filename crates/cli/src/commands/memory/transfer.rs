//! `burrow memory export` and `import`: memory as JSON Lines.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_client::{ByteStream, UploadBody};
use clap::Args;
use tokio::io::AsyncWriteExt as _;

use super::flags::{ReadFlags, WriteFlags};
use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print::escape::escape;
use crate::print::{self, Format, quantity};
use crate::transfer::download::staged;
use crate::transfer::interrupt::unless_interrupted;
use crate::transfer::progress::Progress;

/// Export all entries as JSON Lines, including cold and superseded ones
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory export web -o web.jsonl
  burrow memory export web --as-of before-upgrade | jq -r 'select(.line==\"entry\") | .text'
  burrow memory export web | burrow memory import space:ops -")]
pub(super) struct ExportArgs {
    #[command(flatten)]
    target: ReadFlags,
    /// File to write, atomically; standard output by default, or with `-`
    #[arg(short = 'o', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
}

/// Import entries from a file of `export`; existing entries are skipped
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory import web web.jsonl
  zcat web.jsonl.gz | burrow memory import web -")]
pub(super) struct ImportArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// File to import; `-` for standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn export(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    let what = || format!("could not export the memory of `{}`", args.target.of);
    unless_interrupted(async {
        let lines = args.target.memory(ctx)?.export().await.or_fail(what)?;
        save(lines, None, args.output.as_deref(), &args.target.of, &what).await
    })
    .await?
}

/// Writes a stream to a file, atomically, or to standard output.
pub(crate) async fn save(
    bytes: ByteStream,
    total: Option<u64>,
    output: Option<&Path>,
    label: &str,
    what: &dyn Fn() -> String,
) -> Result<(), Stop> {
    let progress = Progress::bytes(label, total);
    let Some(output) = output.filter(|output| *output != Path::new("-")) else {
        // A progress bar would mix with the data on the terminal.
        if io::stdout().is_terminal() {
            progress.finish();
        }
        bytes.copy_to(&mut tokio::io::stdout(), |count| progress.add(count)).await.or_fail(what)?;
        return Ok(());
    };
    let file = staged(output).or_fail(what)?;
    let mut target = tokio::fs::File::from_std(file.reopen().or_fail(what)?);
    let written = bytes.copy_to(&mut target, |count| progress.add(count)).await.or_fail(what)?;
    target.flush().await.or_fail(what)?;
    target.sync_all().await.or_fail(what)?;
    file.persist(output).map_err(|error| error.error).or_fail(what)?;
    progress.finish();
    print::note(&format!(
        "wrote {} to `{}`",
        quantity::bytes(written),
        escape(&output.display().to_string())
    ));
    Ok(())
}

/// A file, or with `-` standard input, as a request body with a progress bar.
pub(crate) async fn body(
    file: &Path,
    what: &dyn Fn() -> String,
) -> Result<(UploadBody, Arc<Progress>), Stop> {
    let (body, total) = if file == Path::new("-") {
        (UploadBody::from_reader(tokio::io::stdin(), None), None)
    } else {
        let named = || format!("{}: could not read `{}`", what(), file.display());
        let opened = tokio::fs::File::open(file).await.or_fail(named)?;
        let metadata = opened.metadata().await.or_fail(named)?;
        if !metadata.is_file() {
            let failure = Failure::new(format!("{}: `{}` is not a regular file", what(), file.display()));
            return Err(failure.hint("give a file, or `-` for standard input").into());
        }
        (UploadBody::from_reader(opened, Some(metadata.len())), Some(metadata.len()))
    };
    let progress = Arc::new(Progress::bytes("sending", total));
    let counter = progress.clone();
    Ok((body.inspect(move |bytes| counter.add(bytes.len() as u64)), progress))
}

pub(super) async fn import(ctx: &Context, args: ImportArgs) -> Result<(), Stop> {
    let what = || format!("could not import into the memory of `{}`", args.target.of);
    let (body, progress) = body(&args.file, &what).await?;
    let imported = args.target.memory(ctx)?.import(body).await;
    progress.finish();
    let imported = imported.or_fail(what)?;
    if args.format.json {
        return print::json::pretty(&imported);
    }
    let mut summary = format!("{} entries stored, {} existed already", imported.added, imported.existed);
    if imported.updated > 0 {
        summary.push_str(&format!(", {} updated", imported.updated));
    }
    if imported.erased > 0 {
        summary.push_str(&format!(", {} skipped because they were erased here", imported.erased));
    }
    print::note(&summary);
    Ok(())
}
