//! E-T, E-S, E-A and D19: programs inside that try to learn a secret, or to send it where it is not allowed.
//!
//! ```text
//!   probe in a sandbox ──► egress process ──► hosts that record requests, and answer with them
//!   the same probe, with the secret, in the unguarded namespace ──► the same hosts
//! ```
//!
//! After each row: no form of a secret in any output of the sandbox or the API, none at a host that is not the secret's,
//! none in the audit log. The unguarded namespace shows that each probe would have received or sent it without the egress
//! process.

mod answers;
mod audit;
mod authorities;
mod canary;
mod certificates;
mod declared;
mod echoes;
mod framing;
mod grpc;
mod hosts;
mod live;
mod outside;
mod placeholders;
mod probe;

use serde_json::{Value, json};

pub(crate) use audit::SmallSpool;
pub(crate) use outside::{fill, outside};
use probe::{Attempt, attempts};

use crate::ground::{Ground, Run, Sandbox};
use crate::harness::eventually;
use crate::report::{Finding, Row, RowFailure, ensure};

/// In the order of the threat list.
pub(crate) fn rows() -> Vec<Row> {
    let groups = [authorities::ROWS, framing::ROWS, echoes::ROWS, placeholders::ROWS, declared::ROWS];
    let more = [live::ROWS, canary::ROWS, grpc::ROWS, audit::ROWS];
    let mut rows: Vec<Row> = groups.into_iter().chain(more).flatten().copied().collect();
    let place = |row: &Row| {
        let known = ["E-T", "E-S", "E-A", "D"].iter().position(|group| row.id.starts_with(group));
        let number = row.id.trim_start_matches(|c: char| !c.is_ascii_digit());
        (known, number.parse::<u32>().unwrap())
    };
    rows.sort_by_key(place);
    rows
}

const fn row(
    id: &'static str,
    what: &'static str,
    attack: fn(&Sandbox<'_>) -> Finding,
    control: fn(&Ground) -> Finding,
) -> Row {
    Row { id, what, sandbox: &[], attack, control }
}

// --- Rules

/// The usual rules of a row's sandbox.
fn usual() -> Vec<Value> {
    let mut rules = vec![
        json!({ "host": "up.example", "methods": ["GET", "POST"], "paths": ["/v1/**"], "secret": "bearer" }),
        json!({ "host": "up.example", "paths": ["/open/**"] }),
        json!({ "host": "h1.example", "secret": "bearer" }),
        json!({ "host": "other.example" }),
        json!({ "host": "grpc.example", "paths": ["/v1/**"], "secret": "metadata" }),
        json!({ "host": "grpc.example", "paths": ["/bin/**"], "secret": "metadata-bin" }),
        json!({ "host": "mtls.example", "secret": "identity" }),
        json!({ "host": "mtls-other.example" }),
    ];
    for host in ["self-signed.example", "expired.example", "wrong.example"] {
        rules.push(json!({ "host": host, "secret": "bearer" }));
    }
    rules
}

/// Sets the rules of a sandbox, and returns the result.
fn try_apply(ground: &Ground, sandbox: &str, rules: &[Value]) -> (u16, String) {
    let path = format!("/v1/sandboxes/{sandbox}/egress/policy");
    let body = json!({ "egress": { "default": "deny", "rules": rules } }).to_string();
    let answer = ground.ask("PUT", path.as_bytes(), "application/json", body.as_bytes());
    (answer.status, answer.text())
}

fn apply(sandbox: &Sandbox<'_>, rules: &[Value]) {
    let (status, text) = try_apply(sandbox.ground, &sandbox.id, rules);
    assert_eq!(status, 200, "{text}");
}

// --- Probes

/// Runs a probe in a sandbox with the usual rules.
fn inside(sandbox: &Sandbox<'_>, body: &str) -> Result<Vec<Attempt>, RowFailure> {
    apply(sandbox, &usual());
    again(sandbox, body)
}

/// Runs a probe in a sandbox whose rules stay as they are.
fn again(sandbox: &Sandbox<'_>, body: &str) -> Result<Vec<Attempt>, RowFailure> {
    attempts(&sandbox.python(&outside::program(body)))
}

/// Starts a probe in the background.
fn begin(sandbox: &Sandbox<'_>, body: &str) -> String {
    sandbox.start(&json!({ "argv": ["python3", "-c", outside::program(body)] }))
}

/// The output so far of a probe in the background.
fn so_far(sandbox: &Sandbox<'_>, exec: &str) -> String {
    sandbox.ask("GET", &format!("/execs/{exec}/output?format=raw")).text()
}

/// Waits for the end of a probe in the background.
fn ended(sandbox: &Sandbox<'_>, exec: &str) -> Result<Vec<Attempt>, RowFailure> {
    let found = sandbox.wait(exec);
    let code = found["outcome"]["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok());
    attempts(&Run { code, out: so_far(sandbox, exec), err: String::new() })
}

/// Runs a probe without a proxy.
fn weakly(body: &str) -> Result<Vec<Attempt>, RowFailure> {
    attempts(&outside().weakly(body))
}

// --- Judging

/// Every attempt was answered with one of these.
fn answered(found: &[Attempt], statuses: &[u16]) -> Result<(), RowFailure> {
    let other: Vec<_> = found.iter().filter(|attempt| !statuses.contains(&attempt.status)).collect();
    ensure(other.is_empty(), || format!("not answered with {statuses:?}: {other:?}"))
}

/// No attempt got any form of a secret.
fn kept(found: &[Attempt]) -> Result<(), RowFailure> {
    for attempt in found {
        let leak = outside().leak(&attempt.text);
        ensure(leak.is_none(), || format!("`{}` got {leak:?}: {}", attempt.name, attempt.text))?;
    }
    Ok(())
}

/// Every attempt got the secret, verbatim or in some form.
fn got(found: &[Attempt]) -> Finding {
    for attempt in found {
        let leak = outside().leak(&attempt.text);
        ensure(leak.is_some(), || format!("`{}` did not get it: {attempt:?}", attempt.name))?;
    }
    Ok(format!("all {} get the secret where nobody is in between", found.len()))
}

/// Events of a sandbox in the audit log, newest first.
fn events(sandbox: &Sandbox<'_>) -> Vec<Value> {
    let line = ["audit", "ls", "--json", "-n", "1000", "--action", "egress", "--sandbox", &sandbox.id];
    serde_json::from_str(&sandbox.ground.daemon.ok(&line)).unwrap()
}

/// Waits until such an event is in the log.
fn audited(sandbox: &Sandbox<'_>, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("{what} in the audit log"), || events(sandbox).into_iter().find(&wanted))
}

/// Waits until this many such events are in the log.
fn audited_times(sandbox: &Sandbox<'_>, count: usize, what: &str, wanted: impl Fn(&Value) -> bool) {
    eventually(&format!("{count} times {what} in the audit log"), || {
        (events(sandbox).iter().filter(|event| wanted(event)).count() >= count).then_some(())
    });
}

/// Checks what a row leaves behind, while its sandbox still exists.
pub(crate) fn aftermath(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    let leak = outside().leak(&sandbox.said());
    ensure(leak.is_none(), || format!("what the sandbox or the API said holds {leak:?}"))?;
    let log = serde_json::to_string(&events(sandbox)).unwrap();
    let leak = outside().leak(&log);
    ensure(leak.is_none(), || format!("the audit log holds {leak:?}"))?;
    // Hosts without a secret, and everything that was sent without TLS.
    let foreign = |name: &str| matches!(name, "" | "other.example" | "mtls-other.example");
    let leak = outside().leak(&outside().records.sent_to(foreign));
    ensure(leak.is_none(), || format!("a host that is not the secret's was sent {leak:?}"))
}
