//! Splits Rust source into tokens: enough to find imports and strings.

/// Names, `::`, literals and other characters, each with its offset. Comments, characters and lifetimes are left out.
fn lexemes(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let (length, counts) = match first {
            _ if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            _ if rest.starts_with("::") => (2, true),
            '"' => (string_length(rest), true),
            'r' | 'b' if raw_string_length(rest).is_some() => (raw_string_length(rest).unwrap(), true),
            'b' if rest.starts_with("b\"") => (1 + string_length(&rest[1..]), true),
            '\'' => (character_length(rest), false),
            c if is_name(c) => (rest.find(|c| !is_name(c)).unwrap_or(rest.len()), true),
            c => (c.len_utf8(), !c.is_whitespace()),
        };
        if counts {
            found.push((at, &rest[..length]));
        }
        at += length;
    }
    found
}

fn is_string(lexeme: &str) -> bool {
    lexeme.starts_with(['"', 'r', 'b']) && lexeme.ends_with(['"', '#']) && lexeme.contains('"')
}

/// Each literal is the token `"`.
pub(crate) fn tokens_of(text: &str) -> Vec<String> {
    let token = |lexeme: &str| if is_string(lexeme) { "\"".to_owned() } else { lexeme.to_owned() };
    lexemes(text).into_iter().map(|(_, lexeme)| token(lexeme)).collect()
}

/// The contents of string literals, each with the number of its first line. A string of several lines becomes one.
pub(crate) fn strings_of(text: &str) -> Vec<(usize, String)> {
    let strings = lexemes(text).into_iter().filter(|(_, lexeme)| is_string(lexeme));
    let line = |at: usize| 1 + text[..at].matches('\n').count();
    strings
        .map(|(at, string)| {
            (line(at), string.replace("\\\n", " ").split_whitespace().collect::<Vec<_>>().join(" "))
        })
        .collect()
}

fn string_length(text: &str) -> usize {
    let mut escaped = true;
    let end = text.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 1)
}

fn raw_string_length(text: &str) -> Option<usize> {
    let hashes = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let count = hashes.find(|c| c != '#')?;
    let inner = hashes[count..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(count));
    Some(text.len() - inner.len() + inner.find(&end)? + end.len())
}

/// Of a character, or of the quote of a lifetime.
fn character_length(text: &str) -> usize {
    match text[1..].chars().next() {
        Some('\\') => 4 + text[3..].find('\'').unwrap(),
        Some(c) if text[1 + c.len_utf8()..].starts_with('\'') => 2 + c.len_utf8(),
        _ => 1,
    }
}

/// Leaves out everything that is compiled for tests only.
pub(crate) fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = if tokens[at] == "#" { group_length(&tokens[at + 1..]) } else { 0 };
        let inner = &tokens[at..at + 1 + attribute];
        let for_tests = inner.get(2).is_some_and(|name| name == "cfg")
            && inner.contains(&"test".to_owned())
            && !inner.contains(&"not".to_owned());
        if for_tests {
            at += inner.len();
            at += item_length(&tokens[at..]);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Of the brackets at the start, with what they contain; 0 if there are none.
pub(crate) fn group_length(tokens: &[String]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "[" | "(" | "{" => depth += 1,
            "]" | ")" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { 0 } else { at + 1 };
        }
    }
    tokens.len()
}

/// Of an item: up to its semicolon, or to the end of its block.
fn item_length(tokens: &[String]) -> usize {
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => return at + 1,
            "{" => return at + group_length(&tokens[at..]),
            "(" | "[" => at += group_length(&tokens[at..]),
            _ => at += 1,
        }
    }
    at
}

#[test]
fn strings_of_several_lines_are_read_as_one() {
    let text = "let a = \"one \\\n     two\"; // \"no\"\nlet b = '\"'; f(r#\"x \" y\"#);";
    assert_eq!(strings_of(text), [(1, "\"one two\"".to_owned()), (3, "r#\"x \" y\"#".to_owned())]);
}
