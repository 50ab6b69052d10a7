//! What an exec's end means for our own exit code.

use burrow_api::{Exec, ExecState};
use burrow_client::Client;

use crate::failure::{CODE_OWN_FAILURE, CODE_TIMED_OUT, Stop};
use crate::interact::End;
use crate::parse::signal_number;
use crate::print;

/// Ends the program as the exec ended.
pub(crate) async fn pass_on(client: &Client, end: End, exec: &str) -> Result<(), Stop> {
    match end {
        End::Exit(exec) => {
            explain(client, &exec).await;
            leave(exit_code(&exec))
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

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::ExecOutcome;

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
}
