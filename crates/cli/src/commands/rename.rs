//! `burrow rename`: renames a sandbox.

use burrow_api::UpdateSandbox;

use crate::commands::prelude::*;

/// Rename a sandbox
#[derive(Debug, Args)]
pub(crate) struct RenameArgs {
    sandbox: String,
    /// New name: lower-case letters, digits and inner hyphens
    name: String,
}

pub(crate) async fn run(ctx: &Context, args: RenameArgs) -> Result<(), Stop> {
    let update = UpdateSandbox { name: Some(args.name.clone()), ..UpdateSandbox::default() };
    let updated = ctx.client()?.update_sandbox(&args.sandbox, &update).await;
    updated.or_fail(|| format!("could not rename sandbox `{}` to `{}`", args.sandbox, args.name)).map(drop)
}
