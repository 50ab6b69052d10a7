//! Requests of a sandbox that carry a secret which it must not see. The tests are named after threats.

use burrow_audit::{Action, Outcome};
use burrow_egress::Egress;
use burrow_model::network::{Approve, HeaderTransform, TransformHeader};
use burrow_model::{SecretBytes, Slot};
use bytes::Bytes;
use http::Version;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::certificates::{Validity, authority};
use crate::clients::{get, send, text};
use crate::encrypted::{connect_http, host, nothing, piece, pieces, raw, tls};
use crate::live_test;
use crate::secrets::{PLACEHOLDER, ROTATED, SECRET, Setup, bearer, budget, grant};
use crate::world::{eventually, policy};

/// Asserts that a text contains no form of the secret.
#[track_caller]
fn assert_clean(seen: &str) {
    let bytes = SECRET.as_bytes();
    let core = SECRET.trim_start_matches("sk-");
    for form in [
        core.to_owned(),
        data_encoding::BASE64.encode(bytes)[..20].to_owned(),
        data_encoding::BASE64.encode(&[b"x", bytes].concat())[4..20].to_owned(),
        data_encoding::HEXLOWER.encode(bytes),
        "live%2F0123%2Bsecret".to_owned(),
    ] {
        assert!(!seen.contains(&form), "{form} is in {seen}");
    }
}

live_test! {
    async fn e_s1_e_s2_e_s5_a_secret_is_inserted_and_never_returned(world: World) {
        let (setup, upstream) = Setup::usual(world).await;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut program = setup.connect_http(version).await;
            for path in ["/v1/echo", "/v1/forms", "/v1/pieces", "/v1/moved"] {
                let own = [("authorization", "Bearer mine"), ("x-api-key", "mine"), ("cookie", "mine")];
                let answer = program.post(path, &own, "hello").await;
                assert!(answer.status == 200 || answer.status == 302, "{answer:?}");
                assert!(answer.all().contains("***"), "{path}: {}", answer.all());
                assert_clean(&answer.all());
                // Control: the host received the secret.
                let seen = upstream.seen().pop().unwrap();
                assert!(seen.contains(&format!("authorization: Bearer {SECRET}")), "{seen}");
                assert!(!seen.contains("mine") && seen.contains("accept-encoding: identity"), "{seen}");
            }
        }
        let injected = setup.event(Action::EgressInject, |_| true).await;
        assert_eq!(injected.secret.unwrap().as_str(), "key");
        assert_eq!(injected.path.unwrap().as_str(), "/v1/echo");
        setup.event(Action::EgressScrub, |_| true).await;
        let done = setup.event(Action::EgressAllow, |event| event.outcome == Outcome::Done).await;
        assert!(done.bytes_out.unwrap() > 0 && done.status == Some(200) && done.duration_ms.is_some());
        setup.assert_nothing_leaked();
    }
}

live_test! {
    async fn configured_headers_are_set_if_another_rule_allows_the_host(world: World) {
        let (mut setup, upstream) = Setup::usual(world).await;
        let header = |name: &str, value: &str| TransformHeader {
            name: name.parse().unwrap(),
            value: SecretBytes::new(value.into()),
        };
        setup.directives.rules.clear();
        setup.directives.grants.clear();
        setup.directives.transforms = vec![HeaderTransform {
            host: "ok.example".parse().unwrap(),
            headers: vec![header("Authorization", "Bearer set"), header("X-Team", "blue")],
        }];
        let put = async |rules: &[&str]| {
            let policy = policy(rules).with_directives(setup.directives.clone());
            setup.daemon.supervisor.set_policy(&setup.sandbox.id, &policy).await.unwrap();
        };
        // The same if a rule allows any bytes.
        for rules in [["ok.example"], ["tcp://ok.example:443"]] {
            put(&rules).await;
            for version in [Version::HTTP_11, Version::HTTP_2] {
                let mut program = setup.connect_http(version).await;
                let answer = program.post("/any/echo", &[("authorization", "mine"), ("x-team", "red")], "hello").await;
                assert_eq!(answer.status, 200, "{answer:?}");
                let seen = upstream.seen().pop().unwrap();
                assert!(seen.contains("authorization: Bearer set") && seen.contains("x-team: blue"), "{seen}");
                assert!(!seen.contains("mine") && !seen.contains("red"), "{seen}");
                assert!(answer.body.contains("Bearer set"), "it is not a secret of the vault: {}", answer.body);
            }
        }
        let before = upstream.seen().len();
        put(&["other.example"]).await;
        let resolved = crate::clients::ask(&setup.sandbox, "ok.example", crate::clients::A).await.unwrap();
        assert_eq!(resolved.address, None, "headers allow nothing");
        assert_eq!(upstream.seen().len(), before);
    }
}

live_test! {
    async fn e_s3_an_encoded_response_is_refused(world: World) {
        let (setup, _upstream) = Setup::usual(world).await;
        let mut program = setup.connect_http(Version::HTTP_11).await;
        assert_eq!(program.post("/v1/gzip", &[("accept-encoding", "gzip")], "").await.status, 502);
        // Control: the same host with an encoding that was not requested.
        assert_eq!(program.post("/v1/echo", &[("accept-encoding", "gzip")], "").await.status, 200);
    }
}

live_test! {
    async fn e_s21_a_stored_secret_is_removed_from_responses_to_requests_without_it(world: World) {
        let (setup, upstream) = Setup::usual(world).await;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut program = setup.connect_http(version).await;
            assert_eq!(program.post("/v1/echo", &[], "").await.status, 200, "the host has stored the secret");
            for path in ["echo", "forms", "pieces", "moved", "grpc"] {
                if path == "grpc" && version != Version::HTTP_2 {
                    continue;
                }
                let path = format!("/free/stored/{path}");
                let asked = [("accept-encoding", "gzip"), ("range", "bytes=0-3")];
                let answer = program.post(&path, &asked, "hello").await;
                assert!(answer.all().contains("***"), "{path}: {}", answer.all());
                assert_clean(&answer.all());
                let seen = upstream.seen().pop().unwrap();
                assert!(!seen.contains(SECRET), "the request carried it: {seen}");
                assert!(seen.contains("accept-encoding: identity") && !seen.contains("range"), "{seen}");
            }
            assert_eq!(program.post("/free/stored/gzip", &[], "").await.status, 502);
        }
        let alarm = setup.event(Action::EgressAlarm, |_| true).await;
        assert_eq!(alarm.secret.unwrap().as_str(), "key");
        assert_eq!(alarm.path.unwrap().as_str(), "/free/stored/echo");
        let count = setup.events().iter().filter(|event| event.action == Action::EgressAlarm).count();
        assert!(count <= 10, "at most one alarm for each answer: {count}");
        setup.assert_nothing_leaked();
    }
}

live_test! {
    async fn e_t1_e_t3_e_t7_e_s9_e_s15_every_request_is_checked_separately(world: World) {
        let (mut setup, upstream) = Setup::usual(world).await;
        let mut program = setup.connect_http(Version::HTTP_11).await;
        assert_eq!(program.post("/v1/echo", &[], "").await.status, 200, "the control");
        assert_eq!(program.post("/v1/echo", &[("host", "other.example")], "").await.status, 421);
        assert_eq!(program.post("/v1/../admin", &[], "").await.status, 403);
        assert_eq!(program.post("/v1/%2e%2e/admin", &[], "").await.status, 403);
        assert_eq!(program.post("/v1/..%2fadmin", &[], "").await.status, 400);
        let refused = program.post("/admin", &[], "").await;
        assert_eq!(refused.status, 403);
        assert!(refused.body.contains("no rule allows POST /admin of `ok.example`"), "{}", refused.body);
        let normal = program.post("//v1/./%65cho", &[("x-http-method-override", "DELETE")], "").await;
        assert_eq!(normal.status, 200);
        assert!(normal.body.contains(" /v1/echo ") || normal.body.contains("ok.example/v1/echo "), "{}", normal.body);
        assert!(!normal.body.contains("DELETE"), "{}", normal.body);
        assert_eq!(upstream.seen().len(), 2);
        // The owner's limits, which no rule extends.
        setup.set(|directives| directives.rules[0].scope.paths.clear()).await;
        let mut program = setup.connect_http(Version::HTTP_2).await;
        assert_eq!(program.post("/v1/echo", &[], "").await.status, 200);
        let refused = program.post("/v2/echo", &[], "").await;
        assert!(refused.status == 403 && refused.body.contains("the owner of the secret `key`"), "{refused:?}");
        assert_eq!(program.post("/v1/echo", &[("host", "other.example")], "").await.status, 421);
        assert_eq!(upstream.seen().len(), 3);
        setup.event(Action::EgressDeny, |event| event.status == Some(421)).await;
        let reason = setup.daemon.denial("ok.example").await;
        assert!(reason.contains("another host"), "{reason}");
    }
}

live_test! {
    async fn e_t6_ambiguous_requests_are_refused_inside_tls_too(world: World) {
        let (setup, upstream) = Setup::usual(world).await;
        for sent in [
            "POST /v1/echo HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /v1/echo HTTP/1.1\nHost: ok.example\n\n",
            "GET /v1/echo HTTP/1.1\r\nHost: ok.example\r\nHost: evil.example\r\n\r\n",
        ] {
            let seen = raw(&setup.sandbox, &setup.lineage, sent.as_bytes()).await;
            assert!(seen.starts_with("HTTP/1.1 400"), "{sent:?}: {seen}");
        }
        assert_eq!(upstream.seen().len(), 0);
        let control = "POST /v1/echo HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
        assert!(raw(&setup.sandbox, &setup.lineage, control.as_bytes()).await.starts_with("HTTP/1.1 200"));
    }
}

live_test! {
    async fn e_t9_another_lineage_is_not_trusted_and_without_an_authority_nothing_is_decrypted(world: World) {
        let (mut setup, upstream) = Setup::usual(world).await;
        assert!(tls(&setup.sandbox, "ok.example", &authority("another"), "h2").await.is_err());
        assert!(tls(&setup.sandbox, "ok.example", &setup.internet, "h2").await.is_err(), "the host's own certificate is not presented");
        setup.set(|directives| directives.authority = None).await;
        assert!(tls(&setup.sandbox, "ok.example", &setup.lineage, "h2").await.is_err());
        assert!(setup.daemon.denial("ok.example").await.contains("no certificate authority"));
        // A rule only about names: not intercepted, so the client sees the host's own certificate.
        setup.set(|directives| {
            directives.rules.truncate(1);
            directives.rules[0].mode = burrow_model::network::RuleMode::Sni;
        }).await;
        assert!(tls(&setup.sandbox, "ok.example", &setup.internet, "h2").await.is_ok());
        assert_eq!(upstream.seen().len(), 0);
    }
}

live_test! {
    async fn e_t10_a_host_without_a_valid_certificate_gets_no_secret(world: World) {
        let setup = Setup::new(world, bearer(), SECRET).await;
        let identities = [
            authority("stranger").host("ok.example", Validity::Long),
            setup.internet.host("ok.example", Validity::Over),
            setup.internet.host("other.example", Validity::Long),
        ];
        let mut program = setup.connect_http(Version::HTTP_11).await;
        for identity in identities {
            let port = 443;
            let impostor = host(&identity, port, &["http/1.1"], None).await;
            let answer = program.post("/v1/echo", &[], "").await;
            assert_eq!(answer.status, 502, "{answer:?}");
            assert!(answer.body.contains("certificate was not accepted"), "{}", answer.body);
            assert_eq!(impostor.seen().len(), 0);
            impostor.close().await;
        }
        let upstream = setup.host(&["http/1.1"]).await;
        assert_eq!(program.post("/v1/echo", &[], "").await.status, 200, "the control");
        assert_eq!(upstream.seen().len(), 1);
    }
}

live_test! {
    async fn e_t11_no_secret_is_sent_in_plaintext(world: World) {
        let (mut setup, _upstream) = Setup::usual(world).await;
        let web = crate::upstreams::http(crate::world::UPSTREAM, 80);
        assert!(text(&send(&setup.sandbox, "ok.example", 80, &get("ok.example")).await).contains("403"));
        assert!(!text(&send(&setup.sandbox, "ok.example", 443, &get("ok.example")).await).contains("200 OK"));
        assert_eq!(web.hits(), 0);
        // Control: another rule allows plaintext, into which nothing is inserted.
        setup.directives.generation += 1;
        let both = policy(&["http://ok.example"]).with_directives(setup.directives.clone());
        setup.daemon.supervisor.set_policy(&setup.sandbox.id, &both).await.unwrap();
        let answer = text(&send(&setup.sandbox, "ok.example", 80, &get("ok.example")).await);
        assert!(answer.contains("200 OK") && !answer.contains(SECRET), "{answer}");
    }
}

live_test! {
    async fn e_s6_a_placeholder_is_replaced_in_its_position_and_raises_an_alarm_elsewhere(world: World) {
        let (setup, upstream) = Setup::usual(world).await;
        let mut program = setup.connect_http(Version::HTTP_2).await;
        let slot = format!("Bearer {PLACEHOLDER}");
        let answer = program.post("/v1/echo", &[("authorization", &slot)], "").await;
        assert_eq!(answer.status, 200, "the control: {answer:?}");
        assert!(upstream.seen().pop().unwrap().contains(SECRET));
        let count = upstream.seen().len();
        let upper = PLACEHOLDER.to_uppercase();
        let basic = format!("Basic {}", data_encoding::BASE64.encode(format!("me:{PLACEHOLDER}").as_bytes()));
        for (path, headers, body) in [
            (format!("/v1/{PLACEHOLDER}"), vec![], ""),
            (format!("/v1/echo?key={PLACEHOLDER}"), vec![], ""),
            ("/v1/echo".to_owned(), vec![("x-other", PLACEHOLDER)], ""),
            ("/v1/echo".to_owned(), vec![("x-other", &*upper)], ""),
            ("/v1/echo".to_owned(), vec![("x-other", &*basic)], ""),
            ("/free/echo".to_owned(), vec![("x-other", &*slot)], ""),
        ] {
            let answer = program.post(&path, &headers, body).await;
            assert_eq!(answer.status, 403, "{path} {headers:?}: {answer:?}");
            assert!(!answer.body.contains(PLACEHOLDER));
        }
        assert_eq!(upstream.seen().len(), count);
        let body = format!("{{\"key\": \"{PLACEHOLDER}\"}}");
        let answer = program.post("/v1/echo", &[], &body).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        let answer = program.post("/admin", &[("authorization", &slot)], "").await;
        assert_eq!(answer.status, 403);
        setup.event(Action::EgressAlarm, |event| event.path.as_ref().is_some_and(|path| path.as_str() == "/admin")).await;
        let alarm = setup.event(Action::EgressAlarm, |event| event.reason.as_ref().is_some_and(|reason| reason.as_str().contains("body"))).await;
        assert_eq!(alarm.outcome, Outcome::Denied);
        setup.assert_nothing_leaked();
    }
}

live_test! {
    async fn e_s10_rotation_and_revocation_reach_open_connections(world: World) {
        let (mut setup, upstream) = Setup::usual(world).await;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut program = setup.connect_http(version).await;
            let request = program.request("GET", "/v1/events", &[]).body(nothing()).unwrap();
            let response = program.start(request).await.unwrap();
            let mut events = response.into_body();
            assert_eq!(piece(&mut events).await.unwrap(), Bytes::from_static(b"data: one\n\n"));
            let value = if version == Version::HTTP_2 { SECRET } else { ROTATED };
            setup.set(|directives| {
                directives.grants[0].version += 1;
                directives.grants[0].value = SecretBytes::new(value.into());
            }).await;
            assert!(piece(&mut events).await.is_none(), "the stream was reset");
            let mut program = setup.connect_http(version).await;
            assert_eq!(program.post("/v1/echo", &[], "").await.status, 200);
            assert!(upstream.seen().pop().unwrap().contains(value));
        }
        let mut program = setup.connect_http(Version::HTTP_11).await;
        // A change that does not concern the host does not affect its connections.
        setup.set(|directives| directives.rules.push(crate::secrets::rule(
            burrow_model::network::RequestScope::of("other.example".parse().unwrap()), None,
        ))).await;
        assert_eq!(program.post("/v1/echo", &[], "").await.status, 200);
        setup.set(|directives| directives.rules.clear()).await;
        let request = program.request("GET", "/v1/echo", &[]).body(nothing()).unwrap();
        assert!(program.start(request).await.is_err(), "it was reset");
        let resolved = crate::clients::ask(&setup.sandbox, "ok.example", crate::clients::A).await.unwrap();
        assert_eq!(resolved.address, None, "and is not resolved any more");
    }
}

live_test! {
    async fn e_s22_a_former_value_is_removed_from_responses_and_never_inserted(world: World) {
        let (mut setup, upstream) = Setup::usual(world).await;
        setup.set(|directives| {
            let grant = &mut directives.grants[0];
            grant.version += 1;
            grant.former = vec![std::mem::replace(&mut grant.value, SecretBytes::new(ROTATED.into()))];
        }).await;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut program = setup.connect_http(version).await;
            for path in ["/v1/echo", "/free/echo"] {
                let answer = program.post(path, &[("x-stored", SECRET)], "").await;
                assert_eq!(answer.status, 200);
                assert!(answer.all().contains("***"), "{path}: {}", answer.all());
                assert_clean(&answer.all());
                let seen = upstream.seen().pop().unwrap();
                assert_eq!(seen.contains(&format!("authorization: Bearer {ROTATED}")), path == "/v1/echo", "{seen}");
                assert!(!seen.contains(&format!("Bearer {SECRET}")), "{seen}");
            }
        }
        // Also where the present value was sent: this one was not.
        let alarm = setup.event(Action::EgressAlarm, |event| {
            event.path.as_ref().is_some_and(|path| path.as_str() == "/v1/echo")
        }).await;
        assert_eq!(alarm.secret.unwrap().as_str(), "key");
        assert!(alarm.reason.unwrap().as_str().contains("former value"));
        setup.assert_nothing_leaked();
    }
}

live_test! {
    async fn e_s11_no_connection_is_shared_between_sandboxes(world: World) {
        let setup = Setup::new(world, bearer(), SECRET).await;
        let upstream = setup.host(&["http/1.1"]).await;
        let mut program = setup.connect_http(Version::HTTP_11).await;
        for _ in 0..3 {
            assert_eq!(program.post("/v1/echo", &[], "").await.status, 200);
        }
        assert_eq!(upstream.connections(), 1, "consecutive programs use the same connection");
        let other = setup.world.sandbox().await;
        let policy = policy(&[]).with_directives(setup.directives.clone());
        setup.daemon.supervisor.attach(&other.id, &policy).await.unwrap();
        let mut stranger = connect_http(&other, &setup.lineage, Version::HTTP_11).await;
        assert_eq!(stranger.post("/v1/echo", &[], "").await.status, 200);
        assert_eq!(upstream.connections(), 2);
        assert_eq!(program.post("/free/echo", &[], "").await.status, 200);
        assert_eq!(upstream.connections(), 3, "nor between requests with and without the secret");
    }
}

live_test! {
    async fn e_s16_grpc_streams_both_ways_with_trailers(world: World) {
        let slot = Slot::GrpcMetadata { name: "x-token".parse().unwrap(), format: "{}".parse().unwrap() };
        let setup = Setup::new(world, slot, SECRET).await;
        let upstream = setup.host(&["h2"]).await;
        let mut program = setup.connect_http(Version::HTTP_2).await;
        let kind = [("content-type", "application/grpc"), ("te", "trailers"), ("x-token", "mine")];
        let (sender, body) = pieces();
        let request = program.request("POST", "/v1/grpc", &kind).body(body).unwrap();
        let response = program.start(request).await.unwrap();
        let mut answers = response.into_body();
        // The second message ends like the start of the secret, and is not delayed.
        for message in ["one", "two s", "three sk-"] {
            let mut bytes = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
            bytes.extend(message.as_bytes());
            sender.send(Bytes::from(bytes.clone())).await.unwrap();
            let mut seen = Vec::new();
            while seen.len() < bytes.len() {
                seen.extend(piece(&mut answers).await.unwrap());
            }
            assert_eq!(seen, bytes);
        }
        drop(sender);
        let frame = answers.frame().await.unwrap().unwrap();
        let trailers = frame.into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert_clean(&format!("{trailers:?}"));
        assert!(trailers["x-echo"].to_str().unwrap().contains("***"));
        let seen = upstream.seen().pop().unwrap();
        assert!(seen.contains(&format!("x-token: {SECRET}")) && seen.contains("te: trailers"), "{seen}");
        assert_eq!(program.post("/v1/echo", &[], "").await.status, 403, "not gRPC");
    }
}

live_test! {
    async fn e_s17_a_client_certificate_is_presented_only_by_the_proxy(world: World) {
        let clients = authority("clients");
        let pem = clients.host("client.example", Validity::Long).pem();
        let mut setup = Setup::new(world, Slot::ClientCert, &pem).await;
        let identity = setup.internet.host("ok.example", Validity::Long);
        let upstream = host(&identity, 443, &["h2", "http/1.1"], Some(&clients)).await;
        let mut program = setup.connect_http(Version::HTTP_2).await;
        let answer = program.post("/v1/echo", &[], "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        // Control: without the certificate the host does not answer.
        assert_eq!(program.post("/free/echo", &[], "").await.status, 502);
        assert_eq!(upstream.seen().len(), 1);
        let stranger = authority("others").host("client.example", Validity::Long).pem();
        setup.set(|directives| directives.grants[0] = grant(Slot::ClientCert, &stranger)).await;
        let mut program = setup.connect_http(Version::HTTP_2).await;
        assert_eq!(program.post("/v1/echo", &[], "").await.status, 502);
    }
}

live_test! {
    async fn e_t8_a_websocket_is_scrubbed_and_scanned(world: World) {
        let (setup, upstream) = Setup::usual(world).await;
        let mut stream = tls(&setup.sandbox, "ok.example", &setup.lineage, "http/1.1").await.unwrap();
        let head = "GET /v1/socket HTTP/1.1\r\nHost: ok.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
        let frame = |content: &str| {
            let mut frame = vec![0x81, 0x80 | u8::try_from(content.len()).unwrap(), 1, 2, 3, 4];
            frame.extend(content.bytes().enumerate().map(|(at, b)| b ^ [1, 2, 3, 4][at % 4]));
            frame
        };
        // The first frame follows the head directly, before the host has agreed.
        stream.write_all(&[head.as_bytes(), &frame("hello ")].concat()).await.unwrap();
        stream.flush().await.unwrap();
        let mut seen = Vec::new();
        let expected = 2 + "hello ".len() + "Bearer ".len() + SECRET.len();
        while !seen.windows(4).any(|w| w == b"\r\n\r\n")
            || seen.len() < seen.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4 + expected
        {
            let mut piece = [0; 1024];
            let count = tokio::time::timeout(crate::world::PATIENCE, stream.read(&mut piece)).await.unwrap().unwrap();
            assert!(count > 0, "{}", text(&seen));
            seen.extend_from_slice(&piece[..count]);
        }
        let answer = text(&seen);
        assert!(answer.starts_with("HTTP/1.1 101") && answer.contains("hello Bearer ***"), "{answer}");
        assert_clean(&answer);
        let asked = upstream.seen().pop().unwrap();
        assert!(asked.contains(SECRET) && !asked.contains("permessage"), "{asked}");
        stream.write_all(&frame(PLACEHOLDER)).await.unwrap();
        stream.flush().await.unwrap();
        let mut rest = Vec::new();
        let end = tokio::time::timeout(crate::world::PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(end.is_ok(), "it was ended");
        setup.event(Action::EgressAlarm, |_| true).await;
        setup.assert_nothing_leaked();
    }
}

live_test! {
    async fn e_s20_a_budget_is_enforced_and_reported(world: World) {
        let (mut setup, upstream) = Setup::usual(world).await;
        setup.set(|directives| directives.rules[0].budget = Some(budget(2))).await;
        let mut program = setup.connect_http(Version::HTTP_11).await;
        assert_eq!(program.post("/v1/echo", &[], "").await.status, 200);
        // Another change that does not affect the rule does not affect its count either.
        setup.set(|directives| directives.rules.truncate(1)).await;
        let mut program = setup.connect_http(Version::HTTP_11).await;
        assert_eq!(program.post("/v1/echo", &[], "").await.status, 200);
        let refused = program.post("/v1/echo", &[], "").await;
        assert_eq!(refused.status, 429);
        assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() <= 60);
        assert!(refused.body.contains("used up its requests per minute"), "{}", refused.body);
        let left = setup.daemon.supervisor.budgets(&setup.sandbox.id).await.unwrap();
        assert_eq!((left.len(), left[0].requests_this_minute), (1, 2));
        setup.set(|directives| {
            directives.rules[0].budget = Some(burrow_model::network::Budget {
                bytes_out_per_day: Some(2_000), ..Default::default()
            });
        }).await;
        let mut program = setup.connect_http(Version::HTTP_2).await;
        assert_eq!(program.post("/v1/echo", &[], "small").await.status, 200);
        let refused = program.post("/v1/echo", &[], &"x".repeat(4_000)).await;
        assert_eq!(refused.status, 429, "{refused:?}");
        assert!(upstream.seen().len() >= 3);
        setup.event(Action::EgressBudget, |event| event.status == Some(429)).await;
    }
}

live_test! {
    async fn a_request_waits_for_approval_for_a_limited_time(world: World) {
        let mut world = world;
        world.limits.approval_seconds = 600;
        let (mut setup, upstream) = Setup::usual(world).await;
        setup.set(|directives| directives.rules[0].approve = Some(Approve::Once)).await;
        for yes in [true, false] {
            let mut program = setup.connect_http(Version::HTTP_11).await;
            let asking = tokio::spawn(async move { program.post("/v1/echo", &[], "").await.status });
            let (supervisor, id) = (&setup.daemon.supervisor, &setup.sandbox.id);
            eventually("it waits", async || supervisor.approvals(id).await.unwrap().len() == 1).await;
            let waiting = supervisor.approvals(id).await.unwrap().remove(0);
            assert_eq!((waiting.method.as_str(), waiting.path.as_str()), ("POST", "/v1/echo"));
            assert_eq!(waiting.secret.as_deref(), Some("key"));
            supervisor.decide(id, waiting.number, yes).await.unwrap();
            assert!(supervisor.decide(id, waiting.number, yes).await.is_err());
            assert_eq!(asking.await.unwrap(), if yes { 200 } else { 403 });
        }
        assert_eq!(upstream.seen().len(), 1);
        setup.event(Action::EgressApproval, |event| event.outcome == Outcome::Denied).await;
        // Waiting requests are dropped when the policy is removed.
        let mut program = setup.connect_http(Version::HTTP_11).await;
        let asking = tokio::spawn(async move {
            let request = program.request("GET", "/v1/echo", &[]);
            program.start(request.body(nothing()).unwrap()).await.is_err()
        });
        let (supervisor, id) = (std::sync::Arc::clone(&setup.daemon.supervisor), setup.sandbox.id.clone());
        eventually("it waits", async || supervisor.approvals(&id).await.unwrap().len() == 1).await;
        setup.set(|directives| directives.rules.clear()).await;
        assert!(asking.await.unwrap());
        eventually("it is gone", async || supervisor.approvals(&id).await.unwrap().is_empty()).await;
    }
}

live_test! {
    async fn e_a1_without_a_record_nothing_is_injected(world: World) {
        let (mut setup, upstream) = Setup::usual(world).await;
        let mut program = setup.connect_http(Version::HTTP_11).await;
        assert_eq!(program.post("/v1/echo", &[], "").await.status, 200, "the control");
        // A process that has just been started and has no segment yet.
        let other = setup.world.again();
        setup.daemon.supervisor.shutdown().await;
        burrow_egress::Supervisor::remove_all(&other.egress_dir()).await.unwrap();
        setup.daemon = other.daemon().await;
        let policy = policy(&[]).with_directives(setup.directives.clone());
        setup.daemon.supervisor.attach(&setup.sandbox.id, &policy).await.unwrap();
        let mut program = setup.connect_http(Version::HTTP_11).await;
        let refused = program.post("/v1/echo", &[], "").await;
        assert_eq!(refused.status, 503);
        assert!(refused.body.contains("could not be recorded"), "{}", refused.body);
        assert_eq!(upstream.seen().len(), 1);
        assert_eq!(program.post("/free/echo", &[], "").await.status, 200, "requests without a secret still work");
        assert!(!upstream.seen()[1].contains(SECRET));
    }
}

live_test! {
    async fn every_slot_reaches_its_host(world: World) {
        let slot = Slot::Query { name: "key".parse().unwrap() };
        let mut setup = Setup::new(world, slot, SECRET).await;
        let upstream = setup.host(&["http/1.1"]).await;
        let mut program = setup.connect_http(Version::HTTP_11).await;
        let answer = program.post("/v1/echo?a=1&key=mine", &[], "").await;
        assert_eq!(answer.status, 200);
        assert_clean(&answer.all());
        let seen = upstream.seen().pop().unwrap();
        assert!(seen.contains("/v1/echo?a=1&key=sk-live%2F0123%2Bsecret "), "{seen}");
        let slot = Slot::Basic { user: "bob".parse().unwrap() };
        setup.set(|directives| directives.grants[0] = grant(slot, SECRET)).await;
        let mut program = setup.connect_http(Version::HTTP_11).await;
        let answer = program.post("/v1/echo", &[], "").await;
        assert_clean(&answer.all());
        let expected = data_encoding::BASE64.encode(format!("bob:{SECRET}").as_bytes());
        assert!(!answer.all().contains(&expected) && answer.status == 200, "{answer:?}");
        assert!(upstream.seen().pop().unwrap().contains(&format!("Basic {expected}")));
    }
}
