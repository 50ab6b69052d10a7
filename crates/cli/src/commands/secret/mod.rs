//! `burrow secret`: values that sandboxes may use and never see.

mod declare;
pub(crate) mod value;

use burrow_api::{RotateSecret, Secret, SecretSlot, SetSecret};
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print::{self, Format, quantity, table};

use declare::Declaration;
use value::ValueSource;

/// Manage secrets, which sandboxes use but never see
///
/// A secret is inserted into requests after they left the sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow secret set openai --preset openai
  burrow secret set openai --from-env OPENAI_API_KEY \\
      --allow 'POST https://api.openai.com/v1/**' --header 'Authorization: Bearer {}' \\
      --placeholder OPENAI_API_KEY=sk-
  pass show db | burrow secret set db - --allow https://db.example.com --basic agent
  burrow secret set client --from-file chain-and-key.pem --allow https://mtls.example.com --client-cert
  burrow secret rotate openai --from-file new-key
  burrow secret ls")]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Declare a secret and set its value, or change its declaration
    #[command(after_help = "Without a source, the value is read from the terminal without being shown.")]
    Set {
        name: String,
        #[command(flatten)]
        source: ValueSource,
        #[command(flatten)]
        declaration: Box<Declaration>,
        #[command(flatten)]
        format: Format,
    },
    /// Set a new value; running sandboxes use it within a second
    Rotate {
        name: String,
        #[command(flatten)]
        source: ValueSource,
        #[command(flatten)]
        format: Format,
    },
    /// List secrets, without their values
    Ls {
        #[command(flatten)]
        format: Format,
    },
    /// Show a secret, without its value
    Show {
        name: String,
        #[command(flatten)]
        format: Format,
    },
    /// Remove secrets
    Rm {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Remove secrets that are used by rules; requests that need them are then denied
        #[arg(long, short)]
        force: bool,
    },
}

pub(crate) async fn run(ctx: &Context, args: SecretArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    match args.action {
        Action::Set { name, source, declaration, format } => {
            let what = || format!("could not set secret `{name}`");
            let declared = declaration.read()?;
            let value =
                source.read(&format!("value of `{name}`"), declared.slot == SecretSlot::ClientCert)?;
            let request = SetSecret {
                allow: declared.allow,
                slot: declared.slot,
                placeholder: declared.placeholder,
                value,
            };
            report(&client.set_secret(&name, &request).await.or_fail(what)?, &format)
        }
        Action::Rotate { name, source, format } => {
            let what = || format!("could not rotate secret `{name}`");
            let known = client.secret(&name).await.or_fail(what)?;
            let value =
                source.read(&format!("new value of `{name}`"), known.slot == SecretSlot::ClientCert)?;
            report(&client.rotate_secret(&name, &RotateSecret { value }).await.or_fail(what)?, &format)
        }
        Action::Ls { format } => {
            let secrets = client.secrets().await.or_fail(|| "could not list secrets".to_owned())?;
            if format.json { print::json::pretty(&secrets) } else { show(&secrets) }
        }
        Action::Show { name, format } => {
            let secret = client.secret(&name).await.or_fail(|| format!("could not show secret `{name}`"))?;
            if format.json { print::json::pretty(&secret) } else { show(&[secret]) }
        }
        Action::Rm { names, force } => {
            for name in names {
                let what = || format!("could not remove secret `{name}`");
                client.delete_secret(&name, force).await.or_fail(what)?;
            }
            Ok(())
        }
    }
}

fn report(secret: &Secret, format: &Format) -> Result<(), Stop> {
    if format.json {
        return print::json::pretty(secret);
    }
    print::note(&format!("secret {}, version {}", secret.name, secret.version));
    Ok(())
}

fn show(secrets: &[Secret]) -> Result<(), Stop> {
    let now_ms = quantity::now_ms();
    let rows: Vec<_> = secrets.iter().map(|secret| row(secret, now_ms)).collect();
    table::print(&["NAME", "VERSION", "SLOT", "ALLOWED", "PLACEHOLDER", "CHANGED", "USED BY"], &rows)
}

fn row(secret: &Secret, now_ms: u64) -> Vec<String> {
    let used_by = secret.used_by.iter().map(|user| user.name.as_ref().unwrap_or(&user.id).clone());
    vec![
        secret.name.clone(),
        secret.version.to_string(),
        declare::slot_text(&secret.slot),
        secret.allow.iter().map(declare::scope_text).collect::<Vec<_>>().join(" "),
        secret.placeholder.as_ref().map(|placeholder| placeholder.env.clone()).unwrap_or_default(),
        format!("{} ago", quantity::age(secret.changed_ms, now_ms)),
        used_by.collect::<Vec<_>>().join(" "),
    ]
}
