//! `burrow-memory`: what a program inside uses to remember.
//!
//! The agent's own program under another name. It speaks HTTP to the sandbox's own door, at the gateway's address, where
//! it needs no key: what arrives there is this sandbox's. It knows nothing of who it is and keeps nothing.
//!
//! Texts for people go to standard error, what was asked for to standard output; what was stored is shown without the
//! control characters it may hold, since a terminal would obey them.

mod arguments;
mod door;
mod show;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use serde_json::{Value, json};

use arguments::Arguments;
use door::{Answer, Door, Upload};

/// What it is called inside.
pub const NAME: &str = "burrow-memory";

/// Longest text taken from standard input: more than any entry may have, so that the daemon says what is too long.
const INPUT_BYTES_MAX: u64 = 1 << 20;

const USAGE: &str = "\
Remember, and recall, from inside the sandbox.

Usage: burrow-memory [--json] COMMAND …

  add [--kind WORD] [--importance 0..1] [--session NAME] [--source TEXT] [--key KEY] TEXT… | -
  search [--limit N] QUERY…          what has to do with it, best first
  context [--budget TOKENS] [QUERY…] a block for a prompt; without a query, where you were
  ls [--limit N]                     what was remembered last
  get ID | forget ID
  kv get KEY | set KEY VALUE [--ttl SECONDS] | rm KEY | ls [PREFIX] | incr KEY [BY]
  skill ls | search QUERY… | show NAME
  artifact put NAME FILE | get NAME [FILE] | ls [PREFIX]
  stats

  TEXT of `-` is read from standard input, FILE of `-` is standard input or output.
  VALUE is JSON if it can be read as such, else a text.
  --json prints the answer as it came.

It needs no key, and reaches only this sandbox's memory and what it was given.
";

/// Why nothing came of it.
#[derive(Debug)]
enum Failure {
    /// It was asked for wrongly.
    Usage(String),
    /// It was refused, or could not be done.
    Failed(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Runs it with the program's own arguments.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (text, code) = match attempt(arguments) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => (format!("{text}\n`{NAME} --help` says more."), 2),
        Err(Failure::Failed(text)) => (text, 1),
    };
    let _ = writeln!(io::stderr(), "{NAME}: {text}");
    ExitCode::from(code)
}

fn attempt(given: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    let mut arguments = Arguments::parse(given).map_err(Failure::Usage)?;
    if arguments.flag("help") {
        io::stdout().write_all(USAGE.as_bytes())?;
        return Ok(());
    }
    let as_json = arguments.flag("json");
    let door = Door::of_this_sandbox();
    let command = arguments.word("a command")?;
    let shown = match command.as_str() {
        "add" => add(&door, &mut arguments)?,
        "search" => search(&door, &mut arguments)?,
        "context" => context(&door, &mut arguments)?,
        "ls" => list(&door, &mut arguments)?,
        "get" => Shown::Entry(door.get(&format!("entries/{}", door::escape(&arguments.word("an id")?)))?),
        "forget" => {
            Shown::Nothing(door.delete(&format!("entries/{}", door::escape(&arguments.word("an id")?)))?)
        }
        "kv" => kv(&door, &mut arguments)?,
        "skill" => skill(&door, &mut arguments)?,
        "artifact" => artifact(&door, &mut arguments)?,
        "stats" => Shown::Json(door.get("")?),
        other => return Err(Failure::Usage(format!("no command `{other}`"))),
    };
    arguments.end()?;
    print(&shown, as_json)
}

/// An answer, and how people are shown it.
enum Shown {
    Nothing(Value),
    Added(Value),
    Entry(Value),
    Entries(Value),
    Hits(Value),
    Text(Value),
    Item(Value),
    Items(Value),
    Names(Value),
    Json(Value),
    /// Printed already.
    Done,
}

fn print(shown: &Shown, as_json: bool) -> Result<(), Failure> {
    let (value, text) = match shown {
        Shown::Done => return Ok(()),
        Shown::Nothing(value) => (value, String::new()),
        Shown::Added(value) => (value, show::added(value)),
        Shown::Entry(value) => (value, show::entry(value)),
        Shown::Entries(value) => (value, show::entries(value)),
        Shown::Hits(value) => (value, show::hits(value)),
        Shown::Text(value) => (value, show::text(value)),
        Shown::Item(value) => (value, show::item(value)),
        Shown::Items(value) => (value, show::items(value)),
        Shown::Names(value) => (value, show::names(value)),
        Shown::Json(value) => (value, format!("{value:#}\n")),
    };
    let text = if as_json { format!("{value}\n") } else { text };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

fn add(door: &Door, arguments: &mut Arguments) -> Result<Shown, Failure> {
    let mut entry = json!({});
    for name in ["kind", "session", "source", "key"] {
        if let Some(value) = arguments.option(name)? {
            entry[name] = Value::String(value);
        }
    }
    if let Some(importance) = arguments.option("importance")? {
        let number: f64 = importance
            .parse()
            .map_err(|_| Failure::Usage(format!("`{importance}` is not a number from 0 to 1")))?;
        entry["importance"] = json!(number);
    }
    entry["text"] = Value::String(text_or_input(arguments.rest())?);
    Ok(Shown::Added(door.post("entries", &entry)?))
}

fn search(door: &Door, arguments: &mut Arguments) -> Result<Shown, Failure> {
    let mut request = json!({});
    if let Some(limit) = arguments.number("limit")? {
        request["limit"] = json!(limit);
    }
    request["query"] = Value::String(text_or_input(arguments.rest())?);
    Ok(Shown::Hits(door.post("search", &request)?))
}

fn context(door: &Door, arguments: &mut Arguments) -> Result<Shown, Failure> {
    let mut request = json!({});
    if let Some(budget) = arguments.number("budget")? {
        request["budget_tokens"] = json!(budget);
    }
    let words = arguments.rest();
    if !words.is_empty() {
        request["query"] = Value::String(text_or_input(words)?);
    }
    Ok(Shown::Text(door.post("context", &request)?))
}

fn list(door: &Door, arguments: &mut Arguments) -> Result<Shown, Failure> {
    let limit = arguments.number("limit")?.unwrap_or(20);
    Ok(Shown::Entries(door.get(&format!("entries?limit={limit}"))?))
}

fn kv(door: &Door, arguments: &mut Arguments) -> Result<Shown, Failure> {
    let command = arguments.word("`get`, `set`, `rm`, `ls` or `incr`")?;
    let place = |key: &str| format!("kv/{}", door::escape(key));
    match command.as_str() {
        "get" => Ok(Shown::Item(door.get(&place(&arguments.word("a key")?))?)),
        "set" => {
            let key = arguments.word("a key")?;
            let value = text_or_input(vec![arguments.word("a value")?])?;
            let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
            let mut request = json!({ "value": value });
            if let Some(seconds) = arguments.number("ttl")? {
                request["ttl_seconds"] = json!(seconds);
            }
            Ok(Shown::Nothing(door.put(&place(&key), &request)?))
        }
        "rm" => Ok(Shown::Nothing(door.delete(&place(&arguments.word("a key")?))?)),
        "ls" => {
            let prefix = arguments.next().unwrap_or_default();
            Ok(Shown::Items(door.get(&format!("kv?prefix={}", door::escape_query(&prefix)))?))
        }
        "incr" => {
            let key = arguments.word("a key")?;
            let by = arguments.next().unwrap_or_else(|| "1".to_owned());
            let by: serde_json::Number =
                by.parse().map_err(|_| Failure::Usage(format!("`{by}` is not a number")))?;
            Ok(Shown::Item(door.post("kv-increment", &json!({ "key": key, "by": by }))?))
        }
        other => Err(Failure::Usage(format!("no command `kv {other}`"))),
    }
}

fn skill(door: &Door, arguments: &mut Arguments) -> Result<Shown, Failure> {
    let command = arguments.word("`ls`, `search` or `show`")?;
    match command.as_str() {
        "ls" => Ok(Shown::Names(door.get("skills")?)),
        "search" => {
            let query = text_or_input(arguments.rest())?;
            Ok(Shown::Names(door.post("skills/search", &json!({ "query": query }))?))
        }
        "show" => Ok(Shown::Json(door.get(&format!("skills/{}", door::escape(&arguments.word("a name")?)))?)),
        other => Err(Failure::Usage(format!("no command `skill {other}`"))),
    }
}

fn artifact(door: &Door, arguments: &mut Arguments) -> Result<Shown, Failure> {
    let command = arguments.word("`put`, `get` or `ls`")?;
    let place = |name: &str| format!("artifacts/{}", door::escape(name));
    match command.as_str() {
        "put" => {
            let (name, file) = (arguments.word("a name")?, arguments.word("a file")?);
            let body = if file == "-" {
                Upload::input()
            } else {
                Upload::file(File::open(&file).map_err(of(&file))?)?
            };
            Ok(Shown::Nothing(door.upload(&place(&name), body)?))
        }
        "get" => {
            let name = arguments.word("a name")?;
            let file = arguments.next().unwrap_or_else(|| "-".to_owned());
            let answer = door.download(&place(&name))?;
            save(answer, &file)?;
            Ok(Shown::Done)
        }
        "ls" => {
            let prefix = arguments.next().unwrap_or_default();
            Ok(Shown::Names(door.get(&format!("artifacts?prefix={}", door::escape_query(&prefix)))?))
        }
        other => Err(Failure::Usage(format!("no command `artifact {other}`"))),
    }
}

fn save(mut answer: Answer, file: &str) -> Result<(), Failure> {
    if file == "-" {
        io::copy(&mut answer, &mut io::stdout().lock())?;
        return Ok(());
    }
    let mut into = File::create(file).map_err(of(file))?;
    io::copy(&mut answer, &mut into).map_err(of(file))?;
    into.sync_all().map_err(of(file))?;
    Ok(())
}

fn of(file: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Failed(format!("`{}`: {error}", show::plain(file)))
}

/// The words that were given, or standard input where they are `-`.
fn text_or_input(words: Vec<String>) -> Result<String, Failure> {
    match words.as_slice() {
        [] => Err(Failure::Usage("a text is missing".to_owned())),
        [only] if only == "-" => {
            let mut bytes = Vec::new();
            io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > INPUT_BYTES_MAX {
                return Err(Failure::Failed(
                    "the text is too long to remember; `artifact put` keeps files of any size".to_owned(),
                ));
            }
            let text = String::from_utf8(bytes).map_err(|_| {
                Failure::Failed("the text is not UTF-8; `artifact put` keeps any bytes".to_owned())
            })?;
            Ok(text.trim_end_matches('\n').to_owned())
        }
        [..] => Ok(words.join(" ")),
    }
}
