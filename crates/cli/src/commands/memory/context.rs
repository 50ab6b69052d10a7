//! `burrow memory context` and `turn`: a block for a prompt, and what to remember after it.

use std::path::PathBuf;

use burrow_api::defaults;
use burrow_api::memory::{ContextBlock, ContextRequest, StoreTurn, TurnMessage};
use clap::Args;

use super::flags::{FilterFlags, LookFlags, WriteFlags};
use super::{input, show};
use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print::{self, Format, quantity};

/// Print a block for a prompt: what is remembered, within a budget of tokens
///
/// The block is dated, with ids and relevance, and fenced as data: stored text cannot pose as instructions. Without a
/// query and messages it answers where you were: the last session, open work, recent failures.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory context web 'deploy the new version' --budget 800
  burrow memory context web                                  where was I
  burrow memory context web --messages conversation.json     before a turn
  burrow memory turn web turn.json                           after it

Messages are JSON: [{\"role\": \"user\", \"content\": \"…\"}, …]")]
pub(super) struct ContextArgs {
    #[command(flatten)]
    whose: LookFlags,
    /// What it should be about
    query: Option<String>,
    /// The conversation so far, as JSON; `-` for standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    messages: Option<PathBuf>,
    /// Tokens it may take
    #[arg(long, value_name = "TOKENS", default_value_t = defaults::CONTEXT_TOKENS,
        value_parser = clap::value_parser!(u32).range(i64::from(defaults::CONTEXT_TOKENS_MIN)..=i64::from(defaults::CONTEXT_TOKENS_MAX)))]
    budget: u32,
    /// Only from this space: `own`, or an attached one; may be repeated
    #[arg(long = "space", value_name = "SPACE")]
    spaces: Vec<String>,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    format: Format,
}

/// Remember a turn of a conversation; what was stored just before is not stored again
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory turn web turn.json
  echo '[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"hello\"}]' | burrow memory turn web -")]
pub(super) struct TurnArgs {
    #[command(flatten)]
    whose: WriteFlags,
    /// Messages as JSON; `-` for standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    messages: PathBuf,
    /// The session; the open one when not given
    #[arg(long)]
    session: Option<String>,
    /// Who asked
    #[arg(long)]
    user: Option<String>,
    /// Who answered
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn context(ctx: &Context, args: ContextArgs) -> Result<(), Stop> {
    let what = || format!("could not make a context of the memory of `{}`", args.whose.of);
    let messages = match &args.messages {
        Some(file) => messages(&input::read(file, what)?).map_err(|why| not_messages(&what(), &why))?,
        None => Vec::new(),
    };
    let filter = args.filter.given();
    let request = ContextRequest {
        query: args.query,
        messages,
        budget_tokens: Some(args.budget),
        session: filter.as_ref().and_then(|filter| filter.session.clone()),
        filter,
        spaces: args.spaces,
    };
    let block = args.whose.memory(ctx)?.context(&request).await.or_fail(what)?;
    if args.format.json {
        return print::json::pretty(&block);
    }
    for line in show::missing_arms(&block.arms) {
        print::note(&line);
    }
    write(&block)
}

/// Raw: the daemon has made it harmless. It ends with a line end whatever it holds, and is nothing when there is nothing.
fn write(block: &ContextBlock) -> Result<(), Stop> {
    if block.text.is_empty() {
        print::note("nothing is remembered about it");
        return Ok(());
    }
    let end = if block.text.ends_with('\n') { "" } else { "\n" };
    print::data(&format!("{}{end}", block.text))
}

pub(super) async fn turn(ctx: &Context, args: TurnArgs) -> Result<(), Stop> {
    let what = || format!("could not remember a turn for `{}`", args.whose.of);
    let messages =
        messages(&input::read(&args.messages, what)?).map_err(|why| not_messages(&what(), &why))?;
    let turn = StoreTurn {
        messages,
        session: args.session.clone(),
        user: args.user.clone(),
        agent: args.agent.clone(),
    };
    let stored = args.whose.memory(ctx)?.store_turn(&turn).await.or_fail(what)?;
    if args.format.json {
        return print::json::pretty(&stored);
    }
    for id in &stored.ids {
        print::line(id)?;
    }
    let count = quantity::count(usize::try_from(stored.added).unwrap_or(usize::MAX), "message", "messages");
    print::note(&format!("{count} stored in session `{}`", crate::print::escape::escape(&stored.session)));
    Ok(())
}

/// A list of messages, or an object that holds one, as requests to models do.
fn messages(text: &str) -> Result<Vec<TurnMessage>, String> {
    let mut value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some(inner) = value.get_mut("messages") {
        value = inner.take();
    }
    if !value.is_array() {
        return Err("it is no list".to_owned());
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn not_messages(what: &str, why: &str) -> Stop {
    let failure = Failure::new(format!("{what}: these are no messages: {why}"));
    failure.hint("messages are JSON: [{\"role\": \"user\", \"content\": \"…\"}, …]").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_understood_as_models_take_them() {
        let plain = messages(r#"[{"role":"user","content":"hi"}]"#).unwrap();
        assert_eq!(plain, [TurnMessage::text("user", "hi")]);
        let wrapped = messages(
            r#"{"model":"m","messages":[{"role":"assistant","content":[{"type":"text","text":"a"}],"tool_calls":[]},
                {"role":"tool"}]}"#,
        )
        .unwrap();
        assert_eq!(wrapped.len(), 2);
        assert!(wrapped[0].more.contains_key("tool_calls"), "what a model takes is passed on as it is");
        for bad in ["", "{}", "[{\"content\":\"x\"}]", "\"x\""] {
            assert!(messages(bad).is_err(), "{bad}");
        }
    }
}
