//! Translates the steps of a template's build into steps of a recipe.
//!
//! As in E2B, a build runs as the user `user` in that user's home until the template specifies otherwise, and the last
//! user and working directory are those of the template's sandboxes. A template made from another template starts with
//! the last ones of that template.

use std::collections::BTreeMap;

use burrow_images::dockerfile;
use burrow_images::recipe::{Run, Step};
use burrow_model::{Image, ImageConfig};
use serde::Deserialize;

use super::copy_step;
use super::error::Refusal;
use burrow_http::convert;

const STEPS_MAX: usize = 256;

/// The default user of builds.
const USER: &str = "user";

/// Label of images that a template's build created: their user and working directory are those of the template.
pub(super) const TEMPLATE_LABEL: &str = "e2b.template";

#[derive(Debug, Deserialize)]
pub(super) struct Instruction {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    pub(super) force: bool,
    /// The upload with the files of a copy.
    #[serde(rename = "filesHash")]
    files_hash: Option<String>,
}

impl Instruction {
    /// The command of a `RUN` step, else the whole line.
    pub(super) fn command(&self) -> String {
        match self.kind.as_str() {
            "RUN" => self.args.first().cloned().unwrap_or_default(),
            _ => self.shown(),
        }
    }

    /// The user of the step, if it has one.
    pub(super) fn user(&self) -> Option<&str> {
        let index = match self.kind.as_str() {
            "RUN" => 1,
            "COPY" => 2,
            _ => 0,
        };
        self.args.get(index).map(String::as_str)
    }

    /// One line for the build's log. Values of variables may be secrets and are left out.
    pub(super) fn shown(&self) -> String {
        let args: Vec<&str> = match self.kind.as_str() {
            "ENV" => self.args.iter().step_by(2).map(String::as_str).collect(),
            _ => self.args.iter().map(String::as_str).filter(|arg| !arg.is_empty()).collect(),
        };
        format!("{} {}", self.kind, args.join(" "))
    }
}

/// The initial state of a build.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    env: BTreeMap<String, String>,
    user: String,
    /// `None`: the user's home directory.
    workdir: Option<String>,
    /// Whether `user` has to be created first.
    create_user: bool,
}

impl Start {
    /// `has_user` says whether the image has the user [`USER`].
    pub(super) fn of(image: &Image, has_user: bool) -> Self {
        let ImageConfig { env, user, workdir, labels, .. } = image.config.clone();
        match user.filter(|_| labels.contains_key(TEMPLATE_LABEL)) {
            Some(user) => Self { env, user, workdir, create_user: false },
            None => Self { env, user: USER.to_owned(), workdir: None, create_user: !has_user },
        }
    }
}

/// The steps of a build.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// For each step, the index of the instruction that it executes; `None` for steps that prepare others.
    pub(super) origins: Vec<Option<usize>>,
}

/// An instruction that cannot be translated.
#[derive(Debug)]
pub(super) struct InvalidStep {
    /// Counted from 0; `None` if the number of instructions is the fault.
    pub(super) index: Option<usize>,
    pub(super) refusal: Refusal,
}

impl Plan {
    /// Translates instructions. Invalid ones are rejected.
    pub(super) fn new(instructions: &[Instruction], start: &Start) -> Result<Self, InvalidStep> {
        if instructions.len() > STEPS_MAX {
            let refusal = Refusal::invalid(format!("a build has at most {STEPS_MAX} steps"));
            return Err(InvalidStep { index: None, refusal });
        }
        let mut planner = Planner {
            plan: Self::default(),
            env: start.env.clone(),
            user: start.user.clone(),
            workdir: start.workdir.clone(),
            unmade: false,
            at: None,
        };
        if start.create_user {
            planner.create_user(&start.user);
        }
        planner.push(Step::User(start.user.clone()));
        planner.push(Step::Workdir(planner.place()));
        for (index, instruction) in instructions.iter().enumerate() {
            planner.at = Some(index);
            let invalid = |refusal| InvalidStep { index: Some(index), refusal };
            planner.instruction(instruction).map_err(invalid)?;
        }
        if planner.unmade {
            // Creates the working directory in the template's sandboxes, even if no step used it.
            planner.push(Step::Run(Run::Bash(":".to_owned())));
        }
        Ok(planner.plan)
    }

    /// Adds a step that does not belong to an instruction.
    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
        self.origins.push(None);
    }
}

struct Planner {
    plan: Plan,
    env: BTreeMap<String, String>,
    user: String,
    workdir: Option<String>,
    /// Whether the last `WORKDIR` was not used by a step yet.
    unmade: bool,
    at: Option<usize>,
}

impl Planner {
    fn push(&mut self, step: Step) {
        self.plan.steps.push(step);
        self.plan.origins.push(self.at);
    }

    fn place(&self) -> String {
        self.workdir.clone().unwrap_or_else(|| home(&self.user))
    }

    fn instruction(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        let Instruction { kind, args, files_hash, .. } = instruction;
        let needed = |index: usize| {
            let text = args.get(index).filter(|text| !text.is_empty());
            text.cloned().ok_or_else(|| Refusal::invalid(format!("a `{kind}` step requires an argument")))
        };
        match kind.as_str() {
            "RUN" => {
                let command = needed(0)?;
                // Only this step runs as another user.
                let other = args.get(1).filter(|name| !name.is_empty() && **name != self.user).cloned();
                if let Some(name) = &other {
                    convert::user("RUN", name)?;
                    self.plan.push(Step::User(name.clone()));
                }
                self.push(Step::Run(Run::Bash(command)));
                self.unmade = false;
                if other.is_some() {
                    self.plan.push(Step::User(self.user.clone()));
                }
            }
            "ENV" => {
                let mut variables = BTreeMap::new();
                for pair in args.chunks(2) {
                    let [name, value] = pair else {
                        return Err(Refusal::invalid("an `ENV` step requires a value"));
                    };
                    let value = expand(value, &self.env)?;
                    burrow_model::check_env_name(name, &value)
                        .map_err(|error| Refusal::invalid(format!("invalid `ENV` step: {error}")))?;
                    variables.insert(name.clone(), value);
                }
                self.env.extend(variables.clone());
                self.push(Step::Env(variables));
            }
            "WORKDIR" => {
                let path = copy_step::destination(&expand(&needed(0)?, &self.env)?, &self.place());
                let path = match path.trim_end_matches('/') {
                    "" => "/",
                    path => path,
                };
                convert::check_path("WORKDIR", path)?;
                self.unmade = path != "/" && path != home(&self.user);
                self.workdir = Some(path.to_owned());
                self.push(Step::Workdir(path.to_owned()));
            }
            "USER" => {
                let name = expand(&needed(0)?, &self.env)?;
                convert::user("USER", &name)?;
                if [USER, "root"].contains(&name.as_str()) || name.parse::<u32>().is_ok() {
                    self.push(Step::User(name.clone()));
                } else {
                    // As in E2B, a missing user is created.
                    self.create_user(name.split(':').next().unwrap_or_default());
                    self.plan.push(Step::User(name.clone()));
                }
                self.user = name;
                if self.workdir.is_none() {
                    self.plan.push(Step::Workdir(self.place()));
                }
            }
            "COPY" => {
                let args = args.iter().map(|arg| expand(arg, &self.env));
                let args = args.collect::<Result<Vec<_>, _>>()?;
                let mut copy = copy_step::step(&args, files_hash.as_deref(), &self.place())?;
                copy.owner = copy.owner.or_else(|| Some(self.user.clone()));
                self.push(Step::Copy(copy));
            }
            _ => return Err(Refusal::absent("Burrow supports the steps RUN, COPY, ENV, WORKDIR and USER")),
        }
        Ok(())
    }

    /// Creates a user with a home directory, unless it exists. The working directory is not created: it may be the
    /// user's home.
    fn create_user(&mut self, name: &str) {
        let script = format!(
            "id -u {name} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {name} || adduser -D {name}"
        );
        self.plan.push(Step::User("root".to_owned()));
        self.plan.push(Step::Workdir("/".to_owned()));
        self.push(Step::Run(Run::Bash(script)));
        self.plan.push(Step::Workdir(self.place()));
    }
}

/// The usual home directory of a user.
fn home(user: &str) -> String {
    match user.split(':').next().unwrap_or_default() {
        "root" | "0" => "/root".to_owned(),
        name => format!("/home/{name}"),
    }
}

/// Expands variables as in a Dockerfile: `$NAME`, `${NAME}`, `${NAME:-word}`. Unset variables become empty. Clients remove the
/// quotes.
fn expand(text: &str, env: &BTreeMap<String, String>) -> Result<String, Refusal> {
    let lookup = |name: &str| {
        // Not a variable: clients pass such texts as they are.
        let argument = name.bytes().all(|b| b.is_ascii_digit()).then(|| format!("${name}"));
        env.get(name).cloned().or(argument).or_else(|| usual(name).map(str::to_owned))
    };
    dockerfile::expand_text(text, '\\', &lookup)
        .map_err(|reason| Refusal::invalid(format!("could not expand a variable: {reason}")))
}

/// Variables that every command has, even if the image does not set them.
fn usual(name: &str) -> Option<&'static str> {
    (name == "PATH").then_some("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Start {
        Start { user: USER.to_owned(), ..Start::default() }
    }

    fn plan(json: &str, start: &Start) -> Result<Plan, InvalidStep> {
        let instructions: Vec<Instruction> = serde_json::from_str(json).unwrap();
        Plan::new(&instructions, start)
    }

    fn run(text: &str) -> Step {
        Step::Run(Run::Bash(text.to_owned()))
    }

    fn user(name: &str) -> Step {
        Step::User(name.to_owned())
    }

    fn workdir(path: &str) -> Step {
        Step::Workdir(path.to_owned())
    }

    #[test]
    fn a_build_runs_as_the_default_user_in_its_home() {
        let made = plan(
            r#"[{"type": "RUN", "args": ["make", "root"]}, {"type": "RUN", "args": ["true"]},
                {"type": "ENV", "args": ["A", "b"]}, {"type": "COPY", "args": ["x", "."], "filesHash": "ab"}]"#,
            &start(),
        )
        .unwrap();
        let env = Step::Env([("A".to_owned(), "b".to_owned())].into());
        let expected =
            [user("user"), workdir("/home/user"), user("root"), run("make"), user("user"), run("true"), env];
        assert_eq!(made.steps[..7], expected);
        let Step::Copy(copy) = &made.steps[7] else { panic!("{made:?}") };
        assert_eq!((copy.to.as_str(), copy.owner.as_deref()), ("/home/user/", Some("user")));
        assert_eq!(made.origins, [None, None, None, Some(0), None, Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn the_last_user_and_working_directory_stay() {
        let made = plan(
            r#"[{"type": "USER", "args": ["root"]}, {"type": "WORKDIR", "args": ["/app"]},
                {"type": "WORKDIR", "args": ["sub"]}]"#,
            &start(),
        )
        .unwrap();
        let expected = [user("root"), workdir("/root"), workdir("/app"), workdir("/app/sub"), run(":")];
        assert_eq!(made.steps[2..], expected, "and the directory is created");
        let made = plan(r#"[{"type": "USER", "args": ["web"]}]"#, &start()).unwrap();
        assert_eq!(made.steps[made.steps.len() - 2..], [user("web"), workdir("/home/web")]);
        assert!(
            made.steps
                .iter()
                .any(|step| matches!(step, Step::Run(Run::Bash(text)) if text.contains("useradd")))
        );
    }

    #[test]
    fn a_template_continues_where_its_base_ended() {
        let config = ImageConfig {
            user: Some("root".to_owned()),
            workdir: Some("/app".to_owned()),
            labels: [(TEMPLATE_LABEL.to_owned(), "1".to_owned())].into(),
            ..ImageConfig::default()
        };
        let image = |config| Image {
            id: burrow_model::ImageId::generate(),
            names: Vec::new(),
            config,
            origin: burrow_model::ImageOrigin::default(),
            layer: None,
            size_bytes: 0,
            created_ms: 0,
        };
        let made = plan("[]", &Start::of(&image(config.clone()), false)).unwrap();
        assert_eq!(made.steps, [user("root"), workdir("/app")]);
        let plain = ImageConfig { labels: BTreeMap::new(), ..config };
        let made = plan("[]", &Start::of(&image(plain.clone()), true)).unwrap();
        assert_eq!(
            made.steps,
            [user("user"), workdir("/home/user")],
            "the user of an image is not the user of the template"
        );
        let made = plan("[]", &Start::of(&image(plain), false)).unwrap();
        assert!(matches!(&made.steps[2], Step::Run(Run::Bash(text)) if text.contains("useradd")), "{made:?}");
    }

    #[test]
    fn variables_are_expanded() {
        let env: BTreeMap<_, _> = [("A".to_owned(), "one".to_owned())].into();
        for (text, expected) in [
            ("/opt:$A", "/opt:one"),
            ("${A}x$AB", "onex"),
            ("\\$A \\n $1 $", "$A \\n $1 $"),
            ("${A:-x} ${B:-x} ${A:+y}", "one x y"),
            ("\"$A\" '$A'", "\"one\" 'one'"),
            ("x:$PATH", "x:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ] {
            assert_eq!(expand(text, &env).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_steps_are_rejected() {
        for bad in [
            r#"{"type": "RUN", "args": []}"#,
            r#"{"type": "RUN", "args": ["true", "a b"]}"#,
            r#"{"type": "ENV", "args": ["A"]}"#,
            r#"{"type": "ENV", "args": ["A B", "c"]}"#,
            r#"{"type": "USER", "args": ["a b"]}"#,
            r#"{"type": "USER", "args": ["$(id)"]}"#,
            r#"{"type": "COPY", "args": ["a", "/b"]}"#,
            r#"{"type": "COPY", "args": ["../a", "/b"], "filesHash": "ab"}"#,
            r#"{"type": "SHELL", "args": ["x"]}"#,
        ] {
            let steps = format!(r#"[{{"type": "RUN", "args": ["true"]}}, {bad}]"#);
            assert_eq!(plan(&steps, &start()).unwrap_err().index, Some(1), "{bad}");
        }
    }

    #[test]
    fn values_of_variables_stay_out_of_the_log() {
        let instruction: Instruction =
            serde_json::from_str(r#"{"type": "ENV", "args": ["TOKEN", "s3cret", "B", "x"]}"#).unwrap();
        assert_eq!(instruction.shown(), "ENV TOKEN B");
    }
}
