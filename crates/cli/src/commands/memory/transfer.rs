//! `burrow memory export` and `import`: memory as JSON Lines.

use super::flags::{ReadFlags, WriteFlags};
use crate::commands::prelude::*;
use crate::transfer::save::save;
use crate::transfer::upload::body;

/// Export all entries as JSON Lines, including cold and superseded ones
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory export web -o web.jsonl
  burrow memory export web --as-of before-upgrade | jq -r 'select(.line==\"entry\") | .text'
  burrow memory export web | burrow memory import space:ops -")]
pub(crate) struct ExportArgs {
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
pub(crate) struct ImportArgs {
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
        save(lines, None, args.output.as_deref(), &args.target.of, what).await
    })
    .await?
}

pub(super) async fn import(ctx: &Context, args: ImportArgs) -> Result<(), Stop> {
    let what = || format!("could not import into the memory of `{}`", args.target.of);
    let (body, progress) =
        body(&args.file, || format!("{}: could not read `{}`", what(), args.file.display())).await?;
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
