//! P-K10 and P-K12 to P-K14: privileges, programs, descriptors and paths that both sides of the boundary use.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::controls::run;
use crate::ground::{Ground, Sandbox, fingerprint};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    Row { id: "P-K10", what: "setuid files, sudo", sandbox: &[], attack: setuid, control: setuid_outside },
    Row {
        id: "P-K12",
        what: "overwrite a program through /proc/*/exe",
        sandbox: &[],
        attack: overwrite,
        control: overwrite_unguarded,
    },
    Row {
        id: "P-K13",
        what: "cwd and descriptors of the agent",
        sandbox: &[],
        attack: descriptors,
        control: leaked_descriptor,
    },
    Row {
        id: "P-K14",
        what: "a root whose /dev, /proc are links",
        sandbox: &[],
        attack: linked_root,
        control: naive_root,
    },
];

/// The uid and gid of `nobody`.
const NOBODY: &str = "65534";

// --- P-K10

fn setuid(sandbox: &Sandbox<'_>) -> Finding {
    let sudo = sandbox.run(json!({ "command": "sudo -n id -u", "user": "user" }));
    ensure(sudo.out.trim() == "0", || format!("sudo does not work inside: {sudo:?}"))?;
    let made = sandbox
        .sh("cp /usr/bin/id /suid && chmod 4755 /suid && setpriv --reuid 1000 --clear-groups /suid -u");
    ensure(made.out.trim() == "0", || format!("a setuid file does nothing inside: {made:?}"))?;
    // Root inside is an unprivileged user of the host.
    sandbox.start(&json!({ "command": "sudo -n sleep 61.7", "user": "user" }));
    let uid = crate::harness::eventually("a process of root inside", || uid_of("61.7"));
    ensure(uid >= 100_000, || format!("root inside is uid {uid} on the host"))?;
    // The file is neither owned by the host's root nor accessible to other users.
    let file = sandbox.root().join("suid");
    let owner = std::fs::metadata(&file).unwrap().uid();
    ensure(owner == 100_000, || format!("the file belongs to uid {owner}"))?;
    let tried = as_nobody(&file);
    ensure(!tried.ok(), || format!("a stranger on the host ran it: {tried:?}"))?;
    Ok(format!(
        "sudo and setuid work inside; root inside is uid {uid}; nobody on the host can reach the file"
    ))
}

/// The host uid of the process `sleep` with this argument.
fn uid_of(argument: &str) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line == format!("sleep\0{argument}\0").as_bytes()
        })
        .find_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.uid())
}

fn as_nobody(program: &Path) -> crate::ground::Run {
    // Through a shell: until its first exec, setpriv keeps the capabilities that bypass file permissions.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "sh", "-c", "exec \"$0\" -u"]);
    run(command.arg(program).current_dir("/"))
}

fn setuid_outside(ground: &Ground) -> Finding {
    let folder = ground.folder("setuid");
    for path in [ground.scratch.path(), &folder] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let file = folder.join("suid");
    std::fs::copy("/usr/bin/id", &file).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o4755)).unwrap();
    let tried = as_nobody(&file);
    ensure(tried.out.trim() == "0", || format!("{tried:?}"))?;
    Ok("the same file of the host's root, in an open folder, makes nobody root".to_owned())
}

// --- P-K12

fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::fs::read(path).unwrap().hash(&mut hasher);
    hasher.finish()
}

/// Opens the program of `pid` and tries to open it for writing, while it runs and afterwards; writes nothing.
pub(crate) const EXE_PROBE: &str = "import os,sys,time\n\
    pid=sys.argv[1]\n\
    def attempt(name,path):\n\
    \x20 try: os.close(os.open(path,os.O_WRONLY)); print(name,'ok')\n\
    \x20 except OSError as error: print(name,error.errno)\n\
    attempt('direct','/proc/%s/exe'%pid)\n\
    try: fd=os.open('/proc/%s/exe'%pid,os.O_PATH)\n\
    except OSError as error: print('hold',error.errno); sys.exit()\n\
    attempt('running','/proc/self/fd/%d'%fd)\n\
    until=time.monotonic()+2\n\
    while os.path.exists('/proc/'+pid) and time.monotonic()<until: time.sleep(0.01)\n\
    attempt('ended','/proc/self/fd/%d'%fd)\n";

/// The same for every new process: children of the agent run its program until they call exec.
const EXE_WATCH: &str = "import os,time\n\
    until=time.monotonic()+float(3); seen=0; opened=0\n\
    own=os.stat('/proc/self/exe').st_ino\n\
    while time.monotonic()<until:\n\
    \x20 for pid in os.listdir('/proc'):\n\
    \x20   if not pid.isdigit(): continue\n\
    \x20   try:\n\
    \x20     fd=os.open('/proc/%s/exe'%pid,os.O_PATH)\n\
    \x20   except OSError: continue\n\
    \x20   try:\n\
    \x20     if os.readlink('/proc/self/fd/%d'%fd).startswith('/.burrow'):\n\
    \x20       seen+=1\n\
    \x20       os.close(os.open('/proc/self/fd/%d'%fd,os.O_WRONLY)); opened+=1\n\
    \x20   except OSError: pass\n\
    \x20   finally: os.close(fd)\n\
    print('seen='+str(seen)); print('opened='+str(opened))\n";

fn overwrite(sandbox: &Sandbox<'_>) -> Finding {
    let guest = PathBuf::from(std::env::var_os("BURROW_TEST_GUEST").unwrap());
    // Through the running process: the file of that name may be rebuilt meanwhile.
    let running = PathBuf::from(format!("/proc/{}/exe", sandbox.ground.daemon.pid()));
    let programs = [running, guest, sandbox.root().join(".burrow/guest")];
    let before: Vec<u64> = programs.iter().map(|path| hash(path)).collect();
    sandbox.put("/exe.py", EXE_PROBE.as_bytes());
    let direct = sandbox.sh("python3 /exe.py 1");
    ensure(!direct.out.contains(" ok") && !direct.out.is_empty(), || format!("{direct:?}"))?;
    let changed = sandbox.sh(
        "for c in ': > /.burrow/guest' 'rm -f /.burrow/guest' 'mv /bin/true /.burrow/guest' 'chmod u+w /.burrow/guest' \
         'chown 0 /.burrow/guest' 'ln -f /bin/true /.burrow/guest' 'ln -sf /bin/true /.burrow/guest'; \
         do sh -c \"$c\" 2>/dev/null && echo \"did: $c\"; done; true",
    );
    ensure(!changed.out.contains("did:"), || format!("{changed:?}"))?;
    // The attack of CVE-2019-5736 on runc: an entry point that is the runtime itself.
    sandbox
        .sh("printf '#!/proc/self/exe\\n' > /entry && chmod 755 /entry && ln -s /proc/self/exe /entry-link");
    let watch = sandbox.start(&json!({ "argv": ["python3", "-c", EXE_WATCH] }));
    for entry in ["/entry", "/entry-link", "/proc/self/exe", "/proc/1/exe"].iter().cycle().take(60) {
        let request = json!({ "argv": [entry], "wait": true, "timeout_ms": 5000 });
        let answer = sandbox.post("/execs", &request);
        ensure(answer.status < 500, || format!("{entry}: {} {}", answer.status, answer.text()))?;
    }
    let watched = sandbox.wait(&watch);
    let output = sandbox.ask("GET", &format!("/execs/{watch}/output?format=raw")).text();
    ensure(watched["outcome"]["exit_code"] == 0 && output.contains("opened=0"), || {
        format!("{output} {watched}")
    })?;
    let after: Vec<u64> = programs.iter().map(|path| hash(path)).collect();
    ensure(before == after, || "a program of the host, or the agent's, changed".to_owned())?;
    let seen = output.lines().find_map(|line| line.strip_prefix("seen=")).unwrap_or("?").to_owned();
    Ok(format!(
        "agent met {seen} times through /proc, never opened for writing; burrow, guest and copy unchanged"
    ))
}

fn overwrite_unguarded(ground: &Ground) -> Finding {
    std::fs::write(ground.control_path("/exe.py"), EXE_PROBE).unwrap();
    let run = ground.unguarded("cp /bin/sleep /victim; /victim 0.5 & python3 /exe.py $!");
    ensure(run.out.contains("ended ok"), || format!("{run:?}"))?;
    Ok("a program of root's own can be written once it has ended".to_owned())
}

// --- P-K13

fn descriptors(sandbox: &Sandbox<'_>) -> Finding {
    let made = sandbox.sh(
        "ln -s /proc/1/fd/5 /sneaky && ln -s /proc/self/fd /sneaky-fd && ln -s /proc/self/cwd /sneaky-cwd",
    );
    ensure(made.ok(), || format!("{made:?}"))?;
    let numbers = (0..=20).flat_map(|n| {
        [format!("/proc/self/fd/{n}"), format!("/proc/1/fd/{n}"), format!("/proc/thread-self/fd/{n}")]
    });
    let others = [
        "/sneaky",
        "/sneaky-fd/7",
        "/sneaky-cwd",
        "/proc/self/cwd",
        "/proc/1/root",
        "/proc/self/task/1/fd/4",
        "/proc/1/fd",
    ];
    let paths: Vec<String> = numbers.chain(others.map(str::to_owned)).collect();
    for path in &paths {
        let request = json!({ "argv": ["pwd"], "workdir": path, "wait": true });
        let answer = sandbox.post("/execs", &request);
        ensure([400, 404, 422].contains(&answer.status), || {
            format!("{path}: {} {}", answer.status, answer.text())
        })?;
    }
    let created =
        sandbox.ground.post("/v1/sandboxes", &json!({ "name": "descriptor", "workdir": "/proc/self/fd/7" }));
    if created.status == 201 {
        let ran =
            sandbox.ground.post("/v1/sandboxes/descriptor/execs", &json!({ "argv": ["pwd"], "wait": true }));
        sandbox.ground.daemon.ok(&["rm", "--purge", "-f", "descriptor"]);
        ensure([400, 404, 422].contains(&ran.status), || {
            format!("by the sandbox: {} {}", ran.status, ran.text())
        })?;
    } else {
        ensure([400, 422].contains(&created.status), || format!("{} {}", created.status, created.text()))?;
    }
    // The listing's own descriptor is already closed when the links are read.
    let list = "import os\nd='/proc/self/fd/'\nfor n in os.listdir(d):\n  try: os.readlink(d+n); print('fd='+n)\n  except OSError: pass";
    for terminal in [Value::Null, json!({ "columns": 80, "rows": 24 })] {
        let run = sandbox.run(json!({ "argv": ["python3", "-c", list], "terminal": terminal }));
        let open: Vec<&str> = run.out.lines().filter_map(|line| line.trim().strip_prefix("fd=")).collect();
        ensure(open == ["0", "1", "2"], || format!("an exec has the descriptors {open:?}: {run:?}"))?;
    }
    Ok(format!("{} directories refused; an exec has 0, 1 and 2", paths.len() + 1))
}

fn leaked_descriptor(ground: &Ground) -> Finding {
    let program = "import os,sys\n\
        fd=os.open('/',os.O_RDONLY|os.O_DIRECTORY)\n\
        os.chroot(sys.argv[1]); os.chdir('/')\n\
        os.chdir('/proc/self/fd/%d'%fd)\n\
        print(open('.'+sys.argv[2]).read())\n";
    let wrapper = "mount -t proc proc \"$1/proc\" && exec python3 -c \"$2\" \"$1\" \"$3\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", wrapper, "sh"]);
    let tried = run(command.arg(&ground.control_root).arg(program).arg(ground.canaries.file()));
    ensure(tried.out.contains(ground.canaries.content()), || format!("{tried:?}"))?;
    Ok("with a leaked descriptor the same directory leads out and reads the canary".to_owned())
}

// --- P-K14

/// Paths that the host writes to or mounts on when a sandbox starts.
const PLACES: [&str; 16] = [
    "dev",
    "dev/null",
    "dev/zero",
    "dev/pts",
    "dev/shm",
    "dev/console",
    "dev/ptmx",
    "proc",
    "sys",
    ".burrow",
    ".burrow/guest",
    ".burrow/meminfo",
    "etc",
    "etc/hostname",
    "etc/hosts",
    "etc/resolv.conf",
];

/// Number of starts during which directories and links are swapped.
const RACES: u32 = 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostState(Vec<String>);

impl HostState {
    pub(crate) fn look() -> Self {
        let about = |path: &str| {
            let Ok(meta) = std::fs::metadata(path) else { return format!("no {path}") };
            let content = if meta.is_file() {
                std::fs::read_to_string(path).unwrap_or_default()
            } else {
                String::new()
            };
            format!("{path} {:o} {} {}:{} {content}", meta.mode(), meta.rdev(), meta.uid(), meta.gid())
        };
        Self(
            [
                "/dev/null",
                "/dev/zero",
                "/dev/pts",
                "/dev/shm",
                "/etc/hostname",
                "/etc/hosts",
                "/etc/resolv.conf",
            ]
            .map(about)
            .to_vec(),
        )
    }
}

fn linked_root(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let canary = ground.canaries.folder();
    let (host, before) = (HostState::look(), fingerprint(canary));
    let (mut repaired, mut refused) = (0, 0);
    for place in PLACES {
        for target in
            [canary.to_owned(), ground.canaries.file().to_owned(), PathBuf::from("/dev"), PathBuf::from("/")]
        {
            let victim = ground.sandbox(&[]);
            let root = victim.root();
            ground.daemon.ok(&["stop", &victim.id]);
            replace(&root.join(place), &target);
            let started = ground.daemon.cli(&["start", &victim.id]);
            if started.status.success() {
                repaired += 1
            } else {
                refused += 1
            }
            if started.status.success() {
                check_inside(&victim, place, &target)?;
            }
            let after = fingerprint(canary);
            ensure(after == before, || {
                format!("{place} -> {}: the canary is now {after}", target.display())
            })?;
            victim.delete();
        }
    }
    let races = race(sandbox)?;
    ensure(HostState::look() == host, || "a file or device of the host changed".to_owned())?;
    Ok(format!(
        "{} links: {repaired} repaired, {refused} refused to start; {RACES} races: {races} started, host untouched",
        repaired + refused
    ))
}

fn replace(path: &Path, target: &Path) {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::rename(path, path.with_file_name("moved-away")).unwrap(),
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
    symlink(target, path).unwrap();
}

/// A started sandbox must run on its own files.
fn check_inside(victim: &Sandbox<'_>, place: &str, target: &Path) -> Result<(), RowFailure> {
    let context = || format!("{place} -> {}", target.display());
    let probe = "stat -f -c proc=%T /proc; stat -f -c sys=%T /sys; stat -f -c pts=%T /dev/pts; stat -c null=%t:%T /dev/null; \
                 cat /etc/hostname /proc/1/root/canary /canary 2>/dev/null; ls -A /dev /etc | tr '\\n' ' '";
    let run = victim.sh(probe);
    for expected in ["proc=proc", "sys=sysfs", "pts=devpts", "null=1:3"] {
        ensure(run.out.contains(expected), || {
            format!("{}: it started without {expected}: {run:?}", context())
        })?;
    }
    ensure(!run.out.contains(victim.ground.canaries.content()), || {
        format!("{}: it reads the canary", context())
    })
}

/// A process with access to the files swaps `dev` and `proc` while the sandbox starts. Returns the number of swaps.
fn race(sandbox: &Sandbox<'_>) -> Result<u32, RowFailure> {
    let daemon = &sandbox.ground.daemon;
    let root = sandbox.root();
    let mut started = 0;
    daemon.ok(&["stop", &sandbox.id]);
    for round in 0..RACES {
        let link = |place: &str| root.join(format!("{place}-link-{round}"));
        for place in ["dev", "proc"] {
            symlink(sandbox.ground.canaries.folder(), link(place)).unwrap();
        }
        let done = AtomicBool::new(false);
        let status = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    for place in ["dev", "proc"] {
                        swap(&root.join(place), &link(place));
                    }
                }
            });
            let output = daemon.cli(&["start", &sandbox.id]);
            done.store(true, Ordering::SeqCst);
            output.status
        });
        started += u32::from(status.success());
        daemon.cli(&["stop", &sandbox.id]);
        sandbox.ground.canaries.check("")?;
    }
    Ok(started)
}

/// Exchanges two names atomically.
fn swap(one: &Path, other: &Path) {
    let _ = rustix::fs::renameat_with(
        rustix::fs::CWD,
        one,
        rustix::fs::CWD,
        other,
        rustix::fs::RenameFlags::EXCHANGE,
    );
}

fn naive_root(ground: &Ground) -> Finding {
    let (root, outside) = (ground.folder("naive-root"), ground.folder("naive-outside"));
    symlink(&outside, root.join("dev")).unwrap();
    std::fs::write(root.join("dev/null"), b"").unwrap();
    ensure(outside.join("null").exists(), || "the link was not followed".to_owned())?;
    Ok("a starter that follows links makes its device outside".to_owned())
}
