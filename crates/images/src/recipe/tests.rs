//! Parsing build files, and their errors.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;

use super::*;
use crate::Digest;

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

const STEPS: &str = r#"
base: debian
steps:
  - packages: [nodejs, npm]
  - copy: { from: app, to: /srv/app, owner: "www-data:www-data", mode: "0644" }
  - run: npm ci && npm test
  - run: [node, --version]
  - env: { NODE_ENV: production }
  - user: www-data
  - workdir: /srv/app
  - entrypoint: [/init]
  - cmd: [node, server.js]
  - labels: { org.example.team: agents }
"#;

#[test]
fn every_step_is_parsed_in_order() {
    let recipe = parse(STEPS).unwrap();
    assert_eq!(recipe.base, "debian");
    let pair = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    assert_eq!(
        recipe.steps,
        [
            Step::Packages(strings(&["nodejs", "npm"])),
            Step::Copy(Copy {
                from: "app".to_owned(),
                to: "/srv/app".to_owned(),
                owner: Some("www-data:www-data".to_owned()),
                mode: Some(0o644),
            }),
            Step::Run(Run::Shell("npm ci && npm test".to_owned())),
            Step::Run(Run::Argv(strings(&["node", "--version"]))),
            Step::Env(pair("NODE_ENV", "production")),
            Step::User("www-data".to_owned()),
            Step::Workdir("/srv/app".to_owned()),
            Step::Entrypoint(strings(&["/init"])),
            Step::Cmd(strings(&["node", "server.js"])),
            Step::Labels(pair("org.example.team", "agents")),
        ]
    );
}

#[test]
fn the_short_form_has_the_documented_order() {
    let recipe = parse(
        "user: app\nrun: make\ncopy:\n  - { from: a, to: /a }\n  - { from: b, to: /b }\n\
         packages: [make]\nenv: { A: b }\nbase: registry.example.com/org/app:v1\n",
    )
    .unwrap();
    let kinds: Vec<&str> = recipe
        .steps
        .iter()
        .map(|step| match step {
            Step::Packages(_) => "packages",
            Step::Copy(_) => "copy",
            Step::Run(_) => "run",
            Step::Env(_) => "env",
            Step::User(_) => "user",
            Step::Workdir(_)
            | Step::Entrypoint(_)
            | Step::Cmd(_)
            | Step::Labels(_)
            | Step::Command(_)
            | Step::CopyTree(_)
            | Step::Expose(_) => "other",
        })
        .collect();
    assert_eq!(kinds, ["packages", "copy", "copy", "run", "env", "user"]);
    assert_eq!(parse("base: debian").unwrap().steps, []);
}

#[test]
fn numbers_are_accepted_as_text() {
    let recipe =
        parse("base: debian\ncopy: { from: a, to: /a, mode: 0640, owner: 33 }\nenv: { V: 1.10, Y: yes }")
            .unwrap();
    let Step::Copy(copy) = &recipe.steps[0] else { panic!("{recipe:?}") };
    assert_eq!((copy.mode, copy.owner.as_deref()), (Some(0o640), Some("33")));
    let text = |value: &str| value.to_owned();
    assert_eq!(
        recipe.steps[1],
        Step::Env(BTreeMap::from([(text("V"), text("1.10")), (text("Y"), text("yes"))]))
    );
}

#[track_caller]
fn check_refused(text: &str, line: Option<usize>, word: &str) {
    let error = parse(text).unwrap_err();
    let ImageError::Recipe { line: found, ref reason } = error else { panic!("{error}") };
    assert_eq!(found, line, "{reason}");
    assert!(reason.contains(word), "{reason}");
    assert!(error.hint().is_some());
}

#[test]
fn errors_contain_the_line() {
    check_refused(
        "base: debian\nsteps:\n  - packages: [a]\n  - copi: { from: a, to: /a }\n",
        Some(4),
        "copi",
    );
    check_refused("base: debian\nfrom: x\n", Some(2), "from");
    check_refused("base: debian\nsteps:\n  - packages: [a]\n    run: x\n", Some(3), "exactly one key");
    check_refused("base: debian\nsteps:\n  - run: x\n  - packages: [--x]\n", Some(4), "package name");
    check_refused("base: debian\nworkdir: srv\n", Some(2), "begins with `/`");
    check_refused("base: debian\nenv: { A: [1] }\n", Some(2), "expected a string");
    check_refused(
        "base: debian\nsteps:\n  - copy: { from: ../x, to: /a }\n",
        Some(3),
        "below the build file",
    );
    check_refused("base: debian\ncopy: { from: x, to: /a, mode: \"0999\" }\n", Some(2), "octal");
    check_refused("base: debian\nuser: a b\n", Some(2), "user");
    check_refused("base: debian\nrun: \"\"\n", Some(2), "empty");
    assert!(parse("base: debian\nrun: []\n").is_err());
    check_refused("base: debian\nsteps: []\nrun: x\n", None, "with `steps`");
    check_refused("base: \"Not A Name\"\n", None, "base");
    check_refused(&format!("base: debian\nsteps:\n{}", "  - run: x\n".repeat(257)), None, "256 steps");
    check_refused(&" ".repeat(300_000), None, "256 KiB");
    assert!(parse("").is_err());
    assert!(parse("base: debian\nbase: alpine\n").is_err());
    assert!(parse("base: debian\ncopy: { from: x, to: /a/../b }\n").is_err());
}

#[test]
fn a_key_depends_on_every_input_of_the_step() {
    let base = base_key("sha256:1");
    let step = |text: &str| parse(&format!("base: x\nsteps:\n  - {text}\n")).unwrap().steps.remove(0);
    let texts = [
        "run: a b",
        "run: [a, b]",
        "run: [a b]",
        "cmd: [a, b]",
        "cmd: [ab]",
        "entrypoint: [a, b]",
        "packages: [a, b]",
        "packages: [ab]",
        "env: { a: b }",
        "labels: { a: b }",
        "user: a",
        "workdir: /a",
        "copy: { from: a, to: /a }",
        "copy: { from: a, to: /a, owner: a }",
        "copy: { from: a, to: /a, mode: \"1\" }",
    ];
    let mut keys: Vec<StepKey> = texts.iter().map(|text| key(base, &step(text), None)).collect();
    keys.push(base);
    keys.push(key(base_key("sha256:2"), &step("run: a b"), None));
    keys.push(key(base, &step("copy: { from: a, to: /a }"), Some(Digest::of(b"1"))));
    keys.push(key(base, &step("copy: { from: a, to: /a }"), Some(Digest::of(b"2"))));
    keys.push(key(key(base, &step("run: a b"), None), &step("run: a b"), None));
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all);
    assert_eq!(key(base, &step("run: a b"), None), key(base, &step("run: \"a b\""), None));
}

#[test]
fn the_content_hash_covers_the_copied_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("app/sub")).unwrap();
    fs::write(at("app/file"), "text").unwrap();
    symlink("/etc/passwd", at("app/link")).unwrap();
    let hash = |from: &str| content_hash(folder.path(), from).unwrap();
    let before = hash("app");
    assert_eq!(before, hash("./app/"));
    assert_ne!(before, hash("."));
    // A new time changes nothing; content, mode, names and links do.
    let file = fs::File::options().write(true).open(at("app/file")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(before, hash("app"));
    let changes: [&dyn Fn(); 4] = [
        &|| fs::write(at("app/file"), "TEXT").unwrap(),
        &|| fs::set_permissions(at("app/file"), fs::Permissions::from_mode(0o755)).unwrap(),
        &|| fs::rename(at("app/file"), at("app/elif")).unwrap(),
        &|| {
            fs::remove_file(at("app/link")).unwrap();
            symlink("/etc/group", at("app/link")).unwrap();
        },
    ];
    let mut last = before;
    for change in changes {
        change();
        let now = hash("app");
        assert_ne!(now, last);
        last = now;
    }
}

#[test]
fn content_outside_of_the_directory_is_inaccessible() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("context")).unwrap();
    fs::write(folder.path().join("secret"), "x").unwrap();
    symlink("..", folder.path().join("context/up")).unwrap();
    symlink("/etc", folder.path().join("context/etc")).unwrap();
    let context = folder.path().join("context");
    for from in ["../secret", "up/secret", "etc/passwd", "missing"] {
        assert!(content_hash(&context, from).is_err(), "{from}");
    }
    // The link itself may be copied, as a link.
    assert!(content_hash(&context, "up").is_ok());
    rustix::fs::mknodat(
        rustix::fs::CWD,
        context.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert!(content_hash(&context, "fifo").is_err());
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "(base: a\n)?(steps:\n)?[ -~\n\\x00]{0,60}") {
        let _ = parse(&text);
    }
}
