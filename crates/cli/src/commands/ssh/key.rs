//! `burrow ssh-key`: the public keys that may log in.

use burrow_api::{AddSshKey, SshKey};

use crate::commands::prelude::*;
use crate::transfer::input::read_text;

/// A public key is a line.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// The usual paths of the user's keys, best first.
const USUAL: [&str; 2] = [".ssh/id_ed25519.pub", ".ssh/id_ecdsa.pub"];

/// Manage public keys for SSH logins
///
/// An SSH key has the rights of the API key that it was added with, for as long as that API key is valid.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow ssh-key add                                  your own, from ~/.ssh
  burrow ssh-key add ada.pub --name ada
  ssh-add -L | head -1 | burrow ssh-key add -
  burrow ssh-key rm ada")]
pub(crate) enum SshKeyCommand {
    /// Add a public key
    Add {
        /// File with the key; `-` for standard input
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: Option<PathBuf>,
        /// Name of the key; its comment by default
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// List keys
    Ls {
        #[command(flatten)]
        format: Format,
    },
    /// Remove keys, and close the connections that use them
    Rm {
        /// Ids or names
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
}

pub(crate) async fn run(ctx: &Context, command: SshKeyCommand) -> Result<(), Stop> {
    let client = ctx.client()?;
    match command {
        SshKeyCommand::Add { file, name, format } => {
            let public_key = read(file)?;
            let added = client.add_ssh_key(&AddSshKey { public_key, name }).await;
            let added = added.or_fail("could not add the key")?;
            format.show(&added, |added| print::line(&added.id))
        }
        SshKeyCommand::Ls { format } => {
            let keys = client.ssh_keys().await.or_fail("could not list SSH keys")?;
            format.table(&["ID", "NAME", "FINGERPRINT", "API KEY", "AGE", "LAST USED"], &keys, row)
        }
        SshKeyCommand::Rm { keys } => {
            for key in keys {
                client.remove_ssh_key(&key).await.or_fail(|| format!("could not remove SSH key `{key}`"))?;
            }
            Ok(())
        }
    }
}

fn read(file: Option<PathBuf>) -> Result<String, Stop> {
    let file = file.map_or_else(usual, Ok)?;
    read_text(&file, FILE_BYTES_MAX).or_fail(|| format!("could not read `{}`", file.display()))
}

fn usual() -> Result<PathBuf, Stop> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let found = USUAL.iter().map(|name| home.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let hint = "`ssh-keygen -t ed25519` creates one (RSA is not supported); or name a file";
        Failure::new("there is no ed25519 or ECDSA public key in `~/.ssh`").hint(hint).into()
    })
}

fn row(key: &SshKey) -> Vec<String> {
    let used = key.last_used_ms.map(|at| format!("{} ago", quantity::age_now(at))).unwrap_or_default();
    let age = quantity::age_now(key.created_ms);
    vec![key.id.clone(), key.name.clone(), key.fingerprint.clone(), key.key_id.clone(), age, used]
}
