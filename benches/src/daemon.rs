//! The daemon under measurement: started with its own state, pool folder, cgroup and port.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use burrow_client::{ApiKey, Client, ClientOptions};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rustix::process::{Pid, Signal, kill_process};

use crate::Arguments;
use crate::error::BenchError;
use crate::inventory::DaemonPaths;
use crate::process::run;

/// The longest time for a start or a normal shutdown.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// Number of sandboxes that are deleted at once after a group of figures.
const DELETES_AT_ONCE: usize = 8;
/// Lines of the daemon's log shown when it fails.
const LOG_LINES_SHOWN: usize = 40;

/// The set-up that all figures share.
#[derive(Clone, Debug)]
pub(crate) struct BenchSetup {
    pub(crate) burrow: PathBuf,
    pub(crate) guest: PathBuf,
    pub(crate) pool: PathBuf,
    pub(crate) state: PathBuf,
    /// The sealed image, a read-only subvolume with `rootfs/` in it.
    pub(crate) image: PathBuf,
    /// The nginx to compare with.
    pub(crate) nginx: Option<PathBuf>,
    /// The OpenSSH server to compare with.
    pub(crate) sshd: Option<PathBuf>,
    /// The `criu` that daemons use, and that is compared with.
    pub(crate) criu: Option<PathBuf>,
    /// A Python with the vector store to compare memory with.
    pub(crate) chroma: Option<PathBuf>,
    /// The proxy to compare interception with.
    pub(crate) mitmdump: Option<PathBuf>,
    /// A Python with common client libraries.
    pub(crate) clients: Option<PathBuf>,
    /// Folder with QEMU and a kernel for microVMs.
    pub(crate) lib: Option<PathBuf>,
    /// A file of LoCoMo.
    pub(crate) locomo: Option<PathBuf>,
    /// The ONNX files of all-MiniLM-L6-v2.
    pub(crate) minilm: Option<PathBuf>,
}

impl BenchSetup {
    pub(crate) fn find(arguments: &Arguments) -> Result<Self, BenchError> {
        let absolute = |path: &Path| fs::canonicalize(path).map_err(BenchError::io("find", path.display()));
        let pool = absolute(&arguments.pool)?;
        let images = pool.join("template/images");
        let image = fs::read_dir(&images)
            .ok()
            .and_then(|mut entries| entries.find_map(|entry| Some(entry.ok()?.path())))
            .ok_or_else(|| BenchError::NoImage { pool: pool.clone() })?;
        Ok(Self {
            burrow: absolute(&arguments.burrow)?,
            guest: absolute(&arguments.guest)?,
            state: absolute(&arguments.state)?,
            pool,
            image,
            nginx: arguments.nginx.clone().or_else(|| in_path("nginx")),
            sshd: arguments.sshd.clone().or_else(|| in_path("sshd")),
            criu: arguments.criu.clone().or_else(|| in_path("criu")),
            locomo: arguments.locomo.as_deref().map(absolute).transpose()?,
            minilm: arguments.minilm.as_deref().map(absolute).transpose()?,
            chroma: arguments.chroma.clone(),
            mitmdump: arguments.mitmdump.clone(),
            clients: arguments.clients.clone(),
            lib: arguments.lib.as_deref().map(absolute).transpose()?,
        })
    }

    /// A writable copy-on-write child of the image.
    pub(crate) fn snapshot_image(&self, to: &Path) -> Result<(), BenchError> {
        snapshot(&self.image, to, false)
    }
}

/// How a daemon differs from the default configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Usual,
    /// Without a warm pool.
    Bare,
    /// Allows more sandboxes than by default.
    Roomy,
    /// Also has the image that runs code.
    Code,
    /// Uses MiniLM for embeddings.
    MiniLm,
    /// Runs microVMs, without a warm pool.
    Machines,
    /// Runs microVMs, with a warm pool of one.
    PrecreatedMachines,
}

/// A running daemon. Dropping it removes everything it created.
#[derive(Debug)]
pub(crate) struct Daemon {
    folder: tempfile::TempDir,
    place: DaemonPaths,
    child: Child,
    url: String,
    key: String,
}

impl Daemon {
    pub(crate) async fn start(prepared: &BenchSetup, kind: Kind) -> Result<Self, BenchError> {
        let folder = tempfile::Builder::new()
            .prefix("burrow-bench-")
            .tempdir_in(&prepared.state)
            .map_err(BenchError::io("make a folder in", prepared.state.display()))?;
        let name =
            folder.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let place = DaemonPaths {
            cgroup: name.replace('.', "-"),
            run_dir: folder.path().join("run"),
            pool: prepared.pool.join("daemons").join(&name),
        };
        fill_pool(prepared, kind, &place.pool)?;
        write_state(prepared, kind, &folder, &place)?;
        let child = spawn(prepared, folder.path())?;
        let mut daemon = Self { folder, place, child, url: String::new(), key: String::new() };
        daemon.wait_for_address()?;
        daemon.wait_until_ready().await?;
        Ok(daemon)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn place(&self) -> &DaemonPaths {
        &self.place
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// A client with its own connections.
    pub(crate) fn client(&self) -> Result<Client, BenchError> {
        let options =
            ClientOptions { url: self.url.clone(), key: Some(ApiKey::new(&self.key)), ca_file: None };
        Client::new(options).map_err(BenchError::api("make a client"))
    }

    /// Deletes all sandboxes through the API, ends the daemon, and checks that nothing is left of either.
    pub(crate) async fn finish(mut self) -> Result<(), BenchError> {
        let client = self.client()?;
        let sandboxes =
            client.all_sandboxes(&Default::default()).await.map_err(BenchError::api("list sandboxes"))?;
        stream::iter(sandboxes)
            .map(|sandbox| {
                let client = &client;
                async move { client.delete_sandbox_with_snapshots(&sandbox.id).await }
            })
            .buffer_unordered(DELETES_AT_ONCE)
            .try_collect::<()>()
            .await
            .map_err(BenchError::api("delete a sandbox"))?;
        drop(client);
        self.terminate()?;
        let leftovers = self.place.leftovers();
        if leftovers.is_empty() {
            return Ok(());
        }
        Err(BenchError::LeftBehind { what: format!("{}; {}", leftovers.join(", "), self.log_tail()) })
    }

    /// Kills the daemon, as the OOM killer does, and starts it again. Returns the time from its start until it is ready.
    pub(crate) async fn kill_and_restart(&mut self, prepared: &BenchSetup) -> Result<Duration, BenchError> {
        self.child.kill().map_err(BenchError::io("kill", "the daemon"))?;
        self.child.wait().map_err(BenchError::io("wait for", "the daemon"))?;
        let address = self.place.run_dir.join("address");
        fs::remove_file(&address).map_err(BenchError::io("remove", address.display()))?;
        let begin = Instant::now();
        self.child = spawn(prepared, self.folder.path())?;
        self.wait_for_address()?;
        self.wait_until_ready().await?;
        Ok(begin.elapsed())
    }

    fn terminate(&mut self) -> Result<(), BenchError> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child has a pid");
        let _ = kill_process(pid, Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.child.try_wait().map_err(BenchError::io("wait for", "the daemon"))?;
            match ended {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure(format!("ended with {status} when told to end"))),
                None if Instant::now() > deadline => {
                    return Err(self.failure(format!("did not end within {PATIENCE:?}")));
                }
                None => std::thread::sleep(POLL),
            }
        }
    }

    fn wait_for_address(&mut self) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let address = fs::read_to_string(self.place.run_dir.join("address")).unwrap_or_default();
            if !address.trim().is_empty() {
                self.url = format!("http://{}", address.trim());
                break;
            }
            if let Some(status) = self.child.try_wait().map_err(BenchError::io("wait for", "the daemon"))? {
                return Err(self.failure(format!("ended with {status} instead of starting")));
            }
            if Instant::now() > deadline {
                return Err(self.failure(format!("did not come up within {PATIENCE:?}")));
            }
            std::thread::sleep(POLL);
        }
        let path = self.folder.path().join("admin.key");
        let key = fs::read_to_string(&path).map_err(BenchError::io("read", path.display()))?;
        key.trim().clone_into(&mut self.key);
        Ok(())
    }

    async fn wait_until_ready(&self) -> Result<(), BenchError> {
        let client = self.client()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let readiness =
                client.readiness().await.map_err(BenchError::api("ask whether the daemon is ready"))?;
            if readiness.ready {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.failure(format!("still waits for {:?}", readiness.waiting_for)));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn failure(&self, what: String) -> BenchError {
        BenchError::Daemon { what, log: self.log_tail() }
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("daemon.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // After `finish` there is nothing left to kill; after an error or an interruption there is.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.place.remove();
    }
}

fn fill_pool(prepared: &BenchSetup, kind: Kind, pool: &Path) -> Result<(), BenchError> {
    for part in ["images", "staged", "sandboxes"] {
        let path = pool.join(part);
        fs::create_dir_all(&path).map_err(BenchError::io("make", path.display()))?;
    }
    let images = prepared.pool.join(kind.folder()).join("images");
    let entries = fs::read_dir(&images).map_err(BenchError::io("read", images.display()))?;
    for image in entries {
        let image = image.map_err(BenchError::io("read", images.display()))?;
        snapshot(&image.path(), &pool.join("images").join(image.file_name()), true)?;
    }
    Ok(())
}

impl Kind {
    /// Of the shared pool, which has its images and its catalog.
    fn folder(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Usual
            | Self::Bare
            | Self::Roomy
            | Self::MiniLm
            | Self::Machines
            | Self::PrecreatedMachines => "template",
        }
    }
}

fn write_state(
    prepared: &BenchSetup,
    kind: Kind,
    folder: &tempfile::TempDir,
    place: &DaemonPaths,
) -> Result<(), BenchError> {
    let at = |name: &str| folder.path().join(name);
    let state = at("state");
    fs::create_dir_all(&state).map_err(BenchError::io("make", state.display()))?;
    let template = prepared.pool.join(kind.folder());
    copy(&template.join("catalog.db"), &state.join("catalog.db"))?;
    // A catalog that was not closed cleanly has its last changes in the WAL file beside it.
    let log = template.join("catalog.db-wal");
    if log.exists() {
        copy(&log, &state.join("catalog.db-wal"))?;
    }
    // Everything else has default values: limits, log level, number of pre-created networks.
    let (ready, more) = match kind {
        Kind::Usual | Kind::Code => ("", String::new()),
        Kind::Bare | Kind::Machines => ("ready = 0\n", String::new()),
        Kind::PrecreatedMachines => ("ready = 1\n", String::new()),
        Kind::Roomy => ("", "[limits]\nsandboxes = 2000\n".to_owned()),
        Kind::MiniLm => {
            let folder = prepared.minilm.as_ref().expect("the group is left out without it");
            ("", format!("[memory]\nembedder = \"minilm\"\nminilm_folder = {folder:?}\n"))
        }
    };
    let criu = prepared.criu.as_ref().map_or_else(String::new, |path| format!("criu = {path:?}\n"));
    let machines =
        prepared.lib.as_ref().filter(|_| matches!(kind, Kind::Machines | Kind::PrecreatedMachines));
    let machines = machines.map_or_else(String::new, |lib| {
        format!("qemu = {:?}\nkernel = {:?}\n", lib.join("qemu"), lib.join("vm"))
    });
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {state:?}\nrun_dir = {:?}\nadmin_key_file = {:?}\n\
         [ssh]\nlisten = \"127.0.0.1:0\"\n\
         [pool]\npath = {:?}\n{ready}[runtime]\n{criu}{machines}guest = {:?}\ncgroup = {:?}\n{more}",
        place.run_dir,
        at("admin.key"),
        place.pool,
        prepared.guest,
        place.cgroup,
    );
    let config = at("config.toml");
    fs::write(&config, text).map_err(BenchError::io("write", config.display()))
}

fn spawn(prepared: &BenchSetup, folder: &Path) -> Result<Child, BenchError> {
    let path = folder.join("daemon.log");
    let log = File::create(&path).map_err(BenchError::io("make", path.display()))?;
    let errors = log.try_clone().map_err(BenchError::io("share", path.display()))?;
    Command::new(&prepared.burrow)
        .arg("serve")
        .arg("--config")
        .arg(folder.join("config.toml"))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        // An interrupt at the terminal must reach only us: we then end the daemon normally.
        .process_group(0)
        .spawn()
        .map_err(BenchError::io("start", prepared.burrow.display()))
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn copy(from: &Path, to: &Path) -> Result<(), BenchError> {
    fs::copy(from, to).map(drop).map_err(BenchError::io("copy", from.display()))
}

fn snapshot(from: &Path, to: &Path, read_only: bool) -> Result<(), BenchError> {
    let mut command = Command::new("btrfs");
    command.args(["-q", "subvolume", "snapshot"]);
    if read_only {
        command.arg("-r");
    }
    run(command.arg(from).arg(to)).map(drop)
}
