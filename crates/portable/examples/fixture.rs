//! Writes the file that freezes the format, to standard output: `cargo run --example fixture > v1.burrow`.

use std::collections::BTreeMap;
use std::io;

use burrow_portable::{
    Ancestor, Base, Entry, ExportKey, Extent, Header, HostRequirements, Image, Kind, Lineage, Meta, Options,
    PortableError, Processes, Section, Time, TreePath, Writer,
};
use serde_json::json;

fn main() -> Result<(), PortableError> {
    let mut writer = Writer::begin(io::stdout().lock(), &header(), Options { threads: 1, level: 1 })?;
    writer.section(Section::Files)?;
    let directory = |mode| Kind::Directory(Meta { mode, ..meta() });
    let note = Meta { attributes: vec![(b"user.note".to_vec(), b"kept".to_vec())], gid: 42, ..meta() };
    let hosts = b"127.0.0.1 localhost\n";
    let all = |bytes| vec![Extent { offset: 0, bytes }];
    put(&mut writer, "", directory(0o755), b"")?;
    put(&mut writer, "etc", directory(0o755), b"")?;
    put(&mut writer, "etc/hosts", Kind::file(note, 20, all(20)), hosts)?;
    put(
        &mut writer,
        "etc/link",
        Kind::Symlink { meta: Meta { mode: 0o777, ..meta() }, target: b"/etc/hosts".to_vec() },
        b"",
    )?;
    put(&mut writer, "etc/old", Kind::Gone, b"")?;
    put(&mut writer, "etc/second", Kind::HardLink { target: TreePath::new(b"etc/hosts")? }, b"")?;
    let large = vec![b'x'; 200_000];
    put(&mut writer, "large", Kind::file(meta(), 200_000, all(200_000)), &large)?;
    put(&mut writer, "large-too", Kind::file(meta(), 200_000, all(200_000)), &large)?;
    put(&mut writer, "pipe", Kind::Fifo(meta()), b"")?;
    put(&mut writer, "socket", Kind::Socket(meta()), b"")?;
    put(&mut writer, "sparse", Kind::file(meta(), 1 << 30, vec![Extent { offset: 4096, bytes: 3 }]), b"end")?;
    writer.section(Section::Processes)?;
    put(&mut writer, "about", Kind::file(meta(), 2, all(2)), b"{}")?;
    put(&mut writer, "pages-1.img", Kind::file(meta(), 8192, all(8192)), &[0; 8192])?;
    writer.section(Section::Memory)?;
    put(&mut writer, "artifacts/00", Kind::file(meta(), 4, all(4)), b"blob")?;
    put(&mut writer, "rows/000001", Kind::file(meta(), 3, all(3)), b"{}\n")?;
    let key = ExportKey::from_seed(&[7; 32]).ok_or(PortableError::KeyForm)?;
    writer.finish(|identity| Some(key.sign(identity))).map(drop)
}

fn put<W: io::Write>(
    writer: &mut Writer<W>,
    path: &str,
    kind: Kind,
    content: &[u8],
) -> Result<(), PortableError> {
    let entry = Entry { path: TreePath::new(path.as_bytes())?, kind };
    writer.entry(&entry, &mut |buffer, _| {
        buffer.copy_from_slice(&content[..buffer.len()]);
        Ok(())
    })
}

fn meta() -> Meta {
    let mtime = Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 };
    Meta { mode: 0o644, uid: 0, gid: 0, mtime, attributes: Vec::new() }
}

fn header() -> Header {
    Header {
        made_by: "burrow 0.1.0".to_owned(),
        needs: HostRequirements {
            features: Vec::new(),
            driver: "container".to_owned(),
            processes: Some(Processes { about: r#"{"format":1}"#.to_owned(), signer: None }),
            memory: Some(2),
            base: Some(Base {
                snapshot: "snpbbbbbbbbbbbbbbbbbbbb".to_owned(),
                name: Some("before".to_owned()),
                identities: vec!["00".repeat(32)],
            }),
        },
        lineage: Lineage {
            snapshot: "snpaaaaaaaaaaaaaaaaaaaa".to_owned(),
            name: Some("after".to_owned()),
            description: "a file of version 1".to_owned(),
            labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            kind: "manual".to_owned(),
            created_ms: 1_700_000_000_000,
            sandbox: "sbxaaaaaaaaaaaaaaaaaaaa".to_owned(),
            sandbox_name: Some("agent".to_owned()),
            ancestors: vec![Ancestor {
                snapshot: "snpbbbbbbbbbbbbbbbbbbbb".to_owned(),
                name: Some("before".to_owned()),
                created_ms: 1_600_000_000_000,
            }],
        },
        spec: json!({ "driver": "container", "env": { "LANG": "C" } }),
        image: Image { id: "imgaaaaaaaaaaaaaaaaaaaa".to_owned(), config: json!({ "workdir": "/work" }) },
        content_bytes: 408_251,
    }
}
