//! The sandbox as a whole: boot, listener, duties of PID 1, services, statistics, shutdown.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::support::{Guest, TOKEN, collect, command, expect, patient, shell, until};
use burrow_guest::client::{Connection, GuestError};
use burrow_guest::protocol::{
    BootReport, ErrorCode, ExecInfo, ExecStart, ExecState, GENERATION, Identity, MachineStats, ReadMode,
    Request, RunningService, Service, ServiceRestart, ServiceState,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn service(name: &str, script: &str, restart: ServiceRestart) -> Service {
    Service {
        name: name.to_owned(),
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
        env: BTreeMap::new(),
        cwd: None,
        user: None,
        restart,
    }
}

async fn services(guest: &Guest) -> Vec<RunningService> {
    guest.ask(Request::ListServices).await
}

async fn set(guest: &Guest, services: Vec<Service>) {
    guest.ask(Request::SetServices { services }).await
}

fn boot_with(text: &str) -> BootReport {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_burrow-guest"));
    let mut child = command.stdin(OwnedFd::from(theirs)).spawn().unwrap();
    drop(command);
    ours.write_all(text.as_bytes()).unwrap();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let mut report = String::new();
    ours.read_to_string(&mut report).unwrap();
    assert!(!child.wait().unwrap().success());
    serde_json::from_str(&report).unwrap()
}

#[test]
fn failed_boots_are_reported_with_the_failed_step() {
    for (text, wanted) in [
        ("", "read the boot message"),
        ("{\"generation\":", "read the boot message"),
        (
            r#"{"generation":99,"token":"t","listen":"127.0.0.1:1","accept_from":"127.0.0.1","ram_bytes":0,"services":[]}"#,
            "read the boot message",
        ),
        (
            r#"{"generation":1,"token":"","listen":"127.0.0.1:1","accept_from":"127.0.0.1","ram_bytes":0,"services":[]}"#,
            "read the boot message",
        ),
        (
            r#"{"generation":1,"token":"t","listen":"192.0.2.1:7711","accept_from":"127.0.0.1","ram_bytes":0,"services":[]}"#,
            "listen",
        ),
    ] {
        match boot_with(text) {
            BootReport::Failed { step, message } => assert_eq!(step, wanted, "{message}"),
            BootReport::Ready => panic!("booted from {text:?}"),
        }
    }
}

#[tokio::test]
async fn a_ping_returns_the_identity() {
    let guest = Guest::start();
    let identity: Identity = guest.ask(Request::Ping).await;
    assert_eq!(identity.generation, GENERATION);
    assert_eq!(identity.version, env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn a_wrong_token_is_refused() {
    let guest = Guest::start();
    for token in ["", "wrong", "a-token-for-test", "a-token-for-tests-and-more"] {
        let stream = TcpStream::connect(guest.address).await.unwrap();
        let mut connection = Connection::open(stream, token, &Request::Ping).await.unwrap();
        match patient(connection.reply::<Identity>()).await {
            Err(GuestError::Refused(error)) => assert_eq!(error.code, ErrorCode::Unauthorized),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn only_connections_from_the_gateway_are_served() {
    let guest = Guest::start();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.99:0".parse().unwrap()).unwrap();
    let stream = socket.connect(guest.address).await.unwrap();
    let asked = Connection::open(stream, TOKEN, &Request::Ping).await;
    let Ok(mut connection) = asked else { return };
    assert!(patient(connection.reply::<Identity>()).await.is_err());
}

#[tokio::test]
async fn invalid_bytes_end_only_their_own_connection() {
    let guest = Guest::start();
    let hello = format!("{{\"generation\":1,\"token\":\"{TOKEN}\"}}");
    let frame = |kind: u8, payload: &[u8]| {
        let mut frame = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
        frame.push(kind);
        frame.extend_from_slice(payload);
        frame
    };
    let hello = frame(0, hello.as_bytes());
    let after_hello = |bytes: Vec<u8>| [hello.clone(), bytes].concat();
    let cases: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        frame(0, b"{}"),
        frame(1, b"not a hello"),
        frame(9, b""),
        after_hello(frame(0, b"{\"op\":\"teleport\"}")),
        after_hello(frame(0, b"[]")),
        after_hello(frame(0, &[0xff; 100])),
        after_hello(frame(2, b"short")),
        after_hello(frame(4, b"")),
        after_hello(vec![0, 0, 0x20, 0, 0]),
    ];
    for bytes in cases {
        let mut stream = TcpStream::connect(guest.address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = patient(stream.read_to_end(&mut answer)).await;
        assert!(answer.len() < 4096);
    }
    // Many connections that send half a frame and then nothing.
    let mut silent = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(guest.address).await.unwrap();
        stream.write_all(&hello[..hello.len() / 2]).await.unwrap();
        silent.push(stream);
    }
    let _: Identity = guest.ask(Request::Ping).await;
}

#[tokio::test]
async fn connections_are_limited_and_silent_ones_are_closed() {
    let guest = Guest::start();
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(TcpStream::connect(guest.address).await.unwrap());
    }
    // Silent connections are closed after their time limit; then there is room again.
    until(|| async { guest.try_ask::<Identity>(Request::Ping).await.is_ok() }).await;
}

#[tokio::test]
async fn an_unknown_request_is_unsupported() {
    let guest = Guest::start();
    let mut stream = TcpStream::connect(guest.address).await.unwrap();
    let mut bytes = Vec::new();
    for json in [format!("{{\"generation\":1,\"token\":\"{TOKEN}\"}}"), "{\"op\":\"teleport\"}".to_owned()] {
        bytes.extend_from_slice(&u32::try_from(json.len()).unwrap().to_le_bytes());
        bytes.push(0);
        bytes.extend_from_slice(json.as_bytes());
    }
    stream.write_all(&bytes).await.unwrap();
    let mut answer = vec![0; 4096];
    let count = patient(stream.read(&mut answer)).await.unwrap();
    assert!(String::from_utf8_lossy(&answer[..count]).contains("unsupported"));
}

#[tokio::test]
async fn as_pid_1_it_reaps_thousands_of_orphans() {
    let guest = Guest::start_as_pid_1();
    let script = "i=0; while [ $i -lt 2000 ]; do (true &) ; i=$((i+1)); done; echo made";
    assert_eq!(guest.sh(script).await.stdout, "made\n");
    until(|| async {
        let left = guest.sh("cat /proc/[0-9]*/stat 2>/dev/null | awk '$3 == \"Z\"' | wc -l").await;
        left.stdout.trim() == "0"
    })
    .await;
    let stats: MachineStats = guest.ask(Request::Stats).await;
    assert!(stats.processes <= 3, "{stats:?}");
}

#[tokio::test]
async fn as_pid_1_it_cannot_be_signalled_or_read_from_inside() {
    let guest = Guest::start_as_pid_1();
    let ran =
        guest.sh("for s in TERM INT HUP QUIT USR1 PIPE KILL STOP; do kill -$s 1; done; echo sent").await;
    assert_eq!(ran.stdout, "sent\n");
    let reader = ExecStart {
        user: Some("daemon".to_owned()),
        ..shell("cat /proc/1/environ /proc/1/maps; ls /proc/1/fd; readlink /proc/1/exe")
    };
    let ran = guest.run(reader).await;
    assert_eq!(ran.stdout, "", "{}", ran.stderr);
    let _: Identity = guest.ask(Request::Ping).await;
}

#[tokio::test]
async fn stopping_processes_before_execve_does_not_block_the_agent() {
    let guest = Guest::start_as_pid_1();
    let start = ExecStart { attach: None, ..shell("while :; do kill -STOP -1; done") };
    let exec = start.exec.clone();
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    for _ in 0..20 {
        let _: Identity = guest.ask(Request::Ping).await;
    }
    let _: () = guest.ask(Request::ExecSignal { exec, signal: libc::SIGKILL, group: true }).await;
}

#[tokio::test]
async fn shutdown_sends_sigterm_then_sigkill_and_ends_the_agent() {
    for stubborn in [false, true] {
        let mut guest = Guest::start_as_pid_1();
        let marker = guest.path("marker");
        let trap = if stubborn { "trap '' TERM" } else { "trap 'echo bye > $0; exit' TERM" };
        let script = format!("{trap}; echo ready; while :; do sleep 0.05; done");
        let mut start = command(&["/bin/sh", "-c", &script, &marker]);
        start.attach = Some(ReadMode::Lossy);
        let mut connection = guest.open(&Request::ExecStart(start)).await;
        let _: ExecInfo = connection.reply().await.unwrap();
        expect(&mut connection, "ready").await;
        let grace_ms = if stubborn { 100 } else { 30_000 };
        let _: () = guest.ask(Request::Shutdown { grace_ms }).await;
        assert!(guest.child.wait().unwrap().success());
        assert_eq!(std::fs::exists(&marker).unwrap(), !stubborn);
    }
}

#[tokio::test]
async fn an_exec_can_stop_the_sandbox_after_its_output_was_read() {
    let mut guest = Guest::start_as_pid_1();
    let start = ExecStart { then_stop: true, ..shell("echo last words; exit 3") };
    let ran = guest.run(start).await;
    assert_eq!((ran.stdout.as_str(), ran.code()), ("last words\n", Some(3)));
    assert!(guest.child.wait().unwrap().success());
}

#[tokio::test]
async fn statistics_include_running_and_ended_processes() {
    let guest = Guest::start_as_pid_1();
    let before: MachineStats = guest.ask(Request::Stats).await;
    guest.sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").await;
    let start = ExecStart { attach: None, ..command(&["sleep", "1000"]) };
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    let after: MachineStats = guest.ask(Request::Stats).await;
    assert!(after.cpu_us > before.cpu_us, "{before:?} {after:?}");
    assert_eq!((after.execs_running, after.ram_limit_bytes), (1, 512 << 20));
    assert!(after.processes >= 2 && after.disk_total_bytes > 0 && after.disk_used_bytes > 0);
    let _: () = guest.ask(Request::SetRam { ram_bytes: 1 << 30 }).await;
    let stats: MachineStats = guest.ask(Request::Stats).await;
    assert_eq!(stats.ram_limit_bytes, 1 << 30);
}

#[tokio::test]
async fn an_idle_agent_uses_little_ram() {
    let guest = Guest::start();
    for _ in 0..50 {
        guest.run(command(&["true"])).await;
    }
    let stats: MachineStats = guest.ask(Request::Stats).await;
    assert!(stats.agent_ram_bytes <= 12 << 20, "{} (an unoptimised build)", stats.agent_ram_bytes);
}

#[tokio::test]
async fn services_start_with_the_sandbox_and_restart_when_they_end() {
    let guest = Guest::start_with_services(vec![
        service("steady", "echo up; sleep 1000", ServiceRestart::Always),
        service("flaky", "echo again; exit 1", ServiceRestart::OnFailure),
        service("once", "echo once", ServiceRestart::OnFailure),
        service("never", "exit 1", ServiceRestart::Never),
    ]);
    until(|| async {
        let list = services(&guest).await;
        let find = |name: &str| list.iter().find(|service| service.name == name).unwrap().clone();
        find("flaky").restarts >= 2
            && find("steady").state == ServiceState::Running
            && find("once").state == ServiceState::Ended
            && find("never").state == ServiceState::Ended
            && find("never").restarts == 0
    })
    .await;
    let list = services(&guest).await;
    let steady = list.iter().find(|service| service.name == "steady").unwrap();
    let exec = steady.exec.clone().unwrap();
    assert!(exec.starts_with("exe") && exec.len() == 23);
    let mut connection = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    expect(&mut connection, "up\n").await;
}

#[tokio::test]
async fn a_new_set_of_services_stops_missing_ones_starts_new_ones_and_keeps_the_rest() {
    let guest = Guest::start();
    let long = "trap 'exit 0' TERM; while :; do sleep 0.05; done";
    let keep = service("keep", long, ServiceRestart::Always);
    let change = service("change", long, ServiceRestart::Always);
    set(&guest, vec![keep.clone(), change.clone(), service("drop", long, ServiceRestart::Always)]).await;
    let started = |name: &'static str| {
        let guest = &guest;
        async move {
            let list = services(guest).await;
            list.into_iter().find(|service| service.name == name).and_then(|service| service.exec)
        }
    };
    until(|| async {
        started("keep").await.is_some()
            && started("change").await.is_some()
            && started("drop").await.is_some()
    })
    .await;
    let (kept, changed, dropped) = (started("keep").await, started("change").await, started("drop").await);
    let changed_service = Service { env: BTreeMap::from([("A".to_owned(), "b".to_owned())]), ..change };
    set(&guest, vec![keep, changed_service, service("new", long, ServiceRestart::Never)]).await;
    for exec in [changed.clone(), dropped].into_iter().flatten() {
        let info: ExecInfo = guest.ask(Request::ExecGet { exec }).await;
        assert!(matches!(info.state, ExecState::Ended(_)), "{info:?}");
    }
    until(|| async { started("new").await.is_some() && started("change").await.is_some() }).await;
    assert_eq!(started("keep").await, kept, "the unchanged service continues");
    assert_ne!(started("change").await, changed);
    assert_eq!(started("drop").await, None);

    let _: () = guest.ask(Request::RestartService { name: "keep".to_owned() }).await;
    until(|| async { started("keep").await.is_some_and(|exec| Some(exec) != kept) }).await;
    let list = services(&guest).await;
    assert_eq!(list.iter().find(|service| service.name == "keep").unwrap().restarts, 1);
    let missing = Request::RestartService { name: "missing".to_owned() };
    assert_eq!(guest.refusal(missing).await, ErrorCode::NotFound);
    set(&guest, Vec::new()).await;
    assert_eq!(services(&guest).await, []);
}

#[tokio::test]
async fn invalid_services_are_refused_and_the_previous_set_is_kept() {
    let guest = Guest::start();
    set(&guest, vec![service("good", "sleep 1000", ServiceRestart::Always)]).await;
    let twice =
        vec![service("a", "true", ServiceRestart::Never), service("a", "true", ServiceRestart::Never)];
    let many = (0..65).map(|number| service(&number.to_string(), "true", ServiceRestart::Never)).collect();
    for (bad, code) in [
        (vec![service("", "true", ServiceRestart::Never)], ErrorCode::Invalid),
        (vec![service("a\x1b[2J", "true", ServiceRestart::Never)], ErrorCode::Invalid),
        (twice, ErrorCode::Invalid),
        (vec![Service { argv: Vec::new(), ..service("a", "", ServiceRestart::Never) }], ErrorCode::Invalid),
        (many, ErrorCode::TooMany),
    ] {
        assert_eq!(guest.refusal(Request::SetServices { services: bad }).await, code);
    }
    assert_eq!(services(&guest).await.len(), 1);
}

#[tokio::test]
async fn a_service_that_cannot_start_backs_off() {
    let guest = Guest::start();
    let bad = Service { argv: vec!["/no/such".to_owned()], ..service("bad", "", ServiceRestart::Always) };
    set(&guest, vec![bad]).await;
    until(|| async {
        let list = services(&guest).await;
        list[0].restarts >= 2 && list[0].state == ServiceState::BackingOff && list[0].exec.is_none()
    })
    .await;
    set(&guest, Vec::new()).await;
}

#[tokio::test]
async fn a_stubborn_service_is_killed_when_it_must_stop() {
    let guest = Guest::start();
    let stubborn =
        service("stubborn", "trap '' TERM; echo ready; while :; do sleep 0.05; done", ServiceRestart::Always);
    set(&guest, vec![stubborn]).await;
    until(|| async { services(&guest).await[0].exec.is_some() }).await;
    let exec = services(&guest).await[0].exec.clone().unwrap();
    let mut connection = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    expect(&mut connection, "ready").await;
    set(&guest, Vec::new()).await;
    let ran = collect(&mut connection).await;
    assert_eq!(ran.outcome().signal, Some(libc::SIGKILL));
    assert!(!ran.outcome().killed_from_outside);
}
