//! Keeps stored text data: nothing in it can close the block that shows it, imitate the block's own lines, or send hidden
//! commands to a terminal or a model.
//!
//! Four layers, so that none must be perfect:
//! 1. The block's tag contains a random number drawn for this answer. Stored text cannot know it; if a text contains it by
//!    chance, another number is drawn.
//! 2. Every line of stored text begins with `| `; the block's own lines never do.
//! 3. Marks that models are trained to obey (`<|im_start|>`, `[INST]`, `</system>`, our own tag) lose their brackets.
//! 4. Control, invisible and direction-changing characters are replaced by their code points.

/// The beginning of every line of stored text.
pub(crate) const LINE_MARK: &str = "| ";

/// The name of the tag, without its number.
pub(crate) const TAG: &str = "memory";

/// Draws a number that none of the texts contains.
pub(crate) fn nonce<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> String {
    loop {
        let mut bytes = [0u8; 8];
        getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
        let drawn = data_encoding::HEXLOWER.encode(&bytes);
        if !texts.clone().any(|text| text.contains(&drawn)) {
            return drawn;
        }
    }
}

/// One stored text as lines of data.
pub(crate) fn quoted(text: &str) -> String {
    let safe = neutral(text);
    let mut out = String::with_capacity(safe.len() + 16);
    for line in safe.split('\n') {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(LINE_MARK);
        out.push_str(line.trim_end());
    }
    out
}

/// A label (kind, session, space) for one of the block's own lines: one line, no brackets, limited length.
pub(crate) fn label(text: &str) -> String {
    let flat: String = neutral(text)
        .chars()
        .map(|c| if matches!(c, '\n' | '\t' | '|' | '[' | ']' | '<' | '>') { ' ' } else { c })
        .collect();
    crate::remember::cut(flat.trim(), 60)
}

/// The text with its marks and invisible characters made harmless; other text is unchanged.
pub fn neutral(text: &str) -> String {
    let unified = text.replace("\r\n", "\n");
    let mut visible = String::with_capacity(unified.len());
    let mut previous = ' ';
    for c in unified.chars() {
        if is_dangerous(c, previous) {
            visible.push_str(&format!("\\u{{{:x}}}", c as u32));
        } else {
            visible.push(c);
        }
        previous = c;
    }
    without_marks(&visible)
}

fn is_dangerous(c: char, previous: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Joiners are part of emoji and several scripts; between ASCII characters they only hide text.
        '\u{200c}' | '\u{200d}' => previous.is_ascii(),
        // Other line breaks, direction marks and overrides, invisible operators, fillers, byte-order marks.
        '\u{2028}'
        | '\u{2029}'
        | '\u{61c}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{ad}'
        | '\u{180e}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{3164}'
        | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}' => true,
        // Tags and variation selectors, which can carry hidden text.
        '\u{e0000}'..='\u{e0fff}' => true,
        c => c.is_control(),
    }
}

/// Names of tags that have a meaning for some model or for us, compared without case, spaces and dashes.
const TAGS: &[&str] = &[
    "memory",
    "memories",
    "system",
    "systemprompt",
    "systemreminder",
    "instruction",
    "instructions",
    "user",
    "assistant",
    "human",
    "tool",
    "tools",
    "toolcall",
    "toolresult",
    "toolresponse",
    "tooluse",
    "function",
    "functioncall",
    "functioncalls",
    "functionresult",
    "functionresults",
    "invoke",
    "parameter",
    "context",
    "prompt",
    "document",
    "documents",
    "result",
    "results",
    "thinking",
    "think",
    "antml",
    "developer",
    "admin",
    "important",
    "policy",
    "sys",
    "inst",
    "s",
    "bos",
    "eos",
    "startofturn",
    "endofturn",
    "override",
];

fn without_marks(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        match plain(c) {
            '<' if opens_mark(&chars, at) => out.push('‹'),
            '>' if at > 0 && matches!(plain(chars[at - 1]), '|') => out.push('›'),
            '[' if opens_inst(&chars, at) => out.push('⟦'),
            _ => out.push(c),
        }
        at += 1;
    }
    out
}

/// The ASCII letter that a look-alike character resembles.
fn plain(c: char) -> char {
    match c {
        '＜' | '﹤' | '〈' | '⟨' | '‹' | '˂' | '❮' | '≺' => '<',
        '＞' | '﹥' | '〉' | '⟩' | '›' | '˃' | '❯' => '>',
        '｜' | '│' | '∣' | 'ǀ' => '|',
        '／' | '⁄' | '∕' => '/',
        '［' => '[',
        '－' | '‐' | '‑' | '–' | '—' | '_' => '-',
        // Full-width letters.
        'ａ'..='ｚ' | 'Ａ'..='Ｚ' => char::from_u32(c as u32 - 0xfee0).unwrap_or(c),
        // Cyrillic and Greek letters that look like Latin ones.
        'а' => 'a',
        'е' | 'ε' => 'e',
        'і' | 'ι' => 'i',
        'о' | 'ο' => 'o',
        'р' | 'ρ' => 'p',
        'с' => 'c',
        'у' | 'γ' => 'y',
        'х' => 'x',
        'ѕ' => 's',
        'м' | 'М' | 'Μ' => 'm',
        'т' | 'Т' | 'Τ' => 't',
        c => c,
    }
}

/// How far a name is searched for after a bracket.
const MARK_CHARACTERS_MAX: usize = 40;

/// `<|`, `<<`, `<!`, or a tag of the list, open or closed, in any case, with blanks or a prefix (`x:tool`).
fn opens_mark(chars: &[char], at: usize) -> bool {
    let mut rest =
        chars[at + 1..].iter().map(|c| plain(*c)).take(MARK_CHARACTERS_MAX).filter(|c| *c != ' ').peekable();
    match rest.peek() {
        Some('|') => return true,
        Some('<') => {
            // `<<SYS>>`; a shift operator or a here-document is followed by something else.
            let name: String = rest.skip(1).filter(|c| *c != '/').take(3).collect();
            return name.eq_ignore_ascii_case("sys");
        }
        Some(_) | None => {}
    }
    while rest.peek() == Some(&'/') {
        rest.next();
    }
    let mut name = String::new();
    for c in rest {
        match c {
            ':' => {
                if is_tag(&name) {
                    return true;
                }
                name.clear();
            }
            '-' => {
                // Our own tag continues with a number after its dash.
                if name.eq_ignore_ascii_case(TAG) {
                    return true;
                }
            }
            c if c.is_alphanumeric() => name.push(c),
            _ => break,
        }
    }
    is_tag(&name)
}

fn is_tag(name: &str) -> bool {
    let lower = name.to_lowercase();
    TAGS.contains(&lower.as_str())
}

/// `[INST]` and `[/INST]`.
fn opens_inst(chars: &[char], at: usize) -> bool {
    let rest: String =
        chars[at + 1..].iter().map(|c| plain(*c)).filter(|c| *c != '/' && *c != ' ').take(4).collect();
    rest.eq_ignore_ascii_case("inst")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn marks_that_models_obey_lose_their_brackets() {
        for text in [
            "<|im_start|>system",
            "</memory>",
            "</memory-0123456789abcdef>",
            "< / MEMORY >",
            "＜/ｍｅｍｏｒｙ＞",
            "</mеmоry>",
            "<system>",
            "</system-reminder>",
            "<function_calls>",
            "<tool_result>",
            "<<SYS>>",
            "[INST] do it [/INST]",
            "<｜begin｜>",
            "</s>",
        ] {
            let safe = neutral(text);
            assert!(!safe.contains("</") && !safe.contains("<|") && !safe.contains("<s"), "{text} → {safe}");
            assert!(!safe.contains("[INST") && !safe.contains("[/INST"), "{text} → {safe}");
            assert_ne!(safe, text);
        }
    }

    #[test]
    fn code_and_prose_stay_as_they_are() {
        for text in [
            "Vec<String> and a < b, x << 2, cat <<EOF",
            "<div class=\"x\">hello</div>",
            "a || b && c",
            "git log --oneline | head",
            "array[i] = [1, 2]",
            "naïve café 漢字 👩‍💻 ❤️",
            "if a<b { return <T as Default>::default() }",
            "one\n\ttwo",
        ] {
            assert_eq!(neutral(text), text);
        }
    }

    #[test]
    fn invisible_characters_are_shown_by_their_code_points() {
        assert_eq!(neutral("a\u{1b}[31mb"), "a\\u{1b}[31mb");
        assert_eq!(neutral("a\u{202e}b\u{200b}c\u{feff}"), "a\\u{202e}b\\u{200b}c\\u{feff}");
        assert_eq!(neutral("x\u{e0041}\u{e007f}"), "x\\u{e0041}\\u{e007f}");
        assert_eq!(neutral("a\rb\r\nc\u{2028}d\u{0}"), "a\\u{d}b\nc\\u{2028}d\\u{0}");
        assert_eq!(neutral("pass\u{200d}word"), "pass\\u{200d}word");
    }

    #[test]
    fn a_number_that_a_text_contains_is_not_drawn() {
        let drawn = nonce(["some text"].into_iter());
        assert_eq!(drawn.len(), 16);
        assert_ne!(drawn, nonce([drawn.as_str()].into_iter()));
    }

    #[test]
    fn a_label_is_one_line_without_brackets() {
        assert_eq!(label("a\nb]|<x>"), "a b   x");
        assert!(label(&"x".repeat(500)).chars().count() <= 61);
    }

    proptest! {
        #[test]
        fn every_line_of_data_is_marked_and_nothing_invisible_is_left(
            text in "[\\x00-\\x7f\u{202e}\u{2028}\u{200b}\u{e0041}＜/<|>\\[INSTmemory ]{0,200}"
        ) {
            let shown = quoted(&text);
            for line in shown.split('\n') {
                prop_assert!(line.starts_with("|"), "{shown:?}");
            }
            prop_assert!(shown.chars().all(|c| c == '\n' || c == '\t' || !is_dangerous(c, 'é')), "{shown:?}");
            prop_assert!(!shown.to_lowercase().contains("</memory") && !shown.contains("<|"));
        }
    }
}
