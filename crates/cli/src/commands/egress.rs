//! `burrow egress`: what a sandbox may reach, what it asked for, and why something is or is not let through.

use burrow_api::{EgressEntry, EgressQuestion, EgressStatus, EgressVerdict, UpdateNetwork, UpdateSandbox};
use burrow_client::{Client, EgressLogQuery, PageQuery};
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print::escape::escape;
use crate::print::{self, Format, quantity, table};

/// Entries of a log shown when nobody says how many.
const LINES: u32 = 50;

/// What sandboxes may reach on the network, and what they tried
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow egress allow web '*.example.com' tcp://db.example.com:5432
  burrow egress log web --denied -f
  burrow egress explain web https://example.com/x
  burrow egress test web example.com:443")]
pub(crate) struct EgressArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show what it asked for, oldest first
    Log {
        sandbox: String,
        /// Go on as it asks
        #[arg(short = 'f', long)]
        follow: bool,
        /// Only what was not let through
        #[arg(long)]
        denied: bool,
        /// This many of the newest entries
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = LINES, value_parser = clap::value_parser!(u32).range(1..=1000))]
        lines: u32,
        #[command(flatten)]
        format: Format,
    },
    /// Say what would happen to a connection, and which rule decides
    Explain {
        sandbox: String,
        /// `https://host/path`, `tcp://host:port`, `host:port` or `host`
        target: String,
        #[command(flatten)]
        format: Format,
    },
    /// Look a host up and connect to it, as the sandbox's connection would be
    Test {
        sandbox: String,
        /// `https://host/path`, `tcp://host:port`, `host:port` or `host`
        target: String,
        #[command(flatten)]
        format: Format,
    },
    /// Show the rules in force, and what was counted
    Show {
        sandbox: String,
        #[command(flatten)]
        format: Format,
    },
    /// Add rules
    Allow {
        sandbox: String,
        #[arg(required = true, value_name = "RULE")]
        rules: Vec<String>,
    },
    /// Remove rules; connections only they allowed are cut
    Deny {
        sandbox: String,
        #[arg(required = true, value_name = "RULE")]
        rules: Vec<String>,
    },
}

pub(crate) async fn run(ctx: &Context, args: EgressArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    match args.action {
        Action::Log { sandbox, follow, denied, lines, format } => {
            log(&client, &sandbox, denied, lines, follow, format).await
        }
        Action::Explain { sandbox, target, format } => explain(&client, &sandbox, target, format).await,
        Action::Test { sandbox, target, format } => test(&client, &sandbox, target, format).await,
        Action::Show { sandbox, format } => {
            let what = || format!("could not show what sandbox `{sandbox}` may reach");
            let status = client.egress(&sandbox).await.or_fail(what)?;
            if format.json { print::json::pretty(&status) } else { print::data(&shown(&status)) }
        }
        Action::Allow { sandbox, rules } => {
            change(&client, &sandbox, UpdateNetwork { add: rules, ..UpdateNetwork::default() }).await
        }
        Action::Deny { sandbox, rules } => {
            change(&client, &sandbox, UpdateNetwork { remove: rules, ..UpdateNetwork::default() }).await
        }
    }
}

async fn change(client: &Client, sandbox: &str, network: UpdateNetwork) -> Result<(), Stop> {
    let update = UpdateSandbox { network: Some(network), ..UpdateSandbox::default() };
    let what = || format!("could not change what sandbox `{sandbox}` may reach");
    let updated = client.update_sandbox(sandbox, &update).await.or_fail(what)?;
    if updated.network.mode != burrow_api::NetworkMode::Allowlist {
        print::note(&format!(
            "note: rules have no effect while its mode is `{}`; `burrow update {sandbox} --net allowlist` changes that",
            updated.network.mode.as_str()
        ));
    }
    Ok(())
}

async fn log(
    client: &Client,
    sandbox: &str,
    denied: bool,
    lines: u32,
    follow: bool,
    format: Format,
) -> Result<(), Stop> {
    let what = || format!("could not read the egress log of sandbox `{sandbox}`");
    let page = PageQuery { cursor: None, limit: Some(lines) };
    let newest = client.egress_log(sandbox, denied, &page).await.or_fail(what)?;
    // Followed entries come one by one, so each is a line of its own then.
    if format.json && !follow {
        let oldest_first: Vec<_> = newest.items.into_iter().rev().collect();
        return print::json::pretty(&oldest_first);
    }
    let show = |entry: &EgressEntry| {
        if format.json { print::json::compact(entry) } else { print::line(&line(entry)) }
    };
    for entry in newest.items.iter().rev() {
        show(entry)?;
    }
    if !follow {
        return Ok(());
    }
    let since = newest.items.first().map(|entry| entry.seq);
    let query = EgressLogQuery { denied, since: since.or(Some(0)) };
    let mut entries = client.follow_egress_log(sandbox, query).await.or_fail(what)?;
    while let Some(entry) = entries.next().await.or_fail(what)? {
        show(&entry)?;
    }
    Ok(())
}

async fn explain(client: &Client, sandbox: &str, target: String, format: Format) -> Result<(), Stop> {
    let what = || format!("could not explain `{target}` for sandbox `{sandbox}`");
    let question = EgressQuestion { target: target.clone() };
    let answer = client.explain_egress(sandbox, &question).await.or_fail(what)?;
    if format.json {
        return print::json::pretty(&answer);
    }
    let verdict = if answer.allowed { "allowed" } else { "denied" };
    let (host, protocol) = (escape(&answer.host), answer.protocol.as_str());
    print::line(&format!("{verdict}: {protocol} to {host}:{}", answer.port))?;
    print::line(&format!("because: {}", escape(&answer.because)))?;
    if let Some(hint) = &answer.hint {
        print::line(&format!("hint: {}", escape(hint)))?;
    }
    Ok(())
}

async fn test(client: &Client, sandbox: &str, target: String, format: Format) -> Result<(), Stop> {
    let what = || format!("could not test `{target}` for sandbox `{sandbox}`");
    let question = EgressQuestion { target: target.clone() };
    let trial = client.test_egress(sandbox, &question).await.or_fail(what)?;
    if format.json {
        print::json::pretty(&trial)?;
    } else {
        for step in &trial.steps {
            let mark = if step.ok { "ok" } else { "failed" };
            let took = step.took_us as f64 / 1000.0;
            print::line(&format!(
                "{:<8} {mark:<7} {took:>8.1} ms  {}",
                escape(&step.step),
                escape(&step.detail)
            ))?;
        }
        let (host, port) = (escape(&trial.host), trial.port);
        print::line(&format!("{} {host}:{port}", if trial.reached { "reached" } else { "did not reach" }))?;
        if let Some(hint) = &trial.hint {
            print::line(&format!("hint: {}", escape(hint)))?;
        }
    }
    // A script can ask by the exit code alone.
    if trial.reached { Ok(()) } else { Err(Stop::Exit(1)) }
}

fn shown(status: &EgressStatus) -> String {
    let mut text = format!("mode: {}\n", status.network.mode.as_str());
    let rows: Vec<_> = status
        .rules
        .iter()
        .map(|rule| vec![rule.rule.clone(), rule.set.clone().unwrap_or_default()])
        .collect();
    text.push_str(&table::render(&["RULE", "SET"], &rows));
    if !status.missing_sets.is_empty() {
        let sets = status.missing_sets.iter().map(|set| escape(set)).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("sets that the configuration does not have any more: {sets}\n"));
    }
    if let Some(counters) = &status.counters {
        text.push_str(&format!(
            "since it started: {} allowed, {} denied, {} failed, {} open, {} sent, {} received\n",
            counters.allowed,
            counters.denied,
            counters.failed,
            counters.connections_open,
            quantity::bytes(counters.sent_bytes),
            quantity::bytes(counters.received_bytes),
        ));
        if counters.log_dropped > 0 {
            text.push_str(&format!(
                "{} log entries were dropped: they came too fast\n",
                counters.log_dropped
            ));
        }
    }
    text
}

fn line(entry: &EgressEntry) -> String {
    let at = quantity::timestamp(entry.at_ms);
    let port = entry.port.map_or_else(String::new, |port| format!(":{port}"));
    let mut text = format!(
        "{at}  {:<7}  {:<4}  {}{port}",
        entry.verdict.as_str(),
        entry.kind.as_str(),
        escape(&entry.host)
    );
    if let (EgressVerdict::Closed, Some(sent), Some(received)) =
        (entry.verdict, entry.sent_bytes, entry.received_bytes)
    {
        text.push_str(&format!("  {} sent, {} received", quantity::bytes(sent), quantity::bytes(received)));
    }
    if entry.times > 1 {
        text.push_str(&format!("  {} times", entry.times));
    }
    for detail in [&entry.rule, &entry.address, &entry.reason].into_iter().flatten() {
        text.push_str("  ");
        text.push_str(&escape(detail));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::EgressKind;

    #[test]
    fn an_entry_is_one_line_whatever_it_holds() {
        let entry = EgressEntry {
            seq: 1,
            at_ms: 0,
            kind: EgressKind::Tls,
            verdict: EgressVerdict::Denied,
            host: "evil\u{1b}.example".to_owned(),
            port: Some(443),
            rule: None,
            reason: Some("no rule\nnames it".to_owned()),
            address: None,
            sent_bytes: None,
            received_bytes: None,
            duration_ms: None,
            times: 1,
        };
        let expected = "1970-01-01T00:00:00Z  denied   tls   evil\\x1b.example:443  no rule\\nnames it";
        assert_eq!(line(&entry), expected);
        let closed = EgressEntry {
            verdict: EgressVerdict::Closed,
            sent_bytes: Some(10),
            received_bytes: Some(2048),
            reason: None,
            ..entry
        };
        assert!(line(&closed).ends_with("10 B sent, 2.0 KiB received"), "{}", line(&closed));
    }
}
