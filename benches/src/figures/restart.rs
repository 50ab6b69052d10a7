//! A start of the daemon after it was killed with many sandboxes, while clients put some of them to sleep.
//!
//! The floor is a start of the same daemon after a kill without a sandbox.

use std::time::{Duration, Instant};

use super::{Scale, argv, create, exec};
use crate::daemon::{BenchSetup, Daemon, Kind};
use crate::error::BenchError;
use crate::report::{Figure, Target};
use crate::samples::Samples;

/// Sandboxes that are being hibernated when the daemon is killed, so that its start finds unfinished operations.
const HIBERNATES: usize = 4;

/// The time from the first of those requests to the kill: some of the dumps are then in progress.
const UNTIL_KILL: Duration = Duration::from_millis(200);

const TARGET: Target = Target::AtMost { limit: 2_000.0 };

/// A bound for the recovery of all sandboxes, which continues after the daemon is ready.
const RECOVERY_MAX: Duration = Duration::from_secs(120);

pub(super) async fn measure(prepared: &BenchSetup, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let mut daemon = Daemon::start(prepared, Kind::Usual).await?;
    let mut floor = Samples::default();
    for _ in 0..scale.restarts {
        floor.push_ms(daemon.kill_and_restart(prepared).await?);
    }
    let client = daemon.client()?;
    let mut sandboxes = Vec::new();
    for _ in 0..scale.idle_sandboxes {
        sandboxes.push(create(&client).await?);
    }
    let mut starts = Samples::default();
    for round in 0..scale.restarts as usize {
        let client = daemon.client()?;
        let chosen = sandboxes.iter().cycle().skip(round * HIBERNATES).take(HIBERNATES);
        let chosen: Vec<String> = chosen.cloned().collect();
        for sandbox in chosen {
            let client = client.clone();
            // The kill interrupts it.
            tokio::spawn(async move { client.hibernate_sandbox(&sandbox).await.map(drop) });
        }
        tokio::time::sleep(UNTIL_KILL).await;
        starts.push_ms(daemon.kill_and_restart(prepared).await?);
        wait_until_recovered(&daemon, &sandboxes).await?;
    }
    daemon.finish().await?;
    let note = "p50 from the start of a killed daemon with 200 sandboxes, 4 of them being hibernated, until it is ready";
    let worst = "the longest of the same";
    let name = "without a sandbox";
    Ok(vec![
        Figure::median("restart_ready", &starts, "ms", note).against(name, &floor).target(TARGET),
        Figure::new("restart_ready_max", starts.summary().max, "ms", worst)
            .against(name, &floor)
            .target(TARGET),
    ])
}

/// Every sandbox still works: otherwise a fast start would mean nothing.
async fn wait_until_recovered(daemon: &Daemon, sandboxes: &[String]) -> Result<(), BenchError> {
    let client = daemon.client()?;
    let deadline = Instant::now() + RECOVERY_MAX;
    for sandbox in sandboxes {
        loop {
            match exec(&client, sandbox, &argv(&["true"])).await {
                Ok(_) => break,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
    Ok(())
}
