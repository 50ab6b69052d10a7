//! The normal form of a path, so that the path that was checked is the path that the host sees (E-S9).
//!
//! Pure; the input is hostile. Escapes of unreserved characters are decoded, all others written in upper case; `//`,
//! `.` and `..` are resolved. A path that a server could read as `..` after decoding it once or twice too often is
//! refused.

/// How often a careless server may decode a path.
const DECODINGS_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the target is not a path")]
    NotAPath,
    #[error("the path contains an invalid escape")]
    Escape,
    #[error("the path contains a control character or a backslash")]
    Character,
    #[error("the path hides a `.` or `..` behind escapes or parameters")]
    Hidden,
}

/// The normal form of `path`, which has no query.
pub fn normal(path: &str) -> Result<String, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::NotAPath);
    }
    let plain = unescape(path.as_bytes())?;
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = plain.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    segments.pop();
                }
                if last {
                    segments.push("");
                }
            }
            "" if !last => {}
            part if hides_dots(part) => return Err(PathError::Hidden),
            part => segments.push(part),
        }
    }
    Ok(format!("/{}", segments.join("/")))
}

/// Decodes escapes of unreserved characters, and writes the others in upper case.
fn unescape(path: &[u8]) -> Result<String, PathError> {
    let mut plain = String::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let byte = match path[at] {
            b'%' => {
                let digits = path.get(at + 1..at + 3).ok_or(PathError::Escape)?;
                let digit = |b: u8| char::from(b).to_digit(16).ok_or(PathError::Escape);
                let byte = digit(digits[0])? * 16 + digit(digits[1])?;
                at += 3;
                u8::try_from(byte).map_err(|_| PathError::Escape)?
            }
            b'\\' | 0..=b' ' | 0x7f => return Err(PathError::Character),
            byte => {
                at += 1;
                if byte < 0x80 {
                    plain.push(char::from(byte));
                    continue;
                }
                byte
            }
        };
        match byte {
            0..b' ' | 0x7f | b'\\' => return Err(PathError::Character),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                plain.push(char::from(byte));
            }
            _ => plain.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(plain)
}

/// Whether a segment becomes a dot segment for a server that decodes it again or removes parameters.
fn hides_dots(segment: &str) -> bool {
    let mut text = segment.to_ascii_lowercase();
    for _ in 0..=DECODINGS_MAX {
        let dots = |part: &str| matches!(part.split(';').next(), Some("." | ".."));
        if text.split(['/', '\\']).any(dots) || text.contains('\0') {
            return true;
        }
        text = text
            .replace("%2f", "/")
            .replace("%5c", "\\")
            .replace("%2e", ".")
            .replace("%3b", ";")
            .replace("%00", "\0")
            .replace("%25", "%");
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn e_s9_a_path_has_one_normal_form() {
        for (given, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/%2e%2e/b", "/b"),
            ("/a/%2E./b", "/b"),
            ("/../../b", "/b"),
            ("//a///b//", "/a/b/"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/%76%31/chat", "/v1/chat"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%20b", "/a%20b"),
            ("/a;x=1/b", "/a;x=1/b"),
            ("/\u{fc}", "/%C3%BC"),
        ] {
            assert_eq!(normal(given).as_deref(), Ok(expected), "{given}");
        }
    }

    #[test]
    fn e_s9_ambiguous_paths_are_refused() {
        for given in [
            "",
            "*",
            "v1",
            "http://x/",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a\\b",
            "/a%5cb",
            "/a%00b",
            "/a\u{1}b",
            "/a/..%2fb",
            "/a/%2e%2e%2fb",
            "/a/..;/b",
            "/a/.;x/b",
            "/a/%252e%252e/b",
            "/a/%252e%252e%252fb",
            "/a/..%255cb",
            "/a/%25252e./b",
        ] {
            assert!(normal(given).is_err(), "{given}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_path_is_its_own_normal_form(path in "/([a-z.%/;2eEfF5c]{0,20})") {
            if let Ok(once) = normal(&path) {
                prop_assert_eq!(normal(&once), Ok(once.clone()));
                prop_assert!(!once.split('/').any(|part| matches!(part, "." | "..")));
                prop_assert!(!once.contains("//"));
            }
        }
    }
}
