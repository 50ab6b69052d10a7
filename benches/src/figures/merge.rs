//! Diffs and merges: of a fork of a large tree and of a small one, compared with `diff -rq` and `cp`, alternately.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use burrow_api::{DiffRequest, ForkSandbox, MergeSandbox};
use burrow_client::Client;

use super::{Scale, argv, create, exec};
use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::process::run;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const AGAINST_SMALL: Target = Target::RatioAtMost { limit: 3.0, wish: 1.5 };
const AGAINST_DIFF: Target = Target::RatioAtMost { limit: 0.05, wish: 0.02 };
const AGAINST_CP: Target = Target::RatioAtMost { limit: 2.0, wish: 1.0 };
/// Warm-up rounds.
const WARM_UP: u32 = 1;
/// Files that a fork changes before it is compared.
const CHANGED: usize = 10;
const SMALL: usize = 100;
/// Files per merge, and their size.
const MERGED: usize = 1_000;
const MERGED_BYTES: usize = 4096;

const FILL: &str = "import os, sys
for at in range(int(sys.argv[1])):
    folder = f'/srv/files/{at // 1000}'
    if at % 1000 == 0: os.makedirs(folder)
    with open(f'{folder}/{at}', 'w') as file: file.write(f'{at} ' * 50)
os.sync()";

const CHANGE: &str = "import sys
for at in range(int(sys.argv[1])):
    with open(f'/srv/files/{at // 1000}/{at}', 'w') as file: file.write('changed')";

pub(super) async fn measure(daemon: &Daemon, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let client = daemon.client()?;
    let (small, small_child) = family(&client, SMALL).await?;
    let (large, large_child) = family(&client, scale.sleep_files).await?;
    let (mut ours, mut few, mut walked) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..WARM_UP + scale.snapshots.min(10) {
        let times = [diff(&client, &large, &large_child).await?, diff(&client, &small, &small_child).await?];
        if round >= WARM_UP {
            [&mut ours, &mut few].into_iter().zip(times).for_each(|(samples, time)| samples.push_ms(time));
        }
    }
    let root = |sandbox: &str| daemon.place().pool.join("sandboxes").join(sandbox).join("rootfs/srv");
    for round in 0..WARM_UP + 2 {
        let elapsed = walk(&root(&large), &root(&large_child))?;
        if round >= WARM_UP {
            walked.push_ms(elapsed);
        }
    }
    let (mut merged, mut copied) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + scale.snapshots.min(10) {
        let (parent, child) = workers(&client).await?;
        let elapsed = merge(&client, &parent, &child).await?;
        let floor = copy(&root(&child).join("work"), &root(&parent).join("copied"))?;
        if round >= WARM_UP {
            merged.push_ms(elapsed);
            copied.push_ms(floor);
        }
        for sandbox in [&child, &parent] {
            delete(&client, sandbox).await?;
        }
    }
    for sandbox in [&small_child, &small, &large_child, &large] {
        delete(&client, sandbox).await?;
    }
    Ok(vec![
        Figure::median("diff_large", &ours, "ms", "p50 of a diff of a fork that changed 10 of 100,000 files")
            .against("10 of 100 files", &few)
            .target(AGAINST_SMALL),
        Figure::median("diff_against_walk", &ours, "ms", "the same")
            .against("diff -rq on both trees", &walked)
            .target(AGAINST_DIFF),
        Figure::median(
            "merge",
            &merged,
            "ms",
            "p50 of a merge of 1,000 changed files into a sandbox that runs",
        )
        .against("cp -a of them, synced", &copied)
        .target(AGAINST_CP),
    ])
}

/// A sandbox with files, and a fork of it that changed a few.
async fn family(client: &Client, files: usize) -> Result<(String, String), BenchError> {
    let parent = create(client).await?;
    exec(client, &parent, &argv(&["python3", "-c", FILL, &files.to_string()])).await?;
    let child = fork(client, &parent).await?;
    exec(client, &child, &argv(&["python3", "-c", CHANGE, &CHANGED.to_string()])).await?;
    Ok((parent, child))
}

/// With the snapshots that forks and merges took of it.
async fn delete(client: &Client, sandbox: &str) -> Result<(), BenchError> {
    client.delete_sandbox_with_snapshots(sandbox).await.map_err(BenchError::api("delete a sandbox"))
}

async fn fork(client: &Client, parent: &str) -> Result<String, BenchError> {
    let request = ForkSandbox { files_only: true, ..ForkSandbox::default() };
    let forked = client.fork_sandbox(parent, &request).await.map_err(BenchError::api("fork a sandbox"))?;
    let child = forked.children.into_iter().next();
    child.map(|child| child.id).ok_or(BenchError::WrongAnswer { what: "a fork without a child".to_owned() })
}

async fn diff(client: &Client, parent: &str, child: &str) -> Result<Duration, BenchError> {
    let globs = vec!["/srv".to_owned()];
    let request =
        DiffRequest { from: parent.to_owned(), to: child.to_owned(), globs, ..DiffRequest::default() };
    let begin = Instant::now();
    let diff = client.diff(&request).await.map_err(BenchError::api("compare two sandboxes"))?;
    let elapsed = begin.elapsed();
    if diff.changed != CHANGED as u64 {
        return Err(BenchError::WrongAnswer { what: format!("{} files changed", diff.changed) });
    }
    Ok(elapsed)
}

fn walk(one: &PathBuf, other: &PathBuf) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    // It exits 1 when there are differences, which is expected here.
    let mut command = Command::new("sh");
    command
        .args(["-c", "diff -rq --no-dereference \"$0\" \"$1\" > /dev/null; test $? -le 1"])
        .arg(one)
        .arg(other);
    run(&mut command)?;
    Ok(begin.elapsed())
}

/// A parent with a thousand files, and a fork that changed all of them.
async fn workers(client: &Client) -> Result<(String, String), BenchError> {
    let parent = create(client).await?;
    let write = |word: &str| {
        format!(
            "import os; os.makedirs('/srv/work', exist_ok=True)
for at in range({MERGED}): open(f'/srv/work/{{at}}', 'w').write(('{word}%d' % at).ljust({MERGED_BYTES}))
os.sync()"
        )
    };
    exec(client, &parent, &argv(&["python3", "-c", &write("old")])).await?;
    let child = fork(client, &parent).await?;
    exec(client, &child, &argv(&["python3", "-c", &write("new")])).await?;
    Ok((parent, child))
}

async fn merge(client: &Client, parent: &str, child: &str) -> Result<Duration, BenchError> {
    let request = MergeSandbox { child: child.to_owned(), ..MergeSandbox::default() };
    let begin = Instant::now();
    let merged = client.merge_sandbox(parent, &request).await.map_err(BenchError::api("merge a fork"))?;
    let elapsed = begin.elapsed();
    if !merged.applied || merged.total < MERGED as u64 {
        return Err(BenchError::WrongAnswer { what: format!("a merge of {} paths", merged.total) });
    }
    Ok(elapsed)
}

/// The same files as a plain copy, synced as well.
fn copy(from: &PathBuf, to: &PathBuf) -> Result<Duration, BenchError> {
    let mut command = Command::new("sh");
    command.args(["-c", "cp -a \"$0\" \"$1\" && sync -f \"$1\""]).arg(from).arg(to);
    let begin = Instant::now();
    run(&mut command)?;
    let elapsed = begin.elapsed();
    fs::remove_dir_all(to).map_err(BenchError::io("remove", to.display()))?;
    Ok(elapsed)
}
