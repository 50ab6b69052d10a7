//! File entries in envd's format.

use burrow_guest::protocol::{FileEntry, FileKind};
use serde_json::{Value, json};

use super::super::show::time;

/// The size of a directory with few entries, on E2B's file system.
const DIRECTORY_BYTES: u64 = 4096;

/// As E2B's agent reports it: for a link, the kind, mode and metadata of its target, if that exists, and the size and
/// permissions of the link itself.
pub(super) fn shown(entry: &FileEntry, target: Option<&FileEntry>) -> Value {
    let is_link = entry.kind == FileKind::Symlink;
    let meant = target.unwrap_or(entry);
    let mut shown = json!({
        "name": entry.name,
        "path": entry.path,
        "type": kind(meant.kind),
        // 64-bit numbers are strings in the JSON format of Protobuf.
        "size": size(entry).to_string(),
        "mode": meant.mode & 0o7777,
        "permissions": permissions(entry),
        "owner": entry.user.clone().unwrap_or_else(|| entry.uid.to_string()),
        "group": entry.group.clone().unwrap_or_else(|| entry.gid.to_string()),
        "modifiedTime": time(u64::try_from(entry.modified_ms).unwrap_or_default()),
        "isSymlink": is_link,
    });
    if let Some(target) = &entry.target {
        let absolute = || absolute(&entry.path, target);
        shown["symlinkTarget"] = entry.resolved.clone().unwrap_or_else(absolute).into();
    }
    if !meant.metadata.is_empty() {
        shown["metadata"] = json!(meant.metadata);
    }
    shown
}

/// On btrfs, a directory without entries has size 0; on E2B's file system, every directory has at least one block.
fn size(entry: &FileEntry) -> u64 {
    match entry.kind {
        FileKind::Directory => entry.size.max(DIRECTORY_BYTES),
        FileKind::File | FileKind::Symlink | FileKind::Other => entry.size,
    }
}

/// The absolute target of a dangling link at `path`.
fn absolute(path: &str, target: &str) -> String {
    if target.starts_with('/') {
        return target.to_owned();
    }
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut parts: Vec<&str> = Vec::new();
    for part in parent.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "FILE_TYPE_FILE",
        FileKind::Directory => "FILE_TYPE_DIRECTORY",
        FileKind::Symlink => "FILE_TYPE_SYMLINK",
        FileKind::Other => "FILE_TYPE_UNSPECIFIED",
    }
}

/// In the notation of `ls -l`.
fn permissions(entry: &FileEntry) -> String {
    let first = match entry.kind {
        FileKind::File | FileKind::Other => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'L',
    };
    let bit = |place: u32| entry.mode & (1 << place) != 0;
    let letters = (0..9).rev().map(|place| match (bit(place), place % 3) {
        (false, _) => '-',
        (true, 2) => 'r',
        (true, 1) => 'w',
        (true, _) => 'x',
    });
    std::iter::once(first).chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: FileKind, mode: u32) -> FileEntry {
        FileEntry {
            name: "a".to_owned(),
            path: "/b/a".to_owned(),
            kind,
            size: 1 << 40,
            mode,
            uid: 1000,
            gid: 7,
            user: Some("user".to_owned()),
            group: None,
            modified_ms: 0,
            target: (kind == FileKind::Symlink).then(|| "/c".to_owned()),
            resolved: None,
            metadata: Default::default(),
        }
    }

    #[test]
    fn entries_have_the_format_of_clients() {
        let shown = shown(&entry(FileKind::File, 0o640), None);
        assert_eq!(shown["size"], "1099511627776");
        assert_eq!(shown["permissions"], "-rw-r-----");
        assert_eq!((&shown["owner"], &shown["group"]), (&json!("user"), &json!("7")));
        assert_eq!(shown["type"], "FILE_TYPE_FILE");
    }

    #[test]
    fn a_link_has_an_absolute_target() {
        let link = FileEntry { target: Some("../d/./e".to_owned()), ..entry(FileKind::Symlink, 0o777) };
        assert_eq!(shown(&link, None)["symlinkTarget"], "/d/e", "a dangling link");
        let link = FileEntry { resolved: Some("/real".to_owned()), ..link };
        assert_eq!(shown(&link, None)["symlinkTarget"], "/real");
        assert_eq!(absolute("/a", "../../x"), "/x");
    }

    #[test]
    fn directories_have_a_size_and_files_their_metadata() {
        let empty = FileEntry { size: 0, ..entry(FileKind::Directory, 0o755) };
        assert_eq!(shown(&empty, None)["size"], "4096");
        let file = FileEntry { size: 0, ..entry(FileKind::File, 0o644) };
        assert_eq!(shown(&file, None)["size"], "0");
        assert!(shown(&file, None).get("metadata").is_none());
        let file = FileEntry { metadata: [("a".to_owned(), "b".to_owned())].into(), ..file };
        assert_eq!(shown(&file, None)["metadata"], json!({ "a": "b" }));
    }

    #[test]
    fn a_link_has_the_kind_and_mode_of_its_target_and_its_own_size() {
        let link = entry(FileKind::Symlink, 0o777);
        let link = FileEntry { size: 2, ..link };
        let shown = shown(&link, Some(&entry(FileKind::Directory, 0o755)));
        assert_eq!((&shown["type"], &shown["mode"]), (&json!("FILE_TYPE_DIRECTORY"), &json!(0o755)));
        assert_eq!((&shown["size"], &shown["permissions"]), (&json!("2"), &json!("Lrwxrwxrwx")));
        assert_eq!((&shown["symlinkTarget"], &shown["isSymlink"]), (&json!("/c"), &json!(true)));
    }
}
