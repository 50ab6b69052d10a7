//! P-A7: unauthenticated clients at the SSH gateway, and authenticated ones that try to exceed their rights.

use std::fs;
use std::io::{self, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::ground::{Ground, Sandbox};
use crate::harness::eventually;
use crate::report::{Finding, Row, RowFailure, ensure};
use crate::ssh_client::{SshClient, text};

/// Limits that a test reaches soon.
pub(crate) const CONFIG: &str =
    "[ssh]\nlisten = \"127.0.0.1:0\"\nhalf_open = 24\nhalf_open_per_address = 16\nlogin_seconds = 10";
const HALF_OPEN: usize = 16;

const CROWD: usize = 1000;

/// The amount that an unauthenticated client tries to make the gateway buffer.
const FLOOD_BYTES: usize = 16 << 20;

/// The part of it that may remain: allocators and other connections vary.
const KEPT_KIB_MAX: u64 = 12 << 10;

pub(crate) const ROWS: &[Row] = &[
    Row { id: "P-A7", what: "an endless banner", sandbox: &[], attack: banner, control: banner_unguarded },
    Row { id: "P-A7", what: "a packet of 4 GB", sandbox: &[], attack: length, control: length_unguarded },
    Row {
        id: "P-A7",
        what: "1000 half-open connections",
        sandbox: &[],
        attack: crowd,
        control: crowd_unguarded,
    },
    Row {
        id: "P-A7",
        what: "ways out: -L, -D, -R",
        sandbox: &[],
        attack: ways_out,
        control: ways_out_unguarded,
    },
    Row { id: "P-A7", what: "SFTP: .. and links", sandbox: &[], attack: above, control: above_unguarded },
];

/// How many bytes a client accepts before it closes the connection.
fn pour(port: u16, first: &[u8], piece: &[u8]) -> io::Result<usize> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_write_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(first)?;
    let mut taken = 0;
    while taken < FLOOD_BYTES {
        match stream.write(piece) {
            Ok(count) => taken += count,
            Err(_) => break,
        }
    }
    Ok(taken)
}

/// A client that reads until the answer is complete.
fn trusting(complete: fn(&[u8]) -> bool) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let kept = Arc::new(AtomicUsize::new(0));
    let count = kept.clone();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            all.extend_from_slice(&buffer[..read]);
            count.store(all.len(), Ordering::SeqCst);
            if complete(&all) {
                break;
            }
        }
    });
    (port, kept)
}

/// The gateway closes the connection early, buffers little, and accepts other clients.
fn shed(sandbox: &Sandbox<'_>, first: &[u8], piece: &[u8]) -> Finding {
    let ground = sandbox.ground;
    let client = SshClient::known(&ground.daemon);
    client.ok(&sandbox.id, "true");
    let before = ground.daemon_rss_kib();
    let mut most = 0;
    for _ in 0..4 {
        most = most.max(pour(client.port, first, piece).map_err(|error| error.to_string())?);
    }
    let grown = ground.daemon_rss_kib().saturating_sub(before);
    ensure(most < FLOOD_BYTES, || format!("it took all of {most} bytes"))?;
    ensure(grown < KEPT_KIB_MAX, || format!("the daemon grew by {grown} KiB"))?;
    ensure(client.ok(&sandbox.id, "echo in") == "in\n", || "others do not get in".to_owned())?;
    Ok(format!("hung up on within {} KiB, the daemon grew by {grown} KiB", most >> 10))
}

fn kept_all(port: u16, kept: &AtomicUsize, first: &[u8], piece: &[u8]) -> Finding {
    pour(port, first, piece).map_err(|error| error.to_string())?;
    eventually("all to be kept", || (kept.load(Ordering::SeqCst) >= FLOOD_BYTES).then_some(()));
    Ok(format!("who waits for the end keeps {} KiB", kept.load(Ordering::SeqCst) >> 10))
}

fn banner(sandbox: &Sandbox<'_>) -> Finding {
    shed(sandbox, b"SSH-2.0-", &[b'A'; 4096])
}

fn banner_unguarded(_: &Ground) -> Finding {
    let (port, kept) = trusting(|all| all.contains(&b'\n'));
    kept_all(port, &kept, b"SSH-2.0-", &[b'A'; 4096])
}

const LONG: &[u8] = b"SSH-2.0-stranger\r\n\xff\xff\xff\xf0\x04\x14";

fn length(sandbox: &Sandbox<'_>) -> Finding {
    shed(sandbox, LONG, &[0x14; 4096])
}

fn length_unguarded(_: &Ground) -> Finding {
    let (port, kept) = trusting(|all| all.len() >= 0xffff_fff0);
    kept_all(port, &kept, LONG, &[0x14; 4096])
}

/// Connections that send nothing, and how many of them got the server's greeting.
fn gather(port: u16) -> (Vec<TcpStream>, usize) {
    let mut greeted = 0;
    let mut all = Vec::new();
    for _ in 0..CROWD {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut first = [0; 4];
        if stream.read_exact(&mut first).is_ok() && first == *b"SSH-" {
            greeted += 1;
            all.push(stream);
        }
    }
    (all, greeted)
}

fn crowd(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let client = SshClient::known(&ground.daemon);
    // A client that is already logged in.
    let mut inside = client.ssh(&[&format!("{}@127.0.0.1", sandbox.id), "cat"]);
    let mut inside =
        inside.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
    let (mut stdin, mut stdout) = (inside.stdin.take().unwrap(), inside.stdout.take().unwrap());
    let mut talk = || -> io::Result<()> {
        stdin.write_all(b"x")?;
        stdin.flush()?;
        stdout.read_exact(&mut [0])
    };
    talk().map_err(|error| format!("nobody gets in to begin with: {error}"))?;
    let files = ground.daemon_files();
    let (held, greeted) = gather(client.port);
    let now = ground.daemon_files();
    // They connect one after another, and those that time out make room.
    ensure(greeted < CROWD / 2, || format!("{greeted} of {CROWD} were let in"))?;
    ensure(now <= files + HALF_OPEN + 16, || format!("{} files more are open", now - files))?;
    talk().map_err(|error| format!("who was in is not any more: {error}"))?;
    // Connections that stay open are closed by the server.
    eventually("strangers to be hung up on", || {
        client.exec(&sandbox.id, "true").status.success().then_some(())
    });
    drop(held);
    let _ = inside.kill();
    let _ = inside.wait();
    Ok(format!("{greeted} of {CROWD} were greeted, {} files more were open", now.saturating_sub(files)))
}

fn crowd_unguarded(_: &Ground) -> Finding {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"SSH-2.0-trusting\r\n");
            held.push(stream);
        }
    });
    let (_held, greeted) = gather(port);
    ensure(greeted == CROWD, || format!("only {greeted} of {CROWD}"))?;
    Ok(format!("all {greeted} are let in where nobody counts"))
}

/// A server on the host, which no client of a sandbox may reach. It counts connections.
fn hosts_own() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let came = Arc::new(AtomicUsize::new(0));
    let count = came.clone();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(b"the host's own\n");
        }
    });
    (port, came)
}

fn ways_out(sandbox: &Sandbox<'_>) -> Finding {
    let client = SshClient::known(&sandbox.ground.daemon);
    let (port, came) = hosts_own();
    let login = format!("{}@127.0.0.1", sandbox.id);
    let mut tried = 0;
    for host in
        ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "198.51.100.1", "example.com"]
    {
        let output = client.ssh(&["-W", &format!("{host}:{port}"), &login]).output().unwrap();
        sandbox.heard(&output.stdout);
        ensure(output.stdout.is_empty(), || format!("-W {host} answered {:?}", text(&output.stdout)))?;
        tried += 1;
    }
    let socks = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut dynamic = client.ssh(&["-N", "-D", &socks.to_string(), &login]);
    let mut dynamic = dynamic.spawn().map_err(|error| error.to_string())?;
    let mut proxy = eventually("the SOCKS port", || TcpStream::connect(("127.0.0.1", socks)).ok());
    proxy.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let asked = socks_connect(&mut proxy, port);
    let _ = dynamic.kill();
    let _ = dynamic.wait();
    ensure(!asked.contains("host's own"), || format!("-D answered {asked:?}"))?;
    let back = ["-o", "ExitOnForwardFailure=yes", "-R", &format!("0:127.0.0.1:{port}"), &login, "true"];
    let output: Output = client.ssh(&back).output().unwrap();
    ensure(!output.status.success(), || "-R was granted".to_owned())?;
    let streamlocal = ["-o", "ExitOnForwardFailure=yes", "-R", "/tmp/way:/run/nothing", &login, "true"];
    ensure(!client.ssh(&streamlocal).output().unwrap().status.success(), || {
        "-R of a socket was granted".to_owned()
    })?;
    ensure(came.load(Ordering::SeqCst) == 0, || "the host's own server was reached".to_owned())?;
    Ok(format!("{} ways, none leads out of the sandbox", tried + 3))
}

/// The result of asking a SOCKS proxy for a port of its own loopback.
fn socks_connect(proxy: &mut TcpStream, port: u16) -> String {
    let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(port.to_be_bytes());
    let mut answer = Vec::new();
    if proxy.write_all(&request).is_ok() {
        let _ = proxy.read_to_end(&mut answer);
    }
    text(&answer)
}

fn ways_out_unguarded(_: &Ground) -> Finding {
    let (port, came) = hosts_own();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    stream.read_exact(&mut [0; 4]).map_err(|error| error.to_string())?;
    ensure(came.load(Ordering::SeqCst) == 1, || "nobody came".to_owned())?;
    Ok("the host's own server answers whoever reaches it".to_owned())
}

/// Paths that lead to a file of the host unless they are confined.
fn paths(file: &str) -> Vec<String> {
    let up = "/..".repeat(12);
    vec![file.to_owned(), format!("{up}{file}"), format!("/proc/1/root{file}"), format!("/tmp/link{file}")]
}

fn batch(ground: &Ground, file: &str) -> std::path::PathBuf {
    let folder = ground.folder("sftp");
    let mut script = String::from("-ln -s / /tmp/link\n");
    for (number, path) in paths(file).iter().enumerate() {
        script.push_str(&format!("-get {path} {}/{number}\n", folder.display()));
    }
    fs::write(folder.join("batch"), script).unwrap();
    folder
}

fn fetched(folder: &std::path::Path, secret: &str) -> usize {
    let files = fs::read_dir(folder).unwrap().filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    files.filter(|content| content.contains(secret) && !content.starts_with("-ln")).count()
}

const SECRET: &str = "of-the-host-and-nobody-elses";

fn hosts_file(ground: &Ground) -> String {
    let file = ground.folder("host").join("file");
    fs::write(&file, SECRET).unwrap();
    file.display().to_string()
}

fn above(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let client = SshClient::known(&ground.daemon);
    let folder = batch(ground, &hosts_file(ground));
    let script = folder.join("batch").display().to_string();
    let output =
        client.program("sftp", &["-b", &script, &format!("{}@127.0.0.1", sandbox.id)]).output().unwrap();
    sandbox.heard(&output.stdout);
    ensure(text(&output.stdout).contains("sftp>"), || format!("sftp did not run: {}", text(&output.stderr)))?;
    let found = fetched(&folder, SECRET);
    ensure(found == 0, || format!("{found} paths led to the host's file"))?;
    // Forwarding works otherwise.
    sandbox.put("/tmp/own", b"its own");
    fs::write(folder.join("batch"), format!("get /tmp/link/../tmp/own {}/own\n", folder.display())).unwrap();
    let output =
        client.program("sftp", &["-b", &script, &format!("{}@127.0.0.1", sandbox.id)]).output().unwrap();
    ensure(output.status.success(), || format!("its own files are not to be had: {}", text(&output.stderr)))?;
    Ok(format!("{} paths end in the sandbox", paths("/x").len()))
}

/// The same server, outside of any sandbox.
fn above_unguarded(ground: &Ground) -> Finding {
    let guest = std::env::var("BURROW_TEST_GUEST").map_err(|_| RowFailure::Failed("no guest".to_owned()))?;
    let folder = batch(ground, &hosts_file(ground));
    let _ = fs::remove_file("/tmp/link");
    let server = folder.join("server");
    fs::write(&server, format!("#!/bin/sh\nexec {guest} sftp\n")).unwrap();
    Command::new("chmod").arg("755").arg(&server).status().map_err(|error| error.to_string())?;
    let mut sftp = Command::new("sftp");
    sftp.args(["-b"]).arg(folder.join("batch")).arg("-D").arg(&server).stdin(Stdio::null());
    let output = sftp.output().map_err(|error| error.to_string())?;
    let _ = fs::remove_file("/tmp/link");
    let found = fetched(&folder, SECRET);
    ensure(found >= 2, || format!("only {found} paths lead there: {}", text(&output.stderr)))?;
    Ok(format!("{found} of these paths lead to it where nothing keeps the server in"))
}
