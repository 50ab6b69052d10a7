//! Texts that contain secrets, and texts that do not.

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

/// Joins parts, so that secret scanners do not report this file.
fn token(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn tokens_of_known_formats_are_removed() {
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
fn complete_and_truncated_private_keys_are_removed() {
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
fn passwords_in_urls_are_removed_and_the_rest_stays() {
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
fn values_after_secret_names_are_removed() {
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
fn secrets_of_public_lists_are_removed() {
    let digits = "0123456789";
    let mixed = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2g3H4";
    let hex = "9fceb02d0ae598e95dc970b74767f193";
    for secret in [
        token(&["ASIA", "Y34FZKBOKMUTVV7A"]),
        token(&["GOCSPX-", &mixed[..28]]),
        token(&["ya29.", &mixed[..60]]),
        token(&["glrt-", &mixed[..20]]),
        token(&["xoxe.xoxp-", "1-", &mixed[..40]]),
        token(&["xapp-", "1-A", digits, "-", digits, "-", &mixed[..40]]),
        token(&["rk_test_", &mixed[..24]]),
        token(&["pypi-AgE", "IcHlwaS5vcmcCJ", &mixed[..40]]),
        token(&["dckr_pat_", &mixed[..27]]),
        token(&["rubygems_", &mixed[..48]]),
        token(&["hvs.", &mixed[..24]]),
        token(&["pul-", hex, "00112233"]),
        token(&["nfp_", &mixed[..36]]),
        token(&["shpat_", hex]),
        token(&["ATATT3", "xFfGF0", &mixed[..60]]),
        token(&["NRAK-", "ABCDEF0123456789ABCDEFGHIJ0"]),
        token(&["glsa_", &mixed[..32], "_", &hex[..8]]),
        token(&["ntn_", &mixed[..46]]),
        token(&["figd_", &mixed[..40]]),
        token(&["gsk_", &mixed[..52]]),
        token(&["r8_", &mixed[..37]]),
        token(&["pplx-", &mixed[..48]]),
        token(&["tskey-", "auth-", &mixed[..30]]),
        token(&["https://discord.com/api/webhooks/", digits, digits, "/", &mixed[..60]]),
    ] {
        check(&format!("got {secret} here"), "got [secret removed] here");
        check(&format!("X='{secret}'"), "X='[secret removed]'");
    }
}

#[test]
fn secrets_in_command_lines_and_environments_are_removed() {
    for (text, expected) in [
        ("docker run -e DB_PASSWORD=hunter2 x", "docker run -e DB_PASSWORD=[secret removed] x"),
        ("env API_TOKEN=abc123def456 ./run", "env API_TOKEN=[secret removed] ./run"),
        ("export GH_TOKEN=abc123def456", "export GH_TOKEN=[secret removed]"),
        ("mysql -h db -u root -phunter2 shop", "mysql -h db -u root -p[secret removed] shop"),
        ("sudo mysqldump -p'correct horse' shop", "sudo mysqldump -p'[secret removed]' shop"),
        ("sshpass -p hunter2 ssh host", "sshpass -p [secret removed] ssh host"),
        ("cd x && docker login -u bob -p hunter2 reg", "cd x && docker login -u bob -p [secret removed] reg"),
        ("curl --proxy-user bob:hunter2 x", "curl --proxy-user bob:[secret removed] x"),
        ("vault login --token=abc123def456", "vault login --token=[secret removed]"),
        (
            "psql 'host=db user=app password=hunter2 dbname=x'",
            "psql 'host=db user=app password=[secret removed] dbname=x'",
        ),
        (
            "Server=tcp:db;Database=x;User ID=app;Password=hunter2;Encrypt=yes",
            "Server=tcp:db;Database=x;User ID=app;Password=[secret removed];Encrypt=yes",
        ),
        (
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abcd1234+/==;EndpointSuffix=x",
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=[secret removed];EndpointSuffix=x",
        ),
        ("mongodb+srv://app:hunter2@cluster/x", "mongodb+srv://app:[secret removed]@cluster/x"),
        ("amqp://app:hunter2@mq:5672//", "amqp://app:[secret removed]@mq:5672//"),
        ("redis://:hunter2@cache:6379/0", "redis://:[secret removed]@cache:6379/0"),
        ("PRIVATE-TOKEN: abc123def456", "PRIVATE-TOKEN: [secret removed]"),
        ("X-Vault-Token: abc123def456", "X-Vault-Token: [secret removed]"),
        ("//registry/:_authToken=abc123def456", "//registry/:_authToken=[secret removed]"),
        ("blob?sv=2024&sig=a1B2c3D4e5F6g7H8%3D&se=1", "blob?sv=2024&sig=[secret removed]&se=1"),
        ("\"refreshToken\":\"a1B2c3D4e5F6\"", "\"refreshToken\":\"[secret removed]\""),
        ("client_secret: a1B2c3D4", "client_secret: [secret removed]"),
    ] {
        check(text, expected);
    }
    let label = token(&["PGP PRIVATE", " KEY BLOCK"]);
    check(&format!("-----BEGIN {label}-----\n\nlQ+/=\n-----END {label}-----\nb"), "[secret removed]\nb");
}

#[test]
fn similar_looking_texts_are_not_secrets() {
    for text in [
        "d41d8cd98f00b204e9800998ecf8427e  file.txt",
        "blake3 af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        "550e8400-e29b-41d4-a716-446655440000 01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "/var/lib/docker/overlay2/9fceb02d0ae598e95dc970b74767f193/merged",
        "image@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "cp -p a b && mkdir -p build/x86_64 && ssh -p 2222 host",
        "docker run -p 8080:80 nginx",
        "docker compose -p project1 up",
        "python3 -m pytest -p no:cacheprovider",
        "mysql -h db -P 3306 -u root -p",
        "key-value-store-2024-01-01 r8_runtime pul-request pat 12 sig 11",
        "signature: fn(x: u32) -> u64",
        "cookie jar 3 of 4",
        "npm_config_cache=/root/.npm npm_lifecycle_event=build",
        "hf_hub_download hf_transfer==0.1.8",
        "v1.0-rc1 v1.0-beta.2",
        "https://discord.com/channels/123/456",
        "export PATH=/usr/local/bin:/usr/bin",
        "export EDITOR=vim TERM=xterm-256color",
        "git log --author=bob1 --pretty=format:%h",
        "Serial: 4f:3b:9a:0c:11:22:33:44",
        "tests/secrets/fixture1.rs:12:5",
        "warning: unused variable: `token2`",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA",
        "xai-org/grok-1 and key-1 to key-9",
        "EAAAAAA= AAAA",
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
        // Inside a word it is not a secret.
        let in_a_word = |at: usize| once[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let mut left = once.match_indices("ghp_abc123DEF456ghi789jkabc123DEF456ghi789jk");
        prop_assert!(left.all(|(at, _)| in_a_word(at)), "{once}");
    }
}
