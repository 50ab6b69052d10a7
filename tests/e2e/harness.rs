//! Starts daemons for tests, each with its own state, pool, cgroup and port, and removes all of it afterwards.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use burrow_client::{ApiKey, Client, ClientOptions};

use crate::inventory::Inventory;

/// The longest wait before a test fails: enough for an emulated machine on a busy host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

static NEXT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The failure of a test, printed again at the end of its daemon's log, for readers who see only the end.
    static FAILED_WITH: RefCell<String> = const { RefCell::new(String::new()) };
}

fn keep_what_tests_fail_with() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            FAILED_WITH.with_borrow_mut(|text| *text = panic.to_string());
            usual(panic);
        }));
    });
}

/// A daemon under test. Dropping it removes its sandboxes, its pool and everything else it created.
#[derive(Debug)]
pub(crate) struct Daemon {
    folder: tempfile::TempDir,
    /// Its part of the shared test pool.
    pool: PathBuf,
    cgroup: String,
    child: Option<Child>,
    fault: Option<String>,
    extra: String,
    /// Size of the warm pool. Zero in most tests, which compare the resources of the host with what was requested.
    ready: usize,
    env: Vec<(String, String)>,
    /// Whether it runs microVMs, and uses them by default.
    microvms: bool,
    /// Offset in the log at which this launch begins.
    log_start: usize,
}

/// What `scripts/test.sh` prepares.
struct TestSetup {
    pool: PathBuf,
    guest: PathBuf,
    criu: Option<PathBuf>,
}

fn prepared() -> TestSetup {
    let criu = std::env::var_os("BURROW_CRIU").map(PathBuf::from);
    TestSetup { pool: named_by("BURROW_TEST_POOL"), guest: named_by("BURROW_TEST_GUEST"), criu }
}

fn named_by(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable).map(PathBuf::from);
    value.unwrap_or_else(|| panic!("{variable} is not set: run `make test`, which prepares it"))
}

/// Whether the suite runs on the microVM driver: then sandboxes are microVMs unless a test chooses the driver.
pub(crate) fn all_on_microvms() -> bool {
    std::env::var_os("BURROW_TEST_DRIVER").is_some_and(|driver| driver == "microvm")
}

/// This number of bytes, or fewer where an emulated processor has to produce them.
pub(crate) fn as_many(bytes: u64) -> u64 {
    if all_on_microvms() { bytes / 8 } else { bytes }
}

/// The files that microVMs boot from, as configuration.
fn microvms() -> String {
    let lib = named_by("BURROW_TEST_LIB");
    let (qemu, kernel) = (lib.join("qemu"), lib.join("vm"));
    format!("qemu = {qemu:?}\nkernel = {kernel:?}\naccelerator = \"emulation\"\n")
}

/// The binary under test.
pub(crate) fn burrow() -> &'static Path {
    static BURROW: OnceLock<PathBuf> = OnceLock::new();
    BURROW.get_or_init(|| named_by("BURROW_TEST_BURROW"))
}

/// Polls until `look` returns a value.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// With further lines of configuration.
    pub(crate) fn start_with(extra: &str) -> Self {
        let mut daemon = Self::prepare(extra);
        daemon.launch();
        daemon
    }

    /// A daemon whose sandboxes are microVMs by default, emulated, so that the test is the same on every host.
    #[allow(dead_code, reason = "the attack suite shares this file")]
    pub(crate) fn prepare_microvms(extra: &str) -> Self {
        let mut daemon = Self::prepare(extra);
        daemon.use_microvms();
        daemon
    }

    /// Applies from its next launch on.
    pub(crate) fn use_microvms(&mut self) {
        self.microvms = true;
        fs::write(self.config(), self.configuration(&prepared())).unwrap();
    }

    /// Prepares a daemon without starting it.
    pub(crate) fn prepare(extra: &str) -> Self {
        Self::prepare_from("template", extra)
    }

    /// A daemon that also has the image `python-interpreter`.
    #[allow(dead_code, reason = "the attack suite shares this file")]
    pub(crate) fn prepare_for_code(extra: &str) -> Self {
        Self::prepare_from("code", extra)
    }

    /// A daemon with the images of a folder of the shared pool.
    fn prepare_from(folder: &str, extra: &str) -> Self {
        let daemon = Self::prepare_empty(extra);
        let prepared = prepared();
        let folder = prepared.pool.join(folder);
        for part in ["images", "staged", "sandboxes"] {
            fs::create_dir_all(daemon.pool.join(part)).unwrap();
        }
        for image in fs::read_dir(folder.join("images")).unwrap() {
            let image = image.unwrap();
            run(Command::new("btrfs")
                .args(["-q", "subvolume", "snapshot", "-r"])
                .arg(image.path())
                .arg(daemon.pool.join("images").join(image.file_name())));
        }
        fs::copy(folder.join("catalog.db"), daemon.state_dir().join("catalog.db")).unwrap();
        let log = folder.join("catalog.db-wal");
        if log.exists() {
            fs::copy(log, daemon.state_dir().join("catalog.db-wal")).unwrap();
        }
        daemon
    }

    /// As on a host where Burrow never ran: no catalog, no image.
    pub(crate) fn prepare_empty(extra: &str) -> Self {
        let prepared = prepared();
        keep_what_tests_fail_with();
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = format!("burrow-test-{}-{number}", std::process::id());
        let folder = tempfile::Builder::new().prefix("burrow-e2e-").tempdir().unwrap();
        let pool = prepared.pool.join("daemons").join(&name);
        fs::create_dir_all(&pool).unwrap();
        fs::create_dir_all(folder.path().join("state")).unwrap();
        let daemon = Self {
            folder,
            pool,
            cgroup: name,
            child: None,
            log_start: 0,
            fault: None,
            extra: extra.to_owned(),
            ready: 0,
            env: Vec::new(),
            microvms: all_on_microvms(),
        };
        fs::write(daemon.config(), daemon.configuration(&prepared)).unwrap();
        daemon
    }

    fn configuration(&self, prepared: &TestSetup) -> String {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let criu =
            prepared.criu.as_ref().map_or(String::new(), |path| format!("criu = {:?}\n", path.display()));
        let (default, machines) = match self.microvms {
            true => ("defaults.driver = \"microvm\"\n", microvms()),
            false => ("", String::new()),
        };
        // Unless a test needs it, its port is left to the host's own daemon.
        let ssh = if self.extra.contains("[ssh]") { "" } else { "ssh.enabled = false\n" };
        format!(
            "{default}{ssh}listen = \"127.0.0.1:0\"\nstate_dir = {:?}\nrun_dir = {:?}\nadmin_key_file = {:?}\n{}\n\
             [pool]\npath = {:?}\nready = {}\n[runtime]\nguest = {:?}\ncgroup = {:?}\n{criu}{machines}[log]\nlevel = \"debug\"\n",
            at("state"),
            at("run"),
            at("admin.key"),
            self.extra,
            self.pool.display(),
            self.ready,
            prepared.guest.display(),
            self.cgroup,
        )
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config.toml")
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn pool(&self) -> &Path {
        &self.pool
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("daemon.log")).unwrap_or_default()
    }

    /// Arms a point of `burrow_engine::faults` for the next launch.
    pub(crate) fn arm(&mut self, fault: Option<&str>) {
        self.fault = fault.map(str::to_owned);
    }

    /// Sets the size of the warm pool, from the next launch on.
    #[allow(dead_code, reason = "the attack suite shares this file and keeps none")]
    pub(crate) fn keep_ready(&mut self, ready: usize) {
        self.ready = ready;
        fs::write(self.config(), self.configuration(&prepared())).unwrap();
    }

    /// Sets an environment variable of the daemon for the next launch.
    pub(crate) fn set_env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The name of its group in every cgroup tree.
    #[allow(dead_code, reason = "the attack suite shares this file and uses it")]
    pub(crate) fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Starts it, and waits until every sandbox is usable.
    pub(crate) fn launch(&mut self) {
        self.spawn();
        self.wait_up();
        eventually("all sandboxes to be recovered", || {
            let log = self.log();
            let log = &log[self.log_start.min(log.len())..];
            let early = log.contains("serving before all sandboxes are recovered");
            (!early || log.contains("recovery is complete")).then_some(())
        });
    }

    /// Starts it without waiting.
    pub(crate) fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let _ = fs::remove_file(self.address_file());
        self.log_start = self.log().len();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("daemon.log"))
            .unwrap();
        let mut command = Command::new(burrow());
        command.arg("serve").arg("--config").arg(self.config()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log).env_remove("BURROW_FAULT");
        if let Some(fault) = &self.fault {
            command.env("BURROW_FAULT", fault);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        self.child = Some(command.spawn().unwrap());
    }

    pub(crate) fn wait_up(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.address().is_none() {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                panic!("the daemon ended with {status} instead of starting:\n{}", self.log());
            }
            assert!(Instant::now() < deadline, "the daemon does not come up:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn address_file(&self) -> PathBuf {
        self.folder.path().join("run/address")
    }

    fn address(&self) -> Option<String> {
        let text = fs::read_to_string(self.address_file()).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address().expect("a launched daemon has written its address"))
    }

    pub(crate) fn key(&self) -> String {
        fs::read_to_string(self.folder.path().join("admin.key")).unwrap().trim().to_owned()
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(&self.key())
    }

    pub(crate) fn client_with(&self, key: &str) -> Client {
        let options = ClientOptions { url: self.url(), key: Some(ApiKey::new(key)), ca_file: None };
        Client::new(options).unwrap()
    }

    /// The CLI, pointed at this daemon.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(burrow());
        command.args(arguments).env("BURROW_URL", self.url()).env("BURROW_API_KEY", self.key());
        command.env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.cli(arguments);
        assert!(
            output.status.success(),
            "burrow {arguments:?}: {}\n{}{}\n--- log\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            tail(&self.log())
        );
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// SIGKILL, as a crash would.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// SIGTERM, and the exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let mut child = self.child.take().expect("it runs");
        run(Command::new("kill").arg(child.id().to_string()));
        child.wait().unwrap().code()
    }

    /// Waits until an armed fault has killed it.
    pub(crate) fn wait_dead(&mut self) {
        let mut child = self.child.take().expect("it runs");
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the armed fault did not kill the daemon");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills every process of every sandbox and unmounts what this daemon mounted, as a power failure does.
    pub(crate) fn reboot(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
        for pid in self.egress_processes() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).output();
        }
        let inventory = self.inventory();
        inventory.kill_machines();
        inventory.remove_networks();
        let _ = fs::remove_dir_all(self.folder.path().join("run"));
    }

    /// The egress process that serves this daemon's sandboxes; several during a handover.
    pub(crate) fn egress_processes(&self) -> Vec<u32> {
        crate::inventory::egress_processes(&self.folder.path().join("run"))
    }

    pub(crate) fn inventory(&self) -> Inventory {
        Inventory::take(&self.cgroup, &self.folder.path().join("run"), &self.pool)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the daemon\n{}", tail(&self.log()));
            FAILED_WITH.with_borrow(|text| eprintln!("--- what the test failed with\n{text}"));
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for pid in self.egress_processes() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).output();
        }
        let inventory = self.inventory();
        inventory.kill_machines();
        inventory.remove_networks();
        inventory.remove_cgroups();
        inventory.remove_volumes();
        let _ = fs::remove_dir_all(&self.pool);
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Runs a command that must succeed.
#[track_caller]
pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
