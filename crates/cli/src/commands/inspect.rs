//! `burrow inspect`: the details of sandboxes, as JSON.

use crate::commands::prelude::*;

/// Show the details of sandboxes as JSON
///
/// One sandbox is an object, several are an array.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// Accepted for consistency; the output is always JSON
    #[arg(long, hide = true)]
    json: bool,
}

pub(crate) async fn run(ctx: &Context, args: InspectArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let mut found = Vec::new();
    for sandbox in &args.sandboxes {
        found.push(
            client.sandbox(sandbox).await.or_fail(|| format!("could not inspect sandbox `{sandbox}`"))?,
        );
    }
    match found.as_slice() {
        [one] => print::json::pretty(one),
        many => print::json::pretty(many),
    }
}
