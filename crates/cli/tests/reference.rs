//! Compares the generated pages in `docs/` with the code. `UPDATE=1` writes them.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

use std::fmt::Write as _;
use std::path::Path;

/// Wide enough for the longest option, narrow enough for a page.
const WIDTH: usize = 100;

/// Compares a generated text with the committed file, or writes the file if `UPDATE` is set.
#[track_caller]
fn check(file: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let update = "UPDATE=1 cargo test -p burrow-cli --test reference";
    assert!(committed == generated, "`{file}` is out of date: run `{update}`");
}

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
    check("docs/cli.md", &text);
}

#[test]
fn the_reference_lists_the_keys_of_the_configuration() {
    check("docs/configuration.md", &burrow_config::reference());
}

#[test]
fn the_openapi_document_describes_the_routes() {
    check("docs/openapi.json", &burrow_rest::openapi::document());
}
