//! Removes noise from the output of programs: colours, overwritten lines, progress, repetition.
//!
//! The result is what a user would have seen at the end, with repetitions folded into a count. Pure, in linear time: the output
//! comes from a sandbox and may be anything.

/// Lines that begin with one of these words show progress; of a run of them, only the last matters.
const BUSY_WORDS: &[&str] = &[
    "Compiling",
    "Checking",
    "Downloading",
    "Downloaded",
    "Fetching",
    "Fetched",
    "Collecting",
    "Installing",
    "Installed",
    "Unpacking",
    "Setting",
    "Selecting",
    "Preparing",
    "Processing",
    "Pulling",
    "Extracting",
    "Waiting",
    "Verifying",
    "Building",
    "Linking",
    "Copying",
    "Get:",
    "Hit:",
    "Requirement",
    "Using",
    "Resolving",
    "Receiving",
    "Counting",
    "Compressing",
    "Updating",
    "Adding",
    "Created",
    "inflating:",
    "extracting:",
    "CC",
    "CXX",
    "AR",
    "LD",
];

/// The least number of lines in a run that is folded; two or three can be read quickly.
const BUSY_RUN_MIN: usize = 4;

/// Longer lines are data (minified, base64), not messages; their beginning identifies them.
const LINE_CHARACTERS_MAX: usize = 400;

/// The part of an output that is worth keeping.
pub fn clean(text: &str) -> String {
    let plain = strip_terminal(text);
    let seen: Vec<String> = plain.split('\n').map(|line| shorten(overwritten(line).trim_end())).collect();
    let mut out = String::with_capacity(plain.len());
    for line in fold_busy(fold_equal(without_progress(seen))) {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&line);
    }
    out.truncate(out.trim_end().len());
    out
}

/// The text without escape sequences and control characters; `\n`, `\r`, `\t` and backspace keep their meaning.
pub fn strip_terminal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_csi(&mut chars),
            '\n' | '\r' | '\t' | '\u{8}' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape(chars: &mut Chars<'_>) {
    match chars.peek().copied() {
        Some('[') => {
            chars.next();
            skip_csi(chars);
        }
        // Operating-system commands, and strings for devices: up to BEL or `ESC \`. A line break ends them as well, so
        // that an unfinished sequence does not remove all following text.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            while let Some(c) = chars.peek().copied() {
                if c == '\n' {
                    break;
                }
                chars.next();
                if c == '\u{7}' || c == '\u{9c}' {
                    break;
                }
                if c == '\u{1b}' {
                    if chars.peek() == Some(&'\\') {
                        chars.next();
                    }
                    break;
                }
            }
        }
        Some('(' | ')' | '#' | '%' | ' ') => {
            chars.next();
            chars.next();
        }
        Some(c) if c.is_ascii_graphic() => {
            chars.next();
        }
        Some(_) | None => {}
    }
}

/// Parameters up to the final byte.
fn skip_csi(chars: &mut Chars<'_>) {
    while let Some(c) = chars.peek().copied() {
        match c {
            '\u{20}'..='\u{3f}' => {
                chars.next();
            }
            '\u{40}'..='\u{7e}' => {
                chars.next();
                return;
            }
            _ => return,
        }
    }
}

/// The text that a terminal shows for a line with carriage returns and backspaces.
fn overwritten(line: &str) -> String {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let last = line.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or("");
    if !last.contains('\u{8}') {
        return last.to_owned();
    }
    let mut out = String::with_capacity(last.len());
    for c in last.chars() {
        if c == '\u{8}' {
            out.pop();
        } else {
            out.push(c);
        }
    }
    out
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARACTERS_MAX) {
        None => line.to_owned(),
        Some((cut, _)) => format!("{}… [{} more characters]", &line[..cut], line[cut..].chars().count()),
    }
}

/// Removes the steps of a progress display; keeps its last line.
fn without_progress(lines: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::with_capacity(lines.len());
    for line in lines {
        if is_progress(&line) && out.last().is_some_and(|last| is_progress(last)) {
            out.pop();
        }
        out.push(line);
    }
    // The last step of a completed display is not informative, either.
    out.retain(|line| !(is_progress(line) && line.contains("100%") && is_bar(line)));
    out
}

fn is_progress(line: &str) -> bool {
    is_bar(line) || has_percentage(line) && !mentions_trouble(line)
}

/// A progress bar: at least eight consecutive characters that bars are drawn with.
fn is_bar(line: &str) -> bool {
    let mut run = 0;
    let mut longest = 0;
    for c in line.chars() {
        run = if matches!(c, '█' | '▉'..='▏' | '━' | '╸' | '╺' | '#' | '=' | '>' | '▓' | '▒' | '░')
        {
            run + 1
        } else {
            0
        };
        longest = longest.max(run);
    }
    // A row of `=` alone is a headline of pytest or a separator: a bar has numbers or brackets.
    longest >= 8
        && (line.contains('%') || line.contains('[') && line.contains(']') || line.contains('/'))
        && has_digit(line)
        && !mentions_trouble(line)
}

fn has_digit(line: &str) -> bool {
    line.bytes().any(|b| b.is_ascii_digit())
}

/// `45%` near the beginning or the end of a short line.
fn has_percentage(line: &str) -> bool {
    let bytes = line.as_bytes();
    line.len() <= 120
        && bytes.iter().enumerate().any(|(at, b)| *b == b'%' && at > 0 && bytes[at - 1].is_ascii_digit())
        && [
            "download", "receiv", "count", "compress", "resolv", "extract", "eta", "/s", "progress",
            "unpack", "load",
        ]
        .iter()
        .any(|word| line.to_ascii_lowercase().contains(word))
}

fn mentions_trouble(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    ["error", "fail", "warn", "fatal", "panic", "passed"].iter().any(|word| lower.contains(word))
}

/// Equal adjacent lines become one with a count; adjacent blank lines become one.
fn fold_equal(lines: Vec<String>) -> Vec<String> {
    let mut out: Vec<(String, usize)> = Vec::with_capacity(lines.len());
    for line in lines {
        match out.last_mut() {
            Some((last, count)) if *last == line => *count += 1,
            _ => out.push((line, 1)),
        }
    }
    out.into_iter()
        .map(|(line, count)| if count > 1 && !line.is_empty() { format!("{line} [×{count}]") } else { line })
        .collect()
}

fn fold_busy(lines: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::with_capacity(lines.len());
    let mut at = 0;
    while at < lines.len() {
        let word = busy_word(&lines[at]);
        let run = match word {
            Some(word) => lines[at..].iter().take_while(|line| busy_word(line) == Some(word)).count(),
            None => 1,
        };
        if run >= BUSY_RUN_MIN {
            out.push(format!("{} [and {} lines like it before]", lines[at + run - 1], run - 1));
        } else {
            out.extend(lines[at..at + run].iter().cloned());
        }
        at += run;
    }
    out
}

fn busy_word(line: &str) -> Option<&'static str> {
    let first = line.split_whitespace().next()?;
    if mentions_trouble(line) {
        return None;
    }
    BUSY_WORDS
        .iter()
        .find(|word| first == **word || word.ends_with(':') && first.starts_with(**word))
        .copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn colours_titles_and_control_characters_are_removed() {
        assert_eq!(clean("\u{1b}[31;1merror\u{1b}[0m: x\u{7}"), "error: x");
        assert_eq!(clean("\u{1b}]0;title\u{7}a\u{1b}(Bb"), "ab");
        assert_eq!(clean("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\"), "link");
        assert_eq!(clean("a\u{1b}]unfinished\nb"), "a\nb");
        assert_eq!(clean("tail\u{1b}["), "tail");
    }

    #[test]
    fn overwritten_text_is_removed() {
        assert_eq!(clean("10%\r50%\rdone\r\nnext"), "done\nnext");
        assert_eq!(clean("abcd\u{8}\u{8}xy"), "abxy");
        assert_eq!(clean("one\r\ntwo\r\n"), "one\ntwo");
    }

    #[test]
    fn progress_is_removed_and_results_stay() {
        let text = "Downloading 5% 1 MB/s\nDownloading 50% 1 MB/s\nDownloading 99% 1 MB/s\nok";
        assert_eq!(clean(text), "Downloading 99% 1 MB/s\nok");
        let bars = "[=====>      ] 10/20\n[==========>] 20/20 100%\nsaved";
        assert!(clean(bars).ends_with("saved"));
        let pytest = "====== 3 failed, 4 passed in 1.2s ======\ncoverage 87%";
        assert_eq!(clean(pytest), pytest);
    }

    #[test]
    fn repeats_are_folded_with_their_count() {
        assert_eq!(clean("retry\nretry\nretry\nok"), "retry [×3]\nok");
        assert_eq!(clean("a\n\n\n\nb"), "a\n\nb");
        let busy: Vec<String> = (0..40).map(|n| format!("   Compiling crate{n} v1.0")).collect();
        let text = format!("{}\nerror[E0425]: x", busy.join("\n"));
        assert_eq!(clean(&text), "   Compiling crate39 v1.0 [and 39 lines like it before]\nerror[E0425]: x");
    }

    #[test]
    fn a_long_line_keeps_its_beginning() {
        let cleaned = clean(&"é".repeat(5000));
        assert!(cleaned.ends_with("[4600 more characters]"), "{cleaned}");
    }

    proptest! {
        #[test]
        fn no_terminal_control_characters_remain(text in "[\\x00-\\x7f\u{9b}é█%=\\[\\]]{0,300}") {
            let cleaned = clean(&text);
            prop_assert!(cleaned.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{cleaned:?}");
        }
    }
}
