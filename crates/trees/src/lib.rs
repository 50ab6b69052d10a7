//! File trees: the differences between them, and three-way merges.
//!
//! ```text
//!   names that may differ ─► Root::node of each, in two trees ─► diff::compare ─► Differences
//!                                            in three trees    ─► plan::plan   ─► Actions, Conflicts ─► apply::apply
//!   a tree elsewhere ─► survey: which names ─► carry: parts of it, or actions for it, as a stream
//! ```
//!
//! Sandboxes wrote the trees, so nothing in them is trusted: every name is resolved by file descriptor below the
//! tree's root, no link is followed, no pipe or device is opened, and the amount read at once is limited. Names are bytes; a
//! path is absolute, as its sandbox sees it, and `/` is the root itself.
//!
//! Absent: pools, snapshots, the catalog, permissions.

pub mod apply;
pub mod carry;
pub mod diff;
pub mod glob;
pub mod hosts;
mod in_place;
pub mod noise;
pub mod plan;
pub mod root;
pub mod survey;
pub mod text;

use std::io;

pub use root::{Identity, Kind, Node, Root};

#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("could not {step} `{}`", String::from_utf8_lossy(.path))]
    Step { step: &'static str, path: Vec<u8>, source: io::Error },
    #[error("too many paths: the limit is {max}")]
    TooMany { max: usize },
}

/// Converts an IO error to the error of a step on a path.
pub(crate) fn step<E: Into<io::Error>>(step: &'static str, path: &[u8]) -> impl FnOnce(E) -> TreeError {
    move |source| TreeError::Step { step, path: path.to_vec(), source: source.into() }
}

/// The parent directory of a path, and the name in it; `None` for the root.
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    let (above, name) = (&path[..at], &path[at + 1..]);
    if name.is_empty() {
        return None;
    }
    Some((if above.is_empty() { b"/" } else { above }, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_into_its_directory_and_its_name() {
        assert_eq!(split(b"/"), None);
        assert_eq!(split(b"/a"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(split(b"/a/b"), Some((&b"/a"[..], &b"b"[..])));
    }
}
