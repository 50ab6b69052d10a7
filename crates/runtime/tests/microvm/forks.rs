//! Machines created from one dump: each continues in the state of the dump, with its own identity.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use burrow_model::{Limits, SandboxId};
use burrow_runtime::microvm::disk;
use burrow_runtime::{
    BootOptions, FinishOptions, OwnDisks as _, Precreate as _, Runtime as _, RuntimeError, Template,
    TemplateOptions,
};

use crate::support::{Host, LIMITS, TOKEN, TestMachine};

/// The current number of the counter, and its mark.
async fn count(up: &TestMachine) -> (u64, String) {
    let text = up.run("cat /root/count").await;
    let (number, mark) = text.split_once(' ').unwrap_or_else(|| panic!("{text}"));
    (number.parse().unwrap(), mark.to_owned())
}

async fn counts_on(up: &TestMachine) -> String {
    let (before, mark) = count(up).await;
    for _ in 0..1000 {
        let (now, same) = count(up).await;
        assert_eq!(same, mark, "it is another process");
        if now > before {
            return mark;
        }
    }
    panic!("the counter stays at {before}");
}

/// Starts the counter; returns its mark.
async fn begin_to_count(up: &TestMachine) -> String {
    up.start("count /root/count").await;
    for _ in 0..1000 {
        if up.run("cat /root/count").await.contains(' ') {
            return counts_on(up).await;
        }
    }
    panic!("the counter does not start");
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_continue_from_their_parents_state_with_their_own_identity() {
    let host = Host::new();
    let parent = host.up().await;
    let mark = begin_to_count(&parent).await;
    assert_eq!(parent.run("write /root/word before").await, "ok");
    let kept = host.keep(&parent).await;
    let base = fs::read(kept.images.join("ram")).unwrap();
    assert_eq!(counts_on(&parent).await, mark, "the parent continues");
    assert_eq!(parent.run("write /root/word after").await, "ok");

    let began = now();
    let (one, other) = (host.fork(&kept, "one").await, host.fork(&kept, "other").await);
    let mut seen = vec![parent.run("random").await];
    for (fork, name) in [(&one, "one"), (&other, "other")] {
        assert_eq!(counts_on(fork).await, mark);
        assert_eq!(fork.run("cat /root/word").await, "before");
        assert_eq!(fork.run("cat /proc/sys/kernel/hostname").await, name);
        let time: u64 = fork.run("now").await.parse().unwrap();
        assert!((began..=now() + 1).contains(&time), "it is {time} there, and was {began} here");
        seen.push(fork.run("random").await);
        seen.push(fork.run("cat /etc/machine-id").await);
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count, "{seen:#?}");

    // A fork of a fork, whose RAM is the base of its parent and its parent's changes.
    assert_eq!(one.run("write /root/word grown").await, "ok");
    let kept_again = host.keep(&one).await;
    host.runtime.destroy(&one.id).await.unwrap();
    fs::remove_dir_all(&one.root).unwrap();
    // Introduced with the token of the machine from which it was copied.
    let grandchild = host.fork_of(&kept_again, &one.token, "grandchild").await;
    assert_eq!(counts_on(&grandchild).await, mark);
    assert_eq!(grandchild.run("cat /root/word").await, "grown");
    assert_eq!(other.run("cat /root/word").await, "before");
    assert_eq!(parent.run("cat /root/word").await, "after");
    assert!(fs::read(kept.images.join("ram")).unwrap() == base, "the base of machines is never written");
    for up in [&parent, &other, &grandchild] {
        host.runtime.destroy(&up.id).await.unwrap();
    }
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_wakes_from_its_dump_and_is_adopted_by_the_next_daemon() {
    let mut host = Host::new();
    let up = host.up().await;
    let mark = begin_to_count(&up).await;
    let kept = host.put_down(&up).await;
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
    let up = host.wake(&up, &kept).await;
    // The dump may be removed as soon as the machine has woken.
    fs::remove_dir_all(&kept.images).unwrap();
    assert_eq!(counts_on(&up).await, mark);

    host.restart();
    assert!(host.runtime.adopt(&up.id, &up.machine).await.unwrap());
    host.runtime.pause(&up.id).await.unwrap();
    host.runtime.resume(&up.id).await.unwrap();
    assert_eq!(counts_on(&up).await, mark);
    let kept = host.put_down(&up).await;
    let up = host.wake(&up, &kept).await;
    assert_eq!(counts_on(&up).await, mark, "also from an unlinked dump");
    host.runtime.destroy(&up.id).await.unwrap();
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_one_template_get_their_identities_and_share_nothing_else() {
    let host = Host::new();
    let (root, images) = (host.root(), host.images());
    let attachment = host.attach().await.attachment;
    let options = TemplateOptions { root: root.clone(), images: images.clone(), limits: LIMITS, attachment };
    let made = host.runtime.make_template(&SandboxId::generate(), options).await.unwrap();
    assert_eq!(
        host.runtime.inventory().await.unwrap(),
        [],
        "a template consists of files, without a running machine"
    );
    let template = Template { images, about: made.about };
    let base = fs::read(template.images.join("ram")).unwrap();

    let mut ups = Vec::new();
    for _ in 0..2 {
        let own = host.folder("root");
        fs::copy(root.join(disk::NAME), own.join(disk::NAME)).unwrap();
        let plot = host.plot_of(own.clone()).await;
        let (id, dial) = (plot.id.clone(), std::sync::Arc::clone(&plot.dial));
        let options = BootOptions { template: Some(template.clone()), ..plot.options(LIMITS) };
        let (hostname, boot_document) = (options.hostname.clone(), options.boot_document.clone());
        let told = FinishOptions { hostname, boot_document };
        // Half of them as from the warm pool.
        let machine = if ups.is_empty() {
            host.runtime.boot(&id, options).await.unwrap()
        } else {
            let begun = host.runtime.begin(&id, options).await.unwrap();
            host.runtime.finish(&id, begun, told).await.unwrap()
        };
        ups.push(TestMachine { id, root: own, machine, dial, token: TOKEN.to_owned() });
    }
    let seen = [ups[0].run("random").await, ups[1].run("random").await];
    assert_ne!(seen[0], seen[1]);
    assert_eq!(ups[0].run("write /root/word mine").await, "ok");
    assert!(ups[1].run("cat /root/word").await.contains("No such file"));
    assert_eq!(ups[1].run("cat /proc/sys/kernel/hostname").await, "test-box");
    // It is a machine like any other.
    let kept = host.keep(&ups[0]).await;
    let fork = host.fork(&kept, "fork").await;
    assert_eq!(fork.run("cat /root/word").await, "mine");
    assert!(fs::read(template.images.join("ram")).unwrap() == base);

    let larger = Limits { ram_mib: LIMITS.ram_mib * 2, ..LIMITS };
    let plot = host.plot().await;
    let id = plot.id.clone();
    let options = BootOptions { template: Some(template), ..plot.options(larger) };
    let refused = host.runtime.boot(&id, options).await;
    assert!(matches!(refused, Err(RuntimeError::Unfit { .. })), "{refused:?}");
    for up in ups.iter().chain([&fork]) {
        host.runtime.destroy(&up.id).await.unwrap();
    }
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}
