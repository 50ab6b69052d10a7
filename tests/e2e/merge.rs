//! Merging a fork into its parent: what is merged, conflicts, and undo.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use burrow_engine::faults::MERGE_POINTS;
use serde_json::Value;

use crate::harness::{Daemon, all_on_microvms, eventually};
use crate::sleep_crash::check_inventory;

pub(crate) fn merge(daemon: &Daemon, arguments: &[&str]) -> Value {
    let mut all = vec!["merge", "--json"];
    all.extend(arguments);
    let output = daemon.cli(&all);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parsed = serde_json::from_str(&text);
    parsed.unwrap_or_else(|_| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

fn list(value: &Value) -> BTreeSet<String> {
    value.as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()).collect()
}

pub(crate) fn conflicts(merged: &Value) -> BTreeSet<String> {
    let shown = |conflict: &Value| {
        format!("{} {}", conflict["path"].as_str().unwrap(), conflict["kind"].as_str().unwrap())
    };
    merged["conflicts"].as_array().unwrap().iter().map(shown).collect()
}

/// A parent with files, and a fork of it.
fn family(daemon: &Daemon, files: &str) {
    daemon.create("web");
    daemon.sh("web", files);
    daemon.ok(&["fork", "web", "--name", "child"]);
}

const TREE: &str = "set -e; cd /srv; mkdir -p app/old; for f in a b c d e; do seq 1 20 > app/$f; done
    echo x > app/old/x; ln -s a app/link; ln app/b app/b-too; echo kept > app/kept";

#[test]
fn files_that_a_running_child_is_writing_are_merged_complete_or_not_at_all() {
    let daemon = Daemon::start();
    family(&daemon, "true");
    let write = "cd /srv; i=0; while :; do i=$((i+1)); head -c 3000000 /dev/zero > .part; mv .part part-$i;
        rm -f part-$((i-20)); done";
    daemon.ok(&["exec", "-d", "child", "-c", write]);
    eventually("some files", || daemon.holds("child", "test -e /srv/part-5").then_some(()));
    for _ in 0..10 {
        let merged = merge(&daemon, &["child", "--into", "web", "--policy", "theirs", "--yes"]);
        assert_eq!(merged["applied"], true, "{merged}");
        let sizes = daemon.sh(
            "web",
            "cd /srv; ls part-* > /dev/null; find . -name 'part-*' ! -size 3000000c -printf '%p %s\n'",
        );
        assert_eq!(sizes, "");
    }
}

#[test]
fn changes_of_a_child_are_merged_and_can_be_undone() {
    let daemon = Daemon::start();
    family(&daemon, TREE);
    daemon.sh(
        "child",
        "set -e; cd /srv/app
        echo changed > a; chmod 700 c; rm d; mv e moved; rm -r old; ln -sfn c link
        seq 1 21 > b; mkdir -p new/deep; echo n > new/deep/n; ln kept kept-too
        echo noise > /tmp/noise; mkdir -p /root/.cache; echo noise > /root/.cache/noise",
    );
    daemon.sh("web", "cd /srv/app; echo mine > mine; chown 1000 c; sed -i s/^3$/three/ e");
    daemon.ok(&["memory", "add", "child", "the port is 8080"]);
    let before = daemon.sh("web", "cd /srv/app; find . | sort | xargs stat -c '%n %A %U' ; cat a b e");

    // A dry run changes nothing and leaves nothing.
    let foreseen = merge(&daemon, &["child", "--into", "web", "--dry-run"]);
    assert_eq!((&foreseen["applied"], &foreseen["dry_run"]), (&false.into(), &true.into()), "{foreseen}");
    let snapshots = || daemon.json(&["snapshot", "ls", "--all", "--json"]).as_array().unwrap().len();
    assert_eq!(snapshots(), 1, "the fork's own");

    let merged = merge(&daemon, &["child", "--into", "web", "--yes"]);
    assert_eq!(merged["applied"], true, "{merged}");
    assert_eq!(merged["changes"], foreseen["changes"]);
    assert!(
        list(&merged["changes"]["added"]).is_superset(
            &["/srv/app/moved", "/srv/app/new", "/srv/app/new/deep/n", "/srv/app/kept-too"]
                .map(str::to_owned)
                .into()
        )
    );
    assert!(merged["noise"].as_array().unwrap().len() >= 2, "{}", merged["noise"]);
    assert_eq!(merged["memory"]["added"], 1, "{merged}");
    let found = daemon.sh("web", "set -e; cd /srv/app
        cat a; stat -c '%a %u' c; test ! -e d; test ! -e old; readlink link; tail -n1 b; cat new/deep/n mine
        sed -n 3p moved; test ! -e e; test b -ef b-too; test kept -ef kept-too; test ! -e /tmp/noise; test ! -e /root/.cache/noise");
    assert_eq!(found, "changed\n700 1000\nc\n21\nn\nmine\nthree");
    assert!(daemon.ok(&["memory", "search", "web", "which port"]).contains("8080"));
    // The audit log records it as a change of the parent.
    let events = daemon.json(&["audit", "ls", "--json", "-n", "1000"]);
    let told = events.as_array().unwrap().iter().find(|event| event["action"] == "sandbox.merge");
    let id = |name| daemon.json(&["inspect", name, "--json"])["id"].clone();
    assert_eq!(
        told.map(|event| (&event["sandbox_id"], &event["target"])),
        Some((&id("web"), &id("child"))),
        "{events}"
    );
    // Repeated: there is nothing to merge, and no snapshot remains of the attempt.
    let again = merge(&daemon, &["child", "--into", "web", "--yes"]);
    assert_eq!((&again["applied"], &again["total"]), (&false.into(), &0.into()), "{again}");
    assert_eq!(snapshots(), 2);

    let undo = merged["undo"]["id"].as_str().unwrap();
    daemon.ok(&["snapshot", "restore", undo, "--in-place", "web", "--yes"]);
    assert_eq!(daemon.sh("web", "cd /srv/app; find . | sort | xargs stat -c '%n %A %U' ; cat a b e"), before);
    assert!(!daemon.ok(&["memory", "search", "web", "which port"]).contains("8080"));
    assert_eq!(std::fs::read_dir(daemon.pool().join("transfer")).unwrap().count(), 0);
}

#[test]
fn every_conflict_is_listed_and_nothing_is_merged_until_a_policy_decides() {
    let daemon = Daemon::start();
    family(
        &daemon,
        "set -e; cd /srv; for f in both lines gone-ours gone-theirs kind mode log named; do seq 1 20 > $f; done; mkdir dir; echo x > dir/x",
    );
    daemon.sh(
        "web",
        "set -e; cd /srv; echo ours > both; sed -i s/^2$/two/ lines; rm gone-ours; echo ours > gone-theirs
        ln named z-named; echo ours >> z-named; rm kind; mkdir kind; chmod 600 mode; echo ours > added; echo ours > dir/y; sed -i s/^2$/two/ log",
    );
    daemon.sh("child", "set -e; cd /srv; echo theirs > both; echo theirs > named; sed -i s/^19$/nineteen/ lines; echo theirs > gone-ours; rm gone-theirs
        echo theirs > kind; chmod 640 mode; echo theirs > added; rm -r dir; echo theirs > dir; sed -i s/^2$/zwei/ log; echo fine > fine");
    let refused = merge(&daemon, &["child", "--into", "web", "--yes"]);
    assert_eq!(refused["applied"], false);
    let expected = [
        "/srv/added both-added",
        "/srv/both both-changed",
        "/srv/dir directory",
        "/srv/gone-ours deleted-by-ours",
        "/srv/gone-theirs deleted-by-theirs",
        "/srv/kind kind",
        "/srv/lines both-changed",
        "/srv/log both-changed",
        "/srv/mode attributes",
        // Our side changed it through another hard link to the same file.
        "/srv/named both-changed",
    ];
    assert_eq!(conflicts(&refused), expected.map(str::to_owned).into());
    let both =
        refused["conflicts"].as_array().unwrap().iter().find(|one| one["path"] == "/srv/both").unwrap();
    assert_eq!((&both["ours"]["size"], &both["theirs"]["size"]), (&5.into(), &7.into()), "{both}");
    assert!(both["base"]["size"].as_u64().unwrap() > 7);
    let text = daemon.cli(&["merge", "child", "--into", "web", "--yes"]);
    assert_eq!(text.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&text.stdout).contains("! /srv/both: both changed it"));
    assert!(!daemon.holds("web", "test -e /srv/fine"), "nothing came");
    assert_eq!(daemon.json(&["snapshot", "ls", "--all", "--json"]).as_array().unwrap().len(), 1);

    let policies = ["--policy", "/srv/lines=text", "--policy", "*log=union", "--policy", "/srv/both=ours"];
    let mut arguments = vec!["child", "--into", "web", "--yes"];
    arguments.extend(policies);
    assert_eq!(conflicts(&merge(&daemon, &arguments)).len(), 7, "the others are not decided");
    arguments.extend(["--policy", "theirs"]);
    let merged = merge(&daemon, &arguments);
    assert_eq!(merged["applied"], true, "{merged}");
    assert_eq!(list(&merged["changes"]["merged"]), ["/srv/lines", "/srv/log"].map(str::to_owned).into());
    let found = daemon.sh(
        "web",
        "set -e; cd /srv; cat both added gone-ours kind dir fine; stat -c %a mode
        test ! -e gone-theirs; grep -c 'two\\|nineteen' lines; sed -n 2,3p log",
    );
    assert_eq!(found, "ours\ntheirs\ntheirs\ntheirs\ntheirs\nfine\n640\n2\ntwo\nzwei");
}

#[test]
fn a_parent_continues_during_a_merge_and_its_open_files_are_reported() {
    let daemon = Daemon::start();
    daemon.create("web");
    daemon.sh("web", "echo old > /srv/open; echo 0 > /srv/count");
    daemon.ok(&[
        "exec",
        "-d",
        "web",
        "--",
        "sh",
        "-c",
        "exec 3</srv/open; while :; do echo $(($(cat /srv/count)+1)) > /srv/count; sleep 0.1; done",
    ]);
    daemon.ok(&["fork", "web", "--name", "child", "--files-only"]);
    daemon.sh("child", "echo new > /srv/open; echo other > /srv/other");
    eventually("the reader has it open", || {
        daemon.holds("web", "ls -l /proc/[0-9]*/fd/3 2>/dev/null | grep -q /srv/open").then_some(())
    });
    let merged = merge(&daemon, &["child", "--into", "web", "--yes"]);
    let open = merged["open"].as_array().unwrap();
    assert!(open.iter().any(|open| open["path"] == "/srv/open" && open["program"] == "sh"), "{merged}");
    assert!(merged["pause_us"].as_u64().unwrap() > 0);
    assert_eq!(
        // A process that the loop starts has the file open too, and can end at any moment.
        daemon.sh("web", "cat /srv/open /srv/other; for f in /proc/[0-9]*/fd/3; do case \"$(readlink $f)\" in /srv/open*) cat $f 2>/dev/null && break;; esac; done"),
        "new\nother\nold"
    );
    let count = || daemon.sh("web", "cat /srv/count").trim().parse::<u64>().unwrap_or(0);
    let now = count();
    eventually("it goes on", || (count() > now).then_some(()));

    // A sleeping sandbox is woken for the merge; a stopped one stays stopped.
    daemon.sh("child", "echo third > /srv/other");
    daemon.ok(&["hibernate", "web"]);
    assert_eq!(merge(&daemon, &["child", "--into", "web", "--yes", "--policy", "theirs"])["applied"], true);
    assert_eq!(daemon.sh("web", "cat /srv/other"), "third");
    daemon.ok(&["stop", "web"]);
    daemon.sh("child", "echo fourth > /srv/other");
    assert_eq!(merge(&daemon, &["child", "--into", "web", "--yes", "--policy", "theirs"])["applied"], true);
    assert_eq!(daemon.json(&["inspect", "web"])["state"], "stopped");
    daemon.ok(&["start", "web"]);
    assert_eq!(daemon.sh("web", "cat /srv/other"), "fourth");
}

#[test]
fn several_children_are_merged_in_sequence_and_unrelated_sandboxes_are_refused() {
    let daemon = Daemon::start();
    daemon.create("web");
    daemon.sh("web", "seq 1 20 > /srv/lines");
    daemon.ok(&["fork", "web", "--count", "2", "--name", "child", "--files-only"]);
    daemon.sh("child-1", "echo 1 > /srv/one; sed -i s/^2$/two/ /srv/lines");
    daemon.sh("child-2", "echo 2 > /srv/two; sed -i s/^19$/nineteen/ /srv/lines");
    let octopus = daemon.cli(&["merge", "child-1", "child-2", "--into", "web", "--yes"]);
    let said = String::from_utf8_lossy(&octopus.stderr).into_owned();
    assert!(!octopus.status.success() && said.contains("one after the other"), "{said}");
    assert_eq!(merge(&daemon, &["child-1", "--into", "web", "--yes"])["applied"], true);
    assert_eq!(merge(&daemon, &["child-2", "--into", "web", "--yes", "--policy", "text"])["applied"], true);
    assert_eq!(daemon.sh("web", "cat /srv/one /srv/two; grep -c 'two\\|nineteen' /srv/lines"), "1\n2\n2");
    daemon.create("stranger");
    for (child, parent, said) in [
        ("stranger", "web", "no snapshot in common"),
        ("web", "web", "into itself"),
        ("nobody", "web", "no sandbox `nobody`"),
    ] {
        let refused = daemon.cli(&["merge", child, "--into", parent, "--yes"]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains(said), "{child}: {told}");
    }
    let scripted = daemon.cli(&["merge", "child-1", "--into", "web"]);
    assert!(String::from_utf8_lossy(&scripted.stderr).contains("confirmation is required"));
}

/// A child's tree is hostile: nothing in it may lead out of the parent's tree.
#[test]
fn links_and_odd_names_of_a_child_stay_inside() {
    let daemon = Daemon::start();
    family(&daemon, "mkdir -p /srv/d; echo x > /srv/d/x");
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("file");
    std::fs::write(&target, "the host's").unwrap();
    let target = target.to_str().unwrap();
    daemon.sh("web", &format!("rm -r /srv/d; ln -s {} /srv/d", outside.path().to_str().unwrap()));
    daemon.sh("child", &format!("cd /srv; echo evil > d/file; ln -s {target} link; mkfifo pipe; mkdir -p \"$(printf 'a\\nb')\"; echo e > \"$(printf 'a\\nb/\\377')\""));
    let refused = merge(&daemon, &["child", "--into", "web", "--yes"]);
    assert!(conflicts(&refused).iter().any(|conflict| conflict.starts_with("/srv/d ")), "{refused}");
    assert_eq!(merge(&daemon, &["child", "--into", "web", "--yes", "--policy", "ours"])["applied"], true);
    assert_eq!(std::fs::read_to_string(target).unwrap(), "the host's");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(daemon.holds("web", "test -p /srv/pipe && test -L /srv/link && test -L /srv/d"));
    assert_eq!(daemon.sh("web", "cat /srv/a*/*"), "e");
}

const WORK: &str = "set -e; cd /srv; for n in $(seq 1 40); do echo new > f$n; done; rm -r gone; mkdir -p deep/er; echo d > deep/er/d; chmod 700 mode";
const STATE: &str = "cd /srv; find . -path ./count -prune -o -print | sort | xargs stat -c '%n %a %s'; cat f* | sort | uniq -c";

fn prepare() -> (Daemon, String) {
    let daemon = Daemon::start();
    family(
        &daemon,
        "set -e; cd /srv; for n in $(seq 1 30); do echo old > f$n; done; mkdir gone; echo g > gone/g; echo m > mode",
    );
    daemon.ok(&["exec", "-d", "web", "--", "sleep", "4321"]);
    daemon.sh("child", WORK);
    daemon.ok(&["memory", "add", "child", "the port is 8080"]);
    let before = daemon.sh("web", STATE);
    (daemon, before)
}

/// D1 to D5 of a merge: at whichever step it is killed or fails, the parent has all of it or nothing, and its processes
/// continue to run.
fn check_whole(daemon: &Daemon, before: &str, merged: bool, context: &str) {
    check_inventory(daemon, context);
    let now = daemon.sh("web", STATE);
    if merged {
        assert_ne!(now, before, "{context}");
        assert_eq!(now, daemon.sh("child", STATE), "{context}");
    } else {
        assert_eq!(now, before, "{context}");
    }
    assert!(daemon.holds("web", "pgrep -x sleep"), "what ran goes on, {context}");
    let remembers = daemon.ok(&["memory", "search", "web", "which port"]).contains("8080");
    assert_eq!(remembers, merged, "{context}");
    assert_eq!(std::fs::read_dir(daemon.pool().join("transfer")).unwrap().count(), 0, "{context}");
    // The merge can be repeated.
    if !merged {
        assert_eq!(merge(daemon, &["child", "--into", "web", "--yes"])["applied"], true, "{context}");
        assert_eq!(daemon.sh("web", STATE), daemon.sh("child", STATE), "{context}");
    }
}

/// The points where a merge can fail. In a machine, its own agent changes the files, and cannot be stopped halfway.
fn points() -> impl Iterator<Item = &'static str> {
    MERGE_POINTS.iter().copied().filter(|point| !(all_on_microvms() && *point == "merge.half"))
}

#[test]
fn a_kill_at_every_step_of_a_merge_leaves_all_of_it_or_nothing() {
    for point in points() {
        let context = format!("after kill -9 at {point}");
        let (mut daemon, before) = prepare();
        daemon.terminate();
        daemon.arm(Some(&format!("{point}=kill")));
        daemon.launch();
        daemon.cli(&["merge", "child", "--into", "web", "--yes"]);
        daemon.wait_dead();
        daemon.arm(None);
        daemon.launch();
        let merged = matches!(point, "merge.settled" | "merge.remembered");
        check_whole(&daemon, &before, merged, &context);
    }
}

#[test]
fn a_failure_at_every_step_of_a_merge_leaves_nothing_of_it() {
    for point in points().filter(|point| !matches!(*point, "merge.settled" | "merge.remembered")) {
        let context = format!("after a failure at {point}");
        let (mut daemon, before) = prepare();
        daemon.terminate();
        daemon.arm(Some(&format!("{point}=fail")));
        daemon.launch();
        let failed = daemon.cli(&["merge", "child", "--into", "web", "--yes"]);
        assert!(!failed.status.success(), "{context}");
        assert_eq!(daemon.sh("web", STATE), before, "{context}");
        daemon.terminate();
        daemon.arm(None);
        daemon.launch();
        check_whole(&daemon, &before, false, &context);
    }
}

/// The files of a child are copied between its operations: in the middle of a merge into it, it has a state that must not
/// be copied.
#[test]
fn neither_a_merge_nor_an_image_contains_half_of_another_merge() {
    if all_on_microvms() {
        // In a machine, its own agent changes the files, and cannot be paused halfway.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let released = folder.path().join("released");
    let mut daemon = Daemon::start();
    family(&daemon, "true");
    daemon.ok(&["fork", "child", "--name", "grandchild"]);
    daemon.sh("grandchild", "cd /srv; for n in $(seq 1 40); do echo new > f$n; done");
    let child = daemon.inspect("child")["id"].as_str().unwrap().to_owned();
    let files = daemon.pool().join("sandboxes").join(child).join("rootfs/srv");
    let brought = || std::fs::read_dir(&files).unwrap().count();
    daemon.terminate();
    daemon.arm(Some(&format!("merge.half=wait:{}", released.display())));
    daemon.launch();
    let spawn = |arguments: &[&str]| daemon.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let first = spawn(&["merge", "grandchild", "--into", "child", "--yes"]);
    eventually("half of a merge", || (brought() >= 15).then_some(()));
    let mut second = spawn(&["merge", "child", "--into", "web", "--dry-run", "--json"]);
    let mut commit = spawn(&["image", "commit", "child", "--name", "whole"]);
    // They must wait for the first operation. If one does not wait, it gets enough time to finish.
    for waiting in [&mut second, &mut commit] {
        for _ in 0..100 {
            if waiting.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(brought() < 40, "the first merge was not held");
    std::fs::write(&released, "").unwrap();
    assert!(first.wait_with_output().unwrap().status.success());
    let foreseen: Value = serde_json::from_slice(&second.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(foreseen["total"], 40, "{foreseen}");
    assert!(commit.wait_with_output().unwrap().status.success());
    daemon.ok(&["create", "--image", "whole", "--name", "copy"]);
    assert_eq!(daemon.sh("copy", "grep -lx new /srv/f* | wc -l").trim(), "40");
}
