//! Trees of files: what differs between two of them, and how the work of one comes into another.
//!
//! ```text
//!   names that may differ ─► Root::node of each, in two trees ─► diff::compare ─► Differences
//!                                            in three trees    ─► plan::plan   ─► Actions, Conflicts ─► apply::apply
//!   a tree elsewhere ─► survey: which names ─► carry: a part of it as a stream, or what is to be done to it
//! ```
//!
//! Trees are what sandboxes wrote, so nothing in them is believed: every name is resolved by file descriptor beneath the
//! tree's root, no link is followed, no pipe or device is opened, and what is read at once is bounded. Names are bytes; a
//! path is absolute, as its sandbox sees it, and `/` is the root itself.
//!
//! What is absent: pools, snapshots, the catalog, who may merge what.

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
    #[error("more than {max} names are in question")]
    TooMany { max: usize },
}

/// An IO error as the error of a step on a path.
pub(crate) fn step<E: Into<io::Error>>(step: &'static str, path: &[u8]) -> impl FnOnce(E) -> TreeError {
    move |source| TreeError::Step { step, path: path.to_vec(), source: source.into() }
}

/// The directory a path is in, and its name there; `None` for the root.
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
