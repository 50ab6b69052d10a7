//! Files: every operation on them, streams of any size, copies, watches, and replacing as a whole.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Daemon, eventually, run};
use crate::http::Call;

const FILES: &str = "/v1/sandboxes/alpha/files";

#[test]
fn a_directory_of_a_hundred_thousand_entries_is_listed_and_one_more_is_refused() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let make = "import os\nos.mkdir('/srv/many')\nfor i in range(100000): os.close(os.open(f'/srv/many/entry-{i:06}',os.O_CREAT))";
    daemon.ok(&["exec", "alpha", "--", "python3", "-c", make]);
    let list = daemon.json(&["files", "ls", "alpha", "/srv/many", "--json"]);
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 100_000);
    assert_eq!((&list[0]["name"], &list[99_999]["name"]), (&json!("entry-000000"), &json!("entry-099999")));
    daemon.sh("alpha", "touch /srv/many/one-more");
    daemon.get("/v1/sandboxes/alpha/files/list?path=/srv/many").refused(429, "too_many");
}

#[test]
fn files_are_written_read_inspected_listed_moved_changed_and_removed() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.ok(&["files", "mkdir", "-p", "-m", "750", "alpha", "/srv/a/b"]);
    let written =
        daemon.fed(&["files", "write", "--mode", "640", "-u", "user", "alpha", "/srv/a/b/file"], b"hello\n");
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    assert_eq!(daemon.ok(&["files", "cat", "alpha", "/srv/a/b/file"]), "hello");
    assert_eq!(
        daemon.sh("alpha", "stat -c '%a %U %s' /srv/a/b/file; stat -c %a /srv/a/b"),
        "640 user 6\n750"
    );
    let stat = daemon.json(&["files", "stat", "alpha", "/srv/a/b/file", "--json"]);
    assert_eq!((&stat["kind"], &stat["size"], &stat["mode"]), (&json!("file"), &json!(6), &json!("0640")));
    assert_eq!((&stat["user"], &stat["uid"]), (&json!("user"), &json!(1000)));
    daemon.sh("alpha", "ln -s b/file /srv/a/link");
    let names = |list: Value| -> Vec<String> {
        let name = |entry: &Value| {
            format!("{} {}", entry["kind"].as_str().unwrap(), entry["path"].as_str().unwrap())
        };
        let mut names: Vec<String> = list.as_array().unwrap().iter().map(name).collect();
        names.sort_unstable();
        names
    };
    let flat = names(daemon.json(&["files", "ls", "alpha", "/srv/a", "--json"]));
    assert_eq!(flat, ["directory /srv/a/b", "symlink /srv/a/link"]);
    let deep = names(daemon.json(&["files", "ls", "alpha", "/srv/a", "--depth", "2", "--json"]));
    assert_eq!(deep, ["directory /srv/a/b", "file /srv/a/b/file", "symlink /srv/a/link"]);
    daemon.ok(&["files", "mv", "alpha", "/srv/a/b/file", "/srv/a/moved"]);
    daemon.ok(&["files", "chmod", "alpha", "4755", "/srv/a/moved"]);
    assert_eq!(daemon.sh("alpha", "stat -c %a /srv/a/moved; test ! -e /srv/a/b/file"), "4755");
    daemon.ok(&["files", "rm", "alpha", "/srv/a/link", "/srv/a/b"]);
    let said = daemon.refused(&["files", "rm", "alpha", "/srv/a"], 1);
    assert!(said.contains("alpha:/srv/a"), "{said}");
    daemon.ok(&["files", "rm", "-r", "alpha", "/srv/a"]);
    assert!(daemon.holds("alpha", "test ! -e /srv/a"));
}

#[test]
fn each_failure_of_a_file_operation_has_its_own_code_and_names_the_path() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "mkdir -p /srv/full && touch /srv/full/x && mkfifo /srv/pipe");
    let check = |method: &str, target: &str, status: u16, code: &str| {
        let error = daemon.http(method, &format!("{FILES}{target}")).send().refused(status, code);
        error["message"].as_str().unwrap().to_owned()
    };
    assert!(check("GET", "?path=/nowhere", 404, "not_found").contains("/nowhere"));
    check("GET", "?path=/srv/full", 422, "unprocessable");
    // A pipe without a writer must not block the request.
    check("GET", "?path=/srv/pipe", 422, "unprocessable");
    check("GET", "?path=relative", 400, "invalid_request");
    check("GET", "?path=/a%00b", 400, "invalid_request");
    check("GET", "?path=/%ff", 400, "invalid_request");
    check("GET", "?path=/x&depth=3", 400, "invalid_request");
    check("GET", "", 400, "invalid_request");
    check("DELETE", "?path=/srv/full", 409, "conflict");
    check("DELETE", "?path=/srv/none", 404, "not_found");
    check("PUT", "?path=/srv/none/file", 404, "not_found");
    check("PUT", "?path=/srv/file&mode=999", 400, "invalid_request");
    check("GET", "/list?path=/srv&depth=0", 400, "invalid_request");
    check("GET", &format!("?path=/{}", "a".repeat(5000)), 400, "invalid_request");
    let mkdir = json!({ "path": "/srv/full" });
    daemon.post(&format!("{FILES}/mkdir"), &mkdir).refused(409, "conflict");
    assert!(daemon.holds("alpha", "test -e /srv/full/x"), "nothing was lost");
}

#[test]
fn a_range_of_a_file_is_read_alone_and_one_outside_is_refused() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.fed(&["files", "write", "alpha", "/srv/digits"], b"0123456789");
    let read =
        |range: &str| daemon.http("GET", &format!("{FILES}?path=/srv/digits")).header("range", range).send();
    for (range, body, told) in [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=8-99", "89", "bytes 8-9/10"),
    ] {
        let answer = read(range);
        assert_eq!((answer.status, answer.text().as_str()), (206, body), "{range}");
        assert_eq!(answer.header("content-range"), Some(told), "{range}");
    }
    let answer = read("bytes=10-");
    answer.refused(416, "range_not_satisfiable");
    assert_eq!(answer.header("content-range"), Some("bytes */10"));
    assert_eq!(daemon.ok(&["files", "cat", "--offset", "3", "--length", "2", "alpha", "/srv/digits"]), "34");
    daemon.fed(&["files", "write", "--offset", "4", "alpha", "/srv/digits"], b"xy");
    assert_eq!(daemon.sh("alpha", "cat /srv/digits"), "0123xy6789");
    // Files that report size 0 and still have content.
    let read = daemon.get(&format!("{FILES}?path=/proc/uptime"));
    assert!(read.status == 200 && !read.body.is_empty(), "{}", read.text());
}

#[test]
fn a_quarter_of_a_gigabyte_streams_both_ways_while_the_daemon_stays_small() {
    const BLOCKS: u64 = 256;
    const BLOCK: usize = 1 << 20;
    let daemon = Daemon::start();
    daemon.create("alpha");
    let block = |number: u64| {
        let mut block = vec![u8::try_from(number & 0xff).unwrap(); BLOCK];
        block[..8].copy_from_slice(&number.to_le_bytes());
        block
    };
    let (before, _) = daemon.ram_kib();
    let call = daemon.http("PUT", &format!("{FILES}?path=/srv/large"));
    let mut upload = call.begin(BLOCKS * BLOCK as u64);
    for number in 0..BLOCKS {
        upload.write_all(&block(number)).unwrap();
    }
    let mut answer = Call::answer(upload);
    let mut body = String::new();
    answer.read_to_string(&mut body).unwrap();
    assert_eq!(answer.status, 200, "{body}");
    assert_eq!(daemon.sh("alpha", "stat -c %s /srv/large"), (BLOCKS * BLOCK as u64).to_string());
    let mut download = daemon.http("GET", &format!("{FILES}?path=/srv/large")).open();
    assert_eq!(download.header("content-length"), Some((BLOCKS * BLOCK as u64).to_string().as_str()));
    let mut read = vec![0; BLOCK];
    for number in 0..BLOCKS {
        download.read_exact(&mut read).unwrap();
        assert!(read == block(number), "block {number} differs");
    }
    let (_, most) = daemon.ram_kib();
    assert!(most < before + (32 << 10), "from {before} KiB to {most} KiB at most");
}

#[test]
fn an_upload_that_breaks_off_leaves_the_old_file_and_no_trace() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "mkdir /srv/d && echo old > /srv/d/file");
    let mut upload = daemon.http("PUT", &format!("{FILES}?path=/srv/d/file")).begin(1 << 20);
    upload.write_all(&vec![b'n'; 512 << 10]).unwrap();
    assert_eq!(daemon.sh("alpha", "cat /srv/d/file"), "old", "nothing is replaced before all of it is there");
    drop(upload);
    eventually("only the old file to be left", || {
        (daemon.sh("alpha", "ls -A /srv/d") == "file").then_some(())
    });
    assert_eq!(daemon.sh("alpha", "cat /srv/d/file"), "old");
    daemon.http("PUT", &format!("{FILES}?path=/srv/d/file")).body("new\n").send().expect(200);
    assert_eq!(daemon.sh("alpha", "cat /srv/d/*"), "new");
}

#[test]
fn a_file_is_replaced_atomically_while_it_is_read() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let program = r"
import os
seen = set()
while not os.path.exists('/tmp/enough'):
    with open('/srv/file', 'rb') as file:
        content = file.read()
    assert len(content) == 300000 and len(set(content)) == 1, 'torn: %d bytes of %r' % (len(content), set(content))
    seen.add(content[0])
    if len(seen) == 2: print('both', flush=True)
";
    let write = |letter: u8| {
        let body = vec![letter; 300_000];
        daemon.http("PUT", &format!("{FILES}?path=/srv/file")).body(body).send().expect(200);
    };
    write(b'a');
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "python3", "-c", program]);
    let mut replaced = 0;
    eventually("the reader to have seen both contents, many times over", || {
        write(b"ab"[replaced % 2]);
        replaced += 1;
        (replaced >= 40 && daemon.ok(&["logs", "alpha", &exec]).contains("both")).then_some(())
    });
    daemon.sh("alpha", "touch /tmp/enough");
    assert_eq!(
        daemon.cli(&["wait", &exec]).status.code(),
        Some(0),
        "{}",
        daemon.ok(&["logs", "alpha", &exec])
    );
}

/// A small tree with the usual kinds of entries: folders, a program, a link, an empty folder, a name with a space.
fn make_tree(at: &Path) {
    fs::create_dir_all(at.join("inner/empty")).unwrap();
    fs::write(at.join("inner/with space"), "spaced\n").unwrap();
    fs::write(at.join("program"), "#!/bin/sh\necho ran\n").unwrap();
    run(Command::new("chmod").arg("755").arg(at.join("program")));
    std::os::unix::fs::symlink("inner/with space", at.join("link")).unwrap();
}

#[track_caller]
fn check_tree(at: &Path) {
    assert_eq!(fs::read_to_string(at.join("inner/with space")).unwrap(), "spaced\n");
    assert_eq!(fs::read_link(at.join("link")).unwrap(), Path::new("inner/with space"));
    assert!(at.join("inner/empty").is_dir());
    let output = Command::new(at.join("program")).output().unwrap();
    assert_eq!(output.stdout, b"ran\n", "it can still be executed");
}

#[test]
fn cp_copies_files_and_directories_both_ways() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    make_tree(&folder.path().join("tree"));
    daemon.ok(&["cp", "-u", "user", &at("tree"), "alpha:/srv/"]);
    let inside = "cd /srv/tree && ./program && cat link && stat -c %U program && test -d inner/empty";
    assert_eq!(daemon.sh("alpha", inside), "ran\nspaced\nuser");
    daemon.ok(&["cp", &at("tree"), "alpha:/srv/renamed"]);
    assert!(
        daemon.holds("alpha", "test -x /srv/renamed/program"),
        "a destination that is not there is what it becomes"
    );
    daemon.ok(&["cp", "alpha:/srv/tree", &at("back")]);
    check_tree(&folder.path().join("back"));
    fs::create_dir(folder.path().join("into")).unwrap();
    daemon.ok(&["cp", "alpha:/srv/tree", &at("into")]);
    check_tree(&folder.path().join("into/tree"));
    daemon.ok(&["cp", &at("tree/inner/with space"), "alpha:/srv/one"]);
    daemon.ok(&["cp", "alpha:/srv/one", &at("one")]);
    assert_eq!(fs::read_to_string(folder.path().join("one")).unwrap(), "spaced\n");
    daemon.create("beta");
    daemon.ok(&["cp", "alpha:/srv/tree", "beta:/srv/tree"]);
    assert_eq!(daemon.sh("beta", "/srv/tree/program"), "ran");
    let said = daemon.refused(&["cp", &at("missing"), "alpha:/srv/"], 1);
    assert!(said.contains("missing"), "{said}");
}

#[test]
fn cp_reads_a_tar_from_standard_input_and_writes_one_to_standard_output() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let folder = tempfile::tempdir().unwrap();
    make_tree(&folder.path().join("tree"));
    let tar = Command::new("tar").arg("-C").arg(folder.path()).args(["-c", "tree"]).output().unwrap();
    let output = daemon.fed(&["cp", "-", "alpha:/srv"], &tar.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(daemon.sh("alpha", "cd /srv/tree && ./program && cat link"), "ran\nspaced");
    let output = daemon.cli(&["cp", "alpha:/srv/tree", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let into = folder.path().join("out");
    fs::create_dir(&into).unwrap();
    let mut unpack =
        Command::new("tar").arg("-C").arg(&into).args(["-x"]).stdin(Stdio::piped()).spawn().unwrap();
    unpack.stdin.take().unwrap().write_all(&output.stdout).unwrap();
    assert!(unpack.wait().unwrap().success());
    check_tree(&into);
}

#[test]
fn an_archive_with_entries_outside_of_its_directory_is_refused_entirely() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "mkdir /srv/here");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("good"), "good").unwrap();
    fs::write(folder.path().join("bad"), "bad").unwrap();
    let tar = Command::new("tar")
        .arg("-C")
        .arg(folder.path())
        .args(["-cP", "--transform", "s,^bad,../climbed,", "good", "bad"])
        .output()
        .unwrap();
    let upload = daemon.http("PUT", &format!("{FILES}/tar?path=/srv/here")).body(tar.stdout.clone()).send();
    assert!((400..500).contains(&upload.status), "{} {}", upload.status, upload.text());
    assert_eq!(daemon.sh("alpha", "ls -A /srv/here; ls -d /srv/climbed 2>/dev/null || true"), "");
    let upload = daemon.http("PUT", &format!("{FILES}/tar?path=/srv/here")).body("this is no archive").send();
    assert!((400..500).contains(&upload.status), "{} {}", upload.status, upload.text());
}

#[test]
fn a_recursive_watch_reports_changes_in_directories_created_after_it() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "mkdir -p /srv/w/known");
    let mut command = daemon.command(&["files", "watch", "-r", "--json", "alpha", "/srv/w"]);
    let mut watch = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["kind"], "ready");
    let mut until = |kind: &str, path: &str| {
        // Writing a file causes several events; only those of the requested file matter.
        let mut event = next();
        while event["kind"] != kind || event["path"] != path {
            event = next();
        }
        event
    };
    daemon.sh("alpha", "echo 1 > /srv/w/known/file");
    until("written", "/srv/w/known/file");
    daemon.sh("alpha", "mkdir /srv/w/new");
    until("created", "/srv/w/new");
    daemon.sh("alpha", "echo 2 > /srv/w/new/below");
    until("written", "/srv/w/new/below");
    daemon.sh("alpha", "mv /srv/w/new/below /srv/w/renamed");
    assert_eq!(until("renamed", "/srv/w/renamed")["from"], "/srv/w/new/below");
    daemon.sh("alpha", "rm /srv/w/renamed");
    until("removed", "/srv/w/renamed");
    watch.kill().unwrap();
    watch.wait().unwrap();
    daemon.http("GET", &format!("{FILES}/watch?path=/nowhere")).send().refused(404, "not_found");
}
