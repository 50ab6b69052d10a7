//! Commands, and processes that go on.

use std::collections::BTreeMap;
use std::time::Duration;

use burrow_api::{CreateExec, Exec, SendSignal, StdinMode};
use burrow_client::{UploadBody, WaitOutcome};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use super::output::{KEPT_BYTES, Source, became};
use crate::cut;
use crate::said::{Said, Told, failed, lines};
use crate::server::Server;

/// How long a command is waited for, unless the model says otherwise. Several clients give up on a call after a minute.
const PATIENCE_SECONDS: u64 = 50;
const PATIENCE_SECONDS_MAX: u64 = 600;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// A line for `/bin/sh -c`.
    #[schemars(length(min = 1, max = 131_072))]
    command: String,
    /// Absolute directory to run it in.
    #[schemars(length(max = 4096))]
    workdir: Option<String>,
    /// Variables for this command only.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 1000))]
    env: BTreeMap<String, String>,
    /// Text for its standard input.
    #[schemars(length(max = 1_048_576))]
    input: Option<String>,
    /// How long to wait for its end; 50 when absent. It goes on afterwards, and `output` reads on.
    #[schemars(range(min = 1, max = 600))]
    timeout_seconds: Option<u64>,
    /// Another sandbox, by name or id, such as a fork; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// A line for `/bin/sh -c`.
    #[schemars(length(min = 1, max = 131_072))]
    command: String,
    /// Absolute directory to run it in.
    #[schemars(length(max = 4096))]
    workdir: Option<String>,
    /// Variables for this process only.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 1000))]
    env: BTreeMap<String, String>,
    /// Keep its standard input open, for `input`.
    #[serde(default)]
    interactive: bool,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Output {
    /// As `run`, `start` or `processes` told it.
    #[schemars(length(min = 1, max = 63))]
    process: String,
    /// First byte wanted, as an earlier answer told it; 0 when absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_u64))]
    offset: u64,
    /// Bytes at most; 16000 when absent.
    #[schemars(range(min = 1, max = 100_000))]
    limit: Option<usize>,
    /// Wait this long for its end first; 0 when absent.
    #[schemars(range(min = 0, max = 600))]
    wait_seconds: Option<u64>,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// As `start` told it.
    #[schemars(length(min = 1, max = 63))]
    process: String,
    /// Written as it is: end a line with a newline.
    #[schemars(length(max = 1_048_576))]
    text: String,
    /// End its input afterwards.
    #[serde(default)]
    close: bool,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    /// As `run`, `start` or `processes` told it.
    #[schemars(length(min = 1, max = 63))]
    process: String,
    /// `TERM`, `KILL`, `INT` …; `TERM` when absent.
    #[schemars(length(min = 1, max = 16))]
    signal: Option<String>,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Processes {
    /// Where to read on in a long list, as an earlier answer told it; 0 when absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000_000))]
    offset: usize,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ports {
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[tool_router(router = process_tools, vis = "pub(crate)")]
impl Server {
    /// Run a shell command and wait for its end. Answers exit code and output, standard output and error as they came; of
    /// a long output both ends, and how to read the rest. A command that takes longer goes on in the background.
    #[tool(annotations(title = "Run a command", destructive_hint = true, open_world_hint = true))]
    async fn run(&self, Parameters(run): Parameters<Run>) -> Told {
        let sandbox = self.which(run.sandbox).await?;
        let request = CreateExec {
            command: Some(run.command),
            workdir: run.workdir,
            env: run.env,
            input: run.input,
            ring_bytes: Some(KEPT_BYTES),
            ..CreateExec::default()
        };
        let client = &self.place.client;
        let begun = client.create_exec(&sandbox, &request).await.map_err(failed("run the command"))?;
        let source = Source { client, sandbox: &sandbox, process: &begun.id };
        let patience = run.timeout_seconds.unwrap_or(PATIENCE_SECONDS).clamp(1, PATIENCE_SECONDS_MAX);
        source.first_look(&waited(source, patience).await?).await
    }

    /// Start a process that goes on by itself: a server, a build, a shell. Answers its id at once.
    #[tool(annotations(
        title = "Start a background process",
        destructive_hint = true,
        open_world_hint = true
    ))]
    async fn start(&self, Parameters(start): Parameters<Start>) -> Said {
        let sandbox = self.which(start.sandbox).await?;
        let request = CreateExec {
            command: Some(start.command),
            workdir: start.workdir,
            env: start.env,
            stdin: if start.interactive { StdinMode::Pipe } else { StdinMode::Null },
            ring_bytes: Some(KEPT_BYTES),
            ..CreateExec::default()
        };
        let begun = self.place.client.create_exec(&sandbox, &request).await;
        let exec = begun.map_err(failed("start the process"))?;
        Ok(format!("started as process {}; `output` shows what it writes, `ports` where it listens", exec.id))
    }

    /// What a process has written, from a byte on, and whether it still runs. What the process wrote is the second block
    /// of the answer, to the letter.
    #[tool(annotations(title = "Read a process's output", read_only_hint = true))]
    async fn output(&self, Parameters(output): Parameters<Output>) -> Told {
        let sandbox = self.which(output.sandbox).await?;
        let source = Source { client: &self.place.client, sandbox: &sandbox, process: &output.process };
        let exec = waited(source, output.wait_seconds.unwrap_or(0)).await?;
        if output.offset > exec.output_end {
            let end = exec.output_end;
            return Err(format!(
                "the process has written {end} bytes, and offset {} is beyond them",
                output.offset
            ));
        }
        source.read_on(&exec, output.offset, cut::limit(output.limit)).await
    }

    /// Write to the standard input of a process that was started with `interactive`.
    #[tool(annotations(title = "Write to a process", destructive_hint = true))]
    async fn input(&self, Parameters(input): Parameters<Input>) -> Said {
        let sandbox = self.which(input.sandbox).await?;
        let (bytes, body) = (input.text.len(), UploadBody::from_bytes(input.text.into_bytes()));
        let written = self.place.client.write_stdin(&sandbox, &input.process, body, input.close).await;
        written.map_err(failed("write to the process"))?;
        Ok(format!("wrote {bytes} bytes; `output` shows what comes of it"))
    }

    /// Send a signal to a process and those it started; ends it unless another signal is named.
    #[tool(annotations(title = "Stop a process", destructive_hint = true))]
    async fn stop(&self, Parameters(stop): Parameters<Stop>) -> Said {
        let sandbox = self.which(stop.sandbox).await?;
        let signal = stop.signal.unwrap_or_else(|| "TERM".to_owned());
        let request = SendSignal { signal: signal.clone(), group: true };
        let sent = self.place.client.signal_exec(&sandbox, &stop.process, &request).await;
        sent.map_err(failed("signal the process"))?;
        Ok(format!("sent {signal} to {}", stop.process))
    }

    /// Commands and processes of the sandbox, with what became of them.
    #[tool(annotations(title = "List processes", read_only_hint = true))]
    async fn processes(&self, Parameters(wanted): Parameters<Processes>) -> Said {
        let sandbox = self.which(wanted.sandbox).await?;
        let execs = self.place.client.execs(&sandbox).await.map_err(failed("list the processes"))?;
        cut::page(&lines(execs.iter().map(line).collect(), "none yet"), wanted.offset)
    }

    /// Which ports processes listen on, and the URL of each.
    #[tool(annotations(title = "List ports", read_only_hint = true))]
    async fn ports(&self, Parameters(wanted): Parameters<Ports>) -> Said {
        let sandbox = self.which(wanted.sandbox).await?;
        let ports = self.place.client.ports(&sandbox).await.map_err(failed("list the ports"))?;
        let shown = |port: &burrow_api::Port| {
            let by = port.process.as_deref().unwrap_or("nothing listens");
            let who = if port.published { "anybody" } else { "whoever has a key" };
            format!("{}  {by}  {} (for {who})", port.port, port.url)
        };
        cut::page(&lines(ports.iter().map(shown).collect(), "nothing listens"), 0)
    }
}

async fn waited(source: Source<'_>, seconds: u64) -> Result<Exec, String> {
    let patience = Duration::from_secs(seconds.min(PATIENCE_SECONDS_MAX));
    let waited = source.client.wait_exec(source.sandbox, source.process, Some(patience)).await;
    let (WaitOutcome::Ended(exec) | WaitOutcome::StillRunning(exec)) =
        waited.map_err(failed("look at the process"))?;
    Ok(exec)
}

fn line(exec: &Exec) -> String {
    let command = exec.argv.join(" ");
    let (command, whole) = cut::beginning(&command, 200);
    format!("{}  {}  {command}{}", exec.id, became(exec), if whole { "" } else { "…" })
}
