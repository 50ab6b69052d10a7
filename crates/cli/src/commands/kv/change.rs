//! `burrow kv set|rm|incr|cas|batch`.

use burrow_api::ErrorCode;
use burrow_api::memory::{KvIncrement, KvItem, KvOperation, KvSet};
use burrow_client::ClientError;
use serde_json::Value;

use super::CODE_CONFLICT;
use crate::commands::memory::arguments::json_or_text;
use crate::commands::memory::flags::WriteFlags;
use crate::commands::memory::input;
use crate::commands::prelude::*;

/// Set a key, and print its version
///
/// A value that is valid JSON is stored as JSON, anything else as text.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow kv set web plan/step 3
  burrow kv set web plan '{\"step\": 3, \"of\": 7}'
  burrow kv set web notes --file notes.md --text
  burrow kv set web lock/build \"$$\" --ttl 5m --if-absent || echo 'another build is running'")]
pub(crate) struct SetArgs {
    #[command(flatten)]
    target: WriteFlags,
    #[arg(id = "name", value_name = "KEY")]
    key: String,
    #[command(flatten)]
    value: ValueArgs,
    /// Only if the key does not exist
    #[arg(long)]
    if_absent: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ValueArgs {
    /// Value; `-` for standard input
    #[arg(conflicts_with = "file", allow_hyphen_values = true)]
    value: Option<String>,
    /// File with the value; `-` for standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Store it as text, even if it is valid JSON
    #[arg(long)]
    text: bool,
    /// Expire after this time, e.g. 5m
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    ttl: Option<Duration>,
}

impl ValueArgs {
    fn read(&self, what: impl Fn() -> String) -> Result<Value, Stop> {
        let source = match (&self.value, &self.file) {
            (Some(value), _) if value != "-" => value.clone(),
            (None, Some(file)) => input::read(file, what)?,
            (Some(_), _) => input::read(std::path::Path::new("-"), what)?,
            (None, None) => {
                return fail(
                    format!("{}: no value was given", what()),
                    "give it as an argument, with --file FILE, or on standard input with `-`",
                );
            }
        };
        Ok(if self.text { Value::String(source) } else { json_or_text(&source) })
    }
}

/// Set a key only if its version is unchanged (compare and set)
///
/// Prints the new version. The exit code is 3 if the version has changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  version=$(burrow kv get web plan/step --json | jq .version)
  burrow kv cas web plan/step 4 --version $version
  burrow kv cas web owner me --absent")]
pub(crate) struct CasArgs {
    #[command(flatten)]
    target: WriteFlags,
    #[arg(id = "name", value_name = "KEY")]
    key: String,
    #[command(flatten)]
    value: ValueArgs,
    /// Expected version
    #[arg(long, required_unless_present = "absent")]
    version: Option<u64>,
    /// Expect that the key does not exist
    #[arg(long, conflicts_with = "version")]
    absent: bool,
    #[command(flatten)]
    format: Format,
}

/// Remove keys; missing keys are ignored
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    target: WriteFlags,
    #[arg(id = "names", required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// Only if the key has this version
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

/// Add to a number, and print the result
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow kv incr web counters/deploys
  burrow kv incr web budget --by -2.5")]
pub(crate) struct IncrArgs {
    #[command(flatten)]
    target: WriteFlags,
    #[arg(id = "name", value_name = "KEY")]
    key: String,
    /// Amount to add; may be negative
    #[arg(long, default_value = "1", value_parser = number, allow_hyphen_values = true)]
    by: serde_json::Number,
    /// Expire after this time, e.g. 5m
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    ttl: Option<Duration>,
    #[command(flatten)]
    format: Format,
}

/// Apply several changes atomically
///
/// The changes are JSON Lines: {\"op\":\"set\",\"key\":\"a\",\"value\":1}, {\"op\":\"delete\",\"key\":\"b\"},
/// {\"op\":\"increment\",\"key\":\"c\"}, {\"op\":\"check\",\"key\":\"d\",\"if_version\":7}. The exit code is 3 if a
/// condition does not hold.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow kv batch web --file changes.jsonl
  printf '%s\\n' '{\"op\":\"set\",\"key\":\"a\",\"value\":1}' '{\"op\":\"delete\",\"key\":\"b\"}' | burrow kv batch web")]
pub(crate) struct BatchArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// File with the changes; standard input by default
    #[arg(long, value_name = "FILE", default_value = "-", hide_default_value = true, value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    format: Format,
}

fn number(text: &str) -> Result<serde_json::Number, String> {
    serde_json::from_str(text).map_err(|_| format!("`{text}` is not a number"))
}

/// Maps a failed condition to its own exit code, so that scripts can distinguish it from other failures.
trait OrConflict<T> {
    fn or_conflict(self, what: impl FnOnce() -> String) -> Result<T, Stop>;
}

impl<T> OrConflict<T> for Result<T, ClientError> {
    fn or_conflict(self, what: impl FnOnce() -> String) -> Result<T, Stop> {
        let conflict = self.as_ref().is_err_and(|error| error.code() == Some(ErrorCode::Conflict));
        let result = self.or_fail(what);
        if conflict { result.map_err(|stop| stop.with_code(CODE_CONFLICT)) } else { result }
    }
}

pub(super) async fn set(ctx: &Context, args: SetArgs) -> Result<(), Stop> {
    store(ctx, &args.target, &args.key, &args.value, (None, args.if_absent), args.format).await
}

pub(super) async fn compare_and_set(ctx: &Context, args: CasArgs) -> Result<(), Stop> {
    store(ctx, &args.target, &args.key, &args.value, (args.version, args.absent), args.format).await
}

/// `condition`: the expected version, and whether the key must not exist.
async fn store(
    ctx: &Context,
    target: &WriteFlags,
    key: &str,
    value: &ValueArgs,
    condition: (Option<u64>, bool),
    format: Format,
) -> Result<(), Stop> {
    let what = || format!("could not set key `{key}` of `{}`", target.of);
    let (if_version, if_absent) = condition;
    let ttl_seconds = value.ttl.map(|ttl| ttl.as_secs());
    let request = KvSet { value: value.read(what)?, ttl_seconds, if_version, if_absent };
    let item = target.memory(ctx)?.kv_set(key, &request).await.or_conflict(what)?;
    format.show(&item, |item| print::line(item.version.to_string()))
}

pub(super) async fn remove(ctx: &Context, args: RmArgs) -> Result<(), Stop> {
    let memory = args.target.memory(ctx)?;
    for key in &args.keys {
        let what = || format!("could not remove key `{key}` of `{}`", args.target.of);
        memory.kv_delete(key, args.if_version).await.or_conflict(what)?;
    }
    Ok(())
}

pub(super) async fn increment(ctx: &Context, args: IncrArgs) -> Result<(), Stop> {
    let what = || format!("could not add to key `{}` of `{}`", args.key, args.target.of);
    let request = KvIncrement {
        key: args.key.clone(),
        by: args.by.clone(),
        ttl_seconds: args.ttl.map(|ttl| ttl.as_secs()),
    };
    let item = args.target.memory(ctx)?.kv_increment(&request).await.or_fail(what)?;
    args.format.show(&item, |item| super::show::value(&item.value))
}

pub(super) async fn batch(ctx: &Context, args: BatchArgs) -> Result<(), Stop> {
    let what = || format!("could not change the keys of `{}`", args.target.of);
    let ops = operations(&input::read(&args.file, what)?).map_err(|(line, why)| {
        Failure::new(format!("{}: line {line} is not a valid change: {why}", what()))
            .hint("a line is an object such as {\"op\":\"set\",\"key\":\"a\",\"value\":1}")
    })?;
    let changed = args.target.memory(ctx)?.kv_batch(ops).await.or_conflict(what)?;
    let version =
        |item: &Option<KvItem>| item.as_ref().map_or("-".to_owned(), |item| item.version.to_string());
    args.format.show(&changed.items, |items| print::lines(items.iter().map(version)))
}

fn operations(text: &str) -> Result<Vec<KvOperation>, (usize, String)> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| serde_json::from_str(line).map_err(|error| (at + 1, error.to_string())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_one_change_per_line() {
        let ops = operations(
            "{\"op\":\"set\",\"key\":\"a\",\"value\":1}\n\n{\"op\":\"check\",\"key\":\"b\",\"if_version\":7}\n",
        );
        assert_eq!(ops.unwrap().len(), 2);
        let (line, why) = operations("\n{\"op\":\"add\"}").unwrap_err();
        assert!(line == 2 && why.contains("add"), "{line}: {why}");
    }

    #[test]
    fn an_amount_may_be_fractional_or_negative() {
        for good in ["1", "-2", "2.5", "-0.5"] {
            assert!(number(good).is_ok(), "{good}");
        }
        for bad in ["", "x", "1x", "NaN"] {
            assert!(number(bad).is_err(), "{bad}");
        }
    }
}
