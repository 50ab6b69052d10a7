//! Tests of policy decisions.

use proptest::prelude::*;

use super::*;

fn policy(mode: NetworkMode, rules: &[&str]) -> Policy {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Policy::new(
        &NetworkPolicy {
            mode,
            rules,
            sets: Vec::new(),
            requests: Vec::new(),
            deny: Vec::new(),
            transforms: None,
        },
        &BTreeMap::new(),
        &[],
    )
    .unwrap()
}

fn target(text: &str) -> Target {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[track_caller]
fn check(rules: &[&str], asked: &str, expected: Result<&str, &str>) {
    let asked = target(asked);
    let decision = policy(NetworkMode::Allowlist, rules).decide(&asked.destination, asked.protocol);
    match (decision, expected) {
        (Decision::Allow { rule }, Ok(text)) => assert_eq!(&*rule, text),
        (Decision::Deny { reason }, Err(text)) => assert_eq!(reason.to_string(), text),
        (decision, expected) => panic!("{asked:?}: {decision:?}, expected {expected:?}"),
    }
}

#[test]
fn a_bare_host_means_tls_on_443_and_http_on_80() {
    let rules = ["example.com"];
    check(&rules, "https://example.com/x", Ok("example.com"));
    check(&rules, "http://example.com", Ok("example.com"));
    check(&rules, "http://EXAMPLE.com.", Ok("example.com"));
    check(&rules, "https://example.com:80", Err("no rule allows tls to `example.com` on port 80"));
    check(&rules, "https://example.com:8443", Err("no rule allows port 8443 of `example.com`"));
    check(&rules, "tcp://example.com:443", Err("no rule allows tcp to `example.com` on port 443"));
    check(&rules, "https://www.example.com", Err("no rule allows `www.example.com`"));
}

#[test]
fn explicit_ports_and_protocols_are_matched_exactly() {
    check(&["example.com:8000-8100"], "https://example.com:8050", Ok("example.com:8000-8100"));
    check(&["example.com:8000-8100"], "http://example.com:8100", Ok("example.com:8000-8100"));
    check(&["https://example.com"], "http://example.com", Err("no rule allows port 80 of `example.com`"));
    check(&["http://example.com"], "https://example.com", Err("no rule allows port 443 of `example.com`"));
    check(&["ssh://github.com"], "ssh://github.com", Ok("tcp://github.com:22"));
    check(&["tcp://db.example.com:5432"], "https://db.example.com:5432", Ok("tcp://db.example.com:5432"));
}

#[test]
fn p_n6_a_wildcard_covers_only_subdomains() {
    let rules = ["*.example.com", "other.org"];
    check(&rules, "https://a.example.com", Ok("*.example.com"));
    check(&rules, "https://a.b.example.com", Ok("*.example.com"));
    check(&rules, "https://example.com", Err("no rule allows `example.com`"));
    check(&rules, "https://evilexample.com", Err("no rule allows `evilexample.com`"));
    check(&rules, "https://a.example.com.evil.org", Err("no rule allows `a.example.com.evil.org`"));
}

#[test]
fn the_most_specific_rule_is_reported() {
    let rules = ["*.com", "*.example.com", "a.example.com"];
    check(&rules, "https://a.example.com", Ok("a.example.com"));
    check(&rules, "https://b.example.com", Ok("*.example.com"));
    check(&rules, "https://b.com", Ok("*.com"));
}

#[test]
fn an_address_is_allowed_only_by_a_rule_about_it() {
    check(&["tcp://203.0.113.7:5432"], "tcp://203.0.113.7:5432", Ok("tcp://203.0.113.7:5432"));
    check(&["[2001:db8::1]"], "https://[2001:db8::1]", Ok("[2001:db8::1]"));
    check(&["[::ffff:203.0.113.7]"], "https://203.0.113.7", Ok("[::ffff:203.0.113.7]"));
    check(&["example.com"], "https://203.0.113.7", Err("no rule allows `203.0.113.7`"));
}

#[test]
fn none_refuses_everything_and_open_allows_any_name() {
    let asked = target("https://example.com");
    let none = policy(NetworkMode::None, &["example.com"]);
    assert_eq!(
        none.decide(&asked.destination, asked.protocol),
        Decision::Deny { reason: Denial::NetworkOff }
    );
    assert_eq!(none.allows_name(&"example.com".parse().unwrap()), NameAllowed::No);
    let open = policy(NetworkMode::Open, &[]);
    assert!(matches!(open.decide(&asked.destination, DetectedProtocol::Tcp), Decision::Allow { .. }));
    assert_eq!(open.allows_name(&"example.com".parse().unwrap()), NameAllowed::ByPattern);
    assert_eq!(open.admits("10.0.0.1".parse().unwrap(), 443), Err(AddressKind::Private));
}

#[test]
fn denied_addresses_are_reached_only_through_a_rule_about_them() {
    let rules =
        ["tcp://9.9.9.9:1-65535", "tcp://11.0.1.0/24:22", "example.com"].map(|rule| rule.parse().unwrap());
    let deny = ["9.9.9.0/24", "11.0.0.0/8", "2620:fe::/48"].map(|block| block.parse().unwrap());
    for mode in [NetworkMode::Open, NetworkMode::Allowlist] {
        let asked =
            NetworkPolicy { mode, rules: rules.to_vec(), deny: deny.to_vec(), ..NetworkPolicy::closed() };
        let policy = Policy::new(&asked, &BTreeMap::new(), &[]).unwrap();
        let travelled: Policy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
        assert_eq!(travelled, policy);
        for (address, port, expected) in [
            ("8.8.8.8", 443, Ok(())),
            ("9.9.9.8", 443, Err(AddressKind::Denied)),
            ("9.9.9.9", 443, Ok(())),
            ("11.0.1.7", 22, Ok(())),
            ("11.0.1.7", 443, Err(AddressKind::Denied)),
            ("11.0.2.7", 22, Err(AddressKind::Denied)),
            ("2620:fe::fe", 443, Err(AddressKind::Denied)),
            // The same address, embedded in IPv6.
            ("64:ff9b::909:908", 443, Err(AddressKind::Denied)),
            ("::ffff:9.9.9.8", 443, Err(AddressKind::Denied)),
            ("10.0.0.1", 443, Err(AddressKind::Private)),
        ] {
            assert_eq!(policy.admits(address.parse().unwrap(), port), expected, "{mode} {address}:{port}");
        }
    }
}

#[test]
fn a_rule_about_a_block_allows_its_addresses_and_no_name() {
    let rules = ["tcp://203.0.113.0/24:5432", "[2001:db8::/32]"];
    check(&rules, "tcp://203.0.113.9:5432", Ok("tcp://203.0.113.0/24:5432"));
    check(&rules, "tcp://203.0.114.9:5432", Err("no rule allows `203.0.114.9`"));
    check(&rules, "tcp://203.0.113.9:22", Err("no rule allows port 22 of `203.0.113.9`"));
    check(&rules, "https://[2001:db8::7]", Ok("[2001:db8::/32]"));
    assert_eq!(
        policy(NetworkMode::Allowlist, &rules).allows_name(&"example.com".parse().unwrap()),
        NameAllowed::No
    );
}

#[test]
fn first_bytes_are_awaited_only_if_they_matter() {
    let policy =
        policy(NetworkMode::Allowlist, &["example.com", "ssh://example.com", "tcp://example.com:443"]);
    for (asked, wait) in [
        ("ssh://example.com", FirstBytesWait::No),
        ("http://example.com", FirstBytesWait::Required),
        ("https://example.com", FirstBytesWait::Briefly),
        ("https://other.org", FirstBytesWait::Required),
    ] {
        assert_eq!(policy.wait(&target(asked).destination), wait, "{asked}");
    }
}

#[test]
fn sets_are_replaced_by_their_rules() {
    let set: Name = "python".parse().unwrap();
    let sets = BTreeMap::from([(set.clone(), vec!["pypi.example".parse().unwrap()])]);
    let asked = NetworkPolicy { sets: vec![set.clone()], ..NetworkPolicy::closed() };
    let policy = Policy::new(&asked, &sets, &[]).unwrap();
    assert_eq!(policy.allows_name(&"pypi.example".parse().unwrap()), NameAllowed::ByName);
    let unknown = Policy::new(&asked, &BTreeMap::new(), &[]).unwrap_err();
    assert_eq!(unknown, PolicyError::UnknownSet { set: set.clone() });
    let sets = BTreeMap::from([(set, vec!["a.example".parse().unwrap(); RULES_TOTAL_MAX + 1])]);
    assert!(matches!(Policy::new(&asked, &sets, &[]), Err(PolicyError::TooManyRules { .. })));
}

#[test]
fn a_policy_survives_serialisation_as_json() {
    let rules = vec!["*.example.com:8443".parse().unwrap()];
    let asked = NetworkPolicy {
        mode: NetworkMode::Allowlist,
        rules,
        sets: Vec::new(),
        requests: Vec::new(),
        deny: Vec::new(),
        transforms: None,
    };
    let policy = Policy::new(&asked, &BTreeMap::new(), &["10.0.0.0/8".parse().unwrap()]).unwrap();
    let text = serde_json::to_string(&policy).unwrap();
    let expected = r#"{"mode":"allowlist","rules":["*.example.com:8443"],"allow_ranges":["10.0.0.0/8"]}"#;
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
}

#[test]
fn targets_are_parsed_as_users_type_them() {
    for (text, host, port, protocol) in [
        ("example.com", "example.com", 443, DetectedProtocol::Tls),
        ("example.com:80", "example.com", 80, DetectedProtocol::Http),
        ("http://example.com:8080/a:b?c", "example.com", 8080, DetectedProtocol::Http),
        ("[2001:db8::1]:8443", "2001:db8::1", 8443, DetectedProtocol::Tls),
        ("https://203.0.113.7", "203.0.113.7", 443, DetectedProtocol::Tls),
        ("ssh://github.com", "github.com", 22, DetectedProtocol::Tcp),
    ] {
        let target = target(text);
        assert_eq!(target.destination.host.to_string(), host);
        assert_eq!((target.destination.port, target.protocol), (port, protocol), "{text}");
    }
    for bad in ["", "tcp://db", "ftp://x", "example.com:0", "a b", "https://ok.com@evil.com", "2130706433"] {
        assert!(bad.parse::<Target>().is_err(), "{bad}");
    }
}

fn label() -> impl Strategy<Value = String> {
    proptest::sample::select(vec!["a", "b", "example", "evil", "com", "org"]).prop_map(str::to_owned)
}

fn name() -> impl Strategy<Value = HostName> {
    proptest::collection::vec(label(), 1..5).prop_map(|labels| labels.join(".").parse().unwrap())
}

proptest! {
    /// The index gives the same decision as checking the rules one by one.
    #[test]
    fn the_index_agrees_with_the_rules(
        patterns in proptest::collection::vec((name(), any::<bool>()), 0..8),
        asked in name(),
    ) {
        let rules: Vec<EgressRule> = patterns
            .into_iter()
            .map(|(name, star)| if star { format!("*.{name}") } else { name.to_string() }.parse().unwrap())
            .collect();
        let by_hand = rules.iter().any(|rule| rule.host.matches(&asked));
        let asked_policy = NetworkPolicy { mode: NetworkMode::Allowlist, rules, sets: Vec::new(), requests: Vec::new(), deny: Vec::new(), transforms: None };
        let policy = Policy::new(&asked_policy, &BTreeMap::new(), &[]).unwrap();
        let destination = Destination { host: Host::Name(asked.clone()), port: 443 };
        let allowed = matches!(policy.decide(&destination, DetectedProtocol::Tls), Decision::Allow { .. });
        prop_assert_eq!(allowed, by_hand);
        prop_assert_eq!(policy.allows_name(&asked) != NameAllowed::No, by_hand);
    }
}

fn with_requests(mode: NetworkMode, rules: &[&str], requests: &[(&str, RuleMode)]) -> Policy {
    let requests = requests
        .iter()
        .map(|(host, mode)| burrow_model::network::RequestRule {
            scope: burrow_model::network::RequestScope::of(host.parse().unwrap()),
            mode: *mode,
            secret: None,
            budget: None,
            approve: None,
        })
        .collect();
    policy(mode, rules).with_directives(Directives {
        tenant: burrow_model::TenantId::generate(),
        generation: 1,
        authority: None,
        rules: requests,
        grants: Vec::new(),
        transforms: Vec::new(),
    })
}

#[test]
fn a_request_rule_allows_only_tls_to_its_host() {
    let both = [("api.example", RuleMode::Intercept), ("*.cdn.example", RuleMode::Sni)];
    let policy =
        with_requests(NetworkMode::Allowlist, &["http://api.example", "tcp://api.example:443"], &both);
    let allowed = |text: &str| {
        let target = target(text);
        matches!(policy.decide(&target.destination, target.protocol), Decision::Allow { .. })
    };
    for (asked, expected) in [
        ("https://api.example", true),
        ("https://a.cdn.example", true),
        ("https://api.example:8443", false),
        ("https://cdn.example", false),
        ("http://a.cdn.example", false),
        ("tcp://a.cdn.example:443", false),
        // Another rule still allows plaintext, into which no secret is inserted.
        ("http://api.example", true),
        // But no rule allows bypassing the interception.
        ("tcp://api.example:443", false),
        ("http://api.example:443", false),
    ] {
        assert_eq!(allowed(asked), expected, "{asked}");
    }
    assert!(policy.intercepts(&target("https://api.example").destination));
    assert!(!policy.intercepts(&target("https://a.cdn.example").destination));
    assert_eq!(policy.wait(&target("https://api.example").destination), FirstBytesWait::Required);
    assert_eq!(policy.allows_name(&"api.example".parse().unwrap()), NameAllowed::ByName);
    assert_eq!(policy.allows_name(&"a.cdn.example".parse().unwrap()), NameAllowed::ByPattern);
    assert_eq!(policy.allows_name(&"cdn.example".parse().unwrap()), NameAllowed::No);
}

#[test]
fn the_mode_takes_precedence_over_request_rules() {
    let requests = [("api.example", RuleMode::Intercept)];
    let asked = target("https://api.example");
    let off = with_requests(NetworkMode::None, &[], &requests);
    assert!(matches!(off.decide(&asked.destination, asked.protocol), Decision::Deny { .. }));
    assert!(!off.intercepts(&asked.destination));
    assert_eq!(off.allows_name(&"api.example".parse().unwrap()), NameAllowed::No);
    let open = with_requests(NetworkMode::Open, &[], &requests);
    assert!(open.intercepts(&asked.destination));
    let clear = target("http://api.example:443");
    assert!(matches!(open.decide(&clear.destination, clear.protocol), Decision::Deny { .. }));
}

#[test]
fn flows_are_kept_if_nothing_about_their_host_changes() {
    let here = target("https://api.example").destination;
    let one = with_requests(NetworkMode::Allowlist, &[], &[("api.example", RuleMode::Intercept)]);
    let changed = |change: &dyn Fn(&mut Directives)| {
        let mut directives = one.directives().unwrap().clone();
        change(&mut directives);
        one.with_directives(directives)
    };
    assert!(one.treats_alike(&changed(&|directives| directives.generation += 1), &here));
    let other = |directives: &mut Directives| directives.rules[0].scope.port = 8443;
    assert!(!one.treats_alike(&changed(&other), &here));
    let tenant = |directives: &mut Directives| directives.tenant = burrow_model::TenantId::generate();
    assert!(!one.treats_alike(&changed(&tenant), &here));
    // For a secret of any host: all responses are scrubbed of it.
    let elsewhere = |directives: &mut Directives| {
        directives.grants.push(crate::Grant {
            name: "key".parse().unwrap(),
            version: 1,
            slot: burrow_model::Slot::ClientCert,
            value: burrow_model::SecretBytes::new("value".into()),
            allow: vec![burrow_model::network::RequestScope::of("other.example".parse().unwrap())],
            placeholder: None,
            former: Vec::new(),
        });
    };
    assert!(!one.treats_alike(&changed(&elsewhere), &here));
    // A former value expires without a reset: no request carries it.
    let granted = one.with_directives({
        let mut directives = one.directives().unwrap().clone();
        elsewhere(&mut directives);
        directives
    });
    let expired = granted.with_directives({
        let mut directives = granted.directives().unwrap().clone();
        directives.grants[0].former.push(burrow_model::SecretBytes::new("former".into()));
        directives
    });
    assert!(expired.treats_alike(&granted, &here));
}

fn with_transforms(mode: NetworkMode, rules: &[&str], hosts: &[&str]) -> Policy {
    let header = burrow_model::network::TransformHeader {
        name: "X-Key".parse().unwrap(),
        value: burrow_model::SecretBytes::new("value".into()),
    };
    let transform =
        |host: &&str| HeaderTransform { host: host.parse().unwrap(), headers: vec![header.clone()] };
    let policy = with_requests(mode, rules, &[]);
    let directives = policy.directives().unwrap().clone();
    policy.with_directives(Directives { transforms: hosts.iter().map(transform).collect(), ..directives })
}

#[test]
fn headers_for_a_host_allow_no_connection() {
    let hosts = ["api.example", "*.example"];
    let allows = |policy: &Policy, text: &str| {
        let target = target(text);
        matches!(policy.decide(&target.destination, target.protocol), Decision::Allow { .. })
    };
    let listed = with_transforms(NetworkMode::Allowlist, &["other.example"], &hosts);
    for (asked, expected) in [
        ("https://api.example", false),
        ("https://a.example", false),
        ("https://other.example", true),
        // No header is set on plaintext requests, and they are allowed as before.
        ("http://other.example", true),
    ] {
        assert_eq!(allows(&listed, asked), expected, "{asked}");
    }
    assert_eq!(listed.allows_name(&"api.example".parse().unwrap()), NameAllowed::No);
    assert_eq!(listed.allows_name(&"other.example".parse().unwrap()), NameAllowed::ByName);
    let off = with_transforms(NetworkMode::None, &[], &hosts);
    assert!(!allows(&off, "https://api.example"));
    assert!(!off.intercepts(&target("https://api.example").destination));
}

#[test]
fn only_tls_to_a_host_with_headers_is_decrypted() {
    let policy = with_transforms(NetworkMode::Open, &[], &["*.example", "api.example"]);
    for (asked, expected) in [
        ("https://api.example", Some("api.example")),
        ("https://www.api.example", Some("*.example")),
        ("https://example", None),
        ("https://api.example:8443", None),
        ("http://api.example", None),
        ("https://192.0.2.1", None),
    ] {
        let destination = target(asked).destination;
        let host = policy.transform(&destination).map(|(transform, _)| transform.host.to_string());
        assert_eq!(host.as_deref(), expected, "{asked}");
        assert_eq!(policy.intercepts(&destination), expected.is_some(), "{asked}");
    }
    let kept = policy.without_secrets();
    let destination = target("https://api.example").destination;
    assert!(kept.intercepts(&destination), "a request without its header is refused, not forwarded");
    assert!(kept.directives().unwrap().transforms.iter().all(|transform| transform.headers.is_empty()));
}

#[test]
fn flows_to_a_host_whose_headers_change_are_not_kept() {
    let here = target("https://api.example").destination;
    let one = with_transforms(NetworkMode::Open, &[], &["api.example", "*.other"]);
    let changed = |change: &dyn Fn(&mut Vec<HeaderTransform>)| {
        let mut directives = one.directives().unwrap().clone();
        change(&mut directives.transforms);
        one.with_directives(directives)
    };
    let value = |transforms: &mut Vec<HeaderTransform>| {
        transforms[0].headers[0].value = burrow_model::SecretBytes::new("other".into());
    };
    assert!(!one.treats_alike(&changed(&value), &here));
    assert!(!one.treats_alike(&changed(&Vec::clear), &here));
    let elsewhere = |transforms: &mut Vec<HeaderTransform>| transforms.truncate(1);
    assert!(one.treats_alike(&changed(&elsewhere), &here));
}
