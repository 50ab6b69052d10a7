//! The content of `/proc/meminfo` inside: the sandbox's limit, not the host's RAM.
//!
//! If nothing better is available, the runtime driver mounts [`PATH`] over `/proc/meminfo`; otherwise the file does
//! not exist and nothing is done. The file is written in place, since a new file would not be the mounted one, and
//! always with the same length, so that a reader never sees parts of two versions.

use std::cell::Cell;
use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags};

use super::processes::scan;
use crate::agent::clock;

/// On the sandbox's own disk.
const PATH: &str = "/.burrow/meminfo";

/// The minimum interval, so that a burst of execs reads procfs once.
const EVERY_MS: u64 = 200;

pub(in crate::agent) struct Meminfo {
    limit: Cell<u64>,
    shown_ms: Cell<u64>,
}

impl Meminfo {
    pub(in crate::agent) fn new(limit: u64) -> Self {
        let meminfo = Self { limit: Cell::new(limit), shown_ms: Cell::new(clock::boot_ms()) };
        // The creator of the file has usually written the limit already. A write may have to wait for a commit of the
        // host's file system, which must not delay a boot.
        if !shows(Path::new(PATH), limit) {
            meminfo.show(0);
        }
        meminfo
    }

    pub(in crate::agent) fn limit(&self) -> u64 {
        self.limit.get()
    }

    pub(in crate::agent) fn set_limit(&self, limit: u64) {
        self.limit.set(limit);
    }

    /// Writes the file for this much used RAM. A short write to the page cache, so it is done on this thread.
    pub(in crate::agent) fn show(&self, used: u64) {
        self.shown_ms.set(clock::boot_ms());
        // A failure only affects readers of the file, and there is no log to report it to.
        let _ = write_in_place(Path::new(PATH), &text(self.limit.get(), used));
    }

    /// Reads the processes and writes the file, soon, in the background.
    pub(in crate::agent) fn refresh(self: &Rc<Self>) {
        let now = clock::boot_ms();
        // After a clock went back, as after a restore, the update must not wait until the clock has caught up.
        let lately = now.checked_sub(self.shown_ms.get()).is_some_and(|passed| passed < EVERY_MS);
        if lately || !Path::new(PATH).exists() {
            return;
        }
        self.shown_ms.set(now);
        let meminfo = Rc::clone(self);
        // Ends after one update.
        drop(tokio::task::spawn_local(async move {
            let limit = meminfo.limit.get();
            // Also written there: an exec must not wait for the disk because of a number that changes all the time.
            let look = move || {
                let used = scan().ram_bytes;
                let _ = write_in_place(Path::new(PATH), &text(limit, used));
                used
            };
            let looked = tokio::task::spawn_blocking(look).await;
            if let Ok(used) = looked
                && meminfo.limit.get() != limit
            {
                meminfo.show(used);
            }
        }));
    }
}

/// Whether the file already shows this amount of RAM.
fn shows(path: &Path, limit: u64) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let total = text.lines().next().and_then(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib == Some(limit / 1024)
}

fn write_in_place(path: &Path, text: &str) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::io::pwrite(&file, text.as_bytes(), 0)?;
    if rustix::fs::fstat(&file)?.st_size != i64::try_from(text.len()).unwrap_or(i64::MAX) {
        rustix::fs::ftruncate(&file, text.len() as u64)?;
    }
    Ok(())
}

fn text(limit: u64, used: u64) -> String {
    let total = limit / 1024;
    let used = (used / 1024).min(total);
    let free = total - used;
    let lines = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", used),
        ("Inactive", 0),
        ("Active(anon)", used),
        ("Inactive(anon)", 0),
        ("Active(file)", 0),
        ("Inactive(file)", 0),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", used),
        ("Mapped", 0),
        ("Shmem", 0),
        ("KReclaimable", 0),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
        ("KernelStack", 0),
        ("PageTables", 0),
        ("CommitLimit", total),
        ("Committed_AS", used),
        ("VmallocTotal", 0),
        ("VmallocUsed", 0),
        ("VmallocChunk", 0),
    ];
    let mut text = String::with_capacity(lines.len() * 28);
    for (name, kib) in lines {
        let _ = writeln!(text, "{:<16}{kib:>12} kB", format!("{name}:"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_keeps_its_inode_and_length_and_shows_the_limit() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("meminfo");
        std::fs::write(&path, "x".repeat(5000)).unwrap();
        let before = std::fs::metadata(&path).unwrap().ino();
        write_in_place(&path, &text(512 << 20, 100 << 20)).unwrap();
        let first = std::fs::read_to_string(&path).unwrap();
        assert!(first.contains("MemTotal:             524288 kB\n"), "{first}");
        assert!(first.contains("MemAvailable:         421888 kB\n"), "{first}");
        assert!(first.contains("SwapTotal:                 0 kB\n"), "{first}");
        write_in_place(&path, &text(64 << 30, u64::MAX)).unwrap();
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!((after.ino(), after.len()), (before, first.len() as u64));
        assert!(std::fs::read_to_string(&path).unwrap().contains("MemFree:                   0 kB\n"));
    }

    #[test]
    fn a_file_that_already_shows_the_limit_is_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("meminfo");
        assert!(!shows(&path, 512 << 20));
        std::fs::write(&path, "MemTotal:          524288 kB\nMemFree: 1 kB\n").unwrap();
        assert!(shows(&path, 512 << 20));
        assert!(!shows(&path, 256 << 20));
        write_in_place(&path, &text(256 << 20, 0)).unwrap();
        assert!(shows(&path, 256 << 20));
    }

    #[test]
    fn a_missing_meminfo_file_is_not_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("meminfo");
        assert!(write_in_place(&path, "x").is_err());
        assert!(!path.exists());
    }
}
