//! `burrow volume`: files that outlive sandboxes.

mod flags;
mod snapshot;

pub(crate) use flags::VolumeFlags;

use burrow_api::{CreateVolume, RestoreVolume, Volume};
use clap::{Args, Subcommand};

use super::ls::short;
use crate::context::Context;
use crate::failure::{CODE_GENERAL, Failure, OrFail, Stop};
use crate::parse;
use crate::print::ask::{can_ask, confirm};
use crate::print::escape::escape;
use crate::print::{self, Format, quantity, table};

/// Manage volumes: files that outlive sandboxes
///
/// Volumes are mounted into sandboxes. At most one sandbox may write to a volume; any number may read it. A volume is
/// not part of the snapshots of a sandbox: it has its own snapshots.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow volume create models --size 20G
  burrow run --rm --volume models:/models -- ./download       writes to it
  burrow create --name web --volume models:/models:ro         reads it
  burrow volume snapshot create models --name good
  burrow volume restore models good
  burrow volume create models-2 --from vsn…
  burrow volume rm models --snapshots")]
pub(crate) struct VolumeArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
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
    Snapshot(snapshot::SnapshotArgs),
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

pub(crate) async fn run(ctx: &Context, args: VolumeArgs) -> Result<(), Stop> {
    match args.action {
        Action::Create { name, size, from, format } => {
            let request = CreateVolume { name, disk_mib: size, from_snapshot: from };
            let volume = ctx.client()?.create_volume(&request).await;
            let volume = volume.or_fail(|| format!("could not create volume `{}`", request.name))?;
            if format.json { print::json::pretty(&volume) } else { print::line(&volume.id) }
        }
        Action::Ls { quiet, format } => list(ctx, quiet, format).await,
        Action::Inspect { volume, format } => {
            let found = ctx.client()?.volume(&volume).await;
            let found = found.or_fail(|| format!("could not inspect volume `{volume}`"))?;
            if format.json { print::json::pretty(&found) } else { inspect(&found) }
        }
        Action::Rm { volumes, snapshots, yes } => remove(ctx, &volumes, snapshots, yes).await,
        Action::Snapshot(args) => snapshot::run(ctx, args).await,
        Action::Restore { volume, snapshot, yes, format } => {
            let what = format!("could not restore volume `{volume}`");
            let question = format!("replace the files in volume `{}` by its snapshot?", escape(&volume));
            be_sure(yes, &what, &question)?;
            let restored = ctx.client()?.restore_volume(&volume, &RestoreVolume { snapshot }).await;
            let restored = restored.or_fail(|| what)?;
            if format.json { print::json::pretty(&restored) } else { Ok(()) }
        }
    }
}

async fn list(ctx: &Context, quiet: bool, format: Format) -> Result<(), Stop> {
    let volumes = ctx.client()?.volumes().await.or_fail(|| "could not list volumes".to_owned())?;
    if format.json {
        return print::json::pretty(&volumes);
    }
    if quiet {
        let names: String = volumes.iter().map(|volume| format!("{}\n", escape(&volume.name))).collect();
        return print::data(&names);
    }
    let now_ms = quantity::now_ms();
    let rows: Vec<_> = volumes.iter().map(|volume| row(volume, now_ms)).collect();
    table::print(&["ID", "NAME", "SIZE", "AGE", "USED BY"], &rows)
}

fn row(volume: &Volume, now_ms: u64) -> Vec<String> {
    vec![
        short(&volume.id),
        volume.name.clone(),
        quantity::bytes(u64::from(volume.disk_mib) * burrow_model::MIB),
        quantity::age(volume.created_ms, now_ms),
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

fn inspect(volume: &Volume) -> Result<(), Stop> {
    let used = volume.used_bytes.map_or_else(|| "unknown".to_owned(), quantity::bytes);
    let rows = [
        ("id", volume.id.clone()),
        ("name", volume.name.clone()),
        ("size", quantity::bytes(u64::from(volume.disk_mib) * burrow_model::MIB)),
        ("used", used),
        ("from", volume.from_snapshot.clone().unwrap_or_default()),
        ("created", quantity::timestamp(volume.created_ms)),
        ("used by", users(volume)),
    ];
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table::print(&["", ""], &rows)
}

async fn remove(ctx: &Context, volumes: &[String], snapshots: bool, yes: bool) -> Result<(), Stop> {
    let client = ctx.client()?;
    for volume in volumes {
        let what = format!("could not remove volume `{volume}`");
        be_sure(yes, &what, &format!("remove volume `{}` and its files permanently?", escape(volume)))?;
        client.delete_volume(volume, snapshots).await.or_fail(|| what)?;
    }
    Ok(())
}

/// Asks for confirmation of an action that cannot be undone.
fn be_sure(yes: bool, what: &str, question: &str) -> Result<(), Stop> {
    if yes {
        return Ok(());
    }
    if !can_ask() {
        let failure = Failure::new(format!("{what}: confirmation is required, but there is no terminal"));
        return Err(failure.hint("add --yes").into());
    }
    if confirm(question)? { Ok(()) } else { Err(Stop::Exit(CODE_GENERAL)) }
}
