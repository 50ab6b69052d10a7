//! The set-up that all rows share: a daemon, a neighbour, canaries, a root for controls, and the sandboxes under attack.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::canaries::Canaries;
use crate::harness::{Daemon, eventually};
use crate::neighbour::Neighbour;
use crate::report::{RowFailure, ensure};
use crate::wire::{Answer, Wire, encode};

/// The maximum run time of a probe.
const PROBE_MS_MAX: u64 = 300_000;

/// The size of a microVM under attack: small, because it is emulated.
const SMALL: &str = "defaults.ram = \"256M\"\ndefaults.cpu = 1\ndefaults.disk = \"1G\"";

pub(crate) struct Ground {
    pub(crate) daemon: Daemon,
    pub(crate) canaries: Canaries,
    pub(crate) neighbour: Neighbour,
    /// The files of a stopped sandbox, for programs that run unguarded.
    pub(crate) control_root: PathBuf,
    pub(crate) scratch: tempfile::TempDir,
    /// Ids of resources that exist between rows.
    residents: BTreeSet<String>,
    next: AtomicU32,
    /// The driver of the sandboxes under attack.
    driver: &'static str,
}

impl Ground {
    pub(crate) fn prepare() -> Self {
        Self::prepare_with("")
    }

    /// With further lines of configuration.
    pub(crate) fn prepare_with(extra: &str) -> Self {
        Self::prepare_after(extra, |_| ())
    }

    /// The same, with a change to the daemon's directory before it is launched.
    pub(crate) fn prepare_after(extra: &str, before: impl FnOnce(&Daemon)) -> Self {
        let daemon = Daemon::prepare(extra);
        before(&daemon);
        Self::on(daemon, "container")
    }

    /// With microVMs as the sandboxes under attack. The neighbour and the roots of controls are containers, as usual.
    pub(crate) fn prepare_machines(extra: &str) -> Self {
        Self::on(Daemon::prepare_microvms(&format!("{SMALL}\n{extra}")), "microvm")
    }

    fn on(mut daemon: Daemon, driver: &'static str) -> Self {
        let canaries = Canaries::plant();
        daemon.set_env(Canaries::VARIABLE, canaries.token());
        daemon.launch();
        let neighbour = create(&daemon, "container", "neighbour", &[]);
        let control = create(&daemon, "container", "control", &[]);
        let control_root = volume(&daemon, &control);
        daemon.ok(&["stop", "control"]);
        let ground = Self {
            neighbour: Neighbour::new(&daemon),
            residents: [neighbour, control].into(),
            control_root,
            scratch: tempfile::Builder::new().prefix("burrow-attacks-").tempdir().unwrap(),
            canaries,
            daemon,
            next: AtomicU32::new(0),
            driver,
        };
        ground.plant_secret();
        ground.neighbour.rest();
        ground
    }

    fn plant_secret(&self) {
        let target = format!("/v1/sandboxes/neighbour/files?path={}", Canaries::NEIGHBOUR_FILE);
        let answer =
            self.ask("PUT", target.as_bytes(), "application/octet-stream", self.canaries.secret().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Creates a fresh sandbox, which is deleted when it is dropped.
    pub(crate) fn sandbox(&self, flags: &[&str]) -> Sandbox<'_> {
        let name = format!("box-{}", self.next.fetch_add(1, Ordering::SeqCst));
        let id = create(&self.daemon, self.driver, &name, flags);
        Sandbox { ground: self, id, said: RefCell::default(), deleted: RefCell::new(false) }
    }

    pub(crate) fn wire(&self) -> Wire {
        Wire::open(&self.daemon.url(), &self.daemon.key())
    }

    pub(crate) fn ask(&self, method: &str, target: &[u8], kind: &str, body: &[u8]) -> Answer {
        self.wire().ask(method, target, kind, body).unwrap()
    }

    pub(crate) fn post(&self, target: &str, body: &Value) -> Answer {
        self.ask("POST", target.as_bytes(), "application/json", body.to_string().as_bytes())
    }

    /// An empty folder of the test.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.scratch.path().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Checks the daemon, the host and the neighbour after an attack, given all output of its probes.
    pub(crate) fn check(&self, said: &str) -> Result<(), RowFailure> {
        self.canaries.check(said)?;
        let health = self.ask("GET", b"/healthz", "", b"");
        ensure(health.status == 200, || {
            format!("the daemon is not well: {} {}", health.status, health.text())
        })?;
        self.neighbour.check(&self.canaries)?;
        let mut left = BTreeSet::new();
        let gone = |left: &mut BTreeSet<String>| {
            *left = self.daemon.inventory().sandboxes();
            (*left == self.residents).then_some(())
        };
        eventually("the host to hold the residents and nothing else", || gone(&mut left));
        Ok(())
    }

    /// RAM of the daemon in kilobytes.
    pub(crate) fn daemon_rss_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn daemon_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.daemon.pid())).unwrap().count()
    }
}

/// A sandbox that runs hostile code.
pub(crate) struct Sandbox<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) id: String,
    said: RefCell<String>,
    deleted: RefCell<bool>,
}

/// The result of a probe.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// `None`: it was ended by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// The number after `name=` on a separate line.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let found = self.out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let found = found.and_then(|number| number.trim().parse().ok());
        found.unwrap_or_else(|| panic!("the probe said no {name}: {self:?}"))
    }

    /// The rest of lines of the form `word rest`, for one word.
    pub(crate) fn lines_of<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.out.lines().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    }
}

impl Sandbox<'_> {
    fn path(&self, rest: &str) -> String {
        format!("/v1/sandboxes/{}{rest}", self.id)
    }

    /// Its files, by their path on the host.
    pub(crate) fn root(&self) -> PathBuf {
        volume(&self.ground.daemon, &self.id)
    }

    /// Runs a line of shell to its end, as root inside.
    pub(crate) fn sh(&self, script: &str) -> Run {
        self.run(json!({ "command": script }))
    }

    pub(crate) fn python(&self, program: &str) -> Run {
        self.run(json!({ "argv": ["python3", "-c", program] }))
    }

    pub(crate) fn run(&self, mut request: Value) -> Run {
        request["wait"] = true.into();
        if request.get("timeout_ms").is_none() {
            request["timeout_ms"] = PROBE_MS_MAX.into();
        }
        let answer = self.post("/execs", &request);
        assert_eq!(answer.status, 200, "could not run {request}: {}", answer.text());
        let answer = answer.json();
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        let code = answer["exec"]["outcome"]["exit_code"].as_i64().map(|code| i32::try_from(code).unwrap());
        Run { code, out: text("stdout"), err: text("stderr") }
    }

    /// Starts a background process and returns its exec id.
    pub(crate) fn start(&self, request: &Value) -> String {
        let answer = self.post("/execs", request);
        assert_eq!(answer.status, 201, "could not start {request}: {}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn exec(&self, exec: &str) -> Value {
        self.ask("GET", &format!("/execs/{exec}")).json()
    }

    pub(crate) fn stats(&self) -> Value {
        self.ask("GET", "/stats").json()
    }

    /// Waits for the end of a background exec.
    pub(crate) fn wait(&self, exec: &str) -> Value {
        eventually("an exec to end", || {
            let found = self.exec(exec);
            (found["state"] != "running").then_some(found)
        })
    }

    pub(crate) fn put(&self, path: &str, content: &[u8]) {
        let target = self.path(&format!("/files?path={}", encode(path.as_bytes())));
        let answer = self.ground.ask("PUT", target.as_bytes(), "application/octet-stream", content);
        assert_eq!(answer.status, 200, "could not write {path}: {}", answer.text());
    }

    /// Compiles a probe with the sandbox's compiler.
    pub(crate) fn compile(&self, name: &str, source: &str) {
        self.put(&format!("/{name}.c"), source.as_bytes());
        let built = self.sh(&format!("gcc -O1 -w -o /{name} /{name}.c"));
        assert!(built.ok(), "the probe does not compile: {built:?}");
    }

    /// Copies in a program of [`Ground::compile_unguarded`]: compiling takes long on an emulated processor.
    pub(crate) fn bring(&self, name: &str) {
        let program = std::fs::read(self.ground.control_path(name)).unwrap();
        self.put(&format!("/{name}"), &program);
        let made = self.sh(&format!("chmod 755 /{name}"));
        assert!(made.ok(), "{made:?}");
    }

    /// `rest` follows the sandbox's own path.
    pub(crate) fn ask(&self, method: &str, rest: &str) -> Answer {
        self.note(self.ground.ask(method, self.path(rest).as_bytes(), "", b""))
    }

    pub(crate) fn post(&self, rest: &str, body: &Value) -> Answer {
        self.note(self.ground.post(&self.path(rest), body))
    }

    fn note(&self, answer: Answer) -> Answer {
        self.said.borrow_mut().push_str(&answer.text());
        answer
    }

    /// Adds to the text that is searched for leaked canaries.
    pub(crate) fn heard(&self, bytes: &[u8]) {
        self.said.borrow_mut().push_str(&String::from_utf8_lossy(bytes));
    }

    /// All output of its probes and answers of the API about it.
    pub(crate) fn said(&self) -> String {
        self.said.borrow().clone()
    }

    pub(crate) fn delete(&self) {
        if !self.deleted.replace(true) {
            self.ground.daemon.ok(&["rm", "--purge", "-f", &self.id]);
        }
    }
}

impl Drop for Sandbox<'_> {
    fn drop(&mut self) {
        if !*self.deleted.borrow() {
            let _ = self.ground.daemon.cli(&["rm", "--purge", "-f", &self.id]);
        }
    }
}

fn create(daemon: &Daemon, driver: &str, name: &str, flags: &[&str]) -> String {
    daemon.ok(&[&["create", "--isolation", driver, "--name", name], flags].concat())
}

fn volume(daemon: &Daemon, id: &str) -> PathBuf {
    let path = daemon.pool().join("sandboxes").join(id).join("rootfs");
    assert!(path.is_dir(), "there is no volume at {}", path.display());
    path
}

/// All properties of a file or folder that an attack could have changed, one line per entry.
pub(crate) fn fingerprint(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::symlink_metadata(path).unwrap();
    let about =
        format!("{} {:o} {}:{} {}\n", path.display(), meta.mode(), meta.uid(), meta.gid(), meta.nlink());
    if meta.is_dir() {
        let mut names: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        return names.iter().fold(about, |text, path| text + &fingerprint(path));
    }
    let content = if meta.is_file() { std::fs::read(path).unwrap() } else { Vec::new() };
    format!("{about}{} bytes, {}\n", content.len(), String::from_utf8_lossy(&content))
}
