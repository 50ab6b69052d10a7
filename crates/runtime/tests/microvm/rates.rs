//! The rate limit of a machine's disk, measured by writing.

use std::time::{Duration, Instant};

use burrow_runtime::{OwnDisks as _, Runtime as _};

use crate::support::{Host, TestMachine};

const RATE: u64 = 1 << 20;
const MIB: u64 = 6;

/// Tolerance for an inexact rate, and the amount that the emulator lets pass at once: a tenth of a second's worth.
const ALLOWANCE: f64 = 1.5;
const AT_ONCE: f64 = (256 << 10) as f64;

/// Makes the machine write this amount to its disk, and returns how long that took.
async fn write(up: &TestMachine) -> Duration {
    let began = Instant::now();
    assert_eq!(up.run(&format!("fill /root/filled {MIB}")).await, "ok");
    began.elapsed()
}

/// Whether the duration matches the rate.
fn is_paced(took: Duration) -> bool {
    (MIB << 20) as f64 <= RATE as f64 * took.as_secs_f64() * ALLOWANCE + AT_ONCE
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_writes_at_its_rate_and_no_faster() {
    let host = Host::new();
    let up = host.up().await;
    let control = write(&up).await;
    assert!(!is_paced(control), "without a rate it took {control:?}, so the rate would prove nothing");
    host.runtime.set_disk_rate(&up.id, Some(RATE)).await.unwrap();
    let paced = write(&up).await;
    assert!(is_paced(paced), "{paced:?}");

    // A pause does not end it, and a rate that was set meanwhile takes effect.
    host.runtime.pause(&up.id).await.unwrap();
    host.runtime.resume(&up.id).await.unwrap();
    let paced = write(&up).await;
    assert!(is_paced(paced), "after a pause: {paced:?}");
    host.runtime.pause(&up.id).await.unwrap();
    host.runtime.set_disk_rate(&up.id, None).await.unwrap();
    host.runtime.resume(&up.id).await.unwrap();
    let free = write(&up).await;
    assert!(!is_paced(free), "after it was removed: {free:?}");
    host.runtime.destroy(&up.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_daemon_knows_the_rate_and_a_woken_machine_gets_its_own() {
    let mut host = Host::new();
    let up = host.up().await;
    host.runtime.set_disk_rate(&up.id, Some(RATE)).await.unwrap();
    host.restart();
    let paced = write(&up).await;
    assert!(is_paced(paced), "{paced:?}");
    // With the daemon that did not set it.
    host.runtime.pause(&up.id).await.unwrap();
    host.runtime.resume(&up.id).await.unwrap();
    let paced = write(&up).await;
    assert!(is_paced(paced), "after a pause: {paced:?}");

    let kept = host.put_down(&up).await;
    let woken = host.wake(&up, &kept).await;
    let free = write(&woken).await;
    assert!(!is_paced(free), "it has no rate: {free:?}");
    host.runtime.set_disk_rate(&woken.id, Some(RATE)).await.unwrap();
    let paced = write(&woken).await;
    assert!(is_paced(paced), "{paced:?}");
    host.runtime.destroy(&woken.id).await.unwrap();
}

/// Of data that was written without waiting, the rate would only let a part pass before the timeouts.
#[tokio::test(flavor = "multi_thread")]
async fn work_for_which_the_host_waits_is_not_limited() {
    let host = Host::new();
    let up = host.up().await;
    host.runtime.set_disk_rate(&up.id, Some(64 << 10)).await.unwrap();
    for waits in ["settle", "pause"] {
        assert_eq!(up.run(&format!("scribble /root/{waits} {MIB}")).await, "ok");
        let began = Instant::now();
        if waits == "settle" {
            host.runtime.settle_files(&up.id).await.unwrap();
        }
        host.runtime.pause(&up.id).await.unwrap();
        let took = began.elapsed();
        assert!(!is_paced(took), "{waits}: {took:?}");
        host.runtime.resume(&up.id).await.unwrap();
    }
    host.runtime.destroy(&up.id).await.unwrap();
}
