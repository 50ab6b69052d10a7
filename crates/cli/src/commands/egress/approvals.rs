//! `burrow egress approvals`, `approve` and `refuse`: requests that wait for approval.

use std::collections::HashSet;

use burrow_api::EgressApproval;

use crate::commands::prelude::*;

/// Time between two polls for waiting requests.
const PAUSE: Duration = Duration::from_millis(500);

/// List requests that wait for approval
#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    sandbox: String,
    /// Follow new requests, one per line
    #[arg(short = 'w', long)]
    watch: bool,
    #[command(flatten)]
    format: Format,
}

/// Approve or refuse requests that wait for approval
#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    sandbox: String,
    /// Ids of the requests, as listed by `burrow egress approvals`
    #[arg(value_name = "APPROVAL", required_unless_present = "wait")]
    ids: Vec<u64>,
    /// Wait for the next request, and answer it
    #[arg(long, conflicts_with = "ids")]
    wait: bool,
}

pub(super) async fn list(client: &Client, args: ApprovalsArgs) -> Result<(), Stop> {
    let ApprovalsArgs { sandbox, watch, format } = args;
    let mut seen = HashSet::new();
    loop {
        let waiting = ask(client, &sandbox).await?;
        if !watch {
            return format.table(&["APPROVAL", "REQUEST", "SECRET", "SINCE", "RULE"], &waiting, row);
        }
        for approval in waiting.iter().filter(|approval| seen.insert(approval.id)) {
            format.line(approval, line)?
        }
        seen.retain(|id| waiting.iter().any(|approval| approval.id == *id));
        tokio::time::sleep(PAUSE).await;
    }
}

pub(super) async fn answer(client: &Client, args: AnswerArgs, allow: bool) -> Result<(), Stop> {
    let AnswerArgs { sandbox, mut ids, wait } = args;
    while wait && ids.is_empty() {
        ids.extend(ask(client, &sandbox).await?.into_iter().take(1).map(|approval| {
            print::note(line(&approval));
            approval.id
        }));
        if ids.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
    if ids.is_empty() {
        return Err(Failure::new("no request was given").into());
    }
    for id in ids {
        let word = if allow { "approve" } else { "refuse" };
        let what = || format!("could not {word} `{id}` of sandbox `{sandbox}`");
        client.answer_egress_approval(&sandbox, id, allow).await.or_fail(what)?;
    }
    Ok(())
}

async fn ask(client: &Client, sandbox: &str) -> Result<Vec<EgressApproval>, Stop> {
    let what = || format!("could not list the requests of sandbox `{sandbox}` that wait for approval");
    client.egress_approvals(sandbox).await.or_fail(what)
}

fn row(approval: &EgressApproval) -> Vec<String> {
    let since = quantity::timestamp(approval.since_ms);
    let secret = approval.secret.clone().unwrap_or_default();
    vec![approval.id.to_string(), request(approval), secret, since, approval.rule.clone()]
}

fn request(approval: &EgressApproval) -> String {
    let EgressApproval { method, host, port, path, .. } = approval;
    let port = if *port == 443 { String::new() } else { format!(":{port}") };
    format!("{method} https://{host}{port}{path}")
}

fn line(approval: &EgressApproval) -> String {
    let since = quantity::timestamp(approval.since_ms);
    let secret =
        approval.secret.as_ref().map_or_else(String::new, |secret| format!("  with {}", escape(secret)));
    format!("{}  {}{secret}  since {since}", approval.id, escape(&request(approval)))
}
