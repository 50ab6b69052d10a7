//! Copies the guest agent to the pool's file system, where the copies for sandboxes share its blocks.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Copies the agent into the pool unless it is there already. Returns its path.
///
/// Running sandboxes keep the agent that they were started with: the file is replaced, never overwritten.
pub(crate) fn install(source: &Path, pool: &Path) -> io::Result<PathBuf> {
    let target = pool.join("burrow-guest");
    let wanted = fs::read(source)?;
    match fs::read(&target) {
        Ok(there) if there == wanted => return Ok(target),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let partial = pool.join("burrow-guest.partial");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&partial)?;
    io::Write::write_all(&mut file, &wanted)?;
    file.sync_all()?;
    fs::rename(&partial, &target)?;
    File::open(pool)?.sync_all()?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_agent_is_replaced_only_if_it_differs() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        let pool = directory.path().join("pool");
        fs::create_dir(&pool).unwrap();
        fs::write(&source, "one").unwrap();
        let target = install(&source, &pool).unwrap();
        let first = fs::metadata(&target).unwrap().ino();
        assert_eq!(fs::metadata(install(&source, &pool).unwrap()).unwrap().ino(), first);
        fs::write(&source, "two").unwrap();
        install(&source, &pool).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "two");
        assert!(install(Path::new("/nowhere"), &pool).is_err());
    }
}
