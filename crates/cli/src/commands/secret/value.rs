//! Where the value of a secret comes from: never an argument, which everybody on the machine could read.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use burrow_model::{SECRET_BYTES_MAX, SecretBytes};
use clap::Args;

use crate::failure::{Failure, OrFail as _, Stop};
use crate::terminal;

#[derive(Debug, Args)]
pub(crate) struct Source {
    /// `-`: from standard input
    #[arg(value_name = "-", value_parser = dash, group = "source")]
    stdin: Option<Dash>,
    /// From a variable of this program's environment
    #[arg(long, value_name = "VARIABLE", group = "source")]
    from_env: Option<String>,
    /// From a file
    #[arg(long, value_name = "FILE", group = "source")]
    from_file: Option<PathBuf>,
    /// From what a command of the shell prints
    #[arg(long, value_name = "COMMAND", group = "source")]
    from_command: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Dash;

fn dash(text: &str) -> Result<Dash, String> {
    if text == "-" {
        return Ok(Dash);
    }
    // Not told back: it may well be the secret.
    Err("a value is never an argument; use `-`, `--from-env`, `--from-file` or `--from-command`".to_owned())
}

impl Source {
    /// As a policy file says it.
    pub(crate) fn of(from: &burrow_api::policy::SecretSource) -> Self {
        let burrow_api::policy::SecretSource { env, file, command } = from.clone();
        Self { stdin: None, from_env: env, from_file: file.map(PathBuf::from), from_command: command }
    }

    /// `whole`: the end of the last line belongs to it.
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
            bounded(io::stdin().lock()).or_fail(|| "could not read standard input".to_owned())?
        } else if io::stdin().is_terminal() {
            terminal::read_hidden(&format!("{what}: ")).or_fail(|| format!("could not read the {what}"))?
        } else {
            let failure = Failure::new("nothing says where the value comes from");
            let hint = "give `-` for standard input, `--from-env`, `--from-file` or `--from-command`";
            return Err(failure.hint(hint).into());
        };
        Ok(if whole { read } else { without_line_end(&read) })
    }
}

/// All of it, unless it is too much for a secret.
fn bounded(reader: impl Read) -> io::Result<SecretBytes> {
    // Made as large as it may become: one that grows leaves copies behind.
    let mut bytes = Vec::with_capacity(SECRET_BYTES_MAX + 2);
    reader.take(SECRET_BYTES_MAX as u64 + 2).read_to_end(&mut bytes)?;
    Ok(SecretBytes::new(bytes))
}

fn of_command(command: &str) -> Result<SecretBytes, Stop> {
    let what = || "could not run the command".to_owned();
    let mut child = Command::new("sh").args(["-c", command]).stdout(Stdio::piped()).spawn().or_fail(what)?;
    let read = child.stdout.take().map(bounded).transpose();
    let status = child.wait().or_fail(what)?;
    if !status.success() {
        return Err(Failure::new(format!("the command failed: {status}")).into());
    }
    Ok(read.or_fail(what)?.unwrap_or_else(|| SecretBytes::new(Vec::new())))
}

/// Without the end of its last line, which editors and `echo` add.
fn without_line_end(value: &SecretBytes) -> SecretBytes {
    let bytes = value.expose();
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    SecretBytes::new(bytes.strip_suffix(b"\r").unwrap_or(bytes).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Source {
        Source { stdin: None, from_env: None, from_file: None, from_command: None }
    }

    #[test]
    fn a_value_is_taken_without_the_end_of_its_line_and_a_certificate_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value");
        std::fs::write(&path, "sk-canary\r\n").unwrap();
        let source = Source { from_file: Some(path), ..nothing() };
        assert_eq!(source.read("value", false).unwrap().expose(), b"sk-canary");
        assert_eq!(source.read("value", true).unwrap().expose(), b"sk-canary\r\n");
    }

    #[test]
    fn a_command_gives_what_it_prints_and_a_failed_one_nothing() {
        let source = |command: &str| Source { from_command: Some(command.to_owned()), ..nothing() };
        assert_eq!(source("echo sk-canary").read("value", false).unwrap().expose(), b"sk-canary");
        assert!(source("echo sk-canary; exit 3").read("value", false).is_err());
    }

    #[test]
    fn too_much_is_cut_where_the_daemon_refuses_it() {
        let read = bounded(io::repeat(b'x')).unwrap();
        assert_eq!(read.expose().len(), SECRET_BYTES_MAX + 2);
    }

    #[test]
    fn a_value_as_an_argument_is_refused_and_not_told_back() {
        assert!(!dash("sk-canary").unwrap_err().contains("canary"));
        assert!(dash("-").is_ok());
    }

    #[test]
    fn a_variable_that_is_not_there_is_told_by_name() {
        let source = Source { from_env: Some("BURROW_NO_SUCH_VARIABLE".to_owned()), ..nothing() };
        let Err(Stop::Failed(failure)) = source.read("value", false) else { panic!("read") };
        assert!(failure.to_string().contains("BURROW_NO_SUCH_VARIABLE"));
    }
}
