//! A machine that is a copy gets its own identity, and continues to work.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Guest, TOKEN, collect, expect, patient, send_upload, shell, until};
use burrow_guest::client::{Connection, GuestError};
use burrow_guest::protocol::{
    Attach, ErrorCode, ExecInfo, ExecState, Identity, ReadMode, Request, RunningService, Service,
    ServiceRestart, ServiceState, StdinMode, WatchFiles,
};
use tokio::net::TcpStream;

const NEW_TOKEN: &str = "another-token-for-tests";

const HOSTS: &str = "127.0.0.1\tlocalhost\n10.0.0.9 db\n127.0.1.1\tparent # this sandbox\n";

/// An `/etc` like that of a sandbox.
fn etc() -> tempfile::TempDir {
    let etc = tempfile::tempdir().unwrap();
    fs::write(etc.path().join("machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::write(etc.path().join("hosts"), HOSTS).unwrap();
    fs::write(etc.path().join("hostname"), "parent\n").unwrap();
    etc
}

fn read(etc: &tempfile::TempDir, name: &str) -> String {
    fs::read_to_string(etc.path().join(name)).unwrap()
}

fn renew() -> Request {
    Request::Renew { token: NEW_TOKEN.to_owned(), hostname: "child".to_owned() }
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, GuestError>, code: ErrorCode) {
    match outcome {
        Err(GuestError::Refused(error)) => assert_eq!(error.code, code, "{error}"),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Reads until the guest hangs up, in whatever way.
async fn until_hung_up(connection: &mut Connection<TcpStream>) {
    patient(async { while let Ok(Some(_)) = connection.next().await {} }).await;
}

#[tokio::test]
async fn only_the_new_token_is_valid_afterwards() {
    let etc = etc();
    let guest = Guest::start_with_etc(etc.path(), Vec::new(), false);
    let () = guest.ask(renew()).await;
    assert_refused(guest.ask_as::<Identity>(TOKEN, Request::Ping).await, ErrorCode::Unauthorized);
    assert_refused(guest.ask_as::<()>(TOKEN, renew()).await, ErrorCode::Unauthorized);
    let _: Identity = guest.ask_as(NEW_TOKEN, Request::Ping).await.unwrap();
    // Again, as for a fork of a fork.
    let next = Request::Renew { token: TOKEN.to_owned(), hostname: "grandchild".to_owned() };
    let () = guest.ask_as(NEW_TOKEN, next).await.unwrap();
    let _: Identity = guest.ask(Request::Ping).await;
}

#[tokio::test]
async fn the_machine_id_and_the_name_are_new() {
    let etc = etc();
    let guest = Guest::start_with_etc(etc.path(), Vec::new(), false);
    let before = read(&etc, "machine-id");
    let () = guest.ask(renew()).await;
    let after = read(&etc, "machine-id");
    assert_ne!(before, after);
    assert_eq!(after.len(), 33, "{after:?}");
    assert_eq!(read(&etc, "hostname"), "child\n");
    assert_eq!(
        read(&etc, "hosts"),
        HOSTS.replace("parent", "child parent"),
        "the former name still resolves"
    );
}

#[tokio::test]
async fn an_invalid_renewal_changes_nothing() {
    let etc = etc();
    let guest = Guest::start_with_etc(etc.path(), Vec::new(), false);
    for (token, hostname) in [("", "child"), (NEW_TOKEN, "two words"), (NEW_TOKEN, "")] {
        let request = Request::Renew { token: token.to_owned(), hostname: hostname.to_owned() };
        assert_eq!(guest.refusal(request).await, ErrorCode::Invalid);
    }
    assert_eq!(read(&etc, "machine-id"), "0123456789abcdef0123456789abcdef\n");
    let _: Identity = guest.ask(Request::Ping).await;
}

fn host_key(etc: &Path, name: &str) -> Option<String> {
    fs::read_to_string(etc.join("ssh").join(name)).ok()
}

#[tokio::test]
async fn ssh_host_keys_are_replaced_or_at_least_removed() {
    let etc = etc();
    fs::create_dir(etc.path().join("ssh")).unwrap();
    fs::write(etc.path().join("ssh/ssh_host_ed25519_key"), "the parent's").unwrap();
    fs::write(etc.path().join("ssh/ssh_host_ed25519_key.pub"), "the parent's").unwrap();
    let guest = Guest::start_with_etc(etc.path(), Vec::new(), false);
    let () = guest.ask(renew()).await;
    let key = host_key(etc.path(), "ssh_host_ed25519_key");
    if Command::new("ssh-keygen").arg("-?").output().is_ok() {
        assert!(key.unwrap().contains("PRIVATE KEY"));
        assert!(host_key(etc.path(), "ssh_host_ed25519_key.pub").unwrap().starts_with("ssh-ed25519 "));
    } else {
        assert_eq!(key, None);
    }
    let execs: Vec<ExecInfo> = guest.ask_as(NEW_TOKEN, Request::ExecList).await.unwrap();
    assert_eq!(execs, [], "programs that the agent runs for itself are not listed");
}

#[tokio::test]
async fn other_connections_are_closed_and_execs_continue() {
    let etc = etc();
    let guest = Guest::start_with_etc(etc.path(), Vec::new(), false);
    let mut start = shell("echo ready; read line; echo got $line; read line; echo got $line");
    start.stdin = StdinMode::Pipe;
    let exec = start.exec.clone();
    let mut attached = guest.open(&Request::ExecStart(start)).await;
    let _: ExecInfo = patient(attached.reply()).await.unwrap();
    let read = expect(&mut attached, "ready\n").await.len();
    let watched = WatchFiles { path: guest.directory.path().to_str().unwrap().to_owned(), recursive: false };
    let mut watch = guest.open(&Request::Watch(watched.clone())).await;
    let () = patient(watch.reply()).await.unwrap();
    let mut silent = TcpStream::connect(guest.address).await.unwrap();

    let () = guest.ask(renew()).await;
    until_hung_up(&mut attached).await;
    until_hung_up(&mut watch).await;
    let mut byte = [0];
    let end = patient(tokio::io::AsyncReadExt::read(&mut silent, &mut byte)).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");

    let attach = Attach { exec: exec.clone(), offset: read as u64, mode: ReadMode::Lossless, follow: true };
    assert_refused(
        guest.ask_as::<ExecInfo>(TOKEN, Request::Attach(attach.clone())).await,
        ErrorCode::Unauthorized,
    );
    let mut attached = guest.open_as(NEW_TOKEN, &Request::Attach(attach)).await;
    let info: ExecInfo = patient(attached.reply()).await.unwrap();
    assert_eq!(info.state, ExecState::Running);
    let mut feed = guest.open_as(NEW_TOKEN, &Request::ExecStdin { exec: exec.clone(), close: true }).await;
    send_upload(&mut feed, b"one\ntwo\n").await;
    let () = patient(feed.reply()).await.unwrap();
    let ran = collect(&mut attached).await;
    assert_eq!((ran.stdout.as_str(), ran.gaps.len(), ran.code()), ("got one\ngot two\n", 0, Some(0)));
    let mut watch = guest.open_as(NEW_TOKEN, &Request::Watch(watched)).await;
    let () = patient(watch.reply()).await.unwrap();
}

/// As in a fork, in which only the agent runs yet.
#[tokio::test]
async fn renewal_works_while_every_other_process_is_frozen() {
    let etc = etc();
    fs::create_dir(etc.path().join("ssh")).unwrap();
    fs::write(etc.path().join("ssh/ssh_host_ed25519_key"), "the parent's").unwrap();
    let guest = Guest::start_with_etc(etc.path(), Vec::new(), false);
    let mut start = shell("echo ready; sleep 600");
    start.attach = None;
    let exec = start.exec.clone();
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    let mut attached = guest.attach(&exec, 0, ReadMode::Lossless, true).await;
    expect(&mut attached, "ready\n").await;
    let signal = |signal| Request::ExecSignal { exec: exec.clone(), signal, group: true };
    let () = guest.ask(signal(19)).await;
    let () = guest.ask(renew()).await;
    assert_ne!(host_key(etc.path(), "ssh_host_ed25519_key").as_deref(), Some("the parent's"));
    let () = guest.ask_as(NEW_TOKEN, signal(9)).await.unwrap();
    let wait = Request::ExecWait { exec, timeout_ms: 60_000 };
    let info: ExecInfo = guest.ask_as(NEW_TOKEN, wait).await.unwrap();
    assert!(matches!(info.state, ExecState::Ended(_)), "{info:?}");
}

#[tokio::test]
async fn services_stay_supervised() {
    let etc = etc();
    let service = Service {
        name: "worker".to_owned(),
        argv: ["sleep", "600"].map(str::to_owned).into(),
        env: Default::default(),
        cwd: None,
        user: None,
        restart: ServiceRestart::Always,
    };
    let guest = Guest::start_with_etc(etc.path(), vec![service], false);
    let list = async || -> Vec<RunningService> {
        let token = if read(&etc, "hostname") == "child\n" { NEW_TOKEN } else { TOKEN };
        guest.ask_as(token, Request::ListServices).await.unwrap()
    };
    until(async || list().await[0].exec.is_some()).await;
    let before = list().await.remove(0);
    let () = guest.ask(renew()).await;
    assert_eq!(list().await, std::slice::from_ref(&before), "the same run, with the new token");
    let exec = before.exec.unwrap();
    let kill = Request::ExecSignal { exec: exec.clone(), signal: 9, group: true };
    let () = guest.ask_as(NEW_TOKEN, kill).await.unwrap();
    until(async || {
        let now = list().await.remove(0);
        now.state == ServiceState::Running && now.restarts == 1 && now.exec.as_ref() != Some(&exec)
    })
    .await;
}

#[tokio::test]
async fn a_machine_that_boots_from_a_copy_has_its_own_identity_before_services_start() {
    let etc = etc();
    fs::create_dir(etc.path().join("ssh")).unwrap();
    fs::write(etc.path().join("ssh/ssh_host_rsa_key"), "the parent's").unwrap();
    let service = Service {
        name: "witness".to_owned(),
        argv: ["sh", "-c", "cp /etc/machine-id /etc/seen"].map(str::to_owned).into(),
        env: Default::default(),
        cwd: None,
        user: None,
        restart: ServiceRestart::Never,
    };
    let guest = Guest::start_with_etc(etc.path(), vec![service], true);
    // The agent is ready, so the renewal is done.
    let id = read(&etc, "machine-id");
    assert_ne!(id, "0123456789abcdef0123456789abcdef\n");
    assert_ne!(host_key(etc.path(), "ssh_host_rsa_key").as_deref(), Some("the parent's"));
    assert_eq!(read(&etc, "hostname"), "parent\n", "the runtime driver has set the name");
    let _: Identity = guest.ask(Request::Ping).await;
    until(async || etc.path().join("seen").exists() && read(&etc, "seen") == id).await;
}
