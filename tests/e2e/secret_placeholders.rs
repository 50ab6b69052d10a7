//! Placeholders: a fake key inside, the real one outside. It is replaced in its credential position towards its host, and
//! blocked anywhere else.
//!
//! `secret_clients` tests the SDKs that require such a key.

use serde_json::Value;

use crate::harness::{Daemon, eventually, run};
use crate::island;
use crate::upstream::{Upstream, secret_of};

const CHAT: &str = "https://openai.example/v1/chat/completions";

/// A program that reads its key from the environment at its start, and sends a request whenever it is told to.
const HOLDER: &str = r#"
import os, socket, time, urllib.error, urllib.request
key, done = os.environ["OPENAI_API_KEY"], 0
while True:
    try: asked = int(open("/root/asked").read() or 0)
    except FileNotFoundError: asked = 0
    if asked == done:
        time.sleep(0.01)
        continue
    request = urllib.request.Request("https://openai.example/v1/chat/completions", b"{}", {"Authorization": "Bearer " + key})
    try: status = urllib.request.urlopen(request, timeout=50).status
    except urllib.error.HTTPError as error: status = error.code
    except Exception as error: status = error
    with open("/root/told.new", "w") as file: file.write(f"{asked} {status}")
    os.rename("/root/told.new", "/root/told")
    done = asked
"#;

/// The status of a request by a shell line whose `$K` is the placeholder.
#[track_caller]
fn call(daemon: &Daemon, sandbox: &str, arguments: &str) -> String {
    let line = format!(
        "K=\"$OPENAI_API_KEY\"; curl -sS --max-time 60 -o /tmp/answer -w '%{{http_code}}' {arguments} 2>&1; echo; cat /tmp/answer; rm -f /tmp/answer"
    );
    let said = daemon.sh(sandbox, &line);
    assert!(!said.contains(&secret_of("openai")), "{said}");
    // On failure, curl's own message is printed in its place.
    said.lines().next().unwrap_or_default().to_owned()
}

/// The status of one more request of the program above.
fn ask_holder(daemon: &Daemon, sandbox: &str, turn: u64) -> String {
    daemon.sh(sandbox, &format!("echo {turn} > /root/asked.new && mv /root/asked.new /root/asked"));
    eventually("the program to have called", || {
        let told = daemon.sh(sandbox, "cat /root/told 2>/dev/null || true");
        told.strip_prefix(&format!("{turn} ")).map(str::to_owned)
    })
}

fn alarms(daemon: &Daemon) -> Vec<Value> {
    let listed = daemon.json(&["audit", "ls", "--json"]);
    let all = listed.as_array().unwrap_or_else(|| panic!("{listed}"));
    all.iter().filter(|event| event["action"] == "egress.alarm").cloned().collect()
}

#[test]
fn a_placeholder_is_replaced_towards_its_host_and_blocked_anywhere_else() {
    if !island::landed(
        "secret_placeholders::a_placeholder_is_replaced_towards_its_host_and_blocked_anywhere_else",
    ) {
        return;
    }
    let upstream = Upstream::serve();
    let daemon = Daemon::start_with(&upstream.config());
    daemon.create("alpha");
    upstream.grant(&daemon, &["openai", "curl"], &["alpha"]);
    let fake = daemon.sh("alpha", "printenv OPENAI_API_KEY");
    let random = fake.strip_prefix("sk-proj-").unwrap_or_else(|| panic!("{fake}"));
    assert!(random.len() >= 40 && random.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{fake}");

    assert_eq!(call(&daemon, "alpha", &format!("-H \"Authorization: Bearer $K\" -d '{{}}' {CHAT}")), "200");
    let seen = upstream.seen_by("openai").pop().unwrap();
    assert_eq!(seen.credential(), format!("Bearer {}", secret_of("openai")));
    assert!(!format!("{:?}", upstream.seen()).contains(random), "the fake stays inside");

    // Outside its credential position, and towards another allowed host.
    let before = upstream.seen().len();
    let elsewhere = [
        format!("-H \"X-Else: $K\" -d '{{}}' {CHAT}"),
        format!("-H \"X-Else: Basic $(printf 'u:%s' \"$K\" | base64 -w0)\" -d '{{}}' {CHAT}"),
        format!("-d '{{}}' \"{CHAT}?key=$K\""),
        format!("-d \"{{\\\"key\\\": \\\"$K\\\"}}\" {CHAT}"),
        format!("-F \"key=$K\" {CHAT}"),
        "-H \"Authorization: Bearer $K\" https://curl.example/a".to_owned(),
        "-d \"$K\" https://curl.example/a".to_owned(),
        "\"https://curl.example/$K\"".to_owned(),
        "\"https://curl.example/a?k=$(printf %s \"$K\" | tr a-z A-Z)\"".to_owned(),
    ];
    for arguments in &elsewhere {
        assert_eq!(call(&daemon, "alpha", arguments), "403", "{arguments}");
    }
    // A request whose body contains it may have started: it must have got no answer.
    let leaked = upstream.seen().split_off(before);
    assert!(!format!("{leaked:?}").contains(random), "{leaked:?}");
    let found = eventually("every one of them in the audit log", || {
        Some(alarms(&daemon)).filter(|alarms| alarms.len() >= elsewhere.len())
    });
    for alarm in &found {
        assert_eq!(alarm["outcome"], "denied", "{alarm}");
        assert!(!alarm.to_string().contains(&secret_of("openai")), "{alarm}");
    }
    // A refusal is reported to the client, also in the middle of sending a request.
    daemon.sh("alpha", "head -c 700000 /dev/zero | tr '\\0' a > /tmp/long");
    for version in ["--http1.1", "--http2"] {
        for _ in 0..5 {
            let arguments = format!("{version} -H \"X-Else: $K\" --data-binary @/tmp/long {CHAT}");
            assert_eq!(call(&daemon, "alpha", &arguments), "403", "{version}");
        }
    }
    // Control: the same requests without the placeholder are allowed.
    assert_eq!(call(&daemon, "alpha", "-d hello https://curl.example/a"), "200");
    assert_eq!(call(&daemon, "alpha", &format!("-H 'X-Else: y' -d '{{}}' '{CHAT}?key=z'")), "200");
}

#[test]
fn a_fork_keeps_its_processes_placeholders_and_has_its_own_grants() {
    if !island::landed("secret_placeholders::a_fork_keeps_its_processes_placeholders_and_has_its_own_grants")
    {
        return;
    }
    let upstream = Upstream::serve();
    let daemon = Daemon::start_with(&upstream.config());
    daemon.create("alpha");
    daemon.create("stranger");
    upstream.grant(&daemon, &["openai", "curl"], &["alpha", "stranger"]);
    let fake = daemon.sh("alpha", "printenv OPENAI_API_KEY");
    assert_ne!(daemon.sh("stranger", "printenv OPENAI_API_KEY"), fake, "another lineage has another");
    let written = daemon.fed(&["files", "write", "alpha", "/root/holder.py"], HOLDER.as_bytes());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    daemon.ok(&["exec", "-d", "alpha", "--", "python3", "/root/holder.py"]);
    assert_eq!(ask_holder(&daemon, "alpha", 1), "200");

    daemon.ok(&["fork", "alpha", "--name", "beta"]);
    assert_eq!(daemon.sh("beta", "printenv OPENAI_API_KEY"), fake, "its processes hold it already");
    for (turn, sandbox) in [(2, "alpha"), (3, "beta")] {
        assert_eq!(ask_holder(&daemon, sandbox, turn), "200", "{sandbox}");
    }

    // From here on, parent and child have their own grants: the child's is revoked, and the parent continues.
    upstream.grant(&daemon, &["curl"], &["beta"]);
    eventually("the child's rules to be in force", || (status_of(&daemon, "beta") != "200").then_some(()));
    assert_eq!(ask_holder(&daemon, "alpha", 5), "200");
    upstream.grant(&daemon, &["openai", "curl"], &["beta"]);
    eventually("the child to have it again", || (call(&daemon, "beta", &with_key()) == "200").then_some(()));

    // A rotated value applies to running processes, in parent and child, with the placeholder they already have.
    let rotated = "rotated+55ad20/11fe83=real";
    let mut rotate = daemon.command(&["secret", "rotate", "openai", "--from-env", "NEW"]);
    run(rotate.env("NEW", rotated));
    upstream.expect("openai", rotated);
    for (turn, sandbox) in [(100, "alpha"), (200, "beta")] {
        let mut turn = turn;
        eventually("the new value to be used", || {
            turn += 1;
            (ask_holder(&daemon, sandbox, turn) == "200").then_some(())
        });
        assert_eq!(daemon.sh(sandbox, "printenv OPENAI_API_KEY"), fake, "it is still called the same");
    }

    // The same after a sleep.
    daemon.ok(&["hibernate", "beta"]);
    assert_eq!(ask_holder(&daemon, "beta", 300), "200");

    daemon.ok(&["secret", "rm", "openai", "--force"]);
    eventually("what needs it to be refused", || {
        (call(&daemon, "alpha", &with_key()) == "403").then_some(())
    });
    assert_eq!(ask_holder(&daemon, "alpha", 400), "403");
}

fn with_key() -> String {
    format!("-H \"Authorization: Bearer $K\" -d '{{}}' {CHAT}")
}

/// The status of a request whose connection may be cut.
fn status_of(daemon: &Daemon, sandbox: &str) -> String {
    let line = format!("curl -s --max-time 60 -o /dev/null -w '%{{http_code}}' -d '{{}}' {CHAT}; true");
    daemon.sh(sandbox, &line)
}
