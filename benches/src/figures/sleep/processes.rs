//! With processes: a Python server of 64 MiB, compared with plain `criu` on the same server, alternately.
//!
//! The baseline is `criu dump` and `criu restore` from images in the page cache, without a sync. A second baseline does
//! the work that a hibernated sandbox requires: images are synced and dropped from the page cache before they are read
//! again.

use std::process::Command;
use std::time::{Duration, Instant};

use burrow_api::{CreateExec, CreateSnapshot, ForkSandbox, SandboxState};
use burrow_client::Client;

use super::{Scale, argv, create, exec, greet, us_in_ms};
use crate::criu::{After, Criu};
use crate::daemon::{BenchSetup, Daemon};
use crate::error::BenchError;
use crate::process::run;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const TARGET: Target = Target::RatioAtMost { limit: 1.3, wish: 1.3 };
const MANY: Target = Target::RatioAtMost { limit: 8.0, wish: 8.0 };
const NOTHING: Target = Target::AtMost { limit: 0.0 };
/// Warm-up rounds.
const WARM_UP: u32 = 1;
const CHILDREN: u32 = 20;
const EVICTED_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Reports that it serves by creating a file; sandboxes and peers wait for it.
const SERVER: &str = "import http.server, os
ballast = bytearray(os.urandom(1 << 20)) * 64
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'%d' % len(ballast))
server = http.server.HTTPServer(('0.0.0.0', 8000), Handler)
open('/root/ready', 'w').close()
server.serve_forever()";

const ASK: &str = "import urllib.request
assert urllib.request.urlopen('http://127.0.0.1:8000/').read() == b'67108864'";

#[derive(Debug, Default)]
struct Rounds {
    snapshot: Samples,
    snapshot_pause: Samples,
    hibernate: Samples,
    wake: Samples,
    fork: Samples,
    fork_pause: Samples,
    /// The baselines.
    dump: Samples,
    dump_durable: Samples,
    restore: Samples,
    restore_cold: Samples,
    dump_restore: Samples,
    many: Samples,
    /// Of a hibernated sandbox: processes, cgroups, bytes of its dump in the page cache.
    left: [f64; 3],
}

pub(super) async fn measure(
    daemon: &Daemon,
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let Some(program) = &prepared.criu else {
        eprintln!("no criu to compare with: figures of processes are left out");
        return Ok(Vec::new());
    };
    let client = daemon.client()?;
    let sandbox = create(&client).await?;
    start_server(&client, &sandbox).await?;
    let mut peer = Criu::start(prepared, program, SERVER)?;
    let mut rounds = Rounds::default();
    for round in 0..WARM_UP + scale.dumps {
        let mut one = Rounds::default();
        snapshots(&client, &sandbox, &mut peer, &mut one).await?;
        forks(&client, &sandbox, &mut peer, &mut one).await?;
        sleeps(daemon, &client, &sandbox, &mut peer, &mut one).await?;
        if round >= WARM_UP {
            rounds.add(&one);
        }
    }
    drop(peer);
    for _ in 0..scale.broods {
        let (elapsed, _, children) = fork(&client, &sandbox, CHILDREN).await?;
        rounds.many.push_ms(elapsed);
        for child in children {
            client.delete_sandbox(&child).await.map_err(BenchError::api("delete a child"))?;
        }
    }
    // It must be the same server as in the beginning, otherwise something else was measured.
    exec(&client, &sandbox, &argv(&["python3", "-c", ASK])).await?;
    Ok(rounds.figures())
}

async fn start_server(client: &Client, sandbox: &str) -> Result<(), BenchError> {
    let request =
        CreateExec { input: Some(SERVER.to_owned()), ..argv(&["sh", "-c", "cat > /root/server.py"]) };
    exec(client, sandbox, &request).await?;
    let start = "setsid python3 /root/server.py </dev/null >/root/log 2>&1 & \
                 until test -e /root/ready; do sleep 0.1; done";
    exec(client, sandbox, &argv(&["sh", "-c", start])).await?;
    exec(client, sandbox, &argv(&["python3", "-c", ASK])).await.map(drop)
}

async fn snapshots(
    client: &Client,
    sandbox: &str,
    peer: &mut Criu,
    one: &mut Rounds,
) -> Result<(), BenchError> {
    one.dump.push_ms(peer.dump(After::GoOn)?);
    let begin = Instant::now();
    let taken = client.create_snapshot(sandbox, &CreateSnapshot::default()).await;
    let taken = taken.map_err(BenchError::api("take a snapshot"))?;
    one.snapshot.push_ms(begin.elapsed());
    one.snapshot_pause.push(us_in_ms(taken.pause_us));
    if !taken.processes {
        return Err(BenchError::WrongAnswer { what: "a snapshot without its processes".to_owned() });
    }
    client.delete_snapshot(&taken.id).await.map_err(BenchError::api("delete a snapshot"))
}

async fn forks(client: &Client, sandbox: &str, peer: &mut Criu, one: &mut Rounds) -> Result<(), BenchError> {
    one.dump_restore.push_ms(peer.dump(After::GoOn)? + peer.restore_another()?);
    let (elapsed, pause_us, children) = fork(client, sandbox, 1).await?;
    one.fork.push_ms(elapsed);
    one.fork_pause.push(us_in_ms(pause_us));
    for child in children {
        exec(client, &child, &argv(&["python3", "-c", ASK])).await?;
        client.delete_sandbox(&child).await.map_err(BenchError::api("delete a child"))?;
    }
    Ok(())
}

/// The duration, how long the parent was paused, and the ids of the children.
async fn fork(
    client: &Client,
    sandbox: &str,
    count: u32,
) -> Result<(Duration, u64, Vec<String>), BenchError> {
    let request = ForkSandbox { count, ..ForkSandbox::default() };
    let begin = Instant::now();
    let forked = client.fork_sandbox(sandbox, &request).await.map_err(BenchError::api("fork a sandbox"))?;
    let elapsed = begin.elapsed();
    if forked.children.len() != count as usize {
        return Err(BenchError::WrongAnswer {
            what: format!("a fork of {count} failed: {:?}", forked.failed),
        });
    }
    Ok((elapsed, forked.pause_us, forked.children.into_iter().map(|child| child.id).collect()))
}

async fn sleeps(
    daemon: &Daemon,
    client: &Client,
    sandbox: &str,
    peer: &mut Criu,
    one: &mut Rounds,
) -> Result<(), BenchError> {
    // The minimum of work: images stay in the page cache.
    one.dump.push_ms(peer.dump(After::End)?);
    one.restore.push_ms(peer.restore()?);
    // The sync that makes them survive the host.
    let dumped = peer.dump(After::End)?;
    one.dump_durable.push_ms(dumped + peer.sync_images()?);

    let begin = Instant::now();
    let slept = client.hibernate_sandbox(sandbox).await.map_err(BenchError::api("hibernate a sandbox"))?;
    one.hibernate.push_ms(begin.elapsed());
    if slept.state != SandboxState::Hibernated {
        return Err(BenchError::WrongAnswer { what: format!("it is {:?}, not hibernated", slept.state) });
    }
    one.left = left_soon(daemon, sandbox).await?;

    peer.evict_images()?;
    one.restore_cold.push_ms(peer.restore()?);
    let begin = Instant::now();
    client.wake_sandbox(sandbox).await.map_err(BenchError::api("wake a sandbox"))?;
    one.wake.push_ms(begin.elapsed());
    greet(client, sandbox).await
}

/// The remaining resources while it sleeps. Its pages are dropped just after the answer, so this must wait a moment.
async fn left_soon(daemon: &Daemon, sandbox: &str) -> Result<[f64; 3], BenchError> {
    let deadline = Instant::now() + EVICTED_WITHIN;
    loop {
        let left = left_of(daemon, sandbox)?;
        if left == [0.0; 3] || Instant::now() > deadline {
            return Ok(left);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The resources of a sleeping sandbox on the host: processes, cgroups, and bytes of all dumps in the page cache.
fn left_of(daemon: &Daemon, sandbox: &str) -> Result<[f64; 3], BenchError> {
    let place = daemon.place();
    let groups = place.groups_of(sandbox);
    let members = groups.iter().flat_map(|group| {
        let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let dumps = place.pool.join("dumps");
    let found = run(Command::new("find").arg(&dumps).args(["-type", "f", "-size", "+0"]))?;
    let mut command = Command::new("fincore");
    command.args(["--bytes", "--noheadings", "--raw", "--output", "RES"]).args(found.lines());
    let resident: u64 = run(&mut command)?.lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum();
    #[expect(clippy::cast_precision_loss, reason = "bytes of a dump are far below 2^52")]
    let counted = [members.count() as f64, groups.len() as f64, resident as f64 / 1024.0];
    Ok(counted)
}

impl Rounds {
    fn add(&mut self, one: &Self) {
        let Self { snapshot, snapshot_pause, hibernate, wake, fork, fork_pause, .. } = self;
        snapshot.extend(&one.snapshot);
        snapshot_pause.extend(&one.snapshot_pause);
        hibernate.extend(&one.hibernate);
        wake.extend(&one.wake);
        fork.extend(&one.fork);
        fork_pause.extend(&one.fork_pause);
        self.dump.extend(&one.dump);
        self.dump_durable.extend(&one.dump_durable);
        self.restore.extend(&one.restore);
        self.restore_cold.extend(&one.restore_cold);
        self.dump_restore.extend(&one.dump_restore);
        for (most, now) in self.left.iter_mut().zip(one.left) {
            *most = most.max(now);
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let (raw_dump, raw_restore) = ("criu dump", "criu restore");
        let durable = "criu dump, images synced";
        let cold = "criu restore, images not in the page cache";
        let snapshot_note = "p50 of POST snapshots with processes: a Python server of 64 MiB";
        let hibernate_note = "p50 of POST hibernate of the same: durable, verified, machine and network gone";
        let wake_note = "p50 of POST wake of the same, from a dump that is not in the page cache";
        let [processes, groups, resident] = self.left;
        vec![
            Figure::median("snapshot", &self.snapshot, "ms", snapshot_note)
                .against(raw_dump, &self.dump)
                .target(TARGET),
            Figure::median("snapshot_vs_durable", &self.snapshot, "ms", snapshot_note)
                .against(durable, &self.dump_durable),
            Figure::median("hibernate", &self.hibernate, "ms", hibernate_note)
                .against(raw_dump, &self.dump)
                .target(TARGET),
            Figure::median("hibernate_vs_durable", &self.hibernate, "ms", hibernate_note)
                .against(durable, &self.dump_durable),
            Figure::median("wake", &self.wake, "ms", wake_note)
                .against(raw_restore, &self.restore)
                .target(TARGET),
            Figure::median("wake_vs_cold", &self.wake, "ms", wake_note).against(cold, &self.restore_cold),
            Figure::median(
                "fork",
                &self.fork,
                "ms",
                "p50 of POST fork of the same, one child, wiring included",
            )
            .against("criu dump and restore", &self.dump_restore)
            .target(TARGET),
            Figure::median(
                "snapshot_pause",
                &self.snapshot_pause,
                "ms",
                "how long it stood still for a snapshot",
            ),
            Figure::median(
                "fork_pause",
                &self.fork_pause,
                "ms",
                "how long the parent stood still for a fork",
            ),
            Figure::median("fork_20", &self.many, "ms", "p50 of POST fork, 20 children, wiring included")
                .against("one fork", &self.fork)
                .target(MANY),
            Figure::new("hibernated_processes", processes, "", "processes of a hibernated sandbox")
                .target(NOTHING),
            Figure::new("hibernated_cgroups", groups, "", "control groups of a hibernated sandbox")
                .target(NOTHING),
            Figure::new("hibernated_cached", resident, "KiB", "pages of its dump in the page cache")
                .target(NOTHING),
        ]
    }
}
