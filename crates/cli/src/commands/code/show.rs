//! What comes of a run, on a terminal: text as it is, pictures as files.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use burrow_api::{CodeEvent, CodeResult};

use crate::failure::{OrFail as _, Stop};
use crate::print::{self, quantity};

/// Where things go.
pub(super) struct Shown {
    save: Option<PathBuf>,
    json: bool,
    /// Files written so far.
    files: u32,
}

impl Shown {
    pub(super) fn new(save: Option<PathBuf>, json: bool) -> Self {
        Self { save, json, files: 0 }
    }

    pub(super) fn show(&mut self, event: &CodeEvent) -> Result<(), Stop> {
        if self.json {
            return print::json::compact(event);
        }
        match event {
            CodeEvent::Stdout { text } => print::data(text),
            CodeEvent::Stderr { text } => {
                let _ = io::stderr().lock().write_all(text.as_bytes());
                Ok(())
            }
            CodeEvent::Result(result) => self.result(result),
            CodeEvent::Error(error) => {
                let text = match error.traceback.is_empty() {
                    true => format!("{}: {}", error.name, error.value),
                    false => error.traceback.trim_end().to_owned(),
                };
                let colours = io::stderr().is_terminal();
                print::note(&if colours { text } else { without_colours(&text) });
                Ok(())
            }
            CodeEvent::End { .. } | CodeEvent::Broken { .. } => Ok(()),
        }
    }

    fn result(&mut self, result: &CodeResult) -> Result<(), Stop> {
        let kept = self.keep(result)?;
        let text = [&result.text, &result.markdown, &result.latex, &result.html, &result.javascript];
        match text.into_iter().flatten().next() {
            Some(text) => print::line(text.trim_end_matches('\n'))?,
            None => {
                if let Some(json) = &result.json {
                    print::json::pretty(json)?;
                }
            }
        }
        for line in kept {
            print::note(&line);
        }
        Ok(())
    }

    /// Pictures and documents become files, or are told of.
    fn keep(&mut self, result: &CodeResult) -> Result<Vec<String>, Stop> {
        let mut told = Vec::new();
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
                told.push(format!("[{extension}, {size}; --save DIRECTORY keeps it]"));
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
            told.push(format!("[{extension}, {size}: {}]", path.display()));
        }
        Ok(told)
    }
}

/// Tracebacks come with colours, which are noise in a file.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\x1b' {
            plain.push(character);
            continue;
        }
        if characters.next() == Some('[') {
            // Up to the letter that ends a sequence.
            characters.by_ref().find(|c| ('\x40'..='\x7e').contains(c));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_left_out_of_files() {
        assert_eq!(without_colours("\x1b[0;31mError\x1b[0m: x\x1b"), "Error: x");
        assert_eq!(without_colours("plain [0m"), "plain [0m");
    }

    #[test]
    fn pictures_become_files_that_replace_no_others() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("result-1.png"), "mine").unwrap();
        let mut shown = Shown::new(Some(directory.path().to_owned()), false);
        let result = CodeResult { png: Some("aGk=\n".to_owned()), ..CodeResult::default() };
        assert_eq!(shown.keep(&result).unwrap().len(), 1);
        assert_eq!(std::fs::read_to_string(directory.path().join("result-1.png")).unwrap(), "mine");
        assert_eq!(std::fs::read_to_string(directory.path().join("result-2.png")).unwrap(), "hi");
    }
}
