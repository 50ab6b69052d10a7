//! `burrow ssh-key`: the public keys that may log in.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use burrow_api::{AddSshKey, SshKey};
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{Failure, OrFail as _, Stop};
use crate::print::{self, Format, quantity, table};

/// A public key is a line.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// The usual paths of the user's keys, best first.
const USUAL: [&str; 2] = [".ssh/id_ed25519.pub", ".ssh/id_ecdsa.pub"];

/// Manage public keys for SSH logins
///
/// An SSH key has the rights of the API key that it was added with, for as long as that API key is valid.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow ssh-key add                                  your own, from ~/.ssh
  burrow ssh-key add ada.pub --name ada
  ssh-add -L | head -1 | burrow ssh-key add -
  burrow ssh-key rm ada")]
pub(crate) struct SshKeyArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
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

pub(crate) async fn run(ctx: &Context, args: SshKeyArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    match args.action {
        Action::Add { file, name, format } => {
            let public_key = read(file.as_deref())?;
            let added = client.add_ssh_key(&AddSshKey { public_key, name }).await;
            let added = added.or_fail(|| "could not add the key".to_owned())?;
            if format.json { print::json::pretty(&added) } else { print::line(&added.id) }
        }
        Action::Ls { format } => {
            let keys = client.ssh_keys().await.or_fail(|| "could not list SSH keys".to_owned())?;
            if format.json { print::json::pretty(&keys) } else { show(&keys) }
        }
        Action::Rm { keys } => {
            for key in keys {
                client.remove_ssh_key(&key).await.or_fail(|| format!("could not remove SSH key `{key}`"))?;
            }
            Ok(())
        }
    }
}

fn read(file: Option<&Path>) -> Result<String, Stop> {
    let file = match file {
        Some(file) if file == Path::new("-") => {
            return bounded(&mut std::io::stdin().lock(), "standard input");
        }
        Some(file) => file.to_owned(),
        None => usual()?,
    };
    let shown = file.display().to_string();
    let mut opened = std::fs::File::open(&file).or_fail(|| format!("could not open `{shown}`"))?;
    bounded(&mut opened, &shown)
}

fn bounded(from: &mut dyn std::io::Read, shown: &str) -> Result<String, Stop> {
    let mut text = String::new();
    from.take(FILE_BYTES_MAX).read_to_string(&mut text).or_fail(|| format!("could not read `{shown}`"))?;
    Ok(text)
}

fn usual() -> Result<PathBuf, Stop> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let found = USUAL.iter().map(|name| home.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let hint = "`ssh-keygen -t ed25519` creates one (RSA is not supported); or name a file";
        Failure::new("there is no ed25519 or ECDSA public key in `~/.ssh`").hint(hint).into()
    })
}

fn show(keys: &[SshKey]) -> Result<(), Stop> {
    let now_ms = quantity::now_ms();
    let row = |key: &SshKey| {
        let used =
            key.last_used_ms.map(|at| format!("{} ago", quantity::age(at, now_ms))).unwrap_or_default();
        let age = quantity::age(key.created_ms, now_ms);
        vec![key.id.clone(), key.name.clone(), key.fingerprint.clone(), key.key_id.clone(), age, used]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    table::print(&["ID", "NAME", "FINGERPRINT", "API KEY", "AGE", "LAST USED"], &rows)
}
