//! `burrow volume snapshot`: snapshots of the files of a volume.

use burrow_api::{CreateVolumeSnapshot, VolumeSnapshot};

use crate::commands::prelude::*;

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
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

pub(super) async fn run(ctx: &Context, command: SnapshotCommand) -> Result<(), Stop> {
    match command {
        SnapshotCommand::Create { volume, name, format } => {
            let taken = ctx.client()?.snapshot_volume(&volume, &CreateVolumeSnapshot { name }).await;
            let taken = taken.or_fail(|| format!("could not snapshot volume `{volume}`"))?;
            format.show(&taken, |taken| print::line(&taken.id))
        }
        SnapshotCommand::Ls { volume, quiet, format } => {
            let found = ctx.client()?.volume_snapshots(&volume).await;
            let found = found.or_fail(|| format!("could not list the snapshots of volume `{volume}`"))?;
            if quiet {
                return print::lines(found.iter().map(|snapshot| &snapshot.id));
            }
            format.table(&["ID", "NAME", "AGE"], &found, row)
        }
        SnapshotCommand::Rm { volume, snapshots } => {
            let client = ctx.client()?;
            for snapshot in &snapshots {
                let removed = client.delete_volume_snapshot(&volume, snapshot).await;
                removed.or_fail(|| format!("could not remove snapshot `{snapshot}` of volume `{volume}`"))?;
            }
            Ok(())
        }
    }
}

/// The full id, since `volume create --from` accepts no prefix.
fn row(snapshot: &VolumeSnapshot) -> Vec<String> {
    let name = snapshot.name.clone().unwrap_or_default();
    vec![snapshot.id.clone(), name, quantity::age_now(snapshot.created_ms)]
}
