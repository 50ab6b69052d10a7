//! `burrow ls`: lists sandboxes.

use burrow_api::{Sandbox, SandboxState};
use burrow_client::SandboxQuery;

use crate::commands::prelude::*;

/// Characters of an id in tables: enough to be unique, and few enough to type.
const ID_SHOWN: usize = 12;

/// List sandboxes
#[derive(Debug, Args)]
#[command(
    visible_alias = "list",
    after_help = "\
Examples:
  burrow ls
  burrow ls --label team=a --state running
  burrow rm $(burrow ls -q --label tmp=yes)"
)]
pub(crate) struct LsArgs {
    /// Print ids only
    #[arg(short = 'q', long, conflicts_with = "json")]
    quiet: bool,
    /// Only sandboxes with this label; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Only sandboxes in this state
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<SandboxState>,
    /// Accepted for compatibility; all sandboxes are always listed
    #[arg(short = 'a', long, hide = true)]
    all: bool,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: LsArgs) -> Result<(), Stop> {
    let query = SandboxQuery { labels: args.labels, state: args.state };
    let sandboxes = ctx.client()?.all_sandboxes(&query).await.or_fail("could not list sandboxes")?;
    if args.quiet {
        return print::lines(sandboxes.iter().map(|sandbox| &sandbox.id));
    }
    args.format.table(&["ID", "NAME", "STATE", "IMAGE", "AGE", "LABELS"], &sandboxes, row)
}

fn row(sandbox: &Sandbox) -> Vec<String> {
    vec![
        short(&sandbox.id),
        sandbox.name.clone().unwrap_or_default(),
        state_shown(sandbox),
        sandbox.image.clone(),
        quantity::age_now(sandbox.created_ms),
        table::pairs(&sandbox.labels),
    ]
}

/// The state, and how long the sandbox has been asleep.
fn state_shown(sandbox: &Sandbox) -> String {
    if sandbox.recovering.is_some() {
        return "recovering".to_owned();
    }
    let state = sandbox.state.as_str();
    let asleep = matches!(sandbox.state, SandboxState::Paused | SandboxState::Hibernated);
    match sandbox.asleep_since_ms.filter(|_| asleep) {
        Some(since_ms) => format!("{state} {}", quantity::age_now(since_ms)),
        None => state.to_owned(),
    }
}

pub(crate) fn short(id: &str) -> String {
    id.chars().take(ID_SHOWN).collect()
}

fn state(text: &str) -> Result<SandboxState, String> {
    let states = "creating, starting, running, paused, hibernating, hibernated, waking, restoring, stopping, stopped, \
                  deleting, failed";
    parse::api_word(text).map_err(|_| format!("a state is one of {states}"))
}
