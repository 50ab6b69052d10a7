//! Snapshots and forks without processes: of a sandbox with many files, of an empty one, and a plain create, alternately.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use burrow_api::{CreateSnapshot, ForkSandbox};
use burrow_client::Client;

use super::{Scale, argv, create, exec};
use crate::daemon::{BenchSetup, Daemon};
use crate::error::BenchError;
use crate::inventory::remove_subvolume;
use crate::process::run;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const AGAINST_EMPTY: Target = Target::RatioAtMost { limit: 1.5, wish: 1.5 };
const AGAINST_CREATE: Target = Target::RatioAtMost { limit: 1.5, wish: 1.5 };
const SNAPSHOT: Target = Target::Below { limit: 50.0 };
/// Warm-up rounds: page cache, first connections.
const WARM_UP: u32 = 2;

/// Writes this many files of this many bytes, all different, and waits until they are on disk.
const FILL: &str = "import os, sys
files, each = int(sys.argv[1]), int(sys.argv[2])
block = os.urandom(each)
for at in range(files):
    folder = f'/root/files/{at // 1000}'
    if at % 1000 == 0: os.makedirs(folder)
    with open(f'{folder}/{at}', 'wb') as file:
        file.write(at.to_bytes(8, 'big')); file.write(block[8:])
os.sync()";

#[derive(Debug, Default)]
struct Forks {
    empty: Samples,
    full: Samples,
    cold: Samples,
    warm_pool: Samples,
}

/// `bare` makes nothing ahead, `usual` does.
pub(super) async fn measure(
    bare: &Daemon,
    usual: &Daemon,
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let (client, ahead) = (bare.client()?, usual.client()?);
    let (empty, full) = (create(&client).await?, create(&client).await?);
    let each = scale.sleep_mib * 1024 * 1024 / scale.sleep_files;
    let (files, each) = (scale.sleep_files.to_string(), each.to_string());
    exec(&client, &full, &argv(&["python3", "-c", FILL, &files, &each])).await?;
    // Alternately, as below; the second one sees all of the files as new, and the first none.
    let mut first = [Samples::default(), Samples::default()];
    for (sandbox, samples) in [&empty, &full].into_iter().zip(&mut first) {
        samples.push_ms(snapshot(&client, sandbox).await?);
    }

    let floor = Floor::prepare(prepared)?;
    let mut least = Samples::default();
    let (mut small, mut large) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + scale.snapshots {
        for (sandbox, samples) in [(&empty, &mut small), (&full, &mut large)] {
            // Something to list as changed, and to write to disk.
            exec(&client, sandbox, &argv(&["sh", "-c", "date > /root/changed"])).await?;
            let elapsed = snapshot(&client, sandbox).await?;
            if round >= WARM_UP {
                samples.push_ms(elapsed);
            }
        }
        let elapsed = floor.snapshot()?;
        if round >= WARM_UP {
            least.push_ms(elapsed);
        }
    }
    let mut forks = Forks::default();
    for round in 0..WARM_UP + scale.forks {
        let times = [
            fork(&client, &empty).await?,
            fork(&client, &full).await?,
            plain(&client).await?,
            plain(&ahead).await?,
        ];
        if round >= WARM_UP {
            let all = [&mut forks.empty, &mut forks.full, &mut forks.cold, &mut forks.warm_pool];
            all.into_iter().zip(times).for_each(|(samples, time)| samples.push_ms(time));
        }
    }
    Ok(figures([&small, &large, &least], &first, &forks, scale))
}

/// The minimum cost of a snapshot here: `btrfs` on a subvolume with as few changes.
#[derive(Debug)]
struct Floor {
    volume: PathBuf,
}

impl Floor {
    fn prepare(prepared: &BenchSetup) -> Result<Self, BenchError> {
        let volume = prepared.pool.join(format!("daemons/burrow-bench-floor-{}", std::process::id()));
        prepared.snapshot_image(&volume)?;
        Ok(Self { volume })
    }

    fn snapshot(&self) -> Result<Duration, BenchError> {
        let (changed, to) = (self.volume.join("rootfs/root/changed"), self.volume.with_extension("snapshot"));
        fs::write(&changed, "changed\n").map_err(BenchError::io("write", changed.display()))?;
        let mut command = Command::new("btrfs");
        command.args(["-q", "subvolume", "snapshot", "-r"]).arg(&self.volume).arg(&to);
        let begin = Instant::now();
        run(&mut command)?;
        let elapsed = begin.elapsed();
        remove_subvolume(&to);
        Ok(elapsed)
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        remove_subvolume(&self.volume.with_extension("snapshot"));
        remove_subvolume(&self.volume);
    }
}

async fn snapshot(client: &Client, sandbox: &str) -> Result<Duration, BenchError> {
    let request = CreateSnapshot { files_only: true, ..CreateSnapshot::default() };
    let begin = Instant::now();
    client.create_snapshot(sandbox, &request).await.map_err(BenchError::api("take a snapshot"))?;
    Ok(begin.elapsed())
}

/// Time from requesting a fork to its first output.
async fn fork(client: &Client, sandbox: &str) -> Result<Duration, BenchError> {
    let request = ForkSandbox { files_only: true, ..ForkSandbox::default() };
    let begin = Instant::now();
    let forked = client.fork_sandbox(sandbox, &request).await.map_err(BenchError::api("fork a sandbox"))?;
    let child = forked.children.first();
    let child = child.ok_or_else(|| BenchError::WrongAnswer { what: "a fork without a child".to_owned() })?;
    exec(client, &child.id, &argv(&["echo", "ready"])).await?;
    Ok(begin.elapsed())
}

/// The same for a create.
async fn plain(client: &Client) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    let sandbox = create(client).await?;
    exec(client, &sandbox, &argv(&["echo", "ready"])).await?;
    Ok(begin.elapsed())
}

fn figures(snapshots: [&Samples; 3], first: &[Samples; 2], forks: &Forks, scale: &Scale) -> Vec<Figure> {
    let [small, large, least] = snapshots;
    #[expect(clippy::cast_precision_loss, reason = "counts of files are small")]
    let (files, mib) = (scale.sleep_files as f64, scale.sleep_mib as f64);
    let note = "p50 of POST snapshots, files only, of a sandbox with so many files";
    let fork_note =
        "p50 from asking for a child of that sandbox, files only, to holding the output of `echo`";
    let empty_note = "the same of an empty one";
    vec![
        Figure::new("snapshot_files_count", files, "", "files in the sandbox measured below"),
        Figure::new("snapshot_files_size", mib, "MiB", "what they hold in all"),
        Figure::median("snapshot_files", large, "ms", note)
            .against("of an empty sandbox", small)
            .target(AGAINST_EMPTY),
        Figure::median("snapshot_files_p50", large, "ms", note).target(SNAPSHOT),
        Figure::median("snapshot_files_empty", small, "ms", empty_note)
            .against("btrfs subvolume snapshot -r", least)
            .target(SNAPSHOT),
        Figure::median(
            "snapshot_files_first",
            &first[1],
            "ms",
            "the first one of that sandbox, which finds all files new",
        )
        .against("the first of an empty sandbox", &first[0])
        .target(AGAINST_EMPTY),
        Figure::median("fork_files", &forks.full, "ms", fork_note)
            .against("of an empty sandbox", &forks.empty)
            .target(AGAINST_EMPTY),
        Figure::median("fork_files_vs_create", &forks.full, "ms", fork_note)
            .against("create, nothing made ahead", &forks.cold)
            .target(AGAINST_CREATE),
        Figure::median("fork_files_empty_vs_create", &forks.empty, "ms", empty_note)
            .against("create, nothing made ahead", &forks.cold)
            .target(AGAINST_CREATE),
        Figure::median("fork_files_vs_warm_pool", &forks.full, "ms", fork_note)
            .against("create from warm_pool", &forks.warm_pool),
    ]
}
