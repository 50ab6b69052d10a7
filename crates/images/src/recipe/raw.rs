//! A build file as it is written. Every value is checked while it is parsed, so that an error contains its line.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::{Copy, Run, Step};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    pub(super) base: String,
    steps: Option<Vec<OneStep>>,
    packages: Option<Packages>,
    copy: Option<Copies>,
    run: Option<Runs>,
    env: Option<Variables>,
    user: Option<User>,
    workdir: Option<AbsolutePath>,
    entrypoint: Option<Argv>,
    cmd: Option<Argv>,
    labels: Option<BTreeMap<String, String>>,
}

/// One step: exactly one of these fields is set.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    packages: Option<Packages>,
    copy: Option<Copies>,
    run: Option<Runs>,
    env: Option<Variables>,
    user: Option<User>,
    workdir: Option<AbsolutePath>,
    entrypoint: Option<Argv>,
    cmd: Option<Argv>,
    labels: Option<BTreeMap<String, String>>,
}

struct OneStep(Vec<Step>);

struct Packages(Vec<String>);
struct Copies(Vec<Copy>);
struct Runs(Vec<Run>);
struct Variables(BTreeMap<String, String>);
struct Argv(Vec<String>);

// Single words, each with its own rule.
struct PackageName(String);
struct RelativePath(String);
struct AbsolutePath(String);
struct User(String);
struct OctalMode(u32);
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct VariableName(String);
struct Text(String);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCopy {
    from: RelativePath,
    to: AbsolutePath,
    owner: Option<User>,
    mode: Option<OctalMode>,
}

/// A rule for a word.
type Rule<T> = fn(&str) -> Result<T, String>;

/// Applies a rule while the word is parsed, when its line is known.
struct RuleVisitor<T> {
    expected: &'static str,
    rule: Rule<T>,
}

impl<T> Visitor<'_> for RuleVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        match text.contains('\0') {
            true => Err(E::custom("a string contains a NUL byte")),
            false => (self.rule)(text).map_err(E::custom),
        }
    }
}

macro_rules! word {
    ($type:ident, $expected:literal, $rule:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(RuleVisitor { expected: $expected, rule: $rule })
            }
        }
    };
}

word!(PackageName, "a string: the name of a package", |name| {
    // The name is passed to the package manager as an argument, where a dash would begin an option.
    let good = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || ".+-:=~_".contains(c));
    match good {
        true => Ok(Self(name.to_owned())),
        false => Err(format!("`{}` is not a valid package name", crate::error::shortened(name))),
    }
});

word!(RelativePath, "a string: a relative path", |path| {
    match path.is_empty() || path.starts_with('/') || leads_upwards(path) {
        true => {
            let path = crate::error::shortened(path);
            Err(format!("`from: {path}` must be a path below the build file's directory"))
        }
        false => Ok(Self(path.to_owned())),
    }
});

word!(AbsolutePath, "a string: an absolute path", |path| {
    match path.starts_with('/') && !leads_upwards(path) {
        true => Ok(Self(path.to_owned())),
        false => {
            let path = crate::error::shortened(path);
            Err(format!("`{path}` must be a path that begins with `/` and has no `..`"))
        }
    }
});

word!(User, "a string: a user's name or id", |user| {
    let good = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match user.split(':').count() <= 2 && user.split(':').all(good) {
        true => Ok(Self(user.to_owned())),
        false => Err("a user must be a name or id, optionally followed by `:` and a group".to_owned()),
    }
});

word!(OctalMode, "a string: octal digits, like 0644", |text| {
    let digits = Some(text).filter(|text| text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()));
    let mode = digits.and_then(|digits| u32::from_str_radix(digits, 8).ok());
    match mode.filter(|mode| *mode <= 0o7777) {
        Some(mode) => Ok(Self(mode)),
        None => Err("a mode must be octal digits, like 0644".to_owned()),
    }
});

word!(VariableName, "a string: the name of a variable", |name| {
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match good {
        true => Ok(Self(name.to_owned())),
        false => Err(format!("`{}` is not a valid variable name", crate::error::shortened(name))),
    }
});

word!(Text, "a string", |text| Ok(Self(text.to_owned())));

fn leads_upwards(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

impl Recipe {
    pub(super) fn into_steps(self) -> Result<Vec<Step>, &'static str> {
        let Self { base: _, steps, packages, copy, run, env, user, workdir, entrypoint, cmd, labels } = self;
        let top = RawStep { packages, copy, run, env, user, workdir, entrypoint, cmd, labels }.into_steps();
        match steps {
            Some(_) if !top.is_empty() => Err("with `steps`, only `base` is allowed at the top level"),
            Some(steps) => Ok(steps.into_iter().flat_map(|OneStep(steps)| steps).collect()),
            None => Ok(top.into_iter().flatten().collect()),
        }
    }
}

impl RawStep {
    /// One list for every key that is present, in the order of the documentation.
    fn into_steps(self) -> Vec<Vec<Step>> {
        let Self { packages, copy, run, env, user, workdir, entrypoint, cmd, labels } = self;
        [
            packages.map(|Packages(names)| vec![Step::Packages(names)]),
            copy.map(|Copies(copies)| copies.into_iter().map(Step::Copy).collect()),
            run.map(|Runs(runs)| runs.into_iter().map(Step::Run).collect()),
            env.map(|Variables(variables)| vec![Step::Env(variables)]),
            user.map(|User(user)| vec![Step::User(user)]),
            workdir.map(|AbsolutePath(path)| vec![Step::Workdir(path)]),
            entrypoint.map(|Argv(argv)| vec![Step::Entrypoint(argv)]),
            cmd.map(|Argv(argv)| vec![Step::Cmd(argv)]),
            labels.map(|labels| vec![Step::Labels(labels)]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl<'de> Deserialize<'de> for OneStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut steps = RawStep::deserialize(deserializer)?.into_steps();
        match (steps.pop(), steps.is_empty()) {
            (Some(step), true) => Ok(Self(step)),
            (None, _) => Err(de::Error::custom("a step is empty")),
            (Some(_), false) => {
                Err(de::Error::custom("a step must have exactly one key: start each step with its own `-`"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Packages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<PackageName>::deserialize(deserializer)?;
        match names.is_empty() {
            true => Err(de::Error::custom("the list of packages is empty")),
            false => Ok(Self(names.into_iter().map(|PackageName(name)| name).collect())),
        }
    }
}

impl<'de> Deserialize<'de> for Copies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Vec<RawCopy>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("{ from: path, to: /path }, or a list of them")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                RawCopy::deserialize(de::value::MapAccessDeserializer::new(map)).map(|copy| vec![copy])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(list))
            }
        }
        let raw = deserializer.deserialize_any(OneOrMany)?;
        let copy = |RawCopy { from: RelativePath(from), to: AbsolutePath(to), owner, mode }: RawCopy| Copy {
            from,
            to,
            owner: owner.map(|User(owner)| owner),
            mode: mode.map(|OctalMode(mode)| mode),
        };
        Ok(Self(raw.into_iter().map(copy).collect()))
    }
}

impl<'de> Deserialize<'de> for Runs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LineOrArgv;
        impl<'de> Visitor<'de> for LineOrArgv {
            type Value = Run;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a shell command line, or a list of a program and its arguments")
            }

            fn visit_str<E: de::Error>(self, line: &str) -> Result<Run, E> {
                match line.trim().is_empty() || line.contains('\0') {
                    true => Err(E::custom("the command is empty or contains a NUL byte")),
                    false => Ok(Run::Shell(line.to_owned())),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Run, A::Error> {
                let Argv(argv) = Argv::deserialize(de::value::SeqAccessDeserializer::new(list))?;
                match argv.first().is_none_or(String::is_empty) {
                    true => Err(de::Error::custom("the command is empty")),
                    false => Ok(Run::Argv(argv)),
                }
            }
        }
        deserializer.deserialize_any(LineOrArgv).map(|run| Self(vec![run]))
    }
}

impl<'de> Deserialize<'de> for Variables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let variables = BTreeMap::<VariableName, Text>::deserialize(deserializer)?;
        Ok(Self(variables.into_iter().map(|(VariableName(name), Text(value))| (name, value)).collect()))
    }
}

impl<'de> Deserialize<'de> for Argv {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let argv = Vec::<Text>::deserialize(deserializer)?;
        Ok(Self(argv.into_iter().map(|Text(argument)| argument).collect()))
    }
}

/// The parser's message without the position, which is shown separately.
pub(super) fn reason(error: &serde_norway::Error) -> String {
    let text = error.to_string();
    let text = match text.rfind(" at line ") {
        Some(place) => &text[..place],
        None => &text,
    };
    crate::error::shortened(text)
}
