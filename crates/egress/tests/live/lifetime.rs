//! The process dies, the daemon dies, the policy changes.

use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use burrow_egress::conformance::{self, Fixture};
use burrow_egress::sim::SimEgress;
use burrow_egress::supervisor::Supervisor;
use burrow_egress::{Egress, LogKind};
use burrow_model::SandboxId;
use burrow_network::Network;
use rustix::process::{Pid, Signal, kill_process};

use crate::clients::{A, ask, connect, exchange, hello, read, resolve, send};
use crate::live_test;
use crate::upstreams::echo;
use crate::world::{Daemon, UPSTREAM, World, eventually, policy};

/// A flow through which one byte was sent in each direction.
async fn flow(sandbox: &crate::world::Sandbox, port: u16) -> std::net::TcpStream {
    let mut stream = connect(sandbox, "ok.example", port).await.unwrap();
    stream.write_all(b"1").unwrap();
    assert_eq!(read(&stream, 1).await.unwrap(), b"1");
    stream
}

fn kill(daemon: &Daemon) -> u32 {
    let pid = daemon.supervisor.pid().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    pid
}

live_test! {
    async fn e_n9_traffic_stops_when_the_process_is_killed_and_resumes_later(world: World) {
        let upstream = echo(UPSTREAM, 443);
        let _raw = echo(UPSTREAM, 7000);
        let (daemon, sandbox) = world.with(&["ok.example", "tcp://ok.example:7000"]).await;
        let sent = hello("ok.example");
        let before = resolve(&sandbox, "ok.example").await;
        assert_eq!(send(&sandbox, "ok.example", 443, &sent).await, sent);
        let mut open = flow(&sandbox, 7000).await;

        let dead = kill(&daemon);
        let _ = open.write_all(b"2");
        assert!(read(&open, 1).await.is_err(), "flows end with the process");
        eventually("another process serves the sandbox", async || {
            daemon.supervisor.pid().is_some_and(|pid| pid != dead) && ask(&sandbox, "ok.example", A).await.is_some()
        }).await;
        assert_eq!(resolve(&sandbox, "ok.example").await, before, "names keep their addresses");
        // The same for an address from before, which a program has cached.
        assert_eq!(send(&sandbox, &before.to_string(), 443, &sent).await, sent);
        assert_eq!(upstream.hits(), 2);
        assert_eq!(daemon.supervisor.attached().await.unwrap(), std::slice::from_ref(&sandbox.id));
    }
}

live_test! {
    async fn e_n9_without_a_process_there_is_no_traffic(world: World) {
        let upstream = echo(UPSTREAM, 443);
        let (daemon, sandbox) = world.with(&["ok.example"]).await;
        let synthetic = resolve(&sandbox, "ok.example").await;
        let sent = hello("ok.example");
        assert_eq!(send(&sandbox, "ok.example", 443, &sent).await, sent);
        daemon.supervisor.shutdown().await;
        Supervisor::remove_all(&world.egress_dir()).await.unwrap();
        for host in [synthetic.to_string().as_str(), UPSTREAM] {
            let to = std::net::SocketAddr::new(host.parse().unwrap(), 443);
            let dialled = sandbox.inside(move || {
                std::net::TcpStream::connect_timeout(&to, std::time::Duration::from_millis(500)).is_ok()
            }).await;
            assert!(!dialled, "{host}");
        }
        assert!(ask(&sandbox, "ok.example", A).await.is_none());
        assert_eq!(upstream.hits(), 1);
    }
}

live_test! {
    async fn flows_outlive_the_daemon_and_are_adopted_by_the_next(world: World) {
        let _upstream = echo(UPSTREAM, 7000);
        let rules = ["tcp://ok.example:7000"];
        let (daemon, sandbox) = world.with(&rules).await;
        let mut open = flow(&sandbox, 7000).await;
        let pid = daemon.supervisor.pid();
        daemon.supervisor.shutdown().await;
        drop(daemon);

        open.write_all(b"2").unwrap();
        assert_eq!(read(&open, 1).await.unwrap(), b"2", "the flow continues without a daemon");
        drop(flow(&sandbox, 7000).await);
        assert_eq!(ask(&sandbox, "evil.example", A).await.unwrap().code, 3, "according to the current policy");

        let mut next = world.daemon().await;
        assert_eq!(next.supervisor.pid(), pid, "the same process");
        assert_eq!(next.supervisor.attached().await.unwrap(), std::slice::from_ref(&sandbox.id));
        let missed = next.entry(|entry| entry.kind == LogKind::Dns).await;
        assert_eq!(missed.host, "evil.example", "logged when a daemon is connected again");
        next.supervisor.adopt(&sandbox.id, &policy(&rules)).await.unwrap();
        open.write_all(b"3").unwrap();
        assert_eq!(read(&open, 1).await.unwrap(), b"3", "adopting does not interrupt the flow");
        next.supervisor.detach(&sandbox.id).await.unwrap();
        assert!(read(&open, 1).await.is_err(), "detaching does");
    }
}

live_test! {
    async fn a_flow_ends_when_the_policy_no_longer_allows_it(world: World) {
        let (_upstream, _other) = (echo(UPSTREAM, 7000), echo(UPSTREAM, 7001));
        let (mut daemon, sandbox) = world.with(&["tcp://ok.example:7000-7001"]).await;
        let (gone, mut kept) = (flow(&sandbox, 7000).await, flow(&sandbox, 7001).await);
        daemon.supervisor.set_policy(&sandbox.id, &policy(&["tcp://ok.example:7001"])).await.unwrap();
        let entry = daemon.entry(|entry| entry.port == 7000).await;
        assert_eq!(entry.reason.as_deref(), Some("the policy was changed and no longer allows it"));
        let error = read(&gone, 1).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        kept.write_all(b"2").unwrap();
        assert_eq!(read(&kept, 1).await.unwrap(), b"2");
        let stream = connect(&sandbox, "ok.example", 7000).await.unwrap();
        assert_eq!(exchange(stream, b"x").await, b"", "no new flow is allowed either");
    }
}

/// Sends the greeting of another version, and ends on the request that never changes between versions.
const ANOTHER_VERSION: &str = r#"
import json, os, socket, struct, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + ".new")
listener.listen()
os.rename(sys.argv[1] + ".new", sys.argv[1])
daemon, _ = listener.accept()
greeting = json.dumps({"protocol": 999, "version": "9.9.9"}).encode()
daemon.sendall(struct.pack(">IB", len(greeting), 0) + greeting)
header = daemon.recv(5, socket.MSG_WAITALL)
asked = json.loads(daemon.recv(struct.unpack(">IB", header)[0], socket.MSG_WAITALL))
sys.exit(7 if asked == {"number": 0, "ask": "quit"} else 1)
"#;

live_test! {
    async fn a_process_of_another_version_is_replaced(world: World) {
        std::fs::create_dir(world.egress_dir()).unwrap();
        let socket = world.egress_dir().join("control.sock");
        let mut other = std::process::Command::new("python3")
            .args(["-c", ANOTHER_VERSION])
            .arg(&socket)
            .spawn()
            .unwrap();
        eventually("it listens", async || socket.exists()).await;
        let (daemon, sandbox) = world.with(&["ok.example"]).await;
        assert_eq!(other.wait().unwrap().code(), Some(7), "it received the request to end and understood it");
        assert_ne!(daemon.supervisor.pid(), Some(other.id()));
        assert_eq!(ask(&sandbox, "ok.example", A).await.unwrap().code, 0);
    }
}

struct RealFixture(World, Arc<Supervisor>);

#[async_trait]
impl Fixture for RealFixture {
    fn egress(&self) -> &dyn Egress {
        &*self.1
    }

    async fn sandbox(&self) -> SandboxId {
        let id = SandboxId::generate();
        // The link may be dropped: only the listeners are attached, and those belong to the gateway.
        self.0.network.connect(&id).await.unwrap();
        id
    }

    async fn reopen(&self) -> Box<dyn Fixture> {
        let world = self.0.again();
        let supervisor = world.supervisor().await;
        Box::new(RealFixture(world, supervisor))
    }
}

live_test! {
    async fn the_real_driver_conforms(world: World) {
        let supervisor = world.supervisor().await;
        conformance::all(&RealFixture(world, supervisor)).await;
    }
}

struct SimulatedFixture(SimEgress);

#[async_trait]
impl Fixture for SimulatedFixture {
    fn egress(&self) -> &dyn Egress {
        &self.0
    }

    async fn sandbox(&self) -> SandboxId {
        SandboxId::generate()
    }

    async fn reopen(&self) -> Box<dyn Fixture> {
        Box::new(SimulatedFixture(self.0.clone()))
    }
}

#[tokio::test]
async fn the_simulated_driver_conforms() {
    conformance::all(&SimulatedFixture(SimEgress::new())).await;
}
