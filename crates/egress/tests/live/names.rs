//! The resolver, used over its listeners.

use std::io::{Read, Write};

use burrow_egress::Egress;
use burrow_network::GATEWAY_V4;

use crate::clients::{A, AAAA, TXT, ask, parse_answer, question, text};
use crate::live_test;
use crate::world::{PATIENCE, eventually};

live_test! {
    async fn e_n5_only_allowed_names_are_answered_and_refusals_have_a_reason(world: World) {
        let (mut daemon, sandbox) = world.with(&["ok.example"]).await;
        let good = ask(&sandbox, "ok.example", A).await.unwrap();
        assert_eq!(good.code, 0);
        assert!(good.address.unwrap().to_string().starts_with("198.1"), "a synthetic address: {good:?}");
        assert_eq!(ask(&sandbox, "ok.example", A).await.unwrap().address, good.address);
        let other = ask(&sandbox, "ok.example", TXT).await.unwrap();
        assert_eq!((other.code, other.address), (0, None));
        let long = format!("{}.evil.example", vec!["x".repeat(60); 3].join("."));
        for (name, kind) in [("evil.example", A), ("evil.example", AAAA), ("evil.example", TXT), (&long, 10)] {
            let refused = ask(&sandbox, name, kind).await.unwrap();
            assert_eq!((refused.code, refused.address), (3, None), "{name}");
            assert!(text(&refused.bytes).contains(&format!("no rule allows `{name}`")), "{refused:?}");
        }
        assert_eq!(daemon.denial("evil.example").await, "no rule allows `evil.example`");
        let counters = daemon.supervisor.counters(&sandbox.id).await.unwrap();
        assert_eq!((counters.questions, counters.questions_denied), (7, 4));
    }
}

live_test! {
    async fn questions_over_tcp_are_answered_and_invalid_ones_end_the_connection(world: World) {
        let (_daemon, sandbox) = world.with(&["ok.example"]).await;
        let answers = sandbox.inside(|| {
            let mut stream = std::net::TcpStream::connect((GATEWAY_V4, 53)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut answers = Vec::new();
            for kind in [A, AAAA] {
                let question = question("ok.example", kind);
                let mut framed = u16::try_from(question.len()).unwrap().to_be_bytes().to_vec();
                framed.extend(&question);
                stream.write_all(&framed).unwrap();
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut answer = vec![0; u16::from_be_bytes(length).into()];
                stream.read_exact(&mut answer).unwrap();
                answers.push(parse_answer(&question, answer));
            }
            stream.write_all(&[0xff, 0xff]).unwrap();
            let rest = stream.read(&mut [0; 16]);
            (answers, matches!(rest, Ok(0) | Err(_)))
        }).await;
        assert!(answers.1, "the connection is closed, without waiting for a question of 64 KiB");
        assert!(answers.0.iter().all(|answer| answer.code == 0 && answer.address.is_some()), "{answers:?}");
    }
}

live_test! {
    async fn e_n10_a_flood_of_questions_is_limited_and_does_not_affect_another_sandbox(world: World) {
        let mut world = world;
        world.limits.dns_per_second = 10;
        let (mut daemon, noisy) = world.with(&["ok.example"]).await;
        let quiet = world.sandbox().await;
        daemon.supervisor.attach(&quiet.id, &crate::world::policy(&["ok.example"])).await.unwrap();
        noisy.inside(|| {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            for number in 0..2_000 {
                let _ = socket.send_to(&question(&format!("n{number}.evil.example"), A), (GATEWAY_V4, 53));
            }
        }).await;
        assert_eq!(ask(&quiet, "ok.example", A).await.unwrap().code, 0);
        let entry = daemon.entry(|entry| entry.host == "(too many questions)").await;
        assert_eq!(entry.sandbox, noisy.id);
        eventually("the flood is over", async || ask(&noisy, "ok.example", A).await.is_some()).await;
    }
}
