//! `burrow diff`: shows the differences between two trees of files.

use burrow_api::{ChangeKind, Diff, DiffEntry, DiffRequest, FileKind};

use crate::commands::prelude::*;
use crate::print::paint::{self, Colour, paint};

/// Show the differences between sandboxes, snapshots or images
///
/// Sandboxes may be in any state; a running container is paused while its files are copied. The time depends on the number of
/// differences, not on the size of the disks. Caches, temporary files, logs and pid files are only counted; --all shows them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow diff web web-1                        changes in web and in its fork web-1 since the fork
  burrow diff before-upgrade web               since a snapshot
  burrow diff debian web --stat                since its image, in numbers
  burrow diff web web-1 --content '*.py'       lines of Python files
  burrow diff web web-1 '/srv/**' --json       for a script

Signs: + added, - deleted, ~ changed. A pattern without `/` matches names in any directory; a pattern that matches a
directory matches its contents too. An ambiguous name means the sandbox: write snapshot:NAME or image:NAME otherwise.")]
pub(crate) struct DiffArgs {
    /// Old state: a sandbox, a snapshot or an image
    from: String,
    /// New state: a sandbox, a snapshot or an image
    to: String,
    /// Only paths that match one of these patterns
    #[arg(value_name = "GLOB")]
    globs: Vec<String>,
    /// Show the lines of text files that differ
    #[arg(long, conflicts_with = "stat")]
    content: bool,
    /// Show only totals
    #[arg(long)]
    stat: bool,
    /// Show noise too: caches, temporary files, logs, pid files
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: DiffArgs) -> Result<(), Stop> {
    let request = DiffRequest {
        from: args.from.clone(),
        to: args.to.clone(),
        globs: args.globs,
        all: args.all,
        content: args.content,
        limit: None,
    };
    let diff = Progress::during("comparing", ctx.client()?.diff(&request)).await;
    let diff = diff.or_fail(|| format!("could not compare `{}` with `{}`", args.from, args.to))?;
    if args.format.json {
        return print::json::pretty(&diff);
    }
    let colours = paint::colours_on_stdout();
    if !args.stat {
        let shown: String = diff.entries.iter().map(|entry| shown(entry, colours)).collect();
        print::data(&shown)?;
    }
    let summary = summary(&diff);
    if args.stat {
        print::line(&summary)?
    } else {
        print::note(&summary)
    }
    print::notes(remarks(&diff));
    Ok(())
}

/// One entry, with its lines if there are any.
pub(super) fn shown(entry: &DiffEntry, colours: bool) -> String {
    let (sign, colour) = match entry.change {
        ChangeKind::Added => ('+', Colour::Good),
        ChangeKind::Deleted => ('-', Colour::Bad),
        ChangeKind::Changed => ('~', Colour::Asleep),
    };
    let line = format!("{sign} {}{}", escape(&entry.path), about(entry));
    let mut text = if colours { paint(&line, colour) } else { line };
    text.push('\n');
    if let Some(lines) = &entry.lines {
        for line in lines.hunks.lines() {
            let escaped = escape(line);
            let painted = match line.as_bytes().first() {
                Some(b'+') if colours => paint(&escaped, Colour::Good),
                Some(b'-') if colours => paint(&escaped, Colour::Bad),
                Some(b'@') if colours => paint(&escaped, Colour::Faint),
                _ => escaped,
            };
            text.push_str(&painted);
            text.push('\n');
        }
        if lines.cut {
            text.push_str("… more lines are not shown\n");
        }
    }
    text
}

/// The details of an entry besides its path.
fn about(entry: &DiffEntry) -> String {
    let mut parts = Vec::new();
    let is_directory =
        entry.new.as_ref().or(entry.old.as_ref()).is_some_and(|node| node.kind == FileKind::Directory);
    match (&entry.old, &entry.new) {
        (Some(old), Some(new)) => {
            for aspect in &entry.what {
                use burrow_api::DiffAspect as Aspect;
                parts.push(match aspect {
                    Aspect::Content if old.size == new.size => quantity::bytes(new.size),
                    Aspect::Content => {
                        format!("{} → {}", quantity::bytes(old.size), quantity::bytes(new.size))
                    }
                    Aspect::Kind => format!("{} → {}", word(old.kind), word(new.kind)),
                    Aspect::Mode => format!("mode {} → {}", old.mode, new.mode),
                    Aspect::Owner => format!("owner {}:{} → {}:{}", old.uid, old.gid, new.uid, new.gid),
                    Aspect::Link => format!("→ {}", escape(new.target.as_deref().unwrap_or_default())),
                    Aspect::Device => "different device".to_owned(),
                    Aspect::Xattr => "extended attributes".to_owned(),
                });
            }
        }
        (Some(node), None) | (None, Some(node)) => match (&node.target, is_directory) {
            (Some(target), _) => parts.push(format!("→ {}", escape(target))),
            (None, true) => parts.push("directory".to_owned()),
            (None, false) => parts.push(quantity::bytes(node.size)),
        },
        (None, None) => {}
    }
    if parts.is_empty() { String::new() } else { format!("  ({})", parts.join(", ")) }
}

fn word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::Other => "special file",
    }
}

fn summary(diff: &Diff) -> String {
    if diff.added + diff.changed + diff.deleted == 0 {
        return "no difference".to_owned();
    }
    let mut summary = format!("{} added, {} changed, {} deleted", diff.added, diff.changed, diff.deleted);
    let (old, new) = (diff.old_bytes, diff.new_bytes);
    summary.push_str(&format!("; {} → {}", quantity::bytes(old), quantity::bytes(new)));
    let lines = diff.entries.iter().filter_map(|entry| entry.lines.as_ref());
    let (added, removed) =
        lines.fold((0, 0), |(added, removed), lines| (added + lines.added, removed + lines.removed));
    if added + removed > 0 {
        summary.push_str(&format!("; {added} lines added, {removed} removed"));
    }
    summary
}

fn remarks(diff: &Diff) -> Vec<String> {
    let mut remarks = Vec::new();
    let noise: u64 = diff.noise.iter().map(|noise| noise.count).sum();
    if noise > 0 {
        let parts: Vec<_> =
            diff.noise.iter().map(|noise| format!("{} of {}", noise.count, escape(&noise.what))).collect();
        remarks.push(format!("left out as noise: {} (--all shows them)", parts.join(", ")));
    }
    if diff.cut {
        remarks.push(format!(
            "only the first {} paths are listed; add patterns to narrow the list",
            diff.entries.len()
        ));
    }
    if diff.base.is_none() {
        remarks.push("they have no common history, so all files were compared".to_owned());
    }
    remarks
}

#[cfg(test)]
mod tests {
    use burrow_api::{DiffAspect, DiffLines, DiffNode, DiffNoise, DiffSide, DiffSideKind};

    use super::*;

    fn node(size: u64) -> DiffNode {
        let mode = "0644".to_owned();
        DiffNode { kind: FileKind::File, size, mode, uid: 0, gid: 0, target: None, xattrs: Vec::new() }
    }

    fn entry(path: &str, change: ChangeKind) -> DiffEntry {
        DiffEntry {
            path: path.to_owned(),
            change,
            what: Vec::new(),
            old: None,
            new: Some(node(5)),
            lines: None,
        }
    }

    #[test]
    fn entries_show_what_changed_with_control_characters_escaped() {
        assert_eq!(shown(&entry("/a\u{1b}[2J", ChangeKind::Added), false), "+ /a\\x1b[2J  (5 B)\n");
        let changed = DiffEntry {
            what: vec![DiffAspect::Content, DiffAspect::Mode],
            old: Some(DiffNode { mode: "0600".to_owned(), ..node(1024) }),
            lines: Some(DiffLines {
                added: 1,
                removed: 0,
                hunks: "@@ -0,0 +1 @@\n+x\u{7}\n".to_owned(),
                cut: true,
            }),
            ..entry("/b", ChangeKind::Changed)
        };
        assert_eq!(
            shown(&changed, false),
            "~ /b  (1.0 KiB → 5 B, mode 0600 → 0644)\n@@ -0,0 +1 @@\n+x\\x07\n… more lines are not shown\n"
        );
    }

    #[test]
    fn noise_is_counted_and_reported() {
        let side = || DiffSide { kind: DiffSideKind::Image, id: "img".to_owned() };
        let diff = Diff {
            from: side(),
            to: side(),
            base: Some(side()),
            entries: Vec::new(),
            added: 0,
            changed: 0,
            deleted: 0,
            old_bytes: 0,
            new_bytes: 0,
            noise: vec![DiffNoise { what: "logs".to_owned(), count: 3 }],
            cut: false,
        };
        assert_eq!(summary(&diff), "no difference");
        assert_eq!(remarks(&diff), ["left out as noise: 3 of logs (--all shows them)"]);
    }
}
