//! `burrow egress`: the network policy of a sandbox, its log, and explanations of its decisions.

pub(crate) mod apply;
mod approvals;
mod declared;
pub(crate) mod document;

use burrow_api::policy::{RuleDocument, check};
use burrow_api::{
    BudgetLeft, EgressCounters, EgressEntry, EgressExplanation, EgressQuestion, EgressRequestRule,
    EgressStatus, EgressStep, EgressVerdict, UpdateNetwork, UpdateSandbox,
};
use burrow_client::{EgressLogQuery, PageQuery};

use crate::commands::prelude::*;

/// Number of log entries shown by default.
const LINES: u32 = 50;

/// Manage the network access of sandboxes, and read its log
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow egress allow web '*.example.com' tcp://db.example.com:5432
  burrow egress allow web --set pypi --set npm
  burrow egress sets
  burrow egress log web --denied -f
  burrow egress allow web api.openai.com --secret openai-api-key
  burrow egress apply -f policy.yaml web
  burrow egress explain web https://api.openai.com/v1/responses -X POST
  burrow egress approvals web --watch
  burrow egress test web example.com:443")]
pub(crate) enum EgressCommand {
    /// Show the log of connections and requests, oldest first
    Log {
        sandbox: String,
        /// Follow new entries
        #[arg(short = 'f', long)]
        follow: bool,
        /// Only denied entries
        #[arg(long)]
        denied: bool,
        /// Number of newest entries to show
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = LINES, value_parser = clap::value_parser!(u32).range(1..=1000))]
        lines: u32,
        #[command(flatten)]
        format: Format,
    },
    /// Show whether a connection or a request would be allowed, and by which rule
    Explain {
        sandbox: String,
        /// `https://host/path`, `tcp://host:port`, `host:port` or `host`
        target: String,
        /// Method of the request
        #[arg(short = 'X', long = "request", value_name = "METHOD", default_value = "GET")]
        method: String,
        #[command(flatten)]
        format: Format,
    },
    /// Resolve a host and connect to it under the policy of a sandbox
    Test {
        sandbox: String,
        /// `https://host/path`, `tcp://host:port`, `host:port` or `host`
        target: String,
        #[command(flatten)]
        format: Format,
    },
    /// Show the rules in effect, with counters
    Show {
        sandbox: String,
        #[command(flatten)]
        format: Format,
    },
    /// List the host sets, such as those of package managers, with their rules
    Sets {
        #[command(flatten)]
        format: Format,
    },
    /// Add rules
    Allow {
        sandbox: String,
        /// Rules; with --secret, hosts
        #[arg(required_unless_present = "sets", value_name = "RULE")]
        rules: Vec<String>,
        /// Host set to add, e.g. pypi; may be repeated
        #[arg(long = "set", value_name = "NAME", conflicts_with = "secret")]
        sets: Vec<String>,
        /// Insert this secret into requests to these hosts, within the limits set by its owner
        #[arg(long, value_name = "NAME")]
        secret: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// Remove rules, and close connections that only they allowed
    Deny {
        sandbox: String,
        #[arg(required_unless_present = "sets", value_name = "RULE")]
        rules: Vec<String>,
        /// Host set to remove; may be repeated
        #[arg(long = "set", value_name = "NAME")]
        sets: Vec<String>,
        #[command(flatten)]
        format: Format,
    },
    Apply(apply::ApplyArgs),
    Approvals(approvals::ApprovalsArgs),
    Approve(approvals::AnswerArgs),
    Refuse(approvals::AnswerArgs),
}

pub(crate) async fn run(ctx: &Context, command: EgressCommand) -> Result<(), Stop> {
    let client = ctx.client()?;
    match command {
        EgressCommand::Log { sandbox, follow, denied, lines, format } => {
            log(&client, &sandbox, denied, lines, follow, format).await
        }
        EgressCommand::Explain { sandbox, target, method, format } => {
            let question = EgressQuestion { target, method: Some(method) };
            explain(&client, &sandbox, question, format).await
        }
        EgressCommand::Test { sandbox, target, format } => test(&client, &sandbox, target, format).await,
        EgressCommand::Show { sandbox, format } => {
            let what = || format!("could not show the network policy of sandbox `{sandbox}`");
            let status = client.egress(&sandbox).await.or_fail(what)?;
            format.show(&status, |status| print::data(&shown(status)))
        }
        EgressCommand::Sets { format } => {
            let what = || "could not list the host sets".to_owned();
            let sets = client.egress_sets().await.or_fail(what)?;
            format.show(&sets, |sets| {
                print::data(&table::of(&["SET", "RULES"], sets, |set| {
                    vec![set.name.clone(), set.rules.join(" ")]
                }))
            })
        }
        EgressCommand::Allow { sandbox, rules, sets, secret: None, format } => {
            let network = UpdateNetwork { add: rules, add_sets: sets, ..UpdateNetwork::default() };
            change(&client, &sandbox, network, format).await
        }
        EgressCommand::Allow { sandbox, rules, sets: _, secret: Some(secret), format } => {
            let add_requests = with_secret(&rules, &secret)?;
            let network = UpdateNetwork { add_requests, ..UpdateNetwork::default() };
            change(&client, &sandbox, network, format).await
        }
        EgressCommand::Deny { sandbox, rules, sets, format } => {
            let network = UpdateNetwork { remove: rules, remove_sets: sets, ..UpdateNetwork::default() };
            change(&client, &sandbox, network, format).await
        }
        EgressCommand::Apply(args) => apply::run(&client, args).await,
        EgressCommand::Approvals(args) => approvals::list(&client, args).await,
        EgressCommand::Approve(args) => approvals::answer(&client, args, true).await,
        EgressCommand::Refuse(args) => approvals::answer(&client, args, false).await,
    }
}

fn with_secret(hosts: &[String], secret: &str) -> Result<Vec<RuleDocument>, Stop> {
    let rule = |host: &String| RuleDocument {
        host: host.clone(),
        secret: Some(secret.to_owned()),
        ..RuleDocument::default()
    };
    let rules: Vec<RuleDocument> = hosts.iter().map(rule).collect();
    // Checked here, since the daemon's error would name a rule that the user did not type.
    match check::rules(&rules, &[]) {
        Ok(_) => Ok(rules),
        Err(fault) => fail(
            format!("could not add the rules: {}", fault.reason),
            "with --secret, give hosts such as `api.example.com`",
        ),
    }
}

/// Prints the changed policy with `--json` only.
async fn change(client: &Client, sandbox: &str, network: UpdateNetwork, format: Format) -> Result<(), Stop> {
    let update = UpdateSandbox { network: Some(network), ..UpdateSandbox::default() };
    let what = || format!("could not change the network policy of sandbox `{sandbox}`");
    let updated = client.update_sandbox(sandbox, &update).await.or_fail(what)?;
    if updated.network.mode != burrow_api::NetworkMode::Allowlist {
        print::note(format!(
            "note: rules have no effect while its mode is `{}`; `burrow update {sandbox} --net allowlist` changes that",
            updated.network.mode.as_str()
        ));
    }
    format.show(&updated.network, |_| Ok(()))
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
    // Followed entries arrive one by one, so each is printed as its own line.
    if format.json && !follow {
        let oldest_first: Vec<_> = newest.items.into_iter().rev().collect();
        return print::json::pretty(&oldest_first);
    }
    let show = |entry: &EgressEntry| format.line(entry, line);
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

async fn explain(
    client: &Client,
    sandbox: &str,
    question: EgressQuestion,
    format: Format,
) -> Result<(), Stop> {
    let what = || format!("could not explain `{}` for sandbox `{sandbox}`", question.target);
    let answer = client.explain_egress(sandbox, &question).await.or_fail(what)?;
    format.show(&answer, |answer| print::lines(explained(answer)))
}

fn explained(answer: &EgressExplanation) -> Vec<String> {
    let verdict = if answer.allowed { "allowed" } else { "denied" };
    let host = escape(&answer.host);
    let mut lines = vec![match &answer.request {
        Some(request) => {
            let (method, path) = (escape(&request.method), escape(&request.path));
            format!("{verdict}: {method} https://{host}:{}{path}", answer.port)
        }
        None => format!("{verdict}: {} to {host}:{}", answer.protocol.as_str(), answer.port),
    }];
    lines.push(format!("because: {}", escape(&answer.because)));
    if let Some(request) = &answer.request {
        let decrypted = if request.decrypted { "yes" } else { "no, it is passed through" };
        lines.push(format!("decrypted: {decrypted}"));
        let secret = request.secret.as_ref().zip(request.slot.as_ref());
        lines.extend(secret.map(|(secret, slot)| format!("secret: {} in {}", escape(secret), escape(slot))));
        lines.extend(request.left.as_ref().map(|left| format!("budget left: {}", self::left(left))));
        if request.approval {
            let how = "required; `burrow egress approvals` lists the requests that wait";
            lines.push(format!("approval: {how}"));
        }
    }
    lines.extend(answer.hint.as_ref().map(|hint| format!("hint: {}", escape(hint))));
    lines
}

fn left(left: &BudgetLeft) -> String {
    let count = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}"));
    let parts = [
        count(left.requests_this_minute, "requests this minute"),
        count(left.requests_today, "requests today"),
        left.bytes_out_today.map(|bytes| format!("{} out today", quantity::bytes(bytes))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

async fn test(client: &Client, sandbox: &str, target: String, format: Format) -> Result<(), Stop> {
    let what = || format!("could not test `{target}` for sandbox `{sandbox}`");
    let question = EgressQuestion { target: target.clone(), method: None };
    let trial = client.test_egress(sandbox, &question).await.or_fail(what)?;
    let step_line = |step: &EgressStep| {
        let (mark, took) = (if step.ok { "ok" } else { "failed" }, step.took_us as f64 / 1000.0);
        let (step, detail) = (escape(&step.step), escape(&step.detail));
        format!("{step:<8} {mark:<7} {took:>8.1} ms  {detail}")
    };
    format.show(&trial, |trial| {
        let result = if trial.reached { "reached" } else { "did not reach" };
        let result = format!("{result} {}:{}", escape(&trial.host), trial.port);
        let hint = trial.hint.as_ref().map(|hint| format!("hint: {}", escape(hint)));
        print::lines(trial.steps.iter().map(step_line).chain([result]).chain(hint))
    })?;
    // Scripts can rely on the exit code alone.
    if trial.reached { Ok(()) } else { Err(Stop::Exit(1)) }
}

fn shown(status: &EgressStatus) -> String {
    let mut text = format!("mode: {}\n", status.network.mode.as_str());
    if !status.rules.is_empty() || status.requests.is_empty() {
        text.push_str(&table::of(&["RULE", "SET"], &status.rules, |rule| {
            vec![rule.rule.clone(), rule.set.clone().unwrap_or_default()]
        }));
    }
    if !status.requests.is_empty() {
        text.push_str(&table::of(&["REQUESTS", "APPROVAL", "LEFT"], &status.requests, request_row));
    }
    for (rule, problem) in status.requests.iter().filter_map(|rule| Some((rule, rule.problem.as_ref()?))) {
        text.push_str(&format!("`{}` allows nothing: {}\n", escape(&rule.text), escape(problem)));
    }
    if !status.missing_sets.is_empty() {
        let sets = status.missing_sets.iter().map(|set| escape(set)).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("sets that are no longer in the configuration: {sets}\n"));
    }
    if let Some(counters) = &status.counters {
        let EgressCounters { allowed, denied, failed, connections_open: open, log_dropped, .. } = counters;
        let (sent, received) =
            (quantity::bytes(counters.sent_bytes), quantity::bytes(counters.received_bytes));
        text.push_str(&format!(
            "since it started: {allowed} allowed, {denied} denied, {failed} failed, {open} open, {sent} sent, {received} received\n"
        ));
        if *log_dropped > 0 {
            text.push_str(&format!("{log_dropped} log entries were dropped: they arrived too fast\n"));
        }
    }
    text
}

fn request_row(rule: &EgressRequestRule) -> Vec<String> {
    let approval = rule.rule.approve.map(print::json::word).unwrap_or_default();
    vec![rule.text.clone(), approval, rule.left.as_ref().map(left).unwrap_or_default()]
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
    fn an_entry_is_printed_on_one_line() {
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
