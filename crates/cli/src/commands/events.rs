//! `burrow events`: past and new events of sandboxes.

use burrow_api::Event;
use burrow_client::EventQuery;

use crate::commands::prelude::*;

/// Show events of sandboxes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow events
  burrow events -f --sandbox web
  burrow events -f --json --since 120 | jq .kind")]
pub(crate) struct EventsArgs {
    /// Follow new events
    #[arg(short = 'f', long)]
    follow: bool,
    /// Only events after this sequence number
    #[arg(long, value_name = "SEQUENCE")]
    since: Option<u64>,
    /// Only events of this sandbox
    #[arg(long)]
    sandbox: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: EventsArgs) -> Result<(), Stop> {
    let what = "could not read the events";
    let query = EventQuery { since: args.since, follow: args.follow, sandbox: args.sandbox };
    let mut events = ctx.client()?.events(query).await.or_fail(what)?;
    while let Some(event) = events.next().await.or_fail(what)? {
        args.format.line(&event, line)?;
    }
    Ok(())
}

fn line(event: &Event) -> String {
    let mut text = format!("{:>6}  {}  {}", event.seq, quantity::timestamp(event.at_ms), escape(&event.kind));
    for part in [&event.sandbox_id, &event.exec_id].into_iter().flatten() {
        text.push_str("  ");
        text.push_str(&escape(part));
    }
    let empty = event.detail.is_null() || event.detail.as_object().is_some_and(serde_json::Map::is_empty);
    if !empty {
        text.push_str("  ");
        text.push_str(&escape(&event.detail.to_string()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_printed_on_one_line() {
        let event = Event {
            seq: 7,
            at_ms: 0,
            kind: "exec.started".to_owned(),
            sandbox_id: Some("sbxabc".to_owned()),
            exec_id: None,
            detail: serde_json::json!({ "argv": ["a\nb"] }),
        };
        assert_eq!(line(&event), r#"     7  1970-01-01T00:00:00Z  exec.started  sbxabc  {"argv":["a\nb"]}"#);
    }
}
