//! Pause and resume of a running sandbox through the API.

use std::time::Instant;

use super::{Scale, argv, create, exec};
use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const TARGET: Target = Target::Below { limit: 5.0 };

pub(super) async fn measure(daemon: &Daemon, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let client = daemon.client()?;
    let sandbox = create(&client).await?;
    exec(&client, &sandbox, &argv(&["true"])).await?;
    let (mut pauses, mut resumes) = (Samples::default(), Samples::default());
    for _ in 0..scale.pauses {
        let begin = Instant::now();
        client.pause_sandbox(&sandbox).await.map_err(BenchError::api("pause a sandbox"))?;
        pauses.push_ms(begin.elapsed());
        let begin = Instant::now();
        client.resume_sandbox(&sandbox).await.map_err(BenchError::api("resume a sandbox"))?;
        resumes.push_ms(begin.elapsed());
    }
    // It must still be alive, otherwise nothing was measured.
    exec(&client, &sandbox, &argv(&["true"])).await?;
    Ok(vec![
        Figure::median("pause", &pauses, "ms", "p50 of POST pause").target(TARGET),
        Figure::median("resume", &resumes, "ms", "p50 of POST resume").target(TARGET),
    ])
}
