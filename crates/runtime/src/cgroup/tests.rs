//! Tests with the cgroups of a real kernel: this host's layout, and the same host without its v2 tree.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;

/// A separate parent directory per test, removed afterwards.
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

/// The same mounts without the v2 tree, if that leaves a freezer; otherwise the host is pure v2.
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

/// A shell inside the group, which forks.
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
fn a_process_in_a_nested_group_is_in_the_group() {
    for (line, within) in [
        ("0::/burrow/a", true),
        ("0::/host/burrow/a/nested/more", true),
        ("4:freezer:/burrow/a/x:y", true),
        ("0::/burrow/ab", false),
        ("0::/burrow/b/a", false),
        ("0::/", false),
    ] {
        assert_eq!(is_within(line, "burrow/a"), within, "{line}");
    }
}

#[test]
fn a_group_can_be_frozen_thawed_and_killed_while_frozen() {
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
fn a_group_that_was_not_destroyed_is_not_created_again() {
    let scratch = Scratch::new(real());
    let group = scratch.0.group(&SandboxId::generate());
    group.create().unwrap();
    assert_eq!(group.create().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn oom_kills_are_counted() {
    for layout in layouts() {
        let scratch = Scratch::new(layout);
        let group = scratch.0.group(&SandboxId::generate());
        group.create().unwrap();
        group.set_limits(&Limits { ram_mib: 32, ..LIMITS }).unwrap();
        assert_eq!(group.oom_kills().unwrap(), 0);
        // `tail` keeps an endless line in memory.
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
fn a_v2_parent_enables_missing_controllers_for_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cgroup.subtree_control");
    fs::write(&file, "cpu pids\n").unwrap();
    delegate(directory.path(), &Controller::ALL).unwrap();
    // A plain file is overwritten at its beginning; the kernel's file would list the controller.
    assert!(fs::read_to_string(&file).unwrap().starts_with("+memory"));
}

#[test]
fn the_aside_group_of_a_sandbox_is_found_by_its_id_and_killed() {
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

/// A program in a v2 directory that opens or closes the number of sockets per line of its input, and prints how many it
/// has.
struct Sockets {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Sockets {
    const PROGRAM: &str = "import socket,sys\n\
        held=[]\n\
        for line in sys.stdin:\n\
        \x20 change=int(line)\n\
        \x20 if change<0: del held[change:]\n\
        \x20 try:\n\
        \x20   for _ in range(change): held.append(socket.socket(socket.AF_INET6,socket.SOCK_DGRAM))\n\
        \x20 except OSError as error: assert error.errno==105,error\n\
        \x20 print(len(held),flush=True)\n";

    fn in_directory(directory: &Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", Self::PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        write_file(&directory.join("cgroup.procs"), &child.id().to_string()).unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output).lines() }
    }

    fn change(&mut self, by: i32) -> u64 {
        writeln!(self.input, "{by}").unwrap();
        self.output.next().unwrap().unwrap().parse().unwrap()
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn sockets_have_a_limit_that_grows_with_the_ram() {
    let scratch = Scratch::new(real());
    let group = scratch.0.group(&SandboxId::generate());
    group.create().unwrap();
    let directory = group.unified_path().expect("the host has a v2 tree");
    let sockets = SocketLimit::load().unwrap();
    sockets.count(&directory).unwrap();
    let mut program = Sockets::in_directory(&directory);
    assert_eq!(program.change(300), 300, "no limit while a sandbox is restored");
    sockets.set(&directory, 64).unwrap();
    assert_eq!(program.change(1), 300, "the sockets of the restore are counted");
    assert_eq!(program.change(-100), 200);
    assert_eq!(program.change(100), 256);
    sockets.set(&directory, 70).unwrap();
    assert_eq!(program.change(100), 280);
    // The next daemon loads its own programs.
    let next = SocketLimit::load().unwrap();
    next.set(&directory, 64).unwrap();
    assert_eq!(program.change(300), 280 + 256, "sockets from before the programs are not counted");
    assert_eq!(program.change(-500), 36);
    program.end();
}

#[test]
fn sockets_are_limited_where_v1_counts_ram() {
    let on_v1 = !real().in_unified.contains(&Controller::Memory);
    let scratch = Scratch::new(real());
    let group = scratch.0.group(&SandboxId::generate());
    group.create().unwrap();
    group.set_limits_of_restore(&LIMITS).unwrap();
    let mut program = Sockets::in_directory(&group.unified_path().expect("the host has a v2 tree"));
    assert_eq!(program.change(300), 300);
    group.set_limits(&LIMITS).unwrap();
    assert_eq!(program.change(10), if on_v1 { 300 } else { 310 });
    program.end();
}

#[test]
fn sockets_are_limited_where_v1_counts_ram_or_the_reason_is_known() {
    let failing = || Err::<(), _>(io::Error::from_raw_os_error(libc::EPERM));
    let v1 = || Layout { in_unified: Vec::new(), ..real() };
    let hybrid = Layout { unified: Some("/nowhere".into()), ..v1() };
    assert_eq!(socket_limit(&hybrid, || Ok(())), Ok(Some(())));
    let reason = socket_limit(&hybrid, failing).unwrap_err();
    assert!(reason.contains("BPF programs") && reason.contains("not permitted"), "{reason}");
    let reason = socket_limit(&Layout { unified: None, ..v1() }, || Ok(())).unwrap_err();
    assert!(reason.contains("no cgroup v2 tree"), "{reason}");
    let v2 = Layout { in_unified: vec![Controller::Memory], ..real() };
    assert_eq!(socket_limit(&v2, failing), Ok(None), "v2 counts the buffers");
}
