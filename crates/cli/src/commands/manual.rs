//! `burrow manual`: writes the manual pages, one per command, for the packages. Not shown in the help.

use std::fmt::Write as _;
use std::fs;

use clap::Arg;

use crate::commands::prelude::*;

/// Write the manual pages into a directory
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ManualArgs {
    /// Directory of the pages, e.g. /usr/share/man/man1
    directory: PathBuf,
}

pub(crate) async fn run(_: &Context, args: ManualArgs) -> Result<(), Stop> {
    let what = || format!("could not write the manual pages to `{}`", args.directory.display());
    fs::create_dir_all(&args.directory).or_fail(what)?;
    for (name, text) in pages() {
        fs::write(args.directory.join(name), text).or_fail(what)?;
    }
    Ok(())
}

/// The file name and the text of each page.
fn pages() -> Vec<(String, String)> {
    let mut root = crate::command();
    // Gives each command its full name and the global options.
    root.build();
    let mut pages = Vec::new();
    collect(&root, "burrow", &mut pages);
    pages
}

/// `name` is that of the page: the names of the commands with dashes, as `man` expects it.
fn collect(command: &clap::Command, name: &str, pages: &mut Vec<(String, String)>) {
    pages.push((format!("{name}.1"), page(command, name)));
    for child in shown(command) {
        collect(child, &format!("{name}-{}", child.get_name()), pages);
    }
}

fn shown(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|child| !child.is_hide_set())
}

fn page(command: &clap::Command, name: &str) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!(
        ".TH \"{}\" \"1\" \"\" \"burrow {}\" \"Burrow\"\n.SH NAME\n{} \\- {}\n",
        escape_roff(&name.to_uppercase()),
        env!("CARGO_PKG_VERSION"),
        escape_roff(name),
        escape_roff(about.trim_end_matches('.')),
    );
    let usage = command.clone().render_usage().to_string();
    section(&mut text, "SYNOPSIS", &[as_is(usage.trim_start_matches("Usage:").trim())]);
    let long = command.get_long_about().map_or(about, ToString::to_string);
    section(&mut text, "DESCRIPTION", &paragraphs(&long));
    let arguments = |positional: bool| -> Vec<String> {
        let wanted = |argument: &&Arg| !argument.is_hide_set() && argument.is_positional() == positional;
        command.get_arguments().filter(wanted).map(entry).collect()
    };
    section(&mut text, "ARGUMENTS", &arguments(true));
    section(&mut text, "OPTIONS", &arguments(false));
    let children: Vec<_> = shown(command)
        .map(|child| {
            tagged(child.get_name(), &child.get_about().map(ToString::to_string).unwrap_or_default())
        })
        .collect();
    section(&mut text, "COMMANDS", &children);
    if let Some(help) = command.get_after_help() {
        let help = help.to_string();
        match help.split_once(":\n") {
            Some((heading, rest)) if !heading.contains('\n') => {
                section(&mut text, &heading.to_uppercase(), &[as_is(rest)]);
            }
            Some(_) | None => section(&mut text, "NOTES", &paragraphs(&help)),
        }
    }
    let mut related: Vec<String> =
        shown(command).map(|child| format!("{name}-{}", child.get_name())).collect();
    related.extend(name.rsplit_once('-').map(|_| "burrow".to_owned()));
    related.sort();
    let related: Vec<_> = related.iter().map(|name| format!("\\fB{}\\fR(1)", escape_roff(name))).collect();
    section(&mut text, "SEE ALSO", &[related.join(", ")]);
    text
}

fn section(text: &mut String, heading: &str, parts: &[String]) {
    if parts.iter().all(String::is_empty) {
        return;
    }
    let _ = write!(text, ".SH {}\n{}\n", escape_roff(heading), parts.join("\n"));
}

/// An argument or option, with its help, its values and its default.
fn entry(argument: &Arg) -> String {
    let mut name = String::new();
    if !argument.is_positional() {
        let short = argument.get_short().map(|short| format!("-{short}"));
        let long = argument.get_long().map(|long| format!("--{long}"));
        name = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    }
    if argument.is_positional() || argument.get_action().takes_values() {
        let values = argument.get_value_names().unwrap_or_default();
        let values: Vec<_> = values.iter().map(|value| format!("<{value}>")).collect();
        name = [name, values.join(" ")].join(" ").trim().to_owned();
    }
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = vec![help];
    if argument.get_action().takes_values() {
        let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
        let values = argument.get_possible_values().into_iter().map(|value| value.get_name().to_owned());
        for (label, is_hidden, words) in [
            ("Default", argument.is_hide_default_value_set(), defaults.collect::<Vec<_>>()),
            ("Values", argument.is_hide_possible_values_set(), values.collect()),
        ] {
            if !is_hidden && !words.is_empty() {
                help.push(format!("{label}: {}.", words.join(", ")));
            }
        }
    }
    tagged(&name, &help.join("\n\n"))
}

/// A name in bold, and its description indented below it.
fn tagged(name: &str, description: &str) -> String {
    let description = paragraphs(description).join("\n").replace(".PP\n", ".IP\n");
    format!(".TP\n\\fB{}\\fR\n{description}", escape_roff(name))
}

/// Paragraphs are separated by empty lines. The first one has no macro, because it follows a heading.
fn paragraphs(text: &str) -> Vec<String> {
    let parts = text.split("\n\n").filter(|part| !part.trim().is_empty()).enumerate();
    parts
        .map(|(index, part)| {
            // Indented lines are examples or lists.
            let shown = if part.contains("\n ") { as_is(part) } else { escape_roff(part.trim()) };
            if index == 0 { shown } else { format!(".PP\n{shown}") }
        })
        .collect()
}

/// Text whose lines are kept.
fn as_is(text: &str) -> String {
    format!(".nf\n{}\n.fi", escape_roff(text.trim_end()))
}

/// A backslash begins an escape; a dot or a quote at the start of a line begins a macro; `-` alone is a hyphen, which
/// cannot be copied to a command line.
fn escape_roff(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(pages: &'a [(String, String)], name: &str) -> &'a str {
        &pages.iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("`{name}` is missing")).1
    }

    #[test]
    fn every_command_has_a_page_with_its_options_and_examples() {
        let pages = pages();
        let root = find(&pages, "burrow.1");
        assert!(root.contains("\\fBcreate\\fR\n") && root.contains("\n.SH EXAMPLES\n.nf\n"), "{root}");
        let create = find(&pages, "burrow-snapshot-create.1");
        assert!(create.starts_with(".TH \"BURROW\\-SNAPSHOT\\-CREATE\" \"1\""), "{create}");
        for part in [
            "\n.SH NAME\nburrow\\-snapshot\\-create \\- ",
            "\n.SH SYNOPSIS\n.nf\nburrow snapshot create ",
            "\n.SH OPTIONS\n.TP\n",
            "\\-\\-url",
            "\n.SH SEE ALSO\n\\fBburrow\\fR(1)\n",
        ] {
            assert!(create.contains(part), "{part:?} is missing in {create}");
        }
        assert!(!pages.iter().any(|(name, _)| name == "burrow-manual.1"), "hidden commands have no page");
    }

    #[test]
    fn no_line_of_help_is_read_as_a_macro() {
        assert_eq!(escape_roff(".config\n'x' a\\b\n--net"), "\\&.config\n\\&'x' a\\eb\n\\-\\-net");
        let known = [".TH ", ".SH ", ".TP", ".PP", ".IP", ".nf", ".fi"];
        for (name, text) in pages() {
            for line in text.lines().filter(|line| line.starts_with(['.', '\''])) {
                assert!(known.iter().any(|macro_name| line.starts_with(macro_name)), "{name}: {line}");
            }
        }
    }
}
