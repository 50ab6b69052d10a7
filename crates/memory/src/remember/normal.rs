//! Normalises commands and errors, so that repetitions become equal.
//!
//! Numbers, hashes, temporary names and times differ between runs; names of programs, files,
//! options and quoted words are significant. So `cargo test` failing at line 12 today and at line 14 tomorrow is one entry with a
//! count of two, and two different missing modules are two entries.

use std::collections::HashSet;

/// Longer scripts and arguments are compared by their beginning: later differences are data.
const COMMAND_CHARACTERS_MAX: usize = 2_000;

/// The command as a user would type it: `sh -c SCRIPT` becomes its script, other commands are joined and quoted if needed.
pub fn shown_command(argv: &[String]) -> String {
    if let [shell, flag, script, ..] = argv {
        let name = shell.rsplit('/').next().unwrap_or(shell);
        let runs_script = matches!(flag.as_str(), "-c" | "-lc" | "-ec" | "-ce" | "-exc" | "-lic" | "-ic");
        if matches!(name, "sh" | "bash" | "dash" | "zsh" | "ash") && runs_script {
            return script.trim().to_owned();
        }
    }
    argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+~^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The command without the parts that change between runs.
pub(super) fn normal_command(command: &str) -> String {
    let cut: String = command.chars().take(COMMAND_CHARACTERS_MAX).collect();
    let words: Vec<String> = cut.split_whitespace().map(normal_word).collect();
    words.join(" ")
}

/// The error without positions, sizes and hashes.
pub(super) fn normal_error(line: &str) -> String {
    let lower = line.trim().to_lowercase();
    let words: Vec<String> =
        lower.split_whitespace().map(normal_word).map(|word| without_digits(&word)).collect();
    words.join(" ")
}

fn normal_word(word: &str) -> String {
    let bare = word.trim_matches(|c: char| matches!(c, '"' | '\'' | '`' | ',' | ';' | '(' | ')'));
    if bare.starts_with("/tmp/") || bare.starts_with("/var/tmp/") || bare.starts_with("/dev/shm/") {
        return word.replace(bare, "/tmp/#");
    }
    if is_hash(bare) || is_time(bare) {
        return word.replace(bare, "#");
    }
    word.to_owned()
}

/// Hexadecimal of eight and more characters with a digit in it, dashes allowed: commits, digests, uuids.
fn is_hash(word: &str) -> bool {
    let hex = word.strip_prefix("0x").or_else(|| word.strip_prefix("sha256:")).unwrap_or(word);
    hex.len() >= 8
        && hex.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        && hex.bytes().any(|b| b.is_ascii_digit())
        && hex.bytes().filter(u8::is_ascii_hexdigit).count() >= 8
}

/// `12:30:45`, `2026-11-15T12:30:45.123Z` and other words of digits and their separators.
fn is_time(word: &str) -> bool {
    word.len() >= 8
        && word.bytes().filter(u8::is_ascii_digit).count() >= 6
        && word.bytes().all(|b| b.is_ascii_digit() || b":-.+TZ/".contains(&b))
}

fn without_digits(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut in_number = false;
    for c in word.chars() {
        if c.is_ascii_digit() {
            if !in_number {
                out.push('0');
            }
            in_number = true;
        } else {
            in_number = false;
            out.push(c);
        }
    }
    out
}

/// Words of an error line, the most significant group first; a line needs one word of a group.
const TELLING: &[&[&str]] = &[
    &["error:", "error[", "fatal:", "panicked at", "exception:", "err!"],
    &["error", "fatal", "exception", "panic", "traceback"],
    &[
        "not found",
        "no such file",
        "permission denied",
        "cannot ",
        "can't ",
        "could not",
        "undefined",
        "refused",
    ],
    &["failed", "failure", "invalid", "unable to", "missing", "denied", "timed out", "killed", "abort"],
];

/// The line that describes the error. Both texts are without noise already.
pub(super) fn error_line<'a>(stderr: &'a str, stdout: &'a str) -> Option<&'a str> {
    if let Some(line) = raised(stderr).or_else(|| raised(stdout)) {
        return Some(line);
    }
    for words in TELLING {
        for text in [stderr, stdout] {
            let is_error_line = |line: &&str| {
                let lower = line.to_lowercase();
                words.iter().any(|word| lower.contains(word)) && !is_tally(&lower)
            };
            if let Some(line) = text.lines().find(is_error_line) {
                return Some(line.trim());
            }
        }
    }
    let last = |text: &'a str| text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last(stderr).or_else(|| last(stdout))
}

/// The exception of a Python traceback: the first line without indentation after the frames.
fn raised(text: &str) -> Option<&str> {
    let at = text.rfind("Traceback (most recent call last):")?;
    text[at..]
        .lines()
        .skip(1)
        .find(|line| !line.is_empty() && !line.starts_with(char::is_whitespace))
        .map(str::trim)
}

/// `0 errors, 2 warnings` is a count, not an error message.
fn is_tally(lower: &str) -> bool {
    lower.contains("0 errors")
        || lower.contains("0 failed")
        || lower.contains("no error")
        || lower.contains("0 error")
}

/// The words by which two commands or errors are compared.
pub(super) fn features(text: &str) -> HashSet<String> {
    text.to_lowercase()
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))
        .map(|word| word.trim_matches(['-', '.', '_']))
        .filter(|word| word.len() >= 2)
        .map(str::to_owned)
        .collect()
}

/// The share of words that two texts have in common, 0 to 1.
pub(super) fn overlap(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    if a.is_empty() || b.is_empty() {
        return 0.0;
    }
    let common = a.intersection(b).count() as f32;
    common / (a.len() + b.len()) as f32 * 2.0
}

/// The similarity of two commands: different programs are different commands, even with many common words.
pub(super) fn command_likeness(a: &str, b: &str) -> f32 {
    if normal_command(a) == normal_command(b) {
        return 1.0;
    }
    let (first, second) = (program(a), program(b));
    if first != second {
        return 0.0;
    }
    // The same program with other arguments: the similarity is below 1.
    overlap(&features(a), &features(b)).min(0.95)
}

/// The program that a command runs: after `cd x &&`, variables, `sudo`, `env`, `time`; without its folder. `git commit` and
/// `git push` are two programs; the same applies to other tools with subcommands.
pub(super) fn program(command: &str) -> String {
    let part = command.rsplit("&&").next().unwrap_or(command);
    let part = part.split(['|', ';']).next().unwrap_or(part);
    let mut words = part.split_whitespace().filter(|word| {
        let assigns = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        !assigns && !matches!(*word, "sudo" | "env" | "time" | "nice" | "nohup" | "exec" | "command")
    });
    let Some(first) = words.next() else { return String::new() };
    let name = first.rsplit('/').next().unwrap_or(first).trim_matches(['"', '\'', '(']);
    let has_commands = matches!(
        name,
        "git"
            | "cargo"
            | "npm"
            | "pnpm"
            | "yarn"
            | "pip"
            | "pip3"
            | "uv"
            | "go"
            | "docker"
            | "podman"
            | "kubectl"
            | "apt"
            | "apt-get"
            | "dnf"
            | "apk"
            | "brew"
            | "systemctl"
            | "poetry"
            | "make"
            | "just"
            | "terraform"
            | "gh"
            | "mvn"
            | "gradle"
            | "dotnet"
            | "rustup"
            | "conda"
            | "bundle"
            | "composer"
            | "helm"
    );
    let module = matches!(name, "python" | "python3" | "node" | "ruby" | "perl" | "bash" | "sh");
    match words.find(|word| !word.starts_with('-')) {
        Some(second) if has_commands || module => format!("{name} {second}"),
        Some(_) | None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        assert_eq!(shown_command(&argv(&["bash", "-lc", " make test "])), "make test");
        assert_eq!(shown_command(&argv(&["/bin/sh", "-c", "a | b"])), "a | b");
        assert_eq!(shown_command(&argv(&["echo", "a b", "it's"])), "echo 'a b' 'it'\\''s'");
        assert_eq!(shown_command(&argv(&["sh", "run.sh"])), "sh run.sh");
        assert_eq!(shown_command(&[]), "");
    }

    #[test]
    fn varying_parts_of_commands_are_removed() {
        assert_eq!(normal_command("git  show 9fceb02d0a"), "git show #");
        assert_eq!(normal_command("python /tmp/tmpab12/x.py"), "python /tmp/#");
        assert_eq!(
            normal_error("Error at line 12: expected 3 args (0xdeadbeef01)"),
            normal_error("error at line 140: expected 4 args (0xfeedbeef02)")
        );
        assert_ne!(normal_error("no module named 'yaml'"), normal_error("no module named 'toml'"));
        assert_ne!(normal_command("make test1"), normal_command("make test2"));
    }

    #[test]
    fn the_line_that_says_what_went_wrong_is_found() {
        for (stderr, stdout, expected) in [
            (
                "warning: x\nerror[E0425]: cannot find value `y`\n --> src/a.rs:3",
                "",
                "error[E0425]: cannot find value `y`",
            ),
            (
                "Traceback (most recent call last):\n  File \"a.py\", line 1\n    import yaml\nModuleNotFoundError: No module named 'yaml'",
                "",
                "ModuleNotFoundError: No module named 'yaml'",
            ),
            ("", "FAIL src/a.test.js\n 0 errors\nmake: *** [all] Error 2", "make: *** [all] Error 2"),
            ("bash: foo: command not found", "", "bash: foo: command not found"),
            ("it did not work", "at all", "it did not work"),
        ] {
            assert_eq!(error_line(stderr, stdout), Some(expected));
        }
        assert_eq!(error_line("", " \n"), None);
    }

    #[test]
    fn programs_are_distinguished_by_subcommands() {
        for (command, expected) in [
            ("cd /x && FOO=1 cargo test -p a", "cargo test"),
            ("sudo /usr/bin/apt-get -y install x", "apt-get install"),
            ("python3 train.py --lr 1", "python3 train.py"),
            ("pytest -q tests", "pytest"),
            ("cat x | grep y", "cat"),
            ("", ""),
        ] {
            assert_eq!(program(command), expected, "{command}");
        }
        assert!(command_likeness("cargo test -p a", "cargo test -p b") > 0.5);
        assert_eq!(command_likeness("cargo test", "cargo build"), 0.0);
        assert!((command_likeness("cargo  test", "cargo test") - 1.0).abs() < f32::EPSILON);
    }
}
