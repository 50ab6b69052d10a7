//! What happens to sandboxes by themselves: falling asleep, being snapshotted, being renewed.
//!
//! ```text
//!   every second, for each sandbox with a policy:
//!     in use (an open stream, a request)? more CPU than the threshold? bytes in or out?  ─► that is work
//!     idle for long enough ─► its actor is told how deep to sleep, looks again, and does it
//!     worked since its last snapshot, and one is due ─► snapshot, the oldest beyond `keep` go
//!     renewal due, and nobody uses it ─► back to the snapshot it is renewed from
//! ```
//!
//! A computing sandbox is at work though nobody is connected to it. One that only waits is not, however many processes it
//! has: when it is touched next, it goes on.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use burrow_model::{SandboxId, SnapshotKind, SnapshotPolicy, State, TenantId};
use futures_util::{StreamExt as _, stream};

use crate::activity::Plan;
use crate::actor::{ActorHandle, Command, Depth};
use crate::shared::Shared;
use crate::snapshots::remove_snapshot;
use crate::{Engine, EngineError, SnapshotOptions};

/// How often sandboxes are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Sandboxes looked at side by side.
const PARALLEL: usize = 8;

/// How often the use of CPU and network is asked for: so often that what a policy waits for is told to a quarter, no more
/// often than sandboxes are looked at, and no less than this.
const SAMPLE_MS_MAX: u64 = 10_000;

/// A sandbox that could not be put to sleep is tried again after so long, unless it was at work meanwhile.
const RETRY_MS: u64 = 300_000;

/// What was seen of a sandbox when it was looked at last.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: u64,
    cpu_us: u64,
    bytes: u64,
}

/// What this loop remembers of one sandbox.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    sample: Option<Sample>,
    /// How deep it was told to sleep, and when.
    told: Option<(Depth, u64)>,
}

/// Runs until the engine is gone.
pub(crate) fn spawn(engine: &Engine) {
    let shared = Arc::downgrade(&engine.shared);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut seen: HashMap<SandboxId, Seen> = HashMap::new();
        let busy = Arc::new(std::sync::Mutex::new(HashSet::new()));
        loop {
            ticks.tick().await;
            let Some(shared) = Weak::upgrade(&shared) else { return };
            seen = look(&shared, seen, &busy).await;
        }
    });
}

type Busy = Arc<std::sync::Mutex<HashSet<SandboxId>>>;

async fn look(shared: &Arc<Shared>, seen: HashMap<SandboxId, Seen>, busy: &Busy) -> HashMap<SandboxId, Seen> {
    let planned = shared.registry.all().into_iter().filter_map(|actor| {
        let plan = actor.activity().plan();
        (!plan.is_empty()).then_some((actor, plan))
    });
    let seen = &seen;
    let looked = stream::iter(planned).map(|(actor, plan)| async move {
        let before = seen.get(actor.id()).copied().unwrap_or_default();
        let after = look_at(shared, &actor, &plan, before).await;
        tend(shared, &actor, &plan, busy);
        (actor.id().clone(), after)
    });
    looked.buffer_unordered(PARALLEL).collect().await
}

/// Notes work, and lets what is idle fall asleep.
async fn look_at(shared: &Shared, actor: &ActorHandle, plan: &Plan, before: Seen) -> Seen {
    let (activity, now) = (actor.activity(), shared.now_ms());
    let mut after = before;
    if plan.state != State::Running {
        after.sample = None;
    } else if before.sample.is_none_or(|sample| now.saturating_sub(sample.at_ms) >= sample_every_ms(plan)) {
        after.sample = sample(shared, actor, plan, now).await;
        let worked = match (before.sample, after.sample) {
            (Some(old), Some(new)) => worked(old, new, shared.policy.idle.cpu_millis),
            _ => false,
        };
        if worked {
            activity.touch();
        }
    }
    if activity.in_use() {
        activity.touch();
        return after;
    }
    let idle_since_ms = activity.last_ms();
    let Some(depth) = due(plan, now.saturating_sub(idle_since_ms)) else { return after };
    let told = before.told.is_some_and(|(told, at_ms)| {
        told == depth && at_ms > idle_since_ms && now.saturating_sub(at_ms) < RETRY_MS
    });
    if !told {
        actor.tell(Command::Sleep { depth, idle_since_ms });
        after.told = Some((depth, now));
    }
    after
}

fn sample_every_ms(plan: &Plan) -> u64 {
    let sleep = [plan.sleep.pause_after_ms, plan.sleep.hibernate_after_ms, plan.sleep.stop_after_ms];
    let snapshots = plan.snapshots.map(|policy| policy.every_ms);
    let shortest = sleep.into_iter().chain([snapshots]).flatten().min();
    shortest.map_or(SAMPLE_MS_MAX, |shortest| (shortest / 4).min(SAMPLE_MS_MAX))
}

async fn sample(shared: &Shared, actor: &ActorHandle, plan: &Plan, now: u64) -> Option<Sample> {
    let runtime = shared.runtime(&plan.driver).ok()?;
    let cpu_us = runtime.cpu_us(actor.id()).await.ok()?;
    let bytes = match shared.seams.egress.counters(actor.id()).await {
        Ok(counters) => counters.bytes_in.saturating_add(counters.bytes_out),
        // Whoever cannot be asked counts nothing: the other signs remain.
        Err(_) => 0,
    };
    Some(Sample { at_ms: now, cpu_us, bytes })
}

fn worked(old: Sample, new: Sample, cpu_millis: u32) -> bool {
    let span_us = new.at_ms.saturating_sub(old.at_ms).saturating_mul(1000);
    let used_us = new.cpu_us.saturating_sub(old.cpu_us);
    // A counter that went back is that of a new machine: whoever made it was at work.
    let computes =
        span_us > 0 && used_us.saturating_mul(1000) > span_us.saturating_mul(u64::from(cpu_millis));
    computes || new.bytes != old.bytes || new.cpu_us < old.cpu_us
}

/// How deep a sandbox in this state that has been idle for so long is to sleep, if it does not yet.
fn due(plan: &Plan, idle_ms: u64) -> Option<Depth> {
    let over = |after_ms: Option<u64>| after_ms.is_some_and(|after_ms| idle_ms >= after_ms);
    let up = matches!(plan.state, State::Running | State::Paused);
    if over(plan.sleep.stop_after_ms) && (up || plan.state == State::Hibernated) {
        Some(Depth::Stop)
    } else if over(plan.sleep.hibernate_after_ms) && up {
        Some(Depth::Hibernate)
    } else if over(plan.sleep.pause_after_ms) && plan.state == State::Running {
        Some(Depth::Pause)
    } else {
        None
    }
}

/// Begins a snapshot or a renewal that is due; each sandbox has one of them under way at most.
fn tend(shared: &Arc<Shared>, actor: &ActorHandle, plan: &Plan, busy: &Busy) {
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
    // Stamps of a daemon whose clock was ahead: nothing would be due until then.
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
    tokio::spawn(async move {
        let (tenant, id) = (actor.tenant().clone(), actor.id().clone());
        let done = async {
            if let Some(policy) = snapshot {
                snapshot_by_policy(&engine, &tenant, &id, policy).await?;
            }
            if let Some(policy) = rotate {
                let kind = SnapshotKind::BeforeRotate;
                engine.restore_keeping(&tenant, &id, &policy.snapshot, false, kind).await?;
            }
            Ok::<_, EngineError>(())
        };
        let done = done.await;
        if let Err(error) = &done {
            tracing::warn!(sandbox = %id, error = error as &dyn std::error::Error, "a policy could not be followed");
            let detail = serde_json::json!({ "reason": error.to_string() });
            engine.shared.event(&tenant, "policy.failed", Some(&id), detail);
        }
        // Noted even after a failure, or it would be tried again every second.
        actor.tell(Command::Stamp {
            snapshotted_ms: snapshot.map(|_| now),
            rotated_ms: rotating.then_some(now),
        });
        busy.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&id);
    });
}

async fn snapshot_by_policy(
    engine: &Engine,
    tenant: &TenantId,
    id: &SandboxId,
    policy: SnapshotPolicy,
) -> Result<(), EngineError> {
    let options = SnapshotOptions::automatic(SnapshotKind::Policy, policy.files_only);
    match engine.snapshot(tenant, id, options).await {
        // Files are better than nothing, and the next one may hold processes again.
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

    fn plan(state: State) -> Plan {
        let sleep = SleepPolicy {
            pause_after_ms: Some(1_000),
            hibernate_after_ms: Some(5_000),
            stop_after_ms: Some(9_000),
        };
        Plan {
            state,
            driver: "sim".to_owned(),
            sleep,
            snapshots: None,
            rotate: None,
            snapshotted_ms: 0,
            rotated_ms: 0,
        }
    }

    #[test]
    fn a_sandbox_sleeps_deeper_the_longer_it_is_idle() {
        assert_eq!(due(&plan(State::Running), 999), None);
        assert_eq!(due(&plan(State::Running), 1_000), Some(Depth::Pause));
        assert_eq!(due(&plan(State::Paused), 4_999), None);
        assert_eq!(due(&plan(State::Paused), 5_000), Some(Depth::Hibernate));
        assert_eq!(due(&plan(State::Running), 8_999), Some(Depth::Hibernate));
        assert_eq!(due(&plan(State::Hibernated), 8_999), None);
        assert_eq!(due(&plan(State::Hibernated), 9_000), Some(Depth::Stop));
        assert_eq!(due(&plan(State::Stopped), 90_000), None);
    }

    #[test]
    fn a_short_policy_is_looked_at_more_often() {
        assert_eq!(sample_every_ms(&plan(State::Running)), 250);
        let sleep = SleepPolicy { pause_after_ms: Some(3_600_000), ..SleepPolicy::never() };
        assert_eq!(sample_every_ms(&Plan { sleep, ..plan(State::Running) }), SAMPLE_MS_MAX);
    }

    #[test]
    fn computing_and_traffic_are_work_and_waiting_is_not() {
        let old = Sample { at_ms: 1_000, cpu_us: 500, bytes: 7 };
        let idle = Sample { at_ms: 2_000, cpu_us: 20_500, bytes: 7 };
        assert!(!worked(old, idle, 20), "two hundredths of a processor are the threshold");
        assert!(worked(old, Sample { cpu_us: 20_501 + 500, ..idle }, 20));
        assert!(worked(old, Sample { bytes: 8, ..idle }, 20));
        assert!(worked(old, Sample { cpu_us: 0, ..idle }, 20), "another machine");
    }
}
