//! Validates requests and completes them with the operator's defaults.

use std::collections::BTreeMap;

use burrow_api::{
    CreateExec, CreateSandbox, CreateService, LimitsRequest, RestartPolicy, SandboxState, Scope, StdinMode,
    UpdateSandbox, defaults,
};
use burrow_engine::{CreateOptions, ExecOptions, LimitsChange, RatesChange, RollbackMode, UpdateOptions};
use burrow_guest::protocol;
use burrow_model::{Lifetime, Name, NetworkPolicy, Rates, ServiceSpec};

use super::checks::{check_path, check_text, image_reference, label, name, user, variable};
use super::network::{network_change, network_policy};
use super::sleep::{new_sleep_policy, snapshot_policy};
use crate::error::ApiError;
use burrow_config::Defaults;

/// Ten years: longer than needed, and far from an overflow of milliseconds.
const TTL_SECONDS_MAX: u64 = 10 * 366 * 24 * 60 * 60;

/// Maximum number of services of one sandbox: each is a permanent process.
const SERVICES_MAX: usize = 100;

/// Maximum number of variables or labels of one sandbox or exec.
pub(super) const PAIRS_MAX: usize = 1_000;

/// Maximum number of arguments of one exec.
const ARGUMENTS_MAX: usize = 10_000;

/// Maximum timeout of an exec.
const TIMEOUT_MS_MAX: u64 = TTL_SECONDS_MAX * 1000;

const RING_BYTES: std::ops::RangeInclusive<u32> = 4096..=67_108_864;

/// `network` is the policy if the request has none; `now_ms` is the start of its time to live.
pub fn create_options(
    request: CreateSandbox,
    defaults: &Defaults,
    network: &NetworkPolicy,
    now_ms: u64,
) -> Result<CreateOptions, ApiError> {
    let named = request.name.as_deref().map(|text| name("name", text)).transpose()?;
    if request.if_not_exists && named.is_none() {
        return Err(ApiError::invalid("`if_not_exists` requires a `name`"));
    }
    check_variables("env", &request.env)?;
    check_count("labels", request.labels.len(), PAIRS_MAX)?;
    for (key, value) in &request.labels {
        label(key, value)?;
    }
    if let Some(path) = &request.workdir {
        check_path("workdir", path)?;
    }
    if let Some(text) = &request.user {
        user("user", text)?;
    }
    check_count("services", request.services.len(), SERVICES_MAX)?;
    let mut services = BTreeMap::new();
    for (key, service) in request.services {
        services.insert(name("services", &key)?, service_spec(service)?);
    }
    let image = request.image.unwrap_or_else(|| defaults.image.clone());
    image_reference("image", &image)?;
    let driver = request.driver.unwrap_or_else(|| defaults.driver.clone());
    check_word("driver", &driver)?;
    let limits = request.limits.unwrap_or_default();
    Ok(CreateOptions {
        name: named,
        if_not_exists: request.if_not_exists,
        image,
        driver,
        limits: change(limits).apply(defaults.limits),
        // A rate of 0 is rejected: it would allow no data at all.
        rates: Rates {
            disk_mib_per_second: limits.disk_mib_per_second,
            network_mib_per_second: limits.network_mib_per_second,
        },
        env: request.env,
        labels: request.labels,
        workdir: request.workdir,
        user: request.user,
        lifetime: lifetime(request.ephemeral, request.ttl_seconds, now_ms)?,
        services,
        network: request.network.map(|request| network_policy(request, network)).transpose()?,
        sleep: new_sleep_policy(request.sleep.unwrap_or_default(), defaults.sleep)?,
        snapshots: request.snapshot_policy.map(snapshot_policy).transpose()?.flatten(),
        // Contains the name of a snapshot, which has to be looked up.
        rotate: None,
        // Contains names of spaces, which have to be looked up.
        memory: burrow_model::MemorySpec::quiet(),
        lease: None,
        // Contains names of volumes, which have to be looked up.
        volumes: Vec::new(),
        idempotency: None,
    })
}

pub(super) fn lifetime(ephemeral: bool, ttl_seconds: Option<u64>, now_ms: u64) -> Result<Lifetime, ApiError> {
    let expires_ms = expires("ttl_seconds", ttl_seconds, now_ms)?;
    Ok(if ephemeral { Lifetime::Ephemeral { expires_ms } } else { Lifetime::Persistent { expires_ms } })
}

/// The end of a time to live that starts now.
pub fn expires(field: &str, ttl_seconds: Option<u64>, now_ms: u64) -> Result<Option<u64>, ApiError> {
    let Some(seconds) = ttl_seconds else { return Ok(None) };
    if !(1..=TTL_SECONDS_MAX).contains(&seconds) {
        return Err(ApiError::invalid(format!("`{field}` must be from 1 to {TTL_SECONDS_MAX}")));
    }
    Ok(Some(now_ms + seconds * 1000))
}

fn change(request: LimitsRequest) -> LimitsChange {
    let LimitsRequest { ram_mib, cpu_millis, pids, disk_mib, .. } = request;
    LimitsChange { ram_mib, cpu_millis, pids, disk_mib }
}

/// 0 removes a limit.
fn rates_change(request: LimitsRequest) -> RatesChange {
    let bound = |rate: Option<u32>| rate.map(|rate| Some(rate).filter(|rate| *rate > 0));
    RatesChange {
        disk_mib_per_second: bound(request.disk_mib_per_second),
        network_mib_per_second: bound(request.network_mib_per_second),
    }
}

pub fn update_options(request: UpdateSandbox) -> Result<UpdateOptions, ApiError> {
    let new_name = request.name.as_deref().map(|text| name("name", text)).transpose()?;
    check_count("labels", request.labels.len(), PAIRS_MAX)?;
    for (key, value) in &request.labels {
        label(key, value.as_deref().unwrap_or_default())?;
    }
    check_count("env", request.env.len(), PAIRS_MAX)?;
    for (key, value) in &request.env {
        variable("env", key, value.as_deref().unwrap_or_default())?;
    }
    let limits = request.limits.unwrap_or_default();
    Ok(UpdateOptions {
        name: new_name,
        limits: change(limits),
        rates: rates_change(limits),
        labels: request.labels,
        env: request.env,
        services: BTreeMap::<Name, Option<ServiceSpec>>::new(),
        network: request.network.map(network_change).transpose()?,
        // Changes the existing policy, which has to be looked up.
        sleep: None,
        snapshots: request.snapshot_policy.map(snapshot_policy).transpose()?,
        rotate: None,
        memory: None,
        lease: None,
        volumes: None,
    })
}

pub fn service_spec(request: CreateService) -> Result<ServiceSpec, ApiError> {
    let argv = argv(request.argv, request.command)?;
    check_variables("env", &request.env)?;
    if let Some(path) = &request.workdir {
        check_path("workdir", path)?;
    }
    if let Some(text) = &request.user {
        user("user", text)?;
    }
    let restart = match request.restart {
        RestartPolicy::Always => burrow_model::RestartPolicy::Always,
        RestartPolicy::OnFailure => burrow_model::RestartPolicy::OnFailure,
        RestartPolicy::Never => burrow_model::RestartPolicy::Never,
    };
    Ok(ServiceSpec { argv, env: request.env, workdir: request.workdir, user: request.user, restart })
}

/// `attach`: whether the client receives the output on the same connection.
pub fn exec_options(request: &CreateExec) -> Result<ExecOptions, ApiError> {
    let argv = argv(request.argv.clone(), request.command.clone())?;
    check_variables("env", &request.env)?;
    if let Some(path) = &request.workdir {
        check_path("workdir", path)?;
    }
    if let Some(text) = &request.user {
        user("user", text)?;
    }
    if request.timeout_ms.is_some_and(|timeout| !(1..=TIMEOUT_MS_MAX).contains(&timeout)) {
        return Err(ApiError::invalid(format!("`timeout_ms` must be from 1 to {TIMEOUT_MS_MAX}")));
    }
    let ring_bytes = request.ring_bytes.unwrap_or(defaults::RING_BYTES);
    if !RING_BYTES.contains(&ring_bytes) {
        let message = format!("`ring_bytes` must be from {} to {}", RING_BYTES.start(), RING_BYTES.end());
        return Err(ApiError::invalid(message));
    }
    let terminal = match request.terminal {
        Some(size) if size.columns == 0 || size.rows == 0 => {
            return Err(ApiError::invalid("`terminal` must have at least one column and one row"));
        }
        Some(size) => Some(protocol::TerminalSize { columns: size.columns, rows: size.rows }),
        None => None,
    };
    // Input requires a pipe.
    let stdin = match (request.stdin, &request.input) {
        (StdinMode::Pipe, _) | (StdinMode::Null, Some(_)) => protocol::StdinMode::Pipe,
        (StdinMode::Null, None) => protocol::StdinMode::Null,
    };
    Ok(ExecOptions {
        id: None,
        argv,
        env: request.env.clone(),
        workdir: request.workdir.clone(),
        user: request.user.clone(),
        stdin,
        terminal,
        timeout_ms: request.timeout_ms,
        ring_bytes,
        attach: request.wait.then_some(protocol::ReadMode::Lossless),
        hold: request.hold,
        then_stop: request.then_stop,
        rollback: rollback_mode(request)?,
    })
}

fn rollback_mode(request: &CreateExec) -> Result<RollbackMode, ApiError> {
    match (request.snapshot, request.rollback_on_failure) {
        (false, false) => return Ok(RollbackMode::Nothing),
        (true, false) => return Ok(RollbackMode::Snapshot),
        (_, true) => {}
    }
    if !request.wait && !request.hold {
        let message = "`rollback_on_failure` needs a client that waits for the exec: set `wait` or `hold`";
        return Err(ApiError::invalid(message)
            .hint("to roll back a detached exec manually, set `snapshot`, and restore that snapshot"));
    }
    if request.then_stop {
        return Err(ApiError::invalid("`then_stop` and `rollback_on_failure` cannot be combined"));
    }
    Ok(RollbackMode::Rollback { keep: request.snapshot })
}

fn argv(argv: Vec<String>, command: Option<String>) -> Result<Vec<String>, ApiError> {
    let argv = match (argv.is_empty(), command) {
        (false, None) => argv,
        (true, Some(command)) => vec!["/bin/sh".to_owned(), "-c".to_owned(), command],
        (false, Some(_)) => return Err(ApiError::invalid("give either `argv` or `command`, not both")),
        (true, None) => return Err(ApiError::invalid("give `argv` or `command`")),
    };
    check_count("argv", argv.len(), ARGUMENTS_MAX)?;
    if argv[0].is_empty() {
        return Err(ApiError::invalid("`argv` must begin with a program"));
    }
    for argument in &argv {
        check_text("argv", argument)?;
    }
    Ok(argv)
}

pub fn check_variables(field: &str, variables: &BTreeMap<String, String>) -> Result<(), ApiError> {
    check_count(field, variables.len(), PAIRS_MAX)?;
    variables.iter().try_for_each(|(name, value)| variable(field, name, value))
}

pub(super) fn check_count(field: &str, count: usize, max: usize) -> Result<(), ApiError> {
    if count <= max {
        Ok(())
    } else {
        Err(ApiError::invalid(format!("`{field}` has more than {max} entries")))
    }
}

/// Names of images and drivers are looked up later, so here they only have to be printable.
fn check_word(field: &str, text: &str) -> Result<(), ApiError> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=63).contains(&text.len()) && text.bytes().all(good) {
        return Ok(());
    }
    Err(ApiError::invalid(format!("`{field}` must be 1 to 63 lower-case letters, digits and hyphens")))
}

pub fn key_scope(scope: Scope) -> burrow_model::Scope {
    match scope {
        Scope::Read => burrow_model::Scope::Read,
        Scope::Exec => burrow_model::Scope::Exec,
        Scope::Admin => burrow_model::Scope::Admin,
    }
}

pub fn sandbox_state(state: SandboxState) -> burrow_model::State {
    match state {
        SandboxState::Creating => burrow_model::State::Creating,
        SandboxState::Starting => burrow_model::State::Starting,
        SandboxState::Running => burrow_model::State::Running,
        SandboxState::Paused => burrow_model::State::Paused,
        SandboxState::Stopping => burrow_model::State::Stopping,
        SandboxState::Stopped => burrow_model::State::Stopped,
        SandboxState::Deleting => burrow_model::State::Deleting,
        SandboxState::Failed => burrow_model::State::Failed,
        SandboxState::Hibernating => burrow_model::State::Hibernating,
        SandboxState::Hibernated => burrow_model::State::Hibernated,
        SandboxState::Waking => burrow_model::State::Waking,
        SandboxState::Restoring => burrow_model::State::Restoring,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_model::{Limits, SleepPolicy};

    fn operator() -> Defaults {
        let limits = Limits { ram_mib: 1024, cpu_millis: 2000, pids: 1024, disk_mib: 10_240 };
        let sleep = SleepPolicy { pause_after_ms: Some(60_000), ..SleepPolicy::never() };
        Defaults { image: "debian".to_owned(), driver: "container".to_owned(), limits, sleep }
    }

    #[track_caller]
    fn refused(json: &str, expected: &str) {
        let request = serde_json::from_str(json).expect("the request is well-formed");
        let error =
            create_options(request, &operator(), &NetworkPolicy::closed(), 0).expect_err(json).into_detail();
        assert!(error.message.contains(expected), "{}", error.message);
    }

    #[test]
    fn invalid_sandboxes_are_rejected_with_their_field() {
        refused(r#"{"name": "a\u0000b"}"#, "`name`");
        refused(r#"{"name": "\u001b[31m"}"#, "`name`");
        refused(r#"{"name": "../etc"}"#, "`name`");
        refused(r#"{"if_not_exists": true}"#, "`if_not_exists`");
        refused(r#"{"env": {"A B": "x"}}"#, "`env`");
        refused(r#"{"env": {"A": "x\u0000"}}"#, "`env`");
        refused(r#"{"labels": {"": "x"}}"#, "`labels`");
        refused(r#"{"labels": {"a": "\u0007"}}"#, "`labels`");
        refused(r#"{"workdir": "relative"}"#, "`workdir`");
        refused(r#"{"user": "a b"}"#, "`user`");
        refused(r#"{"image": "../../etc"}"#, "`image`");
        refused(r#"{"driver": ""}"#, "`driver`");
        refused(r#"{"ttl_seconds": 0}"#, "`ttl_seconds`");
        refused(r#"{"ttl_seconds": 18446744073709551615}"#, "`ttl_seconds`");
        refused(r#"{"services": {"A": {"command": "x"}}}"#, "`services`");
        refused(r#"{"services": {"a": {}}}"#, "`argv` or `command`");
        refused(r#"{"sleep": {"pause_after_seconds": 60, "hibernate_after_seconds": 30}}"#, "`sleep`");
        refused(r#"{"snapshot_policy": {"every_seconds": 5}}"#, "`snapshot_policy`");
    }

    #[test]
    fn absent_fields_take_the_operators_default() {
        let request = serde_json::from_str(r#"{"limits": {"ram_mib": 64}, "ttl_seconds": 60}"#).unwrap();
        let options = create_options(request, &operator(), &NetworkPolicy::closed(), 1_000).unwrap();
        assert_eq!(options.limits, Limits { ram_mib: 64, ..operator().limits });
        assert_eq!(options.image, "debian");
        assert_eq!(options.lifetime, Lifetime::Persistent { expires_ms: Some(61_000) });
        assert_eq!(options.sleep, operator().sleep);
    }

    #[test]
    fn rates_are_unlimited_by_default_and_zero_removes_a_limit() {
        let options = |json: &str| {
            let request = serde_json::from_str(json).unwrap();
            create_options(request, &operator(), &NetworkPolicy::closed(), 0).unwrap()
        };
        assert_eq!(options("{}").rates, Rates::unlimited());
        let rates = options(r#"{"limits": {"disk_mib_per_second": 50}}"#).rates;
        assert_eq!(rates, Rates { disk_mib_per_second: Some(50), network_mib_per_second: None });
        let json = r#"{"limits": {"disk_mib_per_second": 0, "ram_mib": 64}}"#;
        let update = update_options(serde_json::from_str(json).unwrap()).unwrap();
        let held = Rates { network_mib_per_second: Some(7), ..rates };
        assert_eq!(update.rates.apply(held), Rates { disk_mib_per_second: None, ..held });
    }

    #[track_caller]
    fn refused_exec(json: &str, expected: &str) {
        let request = serde_json::from_str(json).expect("the request is well-formed");
        let error = exec_options(&request).expect_err(json).into_detail();
        assert!(error.message.contains(expected), "{}", error.message);
    }

    #[test]
    fn invalid_execs_are_rejected_with_their_field() {
        refused_exec("{}", "`argv` or `command`");
        refused_exec(r#"{"argv": ["a"], "command": "b"}"#, "not both");
        refused_exec(r#"{"argv": [""]}"#, "`argv`");
        refused_exec(r#"{"argv": ["a\u0000"]}"#, "`argv`");
        refused_exec(r#"{"command": "x", "timeout_ms": 0}"#, "`timeout_ms`");
        refused_exec(r#"{"command": "x", "ring_bytes": 1}"#, "`ring_bytes`");
        refused_exec(r#"{"command": "x", "terminal": {"columns": 0, "rows": 1}}"#, "`terminal`");
        refused_exec(r#"{"command": "x", "workdir": "/a\u0000"}"#, "`workdir`");
    }

    #[test]
    fn input_uses_a_pipe() {
        let request = serde_json::from_str(r#"{"command": "cat", "input": "x", "wait": true}"#).unwrap();
        let options = exec_options(&request).unwrap();
        assert_eq!(options.stdin, protocol::StdinMode::Pipe);
        assert_eq!(options.argv, ["/bin/sh", "-c", "cat"]);
        assert_eq!(options.attach, Some(protocol::ReadMode::Lossless));
    }
}
