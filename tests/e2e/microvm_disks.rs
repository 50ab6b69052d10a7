//! The disks of microVMs: compared, merged, committed as an image. The host itself reads none of them.

use crate::diff::entries;
use crate::harness::Daemon;
use crate::merge::{conflicts, merge};
use crate::microvms::{begin_to_count, count, counts_on, create, start};

const TREE: &str = "set -e; cd /srv; mkdir -p app/old; for f in a b c d e; do seq 1 20 > app/$f; done
    echo x > app/old/x; ln -s a app/link; ln app/b app/b-too; echo kept > app/kept";

const CHILD: &str = "set -e; cd /srv/app
    echo changed > a; chmod 700 c; rm d; rm -r old; ln -sfn c link; seq 1 21 > b; mv e moved
    mkdir -p new/deep; echo n > new/deep/n; ln kept kept-too; chown 1000:1000 kept
    mkdir -p /root/.cache; echo noise > /root/.cache/noise";

const CHANGED: [&str; 14] = [
    "~/srv/app/a content",
    "~/srv/app/b content",
    "~/srv/app/b-too content",
    "~/srv/app/c mode",
    "-/srv/app/d",
    "-/srv/app/e",
    "~/srv/app/kept owner",
    "+/srv/app/kept-too",
    "~/srv/app/link link",
    "+/srv/app/moved",
    "+/srv/app/new",
    "+/srv/app/new/deep",
    "+/srv/app/new/deep/n",
    "-/srv/app/old",
];

fn nothing_is_left(daemon: &Daemon, machines: usize) {
    let inventory = daemon.inventory();
    assert_eq!(inventory.sandboxes().len(), machines, "{inventory:?}");
}

#[test]
fn changes_of_a_child_microvm_are_listed_merged_and_can_be_undone() {
    let daemon = start("");
    create(&daemon, "web", &[]);
    daemon.sh("web", TREE);
    begin_to_count(&daemon, "web");
    daemon.ok(&["fork", "web", "--name", "child"]);
    daemon.sh("child", CHILD);
    let told = entries(&daemon, &["web", "child", "/srv"]);
    for expected in CHANGED {
        assert!(told.iter().any(|found| found.starts_with(expected)), "{expected} is not in {told:?}");
    }
    let lines = daemon.ok(&["diff", "--content", "web", "child", "/srv/app/a"]);
    assert!(lines.contains("+changed") && lines.contains("-20"), "{lines}");
    let image = entries(&daemon, &["debian", "web", "/srv"]);
    assert!(image.contains(&"+/srv/app/kept".to_owned()), "{image:?}");
    nothing_is_left(&daemon, 2);

    daemon.sh("web", "cd /srv/app; echo mine > mine; sed -i s/^3$/three/ e");
    let before = daemon.sh("web", "cd /srv/app; find . | sort | xargs stat -c '%n %A %U'; cat a b e");
    let foreseen = merge(&daemon, &["child", "--into", "web", "--dry-run"]);
    assert_eq!((&foreseen["applied"], conflicts(&foreseen).len()), (&false.into(), 0), "{foreseen}");
    let from = count(&daemon, "web");
    let merged = merge(&daemon, &["child", "--into", "web", "--yes"]);
    assert_eq!(merged["applied"], true, "{merged}");
    assert_eq!(merged["changes"], foreseen["changes"]);
    let found = daemon.sh(
        "web",
        "set -e; cd /srv/app
        cat a; stat -c '%a' c; test ! -e d; test ! -e old; readlink link; tail -n1 b; cat new/deep/n mine
        sed -n 3p moved; test ! -e e; test b -ef b-too; test kept -ef kept-too; stat -c '%u:%g' kept-too
        test ! -e /root/.cache/noise; test ! -e /.burrow-merging",
    );
    assert_eq!(found, "changed\n700\nc\n21\nn\nmine\nthree\n1000:1000");
    // The processes of the parent were not interrupted.
    counts_on(&daemon, "web", from);
    let again = merge(&daemon, &["child", "--into", "web", "--yes"]);
    assert_eq!((&again["applied"], &again["total"]), (&false.into(), &0.into()), "{again}");

    let undo = merged["undo"]["id"].as_str().unwrap();
    daemon.ok(&["snapshot", "restore", undo, "--in-place", "web", "--yes"]);
    assert_eq!(daemon.sh("web", "cd /srv/app; find . | sort | xargs stat -c '%n %A %U'; cat a b e"), before);
    counts_on(&daemon, "web", from);

    // A file that both changed is a conflict, and nothing is merged. A merge into a stopped parent works as well.
    daemon.sh("web", "echo ours > /srv/app/a; rm /srv/app/c");
    let refused = merge(&daemon, &["child", "--into", "web", "--yes"]);
    assert_eq!(refused["applied"], false);
    assert!(conflicts(&refused).contains("/srv/app/a both-changed"), "{refused}");
    daemon.ok(&["stop", "web"]);
    let merged = merge(&daemon, &["child", "--into", "web", "--yes", "--policy", "theirs"]);
    assert_eq!(merged["applied"], true, "{merged}");
    daemon.ok(&["start", "web"]);
    assert_eq!(daemon.sh("web", "cd /srv/app; cat a mine; stat -c %a c"), "changed\nmine\n700");
    nothing_is_left(&daemon, 2);
}

#[test]
fn a_merge_into_a_microvm_that_is_cut_short_leaves_nothing_half_done() {
    let mut daemon = start("");
    create(&daemon, "web", &[]);
    daemon.sh("web", TREE);
    begin_to_count(&daemon, "web");
    daemon.ok(&["fork", "web", "--name", "child"]);
    daemon.sh("child", CHILD);
    let listing = "cd /srv/app; find . | sort | xargs stat -c '%n %A %U %Y'; cat a b e";
    let before = daemon.sh("web", listing);
    let from = count(&daemon, "web");
    // All changes are in the files, and the catalog has no unfinished operation.
    daemon.kill();
    daemon.arm(Some("merge.applied=kill"));
    daemon.launch();
    let cut = daemon.cli(&["merge", "child", "--into", "web", "--yes"]);
    assert!(!cut.status.success());
    daemon.wait_dead();
    daemon.arm(None);
    daemon.launch();
    assert_eq!(daemon.sh("web", listing), before);
    counts_on(&daemon, "web", from);
    assert_eq!(
        daemon.json(&["snapshot", "ls", "--all", "--json"]).as_array().unwrap().len(),
        1,
        "the fork's own"
    );
    let merged = merge(&daemon, &["child", "--into", "web", "--yes"]);
    assert_eq!(merged["applied"], true, "{merged}");
    assert_eq!(daemon.sh("web", "cat /srv/app/a"), "changed");
}

#[test]
fn an_image_of_a_microvm_also_works_for_containers() {
    let daemon = start("");
    create(&daemon, "web", &[]);
    daemon.sh("web", TREE);
    daemon.sh("web", "chown 1000:1000 /srv/app/kept; chmod 4711 /srv/app/c");
    daemon.ok(&["image", "commit", "web", "--name", "mine"]);
    let look = "cd /srv/app; stat -c '%n %a %u:%g' *; stat -c %h b kept; cat b kept; readlink link; test b -ef b-too && echo one; id -u";
    let expected = daemon.sh("web", look);
    daemon.ok(&["create", "--name", "other", "--isolation", "container", "--image", "mine"]);
    assert_eq!(daemon.sh("other", look), expected);
    create(&daemon, "third", &["--image", "mine"]);
    assert_eq!(daemon.sh("third", look), expected);
    assert_eq!(entries(&daemon, &["mine", "third", "/srv"]), [""; 0]);
    // A host's file tree cannot be compared with a disk.
    let refused = daemon.cli(&["diff", "other", "third"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("no disk of the driver"), "{said}");
    assert!(said.contains("image commit"), "{said}");
}
