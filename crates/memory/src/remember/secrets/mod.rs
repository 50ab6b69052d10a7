//! Removes secrets from text before it is recorded.
//!
//! Texts that are recorded automatically (commands, output, messages) were not written to be kept, so strings that look like
//! credentials are replaced: tokens of known formats, private keys, passwords in URLs, and values after names such
//! as `password=`. Plain hashes, uuids and paths are kept, because agents search for them later. Entries that a client
//! adds explicitly are stored verbatim and are not filtered here.
//!
//! Each finder adds byte ranges; they are joined and replaced once at the end, so finders do not affect each other.

mod names;
mod shapes;

use std::borrow::Cow;
use std::ops::Range;

use self::names::{Strength, header_credentials, strength_of};
use self::shapes::{Body, shape_at};

/// The replacement for a secret.
pub const REMOVED: &str = "[secret removed]";

/// The text without its secrets; borrowed if there were none.
pub fn scrub(text: &str) -> Cow<'_, str> {
    let mut found: Vec<Range<usize>> = Vec::new();
    private_keys(text, &mut found);
    known_tokens(text, &mut found);
    url_passwords(text, &mut found);
    named_values(text, &mut found);
    replace(text, found)
}

/// Shorter values are words and numbers that also occur with other meanings.
const VALUE_BYTES_MIN: usize = 6;

/// The values of environment variables with secret names. They are removed wherever they occur.
pub fn secret_values<'a>(env: impl IntoIterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    let secret = |(name, value): &(&String, &String)| {
        strength_of(name).is_some() && value.len() >= VALUE_BYTES_MIN && !is_plain_word(value)
    };
    env.into_iter().filter(secret).map(|(_, value)| value.clone()).collect()
}

/// The text without the given secret values.
pub fn without(mut text: String, secrets: &[String]) -> String {
    for secret in secrets {
        if text.contains(secret.as_str()) {
            text = text.replace(secret.as_str(), REMOVED);
        }
    }
    text
}

fn replace(text: &str, mut found: Vec<Range<usize>>) -> Cow<'_, str> {
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    found.sort_by_key(|range| (range.start, range.end));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for range in found {
        if range.end <= at {
            continue;
        }
        // Ranges that touch or overlap are one secret that two finders found.
        if range.start >= at {
            out.push_str(&text[at..range.start]);
            out.push_str(REMOVED);
        }
        at = range.end;
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

// === Private keys ===

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// PEM blocks with a private label. A block that is cut off by the end of an output ends there.
fn private_keys(text: &str, found: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(begin) = find_from(text, BEGIN, at) {
        let body = begin + BEGIN.len();
        let Some(label_end) = find_from(text, DASHES, body) else { break };
        if !is_private(&text[body..label_end]) {
            at = body;
            continue;
        }
        let end = find_from(text, END, label_end)
            .and_then(|end| find_from(text, DASHES, end + END.len()))
            .map_or(text.len(), |dashes| dashes + DASHES.len());
        found.push(begin..end);
        at = end;
    }
    headless_key(text, found);
}

/// The end of a key whose beginning was cut off: the base64 text before its `END` line.
fn headless_key(text: &str, found: &mut Vec<Range<usize>>) {
    let Some(end) = text.find(END) else { return };
    if text.find(BEGIN).is_some_and(|begin| begin < end) {
        return;
    }
    let Some(dashes) = find_from(text, DASHES, end + END.len()) else { return };
    if !is_private(&text[end + END.len()..dashes]) {
        return;
    }
    let base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '\n' | '\r');
    let start = text[..end].trim_end_matches(base64).len();
    found.push(start..dashes + DASHES.len());
}

fn is_private(label: &str) -> bool {
    // `RSA PRIVATE KEY`, `OPENSSH PRIVATE KEY`, `ENCRYPTED PRIVATE KEY`, `PGP PRIVATE KEY BLOCK`.
    label.len() < 64 && label.contains("PRIVATE KEY")
}

// === Tokens of known shapes ===

/// URLs that grant access to anyone who knows them.
const WEBHOOKS: &[&str] = &[
    "https://hooks.slack.com/services/",
    "https://hooks.slack.com/workflows/",
    "https://discord.com/api/webhooks/",
    "https://discordapp.com/api/webhooks/",
];

fn known_tokens(text: &str, found: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        // A token begins at the start of a word: `task-…` does not contain `sk-…`.
        let starts_word = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let end = if starts_word { token_at(bytes, at) } else { None };
        match end {
            Some(end) => {
                found.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
}

fn token_at(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"eyJ") {
        return jwt_length(rest).map(|length| at + length);
    }
    if WEBHOOKS.iter().any(|webhook| rest.starts_with(webhook.as_bytes())) {
        let length = rest.iter().position(|b| b.is_ascii_whitespace() || matches!(b, b'"' | b'\''));
        return Some(at + length.unwrap_or(rest.len()));
    }
    shape_at(rest).map(|length| at + length)
}

/// Three parts in base64url, the first of which begins a JSON object.
fn jwt_length(bytes: &[u8]) -> Option<usize> {
    let part = |from: usize| bytes[from..].iter().take_while(|b| Body::Url.has(**b)).count();
    let header = part(0);
    if header < 12 || bytes.get(header) != Some(&b'.') {
        return None;
    }
    let claims = part(header + 1);
    if claims < 8 {
        return None;
    }
    let two = header + 1 + claims;
    // The signature is missing in unsigned tokens, and if the text was cut.
    Some(if bytes.get(two) == Some(&b'.') { two + 1 + part(two + 1) } else { two })
}

/// A token is random: it mixes digits and letters. Words joined by dashes (`sk-learn-pipeline-for-trees`) do not.
fn looks_random(body: &[u8]) -> bool {
    let digits = body.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = body.iter().filter(|b| b.is_ascii_alphabetic()).count();
    digits >= 2 && letters >= 2 || digits >= 16
}

// === Passwords in URLs ===

/// The password of `scheme://user:password@host`, or the user if there is no password and it looks like a token.
fn url_passwords(text: &str, found: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(mark) = find_from(text, "://", at) {
        let start = mark + 3;
        at = start;
        let authority_end = text[start..]
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '`' | '<' | '>'))
            .map_or(text.len(), |length| start + length);
        let Some(sign) = text[start..authority_end].rfind('@').map(|length| start + length) else { continue };
        match text[start..sign].find(':').map(|length| start + length) {
            Some(colon) if colon + 1 < sign => {
                if !is_placeholder(&text[colon + 1..sign]) {
                    found.push(colon + 1..sign);
                }
            }
            Some(_) => {}
            None => {
                if sign - start >= 16 && looks_random(&text.as_bytes()[start..sign]) {
                    found.push(start..sign);
                }
            }
        }
    }
}

// === Values after secret names ===

fn named_values(text: &str, found: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !is_name(bytes[at]) {
            at += 1;
            continue;
        }
        let end = at + bytes[at..].iter().take_while(|b| is_name(**b)).count();
        let name = &text[at..end];
        if let Some(range) = value_after(text, name, end) {
            found.push(range.clone());
            at = range.end.max(end);
        } else {
            at = end;
        }
    }
}

fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

fn value_after(text: &str, name: &str, end: usize) -> Option<Range<usize>> {
    if let Some(range) = header_credentials(text, name, end) {
        return Some(range);
    }
    if matches!(name, "-u" | "--user" | "--proxy-user") {
        return user_password(text, end);
    }
    if let Some(range) = short_password(text, name, end) {
        return Some(range);
    }
    let strength = strength_of(name)?;
    let (start, separator) = separator_after(text, name, end)?;
    let value = value_at(text, start)?;
    is_secret_value(&text[value.clone()], strength, separator).then_some(value)
}

/// The separator between a name and its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    Equals,
    Colon,
    /// The blank after a command-line flag.
    Blank,
}

fn separator_after(text: &str, name: &str, end: usize) -> Option<(usize, Separator)> {
    let rest = &text[end..];
    // `"password": "…"` and `'password' => '…'`.
    let unquoted = rest.strip_prefix(['"', '\'']).unwrap_or(rest);
    let trimmed = unquoted.trim_start_matches([' ', '\t']);
    let (after, separator) = if let Some(after) = trimmed.strip_prefix("=>") {
        (after, Separator::Equals)
    } else if let Some(after) = trimmed.strip_prefix(":=").or_else(|| trimmed.strip_prefix('=')) {
        // `==` is a comparison, followed by an expression.
        if after.starts_with('=') {
            return None;
        }
        (after, Separator::Equals)
    } else if let Some(after) = trimmed.strip_prefix(':') {
        // `token::Kind` is a path in source code.
        if after.starts_with(':') {
            return None;
        }
        (after, Separator::Colon)
    } else if name.starts_with("--") && trimmed.len() < rest.len() {
        (trimmed, Separator::Blank)
    } else {
        return None;
    };
    let start = text.len() - after.trim_start_matches([' ', '\t']).len();
    Some((start, separator))
}

/// The value that begins here: quoted text, or everything up to the next blank or separator.
fn value_at(text: &str, start: usize) -> Option<Range<usize>> {
    let rest = &text[start..];
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
    let range = match quote {
        Some(quote) => {
            let inner = start + quote.len_utf8();
            let length = text[inner..].find([quote, '\n']).unwrap_or(text.len() - inner);
            inner..inner + length
        }
        None => {
            let stop = |c: char| {
                c.is_whitespace() || matches!(c, '&' | ',' | ';' | '"' | '\'' | '`' | ')' | '}' | '|')
            };
            let length = rest.find(stop).unwrap_or(rest.len());
            start..start + length
        }
    };
    (!range.is_empty()).then_some(range)
}

fn is_secret_value(value: &str, strength: Strength, separator: Separator) -> bool {
    if is_placeholder(value) || is_plain_word(value) {
        return false;
    }
    match (strength, separator) {
        (Strength::Strong, Separator::Equals | Separator::Blank) => true,
        // `Password: wrong one given` is a message; a single word of at least four characters is a value.
        (Strength::Strong, Separator::Colon) => value.chars().count() >= 4,
        (Strength::Soft, Separator::Equals | Separator::Colon | Separator::Blank) => {
            value.len() >= 8 && !value.starts_with(['/', '.', '~']) && is_dense(value)
        }
    }
}

/// Whether a value looks machine-generated: digits among letters, or many different characters.
fn is_dense(value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    (digits >= 1 && letters >= 2 && !is_call(value))
        || (value.len() >= 16 && entropy(value) >= 3.5 && !is_call(value))
}

/// Source code is not a secret: `token = next_token2()`, `auth = config.auth[0]`.
fn is_call(value: &str) -> bool {
    value.contains(['(', '[', '{']) || value.contains("::") || value.contains("->")
}

/// Shannon entropy in bits per byte; 16 random base64 characters have about 3.9, an English phrase about 3.
fn entropy(value: &str) -> f64 {
    let mut counts = [0u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let total = value.len() as f64;
    let share = |count: &u32| f64::from(*count) / total;
    counts.iter().filter(|count| **count > 0).map(|count| -share(count) * share(count).log2()).sum()
}

/// A placeholder: a variable, a template, stars.
fn is_placeholder(value: &str) -> bool {
    value.is_empty()
        || value.starts_with(['$', '%', '<'])
        || value.starts_with("{{")
        || value.starts_with(REMOVED)
        || value.starts_with("[secret")
        || value.chars().all(|c| matches!(c, '*' | '.' | 'x' | 'X' | '•' | '-' | '_' | '?'))
}

/// Words that follow such names in messages, types and settings, and are not secrets.
fn is_plain_word(value: &str) -> bool {
    const WORDS: &[&str] = &[
        "true",
        "false",
        "null",
        "none",
        "nil",
        "undefined",
        "yes",
        "no",
        "on",
        "off",
        "string",
        "str",
        "option",
        "option<string>",
        "optional[str]",
        "any",
        "text",
        "bytes",
        "required",
        "optional",
        "invalid",
        "incorrect",
        "wrong",
        "missing",
        "expired",
        "expected",
        "unexpected",
        "empty",
        "not",
        "is",
        "must",
        "the",
        "a",
        "for",
        "authentication",
        "authorization",
        "basic",
        "bearer",
        "redacted",
        "hidden",
        "changed",
        "unset",
        "default",
        "prompt",
        "read",
        "write",
        "failed",
        "denied",
        "ok",
        "self",
        "int",
        "number",
        "&str",
        "char",
        "secret",
        "password",
        "token",
    ];
    let lower = value.trim_end_matches(['.', ',', ':', '!']).to_ascii_lowercase();
    WORDS.contains(&lower.as_str())
}

/// Programs whose `-p` is a password, and not a port, a project or a path.
const SHORT_PASSWORD: &[&str] = &[
    "mysql",
    "mysqldump",
    "mysqladmin",
    "mariadb",
    "mariadb-dump",
    "sshpass",
    "docker login",
    "podman login",
    "mongosh",
    "mongo",
    "mongodump",
];

/// `mysql -phunter2`, `docker login -p hunter2`.
fn short_password(text: &str, name: &str, end: usize) -> Option<Range<usize>> {
    let glued = name.strip_prefix("-p")?;
    let start = end - name.len();
    let line = text[..start].rfind(['\n', ';', '|', '&']).map_or(0, |at| at + 1);
    let before = text[line..start].trim_start().trim_start_matches("sudo ");
    let program = before.split_whitespace().next()?.rsplit('/').next()?;
    let second = before.split_whitespace().nth(1).unwrap_or_default();
    let named = |known: &&str| *known == program || **known == format!("{program} {second}");
    if !SHORT_PASSWORD.iter().any(named) {
        return None;
    }
    // A value may contain characters that a name may not: it ends at the next blank.
    let value = match glued.is_empty() {
        false => value_at(text, start + 2)?,
        true => {
            let rest = &text[end..];
            let blanks = rest.len() - rest.trim_start_matches([' ', '=']).len();
            value_at(text, end + blanks).filter(|_| blanks > 0 || rest.starts_with(['"', '\'']))?
        }
    };
    (!is_placeholder(&text[value.clone()])).then_some(value)
}

/// `-u user:password` of curl and similar programs.
fn user_password(text: &str, end: usize) -> Option<Range<usize>> {
    let rest = &text[end..];
    let blanks = rest.len() - rest.trim_start_matches([' ', '=']).len();
    if blanks == 0 {
        return None;
    }
    let value = value_at(text, end + blanks)?;
    let colon = text[value.clone()].find(':')? + value.start;
    let password = colon + 1..value.end;
    // `docker run --user 1000:1000` names a group.
    let is_group = text[password.clone()].bytes().all(|b| b.is_ascii_digit());
    let blank = password.is_empty() || is_placeholder(&text[password.clone()]);
    (!is_group && !blank).then_some(password)
}

fn find_from(text: &str, needle: &str, at: usize) -> Option<usize> {
    text.get(at..)?.find(needle).map(|length| at + length)
}

#[cfg(test)]
mod tests;
