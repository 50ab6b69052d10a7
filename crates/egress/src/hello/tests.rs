//! Tests with valid and hostile hellos, and a comparison with rustls.

use proptest::prelude::*;

use super::*;

/// A hello with the given extensions, in one record.
fn hello_with(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, data) in extensions {
        list.extend(kind.to_be_bytes());
        list.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        list.extend(data);
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
    body.extend(u16::try_from(list.len()).unwrap().to_be_bytes());
    body.extend(list);
    let mut message = vec![1];
    message.extend(&u32::try_from(body.len()).unwrap().to_be_bytes()[1..]);
    message.extend(body);
    records(&message, FRAGMENT_MAX)
}

/// `message`, split into records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for fragment in message.chunks(size) {
        bytes.extend([22, 3, 1]);
        bytes.extend(u16::try_from(fragment.len()).unwrap().to_be_bytes());
        bytes.extend(fragment);
    }
    bytes
}

fn sni(name: &[u8]) -> (u16, Vec<u8>) {
    let length = u16::try_from(name.len()).unwrap();
    let mut data = Vec::new();
    data.extend((length + 3).to_be_bytes());
    data.push(0);
    data.extend(length.to_be_bytes());
    data.extend(name);
    (0, data)
}

#[track_caller]
fn check_name(name: &[u8], expected: ServerName) {
    let bytes = hello_with(&[sni(name)]);
    assert_eq!(read(&bytes), Outcome::Hello(Hello { name: expected, encrypted_inside: false }));
}

fn host(name: &str) -> ServerName {
    ServerName::Host(name.parse().unwrap())
}

#[test]
fn e_t5_names_are_normalised_before_they_are_checked() {
    check_name(b"example.com", host("example.com"));
    check_name(b"ExAmple.COM", host("example.com"));
    check_name(b"example.com.", host("example.com"));
    check_name(b"xn--bcher-kva.example", host("xn--bcher-kva.example"));
    for unusable in
        [&b"evil\0.example.com"[..], b"127.0.0.1", b"[::1]", b"2130706433", b"", b"a b", b"b\xc3\xbccher"]
    {
        check_name(unusable, ServerName::Unusable);
    }
}

#[test]
fn e_t5_grease_and_encrypted_hellos_are_accepted() {
    let bytes =
        hello_with(&[(0x0a0a, vec![]), sni(b"outer.example"), (0xfe0d, vec![0; 100]), (0x2a2a, vec![0])]);
    let expected = Hello { name: host("outer.example"), encrypted_inside: true };
    assert_eq!(read(&bytes), Outcome::Hello(expected));
}

#[test]
fn a_hello_without_a_name_has_an_absent_name() {
    assert_eq!(
        read(&hello_with(&[(10, vec![0, 2, 0, 29])])),
        Outcome::Hello(Hello { name: ServerName::Absent, encrypted_inside: false })
    );
}

#[test]
fn ambiguous_hellos_are_refused() {
    let twice = hello_with(&[sni(b"ok.example"), sni(b"evil.example")]);
    assert_eq!(read(&twice), Outcome::Bad(HelloError::Repeated));
    let (_, mut two_names) = sni(b"ok.example");
    two_names.extend([0, 0, 1, b'e']);
    let length = u16::try_from(two_names.len() - 2).unwrap();
    two_names[..2].copy_from_slice(&length.to_be_bytes());
    assert_eq!(read(&hello_with(&[(0, two_names)])), Outcome::Bad(HelloError::Malformed));
    let mut trailing = hello_with(&[sni(b"ok.example")]);
    let length = u16::from_be_bytes([trailing[3], trailing[4]]) + 1;
    trailing[3..5].copy_from_slice(&length.to_be_bytes());
    trailing.push(0);
    assert_eq!(read(&trailing), Outcome::Bad(HelloError::Malformed));
}

#[test]
fn other_protocols_are_detected_by_their_first_bytes() {
    for bytes in
        [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x", b"\0\0\0\x08", b"\x16\x02", b"\x80\x2e\x01\x03\x01"]
    {
        assert_eq!(read(bytes), Outcome::NotTls, "{bytes:?}");
    }
    assert_eq!(read(b""), Outcome::NeedMore { at_least: 5 });
    assert_eq!(read(b"\x16"), Outcome::NeedMore { at_least: 5 });
}

#[test]
fn e_n10_a_hello_has_limited_bytes_and_records() {
    let message = hello_with(&[sni(b"example.com"), (21, vec![0; 3_000])])[RECORD_HEADER..].to_vec();
    assert_eq!(read(&records(&message, 1)), Outcome::Bad(HelloError::TooManyRecords));
    let split = records(&message, 100);
    assert!(matches!(read(&split), Outcome::Hello(_)));
    assert_eq!(read(&[22, 3, 1, 0, 4, 1, 1, 0, 1]), Outcome::Bad(HelloError::TooLong));
    assert_eq!(read(&[22, 3, 1, 0xff, 0xff]), Outcome::Bad(HelloError::Record));
    assert_eq!(read(&[22, 3, 1, 0, 0]), Outcome::Bad(HelloError::Record));
    assert_eq!(read(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), Outcome::Bad(HelloError::NotAHello));
}

/// The hello that rustls sends for `name`.
fn real_hello(name: &str) -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls_pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// The name that rustls reads from the same bytes, or `None` if it refuses them.
fn by_rustls(bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = rustls::server::Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        acceptor.read_tls(&mut rest).ok()?;
        if let Some(accepted) = acceptor.accept().ok()? {
            return Some(accepted.client_hello().server_name().map(str::to_owned));
        }
    }
    None
}

#[test]
fn a_real_hello_is_read_however_it_is_split() {
    let bytes = real_hello("Api.Example.com");
    for cut in 0..bytes.len() {
        assert!(matches!(read(&bytes[..cut]), Outcome::NeedMore { at_least } if at_least > cut), "{cut}");
    }
    let expected = Outcome::Hello(Hello { name: host("api.example.com"), encrypted_inside: false });
    assert_eq!(read(&bytes), expected);
    for size in [1, 7, 64] {
        let pieces = records(&bytes[RECORD_HEADER..], size.max(bytes.len() / 200));
        assert_eq!(read(&pieces), expected, "records of {size}");
        assert_eq!(by_rustls(&pieces), Some(Some("api.example.com".to_owned())));
    }
    // Without a name, as in a connection to an address.
    assert_eq!(
        read(&real_hello("203.0.113.7")),
        Outcome::Hello(Hello { name: ServerName::Absent, encrypted_inside: false })
    );
}

proptest! {
    #[test]
    fn parsing_never_panics_or_requests_bytes_it_has(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Outcome::NeedMore { at_least } = read(&bytes) {
            prop_assert!(at_least > bytes.len() && at_least <= HELLO_BYTES_MAX);
        }
    }

    /// A mutated real hello: if both readers find a name, it is the same.
    #[test]
    fn it_never_reads_another_name_than_rustls(
        place in any::<proptest::sample::Index>(),
        value in any::<u8>(),
        cut in 50usize..2_000,
    ) {
        let mut bytes = real_hello("api.example.com");
        let place = place.index(bytes.len());
        bytes[place] = value;
        let bytes = if place >= RECORD_HEADER { records(&bytes[RECORD_HEADER..], cut) } else { bytes };
        if let (Outcome::Hello(ours), Some(theirs)) = (read(&bytes), by_rustls(&bytes)) {
            let ours = match ours.name {
                ServerName::Host(name) => Some(name.to_string()),
                ServerName::Absent => None,
                // Refused in any case.
                ServerName::Unusable => return Ok(()),
            };
            prop_assert_eq!(ours, theirs.map(|name| name.trim_end_matches('.').to_ascii_lowercase()));
        }
    }
}
