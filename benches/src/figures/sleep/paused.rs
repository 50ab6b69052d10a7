//! An exec on a paused sandbox, which wakes it, compared with the same exec on the same sandbox while it runs.

use std::time::Instant;

use super::{Scale, argv, create, exec};
use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const TARGET: Target = Target::AtMost { limit: 5.0 };

pub(super) async fn measure(daemon: &Daemon, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let client = daemon.client()?;
    let sandbox = create(&client).await?;
    let request = argv(&["true"]);
    exec(&client, &sandbox, &request).await?;
    let (mut running, mut paused, mut added) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..scale.pauses {
        let begin = Instant::now();
        exec(&client, &sandbox, &request).await?;
        let awake = begin.elapsed();
        client.pause_sandbox(&sandbox).await.map_err(BenchError::api("pause a sandbox"))?;
        let begin = Instant::now();
        exec(&client, &sandbox, &request).await?;
        let asleep = begin.elapsed();
        running.push_ms(awake);
        paused.push_ms(asleep);
        added.push((asleep.as_secs_f64() - awake.as_secs_f64()) * 1e3);
    }
    let note = "p50 of what an exec of `true` takes longer on a paused sandbox than on the same one running";
    Ok(vec![
        Figure::median("wake_paused_added", &added, "ms", note)
            .against("the same exec, running", &running)
            .target(TARGET),
        Figure::median("wake_paused_exec", &paused, "ms", "p50 of the exec that wakes it")
            .against("the same exec, running", &running),
    ])
}
