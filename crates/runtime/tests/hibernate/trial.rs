//! Trials of a dump while the dumped machine is still frozen.

use burrow_runtime::{RestoreOptions, Runtime as _, Trials as _};

use super::support::{Host, poll};
use super::survive::{PORT, ask, copy_of};
use super::{assert_nothing_left, boot, dump, plainly, restore};

#[tokio::test]
async fn a_trial_does_not_affect_the_frozen_machine_and_is_made_once_for_each_kind() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &[&format!("hold {PORT}"), "close"]).await;
    let before = ask(machine.pid);
    let kept = dump(&host, &plot, &machine).await;
    let untried = host.runtime.untried(&plot.id, &kept.images).await.unwrap();
    assert!(untried.iter().any(|kind| kind.starts_with("internet socket")), "{untried:?}");

    let copy = copy_of(&host, &plot);
    restore(&host, &copy, RestoreOptions { trial: true, ..plainly(&copy, &kept) }).await;
    assert!(host.is_frozen(&plot.id));
    host.runtime.destroy(&copy.id).await.unwrap();
    assert_nothing_left(&host, &copy.id).await;
    assert_eq!(host.runtime.untried(&plot.id, &kept.images).await.unwrap(), Vec::<String>::new());

    let (dumped_at, _) = plot.count().unwrap();
    host.runtime.resume(&plot.id).await.unwrap();
    poll("the machine to continue", || plot.count().is_some_and(|(number, _)| number > dumped_at));
    assert_eq!(ask(machine.pid), before);
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

#[tokio::test]
async fn a_trial_that_fails_leaves_nothing_and_its_kinds_untried() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["close"]).await;
    let kept = dump(&host, &plot, &machine).await;
    let copy = copy_of(&host, &plot);
    // Its files are missing, as a file that the dump needs might be.
    let broken = RestoreOptions { root: host.plot().root, trial: true, ..plainly(&copy, &kept) };
    host.runtime.restore(&copy.id, broken).await.unwrap_err();
    assert_nothing_left(&host, &copy.id).await;
    assert_ne!(host.runtime.untried(&plot.id, &kept.images).await.unwrap(), Vec::<String>::new());
    host.runtime.destroy(&plot.id).await.unwrap();
}
