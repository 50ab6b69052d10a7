//! Memory entries about a similar failure: printed on standard error, after the output, never within it.

use std::io::IsTerminal as _;

use burrow_api::memory::RelatedMemory;

use super::show::{date, excerpt};
use crate::commands::prelude::*;
use crate::interact::{InteractionEnd, outcome};
use crate::print::paint::{self, Colour};
use crate::terminal;

/// Maximum number of entries shown, so that they are read.
const SHOWN_MAX: usize = 3;
/// Maximum width of an entry, on any terminal.
const WIDTH_MAX: usize = 160;

/// Whether to show related entries.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RelatedFlags {
    /// Show related memory entries if the command fails, even if standard error is not a terminal
    #[arg(long, conflicts_with = "no_related")]
    related: bool,
    /// Never show related memory entries
    #[arg(long)]
    no_related: bool,
}

impl RelatedFlags {
    /// Prints related entries if the command failed, and standard error is a terminal or `--related` is set.
    pub(crate) fn print(&self, end: &InteractionEnd) {
        let InteractionEnd::Exit(exec) = end else { return };
        let terminal = std::io::stderr().is_terminal();
        if self.no_related || !(self.related || terminal) || outcome::exit_code(exec) == 0 {
            return;
        }
        let width = usize::from(terminal::size().columns).clamp(40, WIDTH_MAX);
        for line in lines(&exec.related, width) {
            match paint::colours(terminal) {
                true => print::note(paint::paint(&line, Colour::Faint)),
                false => print::note(&line),
            }
        }
    }
}

fn lines(related: &[RelatedMemory], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for memory in related.iter().take(SHOWN_MAX) {
        let head = format!("remembered: {} {} ", date(memory.at_ms), excerpt(&memory.id, 40));
        let room = width.saturating_sub(head.chars().count()).max(20);
        lines.push(format!("{head}{}", excerpt(&memory.text, room)));
        if let Some(fix) = &memory.fixed_by {
            let (head, fix) = match fix.commands.is_empty() {
                false => ("            then worked after: ", fix.commands.join("; ")),
                true => ("            then worked after changes of ", fix.files.join(", ")),
            };
            lines.push(format!("{head}{}", excerpt(&fix, width.saturating_sub(head.len()).max(20))));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::memory::RelatedFix;

    #[test]
    fn a_few_entries_are_shown_in_one_line_each_with_their_fix() {
        let fix = RelatedFix {
            id: "mem2".to_owned(),
            at_ms: 0,
            commands: vec!["./configure".to_owned(), "make".to_owned()],
            files: Vec::new(),
        };
        let memory = |fixed_by: Option<RelatedFix>| RelatedMemory {
            id: "mem1".to_owned(),
            kind: "error".to_owned(),
            text: "`make install` failed with 2:\n no rule\u{1b}[2J".to_owned(),
            why: "the same command".to_owned(),
            score: 0.9,
            at_ms: 1_794_710_393_000,
            count: 1,
            fixed_by,
        };
        let shown = lines(&[memory(Some(fix)), memory(None)], 100);
        assert_eq!(
            shown,
            [
                "remembered: 2026-11-15 02:39 mem1 `make install` failed with 2: no rule\\x1b[2J",
                "            then worked after: ./configure; make",
                "remembered: 2026-11-15 02:39 mem1 `make install` failed with 2: no rule\\x1b[2J",
            ]
        );
        assert_eq!(lines(&vec![memory(None); 9], 100).len(), SHOWN_MAX);
        assert!(lines(&[], 100).is_empty());
    }
}
