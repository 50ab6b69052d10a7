//! Tables: aligned columns without lines, everything escaped.

use comfy_table::{ContentArrangement, Table, presets};

use crate::failure::Stop;
use crate::print;
use crate::print::escape::escape;

/// Rows under a header.
pub(crate) fn render(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| escape(cell)).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub(crate) fn print<T>(header: &[&str], items: &[T], row: impl Fn(&T) -> Vec<String>) -> Result<(), Stop> {
    print::data(&of(header, items, row))
}

/// A table with a row for each item.
pub(crate) fn of<T>(header: &[&str], items: &[T], row: impl Fn(&T) -> Vec<String>) -> String {
    render(header, &items.iter().map(row).collect::<Vec<_>>())
}

/// Prints the properties of one object.
pub(crate) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> Result<(), Stop> {
    let rows: Vec<_> = facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    print::data(&render(&["", ""], &rows))
}

/// `a=1,b=2`
pub(crate) fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_spaces() {
        let rows = vec![
            vec!["sbxabc".to_owned(), "web".to_owned(), String::new()],
            vec!["sbxdefghi".to_owned(), "a\u{1b}[2J".to_owned(), "漢=1".to_owned()],
        ];
        assert_eq!(
            render(&["ID", "NAME", "LABELS"], &rows),
            "ID         NAME      LABELS\n\
             sbxabc     web\n\
             sbxdefghi  a\\x1b[2J  漢=1\n"
        );
    }

    #[test]
    fn an_empty_list_is_its_header() {
        assert_eq!(render(&["ID", "NAME"], &[]), "ID  NAME\n");
    }
}
