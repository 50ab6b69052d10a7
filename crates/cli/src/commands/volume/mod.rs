//! `burrow volume`: files that outlive sandboxes.

mod flags;
mod snapshot;

pub(crate) use flags::VolumeFlags;

use burrow_api::{CreateVolume, RestoreVolume, Volume};

use super::ls::short;
use crate::commands::prelude::*;
use crate::print::ask::be_sure;

/// Manage volumes: files that outlive sandboxes
///
/// Volumes are mounted into sandboxes. At most one sandbox may write to a volume; any number may read it. A volume is
/// not part of the snapshots of a sandbox: it has its own snapshots.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow volume create models --size 20G
  burrow run --rm --volume models:/models -- ./download       writes to it
  burrow create --name web --volume models:/models:ro         reads it
  burrow volume snapshot create models --name good
  burrow volume restore models good
  burrow volume create models-2 --from vsn…
  burrow volume rm models --snapshots")]
pub(crate) enum VolumeCommand {
    /// Create a volume and print its id
    Create {
        /// Name: lower-case letters, digits and hyphens
        name: String,
        /// Maximum size, e.g. 20G; that of a sandbox's disk by default
        #[arg(long, value_name = "SIZE", value_parser = parse::mebibytes)]
        size: Option<u32>,
        /// Id of the volume snapshot to copy
        #[arg(long, value_name = "SNAPSHOT")]
        from: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// List volumes
    #[command(visible_alias = "list")]
    Ls {
        /// Print names only
        #[arg(short = 'q', long, conflicts_with = "json")]
        quiet: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Show a volume, and the sandboxes that use it
    Inspect {
        /// Name or id
        volume: String,
        #[command(flatten)]
        format: Format,
    },
    /// Remove unused volumes and their files permanently
    Rm {
        /// Names or ids
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<String>,
        /// Remove their snapshots too; otherwise a volume with snapshots is kept
        #[arg(long)]
        snapshots: bool,
        /// Do not ask for confirmation
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Manage the snapshots of volumes
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Roll a volume back to one of its snapshots; sandboxes that use it must be stopped
    Restore {
        /// Name or id
        volume: String,
        /// Name or id of one of its snapshots
        snapshot: String,
        /// Do not ask for confirmation
        #[arg(short = 'y', long)]
        yes: bool,
        #[command(flatten)]
        format: Format,
    },
}

pub(crate) async fn run(ctx: &Context, command: VolumeCommand) -> Result<(), Stop> {
    match command {
        VolumeCommand::Create { name, size, from, format } => {
            let request = CreateVolume { name, disk_mib: size, from_snapshot: from };
            let volume = ctx.client()?.create_volume(&request).await;
            let volume = volume.or_fail(|| format!("could not create volume `{}`", request.name))?;
            format.show(&volume, |volume| print::line(&volume.id))
        }
        VolumeCommand::Ls { quiet, format } => {
            let volumes = ctx.client()?.volumes().await.or_fail("could not list volumes")?;
            if quiet {
                return print::lines(volumes.iter().map(|volume| escape(&volume.name)));
            }
            format.table(&["ID", "NAME", "SIZE", "AGE", "USED BY"], &volumes, row)
        }
        VolumeCommand::Inspect { volume, format } => {
            let found = ctx.client()?.volume(&volume).await;
            let found = found.or_fail(|| format!("could not inspect volume `{volume}`"))?;
            format.show(&found, |found| table::facts(facts(found)))
        }
        VolumeCommand::Rm { volumes, snapshots, yes } => {
            let client = ctx.client()?;
            for volume in &volumes {
                let what = format!("could not remove volume `{volume}`");
                let question = format!("remove volume `{}` and its files permanently?", escape(volume));
                be_sure(yes, &what, &question)?;
                client.delete_volume(volume, snapshots).await.or_fail(&*what)?;
            }
            Ok(())
        }
        VolumeCommand::Snapshot(args) => snapshot::run(ctx, args).await,
        VolumeCommand::Restore { volume, snapshot, yes, format } => {
            let what = format!("could not restore volume `{volume}`");
            let question = format!("replace the files in volume `{}` by its snapshot?", escape(&volume));
            be_sure(yes, &what, &question)?;
            let restored = ctx.client()?.restore_volume(&volume, &RestoreVolume { snapshot }).await;
            let restored = restored.or_fail(&*what)?;
            format.show(&restored, |_| Ok(()))
        }
    }
}

fn row(volume: &Volume) -> Vec<String> {
    vec![
        short(&volume.id),
        volume.name.clone(),
        quantity::bytes(u64::from(volume.disk_mib) * burrow_model::MIB),
        quantity::age_now(volume.created_ms),
        users(volume),
    ]
}

/// `web (rw), sbxabc… (ro)`
fn users(volume: &Volume) -> String {
    let user = |user: &burrow_api::VolumeUser| {
        let name = user.name.clone().unwrap_or_else(|| short(&user.sandbox));
        format!("{name} ({})", user.mode.as_str())
    };
    volume.used_by.iter().map(user).collect::<Vec<_>>().join(", ")
}

fn facts(volume: &Volume) -> [(&'static str, String); 7] {
    [
        ("id", volume.id.clone()),
        ("name", volume.name.clone()),
        ("size", quantity::bytes(u64::from(volume.disk_mib) * burrow_model::MIB)),
        ("used", volume.used_bytes.map_or_else(|| "unknown".to_owned(), quantity::bytes)),
        ("from", volume.from_snapshot.clone().unwrap_or_default()),
        ("created", quantity::timestamp(volume.created_ms)),
        ("used by", users(volume)),
    ]
}
