//! Output logs: offsets, reattaching, gaps, back-pressure, and limits whatever a process prints.

use crate::support::{Guest, collect, command, expect, patient, shell, until};
use burrow_guest::client::{Connection, parse};
use burrow_guest::protocol::{
    AttachNotice, ExecInfo, ExecStart, ExecState, Frame, MachineStats, ReadMode, Request, StdinMode,
};
use tokio::net::TcpStream;

fn background(start: ExecStart) -> ExecStart {
    ExecStart { attach: None, ..start }
}

async fn start(guest: &Guest, start: ExecStart) -> String {
    let exec = start.exec.clone();
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    exec
}

async fn get(guest: &Guest, exec: &str) -> ExecInfo {
    guest.ask(Request::ExecGet { exec: exec.to_owned() }).await
}

/// Reads up to the Drained notice of a connection that does not follow.
async fn drain(connection: &mut Connection<TcpStream>) -> (Vec<u8>, u64) {
    let mut bytes = Vec::new();
    loop {
        match patient(connection.next()).await.unwrap().unwrap() {
            Frame::Stdout { bytes: more, .. } => bytes.extend_from_slice(&more),
            Frame::Control(json) => match parse(&json).unwrap() {
                AttachNotice::Drained { offset } => return (bytes, offset),
                other @ (AttachNotice::Gap { .. } | AttachNotice::Exit(_)) => panic!("{other:?}"),
            },
            other @ (Frame::Stderr { .. } | Frame::Bytes(_) | Frame::End) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_disconnected_reader_resumes_without_loss() {
    let guest = Guest::start();
    let script = "for i in 1 2 3 4 5 6 7 8 9; do echo line $i; sleep 0.05; done";
    let exec = start(&guest, background(shell(script))).await;
    let mut text = String::new();
    let mut offset = 0;
    // Hangs up after every frame.
    loop {
        let mut connection = guest.attach(&exec, offset, ReadMode::Lossy, true).await;
        match patient(connection.next()).await.unwrap().unwrap() {
            Frame::Stdout { offset: at, bytes } => {
                assert_eq!(at, offset);
                offset += bytes.len() as u64;
                text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
            Frame::Control(json) => {
                assert!(matches!(parse(&json).unwrap(), AttachNotice::Exit(_)));
                break;
            }
            other @ (Frame::Stderr { .. } | Frame::Bytes(_) | Frame::End) => panic!("{other:?}"),
        }
    }
    let expected: String = (1..=9).map(|number| format!("line {number}\n")).collect();
    assert_eq!(text, expected);
}

#[tokio::test]
async fn without_follow_only_existing_output_is_sent() {
    let guest = Guest::start();
    let exec = start(&guest, background(shell("printf 12345; sleep 1000"))).await;
    until(|| async { get(&guest, &exec).await.output_end == 5 }).await;
    let mut connection = guest.attach(&exec, 2, ReadMode::Lossy, false).await;
    assert_eq!(drain(&mut connection).await, (b"345".to_vec(), 5));
    let mut connection = guest.attach(&exec, 999, ReadMode::Lossy, false).await;
    assert_eq!(drain(&mut connection).await, (Vec::new(), 5));
}

#[tokio::test]
async fn excess_output_is_dropped_and_counted() {
    let guest = Guest::start();
    let exec =
        start(&guest, background(ExecStart { ring_bytes: 65536, ..shell("yes | head -c 300000000") })).await;
    let info: ExecInfo = guest.ask(Request::ExecWait { exec: exec.clone(), timeout_ms: 60_000 }).await;
    assert!(matches!(info.state, ExecState::Ended(_)), "{info:?}");
    assert_eq!((info.output_end, info.output_start), (300_000_000, 300_000_000 - 65536));
    assert_eq!(info.output_dropped, info.output_start);
    let mut connection = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    let ran = collect(&mut connection).await;
    assert_eq!(ran.gaps, [(0, info.output_start)]);
    assert_eq!(ran.stdout.len(), 65536);
    let stats: MachineStats = guest.ask(Request::Stats).await;
    assert!(stats.agent_ram_bytes < 32 << 20, "{}", stats.agent_ram_bytes);
}

#[tokio::test]
async fn a_lossless_reader_that_does_not_read_blocks_the_process_but_not_the_agent() {
    let guest = Guest::start();
    // No newline, no end, and no reader.
    let start = ExecStart { ring_bytes: 65536, ..shell("tr '\\0' x < /dev/zero") };
    let exec = start.exec.clone();
    let mut connection = guest.open(&Request::ExecStart(start)).await;
    let _: ExecInfo = connection.reply().await.unwrap();
    let mut last = 0;
    patient(async {
        loop {
            let end = get(&guest, &exec).await.output_end;
            if end > 0 && end == last {
                break;
            }
            last = end;
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    })
    .await;
    let stats: MachineStats = guest.ask(Request::Stats).await;
    assert!(stats.agent_ram_bytes < 16 << 20, "{}", stats.agent_ram_bytes);
    let info = get(&guest, &exec).await;
    assert_eq!((info.output_dropped, info.state), (0, ExecState::Running));
    // Reading lets it continue.
    let mut total = 0;
    while total < last + (4 << 20) {
        match patient(connection.next()).await.unwrap().unwrap() {
            Frame::Stdout { offset, bytes } => {
                assert_eq!(offset, total);
                total += bytes.len() as u64;
            }
            other @ (Frame::Control(_) | Frame::Stderr { .. } | Frame::Bytes(_) | Frame::End) => {
                panic!("{other:?}")
            }
        }
    }
    // Hanging up does, too.
    drop(connection);
    until(|| async { get(&guest, &exec).await.output_dropped > 0 }).await;
}

#[tokio::test]
async fn a_process_that_ends_with_a_full_ring_has_ended_and_its_reader_gets_all_output() {
    let guest = Guest::start();
    let start = ExecStart { ring_bytes: 4096, ..shell("head -c 60000 /dev/zero | tr '\\0' x") };
    let exec = start.exec.clone();
    let mut held = background(start);
    held.hold = true;
    let _: ExecInfo = guest.ask(Request::ExecStart(held)).await;
    let info: ExecInfo = guest.ask(Request::ExecWait { exec: exec.clone(), timeout_ms: 60_000 }).await;
    assert!(matches!(info.state, ExecState::Ended(_)), "{info:?}");
    assert_eq!(info.output_end, 4096);
    let mut connection = guest.attach(&exec, 0, ReadMode::Lossless, true).await;
    let ran = collect(&mut connection).await;
    assert_eq!((ran.stdout.len(), ran.gaps.len(), ran.info.output_dropped), (60000, 0, 0));
}

/// The host is still sending input that is not read: closing the connection then would drop data in transit.
#[tokio::test]
async fn a_slow_host_gets_all_output_of_an_exec_that_left_its_input_unread() {
    const BYTES: usize = 2 << 20;
    let guest = Guest::start();
    let start = ExecStart { stdin: StdinMode::Pipe, ..shell(&format!("head -c {BYTES} /dev/zero")) };
    let mut connection = guest.open(&Request::ExecStart(start)).await;
    let _: ExecInfo = patient(connection.reply()).await.unwrap();
    let (mut reader, mut writer) = connection.split();
    let feeding = tokio::spawn(async move {
        let input = Frame::Bytes(vec![b'x'; 32 << 10].into());
        while writer.send(&input).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    // Longer than the agent keeps reading from a host that has received everything.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    let mut received = 0;
    loop {
        match patient(reader.next()).await.unwrap().expect("the guest hung up before Exit") {
            Frame::Stdout { bytes, .. } => received += bytes.len(),
            Frame::Control(json) => match parse(&json).unwrap() {
                AttachNotice::Exit(_) => break,
                other @ (AttachNotice::Gap { .. } | AttachNotice::Drained { .. }) => panic!("{other:?}"),
            },
            other @ (Frame::Stderr { .. } | Frame::Bytes(_) | Frame::End) => panic!("{other:?}"),
        }
    }
    assert_eq!(received, BYTES);
    feeding.abort();
}

#[tokio::test]
async fn a_held_exec_loses_nothing_before_its_first_reader_attaches() {
    let guest = Guest::start();
    let mut held =
        background(ExecStart { ring_bytes: 4096, ..shell("head -c 1000000 /dev/zero | tr '\\0' x") });
    held.hold = true;
    let exec = start(&guest, held).await;
    until(|| async { get(&guest, &exec).await.output_end == 4096 }).await;
    let mut connection = guest.attach(&exec, 0, ReadMode::Lossless, true).await;
    let ran = collect(&mut connection).await;
    assert_eq!((ran.stdout.len(), ran.gaps.len()), (1_000_000, 0));
}

#[tokio::test]
async fn a_slow_reader_does_not_slow_down_another_or_the_process() {
    let guest = Guest::start();
    let start =
        ExecStart { attach: Some(ReadMode::Lossy), ring_bytes: 65536, ..shell("yes | head -c 50000000") };
    let exec = start.exec.clone();
    // This reader never reads.
    let mut slow = guest.open(&Request::ExecStart(start)).await;
    let info: ExecInfo = guest.ask(Request::ExecWait { exec: exec.clone(), timeout_ms: 60_000 }).await;
    assert!(matches!(info.state, ExecState::Ended(_)), "{info:?}");
    let _: ExecInfo = slow.reply().await.unwrap();
    let ran = collect(&mut slow).await;
    let lost: u64 = ran.gaps.iter().map(|(from, to)| to - from).sum();
    assert_eq!(ran.stdout.len() as u64 + lost, 50_000_000, "the reader was notified of what it missed");
}

#[tokio::test]
async fn ended_execs_are_removed_oldest_first_after_their_output() {
    let guest = std::sync::Arc::new(Guest::start());
    let first =
        guest.run(ExecStart { ring_bytes: 4 << 20, ..shell("head -c 4000000 /dev/zero") }).await.info.exec;
    for _ in 0..6 {
        guest.run(ExecStart { ring_bytes: 4 << 20, ..shell("head -c 4000000 /dev/zero") }).await;
    }
    let info = get(&guest, &first).await;
    assert_eq!((info.output_start, info.output_end), (4_000_000, 4_000_000), "its output was dropped");
    let stats: MachineStats = guest.ask(Request::Stats).await;
    assert!(stats.agent_ram_bytes < 40 << 20, "{}", stats.agent_ram_bytes);
    for _ in 0..10 {
        let runs: Vec<_> = (0..100)
            .map(|_| {
                let guest = std::sync::Arc::clone(&guest);
                // Characters that take six bytes each in JSON: such a list must fit into an answer, too.
                tokio::spawn(async move { guest.run(command(&["true", &"\u{1}".repeat(500)])).await })
            })
            .collect();
        for run in runs {
            run.await.unwrap();
        }
    }
    let list: Vec<ExecInfo> = guest.ask(Request::ExecList).await;
    assert_eq!(list.len(), 1000, "all execs, with their command lines cut");
    assert!(list.iter().all(|info| info.exec != first));
}

#[tokio::test]
async fn escape_sequences_are_preserved_in_output_only() {
    let guest = Guest::start();
    let ran = guest.sh("printf '\\033]0;owned\\007\\033[2J'").await;
    assert_eq!(ran.stdout, "\x1b]0;owned\x07\x1b[2J");
}

#[tokio::test]
async fn several_readers_each_receive_all_output() {
    let guest = Guest::start();
    let exec =
        start(&guest, background(shell("for i in $(seq 100); do echo $i; done; sleep 0.2; echo end"))).await;
    let mut readers = Vec::new();
    for mode in [ReadMode::Lossy, ReadMode::Lossless, ReadMode::Lossy] {
        readers.push(guest.attach(&exec, 0, mode, true).await);
    }
    expect(&mut readers[0], "end").await;
    for reader in &mut readers[1..] {
        let ran = collect(reader).await;
        assert!(ran.stdout.starts_with("1\n2\n") && ran.stdout.ends_with("100\nend\n"));
    }
}
