//! `burrow memory add`: stores one entry or many.

use std::io::{self, BufRead as _, BufReader, Read};

use burrow_api::defaults;
use burrow_api::memory::{AddedEntry, NewEntry};
use burrow_client::Memory;
use serde_json::{Map, Value};

use super::arguments;
use super::flags::WriteFlags;
use super::input;
use crate::commands::prelude::*;
use crate::transfer::input::{self as file_input, is_standard};

/// Longest line: an entry with the largest text, every byte of it escaped, and the largest metadata.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// A batch is sent when its lines have this many bytes, well below the largest body the daemon accepts.
const BATCH_BYTES: usize = 4 << 20;

/// Add an entry, and print its id
///
/// The text is stored verbatim. With --lines or --jsonl, many entries are read and sent in batches; each batch is
/// stored atomically.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory add web 'the deploy key is on db-2' --kind fact --importance 0.9
  make 2>&1 | tail -50 | burrow memory add web - --kind error --meta target=install
  burrow memory add web 'we use Postgres 16 now' --supersedes mem7h3k2m9pqx1c8r5v7y
  burrow memory add web --jsonl --file notes.jsonl        one entry per line, in the format of the API
  burrow memory add space:ops 'the pager rings at four'")]
pub(crate) struct AddArgs {
    #[command(flatten)]
    target: WriteFlags,
    #[command(flatten)]
    text: input::TextArgs,
    /// Store each line of text as an entry
    #[arg(long, conflicts_with = "jsonl")]
    lines: bool,
    /// Read each line as an entry in JSON, such as {\"text\":\"…\",\"kind\":\"fact\"}
    #[arg(long)]
    jsonl: bool,
    /// Lower-case word for the type of the entry: note, fact, decision, observation, turn, error, …
    #[arg(long, value_name = "KIND", default_value = defaults::MEMORY_KIND)]
    kind: String,
    /// Metadata; a value that is valid JSON is stored as JSON; may be repeated
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = arguments::metadata)]
    metadata: Vec<(String, Value)>,
    /// Importance, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = arguments::share)]
    importance: Option<f32>,
    /// Source of the entry
    #[arg(long)]
    source: Option<String>,
    /// Session of the entry; the open session by default
    #[arg(long)]
    session: Option<String>,
    /// User that the entry belongs to
    #[arg(long)]
    user: Option<String>,
    /// Agent that the entry belongs to
    #[arg(long)]
    agent: Option<String>,
    /// When it happened: a time, or how long ago (2h)
    #[arg(long, value_name = "WHEN", value_parser = arguments::moment)]
    at: Option<u64>,
    /// Start of its validity
    #[arg(long, value_name = "WHEN", value_parser = arguments::moment)]
    valid_from: Option<u64>,
    /// End of its validity
    #[arg(long, value_name = "WHEN", value_parser = arguments::moment)]
    valid_to: Option<u64>,
    /// Entry that this one replaces; may be repeated
    #[arg(long, value_name = "ID")]
    supersedes: Vec<String>,
    /// Artifact that belongs to the entry, by name or hash; may be repeated
    #[arg(long = "artifact", value_name = "NAME")]
    artifacts: Vec<String>,
    /// Related entry; may be repeated
    #[arg(long = "link", value_name = "ID")]
    links: Vec<String>,
    /// Idempotency key: adding again with the same word stores nothing
    #[arg(long, value_name = "WORD", conflicts_with_all = ["lines", "jsonl"])]
    once: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: AddArgs) -> Result<(), Stop> {
    let what = || format!("could not add to the memory of `{}`", args.target.of);
    let memory = args.target.memory(ctx)?;
    if args.lines || args.jsonl {
        return add_many(&memory, &args).await;
    }
    let entry = entry(&args, args.text.required(what)?);
    let added = memory.add(vec![entry]).await.or_fail(what)?;
    show(&added, args.format)
}

/// An entry from `text` and the flags.
fn entry(args: &AddArgs, text: String) -> NewEntry {
    NewEntry {
        key: args.once.clone(),
        kind: args.kind.clone(),
        metadata: args.metadata.iter().cloned().collect(),
        importance: args.importance.unwrap_or(defaults::MEMORY_IMPORTANCE),
        source: args.source.clone(),
        session: args.session.clone(),
        user: args.user.clone(),
        agent: args.agent.clone(),
        at_ms: args.at,
        valid_from_ms: args.valid_from,
        valid_to_ms: args.valid_to,
        supersedes: args.supersedes.clone(),
        artifacts: args.artifacts.clone(),
        links: args.links.clone(),
        ..NewEntry::note(text)
    }
}

fn show(added: &[AddedEntry], format: Format) -> Result<(), Stop> {
    if format.json {
        return print::json::pretty(added);
    }
    for entry in added {
        print::line(&entry.id)?;
        if let Some(older) = &entry.duplicate_of {
            print::note(format!("note: `{older}` has the same text"));
        }
    }
    Ok(())
}

async fn add_many(memory: &Memory, args: &AddArgs) -> Result<(), Stop> {
    let what = || format!("could not add to the memory of `{}`", args.target.of);
    let source = args.text.source().unwrap_or_else(|| PathBuf::from("-"));
    let mut lines =
        Lines::open(&source).or_fail(|| format!("{}: could not read `{}`", what(), source.display()))?;
    let progress = Progress::bytes("adding", lines.total);
    let mut stored = 0_usize;
    loop {
        let batch =
            lines.batch(|number, line| parse(args, line).map_err(|why| line_error(&what(), number, &why)))?;
        if batch.is_empty() {
            break;
        }
        let count = batch.len();
        let failed = || match stored {
            0 => what(),
            stored => format!("{}: {stored} entries were stored, the rest was not", what()),
        };
        let added = memory.add(batch).await.or_fail(failed)?;
        stored += count;
        progress.add(lines.take_bytes());
        // Ids are printed at once: if the connection breaks, the user knows which entries are stored.
        show(&added, args.format)?;
    }
    progress.finish();
    print::note(quantity::count(stored as u64, "entry stored", "entries stored"));
    Ok(())
}

fn line_error(what: &str, number: u64, why: &str) -> Stop {
    let failure = Failure::new(format!("{what}: line {number} is not a valid entry: {why}"));
    failure
        .hint("a line is an object such as {\"text\":\"…\",\"kind\":\"fact\"}; with --lines it is plain text")
        .into()
}

fn parse(args: &AddArgs, line: &str) -> Result<NewEntry, String> {
    if args.lines {
        return Ok(entry(args, line.to_owned()));
    }
    let mut fields: Map<String, Value> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    // Flags are defaults for the fields that a line does not have.
    let flags = serde_json::to_value(entry(args, String::new())).map_err(|error| error.to_string())?;
    if let Value::Object(flags) = flags {
        for (key, value) in flags {
            if key != "text" && !fields.contains_key(&key) {
                fields.insert(key, value);
            }
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

/// Lines of a file or of standard input, in batches.
struct Lines {
    source: BufReader<Box<dyn Read + Send>>,
    total: Option<u64>,
    number: u64,
    bytes: u64,
    over: bool,
}

impl Lines {
    fn open(file: &Path) -> io::Result<Self> {
        let total = if is_standard(file) { None } else { Some(std::fs::metadata(file)?.len()) };
        let source = BufReader::new(file_input::open(file)?);
        Ok(Self { source, total, number: 0, bytes: 0, over: false })
    }

    /// Bytes read since the last time.
    fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }

    /// The next entries, as many as fit in one request; none at the end.
    fn batch(&mut self, parse: impl Fn(u64, &str) -> Result<NewEntry, Stop>) -> Result<Vec<NewEntry>, Stop> {
        let mut batch = Vec::new();
        let mut size = 0;
        while !self.over && batch.len() < defaults::MEMORY_BATCH_MAX && size < BATCH_BYTES {
            let mut line = Vec::new();
            let count = (&mut self.source).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
            let count = count.or_fail(|| format!("could not read line {}", self.number + 1))?;
            self.over = count == 0;
            self.number += 1;
            self.bytes += count as u64;
            size += count;
            if line.len() as u64 > LINE_BYTES_MAX {
                return fail(
                    format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.number),
                    "store large texts as artifacts: `burrow artifact put`",
                );
            }
            let text = String::from_utf8(line).map_err(|_| {
                Failure::new(format!("line {} is not UTF-8", self.number))
                    .hint("convert it with `iconv -t UTF-8`")
            })?;
            let text = text.trim_end_matches(['\r', '\n']);
            if !text.trim().is_empty() {
                batch.push(parse(self.number, text)?);
            }
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_defaults_for_lines() {
        let args = parse::arguments("web --jsonl --kind fact --session s --meta a=1");
        let own = parse(&args, r#"{"text":"x","kind":"decision"}"#).unwrap();
        assert_eq!((own.kind.as_str(), own.session.as_deref()), ("decision", Some("s")));
        assert_eq!(own.metadata["a"], 1);
        let plain = parse(&parse::arguments("web --lines --kind fact"), "{\"text\":1}").unwrap();
        assert_eq!((plain.text.as_str(), plain.kind.as_str()), ("{\"text\":1}", "fact"));
        assert!(parse(&args, r#"{"txet":"x"}"#).unwrap_err().contains("txet"));
        assert!(parse(&args, "plain").is_err());
    }

    #[test]
    fn lines_are_sent_in_batches_without_empty_ones() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lines");
        let text: String = (0..2_500).map(|n| format!("line {n}\n\n")).collect();
        std::fs::write(&file, text).unwrap();
        let mut lines = Lines::open(&file).unwrap();
        let mut sizes = Vec::new();
        loop {
            let batch = lines.batch(|_, line| Ok(NewEntry::note(line.to_owned()))).unwrap();
            if batch.is_empty() {
                break;
            }
            sizes.push(batch.len());
        }
        assert_eq!(sizes, [1_000, 1_000, 500]);
        assert_eq!(lines.take_bytes(), std::fs::metadata(&file).unwrap().len());
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lines");
        std::fs::write(&file, b"good\n\xff\n").unwrap();
        let mut lines = Lines::open(&file).unwrap();
        match lines.batch(|_, line| Ok(NewEntry::note(line.to_owned()))) {
            Err(Stop::Failed(failure)) => assert_eq!(failure.to_string(), "line 2 is not UTF-8"),
            other => panic!("{other:?}"),
        }
    }
}
