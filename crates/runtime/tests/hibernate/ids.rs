//! The host ids of machines across dumps: each machine has its own, and neither its inside nor its disk shows them.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use burrow_model::MountMode;
use burrow_network::linux::UID_BASE;
use burrow_runtime::{BootOptions, DumpOptions, Mount, RestoreOptions, Runtime as _};

use super::programs::Distribution;
use super::support::{self, Host, await_counting, base, options, poll};
use super::{LIMITS, StoredDump, boot, dump, plainly, restore};

/// Two processes, of root and of a user, with objects that have owners. They record the owners repeatedly.
const HOLDS: &str = r#"
import ctypes, os, socket, struct, subprocess, time
libc = ctypes.CDLL(None)
NOBODY = 0xffffffff
def acl(*entries): return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
subprocess.run(["cp", "/bin/cat", "/capable"], check=True)
# The right to listen on low ports, and a list that lets user 1000 read.
os.setxattr("/capable", "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))
open("/listed", "w").write("for a user"); os.chmod("/listed", 0o600)
os.setxattr("/listed", "system.posix_acl_access",
    acl((1, 6, NOBODY), (2, 4, 1000), (4, 0, NOBODY), (16, 4, NOBODY), (32, 0, NOBODY)))
child = os.fork()
user = 0 if child else 1000
home = "/home/%d" % user
os.mkdir(home); os.chown(home, user, user)
os.setresgid(user, user, user); os.setresuid(user, user, user)
deleted = open(home + "/deleted", "w"); os.unlink(home + "/deleted")
linked = open(home + "/linked", "w"); os.link(home + "/linked", home + "/elsewhere"); os.unlink(home + "/linked")
listener = socket.socket(socket.AF_UNIX); listener.bind(home + "/socket"); listener.listen()
shared = open("/dev/shm/%d" % user, "w")
semaphore = libc.semget(0, 1, 0o600); assert semaphore >= 0
def owner_of_semaphore():
    about = ctypes.create_string_buffer(256)
    assert libc.semctl(semaphore, 0, 2, about) == 0
    return "%d:%d" % struct.unpack_from("<II", about.raw, 4)
def owner(of):
    found = os.stat(of)
    return "%d:%d" % (found.st_uid, found.st_gid)
def state():
    status = subprocess.run(["/capable", "/proc/self/status"], capture_output=True, check=True, text=True).stdout
    yield "%d:%d" % (os.getuid(), os.getgid())
    for of in (deleted.fileno(), linked.fileno(), home + "/socket", shared.fileno(), home): yield owner(of)
    yield owner_of_semaphore()
    yield [line for line in status.splitlines() if line.startswith("CapEff")][0].split()[1][-3:]
    yield open("/listed").read().replace(" ", "-")
    yield os.getxattr("/capable", "security.capability").hex()
number = 0
while True:
    number += 1
    open(home + "/fresh", "w").close(); os.rename(home + "/fresh", home + "/own")
    open(home + "/state.new", "w").write("%d %s" % (number, " ".join(state())))
    os.rename(home + "/state.new", home + "/state")
    time.sleep(.01)
"#;

/// How often both have recorded, and their records.
fn notes(of: &Distribution) -> Option<(u64, [String; 2])> {
    let note = |user: &str| {
        let text = of.read(&format!("home/{user}/state"));
        let (number, state) = text.split_once(' ')?;
        Some((number.parse::<u64>().ok()?, state.to_owned()))
    };
    let ((root, roots), (user, users)) = (note("0")?, note("1000")?);
    Some((root.min(user), [roots, users]))
}

#[track_caller]
fn await_notes(of: &Distribution) -> [String; 2] {
    let before = notes(of).map_or(0, |(number, _)| number);
    poll("both processes to record their owners", || {
        assert_eq!(of.read("log"), "");
        notes(of).is_some_and(|(number, _)| number > before + 2)
    });
    notes(of).unwrap().1
}

/// The owners of files on disk, and other ids on disk.
fn check_disk(of: &Distribution) {
    let owner = |file: &str| {
        let found = fs::symlink_metadata(of.plot.root.join(file)).unwrap();
        (found.uid(), found.gid())
    };
    for (user, id) in [("0", UID_BASE), ("1000", UID_BASE + 1000)] {
        for file in ["own", "socket", "elsewhere", ""] {
            assert_eq!(owner(&format!("home/{user}/{file}")), (id, id), "{file}");
        }
    }
    let attribute = |file: &str, name: &str| {
        let output = std::process::Command::new("python3")
            .args(["-c", "import os,sys; print(os.getxattr(sys.argv[1], sys.argv[2]).hex())"])
            .arg(of.plot.root.join(file))
            .arg(name)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let hex = |id: u32| id.to_le_bytes().map(|byte| format!("{byte:02x}")).concat();
    let capability = attribute("capable", "security.capability");
    assert!(capability.ends_with(&hex(UID_BASE)), "{capability}");
    let list = attribute("listed", "system.posix_acl_access");
    assert!(list.contains(&hex(UID_BASE + 1000)), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_and_its_fork_have_different_ids_that_neither_sees() {
    let host = Host::keeping();
    let parent = Distribution::new();
    let plot = &parent.plot;
    parent.script(HOLDS);
    let commands = ["spawn /usr/bin/python3 /script.py"];
    let machine = host.runtime.boot(&plot.id, options(plot, LIMITS, &commands)).await.unwrap();
    let before = await_notes(&parent);
    let of_user = &before[1];
    assert!(of_user.starts_with(&["1000:1000"; 7].join(" ")), "{of_user}");
    assert!(
        of_user.contains(" 400 for-a-user "),
        "the capability and the access control list are effective: {of_user}"
    );
    check_disk(&parent);

    let kept = dump(&host, plot, &machine).await;
    let child = parent.copy();
    host.runtime.resume(&plot.id).await.unwrap();
    let forked = restore(&host, &child.plot, plainly(&child.plot, &kept)).await;
    host.runtime.resume(&child.plot.id).await.unwrap();
    assert_ne!(base(machine.pid), base(forked.pid));
    for of in [&parent, &child] {
        assert_eq!(await_notes(of), before);
        check_disk(of);
    }
    host.runtime.destroy(&plot.id).await.unwrap();

    // Again, for a restored machine, in place.
    let kept = dump(&host, &child.plot, &forked).await;
    host.runtime.destroy(&child.plot.id).await.unwrap();
    let woken = restore(&host, &child.plot, plainly(&child.plot, &kept)).await;
    host.runtime.resume(&child.plot.id).await.unwrap();
    base(woken.pid);
    assert_eq!(await_notes(&child), before);
    check_disk(&child);
    host.runtime.destroy(&child.plot.id).await.unwrap();
}

/// Older versions gave all machines the ids that are on disk. Their dumps contain those ids, as all dumps do.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_an_older_version_gets_its_own_ids_when_it_is_restored() {
    let host = Host::keeping();
    let plot = host.plot();
    let attachment = support::attachment_with(None);
    let old = BootOptions { attachment, ..options(&plot, LIMITS, &["second"]) };
    let machine = host.runtime.boot(&plot.id, old).await.unwrap();
    let map = fs::read_to_string(format!("/proc/{}/uid_map", machine.pid)).unwrap();
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "100000", "65536"]);
    assert!(host.runtime.adopt(&plot.id, &machine).await.unwrap());
    await_counting(&plot);
    let kept = dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let woken = restore(&host, &plot, plainly(&plot, &kept)).await;
    base(woken.pid);
    host.runtime.resume(&plot.id).await.unwrap();
    await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// So it can be restored with any ids, also by a version that only knows those on disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_dump_does_not_contain_the_ids_of_its_machine() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &[]).await;
    let kept = dump(&host, &plot, &machine).await;
    let image = fs::read_dir(&kept.images)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("userns-")));
    let image = fs::read(image.unwrap()).unwrap();
    // 100000 as a protobuf number.
    let stored = [0x10, 0xa0, 0x8d, 0x06];
    assert_eq!(image.windows(4).filter(|window| *window == stored).count(), 2, "{image:x?}");
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// The agent's program is in a directory whose file system has no idmapped mounts, as in a pool without them.
#[tokio::test(flavor = "multi_thread")]
async fn without_idmapped_mounts_machines_have_the_ids_on_disk() {
    let program = fs::File::open(support::guest()).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), program.as_raw_fd());
    let host = Host::with(Path::new(&path), Some(support::criu()));
    let note = host.runtime.capabilities().note.unwrap();
    assert!(note.contains("the same uids"), "{note}");
    let plot = host.plot();
    let shared = BootOptions { attachment: support::attachment_with(None), ..options(&plot, LIMITS, &[]) };
    let machine = host.runtime.boot(&plot.id, shared).await.unwrap();
    await_counting(&plot);
    let kept = dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let woken = restore(&host, &plot, plainly(&plot, &kept)).await;
    let map = fs::read_to_string(format!("/proc/{}/uid_map", woken.pid)).unwrap();
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "100000", "65536"]);
    host.runtime.resume(&plot.id).await.unwrap();
    await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}

fn mount(source: &Path) -> Vec<Mount> {
    vec![Mount { source: source.to_owned(), target: "/data".parse().unwrap(), mode: MountMode::Rw }]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_has_the_same_owners_in_every_machine() {
    let host = Host::keeping();
    let (one, other, volume) = (host.plot(), host.plot(), host.volume());
    let with =
        |plot, commands: &[&str]| BootOptions { mounts: mount(&volume), ..options(plot, LIMITS, commands) };
    let owner = || fs::metadata(volume.join("count")).map(|found| (found.uid(), found.gid())).ok();
    let first = host.runtime.boot(&one.id, with(&one, &["count-in /data/count"])).await.unwrap();
    poll("a file in the volume", || owner().is_some());
    let commands = ["stat /data/count", "stat /data", "hold-open /data/mine", "write /data/mine x"];
    fs::write(volume.join("mine"), "").unwrap();
    std::os::unix::fs::chown(volume.join("mine"), Some(UID_BASE), Some(UID_BASE)).unwrap();
    let second = host.runtime.boot(&other.id, with(&other, &commands)).await.unwrap();
    let answers = other.answers();
    assert!(answers[..2].iter().all(|answer| answer.starts_with("0:0 ")), "{answers:?}");
    assert_eq!(answers[3], "ok");
    assert_ne!(base(first.pid), base(second.pid));
    assert_eq!(owner(), Some((UID_BASE, UID_BASE)));
    host.runtime.destroy(&other.id).await.unwrap();

    let images = host.images();
    let (root, mounts) = (one.root.clone(), mount(&volume));
    let dumping = DumpOptions { machine: first, root, images: images.clone(), mounts };
    let dumped = host.runtime.dump(&one.id, dumping).await.unwrap();
    host.runtime.destroy(&one.id).await.unwrap();
    let kept = StoredDump { images, dumped };
    restore(&host, &one, RestoreOptions { mounts: mount(&volume), ..plainly(&one, &kept) }).await;
    let inode = || fs::metadata(volume.join("count")).unwrap().ino();
    let before = inode();
    host.runtime.resume(&one.id).await.unwrap();
    poll("the count to continue", || inode() != before);
    assert_eq!(owner(), Some((UID_BASE, UID_BASE)));
    host.runtime.destroy(&one.id).await.unwrap();
}

/// The contents of the first field of a protobuf message with this number, which is a message or a string.
fn field(mut message: &[u8], wanted: u64) -> Option<&[u8]> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (number, rest) = bytes.split_at(length);
        *bytes = rest;
        number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
    }
    while !message.is_empty() {
        let tag = varint(&mut message);
        match tag & 7 {
            0 => drop(varint(&mut message)),
            2 => {
                let length = usize::try_from(varint(&mut message)).unwrap();
                let (value, rest) = message.split_at(length);
                if tag >> 3 == wanted {
                    return Some(value);
                }
                message = rest;
            }
            kind => panic!("a field of kind {kind}"),
        }
    }
    None
}

/// `criu::labels` changes AppArmor labels at this place, which hosts without AppArmor do not have in their dumps.
#[tokio::test(flavor = "multi_thread")]
async fn a_dump_has_the_credentials_of_threads_where_labels_are_changed() {
    const THREAD: u64 = 5;
    const CREDENTIALS: u64 = 10;
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &[]).await;
    let kept = dump(&host, &plot, &machine).await;
    let core = fs::read(kept.images.join("core-1.img")).unwrap();
    // Two magic numbers, and the length of the record.
    let credentials = field(&core[12..], THREAD).and_then(|thread| field(thread, CREDENTIALS)).unwrap();
    // The uids and gids of root inside, in the order of `creds.proto`.
    let root: Vec<u8> = (1..=8).flat_map(|number| [number << 3, 0]).collect();
    assert!(credentials.starts_with(&root), "{credentials:?}");
    host.runtime.destroy(&plot.id).await.unwrap();
}
