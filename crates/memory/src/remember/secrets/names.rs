//! Names that indicate a secret value, and the position of credentials in HTTP headers.

use std::ops::Range;

/// How strongly a name indicates a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    /// `password`: every value is a secret.
    Strong,
    /// `token`: counts, types and words also follow; the value must look like a secret as well.
    Soft,
}

/// The last words of names, split at `_`, `-`, `.` and changes of case.
const STRONG: &[&[&str]] = &[
    &["password"],
    &["passwd"],
    &["passphrase"],
    &["pgpassword"],
    &["client", "secret"],
    &["secret", "key"],
    &["secret", "access", "key"],
    &["private", "key"],
    &["secret"],
    &["account", "key"],
    &["shared", "access", "key"],
    &["sas", "token"],
    &["storage", "key"],
    &["sshpass"],
    &["mysql", "pwd"],
    &["rediscli", "auth"],
    &["passcode"],
    &["otp"],
];

const SOFT: &[&[&str]] = &[
    &["token"],
    &["apikey"],
    &["api", "key"],
    &["access", "key"],
    &["access", "key", "id"],
    &["auth", "key"],
    &["encryption", "key"],
    &["signing", "key"],
    &["master", "key"],
    &["shared", "key"],
    &["auth"],
    &["credential"],
    &["credentials"],
    &["secrets"],
    &["pwd"],
    &["pass"],
    &["session", "id"],
    &["sessionid"],
    &["dsn"],
    &["webhook"],
    &["webhook", "url"],
    &["license", "key"],
    &["deploy", "key"],
    &["ssh", "key"],
    &["service", "key"],
    &["authtoken"],
    &["accesstoken"],
    &["refreshtoken"],
    &["sig"],
    &["signature"],
    &["connection", "string"],
    &["cookie"],
    &["bearer"],
    &["pat"],
];

/// Longer names are not names of settings.
const NAME_MAX: usize = 80;

pub(super) fn strength_of(name: &str) -> Option<Strength> {
    if name.len() > NAME_MAX {
        return None;
    }
    let words = words_of(name);
    let ends_with = |ending: &&[&str]| {
        words.len() >= ending.len()
            && words[words.len() - ending.len()..].iter().zip(ending.iter()).all(|(word, end)| word == end)
    };
    if STRONG.iter().any(ends_with) {
        Some(Strength::Strong)
    } else if SOFT.iter().any(ends_with) {
        Some(Strength::Soft)
    } else {
        None
    }
}

/// `awsSecretAccess_key` is `aws secret access key`; `DB_PASSWORD` is `db password`.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous_lower = false;
    let mut open = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() {
            open = false;
            previous_lower = false;
            continue;
        }
        if !open || (c.is_ascii_uppercase() && previous_lower) {
            words.push(String::new());
            open = true;
        }
        previous_lower = c.is_ascii_lowercase();
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

/// The credentials of a header: `Authorization: Bearer …`, `Cookie: …`, and `Bearer …` without its header.
pub(super) fn header_credentials(text: &str, name: &str, end: usize) -> Option<Range<usize>> {
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "authorization"
        | "proxy-authorization"
        | "x-amz-security-token"
        | "x-vault-token"
        | "private-token"
        | "x-auth-token"
        | "x-auth-key" => {
            let start = after_colon(text, end)?;
            let value = until_line_or_quote(text, start);
            // The scheme is kept: it shows the kind of credential.
            let scheme = text[value.clone()].find(' ').map_or(0, |length| length + 1);
            let credentials = value.start + scheme..value.end;
            worth_removing(text, &credentials).then_some(credentials)
        }
        "cookie" | "set-cookie" => {
            let start = after_colon(text, end)?;
            let value = until_line_or_quote(text, start);
            text[value.clone()].contains('=').then_some(value)
        }
        "bearer" => {
            let rest = &text[end..];
            let start = end + 1;
            let value = start..start + rest.strip_prefix(' ')?.find(is_edge).unwrap_or(rest.len() - 1);
            let long = value.len() >= 16 && text[value.clone()].bytes().any(|b| b.is_ascii_digit());
            long.then_some(value)
        }
        _ => None,
    }
}

fn is_edge(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',')
}

fn after_colon(text: &str, end: usize) -> Option<usize> {
    let rest = text[end..].trim_start_matches(['"', '\'']).trim_start_matches(' ');
    let after = rest.strip_prefix([':', '='])?;
    Some(text.len() - after.trim_start_matches([' ', '"', '\'']).len())
}

fn until_line_or_quote(text: &str, start: usize) -> Range<usize> {
    let length = text[start..].find(['\n', '\r', '"', '\'', '`']).unwrap_or(text.len() - start);
    start..start + text[start..start + length].trim_end().len()
}

fn worth_removing(text: &str, range: &Range<usize>) -> bool {
    let value = &text[range.clone()];
    value.len() >= 4
        && !value.starts_with(['$', '<', '*'])
        && !value.starts_with("{{")
        && !value.starts_with("[secret")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised_by_their_last_words() {
        for (name, expected) in [
            ("password", Some(Strength::Strong)),
            ("DB_PASSWORD", Some(Strength::Strong)),
            ("--password", Some(Strength::Strong)),
            ("spring.datasource.password", Some(Strength::Strong)),
            ("awsSecretAccessKey", Some(Strength::Strong)),
            ("GITHUB_TOKEN", Some(Strength::Soft)),
            ("x-api-key", Some(Strength::Soft)),
            ("apiKey", Some(Strength::Soft)),
            ("tokens", None),
            ("max_tokens", None),
            ("cache_key", None),
            ("key", None),
            ("passwords_checked", None),
            ("tokenizer", None),
        ] {
            assert_eq!(strength_of(name), expected, "{name}");
        }
    }
}
