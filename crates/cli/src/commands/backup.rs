//! `burrow backup`: writes the daemon's state to an archive, and restores it.

use std::io;

use crate::commands::prelude::*;
use crate::transfer::input;
use crate::transfer::save::{refuse_terminal, save};

/// Back up the state of the daemon as a tar archive
///
/// The archive contains the configuration, the catalog, and every sandbox and image. Sandboxes keep running: each is
/// frozen only while its snapshot is taken.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  burrow backup -o burrow.tar
  burrow backup | zstd > burrow.tar.zst
  zstd -d < burrow.tar.zst | burrow backup restore -"
)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// File to write, atomically; standard output by default
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Restore a backup on a host where no daemon runs and the state directory is empty
    #[cfg(feature = "daemon")]
    Restore(RestoreArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Archive to restore; `-` for standard input
    file: PathBuf,
    /// Configuration file; /etc/burrow/config.toml by default, if it exists
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) async fn run(ctx: &Context, args: BackupArgs) -> Result<(), Stop> {
    match args.action {
        // Restoring starts its own runtime, which must not run inside this one.
        #[cfg(feature = "daemon")]
        Some(Action::Restore(args)) => {
            tokio::task::spawn_blocking(move || restore(&args)).await.unwrap_or_else(|panic| {
                std::panic::resume_unwind(panic.into_panic());
            })
        }
        #[cfg(not(feature = "daemon"))]
        Some(action) => match action {},
        None => unless_interrupted(back_up(ctx, args.output)).await?,
    }
}

async fn back_up(ctx: &Context, output: Option<PathBuf>) -> Result<(), Stop> {
    let what = "could not back up the daemon's state";
    refuse_terminal(output.as_deref(), what, "give a file with -o, or redirect it")?;
    let bytes = ctx.client()?.backup().await.or_fail(what)?;
    save(bytes, None, output.as_deref(), "backup", what).await
}

#[cfg(feature = "daemon")]
fn restore(args: &RestoreArgs) -> Result<(), Stop> {
    let what = || format!("could not restore `{}`", args.file.display());
    let archive = io::BufReader::new(input::open(&args.file).or_fail(what)?);
    let restored = burrow_daemon::restore(args.config.as_deref(), archive)
        .map_err(|error| Failure::new(what()).because(&error).hint_if(error.hint()))?;
    print::note(format!(
        "restored {} sandboxes, {} snapshots, {} images, {} volumes and {} memory spaces",
        restored.sandboxes, restored.snapshots, restored.images, restored.volumes, restored.spaces
    ));
    Ok(())
}
