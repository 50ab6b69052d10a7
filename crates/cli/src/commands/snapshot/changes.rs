//! Changed paths, folded to fit a screen: many changes below one directory become one line.

use std::collections::BTreeMap;

use burrow_api::{Change, ChangeKind, Changes};

use crate::print::escape::escape;

/// Maximum number of lines, so that all of them fit a screen.
const LINES_MAX: usize = 20;
/// Maximum depth of paths; below it, changes are folded.
const DEPTH_MAX: usize = 8;

/// The changes, one line each, with a headline.
pub(super) fn shown(changes: &Changes) -> Vec<String> {
    let since = match &changes.since {
        Some(snapshot) => format!("snapshot `{}`", escape(snapshot)),
        None => "its image".to_owned(),
    };
    let mut lines = match changes.total {
        // The disk of a virtual machine was not read.
        0 if changes.more => return vec![format!("`burrow diff` shows the changes since {since}")],
        total if changes.more => vec![format!("{total} and many more paths changed since {since}:")],
        0 => return vec![format!("no path changed since {since}")],
        1 => vec![format!("1 path changed since {since}:")],
        total => vec![format!("{total} paths changed since {since}:")],
    };
    lines.extend(fold(&changes.paths).into_iter().map(|line| format!("  {line}")));
    if changes.more {
        lines.push("  … and more: there are too many to list all of them".to_owned());
        return lines;
    }
    let unlisted = changes.total.saturating_sub(changes.paths.len() as u64);
    if unlisted > 0 {
        lines.push(format!("  … and {unlisted} more that are not listed"));
    }
    lines
}

/// Folds at the greatest depth that fits the screen.
fn fold(paths: &[Change]) -> Vec<String> {
    if paths.len() <= LINES_MAX {
        return paths.iter().map(line).collect();
    }
    let mut lines = Vec::new();
    for depth in (1..=DEPTH_MAX).rev() {
        lines = folded(paths, depth);
        if lines.len() <= LINES_MAX {
            return lines;
        }
    }
    let hidden = lines.len() - (LINES_MAX - 1);
    lines.truncate(LINES_MAX - 1);
    lines.push(format!("… and {hidden} more directories"));
    lines
}

/// One line for all changes that share the first `depth` components.
fn folded(paths: &[Change], depth: usize) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<&Change>> = BTreeMap::new();
    for change in paths {
        groups.entry(beginning(&change.path, depth)).or_default().push(change);
    }
    groups
        .into_iter()
        .map(|(beginning, members)| match members.as_slice() {
            [only] => line(only),
            many => format!("  {}/…  {}", escape(&beginning), counts(many)),
        })
        .collect()
}

fn beginning(path: &str, depth: usize) -> String {
    path.split('/').filter(|part| !part.is_empty()).take(depth).map(|part| format!("/{part}")).collect()
}

fn line(change: &Change) -> String {
    let sign = match change.kind {
        ChangeKind::Added => '+',
        ChangeKind::Changed => '~',
        ChangeKind::Deleted => '-',
    };
    format!("{sign} {}", escape(&change.path))
}

fn counts(changes: &[&Change]) -> String {
    let count = |kind| changes.iter().filter(|change| change.kind == kind).count();
    let parts = [
        (count(ChangeKind::Added), "added"),
        (count(ChangeKind::Changed), "changed"),
        (count(ChangeKind::Deleted), "deleted"),
    ];
    let parts: Vec<_> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, kind: ChangeKind) -> Change {
        Change { path: path.to_owned(), kind }
    }

    #[test]
    fn a_few_changes_are_listed_one_by_one() {
        let changes = Changes {
            paths: vec![
                change("/etc/hosts", ChangeKind::Changed),
                change("/srv/a\u{1b}[2J", ChangeKind::Added),
                change("/tmp/x", ChangeKind::Deleted),
            ],
            total: 3,
            more: false,
            since: Some("snp1".to_owned()),
        };
        assert_eq!(
            shown(&changes),
            ["3 paths changed since snapshot `snp1`:", "  ~ /etc/hosts", "  + /srv/a\\x1b[2J", "  - /tmp/x"]
        );
        assert_eq!(shown(&Changes::default()), ["no path changed since its image"]);
    }

    #[test]
    fn many_changes_are_folded_by_directory_and_counted() {
        let mut paths = vec![change("/etc/hosts", ChangeKind::Changed)];
        for n in 0..300 {
            paths.push(change(&format!("/usr/lib/python3/m{n}/__init__.py"), ChangeKind::Added));
        }
        paths.push(change("/usr/lib/python3/old.py", ChangeKind::Deleted));
        let changes = Changes { total: 5_000, more: false, paths, since: None };
        assert_eq!(
            shown(&changes),
            [
                "5000 paths changed since its image:",
                "  ~ /etc/hosts",
                "    /usr/lib/python3/…  300 added, 1 deleted",
                "  … and 4698 more that are not listed",
            ]
        );
    }

    #[test]
    fn incomplete_counts_are_reported() {
        let paths = vec![change("/srv/a", ChangeKind::Added)];
        let lines = shown(&Changes { total: 1, more: true, paths, since: None });
        assert_eq!(lines[0], "1 and many more paths changed since its image:");
        assert_eq!(lines[2], "  … and more: there are too many to list all of them");
        let unread = Changes { total: 0, more: true, paths: Vec::new(), since: None };
        assert_eq!(shown(&unread), ["`burrow diff` shows the changes since its image"]);
    }

    #[test]
    fn lines_that_do_not_fit_are_counted() {
        let paths: Vec<_> = (0..50).map(|n| change(&format!("/{n:02}"), ChangeKind::Added)).collect();
        let lines = shown(&Changes { total: 50, more: false, paths, since: None });
        assert_eq!(lines.len(), 1 + LINES_MAX);
        assert_eq!(lines[LINES_MAX], "  … and 31 more directories");
    }

    #[test]
    fn the_deepest_fold_that_fits_is_used() {
        let mut paths = Vec::new();
        for directory in ["a", "b"] {
            for n in 0..30 {
                paths.push(change(&format!("/srv/{directory}/f{n}"), ChangeKind::Changed));
            }
        }
        assert_eq!(fold(&paths), ["  /srv/a/…  30 changed", "  /srv/b/…  30 changed"]);
    }
}
