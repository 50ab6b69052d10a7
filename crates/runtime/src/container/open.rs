//! Lists the files that processes have open or mapped, from `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::OpenFile;

/// Maximum number of files that are read in total: enough for a useful list, and bounded whatever runs inside.
const FILES_MAX: usize = 100_000;

/// Reads as much as possible; a process that ends meanwhile has no open files.
pub(super) fn files(pids: &[u32]) -> Vec<OpenFile> {
    let mut found = Vec::new();
    for pid in pids {
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        // Once for each process, however often it is open.
        let mut seen = BTreeSet::new();
        for folder in ["fd", "map_files"] {
            let Ok(entries) = fs::read_dir(format!("/proc/{pid}/{folder}")) else { continue };
            for entry in entries.flatten() {
                // The kernel resolves the entry to the open file itself, whatever its name.
                let Ok(file) = fs::metadata(entry.path()) else { continue };
                if file.is_file() && seen.insert((file.dev(), file.ino())) {
                    found.push(OpenFile {
                        pid: *pid,
                        program: program.clone(),
                        file: (file.dev(), file.ino()),
                    });
                }
                if found.len() >= FILES_MAX {
                    return found;
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_of_ours_is_found_and_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let known = file.as_file().metadata().unwrap();
        let found = files(&[std::process::id(), u32::MAX]);
        let ours = found.iter().find(|open| open.file == (known.dev(), known.ino())).unwrap();
        assert_eq!(ours.pid, std::process::id());
        assert!(!ours.program.is_empty());
    }
}
