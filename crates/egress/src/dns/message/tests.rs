//! Tests with valid and hostile questions.

use proptest::prelude::*;

use super::*;

/// A question for `name` of type `kind`, with the given additional records.
pub(crate) fn question(name: &[&[u8]], kind: u16, additional: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, u8::try_from(additional.len()).unwrap()];
    for label in name {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(*label);
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    for record in additional {
        bytes.extend(*record);
    }
    bytes
}

pub(crate) const OPT: &[u8] = &[0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn an_answer_repeats_the_letter_case_of_the_question() {
    let bytes = question(&[b"ExAmple", b"com"], 1, &[OPT]);
    let query = Query::parse(&bytes).unwrap();
    assert_eq!(query.name, QueryName::Host("example.com".parse().unwrap()));
    assert_eq!(query.kind, Kind::A);
    let address = Ipv4Addr::new(198, 18, 0, 9);
    let answer = query.answer(&Answer {
        code: ResponseCode::Success,
        records: vec![Record::Address(address.into())],
        error: None,
    });
    assert_eq!(&answer[..12], [0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 1]);
    assert_eq!(&answer[12..29], &bytes[12..29]);
    assert_eq!(&answer[29..45], [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 198, 18, 0, 9]);
    assert_eq!(&answer[45..], [0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_refusal_has_a_text_for_clients_with_edns() {
    let refusal = Answer {
        code: ResponseCode::Refused,
        records: Vec::new(),
        error: Some((EDE_BLOCKED, "no rule allows `a`".to_owned())),
    };
    let answer = Query::parse(&question(&[b"a"], 1, &[OPT])).unwrap().answer(&refusal);
    assert_eq!(answer[3] & 0xf, 5);
    let option = &answer[answer.len() - 24..];
    assert_eq!(&option[..6], [0, 15, 0, 20, 0, 15]);
    assert_eq!(&option[6..], b"no rule allows `a`");
    let without = Query::parse(&question(&[b"a"], 1, &[])).unwrap().answer(&refusal);
    assert!(without.len() < 40);
}

#[test]
fn e_n5_invalid_host_names_are_unusable() {
    for name in [
        &[&b"a.b"[..], b"com"][..],
        &[b"evil\0", b"com"],
        &[b"b\xc3\xbccher"],
        &[b"127", b"1"],
        &[],
        &[b"a b"],
    ] {
        assert_eq!(Query::parse(&question(name, 1, &[])).unwrap().name, QueryName::Unusable, "{name:?}");
    }
}

#[test]
fn malformed_questions_get_formerr_or_no_answer() {
    let good = question(&[b"a"], 1, &[]);
    for cut in 0..12 {
        assert_eq!(Query::parse(&good[..cut]), Err(QuestionError::Silence), "{cut}");
    }
    let mut answer = good.clone();
    answer[2] |= 0x80;
    assert_eq!(Query::parse(&answer), Err(QuestionError::Silence), "an answer");
    let form = Err(QuestionError::Form { id: 0x1234 });
    for cut in 12..good.len() {
        assert_eq!(Query::parse(&good[..cut]), form, "{cut}");
    }
    for (at, value, what) in [
        (5, 2, "two questions"),
        (5, 0, "none"),
        (7, 1, "an answer in it"),
        (9, 1, "an authority"),
        (11, 9, "too many records"),
        (12, 0xc0, "a pointer"),
        (12, 0x40, "a long label"),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(Query::parse(&bad), form, "{what}");
    }
    let mut loops = good.clone();
    loops.splice(12..14, [0xc0, 0x0c]);
    assert_eq!(Query::parse(&loops), form, "a pointer to itself");
    assert_eq!(Query::parse(&[&good[..], &[0]].concat()), form, "something behind it");
    assert_eq!(Query::parse(&question(&[b"a"], 1, &[OPT, OPT])), form, "two OPTs");
    let label = [b'a'; 63];
    assert_eq!(Query::parse(&question(&[&label[..]; 4], 1, &[])), form, "256 bytes of name");
    assert!(Query::parse(&question(&[&label[..], &label, &label, &label[..61]], 1, &[])).is_ok());
    assert_eq!(Query::parse(&vec![0; QUESTION_BYTES_MAX + 1]), Err(QuestionError::Silence));
}

#[test]
fn reverse_names_of_both_families_are_parsed() {
    for (name, address) in [
        ("9.0.18.198.in-addr.arpa", Some("198.18.0.9")),
        ("9.0.18.in-addr.arpa", None),
        ("1.9.0.18.198.in-addr.arpa", None),
        ("x.0.18.198.in-addr.arpa", None),
        ("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", Some("2001:db8::1")),
        ("1.0.0.2.ip6.arpa", None),
        ("example.com", None),
    ] {
        assert_eq!(reversed(&name.parse().unwrap()), address.map(|text| text.parse().unwrap()), "{name}");
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(query) = Query::parse(&bytes) {
            let answer = query.answer(&Answer { code: ResponseCode::Success, records: vec![], error: None });
            prop_assert_eq!(&answer[..2], &bytes[..2]);
        }
    }

    #[test]
    fn a_mutated_question_is_parsed_or_refused(at in any::<proptest::sample::Index>(), value in any::<u8>()) {
        let mut bytes = question(&[b"a", b"example", b"com"], 28, &[OPT]);
        let at = at.index(bytes.len());
        bytes[at] = value;
        let _ = Query::parse(&bytes);
    }
}
