//! Commands, and processes that go on.

use std::collections::BTreeMap;
use std::time::Duration;

use burrow_api::{CreateExec, Exec, ExecState, OutputChunk, SendSignal, StdinMode};
use burrow_client::{Client, OutputQuery, UploadBody, WaitOutcome};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::cut::{self, SHOWN, SHOWN_MAX};
use crate::said::{Said, failed};
use crate::server::Server;

/// How long a command is waited for, unless the model says otherwise.
const PATIENCE_SECONDS: u64 = 120;
const PATIENCE_SECONDS_MAX: u64 = 3600;

/// Bytes read of an output at once, of which the ends are shown.
const READ_MAX: usize = 4 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// A line for `/bin/sh -c`.
    command: String,
    /// Absolute directory to run it in.
    workdir: Option<String>,
    /// Variables for this command only.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Text for its standard input.
    input: Option<String>,
    /// How long to wait for its end; 120 when absent. It goes on afterwards, and `output` reads on.
    #[schemars(range(min = 1, max = 3600))]
    timeout_seconds: Option<u64>,
    /// Another sandbox, by name or id, such as a fork; your own when absent.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// A line for `/bin/sh -c`.
    command: String,
    workdir: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Keep its standard input open, for `input`.
    #[serde(default)]
    interactive: bool,
    /// Another sandbox, by name or id; your own when absent.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Output {
    /// As `run`, `start` or `processes` told it.
    process: String,
    /// First byte wanted, as an earlier answer told it; 0 when absent.
    #[serde(default)]
    offset: u64,
    /// Bytes at most; 16000 when absent.
    #[schemars(range(min = 1, max = 100_000))]
    limit: Option<usize>,
    /// Wait this long for its end first; 0 when absent.
    #[schemars(range(max = 3600))]
    wait_seconds: Option<u64>,
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    process: String,
    /// Written as it is: end a line with a newline.
    text: String,
    /// End its input afterwards.
    #[serde(default)]
    close: bool,
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Signal {
    process: String,
    /// `TERM`, `KILL`, `INT` …; `TERM` when absent.
    signal: Option<String>,
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Where {
    /// Another sandbox, by name or id; your own when absent.
    sandbox: Option<String>,
}

#[tool_router(router = process_tools, vis = "pub(crate)")]
impl Server {
    /// Run a shell command and wait for its end. Answers exit code and output; a command that takes longer goes on in the
    /// background.
    #[tool(annotations(title = "Run a command", destructive_hint = true, open_world_hint = true))]
    async fn run(&self, Parameters(run): Parameters<Run>) -> Said {
        let sandbox = self.which(run.sandbox).await?;
        let request = CreateExec {
            command: Some(run.command),
            workdir: run.workdir,
            env: run.env,
            input: run.input,
            ..CreateExec::default()
        };
        let client = &self.place.client;
        let exec = client.create_exec(&sandbox, &request).await.map_err(failed("run the command"))?;
        let patience = run.timeout_seconds.unwrap_or(PATIENCE_SECONDS).clamp(1, PATIENCE_SECONDS_MAX);
        told(client, &sandbox, &exec.id, 0, SHOWN, Duration::from_secs(patience)).await
    }

    /// Start a process that goes on by itself: a server, a build, a shell. Answers its id at once.
    #[tool(annotations(title = "Start a background process", destructive_hint = true, open_world_hint = true))]
    async fn start(&self, Parameters(start): Parameters<Start>) -> Said {
        let sandbox = self.which(start.sandbox).await?;
        let request = CreateExec {
            command: Some(start.command),
            workdir: start.workdir,
            env: start.env,
            stdin: if start.interactive { StdinMode::Pipe } else { StdinMode::Null },
            ..CreateExec::default()
        };
        let begun = self.place.client.create_exec(&sandbox, &request).await;
        let exec = begun.map_err(failed("start the process"))?;
        Ok(format!("started as process {}; `output` shows what it writes", exec.id))
    }

    /// What a process has written so far, from a byte on, and whether it still runs.
    #[tool(annotations(title = "Read a process's output", read_only_hint = true))]
    async fn output(&self, Parameters(output): Parameters<Output>) -> Said {
        let sandbox = self.which(output.sandbox).await?;
        let limit = output.limit.unwrap_or(SHOWN).clamp(1, SHOWN_MAX);
        let patience = Duration::from_secs(output.wait_seconds.unwrap_or(0).min(PATIENCE_SECONDS_MAX));
        told(&self.place.client, &sandbox, &output.process, output.offset, limit, patience).await
    }

    /// Write to the standard input of a process that was started with `interactive`.
    #[tool(annotations(title = "Write to a process", destructive_hint = true))]
    async fn input(&self, Parameters(input): Parameters<Input>) -> Said {
        let sandbox = self.which(input.sandbox).await?;
        let body = UploadBody::from_bytes(input.text.into_bytes());
        let written = self.place.client.write_stdin(&sandbox, &input.process, body, input.close).await;
        written.map_err(failed("write to the process"))?;
        Ok("written".to_owned())
    }

    /// Send a signal to a process and those it started; ends it unless another signal is named.
    #[tool(annotations(title = "Stop a process", destructive_hint = true))]
    async fn stop(&self, Parameters(signal): Parameters<Signal>) -> Said {
        let sandbox = self.which(signal.sandbox).await?;
        let word = signal.signal.unwrap_or_else(|| "TERM".to_owned());
        let request = SendSignal { signal: word.clone(), group: true };
        let sent = self.place.client.signal_exec(&sandbox, &signal.process, &request).await;
        sent.map_err(failed("signal the process"))?;
        Ok(format!("sent {word} to {}", signal.process))
    }

    /// Commands and processes, newest first, with what became of them.
    #[tool(annotations(title = "List processes", read_only_hint = true))]
    async fn processes(&self, Parameters(place): Parameters<Where>) -> Said {
        let sandbox = self.which(place.sandbox).await?;
        let execs = self.place.client.execs(&sandbox).await.map_err(failed("list the processes"))?;
        let lines: Vec<String> = execs.iter().take(100).map(line).collect();
        Ok(if lines.is_empty() { "none yet".to_owned() } else { lines.join("\n") })
    }

    /// Which ports processes listen on, and the URL of each.
    #[tool(annotations(title = "List ports", read_only_hint = true))]
    async fn ports(&self, Parameters(place): Parameters<Where>) -> Said {
        let sandbox = self.which(place.sandbox).await?;
        let ports = self.place.client.ports(&sandbox).await.map_err(failed("list the ports"))?;
        let shown = |port: &burrow_api::Port| {
            let by = port.process.as_deref().unwrap_or("nothing listens");
            format!("{}  {}  {}", port.port, by, port.url)
        };
        let lines: Vec<String> = ports.iter().map(shown).collect();
        Ok(if lines.is_empty() { "nothing listens".to_owned() } else { lines.join("\n") })
    }
}

fn line(exec: &Exec) -> String {
    let command = exec.argv.join(" ");
    let (command, whole) = cut::beginning(&command, 200);
    format!("{}  {}  {command}{}", exec.id, became(exec), if whole { "" } else { "…" })
}

fn became(exec: &Exec) -> String {
    let outcome = exec.outcome.as_ref();
    match (exec.state, outcome.and_then(|outcome| outcome.exit_code)) {
        (ExecState::Running, _) => "running".to_owned(),
        (ExecState::Lost, _) => "lost, with the machine it ran on".to_owned(),
        (ExecState::Ended, Some(code)) => format!("exit code {code}"),
        (ExecState::Ended, None) => {
            let signal = outcome.and_then(|outcome| outcome.signal.as_deref()).unwrap_or("a signal");
            format!("ended by {signal}")
        }
    }
}

/// How a process goes, and its output from `offset` on.
async fn told(
    client: &Client,
    sandbox: &str,
    process: &str,
    offset: u64,
    limit: usize,
    patience: Duration,
) -> Said {
    let waited = client.wait_exec(sandbox, process, Some(patience)).await;
    let (WaitOutcome::Ended(exec) | WaitOutcome::StillRunning(exec)) =
        waited.map_err(failed("look at the process"))?;
    let (text, next) = read(client, sandbox, process, offset, limit).await?;
    let mut answer = match exec.state {
        ExecState::Running => format!("still running as process {process}"),
        ExecState::Ended | ExecState::Lost => became(&exec),
    };
    if next < exec.output_end {
        let left = exec.output_end - next;
        answer.push_str(&format!("; {left} more bytes: `output` of {process} with offset {next}"));
    } else if exec.state == ExecState::Running {
        answer.push_str(&format!("; read on with `output`, offset {next}"));
    }
    for denied in &exec.egress_denied {
        answer.push_str(&format!("\nthe network policy does not allow {}:{}", denied.host, denied.port));
    }
    for memory in &exec.related {
        answer.push_str(&format!("\nremembered ({}): {}", memory.why, memory.text));
        if let Some(fix) = &memory.fixed_by {
            answer.push_str(&format!("\nwhat helped then: {}", fix.commands.join("; ")));
        }
    }
    if !text.is_empty() {
        answer.push('\n');
        answer.push_str(&text);
    }
    Ok(answer)
}

/// Both streams as they came, `limit` bytes at most; and where the next read begins. Of a first look at a long output the
/// end is shown too, since that is where errors are.
async fn read(
    client: &Client,
    sandbox: &str,
    process: &str,
    offset: u64,
    limit: usize,
) -> Result<(String, u64), String> {
    let query = OutputQuery { offset, follow: false };
    let what = "read the output";
    let mut chunks = client.output(sandbox, process, query).await.map_err(failed(what))?;
    let (mut bytes, mut next) = (Vec::new(), offset);
    while let Some(chunk) = chunks.next().await.map_err(failed(what))? {
        if let OutputChunk::Output { offset, text, base64, .. } = chunk {
            let piece = match (text, base64) {
                (Some(text), _) => text.into_bytes(),
                (None, Some(encoded)) => decode(&encoded),
                (None, None) => Vec::new(),
            };
            next = offset + piece.len() as u64;
            bytes.extend(piece);
        }
        if bytes.len() >= READ_MAX || (offset > 0 && bytes.len() >= limit) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    if offset > 0 {
        let (shown, _) = cut::beginning(&text, limit);
        // Counted in what was written, not in what it is shown as.
        let whole = shown.len() == text.len();
        return Ok((shown.to_owned(), if whole { next } else { offset + limit as u64 }));
    }
    Ok((cut::ends(&text, limit), if text.len() <= limit { next } else { (limit / 2) as u64 }))
}

fn decode(encoded: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default()
}
