//! Tests what a program could reach, and reports the outcome of each step. No data is sent.

use tokio::time::Instant;

use super::{Shared, dial};
use crate::policy::{Decision, Target};
use crate::sandbox::Sandbox;
use crate::{Step, Trial};

pub(crate) async fn run(shared: &Shared, sandbox: &Sandbox, target: &Target) -> Trial {
    let mut steps = Vec::new();
    let reachable = attempt(shared, sandbox, target, &mut steps).await.is_some();
    Trial { reachable, steps }
}

/// `None` at the first step that fails.
async fn attempt(shared: &Shared, sandbox: &Sandbox, target: &Target, steps: &mut Vec<Step>) -> Option<()> {
    let policy = sandbox.policy();
    let destination = &target.destination;
    let begin = Instant::now();
    let decided = match policy.decide(destination, target.protocol) {
        Decision::Allow { rule } if policy.intercepts(destination) => {
            Ok(((), format!("allowed by `{rule}`, request by request")))
        }
        Decision::Allow { rule } => Ok(((), format!("allowed by `{rule}`"))),
        Decision::Deny { reason } => Err(reason.to_string()),
    };
    step(steps, "decide", begin, decided)?;

    let begin = Instant::now();
    let found = shared.dialler.addresses(sandbox, &destination.host).await;
    let found = found.map_err(|failure| failure.to_string()).map(|found| {
        let text = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        (found, text)
    });
    let found = step(steps, "resolve", begin, found)?;

    let begin = Instant::now();
    let checked = dial::check(&policy, destination, &found).map_err(|reason| reason.to_string());
    let checked = checked.map(|checked| {
        let text = format!("{} of {} addresses are permitted", checked.len(), found.len());
        (checked, text)
    });
    let checked = step(steps, "check", begin, checked)?;

    let begin = Instant::now();
    let connected = dial::connect_first(&checked, destination.port).await;
    let connected = connected
        .map(|(_, address)| ((), format!("connected to {address} on port {}", destination.port)))
        .map_err(|failure| failure.to_string());
    step(steps, "dial", begin, connected)
}

fn step<T>(
    steps: &mut Vec<Step>,
    name: &str,
    begin: Instant,
    outcome: Result<(T, String), String>,
) -> Option<T> {
    let micros = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
    let (value, ok, detail) = match outcome {
        Ok((value, detail)) => (Some(value), true, detail),
        Err(detail) => (None, false, detail),
    };
    steps.push(Step { name: name.to_owned(), ok, detail, micros });
    value
}
