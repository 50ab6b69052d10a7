//! A tree is received as it was sent, and invalid streams are refused.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use super::*;

const BOUNDS: Bounds = Bounds { records_max: 1000, bytes_max: 64 << 20, length_max: 2 << 30 };

fn as_is(_: &[u8], _: &mut Node) -> io::Result<()> {
    Ok(())
}

/// Applies a stream to an empty tree.
fn received(stream: &[u8], bounds: Bounds) -> (tempfile::TempDir, Result<ReceiveReport, TreeError>) {
    let (tree, staging) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (live, aside) = (Root::open(tree.path()).unwrap(), Root::open(staging.path()).unwrap());
    let done = receive(&live, &aside, &mut &stream[..], bounds, &mut as_is);
    assert_eq!(fs::read_dir(staging.path()).unwrap().count(), 0);
    (tree, done)
}

fn names(root: &Root) -> BTreeSet<Vec<u8>> {
    root.walk(1000).unwrap().into_iter().collect()
}

fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    fs::create_dir_all(at("folder/deep")).unwrap();
    fs::write(at("folder/deep/file"), "text").unwrap();
    fs::hard_link(at("folder/deep/file"), at("other name")).unwrap();
    fs::set_permissions(at("folder"), fs::Permissions::from_mode(0o2750)).unwrap();
    fs::write(at("large"), vec![7; 1 << 20]).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    sparse.write_all_at(b"far", 1 << 29).unwrap();
    symlink("/etc/passwd", at("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::write(at("mine"), "").unwrap();
    std::os::unix::fs::chown(at("mine"), Some(1000), Some(7)).unwrap();
    fs::set_permissions(at("mine"), fs::Permissions::from_mode(0o4755)).unwrap();
    xattr::set(at("mine"), "user.note", b"x").unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000, 5);
    File::open(at("folder/deep")).unwrap().set_modified(old).unwrap();
    tree
}

fn link_count(path: &Path) -> u64 {
    fs::metadata(path).unwrap().nlink()
}

#[test]
fn a_tree_is_received_as_it_was_sent() {
    let from = tree();
    let root = Root::open(from.path()).unwrap();
    let mut stream = Vec::new();
    send(&root, &names(&root), &mut stream).unwrap();
    assert!(stream.len() < 2 << 20, "what was never written is not sent: {}", stream.len());
    let (to, done) = received(&stream, BOUNDS);
    let done = done.unwrap();
    assert_eq!(done.records, 9);
    let arrived = Root::open(to.path()).unwrap();
    assert_eq!(names(&arrived), names(&root));
    assert_eq!(crate::diff::compare(&root, &arrived, &names(&root)).unwrap(), []);
    assert_eq!(link_count(&to.path().join("other name")), 2);
    assert!(fs::metadata(to.path().join("sparse")).unwrap().blocks() < 1000);
    for name in names(&root) {
        let [one, other] = [&root, &arrived].map(|root| root.node(&name).unwrap().unwrap().modified);
        assert_eq!(one, other, "{}", String::from_utf8_lossy(&name));
    }
}

#[test]
fn parent_directories_are_sent_and_missing_names_are_skipped() {
    let from = tree();
    let root = Root::open(from.path()).unwrap();
    let mut stream = Vec::new();
    let wanted = BTreeSet::from([b"/folder/deep/file".to_vec(), b"/missing/name".to_vec()]);
    send(&root, &wanted, &mut stream).unwrap();
    let (to, done) = received(&stream, BOUNDS);
    assert_eq!(done.unwrap(), ReceiveReport { records: 3, bytes: 4, length: 4 });
    assert_eq!(fs::read(to.path().join("folder/deep/file")).unwrap(), b"text");
    assert_eq!(fs::metadata(to.path().join("folder")).unwrap().mode() & 0o7777, 0o2750);
}

#[test]
fn a_plan_has_the_same_effect_through_a_stream() {
    let (theirs, live, staging) = (tree(), tree(), tempfile::tempdir().unwrap());
    fs::write(theirs.path().join("mine"), "new").unwrap();
    let root = Root::open(theirs.path()).unwrap();
    let node = |path: &[u8]| root.node(path).unwrap().unwrap();
    let put = |path: &[u8], content| Action::Put { path: path.to_vec(), node: node(path), content };
    let actions = [
        Action::Remove { path: b"/link".to_vec(), directory: false },
        put(b"/mine", Content::Theirs { path: b"/mine".to_vec() }),
        put(b"/other name", Content::Merged { content: b"put together".to_vec() }),
        Action::Attributes { path: b"/folder".to_vec(), node: Node { mode: 0o700, ..node(b"/folder") } },
        Action::Link { path: b"/second".to_vec(), to: b"/mine".to_vec() },
    ];
    let mut stream = Vec::new();
    let sources = Sources { ours: &root, theirs: &root };
    send_actions(&actions, sources, &|node| node.uid += 5, &mut stream).unwrap();
    let (to, aside) = (Root::open(live.path()).unwrap(), Root::open(staging.path()).unwrap());
    receive(&to, &aside, &mut &stream[..], BOUNDS, &mut as_is).unwrap();
    let at = |name: &str| live.path().join(name);
    assert!(fs::symlink_metadata(at("link")).is_err());
    assert_eq!(fs::read(at("second")).unwrap(), b"new");
    assert_eq!((link_count(&at("mine")), fs::metadata(at("mine")).unwrap().uid()), (2, 1005));
    assert_eq!(fs::read(at("other name")).unwrap(), b"put together");
    assert_eq!(fs::read(at("folder/deep/file")).unwrap(), b"text", "its other name keeps what it held");
    assert_eq!(fs::metadata(at("folder")).unwrap().mode() & 0o7777, 0o700);
}

/// One record that puts an empty file at a path, without checks.
fn put_at(path: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    record(b'P', path, &mut stream).unwrap();
    let kind = Kind::File { bytes: 0 };
    let attributes = BTreeMap::new();
    let node = Node { kind, mode: 0o600, uid: 0, gid: 0, attributes, modified: (0, 0), identity: None };
    send_node(&node, &mut stream).unwrap();
    send_held(b"", &mut stream).unwrap();
    stream.push(b'E');
    stream
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    assert!(received(&put_at(b"/fine"), BOUNDS).1.is_ok());
    let long = [b"/".as_slice(), &[b'x'; 256]].concat();
    for path in [
        &b"relative"[..],
        b"/../up",
        b"/a/../../up",
        b"/a//b",
        b"/./a",
        b"/a\0b",
        b"",
        b"/",
        b"//",
        b"/a/",
        &long,
    ] {
        let (tree, done) = received(&put_at(path), BOUNDS);
        assert!(done.is_err(), "{}", String::from_utf8_lossy(path));
        assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 0);
    }
}

#[test]
fn links_that_were_sent_before_are_not_followed() {
    let host = tempfile::tempdir().unwrap();
    let mut stream = Vec::new();
    let from = tempfile::tempdir().unwrap();
    symlink(host.path(), from.path().join("out")).unwrap();
    let root = Root::open(from.path()).unwrap();
    send(&root, &names(&root), &mut stream).unwrap();
    stream.pop();
    stream.extend(put_at(b"/out/file"));
    let (_tree, done) = received(&stream, BOUNDS);
    assert!(done.is_err());
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
}

#[test]
fn devices_invalid_data_and_exceeded_limits_are_refused() {
    let mut device = put_at(b"/disk");
    let kind = device.iter().position(|byte| *byte == b'f').unwrap();
    device[kind] = b'b';
    assert!(received(&device, BOUNDS).1.is_err());
    for end in [0, 1, 5, 20] {
        assert!(received(&put_at(b"/fine")[..end], BOUNDS).1.is_err(), "cut at {end}");
    }
    let twice = [&put_at(b"/one")[..put_at(b"/one").len() - 1], &put_at(b"/two")].concat();
    assert!(received(&twice, BOUNDS).1.is_ok());
    assert!(received(&twice, Bounds { records_max: 1, ..BOUNDS }).1.is_err());
    let from = tree();
    let root = Root::open(from.path()).unwrap();
    let mut stream = Vec::new();
    send(&root, &names(&root), &mut stream).unwrap();
    assert!(received(&stream, Bounds { bytes_max: 1000, ..BOUNDS }).1.is_err());
    assert!(
        received(&stream, Bounds { length_max: 1 << 29, ..BOUNDS }).1.is_err(),
        "also what was never written"
    );
}
