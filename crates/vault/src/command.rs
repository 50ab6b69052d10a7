//! The sealer that runs an external program, which wraps and unwraps data keys with a KMS, an HSM or a Vault server.
//!
//! ```text
//!   PROGRAM wrap KEY     stdin: the data key in base64     stdout: the wrapped key, one line of text
//!   PROGRAM unwrap KEY   stdin: the wrapped key            stdout: the data key in base64
//! ```
//!
//! `KEY` is `secrets.sealer_key`: the program's own name of the key. After a change of this setting the new key
//! seals, and the program is still asked to unwrap with the old one. Secrets themselves are never passed to the
//! program.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use data_encoding::BASE64;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use zeroize::Zeroizing;

use crate::{DataKey, Sealer, VaultError};

/// A KMS answers within a second; interactive prompts are not supported.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Wrapped keys have a few hundred bytes.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

const PREFIX: &str = "command:";

#[derive(Debug)]
pub struct CommandSealer {
    program: PathBuf,
    key: String,
}

impl CommandSealer {
    pub fn new(program: PathBuf, key: String) -> Self {
        Self { program, key }
    }

    async fn run(
        &self,
        verb: &'static str,
        key: &str,
        input: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let failed = |source| VaultError::Command { program: self.program.clone(), verb, source };
        let mut child = tokio::process::Command::new(&self.program)
            .args([verb, key])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Error messages of the program go to the daemon's log.
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let exchange = async {
            if let Some(mut stdin) = stdin.take() {
                // If the program did not read its input, it has failed, which its exit status shows.
                let _ = stdin.write_all(input).await;
                let _ = stdin.write_all(b"\n").await;
            }
            let mut answer = Zeroizing::new(Vec::new());
            if let Some(stdout) = stdout {
                stdout.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut answer).await?;
            }
            Ok::<_, std::io::Error>((answer, child.wait().await?))
        };
        let refused = |problem| VaultError::CommandFailed { program: self.program.clone(), verb, problem };
        let (answer, status) = match tokio::time::timeout(ANSWER_TIME, exchange).await {
            Ok(done) => done.map_err(failed)?,
            Err(_) => return Err(refused("timed out")),
        };
        if !status.success() {
            return Err(refused("failed; see its error output in the daemon's log"));
        }
        let trimmed = answer.trim_ascii();
        if trimmed.is_empty() || answer.len() as u64 > ANSWER_BYTES_MAX {
            return Err(refused("printed nothing, or too much"));
        }
        Ok(Zeroizing::new(trimmed.to_vec()))
    }
}

#[async_trait]
impl Sealer for CommandSealer {
    fn key_id(&self) -> String {
        format!("{PREFIX}{}", self.key)
    }

    fn knows(&self, key_id: &str) -> bool {
        key_id.starts_with(PREFIX)
    }

    async fn wrap(&self, key: &DataKey) -> Result<Vec<u8>, VaultError> {
        let input = Zeroizing::new(BASE64.encode(key.expose()));
        Ok(self.run("wrap", &self.key, input.as_bytes()).await?.to_vec())
    }

    async fn unwrap(&self, key_id: &str, wrapped: &[u8]) -> Result<DataKey, VaultError> {
        let unknown = || VaultError::UnknownKey { key: key_id.to_owned() };
        let key = key_id.strip_prefix(PREFIX).ok_or_else(unknown)?;
        let answer = self.run("unwrap", key, wrapped).await?;
        let odd = || VaultError::CommandFailed {
            program: self.program.clone(),
            verb: "unwrap",
            problem: "printed something that is not a data key",
        };
        let bytes = Zeroizing::new(BASE64.decode(&answer).map_err(|_| odd())?);
        DataKey::from_bytes(&bytes).ok_or_else(odd)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    /// Stores every key in a directory and returns a handle, like a KMS.
    const STORE_SCRIPT: &str = r#"#!/bin/sh
        set -eu
        case "$1" in
        wrap) number=$(ls "STORE" | wc -l); cat > "STORE/$2.$number"; echo "handle $2 $number" ;;
        unwrap) read -r word key number; [ "$word" = handle ] && [ "$key" = "$2" ] && cat "STORE/$2.$number" ;;
        esac
    "#;

    fn program(directory: &Path, script: &str) -> PathBuf {
        let (path, store) = (directory.join("sealer"), directory.join("store"));
        std::fs::create_dir_all(&store).unwrap();
        std::fs::write(&path, script.trim_start().replace("STORE", store.to_str().unwrap())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    /// One test: a script that is still open for writing in this process must not be inherited by a child of a
    /// concurrent test.
    #[tokio::test]
    async fn it_meets_the_contract_and_reports_failures() {
        meets_the_contract().await;
        errors_name_the_program_and_never_its_input().await;
    }

    async fn meets_the_contract() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sealer = |directory: &Path, key: &str| {
            CommandSealer::new(program(directory, STORE_SCRIPT), key.to_owned())
        };
        let (first, again) = (sealer(own.path(), "main"), sealer(own.path(), "main"));
        crate::conformance::check(&first, &again, &sealer(other.path(), "other")).await;
    }

    async fn errors_name_the_program_and_never_its_input() {
        let directory = tempfile::tempdir().unwrap();
        let key = DataKey::generate().unwrap();
        let text = BASE64.encode(key.expose());
        for script in
            ["#!/bin/sh\nexit 1\n", "#!/bin/sh\ncat >/dev/null\n", "#!/bin/sh\nhead -c 99999 /dev/zero\n"]
        {
            let sealer = CommandSealer::new(program(directory.path(), script), "k".to_owned());
            let error = sealer.wrap(&key).await.unwrap_err();
            assert!(!format!("{error} {error:?}").contains(&text), "{error}");
            assert!(matches!(error, VaultError::CommandFailed { verb: "wrap", .. }), "{error}");
        }
        let echo = CommandSealer::new(program(directory.path(), "#!/bin/sh\ncat\n"), "k".to_owned());
        assert!(echo.unwrap("command:k", b"not a key").await.is_err());
        let absent = CommandSealer::new(directory.path().join("absent"), "k".to_owned());
        assert!(matches!(absent.wrap(&key).await, Err(VaultError::Command { .. })));
    }
}
