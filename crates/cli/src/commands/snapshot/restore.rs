//! `burrow snapshot restore`: rolls a sandbox back, or creates a new one from a snapshot.

use burrow_api::{RestoreResult, RestoreSandbox, SandboxFromSnapshot};

use crate::commands::prelude::*;

/// Roll a sandbox back to a snapshot, or create a new one from it, and print its id
///
/// In place, files, processes, variables and services become those of the snapshot; name, labels, limits, network
/// policy, keys and published ports are unchanged. The replaced state is kept as a snapshot, so that a restore can be
/// undone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow snapshot restore before-upgrade --in-place web
  burrow snapshot restore before-upgrade --name web2
  burrow snapshot restore before-upgrade --files-only       boots from the files")]
pub(crate) struct RestoreArgs {
    /// Name or id
    snapshot: String,
    /// Roll this sandbox back, instead of creating a new one
    #[arg(long, value_name = "SANDBOX", conflicts_with_all = ["name", "labels", "ephemeral"])]
    in_place: Option<String>,
    /// Name of the new sandbox
    #[arg(long)]
    name: Option<String>,
    /// Label of the new sandbox, instead of the original labels; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    labels: Vec<(String, String)>,
    /// Delete the new sandbox and its data as soon as it stops
    #[arg(long)]
    ephemeral: bool,
    /// Omit the processes of the snapshot: the sandbox boots from the files
    #[arg(long)]
    files_only: bool,
    /// Do not ask for confirmation
    #[arg(short = 'y', long)]
    yes: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: RestoreArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    match args.in_place.clone() {
        Some(sandbox) => in_place(&client, &sandbox, args).await,
        None => restore_as_new(&client, args).await,
    }
}

async fn restore_as_new(client: &Client, args: RestoreArgs) -> Result<(), Stop> {
    let request = SandboxFromSnapshot {
        name: args.name,
        files_only: args.files_only,
        labels: (!args.labels.is_empty()).then(|| args.labels.into_iter().collect()),
        ephemeral: args.ephemeral,
        ttl_seconds: None,
        network: None,
    };
    let sandbox = Progress::during(
        &format!("restoring {}", args.snapshot),
        client.create_sandbox_from(&args.snapshot, &request),
    )
    .await;
    let sandbox =
        sandbox.or_fail(|| format!("could not create a sandbox from snapshot `{}`", args.snapshot))?;
    args.format.show(&sandbox, |sandbox| print::line(&sandbox.id))
}

async fn in_place(client: &Client, sandbox: &str, args: RestoreArgs) -> Result<(), Stop> {
    let what = || format!("could not roll sandbox `{sandbox}` back to snapshot `{}`", args.snapshot);
    if !args.yes && ask::can_ask() {
        let snapshot = client.snapshot(&args.snapshot).await.or_fail(what)?;
        let question = format!(
            "roll sandbox `{}` back to snapshot `{}`, taken {} ago? its current state is kept as a snapshot",
            escape(sandbox),
            escape(&args.snapshot),
            quantity::age(snapshot.created_ms, quantity::now_ms())
        );
        if !ask::confirm(&question)? {
            print::note("nothing was changed");
            return Ok(());
        }
    }
    let request = RestoreSandbox { snapshot: args.snapshot.clone(), files_only: args.files_only };
    let restored =
        Progress::during(&format!("restoring {sandbox}"), client.restore_sandbox(sandbox, &request)).await;
    let restored = restored.or_fail(what)?;
    args.format.report(&restored, [&restored.sandbox.id], [undo(&restored)])
}

fn undo(restored: &RestoreResult) -> String {
    let sandbox = restored.sandbox.name.as_ref().unwrap_or(&restored.sandbox.id);
    format!(
        "the replaced state is snapshot `{0}`; `burrow snapshot restore {0} --in-place {1}` undoes this",
        escape(&restored.undo.id),
        escape(sandbox)
    )
}
