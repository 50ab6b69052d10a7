//! `burrow ssh-config`: what makes `ssh NAME.burrow`, and all that is built upon `ssh`, find sandboxes.

use std::fmt::Write as _;
use std::fs;

use burrow_client::SandboxQuery;
use clap::Args;

use super::place::{Place, folder};
use crate::context::Context;
use crate::failure::{OrFail as _, Stop};
use crate::print;

/// Print a configuration for OpenSSH's client
///
/// With it `ssh NAME.burrow`, `scp`, `rsync`, `git` and editors that work over SSH find every sandbox there is. `ssh new.burrow`
/// makes one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow ssh-config --write                    and say what to put into ~/.ssh/config
  burrow ssh-config > burrow.conf && scp -F burrow.conf file web.burrow:")]
pub(crate) struct SshConfigArgs {
    /// Write it to ~/.config/burrow/ssh/config instead
    #[arg(long)]
    write: bool,
}

pub(crate) async fn run(ctx: &Context, args: SshConfigArgs) -> Result<(), Stop> {
    let place = Place::find(ctx).await?;
    let sandboxes = ctx.client()?.all_sandboxes(&SandboxQuery::default()).await;
    let sandboxes = sandboxes.or_fail(|| "could not list sandboxes".to_owned())?;
    let names = sandboxes.into_iter().map(|sandbox| sandbox.name.unwrap_or(sandbox.id));
    let text = page(&place, names);
    if !args.write {
        return print::data(&text);
    }
    let path = folder()?.join("config");
    fs::write(&path, text).or_fail(|| format!("could not write `{}`", path.display()))?;
    print::note(&format!("wrote `{}`; put this at the top of ~/.ssh/config:", path.display()));
    print::line(&format!("Include \"{}\"", path.display()))
}

fn page(place: &Place, names: impl Iterator<Item = String>) -> String {
    let mut text = String::from("# Made by `burrow ssh-config`; made anew, it knows of new sandboxes.\n");
    for name in std::iter::once("new".to_owned()).chain(names) {
        let _ = writeln!(text, "Host {name}.burrow\n    User {name}");
    }
    text.push_str("Host *.burrow\n");
    for (name, value) in place.options() {
        let _ = writeln!(text, "    {name} {value}");
    }
    text
}
