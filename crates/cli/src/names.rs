//! Completion of names in shells: sandboxes, snapshots, images, volumes, secrets, host sets and memory spaces of the daemon.
//!
//! The script that `burrow completion` prints calls the program again with the words of the command line. The arguments to
//! complete are found by their ids in the definition of the command line, so a new command is completed without further code.
//!
//! A shell waits for the answer while its user types: a request has a short time limit, and no error is ever printed. The
//! address, the key and the authority come from the command line, from the environment or from the usual files.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;

use burrow_api::Image;
use burrow_client::{Client, PageQuery, SandboxQuery, SnapshotQuery};
use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};

use crate::context::{Context, GlobalArgs};

/// Contains the name of the shell if the program is called to complete a command line.
pub(crate) const VARIABLE: &str = "BURROW_COMPLETE";

/// The time for an answer of the daemon. A local one answers in milliseconds.
const TIME_MAX: Duration = Duration::from_millis(800);

/// More candidates than a user can read.
const NAMES_MAX: u32 = 1000;

/// The objects whose names are completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sandbox,
    Snapshot,
    Image,
    Volume,
    Secret,
    HostSet,
    Space,
}

/// The kind of an argument that takes a value, by its id and the commands that contain it (`burrow volume rm`).
fn kind(command: &str, argument: &str) -> Option<Kind> {
    Some(match (command, argument) {
        // Volumes have snapshots of their own, whose names are unique only within the volume.
        ("burrow volume rm", "volumes") | (_, "volume") => Kind::Volume,
        (_, "snapshot" | "snapshots" | "from") if command.starts_with("burrow volume") => return None,
        ("burrow image build", "from") | (_, "image" | "images") => Kind::Image,
        ("burrow diff" | "burrow memory merge", "from") | ("burrow diff", "to") => Kind::Sandbox,
        (_, "sandbox" | "sandboxes" | "parent" | "into" | "children" | "in_place") => Kind::Sandbox,
        (_, "snapshot" | "snapshots" | "from" | "since") if command != "burrow import" => match argument {
            // Times and positions of other commands.
            "since" if command != "burrow export" => return None,
            _ => Kind::Snapshot,
        },
        (_, "secret") => Kind::Secret,
        (_, "names" | "name") if command.starts_with("burrow secret") => Kind::Secret,
        (_, "sets" | "disallow_sets") => Kind::HostSet,
        (_, "space" | "spaces") => Kind::Space,
        _ => return None,
    })
}

/// The definition of the command line, with completers for names.
pub(crate) fn with_names(command: Command) -> Command {
    let path = command.get_name().to_owned();
    completed(command, &path)
}

/// Answers the script of a shell. An error is an empty answer, because anything printed would appear in the user's prompt.
pub(crate) fn complete() -> ExitCode {
    let directory = std::env::current_dir().ok();
    let engine = CompleteEnv::with_factory(|| with_names(crate::command())).var(VARIABLE);
    let _ = engine.try_complete(std::env::args_os(), directory.as_deref());
    ExitCode::SUCCESS
}

fn completed(command: Command, path: &str) -> Command {
    let command = command.mut_args(|argument| {
        let takes_value = argument.get_action().takes_values();
        match kind(path, argument.get_id().as_str()).filter(|_| takes_value) {
            Some(kind) => argument.add(ArgValueCompleter::new(move |typed: &OsStr| candidates(kind, typed))),
            None => argument,
        }
    });
    command.mut_subcommands(|nested| {
        let path = format!("{path} {}", nested.get_name());
        completed(nested, &path)
    })
}

fn candidates(kind: Kind, typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let found = runtime.ok().and_then(|runtime| {
        let found = runtime.block_on(async {
            let client = Context::new(connection(std::env::args_os())?).client().ok()?;
            tokio::time::timeout(TIME_MAX, names(&client, kind)).await.ok()?
        });
        runtime.shutdown_background();
        found
    });
    let mut found = found.unwrap_or_default();
    found.sort();
    let fitting = found.into_iter().filter(|name| is_plain(name) && name.starts_with(typed));
    fitting.take(NAMES_MAX as usize).map(CompletionCandidate::new).collect()
}

/// Names are set by users of the API. Only those without special characters are printed into a shell.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:@+".contains(&b))
}

async fn names(client: &Client, kind: Kind) -> Option<Vec<String>> {
    let names = match kind {
        Kind::Sandbox => {
            let page = PageQuery { cursor: None, limit: Some(NAMES_MAX) };
            let found = client.list_sandboxes(&SandboxQuery::default(), &page).await.ok()?.items;
            found.into_iter().map(|sandbox| sandbox.name.unwrap_or(sandbox.id)).collect()
        }
        Kind::Snapshot => {
            let page = PageQuery { cursor: None, limit: Some(NAMES_MAX) };
            let found = client.list_snapshots(&SnapshotQuery::default(), &page).await.ok()?.items;
            found.into_iter().map(|snapshot| snapshot.name.unwrap_or(snapshot.id)).collect()
        }
        Kind::Image => {
            let found = client.images().await.ok()?;
            let names = |image: Image| if image.names.is_empty() { vec![image.id] } else { image.names };
            found.into_iter().flat_map(names).collect()
        }
        Kind::Volume => client.volumes().await.ok()?.into_iter().map(|volume| volume.name).collect(),
        Kind::Secret => client.secrets().await.ok()?.into_iter().map(|secret| secret.name).collect(),
        Kind::HostSet => client.egress_sets().await.ok()?.into_iter().map(|set| set.name).collect(),
        Kind::Space => client.spaces().await.ok()?.into_iter().map(|space| space.name).collect(),
    };
    Some(names)
}

/// The global options, without the rest of the command line.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true, disable_version_flag = true)]
struct Globals {
    #[command(flatten)]
    global: GlobalArgs,
}

/// The options in a command line that is not complete yet, which therefore cannot be parsed as a whole.
fn connection(words: impl Iterator<Item = OsString>) -> Option<GlobalArgs> {
    let words: Vec<String> = words.filter_map(|word| word.into_string().ok()).collect();
    let mut given = vec!["burrow".to_owned()];
    for (at, word) in words.iter().enumerate() {
        let is_option = ["--url", "--key", "--ca-file"].contains(&word.as_str());
        let next = words.get(at + 1).filter(|next| is_option && !next.starts_with('-'));
        if let Some(value) = next {
            given.push(format!("{word}={value}"));
        } else if ["--url=", "--key=", "--ca-file="].iter().any(|option| word.starts_with(option)) {
            given.push(word.clone());
        }
    }
    let matches = Globals::command().args_override_self(true).try_get_matches_from(given).ok()?;
    Some(Globals::from_arg_matches(&matches).ok()?.global)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(path: &[&str]) -> Vec<(String, Kind)> {
        let mut command = &crate::command();
        for name in path {
            command = command.find_subcommand(name).unwrap();
        }
        let words = std::iter::once("burrow").chain(path.iter().copied()).collect::<Vec<_>>().join(" ");
        let arguments = command.get_arguments().filter(|argument| argument.get_action().takes_values());
        let ids = arguments.map(|argument| argument.get_id().to_string());
        ids.filter_map(|id| kind(&words, &id).map(|kind| (id, kind))).collect()
    }

    #[track_caller]
    fn check(path: &[&str], expected: &[(&str, Kind)]) {
        let expected: Vec<_> = expected.iter().map(|(id, kind)| ((*id).to_owned(), *kind)).collect();
        let mut found = kinds(path);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, expected, "{path:?}");
    }

    #[test]
    fn arguments_that_name_something_are_completed() {
        check(&["exec"], &[("sandbox", Kind::Sandbox)]);
        check(&["rm"], &[("sandboxes", Kind::Sandbox)]);
        check(&["create"], &[("from", Kind::Snapshot), ("image", Kind::Image), ("sets", Kind::HostSet)]);
        check(&["snapshot", "rm"], &[("sandbox", Kind::Sandbox), ("snapshots", Kind::Snapshot)]);
        check(&["volume", "rm"], &[("volumes", Kind::Volume)]);
        check(&["volume", "restore"], &[("volume", Kind::Volume)]);
        check(&["image", "rm"], &[("images", Kind::Image)]);
        check(&["secret", "rm"], &[("names", Kind::Secret)]);
        let egress = [("sandbox", Kind::Sandbox), ("secret", Kind::Secret), ("sets", Kind::HostSet)];
        check(&["egress", "allow"], &egress);
        check(&["rename"], &[("sandbox", Kind::Sandbox)]);
        check(&["version"], &[]);
    }

    #[test]
    fn the_definition_with_completers_is_valid() {
        with_names(crate::command()).debug_assert();
    }

    #[test]
    fn options_of_the_connection_are_found_in_an_incomplete_line() {
        let words =
            ["x", "--", "burrow", "--url", "http://a.example:1", "exec", "--key=secret", "--nonsense", ""];
        let found = connection(words.into_iter().map(OsString::from)).unwrap();
        assert_eq!(found.url, "http://a.example:1");
        assert_eq!(found.api_key.as_deref(), Some("secret"));
        assert!(connection(["--url"].into_iter().map(OsString::from)).is_some(), "a missing value");
    }

    #[test]
    fn names_with_special_characters_are_not_printed_into_a_shell() {
        assert!(is_plain("web-1") && is_plain("app:v2") && is_plain("registry/app@sha256:00"));
        for bad in ["", "a b", "$(x)", "a;b", "a\nb", "`x`", "\u{1b}[2J", "'"] {
            assert!(!is_plain(bad), "{bad}");
        }
    }
}
