//! Patterns of paths.
//!
//! | written     | matches                                                            |
//! |-------------|--------------------------------------------------------------------|
//! | `*`         | any part of one name                                               |
//! | `?`         | one byte of a name                                                 |
//! | `**`        | any number of directories                                          |
//! | `[abc]`     | one of these; `[a-z]` a range, `[!a]` anything else                |
//! | `name`      | a pattern without `/` matches the last name, in any directory      |
//! | `/etc/x`    | a pattern with `/` begins at the root                              |
//!
//! A pattern that matches a directory matches everything in it.

use std::fmt;
use std::str::FromStr;

/// Bytes of one pattern: slightly more than the longest path.
const PATTERN_BYTES_MAX: usize = 4096;

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `**`
    Folders,
    Name(Vec<Token>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    Any,
    Many,
    Set { ranges: Vec<(u8, u8)>, without: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    #[error("a pattern is at most {PATTERN_BYTES_MAX} bytes long, and not empty")]
    Length,
    #[error("the pattern `{pattern}` has a `[` without its `]`")]
    OpenSet { pattern: String },
}

impl FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(GlobError::Length);
        }
        let mut parts = Vec::new();
        if !text.contains('/') {
            parts.push(Part::Folders);
        }
        for part in text.split('/').filter(|part| !part.is_empty()) {
            parts.push(match part {
                "**" => Part::Folders,
                name => Part::Name(tokens(name.as_bytes(), text)?),
            });
        }
        Ok(Self { text: text.to_owned(), parts })
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Glob {
    pub fn matches(&self, path: &[u8]) -> bool {
        // The parts that may match next, after the names so far: the time is proportional to names times parts.
        let mut open = vec![false; self.parts.len() + 1];
        open[0] = true;
        self.skip_folders(&mut open);
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if open[self.parts.len()] {
                return true;
            }
            let mut next = vec![false; open.len()];
            for (at, part) in self.parts.iter().enumerate().filter(|(at, _)| open[*at]) {
                match part {
                    Part::Folders => next[at] = true,
                    Part::Name(tokens) if name_matches(tokens, name) => next[at + 1] = true,
                    Part::Name(_) => {}
                }
            }
            self.skip_folders(&mut next);
            open = next;
        }
        // A pattern that ends in `**` matches the content of a directory, not the directory itself.
        open[self.parts.len()] && !self.ends_in_folders(path)
    }

    fn skip_folders(&self, open: &mut [bool]) {
        for (at, part) in self.parts.iter().enumerate() {
            if open[at] && *part == Part::Folders {
                open[at + 1] = true;
            }
        }
    }

    /// Whether a `**` at the end could only match nothing.
    fn ends_in_folders(&self, path: &[u8]) -> bool {
        let Some((Part::Folders, before)) = self.parts.split_last() else { return false };
        let shorter = Self { text: String::new(), parts: before.to_vec() };
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count();
        !before.is_empty()
            && !before.contains(&Part::Folders)
            && names == before.len()
            && shorter.matches(path)
    }
}

fn tokens(name: &[u8], pattern: &str) -> Result<Vec<Token>, GlobError> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(byte) = name.get(at) {
        at += 1;
        found.push(match byte {
            b'*' => Token::Many,
            b'?' => Token::Any,
            b'[' => {
                let without = matches!(name.get(at), Some(b'!' | b'^'));
                let start = at + usize::from(without);
                // A `]` directly at the beginning is part of the set.
                let end = name.iter().skip(start + 1).position(|byte| *byte == b']');
                let end = end.ok_or_else(|| GlobError::OpenSet { pattern: pattern.to_owned() })? + start + 1;
                at = end + 1;
                Token::Set { ranges: ranges(&name[start..end]), without }
            }
            b'\\' if at < name.len() => {
                at += 1;
                Token::Byte(name[at - 1])
            }
            byte => Token::Byte(*byte),
        });
    }
    Ok(found)
}

fn ranges(set: &[u8]) -> Vec<(u8, u8)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(first) = set.get(at) {
        match (set.get(at + 1), set.get(at + 2)) {
            (Some(b'-'), Some(last)) => {
                found.push((*first, *last));
                at += 3;
            }
            _ => {
                found.push((*first, *first));
                at += 1;
            }
        }
    }
    found
}

fn name_matches(tokens: &[Token], name: &[u8]) -> bool {
    // Backtracking to the last `*` only is sufficient, so this takes at most tokens times bytes.
    let (mut token, mut byte, mut star) = (0, 0, None);
    while byte < name.len() {
        let fits = match tokens.get(token) {
            Some(Token::Many) => {
                star = Some((token, byte));
                token += 1;
                continue;
            }
            Some(Token::Any) => true,
            Some(Token::Byte(wanted)) => *wanted == name[byte],
            Some(Token::Set { ranges, without }) => {
                let within = ranges.iter().any(|(first, last)| (first..=last).contains(&&name[byte]));
                within != *without
            }
            None => false,
        };
        if fits {
            (token, byte) = (token + 1, byte + 1);
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            (token, byte) = (at + 1, from + 1);
        } else {
            return false;
        }
    }
    tokens[token..].iter().all(|token| *token == Token::Many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let glob: Glob = pattern.parse().unwrap();
        for path in matching {
            assert!(glob.matches(path.as_bytes()), "`{pattern}` on `{path}`");
        }
        for path in others {
            assert!(!glob.matches(path.as_bytes()), "`{pattern}` on `{path}`");
        }
    }

    #[test]
    fn patterns_match_what_the_table_says() {
        check("*.log", &["/a.log", "/var/x/b.log", "/x.log/inside"], &["/a.logs", "/log"]);
        check("/etc", &["/etc", "/etc/a/b"], &["/etcetera", "/usr/etc"]);
        check("/etc/*", &["/etc/a", "/etc/a/b"], &["/etc", "/x"]);
        check("/srv/**", &["/srv/a", "/srv/a/b"], &["/srv", "/srvx/a"]);
        check("/src/**/*.rs", &["/src/a.rs", "/src/x/y/a.rs"], &["/a.rs", "/src/a.c"]);
        check("**/node_modules/**", &["/node_modules/x", "/a/node_modules/b/c"], &["/a/modules/x"]);
        check("a?c[0-9]", &["/abc1", "/x/azc9"], &["/ac1", "/abcx"]);
        check("[!a]b", &["/xb"], &["/ab", "/b"]);
        check("[]x]", &["/]", "/x"], &["/y"]);
        check("\\*", &["/*"], &["/x"]);
        check("**", &["/a", "/a/b"], &[]);
        check("/", &["/a", "/"], &[]);
    }

    #[test]
    fn invalid_patterns_are_refused() {
        assert_eq!("".parse::<Glob>(), Err(GlobError::Length));
        assert!(matches!("a[b".parse::<Glob>(), Err(GlobError::OpenSet { .. })));
        assert_eq!("x".repeat(5000).parse::<Glob>(), Err(GlobError::Length));
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_time() {
        let glob: Glob = "*a*a*a*a*a*a*a*a*a*a*b".parse().unwrap();
        assert!(!glob.matches(format!("/{}", "a".repeat(250)).as_bytes()));
        let glob: Glob = format!("{}x", "**/".repeat(1000)).parse().unwrap();
        assert!(!glob.matches("/a".repeat(1000).as_bytes()));
    }
}
