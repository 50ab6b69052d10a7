//! Ports: listening ones are listed with their process, and byte pipes connect to them.

use crate::support::{Guest, TOKEN, command, patient, until};
use burrow_guest::client::{Connection, GuestError};
use burrow_guest::protocol::{ErrorCode, ListeningPort, PORT, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn ports(guest: &Guest) -> Vec<ListeningPort> {
    guest.ask(Request::ListPorts).await
}

/// A byte pipe to a port, or the agent's error.
async fn connect(guest: &Guest, port: u16) -> Result<TcpStream, ErrorCode> {
    let stream = TcpStream::connect(guest.address).await.unwrap();
    let mut connection = Connection::open(stream, TOKEN, &Request::Connect { port }).await.unwrap();
    match patient(connection.reply::<()>()).await {
        Ok(()) => {
            let (stream, head) = connection.into_raw();
            assert!(head.is_empty(), "no bytes were sent yet");
            Ok(stream)
        }
        Err(GuestError::Refused(error)) => Err(error.code),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn listening_ports_are_listed_with_process_and_user() {
    let guest = Guest::start();
    let listen = "import socket,time\n\
                  a=socket.create_server(('127.0.0.1',0))\n\
                  time.sleep(1000)";
    // As root, and as another user, whose descriptors the agent may not read by tracing.
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
    assert!(
        ports(&guest).await.iter().all(|port| port.port != PORT),
        "the agent's own listener is not shown"
    );
}

#[tokio::test]
async fn a_pipe_works_in_both_directions_which_end_separately() {
    let guest = Guest::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut host = connect(&guest, port).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    host.write_all(b"question").await.unwrap();
    host.shutdown().await.unwrap();
    let mut text = String::new();
    patient(server.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "question", "the end was passed on");
    // The other direction is still open, for more than any buffer can store.
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
async fn a_server_on_the_ipv6_loopback_is_reached() {
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
async fn ports_without_a_listener_and_the_port_of_the_agent_are_refused() {
    let guest = Guest::start();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    assert_eq!(connect(&guest, free).await.err(), Some(ErrorCode::NotFound));
    assert_eq!(connect(&guest, 0).await.err(), Some(ErrorCode::Invalid));
    assert_eq!(connect(&guest, PORT).await.err(), Some(ErrorCode::Invalid));
}

#[tokio::test]
async fn pipes_are_limited_and_cheap_and_leave_connections_for_execs() {
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
