//! `burrow ssh-config`: a configuration with which `ssh NAME.burrow`, and tools based on `ssh`, find sandboxes.

use std::fmt::Write as _;
use std::fs;

use burrow_client::SandboxQuery;

use super::settings::{SshSettings, folder};
use crate::commands::prelude::*;

/// Print a configuration for the OpenSSH client
///
/// With it, `ssh NAME.burrow`, `scp`, `rsync`, `git` and editors that work over SSH find every sandbox. `ssh
/// new.burrow` creates one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow ssh-config --write                    write it, and print the line for ~/.ssh/config
  burrow ssh-config > burrow.conf && scp -F burrow.conf file web.burrow:")]
pub(crate) struct SshConfigArgs {
    /// Write it to ~/.config/burrow/ssh/config instead
    #[arg(long)]
    write: bool,
}

pub(crate) async fn run(ctx: &Context, args: SshConfigArgs) -> Result<(), Stop> {
    let settings = SshSettings::find(ctx).await?;
    let sandboxes = ctx.client()?.all_sandboxes(&SandboxQuery::default()).await;
    let sandboxes = sandboxes.or_fail("could not list sandboxes")?;
    let names = sandboxes.into_iter().map(|sandbox| sandbox.name.unwrap_or(sandbox.id));
    let text = page(&settings, names);
    if !args.write {
        return print::data(&text);
    }
    let path = folder()?.join("config");
    fs::write(&path, text).or_fail(|| format!("could not write `{}`", path.display()))?;
    print::note(format!("wrote `{}`; put this at the top of ~/.ssh/config:", path.display()));
    print::line(format!("Include \"{}\"", path.display()))
}

fn page(settings: &SshSettings, names: impl Iterator<Item = String>) -> String {
    let mut text = String::from("# Made by `burrow ssh-config`; run it again to add new sandboxes.\n");
    for name in std::iter::once("new".to_owned()).chain(names) {
        let _ = writeln!(text, "Host {name}.burrow\n    User {name}");
    }
    text.push_str("Host *.burrow\n");
    for (name, value) in settings.options() {
        let _ = writeln!(text, "    {name} {value}");
    }
    text
}
