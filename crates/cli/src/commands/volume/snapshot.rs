//! `burrow volume snapshot`: snapshots of the files of a volume.

use burrow_api::{CreateVolumeSnapshot, VolumeSnapshot};
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print::{self, Format, quantity, table};

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Take a snapshot of a volume and print its id
    Create {
        /// Name or id
        volume: String,
        /// Name, unique among the snapshots of the volume
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// List the snapshots of a volume
    #[command(visible_alias = "list")]
    Ls {
        /// Name or id
        volume: String,
        /// Print ids only
        #[arg(short = 'q', long, conflicts_with = "json")]
        quiet: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Remove snapshots of a volume
    Rm {
        /// Name or id
        volume: String,
        /// Names or ids
        #[arg(required = true, value_name = "SNAPSHOT")]
        snapshots: Vec<String>,
    },
}

pub(super) async fn run(ctx: &Context, args: SnapshotArgs) -> Result<(), Stop> {
    match args.action {
        Action::Create { volume, name, format } => {
            let taken = ctx.client()?.snapshot_volume(&volume, &CreateVolumeSnapshot { name }).await;
            let taken = taken.or_fail(|| format!("could not snapshot volume `{volume}`"))?;
            if format.json { print::json::pretty(&taken) } else { print::line(&taken.id) }
        }
        Action::Ls { volume, quiet, format } => {
            let found = ctx.client()?.volume_snapshots(&volume).await;
            let found = found.or_fail(|| format!("could not list the snapshots of volume `{volume}`"))?;
            list(&found, quiet, format)
        }
        Action::Rm { volume, snapshots } => {
            let client = ctx.client()?;
            for snapshot in &snapshots {
                let removed = client.delete_volume_snapshot(&volume, snapshot).await;
                removed.or_fail(|| format!("could not remove snapshot `{snapshot}` of volume `{volume}`"))?;
            }
            Ok(())
        }
    }
}

fn list(snapshots: &[VolumeSnapshot], quiet: bool, format: Format) -> Result<(), Stop> {
    if format.json {
        return print::json::pretty(&snapshots);
    }
    if quiet {
        let ids: String = snapshots.iter().map(|snapshot| format!("{}\n", snapshot.id)).collect();
        return print::data(&ids);
    }
    let now_ms = quantity::now_ms();
    let row = |snapshot: &VolumeSnapshot| {
        let name = snapshot.name.clone().unwrap_or_default();
        // The full id, since `volume create --from` accepts no prefix.
        vec![snapshot.id.clone(), name, quantity::age(snapshot.created_ms, now_ms)]
    };
    table::print(&["ID", "NAME", "AGE"], &snapshots.iter().map(row).collect::<Vec<_>>())
}
