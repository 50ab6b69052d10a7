//! `burrow audit export`: writes the log to a file, atomically.

use std::path::{Path, PathBuf};

use clap::Args;
use tokio::io::AsyncWriteExt as _;

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print;
use crate::print::quantity;
use crate::transfer::download::staged;
use crate::transfer::interrupt::unless_interrupted;

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// File to write, atomically; standard output by default
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) async fn export(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    unless_interrupted(save(ctx, args.output)).await?
}

async fn save(ctx: &Context, output: Option<PathBuf>) -> Result<(), Stop> {
    let what = || "could not export the audit log".to_owned();
    let bytes = ctx.client()?.export_audit().await.or_fail(what)?;
    let Some(output) = output.filter(|output| output != Path::new("-")) else {
        bytes.copy_to(&mut tokio::io::stdout(), |_| ()).await.or_fail(what)?;
        return Ok(());
    };
    let file = staged(&output).or_fail(what)?;
    let mut target = tokio::fs::File::from_std(file.reopen().or_fail(what)?);
    let total = bytes.copy_to(&mut target, |_| ()).await.or_fail(what)?;
    target.flush().await.or_fail(what)?;
    target.sync_all().await.or_fail(what)?;
    file.persist(&output).map_err(|error| error.error).or_fail(what)?;
    print::note(&format!("wrote {} to `{}`", quantity::bytes(total), output.display()));
    Ok(())
}
