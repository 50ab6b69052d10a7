//! The log file of a daemon without systemd, and its rotation.
//!
//! The daemon and its helpers write to one open file, which is only appended to. So the file is copied and then emptied, like
//! `copytruncate` of logrotate: all of them continue to write to it. Lines that are written in between are lost.
//!
//! ```text
//!   burrow.log ──copy──► burrow.log.1 ──► burrow.log.2 ──► burrow.log.3 ──► removed
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// If it cannot be written, the log is in the state directory.
pub(crate) const PATH: &str = "/var/log/burrow.log";
/// Days to weeks of a busy daemon.
const BYTES_MAX: u64 = 32 << 20;
/// Former files that are kept.
const KEPT: u32 = 3;
/// Much less than a daemon needs to write `BYTES_MAX`.
const PAUSE: Duration = Duration::from_secs(60);

/// Opens the file for appending.
pub(crate) fn open(state_dir: &Path) -> io::Result<(PathBuf, File)> {
    let open = |path: PathBuf| {
        let file = File::options().create(true).append(true).mode(0o640).open(&path)?;
        Ok((path, file))
    };
    open(PathBuf::from(PATH)).or_else(|_: io::Error| {
        fs::create_dir_all(state_dir)?;
        open(state_dir.join("daemon.log"))
    })
}

/// Rotates the file for as long as this process runs.
pub(crate) fn keep_small(path: PathBuf) -> io::Result<()> {
    let watch = move || {
        loop {
            if let Err(error) = rotate(&path, BYTES_MAX) {
                crate::print::note(format!("could not rotate the log `{}`: {error}", path.display()));
            }
            std::thread::sleep(PAUSE);
        }
    };
    std::thread::Builder::new().name("log-rotation".to_owned()).spawn(watch).map(drop)
}

/// Whether the file was larger than `bytes_max`, and was rotated.
fn rotate(path: &Path, bytes_max: u64) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() || metadata.len() <= bytes_max {
        return Ok(false);
    }
    let former = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..KEPT).rev() {
        match fs::rename(former(number), former(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    fs::copy(path, former(1))?;
    File::options().write(true).open(path)?.set_len(0)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_large_log_is_copied_and_emptied_and_three_copies_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("burrow.log");
        // A process that keeps the file open, like the daemon.
        let mut writer = File::options().create(true).append(true).mode(0o640).open(&path).unwrap();
        writer.write_all(b"small").unwrap();
        assert!(!rotate(&path, 5).unwrap());
        for round in 1..=5 {
            fs::write(&path, format!("round {round}")).unwrap();
            assert!(rotate(&path, 5).unwrap());
        }
        writer.write_all(b"next").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "next", "it starts at the beginning again");
        for (name, content) in [("1", "round 5"), ("2", "round 4"), ("3", "round 3")] {
            assert_eq!(
                fs::read_to_string(directory.path().join(format!("burrow.log.{name}"))).unwrap(),
                content
            );
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
    }
}
