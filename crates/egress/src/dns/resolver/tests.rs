//! Tests of the answers to allowed, refused and unusual questions.

use std::collections::BTreeMap;

use burrow_model::{NetworkMode, NetworkPolicy};
use proptest::prelude::*;

use super::*;
use crate::dns::message::tests::{OPT, question};

fn policy(mode: NetworkMode, rules: &[&str]) -> Policy {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let policy = NetworkPolicy { mode, rules, ..NetworkPolicy::closed() };
    Policy::new(&policy, &BTreeMap::new(), &[]).unwrap()
}

/// Returns the response code, the number of answers, and whether the question was denied.
fn ask(resolver: &mut Resolver, policy: &Policy, name: &str, kind: u16, now_ms: u64) -> (u8, u8, bool) {
    let labels: Vec<&[u8]> = name.split('.').map(str::as_bytes).collect();
    let reply = resolver.reply(&question(&labels, kind, &[OPT]), policy, now_ms);
    let bytes = reply.bytes.unwrap();
    (bytes[3] & 0xf, bytes[7], reply.denied.is_some())
}

#[test]
fn allowed_names_get_addresses_and_other_types_an_empty_answer() {
    let (mut resolver, policy) = (Resolver::new(10), policy(NetworkMode::Allowlist, &["ok.example"]));
    for (kind, answers) in [(1, 1), (28, 1), (16, 0), (15, 0), (65, 0), (64, 0), (10, 0), (255, 0), (12, 0)] {
        assert_eq!(ask(&mut resolver, &policy, "ok.example", kind, 0), (0, answers, false), "type {kind}");
    }
}

#[test]
fn e_n5_other_names_are_refused_for_every_record_type() {
    let (mut resolver, policy) = (Resolver::new(10), policy(NetworkMode::Allowlist, &["ok.example"]));
    for kind in [1, 28, 16, 10, 65, 252, 255] {
        for name in ["evil.example", "ok.example.evil.example", "x.ok.example", "example"] {
            assert_eq!(ask(&mut resolver, &policy, name, kind, 0), (3, 0, true), "{name} {kind}");
        }
    }
    assert!(resolver.names().is_empty(), "refused names are not stored");
    let long = vec!["a".repeat(63); 3].join(".");
    assert_eq!(ask(&mut resolver, &policy, &format!("{long}.evil.example"), 16, 0).0, 3);
}

#[test]
fn service_records_of_allowed_hosts_do_not_exist_and_are_not_reported_as_denied() {
    let (mut resolver, policy) = (Resolver::new(10), policy(NetworkMode::Allowlist, &["ok.example"]));
    assert_eq!(ask(&mut resolver, &policy, "_http._tcp.ok.example", 33, 0), (3, 0, false));
    for (name, kind) in [
        ("_http._tcp.evil.example", 33),
        ("_http._tcp.ok.example", 1),
        ("_http.ok.example", 33),
        ("http.tcp.ok.example", 33),
        ("_http._tcp", 33),
    ] {
        assert_eq!(ask(&mut resolver, &policy, name, kind, 0), (3, 0, true), "{name} {kind}");
    }
}

#[test]
fn the_mode_none_refuses_all_but_built_in_names() {
    let (mut resolver, policy) = (Resolver::new(10), policy(NetworkMode::None, &["ok.example"]));
    assert_eq!(ask(&mut resolver, &policy, "ok.example", 1, 0), (3, 0, true));
    assert_eq!(ask(&mut resolver, &policy, "localhost", 1, 0), (0, 1, false));
    assert_eq!(ask(&mut resolver, &policy, "foo.localhost", 28, 0), (0, 1, false));
    assert_eq!(ask(&mut resolver, &policy, GATEWAY_NAME, 1, 0), (0, 1, false));
}

#[test]
fn e_n5_only_names_allowed_by_a_pattern_use_the_budget() {
    let policy = policy(NetworkMode::Allowlist, &["*.example.com", "named.org"]);
    let mut resolver = Resolver::new(3);
    for number in 0..3 {
        assert_eq!(ask(&mut resolver, &policy, &format!("n{number}.example.com"), 1, 1_000), (0, 1, false));
    }
    assert_eq!(ask(&mut resolver, &policy, "n3.example.com", 1, 2_000), (5, 0, true));
    assert_eq!(ask(&mut resolver, &policy, "n1.example.com", 28, 2_000), (0, 1, false), "known already");
    assert_eq!(ask(&mut resolver, &policy, "named.org", 1, 2_000), (0, 1, false));
    assert_eq!(ask(&mut resolver, &policy, "n3.example.com", 1, 70_000), (0, 1, false), "a minute later");
}

#[test]
fn a_synthetic_address_has_a_reverse_name() {
    let (mut resolver, policy) = (Resolver::new(10), policy(NetworkMode::Allowlist, &["ok.example"]));
    let (v4, _) = resolver.names().addresses(&"ok.example".parse().unwrap());
    let [a, b, c, d] = v4.octets();
    assert_eq!(ask(&mut resolver, &policy, &format!("{d}.{c}.{b}.{a}.in-addr.arpa"), 12, 0), (0, 1, false));
    assert_eq!(ask(&mut resolver, &policy, "8.8.8.8.in-addr.arpa", 12, 0), (3, 0, false));
}

#[test]
fn other_classes_operations_and_versions_are_refused() {
    let (mut resolver, policy) = (Resolver::new(10), policy(NetworkMode::Open, &[]));
    let good = question(&[&b"ok"[..], b"example"], 1, &[OPT]);
    let mut code = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        resolver.reply(&bytes, &policy, 0).bytes.unwrap()[3] & 0xf
    };
    let class = 12 + 12 + 3;
    assert_eq!(code(class, 3), 5, "class CHAOS");
    assert_eq!(code(2, 0x28), 4, "an update");
    assert_eq!(code(class + 7, 1), 0, "version 1 is reported in the extended code");
    assert_eq!(code(5, 7), 1, "seven questions");
}

proptest! {
    #[test]
    fn any_question_is_answered_without_panic_or_growth(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 0..20),
    ) {
        let (mut resolver, policy) = (Resolver::new(5), policy(NetworkMode::Open, &[]));
        for message in messages {
            let reply = resolver.reply(&message, &policy, 0);
            prop_assert!(reply.bytes.is_none_or(|bytes| bytes.len() < 1_000));
        }
        prop_assert!(resolver.names().len() <= 5);
    }
}
