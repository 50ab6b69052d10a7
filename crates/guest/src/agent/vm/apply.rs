//! Applies the changes in a stream from the host to a tree of files: the part of a merge that runs inside.

use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use burrow_trees::Root;
use burrow_trees::carry::{self, Bounds};

use super::failure::{AtStep as _, Failure};

/// Where content is stored until it is moved into place. A name that nothing else uses.
const STAGING: &str = ".burrow-merging";

/// The host sends no more than it has read from disks like this one.
const BOUNDS: Bounds = Bounds { records_max: 4_000_000, bytes_max: u64::MAX, length_max: u64::MAX };

/// All other processes must be frozen. On success the changes are on disk; after a failure, some of them may be.
pub(super) fn apply(tree: &Path, stream: &mut dyn Read) -> Result<(), Failure> {
    let place = tree.join(STAGING);
    remove(&place);
    fs::DirBuilder::new().mode(0o700).create(&place).at("create the staging directory")?;
    let done = (|| {
        let (live, staging) = (Root::open(tree)?, Root::open(&place)?);
        carry::receive(&live, &staging, stream, BOUNDS, &mut |_, _| Ok(()))
    })();
    remove(&place);
    done.map_err(|error| Failure::new("merge", &explained(&error)))?;
    let root = fs::File::open(tree).at("open the root")?;
    rustix::fs::syncfs(&root).at("sync the disk")
}

fn remove(place: &Path) {
    // A failure to remove it would fail the creation below, with an error that says so.
    let _ = fs::remove_dir_all(place);
}

/// An error with its causes.
pub(super) fn explained(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
