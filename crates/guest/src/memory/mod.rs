//! `burrow-memory`: the command with which programs inside use memory.
//!
//! This is the agent's own binary under another name. It sends HTTP requests to the sandbox's own listener, at the
//! gateway's address, where it needs no key: a request that arrives there is from this sandbox. It stores nothing
//! itself.
//!
//! Messages go to standard error, results to standard output. Stored texts are shown without control characters,
//! since a terminal would interpret them.

mod arguments;
mod client;
mod show;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use serde_json::{Value, json};

use arguments::Arguments;
use client::{Client, Response, Upload};

/// The name of the command inside.
pub const NAME: &str = "burrow-memory";

/// The longest text read from standard input: more than an entry may have, so that the daemon reports the limit.
const INPUT_BYTES_MAX: u64 = 1 << 20;

const USAGE: &str = "\
Use this sandbox's memory.

Usage: burrow-memory [--json] COMMAND …

  add [--kind WORD] [--importance 0..1] [--session NAME] [--source TEXT] [--key KEY] TEXT… | -
  search [--limit N] QUERY…          search for entries, best matches first
  context [--budget TOKENS] [QUERY…] print a block for a prompt; without a query, recent context
  ls [--limit N]                     list the latest entries
  get ID | forget ID
  kv get KEY | set KEY VALUE [--ttl SECONDS] | rm KEY | ls [PREFIX] | incr KEY [BY]
  skill ls | search QUERY… | show NAME
  artifact put NAME FILE | get NAME [FILE] | ls [PREFIX]
  stats

  If TEXT is `-`, it is read from standard input. If FILE is `-`, it is standard input or output.
  VALUE is JSON if it is valid JSON, otherwise a string.
  --json prints the response as JSON.

No key is required. Only this sandbox's own space and the attached spaces are accessible.
";

/// Why the command failed.
#[derive(Debug)]
enum Failure {
    /// Invalid arguments.
    Usage(String),
    /// The request failed.
    Failed(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Runs the command with its arguments.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (text, code) = match attempt(arguments) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => (format!("{text}\nSee `{NAME} --help`."), 2),
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
    let client = Client::of_this_sandbox();
    let command = arguments.word("a command")?;
    let shown = match command.as_str() {
        "add" => add(&client, &mut arguments)?,
        "search" => search(&client, &mut arguments)?,
        "context" => context(&client, &mut arguments)?,
        "ls" => list(&client, &mut arguments)?,
        "get" => {
            Output::Entry(client.get(&format!("entries/{}", client::escape(&arguments.word("an id")?)))?)
        }
        "forget" => {
            Output::Nothing(client.delete(&format!("entries/{}", client::escape(&arguments.word("an id")?)))?)
        }
        "kv" => kv(&client, &mut arguments)?,
        "skill" => skill(&client, &mut arguments)?,
        "artifact" => artifact(&client, &mut arguments)?,
        "stats" => Output::Json(client.get("")?),
        other => return Err(Failure::Usage(format!("unknown command `{other}`"))),
    };
    arguments.end()?;
    print(&shown, as_json)
}

/// A result, and how it is shown.
enum Output {
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
    /// Already printed.
    Done,
}

fn print(shown: &Output, as_json: bool) -> Result<(), Failure> {
    let (value, text) = match shown {
        Output::Done => return Ok(()),
        Output::Nothing(value) => (value, String::new()),
        Output::Added(value) => (value, show::added(value)),
        Output::Entry(value) => (value, show::entry(value)),
        Output::Entries(value) => (value, show::entries(value)),
        Output::Hits(value) => (value, show::hits(value)),
        Output::Text(value) => (value, show::text(value)),
        Output::Item(value) => (value, show::item(value)),
        Output::Items(value) => (value, show::items(value)),
        Output::Names(value) => (value, show::names(value)),
        Output::Json(value) => (value, format!("{value:#}\n")),
    };
    let text = if as_json { format!("{value}\n") } else { text };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

fn add(client: &Client, arguments: &mut Arguments) -> Result<Output, Failure> {
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
    Ok(Output::Added(client.post("entries", &entry)?))
}

fn search(client: &Client, arguments: &mut Arguments) -> Result<Output, Failure> {
    let mut request = json!({});
    if let Some(limit) = arguments.number("limit")? {
        request["limit"] = json!(limit);
    }
    request["query"] = Value::String(text_or_input(arguments.rest())?);
    Ok(Output::Hits(client.post("search", &request)?))
}

fn context(client: &Client, arguments: &mut Arguments) -> Result<Output, Failure> {
    let mut request = json!({});
    if let Some(budget) = arguments.number("budget")? {
        request["budget_tokens"] = json!(budget);
    }
    let words = arguments.rest();
    if !words.is_empty() {
        request["query"] = Value::String(text_or_input(words)?);
    }
    Ok(Output::Text(client.post("context", &request)?))
}

fn list(client: &Client, arguments: &mut Arguments) -> Result<Output, Failure> {
    let limit = arguments.number("limit")?.unwrap_or(20);
    Ok(Output::Entries(client.get(&format!("entries?limit={limit}"))?))
}

fn kv(client: &Client, arguments: &mut Arguments) -> Result<Output, Failure> {
    let command = arguments.word("`get`, `set`, `rm`, `ls` or `incr`")?;
    let place = |key: &str| format!("kv/{}", client::escape(key));
    match command.as_str() {
        "get" => Ok(Output::Item(client.get(&place(&arguments.word("a key")?))?)),
        "set" => {
            let key = arguments.word("a key")?;
            let value = text_or_input(vec![arguments.word("a value")?])?;
            let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
            let mut request = json!({ "value": value });
            if let Some(seconds) = arguments.number("ttl")? {
                request["ttl_seconds"] = json!(seconds);
            }
            Ok(Output::Nothing(client.put(&place(&key), &request)?))
        }
        "rm" => Ok(Output::Nothing(client.delete(&place(&arguments.word("a key")?))?)),
        "ls" => {
            let prefix = arguments.next().unwrap_or_default();
            Ok(Output::Items(client.get(&format!("kv?prefix={}", client::escape_query(&prefix)))?))
        }
        "incr" => {
            let key = arguments.word("a key")?;
            let by = arguments.next().unwrap_or_else(|| "1".to_owned());
            let by: serde_json::Number =
                by.parse().map_err(|_| Failure::Usage(format!("`{by}` is not a number")))?;
            Ok(Output::Item(client.post("kv-increment", &json!({ "key": key, "by": by }))?))
        }
        other => Err(Failure::Usage(format!("unknown command `kv {other}`"))),
    }
}

fn skill(client: &Client, arguments: &mut Arguments) -> Result<Output, Failure> {
    let command = arguments.word("`ls`, `search` or `show`")?;
    match command.as_str() {
        "ls" => Ok(Output::Names(client.get("skills")?)),
        "search" => {
            let query = text_or_input(arguments.rest())?;
            Ok(Output::Names(client.post("skills/search", &json!({ "query": query }))?))
        }
        "show" => {
            Ok(Output::Json(client.get(&format!("skills/{}", client::escape(&arguments.word("a name")?)))?))
        }
        other => Err(Failure::Usage(format!("unknown command `skill {other}`"))),
    }
}

fn artifact(client: &Client, arguments: &mut Arguments) -> Result<Output, Failure> {
    let command = arguments.word("`put`, `get` or `ls`")?;
    let place = |name: &str| format!("artifacts/{}", client::escape(name));
    match command.as_str() {
        "put" => {
            let (name, file) = (arguments.word("a name")?, arguments.word("a file")?);
            let body = if file == "-" {
                Upload::input()
            } else {
                Upload::file(File::open(&file).map_err(of(&file))?)?
            };
            Ok(Output::Nothing(client.upload(&place(&name), body)?))
        }
        "get" => {
            let name = arguments.word("a name")?;
            let file = arguments.next().unwrap_or_else(|| "-".to_owned());
            let answer = client.download(&place(&name))?;
            save(answer, &file)?;
            Ok(Output::Done)
        }
        "ls" => {
            let prefix = arguments.next().unwrap_or_default();
            Ok(Output::Names(client.get(&format!("artifacts?prefix={}", client::escape_query(&prefix)))?))
        }
        other => Err(Failure::Usage(format!("unknown command `artifact {other}`"))),
    }
}

fn save(mut answer: Response, file: &str) -> Result<(), Failure> {
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

/// The words given as arguments, or standard input if they are `-`.
fn text_or_input(words: Vec<String>) -> Result<String, Failure> {
    match words.as_slice() {
        [] => Err(Failure::Usage("a text is missing".to_owned())),
        [only] if only == "-" => {
            let mut bytes = Vec::new();
            io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > INPUT_BYTES_MAX {
                return Err(Failure::Failed(
                    "the text is too long for an entry; `artifact put` stores files of any size".to_owned(),
                ));
            }
            let text = String::from_utf8(bytes).map_err(|_| {
                Failure::Failed("the text is not UTF-8; `artifact put` stores any bytes".to_owned())
            })?;
            Ok(text.trim_end_matches('\n').to_owned())
        }
        [..] => Ok(words.join(" ")),
    }
}
