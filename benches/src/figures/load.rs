//! Eight concurrent clients: creates per second, and requests per second for the description of one sandbox.

use std::time::Instant;

use super::{Scale, at_once, create};
use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::report::Figure;
use crate::samples::Samples;
use crate::wire::Wire;

const CLIENTS: u32 = 8;

pub(super) async fn measure(daemon: &Daemon, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let sandbox = create(&daemon.client()?).await?;
    let mut figures = creates(daemon, scale.load_creates / CLIENTS).await?;
    figures.extend(requests(daemon, &sandbox, scale.load_requests / CLIENTS).await?);
    Ok(figures)
}

async fn creates(daemon: &Daemon, each: u32) -> Result<Vec<Figure>, BenchError> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = daemon.client()?;
        clients.push(async move {
            let mut samples = Samples::default();
            for _ in 0..each {
                let begin = Instant::now();
                create(&client).await?;
                samples.push_ms(begin.elapsed());
            }
            Ok(samples)
        });
    }
    let begin = Instant::now();
    let samples = together(&at_once(clients).await?);
    let rate = f64::from(each * CLIENTS) / begin.elapsed().as_secs_f64();
    Ok(vec![
        Figure::new(
            "create_rate_8_clients",
            rate,
            "1/s",
            "creates answered per second, 8 clients, no pauses",
        ),
        Figure::median("create_8_clients_p50", &samples, "ms", "one create among them"),
        Figure::p99("create_8_clients_p99", &samples, "ms", "one create among them"),
    ])
}

async fn requests(daemon: &Daemon, sandbox: &str, each: u32) -> Result<Vec<Figure>, BenchError> {
    let path = format!("/v1/sandboxes/{sandbox}");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut wire = Wire::connect(daemon, &path).await?;
        clients.push(async move {
            let mut samples = Samples::default();
            for _ in 0..each {
                let begin = Instant::now();
                wire.ask().await?;
                samples.push_ms(begin.elapsed());
            }
            Ok(samples)
        });
    }
    let begin = Instant::now();
    let samples = together(&at_once(clients).await?);
    let rate = f64::from(each * CLIENTS) / begin.elapsed().as_secs_f64();
    Ok(vec![
        Figure::new("api_rate_8_connections", rate, "1/s", "GET of one sandbox, 8 kept-alive connections"),
        Figure::median("api_8_connections_p50", &samples, "ms", "one request among them"),
        Figure::p99("api_8_connections_p99", &samples, "ms", "one request among them"),
    ])
}

fn together(parts: &[Samples]) -> Samples {
    let mut all = Samples::default();
    parts.iter().for_each(|part| all.extend(part));
    all
}
