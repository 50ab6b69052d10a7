//! `burrow fork`: more sandboxes that go on from where one is.

use std::time::Duration;

use burrow_api::{ForkSandbox, Forked};
use clap::Args;

use crate::context::Context;
use crate::failure::{CODE_GENERAL, OrFail, Stop};
use crate::parse;
use crate::print::escape::escape;
use crate::print::{self, Format, quantity};
use crate::transfer::progress::Progress;

/// Make more sandboxes that go on from where one is now, and print their ids
///
/// The children of a running sandbox go on from the same instant, processes included, each with an identity, a network
/// and keys of its own. The parent stands still for a moment, and standard error tells for how long. It may also sleep
/// or be stopped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow fork web                              one child
  burrow fork web --count 20 --name try        try-1 to try-20, from one dump
  burrow fork web --files-only --ephemeral     boots from the files; gone when it stops")]
pub(crate) struct ForkArgs {
    /// Sandbox to fork
    sandbox: String,
    /// How many children
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    count: u32,
    /// Name of the child; several are NAME-1, NAME-2 and so on
    #[arg(long)]
    name: Option<String>,
    /// Leave the processes out: the children boot from the files
    #[arg(long)]
    files_only: bool,
    /// Delete each child, with all it holds, as soon as it stops
    #[arg(long)]
    ephemeral: bool,
    /// Label of the children, in place of the parent's; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    labels: Vec<(String, String)>,
    /// Delete each child this long after creation, e.g. 2h
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    ttl: Option<Duration>,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: ForkArgs) -> Result<(), Stop> {
    let request = ForkSandbox {
        count: args.count,
        names: names(args.name, args.count),
        files_only: args.files_only,
        labels: (!args.labels.is_empty()).then(|| args.labels.into_iter().collect()),
        ephemeral: args.ephemeral,
        ttl_seconds: args.ttl.map(|ttl| ttl.as_secs()),
    };
    let working = Progress::working(&format!("forking {}", args.sandbox));
    let forked = ctx.client()?.fork_sandbox(&args.sandbox, &request).await;
    drop(working);
    let forked = forked.or_fail(|| format!("could not fork sandbox `{}`", args.sandbox))?;
    if args.format.json {
        print::json::pretty(&forked)?;
    } else {
        let ids: String = forked.children.iter().map(|child| format!("{}\n", child.id)).collect();
        print::data(&ids)?;
        print::note(&told(&args.sandbox, &forked));
    }
    for failure in &forked.failed {
        print::note(&format!("error: {}", escape(&failure.message)));
        if let Some(hint) = &failure.hint {
            print::note(&format!("hint: {}", escape(hint)));
        }
    }
    if forked.failed.is_empty() { Ok(()) } else { Err(Stop::Exit(CODE_GENERAL)) }
}

/// One for each child.
fn names(name: Option<String>, count: u32) -> Vec<String> {
    match (name, count) {
        (None, _) => Vec::new(),
        (Some(name), 1) => vec![name],
        (Some(name), count) => (1..=count).map(|number| format!("{name}-{number}")).collect(),
    }
}

fn told(parent: &str, forked: &Forked) -> String {
    let count = quantity::count(forked.children.len(), "child", "children");
    format!("{count} of `{}`, which stood still for {}", escape(parent), quantity::pause(forked.pause_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_children_of_one_name_are_numbered() {
        assert_eq!(names(Some("a".to_owned()), 1), ["a"]);
        assert_eq!(names(Some("a".to_owned()), 3), ["a-1", "a-2", "a-3"]);
        assert!(names(None, 3).is_empty());
    }
}
