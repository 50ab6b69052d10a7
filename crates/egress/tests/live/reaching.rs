//! Allowed connections work.

use std::io::Write;
use std::net::SocketAddr;

use burrow_egress::{DetectedProtocol, Egress, Verdict};
use burrow_model::NetworkMode;

use crate::clients::{AAAA, ask, connect, connect_to, exchange, get, hello, read, resolve, send, text};
use crate::live_test;
use crate::upstreams::{banner, echo, http};
use crate::world::{UPSTREAM, UPSTREAM_V6, address, policy, policy_of};

live_test! {
    async fn http_and_tls_reach_the_named_host(world: World) {
        let (web, tls) = (http(UPSTREAM, 80), echo(UPSTREAM, 443));
        let (mut daemon, sandbox) = world.with(&["ok.example"]).await;

        let answer = text(&send(&sandbox, "ok.example", 80, &get("ok.example")).await);
        assert!(answer.ends_with("GET /path HTTP/1.1 for ok.example"), "{answer}");
        let sent = hello("OK.example");
        assert_eq!(send(&sandbox, "ok.example", 443, &sent).await, sent, "forwarded unchanged");
        assert_eq!((web.hits(), tls.hits()), (1, 1));

        let entry = daemon.entry(|entry| entry.port == 443).await;
        assert_eq!((entry.host.as_str(), entry.verdict), ("ok.example", Verdict::Allow));
        assert_eq!((entry.protocol, entry.rule.as_deref()), (Some(DetectedProtocol::Tls), Some("ok.example")));
        assert_eq!((entry.bytes_in, entry.bytes_out), (sent.len() as u64, sent.len() as u64));
        assert_eq!((entry.address, entry.count), (Some(address(UPSTREAM)), 1));
        assert!(entry.duration_ms.is_some());
        let counters = daemon.supervisor.counters(&sandbox.id).await.unwrap();
        assert_eq!((counters.connections_allowed, counters.connections_denied), (2, 0));
        assert_eq!(counters.bytes_out, sent.len() as u64 + get("ok.example").len() as u64);
    }
}

live_test! {
    async fn ipv6_is_checked_and_served_like_ipv4(world: World) {
        let upstream = echo(UPSTREAM_V6, 443);
        let (_daemon, sandbox) = world.with(&["ok6.example"]).await;
        let six = ask(&sandbox, "ok6.example", AAAA).await.unwrap().address.unwrap();
        assert!(six.is_ipv6());
        let sent = hello("ok6.example");
        let stream = connect_to(&sandbox, SocketAddr::new(six, 443)).await.unwrap();
        assert_eq!(exchange(stream, &sent).await, sent);
        // A host with one address family is also reached by the synthetic address of the other family.
        assert_eq!(send(&sandbox, "ok6.example", 443, &sent).await, sent);
        assert_eq!(upstream.hits(), 2);
    }
}

live_test! {
    async fn a_server_may_send_first_if_a_rule_allows_any_bytes(world: World) {
        let (_ssh, _mail) = (banner(UPSTREAM, 22), banner(UPSTREAM, 443));
        let (daemon, sandbox) = world.with(&["ssh://ok.example", "tcp://ok.example:443", "ok.example"]).await;
        for port in [22, 443] {
            let mut stream = connect(&sandbox, "ok.example", port).await.unwrap();
            assert_eq!(read(&stream, 13).await.unwrap(), b"220 welcome\r\n", "port {port}");
            stream.write_all(b"hello\r\n").unwrap();
            assert_eq!(read(&stream, 7).await.unwrap(), b"hello\r\n");
        }
        // The mode `open` also allows it, without a rule.
        daemon.supervisor.set_policy(&sandbox.id, &policy_of(NetworkMode::Open, &[])).await.unwrap();
        let stream = connect(&sandbox, "ok.example", 22).await.unwrap();
        assert_eq!(read(&stream, 13).await.unwrap(), b"220 welcome\r\n");
    }
}

live_test! {
    async fn either_side_may_end_first_and_the_rest_still_arrives(world: World) {
        let _upstream = echo(UPSTREAM, 7000);
        let (_daemon, sandbox) = world.with(&["tcp://db.example:7000"]).await;
        let large: Vec<u8> = (0..5_000_000u32).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
        let stream = connect(&sandbox, "db.example", 7000).await.unwrap();
        let mut writer = stream.try_clone().unwrap();
        let sent = large.clone();
        let writing = tokio::task::spawn_blocking(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let back = read(&stream, large.len()).await.unwrap();
        writing.await.unwrap();
        assert!(back == large, "all of it, in order");
    }
}

live_test! {
    async fn many_requests_and_an_upgrade_pass_over_plain_http(world: World) {
        let web = http(UPSTREAM, 80);
        let (_daemon, sandbox) = world.with(&["ok.example"]).await;
        let three = [get("ok.example"), get("ok.example:80"), get("OK.example.")].concat();
        let answer = text(&send(&sandbox, "ok.example", 80, &three).await);
        assert_eq!(answer.matches("200 OK").count(), 3, "{answer}");
        assert_eq!(web.hits(), 1, "over one connection");

        let mut stream = connect(&sandbox, "ok.example", 80).await.unwrap();
        let upgrade = b"GET /ws HTTP/1.1\r\nHost: ok.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(upgrade).unwrap();
        let answer = read(&stream, 56).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", text(&answer));
        stream.write_all(b"\x81\x05hello").unwrap();
        assert_eq!(read(&stream, 7).await.unwrap(), b"\x81\x05hello");
    }
}

live_test! {
    async fn the_name_in_a_hello_decides_if_the_address_is_not_allowed(world: World) {
        let upstream = echo(UPSTREAM, 443);
        let (_daemon, sandbox) = world.with(&["ok.example"]).await;
        let sent = hello("ok.example");
        // As with the sandbox's own hosts file: the address is unreachable, the name is not.
        assert_eq!(send(&sandbox, "203.0.113.77", 443, &sent).await, sent);
        assert_eq!(upstream.hits(), 1);
    }
}

live_test! {
    async fn a_rule_may_name_an_address(world: World) {
        let (raw, tls) = (echo(UPSTREAM, 5432), echo(UPSTREAM, 443));
        let rules = [format!("tcp://{UPSTREAM}:5432"), format!("https://{UPSTREAM}")];
        let (_daemon, sandbox) = world.with(&[&rules[0], &rules[1]]).await;
        assert_eq!(send(&sandbox, UPSTREAM, 5432, b"query").await, b"query");
        let sent = hello(UPSTREAM);
        assert_eq!(send(&sandbox, UPSTREAM, 443, &sent).await, sent);
        assert_eq!((raw.hits(), tls.hits()), (1, 1));
        assert_eq!(send(&sandbox, UPSTREAM, 5433, b"query").await, b"");
    }
}

live_test! {
    async fn a_trial_reports_each_step(world: World) {
        let _upstream = echo(UPSTREAM, 443);
        let (daemon, sandbox) = world.with(&["ok.example", "rebound.example", "dead.example", "no-such.example"]).await;
        let mut seen = Vec::new();
        for target in ["ok.example", "other.example", "rebound.example", "no-such.example", "http://ok.example"] {
            let trial = daemon.supervisor.trial(&sandbox.id, &target.parse().unwrap()).await.unwrap();
            let steps: Vec<_> = trial.steps.iter().map(|step| format!("{} {}", step.name, step.ok)).collect();
            seen.push((trial.reachable, steps.join(", ")));
            assert!(trial.steps.iter().all(|step| !step.detail.is_empty()));
        }
        assert_eq!(
            seen,
            [
                (true, "decide true, resolve true, check true, dial true".to_owned()),
                (false, "decide false".to_owned()),
                (false, "decide true, resolve true, check false".to_owned()),
                (false, "decide true, resolve false".to_owned()),
                // No process listens there.
                (false, "decide true, resolve true, check true, dial false".to_owned()),
            ]
        );
    }
}

live_test! {
    async fn an_unreachable_host_is_distinguished_from_a_refused_one(world: World) {
        let (mut daemon, sandbox) = world.with(&["ok.example", "no-such.example"]).await;
        let answer = text(&send(&sandbox, "ok.example", 80, &get("ok.example")).await);
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(answer.contains("ok.example:80 is allowed, but 198.51.100.10 could not be reached"), "{answer}");
        let entry = daemon.entry(|entry| entry.host == "ok.example").await;
        assert_eq!(entry.verdict, Verdict::Allow);
        assert!(entry.reason.unwrap().contains("could not be reached"));
        let answer = text(&send(&sandbox, "no-such.example", 80, &get("no-such.example")).await);
        assert!(answer.contains("could not be resolved"), "{answer}");
        assert_eq!(daemon.supervisor.counters(&sandbox.id).await.unwrap().connections_failed, 2);
    }
}

live_test! {
    async fn names_keep_their_addresses_when_the_policy_changes(world: World) {
        let (daemon, sandbox) = world.with(&["ok.example", "*.wild.example"]).await;
        let before = resolve(&sandbox, "ok.example").await;
        daemon.supervisor.set_policy(&sandbox.id, &policy(&["ok.example"])).await.unwrap();
        assert_eq!(resolve(&sandbox, "ok.example").await, before);
        assert_eq!(ask(&sandbox, "a.wild.example", AAAA).await.unwrap().code, 3);
    }
}
