//! `burrow snapshot ls` and `inspect`.

use burrow_api::{Snapshot, SnapshotKind};
use burrow_client::SnapshotQuery;

use super::{changes, kind};
use crate::commands::ls::short;
use crate::commands::prelude::*;

/// List snapshots, newest first
///
/// Snapshots that forks are based on are omitted, unless --all or their kind is given.
#[derive(Debug, Args)]
#[command(
    visible_alias = "list",
    after_help = "\
Examples:
  burrow snapshot ls
  burrow snapshot ls web --kind policy
  burrow snapshot rm $(burrow snapshot ls -q --label tmp=yes)"
)]
pub(crate) struct LsArgs {
    /// Only snapshots of this sandbox
    sandbox: Option<String>,
    /// Print ids only
    #[arg(short = 'q', long, conflicts_with = "json")]
    quiet: bool,
    /// Only snapshots with this label; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Only snapshots of this kind: manual, policy, before-restore, exec, fork, before-rotate, before-merge; may be
    /// repeated
    #[arg(long = "kind", value_name = "KIND", value_parser = kind)]
    kinds: Vec<SnapshotKind>,
    /// Include snapshots that forks are based on
    #[arg(short = 'a', long)]
    all: bool,
    #[command(flatten)]
    format: Format,
}

/// Show the details of a snapshot, and the changes since the previous one
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Name or id
    snapshot: String,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn list(ctx: &Context, args: LsArgs) -> Result<(), Stop> {
    let all = args.all || !args.kinds.is_empty();
    let query = SnapshotQuery { sandbox: args.sandbox, labels: args.labels, kinds: args.kinds };
    let found = ctx.client()?.all_snapshots(&query).await;
    let mut snapshots = found.or_fail("could not list snapshots")?;
    snapshots.retain(|snapshot| all || snapshot.kind != SnapshotKind::Fork);
    if args.quiet {
        return print::lines(snapshots.iter().map(|snapshot| &snapshot.id));
    }
    args.format.table(
        &["ID", "NAME", "SANDBOX", "KIND", "CONTENT", "SIZE", "AGE", "EXPIRES", "LABELS"],
        &snapshots,
        |snapshot| row(snapshot, quantity::now_ms()),
    )
}

fn row(snapshot: &Snapshot, now_ms: u64) -> Vec<String> {
    vec![
        short(&snapshot.id),
        snapshot.name.clone().unwrap_or_default(),
        snapshot.sandbox_name.clone().unwrap_or_else(|| short(&snapshot.sandbox_id)),
        snapshot.kind.as_str().to_owned(),
        content(snapshot).to_owned(),
        quantity::bytes(size(snapshot)),
        quantity::age(snapshot.created_ms, now_ms),
        snapshot.expires_ms.map(|at_ms| format!("in {}", quantity::age(now_ms, at_ms))).unwrap_or_default(),
        table::pairs(&snapshot.labels),
    ]
}

fn content(snapshot: &Snapshot) -> &'static str {
    if snapshot.processes { "files, processes" } else { "files" }
}

fn size(snapshot: &Snapshot) -> u64 {
    snapshot.disk_bytes.saturating_add(snapshot.ram_bytes)
}

pub(super) async fn inspect(ctx: &Context, args: InspectArgs) -> Result<(), Stop> {
    let what = || format!("could not inspect snapshot `{}`", args.snapshot);
    let snapshot = ctx.client()?.snapshot(&args.snapshot).await.or_fail(what)?;
    args.format.show(&snapshot, |snapshot| {
        table::facts(facts(snapshot))?;
        print::lines(std::iter::once(String::new()).chain(changes::shown(&snapshot.changes)))
    })
}

fn facts(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let sandbox = match &snapshot.sandbox_name {
        Some(name) => format!("{name} ({})", snapshot.sandbox_id),
        None => snapshot.sandbox_id.clone(),
    };
    let ram = if snapshot.processes { quantity::bytes(snapshot.ram_bytes) } else { String::new() };
    let mut facts = vec![
        ("id", snapshot.id.clone()),
        ("name", snapshot.name.clone().unwrap_or_default()),
        ("description", snapshot.description.clone()),
        ("sandbox", sandbox),
        ("kind", snapshot.kind.as_str().to_owned()),
        ("parent", snapshot.parent.clone().unwrap_or_default()),
        ("image", snapshot.image.clone()),
        ("created", quantity::timestamp(snapshot.created_ms)),
        ("expires", snapshot.expires_ms.map(quantity::timestamp).unwrap_or_default()),
        ("content", content(snapshot).to_owned()),
        ("files", quantity::bytes(snapshot.disk_bytes)),
        ("ram", ram),
        ("pause", quantity::pause(snapshot.pause_us)),
        ("labels", table::pairs(&snapshot.labels)),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

/// For the tests of this folder.
#[cfg(test)]
pub(super) fn example() -> Snapshot {
    use burrow_api::{Change, ChangeKind, Changes};
    Snapshot {
        id: "snp1aaaaaaaaaaaaaaaa".to_owned(),
        name: Some("before".to_owned()),
        description: String::new(),
        labels: [("a".to_owned(), "1".to_owned())].into(),
        kind: SnapshotKind::Manual,
        sandbox_id: "sbx1".to_owned(),
        sandbox_name: Some("web".to_owned()),
        parent: Some("snp0".to_owned()),
        image: "debian".to_owned(),
        image_id: "img1".to_owned(),
        processes: true,
        ram_bytes: 64 << 20,
        disk_bytes: 1 << 20,
        pause_us: 12_345,
        changes: Changes {
            paths: vec![Change { path: "/x".to_owned(), kind: ChangeKind::Added }],
            total: 1,
            more: false,
            since: Some("snp0".to_owned()),
        },
        created_ms: 60_000,
        expires_ms: Some(86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_the_sandbox_the_size_and_the_expiry() {
        assert_eq!(
            row(&example(), 3_660_000),
            [
                "snp1aaaaaaaa",
                "before",
                "web",
                "manual",
                "files, processes",
                "65.0 MiB",
                "1h",
                "in 22h",
                "a=1"
            ]
        );
    }

    #[test]
    fn missing_facts_are_not_shown() {
        let mut snapshot = example();
        snapshot.processes = false;
        snapshot.expires_ms = None;
        let names: Vec<_> = facts(&snapshot).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "id", "name", "sandbox", "kind", "parent", "image", "created", "content", "files", "pause",
                "labels"
            ]
        );
    }
}
