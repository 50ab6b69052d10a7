//! Draws forests: trees with lines in front and columns behind.
//!
//! ```text
//! web      sbx7h3k2m9p  running
//! ├─ web-1 sbx…         hibernated
//! └─ web-2 sbx…         running
//! ```

use crate::print::escape::escape;
use crate::print::paint::{Colour, paint};

/// One line of a forest.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Index of its parent, lower than its own; with any other value it is a root.
    pub(crate) parent: Option<usize>,
    /// Drawn after the lines, then the other columns.
    pub(crate) cells: Vec<Cell>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) colour: Option<Colour>,
}

impl Cell {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), colour: None }
    }

    pub(crate) fn coloured(text: impl Into<String>, colour: Colour) -> Self {
        Self { text: text.into(), colour: Some(colour) }
    }
}

/// The capabilities of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) utf8: bool,
    pub(crate) colours: bool,
}

/// The prefixes of a line: before a child with later siblings, before the last child, and below each of them.
#[derive(Clone, Copy, Debug)]
struct LinePrefixes {
    middle: &'static str,
    last: &'static str,
    below_middle: &'static str,
    below_last: &'static str,
}

const LINES: LinePrefixes =
    LinePrefixes { middle: "├─ ", last: "└─ ", below_middle: "│  ", below_last: "   " };
const ASCII: LinePrefixes =
    LinePrefixes { middle: "|- ", last: "`- ", below_middle: "|  ", below_last: "   " };

/// Deeper items are drawn at this depth: no screen is wider, and the lines of a long chain would exhaust the RAM.
const DEPTH_MAX: usize = 40;

/// Draws children in their order, each below its parent.
pub(crate) fn draw(items: &[Item], style: Style) -> String {
    let pieces = if style.utf8 { LINES } else { ASCII };
    let mut children = vec![Vec::new(); items.len()];
    let mut roots = Vec::new();
    for (place, item) in items.iter().enumerate() {
        match item.parent.filter(|parent| *parent < place) {
            Some(parent) => children[parent].push(place),
            None => roots.push(place),
        }
    }
    // An explicit stack: recursion over a chain of thousands would overflow the call stack.
    let mut rows = Vec::with_capacity(items.len());
    let mut stack: Vec<_> =
        roots.into_iter().rev().map(|root| (root, String::new(), String::new())).collect();
    while let Some((place, before, below)) = stack.pop() {
        let count = children[place].len();
        for (index, child) in children[place].iter().enumerate().rev() {
            let (own, under) = match index + 1 == count {
                true => (pieces.last, pieces.below_last),
                false => (pieces.middle, pieces.below_middle),
            };
            let deeper = if below.chars().count() < DEPTH_MAX * 3 { under } else { "" };
            stack.push((*child, format!("{below}{own}"), format!("{below}{deeper}")));
        }
        rows.push((before, &items[place].cells));
    }
    align(&rows, style)
}

fn align(rows: &[(String, &Vec<Cell>)], style: Style) -> String {
    let columns = rows.iter().map(|(_, cells)| cells.len()).max().unwrap_or_default();
    let mut widths = vec![0; columns];
    for (before, cells) in rows {
        for (column, cell) in cells.iter().enumerate() {
            let lines = if column == 0 { before.chars().count() } else { 0 };
            widths[column] = widths[column].max(lines + escape(&cell.text).chars().count());
        }
    }
    let mut text = String::new();
    for (before, cells) in rows {
        let mut line = before.clone();
        let mut width = before.chars().count();
        let mut edge = 0;
        for (column, cell) in cells.iter().enumerate() {
            let shown = escape(&cell.text);
            if !shown.is_empty() {
                line.push_str(&" ".repeat(edge.max(width) - width));
                width = edge.max(width) + shown.chars().count();
                match cell.colour.filter(|_| style.colours) {
                    Some(colour) => line.push_str(&paint(&shown, colour)),
                    None => line.push_str(&shown),
                }
            }
            edge += widths[column] + 2;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { utf8: true, colours: false };

    fn item(parent: Option<usize>, name: &str, state: &str) -> Item {
        Item { parent, cells: vec![Cell::plain(name), Cell::coloured(state, Colour::Good)] }
    }

    fn family() -> Vec<Item> {
        vec![
            item(None, "web", "running"),
            item(Some(0), "a", "paused"),
            item(Some(1), "a1", ""),
            item(Some(0), "b", "running"),
            item(Some(3), "b1", "running"),
            item(None, "lonely", "stopped"),
        ]
    }

    #[test]
    fn a_forest_is_drawn_with_lines_and_columns() {
        assert_eq!(
            draw(&family(), PLAIN),
            "web       running\n\
             ├─ a      paused\n\
             │  └─ a1\n\
             └─ b      running\n   \
                └─ b1  running\n\
             lonely    stopped\n"
        );
    }

    #[test]
    fn without_utf8_the_lines_are_ascii() {
        let drawn = draw(&family(), Style { utf8: false, colours: false });
        assert!(drawn.is_ascii(), "{drawn}");
        assert!(drawn.contains("|- a      paused\n|  `- a1\n`- b"), "{drawn}");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let drawn = draw(&family(), Style { utf8: true, colours: true });
        assert!(drawn.starts_with("web       \u{1b}[32mrunning\u{1b}[0m\n"), "{drawn}");
    }

    #[test]
    fn invalid_parents_make_roots_and_text_is_escaped() {
        let items = vec![item(Some(7), "a\u{1b}[2J", "x"), item(Some(1), "self", "y")];
        assert_eq!(draw(&items, PLAIN), "a\\x1b[2J  x\nself      y\n");
    }

    #[test]
    fn a_chain_of_thousands_is_drawn_within_the_maximum_depth() {
        let items: Vec<_> =
            (0..3_000_usize).map(|place| item(place.checked_sub(1), "x", "running")).collect();
        let drawn = draw(&items, PLAIN);
        assert_eq!(drawn.lines().count(), 3_000);
        assert!(drawn.lines().all(|line| line.chars().count() < (DEPTH_MAX + 10) * 3));
    }
}
