//! Differences between sandboxes, snapshots and images.

use serde_json::Value;

use crate::harness::Daemon;

/// The entries of a diff, one per line: sign, path, what has changed.
pub(crate) fn entries(daemon: &Daemon, arguments: &[&str]) -> Vec<String> {
    let mut all = vec!["diff", "--json"];
    all.extend(arguments);
    shown(&daemon.json(&all)["entries"])
}

fn shown(entries: &Value) -> Vec<String> {
    let line = |entry: &Value| {
        let sign = match entry["change"].as_str().unwrap() {
            "added" => '+',
            "deleted" => '-',
            _ => '~',
        };
        let what: Vec<&str> =
            entry["what"].as_array().unwrap().iter().map(|what| what.as_str().unwrap()).collect();
        format!("{sign}{} {}", entry["path"].as_str().unwrap(), what.join(",")).trim_end().to_owned()
    };
    entries.as_array().unwrap().iter().map(line).collect()
}

const EDIT: &str = "set -e; cd /srv
    echo changed > content; chmod 600 mode; chown 1000:1000 owner; ln -sfn elsewhere link; rm gone
    mkdir -p new/deep; echo x > new/deep/file; rm kind; mkdir kind
    mkdir -p /root/.cache; echo noise > /root/.cache/x; echo noise > /tmp/y; echo noise > /var/log/z.log; echo 1 > /srv/app.pid";

const EDITED: [&str; 9] = [
    "~/srv/content content",
    "-/srv/gone",
    "~/srv/kind kind,mode",
    "~/srv/link link",
    "~/srv/mode mode",
    "+/srv/new",
    "+/srv/new/deep",
    "+/srv/new/deep/file",
    "~/srv/owner owner",
];

#[test]
fn any_two_of_sandboxes_snapshots_and_images_are_compared_in_any_state() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh(
        "alpha",
        "cd /srv; for f in content mode owner gone kind; do echo $f > $f; done; ln -s somewhere link",
    );
    daemon.ok(&["snapshot", "create", "alpha", "--name", "before", "--files-only"]);
    daemon.ok(&["fork", "alpha", "--name", "child"]);
    daemon.sh("child", EDIT);
    let edited = entries(&daemon, &["alpha", "child", "/srv"]);
    assert_eq!(edited.len(), EDITED.len(), "{edited:?}");
    for (found, expected) in edited.iter().zip(EDITED) {
        assert!(found.starts_with(expected), "{found} is not {expected}");
    }
    // In the opposite direction, every sign is reversed.
    let back = entries(&daemon, &["child", "alpha", "/srv"]);
    assert!(back.contains(&"+/srv/gone".to_owned()) && back.contains(&"-/srv/new".to_owned()), "{back:?}");
    // The result is the same for a snapshot, a sleeping and a stopped sandbox.
    for (from, prepare) in [("before", "hibernate"), ("alpha", "stop")] {
        daemon.ok(&[prepare, "child"]);
        assert_eq!(entries(&daemon, &[from, "child", "/srv"]), edited, "{prepare}");
    }
    // Compared with the image that both come from, the changes of both are listed.
    let all = entries(&daemon, &["debian", "child", "/srv"]);
    assert!(
        all.contains(&"+/srv/content".to_owned()) && all.contains(&"+/srv/new/deep/file".to_owned()),
        "{all:?}"
    );
    // Noise is counted, and listed on request.
    let folded = daemon.json(&["diff", "alpha", "child", "--json"]);
    assert!(folded["noise"].as_array().unwrap().len() >= 3, "{}", folded["noise"]);
    assert!(!shown(&folded["entries"]).iter().any(|entry| entry.contains(".cache/x")));
    let loud = entries(&daemon, &["alpha", "child", "--all"]);
    for noise in ["+/root/.cache/x", "+/tmp/y", "+/var/log/z.log", "+/srv/app.pid"] {
        assert!(loud.contains(&noise.to_owned()), "{noise}: {loud:?}");
    }
    // The comparison leaves nothing behind.
    assert_eq!(std::fs::read_dir(daemon.pool().join("transfer")).unwrap().count(), 0);
}

#[test]
fn the_output_of_diff_options_and_errors_is_as_documented() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "printf '1\\n2\\n3\\n' > /srv/a.txt; printf 'x' > /srv/b.bin");
    daemon.ok(&["fork", "alpha", "--name", "child"]);
    daemon.sh("child", "printf '1\\ntwo\\n3\\n' > /srv/a.txt; printf 'a\\0b' > /srv/b.bin");
    let text = daemon.ok(&["diff", "alpha", "child", "--content", "/srv/**"]);
    assert!(text.contains("@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"), "{text}");
    assert!(text.contains("~ /srv/b.bin"), "{text}");
    let text = daemon.ok(&["diff", "alpha", "child", "*.txt"]);
    assert!(text.contains("/srv/a.txt") && !text.contains("b.bin"), "{text}");
    let stat = daemon.ok(&["diff", "alpha", "child", "--stat", "/srv"]);
    assert!(stat.starts_with("0 added, 2 changed, 0 deleted"), "{stat}");
    let unknown = daemon.cli(&["diff", "alpha", "nobody"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && said.contains("no sandbox, snapshot or image `nobody`"), "{said}");
    let bad = daemon.cli(&["diff", "alpha", "child", "a[b"]);
    assert!(String::from_utf8_lossy(&bad.stderr).contains("without its `]`"));
}
