//! `burrow kv get|ls|history`.

use burrow_api::memory::{KvItem, KvVersion};
use serde_json::Value;

use super::CODE_ABSENT;
use crate::commands::memory::flags::ReadFlags;
use crate::commands::memory::show::{date, excerpt, text_width, verbatim};
use crate::commands::pages;
use crate::commands::prelude::*;

/// Print the value of a key
///
/// Text is printed as it is, anything else as JSON. The exit code is 4 if the key does not exist.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow kv get web plan/step
  burrow kv get web plan/step --as-of 2h
  burrow kv get web plan/step --json | jq .version")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    target: ReadFlags,
    #[arg(id = "name", value_name = "KEY")]
    key: String,
    #[command(flatten)]
    format: Format,
}

/// List keys, by prefix
#[derive(Debug, Args)]
#[command(
    visible_alias = "list",
    after_help = "\
Examples:
  burrow kv ls web
  burrow kv ls web plan/ --json
  burrow kv rm web $(burrow kv ls web tmp/ -q)"
)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    target: ReadFlags,
    /// Only keys that start with this prefix
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Print keys only
    #[arg(short = 'q', long, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    format: Format,
}

/// Show every version of a key, oldest first
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    target: ReadFlags,
    #[arg(id = "name", value_name = "KEY")]
    key: String,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn get(ctx: &Context, args: GetArgs) -> Result<(), Stop> {
    let what = || format!("could not read key `{}` of `{}`", args.key, args.target.of);
    let item = args.target.memory(ctx)?.kv_get(&args.key).await.or_fail(what)?;
    let Some(item) = item else {
        let failure =
            Failure { code: CODE_ABSENT, ..Failure::new(format!("{}: the key does not exist", what())) };
        return Err(failure.hint(format!("`burrow kv ls {}` lists the keys", args.target.of)).into());
    };
    args.format.show(&item, |item| value(&item.value))
}

/// Prints text verbatim, anything else as JSON; control characters are escaped on a terminal.
pub(super) fn value(value: &Value) -> Result<(), Stop> {
    match value {
        Value::String(text) if text.ends_with('\n') => verbatim(text),
        Value::String(text) => verbatim(&format!("{text}\n")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            print::json::compact(value)
        }
    }
}

pub(super) async fn list(ctx: &Context, args: LsArgs) -> Result<(), Stop> {
    let what = || format!("could not list the keys of `{}`", args.target.of);
    let memory = args.target.memory(ctx)?;
    let read = pages::read(usize::MAX, async |page| memory.kv_list(&args.prefix, page).await).await;
    let (items, _) = read.or_fail(what)?;
    if args.quiet {
        return print::lines(items.iter().map(|item| escape(&item.key)));
    }
    let (now_ms, width) = (quantity::now_ms(), text_width(64));
    args.format.table(&["KEY", "VERSION", "AGE", "EXPIRES", "VALUE"], &items, |item| row(item, now_ms, width))
}

fn row(item: &KvItem, now_ms: u64, width: usize) -> Vec<String> {
    vec![
        item.key.clone(),
        item.version.to_string(),
        quantity::age(item.updated_ms, now_ms),
        item.expires_ms.map(|at_ms| format!("in {}", quantity::age(now_ms, at_ms))).unwrap_or_default(),
        excerpt(&item.value.to_string(), width),
    ]
}

pub(super) async fn history(ctx: &Context, args: HistoryArgs) -> Result<(), Stop> {
    let what = || format!("could not show the history of key `{}` of `{}`", args.key, args.target.of);
    let versions = args.target.memory(ctx)?.kv_history(&args.key).await.or_fail(what)?;
    let width = text_width(32);
    args.format.table(&["VERSION", "DATE", "VALUE"], &versions, |version| version_row(version, width))
}

fn version_row(version: &KvVersion, width: usize) -> Vec<String> {
    let shown = match &version.item {
        Some(item) => excerpt(&item.value.to_string(), width),
        None => "(deleted)".to_owned(),
    };
    vec![version.version.to_string(), date(version.at_ms), shown]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_listed_with_its_version_and_its_time_left() {
        let item = KvItem {
            key: "lock/build".to_owned(),
            value: serde_json::json!({ "by": "a\u{1b}" }),
            version: 17,
            created_ms: 0,
            updated_ms: 60_000,
            expires_ms: Some(180_000),
        };
        assert_eq!(row(&item, 120_000, 40), ["lock/build", "17", "1m", "in 1m", "{\"by\":\"a\\u001b\"}"]);
    }
}
