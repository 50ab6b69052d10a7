//! `burrow race`: runs the same task in several forks, and keeps the best result.

use burrow_api::{
    MergeMemoryPolicy, MergePolicy, MergeRace, Race, RaceAttempt, RaceAttemptState, RaceStage, StartRace,
};

use super::merge::{memory_policy, rule, split};
use crate::commands::prelude::*;

/// How long one request waits for a change.
const WAIT_MS: u64 = 20_000;

/// Retries while the daemon does not answer, and the delay between them: two minutes in total, for a daemon that is
/// being restarted.
const RETRIES_MAX: u32 = 60;
const RETRY_PACE: Duration = Duration::from_secs(2);

/// Run the same task in several forks and keep the best result
///
/// Forks the sandbox, runs the command in every fork, and picks a winner: by the score of the judge, or else the
/// fastest that exits with 0. The others are deleted, and the winner too after it is merged. A race continues when
/// this command is interrupted, and when the daemon is restarted.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  burrow race web --attempts 5 --run 'agent solve'
  burrow race web --attempts 5 --run 'agent solve' --judge 'pytest -q | tail -n1 | cut -d\" \" -f1' --merge-winner
  burrow race ls
  burrow race merge rac… --policy theirs

Commands run in the shell of the sandbox. BURROW_ATTEMPT is the number of the attempt; for a judge, BURROW_EXIT_CODE is
the exit code of the attempt. The last line of a judge's output is the score, and the highest score wins."
)]
pub(crate) struct RaceArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Sandbox to fork
    #[arg(required = true)]
    parent: Option<String>,
    /// Number of attempts
    #[arg(short = 'n', long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    attempts: u32,
    /// Command of each attempt
    #[arg(long, value_name = "COMMAND", required = true)]
    run: Option<String>,
    /// Command that scores an attempt: its last line of output is a number
    #[arg(long, value_name = "COMMAND")]
    judge: Option<String>,
    /// Number of attempts that run at once; all by default
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=32))]
    parallel: Option<u32>,
    /// Time limit of an attempt
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    timeout: Option<Duration>,
    /// Omit the processes: the attempts boot from the files
    #[arg(long)]
    files_only: bool,
    /// Merge the winner into the parent
    #[arg(long)]
    merge_winner: bool,
    /// Keep all attempts
    #[arg(long)]
    keep: bool,
    /// Print the id of the race without waiting for its end
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    how: WinnerMergeArgs,
    #[command(flatten)]
    format: Format,
}

/// How the winner is merged.
#[derive(Debug, Args)]
pub(crate) struct WinnerMergeArgs {
    /// Merge policy for paths that both changed: GLOB=POLICY, or POLICY for all others
    #[arg(long = "policy", value_name = "[GLOB=]POLICY", value_parser = rule)]
    policies: Vec<(Option<String>, MergePolicy)>,
    /// Policy for the memory of the winner: none, list, ours, theirs, both, fail
    #[arg(long, value_name = "POLICY", value_parser = memory_policy, default_value = "list")]
    memory: MergeMemoryPolicy,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List races, newest first
    Ls {
        #[command(flatten)]
        format: Format,
    },
    /// Show the state of a race
    Show {
        race: String,
        #[command(flatten)]
        format: Format,
    },
    /// Follow a race to its end
    Wait {
        race: String,
        #[command(flatten)]
        format: Format,
    },
    /// Merge the winner of a race that is over
    Merge {
        race: String,
        /// Only show what would happen
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        how: WinnerMergeArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Cancel a race, and delete it with its attempts
    Rm { race: String },
}

pub(crate) async fn run(ctx: &Context, args: RaceArgs) -> Result<(), Stop> {
    match args.action {
        Some(action) => act(ctx, action).await,
        None => start(ctx, args).await,
    }
}

async fn act(ctx: &Context, action: Action) -> Result<(), Stop> {
    let client = ctx.client()?;
    match action {
        Action::Ls { format } => {
            let races = client.races().await.or_fail("could not list races")?.races;
            format.show(&races, |races| print::lines(races.iter().map(headline)))
        }
        Action::Show { race, format } => {
            let race = client.race(&race, None).await.or_fail(|| format!("could not show race `{race}`"))?;
            show(&race, format)
        }
        Action::Wait { race, format } => {
            let race = client.race(&race, None).await.or_fail(|| format!("could not find race `{race}`"))?;
            follow(ctx, race, format).await
        }
        Action::Merge { race, dry_run, how, format } => {
            let memory = how.memory;
            let (policies, policy) = split(how.policies);
            let request = MergeRace { dry_run, policies, policy, memory };
            let merged = client.merge_race(&race, &request).await;
            let merged = merged.or_fail(|| format!("could not merge the winner of race `{race}`"))?;
            super::merge::report(&merged, &merged.parent, format)
        }
        Action::Rm { race } => {
            client.delete_race(&race).await.or_fail(|| format!("could not end race `{race}`"))
        }
    }
}

async fn start(ctx: &Context, args: RaceArgs) -> Result<(), Stop> {
    let shell = |command: String| vec!["/bin/sh".to_owned(), "-c".to_owned(), command];
    let (Some(parent), Some(command)) = (args.parent, args.run) else {
        return Err(Failure::new("a race needs a sandbox and a command").into());
    };
    let memory = args.how.memory;
    let (policies, policy) = split(args.how.policies);
    let request = StartRace {
        parent: parent.clone(),
        attempts: args.attempts,
        parallel: args.parallel,
        run: shell(command),
        judge: args.judge.map(shell),
        timeout_seconds: args.timeout.map(|timeout| timeout.as_secs()),
        files_only: args.files_only,
        keep: args.keep,
        merge_winner: args.merge_winner,
        policies,
        policy,
        memory,
    };
    let race = ctx.client()?.start_race(&request).await;
    let race = race.or_fail(|| format!("could not race forks of `{parent}`"))?;
    if args.detach {
        return print::line(&race.id);
    }
    print::note(format!("race {}: `burrow race wait {}` follows it", race.id, race.id));
    follow(ctx, race, args.format).await
}

/// Prints every change until the end.
async fn follow(ctx: &Context, mut race: Race, format: Format) -> Result<(), Stop> {
    let mut known = Vec::new();
    let mut retries = 0;
    loop {
        print_changes(&race, &mut known);
        if race.stage == RaceStage::Done {
            break;
        }
        match ctx.client()?.race(&race.id, Some((race.version, WAIT_MS))).await {
            Ok(next) => (race, retries) = (next, 0),
            // The daemon may be restarting; the race continues afterwards.
            Err(error) if error.code().is_none() && retries < RETRIES_MAX => {
                retries += 1;
                tokio::time::sleep(RETRY_PACE).await;
            }
            Err(error) => return Err(error).or_fail(|| format!("could not follow race `{}`", race.id)),
        }
    }
    show(&race, format)?;
    if race.winner.is_some() && race.merged.as_ref().is_none_or(|merged| merged.conflicts.is_empty()) {
        return Ok(());
    }
    Err(Stop::Exit(CODE_GENERAL))
}

/// Prints the lines that are new.
fn print_changes(race: &Race, known: &mut Vec<String>) {
    for line in std::iter::once(race.stage.as_str().to_owned()).chain(race.attempts.iter().map(attempt_line))
    {
        let waits = line.contains(": waiting");
        if !known.contains(&line) && !waits {
            print::note(&line);
            known.push(line);
        }
    }
}

fn attempt_line(attempt: &RaceAttempt) -> String {
    let mut line = format!("attempt {}: {}", attempt.number, attempt.state.as_str());
    if let (Some(code), RaceAttemptState::Ended | RaceAttemptState::Judging) =
        (attempt.exit_code, attempt.state)
    {
        line.push_str(&format!(", exit code {code}"));
    }
    if let Some(took) = attempt.took_ms {
        line.push_str(&format!(", {}", quantity::seconds(took * 1000)));
    }
    if let Some(score) = attempt.score {
        line.push_str(&format!(", score {score}"));
    }
    if let (Some(added), Some(changed), Some(deleted)) = (attempt.added, attempt.changed, attempt.deleted) {
        line.push_str(&format!(", +{added} ~{changed} -{deleted}"));
    }
    if let Some(why) = &attempt.why {
        line.push_str(&format!(": {}", escape(why)));
    }
    line
}

fn headline(race: &Race) -> String {
    let winner = match (race.winner, race.stage) {
        (Some(winner), _) => format!("attempt {winner} won"),
        (None, RaceStage::Done) => "no winner".to_owned(),
        (None, _) => race.stage.as_str().to_owned(),
    };
    format!("{}  {}  {} attempts  {winner}", race.id, race.parent, race.attempts.len())
}

fn show(race: &Race, format: Format) -> Result<(), Stop> {
    format.show(race, |race| print::lines(lines(race)))
}

fn lines(race: &Race) -> Vec<String> {
    let mut lines = vec![headline(race)];
    lines.extend(race.attempts.iter().map(|attempt| {
        let sandbox = if attempt.gone { String::new() } else { format!("  {}", escape(&attempt.sandbox)) };
        format!("  {}{sandbox}", attempt_line(attempt))
    }));
    lines.extend(race.failure.as_ref().map(|failure| format!("  failed: {}", escape(failure))));
    let Some(merged) = &race.merged else { return lines };
    let (paths, parent) = (merged.total, escape(&race.parent));
    lines.push(match (&merged.undo, merged.conflicts.is_empty()) {
        (Some(undo), _) => {
            let undo = format!("burrow snapshot restore {} --in-place {parent}", escape(undo));
            format!("  merged: {paths} paths; undo: {undo}")
        }
        (None, true) => "  merged: nothing was left to merge".to_owned(),
        (None, false) => {
            let conflicts = quantity::count(merged.conflicts.len() as u64, "conflict", "conflicts");
            let merge = format!("burrow race merge {} --policy theirs", escape(&race.id));
            format!("  not merged: {conflicts}; `{merge}` resolves them")
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_shown_in_one_line() {
        let attempt = RaceAttempt {
            number: 2,
            sandbox: "sbx".to_owned(),
            state: RaceAttemptState::Ended,
            exec: None,
            exit_code: Some(0),
            score: Some(0.5),
            took_ms: Some(1500),
            why: Some("odd\u{7}".to_owned()),
            added: Some(1),
            changed: Some(2),
            deleted: Some(3),
            gone: false,
        };
        assert_eq!(
            attempt_line(&attempt),
            "attempt 2: ended, exit code 0, 1.5s, score 0.5, +1 ~2 -3: odd\\x07"
        );
    }
}
