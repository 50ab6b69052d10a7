//! `burrow skill promote`: makes a skill from past execs.

use burrow_api::memory::PromoteSkill;
use burrow_api::{Exec, ExecState};

use super::show::details;
use crate::commands::memory::flags::WriteFlags;
use crate::commands::prelude::*;

/// Make a skill from past execs
///
/// All successful execs from the first to the last become steps.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow ps web                                              past execs
  burrow skill promote web --name deploy --last 4
  burrow skill promote web --name deploy exe7h3k2 exe1c8r5
  burrow skill promote web --name deploy --last 2 --param host=db-2      db-2 becomes {{host}}
  burrow skill promote space:ops --sandbox web --name deploy --last 4    into a space")]
pub(crate) struct PromoteArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// First exec
    #[arg(required_unless_present = "recent", conflicts_with = "recent")]
    first: Option<String>,
    /// Last exec; by default, only the first exec is used
    last: Option<String>,
    /// Use this many of the last successful execs
    #[arg(id = "recent", long = "last", value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    recent: Option<u16>,
    /// Name of the skill: lower-case letters, digits and hyphens
    #[arg(long)]
    name: String,
    /// Sandbox of the execs, if the skill belongs to a space
    #[arg(long)]
    sandbox: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,
    /// When to use it
    #[arg(long = "when", value_name = "TEXT", default_value = "", hide_default_value = true)]
    when_to_use: String,
    /// Value to replace with a parameter in all steps; may be repeated
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE", value_parser = super::parameter)]
    parameters: Vec<(String, String)>,
    /// Include failed execs
    #[arg(long)]
    include_failed: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: PromoteArgs) -> Result<(), Stop> {
    let what = || format!("could not make skill `{}` for `{}`", args.name, args.target.of);
    let client = ctx.client()?;
    let (first, last) = match (&args.first, args.recent) {
        (Some(first), _) => (first.clone(), args.last.clone()),
        (None, count) => recent(&client, &args, usize::from(count.unwrap_or(1)), &what).await?,
    };
    let request = PromoteSkill {
        name: args.name.clone(),
        sandbox: args.sandbox.clone(),
        first,
        last,
        include_failed: args.include_failed,
        description: args.description.clone(),
        when_to_use: args.when_to_use.clone(),
        parameters: args.parameters.iter().cloned().collect(),
    };
    let skill = args.target.memory(ctx)?.skill_promote(&request).await.or_fail(what)?;
    let name = format!("{} version {}", escape(&skill.name), skill.version);
    args.format.report(&skill, [name], details(&skill))
}

/// The range of the last `count` execs.
async fn recent(
    client: &Client,
    args: &PromoteArgs,
    count: usize,
    what: &dyn Fn() -> String,
) -> Result<(String, Option<String>), Stop> {
    let sandbox = args.sandbox.as_deref().unwrap_or(&args.target.of);
    let sandbox = sandbox.strip_prefix("sandbox:").unwrap_or(sandbox);
    let execs = client.execs(sandbox).await.or_fail(what)?;
    range(execs, count, args.include_failed).ok_or_else(|| {
        Failure::new(format!("{}: there are fewer than {count} successful execs", what()))
            .hint(format!("`burrow ps {sandbox}` lists them; --include-failed includes the others"))
            .into()
    })
}

fn range(mut execs: Vec<Exec>, count: usize, include_failed: bool) -> Option<(String, Option<String>)> {
    execs.retain(|exec| {
        let code = exec.outcome.as_ref().and_then(|outcome| outcome.exit_code);
        exec.state == ExecState::Ended && (include_failed || code == Some(0))
    });
    execs.sort_by_key(|exec| exec.started_ms);
    let first = execs.len().checked_sub(count)?;
    Some((execs.get(first)?.id.clone(), execs.last().map(|exec| exec.id.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interact::outcome::example_exec;
    use burrow_api::ExecOutcome;

    fn exec(id: &str, started_ms: u64, exit_code: i32) -> Exec {
        let outcome = ExecOutcome {
            exit_code: Some(exit_code),
            signal: None,
            timed_out: false,
            killed_from_outside: false,
            cpu_us: 0,
            ram_max_bytes: 0,
            wall_us: 0,
        };
        Exec { id: id.to_owned(), started_ms, outcome: Some(outcome), ..example_exec() }
    }

    #[test]
    fn the_last_successful_execs_are_a_range() {
        let execs = || vec![exec("c", 3, 0), exec("a", 1, 0), exec("b", 2, 1), exec("d", 4, 0)];
        assert_eq!(range(execs(), 2, false), Some(("c".to_owned(), Some("d".to_owned()))));
        assert_eq!(range(execs(), 3, false), Some(("a".to_owned(), Some("d".to_owned()))));
        assert_eq!(range(execs(), 3, true), Some(("b".to_owned(), Some("d".to_owned()))));
        assert_eq!(range(execs(), 4, false), None);
    }
}
