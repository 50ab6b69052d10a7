//! Many idle sandboxes: what they cost in RAM, and how long it takes to list them.

use std::time::{Duration, Instant};

use burrow_client::{Client, PageQuery, SandboxQuery};

use super::{Scale, create};
use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::process::{cpu_ticks, is_first_of_its_namespace, rss_kib};
use crate::report::{Figure, Target};
use crate::samples::Samples;

/// Lets the pool of networks refill and allocators settle before RAM is read.
const SETTLE: Duration = Duration::from_secs(2);
/// How long the idle daemon's processor time is measured.
const WATCH: Duration = Duration::from_secs(5);
/// `USER_HZ`, which is the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
const LIST_LIMIT: u32 = 1000;

pub(super) async fn measure(daemon: &Daemon, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let client = daemon.client()?;
    for _ in 0..scale.idle_sandboxes {
        create(&client).await?;
    }
    tokio::time::sleep(SETTLE).await;
    let agents = agents(daemon, scale.idle_sandboxes)?;
    let daemon_rss = mib(rss_kib(daemon.pid())?);
    let ticks = cpu_ticks(daemon.pid())?;
    tokio::time::sleep(WATCH).await;
    let ticks = u32::try_from(cpu_ticks(daemon.pid())? - ticks).unwrap_or(u32::MAX);
    let busy = f64::from(ticks) / TICKS_PER_SECOND / WATCH.as_secs_f64() * 100.0;
    let lists = lists(&client, scale).await?;
    let summary = agents.summary();
    let worst =
        Figure { samples: Some(summary), ..Figure::new("idle_agent_rss_max", summary.max, "MiB", AGENT) };
    Ok(vec![
        worst.target(Target::AtMost { limit: 5.0 }),
        Figure::new("idle_agent_rss_mean", summary.mean, "MiB", AGENT),
        Figure::new("idle_daemon_rss", daemon_rss, "MiB", "VmRSS of the daemon")
            .target(Target::Below { limit: 150.0 }),
        Figure::new("idle_daemon_cpu", busy, "%", "of one core, over 5 s without a request"),
        Figure::p99("idle_list_p99", &lists, "ms", "p99 of GET sandboxes with limit 1000")
            .target(Target::Below { limit: 20.0 }),
        Figure::median("idle_list_p50", &lists, "ms", "p50 of the same"),
    ])
}

/// The default number of pre-created sandboxes (`pool.ready`).
const READY_MAX: usize = 8;

const AGENT: &str = "VmRSS of PID 1 of each sandbox, as the host sees it";

fn agents(daemon: &Daemon, expected: u32) -> Result<Samples, BenchError> {
    let mut samples = Samples::default();
    for pid in daemon.place().processes() {
        if is_first_of_its_namespace(pid) {
            samples.push(mib(rss_kib(pid)?));
        }
    }
    let found = samples.summary().n;
    let expected = expected as usize;
    // Pre-created sandboxes have agents too, with the same cost.
    if (expected..=expected + READY_MAX).contains(&found) {
        return Ok(samples);
    }
    Err(BenchError::WrongAnswer { what: format!("{found} agents run in {expected} sandboxes") })
}

async fn lists(client: &Client, scale: &Scale) -> Result<Samples, BenchError> {
    let (query, page) = (SandboxQuery::default(), PageQuery { cursor: None, limit: Some(LIST_LIMIT) });
    let mut samples = Samples::default();
    for _ in 0..scale.lists {
        let begin = Instant::now();
        let answer = client.list_sandboxes(&query, &page).await;
        samples.push_ms(begin.elapsed());
        let found = answer.map_err(BenchError::api("list sandboxes"))?.items.len();
        if found != scale.idle_sandboxes as usize {
            return Err(BenchError::WrongAnswer { what: format!("a list of {found} sandboxes") });
        }
    }
    Ok(samples)
}

fn mib(kib: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "memory in KiB is far below 2^52")]
    let kib = kib as f64;
    kib / 1024.0
}
