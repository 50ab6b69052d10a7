//! From sending a create request to the first exec's output, compared with `crun run … true` on the same root file
//! system.
//!
//! Two series. *Consecutive*: creates one after the other without a pause, so that creating the networks that a create
//! takes from their pool is included; half of crun's runs are before it and half after. *Interleaved*: one of ours, then
//! one of each of crun's two modes, alternately, so that the noise is the same for all.

use std::time::Instant;

use burrow_client::Client;

use super::{Scale, argv, create, exec};
use crate::crun::{Crun, Limits};
use crate::daemon::{BenchSetup, Daemon};
use crate::error::BenchError;
use crate::report::{Figure, Target};
use crate::samples::Samples;

/// Warm-up runs of each side: page cache, first connections.
const WARM_UP: u32 = 3;
const TARGET: Target = Target::RatioAtMost { limit: 1.5, wish: 0.7 };
const PEER: &str = "crun run … true, without control groups";
const PEER_LIMITED: &str = "crun run … true, with limits";

#[derive(Debug, Default)]
struct Series {
    whole: Samples,
    create: Samples,
    exec: Samples,
}

pub(super) async fn measure(
    daemon: &Daemon,
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let client = daemon.client()?;
    let mut crun = Crun::prepare(prepared)?;
    for _ in 0..WARM_UP {
        ours(&client, &mut Series::default()).await?;
        crun.run_true(Limits::Skipped)?;
        crun.run_true(Limits::Set)?;
    }

    let (mut series, mut around) = (Series::default(), Samples::default());
    for _ in 0..scale.creates.div_ceil(2) {
        around.push_ms(crun.run_true(Limits::Skipped)?);
    }
    for _ in 0..scale.creates {
        ours(&client, &mut series).await?;
    }
    for _ in 0..scale.creates.div_ceil(2) {
        around.push_ms(crun.run_true(Limits::Skipped)?);
    }

    let (mut mixed, mut between, mut limited) = (Series::default(), Samples::default(), Samples::default());
    for _ in 0..scale.creates {
        ours(&client, &mut mixed).await?;
        between.push_ms(crun.run_true(Limits::Skipped)?);
        limited.push_ms(crun.run_true(Limits::Set)?);
    }
    Ok(figures(&series, &around, &mixed, &between, &limited))
}

async fn ours(client: &Client, series: &mut Series) -> Result<(), BenchError> {
    let request = argv(&["echo", "ready"]);
    let begin = Instant::now();
    let sandbox = create(client).await?;
    let created = begin.elapsed();
    let result = exec(client, &sandbox, &request).await?;
    let whole = begin.elapsed();
    if result.stdout != "ready\n" {
        return Err(BenchError::WrongAnswer { what: format!("echo wrote {:?}", result.stdout) });
    }
    series.whole.push_ms(whole);
    series.create.push_ms(created);
    series.exec.push_ms(whole - created);
    Ok(())
}

fn figures(
    series: &Series,
    around: &Samples,
    mixed: &Series,
    between: &Samples,
    limited: &Samples,
) -> Vec<Figure> {
    let note =
        "p50 from sending the create to holding the output of `echo`, creates without a pause between them";
    let mixed_note = "the same, alternating with crun";
    vec![
        Figure::median("create_to_output", &series.whole, "ms", note).against(PEER, around).target(TARGET),
        Figure::median("create_to_output_interleaved", &mixed.whole, "ms", mixed_note)
            .against(PEER, between)
            .target(TARGET),
        Figure::median("create_to_output_limits", &mixed.whole, "ms", mixed_note)
            .against(PEER_LIMITED, limited),
        Figure::median("create_alone", &series.create, "ms", "the create's part of create_to_output"),
        Figure::median("first_exec_alone", &series.exec, "ms", "the exec's part of create_to_output"),
        Figure::median("peer_crun_run", between, "ms", "the peer itself, interleaved"),
    ]
}
