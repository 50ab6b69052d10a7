//! `burrow gc`: finds stale objects and what they cost, and removes them.

use std::time::Duration;

use burrow_api::{GarbageAction, GarbageItem, GarbageKind, GarbageReport};
use clap::Args;

use crate::context::Context;
use crate::failure::{CODE_GENERAL, Failure, OrFail, Stop};
use crate::parse;
use crate::print::escape::escape;
use crate::print::{self, Format, ask, quantity, table};
use crate::transfer::progress::Progress;

/// Find and remove stale sandboxes, snapshots and images
///
/// Without --apply, nothing is removed. Objects marked `keep` are left for you to decide: named images, snapshots that
/// were taken by users, and sandboxes, unless `gc.sandboxes` in the configuration of the daemon says otherwise.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow gc
  burrow gc --unused-for 7d
  burrow gc --apply                            asks first
  burrow gc --apply --yes --json")]
pub(crate) struct GcArgs {
    /// Remove the objects marked `remove`
    #[arg(long)]
    apply: bool,
    /// Objects that were not used for this long are stale
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = parse::duration)]
    unused_for: Duration,
    /// Do not ask for confirmation
    #[arg(short = 'y', long, requires = "apply")]
    yes: bool,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: GcArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let what = || "could not list stale objects".to_owned();
    if !args.apply || !args.yes {
        let report = client.garbage(Some(args.unused_for)).await.or_fail(what)?;
        if !args.apply {
            return show(&report, args.format);
        }
        if !has_work(&report) {
            return show(&report, args.format);
        }
        if !ask::can_ask() {
            let failure =
                Failure::new("could not clean up: confirmation is required, but there is no terminal");
            return Err(failure.hint("add --yes, or preview with `burrow gc`").into());
        }
        print::note(table::render(HEADER, &rows(&report)).trim_end());
        if !ask::confirm(&question(&report))? {
            print::note("nothing was removed");
            return Ok(());
        }
    }
    let working = Progress::working("cleaning up");
    let report = client.collect_garbage(Some(args.unused_for)).await;
    drop(working);
    let report = report.or_fail(|| "could not clean up".to_owned())?;
    show(&report, args.format)?;
    for item in &report.items {
        if let Some(failure) = &item.failure {
            print::note(&format!("error: {} `{}`: {}", kind(item.kind), escape(&item.id), escape(failure)));
        }
    }
    match report.items.iter().all(|item| item.failure.is_none()) {
        true => Ok(()),
        false => Err(Stop::Exit(CODE_GENERAL)),
    }
}

const HEADER: &[&str] = &["KIND", "ID", "NAME", "COST", "ACTION", "REASON"];

fn show(report: &GarbageReport, format: Format) -> Result<(), Stop> {
    if format.json {
        return print::json::pretty(report);
    }
    table::print(HEADER, &rows(report))?;
    print::note(&summary(report));
    Ok(())
}

fn rows(report: &GarbageReport) -> Vec<Vec<String>> {
    let row = |item: &GarbageItem| {
        vec![
            kind(item.kind).to_owned(),
            item.id.clone(),
            item.name.clone().unwrap_or_default(),
            quantity::bytes(item.bytes),
            action(item, report.applied).to_owned(),
            item.why.clone(),
        ]
    };
    report.items.iter().map(row).collect()
}

fn has_work(report: &GarbageReport) -> bool {
    report.items.iter().any(|item| item.action != GarbageAction::Keep)
}

fn question(report: &GarbageReport) -> String {
    let count = |wanted| {
        let fitting = report.items.iter().filter(|item| item.kind == wanted);
        fitting.filter(|item| item.action == GarbageAction::Remove).count()
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

fn kind(kind: GarbageKind) -> &'static str {
    match kind {
        GarbageKind::Sandbox => "sandbox",
        GarbageKind::Snapshot => "snapshot",
        GarbageKind::Image => "image",
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
        let actions =
            |report: &GarbageReport| rows(report).into_iter().map(|row| row[4].clone()).collect::<Vec<_>>();
        assert_eq!(actions(&report(false)), ["remove", "remove", "remove", "keep"]);
        assert_eq!(actions(&report(true)), ["removed", "removed", "failed", "keep"]);
        assert_eq!(question(&report(false)), "remove 1 sandbox, 1 snapshot, 1 image?");
        assert_eq!(summary(&report(false)), "`burrow gc --apply` would free 3.0 MiB; nothing was removed");
        assert_eq!(summary(&report(true)), "2.0 MiB freed");
    }

    #[test]
    fn a_report_without_stale_objects_says_so() {
        let empty = GarbageReport { applied: false, unused_for_seconds: 604_800, items: Vec::new() };
        assert!(!has_work(&empty));
        assert_eq!(summary(&empty), "nothing was unused for 7d");
    }
}
