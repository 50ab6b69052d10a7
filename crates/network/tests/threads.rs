//! Tests that no thread of the async runtime stays in another network namespace than the daemon's.
//!
//! Alone in its file: it reads the namespace of every thread of its process, and other tests have threads that visit
//! namespaces.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;

use burrow_model::SandboxId;
use burrow_network::Network;
use support::{Host, eventually};

/// The network namespace of each thread of this process, by thread.
fn namespaces() -> Vec<(String, String)> {
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    threads
        .filter_map(|thread| {
            let name = fs::read_to_string(thread.join("comm")).ok()?;
            let namespace = fs::read_link(thread.join("ns/net")).ok()?;
            Some((name.trim().to_owned(), namespace.to_str().unwrap().to_owned()))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_thread_is_in_the_daemons_namespace_when_the_work_is_done() {
    let home = fs::read_link("/proc/self/ns/net").unwrap().to_str().unwrap().to_owned();
    let host = Host::new();
    let network = host.open(4);
    let ids: Vec<SandboxId> = (0..16).map(|_| SandboxId::generate()).collect();
    for id in &ids {
        let link = network.connect(id).await.unwrap();
        assert!(link.dial.dial(1).await.is_err());
        let away = |(name, namespace): &(String, String)| name.starts_with("tokio") && *namespace != home;
        assert!(!namespaces().iter().any(away), "{:?}", namespaces());
    }
    eventually("the warm pool is filled", || network.slots_ready() == 4);
    assert!(namespaces().iter().any(|(name, _)| name == "burrow-slots"), "{:?}", namespaces());
    eventually("all threads have returned", || namespaces().iter().all(|(_, namespace)| *namespace == home));
    for id in &ids {
        network.release(id).await.unwrap();
    }
    network.shutdown().await;
}
