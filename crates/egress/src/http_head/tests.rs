//! Tests with valid and hostile requests.

use proptest::prelude::*;

use super::*;

/// Follows the bytes of a connection: the hosts that were found, and how it ended.
fn follow(bytes: &[u8]) -> (Vec<String>, Result<bool, HeadError>) {
    let (mut framer, mut rest, mut hosts) = (Framer::new(), bytes, Vec::new());
    loop {
        match framer.next(rest) {
            Ok(FramerStep::Head(head, length)) => {
                hosts.push(format!("{} {}", head.method, head.host));
                rest = &rest[length..];
            }
            Ok(FramerStep::Pass(count)) => rest = &rest[count..],
            Ok(FramerStep::NeedMore) => return (hosts, Ok(rest.is_empty() && framer.is_between_requests())),
            Err(error) => return (hosts, Err(error)),
        }
    }
}

#[track_caller]
fn refused(request: &str, error: HeadError, status: u16) {
    let (hosts, end) = follow(request.as_bytes());
    assert_eq!((hosts.len(), end), (0, Err(error)), "{request:?}");
    assert_eq!(error.status(), status);
}

#[test]
fn the_host_and_the_end_of_a_request_are_found() {
    let body = "POST /a HTTP/1.1\r\nHost: Example.com:8080\r\nContent-Length: 5\r\n\r\nhello";
    let chunked = "PUT / HTTP/1.1\r\nhost:b.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5;x=\"y\"\r\nhello\r\n0\r\nTrailer: x\r\n\r\n";
    let plain = "GET http://c.example/x HTTP/1.1\r\nHost: c.example\r\n\r\n";
    let old = "GET / HTTP/1.0\r\nHost: [2001:db8::1]\r\n\r\n";
    let all = [body, chunked, plain, old].concat();
    let hosts = ["POST example.com", "PUT b.example", "GET c.example", "GET 2001:db8::1"];
    let (seen, end) = follow(all.as_bytes());
    assert_eq!((seen.as_slice(), end), (hosts.map(str::to_owned).as_slice(), Ok(true)));
}

#[test]
fn e_t3_the_second_request_is_checked_too() {
    let two = "GET / HTTP/1.1\r\nHost: ok.example\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(follow(two.as_bytes()).0, ["GET ok.example", "GET evil.example"]);
}

#[test]
fn e_t2_missing_repeated_and_contradicting_hosts_are_refused() {
    use HeadError::*;
    refused("GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n", HostCount, 400);
    refused("GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n", HostCount, 400);
    refused("GET / HTTP/1.1\r\nAccept: */*\r\n\r\n", HostCount, 400);
    refused("GET http://evil.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n", TargetHost, 421);
    refused("GET http://ok.example:81/ HTTP/1.1\r\nHost: ok.example\r\n\r\n", TargetHost, 421);
    refused("GET http://ok.example@evil.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n", Host, 400);
    refused("GET / HTTP/1.1\r\nHost: ok.example:443@evil.example\r\n\r\n", Host, 400);
    refused("GET / HTTP/1.1\r\nHost: ok.example, evil.example\r\n\r\n", Host, 400);
    refused("GET / HTTP/1.1\r\nHost: ok.example:0\r\n\r\n", Host, 400);
    refused("GET / HTTP/1.1\r\nHost:\r\n\r\n", Host, 400);
    refused("GET https://ok.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n", RequestLine, 400);
    refused("GET ok.example HTTP/1.1\r\nHost: ok.example\r\n\r\n", RequestLine, 400);
}

#[test]
fn e_t6_ambiguous_requests_are_refused() {
    use HeadError::*;
    let with = |headers: &str| format!("POST / HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n\r\n");
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: ",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nUpgrade: websocket",
    ] {
        refused(&with(headers), Length, 400);
    }
    refused("POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n", Length, 400);
    refused(&with("Transfer-Encoding : chunked"), Header, 400);
    refused(&with("X: a\r\n folded"), Header, 400);
    refused(&with("no colon"), Header, 400);
    refused(&with("X: a\0b"), Line, 400);
    refused(&with("X: a\rb"), Line, 400);
    refused("GET / HTTP/1.1\nHost: a.example\n\n", Line, 400);
    refused("GET / HTTP/1.1\r\nHost: a.example\n\r\n", Line, 400);
    refused("GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n", RequestLine, 400);
    refused("GET / HTTP/1.2\r\nHost: a.example\r\n\r\n", RequestLine, 400);
    let chunked = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "5\nhello\r\n",
        "+5\r\n",
        "\r\n",
        "5;a\nb\r\n",
        "5\r\nhelloX\r\n",
        "g\r\n",
        "123456789\r\n",
        "0\r\n x\r\n",
    ] {
        let (hosts, end) = follow(format!("{chunked}{body}").as_bytes());
        assert_eq!((hosts.len(), end), (1, Err(Chunk)), "{body:?}");
    }
}

#[test]
fn e_t7_tunnels_and_cleartext_http2_are_refused() {
    refused("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", HeadError::Connect, 403);
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HeadError::Http2, 501);
    let upgrade = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    refused(upgrade, HeadError::Http2, 501);
    refused(&upgrade.replace("h2c", "websocket, h2c-14"), HeadError::Http2, 501);
    let (mut framer, request) = (Framer::new(), upgrade.replace("h2c", "websocket"));
    let Ok(FramerStep::Head(head, _)) = framer.next(request.as_bytes()) else { panic!("it is a request") };
    assert_eq!(head.upgrade.as_deref(), Some("websocket"));
}

#[test]
fn a_head_has_a_limited_length() {
    let long = format!("GET / HTTP/1.1\r\nHost: a.example\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
    refused(&long, HeadError::TooLong, 431);
    let many = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{}\r\n", "X: y\r\n".repeat(300));
    refused(&many, HeadError::TooManyHeaders, 431);
}

#[test]
fn http_is_detected_by_its_first_line() {
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n"[..], HttpDetection::Http),
        (b"PRI * HTTP/2.0\r\n", HttpDetection::Http),
        (b"GET / HTT", HttpDetection::NeedMore),
        (b"GE", HttpDetection::NeedMore),
        (b"", HttpDetection::NeedMore),
        (b"*1\r\n$4\r\nPING\r\n", HttpDetection::NotHttp),
        (b"PING\r\n", HttpDetection::NotHttp),
        (b"EHLO example.com\r\n", HttpDetection::NotHttp),
        (b"SSH-2.0-OpenSSH_9.2\r\n", HttpDetection::NotHttp),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", HttpDetection::NotHttp),
        (b" GET / HTTP/1.1\r\n", HttpDetection::NotHttp),
    ] {
        assert_eq!(detect(bytes), expected, "{bytes:?}");
    }
}

proptest! {
    /// However the bytes are split, the same heads and the same result are found.
    #[test]
    fn splitting_makes_no_difference(cut in 1usize..40, requests in proptest::collection::vec(0usize..4, 1..5)) {
        let forms = [
            "GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "POST /b HTTP/1.1\r\nHost: b.example\r\nContent-Length: 3\r\n\r\nabc",
            "POST /c HTTP/1.1\r\nHost: c.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "POST /d HTTP/1.1\r\nHost: d.example\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        ];
        let bytes: Vec<u8> = requests.iter().flat_map(|form| forms[*form].bytes()).collect();
        let whole = follow(&bytes);
        let (mut framer, mut buffer, mut hosts, mut end) = (Framer::new(), Vec::new(), Vec::new(), None);
        'all: for piece in bytes.chunks(cut) {
            buffer.extend_from_slice(piece);
            loop {
                let count = match framer.next(&buffer) {
                    Ok(FramerStep::Head(head, length)) => {
                        hosts.push(format!("{} {}", head.method, head.host));
                        length
                    }
                    Ok(FramerStep::Pass(count)) => count,
                    Ok(FramerStep::NeedMore) => break,
                    Err(error) => {
                        end = Some(error);
                        break 'all;
                    }
                };
                buffer.drain(..count);
            }
        }
        let end = end.map_or(Ok(buffer.is_empty() && framer.is_between_requests()), Err);
        prop_assert_eq!((hosts, end), whole);
    }

    #[test]
    fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = follow(&bytes);
        let _ = detect(&bytes);
        let _ = follow(&[b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes[..]].concat());
    }
}
