//! Helpers for tests: hand-made tars, comparable trees, external programs.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use ::tar::{EntryType, Header};

use crate::layer::{self, AppliedLayer, ApplyLimits, ApplyOptions};
use crate::{Compression, DiffId, Digest, ImageError};

/// A tar under construction. Nothing is checked, since hostile archives are made with it too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tar(Vec<u8>);

/// One entry, with defaults for fields that do not matter to a test.
#[derive(Clone, Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: EntryType,
    pub(crate) link: &'a str,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) mtime: u64,
    pub(crate) content: &'a [u8],
    /// The size in the header, if it differs from the real one.
    pub(crate) size: Option<u64>,
    pub(crate) pax: &'a [(&'a str, &'a [u8])],
}

impl<'a> Raw<'a> {
    pub(crate) fn new(kind: EntryType, name: &'a str) -> Self {
        let mode = if kind == EntryType::Directory { 0o755 } else { 0o644 };
        Self {
            name,
            kind,
            link: "",
            mode,
            uid: 0,
            gid: 0,
            mtime: 1_600_000_000,
            content: b"",
            size: None,
            pax: &[],
        }
    }
}

impl Tar {
    pub(crate) fn raw(mut self, raw: &Raw<'_>) -> Self {
        if !raw.pax.is_empty() {
            let mut records = Vec::new();
            for (key, value) in raw.pax {
                let rest = key.len() + value.len() + 3;
                let length = (rest..).find(|length| rest + length.to_string().len() == *length).unwrap();
                records.extend_from_slice(format!("{length} {key}=").as_bytes());
                records.extend_from_slice(value);
                records.push(b'\n');
            }
            self.put(EntryType::XHeader, "pax", "", 0o644, 0, 0, 0, records.len() as u64);
            self.content(&records);
        }
        let size = raw.size.unwrap_or(raw.content.len() as u64);
        self.put(raw.kind, raw.name, raw.link, raw.mode, raw.uid, raw.gid, raw.mtime, size);
        self.content(raw.content);
        self
    }

    #[expect(clippy::too_many_arguments, reason = "a header has that many fields")]
    fn put(
        &mut self,
        kind: EntryType,
        name: &str,
        link: &str,
        mode: u32,
        uid: u64,
        gid: u64,
        mtime: u64,
        size: u64,
    ) {
        // GNU's format, since its numbers can have any size.
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_mode(mode);
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_mtime(mtime);
        header.set_size(size);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
    }

    fn content(&mut self, content: &[u8]) {
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        self.raw(&Raw { content: content.as_bytes(), ..Raw::new(EntryType::Regular, name) })
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        self.raw(&Raw::new(EntryType::Directory, name))
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.raw(&Raw { link: target, ..Raw::new(EntryType::Symlink, name) })
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.raw(&Raw { link: target, ..Raw::new(EntryType::Link, name) })
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

/// Applies a tar to a directory, without shifting owners.
pub(crate) fn apply(root: &Path, tar: &[u8]) -> Result<AppliedLayer, ImageError> {
    apply_with(root, tar, 0, ApplyLimits { entries: 100_000, bytes: 1 << 30 })
}

pub(crate) fn apply_with(
    root: &Path,
    tar: &[u8],
    uid_shift: u32,
    limits: ApplyLimits,
) -> Result<AppliedLayer, ImageError> {
    let root = fs::File::open(root).unwrap();
    let options = ApplyOptions {
        compression: Compression::None,
        expected: DiffId(Digest::of(tar)),
        uid_shift,
        uid_count: 65_536,
        limits,
        cancelled: &AtomicBool::new(false),
        progress: &|_| {},
    };
    layer::apply(tar, root.as_fd(), &options)
}

/// All properties of a file that can be read directly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileDescription {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: (i64, i64),
    pub(crate) content: Vec<u8>,
    /// The first name of the same file.
    pub(crate) same_as: PathBuf,
    pub(crate) attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A whole tree, by path.
pub(crate) fn describe(root: &Path) -> BTreeMap<PathBuf, FileDescription> {
    let mut found = BTreeMap::new();
    let mut first = BTreeMap::new();
    walk(root, Path::new(""), &mut found, &mut first);
    found
}

fn walk(
    root: &Path,
    path: &Path,
    found: &mut BTreeMap<PathBuf, FileDescription>,
    first: &mut BTreeMap<u64, PathBuf>,
) {
    let here = root.join(path);
    let metadata = fs::symlink_metadata(&here).unwrap();
    let content = match metadata.file_type() {
        kind if kind.is_symlink() => fs::read_link(&here).unwrap().as_os_str().as_bytes().to_vec(),
        kind if kind.is_file() => fs::read(&here).unwrap(),
        _ => Vec::new(),
    };
    let attributes = xattr::list(&here).unwrap().map(|name| {
        let value = xattr::get(&here, &name).unwrap().unwrap_or_default();
        (name.as_bytes().to_vec(), value)
    });
    let described = FileDescription {
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        mtime: (metadata.mtime(), metadata.mtime_nsec()),
        content,
        same_as: match metadata.is_dir() {
            true => path.to_owned(),
            false => first.entry(metadata.ino()).or_insert_with(|| path.to_owned()).clone(),
        },
        attributes: attributes.collect(),
    };
    found.insert(path.to_owned(), described);
    if metadata.is_dir() {
        let mut names: Vec<_> =
            fs::read_dir(&here).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            walk(root, &path.join(name), found, first);
        }
    }
}

/// Runs a program that must exist and succeed. Returns its output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?} could not be started ({error}): `scripts/setup.sh --test` installs it")
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes an OCI layout with one image of these layers.
pub(crate) fn write_layout(folder: &Path, layers: &[Vec<u8>], compression: Compression) {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).unwrap();
        (digest, bytes.len())
    };
    let diff_ids: Vec<String> = layers.iter().map(|layer| format!("\"{}\"", Digest::of(layer))).collect();
    let config = format!(
        r#"{{"architecture":"{}","os":"linux","config":{{"Env":["A=b"],"Cmd":["/bin/sh"]}},
            "rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        crate::Platform::host().architecture,
        diff_ids.join(",")
    );
    let (config, config_size) = put(config.as_bytes());
    let suffix = match compression {
        Compression::None => "",
        Compression::Gzip => "+gzip",
        Compression::Zstd => "+zstd",
    };
    let descriptors: Vec<String> = layers
        .iter()
        .map(|layer| {
            let (digest, size) = put(&compress(layer, compression));
            let kind = "application/vnd.oci.image.layer.v1.tar";
            format!(r#"{{"mediaType":"{kind}{suffix}","digest":"{digest}","size":{size}}}"#)
        })
        .collect();
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
            "config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{config}","size":{config_size}}},
            "layers":[{}]}}"#,
        descriptors.join(",")
    );
    let (manifest, size) = put(manifest.as_bytes());
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json",
            "digest":"{manifest}","size":{size},"annotations":{{"org.opencontainers.image.ref.name":"test"}}}}]}}"#
    );
    fs::write(folder.join("index.json"), index).unwrap();
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

pub(crate) fn compress(bytes: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::None => bytes.to_vec(),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => zstd::encode_all(bytes, 1).unwrap(),
    }
}
