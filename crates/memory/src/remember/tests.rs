//! Entries for execs: which are recorded, with which text, and which count as repetitions.

use burrow_model::RememberMode;
use proptest::prelude::*;

use super::exec::{ExecFacts, Outcome, exec_entry, shape};

pub(super) fn facts(command: &str, exit_code: i32, stderr: &str) -> ExecFacts {
    ExecFacts {
        exec: None,
        command: vec!["sh".to_owned(), "-c".to_owned(), command.to_owned()],
        exit_code: Some(exit_code),
        signal: None,
        duration_ms: 1_234,
        stdout_tail: String::new(),
        stderr_tail: stderr.to_owned(),
        files_changed: Vec::new(),
        user: Some("root".to_owned()),
        workdir: Some("/srv".to_owned()),
        at_ms: 1_794_745_845_000,
        earlier: Vec::new(),
        secrets: Vec::new(),
    }
}

#[test]
fn a_failure_becomes_an_entry_with_its_error_and_stays_open() {
    let entry = exec_entry(
        &facts("cargo test", 101, "\u{1b}[31merror[E0425]\u{1b}[0m: cannot find `y`"),
        RememberMode::Errors,
    )
    .unwrap();
    assert_eq!(entry.kind, "error");
    assert_eq!(entry.text, "$ cargo test\nexit code 101 after 1.2 s in /srv\nerror[E0425]: cannot find `y`");
    assert_eq!(entry.metadata["open"], true);
    assert_eq!(entry.metadata["exit_code"], 101);
    assert_eq!(entry.metadata["error"], "error[E0425]: cannot find `y`");
    assert!(entry.importance > 0.5);
    assert_eq!(entry.at_ms, Some(1_794_745_845_000));
}

#[test]
fn the_mode_and_the_exec_determine_whether_it_is_kept() {
    for (command, code, mode, kept) in [
        ("make", 2, RememberMode::Off, false),
        ("make", 2, RememberMode::Errors, true),
        ("make", 2, RememberMode::All, true),
        ("make", 0, RememberMode::Errors, false),
        ("make", 0, RememberMode::All, true),
        ("ls -la", 0, RememberMode::All, false),
        ("ls missing", 2, RememberMode::All, true),
        ("cd /x", 0, RememberMode::All, false),
        ("pwd", 0, RememberMode::All, false),
        ("true", 0, RememberMode::All, false),
        ("echo x > config", 0, RememberMode::All, true),
        ("grep -q x file", 1, RememberMode::Errors, false),
        ("false", 1, RememberMode::Errors, false),
    ] {
        assert_eq!(exec_entry(&facts(command, code, ""), mode).is_some(), kept, "{command} {code} {mode:?}");
    }
}

#[test]
fn an_interrupted_exec_did_not_fail() {
    let ended = |signal: &str| ExecFacts {
        exit_code: None,
        signal: Some(signal.to_owned()),
        ..facts("npm start", 0, "")
    };
    assert_eq!(shape(&ended("SIGINT")).outcome, Outcome::Neither);
    assert_eq!(shape(&ended("SIGTERM")).outcome, Outcome::Neither);
    assert_eq!(shape(&ended("SIGKILL")).outcome, Outcome::Failed);
    assert_eq!(shape(&ended("SIGSEGV")).outcome, Outcome::Failed);
    assert_eq!(shape(&facts("x", 130, "")).outcome, Outcome::Neither);
}

#[test]
fn repetitions_have_the_same_key_and_other_outcomes_another() {
    let key = |command: &str, code: i32, stderr: &str| {
        exec_entry(&facts(command, code, stderr), RememberMode::All).unwrap().key
    };
    let first = key("cargo  test", 101, "error at line 12: bad");
    assert_eq!(first, key("cargo test", 101, "error at line 99: bad"));
    assert_ne!(first, key("cargo test", 101, "error at line 12: worse"));
    assert_ne!(first, key("cargo test", 0, ""));
    assert_ne!(first, key("cargo build", 101, "error at line 12: bad"));
}

#[test]
fn secrets_are_gone_from_every_part() {
    let mut facts = facts(
        "curl -H 'Authorization: Bearer abc123def456' https://u:hunter2@x",
        22,
        "error: token=abc123def456 refused",
    );
    facts.stdout_tail = "password=hunter2".to_owned();
    facts.files_changed = vec!["/etc/password=hunter2".to_owned()];
    let entry = exec_entry(&facts, RememberMode::All).unwrap();
    let all = format!("{} {}", entry.text, serde_json::to_string(&entry.metadata).unwrap());
    assert!(!all.contains("hunter2") && !all.contains("abc123def456"), "{all}");
}

#[test]
fn files_that_changed_are_named_and_counted() {
    let mut facts = facts("make", 0, "");
    facts.files_changed = (0..40).map(|n| format!("src/{n}.rs")).collect();
    let entry = exec_entry(&facts, RememberMode::All).unwrap();
    assert!(entry.text.ends_with("src/11.rs and 28 more"), "{}", entry.text);
    assert_eq!(entry.metadata["files"].as_array().unwrap().len(), 40);
}

#[test]
fn a_huge_output_leaves_its_error_and_its_end() {
    let mut noise: String =
        (0..20_000).map(|n| format!("step {n} of something long enough to matter\n")).collect();
    noise.push_str("last words");
    let stderr = format!("{noise}\nfatal: the one error\n{}last words", "x y z\n".repeat(10));
    let entry = exec_entry(&facts("build", 1, &stderr), RememberMode::Errors).unwrap();
    assert!(entry.text.contains("fatal: the one error"));
    assert!(entry.text.contains("last words"));
    assert!(entry.text.len() < 4_000, "{}", entry.text.len());
}

proptest! {
    #[test]
    fn any_exec_becomes_an_entry_within_the_limits(
        command in "\\PC{0,300}", out in "[\\x00-\\x7fé█\r\n%]{0,2000}", code in proptest::option::of(0i32..256)
    ) {
        let mut facts = facts(&command, 1, &out);
        facts.exit_code = code;
        facts.stdout_tail = out;
        if let Some(entry) = exec_entry(&facts, RememberMode::All) {
            prop_assert!(entry.text.len() <= crate::limits::TEXT_BYTES_MAX);
            prop_assert!(entry.text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
            prop_assert!(serde_json::to_string(&entry.metadata).unwrap().len() <= crate::limits::METADATA_BYTES_MAX);
        }
    }
}

#[test]
fn a_secret_of_the_environment_is_gone_wherever_it_is_repeated() {
    let env = [
        ("DB_PASSWORD", "correct-horse"),
        ("API_TOKEN", "tr0ub4dor"),
        ("EDITOR", "emacs-nox"),
        ("PIN_SECRET", "no"),
    ];
    let env: Vec<(String, String)> = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let secrets = super::secret_values(env.iter().map(|(name, value)| (name, value)));
    assert_eq!(secrets, ["correct-horse", "tr0ub4dor"]);
    let stderr = "error: login as app with correct-horse failed, emacs-nox is fine";
    let failed = ExecFacts { secrets, ..facts("connect tr0ub4dor db", 1, stderr) };
    let text = exec_entry(&failed, RememberMode::Errors).unwrap().text;
    assert!(!text.contains("correct-horse") && !text.contains("tr0ub4dor"), "{text}");
    assert!(text.contains("emacs-nox") && text.contains("login as app"), "{text}");
}
