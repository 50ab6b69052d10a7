//! `burrow audit ls`, `burrow audit tail`.

use std::time::Duration;

use burrow_api::AuditEvent;
use burrow_client::{AuditQuery, PageQuery};
use clap::Args;

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::parse;
use crate::print::escape::escape;
use crate::print::{self, Format, quantity, table};

/// Number of events shown by default.
const EVENTS: u32 = 50;

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Only events of this sandbox
    #[arg(long)]
    sandbox: Option<String>,
    /// Only this action, or actions with this prefix, such as `egress`
    #[arg(long)]
    action: Option<String>,
    /// Only events with this outcome: allowed, denied, done, failed
    #[arg(long)]
    outcome: Option<String>,
    /// Only events caused by this key (id or name), by `sandbox` or by `daemon`
    #[arg(long)]
    actor: Option<String>,
    /// Only events about this secret
    #[arg(long)]
    secret: Option<String>,
    /// Only events newer than this, e.g. 2h
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_positive)]
    since: Option<Duration>,
    /// Only events older than this
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_positive)]
    until: Option<Duration>,
    /// Maximum number of events
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = EVENTS, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct TailArgs {
    /// Follow new events
    #[arg(short = 'f', long)]
    follow: bool,
    /// Only events of this sandbox
    #[arg(long)]
    sandbox: Option<String>,
    /// Only this action, or actions with this prefix
    #[arg(long)]
    action: Option<String>,
    /// Only events with this outcome
    #[arg(long)]
    outcome: Option<String>,
    /// Number of newest events to show
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    lines: u32,
    #[command(flatten)]
    format: Format,
}

fn what() -> String {
    "could not read the audit log".to_owned()
}

pub(super) async fn ls(ctx: &Context, args: LsArgs) -> Result<(), Stop> {
    let ago = |duration: Duration| {
        quantity::now_ms().saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    };
    let query = AuditQuery {
        sandbox: args.sandbox,
        action: args.action,
        outcome: args.outcome,
        actor: args.actor,
        secret: args.secret,
        since_ms: args.since.map(ago),
        until_ms: args.until.map(ago),
    };
    let client = ctx.client()?;
    let (mut events, mut cursor) = (Vec::new(), None);
    loop {
        let left = args.limit - u32::try_from(events.len()).unwrap_or(args.limit);
        let page = PageQuery { cursor, limit: Some(left.min(burrow_api::defaults::PAGE_LIMIT_MAX)) };
        let found = client.audit(&query, &page).await.or_fail(what)?;
        events.extend(found.items);
        cursor = found.next_cursor;
        if cursor.is_none() || events.len() >= args.limit as usize {
            break;
        }
    }
    if args.format.json {
        return print::json::pretty(&events);
    }
    let rows: Vec<_> = events.iter().map(row).collect();
    table::print(&["INDEX", "TIME", "ACTION", "OUTCOME", "WHO", "SANDBOX", "WHAT"], &rows)
}

pub(super) async fn tail(ctx: &Context, args: TailArgs) -> Result<(), Stop> {
    let query = AuditQuery {
        sandbox: args.sandbox,
        action: args.action,
        outcome: args.outcome,
        ..AuditQuery::default()
    };
    let client = ctx.client()?;
    let show = |event: &AuditEvent| {
        if args.format.json { print::json::compact(event) } else { print::line(&line(event)) }
    };
    // Subscribed before the newest events are read, so that no event is missed in between.
    let size = client.audit_checkpoint().await.or_fail(what)?.size;
    let mut from = size;
    if args.lines > 0 {
        let page = PageQuery { cursor: None, limit: Some(args.lines) };
        let newest = client.audit(&query, &page).await.or_fail(what)?.items;
        for event in newest.iter().rev() {
            show(event)?;
            from = from.max(event.index + 1);
        }
    }
    if !args.follow {
        return Ok(());
    }
    let mut events = client.follow_audit(query, Some(from)).await.or_fail(what)?;
    loop {
        show(&events.next().await.or_fail(what)?)?;
    }
}

fn row(event: &AuditEvent) -> Vec<String> {
    vec![
        event.index.to_string(),
        quantity::timestamp(event.at_ms),
        event.action.clone(),
        event.outcome.clone(),
        event.actor.clone().unwrap_or_default(),
        event.sandbox_id.clone().unwrap_or_default(),
        about(event),
    ]
}

fn line(event: &AuditEvent) -> String {
    let mut text = format!("{:>6}", event.index);
    for part in &row(event)[1..] {
        if !part.is_empty() {
            text.push_str("  ");
            text.push_str(&escape(part));
        }
    }
    text
}

/// The subject of an event: its target, secret, rule and reason.
fn about(event: &AuditEvent) -> String {
    let mut parts = Vec::new();
    match (&event.host, event.port) {
        (Some(host), Some(port)) => parts.push(format!("{host}:{port}")),
        (Some(host), None) => parts.push(host.clone()),
        (None, _) => {}
    }
    parts.extend(event.method.clone());
    parts.extend(event.path.clone());
    parts.extend(event.status.map(|status| status.to_string()));
    parts.extend(event.secret.as_ref().map(|name| format!("secret {name}")));
    parts.extend(event.rule.as_ref().map(|rule| format!("rule {rule}")));
    parts.extend(event.target.clone());
    parts.extend(event.reason.as_ref().map(|reason| format!("({reason})")));
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_printed_on_one_line() {
        let event: AuditEvent = serde_json::from_value(serde_json::json!({
            "index": 7, "at_ms": 0, "action": "egress.inject", "outcome": "allowed", "actor": "sandbox",
            "host": "api.example", "port": 443, "method": "POST", "path": "/v1/x\n", "secret": "openai", "rule": "r1",
        }))
        .unwrap();
        assert_eq!(
            line(&event),
            r"     7  1970-01-01T00:00:00Z  egress.inject  allowed  sandbox  api.example:443 POST /v1/x\n secret openai rule r1"
        );
    }
}
