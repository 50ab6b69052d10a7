//! Automatic policies of sandboxes: falling asleep, snapshots, rotation.
//!
//! ```text
//!   every second, for each sandbox with a policy:
//!     in use (an open stream, a request)? more CPU than the threshold? bytes in or out?  ─► it is active
//!     idle for long enough ─► its actor is asked to put it to sleep, checks again, and does it
//!     active since its last snapshot, and one is due ─► snapshot, the oldest beyond `keep` are removed
//!     rotation due, and not in use ─► restored to the snapshot of its rotation policy
//! ```
//!
//! A computing sandbox is active even without connections. One that only waits is idle, however many processes it has: its next use
//! wakes it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use burrow_model::{SandboxId, SnapshotKind, SnapshotPolicy, State, TenantId};
use futures_util::{StreamExt as _, stream};

use super::activity::AutomaticPolicies;
use crate::actor::command::{Command, SleepDepth};
use crate::actor::handle::ActorHandle;
use crate::shared::Shared;
use crate::snapshots::removal::remove_snapshot;
use crate::{Engine, EngineError, SnapshotOptions};

/// How often sandboxes are checked.
const INTERVAL: Duration = Duration::from_secs(1);

/// Sandboxes that are checked concurrently.
const PARALLEL: usize = 8;

/// The longest interval at which the use of CPU and network is sampled. Samples are taken four times in the shortest period of a
/// policy, but not more often than sandboxes are checked.
const SAMPLE_MS_MAX: u64 = 10_000;

/// If a sandbox could not be put to sleep, it is tried again after this time, or after it was active. Each further attempt waits twice
/// as long, up to 16 times: a dump may be large, and its trial may fail each time.
const RETRY_MS: u64 = 300_000;
const RETRY_DOUBLINGS_MAX: u32 = 4;

/// The counters of a sandbox at the last check.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: u64,
    cpu_us: u64,
    bytes: u64,
}

/// What this loop remembers of one sandbox.
#[derive(Clone, Copy, Debug, Default)]
struct Observation {
    sample: Option<Sample>,
    asked: Option<SleepRequest>,
}

/// A request to a sandbox's actor to put it to sleep.
#[derive(Clone, Copy, Debug)]
struct SleepRequest {
    depth: SleepDepth,
    at_ms: u64,
    /// How often this was asked before, since the sandbox was active.
    retries: u32,
}

/// Runs until the engine shuts down or is dropped: a daemon that is about to end begins nothing new.
pub(crate) fn spawn(engine: &Engine) {
    let draining = engine.shared.background.draining.clone();
    let shared = Arc::downgrade(&engine.shared);
    drop(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut seen: HashMap<SandboxId, Observation> = HashMap::new();
        let busy = Arc::new(std::sync::Mutex::new(HashSet::new()));
        loop {
            if draining.run_until_cancelled(ticks.tick()).await.is_none() {
                return;
            }
            let Some(shared) = Weak::upgrade(&shared) else { return };
            seen = check_all(&shared, seen, &busy).await;
        }
    }));
}

type BusySandboxes = Arc<std::sync::Mutex<HashSet<SandboxId>>>;

async fn check_all(
    shared: &Arc<Shared>,
    seen: HashMap<SandboxId, Observation>,
    busy: &BusySandboxes,
) -> HashMap<SandboxId, Observation> {
    let planned = shared.registry.all().into_iter().filter_map(|actor| {
        let plan = actor.activity().plan();
        (!plan.is_empty()).then_some((actor, plan))
    });
    let seen = &seen;
    let looked = stream::iter(planned).map(|(actor, plan)| async move {
        let before = seen.get(actor.id()).copied().unwrap_or_default();
        let after = check_sandbox(shared, &actor, &plan, before).await;
        run_policies(shared, &actor, &plan, busy);
        (actor.id().clone(), after)
    });
    looked.buffer_unordered(PARALLEL).collect().await
}

/// Records activity, and asks for idle sandboxes to be put to sleep.
async fn check_sandbox(
    shared: &Shared,
    actor: &ActorHandle,
    plan: &AutomaticPolicies,
    before: Observation,
) -> Observation {
    let (activity, now) = (actor.activity(), shared.now_ms());
    let mut after = before;
    if plan.state != State::Running {
        after.sample = None;
    } else if before.sample.is_none_or(|sample| now.saturating_sub(sample.at_ms) >= sample_every_ms(plan)) {
        after.sample = sample(shared, actor, plan, now).await;
        let was_active = match (before.sample, after.sample) {
            (Some(old), Some(new)) => was_active(old, new, shared.policy.idle.cpu_millis),
            _ => false,
        };
        if was_active {
            activity.touch();
        }
    }
    if activity.in_use() {
        activity.touch();
        return after;
    }
    let idle_since_ms = activity.last_ms();
    let depth = due(plan, now.saturating_sub(idle_since_ms)).or_else(|| awaited(plan, now));
    let Some(depth) = depth else { return after };
    let asked = before.asked.filter(|asked| asked.depth == depth && asked.at_ms > idle_since_ms);
    let retries = match asked {
        Some(asked) if now.saturating_sub(asked.at_ms) < retry_ms(asked.retries) => return after,
        Some(asked) => asked.retries.saturating_add(1),
        None => 0,
    };
    actor.tell(Command::Sleep { depth, idle_since_ms });
    after.asked = Some(SleepRequest { depth, at_ms: now, retries });
    after
}

fn retry_ms(retries: u32) -> u64 {
    RETRY_MS << retries.min(RETRY_DOUBLINGS_MAX)
}

/// The hibernate that was refused at the end of a lease, once it is to be tried again.
fn awaited(plan: &AutomaticPolicies, now_ms: u64) -> Option<SleepDepth> {
    let since_ms = plan.awaits_hibernate_ms?;
    (now_ms.saturating_sub(since_ms) >= RETRY_MS).then_some(SleepDepth::Hibernate)
}

fn sample_every_ms(plan: &AutomaticPolicies) -> u64 {
    let sleep = [plan.sleep.pause_after_ms, plan.sleep.hibernate_after_ms, plan.sleep.stop_after_ms];
    let snapshots = plan.snapshots.map(|policy| policy.every_ms);
    let shortest = sleep.into_iter().chain([snapshots]).flatten().min();
    shortest.map_or(SAMPLE_MS_MAX, |shortest| (shortest / 4).min(SAMPLE_MS_MAX))
}

async fn sample(shared: &Shared, actor: &ActorHandle, plan: &AutomaticPolicies, now: u64) -> Option<Sample> {
    let runtime = shared.runtime(&plan.driver).ok()?;
    let cpu_us = runtime.cpu_us(actor.id()).await.ok()?;
    let bytes = match shared.seams.egress.counters(actor.id()).await {
        Ok(counters) => counters.bytes_in.saturating_add(counters.bytes_out),
        // If the driver does not answer, this counter is ignored: the others remain.
        Err(_) => 0,
    };
    Some(Sample { at_ms: now, cpu_us, bytes })
}

fn was_active(old: Sample, new: Sample, cpu_millis: u32) -> bool {
    let span_us = new.at_ms.saturating_sub(old.at_ms).saturating_mul(1000);
    let used_us = new.cpu_us.saturating_sub(old.cpu_us);
    // A counter that decreased belongs to a new machine: its start was activity.
    let computes =
        span_us > 0 && used_us.saturating_mul(1000) > span_us.saturating_mul(u64::from(cpu_millis));
    computes || new.bytes != old.bytes || new.cpu_us < old.cpu_us
}

/// How deeply a sandbox in this state that was idle for this long should sleep, unless it does already.
fn due(plan: &AutomaticPolicies, idle_ms: u64) -> Option<SleepDepth> {
    let over = |after_ms: Option<u64>| after_ms.is_some_and(|after_ms| idle_ms >= after_ms);
    let up = matches!(plan.state, State::Running | State::Paused);
    if over(plan.sleep.stop_after_ms) && (up || plan.state == State::Hibernated) {
        Some(SleepDepth::Stop)
    } else if over(plan.sleep.hibernate_after_ms) && up {
        Some(SleepDepth::Hibernate)
    } else if over(plan.sleep.pause_after_ms) && plan.state == State::Running {
        Some(SleepDepth::Pause)
    } else {
        None
    }
}

/// Starts a snapshot or a rotation that is due; each sandbox has at most one of them in progress.
fn run_policies(shared: &Arc<Shared>, actor: &ActorHandle, plan: &AutomaticPolicies, busy: &BusySandboxes) {
    let now = shared.now_ms();
    let activity = actor.activity();
    let up = matches!(plan.state, State::Running | State::Paused);
    let snapshot = plan.snapshots.filter(|policy| {
        let due = now.saturating_sub(plan.snapshotted_ms) >= policy.every_ms;
        due && up && activity.last_ms() > plan.snapshotted_ms
    });
    let rotate = plan
        .rotate
        .clone()
        .filter(|policy| now.saturating_sub(plan.rotated_ms) >= policy.every_ms && !activity.in_use() && up);
    // Times stored by a daemon whose clock was ahead: nothing would be due until then.
    let ahead = [plan.snapshotted_ms, plan.rotated_ms].map(|stamp_ms| (stamp_ms > now).then_some(now));
    if ahead != [None, None] {
        let [snapshotted_ms, rotated_ms] = ahead;
        return actor.tell(Command::Stamp { snapshotted_ms, rotated_ms });
    }
    if (snapshot.is_none() && rotate.is_none()) || shared.seams.clock.in_doubt() {
        return;
    }
    let taken = busy.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(actor.id().clone());
    if !taken {
        return;
    }
    let rotating = rotate.is_some();
    let (engine, actor, busy) = (Engine { shared: shared.clone() }, actor.clone(), busy.clone());
    // The shutdown waits for it: its handle keeps the actor running, which holds a guard.
    drop(tokio::spawn(async move {
        let (tenant, id) = (actor.tenant().clone(), actor.id().clone());
        let done = async {
            if let Some(policy) = snapshot {
                snapshot_by_policy(&engine, &tenant, &id, policy).await?;
            }
            if let Some(policy) = rotate {
                let kind = SnapshotKind::BeforeRotate;
                // A period is not skipped because a trial is not possible now.
                engine.restore_keeping(&tenant, &id, &policy.snapshot, false, true, kind).await?;
            }
            Ok::<_, EngineError>(())
        };
        let done = done.await;
        if let Err(error) = &done {
            tracing::warn!(sandbox = %id, error = error as &dyn std::error::Error, "an automatic policy failed");
            let detail = serde_json::json!({ "reason": error.to_string() });
            engine.shared.event(&tenant, "policy.failed", Some(&id), detail);
        }
        // Recorded even after a failure, or it would be repeated every second.
        actor.tell(Command::Stamp {
            snapshotted_ms: snapshot.map(|_| now),
            rotated_ms: rotating.then_some(now),
        });
        busy.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&id);
    }));
}

async fn snapshot_by_policy(
    engine: &Engine,
    tenant: &TenantId,
    id: &SandboxId,
    policy: SnapshotPolicy,
) -> Result<(), EngineError> {
    let options = SnapshotOptions::automatic(SnapshotKind::Policy, policy.files_only);
    match engine.snapshot(tenant, id, options).await {
        // A snapshot of the files is better than none, and the next one may include processes again.
        Err(
            EngineError::Runtime(burrow_runtime::RuntimeError::Obstacles { .. })
            | EngineError::NoHibernate { .. },
        ) => {
            let options = SnapshotOptions::automatic(SnapshotKind::Policy, true);
            engine.snapshot(tenant, id, options).await?;
        }
        taken => drop(taken?),
    }
    let mine = engine.shared.seams.catalog.snapshots_of(id).await?;
    let old = mine.into_iter().filter(|snapshot| snapshot.kind == SnapshotKind::Policy);
    for snapshot in old.skip(policy.keep as usize) {
        remove_snapshot(&engine.shared, &snapshot).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use burrow_model::SleepPolicy;

    use super::*;

    fn plan(state: State) -> AutomaticPolicies {
        let sleep = SleepPolicy {
            pause_after_ms: Some(1_000),
            hibernate_after_ms: Some(5_000),
            stop_after_ms: Some(9_000),
            ..SleepPolicy::never()
        };
        AutomaticPolicies {
            state,
            driver: "sim".to_owned(),
            sleep,
            snapshots: None,
            rotate: None,
            snapshotted_ms: 0,
            rotated_ms: 0,
            awaits_hibernate_ms: None,
        }
    }

    #[test]
    fn a_longer_idle_time_leads_to_deeper_sleep() {
        assert_eq!(due(&plan(State::Running), 999), None);
        assert_eq!(due(&plan(State::Running), 1_000), Some(SleepDepth::Pause));
        assert_eq!(due(&plan(State::Paused), 4_999), None);
        assert_eq!(due(&plan(State::Paused), 5_000), Some(SleepDepth::Hibernate));
        assert_eq!(due(&plan(State::Running), 8_999), Some(SleepDepth::Hibernate));
        assert_eq!(due(&plan(State::Hibernated), 8_999), None);
        assert_eq!(due(&plan(State::Hibernated), 9_000), Some(SleepDepth::Stop));
        assert_eq!(due(&plan(State::Stopped), 90_000), None);
    }

    #[test]
    fn a_hibernate_that_was_refused_is_tried_again_less_and_less_often() {
        let paused = AutomaticPolicies { awaits_hibernate_ms: Some(1_000), ..plan(State::Paused) };
        assert_eq!(awaited(&paused, 1_000 + RETRY_MS - 1), None);
        assert_eq!(awaited(&paused, 1_000 + RETRY_MS), Some(SleepDepth::Hibernate));
        assert_eq!(awaited(&plan(State::Paused), 1_000 + RETRY_MS), None);
        let pauses: Vec<_> = (0..6).map(|retries| retry_ms(retries) / RETRY_MS).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 16]);
    }

    #[test]
    fn a_shorter_policy_is_sampled_more_often() {
        assert_eq!(sample_every_ms(&plan(State::Running)), 250);
        let sleep = SleepPolicy { pause_after_ms: Some(3_600_000), ..SleepPolicy::never() };
        assert_eq!(sample_every_ms(&AutomaticPolicies { sleep, ..plan(State::Running) }), SAMPLE_MS_MAX);
    }

    #[test]
    fn cpu_use_and_traffic_are_activity_and_waiting_is_not() {
        let old = Sample { at_ms: 1_000, cpu_us: 500, bytes: 7 };
        let idle = Sample { at_ms: 2_000, cpu_us: 20_500, bytes: 7 };
        assert!(!was_active(old, idle, 20), "two hundredths of a processor are the threshold");
        assert!(was_active(old, Sample { cpu_us: 20_501 + 500, ..idle }, 20));
        assert!(was_active(old, Sample { bytes: 8, ..idle }, 20));
        assert!(was_active(old, Sample { cpu_us: 0, ..idle }, 20), "another machine");
    }
}
