//! `burrow race`: several forks try the same, and the best of them comes home.

use std::time::Duration;

use burrow_api::{
    MergeMemoryPolicy, MergePolicy, MergeRace, MergeRule, Race, RaceAttempt, RaceAttemptState, RaceStage,
    StartRace,
};
use clap::{Args, Subcommand};

use super::merge::{memory_policy, rule};
use crate::context::Context;
use crate::failure::{CODE_GENERAL, Failure, OrFail, Stop};
use crate::parse;
use crate::print::escape::escape;
use crate::print::{self, Format, quantity};

/// How long one question waits for news.
const WAIT_MS: u64 = 20_000;

/// How often a daemon that does not answer is asked again, and how long is waited in between: two minutes in all, for one
/// that is being restarted.
const RETRIES_MAX: u32 = 60;
const RETRY_PACE: Duration = Duration::from_secs(2);

/// Have several forks try the same, and keep the best
///
/// Forks the sandbox, runs the command in every fork, and picks a winner: by the judge's score, or else the quickest that
/// exits 0. The others are deleted, and so is the winner once it is merged. A race goes on when this command is
/// interrupted, and when the daemon is restarted.
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

Commands are run by the sandbox's shell. An attempt finds its number in BURROW_ATTEMPT, a judge the attempt's exit code
in BURROW_EXIT_CODE; the last line of a judge's output is the score, and the highest wins."
)]
pub(crate) struct RaceArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Whose forks race
    #[arg(required = true)]
    parent: Option<String>,
    /// How many try
    #[arg(short = 'n', long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    attempts: u32,
    /// What they try
    #[arg(long, value_name = "COMMAND", required = true)]
    run: Option<String>,
    /// What says how good an attempt is: its last line of output is a number
    #[arg(long, value_name = "COMMAND")]
    judge: Option<String>,
    /// How many run at once; all when absent
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=32))]
    parallel: Option<u32>,
    /// How long an attempt may take
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    timeout: Option<Duration>,
    /// Leave the processes out: the attempts boot from the files
    #[arg(long)]
    files_only: bool,
    /// Merge the winner into the parent
    #[arg(long)]
    merge_winner: bool,
    /// Delete none of the attempts
    #[arg(long)]
    keep: bool,
    /// Do not wait for the end: print the race's id
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    how: HowArgs,
    #[command(flatten)]
    format: Format,
}

/// How the winner is merged.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// How the winner is merged where both changed a path: GLOB=POLICY, or POLICY for all others
    #[arg(long = "policy", value_name = "[GLOB=]POLICY", value_parser = rule)]
    policies: Vec<(Option<String>, MergePolicy)>,
    /// What becomes of what the winner remembers: none, list, ours, theirs, both, fail
    #[arg(long, value_name = "POLICY", value_parser = memory_policy, default_value = "list")]
    memory: MergeMemoryPolicy,
}

impl HowArgs {
    fn split(self) -> (Vec<MergeRule>, MergePolicy) {
        let (mut rules, mut otherwise) = (Vec::new(), MergePolicy::Fail);
        for (glob, policy) in self.policies {
            match glob {
                Some(glob) => rules.push(MergeRule { glob, policy }),
                None => otherwise = policy,
            }
        }
        (rules, otherwise)
    }
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List races, newest first
    Ls {
        #[command(flatten)]
        format: Format,
    },
    /// Show how a race stands
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
        how: HowArgs,
        #[command(flatten)]
        format: Format,
    },
    /// End a race, delete its attempts, and forget it
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
            let races = client.races().await.or_fail(|| "could not list races".to_owned())?.races;
            if format.json {
                return print::json::pretty(&races);
            }
            print::data(&races.iter().map(|race| format!("{}\n", headline(race))).collect::<String>())
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
            let (policies, policy) = how.split();
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
    let (policies, policy) = args.how.split();
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
    print::note(&format!("race {}: `burrow race wait {}` follows it again", race.id, race.id));
    follow(ctx, race, args.format).await
}

/// Tells of every change until the end.
async fn follow(ctx: &Context, mut race: Race, format: Format) -> Result<(), Stop> {
    let mut known = Vec::new();
    let mut retries = 0;
    loop {
        tell(&race, &mut known);
        if race.stage == RaceStage::Done {
            break;
        }
        match ctx.client()?.race(&race.id, Some((race.version, WAIT_MS))).await {
            Ok(next) => (race, retries) = (next, 0),
            // The daemon may be on its way down or up; the race goes on with the next one.
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

/// Says what is new.
fn tell(race: &Race, known: &mut Vec<String>) {
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
    if format.json {
        return print::json::pretty(race);
    }
    let mut text = format!("{}\n", headline(race));
    for attempt in &race.attempts {
        let gone = if attempt.gone { "" } else { &*format!("  {}", escape(&attempt.sandbox)) };
        text.push_str(&format!("  {}{gone}\n", attempt_line(attempt)));
    }
    if let Some(failure) = &race.failure {
        text.push_str(&format!("  failed: {}\n", escape(failure)));
    }
    if let Some(merged) = &race.merged {
        match (&merged.undo, merged.conflicts.is_empty()) {
            (Some(undo), _) => text.push_str(&format!(
                "  merged: {} paths; undo: burrow snapshot restore {} --in-place {}\n",
                merged.total,
                escape(undo),
                escape(&race.parent)
            )),
            (None, true) => text.push_str("  merged: nothing was left to merge\n"),
            (None, false) => text.push_str(&format!(
                "  not merged: {}; `burrow race merge {} --policy theirs` decides them\n",
                quantity::count(merged.conflicts.len(), "conflict", "conflicts"),
                escape(&race.id)
            )),
        }
    }
    print::data(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_tells_how_it_went_in_one_line() {
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
