//! Reading and writing a large file through the API, compared with `cat` through a pipe, and the effect on the daemon.
//!
//! The baselines. Reading: `cat FILE | cat > /dev/null`, with the same file of the sandbox, in the page cache. Writing:
//! `cat FILE | cat > OTHER`, with the file in the page cache, to a new file on the same file system. Neither side waits
//! for the disk; written data is flushed between measurements, outside of the measured time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use burrow_client::{Client, UploadBody, UploadOptions};
use bytes::Bytes;
use futures_util::stream;

use super::{Scale, create};
use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::process::{peak_kib, reset_peak, rss_kib};
use crate::report::{Figure, Target};
use crate::samples::Samples;

/// Chunk size of the uploading client.
const CHUNK_BYTES: usize = 256 << 10;
const MIB: usize = 1 << 20;
const INSIDE: &str = "/root/large.bin";
const RATIO: Target = Target::RatioAtLeast { limit: 0.5 };

pub(super) async fn measure(daemon: &Daemon, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let client = daemon.client()?;
    let sandbox = create(&client).await?;
    let host = Host::new(daemon, &sandbox, scale.file_mib);
    upload(&client, &sandbox, scale.file_mib).await?;
    host.settle()?;
    // Reads every page into the cache, charged to our cgroup: a sandbox's limit is smaller than this file.
    host.read()?;
    download(&client, &sandbox, scale.file_mib).await?;

    let before = rss_kib(daemon.pid())?;
    reset_peak(daemon.pid())?;
    let (mut reads, mut read_floor) = (Samples::default(), Samples::default());
    for _ in 0..scale.file_rounds {
        read_floor.push(host.rate(host.read()?));
        reads.push(host.rate(download(&client, &sandbox, scale.file_mib).await?));
    }
    let (mut writes, mut write_floor) = (Samples::default(), Samples::default());
    for _ in 0..scale.file_rounds {
        write_floor.push(host.rate(host.write()?));
        host.settle()?;
        writes.push(host.rate(upload(&client, &sandbox, scale.file_mib).await?));
        host.settle()?;
    }
    let growth = peak_kib(daemon.pid())?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "memory in KiB is far below 2^52")]
    let growth = growth as f64 / 1024.0;
    let note = "most that was resident during all reads and writes, less what was before";
    Ok(vec![
        Figure::median("file_read", &reads, "MiB/s", "p50 of GET files of 1 GiB in the page cache")
            .against("cat FILE | cat > /dev/null", &read_floor)
            .target(RATIO),
        Figure::median("file_write", &writes, "MiB/s", "p50 of PUT files of 1 GiB, not synced")
            .against("cat FILE | cat > OTHER on the same btrfs", &write_floor)
            .target(RATIO),
        Figure::new("file_daemon_rss_growth", growth, "MiB", note).target(Target::Below { limit: 32.0 }),
    ])
}

async fn upload(client: &Client, sandbox: &str, mib: usize) -> Result<Duration, BenchError> {
    let chunk = Bytes::from((0..CHUNK_BYTES).map(|index| (index * 31 % 251) as u8).collect::<Vec<u8>>());
    let count = mib * MIB / CHUNK_BYTES;
    let body = UploadBody::from_stream(
        stream::iter(std::iter::repeat_n(chunk, count).map(Ok)),
        Some((count * CHUNK_BYTES) as u64),
    );
    let begin = Instant::now();
    let entry = client.upload(sandbox, INSIDE, &UploadOptions::default(), body).await;
    let elapsed = begin.elapsed();
    check_size(entry.map_err(BenchError::api("write a file"))?.size, mib)?;
    Ok(elapsed)
}

async fn download(client: &Client, sandbox: &str, mib: usize) -> Result<Duration, BenchError> {
    let failed = || BenchError::api("read a file");
    let begin = Instant::now();
    let mut download = client.download(sandbox, INSIDE, None).await.map_err(failed())?;
    let mut size = 0;
    while let Some(chunk) = download.bytes.chunk().await.map_err(failed())? {
        size += chunk.len() as u64;
    }
    let elapsed = begin.elapsed();
    check_size(size, mib)?;
    Ok(elapsed)
}

fn check_size(size: u64, mib: usize) -> Result<(), BenchError> {
    if size == (mib * MIB) as u64 {
        return Ok(());
    }
    Err(BenchError::WrongAnswer { what: format!("{size} bytes of a file of {mib} MiB") })
}

/// The same file by its path on the host, for the baselines.
struct Host {
    file: PathBuf,
    other: PathBuf,
    mib: usize,
}

impl Host {
    fn new(daemon: &Daemon, sandbox: &str, mib: usize) -> Self {
        let pool = &daemon.place().pool;
        let file = pool.join("sandboxes").join(sandbox).join("rootfs").join(INSIDE.trim_start_matches('/'));
        Self { file, other: pool.join("floor.bin"), mib }
    }

    fn rate(&self, elapsed: Duration) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a file has few MiB")]
        let mib = self.mib as f64;
        mib / elapsed.as_secs_f64()
    }

    fn read(&self) -> Result<Duration, BenchError> {
        cat(&self.file, Path::new("/dev/null"))
    }

    /// Written to a new file, like an upload, which writes beside the old file and renames.
    fn write(&self) -> Result<Duration, BenchError> {
        let _ = fs::remove_file(&self.other);
        cat(&self.file, &self.other)
    }

    /// Waits until all writes are on the disk, so that no measurement pays for another's writes.
    fn settle(&self) -> Result<(), BenchError> {
        let folder = self.other.parent().expect("it is in the pool");
        let file = File::open(folder).map_err(BenchError::io("open", folder.display()))?;
        rustix::fs::syncfs(file).map_err(|error| BenchError::io("sync", folder.display())(error.into()))
    }
}

/// `cat FROM | cat > TO`.
fn cat(from: &Path, to: &Path) -> Result<Duration, BenchError> {
    let source = File::open(from).map_err(BenchError::io("open", from.display()))?;
    let sink = File::options().write(true).create(true).truncate(true).open(to);
    let sink = sink.map_err(BenchError::io("open", to.display()))?;
    let begin = Instant::now();
    let mut first = Command::new("cat")
        .stdin(source)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(BenchError::io("start", "cat"))?;
    let pipe = first.stdout.take().expect("it was asked for");
    let mut second =
        Command::new("cat").stdin(pipe).stdout(sink).spawn().map_err(BenchError::io("start", "cat"))?;
    for child in [&mut first, &mut second] {
        let status = child.wait().map_err(BenchError::io("wait for", "cat"))?;
        if !status.success() {
            let message = String::new();
            return Err(BenchError::Command { command: format!("cat {}", from.display()), status, message });
        }
    }
    Ok(begin.elapsed())
}
