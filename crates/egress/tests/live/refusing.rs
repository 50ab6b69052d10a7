//! Connections that are not allowed do not leave, and are refused with a reason. Every refusal has a control that
//! works.

use burrow_egress::Egress;
use burrow_model::NetworkMode;

use crate::clients::{connect, exchange, get, hello, is_alert, resolve, send, text};
use crate::live_test;
use crate::upstreams::{echo, http};
use crate::world::{METADATA, OWN_PUBLIC, PRIVATE, UPSTREAM, policy_denying, policy_of};

live_test! {
    async fn a_refusal_is_reported_in_the_programs_own_protocol(world: World) {
        let _upstream = http(UPSTREAM, 80);
        let (mut daemon, sandbox) = world.with(&["ok.example"]).await;
        // Control.
        assert!(text(&send(&sandbox, "ok.example", 80, &get("ok.example")).await).contains("200 OK"));

        let answer = text(&send(&sandbox, "ok.example", 8080, &get("ok.example:8080")).await);
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        let reason = "burrow: the connection to ok.example:8080 was refused: no rule allows port 8080 of `ok.example`. \
                     To allow it, add the rule `ok.example:8080` to the sandbox's network policy.\n";
        assert!(answer.ends_with(reason), "{answer}");
        let tls = send(&sandbox, "ok.example", 8443, &hello("ok.example")).await;
        assert_eq!(tls, [21, 3, 3, 0, 2, 2, 49], "access_denied");
        assert_eq!(send(&sandbox, "ok.example", 22, b"SSH-2.0-x\r\n").await, b"");
        assert_eq!(daemon.denial("ok.example").await, "no rule allows port 8080 of `ok.example`");
        assert_eq!(daemon.supervisor.counters(&sandbox.id).await.unwrap().connections_denied, 3);
    }
}

live_test! {
    async fn e_n1_an_address_without_an_allowed_name_is_refused(world: World) {
        let decoys = [echo(UPSTREAM, 443), http(UPSTREAM, 80), echo(UPSTREAM, 7000)];
        let (mut daemon, sandbox) = world.with(&["www.ok.example"]).await;
        assert!(is_alert(&send(&sandbox, UPSTREAM, 443, &hello(UPSTREAM)).await), "no name");
        assert!(is_alert(&send(&sandbox, UPSTREAM, 443, &hello("ok.example")).await), "a name that is not allowed");
        assert!(text(&send(&sandbox, UPSTREAM, 80, &get("ok.example")).await).contains("403"));
        assert!(text(&send(&sandbox, UPSTREAM, 80, &get(UPSTREAM)).await).contains("403"));
        assert_eq!(send(&sandbox, UPSTREAM, 7000, b"raw").await, b"");
        assert_eq!(decoys.each_ref().map(|decoy| decoy.hits()), [0, 0, 0]);
        assert_eq!(
            daemon.denial(UPSTREAM).await,
            "the connection to the address 198.51.100.10 names no host, and no rule allows the address"
        );
        // Control: the same servers, by an allowed name.
        let sent = hello("www.ok.example");
        assert_eq!(send(&sandbox, "www.ok.example", 443, &sent).await, sent);
        assert_eq!(decoys[0].hits(), 1);
    }
}

live_test! {
    async fn a_denied_block_cannot_be_reached_by_address_or_name(world: World) {
        let upstream = http(UPSTREAM, 80);
        let (mut daemon, sandbox) = world.with(&[]).await;
        let open = |rules: &[&str], deny: &[&str]| policy_denying(NetworkMode::Open, rules, deny);
        let reached = async |host: &str| text(&send(&sandbox, host, 80, &get(host)).await);
        // Control.
        daemon.supervisor.set_policy(&sandbox.id, &open(&[], &["192.0.2.0/24"])).await.unwrap();
        for host in ["ok.example", UPSTREAM] {
            assert!(reached(host).await.contains("200 OK"), "{host}");
        }
        daemon.supervisor.set_policy(&sandbox.id, &open(&[], &["198.51.100.0/25"])).await.unwrap();
        for host in ["ok.example", UPSTREAM] {
            assert!(reached(host).await.starts_with("HTTP/1.1 403"), "{host}");
        }
        let reason = "`ok.example` leads to 198.51.100.10, an address that the sandbox's policy denies";
        assert_eq!(daemon.denial("ok.example").await, reason);
        assert_eq!(upstream.hits(), 2);
        // A rule about the address, or about a block that contains it, is an exception.
        for rule in ["tcp://198.51.100.10:1-65535", "tcp://198.51.100.8/30:80"] {
            let policy = open(&[rule], &["198.51.100.0/25"]);
            daemon.supervisor.set_policy(&sandbox.id, &policy).await.unwrap();
            for host in ["ok.example", UPSTREAM] {
                assert!(reached(host).await.contains("200 OK"), "{rule}: {host}");
            }
        }
    }
}

live_test! {
    async fn e_n2_p_n7_no_name_or_form_reaches_an_address_that_is_not_public(world: World) {
        let addresses = ["127.0.0.1", METADATA, PRIVATE, OWN_PUBLIC];
        let decoys = addresses.map(|address| http(address, 80));
        let control = http(UPSTREAM, 80);
        let names = ["rebound.example", "metadata.example", "private.example", "own.example", "mapped.example"];
        let rules: Vec<&str> = names.into_iter().chain(addresses).chain(["ok.example", "mixed.example"]).collect();
        let (mut daemon, sandbox) = world.with(&rules).await;
        for host in names {
            let answer = text(&send(&sandbox, host, 80, &get(host)).await);
            assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
        }
        for host in addresses {
            let answer = send(&sandbox, host, 80, &get(host)).await;
            // Loopback traffic never leaves the sandbox, so it reaches the sandbox itself.
            assert!(host == "127.0.0.1" || text(&answer).starts_with("HTTP/1.1 403"), "{host}");
        }
        // An address in the form of a name is not a name: it is not even resolved.
        for host in ["2130706433", "0x7f.1", "0177.0.0.1", "127.1"] {
            let resolved = crate::clients::ask(&sandbox, host, crate::clients::A).await.unwrap();
            assert_eq!((resolved.code, resolved.address), (5, None), "{host}");
            let answer = text(&send(&sandbox, "203.0.113.77", 80, &get(host)).await);
            assert!(answer.starts_with("HTTP/1.1 400"), "{host}: {answer}");
        }
        // Even in the mode `open`.
        daemon.supervisor.set_policy(&sandbox.id, &policy_of(NetworkMode::Open, &[])).await.unwrap();
        for host in names.into_iter().chain([METADATA, PRIVATE, OWN_PUBLIC]) {
            let answer = text(&send(&sandbox, host, 80, &get(host)).await);
            assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
        }
        assert_eq!(decoys.each_ref().map(|decoy| decoy.hits()), [0; 4]);
        assert_eq!(daemon.denial("metadata.example").await, "`metadata.example` leads to 169.254.169.254, a metadata service");
        assert_eq!(daemon.denial("own.example").await, "`own.example` leads to 93.184.216.34, an address of this host");
        // Controls: the decoys listen, and the same path to the outside works; for a name with both kinds of
        // addresses, the permitted one is used.
        for address in addresses {
            std::net::TcpStream::connect((address, 80)).unwrap();
        }
        for host in ["ok.example", "mixed.example"] {
            assert!(text(&send(&sandbox, host, 80, &get(host)).await).contains("200 OK"), "{host}");
        }
        assert_eq!(control.hits(), 2);
    }
}

live_test! {
    async fn e_n6_a_forged_address_with_an_allowed_name_is_never_connected(world: World) {
        let (real, forged) = (echo(UPSTREAM, 443), echo(OWN_PUBLIC, 443));
        let (_daemon, sandbox) = world.with(&["ok.example"]).await;
        let sent = hello("ok.example");
        assert_eq!(send(&sandbox, OWN_PUBLIC, 443, &sent).await, sent);
        assert_eq!((real.hits(), forged.hits()), (1, 0));
    }
}

live_test! {
    async fn e_t5_p_n6_the_requested_host_must_match_the_opened_one(world: World) {
        let (tls, web) = (echo(UPSTREAM, 443), http(UPSTREAM, 80));
        let (mut daemon, sandbox) = world.with(&["ok.example", "www.ok.example"]).await;
        let answer = send(&sandbox, "ok.example", 443, &hello("www.ok.example")).await;
        assert_eq!(answer, [21, 3, 3, 0, 2, 2, 112], "unrecognized_name, though both are allowed");
        let reason = "the connection was opened to `ok.example`, but requests `www.ok.example`";
        assert_eq!(daemon.denial("ok.example").await, reason);
        let answer = text(&send(&sandbox, "ok.example", 80, &get("www.ok.example")).await);
        assert!(answer.starts_with("HTTP/1.1 421 Misdirected Request"), "{answer}");
        for host in ["ok.example@evil.example", "ok.example:81", "ok.example\0.evil.example", "", "a b"] {
            let answer = text(&send(&sandbox, "ok.example", 80, &get(host)).await);
            assert!(answer.starts_with("HTTP/1.1 400"), "{host}: {answer}");
        }
        // A hello whose name contains a NUL, made from a valid one of the same length.
        let mut evil = hello("ok.example");
        let at = evil.windows(10).position(|bytes| bytes == b"ok.example").unwrap();
        evil[at + 2] = 0;
        assert!(is_alert(&send(&sandbox, "ok.example", 443, &evil).await));
        assert_eq!((tls.hits(), web.hits()), (0, 0));
        // Controls.
        let sent = hello("ok.example");
        assert_eq!(send(&sandbox, "ok.example", 443, &sent).await, sent);
        assert!(text(&send(&sandbox, "ok.example", 80, &get("ok.example")).await).contains("200 OK"));
    }
}

live_test! {
    async fn e_t3_a_later_request_for_another_host_is_refused_after_the_first_was_answered(world: World) {
        let web = http(UPSTREAM, 80);
        let (_daemon, sandbox) = world.with(&["ok.example", "www.ok.example"]).await;
        let two = [get("ok.example"), get("www.ok.example")].concat();
        let answer = text(&send(&sandbox, "ok.example", 80, &two).await);
        assert_eq!(answer.matches("200 OK").count(), 1, "{answer}");
        assert!(answer.contains("HTTP/1.1 421 Misdirected Request"), "{answer}");
        assert_eq!(web.hits(), 1);
        let smuggled = [
            b"POST / HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
            get("www.ok.example"),
        ];
        let answer = text(&send(&sandbox, "ok.example", 80, &smuggled.concat()).await);
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert_eq!(web.hits(), 1, "E-T6: no connection was made");
    }
}

live_test! {
    async fn e_t7_tunnels_and_cleartext_http2_are_refused(world: World) {
        let web = http(UPSTREAM, 80);
        let (_daemon, sandbox) = world.with(&["ok.example"]).await;
        for (request, status) in [
            ("CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example:443\r\n\r\n", 403),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 501),
            ("GET / HTTP/1.1\r\nHost: ok.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", 501),
        ] {
            let answer = text(&send(&sandbox, "ok.example", 80, request.as_bytes()).await);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        }
        assert_eq!(web.hits(), 0);
        assert!(text(&send(&sandbox, "ok.example", 80, &get("ok.example")).await).contains("200 OK"));
    }
}

live_test! {
    async fn the_mode_none_refuses_all_connections(world: World) {
        let upstream = echo(UPSTREAM, 443);
        let (daemon, sandbox) = world.with(&["ok.example"]).await;
        let synthetic = resolve(&sandbox, "ok.example").await.to_string();
        let sent = hello("ok.example");
        assert_eq!(send(&sandbox, &synthetic, 443, &sent).await, sent);
        daemon.supervisor.set_policy(&sandbox.id, &policy_of(NetworkMode::None, &["ok.example"])).await.unwrap();
        for host in [synthetic.as_str(), UPSTREAM] {
            let answer = send(&sandbox, host, 443, &sent).await;
            assert!(answer.is_empty() || is_alert(&answer), "{host}");
        }
        assert_eq!(crate::clients::ask(&sandbox, "ok.example", 1).await.unwrap().code, 3);
        assert_eq!(upstream.hits(), 1);
    }
}

live_test! {
    async fn an_unassigned_synthetic_address_is_refused(world: World) {
        let (mut daemon, sandbox) = world.with(&["ok.example"]).await;
        let stream = connect(&sandbox, "198.19.7.7", 5432).await.unwrap();
        assert_eq!(exchange(stream, b"raw").await, b"");
        let reason = "198.19.7.7 is not assigned to a name in this sandbox; resolve the name again";
        assert_eq!(daemon.denial("198.19.7.7").await, reason);
    }
}
