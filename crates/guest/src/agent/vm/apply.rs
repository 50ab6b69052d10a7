//! Does to a tree of files what a stream from the host says: the inside of a merge.

use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use burrow_trees::Root;
use burrow_trees::carry::{self, Bounds};

use super::{At as _, Failure};

/// Where content waits for its place. Nobody else's name.
const STAGING: &str = ".burrow-merging";

/// The host says no more than it has read out of disks like this one.
const BOUNDS: Bounds = Bounds { records_max: 4_000_000, bytes_max: u64::MAX, length_max: u64::MAX };

/// Nobody else may run. What was done is on disk when this returns; after a failure, some of it may have been.
pub(super) fn apply(tree: &Path, stream: &mut dyn Read) -> Result<(), Failure> {
    let place = tree.join(STAGING);
    remove(&place);
    fs::DirBuilder::new().mode(0o700).create(&place).at("make room for what is merged")?;
    let done = (|| {
        let (live, staging) = (Root::open(tree)?, Root::open(&place)?);
        carry::receive(&live, &staging, stream, BOUNDS, &mut |_, _| Ok(()))
    })();
    remove(&place);
    done.map_err(|error| Failure::new("merge", &explained(&error)))?;
    let root = fs::File::open(tree).at("open the root")?;
    rustix::fs::syncfs(&root).at("write to the disk")
}

fn remove(place: &Path) {
    // What cannot be removed is in the way of what comes next, which says so.
    let _ = fs::remove_dir_all(place);
}

/// An error with what caused it.
pub(super) fn explained(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
