//! Shows the output of code: text, with control characters escaped on a terminal, and images as files.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use burrow_api::{CodeEvent, CodeResult, OutputStream};

use crate::commands::prelude::*;
use crate::print::process_output::ProcessOutput;

/// Where the output goes.
pub(super) struct CodeOutput<Out = io::Stdout, Err = io::Stderr> {
    save: Option<PathBuf>,
    json: bool,
    output: ProcessOutput<Out, Err>,
    /// Files written so far.
    files: u32,
}

impl CodeOutput {
    pub(super) fn new(save: Option<PathBuf>, json: bool) -> Self {
        Self { save, json, output: ProcessOutput::new(false), files: 0 }
    }
}

impl<Out: Write, Err: Write> CodeOutput<Out, Err> {
    /// Whether events are printed as JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    pub(super) fn show(&mut self, event: &CodeEvent) -> Result<(), Stop> {
        if self.json {
            return print::json::compact(event);
        }
        match event {
            CodeEvent::Stdout { text } => self.output.write(OutputStream::Stdout, text.as_bytes()),
            CodeEvent::Stderr { text } => self.output.write(OutputStream::Stderr, text.as_bytes()),
            CodeEvent::Result(result) => self.result(result),
            CodeEvent::Error(error) => {
                let text = match error.traceback.is_empty() {
                    true => format!("{}: {}", error.name, error.value),
                    false => error.traceback.trim_end().to_owned(),
                };
                self.line(OutputStream::Stderr, &without_colours(&text))
            }
            CodeEvent::End { .. } | CodeEvent::Broken { .. } => self.output.finish(),
        }
    }

    fn line(&mut self, stream: OutputStream, text: &str) -> Result<(), Stop> {
        self.output.finish()?;
        self.output.write(stream, format!("{text}\n").as_bytes())
    }

    fn result(&mut self, result: &CodeResult) -> Result<(), Stop> {
        let kept = self.save_files(result)?;
        let text = [&result.text, &result.markdown, &result.latex, &result.html, &result.javascript];
        match text.into_iter().flatten().next() {
            Some(text) => self.line(OutputStream::Stdout, text.trim_end_matches('\n'))?,
            None => {
                if let Some(json) = &result.json {
                    self.output.finish()?;
                    print::json::pretty(json)?;
                }
            }
        }
        print::notes(kept);
        Ok(())
    }

    /// Saves images and documents as files, or mentions them.
    fn save_files(&mut self, result: &CodeResult) -> Result<Vec<String>, Stop> {
        let mut lines = Vec::new();
        for (extension, text, encoded) in [
            ("png", &result.png, true),
            ("jpeg", &result.jpeg, true),
            ("pdf", &result.pdf, true),
            ("svg", &result.svg, false),
        ] {
            let Some(text) = text else { continue };
            let bytes = match encoded {
                true => STANDARD.decode(text.split_whitespace().collect::<String>()).unwrap_or_default(),
                false => text.clone().into_bytes(),
            };
            let size = quantity::bytes(bytes.len() as u64);
            let Some(directory) = &self.save else {
                lines.push(format!("[{extension}, {size}; --save DIRECTORY saves it]"));
                continue;
            };
            let path = loop {
                self.files += 1;
                let path = directory.join(format!("result-{}.{extension}", self.files));
                if !path.exists() {
                    break path;
                }
            };
            let written = std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, bytes));
            written.or_fail(|| format!("could not write `{}`", path.display()))?;
            lines.push(format!("[{extension}, {size}: {}]", path.display()));
        }
        Ok(lines)
    }
}

/// Tracebacks contain colour sequences, which are useless in a file and would be escaped on a terminal.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\x1b' {
            plain.push(character);
            continue;
        }
        if characters.next() == Some('[') {
            // Skip to the letter that ends the sequence.
            characters.by_ref().find(|c| ('\x40'..='\x7e').contains(c));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use burrow_api::CodeError;

    use super::*;

    #[test]
    fn colours_are_left_out_of_files() {
        assert_eq!(without_colours("\x1b[0;31mError\x1b[0m: x\x1b"), "Error: x");
        assert_eq!(without_colours("plain [0m"), "plain [0m");
    }

    #[test]
    fn control_characters_in_the_output_of_code_are_escaped_on_a_terminal() {
        const HOSTILE: &str = "a\u{1b}]52;c;aGk=\u{7}\u{9b}2Jb";
        const ESCAPED: &str = "a\\x1b]52;c;aGk=\\x07\\u{9b}2Jb";
        let events = [
            CodeEvent::Stdout { text: HOSTILE.to_owned() },
            CodeEvent::Stderr { text: HOSTILE.to_owned() },
            CodeEvent::Result(Box::new(CodeResult {
                text: Some(HOSTILE.to_owned()),
                ..CodeResult::default()
            })),
            CodeEvent::Error(CodeError {
                name: "E\u{1b}c".to_owned(),
                value: "\u{9b}2J".to_owned(),
                traceback: String::new(),
            }),
        ];
        for (terminal, text) in [(true, ESCAPED), (false, HOSTILE)] {
            let output = ProcessOutput::in_memory(terminal);
            let mut shown = CodeOutput { save: None, json: false, output, files: 0 };
            for event in &events {
                shown.show(event).unwrap();
            }
            let (out, err) = shown.output.written();
            assert_eq!(out, format!("{text}{text}\n"));
            assert!(err.starts_with(text), "{err:?}");
            assert_eq!(terminal, !(out + &err).contains(['\u{1b}', '\u{9b}', '\u{7}']));
        }
    }

    #[test]
    fn images_are_saved_as_files_that_replace_no_others() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("result-1.png"), "mine").unwrap();
        let mut shown = CodeOutput::new(Some(directory.path().to_owned()), false);
        let result = CodeResult { png: Some("aGk=\n".to_owned()), ..CodeResult::default() };
        assert_eq!(shown.save_files(&result).unwrap().len(), 1);
        assert_eq!(std::fs::read_to_string(directory.path().join("result-1.png")).unwrap(), "mine");
        assert_eq!(std::fs::read_to_string(directory.path().join("result-2.png")).unwrap(), "hi");
    }
}
