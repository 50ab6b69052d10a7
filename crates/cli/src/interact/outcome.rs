//! What an exec's end means for our own exit code.

use burrow_api::{Exec, ExecState};
use burrow_client::Client;

use crate::failure::{CODE_OWN_FAILURE, CODE_TIMED_OUT, Stop};
use crate::interact::End;
use crate::parse::signal_number;
use crate::print;
use crate::print::escape::escape;

/// Ends the program as the exec ended.
pub(crate) async fn pass_on(client: &Client, end: End, exec: &str) -> Result<(), Stop> {
    match end {
        End::Exit(exec) => {
            explain(client, &exec).await;
            let code = exit_code(&exec);
            if let Some(line) = denied(&exec).filter(|_| code != 0) {
                print::note(&line);
            }
            leave(code)
        }
        End::Detached => {
            // The cursor is somewhere behind a prompt.
            print::note(&format!("\ndetached; `burrow attach {exec}` brings you back"));
            Ok(())
        }
        End::Left(code) => {
            print::note(&format!("left exec `{exec}` running; `burrow attach {exec}` brings you back"));
            leave(code)
        }
    }
}

fn leave(code: u8) -> Result<(), Stop> {
    if code == 0 { Ok(()) } else { Err(Stop::Exit(code)) }
}

/// The exec's own code, 128 + n for signal n, 124 when its time was up, 125 when nobody saw how it ended.
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

/// Says what an exit code cannot.
pub(crate) async fn explain(client: &Client, exec: &Exec) {
    let Some(outcome) = &exec.outcome else {
        if exec.state == ExecState::Lost {
            print::note(&format!("exec `{}` was lost when its sandbox stopped", exec.id));
        }
        return;
    };
    if outcome.timed_out {
        print::note("the process was ended: its time was up");
    }
    if outcome.killed_from_outside {
        // A process may also have killed itself or a sibling; the kernel's own count tells.
        match client.stats(&exec.sandbox_id).await {
            Ok(stats) if stats.oom_kills == 0 => {}
            Ok(_) => {
                print::note("the kernel killed the process for want of RAM");
                print::note(&format!(
                    "hint: `burrow update {} --ram 2G` gives its sandbox more",
                    exec.sandbox_id
                ));
            }
            Err(_) => print::note("the process was killed from outside, most likely for want of RAM"),
        }
    }
}

/// Names what the sandbox was not let through to while a process that failed ran, and what would let it through.
fn denied(exec: &Exec) -> Option<String> {
    let first = exec.egress_denied.first()?;
    // What lets through any port of the web is the short form; a port of its own is named.
    let rule = match first.port {
        None | Some(80 | 443) => first.host.clone(),
        Some(port) => format!("tcp://{}:{port}", first.host),
    };
    let more = match exec.egress_denied.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more (`burrow egress log {} --denied`)", exec.sandbox_id),
    };
    // A request that a rule covers was refused for what it is; another rule would not help it.
    let help = match first.reason.starts_with("no rule allows") {
        true => format!("`burrow egress allow {} {}` lets it", exec.sandbox_id, escape(&rule)),
        false => format!("`burrow egress show {}` shows its rules", exec.sandbox_id),
    };
    let (host, reason) = (escape(&first.host), escape(&first.reason));
    Some(format!("note: its sandbox was not let through to {host}{more}: {reason}; {help}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::{EgressDenied, ExecOutcome};

    fn exec(outcome: Option<ExecOutcome>) -> Exec {
        Exec {
            id: "exe".to_owned(),
            sandbox_id: "sbx".to_owned(),
            argv: Vec::new(),
            state: if outcome.is_some() { ExecState::Ended } else { ExecState::Lost },
            pid: None,
            terminal: false,
            started_ms: 0,
            ended_ms: None,
            outcome,
            output_end: 0,
            output_start: 0,
            output_dropped: 0,
            egress_denied: Vec::new(),
            snapshot: None,
            rollback: None,
            related: Vec::new(),
        }
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
    fn the_execs_end_is_ours() {
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
    fn what_was_denied_is_told_in_one_line_with_what_would_allow_it() {
        let mut exec = exec(outcome(Some(1), None, false));
        assert_eq!(denied(&exec), None);
        let denial = |host: &str, port| EgressDenied {
            host: host.to_owned(),
            port,
            reason: "no rule allows it".to_owned(),
        };
        exec.egress_denied = vec![denial("example.com", Some(443))];
        assert_eq!(
            denied(&exec).unwrap(),
            "note: its sandbox was not let through to example.com: no rule allows it; \
             `burrow egress allow sbx example.com` lets it"
        );
        exec.egress_denied[0].reason = "POST: a placeholder stands in the URL".to_owned();
        assert!(denied(&exec).unwrap().ends_with("in the URL; `burrow egress show sbx` shows its rules"));
        exec.egress_denied = vec![denial("db.example.com", Some(5432)), denial("x.example", None)];
        let line = denied(&exec).unwrap();
        assert!(line.contains("and 1 more (`burrow egress log sbx --denied`)"), "{line}");
        assert!(line.contains("`burrow egress allow sbx tcp://db.example.com:5432`"), "{line}");
    }
}
