//! Processes: starting, output, input, terminals, signals, time limits, users.

use std::collections::BTreeMap;

use crate::support::{Guest, collect, command, expect, patient, send_upload, shell, until};
use burrow_guest::client::parse;
use burrow_guest::protocol::{
    AttachInput, AttachNotice, ErrorCode, ExecInfo, ExecStart, ExecState, Frame, ReadMode, Request,
    StdinMode, TerminalSize,
};
use bytes::Bytes;

fn background(start: ExecStart) -> ExecStart {
    ExecStart { attach: None, ..start }
}

async fn ended(guest: &Guest, exec: &str) -> ExecInfo {
    let info: ExecInfo = guest.ask(Request::ExecWait { exec: exec.to_owned(), timeout_ms: 60_000 }).await;
    assert!(matches!(info.state, ExecState::Ended(_)), "{info:?}");
    info
}

#[tokio::test]
async fn output_streams_and_exit_code_are_returned() {
    let guest = Guest::start();
    let ran = guest.sh("echo out; echo err >&2; exit 7").await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.code()), ("out\n", "err\n", Some(7)));
    assert!(ran.outcome().ram_max_bytes > 0 && ran.outcome().wall_us > 0);
    assert_eq!((ran.info.output_end, ran.info.output_dropped), (8, 0));
}

#[tokio::test]
async fn programs_are_found_in_the_path_of_the_exec_and_missing_ones_are_reported() {
    let guest = Guest::start();
    assert_eq!(guest.run(command(&["true"])).await.code(), Some(0));
    let elsewhere = BTreeMap::from([("PATH".to_owned(), "/nowhere".to_owned())]);
    let refusal = guest.refusal(Request::ExecStart(ExecStart { env: elsewhere, ..command(&["true"]) })).await;
    assert_eq!(refusal, ErrorCode::NoProgram);
    for (program, code) in [
        ("no-such-program", ErrorCode::NoProgram),
        ("/no/such/program", ErrorCode::NoProgram),
        ("/etc/passwd", ErrorCode::CannotExecute),
        ("/", ErrorCode::CannotExecute),
    ] {
        let refusal = guest.refusal(Request::ExecStart(command(&[program]))).await;
        assert_eq!(refusal, code, "{program}");
    }
    let left: Vec<ExecInfo> = guest.ask(Request::ExecList).await;
    assert_eq!(left.len(), 1, "execs that never ran are not listed: {left:?}");
}

#[tokio::test]
async fn invalid_requests_are_refused_before_a_process_starts() {
    let guest = Guest::start();
    let refused = |start: ExecStart| guest.refusal(Request::ExecStart(start));
    assert_eq!(refused(command(&[])).await, ErrorCode::Invalid);
    assert_eq!(refused(command(&[""])).await, ErrorCode::Invalid);
    assert_eq!(refused(command(&["tr\0ue"])).await, ErrorCode::Invalid);
    assert_eq!(
        refused(ExecStart { exec: "../x".to_owned(), ..command(&["true"]) }).await,
        ErrorCode::Invalid
    );
    let bad = BTreeMap::from([("A=B".to_owned(), String::new())]);
    assert_eq!(refused(ExecStart { env: bad, ..command(&["true"]) }).await, ErrorCode::Invalid);
    let cwd = |cwd: &str| ExecStart { cwd: Some(cwd.to_owned()), ..command(&["true"]) };
    assert_eq!(refused(cwd("relative")).await, ErrorCode::Invalid);
    assert_eq!(refused(cwd("/no/such")).await, ErrorCode::NotFound);
    assert_eq!(refused(cwd("/etc/passwd")).await, ErrorCode::NotADirectory);
    let user = ExecStart { user: Some("nobody-here".to_owned()), ..command(&["true"]) };
    assert_eq!(refused(user).await, ErrorCode::UnknownUser);
    assert_eq!(guest.refusal(Request::ExecGet { exec: "exenone".to_owned() }).await, ErrorCode::NotFound);
}

#[tokio::test]
async fn descriptor_directories_are_refused_and_only_three_descriptors_are_open() {
    let guest = Guest::start();
    for number in 3..=20 {
        for process in ["self", "1", "thread-self", &guest.child.id().to_string()] {
            let cwd = Some(format!("/proc/{process}/fd/{number}"));
            let refusal = guest.refusal(Request::ExecStart(ExecStart { cwd, ..command(&["true"]) })).await;
            let refused = [ErrorCode::Invalid, ErrorCode::NotFound, ErrorCode::PermissionDenied];
            assert!(refused.contains(&refusal), "{refusal:?}");
        }
    }
    for cwd in ["/proc/self/fd", "/proc/self/cwd", "/proc/self/root", "/proc/thread-self/fdinfo"] {
        let start = ExecStart { cwd: Some(cwd.to_owned()), ..command(&["true"]) };
        assert_eq!(guest.refusal(Request::ExecStart(start)).await, ErrorCode::Invalid, "{cwd}");
    }
    // `ls` itself opens one more, the directory that it lists.
    assert_eq!(guest.run(command(&["ls", "/proc/self/fd"])).await.stdout, "0\n1\n2\n3\n");
}

#[tokio::test]
async fn a_process_starts_with_clean_signals_its_own_session_and_a_raised_oom_score() {
    let guest = Guest::start();
    let script =
        "grep -E 'Sig(Blk|Ign)' /proc/self/status; cat /proc/self/oom_score_adj; ps -o pid=,pgid=,sid= -p $$";
    let ran = guest.sh(script).await;
    let lines: Vec<&str> = ran.stdout.lines().collect();
    for line in &lines[..2] {
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
    assert_eq!(lines[2], "500");
    let ids: Vec<&str> = lines[3].split_whitespace().collect();
    assert!(ids.iter().all(|&id| id == ran.info.pid.to_string()), "{ids:?}");
}

#[tokio::test]
async fn the_environment_is_that_of_the_user_and_the_request_overrides_it() {
    let guest = Guest::start();
    let ran = guest.run(command(&["env"])).await;
    for line in ["HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8"] {
        assert!(ran.stdout.lines().any(|other| other == line), "{line} in {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("CARGO"), "nothing from the agent's environment");
    assert!(!ran.stdout.contains("TERM="), "no terminal, no TERM");
    let env =
        BTreeMap::from([("HOME".to_owned(), "/elsewhere".to_owned()), ("EMPTY".to_owned(), String::new())]);
    let ran = guest.run(ExecStart { env, ..command(&["env"]) }).await;
    assert!(ran.stdout.contains("HOME=/elsewhere\n") && ran.stdout.contains("EMPTY=\n"));
}

#[tokio::test]
async fn a_process_runs_as_the_requested_user_and_group() {
    let guest = Guest::start();
    for (user, expected) in [
        (None, "0:0:0"),
        (Some("daemon"), "1:1:1"),
        (Some("1"), "1:1:1"),
        (Some("daemon:sys"), "1:3:3"),
        (Some("4242:4343"), "4242:4343:4343"),
    ] {
        let start = ExecStart { user: user.map(str::to_owned), ..shell("echo $(id -u):$(id -g):$(id -G)") };
        assert_eq!(guest.run(start).await.stdout.trim(), expected, "{user:?}");
    }
}

#[tokio::test]
async fn starting_the_same_id_twice_starts_one_process() {
    let guest = Guest::start();
    let start = background(shell("echo once; sleep 1000"));
    let first: ExecInfo = guest.ask(Request::ExecStart(start.clone())).await;
    let second: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    assert_eq!(first.pid, second.pid);
}

#[tokio::test]
async fn standard_input_and_its_end_are_delivered() {
    let guest = Guest::start();
    let start = ExecStart { stdin: StdinMode::Pipe, ..command(&["sort"]) };
    let mut connection = guest.open(&Request::ExecStart(start)).await;
    let _: ExecInfo = connection.reply().await.unwrap();
    for line in ["b\n", "a\n"] {
        connection.send(&Frame::Bytes(Bytes::from_static(line.as_bytes()))).await.unwrap();
    }
    connection.send(&Frame::End).await.unwrap();
    assert_eq!(collect(&mut connection).await.stdout, "a\nb\n");
}

#[tokio::test]
async fn megabytes_pass_through_a_process_without_deadlock_or_loss() {
    let guest = Guest::start();
    let start = ExecStart { stdin: StdinMode::Pipe, ring_bytes: 64 * 1024, ..command(&["cat"]) };
    let connection = {
        let mut connection = guest.open(&Request::ExecStart(start)).await;
        let _: ExecInfo = connection.reply().await.unwrap();
        connection
    };
    let (mut reader, mut writer) = connection.split();
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let sending = tokio::spawn(async move {
        for _ in 0..32 {
            writer.send(&Frame::Bytes(chunk.clone())).await.unwrap();
        }
        writer.send(&Frame::End).await.unwrap();
        writer
    });
    let mut total = 0;
    loop {
        match patient(reader.next()).await.unwrap().unwrap() {
            Frame::Stdout { offset, bytes } => {
                assert_eq!(offset, total);
                total += bytes.len() as u64;
            }
            Frame::Control(json) => {
                assert!(matches!(parse(&json).unwrap(), AttachNotice::Exit(_)));
                break;
            }
            other @ (Frame::Stderr { .. } | Frame::Bytes(_) | Frame::End) => panic!("{other:?}"),
        }
    }
    assert_eq!(total, 32 << 20);
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn input_can_be_uploaded_on_a_separate_connection() {
    let guest = Guest::start();
    let start = background(ExecStart { stdin: StdinMode::Pipe, ..command(&["wc", "-c"]) });
    let exec = start.exec.clone();
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    for close in [false, true] {
        let mut connection = guest.open(&Request::ExecStdin { exec: exec.clone(), close }).await;
        send_upload(&mut connection, b"12345").await;
        let () = patient(connection.reply()).await.unwrap();
    }
    ended(&guest, &exec).await;
    let mut connection = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    assert_eq!(collect(&mut connection).await.stdout.trim(), "10");
    let mut connection = guest.open(&Request::ExecStdin { exec, close: true }).await;
    send_upload(&mut connection, b"late").await;
    assert!(patient(connection.reply::<()>()).await.is_err());
}

#[tokio::test]
async fn signals_reach_the_group_or_the_first_process_alone() {
    let guest = Guest::start();
    let start = background(shell("sleep 1000 & echo $!; trap '' TERM; wait"));
    let exec = start.exec.clone();
    let info: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    let mut connection = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    let child: u32 = expect(&mut connection, "\n").await.trim().parse().unwrap();
    let _: () =
        guest.ask(Request::ExecSignal { exec: exec.clone(), signal: libc::SIGINT, group: false }).await;
    let ran = collect(&mut connection).await;
    assert_eq!((ran.code(), ran.outcome().signal), (None, Some(libc::SIGINT)));
    assert!(!ran.outcome().killed_from_outside);
    assert!(std::path::Path::new(&format!("/proc/{child}")).exists(), "only the first process was signalled");
    assert_eq!(info.pid, ran.info.pid);

    let start = background(shell("sleep 1000 & echo $!; wait"));
    let exec = start.exec.clone();
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    let mut connection = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    let child = expect(&mut connection, "\n").await.trim().to_owned();
    let _: () =
        guest.ask(Request::ExecSignal { exec: exec.clone(), signal: libc::SIGKILL, group: true }).await;
    let ran = collect(&mut connection).await;
    assert_eq!(ran.outcome().signal, Some(libc::SIGKILL));
    assert!(!ran.outcome().killed_from_outside, "the host itself sent the signal");
    until(|| async { !std::path::Path::new(&format!("/proc/{child}")).exists() }).await;
    let again = Request::ExecSignal { exec: exec.clone(), signal: libc::SIGTERM, group: true };
    assert_eq!(guest.refusal(again).await, ErrorCode::Ended);
    let start = background(command(&["sleep", "1000"]));
    let bad = Request::ExecSignal { exec: start.exec.clone(), signal: 99, group: true };
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    assert_eq!(guest.refusal(bad).await, ErrorCode::Invalid);
}

#[tokio::test]
async fn a_kill_from_outside_is_reported() {
    let guest = Guest::start();
    let ran = guest.sh("kill -9 $$").await;
    assert_eq!(ran.outcome().signal, Some(libc::SIGKILL));
    assert!(ran.outcome().killed_from_outside);
}

#[tokio::test]
async fn a_timeout_ends_the_whole_group_even_if_sigterm_is_ignored() {
    let guest = Guest::start();
    let script = "(trap '' TERM; echo $$; while :; do sleep 0.1; done) & wait";
    let ran = guest.run(ExecStart { timeout_ms: Some(300), ..shell(script) }).await;
    assert!(ran.outcome().timed_out, "{ran:?}");
    let group = ran.info.pid.to_string();
    until(|| async {
        let left = std::process::Command::new("pgrep").args(["-g", &group]).output().unwrap();
        left.stdout.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_background_child_neither_delays_the_end_nor_is_killed_by_it() {
    let guest = Guest::start();
    let marker = guest.path("marker");
    let script = format!("(sleep 0.5; echo late; echo alive > {marker}) & echo early");
    let ran = guest.sh(&script).await;
    assert_eq!((ran.stdout.as_str(), ran.code()), ("early\n", Some(0)));
    until(|| async { std::fs::read_to_string(&marker).is_ok_and(|text| text == "alive\n") }).await;
    // Output written after the end can still be read.
    let exec = ran.info.exec;
    let mut connection = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    assert_eq!(collect(&mut connection).await.stdout, "early\nlate\n");
}

#[tokio::test]
async fn a_terminal_has_its_size_and_can_be_resized_and_written_to() {
    let guest = Guest::start();
    let terminal = Some(TerminalSize { columns: 132, rows: 43 });
    let start = ExecStart { terminal, stdin: StdinMode::Pipe, ..command(&["/bin/bash", "--norc", "-i"]) };
    let exec = start.exec.clone();
    let mut connection = guest.open(&Request::ExecStart(start)).await;
    let info: ExecInfo = connection.reply().await.unwrap();
    assert!(info.terminal);
    let type_in = |text: &'static str| Frame::Bytes(Bytes::from_static(text.as_bytes()));
    connection.send(&type_in("stty size; echo $TERM; tty -s && echo is-a-$((1+1))tty\n")).await.unwrap();
    let text = expect(&mut connection, "is-a-2tty").await;
    assert!(text.contains("43 132") && text.contains("xterm-256color"), "{text:?}");
    let size = TerminalSize { columns: 65535, rows: 65535 };
    let resize = serde_json::to_vec(&AttachInput::Resize(size)).unwrap();
    connection.send(&Frame::Control(resize.into())).await.unwrap();
    connection.send(&type_in("stty size\n")).await.unwrap();
    expect(&mut connection, "65535 65535").await;
    let size = TerminalSize { columns: 1, rows: 0 };
    let _: () = guest.ask(Request::ExecResize { exec, size }).await;
    connection.send(&type_in("stty size; cat; echo cat-has-$((40+2))-ended\n")).await.unwrap();
    expect(&mut connection, "0 1\r\n").await;
    connection.send(&Frame::End).await.unwrap();
    expect(&mut connection, "cat-has-42-ended").await;
    // Ctrl-C, sent through the terminal.
    connection.send(&type_in("sh -c 'echo asleep-$((1+1)); exec sleep 1000'\n")).await.unwrap();
    expect(&mut connection, "asleep-2").await;
    connection.send(&type_in("\x03")).await.unwrap();
    connection.send(&type_in("echo still-$((1+1))-here\n")).await.unwrap();
    expect(&mut connection, "still-2-here").await;
    connection.send(&type_in("exit 9\n")).await.unwrap();
    assert_eq!(collect(&mut connection).await.code(), Some(9));
}

#[tokio::test]
async fn an_exec_without_a_terminal_cannot_be_resized() {
    let guest = Guest::start();
    let start = background(command(&["sleep", "1000"]));
    let exec = start.exec.clone();
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    let size = TerminalSize { columns: 80, rows: 24 };
    assert_eq!(guest.refusal(Request::ExecResize { exec, size }).await, ErrorCode::Invalid);
}

#[tokio::test]
async fn the_number_of_terminals_is_limited() {
    let guest = Guest::start();
    let size = Some(TerminalSize { columns: 80, rows: 24 });
    for _ in 0..256 {
        let start = ExecStart { terminal: size, ..background(command(&["sleep", "1000"])) };
        let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    }
    let start = ExecStart { terminal: size, ..background(command(&["sleep", "1000"])) };
    assert_eq!(guest.refusal(Request::ExecStart(start)).await, ErrorCode::TooMany);
    assert_eq!(guest.sh("echo others continue").await.code(), Some(0));
}

#[tokio::test]
async fn two_hundred_processes_run_concurrently() {
    let guest = std::sync::Arc::new(Guest::start());
    let runs: Vec<_> = (0..200)
        .map(|number| {
            let guest = std::sync::Arc::clone(&guest);
            tokio::spawn(async move {
                (number, guest.sh(&format!("sleep 0.2; echo {number}; exit {}", number % 100)).await)
            })
        })
        .collect();
    for run in runs {
        let (number, ran) = run.await.unwrap();
        assert_eq!((ran.stdout.trim(), ran.code()), (number.to_string().as_str(), Some(number % 100)));
    }
    let list: Vec<ExecInfo> = guest.ask(Request::ExecList).await;
    assert_eq!(list.len(), 200);
}

#[tokio::test]
async fn waiting_returns_after_its_timeout() {
    let guest = Guest::start();
    let start = background(command(&["sleep", "1000"]));
    let exec = start.exec.clone();
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    let info: ExecInfo = guest.ask(Request::ExecWait { exec, timeout_ms: 10 }).await;
    assert_eq!(info.state, ExecState::Running);
}

/// Bytes sent by this end of a connection that the other end's kernel has not received yet.
fn unsent(local: std::net::SocketAddr) -> u64 {
    let port = format!(":{:04X}", local.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let line =
        table.lines().find(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&port)));
    let queues = line.and_then(|line| line.split_whitespace().nth(4)).unwrap();
    u64::from_str_radix(queues.split(':').next().unwrap(), 16).unwrap()
}

#[tokio::test]
async fn accepted_input_reaches_the_process_even_if_the_host_dies() {
    let guest = Guest::start();
    let file = guest.path("input");
    // The process prints more than all buffers can store, and only then reads: when the host goes, the agent waits in
    // both directions, with the input partly delivered.
    let script = format!("head -c 64000000 /dev/zero; cat > {file}");
    let start = ExecStart { stdin: StdinMode::Pipe, ..shell(&script) };
    let exec = start.exec.clone();
    let stream = tokio::net::TcpStream::connect(guest.address).await.unwrap();
    let local = stream.local_addr().unwrap();
    let mut connection =
        burrow_guest::client::Connection::open(stream, crate::support::TOKEN, &Request::ExecStart(start))
            .await
            .unwrap();
    // More than the capacity of a pipe, less than that of a pipe and the socket's buffers.
    let input = vec![b'i'; 96 * 1024];
    for chunk in input.chunks(16 * 1024) {
        patient(connection.send(&Frame::Bytes(Bytes::copy_from_slice(chunk)))).await.unwrap();
    }
    patient(connection.send(&Frame::End)).await.unwrap();
    until(|| async { unsent(local) == 0 }).await;
    // Closing with unread output resets the connection.
    drop(connection);
    ended(&guest, &exec).await;
    assert_eq!(std::fs::read(&file).unwrap().len(), input.len());
}
