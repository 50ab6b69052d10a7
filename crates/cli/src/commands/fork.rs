//! `burrow fork`: creates sandboxes from the present state of another.

use burrow_api::{ForkResult, ForkSandbox};

use crate::commands::prelude::*;

/// Fork a sandbox, and print the ids of its children
///
/// The children of a running sandbox continue from the same instant, processes included, each with its own identity,
/// network and keys. The parent is paused for a moment; standard error reports for how long. It may also be asleep or
/// stopped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow fork web                              one child
  burrow fork web --count 20 --name try        try-1 to try-20, from one dump
  burrow fork web --files-only --ephemeral     boots from the files; deleted when it stops")]
pub(crate) struct ForkArgs {
    /// Sandbox to fork
    sandbox: String,
    /// Number of children
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    count: u32,
    /// Name of the child; several are NAME-1, NAME-2 and so on
    #[arg(long)]
    name: Option<String>,
    /// Omit the processes: the children boot from the files
    #[arg(long)]
    files_only: bool,
    /// Delete each child and its data as soon as it stops
    #[arg(long)]
    ephemeral: bool,
    /// Label of the children, instead of the labels of the parent; may be repeated
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
    let forked = Progress::during(
        &format!("forking {}", args.sandbox),
        ctx.client()?.fork_sandbox(&args.sandbox, &request),
    )
    .await;
    let forked = forked.or_fail(|| format!("could not fork sandbox `{}`", args.sandbox))?;
    let ids = forked.children.iter().map(|child| &child.id);
    args.format.report(&forked, ids, [summary(&args.sandbox, &forked)])?;
    for failure in &forked.failed {
        print::note(format!("error: {}", escape(&failure.message)));
        if let Some(hint) = &failure.hint {
            print::hint(hint);
        }
    }
    if forked.failed.is_empty() { Ok(()) } else { Err(Stop::Exit(CODE_GENERAL)) }
}

/// One name for each child.
fn names(name: Option<String>, count: u32) -> Vec<String> {
    match (name, count) {
        (None, _) => Vec::new(),
        (Some(name), 1) => vec![name],
        (Some(name), count) => (1..=count).map(|number| format!("{name}-{number}")).collect(),
    }
}

fn summary(parent: &str, forked: &ForkResult) -> String {
    let count = quantity::count(forked.children.len() as u64, "child", "children");
    format!("{count} of `{}`, which was paused for {}", escape(parent), quantity::pause(forked.pause_us))
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
