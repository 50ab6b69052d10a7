//! `burrow skill add`: adds a skill from a file, or from commands on the command line.

use std::collections::BTreeMap;

use burrow_api::memory::{NewSkill, SkillParameter, SkillStep};
use serde::Deserialize;
use serde_json::Value;

use crate::commands::memory::flags::WriteFlags;
use crate::commands::memory::input;
use crate::commands::prelude::*;

/// Add a skill, or a new version of one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow skill add web deploy --file deploy.yaml
  burrow skill add web clean --description 'removes build output' --run 'make clean' --run 'rm -rf dist'
  burrow skill add web greet --description 'says hello' --run 'echo hello {{who}}' --param who=world

A file, in YAML or JSON:
  description: rolls the current checkout out to one host
  when_to_use: after the tests passed on main
  parameters:
    - { name: host, description: where to, required: true }
  steps:
    - { run: 'git pull --ff-only', workdir: /srv/app }
    - { run: './deploy.sh {{host}}', timeout_seconds: 300 }
    - { interpreter: python3, text: 'print(1)' }
    - { tool: notify, arguments: { channel: ops } }")]
pub(crate) struct AddArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// Name: lower-case letters, digits and hyphens
    name: String,
    /// File with the skill; `-` for standard input
    #[arg(long, value_name = "FILE", required_unless_present = "run", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Shell command, as a step; may be repeated
    #[arg(long, value_name = "LINE")]
    run: Vec<String>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// When to use it
    #[arg(long = "when", value_name = "TEXT")]
    when_to_use: Option<String>,
    /// Parameter with its default; without a default it is required at each run; may be repeated
    #[arg(long = "param", value_name = "NAME[=DEFAULT]")]
    parameters: Vec<String>,
    #[command(flatten)]
    format: Format,
}

/// A skill in a file: its name is on the command line, and the kind of a step follows from its fields.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillFile {
    name: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    when_to_use: String,
    #[serde(default)]
    parameters: Vec<SkillParameter>,
    #[serde(default)]
    steps: Vec<SkillFileStep>,
    source: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillFileStep {
    kind: Option<String>,
    run: Option<String>,
    workdir: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    timeout_seconds: Option<u64>,
    tool: Option<String>,
    arguments: Option<Value>,
    interpreter: Option<String>,
    text: Option<String>,
}

pub(super) async fn run(ctx: &Context, args: AddArgs) -> Result<(), Stop> {
    let what = || format!("could not add skill `{}` to `{}`", args.name, args.target.of);
    let written = match &args.file {
        Some(file) => serde_norway::from_str(&input::read(file, what)?).map_err(|error| {
            Failure::new(what()).because(&error).hint("`burrow skill add --help` shows a file")
        })?,
        None => SkillFile::default(),
    };
    let skill = skill(&args, written).map_err(|why| {
        Failure::new(format!("{}: {why}", what()))
            .hint("`burrow skill add --help` shows how steps are written")
    })?;
    let added = args.target.memory(ctx)?.skill_put(&skill).await.or_fail(what)?;
    args.format
        .show(&added, |added| print::line(format!("{} version {}", escape(&added.name), added.version)))
}

/// Flags override the file; steps of both are used, those of the file first.
fn skill(args: &AddArgs, written: SkillFile) -> Result<NewSkill, String> {
    if written.name.as_ref().is_some_and(|name| *name != args.name) {
        return Err(format!("its name in the file is `{}`", written.name.unwrap_or_default()));
    }
    let mut steps = written.steps.into_iter().enumerate().map(step).collect::<Result<Vec<_>, _>>()?;
    steps.extend(args.run.iter().map(|line| command(line.clone())));
    let mut parameters = written.parameters;
    for text in &args.parameters {
        let (name, default) = match text.split_once('=') {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (text.as_str(), None),
        };
        parameters.retain(|known| known.name != name);
        parameters.push(SkillParameter {
            name: name.to_owned(),
            description: String::new(),
            required: default.is_none(),
            default,
        });
    }
    let description = args.description.clone().unwrap_or(written.description);
    if description.trim().is_empty() {
        return Err("a description is required, by which it is found: give --description".to_owned());
    }
    Ok(NewSkill {
        name: args.name.clone(),
        description,
        when_to_use: args.when_to_use.clone().unwrap_or(written.when_to_use),
        parameters,
        steps,
        source: written.source,
    })
}

fn command(run: String) -> SkillStep {
    SkillStep::Command { run, workdir: None, env: BTreeMap::new(), timeout_seconds: None }
}

fn step((at, written): (usize, SkillFileStep)) -> Result<SkillStep, String> {
    let SkillFileStep { kind, run, workdir, env, timeout_seconds, tool, arguments, interpreter, text } =
        written;
    let found = match (run, tool, interpreter, text) {
        (Some(run), None, None, None) if arguments.is_none() => {
            ("command", SkillStep::Command { run, workdir, env, timeout_seconds })
        }
        (None, Some(tool), None, None) => {
            ("tool-call", SkillStep::ToolCall { tool, arguments: arguments.unwrap_or_default() })
        }
        (None, None, Some(interpreter), Some(text)) => {
            ("script", SkillStep::Script { interpreter, text, env })
        }
        _ => {
            return Err(format!(
                "step {} is neither a command (run), nor a script (interpreter, text), nor a call (tool, arguments)",
                at + 1
            ));
        }
    };
    match kind {
        Some(kind) if kind != found.0 => {
            Err(format!("step {} is declared as a {kind}, but its fields are those of a {}", at + 1, found.0))
        }
        _ => Ok(found.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: AddArgs,
    }

    fn arguments(words: &[&str]) -> AddArgs {
        Line::try_parse_from(["x"].iter().chain(words)).unwrap().args
    }

    #[test]
    fn the_fields_of_a_step_determine_its_kind() {
        let text = "description: d\nparameters: [{ name: host, required: true }]\nsteps:\n\
                    - { run: 'make {{host}}', workdir: /srv }\n- { interpreter: python3, text: 'print(1)' }\n\
                    - { kind: tool-call, tool: notify, arguments: { a: 1 } }\n";
        let args = arguments(&["web", "deploy", "--file", "x", "--run", "echo done", "--when", "often"]);
        let skill = skill(&args, serde_norway::from_str(text).unwrap()).unwrap();
        assert_eq!(skill.steps.len(), 4);
        assert!(matches!(&skill.steps[0], SkillStep::Command { workdir: Some(dir), .. } if dir == "/srv"));
        assert!(matches!(&skill.steps[1], SkillStep::Script { .. }));
        assert!(matches!(&skill.steps[2], SkillStep::ToolCall { .. }));
        assert_eq!((skill.description.as_str(), skill.when_to_use.as_str()), ("d", "often"));
        assert!(skill.parameters[0].required);
    }

    #[test]
    fn a_step_of_no_kind_or_of_two_is_rejected_by_number() {
        let args = arguments(&["web", "deploy", "--file", "x"]);
        for text in
            ["steps: [{ run: a, tool: b }]", "steps: [{ workdir: / }]", "steps: [{ kind: script, run: a }]"]
        {
            let error = skill(&args, serde_norway::from_str(text).unwrap()).unwrap_err();
            assert!(error.starts_with("step 1 "), "{error}");
        }
        assert!(serde_norway::from_str::<SkillFile>("steps: [{ rnu: a }]").is_err());
    }

    #[test]
    fn a_parameter_without_a_default_is_required() {
        let args = arguments(&[
            "web",
            "x",
            "--description",
            "d",
            "--run",
            "echo {{a}} {{b}}",
            "--param",
            "a",
            "--param",
            "b=1",
        ]);
        let skill = skill(&args, SkillFile::default()).unwrap();
        assert!(skill.parameters[0].required && !skill.parameters[1].required);
        assert_eq!(skill.parameters[1].default.as_deref(), Some("1"));
    }
}
