//! The latency that common clients see: E2B's `commands.run`, MCP's `run`, ten mebibytes of output through each surface,
//! and a hundred concurrent clients of our SDK. The clients are the real ones, so a Python program measures.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::Scale;
use crate::daemon::{BenchSetup, Daemon};
use crate::error::BenchError;
use crate::process::run;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const PROGRAM: &str = include_str!("surfaces.py");

/// The folder of our SDK in a checkout.
const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/python/src");

#[derive(Debug, Deserialize)]
struct Measurements {
    /// Milliseconds per call, by surface.
    took: BTreeMap<String, Vec<f64>>,
    /// Peak growth of the daemon in mebibytes while it passed on ten mebibytes of output, by surface.
    growth: BTreeMap<String, f64>,
    many: ManyClients,
}

#[derive(Debug, Deserialize)]
struct ManyClients {
    errors: u32,
    /// Some of the errors, as text.
    first: Vec<String>,
    seconds: f64,
    /// Names of sandboxes that answered.
    distinct: u32,
}

pub(super) async fn measure(
    daemon: &Daemon,
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let Some(python) = prepared.clients.clone() else {
        eprintln!("  no Python with `e2b` and `mcp` was given: left out");
        return Ok(Vec::new());
    };
    let arguments = [
        format!("http://{}", daemon.address()),
        daemon.key().to_owned(),
        prepared.burrow.display().to_string(),
        daemon.pid().to_string(),
        scale.execs.to_string(),
        scale.clients.to_string(),
    ];
    let answer = tokio::task::spawn_blocking(move || ask(&python, &arguments))
        .await
        .expect("a measuring task does not panic")?;
    figures(&answer, scale)
}

/// Blocks until the measurement is complete.
fn ask(python: &Path, arguments: &[String]) -> Result<Measurements, BenchError> {
    let printed = run(Command::new(python).env("PYTHONPATH", SDK).args(["-c", PROGRAM]).args(arguments))?;
    serde_json::from_str(printed.lines().last().unwrap_or_default())
        .map_err(|source| BenchError::WrongAnswer { what: format!("the clients' answer: {source}") })
}

fn figures(answer: &Measurements, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let took = |surface: &str| -> Result<Samples, BenchError> {
        let times = answer.took.get(surface).ok_or_else(|| missing(surface))?;
        let mut samples = Samples::default();
        times.iter().for_each(|time| samples.push(*time));
        Ok(samples)
    };
    let growth = |surface: &str| answer.growth.get(surface).copied().ok_or_else(|| missing(surface));
    // Less than the passed-on output: it is not buffered as a whole.
    let streamed = Target::Below { limit: 10.0 };
    let http = took("http")?;
    let many = &answer.many;
    many.first.iter().for_each(|error| eprintln!("  {error}"));
    if many.errors == 0 && many.distinct != scale.clients {
        let what = format!("{} clients met {} sandboxes", scale.clients, many.distinct);
        return Err(BenchError::WrongAnswer { what });
    }
    Ok(vec![
        Figure::median(
            "surface.e2b.run",
            &took("e2b")?,
            "ms",
            "p50 of E2B's commands.run of `true`, in Python",
        )
        .against("POST execs by http.client", &http)
        .target(Target::RatioAtMost { limit: 3.0, wish: 3.0 }),
        Figure::median("surface.sdk.run", &took("sdk")?, "ms", "p50 of our Python SDK's run of `true`")
            .against("POST execs by http.client", &http),
        Figure::median(
            "surface.mcp.stdio",
            &took("mcp_stdio")?,
            "ms",
            "p50 of MCP's run of `true`, over stdio",
        ),
        Figure::median("surface.mcp.http", &took("mcp_http")?, "ms", "p50 of MCP's run of `true`, over HTTP"),
        Figure::new("surface.e2b.much", growth("e2b")?, "MiB", MUCH).target(streamed),
        Figure::new("surface.sdk.much", growth("sdk")?, "MiB", MUCH).target(streamed),
        Figure::new("surface.cli.much", growth("cli")?, "MiB", MUCH).target(streamed),
        Figure::new("surface.mcp.much", growth("mcp")?, "MiB", MUCH).target(streamed),
        Figure::new(
            "surface.many.errors",
            f64::from(many.errors),
            "",
            "of clients with a sandbox each, at once",
        )
        .target(Target::AtMost { limit: 0.0 }),
        Figure::new(
            "surface.many",
            many.seconds,
            "s",
            "until all clients had made, used and removed a sandbox",
        ),
    ])
}

const MUCH: &str = "what the daemon grew at most by passing on 10 MiB of output, whole";

fn missing(surface: &str) -> BenchError {
    BenchError::WrongAnswer { what: format!("the clients told nothing of {surface}") }
}
