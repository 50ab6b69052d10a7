//! `burrow memory context` and `turn`: a block for a prompt, and storing the turn afterwards.

use burrow_api::memory::{ContextBlock, ContextRequest, StoreTurn, TurnMessage};
use burrow_api::{OutputStream, defaults};

use super::flags::{FilterFlags, SearchFlags, WriteFlags};
use super::{input, show};
use crate::commands::prelude::*;
use crate::print::process_output::ProcessOutput;

/// Print a block for a prompt, made from memory, within a token budget
///
/// The block contains dates, ids and relevance, and is marked as data: stored text cannot pose as instructions. Without
/// a query and messages, it summarises recent work: the last session, open work, recent failures.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory context web 'deploy the new version' --budget 800
  burrow memory context web                                  recent work
  burrow memory context web --messages conversation.json     before a turn
  burrow memory turn web turn.json                           after it

Messages are JSON: [{\"role\": \"user\", \"content\": \"…\"}, …]")]
pub(crate) struct ContextArgs {
    #[command(flatten)]
    target: SearchFlags,
    /// Topic of the block
    query: Option<String>,
    /// File with the conversation so far, as JSON; `-` for standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    messages: Option<PathBuf>,
    /// Token budget
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

/// Store a turn of a conversation; messages that are stored already are skipped
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory turn web turn.json
  echo '[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"hello\"}]' | burrow memory turn web -")]
pub(crate) struct TurnArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// File with messages as JSON; `-` for standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    messages: PathBuf,
    /// Session; the open session by default
    #[arg(long)]
    session: Option<String>,
    /// User who asked
    #[arg(long)]
    user: Option<String>,
    /// Agent that answered
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn context(ctx: &Context, args: ContextArgs) -> Result<(), Stop> {
    let what = || format!("could not make a context from the memory of `{}`", args.target.of);
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
    let block = args.target.memory(ctx)?.context(&request).await.or_fail(what)?;
    args.format.show(&block, |block| {
        print::notes(show::missing_arms(&block.arms));
        write(block)
    })
}

/// Prints the block, with control characters escaped on a terminal: memory contains what programs in sandboxes stored. It ends
/// with a line end, unless it is empty.
fn write(block: &ContextBlock) -> Result<(), Stop> {
    if block.text.is_empty() {
        print::note("the memory contains nothing about it");
        return Ok(());
    }
    let end = if block.text.ends_with('\n') { "" } else { "\n" };
    let mut output = ProcessOutput::new(false);
    output.write(OutputStream::Stdout, format!("{}{end}", block.text).as_bytes())?;
    output.finish()
}

pub(super) async fn turn(ctx: &Context, args: TurnArgs) -> Result<(), Stop> {
    let what = || format!("could not store a turn for `{}`", args.target.of);
    let messages =
        messages(&input::read(&args.messages, what)?).map_err(|why| not_messages(&what(), &why))?;
    let turn = StoreTurn {
        messages,
        session: args.session.clone(),
        user: args.user.clone(),
        agent: args.agent.clone(),
    };
    let stored = args.target.memory(ctx)?.store_turn(&turn).await.or_fail(what)?;
    let count = quantity::count(stored.added, "message", "messages");
    let note = format!("{count} stored in session `{}`", escape(&stored.session));
    args.format.report(&stored, &stored.ids, [note])
}

/// A list of messages, or an object that contains one, like requests to models.
fn messages(text: &str) -> Result<Vec<TurnMessage>, String> {
    let mut value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some(inner) = value.get_mut("messages") {
        value = inner.take();
    }
    if !value.is_array() {
        return Err("it is not a list".to_owned());
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn not_messages(what: &str, why: &str) -> Stop {
    let failure = Failure::new(format!("{what}: invalid messages: {why}"));
    failure.hint("messages are JSON: [{\"role\": \"user\", \"content\": \"…\"}, …]").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_accepted_in_the_formats_of_models() {
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
