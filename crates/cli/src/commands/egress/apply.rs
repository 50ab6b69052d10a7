//! `burrow egress apply`: applies a policy file: first its secrets, then the whole policy of each sandbox at once.

use std::collections::HashMap;

use burrow_api::policy::{PolicyDocument, RuleDocument, check};
use burrow_api::{Sandbox, Secret};
use burrow_model::network::RequestScope;
use burrow_model::{Name, NetworkPolicy};
use serde::Serialize;

use super::declared;
use super::document::PolicyFile;
use crate::commands::prelude::*;

/// Apply a policy file, replacing the current policy
#[derive(Debug, Args)]
#[command(after_help = "\
A policy:
  secrets:
    - name: openai-api-key
      from: { env: OPENAI_API_KEY }          # or file, command
      allow: [{ host: api.openai.com, methods: [POST], paths: [\"/v1/**\"] }]
      slot: { header: Authorization, format: \"Bearer {}\" }   # or grpcMetadata, query, basic, clientCert
  egress:
    default: deny
    rules:
      - { host: api.openai.com, secret: openai-api-key, budget: { requestsPerMinute: 60, bytesOutPerDay: 50MB } }
      - { host: api.example.com, methods: [DELETE], approve: once }
      - { host: '*.packages.example', mode: sni }
    allow: ['tcp://db.example.com:5432']
  egressAuth:
    - { destination: api.example.org, authRef: example-key }

Examples:
  burrow egress apply -f policy.yaml web worker
  burrow egress apply -f policy.yaml web --dry-run")]
pub(crate) struct ApplyArgs {
    /// Policy in YAML or JSON; `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Sandboxes to apply it to; none if the file only declares secrets
    #[arg(value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// Show what would change without changing it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    format: Format,
}

/// The changes that were made, or with `--dry-run` would be made.
#[derive(Debug, Serialize)]
struct ApplyReport {
    dry_run: bool,
    secrets: Vec<DeclaredSecret>,
    sandboxes: Vec<PolicyChange>,
}

#[derive(Debug, Serialize)]
struct DeclaredSecret {
    name: String,
    action: &'static str,
}

#[derive(Debug, Serialize)]
struct PolicyChange {
    sandbox: String,
    added: Vec<String>,
    removed: Vec<String>,
}

pub(super) async fn run(client: &Client, args: ApplyArgs) -> Result<(), Stop> {
    let ApplyArgs { file, sandboxes, dry_run, format } = args;
    let policy = PolicyFile::read(&file)?;
    check_named(&policy, &sandboxes, &file)?;
    let known = declared::known(client).await?;
    policy.check_ceilings(&|name| ceiling(&known, name))?;
    let what = |sandbox: &str| format!("could not change the network policy of sandbox `{sandbox}`");
    // Read before anything is changed: a missing sandbox or value must change nothing.
    let mut before = Vec::new();
    for sandbox in &sandboxes {
        before.push((sandbox, client.sandbox(sandbox).await.or_fail(|| what(sandbox))?));
    }
    let values = if dry_run { Vec::new() } else { declared::values(&policy.checked.secrets, &known)? };
    let mut applied = ApplyReport { dry_run, secrets: Vec::new(), sandboxes: Vec::new() };
    for (spec, source) in &policy.checked.secrets {
        let action = declared::action(known.get(&spec.name), spec, source.as_ref());
        applied.secrets.push(DeclaredSecret { name: spec.name.to_string(), action });
    }
    if !dry_run {
        declared::set(client, &policy.checked.secrets, values).await?;
    }
    let document = PolicyDocument { secrets: Vec::new(), ..policy.document.clone() };
    for (sandbox, before) in before {
        if let Some(network) = &policy.checked.network {
            applied.sandboxes.push(changed(sandbox, &before, network));
        }
        if !dry_run {
            client.replace_egress_policy(sandbox, &document).await.or_fail(|| what(sandbox))?;
        }
    }
    format.show(&applied, |applied| print::data(&shown(applied)))
}

/// Sets the secrets of a policy file, and returns its network policy, for a sandbox that is created with it.
pub(crate) async fn for_new_sandbox(
    client: &Client,
    file: &Path,
) -> Result<burrow_api::NetworkRequest, Stop> {
    let policy = PolicyFile::read(file)?;
    let known = declared::known(client).await?;
    policy.check_ceilings(&|name| ceiling(&known, name))?;
    let Some(network) = &policy.checked.network else {
        return fail(
            format!("the policy `{}` has no `egress` section", file.display()),
            "add `egress:` with its rules",
        );
    };
    let values = declared::values(&policy.checked.secrets, &known)?;
    declared::set(client, &policy.checked.secrets, values).await?;
    Ok(burrow_api::NetworkRequest {
        mode: Some(mode(network)),
        allow: Some(network.rules.iter().map(ToString::to_string).collect()),
        sets: Some(network.sets.iter().map(ToString::to_string).collect()),
        requests: Some(network.requests.iter().map(RuleDocument::from).collect()),
        deny: Some(network.deny.iter().map(ToString::to_string).collect()),
    })
}

fn ceiling(known: &HashMap<Name, Secret>, name: &Name) -> Option<Vec<RequestScope>> {
    known.get(name).map(declared::ceiling)
}

fn check_named(policy: &PolicyFile, sandboxes: &[String], file: &Path) -> Result<(), Stop> {
    let what = format!("could not apply `{}`", file.display());
    match (&policy.checked.network, sandboxes) {
        (Some(_), []) => fail(
            format!("{what}: no sandbox was given"),
            "name the sandboxes: `burrow egress apply -f FILE SANDBOX…`",
        ),
        (None, [_, ..]) => fail(format!("{what}: it has no `egress` section"), "omit the sandboxes"),
        (Some(_), [_, ..]) | (None, []) => Ok(()),
    }
}

fn mode(network: &NetworkPolicy) -> burrow_api::NetworkMode {
    match network.mode {
        burrow_model::NetworkMode::None => burrow_api::NetworkMode::None,
        burrow_model::NetworkMode::Allowlist => burrow_api::NetworkMode::Allowlist,
        burrow_model::NetworkMode::Open => burrow_api::NetworkMode::Open,
    }
}

/// All of a policy, one line each.
fn lines(
    mode: burrow_api::NetworkMode,
    allow: &[String],
    sets: &[String],
    deny: &[String],
    requests: &[RuleDocument],
) -> Vec<String> {
    let rule = |rule: &RuleDocument| {
        let text = check::rules(std::slice::from_ref(rule), &[]);
        let text = text.ok().and_then(|rules| rules.first().map(ToString::to_string));
        let mut text = text.unwrap_or_else(|| rule.host.clone());
        if let Some(budget) = &rule.budget {
            let count = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}"));
            let parts = [
                count(budget.requests_per_minute, "requests/minute"),
                count(budget.requests_per_day, "requests/day"),
                budget.bytes_out_per_day.map(|size| format!("{size}/day")),
            ];
            text.push_str(&format!(", {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", ")));
        }
        match rule.approve {
            Some(burrow_api::policy::Approve::Once) => text.push_str(", approval for each request"),
            Some(burrow_api::policy::Approve::Session) => text.push_str(", approval once per session"),
            None => {}
        }
        text
    };
    let mode = std::iter::once(format!("mode {}", mode.as_str()));
    let sets = sets.iter().map(|set| format!("set {set}"));
    let deny = deny.iter().map(|block| format!("deny {block}"));
    mode.chain(allow.iter().cloned()).chain(sets).chain(deny).chain(requests.iter().map(rule)).collect()
}

fn changed(sandbox: &str, before: &Sandbox, after: &NetworkPolicy) -> PolicyChange {
    let requests: Vec<RuleDocument> = after.requests.iter().map(RuleDocument::from).collect();
    let allow = after.rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let sets = after.sets.iter().map(ToString::to_string).collect::<Vec<_>>();
    let deny = after.deny.iter().map(ToString::to_string).collect::<Vec<_>>();
    let after = lines(mode(after), &allow, &sets, &deny, &requests);
    let network = &before.network;
    let before = lines(network.mode, &network.allow, &network.sets, &network.deny, &network.requests);
    let without = |from: &[String], those: &[String]| {
        from.iter().filter(|line| !those.contains(line)).cloned().collect()
    };
    PolicyChange {
        sandbox: sandbox.to_owned(),
        added: without(&after, &before),
        removed: without(&before, &after),
    }
}

fn shown(applied: &ApplyReport) -> String {
    let mut text = String::new();
    for secret in &applied.secrets {
        text.push_str(&format!("secret {}: {}\n", escape(&secret.name), secret.action));
    }
    for sandbox in &applied.sandboxes {
        let same = sandbox.added.is_empty() && sandbox.removed.is_empty();
        let note = if same { ": no changes" } else { "" };
        text.push_str(&format!("sandbox {}{note}\n", escape(&sandbox.sandbox)));
        for (mark, lines) in [("-", &sandbox.removed), ("+", &sandbox.added)] {
            for line in lines {
                text.push_str(&format!("  {mark} {}\n", escape(line)));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_line_by_line() {
        let rule = |secret: &str| RuleDocument {
            host: "api.example.com".to_owned(),
            secret: Some(secret.to_owned()),
            ..RuleDocument::default()
        };
        let before =
            lines(burrow_api::NetworkMode::Open, &["a.example".to_owned()], &[], &[], &[rule("one")]);
        assert_eq!(before, ["mode open", "a.example", "https://api.example.com with one"]);
        let applied = ApplyReport {
            dry_run: true,
            secrets: vec![DeclaredSecret { name: "one".to_owned(), action: "set" }],
            sandboxes: vec![
                PolicyChange { sandbox: "web".to_owned(), added: vec!["x".to_owned()], removed: before },
                PolicyChange { sandbox: "db".to_owned(), added: Vec::new(), removed: Vec::new() },
            ],
        };
        let expected = "secret one: set\nsandbox web\n  - mode open\n  - a.example\n  \
                        - https://api.example.com with one\n  + x\nsandbox db: no changes\n";
        assert_eq!(shown(&applied), expected);
    }
}
