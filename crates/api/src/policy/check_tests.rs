//! Which policy documents are rejected and why; accepted documents never exceed a ceiling.

use super::*;
use burrow_model::HostName;
use proptest::prelude::*;

fn read(json: &str) -> PolicyDocument {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn rules_of(json: &str) -> String {
    format!(r#"{{"egress": {{"rules": [{json}]}}}}"#)
}

#[track_caller]
fn refused(json: &str, pointer: &str, reason: &str) {
    let fault = document(&read(json)).expect_err(json);
    assert_eq!(fault.pointer(), pointer, "{fault}");
    assert!(fault.reason.contains(reason), "{fault}");
}

#[test]
fn invalid_values_are_rejected_with_their_place() {
    for (rule, place, reason) in [
        (r#"{"host": "*"}"#, "/host", "host"),
        (r#"{"host": "10.0.0.1"}"#, "/host", "not an address"),
        (r#"{"host": "a.example", "port": 0}"#, "/port", "between 1 and 65535"),
        (r#"{"host": "a.example", "methods": ["GET", "G T"]}"#, "/methods/1", "a method is"),
        (r#"{"host": "a.example", "paths": ["/a/../b"]}"#, "/paths/0", "without `..`"),
        (r#"{"host": "a.example", "secret": "A B"}"#, "/secret", "name"),
        (r#"{"host": "a.example", "mode": "sni", "secret": "key"}"#, "/secret", "requires decryption"),
        (r#"{"host": "a.example", "mode": "sni", "paths": ["/"]}"#, "/paths", "requires decryption"),
        (r#"{"host": "a.example", "budget": {}}"#, "/budget", "the budget is empty"),
        (
            r#"{"host": "a.example", "budget": {"requestsPerDay": 0}}"#,
            "/budget/requestsPerDay",
            "allows nothing",
        ),
    ] {
        refused(&rules_of(rule), &format!("/egress/rules/0{place}"), reason);
    }
    refused("{}", "", "the document is empty");
    refused(r#"{"egress": {"allow": ["*"]}}"#, "/egress/allow/0", "host");
    refused(
        r#"{"egressAuth": [{"destination": "", "authRef": "key"}]}"#,
        "/egressAuth/0/destination",
        "empty",
    );
    let many = vec![r#"{"host": "a.example"}"#; REQUEST_RULES_MAX + 1].join(",");
    refused(&rules_of(&many), "/egress/rules", "more than 200");
}

#[test]
fn two_rules_for_one_request_are_rejected_with_both_places() {
    let overlapping = [
        (r#"{"host": "a.example", "secret": "one"}"#, r#"{"host": "a.example", "secret": "two"}"#),
        (r#"{"host": "*.example", "mode": "sni"}"#, r#"{"host": "a.example", "secret": "one"}"#),
        (r#"{"host": "a.example", "paths": ["/v1/**"], "approve": "once"}"#, r#"{"host": "a.example"}"#),
        (
            r#"{"host": "a.example", "budget": {"requestsPerDay": 1}}"#,
            r#"{"host": "a.example", "budget": {"requestsPerDay": 1}}"#,
        ),
    ];
    for (first, second) in overlapping {
        for (first, second) in [(first, second), (second, first)] {
            let json = rules_of(&format!("{first}, {second}"));
            let fault = document(&read(&json)).expect_err(&json);
            assert_eq!(fault.pointer(), "/egress/rules/1");
            assert_eq!(pointer(&fault.other.clone().unwrap()), "/egress/rules/0", "{fault}");
        }
    }
    for (first, second) in [
        (
            r#"{"host": "a.example", "methods": ["GET"]}"#,
            r#"{"host": "a.example", "methods": ["POST"], "secret": "one"}"#,
        ),
        (r#"{"host": "a.example", "secret": "one"}"#, r#"{"host": "a.example", "port": 8443}"#),
        (r#"{"host": "a.example", "paths": ["/a"]}"#, r#"{"host": "a.example", "paths": ["/**"]}"#),
    ] {
        let json = rules_of(&format!("{first}, {second}"));
        document(&read(&json)).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

#[test]
fn the_short_form_is_one_rule_and_is_ignored_next_to_its_full_form() {
    let short = r#"{"egressAuth": [{"destination": "a.example", "authRef": "key"}]}"#;
    let long = rules_of(r#"{"host": "a.example", "secret": "key"}"#);
    let network = |json: &str| document(&read(json)).unwrap().network.unwrap();
    assert_eq!(network(short), network(&long));
    let both = r#"{"egress": {"rules": [{"host": "a.example", "secret": "key", "budget": {"requestsPerMinute": 60, "bytesOutPerDay": "50MB"}}]},
                  "egressAuth": [{"destination": "a.example", "authRef": "key"}]}"#;
    let rules = network(both).requests;
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].budget.unwrap().bytes_out_per_day, Some(50_000_000));
    let other = both.replace(r#""authRef": "key""#, r#""authRef": "other""#);
    refused(&other, "/egressAuth/0", "treats them differently");
}

#[test]
fn a_secret_requires_a_source_a_ceiling_and_a_slot() {
    let secret = |rest: &str| format!(r#"{{"secrets": [{{"name": "key", {rest}}}]}}"#);
    let allow = r#""allow": [{"host": "a.example"}]"#;
    for (rest, place, reason) in [
        (format!(r#"{allow}, "slot": {{}}"#), "/slot", "one of"),
        (format!(r#"{allow}, "slot": {{"header": "x-key", "query": "key"}}"#), "/slot", "one of"),
        (format!(r#"{allow}, "slot": {{"query": "key", "format": "{{}}"}}"#), "/slot/format", "only"),
        (format!(r#"{allow}, "slot": {{"header": "Host"}}"#), "/slot/header", "header"),
        (format!(r#"{allow}, "slot": {{"header": "x", "format": "Bearer"}}"#), "/slot/format", "format"),
        (r#""allow": [], "slot": {"query": "key"}"#.to_owned(), "/allow", "at least one"),
        (r#""allow": [{"host": "*"}], "slot": {"query": "key"}"#.to_owned(), "/allow/0/host", "host"),
        (format!(r#"{allow}, "slot": {{"query": "k"}}, "from": {{}}"#), "/from", "one of"),
        (
            format!(r#"{allow}, "slot": {{"query": "k"}}, "from": {{"env": "A", "file": "b"}}"#),
            "/from",
            "one of",
        ),
    ] {
        refused(&secret(&rest), &format!("/secrets/0{place}"), reason);
    }
    let checked = document(&read(&secret(&format!(r#"{allow}, "slot": {{"clientCert": true}}"#)))).unwrap();
    assert_eq!((checked.secrets[0].0.slot.clone(), checked.network), (Slot::ClientCert, None));
}

fn ceiling() -> Vec<RequestScope> {
    let json = r#"{"secrets": [{"name": "key", "slot": {"header": "authorization"}, "allow": [
        {"host": "a.example", "methods": ["POST"], "paths": ["/v1/**"]},
        {"host": "a.example", "methods": ["GET"], "paths": ["/v2/**"]}]}]}"#;
    document(&read(json)).unwrap().secrets.remove(0).0.allow
}

fn judged(rule: &str) -> Result<(), Fault> {
    let checked = document(&read(&rules_of(rule))).unwrap();
    let known = |name: &Name| (name.as_str() == "key").then(ceiling);
    within(&checked.network.unwrap().requests, &checked.places, &known)
}

#[test]
fn a_rule_narrows_a_ceiling_and_never_widens_it() {
    for rule in [
        r#"{"host": "a.example", "secret": "key"}"#,
        r#"{"host": "a.example", "secret": "key", "methods": ["POST"]}"#,
        r#"{"host": "a.example", "secret": "key", "methods": ["POST"], "paths": ["/v1/chat"]}"#,
        r#"{"host": "a.example", "secret": "key", "paths": ["/v1/a/**", "/v2/b"]}"#,
    ] {
        judged(rule).unwrap_or_else(|fault| panic!("{rule}: {fault}"));
    }
    for rule in [
        r#"{"host": "b.example", "secret": "key"}"#,
        r#"{"host": "*.example", "secret": "key"}"#,
        r#"{"host": "a.example", "secret": "key", "port": 8443}"#,
        r#"{"host": "a.example", "secret": "key", "methods": ["DELETE"]}"#,
        r#"{"host": "a.example", "secret": "key", "methods": ["POST"], "paths": ["/v2/x"]}"#,
        r#"{"host": "a.example", "secret": "key", "methods": ["POST", "GET"], "paths": ["/v1/x"]}"#,
        r#"{"host": "a.example", "secret": "key", "paths": ["/**"]}"#,
        r#"{"host": "a.example", "secret": "key", "paths": ["/v1"]}"#,
    ] {
        let fault = judged(rule).expect_err(rule);
        assert_eq!(fault.pointer(), "/egress/rules/0");
        assert!(fault.reason.contains("exceeds what the owner of `key` allows"), "{fault}");
    }
    let fault = judged(r#"{"host": "a.example", "secret": "kez"}"#).unwrap_err();
    assert_eq!(
        (fault.pointer().as_str(), fault.reason.as_str()),
        ("/egress/rules/0/secret", "secret `kez` does not exist")
    );
}

#[test]
fn rules_survive_parsing_and_formatting() {
    let json = r#"{"host": "*.example", "port": 8443, "methods": ["POST"], "paths": ["/v1/**"], "secret": "key",
                   "budget": {"requestsPerMinute": 6}, "approve": "session"}"#;
    let rule: RuleDocument = serde_json::from_str(json).unwrap();
    let read = rules(std::slice::from_ref(&rule), &[]).unwrap();
    assert_eq!(RuleDocument::from(&read[0]), rule);
}

fn paths() -> impl Strategy<Value = String> {
    proptest::sample::select(vec!["/", "/a", "/a/", "/a/b", "/b/a", "/a/b/c", "/b"]).prop_map(str::to_owned)
}

fn patterns() -> impl Strategy<Value = String> {
    let patterns = vec!["/**", "/a/**", "/*", "/a/*", "/*/b", "/a", "/a/", "/a/b", "/*/**", "/a/b/**", "/b*"];
    proptest::sample::select(patterns).prop_map(str::to_owned)
}

fn methods() -> impl Strategy<Value = Vec<String>> {
    proptest::sample::subsequence(vec!["GET", "POST", "PUT"], 0..=2)
        .prop_map(|methods| methods.into_iter().map(str::to_owned).collect())
}

fn hosts() -> impl Strategy<Value = String> {
    let hosts = vec!["a.example", "b.a.example", "*.example", "*.a.example", "example"];
    proptest::sample::select(hosts).prop_map(str::to_owned)
}

prop_compose! {
    fn scopes()(host in hosts(), methods in methods(), paths in proptest::collection::vec(patterns(), 0..3)) -> RequestScope {
        scope(&host, None, &methods, &paths, &[]).unwrap()
    }
}

proptest! {
    #[test]
    fn an_accepted_rule_never_exceeds_the_ceiling(
        rule in scopes(),
        ceiling in proptest::collection::vec(scopes(), 1..4),
        host in proptest::sample::select(vec!["a.example", "b.a.example", "c.b.a.example", "example", "x.example"]),
        method in proptest::sample::select(vec!["GET", "POST", "PUT", "DELETE"]),
        path in paths(),
    ) {
        let host: HostName = host.parse().unwrap();
        // A rule without methods or paths takes those of the ceiling, which are checked for each request.
        let is_complete = !rule.methods.is_empty() && !rule.paths.is_empty();
        if is_complete && rule.fits(&ceiling) && rule.covers(&host, 443, method, &path) {
            prop_assert!(ceiling.iter().any(|scope| scope.covers(&host, 443, method, &path)));
        }
    }

    #[test]
    fn the_overlap_of_two_scopes_is_detected(
        one in scopes(),
        other in scopes(),
        host in proptest::sample::select(vec!["a.example", "b.a.example", "c.b.a.example", "example"]),
        method in proptest::sample::select(vec!["GET", "POST", "DELETE"]),
        path in paths(),
    ) {
        let host: HostName = host.parse().unwrap();
        if one.covers(&host, 443, method, &path) && other.covers(&host, 443, method, &path) {
            prop_assert!(one.overlaps(&other) && other.overlaps(&one));
        }
    }
}
