//! `burrow gc`: finds stale objects and what they cost, and removes them.

use burrow_api::{GarbageAction, GarbageItem, GarbageKind, GarbageReport};

use crate::commands::prelude::*;

/// Find and remove stale sandboxes, snapshots and images
///
/// Without --apply, nothing is removed. Objects marked `keep` are left for you to decide: named images, snapshots that
/// were taken by users, and sandboxes, unless `gc.sandboxes` in the configuration of the daemon says otherwise.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow gc
  burrow gc --unused-for 7d
  burrow gc --need 4G                          what to remove for 4 GiB of space
  burrow gc --apply                            asks first
  burrow gc --apply --yes --json")]
pub(crate) struct GcArgs {
    /// Remove the objects marked `remove`
    #[arg(long)]
    apply: bool,
    /// Objects that were not used for this long are stale
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = parse::duration)]
    unused_for: Duration,
    /// List the largest objects that are not in use, until they cost this much together
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, conflicts_with_all = ["apply", "unused_for"])]
    need: Option<u64>,
    /// Do not ask for confirmation
    #[arg(short = 'y', long, requires = "apply")]
    yes: bool,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: GcArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let what = "could not list stale objects";
    if let Some(need_bytes) = args.need {
        let mut report = client.garbage(Some(Duration::ZERO)).await.or_fail(what)?;
        let found_bytes = keep_largest(&mut report.items, need_bytes);
        return args.format.report(
            &report,
            suggested(&report).lines(),
            [sufficiency(found_bytes, need_bytes)],
        );
    }
    if !args.apply || !args.yes {
        let report = client.garbage(Some(args.unused_for)).await.or_fail(what)?;
        if !args.apply || !has_work(&report) {
            return show(&report, args.format);
        }
        ask::require_terminal("could not clean up", "add --yes, or preview with `burrow gc`")?;
        print::note(shown(&report).trim_end());
        if !ask::confirm(&question(&report))? {
            print::note("nothing was removed");
            return Ok(());
        }
    }
    let report = Progress::during("cleaning up", client.collect_garbage(Some(args.unused_for))).await;
    let report = report.or_fail("could not clean up")?;
    show(&report, args.format)?;
    for item in &report.items {
        if let Some(failure) = &item.failure {
            print::note(format!(
                "error: {} `{}`: {}",
                print::json::word(item.kind),
                escape(&item.id),
                escape(failure)
            ));
        }
    }
    match report.items.iter().all(|item| item.failure.is_none()) {
        true => Ok(()),
        false => Err(Stop::Exit(CODE_GENERAL)),
    }
}

/// Keeps the largest items that cost `need_bytes` together, and returns what they cost.
fn keep_largest(items: &mut Vec<GarbageItem>, need_bytes: u64) -> u64 {
    items.retain(|item| item.bytes > 0);
    items.sort_by_key(|item| std::cmp::Reverse(item.bytes));
    let mut found_bytes: u64 = 0;
    items.retain(|item| {
        let is_needed = found_bytes < need_bytes;
        if is_needed {
            found_bytes = found_bytes.saturating_add(item.bytes);
        }
        is_needed
    });
    found_bytes
}

/// The items, each with the command that removes it.
fn suggested(report: &GarbageReport) -> String {
    table::of(&["COST", "KIND", "NAME", "REASON", "COMMAND"], &report.items, |item| {
        let command = match item.kind {
            GarbageKind::Sandbox => "rm",
            GarbageKind::Snapshot => "snapshot rm",
            GarbageKind::Image => "image rm",
        };
        vec![
            quantity::bytes(item.bytes),
            print::json::word(item.kind),
            item.name.clone().unwrap_or_default(),
            item.why.clone(),
            format!("burrow {command} {}", item.id),
        ]
    })
}

fn sufficiency(found_bytes: u64, need_bytes: u64) -> String {
    let (found, need) = (quantity::bytes(found_bytes), quantity::bytes(need_bytes));
    if found_bytes >= need_bytes {
        format!("removing all of these frees about {found}")
    } else {
        format!(
            "removing all of these frees about {found}, less than {need}: remove sandboxes that are in use, or enlarge the pool"
        )
    }
}

fn show(report: &GarbageReport, format: Format) -> Result<(), Stop> {
    format.report(report, shown(report).lines(), [summary(report)])
}

fn shown(report: &GarbageReport) -> String {
    let header = &["KIND", "ID", "NAME", "COST", "ACTION", "REASON"];
    table::of(header, &report.items, |item| row(item, report.applied))
}

fn row(item: &GarbageItem, applied: bool) -> Vec<String> {
    vec![
        print::json::word(item.kind),
        item.id.clone(),
        item.name.clone().unwrap_or_default(),
        quantity::bytes(item.bytes),
        action(item, applied).to_owned(),
        item.why.clone(),
    ]
}

fn has_work(report: &GarbageReport) -> bool {
    report.items.iter().any(|item| item.action != GarbageAction::Keep)
}

fn question(report: &GarbageReport) -> String {
    let count = |wanted| {
        let fitting = report.items.iter().filter(|item| item.kind == wanted);
        fitting.filter(|item| item.action == GarbageAction::Remove).count() as u64
    };
    let parts = [
        (count(GarbageKind::Sandbox), "sandbox", "sandboxes"),
        (count(GarbageKind::Snapshot), "snapshot", "snapshots"),
        (count(GarbageKind::Image), "image", "images"),
    ];
    let parts: Vec<_> = parts
        .into_iter()
        .filter(|(count, _, _)| *count > 0)
        .map(|(count, one, many)| quantity::count(count, one, many))
        .collect();
    format!("remove {}?", parts.join(", "))
}

fn summary(report: &GarbageReport) -> String {
    let age = quantity::period(report.unused_for_seconds);
    if report.items.is_empty() {
        return format!("nothing was unused for {age}");
    }
    let removed =
        report.items.iter().filter(|item| item.action == GarbageAction::Remove && item.failure.is_none());
    let bytes = quantity::bytes(removed.fold(0u64, |sum, item| sum.saturating_add(item.bytes)));
    match report.applied {
        true => format!("{bytes} freed"),
        false => format!("`burrow gc --apply` would free {bytes}; nothing was removed"),
    }
}

fn action(item: &GarbageItem, applied: bool) -> &'static str {
    match (item.action, applied, item.failure.is_some()) {
        (GarbageAction::Keep, _, _) => "keep",
        (GarbageAction::Remove, false, _) => "remove",
        (GarbageAction::Remove, true, false) => "removed",
        (GarbageAction::Remove, true, true) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: GarbageKind, action: GarbageAction, failure: Option<&str>) -> GarbageItem {
        GarbageItem {
            kind,
            id: "x1".to_owned(),
            name: None,
            why: "unused for 40d".to_owned(),
            bytes: 1 << 20,
            action,
            failure: failure.map(str::to_owned),
        }
    }

    fn report(applied: bool) -> GarbageReport {
        GarbageReport {
            applied,
            unused_for_seconds: 30 * 86_400,
            items: vec![
                item(GarbageKind::Sandbox, GarbageAction::Remove, None),
                item(GarbageKind::Snapshot, GarbageAction::Remove, None),
                item(GarbageKind::Image, GarbageAction::Remove, applied.then_some("busy")),
                item(GarbageKind::Sandbox, GarbageAction::Keep, None),
            ],
        }
    }

    #[test]
    fn a_report_shows_the_plan_and_afterwards_the_result() {
        let actions = |report: &GarbageReport| {
            report.items.iter().map(|item| row(item, report.applied)[4].clone()).collect::<Vec<_>>()
        };
        assert_eq!(actions(&report(false)), ["remove", "remove", "remove", "keep"]);
        assert_eq!(actions(&report(true)), ["removed", "removed", "failed", "keep"]);
        assert_eq!(question(&report(false)), "remove 1 sandbox, 1 snapshot, 1 image?");
        assert_eq!(summary(&report(false)), "`burrow gc --apply` would free 3.0 MiB; nothing was removed");
        assert_eq!(summary(&report(true)), "2.0 MiB freed");
    }

    #[test]
    fn the_largest_items_are_suggested_until_they_are_enough() {
        let sized = |bytes| GarbageItem { bytes, ..item(GarbageKind::Snapshot, GarbageAction::Keep, None) };
        let check = |need_bytes, kept: &[u64], found_bytes| {
            let mut items = vec![sized(1 << 20), sized(0), sized(8 << 20), sized(4 << 20)];
            assert_eq!(keep_largest(&mut items, need_bytes), found_bytes);
            assert_eq!(items.iter().map(|item| item.bytes >> 20).collect::<Vec<_>>(), kept);
        };
        check(8 << 20, &[8], 8 << 20);
        check(9 << 20, &[8, 4], 12 << 20);
        check(1 << 30, &[8, 4, 1], 13 << 20);
        assert!(suggested(&report(false)).contains("burrow snapshot rm x1"));
        assert!(sufficiency(1 << 20, 1 << 30).contains("less than 1.0 GiB"));
    }

    #[test]
    fn a_report_without_stale_objects_says_so() {
        let empty = GarbageReport { applied: false, unused_for_seconds: 604_800, items: Vec::new() };
        assert!(!has_work(&empty));
        assert_eq!(summary(&empty), "nothing was unused for 7d");
    }
}
