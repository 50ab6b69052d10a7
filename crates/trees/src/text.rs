//! Text by lines: differences between two texts, and three-way merges.
//!
//! ```text
//!   base ─► ours    hunks ┐
//!                         ├─► groups of hunks that touch ─► one side changed: its lines
//!   base ─► theirs  hunks ┘                              ─► both, equally: their lines; else a clash
//! ```
//!
//! Hunks that touch without overlapping clash too, as in other tools: a change directly beside another one is usually related to
//! it.

use std::fmt::Write as _;
use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

/// Bytes of a file that is compared or merged by lines. Larger files are not text written by people.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// Lines of context around a change.
const CONTEXT_LINES: usize = 3;

/// The beginning of a file, in which a zero byte is searched for.
const BINARY_LOOK_BYTES: usize = 8 << 10;

/// How to handle lines that both sides changed differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clash {
    /// There is no merge.
    Refuse,
    /// Ours, then theirs.
    Both,
}

/// Whether content looks like text.
pub fn is_text(content: &[u8]) -> bool {
    !content[..content.len().min(BINARY_LOOK_BYTES)].contains(&0)
}

/// The number of added and removed lines, and the hunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnifiedDiff {
    pub added: u64,
    pub removed: u64,
    /// Hunks, without the two header lines.
    pub hunks: String,
    /// The hunks exceeded the limit and were cut.
    pub cut: bool,
}

/// The difference of two texts, with hunks up to this many bytes.
pub fn unified(old: &[u8], new: &[u8], bytes_max: usize) -> UnifiedDiff {
    let (before, after) = (lines(old), lines(new));
    let hunks = hunks_of(&before, &after);
    let count = |side: fn(&Hunk) -> &Range<usize>| hunks.iter().map(|hunk| side(hunk).len() as u64).sum();
    let (removed, added) = (count(|hunk| &hunk.before), count(|hunk| &hunk.after));
    let mut text = String::new();
    let mut cut = false;
    for group in grouped(&hunks) {
        let mut shown = String::new();
        show_group(&mut shown, group, &before, &after);
        if text.len() + shown.len() > bytes_max {
            cut = true;
            break;
        }
        text.push_str(&shown);
    }
    UnifiedDiff { added, removed, hunks: text, cut }
}

/// The three-way merge of texts; `None` if both sides changed the same lines differently and `clash` refuses that.
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8], clash: Clash) -> Option<Vec<u8>> {
    let (base, ours, theirs) = (lines(base), lines(ours), lines(theirs));
    let (mine, others) = (hunks_of(&base, &ours), hunks_of(&base, &theirs));
    let (mut mine, mut others) = (mine.into_iter().peekable(), others.into_iter().peekable());
    let (mut merged, mut at) = (Vec::new(), 0);
    // How many more lines than the base each side has so far.
    let (mut our_shift, mut their_shift) = (0isize, 0isize);
    while let Some(start) = earliest(mine.peek(), others.peek()) {
        merged.extend_from_slice(&base[at..start]);
        let (our_start, their_start) = (shifted(start, our_shift), shifted(start, their_shift));
        let (mut end, mut ours_in, mut theirs_in) = (start, false, false);
        loop {
            if let Some(hunk) = mine.next_if(|hunk| touches(hunk, end)) {
                (end, ours_in) = (end.max(hunk.before.end), true);
                our_shift += hunk.after.len() as isize - hunk.before.len() as isize;
            } else if let Some(hunk) = others.next_if(|hunk| touches(hunk, end)) {
                (end, theirs_in) = (end.max(hunk.before.end), true);
                their_shift += hunk.after.len() as isize - hunk.before.len() as isize;
            } else {
                break;
            }
        }
        let our_lines = &ours[our_start..shifted(end, our_shift)];
        let their_lines = &theirs[their_start..shifted(end, their_shift)];
        match (ours_in, theirs_in) {
            (true, false) => merged.extend_from_slice(our_lines),
            (false, true) => merged.extend_from_slice(their_lines),
            _ if our_lines == their_lines => merged.extend_from_slice(our_lines),
            _ if clash == Clash::Both => {
                merged.extend_from_slice(our_lines);
                end_line(&mut merged);
                merged.extend_from_slice(their_lines);
            }
            _ => return None,
        }
        at = end;
    }
    merged.extend_from_slice(&base[at..]);
    Some(merged.concat())
}

/// Adds a missing line break, so that the last line of one side is not joined with a line of the other.
fn end_line(lines: &mut Vec<&[u8]>) {
    if lines.last().is_some_and(|line| !line.ends_with(b"\n")) {
        lines.push(b"\n");
    }
}

#[derive(Clone, Debug)]
struct Hunk {
    before: Range<usize>,
    after: Range<usize>,
}

fn earliest(mine: Option<&Hunk>, others: Option<&Hunk>) -> Option<usize> {
    let starts = mine.into_iter().chain(others).map(|hunk| hunk.before.start);
    starts.min()
}

/// Whether a hunk belongs to the group that ends at `end`, where its first line begins.
fn touches(hunk: &Hunk, end: usize) -> bool {
    hunk.before.start <= end
}

fn shifted(line: usize, by: isize) -> usize {
    line.saturating_add_signed(by)
}

fn lines(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|byte| *byte == b'\n').collect()
}

fn hunks_of(before: &[&[u8]], after: &[&[u8]]) -> Vec<Hunk> {
    let mut input = InternedInput::default();
    input.update_before(before.iter().copied());
    input.update_after(after.iter().copied());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let wide = |range: Range<u32>| range.start as usize..range.end as usize;
    diff.hunks().map(|hunk| Hunk { before: wide(hunk.before), after: wide(hunk.after) }).collect()
}

/// Hunks whose contexts overlap are shown as one.
fn grouped(hunks: &[Hunk]) -> Vec<&[Hunk]> {
    let apart = |pair: &[Hunk]| pair[1].before.start - pair[0].before.end > 2 * CONTEXT_LINES;
    let (mut groups, mut from) = (Vec::new(), 0);
    for at in 1..hunks.len() {
        if apart(&hunks[at - 1..=at]) {
            groups.push(&hunks[from..at]);
            from = at;
        }
    }
    if from < hunks.len() {
        groups.push(&hunks[from..]);
    }
    groups
}

fn show_group(into: &mut String, group: &[Hunk], before: &[&[u8]], after: &[&[u8]]) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let start = first.before.start.saturating_sub(CONTEXT_LINES);
    let end = (last.before.end + CONTEXT_LINES).min(before.len());
    let new_start = first.after.start - (first.before.start - start);
    let new_end = last.after.end + (end - last.before.end);
    let span = |range: Range<usize>| match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        length => format!("{},{length}", range.start + 1),
    };
    let _ = writeln!(into, "@@ -{} +{} @@", span(start..end), span(new_start..new_end));
    let mut at = start;
    for hunk in group {
        show_lines(into, ' ', &before[at..hunk.before.start]);
        show_lines(into, '-', &before[hunk.before.clone()]);
        show_lines(into, '+', &after[hunk.after.clone()]);
        at = hunk.before.end;
    }
    show_lines(into, ' ', &before[at..end]);
}

fn show_lines(into: &mut String, sign: char, lines: &[&[u8]]) {
    for line in lines {
        into.push(sign);
        into.push_str(&String::from_utf8_lossy(line));
        if !line.ends_with(b"\n") {
            into.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(range: Range<usize>) -> String {
        range.map(|number| format!("{number}\n")).collect()
    }

    #[test]
    fn differences_are_written_in_unified_format() {
        let old = numbered(1..21);
        let new = old.replace("10\n", "ten\n").replace("20\n", "20");
        let shown = unified(old.as_bytes(), new.as_bytes(), 10_000);
        assert_eq!((shown.added, shown.removed, shown.cut), (2, 2, false));
        assert_eq!(
            shown.hunks,
            "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n\
             @@ -17,4 +17,4 @@\n 17\n 18\n 19\n-20\n+20\n\\ No newline at end of file\n"
        );
        let added = unified(b"", b"a\nb\n", 1000);
        assert_eq!(added.hunks, "@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(unified(b"x\n", b"", 1000).hunks, "@@ -1 +0,0 @@\n-x\n");
        assert_eq!(unified(b"x\n", b"x\n", 1000).hunks, "");
        assert!(unified(old.as_bytes(), b"", 10).cut);
    }

    #[track_caller]
    fn check(base: &str, ours: &str, theirs: &str, merged: Option<&str>) {
        let found = merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes(), Clash::Refuse);
        assert_eq!(found.as_deref().map(String::from_utf8_lossy).as_deref(), merged);
        let mirrored = merge(base.as_bytes(), theirs.as_bytes(), ours.as_bytes(), Clash::Refuse);
        assert_eq!(mirrored, found, "a merge without a clash is the same from both sides");
    }

    #[test]
    fn changes_of_different_lines_are_merged() {
        let base = numbered(1..10);
        let (ours, theirs) = (base.replace("2\n", "two\n"), base.replace("8\n", "8\n8a\n"));
        check(&base, &ours, &theirs, Some(&ours.replace("8\n", "8\n8a\n")));
        check(&base, &base, &theirs, Some(&theirs));
        check(&base, &theirs, &theirs, Some(&theirs));
        let (gone, more) = (base.replace("2\n", ""), format!("{base}end\n"));
        check(&base, &gone, &more, Some(&format!("{gone}end\n")));
    }

    #[test]
    fn changes_of_the_same_lines_clash_unless_both_are_wanted() {
        check("a\nb\nc\n", "a\nx\nc\n", "a\ny\nc\n", None);
        check("a\nb\nc\n", "a\nx\nc\n", "a\nb\ny\n", None);
        check("", "x\n", "y\n", None);
        let both = |base: &str, ours: &str, theirs: &str| {
            let merged = merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes(), Clash::Both).unwrap();
            String::from_utf8(merged).unwrap()
        };
        assert_eq!(both("a\nb\nc\n", "a\nx\nc\n", "a\ny\nc\n"), "a\nx\ny\nc\n");
        assert_eq!(both("", "x", "y"), "x\ny");
        assert_eq!(both("1\n", "1\nours\n", "1\ntheirs\n"), "1\nours\ntheirs\n");
    }

    #[test]
    fn content_with_a_zero_byte_is_not_text() {
        assert!(is_text(b"") && is_text("häh\n".as_bytes()) && !is_text(b"ELF\0"));
    }

    proptest::proptest! {
        /// For any texts: merging with an unchanged side returns the other side, and no lines are invented.
        #[test]
        fn a_merge_with_an_unchanged_side_is_the_other_side(base in "[ab\n]{0,40}", ours in "[ab\n]{0,40}", theirs in "[abc\n]{0,40}") {
            let (base, ours, theirs) = (base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
            proptest::prop_assert_eq!(merge(base, ours, base, Clash::Refuse), Some(ours.to_vec()));
            proptest::prop_assert_eq!(merge(base, base, theirs, Clash::Refuse), Some(theirs.to_vec()));
            proptest::prop_assert_eq!(merge(base, ours, ours, Clash::Refuse), Some(ours.to_vec()));
            let refused = merge(base, ours, theirs, Clash::Refuse);
            let both = merge(base, ours, theirs, Clash::Both);
            proptest::prop_assert!(both.is_some());
            if refused.is_some() {
                proptest::prop_assert_eq!(refused, both);
            }
        }
    }
}
