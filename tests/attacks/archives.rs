//! P-F5 and P-F6: archives with entries that would be unpacked outside of their directory, in both directions.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tar::{EntryType, Header};

use crate::controls::run;
use crate::ground::{Ground, Sandbox, fingerprint};
use crate::harness::burrow;
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "P-F5",
        what: "upload of hostile archives",
        sandbox: &["--disk", "32M"],
        attack: uploads,
        control: uploads_naive,
    },
    Row {
        id: "P-F6",
        what: "download of hostile archives",
        sandbox: &[],
        attack: downloads,
        control: downloads_naive,
    },
];

/// One entry more than an upload may have.
const ENTRIES: u32 = 1_000_001;

/// The file that exists outside if an archive succeeded.
const MARK: &[u8] = b"escaped";

// === archives that no library would write ===

#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn entry(mut self, kind: EntryType, name: &str, link: &str, content: &[u8]) -> Self {
        self.push(kind, name.as_bytes(), link.as_bytes(), 0o644, content.len() as u64, content);
        self
    }

    fn file(self, name: &str) -> Self {
        self.entry(EntryType::Regular, name, "", MARK)
    }

    fn push(&mut self, kind: EntryType, name: &[u8], link: &[u8], mode: u32, size: u64, content: &[u8]) {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(size);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

/// `outside` is an absolute folder that no entry may reach, one level above the directory of the archive.
fn hostile(outside: &str) -> Vec<(&'static str, Vec<u8>)> {
    let start = Archive::default;
    let mut two_sizes = start();
    two_sizes.push(EntryType::XHeader, b"pax", b"", 0o644, 10, b"10 size=9\n");
    two_sizes.push(EntryType::Regular, b"two-sizes", b"", 0o644, 7, MARK);
    let mut sparse = start();
    sparse.push(EntryType::GNUSparse, b"sparse", b"", 0o644, 0, b"");
    let mut huge = start();
    huge.push(EntryType::Regular, b"huge", b"", 0o644, 1 << 32, b"short");
    vec![
        ("dot dot", start().file("../escaped").end()),
        ("inner dot dot", start().file("a/../../escaped").end()),
        ("absolute", start().file(&format!("{outside}/escaped")).end()),
        (
            "absolute link, then a file",
            start().entry(EntryType::Symlink, "l", outside, b"").file("l/escaped").end(),
        ),
        (
            "relative link, then a file",
            start().entry(EntryType::Symlink, "l", "..", b"").file("l/escaped").end(),
        ),
        (
            "hard link out",
            start().entry(EntryType::Link, "h", &format!("{outside}/victim"), b"").file("h").end(),
        ),
        ("hard link up", start().entry(EntryType::Link, "h", "../victim", b"").file("h").end()),
        ("two sizes", two_sizes.end()),
        ("device", start().entry(EntryType::Char, "null", "", b"").end()),
        ("block device", start().entry(EntryType::Block, "disk", "", b"").end()),
        ("FIFO", start().entry(EntryType::Fifo, "fifo", "", b"").end()),
        ("sparse", sparse.end()),
        ("more bytes than come", huge.0),
        ("cut in the middle", start().file("whole").0[..700].to_vec()),
        (
            "a wrong checksum",
            start()
                .file("whole")
                .end()
                .iter()
                .enumerate()
                .map(|(at, byte)| if at == 0 { b'X' } else { *byte })
                .collect(),
        ),
    ]
}

// --- P-F5

fn upload(sandbox: &Sandbox<'_>, path: &str, archive: &[u8]) -> Result<u16, RowFailure> {
    let target = format!("/v1/sandboxes/{}/files/tar?path={path}", sandbox.id);
    match sandbox.ground.wire().ask("PUT", target.as_bytes(), "application/x-tar", archive) {
        Ok(answer) => {
            sandbox.heard(&answer.body);
            Ok(answer.status)
        }
        Err(error) => Err(RowFailure::Failed(format!("no answer: {error}"))),
    }
}

fn uploads(sandbox: &Sandbox<'_>) -> Finding {
    uploads_of(sandbox, ENTRIES)
}

/// The last archive has this many entries.
pub(crate) fn uploads_of(sandbox: &Sandbox<'_>, entries: u32) -> Finding {
    let made = sandbox.sh("mkdir -p /out/in && echo untouched > /out/victim && ln -s /out /out/in/planted");
    ensure(made.ok(), || format!("{made:?}"))?;
    let listing = "cd /out && find . -printf '%p %y %s %m %n\\n' | sort; cat victim; ls -A / | tr '\\n' ' '";
    let before = sandbox.sh(listing).out;
    let mut archives = hostile("/out");
    archives.push(("through a link that is there", Archive::default().file("planted/escaped").end()));
    for (what, archive) in &archives {
        let status = upload(sandbox, "/out/in", archive)?;
        ensure((400..500).contains(&status), || format!("{what}: {status}"))?;
        let after = sandbox.sh(listing).out;
        ensure(after == before, || format!("{what}: from {before} to {after}"))?;
    }
    // Accepted or refused, a file that replaces a link must be written in its place, not where the link points.
    let replaced = Archive::default().entry(EntryType::Symlink, "l", "/out/victim", b"").file("l").end();
    upload(sandbox, "/out/in", &replaced)?;
    let after = sandbox.sh(&format!("rm -f /out/in/l; {listing}")).out;
    ensure(after == before, || format!("a file in the place of a link: from {before} to {after}"))?;
    let mut powers = Archive::default();
    powers.push(EntryType::Regular, b"suid", b"", 0o6755, 7, MARK);
    let status = upload(sandbox, "/out/in", &powers.end())?;
    let mode = sandbox.sh("stat -c %a /out/in/suid 2>/dev/null || echo none; rm -f /out/in/suid").out;
    ensure(["755\n", "none\n"].contains(&mode.as_str()), || format!("setuid: {status}, mode {mode}"))?;
    let bomb = many_entries(sandbox, entries)?;
    let after = sandbox.sh(listing).out;
    ensure(after == before, || format!("{entries} entries: from {before} to {after}"))?;
    Ok(format!(
        "{} archives refused whole, nothing outside; set-id bits dropped; {entries} entries: {bomb}",
        archives.len()
    ))
}

/// Endless small files: the limit on entries or the disk's quota stops it, and nothing of it remains.
fn many_entries(sandbox: &Sandbox<'_>, entries: u32) -> Result<u16, RowFailure> {
    let mut archive = Archive::default();
    archive.0.reserve(entries as usize * 512);
    for number in 0..entries {
        archive.push(
            EntryType::Regular,
            format!("{:03}/{number}", number % 1000).as_bytes(),
            b"",
            0o644,
            0,
            b"",
        );
    }
    let status = upload(sandbox, "/out/in", &archive.end())?;
    ensure([413, 429, 507, 422].contains(&status), || format!("{entries} entries: {status}"))?;
    Ok(status)
}

/// The result of `tar -P` with the archives that affect it.
fn unpacked_naively(ground: &Ground, name: &str) -> Finding {
    let mut escaped = Vec::new();
    for (what, _) in hostile("/") {
        let outside = ground.folder(&format!("{name}/out"));
        let inside = outside.join("in");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(outside.join("victim"), "untouched").unwrap();
        let (_, archive) =
            hostile(outside.to_str().unwrap()).into_iter().find(|(known, _)| *known == what).unwrap();
        let file = ground.scratch.path().join("archive.tar");
        std::fs::write(&file, archive).unwrap();
        run(Command::new("tar").args(["-P", "--overwrite", "-xf"]).arg(&file).arg("-C").arg(&inside));
        let victim = std::fs::read(outside.join("victim")).unwrap_or_default();
        if outside.join("escaped").exists() || victim == MARK {
            escaped.push(what);
        }
    }
    for needed in ["dot dot", "absolute", "absolute link, then a file", "hard link out"] {
        ensure(escaped.contains(&needed), || {
            format!("`{needed}` did not get out of tar -P: only {escaped:?}")
        })?;
    }
    Ok(format!("tar -P lets out: {}", escaped.join("; ")))
}

fn uploads_naive(ground: &Ground) -> Finding {
    unpacked_naively(ground, "upload")
}

// --- P-F6

/// A fake daemon that answers downloads with a given archive, for one command.
struct Impostor {
    address: String,
    thread: std::thread::JoinHandle<()>,
}

impl Impostor {
    fn start(archive: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                // The last connection sends this.
                if !serve(&stream.unwrap(), &archive) {
                    return;
                }
            }
        });
        Self { address, thread }
    }

    fn stop(self) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET /stop HTTP/1.1\r\n\r\n").unwrap();
        self.thread.join().unwrap();
    }
}

/// Answers requests of one connection; false: it received the request to stop.
fn serve(stream: &TcpStream, archive: &[u8]) -> bool {
    let mut lines = BufReader::new(stream).lines();
    let Some(Ok(request)) = lines.next() else { return true };
    if request.starts_with("GET /stop") {
        return false;
    }
    for line in lines.by_ref() {
        if line.is_ok_and(|line| line.is_empty()) {
            break;
        }
    }
    let (kind, body) = if request.contains("/files/stat") {
        let entry = json!({
            "name": "data", "path": "/data", "kind": "directory", "size": 0, "mode": "0755", "uid": 0, "gid": 0,
            "user": "root", "group": "root", "modified_ms": 0, "target": null,
        });
        ("application/json", entry.to_string().into_bytes())
    } else {
        ("application/x-tar", archive.to_vec())
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = stream;
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
    true
}

fn download(archive: Vec<u8>, to: &Path) -> crate::ground::Run {
    let impostor = Impostor::start(archive);
    let mut command = Command::new(burrow());
    command.args(["cp", "box:/data"]).arg(to).env("BURROW_URL", format!("http://{}", impostor.address));
    let done =
        run(command.env("BURROW_API_KEY", "none").env("NO_COLOR", "1").stdin(std::process::Stdio::null()));
    impostor.stop();
    done
}

fn downloads(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let outside = ground.folder("download/out");
    let outside_text = outside.to_str().unwrap().to_owned();
    std::fs::create_dir(outside.join("in")).unwrap();
    std::fs::write(outside.join("victim"), "untouched").unwrap();
    let before = fingerprint(&outside);
    let archives = hostile(&outside_text);
    for (what, archive) in &archives {
        let done = download(archive.clone(), &outside.join("in"));
        ensure(!done.ok(), || format!("{what}: the client took it: {done:?}"))?;
        ensure(!done.err.contains("panicked"), || format!("{what}: {done:?}"))?;
        let after = fingerprint(&outside);
        ensure(after == before, || format!("{what}: from {before} to {after}"))?;
    }
    let mut powers = Archive::default();
    powers.push(EntryType::Regular, b"suid", b"", 0o6755, 7, MARK);
    download(powers.end(), &outside.join("in"));
    let mode = std::fs::metadata(outside.join("in/data/suid"))
        .map(|meta| std::os::unix::fs::MetadataExt::mode(&meta) & 0o7777);
    ensure(mode.is_err() || mode.as_ref().is_ok_and(|mode| mode & 0o6000 == 0), || {
        format!("setuid came through: {mode:?}")
    })?;
    Ok(format!("{} archives refused, nothing written outside or inside; set-id bits dropped", archives.len()))
}

fn downloads_naive(ground: &Ground) -> Finding {
    let good = ground.folder("good");
    let done = download(Archive::default().file("fine").end(), &good);
    ensure(done.ok() && good.join("data/fine").exists(), || {
        format!("a good archive is refused, too: {done:?}")
    })?;
    unpacked_naively(ground, "download").map(|note| format!("a good archive is taken; {note}"))
}
