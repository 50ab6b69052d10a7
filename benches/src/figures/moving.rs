//! Exporting a sandbox, compared with `tar | zstd -1 -T2` of the same tree; and an incremental export, compared with a
//! full one.
//!
//! Alternately, with the input in the page cache for both sides and both writing to the same disk. Measured is the time
//! that a user waits: the request, the stream over HTTP and the file.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use burrow_api::{CreateSandbox, CreateSnapshot, LimitsRequest};
use burrow_client::{Client, ExportOptions};

use super::{Scale, argv, exec};
use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::process::run;
use crate::report::{Figure, Target};
use crate::samples::Samples;

/// At least half the speed, so at most twice the time.
const AGAINST_TAR: Target = Target::RatioAtMost { limit: 2.0, wish: 1.0 };
const AGAINST_WHOLE: Target = Target::RatioAtMost { limit: 0.05, wish: 0.02 };

/// Files of half a megabyte, of which one half does not compress and the other does, like programs and data.
const FILL: &str = "import os, sys
for at in range(int(sys.argv[1]) * 2):
    folder = f'/root/files/{at // 100}'
    if at % 100 == 0: os.makedirs(folder)
    with open(f'{folder}/{at}', 'wb') as file:
        file.write(os.urandom(262144)); file.write((f'{at} some words of a log ' * 11000).encode()[:262144])
os.sync()";

const CHANGE: &str = "import os
with open('/root/changed', 'wb') as file: file.write(os.urandom(10 << 20))
os.sync()";

/// Space for the files, and twice as much again.
const DISK_MIB: u32 = 8192;

pub(super) async fn measure(daemon: &Daemon, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let client = daemon.client()?;
    let limits = LimitsRequest { disk_mib: Some(DISK_MIB), ..LimitsRequest::default() };
    let create = CreateSandbox { limits: Some(limits), ..CreateSandbox::default() };
    let sandbox = client.create_sandbox(&create).await.map_err(BenchError::api("create a sandbox"))?.id;
    let mib = scale.sleep_mib.to_string();
    exec(&client, &sandbox, &argv(&["python3", "-c", FILL, &mib])).await?;
    let whole = snapshot(&client, &sandbox).await?;
    exec(&client, &sandbox, &argv(&["python3", "-c", CHANGE])).await?;
    let changed = snapshot(&client, &sandbox).await?;
    let folder = tempfile::Builder::new()
        .prefix("bench-moving-")
        .tempdir()
        .map_err(BenchError::io("make a folder in", "the temporary folder"))?;
    let tree = daemon.place().pool.join("snapshots").join(&whole).join("rootfs");
    let (mut ours, mut tar, mut part) = (Samples::default(), Samples::default(), Samples::default());
    // The first round warms the caches of both.
    for round in 0..=scale.import_rounds.min(5) {
        let packed = pack(&tree, &folder.path().join("tar"))?;
        let all = export(&client, &whole, None, &folder.path().join("all")).await?;
        let since = export(&client, &changed, Some(&whole), &folder.path().join("since")).await?;
        if round > 0 {
            tar.push_ms(packed);
            ours.push_ms(all);
            part.push_ms(since);
        }
    }
    client.delete_sandbox(&sandbox).await.map_err(BenchError::api("delete a sandbox"))?;
    for snapshot in [changed, whole] {
        client.delete_snapshot(&snapshot).await.map_err(BenchError::api("delete a snapshot"))?;
    }
    Ok(vec![
        Figure::median("export", &ours, "ms", "p50 of exporting a sandbox of 2 GiB")
            .against("tar | zstd -1 -T2", &tar)
            .target(AGAINST_TAR),
        Figure::median("export_since", &part, "ms", "p50 of exporting 10 MB of change")
            .against("all of it", &ours)
            .target(AGAINST_WHOLE),
    ])
}

async fn snapshot(client: &Client, sandbox: &str) -> Result<String, BenchError> {
    let request = CreateSnapshot { files_only: true, ..CreateSnapshot::default() };
    let taken = client.create_snapshot(sandbox, &request).await;
    Ok(taken.map_err(BenchError::api("take a snapshot"))?.id)
}

async fn export(
    client: &Client,
    snapshot: &str,
    since: Option<&str>,
    to: &Path,
) -> Result<Duration, BenchError> {
    let options = ExportOptions { since: since.map(str::to_owned), files_only: true };
    let file = tokio::fs::File::create(to).await.map_err(BenchError::io("make", to.display()));
    let (mut file, start) = (file?, Instant::now());
    let export =
        client.export_snapshot(snapshot, &options).await.map_err(BenchError::api("export a snapshot"))?;
    let copied = export.bytes.copy_to(&mut file, |_| {}).await;
    copied.map_err(BenchError::api("export a snapshot"))?;
    Ok(start.elapsed())
}

fn pack(tree: &Path, to: &Path) -> Result<Duration, BenchError> {
    let line = format!("tar -C '{}' -cf - . | zstd -q -1 -T2 > '{}'", tree.display(), to.display());
    let start = Instant::now();
    run(Command::new("bash").args(["-o", "pipefail", "-c", &line]))?;
    Ok(start.elapsed())
}
