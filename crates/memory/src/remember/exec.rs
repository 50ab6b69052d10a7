//! Converts an exec into an entry: the command, its result, its output, and the files that it changed.

use burrow_model::RememberMode;
use serde_json::{Map, Value, json};

use super::noise::{clean, strip_terminal};
use super::normal::{error_line, normal_command, normal_error, shown_command};
use super::secrets::{scrub, without};
use crate::NewEntry;

/// Characters of output that an entry keeps. The exec itself has the whole output.
const OUTPUT_CHARACTERS_MAX: usize = 1_600;

/// Characters of a command; longer ones are generated scripts, whose beginning identifies them.
const COMMAND_CHARACTERS_MAX: usize = 1_000;

/// Names of changed files in the text; the metadata has more.
const FILES_SHOWN_MAX: usize = 12;

/// Bytes of such names in the metadata, where they are for filters; the size of metadata is limited.
const FILES_BYTES_MAX: usize = 6_000;

/// Bytes of output that are read, from the end: this runs for every exec.
const OUTPUT_READ_BYTES_MAX: usize = 64 * 1024;

/// The facts about an exec, from the daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecFacts {
    /// Its id, if it has one: the exec is recorded once per id.
    pub exec: Option<String>,
    pub command: Vec<String>,
    pub exit_code: Option<i32>,
    /// `SIGKILL` and the like.
    pub signal: Option<String>,
    pub duration_ms: u64,
    /// The ends of its output; earlier output does not matter.
    pub stdout_tail: String,
    pub stderr_tail: String,
    pub files_changed: Vec<String>,
    /// The user inside the sandbox.
    pub user: Option<String>,
    pub workdir: Option<String>,
    /// When it ended.
    pub at_ms: u64,
    /// Successful commands before it, for a mode that does not record them: if it ends a failure, they may be the cause.
    pub earlier: Vec<EarlierCommand>,
    /// Secret values that it was given, see [`super::secret_values`].
    pub secrets: Vec<String>,
}

/// A successful command, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierCommand {
    pub command: String,
    pub at_ms: u64,
}

impl EarlierCommand {
    /// `None` for commands that change nothing: they cannot have fixed a failure.
    pub fn of(command: &[String], at_ms: u64) -> Option<Self> {
        let command = typed(command);
        (!is_trivial(&command)).then_some(Self { command, at_ms })
    }
}

/// The result of an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
    /// Interrupted by the user, or an exit code that is an answer (`grep` without matches): neither success nor failure.
    Neither,
}

/// The parts of an exec that entries, repetitions and related memories are computed from, without secrets and noise.
#[derive(Clone, Debug, PartialEq)]
pub struct ShapedExec {
    pub command: String,
    pub outcome: Outcome,
    pub error: Option<String>,
    pub output: String,
    /// Equal for every repetition: normalised command, outcome and normalised error.
    pub fingerprint: String,
}

/// The entry for an exec, or `None` if it is not worth keeping. Its `key` is the same for each repetition.
pub fn exec_entry(facts: &ExecFacts, mode: RememberMode) -> Option<NewEntry> {
    let shaped = shape(facts);
    let wanted = match (mode, shaped.outcome) {
        (RememberMode::Off, Outcome::Succeeded | Outcome::Failed | Outcome::Neither) => false,
        (RememberMode::Errors, Outcome::Failed) => true,
        (RememberMode::Errors, Outcome::Succeeded | Outcome::Neither) => false,
        (RememberMode::All, Outcome::Failed) => true,
        (RememberMode::All, Outcome::Succeeded | Outcome::Neither) => !is_trivial(&shaped.command),
    };
    wanted.then(|| entry_of(facts, &shaped))
}

/// Analyses an exec; pure.
pub fn shape(facts: &ExecFacts) -> ShapedExec {
    let command = without(typed(&facts.command), &facts.secrets);
    // Secrets are removed first: a token that was folded or cut would not be recognised.
    let read =
        |text: &str| clean(&without(scrub(tail(text, OUTPUT_READ_BYTES_MAX)).into_owned(), &facts.secrets));
    let (stderr, stdout) = (read(&facts.stderr_tail), read(&facts.stdout_tail));
    let outcome = outcome_of(facts, &command, &stderr);
    let error = match outcome {
        Outcome::Failed => error_line(&stderr, &stdout).map(|line| cut(line, 300)),
        Outcome::Succeeded | Outcome::Neither => None,
    };
    let fingerprint = fingerprint(&command, facts, outcome, error.as_deref());
    let output = excerpt(&stderr, &stdout, outcome, error.as_deref());
    ShapedExec { command, outcome, error, output, fingerprint }
}

/// The command without secrets and noise.
fn typed(command: &[String]) -> String {
    let typed = strip_terminal(&shown_command(command)).replace(['\r', '\u{8}'], "");
    cut(scrub(&typed).trim(), COMMAND_CHARACTERS_MAX)
}

fn outcome_of(facts: &ExecFacts, command: &str, stderr: &str) -> Outcome {
    match (facts.signal.as_deref(), facts.exit_code) {
        // A user ended it, or its output was closed: a server that was stopped did not fail.
        (Some("SIGINT" | "SIGTERM" | "SIGPIPE" | "SIGHUP"), _) => Outcome::Neither,
        (Some(_), _) => Outcome::Failed,
        (None, Some(0)) => Outcome::Succeeded,
        (None, Some(130 | 141 | 143)) => Outcome::Neither,
        (None, Some(1)) if stderr.is_empty() && answers_by_exit_code(command) => Outcome::Neither,
        (None, Some(_)) => Outcome::Failed,
        (None, None) => Outcome::Neither,
    }
}

/// Programs that use exit code 1 as an answer.
fn answers_by_exit_code(command: &str) -> bool {
    let program = super::normal::program(command);
    matches!(
        program.as_str(),
        "grep"
            | "egrep"
            | "fgrep"
            | "rg"
            | "ag"
            | "diff"
            | "cmp"
            | "test"
            | "["
            | "[["
            | "which"
            | "pgrep"
            | "type"
            | "git diff"
            | "git grep"
            | "expr"
            | "false"
    )
}

/// Commands whose success is not worth remembering, unless they write to a file.
fn is_trivial(command: &str) -> bool {
    if command.contains(['>', '|', ';', '\n', '`']) || command.contains("&&") || command.contains("$(") {
        return false;
    }
    let first = command.split_whitespace().next().unwrap_or("");
    matches!(
        first,
        "" | "ls"
            | "ll"
            | "cd"
            | "pwd"
            | "true"
            | ":"
            | "echo"
            | "clear"
            | "whoami"
            | "id"
            | "date"
            | "which"
            | "type"
            | "cat"
            | "head"
            | "tail"
            | "wc"
            | "env"
            | "printenv"
            | "hostname"
            | "uname"
            | "uptime"
            | "history"
            | "sleep"
            | "stat"
            | "file"
            | "du"
            | "df"
            | "ps"
            | "exit"
            | "test"
            | "["
            | "tree"
            | "less"
            | "more"
    )
}

fn fingerprint(command: &str, facts: &ExecFacts, outcome: Outcome, error: Option<&str>) -> String {
    let mut hash = blake3::Hasher::new();
    // A zero byte separates the parts, and occurs in none of them, so different parts have different hashes.
    for part in [
        normal_command(command).as_str(),
        facts.workdir.as_deref().unwrap_or(""),
        match outcome {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Neither => "neither",
        },
        facts.signal.as_deref().unwrap_or(""),
        &error.map(normal_error).unwrap_or_default(),
    ] {
        hash.update(part.as_bytes());
        hash.update(&[0]);
    }
    hash.finalize().to_hex().as_str()[..32].to_owned()
}

/// The output to keep. Of a failure, its error line and its end; of a success, only the end.
fn excerpt(stderr: &str, stdout: &str, outcome: Outcome, error: Option<&str>) -> String {
    let (first, second) = match outcome {
        Outcome::Failed => (stderr, stdout),
        Outcome::Succeeded | Outcome::Neither => (stdout, stderr),
    };
    let main = if first.is_empty() { second } else { first };
    let kept = last_lines(main, OUTPUT_CHARACTERS_MAX);
    match error {
        Some(error) if !kept.contains(error) => format!("{error}\n…\n{kept}"),
        Some(_) | None => kept,
    }
}

/// As many whole lines from the end as fit.
fn last_lines(text: &str, characters_max: usize) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut left = characters_max;
    for line in text.lines().rev() {
        let length = line.chars().count() + 1;
        if length > left {
            break;
        }
        left -= length;
        kept.push(line);
    }
    kept.reverse();
    kept.join("\n").trim().to_owned()
}

pub(super) fn entry_of(facts: &ExecFacts, shaped: &ShapedExec) -> NewEntry {
    let mut bytes = 0;
    let files: Vec<String> = facts
        .files_changed
        .iter()
        .map(|file| line(&scrub(file), 300))
        .take_while(|file| {
            bytes += file.len() + 4;
            bytes <= FILES_BYTES_MAX
        })
        .collect();
    NewEntry {
        key: Some(format!("exec:{}", shaped.fingerprint)),
        text: text_of(facts, shaped, &files),
        kind: match shaped.outcome {
            Outcome::Failed => "error".to_owned(),
            Outcome::Succeeded | Outcome::Neither => "exec".to_owned(),
        },
        metadata: metadata_of(facts, shaped, &files),
        importance: match shaped.outcome {
            Outcome::Failed => 0.6,
            Outcome::Succeeded | Outcome::Neither if files.is_empty() => 0.3,
            Outcome::Succeeded | Outcome::Neither => 0.4,
        },
        source: Some("exec".to_owned()),
        session: None,
        user: None,
        agent: None,
        at_ms: Some(facts.at_ms),
        valid_from_ms: None,
        valid_to_ms: None,
        supersedes: Vec::new(),
        artifacts: Vec::new(),
        links: Vec::new(),
    }
}

fn text_of(facts: &ExecFacts, shaped: &ShapedExec, files: &[String]) -> String {
    let mut text = format!("$ {}\n{}", shaped.command, ending(facts));
    if let Some(workdir) = &facts.workdir {
        text.push_str(&format!(" in {}", line(workdir, 200)));
    }
    if !shaped.output.is_empty() {
        text.push('\n');
        text.push_str(&shaped.output);
    }
    if !files.is_empty() {
        let more = facts.files_changed.len().saturating_sub(FILES_SHOWN_MAX);
        text.push_str("\nfiles changed: ");
        text.push_str(&files.iter().take(FILES_SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", "));
        if more > 0 {
            text.push_str(&format!(" and {more} more"));
        }
    }
    text
}

fn ending(facts: &ExecFacts) -> String {
    let how = match (&facts.signal, facts.exit_code) {
        (Some(signal), _) => format!("ended by {}", line(signal, 20)),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "ended unseen".to_owned(),
    };
    format!("{how} after {}", duration(facts.duration_ms))
}

fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min", ms / 60_000),
    }
}

fn metadata_of(facts: &ExecFacts, shaped: &ShapedExec, files: &[String]) -> Map<String, Value> {
    let mut metadata = Map::new();
    let mut put = |name: &str, value: Value| metadata.insert(name.to_owned(), value);
    put("command", json!(shaped.command));
    put("program", json!(cut(&super::normal::program(&shaped.command), 100)));
    put("duration_ms", json!(facts.duration_ms));
    put("fingerprint", json!(shaped.fingerprint));
    put("last_ms", json!(facts.at_ms));
    if let Some(code) = facts.exit_code {
        put("exit_code", json!(code));
    }
    if let Some(signal) = &facts.signal {
        put("signal", json!(line(signal, 20)));
    }
    if let Some(error) = &shaped.error {
        put("error", json!(error));
    }
    if let Some(workdir) = &facts.workdir {
        put("workdir", json!(line(workdir, 200)));
    }
    if let Some(user) = &facts.user {
        put("run_as", json!(line(user, 64)));
    }
    if !files.is_empty() {
        put("files", json!(files));
    }
    if shaped.outcome == Outcome::Failed {
        // Until the same command succeeds, this is open work.
        put("open", json!(true));
    }
    metadata
}

/// At most this many characters, with a mark if text was removed.
pub(crate) fn cut(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// One printable line of a name from inside the sandbox.
fn line(text: &str, characters_max: usize) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(&flat, characters_max)
}

fn tail(text: &str, bytes_max: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
