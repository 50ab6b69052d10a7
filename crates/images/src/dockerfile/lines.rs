//! Splits a Dockerfile into instructions: comments, continued lines, parser directives, heredocs.
//!
//! Nothing is expanded here. The text of a heredoc is kept beside its instruction.

use super::{FILE_BYTES_MAX, INSTRUCTIONS_MAX, Located, refused};
use crate::ImageError;

/// Heredocs of one instruction.
const HEREDOCS_MAX: usize = 64;

/// An instruction as it is written, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawInstruction {
    /// In capital letters.
    pub(super) keyword: String,
    pub(super) rest: String,
    pub(super) heredocs: Vec<Heredoc>,
}

/// A text in the Dockerfile itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heredoc {
    pub name: String,
    /// Whether variables in it are expanded.
    pub expand: bool,
    /// With the line end of its last line; without leading tabs after `<<-`.
    pub content: String,
    /// As it is written, with the last line: for a shell that reads it itself.
    pub(super) verbatim: String,
}

/// The instructions, and the escape character.
pub(super) fn split(text: &str) -> Result<(Vec<Located<RawInstruction>>, char), ImageError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(refused(1, "the file is larger than 256 KiB"));
    }
    if text.contains('\0') {
        return Err(refused(1, "the file contains a NUL byte"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let (escape, mut at) = directives(&lines)?;
    let mut found = Vec::new();
    while at < lines.len() {
        if is_blank(lines[at]) {
            at += 1;
            continue;
        }
        let line = at + 1;
        let joined = logical_line(&lines, &mut at, escape);
        let trimmed = joined.trim();
        let (keyword, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        let keyword = keyword.to_ascii_uppercase();
        let heredocs = match keyword.as_str() {
            "RUN" | "COPY" | "ADD" => heredocs(&lines, &mut at, rest, line, escape)?,
            _ => Vec::new(),
        };
        if found.len() == INSTRUCTIONS_MAX {
            return Err(refused(line, format!("more than {INSTRUCTIONS_MAX} instructions")));
        }
        found.push(Located {
            line,
            content: RawInstruction { keyword, rest: rest.trim().to_owned(), heredocs },
        });
    }
    Ok((found, escape))
}

/// `# name=value` lines before everything else. `syntax` and `check` select programs and settings of other builders.
fn directives(lines: &[&str]) -> Result<(char, usize), ImageError> {
    let mut escape = '\\';
    for (index, line) in lines.iter().enumerate() {
        let directive = line.trim().strip_prefix('#').and_then(|rest| rest.split_once('='));
        let Some((name, value)) = directive else { return Ok((escape, index)) };
        match (name.trim().to_ascii_lowercase().as_str(), value.trim()) {
            ("escape", "\\") => escape = '\\',
            ("escape", "`") => escape = '`',
            ("escape", _) => {
                return Err(refused(index + 1, "the escape character must be `\\` or a backtick"));
            }
            ("syntax" | "check", _) => {}
            // An ordinary comment ends the directives.
            _ => return Ok((escape, index)),
        }
    }
    Ok((escape, lines.len()))
}

/// Empty, or a comment.
fn is_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// One line with the lines that continue it; `at` is moved behind them.
fn logical_line(lines: &[&str], at: &mut usize, escape: char) -> String {
    let mut joined = String::new();
    while let Some(line) = lines.get(*at) {
        *at += 1;
        // Comments and empty lines between continued lines are left out.
        if !joined.is_empty() && is_blank(line) {
            continue;
        }
        match line.trim_end().strip_suffix(escape) {
            Some(start) => joined.push_str(start),
            None => {
                joined.push_str(line);
                return joined;
            }
        }
    }
    joined
}

/// Reads the heredocs that a line announces from the lines behind it.
fn heredocs(
    lines: &[&str],
    at: &mut usize,
    rest: &str,
    line: usize,
    escape: char,
) -> Result<Vec<Heredoc>, ImageError> {
    let announced: Vec<Announced> =
        raw_words(rest, escape).iter().filter_map(|word| announced(word)).collect();
    if announced.len() > HEREDOCS_MAX {
        return Err(refused(line, format!("more than {HEREDOCS_MAX} heredocs")));
    }
    let mut found = Vec::new();
    for Announced { name, expand, strip_tabs } in announced {
        let (mut content, mut verbatim) = (String::new(), String::new());
        loop {
            let Some(text) = lines.get(*at) else {
                return Err(refused(line, format!("the heredoc `{name}` has no end")));
            };
            *at += 1;
            verbatim.push_str(text);
            verbatim.push('\n');
            let text = if strip_tabs { text.trim_start_matches('\t') } else { text };
            if text == name {
                break;
            }
            content.push_str(text);
            content.push('\n');
        }
        found.push(Heredoc { name, expand, content, verbatim });
    }
    Ok(found)
}

struct Announced {
    name: String,
    expand: bool,
    strip_tabs: bool,
}

/// `<<NAME`, `<<-NAME`, `<<"NAME"`, with an optional number of a file descriptor before.
fn announced(word: &str) -> Option<Announced> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
    let (strip_tabs, rest) = rest.strip_prefix('-').map_or((false, rest), |rest| (true, rest));
    let name: String = rest.chars().filter(|c| !matches!(c, '"' | '\'')).collect();
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    good.then(|| Announced { expand: name == rest, name, strip_tabs })
}

/// Words without the removal of quotes.
pub(super) fn raw_words(text: &str, escape: char) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == escape && quote != Some('\'') {
            word.push(c);
            word.extend(chars.next());
            continue;
        }
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            None => {}
        }
        word.push(c);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
