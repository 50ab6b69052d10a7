//! Converts rows of the catalog and messages of the guest to types of the API.

use burrow_api as api;
use burrow_catalog::{EventRow, ExecRow, KeyRow, SandboxRow};
use burrow_engine::{ExecRecord, ExecReport, OutputStream, Rollback, ServiceStatus};
use burrow_guest::protocol::{self, ExecInfo, MachineStats, signal_name};
use burrow_model::{MIB, SandboxId, State, StopReason};
use burrow_runtime::{Ability, Incidents};

use super::{denied, related};
use crate::error::ApiError;

pub fn sandbox(row: SandboxRow) -> api::Sandbox {
    let memory = super::memory::sandbox_memory(&row);
    let spec = row.spec;
    api::Sandbox {
        id: row.id.into(),
        name: row.name.map(String::from),
        state: state(row.state),
        stop_reason: row.stop_reason.map(stop_reason),
        failure: row.failure,
        recovering: None,
        image: spec.image.into(),
        image_id: row.image.into(),
        driver: spec.driver,
        limits: api::Limits {
            ram_mib: spec.limits.ram_mib,
            cpu_millis: spec.limits.cpu_millis,
            pids: spec.limits.pids,
            disk_mib: spec.limits.disk_mib,
            disk_mib_per_second: spec.rates.disk_mib_per_second,
            network_mib_per_second: spec.rates.network_mib_per_second,
        },
        env: spec.env,
        labels: spec.labels,
        workdir: spec.workdir,
        user: spec.user,
        ephemeral: spec.lifetime.is_ephemeral(),
        expires_ms: spec.lifetime.expires_ms(),
        created_ms: row.created_ms,
        started_ms: row.started_ms,
        stopped_ms: row.stopped_ms,
        services: spec.services.into_keys().map(String::from).collect(),
        network: super::network::network(&spec.network),
        origin: row.origin.map(super::sleep::origin),
        sleep: super::sleep::sleep(spec.sleep),
        snapshot_policy: spec.snapshots.map(super::sleep::snapshots),
        rotate: spec.rotate.map(super::sleep::rotate),
        active_ms: row.active_ms,
        asleep_since_ms: row.slept_ms,
        memory: Some(memory),
        volumes: spec.volumes.into_iter().map(super::volumes::volume_mount).collect(),
    }
}

pub(super) fn state(state: State) -> api::SandboxState {
    match state {
        State::Creating => api::SandboxState::Creating,
        State::Starting => api::SandboxState::Starting,
        State::Running => api::SandboxState::Running,
        State::Paused => api::SandboxState::Paused,
        State::Stopping => api::SandboxState::Stopping,
        State::Stopped => api::SandboxState::Stopped,
        State::Deleting => api::SandboxState::Deleting,
        State::Failed => api::SandboxState::Failed,
        State::Hibernating => api::SandboxState::Hibernating,
        State::Hibernated => api::SandboxState::Hibernated,
        State::Waking => api::SandboxState::Waking,
        State::Restoring => api::SandboxState::Restoring,
    }
}

fn stop_reason(reason: StopReason) -> api::StopReason {
    match reason {
        StopReason::Requested => api::StopReason::Requested,
        StopReason::GuestExited => api::StopReason::GuestExited,
        StopReason::HostRestarted => api::StopReason::HostRestarted,
        StopReason::Expired => api::StopReason::Expired,
        StopReason::Idle => api::StopReason::Idle,
    }
}

pub fn stats(
    row: &SandboxRow,
    stats: &MachineStats,
    incidents: Incidents,
    disk_used_bytes: u64,
) -> api::Stats {
    api::Stats {
        id: row.id.to_string(),
        state: state(row.state),
        cpu_us: stats.cpu_us,
        ram_bytes: stats.ram_bytes,
        ram_limit_bytes: u64::from(row.spec.limits.ram_mib) * MIB,
        processes: stats.processes,
        threads: stats.threads,
        disk_used_bytes,
        disk_limit_bytes: u64::from(row.spec.limits.disk_mib) * MIB,
        network_received_bytes: stats.network_received_bytes,
        network_sent_bytes: stats.network_sent_bytes,
        execs_running: stats.execs_running,
        agent_ram_bytes: stats.agent_ram_bytes,
        oom_kills: incidents.oom_kills.saturating_add(stats.oom_kills),
        uptime_ms: stats.uptime_ms,
    }
}

/// The guest's data is used while the guest has it, then that of the catalog.
pub fn exec(record: ExecRecord) -> api::Exec {
    match record.info {
        Some(info) => exec_started(&record.row.sandbox, info),
        None => exec_stored(record.row),
    }
}

/// With what belongs to its end.
pub fn exec_report(report: ExecReport) -> api::Exec {
    api::Exec {
        egress_denied: report.denied.into_iter().map(denied).collect(),
        snapshot: report.status.snapshot.map(String::from),
        rollback: report.status.rollback.as_ref().map(rollback),
        related: report.related.into_iter().map(related).collect(),
        ..exec(report.record)
    }
}

fn rollback(rollback: &Rollback) -> api::Rollback {
    let (state, undo, error) = match rollback {
        Rollback::Pending => (api::RollbackState::Pending, None, None),
        Rollback::Unneeded => (api::RollbackState::Unneeded, None, None),
        Rollback::Done { undo } => (api::RollbackState::Done, undo.as_ref(), None),
        Rollback::Failed { error } => (api::RollbackState::Failed, None, Some(ApiError::described(error))),
    };
    api::Rollback { state, undo: undo.map(ToString::to_string), error: error.map(ApiError::into_detail) }
}

fn exec_started(sandbox: &SandboxId, info: ExecInfo) -> api::Exec {
    let (state, outcome, ended_ms) = match info.state {
        protocol::ExecState::Running => (api::ExecState::Running, None, None),
        protocol::ExecState::Ended(outcome) => {
            let ended_ms = outcome.ended_ms;
            (api::ExecState::Ended, Some(exec_outcome(&outcome)), Some(ended_ms))
        }
    };
    api::Exec {
        id: info.exec,
        sandbox_id: sandbox.to_string(),
        argv: info.argv,
        state,
        pid: Some(info.pid),
        terminal: info.terminal,
        started_ms: info.started_ms,
        ended_ms,
        outcome,
        output_end: info.output_end,
        output_start: info.output_start,
        output_dropped: info.output_dropped,
        egress_denied: Vec::new(),
        snapshot: None,
        rollback: None,
        related: Vec::new(),
    }
}

fn exec_stored(row: ExecRow) -> api::Exec {
    let outcome = row.outcome.and_then(|json| serde_json::from_value::<protocol::ExecOutcome>(json).ok());
    api::Exec {
        id: row.id.into(),
        sandbox_id: row.sandbox.into(),
        argv: row.argv,
        state: match row.state {
            burrow_catalog::ExecState::Running => api::ExecState::Running,
            burrow_catalog::ExecState::Ended => api::ExecState::Ended,
            burrow_catalog::ExecState::Lost => api::ExecState::Lost,
        },
        pid: None,
        terminal: row.command.get("terminal").and_then(serde_json::Value::as_bool).unwrap_or(false),
        started_ms: row.started_ms,
        ended_ms: row.ended_ms,
        outcome: outcome.as_ref().map(exec_outcome),
        // Output is kept in the guest's ring, which no longer exists.
        output_end: 0,
        output_start: 0,
        output_dropped: 0,
        egress_denied: Vec::new(),
        snapshot: None,
        rollback: None,
        related: Vec::new(),
    }
}

fn exec_outcome(outcome: &protocol::ExecOutcome) -> api::ExecOutcome {
    api::ExecOutcome {
        exit_code: outcome.exit_code,
        signal: outcome.signal.map(signal_name),
        timed_out: outcome.timed_out,
        killed_from_outside: outcome.killed_from_outside,
        cpu_us: outcome.cpu_us,
        ram_max_bytes: outcome.ram_max_bytes,
        wall_us: outcome.wall_us,
    }
}

pub fn output_stream(stream: OutputStream) -> api::OutputStream {
    match stream {
        OutputStream::Stdout => api::OutputStream::Stdout,
        OutputStream::Stderr => api::OutputStream::Stderr,
    }
}

pub fn file_entry(entry: protocol::FileEntry) -> api::FileEntry {
    api::FileEntry {
        name: entry.name,
        path: entry.path,
        kind: match entry.kind {
            protocol::FileKind::File => api::FileKind::File,
            protocol::FileKind::Directory => api::FileKind::Directory,
            protocol::FileKind::Symlink => api::FileKind::Symlink,
            protocol::FileKind::Other => api::FileKind::Other,
        },
        size: entry.size,
        mode: format!("{:04o}", entry.mode & 0o7777),
        uid: entry.uid,
        gid: entry.gid,
        user: entry.user,
        group: entry.group,
        modified_ms: entry.modified_ms,
        target: entry.target,
    }
}

pub fn watch_event(event: protocol::WatchEvent) -> api::WatchEvent {
    let kind = match event.kind {
        protocol::WatchEventKind::Created => api::WatchEventKind::Created,
        protocol::WatchEventKind::Written => api::WatchEventKind::Written,
        protocol::WatchEventKind::Removed => api::WatchEventKind::Removed,
        protocol::WatchEventKind::Renamed => api::WatchEventKind::Renamed,
        protocol::WatchEventKind::Attributes => api::WatchEventKind::Attributes,
        protocol::WatchEventKind::Overflow => api::WatchEventKind::Overflow,
    };
    api::WatchEvent { kind, path: event.path, from: event.from }
}

pub fn service(status: ServiceStatus) -> api::Service {
    let (state, exec_id, restarts) = match status.running {
        None => (api::ServiceState::Stopped, None, 0),
        Some(running) => {
            let state = match running.state {
                protocol::ServiceState::Running => api::ServiceState::Running,
                protocol::ServiceState::BackingOff => api::ServiceState::BackingOff,
                protocol::ServiceState::Ended => api::ServiceState::Ended,
            };
            (state, running.exec, running.restarts)
        }
    };
    let restart = match status.spec.restart {
        burrow_model::RestartPolicy::Always => api::RestartPolicy::Always,
        burrow_model::RestartPolicy::OnFailure => api::RestartPolicy::OnFailure,
        burrow_model::RestartPolicy::Never => api::RestartPolicy::Never,
    };
    api::Service { name: status.name.into(), argv: status.spec.argv, restart, state, exec_id, restarts }
}

pub fn key(row: KeyRow) -> api::Key {
    api::Key {
        id: row.id.into(),
        name: row.name,
        prefix: row.prefix,
        scope: match row.scope {
            burrow_model::Scope::Read => api::Scope::Read,
            burrow_model::Scope::Exec => api::Scope::Exec,
            burrow_model::Scope::Admin => api::Scope::Admin,
        },
        sandbox_id: row.sandbox.map(String::from),
        forks: row.forks,
        created_ms: row.created_ms,
        expires_ms: row.expires_ms,
        revoked_ms: row.revoked_ms,
        last_used_ms: row.last_used_ms,
    }
}

pub fn event(row: EventRow) -> api::Event {
    api::Event {
        seq: row.seq,
        at_ms: row.at_ms,
        kind: row.kind,
        sandbox_id: row.sandbox.map(String::from),
        exec_id: row.exec.map(String::from),
        detail: row.detail,
    }
}

pub fn ability(ability: Ability) -> api::Ability {
    match ability {
        Ability::Yes => api::Ability { yes: true, reason: None, fix: None },
        Ability::No { reason, fix } => api::Ability { yes: false, reason: Some(reason), fix },
    }
}
