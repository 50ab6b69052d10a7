//! `burrow key`: API keys.

use burrow_api::{CreateKey, Key, Scope};

use crate::commands::prelude::*;

/// Manage API keys
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow key create ci --scope exec --ttl 90d
  export BURROW_API_KEY=$(burrow key create laptop --scope admin)
  burrow key revoke keyabc…")]
pub(crate) enum KeyCommand {
    /// Create a key and print it; it is shown only once
    Create {
        /// Name of the key
        name: String,
        /// Rights: read, exec (use sandboxes) or admin (everything)
        #[arg(long, default_value = "exec", value_parser = parse::one_of::<Scope>(["read", "exec", "admin"]))]
        scope: Scope,
        /// Restrict the key to this sandbox
        #[arg(long)]
        sandbox: Option<String>,
        /// Also allow forks of this sandbox: to create, use, merge and delete them
        #[arg(long, requires = "sandbox")]
        forks: bool,
        /// Lifetime, e.g. 24h
        #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
        ttl: Option<Duration>,
        #[command(flatten)]
        format: Format,
    },
    /// List keys
    Ls {
        #[command(flatten)]
        format: Format,
    },
    /// Show a key without its secret
    Show {
        // Not `key`, which is the id of the global `--key`: clap would take this word for the API key.
        #[arg(id = "shown", value_name = "KEY")]
        key: String,
        #[command(flatten)]
        format: Format,
    },
    /// Revoke keys permanently
    Revoke {
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Revoke the tokens that E2B clients have for a sandbox or a volume
    RevokeTokens {
        /// Id, unique id prefix, or name
        #[arg(required_unless_present = "volume")]
        sandbox: Option<String>,
        /// Revoke the tokens of this volume instead
        #[arg(long, conflicts_with = "sandbox")]
        volume: Option<String>,
    },
}

pub(crate) async fn run(ctx: &Context, command: KeyCommand) -> Result<(), Stop> {
    let client = ctx.client()?;
    match command {
        KeyCommand::Create { name, scope, sandbox, forks, ttl, format } => {
            let ttl_seconds = ttl.map(|ttl| ttl.as_secs());
            let request = CreateKey { name, scope, sandbox, forks, ttl_seconds };
            let created = client.create_key(&request).await;
            let created = created.or_fail(|| format!("could not create key `{}`", request.name))?;
            format.show(&created, |created| {
                print::note(format!("key {}: store it now, it is shown only once", created.key.id));
                print::line(&created.secret)
            })
        }
        KeyCommand::Ls { format } => {
            let keys = client.keys().await.or_fail("could not list keys")?;
            format.table(HEADER, &keys, row)
        }
        KeyCommand::Show { key, format } => {
            let key = client.key(&key).await.or_fail(|| format!("could not show key `{key}`"))?;
            format.show(&key, |key| table::print(HEADER, std::slice::from_ref(key), row))
        }
        KeyCommand::RevokeTokens { sandbox, volume } => {
            if let Some(sandbox) = sandbox {
                let revoked = client.revoke_tokens(&sandbox).await;
                revoked.or_fail(|| format!("could not revoke the tokens of sandbox `{sandbox}`"))?;
            }
            if let Some(volume) = volume {
                let revoked = client.revoke_volume_tokens(&volume).await;
                revoked.or_fail(|| format!("could not revoke the tokens of volume `{volume}`"))?;
            }
            Ok(())
        }
        KeyCommand::Revoke { keys } => {
            for key in keys {
                client.revoke_key(&key).await.or_fail(|| format!("could not revoke key `{key}`"))?;
            }
            Ok(())
        }
    }
}

const HEADER: &[&str] = &["ID", "NAME", "KEY", "SCOPE", "SANDBOX", "STATE", "AGE", "LAST USED"];

fn row(key: &Key) -> Vec<String> {
    let now_ms = quantity::now_ms();
    let state = match (key.revoked_ms, key.expires_ms) {
        (Some(_), _) => "revoked".to_owned(),
        (None, Some(at)) if at <= now_ms => "expired".to_owned(),
        (None, Some(at)) => format!("valid for {}", quantity::age(now_ms, at)),
        (None, None) => "valid".to_owned(),
    };
    vec![
        key.id.clone(),
        key.name.clone(),
        format!("{}…", key.prefix),
        print::json::word(key.scope),
        match (&key.sandbox_id, key.forks) {
            (Some(sandbox), true) => format!("{sandbox} and forks"),
            (Some(sandbox), false) => sandbox.clone(),
            (None, _) => String::new(),
        },
        state,
        quantity::age(key.created_ms, now_ms),
        key.last_used_ms.map(|at| format!("{} ago", quantity::age(at, now_ms))).unwrap_or_default(),
    ]
}
