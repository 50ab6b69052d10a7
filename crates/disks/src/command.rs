//! Runs programs of the host: clean environment, bounded message on failure.

use std::process::{Command, Stdio};

use crate::DiskError;

/// Where system programs are looked for, whatever the daemon's own environment says.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How much of a failed program's output goes into an error: the end, where programs report the cause.
const MESSAGE_BYTES_MAX: usize = 2000;

/// A command with nothing of the daemon's environment except the settings that a proxy or a mirror needs.
pub(crate) fn command(program: &str) -> Command {
    const KEPT: [&str; 8] = [
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "TMPDIR",
        "SSL_CERT_FILE",
    ];
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", "/root")
        .stdin(Stdio::null());
    for name in KEPT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// The path of a program, if it is installed.
pub(crate) fn find(program: &str) -> Option<std::path::PathBuf> {
    SEARCH_PATH
        .split(':')
        .map(|folder| std::path::Path::new(folder).join(program))
        .find(|path| path.is_file())
}

/// Runs to the end and returns standard output.
pub(crate) fn run(command: &mut Command) -> Result<String, DiskError> {
    let shown = shown(command);
    let output = command.output().map_err(|source| DiskError::Step {
        step: "start the program",
        what: shown.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    let message = format!("{} ({})", tail(&String::from_utf8_lossy(said)), output.status);
    Err(DiskError::Command { command: shown, message })
}

/// A command as a user would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// The end of a long text, cut at a character.
pub(crate) fn tail(text: &str) -> &str {
    let text = text.trim();
    let mut start = text.len().saturating_sub(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_is_quoted_with_its_own_words() {
        let error = run(command("sh").args(["-c", "echo it broke >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("it broke") && error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn a_long_message_keeps_its_end() {
        let text = "é".repeat(5000) + "the reason";
        assert!(tail(&text).len() <= MESSAGE_BYTES_MAX && tail(&text).ends_with("the reason"));
    }
}
