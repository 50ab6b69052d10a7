//! Code that keeps its variables.

use std::collections::BTreeMap;
use std::time::Duration;

use burrow_api::{CodeResult, CodeRun, RunCode};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::cut;
use crate::said::{Told, failed};
use crate::server::Server;

/// How long code may run, unless the model says otherwise. Several clients give up on a call after a minute.
const PATIENCE_SECONDS: u64 = 50;
const PATIENCE_SECONDS_MAX: u64 = 600;

/// Besides the code's own time: for a sandbox to wake and an interpreter to start.
const START_SECONDS: u64 = 130;

/// A larger picture is told of only: clients put a bound to what an answer may hold. So are more than these.
const PICTURE_BYTES_MAX: usize = 1 << 20;
const PICTURES_MAX: usize = 8;

/// Of each piece, however much came before it.
const SHOWN_MIN: usize = 200;

/// Results beyond these are only counted: they would fill what a model can read.
const RESULTS_MAX: usize = 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Code {
    /// The code; the value of its last line is shown.
    #[schemars(length(min = 1, max = 1_000_000))]
    code: String,
    /// `python` when absent; others where the sandbox has them, such as `bash` and `javascript`.
    #[schemars(length(min = 1, max = 50))]
    language: Option<String>,
    /// Variables of the environment, for this call only.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 1000))]
    env: BTreeMap<String, String>,
    /// Interrupt it after this time; 50 when absent. Its variables stay.
    #[schemars(range(min = 1, max = 600))]
    timeout_seconds: Option<u64>,
    /// Another sandbox, by name or id, such as a fork; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[tool_router(router = code_tools, vis = "pub(crate)")]
impl Server {
    /// Run code in the sandbox's interpreter. Variables, imports and functions are kept between calls, and are there in forks
    /// and after a restore. Answers what it printed, the value of its last line, and plots as pictures.
    #[tool(annotations(title = "Run code", destructive_hint = true, open_world_hint = true))]
    async fn run_code(&self, Parameters(code): Parameters<Code>) -> Told {
        let sandbox = self.which(code.sandbox).await?;
        let context = match code.language.as_deref() {
            None | Some("python") => "default".to_owned(),
            Some(language) => format!("default-{language}"),
        };
        let patience = code.timeout_seconds.unwrap_or(PATIENCE_SECONDS).clamp(1, PATIENCE_SECONDS_MAX);
        let request = RunCode {
            code: code.code,
            env: code.env,
            timeout_ms: Some(patience * 1000),
            ..RunCode::default()
        };
        let run = self.place.client.run_code_to_end(&sandbox, &context, &request);
        match tokio::time::timeout(Duration::from_secs(patience + START_SECONDS), run).await {
            Ok(run) => Ok(told(&run.map_err(failed("run the code"))?)),
            Err(_) => Err(format!(
                "the interpreter is busy with another run that does not end; `burrow context restart {sandbox} {context}` \
                 begins it anew, without its variables"
            )),
        }
    }
}

/// How it ended; then what it printed, what it showed and what it failed with, each to the letter.
fn told(run: &CodeRun) -> CallToolResult {
    let mut summary = run.status.as_str().replace('_', " ");
    if let Some(count) = run.execution_count {
        summary.push_str(&format!(", run {count} of this context"));
    }
    if run.truncated {
        summary.push_str("; more was written than is shown");
    }
    let mut blocks = vec![ContentBlock::text(summary)];
    let mut room = cut::SHOWN;
    let mut say = |title: &str, text: &str| {
        if !text.is_empty() {
            // All share the room that one answer has; each may say at least what it is.
            let shown = cut::ends(text, room.max(SHOWN_MIN));
            room = room.saturating_sub(shown.len());
            blocks.push(ContentBlock::text(format!("{title}:\n{shown}")));
        }
    };
    say("stdout", &run.stdout);
    say("stderr", &run.stderr);
    for result in run.results.iter().take(RESULTS_MAX) {
        say("result", &in_words(result));
    }
    if run.results.len() > RESULTS_MAX {
        say("results", &format!("{} more are not shown", run.results.len() - RESULTS_MAX));
    }
    if let Some(error) = &run.error {
        say("error", &format!("{}: {}\n{}", error.name, error.value, plain(&error.traceback)));
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

/// The form of a result that a model reads best.
fn in_words(result: &CodeResult) -> String {
    let texts = [&result.text, &result.markdown, &result.latex, &result.html, &result.svg];
    let mut text = texts.into_iter().flatten().next().cloned().unwrap_or_default();
    if text.is_empty() {
        text = result.json.as_ref().map(ToString::to_string).unwrap_or_default();
    }
    for (picture, kind) in [(&result.png, "png"), (&result.jpeg, "jpeg")] {
        if let Some(picture) = picture.as_ref().filter(|picture| picture.len() > PICTURE_BYTES_MAX) {
            text.push_str(&format!(
                "\n[{kind} of {} bytes, too large to be shown: save it to a file]",
                picture.len()
            ));
        }
    }
    text
}

/// Without the colours of a terminal.
fn plain(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| c.is_ascii_alphabetic()).map_or(piece.len(), |at| at + 1);
        plain.push_str(&piece[end..]);
    }
    plain
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
        }
    }

    #[test]
    fn a_plot_is_told_in_words_and_shown_as_a_picture() {
        let plot = CodeResult {
            text: Some("<Figure>".to_owned()),
            png: Some("aGk=\n".to_owned()),
            ..CodeResult::default()
        };
        let told = told(&CodeRun { stdout: "hello\n".to_owned(), results: vec![plot], ..run() });
        let told = serde_json::to_value(told).unwrap();
        let content = &told["content"];
        assert_eq!(content[0]["text"], "ok, run 3 of this context");
        assert_eq!(content[1]["text"], "stdout:\nhello\n");
        assert_eq!(content[2]["text"], "result:\n<Figure>");
        assert_eq!((&content[3]["data"], &content[3]["mimeType"]), (&"aGk=".into(), &"image/png".into()));
    }

    #[test]
    fn much_is_cut_and_counted() {
        let long = CodeResult { text: Some("x".repeat(cut::SHOWN)), ..CodeResult::default() };
        let told = told(&CodeRun { results: vec![long; 1000], ..run() });
        let told = serde_json::to_value(told).unwrap();
        assert!(told.to_string().len() < 2 * cut::SHOWN);
        assert_eq!(told["content"][RESULTS_MAX + 1]["text"], "results:\n980 more are not shown");
    }

    #[test]
    fn an_error_is_told_without_colours() {
        let error = CodeError {
            name: "E".to_owned(),
            value: "v".to_owned(),
            traceback: "\u{1b}[0;31mE\u{1b}[0m: v".to_owned(),
        };
        let told = told(&CodeRun { status: CodeRunStatus::TimedOut, error: Some(error), ..run() });
        let told = serde_json::to_value(told).unwrap();
        assert_eq!(told["content"][0]["text"], "timed out, run 3 of this context");
        assert_eq!(told["content"][1]["text"], "error:\nE: v\nE: v");
    }
}
