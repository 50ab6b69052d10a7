//! Helpers for tests of files that are generated and committed.

use std::path::Path;

/// Compares a generated text with the committed file, or writes it if `UPDATE` is set.
#[track_caller]
pub(crate) fn committed(file: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, generated).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == generated, "`{file}` is out of date: run the tests of burrow-daemon with UPDATE=1");
}
