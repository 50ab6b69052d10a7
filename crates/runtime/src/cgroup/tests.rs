//! The cgroups of a real kernel: this host's layout, and the same host as if it had no v2 tree.

use std::process::{Child, Command, Stdio};

use super::*;

/// A parent directory of its own per test, removed afterwards.
struct Scratch(Groups);

impl Scratch {
    fn new(layout: Layout) -> Self {
        let parent = format!("burrow-test-{}", &SandboxId::generate().as_str()[3..13]);
        Self(Groups::open(layout, &parent).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for id in self.0.inventory().unwrap() {
            self.0.group(&id).kill().unwrap();
            self.0.group(&id).remove().unwrap();
        }
        for tree in self.0.layout.trees() {
            fs::remove_dir(tree.join(&self.0.parent)).unwrap();
        }
    }
}

fn real() -> Layout {
    Layout::detect().unwrap()
}

/// The same mounts without the v2 tree, where that leaves a freezer; otherwise the host is pure v2.
fn without_v2() -> Option<Layout> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let text: String =
        text.lines().filter(|line| !line.contains(" - cgroup2 ")).map(|l| format!("{l}\n")).collect();
    let layout = Layout::from_mountinfo(&text);
    layout.can_freeze().then_some(layout)
}

fn layouts() -> Vec<Layout> {
    std::iter::once(real()).chain(without_v2()).collect()
}

/// A shell that forks, inside the group.
fn spawn(group: &Group<'_>) -> Child {
    let mut child = Command::new("sh")
        .args(["-c", "read go; sleep 1000 & sleep 1000 & wait"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    for directory in group.directories() {
        write_file(&directory.join("cgroup.procs"), &child.id().to_string()).unwrap();
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child
}

const LIMITS: Limits = Limits { ram_mib: 64, cpu_millis: 500, pids: 32, disk_mib: 16 };

#[test]
fn this_host_has_every_controller_and_a_freezer() {
    assert_eq!(real().missing(), []);
    assert!(real().can_freeze());
}

#[test]
fn limits_grow_and_shrink() {
    for layout in layouts() {
        let scratch = Scratch::new(layout);
        let group = scratch.0.group(&SandboxId::generate());
        group.create().unwrap();
        for ram_mib in [64, 256, 32] {
            let limits = Limits { ram_mib, ..LIMITS };
            group.set_limits(&limits).unwrap();
            for write in limits::writes(&scratch.0.layout, &group.name, &limits) {
                if write.path.exists() {
                    assert_eq!(
                        fs::read_to_string(&write.path).unwrap().trim(),
                        write.value,
                        "{:?}",
                        write.path
                    );
                }
            }
        }
    }
}

#[test]
fn a_group_freezes_thaws_and_dies_frozen() {
    for layout in layouts() {
        let scratch = Scratch::new(layout);
        let id = SandboxId::generate();
        let group = scratch.0.group(&id);
        group.create().unwrap();
        group.set_limits(&LIMITS).unwrap();
        assert!(!group.is_populated().unwrap());
        let mut child = spawn(&group);
        assert!(group.is_populated().unwrap());
        assert!(group.has(child.id()).unwrap());
        assert!(!group.has(std::process::id()).unwrap());
        for _ in 0..3 {
            group.freeze().unwrap();
            group.thaw().unwrap();
        }
        group.freeze().unwrap();
        group.kill().unwrap();
        assert!(!group.is_populated().unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(!group.has(child.id()).unwrap());
        assert_eq!(scratch.0.inventory().unwrap(), [id]);
        group.remove().unwrap();
        group.remove().unwrap();
        assert!(!group.exists());
        assert_eq!(scratch.0.inventory().unwrap(), []);
    }
}

#[test]
fn a_group_that_was_not_destroyed_is_not_made_again() {
    let scratch = Scratch::new(real());
    let group = scratch.0.group(&SandboxId::generate());
    group.create().unwrap();
    assert_eq!(group.create().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn processes_killed_for_want_of_ram_are_counted() {
    for layout in layouts() {
        let scratch = Scratch::new(layout);
        let group = scratch.0.group(&SandboxId::generate());
        group.create().unwrap();
        group.set_limits(&Limits { ram_mib: 32, ..LIMITS }).unwrap();
        assert_eq!(group.oom_kills().unwrap(), 0);
        // `tail` keeps a line without end in memory.
        let mut child =
            Command::new("sh").args(["-c", "read go; tail /dev/zero"]).stdin(Stdio::piped()).spawn().unwrap();
        for directory in group.directories() {
            write_file(&directory.join("cgroup.procs"), &child.id().to_string()).unwrap();
        }
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        child.wait().unwrap();
        assert!(group.oom_kills().unwrap() >= 1);
    }
}

#[test]
fn a_v2_parent_hands_down_the_controllers_it_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cgroup.subtree_control");
    fs::write(&file, "cpu pids\n").unwrap();
    delegate(directory.path(), &Controller::ALL).unwrap();
    // A plain file keeps what was written over its beginning; the kernel's would list the controller.
    assert!(fs::read_to_string(&file).unwrap().starts_with("+memory"));
}

#[test]
fn work_beside_a_sandbox_is_found_by_its_id_and_ended() {
    let scratch = Scratch::new(real());
    let id = SandboxId::generate();
    let group = scratch.0.group(&id);
    let Some(aside) = group.aside() else { return };
    aside.remove().unwrap();
    aside.await_end().unwrap();
    let mut worker = Command::new("sleep").arg("1000").spawn().unwrap();
    for _ in 0..2 {
        aside.create().unwrap();
    }
    write_file(&aside.path().join("cgroup.procs"), &worker.id().to_string()).unwrap();
    assert_eq!(scratch.0.inventory().unwrap(), std::slice::from_ref(&id));
    aside.remove().unwrap();
    worker.wait().unwrap();
    assert_eq!(scratch.0.inventory().unwrap(), []);
}
