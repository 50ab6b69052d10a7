//! `burrow env`: the environment that every exec of a sandbox gets.

use std::collections::BTreeMap;

use burrow_api::UpdateSandbox;
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::parse;
use crate::print::escape::escape;
use crate::print::{self, Format};

/// Manage the environment variables of a sandbox
///
/// Changes apply to execs that start afterwards.
#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
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

pub(crate) async fn run(ctx: &Context, args: EnvArgs) -> Result<(), Stop> {
    match args.action {
        Action::Set { sandbox, variables } => {
            change(ctx, &sandbox, variables.into_iter().map(|(key, value)| (key, Some(value))).collect())
                .await
        }
        Action::Rm { sandbox, keys } => {
            change(ctx, &sandbox, keys.into_iter().map(|key| (key, None)).collect()).await
        }
        Action::Ls { sandbox, format } => {
            let found = ctx.client()?.sandbox(&sandbox).await;
            let env = found.or_fail(|| format!("could not read the environment of sandbox `{sandbox}`"))?.env;
            if format.json {
                return print::json::pretty(&env);
            }
            let lines: String =
                env.iter().map(|(key, value)| format!("{}={}\n", escape(key), escape(value))).collect();
            print::data(&lines)
        }
    }
}

async fn change(ctx: &Context, sandbox: &str, env: BTreeMap<String, Option<String>>) -> Result<(), Stop> {
    let update = UpdateSandbox { env, ..UpdateSandbox::default() };
    let updated = ctx.client()?.update_sandbox(sandbox, &update).await;
    updated.or_fail(|| format!("could not change the environment of sandbox `{sandbox}`")).map(drop)
}
