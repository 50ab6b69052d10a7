//! The first process receives its identity before any other process runs.

use std::io;
use std::sync::{Arc, Mutex};

use burrow_runtime::{IntroduceFn, RestoreOptions, Runtime as _};

use super::support::{Host, Plot, await_counting, poll};
use super::survive::copy_of;
use super::{assert_nothing_left, boot, dump, plainly, restore};

fn counts(plot: &Plot) -> (u64, u64) {
    (plot.count().unwrap().0, plot.count_in("second").unwrap().0)
}

#[tokio::test]
async fn the_first_process_runs_alone_during_its_introduction() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["second"]).await;
    poll("the second process to count", || plot.count_in("second").is_some());
    let kept = dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let dumped = counts(&plot);

    let seen = Arc::new(Mutex::new(None));
    let (told, root) = (Arc::clone(&seen), Plot { id: plot.id.clone(), root: plot.root.clone() });
    let introduce: IntroduceFn = Box::new(move || {
        Box::pin(async move {
            // The async runtime continues meanwhile, including its timers.
            while counts(&root).0 < dumped.0 + 5 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            *told.lock().unwrap() = Some(counts(&root));
            Ok(())
        })
    });
    restore(&host, &plot, RestoreOptions { introduce: Some(introduce), ..plainly(&plot, &kept) }).await;
    let (first, second) = seen.lock().unwrap().expect("it was introduced");
    assert!(first >= dumped.0 + 5);
    assert_eq!(second, dumped.1, "no other process has run");
    let (first, second) = counts(&plot);
    assert_eq!(second, dumped.1);
    // Long enough for dozens of steps of the counter, if it ran.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(counts(&plot), (first, second), "both are frozen afterwards");

    host.runtime.resume(&plot.id).await.unwrap();
    await_counting(&plot);
    poll("the second process to continue", || counts(&plot).1 > second);
    host.runtime.destroy(&plot.id).await.unwrap();
}

#[tokio::test]
async fn a_failed_introduction_leaves_no_machine() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["second"]).await;
    poll("the second process to count", || plot.count_in("second").is_some());
    let kept = dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let second = counts(&plot).1;
    let copy = copy_of(&host, &plot);
    let introduce: IntroduceFn = Box::new(|| {
        Box::pin(async { Err(io::Error::new(io::ErrorKind::NotConnected, "it does not listen")) })
    });
    let options = RestoreOptions { introduce: Some(introduce), ..plainly(&plot, &kept) };
    let error = host.runtime.restore(&plot.id, options).await.unwrap_err();
    assert!(error.to_string().ends_with("it does not listen"), "{error}");
    assert_nothing_left(&host, &plot.id).await;
    assert_eq!(counts(&plot).1, second, "no other process has run");

    // The dump is still usable, with files that the first process has not changed since.
    restore(&host, &copy, plainly(&copy, &kept)).await;
    host.runtime.destroy(&copy.id).await.unwrap();
}

#[tokio::test]
async fn an_introduction_that_panics_lets_nothing_run() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["second"]).await;
    poll("the second process to count", || plot.count_in("second").is_some());
    let kept = dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let second = counts(&plot).1;
    let introduce: IntroduceFn = Box::new(|| Box::pin(async { panic!("a bug") }));
    let options = RestoreOptions { introduce: Some(introduce), ..plainly(&plot, &kept) };
    let runtime = Arc::clone(&host.runtime);
    let id = plot.id.clone();
    assert!(tokio::spawn(async move { runtime.restore(&id, options).await }).await.unwrap_err().is_panic());
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
    assert_eq!(counts(&plot).1, second);
}
