//! The tool that runs code and keeps its variables.

use std::collections::BTreeMap;
use std::time::Duration;

use burrow_api::{CodeResult, CodeRun, RunCode};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use super::output::denials;
use crate::paging;
use crate::results::{ToolResult, failed};
use crate::server::Server;

/// Default time limit of a run. Several clients give up on a call after a minute.
const TIMEOUT_SECONDS: u64 = 50;
const TIMEOUT_SECONDS_MAX: u64 = 600;

/// Added to the run's own limit: time for a sandbox to wake and an interpreter to start.
const START_SECONDS: u64 = 130;

/// Larger pictures are only mentioned, because clients limit the size of an answer; so are pictures beyond this number.
const PICTURE_BYTES_MAX: usize = crate::content::PICTURE_BYTES_MAX as usize;
const PICTURES_MAX: usize = 8;

/// Minimum bytes shown of each part, however much came before it.
const PART_BYTES_MIN: usize = 200;

/// Results beyond these are only counted: they would exceed what a model can read.
const RESULTS_MAX: usize = 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Code {
    /// The code.
    #[schemars(length(min = 1, max = 1_000_000))]
    code: String,
    /// `python` if absent; also `bash`, `javascript` …
    #[schemars(length(min = 1, max = 50))]
    language: Option<String>,
    /// Environment variables, for this call only.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 1000))]
    env: BTreeMap<String, String>,
    /// Interrupt the code after this time; 50 if absent.
    #[schemars(range(min = 1, max = 600))]
    timeout_seconds: Option<u64>,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[tool_router(router = code_tools, vis = "pub(crate)")]
impl Server {
    /// Run code in the sandbox's interpreter. Variables are kept between calls. Returns the output, the value of the last
    /// expression, and plots as pictures.
    #[tool(annotations(title = "Run code", destructive_hint = true, open_world_hint = true))]
    async fn sandbox_run_code(&self, Parameters(code): Parameters<Code>) -> ToolResult {
        let (client, sandbox) = self.which(code.sandbox).await?;
        let context = match code.language.as_deref() {
            None | Some("python") => "default".to_owned(),
            Some(language) => format!("default-{language}"),
        };
        let time_limit = code.timeout_seconds.unwrap_or(TIMEOUT_SECONDS).clamp(1, TIMEOUT_SECONDS_MAX);
        let request = RunCode {
            code: code.code,
            env: code.env,
            timeout_ms: Some(time_limit * 1000),
            ..RunCode::default()
        };
        let run = client.run_code_to_end(&sandbox, &context, &request);
        match tokio::time::timeout(Duration::from_secs(time_limit + START_SECONDS), run).await {
            Ok(run) => Ok(run_result(&sandbox, &run.map_err(failed("run the code"))?)),
            Err(_) => Err(format!(
                "the interpreter is busy with another run that does not end; `burrow context restart {sandbox} {context}` \
                restarts it, without its variables"
            )),
        }
    }
}

/// The status, then output, results and error, each unchanged.
fn run_result(sandbox: &str, run: &CodeRun) -> CallToolResult {
    let mut summary = run.status.as_str().replace('_', " ");
    if let Some(count) = run.execution_count {
        summary.push_str(&format!(", run {count} of this context"));
    }
    if run.truncated {
        summary.push_str("; the output was truncated");
    }
    summary.push_str(&denials(sandbox, &run.egress_denied));
    let mut blocks = vec![ContentBlock::text(summary)];
    let mut space = paging::PAGE_BYTES;
    let mut push = |title: &str, text: &str| {
        if !text.is_empty() {
            // All parts share the space of one answer; each gets at least a minimum.
            let shown = paging::ends(text, space.max(PART_BYTES_MIN));
            space = space.saturating_sub(shown.len());
            blocks.push(ContentBlock::text(format!("{title}:\n{shown}")));
        }
    };
    push("stdout", &run.stdout);
    push("stderr", &run.stderr);
    for result in run.results.iter().take(RESULTS_MAX) {
        push("result", &text_of(result));
    }
    if run.results.len() > RESULTS_MAX {
        push("results", &format!("{} more are not shown", run.results.len() - RESULTS_MAX));
    }
    if let Some(error) = &run.error {
        push("error", &format!("{}: {}\n{}", error.name, error.value, without_colours(&error.traceback)));
    }
    let pictures = run.results.iter().flat_map(|result| {
        [(result.png.as_ref(), "image/png"), (result.jpeg.as_ref(), "image/jpeg")]
            .into_iter()
            .filter_map(|(picture, kind)| Some((picture?, kind)))
    });
    let pictures = pictures.filter(|(picture, _)| picture.len() <= PICTURE_BYTES_MAX).take(PICTURES_MAX);
    blocks
        .extend(pictures.map(|(picture, kind)| {
            ContentBlock::image(picture.split_whitespace().collect::<String>(), kind)
        }));
    CallToolResult::success(blocks)
}

/// The format of a result that is best for a model.
fn text_of(result: &CodeResult) -> String {
    let texts = [&result.text, &result.markdown, &result.latex, &result.html, &result.svg];
    let mut text = texts.into_iter().flatten().next().cloned().unwrap_or_default();
    if text.is_empty() {
        text = result.json.as_ref().map(ToString::to_string).unwrap_or_default();
    }
    for (picture, kind) in [(&result.png, "png"), (&result.jpeg, "jpeg")] {
        if let Some(picture) = picture.as_ref().filter(|picture| picture.len() > PICTURE_BYTES_MAX) {
            text.push_str(&format!(
                "\n[{kind} of {} bytes, too large to show: save it to a file]",
                picture.len()
            ));
        }
    }
    text
}

/// Removes the colours of a terminal.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut without_colours = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| c.is_ascii_alphabetic()).map_or(piece.len(), |at| at + 1);
        without_colours.push_str(&piece[end..]);
    }
    without_colours
}

#[cfg(test)]
mod tests {
    use burrow_api::{CodeError, CodeRunStatus};

    use super::*;

    fn run() -> CodeRun {
        CodeRun {
            status: CodeRunStatus::Ok,
            execution_count: Some(3),
            duration_ms: 1,
            stdout: String::new(),
            stderr: String::new(),
            results: Vec::new(),
            error: None,
            truncated: false,
            egress_denied: Vec::new(),
        }
    }

    #[test]
    fn a_plot_is_returned_as_text_and_as_a_picture() {
        let plot = CodeResult {
            text: Some("<Figure>".to_owned()),
            png: Some("aGk=\n".to_owned()),
            ..CodeResult::default()
        };
        let answer =
            run_result("web", &CodeRun { stdout: "hello\n".to_owned(), results: vec![plot], ..run() });
        let answer = serde_json::to_value(answer).unwrap();
        let content = &answer["content"];
        assert_eq!(content[0]["text"], "ok, run 3 of this context");
        assert_eq!(content[1]["text"], "stdout:\nhello\n");
        assert_eq!(content[2]["text"], "result:\n<Figure>");
        assert_eq!((&content[3]["data"], &content[3]["mimeType"]), (&"aGk=".into(), &"image/png".into()));
    }

    #[test]
    fn denied_hosts_are_named_with_the_command_that_allows_them() {
        let denied = burrow_api::EgressDenied {
            host: "pypi.example".to_owned(),
            port: None,
            reason: "no rule allows it".to_owned(),
            set: Some("pypi".to_owned()),
        };
        let answer = run_result("web", &CodeRun { egress_denied: vec![denied], ..run() });
        let answer = serde_json::to_value(answer).unwrap();
        assert_eq!(
            answer["content"][0]["text"],
            "ok, run 3 of this context\nthe network policy does not allow pypi.example; \
             a person can allow it: `burrow egress allow web --set pypi`"
        );
    }

    #[test]
    fn long_results_are_cut_and_counted() {
        let long = CodeResult { text: Some("x".repeat(paging::PAGE_BYTES)), ..CodeResult::default() };
        let answer = run_result("web", &CodeRun { results: vec![long; 1000], ..run() });
        let answer = serde_json::to_value(answer).unwrap();
        assert!(answer.to_string().len() < 2 * paging::PAGE_BYTES);
        assert_eq!(answer["content"][RESULTS_MAX + 1]["text"], "results:\n980 more are not shown");
    }

    #[test]
    fn an_error_is_returned_without_colours() {
        let error = CodeError {
            name: "E".to_owned(),
            value: "v".to_owned(),
            traceback: "\u{1b}[0;31mE\u{1b}[0m: v".to_owned(),
        };
        let answer =
            run_result("web", &CodeRun { status: CodeRunStatus::TimedOut, error: Some(error), ..run() });
        let answer = serde_json::to_value(answer).unwrap();
        assert_eq!(answer["content"][0]["text"], "timed out, run 3 of this context");
        assert_eq!(answer["content"][1]["text"], "error:\nE: v\nE: v");
    }
}
