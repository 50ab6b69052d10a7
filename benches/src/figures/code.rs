//! Code in an existing context, through the daemon; compared with `jupyter_client` beside its own kernel, in the same
//! sandbox.

use std::time::Instant;

use burrow_api::{CodeRun, CodeRunStatus, CreateSandbox, RunCode};
use burrow_client::Client;

use super::{Scale, argv, exec};
use crate::daemon::{BenchSetup, Daemon, Kind};
use crate::error::BenchError;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const WARM_UP: u32 = 10;

/// Rounds in which the two alternate, because machines are noisier over minutes than over seconds.
const ROUNDS: u32 = 5;

/// Prints the seconds of each run, one per line: sent to the kernel and awaited as libraries do it.
const PEER: &str = include_str!("code.py");

pub(super) async fn measure(prepared: &BenchSetup, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let daemon = Daemon::start(prepared, Kind::Code).await?;
    let client = daemon.client()?;
    let request = CreateSandbox { image: Some("python-interpreter".to_owned()), ..CreateSandbox::default() };
    let sandbox = client.create_sandbox(&request).await.map_err(BenchError::api("create a sandbox"))?.id;
    let began = Instant::now();
    run(&client, &sandbox).await?;
    let first = began.elapsed().as_secs_f64() * 1000.0;
    let each = (scale.execs / ROUNDS).max(1);
    for _ in 0..WARM_UP {
        run(&client, &sandbox).await?;
    }
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        for _ in 0..each {
            let began = Instant::now();
            run(&client, &sandbox).await?;
            ours.push_ms(began.elapsed());
        }
        let runs = (each + WARM_UP).to_string();
        let printed = exec(&client, &sandbox, &argv(&["python3", "-c", PEER, &runs])).await?.stdout;
        let times = printed.lines().filter_map(|line| line.parse::<f64>().ok());
        times.skip(WARM_UP as usize).for_each(|seconds| theirs.push(seconds * 1000.0));
    }
    daemon.finish().await?;
    Ok(vec![
        Figure::median("code.run", &ours, "ms", "p50 of `1+1` in a warm context, by POST …/run with wait")
            .against("jupyter_client", &theirs)
            .target(Target::RatioAtMost { limit: 2.0, wish: 2.0 }),
        Figure::median("peer_jupyter_client", &theirs, "ms", "the peer itself, inside the sandbox"),
        Figure::new("code.first", first, "ms", "the first run of a sandbox: bridge and kernel start for it"),
    ])
}

async fn run(client: &Client, sandbox: &str) -> Result<CodeRun, BenchError> {
    let request = RunCode { code: "1+1".to_owned(), ..RunCode::default() };
    let run = client.run_code_to_end(sandbox, "default", &request).await;
    let run = run.map_err(BenchError::api("run code"))?;
    match (run.status, run.results.first().and_then(|result| result.text.as_deref())) {
        (CodeRunStatus::Ok, Some("2")) => Ok(run),
        _ => Err(BenchError::WrongAnswer { what: format!("1+1 came to {run:?}") }),
    }
}
