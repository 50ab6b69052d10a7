//! Requests, honest and hostile.

use proptest::prelude::*;

use super::*;

/// What becomes of a connection's bytes: the hosts judged, and how it ended.
fn follow(bytes: &[u8]) -> (Vec<String>, Result<bool, HeadError>) {
    let (mut framer, mut rest, mut hosts) = (Framer::new(), bytes, Vec::new());
    loop {
        match framer.next(rest) {
            Ok(Next::Head(head, length)) => {
                hosts.push(format!("{} {}", head.method, head.host));
                rest = &rest[length..];
            }
            Ok(Next::Pass(count)) => rest = &rest[count..],
            Ok(Next::NeedMore) => return (hosts, Ok(rest.is_empty() && framer.is_between_requests())),
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
fn a_request_names_its_host_and_ends_where_it_says() {
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
fn e_t3_the_second_request_is_judged_too() {
    let two = "GET / HTTP/1.1\r\nHost: ok.example\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(follow(two.as_bytes()).0, ["GET ok.example", "GET evil.example"]);
}

#[test]
fn e_t2_two_hosts_none_or_another_in_the_target_are_refused() {
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
fn e_t6_what_two_readers_could_understand_differently_is_refused() {
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
fn e_t7_tunnels_and_http2_in_clear_are_refused() {
    refused("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", HeadError::Connect, 403);
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HeadError::Http2, 501);
    let upgrade = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    refused(upgrade, HeadError::Http2, 501);
    refused(&upgrade.replace("h2c", "websocket, h2c-14"), HeadError::Http2, 501);
    let (mut framer, request) = (Framer::new(), upgrade.replace("h2c", "websocket"));
    let Ok(Next::Head(head, _)) = framer.next(request.as_bytes()) else { panic!("it is a request") };
    assert_eq!(head.upgrade.as_deref(), Some("websocket"));
}

#[test]
fn a_head_is_bounded() {
    let long = format!("GET / HTTP/1.1\r\nHost: a.example\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
    refused(&long, HeadError::TooLong, 431);
    let many = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{}\r\n", "X: y\r\n".repeat(300));
    refused(&many, HeadError::TooManyHeaders, 431);
}

#[test]
fn http_is_told_from_other_protocols_by_its_first_line() {
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n"[..], Looks::LikeHttp),
        (b"PRI * HTTP/2.0\r\n", Looks::LikeHttp),
        (b"GET / HTT", Looks::NeedMore),
        (b"GE", Looks::NeedMore),
        (b"", Looks::NeedMore),
        (b"*1\r\n$4\r\nPING\r\n", Looks::Otherwise),
        (b"PING\r\n", Looks::Otherwise),
        (b"EHLO example.com\r\n", Looks::Otherwise),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Looks::Otherwise),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", Looks::Otherwise),
        (b" GET / HTTP/1.1\r\n", Looks::Otherwise),
    ] {
        assert_eq!(looks(bytes), expected, "{bytes:?}");
    }
}

proptest! {
    /// However the bytes are cut, the same heads are seen and the same verdict falls.
    #[test]
    fn pieces_make_no_difference(cut in 1usize..40, requests in proptest::collection::vec(0usize..4, 1..5)) {
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
                    Ok(Next::Head(head, length)) => {
                        hosts.push(format!("{} {}", head.method, head.host));
                        length
                    }
                    Ok(Next::Pass(count)) => count,
                    Ok(Next::NeedMore) => break,
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
    fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = follow(&bytes);
        let _ = looks(&bytes);
        let _ = follow(&[b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes[..]].concat());
    }
}
