//! Ports: what listens is listed with its process, and byte pipes reach it.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails the test")]

mod support;

use burrow_guest::client::{Connection, GuestError};
use burrow_guest::protocol::{ErrorCode, ListeningPort, PORT, Request};
use support::{Guest, TOKEN, command, patient, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn ports(guest: &Guest) -> Vec<ListeningPort> {
    guest.ask(Request::ListPorts).await
}

/// A byte pipe to a port, or the agent's refusal.
async fn connect(guest: &Guest, port: u16) -> Result<TcpStream, ErrorCode> {
    let stream = TcpStream::connect(guest.address).await.unwrap();
    let mut connection = Connection::open(stream, TOKEN, &Request::Connect { port }).await.unwrap();
    match patient(connection.reply::<()>()).await {
        Ok(()) => {
            let (stream, head) = connection.into_raw();
            assert!(head.is_empty(), "nothing was said yet");
            Ok(stream)
        }
        Err(GuestError::Refused(error)) => Err(error.code),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn what_listens_is_listed_with_its_process_and_user() {
    let guest = Guest::start();
    let listen = "import socket,time\n\
                  a=socket.create_server(('127.0.0.1',0))\n\
                  time.sleep(1000)";
    // As root, and as somebody else, whose descriptors the agent has no right to trace its way to.
    for user in ["0", "65534"] {
        let mut start = command(&["python3", "-c", listen]);
        start.user = Some(user.to_owned());
        start.cwd = Some("/".to_owned());
        let exec = start.exec.clone();
        guest.ask::<burrow_guest::protocol::ExecInfo>(Request::ExecStart(start)).await;
        let pid = guest.ask::<burrow_guest::protocol::ExecInfo>(Request::ExecGet { exec }).await.pid;
        let of_exec = async || {
            ports(&guest).await.into_iter().find(|port| port.process.as_ref().is_some_and(|p| p.pid == pid))
        };
        until(async || of_exec().await.is_some()).await;
        let found = of_exec().await.unwrap();
        assert_eq!(found.addresses, ["127.0.0.1"]);
        let process = found.process.unwrap();
        assert_eq!(process.name, "python3", "{process:?}");
        assert!(process.command.starts_with("python3 -c import socket"), "{process:?}");
        assert!(["root", "nobody"].contains(&found.user.as_str()), "{}", found.user);
    }
    assert!(ports(&guest).await.iter().all(|port| port.port != PORT), "the agent's own door is not shown");
}

#[tokio::test]
async fn a_pipe_carries_both_ways_and_ends_each_way_by_itself() {
    let guest = Guest::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut host = connect(&guest, port).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    host.write_all(b"question").await.unwrap();
    host.shutdown().await.unwrap();
    let mut text = String::new();
    patient(server.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "question", "the end came through");
    // The other direction is still open, for more than any buffer holds.
    let bulk: Vec<u8> = (0..8 << 20).map(|index: u32| (index % 251) as u8).collect();
    let sent = bulk.clone();
    let sending = tokio::spawn(async move {
        server.write_all(&sent).await.unwrap();
        server.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    patient(host.read_to_end(&mut received)).await.unwrap();
    sending.await.unwrap();
    assert!(received == bulk, "{} bytes of {}", received.len(), bulk.len());
}

#[tokio::test]
async fn a_server_on_the_other_loopback_is_reached_too() {
    let guest = Guest::start();
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        eprintln!("this host has no IPv6 loopback");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    let mut host = connect(&guest, port).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"v6").await.unwrap();
    drop(server);
    let mut text = String::new();
    patient(host.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "v6");
}

#[tokio::test]
async fn a_port_where_nothing_listens_and_the_agents_own_are_refused() {
    let guest = Guest::start();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    assert_eq!(connect(&guest, free).await.err(), Some(ErrorCode::NotFound));
    assert_eq!(connect(&guest, 0).await.err(), Some(ErrorCode::Invalid));
    assert_eq!(connect(&guest, PORT).await.err(), Some(ErrorCode::Invalid));
}

#[tokio::test]
async fn pipes_are_bounded_cost_little_and_leave_room_for_execs() {
    let guest = Guest::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut open = Vec::new();
    let refused = loop {
        match connect(&guest, port).await {
            Ok(stream) => open.push((stream, listener.accept().await.unwrap())),
            Err(code) => break code,
        }
    };
    assert_eq!((refused, open.len()), (ErrorCode::TooMany, 256));
    let stats: burrow_guest::protocol::MachineStats = guest.ask(Request::Stats).await;
    assert!(stats.agent_ram_bytes < 16 << 20, "{} bytes for 256 idle pipes", stats.agent_ram_bytes);
    open.clear();
    until(async || connect(&guest, port).await.is_ok()).await;
}
