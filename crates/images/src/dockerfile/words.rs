//! Expands variables in words of a Dockerfile, and removes quotes: `$NAME`, `${NAME}`, `${NAME:-word}` and its relatives.

use std::iter::Peekable;
use std::str::Chars;

/// Bytes of an expanded word. Each line may double the length of a variable, so there must be a limit.
const EXPANDED_BYTES_MAX: usize = 64 << 10;

/// Expansions inside expansions.
const DEPTH_MAX: usize = 16;

/// Expands the variables that `lookup` knows; others are empty.
pub(super) fn expand(
    text: &str,
    escape: char,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut expander = Expander { chars: text.chars().peekable(), escape, lookup, depth: 0 };
    expander.until(None)
}

/// Expands a text in which quotes have no meaning, such as a heredoc.
pub fn expand_text(
    text: &str,
    escape: char,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut expander = Expander { chars: text.chars().peekable(), escape, lookup, depth: 0 };
    let mut out = String::new();
    while let Some(c) = expander.chars.next() {
        if c == escape && matches!(expander.chars.peek(), Some(next) if *next == '$' || *next == escape) {
            out.extend(expander.chars.next());
        } else if c == '$' {
            out.push_str(&expander.variable()?);
        } else {
            out.push(c);
        }
        check_length(&out)?;
    }
    Ok(out)
}

struct Expander<'a> {
    chars: Peekable<Chars<'a>>,
    escape: char,
    lookup: &'a dyn Fn(&str) -> Option<String>,
    depth: usize,
}

impl Expander<'_> {
    /// To the end, or to the character `end`, which is consumed.
    fn until(&mut self, end: Option<char>) -> Result<String, String> {
        let mut out = String::new();
        while let Some(c) = self.chars.next() {
            match c {
                _ if Some(c) == end => return Ok(out),
                '\'' => self.single_quoted(&mut out)?,
                '"' => self.double_quoted(&mut out)?,
                '$' => out.push_str(&self.variable()?),
                _ if c == self.escape => out.extend(self.chars.next()),
                _ => out.push(c),
            }
            check_length(&out)?;
        }
        match end {
            Some(end) => Err(format!("`{end}` is missing")),
            None => Ok(out),
        }
    }

    fn single_quoted(&mut self, out: &mut String) -> Result<(), String> {
        for c in self.chars.by_ref() {
            match c {
                '\'' => return Ok(()),
                c => out.push(c),
            }
        }
        Err("the closing `'` is missing".to_owned())
    }

    fn double_quoted(&mut self, out: &mut String) -> Result<(), String> {
        while let Some(c) = self.chars.next() {
            match c {
                '"' => return Ok(()),
                '$' => out.push_str(&self.variable()?),
                _ if c == self.escape => match self.chars.next() {
                    Some(next) if matches!(next, '"' | '$') || next == self.escape => out.push(next),
                    Some(next) => out.extend([c, next]),
                    None => break,
                },
                _ => out.push(c),
            }
            check_length(out)?;
        }
        Err("the closing `\"` is missing".to_owned())
    }

    /// After a `$`.
    fn variable(&mut self) -> Result<String, String> {
        if self.chars.next_if_eq(&'{').is_some() {
            return self.braced();
        }
        let name = self.name();
        match name.is_empty() {
            true => Ok("$".to_owned()),
            false => Ok((self.lookup)(&name).unwrap_or_default()),
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
            if name.is_empty() && c.is_ascii_digit() {
                return c.to_string();
            }
            name.push(c);
        }
        name
    }

    /// After a `${`.
    fn braced(&mut self) -> Result<String, String> {
        let name = self.name();
        if name.is_empty() {
            return Err("`${` is not followed by the name of a variable".to_owned());
        }
        let value = (self.lookup)(&name);
        let (value, operator) = match self.chars.next() {
            Some('}') => return Ok(value.unwrap_or_default()),
            // With a colon, an empty value counts as none.
            Some(':') => (value.filter(|value| !value.is_empty()), self.chars.next()),
            operator => (value, operator),
        };
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("expansions are nested too deeply".to_owned());
        }
        let word = match operator {
            Some('-' | '+' | '?') => self.until(Some('}'))?,
            _ => return Err(format!("this kind of expansion of `{name}` is not supported")),
        };
        self.depth -= 1;
        match (operator, value) {
            (Some('+'), Some(_)) => Ok(word),
            (Some('+'), None) => Ok(String::new()),
            (_, Some(value)) => Ok(value),
            (Some('?'), None) => Err(format!("`{name}` is not set: {word}")),
            (_, None) => Ok(word),
        }
    }
}

fn check_length(text: &str) -> Result<(), String> {
    match text.len() > EXPANDED_BYTES_MAX {
        true => Err(format!("an expanded text has more than {EXPANDED_BYTES_MAX} bytes")),
        false => Ok(()),
    }
}
