//! How fast a machine's disk is, measured by what it writes.

use std::time::{Duration, Instant};

use burrow_runtime::Runtime as _;

use crate::support::{Host, Up};

const RATE: u64 = 1 << 20;
const MIB: u64 = 6;

/// Room for what a rate is short of exact, and what the emulator lets pass at once: a tenth of a second's worth.
const ALLOWANCE: f64 = 1.5;
const AT_ONCE: f64 = (256 << 10) as f64;

/// Has the machine write so much, down to its disk, and answers how long that took.
async fn write(up: &Up) -> Duration {
    let began = Instant::now();
    assert_eq!(up.run(&format!("fill /root/filled {MIB}")).await, "ok");
    began.elapsed()
}

/// Whether what was written is what the rate lets pass in that time.
fn is_paced(took: Duration) -> bool {
    (MIB << 20) as f64 <= RATE as f64 * took.as_secs_f64() * ALLOWANCE + AT_ONCE
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_writes_as_fast_as_it_may_and_no_faster() {
    let host = Host::new();
    let up = host.up().await;
    let control = write(&up).await;
    assert!(!is_paced(control), "without a rate it took {control:?}, so the rate would prove nothing");
    host.runtime.set_disk_rate(&up.id, Some(RATE)).await.unwrap();
    let paced = write(&up).await;
    assert!(is_paced(paced), "{paced:?}");

    // A pause does not end it, and one that was set meanwhile counts.
    host.runtime.pause(&up.id).await.unwrap();
    host.runtime.resume(&up.id).await.unwrap();
    let paced = write(&up).await;
    assert!(is_paced(paced), "after a pause: {paced:?}");
    host.runtime.pause(&up.id).await.unwrap();
    host.runtime.set_disk_rate(&up.id, None).await.unwrap();
    host.runtime.resume(&up.id).await.unwrap();
    let free = write(&up).await;
    assert!(!is_paced(free), "after it was taken away: {free:?}");
    host.runtime.destroy(&up.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_daemon_finds_the_rate_and_a_woken_machine_has_the_one_it_is_given() {
    let mut host = Host::new();
    let up = host.up().await;
    host.runtime.set_disk_rate(&up.id, Some(RATE)).await.unwrap();
    host.restart();
    let paced = write(&up).await;
    assert!(is_paced(paced), "{paced:?}");
    // By the daemon that did not set it.
    host.runtime.pause(&up.id).await.unwrap();
    host.runtime.resume(&up.id).await.unwrap();
    let paced = write(&up).await;
    assert!(is_paced(paced), "after a pause: {paced:?}");

    let kept = host.put_down(&up).await;
    let woken = host.wake(&up, &kept).await;
    let free = write(&woken).await;
    assert!(!is_paced(free), "it was given none: {free:?}");
    host.runtime.set_disk_rate(&woken.id, Some(RATE)).await.unwrap();
    let paced = write(&woken).await;
    assert!(is_paced(paced), "{paced:?}");
    host.runtime.destroy(&woken.id).await.unwrap();
}

/// Of what was written and not waited for, the rate would let a part pass before everybody has given up.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_waits_for_is_not_held_back() {
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
