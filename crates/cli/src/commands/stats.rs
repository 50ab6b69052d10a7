//! `burrow stats`: resource usage of sandboxes.

use std::collections::HashMap;

use burrow_api::{SandboxState, Stats};
use burrow_client::SandboxQuery;
use tokio::time::Instant;

use super::ls::short;
use crate::commands::prelude::*;

const REFRESH: Duration = Duration::from_secs(1);

/// Show resource usage: processor, RAM, disk, processes
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Refresh every second, with processor usage in percent
    #[arg(short = 'f', long)]
    follow: bool,
    /// Sandboxes; all running sandboxes by default
    #[arg(value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: StatsArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let mut before: HashMap<String, (u64, Instant)> = HashMap::new();
    loop {
        let all = collect(&client, &args.sandboxes).await?;
        match (args.format.json, args.follow) {
            (true, true) => print::json::compact(&all)?,
            (true, false) => print::json::pretty(&all)?,
            (false, _) => show(&all, &before, args.follow)?,
        }
        if !args.follow {
            return Ok(());
        }
        before = all.iter().map(|stats| (stats.id.clone(), (stats.cpu_us, Instant::now()))).collect();
        tokio::time::sleep(REFRESH).await;
    }
}

async fn collect(client: &Client, given: &[String]) -> Result<Vec<Stats>, Stop> {
    let mut all = Vec::new();
    if given.is_empty() {
        let query = SandboxQuery { labels: Vec::new(), state: Some(SandboxState::Running) };
        let running = client.all_sandboxes(&query).await.or_fail("could not list sandboxes")?;
        for sandbox in running {
            // A sandbox that was deleted meanwhile is skipped.
            if let Ok(stats) = client.stats(&sandbox.id).await {
                all.push(stats);
            }
        }
        return Ok(all);
    }
    for sandbox in given {
        let stats = client.stats(sandbox).await;
        all.push(stats.or_fail(|| format!("could not read the statistics of sandbox `{sandbox}`"))?);
    }
    Ok(all)
}

fn show(all: &[Stats], before: &HashMap<String, (u64, Instant)>, follow: bool) -> Result<(), Stop> {
    let header = &["ID", "CPU", "CPU TIME", "RAM", "DISK", "PROCESSES", "EXECS", "RECEIVED", "SENT", "UP"];
    let text = table::of(header, all, |stats| row(stats, before.get(&stats.id)));
    if follow && std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        // Cursor home, then clear to the end: the table replaces the last one without flicker.
        return print::data(&format!("\u{1b}[H\u{1b}[J{text}"));
    }
    print::data(&text)
}

fn row(stats: &Stats, before: Option<&(u64, Instant)>) -> Vec<String> {
    let share = before.map_or_else(
        || "-".to_owned(),
        |(cpu_us, at)| {
            let used = stats.cpu_us.saturating_sub(*cpu_us) as f64;
            let passed = at.elapsed().as_micros().max(1) as f64;
            format!("{:.0}%", used / passed * 100.0)
        },
    );
    vec![
        short(&stats.id),
        share,
        quantity::seconds(stats.cpu_us),
        format!("{} / {}", quantity::bytes(stats.ram_bytes), quantity::bytes(stats.ram_limit_bytes)),
        format!("{} / {}", quantity::bytes(stats.disk_used_bytes), quantity::bytes(stats.disk_limit_bytes)),
        stats.processes.to_string(),
        stats.execs_running.to_string(),
        quantity::bytes(stats.network_received_bytes),
        quantity::bytes(stats.network_sent_bytes),
        if stats.state == SandboxState::Running {
            quantity::age(0, stats.uptime_ms)
        } else {
            stats.state.as_str().to_owned()
        },
    ]
}
