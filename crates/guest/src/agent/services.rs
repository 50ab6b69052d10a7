//! Supervised processes: started with the sandbox, and restarted when they end.
//!
//! ```text
//!           start                 ended, to be restarted
//!   (new) ────────► Running ────────────────────────────► BackingOff ─── pause ──► Running …
//!                      │ ended for good                        │
//!                      └──────────────► Ended ◄────────────────┘ stopped
//! ```
//!
//! One task per service manages it. Each run is an ordinary exec, whose output is read in the same way.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::exec;
use super::failure::{fail, invalid};
use super::service_set::SupervisedService;
use super::{Agent, clock, random};
use crate::protocol::{
    ErrorCode, ExecOutcome, ExecStart, RequestError, RunningService, Service, ServiceRestart, ServiceState,
    StdinMode,
};

/// More than a sandbox can reasonably need.
const SERVICES_MAX: usize = 64;

const NAME_BYTES_MAX: usize = 64;

/// Output kept of each run.
const RING_BYTES: u32 = 256 * 1024;

/// The time between SIGTERM and SIGKILL when a service is stopped.
const STOP_GRACE: Duration = Duration::from_secs(5);

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A run of this length counts as a success, and the pause is reset.
const STEADY_MS: u64 = 60_000;

/// Carries out [`crate::protocol::Request::SetServices`]: returns when the removed and changed services have stopped.
pub(super) async fn set(agent: &Rc<Agent>, wanted: Vec<Service>) -> Result<(), RequestError> {
    check(&wanted)?;
    let _one_at_a_time = agent.services.changing.lock().await;
    let wanted: BTreeMap<String, Service> =
        wanted.into_iter().map(|service| (service.name.clone(), service)).collect();
    let leaving: Vec<Rc<SupervisedService>> = {
        let mut running = agent.services.running.borrow_mut();
        let names: Vec<String> = running
            .values()
            .filter(|supervised| wanted.get(&supervised.service.name) != Some(&supervised.service))
            .map(|supervised| supervised.service.name.clone())
            .collect();
        names.iter().filter_map(|name| running.remove(name)).collect()
    };
    for supervised in &leaving {
        supervised.ask_to_stop();
    }
    for supervised in &leaving {
        supervised.until_stopped().await;
    }
    for (name, service) in wanted {
        let mut running = agent.services.running.borrow_mut();
        running.entry(name).or_insert_with(|| start(agent, service));
    }
    Ok(())
}

pub(super) fn list(agent: &Agent) -> Vec<RunningService> {
    let running = agent.services.running.borrow();
    running
        .values()
        .map(|supervised| RunningService {
            name: supervised.service.name.clone(),
            state: supervised.state.get(),
            exec: supervised.exec.borrow().as_ref().map(|exec| exec.id.clone()),
            restarts: supervised.restarts.get(),
        })
        .collect()
}

/// Carries out [`crate::protocol::Request::RestartService`].
pub(super) async fn restart(agent: &Rc<Agent>, name: &str) -> Result<(), RequestError> {
    let _one_at_a_time = agent.services.changing.lock().await;
    let supervised = agent.services.running.borrow().get(name).map(Rc::clone);
    let Some(supervised) = supervised else {
        return Err(fail(ErrorCode::NotFound, format_args!("service `{name}` does not exist")));
    };
    supervised.ask_to_stop();
    supervised.until_stopped().await;
    let again = start(agent, supervised.service.clone());
    again.restarts.set(supervised.restarts.get().saturating_add(1));
    agent.services.running.borrow_mut().insert(name.to_owned(), again);
    Ok(())
}

/// No service is restarted from here on.
pub(super) fn stop_supervising(agent: &Agent) {
    for supervised in agent.services.running.borrow().values() {
        supervised.ask_to_stop();
    }
}

fn check(services: &[Service]) -> Result<(), RequestError> {
    if services.len() > SERVICES_MAX {
        return Err(fail(ErrorCode::TooMany, format_args!("more than {SERVICES_MAX} services")));
    }
    let mut names = std::collections::BTreeSet::new();
    for service in services {
        let name = &service.name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(invalid(format_args!("`{name}` is not a valid service name")));
        }
        if service.argv.first().is_none_or(String::is_empty) {
            return Err(invalid(format_args!("service `{name}` has no command")));
        }
        if !names.insert(name) {
            return Err(invalid(format_args!("two services have the name `{name}`")));
        }
    }
    Ok(())
}

/// Starts a service, with a task that manages it.
fn start(agent: &Rc<Agent>, service: Service) -> Rc<SupervisedService> {
    let supervised = Rc::new(SupervisedService::new(service));
    // Ends when the service is stopped or does not start again.
    drop(tokio::task::spawn_local(supervise(Rc::clone(agent), Rc::clone(&supervised))));
    supervised
}

async fn supervise(agent: Rc<Agent>, supervised: Rc<SupervisedService>) {
    let mut pause = PAUSE_FIRST;
    while !supervised.stopping.get() {
        supervised.state.set(ServiceState::Running);
        let began = clock::boot_ms();
        let outcome = run_once(&agent, &supervised).await;
        if supervised.stopping.get() || !starts_again(supervised.service.restart, outcome.as_ref()) {
            break;
        }
        if clock::boot_ms().saturating_sub(began) >= STEADY_MS {
            pause = PAUSE_FIRST;
        }
        supervised.state.set(ServiceState::BackingOff);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = supervised.until_asked() => break,
        }
        pause = (pause * 2).min(PAUSE_MAX);
        supervised.restarts.set(supervised.restarts.get().saturating_add(1));
    }
    supervised.end();
}

fn starts_again(policy: ServiceRestart, outcome: Option<&ExecOutcome>) -> bool {
    match policy {
        ServiceRestart::Always => true,
        ServiceRestart::OnFailure => outcome.is_none_or(|outcome| outcome.exit_code != Some(0)),
        ServiceRestart::Never => false,
    }
}

/// One run, until the process ends or is stopped. Returns `None` if it could not be started.
async fn run_once(agent: &Rc<Agent>, supervised: &SupervisedService) -> Option<ExecOutcome> {
    let service = &supervised.service;
    let start = ExecStart {
        exec: random::new_id(),
        argv: service.argv.clone(),
        env: service.env.clone(),
        cwd: service.cwd.clone(),
        user: service.user.clone(),
        stdin: StdinMode::Null,
        terminal: None,
        timeout_ms: None,
        ring_bytes: RING_BYTES,
        attach: None,
        hold: false,
        then_stop: false,
    };
    let Ok(exec) = exec::start(agent, start).await else { return None };
    exec.note_supervised();
    *supervised.exec.borrow_mut() = Some(Rc::clone(&exec));
    tokio::select! {
        () = exec.wait_ended() => {}
        () = supervised.until_asked() => {
            // It may have ended already.
            let _ = exec.signal(libc::SIGTERM, true);
            if tokio::time::timeout(STOP_GRACE, exec.wait_ended()).await.is_err() {
                let _ = exec.signal(libc::SIGKILL, true);
                exec.wait_ended().await;
            }
        }
    }
    exec.outcome()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended_with(exit_code: Option<i32>) -> ExecOutcome {
        ExecOutcome {
            exit_code,
            signal: None,
            timed_out: false,
            killed_from_outside: false,
            cpu_us: 0,
            ram_max_bytes: 0,
            wall_us: 0,
            ended_ms: 0,
        }
    }

    #[test]
    fn the_restart_policy_decides_whether_a_service_restarts() {
        let (good, bad, signalled) = (ended_with(Some(0)), ended_with(Some(1)), ended_with(None));
        for outcome in [Some(&good), Some(&bad), Some(&signalled), None] {
            assert!(starts_again(ServiceRestart::Always, outcome));
            assert!(!starts_again(ServiceRestart::Never, outcome));
        }
        assert!(!starts_again(ServiceRestart::OnFailure, Some(&good)));
        for outcome in [Some(&bad), Some(&signalled), None] {
            assert!(starts_again(ServiceRestart::OnFailure, outcome));
        }
    }
}
