//! `burrow skill search|ls|show|versions|rm`.

use burrow_api::defaults;
use burrow_api::memory::{FindSkills, Skill, SkillStep};

use crate::commands::memory::flags::{ReadArgs, ReadFlags, ReadNamedArgs, RemoveArgs, SearchFlags};
use crate::commands::memory::show::{date, excerpt, text_width};
use crate::commands::prelude::*;
use crate::print::escape::escape_lines;

/// Search skills, best first, by relevance and success
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow skill search web 'roll out a new version'
  burrow skill search web deploy --json | jq -r .hits[0].skill.name")]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    target: SearchFlags,
    /// Task to find skills for
    query: String,
    /// Maximum number of hits
    #[arg(short = 'n', long, default_value_t = defaults::MEMORY_HITS, value_parser = clap::value_parser!(u32).range(1..=i64::from(defaults::MEMORY_HITS_MAX)))]
    limit: u32,
    #[command(flatten)]
    format: Format,
}

/// Show a skill: description, steps, outcomes
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    target: ReadFlags,
    name: String,
    /// Version to show; the newest by default
    #[arg(long)]
    version: Option<u64>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn search(ctx: &Context, args: SearchArgs) -> Result<(), Stop> {
    let what = || format!("could not search the skills of `{}`", args.target.of);
    let find = FindSkills { query: args.query.clone(), limit: Some(args.limit) };
    let found = args.target.memory(ctx)?.skill_search(&find).await.or_fail(what)?;
    let width = text_width(60);
    args.format.show(&found, |found| {
        table::print(&["SCORE", "NAME", "SPACE", "RUNS", "DESCRIPTION"], &found.hits, |hit| {
            vec![
                format!("{:.2}", hit.score),
                hit.skill.name.clone(),
                hit.space.clone(),
                record(&hit.skill),
                excerpt(&hit.skill.description, width),
            ]
        })
    })
}

/// `9 of 10 succeeded`
fn record(skill: &Skill) -> String {
    match skill.successes + skill.failures {
        0 => "none".to_owned(),
        runs => format!("{} of {runs} succeeded", skill.successes),
    }
}

const HEADER: &[&str] = &["NAME", "VERSION", "STEPS", "RUNS", "DATE", "DESCRIPTION"];

pub(super) async fn list(ctx: &Context, args: ReadArgs) -> Result<(), Stop> {
    let what = || format!("could not list the skills of `{}`", args.target.of);
    let skills = args.target.memory(ctx)?.skills().await.or_fail(what)?;
    args.format.table(HEADER, &skills, row)
}

pub(super) async fn versions(ctx: &Context, args: ReadNamedArgs) -> Result<(), Stop> {
    let what = || format!("could not list the versions of skill `{}` of `{}`", args.name, args.target.of);
    let skills = args.target.memory(ctx)?.skill_versions(&args.name).await.or_fail(what)?;
    args.format.table(HEADER, &skills, row)
}

fn row(skill: &Skill) -> Vec<String> {
    vec![
        skill.name.clone(),
        skill.version.to_string(),
        quantity::count(skill.steps.len() as u64, "step", "steps"),
        record(skill),
        date(skill.created_ms),
        excerpt(&skill.description, text_width(70)),
    ]
}

pub(super) async fn show(ctx: &Context, args: ShowArgs) -> Result<(), Stop> {
    let what = || format!("could not show skill `{}` of `{}`", args.name, args.target.of);
    let skill = args.target.memory(ctx)?.skill(&args.name, args.version).await.or_fail(what)?;
    args.format.show(&skill, |skill| print::lines(heading(skill).into_iter().chain(details(skill))))
}

fn heading(skill: &Skill) -> Vec<String> {
    let mut lines =
        vec![format!("{} version {}, {}", escape(&skill.name), skill.version, date(skill.created_ms))];
    for (name, text) in [("", &skill.description), ("when to use: ", &skill.when_to_use)] {
        if !text.is_empty() {
            lines.push(format!("{name}{}", escape_lines(text.as_bytes())));
        }
    }
    let last = skill.last.as_ref().map_or_else(String::new, |last| {
        let word = if last.ok { "succeeded" } else { "failed" };
        let code = last.exit_code.map(|code| format!(" with {code}")).unwrap_or_default();
        let detail =
            if last.detail.is_empty() { String::new() } else { format!(": {}", excerpt(&last.detail, 100)) };
        format!("; the last one {word}{code}{detail}")
    });
    lines.push(format!("runs: {}{last}", record(skill)));
    lines
}

/// Parameters and steps.
pub(super) fn details(skill: &Skill) -> Vec<String> {
    let mut lines = Vec::new();
    for parameter in &skill.parameters {
        let default = match (&parameter.default, parameter.required) {
            (Some(default), _) => format!(" = {}", escape(default)),
            (None, true) => " (required)".to_owned(),
            (None, false) => String::new(),
        };
        let about = if parameter.description.is_empty() {
            String::new()
        } else {
            format!("  {}", escape(&parameter.description))
        };
        lines.push(format!("  {{{{{}}}}}{default}{about}", escape(&parameter.name)));
    }
    for (at, step) in skill.steps.iter().enumerate() {
        lines.push(format!("  {}. {}", at + 1, step_line(step)));
    }
    lines
}

fn step_line(step: &SkillStep) -> String {
    match step {
        SkillStep::Command { run, workdir, timeout_seconds, .. } => {
            let place = workdir.as_ref().map(|place| format!("  (in {})", escape(place))).unwrap_or_default();
            let time = timeout_seconds
                .map(|seconds| format!("  ({} at most)", quantity::period(seconds)))
                .unwrap_or_default();
            format!("$ {}{place}{time}", indented(run))
        }
        SkillStep::ToolCall { tool, arguments } => {
            format!("call {} {}", escape(tool), escape(&arguments.to_string()))
        }
        SkillStep::Script { interpreter, text, .. } => format!("{}: {}", escape(interpreter), indented(text)),
    }
}

/// A text of several lines, indented below its first line.
fn indented(text: &str) -> String {
    escape_lines(text.as_bytes()).trim_end().replace('\n', "\n       ")
}

pub(super) async fn remove(ctx: &Context, args: RemoveArgs) -> Result<(), Stop> {
    let memory = args.target.memory(ctx)?;
    for name in &args.names {
        let what = || format!("could not remove skill `{name}` of `{}`", args.target.of);
        memory.skill_forget(name).await.or_fail(what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::memory::{SkillOutcome, SkillParameter};

    #[test]
    fn a_skill_is_shown_with_its_record_and_its_steps() {
        let skill = Skill {
            name: "deploy".to_owned(),
            version: 2,
            seq: 9,
            description: "rolls out".to_owned(),
            when_to_use: String::new(),
            parameters: vec![SkillParameter {
                name: "host".to_owned(),
                description: "where to".to_owned(),
                required: true,
                default: None,
            }],
            steps: vec![
                SkillStep::Command {
                    run: "./deploy {{host}}\u{1b}".to_owned(),
                    workdir: Some("/srv".to_owned()),
                    env: Default::default(),
                    timeout_seconds: Some(90),
                },
                SkillStep::Script {
                    interpreter: "python3".to_owned(),
                    text: "a\nb\n".to_owned(),
                    env: Default::default(),
                },
            ],
            source: None,
            created_ms: 1_794_710_393_000,
            successes: 9,
            failures: 1,
            last: Some(SkillOutcome {
                ok: false,
                exit_code: Some(2),
                detail: "down".to_owned(),
                took_ms: 1,
                at_ms: None,
            }),
            score: 0.8,
        };
        assert_eq!(
            heading(&skill),
            [
                "deploy version 2, 2026-11-15 02:39",
                "rolls out",
                "runs: 9 of 10 succeeded; the last one failed with 2: down"
            ]
        );
        assert_eq!(
            details(&skill),
            [
                "  {{host}} (required)  where to",
                "  1. $ ./deploy {{host}}\\x1b  (in /srv)  (1m30s at most)",
                "  2. python3: a\n       b"
            ]
        );
    }
}
