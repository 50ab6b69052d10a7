//! `burrow audit ls`, `burrow audit tail`.

use burrow_api::AuditEvent;
use burrow_client::{AuditQuery, PageQuery};

use crate::commands::pages;
use crate::commands::prelude::*;

/// Number of events shown by default.
const EVENTS: u32 = 50;

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
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
pub(crate) struct TailArgs {
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

const WHAT: &str = "could not read the audit log";

pub(super) async fn ls(ctx: &Context, args: LsArgs) -> Result<(), Stop> {
    let ago = |duration: Duration| quantity::now_ms().saturating_sub(quantity::millis(duration));
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
    let read = pages::read(args.limit as usize, async |page| client.audit(&query, page).await).await;
    let (events, _) = read.or_fail(WHAT)?;
    args.format.table(&["INDEX", "TIME", "ACTION", "OUTCOME", "WHO", "SANDBOX", "WHAT"], &events, row)
}

pub(super) async fn tail(ctx: &Context, args: TailArgs) -> Result<(), Stop> {
    let query = AuditQuery {
        sandbox: args.sandbox,
        action: args.action,
        outcome: args.outcome,
        ..AuditQuery::default()
    };
    let client = ctx.client()?;
    let show = |event: &AuditEvent| args.format.line(event, line);
    // Subscribed before the newest events are read, so that no event is missed in between.
    let size = client.audit_checkpoint().await.or_fail(WHAT)?.size;
    let mut from = size;
    if args.lines > 0 {
        let page = PageQuery { cursor: None, limit: Some(args.lines) };
        let newest = client.audit(&query, &page).await.or_fail(WHAT)?.items;
        for event in newest.iter().rev() {
            show(event)?;
            from = from.max(event.index + 1);
        }
    }
    if !args.follow {
        return Ok(());
    }
    let mut events = client.follow_audit(query, Some(from)).await.or_fail(WHAT)?;
    loop {
        show(&events.next().await.or_fail(WHAT)?)?;
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
