//! `burrow secret`: values that sandboxes may use and never see.

mod declare;
pub(crate) mod value;

use burrow_api::{RotateSecret, Secret, SecretSlot, SetSecret};

use declare::Declaration;
use value::ValueSource;

use crate::commands::prelude::*;

/// Manage secrets, which sandboxes use but never see
///
/// A secret is inserted into requests after they left the sandbox.
#[derive(Debug, Subcommand)]
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
pub(crate) enum SecretCommand {
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

pub(crate) async fn run(ctx: &Context, command: SecretCommand) -> Result<(), Stop> {
    let client = ctx.client()?;
    match command {
        SecretCommand::Set { name, source, declaration, format } => {
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
            report(&client.set_secret(&name, &request).await.or_fail(what)?, format)
        }
        SecretCommand::Rotate { name, source, format } => {
            let what = || format!("could not rotate secret `{name}`");
            let known = client.secret(&name).await.or_fail(what)?;
            let value =
                source.read(&format!("new value of `{name}`"), known.slot == SecretSlot::ClientCert)?;
            report(&client.rotate_secret(&name, &RotateSecret { value }).await.or_fail(what)?, format)
        }
        SecretCommand::Ls { format } => {
            let secrets = client.secrets().await.or_fail("could not list secrets")?;
            format.table(HEADER, &secrets, row)
        }
        SecretCommand::Show { name, format } => {
            let secret = client.secret(&name).await.or_fail(|| format!("could not show secret `{name}`"))?;
            format.show(&secret, |secret| table::print(HEADER, std::slice::from_ref(secret), row))
        }
        SecretCommand::Rm { names, force } => {
            for name in names {
                let what = || format!("could not remove secret `{name}`");
                client.delete_secret(&name, force).await.or_fail(what)?;
            }
            Ok(())
        }
    }
}

fn report(secret: &Secret, format: Format) -> Result<(), Stop> {
    format.show(secret, |secret| {
        print::note(format!("secret {}, version {}", secret.name, secret.version));
        Ok(())
    })
}

const HEADER: &[&str] = &["NAME", "VERSION", "SLOT", "ALLOWED", "PLACEHOLDER", "CHANGED", "USED BY"];

fn row(secret: &Secret) -> Vec<String> {
    let used_by = secret.used_by.iter().map(|user| user.name.as_ref().unwrap_or(&user.id).clone());
    vec![
        secret.name.clone(),
        secret.version.to_string(),
        declare::slot_text(&secret.slot),
        secret.allow.iter().map(declare::scope_text).collect::<Vec<_>>().join(" "),
        secret.placeholder.as_ref().map(|placeholder| placeholder.env.clone()).unwrap_or_default(),
        format!("{} ago", quantity::age_now(secret.changed_ms)),
        used_by.collect::<Vec<_>>().join(" "),
    ]
}
