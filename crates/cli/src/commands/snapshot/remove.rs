//! `burrow snapshot rm`: deletes snapshots, by name or by age.

use std::cell::RefCell;

use burrow_api::{ErrorCode, Snapshot, SnapshotKind};
use burrow_client::SnapshotQuery;

use crate::commands::power::try_all;
use crate::commands::prelude::*;

/// Delete snapshots, and free their space
///
/// Sandboxes created from them are kept, and so is the sandbox they were taken of.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow snapshot rm before-upgrade snp7h3k
  burrow snapshot rm --older-than 30d                      of all sandboxes
  burrow snapshot rm --older-than 7d --sandbox web --yes")]
pub(crate) struct RmArgs {
    /// Names or ids
    #[arg(value_name = "SNAPSHOT", required_unless_present = "older_than")]
    snapshots: Vec<String>,
    /// Only snapshots older than this; without names, all such snapshots
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    older_than: Option<Duration>,
    /// With --older-than: only snapshots of this sandbox
    #[arg(long, value_name = "SANDBOX", requires = "older_than", conflicts_with = "snapshots")]
    sandbox: Option<String>,
    /// Do not ask for confirmation
    #[arg(short = 'y', long)]
    yes: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: RmArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let deleted = Deleted { format: args.format, names: RefCell::default() };
    let result = match args.older_than {
        Some(age) if args.snapshots.is_empty() => {
            delete_older(&client, age, args.sandbox, args.yes, &deleted).await
        }
        age => {
            try_all(&args.snapshots, async |snapshot| remove_if_old(&client, snapshot, age, &deleted).await)
                .await
        }
    };
    // Also after a failure: the others were deleted.
    if deleted.format.json {
        print::json::pretty(&*deleted.names.borrow())?;
    }
    result
}

/// Reports what was deleted: as lines at once, or as JSON at the end.
#[derive(Debug)]
struct Deleted {
    format: Format,
    names: RefCell<Vec<String>>,
}

impl Deleted {
    fn report(&self, snapshot: &str) -> Result<(), Stop> {
        self.names.borrow_mut().push(snapshot.to_owned());
        if self.format.json { Ok(()) } else { print::line(escape(snapshot)) }
    }
}

async fn remove_if_old(
    client: &Client,
    snapshot: &str,
    age: Option<Duration>,
    deleted: &Deleted,
) -> Result<(), Stop> {
    let what = || format!("could not delete snapshot `{snapshot}`");
    if let Some(age) = age {
        let found = client.snapshot(snapshot).await.or_fail(what)?;
        if !is_older(&found, age, quantity::now_ms()) {
            print::note(format!("snapshot `{}` is newer and was kept", escape(snapshot)));
            return Ok(());
        }
    }
    client.delete_snapshot(snapshot).await.or_fail(what)?;
    deleted.report(snapshot)
}

async fn delete_older(
    client: &Client,
    age: Duration,
    sandbox: Option<String>,
    yes: bool,
    deleted: &Deleted,
) -> Result<(), Stop> {
    let query = SnapshotQuery { sandbox, labels: Vec::new(), kinds: Vec::new() };
    let now_ms = quantity::now_ms();
    let mut found = client.all_snapshots(&query).await.or_fail("could not list snapshots")?;
    // Snapshots that forks are based on are deleted automatically with them.
    found.retain(|snapshot| snapshot.kind != SnapshotKind::Fork && is_older(snapshot, age, now_ms));
    if found.is_empty() {
        print::note("there is no snapshot that old");
        return Ok(());
    }
    let bytes =
        found.iter().fold(0u64, |sum, it| sum.saturating_add(it.disk_bytes).saturating_add(it.ram_bytes));
    let count = quantity::count(found.len() as u64, "snapshot", "snapshots");
    let question = format!("delete {count}, {}?", quantity::bytes(bytes));
    if !yes && ask::can_ask() && !ask::confirm(&question)? {
        print::note("nothing was deleted");
        return Ok(());
    }
    for snapshot in &found {
        match client.delete_snapshot(&snapshot.id).await {
            Ok(()) => deleted.report(&snapshot.id)?,
            // It was deleted meanwhile.
            Err(error) if error.is_not_found() => {}
            Err(error) if error.code() == Some(ErrorCode::SnapshotInUse) => {
                print::note(format!("snapshot `{}` is in use and was kept", escape(&snapshot.id)));
            }
            Err(error) => {
                return Err(error).or_fail(|| format!("could not delete snapshot `{}`", snapshot.id));
            }
        }
    }
    Ok(())
}

fn is_older(snapshot: &Snapshot, age: Duration, now_ms: u64) -> bool {
    u128::from(now_ms.saturating_sub(snapshot.created_ms)) > age.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_older_snapshots_are_old() {
        let snapshot = super::super::show::example();
        assert!(is_older(&snapshot, Duration::from_secs(60), 120_001));
        assert!(!is_older(&snapshot, Duration::from_secs(60), 120_000));
        assert!(!is_older(&snapshot, Duration::ZERO, 0), "a clock that runs behind makes nothing old");
    }
}
