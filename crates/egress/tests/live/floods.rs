//! A sandbox that uses all it can, and another one beside it.

use std::io::Write;
use std::time::{Duration, Instant};

use burrow_egress::Egress;

use crate::clients::{connect, exchange, get, hello, read, send, text};
use crate::live_test;
use crate::upstreams::{echo, http};
use crate::world::{UPSTREAM, eventually, policy};

live_test! {
    async fn p_n10_a_sandbox_cannot_exceed_its_limit_of_connections(world: World) {
        let mut world = world;
        (world.limits.connections_max, world.limits.connections_per_second) = (20, 1_000);
        let _upstream = echo(UPSTREAM, 7000);
        let (mut daemon, sandbox) = world.with(&["tcp://ok.example:7000"]).await;
        let mut open = Vec::new();
        for _ in 0..20 {
            let mut stream = connect(&sandbox, "ok.example", 7000).await.unwrap();
            stream.write_all(b"x").unwrap();
            assert_eq!(read(&stream, 1).await.unwrap(), b"x");
            open.push(stream);
        }
        assert_eq!(send(&sandbox, "ok.example", 7000, b"x").await, b"", "one too many");
        assert_eq!(daemon.denial("ok.example").await, "the sandbox has reached its limit of open connections");
        // When a connection is closed, another is admitted.
        open.pop();
        eventually("there is room again", async || send(&sandbox, "ok.example", 7000, b"x").await == b"x").await;
    }
}

live_test! {
    async fn e_n10_a_flood_in_one_sandbox_does_not_affect_another(world: World) {
        let web = http(UPSTREAM, 80);
        let mut world = world;
        world.limits.connections_per_second = 50;
        let (daemon, noisy) = world.with(&["ok.example"]).await;
        let quiet = world.sandbox().await;
        daemon.supervisor.attach(&quiet.id, &policy(&["ok.example"])).await.unwrap();
        let flood = noisy.inside(|| {
            let mut open = Vec::new();
            for number in 0..3_000u16 {
                let address = std::net::SocketAddr::from(([203, 0, 113, 9], 1 + number));
                if let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
                    // Half a hello, then nothing.
                    let _ = (&stream).write_all(&[22, 3, 1, 2]);
                    open.push(stream);
                }
            }
            open
        });
        let work = async {
            for _ in 0..20 {
                let answer = text(&send(&quiet, "ok.example", 80, &get("ok.example")).await);
                assert!(answer.contains("200 OK"), "{answer}");
            }
        };
        let (open, ()) = tokio::join!(flood, work);
        assert_eq!(web.hits(), 20);
        let counters = daemon.supervisor.counters(&noisy.id).await.unwrap();
        assert!(counters.connections_denied > 1_000, "{counters:?}");
        drop(open);
    }
}

live_test! {
    async fn e_n10_an_incomplete_hello_times_out_and_a_split_one_is_read(world: World) {
        let _upstream = echo(UPSTREAM, 443);
        let (mut daemon, sandbox) = world.with(&["ok.example"]).await;
        let stalled = connect(&sandbox, "ok.example", 443).await.unwrap();
        (&stalled).write_all(&hello("ok.example")[..40]).unwrap();
        let begin = Instant::now();

        // One record per few bytes, each in its own segment.
        let whole = hello("ok.example");
        let mut cut = Vec::new();
        for piece in whole[5..].chunks(10) {
            cut.extend([22, 3, 1, 0, u8::try_from(piece.len()).unwrap()]);
            cut.extend(piece);
        }
        let mut stream = connect(&sandbox, "ok.example", 443).await.unwrap();
        let (head, tail) = cut.split_at(cut.len() - 3);
        for piece in head.chunks(7) {
            stream.write_all(piece).unwrap();
        }
        assert_eq!(exchange(stream, tail).await, cut, "forwarded unchanged");

        assert!(read(&stalled, 1).await.is_err(), "closed without an answer");
        assert!(begin.elapsed() < Duration::from_secs(19));
        let reason = daemon.denial("ok.example").await;
        assert!(reason.contains("was silent for too long") || reason.contains("no rule allows tcp"), "{reason}");
    }
}
