//! An exec of `true` over HTTP on a kept-alive connection, compared with `crun exec` in a running container of crun.

use std::time::Instant;

use super::{Scale, argv, create, exec};
use crate::crun::{Crun, Limits};
use crate::daemon::{BenchSetup, Daemon};
use crate::error::BenchError;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const WARM_UP: u32 = 5;

pub(super) async fn measure(
    daemon: &Daemon,
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let client = daemon.client()?;
    let sandbox = create(&client).await?;
    let mut crun = Crun::prepare(prepared)?;
    let peer = crun.start_sleeping(Limits::Skipped)?;
    let request = argv(&["true"]);
    for _ in 0..WARM_UP {
        exec(&client, &sandbox, &request).await?;
        crun.exec_true(Limits::Skipped, &peer)?;
    }
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..scale.execs {
        let begin = Instant::now();
        exec(&client, &sandbox, &request).await?;
        ours.push_ms(begin.elapsed());
        theirs.push_ms(crun.exec_true(Limits::Skipped, &peer)?);
    }
    let note = "p50 of POST execs with wait, `true`, alternating with crun";
    Ok(vec![
        Figure::median("exec", &ours, "ms", note)
            .against("crun exec … true", &theirs)
            .target(Target::RatioAtMost { limit: 0.5, wish: 0.5 }),
        Figure::median("peer_crun_exec", &theirs, "ms", "the peer itself"),
    ])
}
