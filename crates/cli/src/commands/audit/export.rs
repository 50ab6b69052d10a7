//! `burrow audit export`: writes the log to a file, atomically.

use crate::commands::prelude::*;
use crate::transfer::save::save;

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// File to write, atomically; standard output by default
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) async fn export(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    let what = "could not export the audit log";
    unless_interrupted(async {
        let bytes = ctx.client()?.export_audit().await.or_fail(what)?;
        save(bytes, None, args.output.as_deref(), "audit log", what).await
    })
    .await?
}
