//! Disks that a temporary machine reads, and that the agent of a running machine changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_network::linux::UID_BASE;
use burrow_runtime::disks::{DiskAccess, DiskSpec, Names, OpenDisks, ReceiveFn, SendFn};
use burrow_runtime::microvm::disk;
use burrow_runtime::{OwnDisks as _, Runtime as _, RuntimeError};
use burrow_trees::apply::Sources;
use burrow_trees::plan::{Action, Content};
use burrow_trees::survey::{NameChange, Survey};
use burrow_trees::{Kind, Node, Root, carry};

use crate::support::{Host, LIMITS};

const BOUNDS: carry::Bounds =
    carry::Bounds { records_max: 1_000_000, bytes_max: 1 << 30, length_max: 1 << 40 };

async fn opened(host: &Host, roots: &[(&Path, bool)]) -> Result<Box<dyn DiskAccess>, RuntimeError> {
    let of = |(root, writable): &(&Path, bool)| DiskSpec { root: (*root).to_owned(), writable: *writable };
    let disks = roots.iter().map(of).collect();
    host.runtime.open_disks(OpenDisks { disks, scratch: host.directory.path().to_owned() }).await
}

/// A disk of a tree that `fill` creates, with the owners inside.
fn disk_with(host: &Host, fill: impl FnOnce(&Path)) -> PathBuf {
    let (tree, root) = (host.folder("tree"), host.folder("root"));
    fill(&tree);
    let owner = format!("{UID_BASE}:{UID_BASE}");
    let chown = std::process::Command::new("chown").args(["-hR", &owner]).arg(&tree).status().unwrap();
    assert!(chown.success());
    disk::make(&tree, &root, LIMITS.disk_mib).unwrap();
    root
}

fn copy_of(host: &Host, root: &Path) -> PathBuf {
    let copy = host.folder("root");
    fs::copy(root.join(disk::NAME), copy.join(disk::NAME)).unwrap();
    copy
}

/// Unpacks the copied files into an empty tree.
async fn copied(host: &Host, disks: &mut dyn DiskAccess, disk: usize, names: Names) -> PathBuf {
    let (into, staging) = (host.folder("copy"), host.folder("staging"));
    let take: ReceiveFn = {
        let into = into.clone();
        Box::new(move |input| {
            let (live, staging) = (Root::open(&into), Root::open(&staging));
            let (live, staging) =
                (live.map_err(std::io::Error::other)?, staging.map_err(std::io::Error::other)?);
            let received = carry::receive(&live, &staging, input, BOUNDS, &mut |_, _| Ok(()));
            received.map(drop).map_err(std::io::Error::other)
        })
    };
    disks.copy_out(disk, names, take).await.unwrap();
    into
}

fn these(names: &[&str]) -> BTreeSet<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

fn names_of(survey: &Survey) -> Vec<String> {
    assert!(!survey.more);
    let sign = |became: &NameChange| match became {
        NameChange::Added => '+',
        NameChange::Changed => '~',
        NameChange::Deleted => '-',
    };
    let one = |(path, became): (&Vec<u8>, &NameChange)| {
        format!("{}{}", sign(became), String::from_utf8_lossy(path))
    };
    survey.found.iter().map(one).collect()
}

fn node(kind: Kind, mode: u32) -> Node {
    let attributes = BTreeMap::from([(b"user.note".to_vec(), b"x".to_vec())]);
    // Links and pipes have none, as in the kernel.
    let attributes =
        if matches!(kind, Kind::Link { .. } | Kind::Pipe) { BTreeMap::new() } else { attributes };
    Node { kind, mode, uid: 1000, gid: 7, attributes, modified: (1_700_000_000, 5), identity: None }
}

fn put(path: &str, kind: Kind, mode: u32, content: &str) -> Action {
    let content = match kind {
        Kind::File { .. } => Content::Merged { content: content.as_bytes().to_vec() },
        Kind::Directory
        | Kind::Link { .. }
        | Kind::Pipe
        | Kind::Socket
        | Kind::Block { .. }
        | Kind::Character { .. } => Content::None,
    };
    Action::Put { path: path.as_bytes().to_vec(), node: node(kind, mode), content }
}

fn file() -> Kind {
    Kind::File { bytes: 0 }
}

fn giving(host: &Host, actions: Vec<Action>) -> SendFn {
    let nothing = Arc::new(Root::open(&host.folder("nothing")).unwrap());
    Box::new(move |out| {
        let sources = Sources { ours: &nothing, theirs: &nothing };
        carry::send_actions(&actions, sources, &|_| {}, out).map_err(std::io::Error::other)
    })
}

async fn nothing_is_left(host: &Host) {
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_between_disks_are_reported_and_copied_out() {
    let host = Host::new();
    let old = disk_with(&host, |tree| {
        fs::create_dir(tree.join("kept")).unwrap();
        for name in ["kept/content", "kept/mode", "kept/same", "gone", "kind", "linked"] {
            fs::write(tree.join(name), "12345").unwrap();
        }
        symlink("a", tree.join("kept/link")).unwrap();
    });
    let new = copy_of(&host, &old);
    let mut disks = opened(&host, &[(&new, true)]).await.unwrap();
    let actions = vec![
        Action::Remove { path: b"/gone".to_vec(), directory: false },
        Action::Remove { path: b"/kind".to_vec(), directory: false },
        put("/kept/content", file(), 0o644, "12x45"),
        Action::Attributes { path: b"/kept/mode".to_vec(), node: node(file(), 0o4711) },
        put("/kept/link", Kind::Link { target: b"b".to_vec() }, 0o777, ""),
        put("/kept/pipe", Kind::Pipe, 0o600, ""),
        put("/kind", Kind::Directory, 0o750, ""),
        put("/kind/inside", file(), 0o600, &"large".repeat(100_000)),
        Action::Link { path: b"/second name".to_vec(), to: b"/linked".to_vec() },
    ];
    disks.apply(0, giving(&host, actions)).await.unwrap();
    disks.close().await.unwrap();
    nothing_is_left(&host).await;

    let before = [&old, &new].map(|root| fs::read(root.join(disk::NAME)).unwrap());
    let mut disks = opened(&host, &[(&old, false), (&new, false)]).await.unwrap();
    let survey = disks.changes(0, 1).await.unwrap();
    assert_eq!(
        names_of(&survey),
        [
            "-/gone",
            "~/kept/content",
            "~/kept/link",
            "~/kept/mode",
            "+/kept/pipe",
            "~/kind",
            "+/kind/inside",
            "~/linked",
            "+/second name"
        ]
    );
    assert_eq!(names_of(&disks.changes(1, 1).await.unwrap()), [""; 0]);
    let names: BTreeSet<_> = survey.found.keys().cloned().collect();
    let copy = copied(&host, &mut *disks, 1, Names::These(names)).await;
    assert_eq!(fs::read(copy.join("kept/content")).unwrap(), b"12x45");
    assert_eq!(fs::read(copy.join("kind/inside")).unwrap().len(), 500_000);
    assert_eq!(fs::read_link(copy.join("kept/link")).unwrap(), Path::new("b"));
    let (mode, linked) =
        (copy.join("kept/mode").metadata().unwrap(), copy.join("linked").metadata().unwrap());
    assert_eq!((mode.mode() & 0o7777, mode.uid(), mode.gid()), (0o4711, 1000, 7));
    assert_eq!((linked.ino(), linked.nlink()), (copy.join("second name").metadata().unwrap().ino(), 2));
    assert_eq!((copy.join("kind").metadata().unwrap().mtime(), mode.size()), (1_700_000_000, 5));
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(copy.join("kept/content"), "user.note", &mut value).unwrap();
    assert_eq!(&value[..length], b"x");
    assert!(!copy.join("kept/same").exists() && !copy.join("gone").exists());
    let whole = copied(&host, &mut *disks, 0, Names::All).await;
    assert_eq!(fs::read_dir(whole.join("kept")).unwrap().count(), 4);
    assert!(!whole.join("lost+found").exists());
    assert_eq!(fs::metadata(&whole).unwrap().permissions().mode() & 0o777, 0o755);
    // A disk that was opened for reading is never changed.
    let refused = disks.apply(1, giving(&host, Vec::new())).await.unwrap_err();
    assert!(refused.to_string().contains("it is read-only"), "{refused}");
    disks.close().await.unwrap();
    for (root, before) in [&old, &new].into_iter().zip(before) {
        assert!(fs::read(root.join(disk::NAME)).unwrap() == before, "a disk was changed by being read");
    }
    nothing_is_left(&host).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_a_disk_that_was_not_unmounted_is_replayed() {
    let host = Host::new();
    let up = host.up().await;
    assert_eq!(up.run("write /root/note written").await, "ok");
    host.runtime.settle_files(&up.id).await.unwrap();
    // As after a power failure of the host.
    let cut = copy_of(&host, &up.root);
    let mut disks = opened(&host, &[(&cut, false)]).await.unwrap();
    let copy = copied(&host, &mut *disks, 0, Names::These(these(&["/root/note", "/etc/hostname"]))).await;
    assert_eq!(fs::read(copy.join("root/note")).unwrap(), b"written");
    disks.close().await.unwrap();
    host.runtime.destroy(&up.id).await.unwrap();
    nothing_is_left(&host).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_disk_is_reported_and_remains_of_a_daemon_are_found() {
    let mut host = Host::new();
    let rubbish = host.folder("root");
    fs::write(rubbish.join(disk::NAME), vec![0x5a; 8 << 20]).unwrap();
    let error = opened(&host, &[(&rubbish, false)]).await.unwrap_err();
    assert!(error.to_string().contains("mount the disk"), "{error}");
    // The remains of a failed start are removed automatically.
    for _ in 0..1000 {
        if host.runtime.inventory().await.unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    nothing_is_left(&host).await;
    let root = disk_with(&host, |_| {});
    let left = opened(&host, &[(&root, false)]).await.unwrap();
    // As after the death of a daemon, without any clean-up.
    std::mem::forget(left);
    host.restart();
    let found = host.runtime.inventory().await.unwrap();
    assert_eq!(found.len(), 1);
    host.runtime.destroy(&found[0]).await.unwrap();
    nothing_is_left(&host).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_changes_files_of_a_paused_machine() {
    let host = Host::new();
    let up = host.up().await;
    up.start("count /root/number").await;
    for _ in 0..500 {
        if number(&up.run("cat /root/number").await) > 0 {
            break;
        }
    }
    let change =
        || vec![put("/root/note", file(), 0o600, "merged"), put("/root/folder", Kind::Directory, 0o700, "")];
    let error = host.runtime.change_files(&up.id, giving(&host, change())).await.unwrap_err();
    assert!(error.to_string().contains("not paused"), "{error}");
    host.runtime.pause(&up.id).await.unwrap();
    host.runtime.change_files(&up.id, giving(&host, change())).await.unwrap();
    let broken: SendFn = Box::new(|_| Err(std::io::ErrorKind::NotFound.into()));
    let error = host.runtime.change_files(&up.id, broken).await.unwrap_err();
    assert!(error.to_string().contains("not found"), "{error}");
    // It is paused as before, and its disk has the change already.
    let copy = copy_of(&host, &up.root);
    host.runtime.resume(&up.id).await.unwrap();
    assert_eq!(up.run("cat /root/note").await, "merged");
    let mut disks = opened(&host, &[(&copy, false)]).await.unwrap();
    let out = copied(&host, &mut *disks, 0, Names::These(these(&["/root/note", "/root/number"]))).await;
    assert_eq!(fs::read(out.join("root/note")).unwrap(), b"merged");
    let then: u64 = number(&fs::read_to_string(out.join("root/number")).unwrap());
    disks.close().await.unwrap();
    let mut now = 0;
    for _ in 0..500 {
        now = number(&up.run("cat /root/number").await);
        if now > then {
            break;
        }
    }
    assert!(now > then, "the earlier process continues: {then}, {now}");
    host.runtime.destroy(&up.id).await.unwrap();
}

fn number(text: &str) -> u64 {
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}
