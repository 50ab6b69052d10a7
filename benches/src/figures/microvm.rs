//! MicroVMs: created from a template, compared with a boot and with QEMU alone; sleep and wake; many forks of one; idle.
//!
//! Every line names the accelerator, because emulation cannot be compared with KVM. The machines are small (256 MiB), and
//! the daemon has no warm pool, except for the figure that measures it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use burrow_api::{CreateSandbox, CreateSnapshot, ForkSandbox, LimitsRequest};
use burrow_client::Client;
use serde_json::{Value, json};

use super::{Scale, argv, exec};
use crate::daemon::{BenchSetup, Daemon, Kind};
use crate::error::BenchError;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const RAM_MIB: u32 = 256;
/// Number of measured rounds; a boot takes seconds.
const ROUNDS: u32 = 7;
const CHILDREN: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(1);

pub(super) async fn measure(prepared: &BenchSetup, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    if prepared.lib.is_none() {
        eprintln!("no QEMU was named by --lib: microVMs are left out");
        return Ok(Vec::new());
    }
    let rounds = if scale.creates < 10 { 2 } else { ROUNDS };
    let mut figures = Vec::new();
    let daemon = Daemon::start(prepared, Kind::Machines).await?;
    let client = daemon.client()?;
    let host = client.host().await.map_err(BenchError::api("ask what the host can do"))?;
    let by = if host.default_driver == "microvm" { "kvm" } else { "emulated" };
    figures.extend(lives(&daemon, &client, prepared, rounds, by).await?);
    figures.extend(brood(&daemon, &client, by).await?);
    drop(client);
    daemon.finish().await?;
    figures.extend(precreated(prepared, rounds, by).await?);
    Ok(figures)
}

/// Names of lines include the accelerator.
fn named(name: &str, by: &str) -> &'static str {
    Box::leak(format!("microvm_{name}_{by}").into_boxed_str())
}

async fn new(client: &Client) -> Result<String, BenchError> {
    let request = CreateSandbox {
        driver: Some("microvm".to_owned()),
        limits: Some(LimitsRequest {
            ram_mib: Some(RAM_MIB),
            cpu_millis: Some(1000),
            disk_mib: Some(1024),
            ..LimitsRequest::default()
        }),
        ..CreateSandbox::default()
    };
    Ok(client.create_sandbox(&request).await.map_err(BenchError::api("create a microVM"))?.id)
}

/// Time from the request until its first program has run.
async fn create_and_use(client: &Client) -> Result<(String, Duration), BenchError> {
    let begin = Instant::now();
    let sandbox = new(client).await?;
    exec(client, &sandbox, &argv(&["true"])).await?;
    Ok((sandbox, begin.elapsed()))
}

async fn lives(
    daemon: &Daemon,
    client: &Client,
    prepared: &BenchSetup,
    rounds: u32,
    by: &str,
) -> Result<Vec<Figure>, BenchError> {
    // The first one creates the image's disk and the template.
    let begin = Instant::now();
    let (sandbox, _) = create_and_use(client).await?;
    let first = begin.elapsed();
    let bare = Bare::like(daemon, &sandbox, prepared)?;
    let [mut made, mut cold, mut alone, mut woken, mut paused, mut copied] = <[Samples; 6]>::default();
    for round in 0..=rounds {
        let (sandbox, create) = create_and_use(client).await?;
        let alone_for = bare.run()?;
        client.stop_sandbox(&sandbox, None).await.map_err(BenchError::api("stop a microVM"))?;
        let begin = Instant::now();
        client.start_sandbox(&sandbox).await.map_err(BenchError::api("start a microVM"))?;
        exec(client, &sandbox, &argv(&["true"])).await?;
        let boot = begin.elapsed();
        client.hibernate_sandbox(&sandbox).await.map_err(BenchError::api("hibernate a microVM"))?;
        let begin = Instant::now();
        exec(client, &sandbox, &argv(&["true"])).await?;
        let wake = begin.elapsed();
        let taken = client.create_snapshot(&sandbox, &CreateSnapshot::default()).await;
        let taken = taken.map_err(BenchError::api("take a snapshot of a microVM"))?;
        let copy = copy_of(&prepared.pool, taken.ram_bytes)?;
        client.delete_sandbox_with_snapshots(&sandbox).await.map_err(BenchError::api("delete a microVM"))?;
        if round > 0 {
            let all = [&mut made, &mut alone, &mut cold, &mut woken, &mut copied];
            all.into_iter()
                .zip([create, alone_for, boot, wake, copy])
                .for_each(|(to, time)| to.push_ms(time));
            paused.push_ms(Duration::from_micros(taken.pause_us));
        }
    }
    let beyond = (paused.summary().p50 - copied.summary().p50).max(0.0);
    Ok(vec![
        Figure::new(
            named("first_create", by),
            first.as_secs_f64() * 1000.0,
            "ms",
            "the image's disk and the template made on the way",
        ),
        Figure::median(
            named("create", by),
            &made,
            "ms",
            "p50 from a create (a fork of the template) to its first exec's end",
        )
        .against("a boot of the same image, to its first exec's end", &cold)
        .target(Target::RatioAtMost { limit: 0.1, wish: 0.1 }),
        Figure::median(named("create_against_qemu", by), &made, "ms", "the same")
            .against("`qemu -incoming` of the same state, until it runs", &alone)
            .target(Target::RatioAtMost { limit: 1.5, wish: 1.5 }),
        Figure::median(named("wake", by), &woken, "ms", "p50 of a first exec of a hibernated one")
            .against("a create", &made)
            .target(Target::RatioAtMost { limit: 2.0, wish: 2.0 }),
        Figure::median(named("snapshot_pause", by), &paused, "ms", "how long it stood still")
            .against("writing as many bytes as its RAM takes in the dump", &copied),
        Figure::new(named("snapshot_pause_beyond", by), beyond, "ms", "of that, beyond the copy of its RAM")
            .target(Target::AtMost { limit: 50.0 }),
    ])
}

/// Writes this many bytes to a file in the pool, as a dump does: without waiting for the disk.
fn copy_of(pool: &Path, bytes: u64) -> Result<Duration, BenchError> {
    let path = pool.join(format!("daemons/burrow-bench-copy-{}", std::process::id()));
    let content = vec![7u8; usize::try_from(bytes).unwrap_or(0)];
    let begin = Instant::now();
    fs::write(&path, &content).map_err(BenchError::io("write", path.display()))?;
    let elapsed = begin.elapsed();
    let _ = fs::remove_file(&path);
    Ok(elapsed)
}

/// Many forks of one machine, of a small one and of one with much more in RAM.
async fn brood(daemon: &Daemon, client: &Client, by: &str) -> Result<Vec<Figure>, BenchError> {
    let parent = new(client).await?;
    exec(client, &parent, &argv(&["true"])).await?;
    let idle = beyond_guest_mib(emulator_of(daemon, &parent)?)?;
    let (each, time) = fork_many(daemon, client, &parent).await?;
    // 128 MiB more in its RAM, which the forks do not touch.
    let hold = "python3 -c 'import os,time; x=os.urandom(128<<20); open(\"/tmp/held\",\"w\").write(\"1\"); time.sleep(1e9)'";
    exec(
        client,
        &parent,
        &argv(&[
            "sh",
            "-c",
            &format!("{hold} >/dev/null 2>&1 & until test -s /tmp/held; do sleep 0.1; done"),
        ]),
    )
    .await?;
    let (each_large, _) = fork_many(daemon, client, &parent).await?;
    Ok(vec![
        Figure::new(
            named("idle_beyond_guest", by),
            idle,
            "MiB",
            "resident of the emulator beyond the guest's own pages; Firecracker promises 5",
        )
        .target(Target::Below { limit: 40.0 }),
        Figure::new(
            named("fork_child", by),
            time.as_secs_f64() * 1000.0 / f64::from(CHILDREN),
            "ms",
            "one of 20 children of one machine",
        ),
        Figure::new(
            named("fork_child_pss", by),
            each,
            "MiB",
            "of the host's RAM for each of 20 idle children (PSS)",
        )
        .target(Target::Below { limit: 35.0 }),
        Figure::new(
            named("fork_child_pss_large", by),
            each_large,
            "MiB",
            "the same where the parent holds 128 MiB more",
        ),
    ])
}

async fn fork_many(daemon: &Daemon, client: &Client, parent: &str) -> Result<(f64, Duration), BenchError> {
    let request = ForkSandbox { count: CHILDREN, ..ForkSandbox::default() };
    let begin = Instant::now();
    let forked = client.fork_sandbox(parent, &request).await.map_err(BenchError::api("fork a microVM"))?;
    let elapsed = begin.elapsed();
    let mut total = 0.0;
    for child in &forked.children {
        total += kib_of(emulator_of(daemon, &child.id)?, "Pss:")? / 1024.0;
    }
    for child in &forked.children {
        client.delete_sandbox_with_snapshots(&child.id).await.map_err(BenchError::api("delete a child"))?;
    }
    Ok((total / f64::from(CHILDREN), elapsed))
}

/// The latency that users of a daemon with a warm pool see.
async fn precreated(prepared: &BenchSetup, rounds: u32, by: &str) -> Result<Vec<Figure>, BenchError> {
    let daemon = Daemon::start(prepared, Kind::PrecreatedMachines).await?;
    let client = daemon.client()?;
    let mut made = Samples::default();
    for round in 0..rounds + 2 {
        let (sandbox, time) = create_and_use(&client).await?;
        // The pool starts to fill from the second use of a specification on.
        if round > 1 {
            made.push_ms(time);
        }
        client.delete_sandbox(&sandbox).await.map_err(BenchError::api("delete a microVM"))?;
        let deadline = Instant::now() + PATIENCE;
        while round > 0 && daemon.place().processes().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        // The machine is paused once it has loaded.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    drop(client);
    daemon.finish().await?;
    Ok(vec![
        Figure::median(
            named("create_ahead", by),
            &made,
            "ms",
            "p50 from a create to its first exec's end, the emulator started ahead",
        )
        .target(Target::AtMost { limit: 100.0 }),
    ])
}

// === Figures from the kernel ===

fn emulator_of(daemon: &Daemon, sandbox: &str) -> Result<u32, BenchError> {
    let groups = daemon.place().groups_of(sandbox);
    let listed = groups.iter().find_map(|group| {
        let text = fs::read_to_string(group.join("cgroup.procs")).ok()?;
        text.lines().next()?.parse().ok()
    });
    listed.ok_or_else(|| BenchError::WrongAnswer { what: format!("{sandbox} has no emulator") })
}

/// A sum over all memory mappings of a process.
fn kib_of(pid: u32, field: &str) -> Result<f64, BenchError> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(BenchError::io("read", &path))?;
    let found =
        text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok());
    found.ok_or_else(|| BenchError::WrongAnswer { what: format!("no {field} in {path}") })
}

/// Resident memory outside of the mapping of the guest's RAM, which is found by its size.
fn beyond_guest_mib(pid: u32) -> Result<f64, BenchError> {
    let path = format!("/proc/{pid}/smaps");
    let text = fs::read_to_string(&path).map_err(BenchError::io("read", &path))?;
    let (mut beyond, mut size) = (0.0, 0u64);
    for line in text.lines() {
        let number = |field: &str| line.strip_prefix(field)?.split_whitespace().next()?.parse::<u64>().ok();
        if let Some(kib) = number("Size:") {
            size = kib;
        }
        if let Some(kib) = number("Rss:")
            && size < u64::from(RAM_MIB) * 1024
        {
            #[expect(clippy::cast_precision_loss, reason = "memory in KiB is far below 2^52")]
            let kib = kib as f64;
            beyond += kib / 1024.0;
        }
    }
    Ok(beyond)
}

// === QEMU alone ===

/// The command of an emulator that runs a machine of a template, adapted to run without the daemon.
struct Bare {
    argv: Vec<String>,
    folder: tempfile::TempDir,
    devices: PathBuf,
}

impl Bare {
    /// Started like the emulator of this sandbox, but unconfined, and with its own files.
    fn like(daemon: &Daemon, sandbox: &str, prepared: &BenchSetup) -> Result<Self, BenchError> {
        let pid = emulator_of(daemon, sandbox)?;
        let path = format!("/proc/{pid}/cmdline");
        let words = fs::read(&path).map_err(BenchError::io("read", &path))?;
        let template = template_of(&daemon.place().pool)?;
        let folder = tempfile::Builder::new()
            .prefix("burrow-bench-qemu-")
            .tempdir_in(prepared.pool.join("daemons"))
            .map_err(BenchError::io("make a folder in", prepared.pool.display()))?;
        let disk = folder.path().join("disk");
        let copied = daemon.place().pool.join("sandboxes").join(sandbox).join("rootfs/disk.raw");
        let mut command = Command::new("cp");
        crate::process::run(command.arg("--reflink=always").arg(&copied).arg(&disk))?;
        let lib = prepared.lib.as_ref().expect("looked at before").join("qemu");
        let place = |name: &str| folder.path().join(name).display().to_string();
        let mut argv = Vec::new();
        let mut words = words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        while let Some(word) = words.next() {
            match word.as_str() {
                "" => {}
                // Descriptors that were passed to the emulator are replaced by paths, and nothing is
                // confined.
                "-add-fd" | "-sandbox" => drop(words.next()),
                "-netdev" => {
                    words.next();
                    // A separate network interface without a peer, which is removed with it.
                    let tap = "tap,id=net,ifname=burrow-bench,script=no,downscript=no,vnet_hdr=on";
                    argv.extend(["-netdev".to_owned(), tap.to_owned()]);
                }
                _ if word.starts_with("socket,id=qmp") => {
                    argv.push(format!("socket,id=qmp,path={},server=on,wait=off", place("qmp")));
                }
                _ if word.starts_with("socket,id=agent") => argv.push("null,id=agent".to_owned()),
                _ => {
                    let word = word.replace("/dev/fdset/1", &disk.display().to_string());
                    let word = word
                        .replace("mem-path=/ram", &format!("mem-path={}", template.join("ram").display()));
                    argv.push(match word.strip_prefix("/qemu/") {
                        Some(rest) => lib.join(rest).display().to_string(),
                        None => word,
                    });
                }
            }
        }
        Ok(Self { argv, devices: template.join("devices"), folder })
    }

    /// Time from its start until the machine runs.
    fn run(&self) -> Result<Duration, BenchError> {
        let socket = self.folder.path().join("qmp");
        let _ = fs::remove_file(&socket);
        let begin = Instant::now();
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = KillOnDrop(command.spawn().map_err(BenchError::io("start", &self.argv[0]))?);
        let deadline = begin + PATIENCE;
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < deadline => std::thread::sleep(POLL),
                Err(error) => return Err(BenchError::io("connect to", socket.display())(error)),
            }
        };
        let mut monitor = Monitor::open(stream)?;
        monitor.ask("qmp_capabilities", json!({}))?;
        monitor.ask("migrate-incoming", json!({ "uri": format!("file:{}", self.devices.display()) }))?;
        while monitor.ask("query-migrate", json!({}))?["status"] != "completed" {
            if Instant::now() > deadline {
                return Err(BenchError::WrongAnswer {
                    what: "QEMU alone does not load the state".to_owned(),
                });
            }
            std::thread::sleep(POLL);
        }
        monitor.ask("cont", json!({}))?;
        let elapsed = begin.elapsed();
        drop(child);
        Ok(elapsed)
    }
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Monitor {
    reader: BufReader<UnixStream>,
}

impl Monitor {
    fn open(stream: UnixStream) -> Result<Self, BenchError> {
        let mut monitor = Self { reader: BufReader::new(stream) };
        monitor.line()?;
        Ok(monitor)
    }

    fn line(&mut self) -> Result<Value, BenchError> {
        let mut line = String::new();
        self.reader.read_line(&mut line).map_err(BenchError::io("hear", "QEMU"))?;
        serde_json::from_str(&line)
            .map_err(|error| BenchError::WrongAnswer { what: format!("{error}: {line}") })
    }

    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, BenchError> {
        let mut text = json!({ "execute": command, "arguments": arguments }).to_string();
        text.push('\n');
        self.reader.get_mut().write_all(text.as_bytes()).map_err(BenchError::io("ask", "QEMU"))?;
        loop {
            let answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(BenchError::WrongAnswer { what: format!("{command}: {error}") });
            }
            if let Some(found) = answer.get("return") {
                return Ok(found.clone());
            }
        }
    }
}

/// The directory of the only template that the daemon has created.
fn template_of(pool: &Path) -> Result<PathBuf, BenchError> {
    let images = pool.join("images");
    let entries = fs::read_dir(&images).map_err(BenchError::io("read", images.display()))?;
    let found = entries.filter_map(|entry| Some(entry.ok()?.path().join("rootfs")));
    let mut found = found.filter(|root| root.join("ram").is_file() && root.join("devices").is_file());
    found
        .next()
        .ok_or_else(|| BenchError::WrongAnswer { what: "there is no template in the pool".to_owned() })
}
