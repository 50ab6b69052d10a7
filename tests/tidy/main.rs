//! Keeps the house tidy: sizes, headers, and which crate may use which.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod circles;
mod imports;
mod tasks;
mod tokens;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::imports::full_paths;
use crate::tasks::dropped_handles;
use crate::tokens::{strings_of, tokens_of, without_tests};

/// Lines of a file before its tests.
const FILE_LINES_MAX: usize = 800;

/// Which of our crates each crate may use. What is not here is not allowed: arrows point one way.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("api", &["model"]),
    ("dial", &[]),
    ("client", &["api", "dial", "model"]),
    // `burrow serve` and the helper roles live in the same binary, hence the arrow to the daemon.
    ("cli", &["api", "audit", "client", "daemon", "mcp", "model", "ssh", "trees"]),
    ("mcp", &["api", "client"]),
    ("ssh", &["api", "client"]),
    // The interfaces compile side by side: none uses another one but the gateway, which reaches into sandboxes.
    ("config", &["api", "engine", "model", "portable", "runtime"]),
    (
        "http",
        &[
            "api", "audit", "catalog", "client", "config", "dial", "disks", "egress", "engine", "guest",
            "images", "memory", "model", "network", "portable", "runtime", "trees", "vault",
        ],
    ),
    ("gateway", &["api", "audit", "catalog", "config", "engine", "http", "model"]),
    ("interpreter", &["api", "catalog", "engine", "gateway", "guest", "http", "model"]),
    (
        "rest",
        &[
            "api",
            "audit",
            "catalog",
            "config",
            "disks",
            "egress",
            "engine",
            "gateway",
            "guest",
            "http",
            "images",
            "interpreter",
            "memory",
            "model",
            "runtime",
            "ssh",
        ],
    ),
    (
        "e2b",
        &[
            "api",
            "audit",
            "catalog",
            "disks",
            "engine",
            "gateway",
            "guest",
            "http",
            "images",
            "interpreter",
            "memory",
            "model",
        ],
    ),
    // Wiring. `client` is how what the daemon serves for models asks the daemon's own API.
    (
        "daemon",
        &[
            "api", "audit", "catalog", "client", "config", "dial", "disks", "e2b", "egress", "engine",
            "gateway", "guest", "http", "mcp", "memory", "model", "network", "portable", "rest", "runtime",
            "ssh", "vault",
        ],
    ),
    (
        "engine",
        &[
            "catalog", "egress", "guest", "images", "memory", "model", "network", "portable", "runtime",
            "trees", "vault", "disks",
        ],
    ),
    ("portable", &[]),
    ("egress", &["audit", "model", "network"]),
    ("audit", &["model"]),
    ("catalog", &["model"]),
    ("memory", &["dial", "model"]),
    ("runtime", &["model", "network", "trees"]),
    ("vault", &["model"]),
    ("disks", &["model"]),
    ("network", &["model"]),
    ("guest", &["trees"]),
    ("images", &["dial"]),
    ("trees", &[]),
];

/// Files of a crate that may import each other in a circle. Such files can only be understood together.
const CIRCLE_FILES_MAX: usize = 3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                rust_files(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn every_rust_file() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for folder in ["crates", "tests"] {
        rust_files(&root().join(folder), &mut files);
    }
    assert!(files.len() > 50, "the walk found only {} files", files.len());
    files.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

/// Idioms that readers have to read twice. The usual terms of the field replace them: `is frozen`, `continues`, `recovers`, `volume`.
const IDIOMS: &[&str] = &[
    "shelf",
    "shelves",
    "for want of",
    "whoever",
    "somebody",
    "made ahead",
    "in stock",
    "stands still",
    "stand still",
    "stood still",
    "standing still",
    "goes on",
    "went on",
    "gone on",
    "goes back",
    "anew",
    "mend",
    "mends",
    "mended",
    "mending",
    "written down",
    "writes down",
    "write down",
    "is told",
    "are told",
    "was told",
    "looked at",
    "looks at",
    "lets go",
    "let go of",
    "takes hold",
    "take hold",
    "took hold",
    "what is there",
    "one that is",
    "brought in order",
    "bring in order",
    "brings in order",
    "thrown away",
    "by heart",
    "everybody",
    "anybody",
    "let through",
    "lets through",
    "look at",
    "for ever",
    "door",
    "doors",
];

/// Percent of comment lines that may contain an idiom: some are quoted, and some are the right words.
const IDIOM_PERCENT_MAX: f64 = 1.0;

fn idioms_in(text: &str) -> Vec<&'static str> {
    let text = text.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let found = |idiom: &&&str| {
        text.match_indices(**idiom)
            .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + idiom.len()..].starts_with(is_word))
    };
    IDIOMS.iter().filter(found).copied().collect()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// What users read: strings of the programs, without their tests, and the documents.
fn user_visible_text() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (path, text) in every_rust_file() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if !name.contains("/src/") || name.contains("/tests") || name.contains("conformance") {
            continue;
        }
        let code = text.split("\n#[cfg(test)]").next().unwrap();
        found.extend(strings_of(code).into_iter().map(|(line, string)| (format!("{name}:{line}"), string)));
    }
    let documents = ["docs", "docs/decisions", "sdk/python", "sdk/typescript", "examples", "."];
    for folder in documents {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md" || extension == "json") {
                let text = fs::read_to_string(&path).unwrap();
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.extend(
                    (1..)
                        .zip(text.lines())
                        .map(|(number, line)| (format!("{name}:{number}"), line.to_owned())),
                );
            }
        }
    }
    found
}

#[test]
fn users_read_plain_english() {
    let text = user_visible_text();
    assert!(text.len() > 10_000, "the walk found only {} lines", text.len());
    let found: Vec<_> = text
        .iter()
        .map(|(at, line)| (at, idioms_in(line)))
        .filter(|(_, idioms)| !idioms.is_empty())
        .map(|(at, idioms)| format!("{at}: {idioms:?}"))
        .collect();
    assert!(found.is_empty(), "use plain technical English:\n{}", found.join("\n"));
}

/// Crates whose errors also reach clients without the command line: `hints.rs` of the crate `http` names the commands that help.
const CRATES_WITHOUT_COMMANDS: &[&str] = &[
    "audit", "catalog", "dial", "disks", "egress", "engine", "guest", "images", "memory", "model", "network",
    "portable", "runtime", "trees", "vault",
];

/// Whether a text names a command of the command line.
fn names_a_command(text: &str) -> bool {
    ["`burrow ", "`sudo burrow "].iter().any(|start| text.contains(start))
}

#[test]
fn only_the_interfaces_name_commands() {
    let crate_of =
        |at: &str| at.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).map(str::to_owned);
    let below = |at: &str| crate_of(at).is_some_and(|name| CRATES_WITHOUT_COMMANDS.contains(&name.as_str()));
    let strings: Vec<_> = user_visible_text().into_iter().filter(|(at, _)| below(at)).collect();
    assert!(strings.len() > 1_000, "the walk found only {} strings", strings.len());
    let found: Vec<_> = strings
        .iter()
        .filter(|(_, string)| names_a_command(string))
        .map(|(at, string)| format!("{at}: {string}"))
        .collect();
    assert!(found.is_empty(), "name commands in the hints of the crate `http`:\n{}", found.join("\n"));
}

#[test]
fn commands_are_found_in_strings() {
    assert!(names_a_command("this host cannot do that; `burrow doctor` shows the reason"));
    assert!(names_a_command("run it as root (`sudo burrow serve`)"));
    assert!(!names_a_command("put `burrow-guest` beside `burrow`"));
}

#[test]
fn comments_are_in_plain_english() {
    let files = every_rust_file();
    let comments: Vec<_> = files
        .iter()
        .flat_map(|(path, text)| text.lines().filter(|line| is_comment(line)).map(move |line| (path, line)))
        .collect();
    let found: Vec<_> = comments
        .iter()
        .filter(|(_, line)| !idioms_in(line).is_empty())
        .map(|(path, line)| format!("{}: {}", path.display(), line.trim()))
        .collect();
    let percent = 100.0 * found.len() as f64 / comments.len() as f64;
    assert!(percent < IDIOM_PERCENT_MAX, "{percent:.2} % of comment lines:\n{}", found.join("\n"));
}

#[test]
fn the_idiom_check_finds_whole_words_only() {
    assert_eq!(idioms_in("a snapshot that is gone is told as that"), ["is told"]);
    assert_eq!(idioms_in("Whoever asks first"), ["whoever"]);
    assert!(idioms_in("a recommendation, a bookshelf, mended_at").is_empty());
}

#[test]
fn every_file_says_what_it_does() {
    let silent: Vec<_> = every_rust_file().into_iter().filter(|(_, text)| !text.starts_with("//!")).collect();
    assert!(
        silent.is_empty(),
        "no `//!` header: {:?}",
        silent.iter().map(|(path, _)| path).collect::<Vec<_>>()
    );
}

#[test]
fn no_file_outgrows_its_reader() {
    let lines = |text: &str| text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
    let large: Vec<_> = every_rust_file()
        .into_iter()
        .map(|(path, text)| (lines(&text), path))
        .filter(|(count, _)| *count > FILE_LINES_MAX)
        .collect();
    assert!(large.is_empty(), "over {FILE_LINES_MAX} lines before their tests: {large:?}");
}

#[test]
fn no_file_is_called_after_nothing() {
    for (path, _) in every_rust_file() {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            !["utils", "util", "helpers", "common", "manager", "misc"].contains(&stem),
            "{}",
            path.display()
        );
    }
}

#[test]
fn arrows_between_crates_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        // Tests may look wherever they must.
        let manifest = manifest.split("[dev-dependencies]").next().unwrap();
        let may =
            allowed.get(name.as_str()).unwrap_or_else(|| panic!("crate `{name}` is missing from ARROWS"));
        for line in manifest.lines() {
            if let Some(used) = line.strip_prefix("burrow-").and_then(|rest| rest.split(['.', ' ']).next()) {
                assert!(may.contains(&used), "`{name}` may not use `{used}`");
            }
        }
    }
}

#[test]
fn circles_of_imports_are_small() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        for circle in circles::Crate::read(&folder.join("src")).circles(CIRCLE_FILES_MAX) {
            let files: Vec<_> = circle.iter().map(|file| file.strip_prefix(root()).unwrap()).collect();
            wrong.push(format!("{} files import each other in a circle: {files:?}", files.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A call that only some files may make. Clippy's bans would need an attribute in each of these files and in every test.
#[derive(Debug)]
struct RestrictedCall {
    /// The end of its path: of an import, the name that it stands for.
    call: &'static [&'static str],
    reason: &'static str,
    /// Files, or beginnings of their paths.
    allowed: &'static [&'static str],
}

const RESTRICTED_CALLS: &[RestrictedCall] = &[
    RestrictedCall {
        call: &["SystemTime", "now"],
        reason: "take the time from a `Clock`, so that tests can set it",
        allowed: &[
            "crates/cli/src/doctor/kernel.rs",
            "crates/cli/src/print/quantity.rs",
            "crates/egress/src/clock.rs",
            "crates/engine/src/clock.rs",
            "crates/guest/src/sftp/serve.rs",
            // The age of a key that the process itself created, also while the machine was suspended.
            "crates/mcp/src/fence.rs",
            "crates/memory/src/clock.rs",
            // The time that a machine gets when it resumes is the real one.
            "crates/runtime/src/microvm/agent.rs",
            "crates/ssh/src/menu.rs",
        ],
    },
    RestrictedCall {
        call: &["std", "time", "Instant", "now"],
        reason: "use `tokio::time::Instant`, which tests can pause, unless the code blocks a thread",
        allowed: &[
            "crates/disks/src/btrfs/quota.rs",
            "crates/disks/src/dump/recent.rs",
            "crates/egress/src/clock.rs",
            "crates/engine/src/faults.rs",
            // They wait for the kernel, CRIU and QEMU, on threads of their own.
            "crates/runtime/src/container/criu/",
            "crates/runtime/src/microvm/",
        ],
    },
    RestrictedCall {
        call: &["Command", "new"],
        reason: "a program needs a clean environment and a chosen directory: use the function of the crate that starts programs",
        allowed: &[
            // Programs of the user, with the user's environment.
            "crates/cli/src/commands/",
            "crates/cli/src/doctor/program.rs",
            "crates/disks/src/command.rs",
            "crates/egress/src/supervisor/launch.rs",
            "crates/guest/src/agent/vm/warm_up.rs",
            "crates/runtime/src/container/apparmor.rs",
            "crates/runtime/src/container/probe.rs",
            "crates/runtime/src/launcher/client.rs",
            "crates/runtime/src/microvm/disk.rs",
            "crates/runtime/src/microvm/probe.rs",
            "crates/vault/src/command.rs",
        ],
    },
];

/// The files that are not for tests, each as its path from the root and its tokens without tests.
fn every_program_file() -> Vec<(String, Vec<String>)> {
    let for_tests =
        |name: &str| name.contains("/tests") || name.contains("conformance") || !name.contains("/src/");
    let named = every_rust_file().into_iter().map(|(path, text)| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, text)
    });
    let programs = named.filter(|(name, _)| !for_tests(name));
    programs.map(|(name, text)| (name, without_tests(&tokens_of(&text)))).collect()
}

#[test]
fn handles_of_tasks_are_kept_or_dropped_explicitly() {
    let found: Vec<_> = every_program_file()
        .into_iter()
        .flat_map(|(name, tokens)| {
            dropped_handles(&tokens).into_iter().map(move |call| format!("{name}: {call}"))
        })
        .collect();
    assert!(
        found.is_empty(),
        "keep the handle, use a `TaskTracker`, or write `drop(tokio::spawn(…))` with a comment that says what ends the task:\n{}",
        found.join("\n")
    );
}

#[test]
fn only_listed_files_read_clocks_or_start_programs() {
    let mut wrong = Vec::new();
    for (name, tokens) in every_program_file() {
        let paths = full_paths(&tokens);
        for restricted in RESTRICTED_CALLS {
            let call: Vec<String> = restricted.call.iter().map(|part| (*part).to_owned()).collect();
            let called = paths.iter().any(|path| path.ends_with(&call));
            if called && !restricted.allowed.iter().any(|allowed| name.starts_with(allowed)) {
                wrong.push(format!("{name} calls {}: {}", restricted.call.join("::"), restricted.reason));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_packages_of_the_sdks_have_the_version_of_the_program() {
    let line = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(fs::read_to_string(root().join("Cargo.toml")).unwrap().contains(&line));
    let expected = [
        ("sdk/python/PKG-INFO", format!("Version: {}", env!("CARGO_PKG_VERSION"))),
        ("sdk/typescript/package.json", format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"))),
    ];
    for (file, line) in expected {
        assert!(fs::read_to_string(root().join(file)).unwrap().contains(&line), "{file} lacks `{line}`");
    }
}

#[test]
fn nothing_in_the_tree_names_a_machine_or_a_registry() {
    // Written in two parts, so that this file does not find itself.
    let banned = [
        concat!("crates", ".io/api"),
        concat!("deb.", "debian.org"),
        concat!("/wo", "rk/main"),
        concat!("../sha", "red"),
    ];
    // The public hosts of package managers are data of the program there.
    let host_sets = root().join("crates/egress/src/sets.rs");
    for (path, text) in every_rust_file().into_iter().filter(|(path, _)| *path != host_sets) {
        for word in banned {
            assert!(!text.contains(word), "`{word}` in {}", path.display());
        }
    }
}
