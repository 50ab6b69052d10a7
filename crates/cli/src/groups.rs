//! The groups of commands in `burrow --help`.
//!
//! clap has no headings for subcommands. So the grouped list is written into the help template of the program, from
//! the names and summaries in the definitions of the commands.

use std::fmt::Write as _;

/// Each heading with its commands. The commands are defined in the same order, which is that of `docs/cli.md` too.
const GROUPS: &[(&str, &str)] = &[
    (
        "Sandboxes",
        "run create ls inspect stats events start stop pause resume hibernate wake update rename rm",
    ),
    (
        "Execs and files",
        "exec code context shell ssh ssh-config ps logs attach kill wait service env cp files mcp",
    ),
    ("Snapshots and forks", "snapshot fork diff merge race tree export import"),
    ("Memory", "memory kv skill artifact space"),
    ("Network and secrets", "egress secret port port-forward open"),
    ("Images and volumes", "image volume"),
    ("Administration", "up down serve doctor config backup gc audit key ssh-key version completion help"),
];

/// Makes the help of the program list its commands by group.
pub(crate) fn with_grouped_help(command: clap::Command) -> clap::Command {
    let template = template(&command);
    command.help_template(template)
}

fn template(command: &clap::Command) -> String {
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let width = command.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or_default();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "\n{header}{heading}:{header:#}");
        for name in names.split_whitespace() {
            let Some(command) = command.find_subcommand(name) else { continue };
            let summary = command.get_about().map(ToString::to_string).unwrap_or_default();
            let aliases: String =
                command.get_visible_aliases().map(|alias| format!(" [alias: {alias}]")).collect();
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {summary}{aliases}");
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The template is not wrapped, so each line must fit the narrowest common terminal.
    const COLUMNS_MAX: usize = 80;

    #[test]
    fn every_command_is_in_one_group_in_the_order_of_definition() {
        let command = crate::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let defined: Vec<_> = shown.map(clap::Command::get_name).collect();
        let grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.split_whitespace()).collect();
        for name in &defined {
            assert!(grouped.contains(name), "`{name}` is in no group");
        }
        for name in &grouped {
            assert!(defined.contains(name), "a group names the unknown command `{name}`");
        }
        assert_eq!(grouped, defined);
    }

    #[test]
    fn every_summary_fits_its_line() {
        let command = crate::command();
        let text = clap::builder::StyledStr::from(template(&command)).to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS_MAX, "{line}");
        }
    }

    #[test]
    fn all_forms_of_help_list_the_groups() {
        let mut shown = vec![crate::commands::help::text(&[]).unwrap()];
        for arguments in [&["burrow"][..], &["burrow", "-h"], &["burrow", "--help"]] {
            let error = crate::command().try_get_matches_from(arguments).unwrap_err();
            shown.push(error.render());
        }
        for help in shown {
            let help = help.to_string();
            for (heading, names) in GROUPS {
                assert!(help.contains(&format!("\n{heading}:\n")), "{heading}: {help}");
                for name in names.split_whitespace() {
                    assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
                }
            }
        }
    }

    #[test]
    fn help_of_a_command_is_that_of_the_command() {
        let help = crate::commands::help::text(&["snapshot".to_owned(), "create".to_owned()]).unwrap();
        assert!(help.to_string().contains("Usage: burrow snapshot create"), "{help}");
        assert!(crate::commands::help::text(&["nonsense".to_owned()]).is_err());
    }
}
