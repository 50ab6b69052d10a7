//! Compares `docs/cli.md` with the help of the commands. `UPDATE=1` writes the file.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

use std::fmt::Write as _;
use std::path::Path;

/// Wide enough for the longest option, narrow enough for a page.
const WIDTH: usize = 100;

fn page(command: &clap::Command, path: &str, text: &mut String) {
    let mut shown = command.clone().term_width(WIDTH).bin_name(path).disable_help_subcommand(true);
    writeln!(text, "\n## `{path}`\n\n```text\n{}\n```", shown.render_long_help().to_string().trim_end())
        .unwrap();
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        page(child, &format!("{path} {}", child.get_name()), text);
    }
}

#[test]
fn the_reference_matches_the_help_of_the_commands() {
    let mut text = String::from(
        "# Command line\n\nThis page is generated from the code (`UPDATE=1 cargo test -p burrow-cli --test reference`).\n",
    );
    page(&burrow_cli::command(), "burrow", &mut text);
    // Help pads its lines with spaces; the file has none.
    let text: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == text, "`docs/cli.md` is out of date: run this test with UPDATE=1");
}
