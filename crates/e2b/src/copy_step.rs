//! Translates COPY steps of template builds to those of recipes.

use std::path::{Path, PathBuf};

use burrow_images::recipe::Copy;

use super::error::Refusal;
use burrow_http::convert;

/// Clients' hashes are hexadecimal SHA-256.
const HASH_CHARACTERS_MAX: usize = 128;

/// The hash that names an upload.
pub(super) fn check_hash(hash: &str) -> Result<(), Refusal> {
    let good = (1..=HASH_CHARACTERS_MAX).contains(&hash.len()) && hash.bytes().all(|b| b.is_ascii_hexdigit());
    if good { Ok(()) } else { Err(Refusal::invalid("the hash must be hexadecimal")) }
}

/// Characters of patterns. Clients expand patterns and upload the matching files.
const PATTERN: [char; 4] = ['*', '?', '[', '{'];

/// The directory or file that contains an upload's files: the source without its pattern, relative, without `.` and
/// `..`. `None` if it leads out of the context.
fn source(text: &str) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if !plain.pop() {
                    return None;
                }
            }
            part if part.contains(PATTERN) => break,
            part => plain.push(part),
        }
    }
    (!text.starts_with('/')).then_some(plain)
}

/// The absolute path of a destination that may be relative to `workdir`. It ends with `/` if its notation means a
/// directory.
pub(super) fn destination(text: &str, workdir: &str) -> String {
    let whole = if text.starts_with('/') { text.to_owned() } else { format!("{workdir}/{text}") };
    let mut parts = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let directory = matches!(text.rsplit('/').next(), Some("" | "." | ".."));
    let slash = if directory && !parts.is_empty() { "/" } else { "" };
    format!("/{}{slash}", parts.join("/"))
}

/// A COPY step: source, destination, owner and mode, in the clients' notation; and its upload.
pub(super) fn step(args: &[String], hash: Option<&str>, workdir: &str) -> Result<Copy, Refusal> {
    let text = |index: usize| args.get(index).map(String::as_str).unwrap_or_default();
    let (from, to, owner, mode) = (text(0), text(1), text(2), text(3));
    let hash = hash.ok_or_else(|| Refusal::invalid("`filesHash` is missing in a `COPY` step"))?;
    check_hash(hash)?;
    let below = source(from)
        .ok_or_else(|| Refusal::invalid("the source of a `COPY` step leads out of the build context"))?;
    let from = Path::new(hash).join(below).to_string_lossy().into_owned();
    let to = destination(to, workdir);
    convert::check_path("COPY", &to)?;
    let mode = match mode {
        "" => None,
        digits => {
            let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777);
            Some(mode.ok_or_else(|| Refusal::invalid("a `COPY` step has an invalid mode"))?)
        }
    };
    for name in owner.split(':').filter(|_| !owner.is_empty()) {
        convert::user("COPY", name)?;
    }
    Ok(Copy { from, to, owner: Some(owner.to_owned()).filter(|owner| !owner.is_empty()), mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_steps_are_parsed() {
        let of = |args: [&str; 4]| step(&args.map(str::to_owned), Some("ab"), "/w");
        let copy = of(["./app", "/srv/app", "user", "0755"]).unwrap();
        assert_eq!((copy.from.as_str(), copy.to.as_str()), ("ab/app", "/srv/app"));
        assert_eq!((copy.owner.as_deref(), copy.mode), (Some("user"), Some(0o755)));
        for (from, to, (expected_from, expected_to)) in [
            ("a", "b/", ("ab/a", "/w/b/")),
            ("a", ".", ("ab/a", "/w/")),
            (".", ".", ("ab/", "/w/")),
            ("a", "./c/../d", ("ab/a", "/w/d")),
            ("a/../b", "", ("ab/b", "/w/")),
            ("*.py", "/code/", ("ab/", "/code/")),
            ("src/**/*.py", "x", ("ab/src", "/w/x")),
            ("src/[ab].py", "/", ("ab/src", "/")),
        ] {
            let copy = of([from, to, "", ""]).unwrap();
            assert_eq!((copy.from.as_str(), copy.to.as_str()), (expected_from, expected_to), "{from} {to}");
        }
        for bad in [
            ["../a", "/a", "", ""],
            ["a/../../b", "/a", "", ""],
            ["/a", "/a", "", ""],
            ["a", "/b", "", "9"],
            ["a", "/b", "x y", ""],
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
        assert!(step(&["a".to_owned(), "/b".to_owned()], None, "/w").is_err());
        assert!(step(&["a".to_owned(), "/b".to_owned()], Some("../x"), "/w").is_err());
    }
}
