//! The exit code of this program, from the outcome of the exec.

use burrow_api::{EgressDenied, Exec, ExecState};
use burrow_client::Client;

use crate::failure::{CODE_OWN_FAILURE, CODE_TIMED_OUT, Stop};
use crate::interact::InteractionEnd;
use crate::parse::signal_number;
use crate::print;
use crate::print::escape::escape;

/// Ends the program as the exec ended.
pub(crate) async fn exit_as(client: &Client, end: InteractionEnd, exec: &str) -> Result<(), Stop> {
    match end {
        InteractionEnd::Exit(exec) => {
            explain(client, &exec).await;
            print::notes(denied(&exec.sandbox_id, &exec.egress_denied));
            exit_with(exit_code(&exec))
        }
        InteractionEnd::Detached => {
            // The cursor may be behind a prompt.
            print::note(format!("\ndetached; `burrow attach {exec}` reattaches"));
            Ok(())
        }
        InteractionEnd::Left(code) => {
            print::note(format!("exec `{exec}` keeps running; `burrow attach {exec}` reattaches"));
            exit_with(code)
        }
    }
}

fn exit_with(code: u8) -> Result<(), Stop> {
    if code == 0 { Ok(()) } else { Err(Stop::Exit(code)) }
}

/// The exit code of the exec, 128 + n for signal n, 124 if it timed out, 125 if its outcome is unknown.
pub(crate) fn exit_code(exec: &Exec) -> u8 {
    let Some(outcome) = &exec.outcome else { return CODE_OWN_FAILURE };
    if outcome.timed_out {
        return CODE_TIMED_OUT;
    }
    match (&outcome.signal, outcome.exit_code) {
        (Some(signal), _) => 128 + signal_number(signal).unwrap_or_default(),
        // A process's status is its lowest eight bits.
        (None, Some(code)) => (code & 0xff) as u8,
        (None, None) => CODE_OWN_FAILURE,
    }
}

/// Explains what the exit code does not show.
pub(crate) async fn explain(client: &Client, exec: &Exec) {
    let Some(outcome) = &exec.outcome else {
        if exec.state == ExecState::Lost {
            print::note(format!("exec `{}` was lost when its sandbox stopped", exec.id));
        }
        return;
    };
    if outcome.timed_out {
        print::note("the process timed out and was killed");
    }
    if outcome.killed_from_outside {
        // A process may also have killed itself or another; the OOM counter of the kernel decides.
        match client.stats(&exec.sandbox_id).await {
            Ok(stats) if stats.oom_kills == 0 => {}
            Ok(_) => {
                print::note("the kernel killed the process: out of memory");
                print::hint(&format!(
                    "`burrow update {} --ram 2G` gives its sandbox more RAM",
                    exec.sandbox_id
                ));
            }
            Err(_) => print::note("the process was killed, most likely because it was out of memory"),
        }
    }
}

/// Names the first connection that was denied while a process or code ran, and the command that allows it.
pub(crate) fn denied(sandbox: &str, denied: &[EgressDenied]) -> Option<String> {
    let first = denied.first()?;
    // A host alone allows the ports of the web; other ports are named.
    let rule = match first.port {
        None | Some(80 | 443) => first.host.clone(),
        Some(port) => format!("tcp://{}:{port}", first.host),
    };
    let more = match denied.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more (`burrow egress log {sandbox} --denied`)"),
    };
    let host = escape(&first.host);
    // A request that a rule covers was denied by that rule; another rule would not help.
    if !first.reason.starts_with("no rule allows") {
        let reason = escape(&first.reason);
        return Some(format!("egress denied: `{host}`{more}: {reason}; `burrow egress show {sandbox}`"));
    }
    let rule = first.set.as_ref().map_or(rule, |set| format!("--set {set}"));
    Some(format!("egress denied: `{host}`{more}; `burrow egress allow {sandbox} {}`", escape(&rule)))
}

/// For tests.
#[cfg(test)]
pub(crate) fn example_exec() -> Exec {
    Exec {
        id: "exe".to_owned(),
        sandbox_id: "sbx".to_owned(),
        argv: Vec::new(),
        state: ExecState::Ended,
        pid: None,
        terminal: false,
        started_ms: 0,
        ended_ms: None,
        outcome: None,
        output_end: 0,
        output_start: 0,
        output_dropped: 0,
        egress_denied: Vec::new(),
        snapshot: None,
        rollback: None,
        related: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::ExecOutcome;

    fn exec(outcome: Option<ExecOutcome>) -> Exec {
        let state = if outcome.is_some() { ExecState::Ended } else { ExecState::Lost };
        Exec { state, outcome, ..example_exec() }
    }

    fn outcome(exit_code: Option<i32>, signal: Option<&str>, timed_out: bool) -> Option<ExecOutcome> {
        Some(ExecOutcome {
            exit_code,
            signal: signal.map(str::to_owned),
            timed_out,
            killed_from_outside: false,
            cpu_us: 0,
            ram_max_bytes: 0,
            wall_us: 0,
        })
    }

    #[test]
    fn the_exit_code_of_the_exec_is_passed_on() {
        for (outcome, code) in [
            (outcome(Some(0), None, false), 0),
            (outcome(Some(3), None, false), 3),
            (outcome(None, Some("SIGKILL"), false), 137),
            (outcome(None, Some("SIGTERM"), true), 124),
            (outcome(None, None, false), 125),
            (None, 125),
        ] {
            assert_eq!(exit_code(&exec(outcome)), code);
        }
    }

    #[test]
    fn a_denied_connection_is_reported_with_the_command_that_allows_it() {
        let line = |all: &[EgressDenied]| denied("sbx", all);
        assert_eq!(line(&[]), None);
        let denial = |host: &str, port| EgressDenied {
            host: host.to_owned(),
            port,
            reason: "no rule allows it".to_owned(),
            set: None,
        };
        let mut one = denial("example.com", Some(443));
        assert_eq!(
            line(std::slice::from_ref(&one)).unwrap(),
            "egress denied: `example.com`; `burrow egress allow sbx example.com`"
        );
        one.set = Some("ours".to_owned());
        assert_eq!(
            line(std::slice::from_ref(&one)).unwrap(),
            "egress denied: `example.com`; `burrow egress allow sbx --set ours`"
        );
        one.reason = "POST: a placeholder is in the URL".to_owned();
        assert_eq!(
            line(std::slice::from_ref(&one)).unwrap(),
            "egress denied: `example.com`: POST: a placeholder is in the URL; `burrow egress show sbx`"
        );
        let line = line(&[denial("db.example.com", Some(5432)), denial("x.example", None)]).unwrap();
        assert!(line.contains("and 1 more (`burrow egress log sbx --denied`)"), "{line}");
        assert!(line.contains("`burrow egress allow sbx tcp://db.example.com:5432`"), "{line}");
    }
}
