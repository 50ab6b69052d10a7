//! The source of a secret's value: never an argument, which every user of the machine could read.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::process::{Command, Stdio};

use burrow_model::{SECRET_BYTES_MAX, SecretBytes};

use crate::commands::prelude::*;
use crate::terminal;

#[derive(Debug, Args)]
pub(crate) struct ValueSource {
    /// `-`: read the value from standard input
    #[arg(value_name = "-", value_parser = dash, group = "source")]
    stdin: Option<Dash>,
    /// Read the value from an environment variable
    #[arg(long, value_name = "VARIABLE", group = "source")]
    from_env: Option<String>,
    /// Read the value from a file
    #[arg(long, value_name = "FILE", group = "source")]
    from_file: Option<PathBuf>,
    /// Read the value from the output of a shell command
    #[arg(long, value_name = "COMMAND", group = "source")]
    from_command: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Dash;

fn dash(text: &str) -> Result<Dash, String> {
    if text == "-" {
        return Ok(Dash);
    }
    // Not repeated in the error: it may be the secret.
    Err("a value is not accepted as an argument; use `-`, `--from-env`, `--from-file` or `--from-command`"
        .to_owned())
}

impl ValueSource {
    /// The source that a policy file declares.
    pub(crate) fn of(from: &burrow_api::policy::SecretSource) -> Self {
        let burrow_api::policy::SecretSource { env, file, command } = from.clone();
        Self { stdin: None, from_env: env, from_file: file.map(PathBuf::from), from_command: command }
    }

    /// `whole`: the final line end belongs to the value.
    pub(crate) fn read(&self, what: &str, whole: bool) -> Result<SecretBytes, Stop> {
        let read = if let Some(variable) = &self.from_env {
            std::env::var(variable).map(|text| SecretBytes::new(text.into_bytes())).map_err(|_| {
                let failure = Failure::new(format!("the variable `{variable}` is not set, or not text"));
                Stop::from(failure.hint("`export` it, or give another source"))
            })?
        } else if let Some(path) = &self.from_file {
            let file = File::open(path).and_then(bounded);
            file.or_fail(|| format!("could not read `{}`", path.display()))?
        } else if let Some(command) = &self.from_command {
            of_command(command)?
        } else if self.stdin.is_some() {
            bounded(io::stdin().lock()).or_fail("could not read standard input")?
        } else if io::stdin().is_terminal() {
            terminal::read_hidden(&format!("{what}: ")).or_fail(|| format!("could not read the {what}"))?
        } else {
            return fail(
                "no source of the value was given",
                "give `-` for standard input, `--from-env`, `--from-file` or `--from-command`",
            );
        };
        Ok(if whole { read } else { without_line_end(&read) })
    }
}

/// Reads everything, up to the maximum size of a secret.
fn bounded(reader: impl Read) -> io::Result<SecretBytes> {
    // Allocated at its maximum size, since a buffer that grows leaves copies in memory.
    let mut bytes = Vec::with_capacity(SECRET_BYTES_MAX + 2);
    reader.take(SECRET_BYTES_MAX as u64 + 2).read_to_end(&mut bytes)?;
    Ok(SecretBytes::new(bytes))
}

fn of_command(command: &str) -> Result<SecretBytes, Stop> {
    let what = "could not run the command";
    let mut child = Command::new("sh").args(["-c", command]).stdout(Stdio::piped()).spawn().or_fail(what)?;
    let read = child.stdout.take().map(bounded).transpose();
    let status = child.wait().or_fail(what)?;
    if !status.success() {
        return Err(Failure::new(format!("the command failed: {status}")).into());
    }
    Ok(read.or_fail(what)?.unwrap_or_else(|| SecretBytes::new(Vec::new())))
}

/// Without the final line end, which editors and `echo` add.
fn without_line_end(value: &SecretBytes) -> SecretBytes {
    let bytes = value.expose();
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    SecretBytes::new(bytes.strip_suffix(b"\r").unwrap_or(bytes).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> ValueSource {
        ValueSource { stdin: None, from_env: None, from_file: None, from_command: None }
    }

    #[test]
    fn a_value_is_read_without_its_final_line_end_and_a_certificate_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value");
        std::fs::write(&path, "sk-canary\r\n").unwrap();
        let source = ValueSource { from_file: Some(path), ..nothing() };
        assert_eq!(source.read("value", false).unwrap().expose(), b"sk-canary");
        assert_eq!(source.read("value", true).unwrap().expose(), b"sk-canary\r\n");
    }

    #[test]
    fn a_command_gives_its_output_and_a_failed_one_nothing() {
        let source = |command: &str| ValueSource { from_command: Some(command.to_owned()), ..nothing() };
        assert_eq!(source("echo sk-canary").read("value", false).unwrap().expose(), b"sk-canary");
        assert!(source("echo sk-canary; exit 3").read("value", false).is_err());
    }

    #[test]
    fn a_large_value_is_truncated_above_the_limit_of_the_daemon() {
        let read = bounded(io::repeat(b'x')).unwrap();
        assert_eq!(read.expose().len(), SECRET_BYTES_MAX + 2);
    }

    #[test]
    fn a_value_as_an_argument_is_rejected_and_not_repeated() {
        assert!(!dash("sk-canary").unwrap_err().contains("canary"));
        assert!(dash("-").is_ok());
    }

    #[test]
    fn a_missing_variable_is_named() {
        let source = ValueSource { from_env: Some("BURROW_NO_SUCH_VARIABLE".to_owned()), ..nothing() };
        let Err(Stop::Failed(failure)) = source.read("value", false) else { panic!("read") };
        assert!(failure.to_string().contains("BURROW_NO_SUCH_VARIABLE"));
    }
}
