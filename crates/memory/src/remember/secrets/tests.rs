//! What is taken for a secret, and what is not.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(scrub(text), expected);
}

#[track_caller]
fn untouched(text: &str) {
    assert_eq!(scrub(text), text);
}

/// Joins parts, so that no scanner of this repository takes an example for a leak.
fn token(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn tokens_of_known_shapes_go() {
    for secret in [
        token(&["AKIA", "IOSFODNN7EXAMPLE"]),
        token(&["ghp_", "16C7e42F292c6912E7710c838347Ae178B4a"]),
        token(&["github_pat_", "11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789"]),
        token(&["glpat-", "abc123DEF456ghi789jk"]),
        token(&["sk-", "proj-abc123DEF456ghi789jklMNO"]),
        token(&["sk-", "ant-api03-abcDEF123456_-ghi789"]),
        token(&["xoxb-", "123456789012-abcdefABCDEF"]),
        token(&["AIza", "SyA1234567890abcdefghijklmnopqrstuv"]),
        token(&["sk_live_", "4eC39HqLyjWDarjtT1zdp7dc"]),
        token(&["npm_", "abcdefghij0123456789ABCDEFGHIJ012345"]),
        token(&["hf_", "abcdefghij0123456789ABCDEFGHIJ0123"]),
        token(&[
            "eyJ",
            "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        ]),
    ] {
        check(&format!("got {secret} here"), "got [secret removed] here");
        check(&format!("\"{secret}\","), "\"[secret removed]\",");
        check(&secret, "[secret removed]");
    }
}

#[test]
fn private_keys_go_whole_cut_and_headless() {
    let label = token(&["PRIVATE", " KEY"]);
    check(
        &format!("a\n-----BEGIN RSA {label}-----\nMIIEow+/=\nabc\n-----END RSA {label}-----\nb"),
        "a\n[secret removed]\nb",
    );
    check(&format!("a\n-----BEGIN OPENSSH {label}-----\nMIIEow"), "a\n[secret removed]");
    check(&format!("output:\nMIIEow+/=\nabc\n-----END {label}-----\nb"), "output:[secret removed]\nb");
    untouched("-----BEGIN CERTIFICATE-----\nMIIEow\n-----END CERTIFICATE-----");
    untouched("-----BEGIN PUBLIC KEY-----\nMIIEow\n-----END PUBLIC KEY-----");
}

#[test]
fn passwords_in_urls_go_and_the_rest_of_the_url_stays() {
    check(
        "git clone https://bob:hunter2@example.com/a.git",
        "git clone https://bob:[secret removed]@example.com/a.git",
    );
    check("postgres://app:p%40ss@db:5432/x?y=1", "postgres://app:[secret removed]@db:5432/x?y=1");
    check(
        &format!("https://{}@example.com/", token(&["a1b2c3d4e5f6", "a7b8c9d0"])),
        "https://[secret removed]@example.com/",
    );
    untouched("https://bob@example.com/a");
    untouched("https://example.com:8080/a@b");
    untouched("postgres://app:$PASSWORD@db/x");
    untouched("see http://localhost:3000 and mail bob@example.com");
}

#[test]
fn values_after_telling_names_go() {
    for (text, expected) in [
        ("password=hunter2", "password=[secret removed]"),
        ("export DB_PASSWORD='correct horse'", "export DB_PASSWORD='[secret removed]'"),
        ("{\"password\": \"x9\", \"a\": 1}", "{\"password\": \"x9\", \"a\": 1}"),
        ("{\"password\": \"hunter2\", \"a\": 1}", "{\"password\": \"[secret removed]\", \"a\": 1}"),
        ("mysql --password hunter2 -h db", "mysql --password [secret removed] -h db"),
        (
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "AWS_SECRET_ACCESS_KEY=[secret removed]",
        ),
        ("?token=abc123def456&x=1", "?token=[secret removed]&x=1"),
        ("api_key: 5f4dcc3b5aa765d61d8327deb882cf99", "api_key: [secret removed]"),
        ("Authorization: Bearer abcdef", "Authorization: Bearer [secret removed]"),
        ("-H 'Authorization: Basic dXNlcjpwYXNz' x", "-H 'Authorization: Basic [secret removed]' x"),
        ("authorization: 0123456789abcdef", "authorization: [secret removed]"),
        ("sent Bearer 0123456789abcdef01 to it", "sent Bearer [secret removed] to it"),
        ("Cookie: a=b; sid=123", "Cookie: [secret removed]"),
        ("curl -u bob:hunter2 https://x", "curl -u bob:[secret removed] https://x"),
    ] {
        check(text, expected);
    }
}

#[test]
fn hashes_uuids_paths_and_prose_stay() {
    for text in [
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "/usr/lib/x86_64-linux-gnu/libpassword.so.1",
        "PWD=/root/project2",
        "tokens=1234 max_tokens: 4096",
        "token: String, password: &str",
        "error: password: incorrect",
        "invalid token: expected `;`",
        "let token = lexer.next_token2();",
        "password=$DB_PASSWORD token=${TOKEN} secret=<your secret>",
        "token::Kind::Number1",
        "if password == other1 { }",
        "docker run --user 1000:1000 x",
        "ASIAN food; AKIA is short",
        "disk-learning-rate-2-schedule-for-33-epochs",
        "cache_key=9fceb02d0ae598e9",
        "the secret of good tea",
        "mem2abcdefghijklmnopqrs sbx7h3kabcdefghijklmno",
        "author: Someone1234",
    ] {
        untouched(text);
    }
}

#[test]
fn scrubbing_twice_changes_nothing_more() {
    let once = scrub("password=hunter2 https://a:b1@c Authorization: Bearer abcdefgh").into_owned();
    assert_eq!(scrub(&once), once);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        scrub(&text);
    }

    #[test]
    fn pieces_of_secrets_in_any_order_never_panic_and_settle(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("password="), Just("\""), Just("'"), Just("://"), Just("@"), Just(":"), Just("-----BEGIN "),
                Just("PRIVATE KEY-----"), Just("-----END "), Just("eyJ"), Just("."), Just("Bearer "), Just("é"),
                Just("Authorization: "), Just("-u "), Just("\n"), Just("ghp_"), Just("abc123DEF456ghi789jk"), Just(" "),
            ],
            0..30,
        )
    ) {
        let text = parts.concat();
        let once = scrub(&text).into_owned();
        prop_assert!(!once.contains("ghp_abc123DEF456ghi789jkabc123DEF456ghi789jk"));
    }
}
