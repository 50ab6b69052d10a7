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

/// Write all entries as JSON Lines, cold and superseded ones included
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory export web -o web.jsonl
  burrow memory export web --as-of before-upgrade | jq -r 'select(.line==\"entry\") | .text'
  burrow memory export web | burrow memory import space:ops -")]
pub(super) struct ExportArgs {
    #[command(flatten)]
    whose: ReadFlags,
    /// File to write, complete or not at all; `-` or absent for standard output
    #[arg(short = 'o', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
}

/// Read what `export` wrote; what is there already is not stored again
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory import web web.jsonl
  zcat web.jsonl.gz | burrow memory import web -")]
pub(super) struct ImportArgs {
    #[command(flatten)]
    whose: WriteFlags,
    /// The lines; `-` for standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn export(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    let what = || format!("could not export the memory of `{}`", args.whose.of);
    unless_interrupted(async {
        let lines = args.whose.memory(ctx)?.export().await.or_fail(what)?;
        save(lines, None, args.output.as_deref(), &args.whose.of, &what).await
    })
    .await?
}

/// Writes a stream to a file, complete or not at all, or to standard output.
pub(crate) async fn save(
    bytes: ByteStream,
    total: Option<u64>,
    output: Option<&Path>,
    label: &str,
    what: &dyn Fn() -> String,
) -> Result<(), Stop> {
    let progress = Progress::bytes(label, total);
    let Some(output) = output.filter(|output| *output != Path::new("-")) else {
        // A bar among the data of a terminal helps nobody.
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

/// A file, or with `-` standard input, as a body that shows how far it is.
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
            let failure = Failure::new(format!("{}: `{}` is no file", what(), file.display()));
            return Err(failure.hint("give a file, or `-` for standard input").into());
        }
        (UploadBody::from_reader(opened, Some(metadata.len())), Some(metadata.len()))
    };
    let progress = Arc::new(Progress::bytes("sending", total));
    let counter = progress.clone();
    Ok((body.inspect(move |bytes| counter.add(bytes.len() as u64)), progress))
}

pub(super) async fn import(ctx: &Context, args: ImportArgs) -> Result<(), Stop> {
    let what = || format!("could not import into the memory of `{}`", args.whose.of);
    let (body, progress) = body(&args.file, &what).await?;
    let imported = args.whose.memory(ctx)?.import(body).await;
    progress.finish();
    let imported = imported.or_fail(what)?;
    if args.format.json {
        return print::json::pretty(&imported);
    }
    let mut told = format!("{} entries stored, {} were there already", imported.added, imported.existed);
    if imported.updated > 0 {
        told.push_str(&format!(", {} made newer", imported.updated));
    }
    if imported.erased > 0 {
        told.push_str(&format!(", {} left out: they were erased here", imported.erased));
    }
    print::note(&told);
    Ok(())
}
