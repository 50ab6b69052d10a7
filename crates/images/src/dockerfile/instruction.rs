//! The instructions of a Dockerfile: their flags and arguments. Variables are not expanded yet.

use super::lines::{Heredoc, RawInstruction, raw_words};
use super::refused;
use crate::ImageError;

/// A parsed instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    From {
        image: String,
        platform: Option<String>,
        name: Option<String>,
    },
    Arg(Vec<(String, Option<String>)>),
    Env(Vec<(String, String)>),
    Label(Vec<(String, String)>),
    Run(RunInstruction),
    Copy(CopyInstruction),
    Workdir(String),
    User(String),
    Shell(Vec<String>),
    Entrypoint(ProgramForm),
    Cmd(ProgramForm),
    Expose(Vec<String>),
    /// It has no effect, for this reason.
    Ignored(&'static str),
}

/// A command line for the shell, or a program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProgramForm {
    Shell(String),
    Argv(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunInstruction {
    pub(super) program: ProgramForm,
    /// If the command line is a heredoc and nothing else, its content is the script.
    pub(super) heredocs: Vec<Heredoc>,
    pub(super) mounts: Vec<RawMount>,
    pub(super) offline: bool,
}

/// The options of a `--mount`, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawMount {
    pub(super) kind: MountKind,
    pub(super) options: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountKind {
    Cache,
    Bind,
    Tmpfs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyInstruction {
    /// `ADD` unpacks archives.
    pub(super) add: bool,
    pub(super) from: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) sources: Vec<String>,
    pub(super) to: String,
    pub(super) heredocs: Vec<Heredoc>,
}

/// Parses the arguments of an instruction.
pub(super) fn parse(line: usize, raw: RawInstruction, escape: char) -> Result<Instruction, ImageError> {
    let parser = Parser { line, escape };
    let RawInstruction { keyword, rest, heredocs } = raw;
    let (flags, rest) = parser.flags(&keyword, &rest)?;
    let takes_flags = matches!(keyword.as_str(), "FROM" | "RUN" | "COPY" | "ADD" | "HEALTHCHECK" | "ONBUILD");
    if let Some((name, _)) = flags.first().filter(|_| !takes_flags) {
        return Err(refused(line, format!("{keyword} has no flag `--{name}`")));
    }
    let ignored = |reason| Ok(Instruction::Ignored(reason));
    match keyword.as_str() {
        "HEALTHCHECK" => return ignored("HEALTHCHECK has no effect: use a service of the sandbox"),
        "STOPSIGNAL" => return ignored("STOPSIGNAL has no effect"),
        "VOLUME" => return ignored("VOLUME has no effect: the files of a sandbox are kept anyway"),
        "MAINTAINER" => return ignored("MAINTAINER has no effect: use LABEL"),
        "ONBUILD" => return Err(refused(line, "ONBUILD is not supported")),
        _ => {}
    }
    if rest.is_empty() {
        return Err(refused(line, format!("{keyword} requires an argument")));
    }
    match keyword.as_str() {
        "FROM" => parser.from(&flags, rest),
        "ARG" => parser.arg(rest),
        "ENV" => Ok(Instruction::Env(parser.pairs("ENV", rest)?)),
        "LABEL" => Ok(Instruction::Label(parser.pairs("LABEL", rest)?)),
        "RUN" => parser.run(flags, rest, heredocs),
        "COPY" | "ADD" => parser.copy(keyword == "ADD", flags, rest, heredocs),
        "WORKDIR" => Ok(Instruction::Workdir(rest.to_owned())),
        "USER" => Ok(Instruction::User(rest.to_owned())),
        "EXPOSE" => Ok(Instruction::Expose(raw_words(rest, escape))),
        "ENTRYPOINT" => Ok(Instruction::Entrypoint(program(rest))),
        "CMD" => Ok(Instruction::Cmd(program(rest))),
        "SHELL" => match program(rest) {
            ProgramForm::Argv(argv) if !argv.is_empty() => Ok(Instruction::Shell(argv)),
            ProgramForm::Argv(_) | ProgramForm::Shell(_) => {
                Err(refused(line, "SHELL requires a list in JSON, like [\"/bin/bash\", \"-c\"]"))
            }
        },
        _ => Err(refused(line, format!("{} is not supported", crate::error::shortened(&keyword)))),
    }
}

/// A list in JSON, else a command line.
fn program(text: &str) -> ProgramForm {
    match serde_json::from_str::<Vec<String>>(text) {
        Ok(argv) if text.starts_with('[') => ProgramForm::Argv(argv),
        Ok(_) | Err(_) => ProgramForm::Shell(text.to_owned()),
    }
}

type Flags = Vec<(String, String)>;

struct Parser {
    line: usize,
    escape: char,
}

impl Parser {
    fn refused<T>(&self, reason: impl Into<String>) -> Result<T, ImageError> {
        Err(refused(self.line, reason))
    }

    /// The `--name=value` at the beginning, and the rest.
    fn flags<'a>(&self, keyword: &str, rest: &'a str) -> Result<(Flags, &'a str), ImageError> {
        let (mut flags, mut rest) = (Flags::new(), rest);
        while rest.starts_with("--") && !matches!(keyword, "CMD" | "ENTRYPOINT" | "ENV" | "LABEL") {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let (name, value) = rest[2..end].split_once('=').unwrap_or((&rest[2..end], ""));
            if name.is_empty() {
                break;
            }
            let value = value.trim_matches('"');
            flags.push((name.to_owned(), value.to_owned()));
            rest = rest[end..].trim_start();
        }
        Ok((flags, rest))
    }

    fn from(&self, flags: &Flags, rest: &str) -> Result<Instruction, ImageError> {
        let mut platform = None;
        for (name, value) in flags {
            match name.as_str() {
                "platform" => platform = Some(value.clone()),
                _ => return self.refused(format!("FROM has no flag `--{name}`")),
            }
        }
        let words: Vec<&str> = rest.split_whitespace().collect();
        let (image, name) = match words[..] {
            [image] => (image, None),
            [image, r#as, name] if r#as.eq_ignore_ascii_case("as") => {
                (image, Some(name.to_ascii_lowercase()))
            }
            _ => return self.refused("FROM is written like `FROM image` or `FROM image AS name`"),
        };
        let good = |name: &String| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.-".contains(c))
        };
        if name.as_ref().is_some_and(|name| !good(name)) {
            return self.refused(
                "the name of a stage consists of letters, digits, `_`, `.` and `-`, and begins with a letter",
            );
        }
        Ok(Instruction::From { image: image.to_owned(), platform, name })
    }

    fn arg(&self, rest: &str) -> Result<Instruction, ImageError> {
        let mut found = Vec::new();
        for word in raw_words(rest, self.escape) {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            self.check_name("ARG", name)?;
            found.push((name.to_owned(), value));
        }
        Ok(Instruction::Arg(found))
    }

    /// `NAME=value …`, or the old form `NAME value`.
    fn pairs(&self, keyword: &str, rest: &str) -> Result<Vec<(String, String)>, ImageError> {
        let words = raw_words(rest, self.escape);
        let first = words.first().map(String::as_str).unwrap_or_default();
        if !first.contains('=') {
            let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            if value.trim().is_empty() {
                return self.refused(format!("{keyword} `{}` has no value", crate::error::shortened(name)));
            }
            self.check_variable(keyword, name)?;
            return Ok(vec![(name.to_owned(), value.trim().to_owned())]);
        }
        let mut found = Vec::new();
        for word in &words {
            let Some((name, value)) = word.split_once('=') else {
                let word = crate::error::shortened(word);
                return self.refused(format!("`{word}` in {keyword} must be written like `NAME=value`"));
            };
            self.check_variable(keyword, name)?;
            found.push((name.to_owned(), value.to_owned()));
        }
        Ok(found)
    }

    fn check_variable(&self, keyword: &str, name: &str) -> Result<(), ImageError> {
        match keyword {
            "ENV" => self.check_name(keyword, name),
            _ if name.is_empty() => self.refused(format!("{keyword} has an empty name")),
            _ => Ok(()),
        }
    }

    fn check_name(&self, keyword: &str, name: &str) -> Result<(), ImageError> {
        let good = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
        match good {
            true => Ok(()),
            false => self.refused(format!(
                "{keyword}: `{}` is not a valid name of a variable",
                crate::error::shortened(name)
            )),
        }
    }

    fn run(&self, flags: Flags, rest: &str, heredocs: Vec<Heredoc>) -> Result<Instruction, ImageError> {
        let (mut mounts, mut offline) = (Vec::new(), false);
        for (name, value) in flags {
            match (name.as_str(), value.as_str()) {
                ("mount", options) => mounts.push(self.mount(options)?),
                ("network", "default") | ("security", "sandbox") => {}
                ("network", "none") => offline = true,
                ("network" | "security", value) => {
                    return self.refused(format!("RUN --{name}={value} is not supported"));
                }
                _ => return self.refused(format!("RUN has no flag `--{name}`")),
            }
        }
        let program = if heredocs.is_empty() { program(rest) } else { ProgramForm::Shell(rest.to_owned()) };
        if matches!(&program, ProgramForm::Argv(argv) if argv.first().is_none_or(String::is_empty)) {
            return self.refused("RUN has an empty command");
        }
        Ok(Instruction::Run(RunInstruction { program, heredocs, mounts, offline }))
    }

    fn mount(&self, text: &str) -> Result<RawMount, ImageError> {
        let mut options: Vec<(String, String)> = Vec::new();
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            options.push((name.to_ascii_lowercase(), value.trim_matches('"').to_owned()));
        }
        let kind =
            options.iter().find(|(name, _)| name == "type").map_or("bind", |(_, value)| value.as_str());
        let kind = match kind {
            "cache" => MountKind::Cache,
            "bind" => MountKind::Bind,
            "tmpfs" => MountKind::Tmpfs,
            "secret" | "ssh" => {
                let hint = "secrets never enter a build; fetch what needs them before, and copy it";
                return self.refused(format!("RUN --mount=type={kind} is not supported: {hint}"));
            }
            other => {
                let other = crate::error::shortened(other);
                return self.refused(format!("RUN --mount=type={other} is not supported"));
            }
        };
        options.retain(|(name, _)| name != "type");
        Ok(RawMount { kind, options })
    }

    fn copy(
        &self,
        add: bool,
        flags: Flags,
        rest: &str,
        heredocs: Vec<Heredoc>,
    ) -> Result<Instruction, ImageError> {
        let keyword = if add { "ADD" } else { "COPY" };
        let mut copy = CopyInstruction {
            add,
            from: None,
            owner: None,
            mode: None,
            sources: Vec::new(),
            to: String::new(),
            heredocs,
        };
        for (name, value) in flags {
            match name.as_str() {
                "from" if !add => copy.from = Some(value),
                "chown" => copy.owner = Some(value),
                "chmod" => copy.mode = Some(value),
                // It makes layers independent of each other, and changes no files.
                "link" if matches!(value.as_str(), "" | "true" | "false") => {}
                _ => return self.refused(format!("{keyword} --{name} is not supported")),
            }
        }
        let mut words = match program(rest) {
            ProgramForm::Argv(words) => words,
            ProgramForm::Shell(_) => raw_words(rest, self.escape),
        };
        let heredoc_words = words.iter().filter(|word| word.starts_with("<<")).count();
        let Some(to) = words.pop().filter(|_| !words.is_empty()) else {
            return self.refused(format!("{keyword} requires a source and a destination"));
        };
        words.retain(|word| !word.starts_with("<<"));
        if heredoc_words != copy.heredocs.len() {
            return self.refused(format!("{keyword} has a heredoc that is not written like `<<NAME`"));
        }
        if let Some(url) = words.iter().find(|word| is_remote(word)).filter(|_| add) {
            let url = crate::error::shortened(url);
            return self.refused(format!("ADD of `{url}` is not supported: fetch it in a RUN instruction"));
        }
        Ok(Instruction::Copy(CopyInstruction { sources: words, to, ..copy }))
    }
}

fn is_remote(source: &str) -> bool {
    let source = source.trim_start_matches(['"', '\'']);
    ["http://", "https://", "git://", "git@", "ssh://"].iter().any(|scheme| source.starts_with(scheme))
}
