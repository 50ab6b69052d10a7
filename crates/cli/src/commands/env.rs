//! `burrow env`: the environment that every exec of a sandbox gets.

use std::collections::BTreeMap;

use burrow_api::UpdateSandbox;

use crate::commands::prelude::*;

/// Manage the environment variables of a sandbox
///
/// Changes apply to execs that start afterwards.
#[derive(Debug, Subcommand)]
pub(crate) enum EnvCommand {
    /// Set variables
    Set {
        sandbox: String,
        /// A bare KEY takes the value from your environment
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = parse::variable)]
        variables: Vec<(String, String)>,
    },
    /// List variables
    Ls {
        sandbox: String,
        #[command(flatten)]
        format: Format,
    },
    /// Remove variables
    Rm {
        sandbox: String,
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
}

pub(crate) async fn run(ctx: &Context, command: EnvCommand) -> Result<(), Stop> {
    match command {
        EnvCommand::Set { sandbox, variables } => {
            change(ctx, &sandbox, variables.into_iter().map(|(key, value)| (key, Some(value))).collect())
                .await
        }
        EnvCommand::Rm { sandbox, keys } => {
            change(ctx, &sandbox, keys.into_iter().map(|key| (key, None)).collect()).await
        }
        EnvCommand::Ls { sandbox, format } => {
            let found = ctx.client()?.sandbox(&sandbox).await;
            let env = found.or_fail(|| format!("could not read the environment of sandbox `{sandbox}`"))?.env;
            format.show(&env, |env| {
                print::lines(env.iter().map(|(key, value)| format!("{}={}", escape(key), escape(value))))
            })
        }
    }
}

async fn change(ctx: &Context, sandbox: &str, env: BTreeMap<String, Option<String>>) -> Result<(), Stop> {
    let update = UpdateSandbox { env, ..UpdateSandbox::default() };
    let updated = ctx.client()?.update_sandbox(sandbox, &update).await;
    updated.or_fail(|| format!("could not change the environment of sandbox `{sandbox}`")).map(drop)
}
