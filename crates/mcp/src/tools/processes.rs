//! Tools for commands and background processes.

use std::collections::BTreeMap;
use std::time::Duration;

use burrow_api::{CreateExec, Exec, SendSignal, StdinMode};
use burrow_client::{UploadBody, WaitOutcome};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use super::output::{OUTPUT_BYTES_MAX, ProcessOutput, outcome_text};
use crate::paging;
use crate::results::{TextResult, ToolResult, failed, lines};
use crate::server::Server;

/// Default time to wait for a command. Several clients give up on a call after a minute.
const WAIT_SECONDS: u64 = 50;
const WAIT_SECONDS_MAX: u64 = 600;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// A command line for `/bin/sh -c`.
    #[schemars(length(min = 1, max = 131_072))]
    command: String,
    /// Absolute path of the directory to run it in.
    #[schemars(length(max = 4096))]
    workdir: Option<String>,
    /// Environment variables for this command only.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 1000))]
    env: BTreeMap<String, String>,
    /// Text for its standard input.
    #[schemars(length(max = 1_048_576))]
    input: Option<String>,
    /// How long to wait for its end; 50 if absent.
    #[schemars(range(min = 1, max = 600))]
    timeout_seconds: Option<u64>,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// A command line for `/bin/sh -c`.
    #[schemars(length(min = 1, max = 131_072))]
    command: String,
    /// Absolute path of the directory to run it in.
    #[schemars(length(max = 4096))]
    workdir: Option<String>,
    /// Environment variables for this process only.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 1000))]
    env: BTreeMap<String, String>,
    /// Keep its standard input open, for the tool `sandbox_process_input`.
    #[serde(default)]
    interactive: bool,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Output {
    /// The process id, from an earlier answer.
    #[schemars(length(min = 1, max = 63))]
    process: String,
    /// From an earlier answer; 0 if absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000_000_000_000_u64))]
    offset: u64,
    /// Bytes; 16000 if absent.
    #[schemars(range(min = 1, max = 100_000))]
    limit: Option<usize>,
    /// Wait this long for its end; 0 if absent.
    #[schemars(range(min = 0, max = 600))]
    wait_seconds: Option<u64>,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The process id, from `sandbox_process_start`.
    #[schemars(length(min = 1, max = 63))]
    process: String,
    /// Written unchanged: end a line with a newline.
    #[schemars(length(max = 1_048_576))]
    text: String,
    /// Close its standard input afterwards.
    #[serde(default)]
    close: bool,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    /// The process id, from `sandbox_run`, `sandbox_process_start` or `sandbox_process_list`.
    #[schemars(length(min = 1, max = 63))]
    process: String,
    /// `TERM`, `KILL`, `INT` …; `TERM` if absent.
    #[schemars(length(min = 1, max = 16))]
    signal: Option<String>,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Processes {
    /// Offset in a long list, from an earlier answer; 0 if absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000_000))]
    offset: usize,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ports {
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[tool_router(router = process_tools, vis = "pub(crate)")]
impl Server {
    /// Run a shell command and wait for its end. Returns the exit code and the output; of a long output both ends. A command
    /// that takes longer continues in the background.
    #[tool(annotations(title = "Run a command", destructive_hint = true, open_world_hint = true))]
    async fn sandbox_run(&self, Parameters(run): Parameters<Run>) -> ToolResult {
        let (client, sandbox) = self.which(run.sandbox).await?;
        let request = CreateExec {
            command: Some(run.command),
            workdir: run.workdir,
            env: run.env,
            input: run.input,
            ring_bytes: Some(OUTPUT_BYTES_MAX),
            ..CreateExec::default()
        };
        let exec = client.create_exec(&sandbox, &request).await.map_err(failed("run the command"))?;
        let source = ProcessOutput { client: &client, sandbox: &sandbox, process: &exec.id };
        let wait = run.timeout_seconds.unwrap_or(WAIT_SECONDS).clamp(1, WAIT_SECONDS_MAX);
        source.both_ends(&wait_for_end(source, wait).await?).await
    }

    /// Start a process that runs in the background: a server, a build, a shell. Returns its id at once.
    #[tool(annotations(
        title = "Start a background process",
        destructive_hint = true,
        open_world_hint = true
    ))]
    async fn sandbox_process_start(&self, Parameters(start): Parameters<Start>) -> TextResult {
        let (client, sandbox) = self.which(start.sandbox).await?;
        let request = CreateExec {
            command: Some(start.command),
            workdir: start.workdir,
            env: start.env,
            stdin: if start.interactive { StdinMode::Pipe } else { StdinMode::Null },
            ring_bytes: Some(OUTPUT_BYTES_MAX),
            ..CreateExec::default()
        };
        let exec = client.create_exec(&sandbox, &request).await;
        let exec = exec.map_err(failed("start the process"))?;
        Ok(format!(
            "started as process {}; `sandbox_process_output` returns its output, `sandbox_ports` the ports it listens on",
            exec.id
        ))
    }

    /// The output of a process from an offset on, unchanged, and whether it still runs.
    #[tool(annotations(title = "Read a process's output", read_only_hint = true))]
    async fn sandbox_process_output(&self, Parameters(output): Parameters<Output>) -> ToolResult {
        let (client, sandbox) = self.which(output.sandbox).await?;
        let source = ProcessOutput { client: &client, sandbox: &sandbox, process: &output.process };
        let exec = wait_for_end(source, output.wait_seconds.unwrap_or(0)).await?;
        if output.offset > exec.output_end {
            let end = exec.output_end;
            return Err(format!(
                "offset {} is beyond the end: the process has written {end} bytes",
                output.offset
            ));
        }
        source.read(&exec, output.offset, paging::limit(output.limit)).await
    }

    /// Write to the standard input of a process that was started with `interactive`.
    #[tool(annotations(title = "Write to a process", destructive_hint = true))]
    async fn sandbox_process_input(&self, Parameters(input): Parameters<Input>) -> TextResult {
        let (client, sandbox) = self.which(input.sandbox).await?;
        let (bytes, body) = (input.text.len(), UploadBody::from_bytes(input.text.into_bytes()));
        let written = client.write_stdin(&sandbox, &input.process, body, input.close).await;
        written.map_err(failed("write to the process"))?;
        Ok(format!("wrote {bytes} bytes; `sandbox_process_output` returns the process's output"))
    }

    /// Send a signal to a process and its group; ends it unless another signal is given.
    #[tool(annotations(title = "Stop a process", destructive_hint = true))]
    async fn sandbox_process_stop(&self, Parameters(stop): Parameters<Stop>) -> TextResult {
        let (client, sandbox) = self.which(stop.sandbox).await?;
        let signal = stop.signal.unwrap_or_else(|| "TERM".to_owned());
        let request = SendSignal { signal: signal.clone(), group: true };
        let sent = client.signal_exec(&sandbox, &stop.process, &request).await;
        sent.map_err(failed("signal the process"))?;
        Ok(format!("sent {signal} to {}", stop.process))
    }

    /// List the commands and processes of the sandbox, with their states and outcomes.
    #[tool(annotations(title = "List processes", read_only_hint = true))]
    async fn sandbox_process_list(&self, Parameters(wanted): Parameters<Processes>) -> TextResult {
        let (client, sandbox) = self.which(wanted.sandbox).await?;
        let execs = client.execs(&sandbox).await.map_err(failed("list the processes"))?;
        paging::page(&lines(execs.iter().map(line).collect(), "none yet"), wanted.offset)
    }

    /// List the ports that processes listen on, and the URL of each.
    #[tool(annotations(title = "List ports", read_only_hint = true))]
    async fn sandbox_ports(&self, Parameters(wanted): Parameters<Ports>) -> TextResult {
        let (client, sandbox) = self.which(wanted.sandbox).await?;
        let ports = client.ports(&sandbox).await.map_err(failed("list the ports"))?;
        let shown = |port: &burrow_api::Port| {
            let by = port.process.as_deref().unwrap_or("no process");
            let access = if port.published { "public" } else { "requires a key" };
            format!("{}  {by}  {} ({access})", port.port, port.url)
        };
        paging::page(&lines(ports.iter().map(shown).collect(), "no process listens"), 0)
    }
}

async fn wait_for_end(source: ProcessOutput<'_>, seconds: u64) -> Result<Exec, String> {
    let wait = Duration::from_secs(seconds.min(WAIT_SECONDS_MAX));
    let outcome = source.client.wait_exec(source.sandbox, source.process, Some(wait)).await;
    let (WaitOutcome::Ended(exec) | WaitOutcome::StillRunning(exec)) =
        outcome.map_err(failed("read the state of the process"))?;
    Ok(exec)
}

fn line(exec: &Exec) -> String {
    let command = exec.argv.join(" ");
    let (command, whole) = paging::beginning(&command, 200);
    format!("{}  {}  {command}{}", exec.id, outcome_text(exec), if whole { "" } else { "…" })
}
