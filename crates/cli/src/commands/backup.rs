//! `burrow backup`: writes the daemon's state to an archive, and restores it.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tokio::io::AsyncWriteExt as _;

use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print;
use crate::print::quantity;
use crate::transfer::download::staged;
use crate::transfer::interrupt::unless_interrupted;
use crate::transfer::progress::Progress;

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
    Restore(RestoreArgs),
}

#[derive(Debug, Args)]
struct RestoreArgs {
    /// Archive to restore; `-` for standard input
    file: PathBuf,
    /// Configuration file; /etc/burrow/config.toml by default, if it exists
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) async fn run(ctx: &Context, args: BackupArgs) -> Result<(), Stop> {
    match args.action {
        // Restoring starts its own runtime, which must not run inside this one.
        Some(Action::Restore(args)) => {
            tokio::task::spawn_blocking(move || restore(&args)).await.unwrap_or_else(|panic| {
                std::panic::resume_unwind(panic.into_panic());
            })
        }
        None => unless_interrupted(save(ctx, args.output)).await?,
    }
}

async fn save(ctx: &Context, output: Option<PathBuf>) -> Result<(), Stop> {
    let what = || "could not back up the daemon's state".to_owned();
    let to_stdout = output.as_deref().is_none_or(|output| output == Path::new("-"));
    if to_stdout && io::IsTerminal::is_terminal(&io::stdout()) {
        return Err(Failure::new(format!("{}: standard output is a terminal", what()))
            .hint("give a file with -o, or redirect it")
            .into());
    }
    let bytes = ctx.client()?.backup().await.or_fail(what)?;
    let progress = Progress::bytes("backup", None);
    let Some(output) = output.filter(|_| !to_stdout) else {
        bytes.copy_to(&mut tokio::io::stdout(), |count| progress.add(count)).await.or_fail(what)?;
        return Ok(());
    };
    // Readable by its owner only, from the first byte on; renamed into place when it is complete.
    let file = staged(&output).or_fail(what)?;
    let mut target = tokio::fs::File::from_std(file.reopen().or_fail(what)?);
    let total = bytes.copy_to(&mut target, |count| progress.add(count)).await.or_fail(what)?;
    target.flush().await.or_fail(what)?;
    target.sync_all().await.or_fail(what)?;
    file.persist(&output).map_err(|error| error.error).or_fail(what)?;
    sync_parent(&output).or_fail(what)?;
    progress.finish();
    print::note(&format!("wrote {} to `{}`", quantity::bytes(total), output.display()));
    Ok(())
}

fn restore(args: &RestoreArgs) -> Result<(), Stop> {
    let what = || format!("could not restore `{}`", args.file.display());
    let archive: Box<dyn io::Read> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(io::BufReader::new(std::fs::File::open(&args.file).or_fail(what)?))
    };
    match burrow_daemon::restore(args.config.as_deref(), archive) {
        Ok(restored) => {
            print::note(&format!(
                "restored {} sandboxes, {} snapshots, {} images, {} volumes and {} memory spaces",
                restored.sandboxes, restored.snapshots, restored.images, restored.volumes, restored.spaces
            ));
            Ok(())
        }
        Err(error) => {
            let failure = Failure::new(what()).because(&error);
            match error.hint() {
                Some(hint) => Err(failure.hint(hint).into()),
                None => Err(failure.into()),
            }
        }
    }
}

/// A new name is durable only after its directory is synced.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent)?.sync_all()
}
