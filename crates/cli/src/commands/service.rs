//! `burrow service`: supervised processes, started with their sandbox.

use burrow_api::{CreateService, RestartPolicy, Service, ServiceState};
use clap::{Args, Subcommand, ValueEnum};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::parse;
use crate::print::{self, Format, table};

/// Manage services: supervised processes of a sandbox
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow service add web app --restart on-failure -w /srv -- python3 -m http.server 8000
  burrow service ls web
  burrow logs web --service app -f")]
pub(crate) struct ServiceArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add or replace a service, and start it
    Add(AddArgs),
    /// List services
    Ls {
        sandbox: String,
        #[command(flatten)]
        format: Format,
    },
    /// Stop and remove a service
    Rm { sandbox: String, name: String },
    /// Restart a service
    Restart { sandbox: String, name: String },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// When to restart it after it ended
    #[arg(long, value_enum, default_value_t = Restart::Always)]
    restart: Restart,
    /// Environment variable; may be repeated
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Working directory
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// User to run as
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    sandbox: String,
    name: String,
    /// Command and arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    argv: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Restart {
    Always,
    OnFailure,
    Never,
}

pub(crate) async fn run(ctx: &Context, args: ServiceArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    match args.action {
        Action::Add(args) => add(ctx, args).await,
        Action::Ls { sandbox, format } => {
            let services = client.services(&sandbox).await;
            let services =
                services.or_fail(|| format!("could not list the services of sandbox `{sandbox}`"))?;
            if format.json {
                return print::json::pretty(&services);
            }
            let rows: Vec<_> = services.iter().map(row).collect();
            table::print(&["NAME", "STATE", "RESTART", "RESTARTS", "EXEC", "COMMAND"], &rows)
        }
        Action::Rm { sandbox, name } => client
            .delete_service(&sandbox, &name)
            .await
            .or_fail(|| format!("could not remove service `{name}` of sandbox `{sandbox}`")),
        Action::Restart { sandbox, name } => client
            .restart_service(&sandbox, &name)
            .await
            .or_fail(|| format!("could not restart service `{name}` of sandbox `{sandbox}`")),
    }
}

async fn add(ctx: &Context, args: AddArgs) -> Result<(), Stop> {
    let service = CreateService {
        argv: args.argv,
        command: None,
        env: args.env.into_iter().collect(),
        workdir: args.workdir,
        user: args.user,
        restart: match args.restart {
            Restart::Always => RestartPolicy::Always,
            Restart::OnFailure => RestartPolicy::OnFailure,
            Restart::Never => RestartPolicy::Never,
        },
    };
    let put = ctx.client()?.put_service(&args.sandbox, &args.name, &service).await;
    put.or_fail(|| format!("could not add service `{}` to sandbox `{}`", args.name, args.sandbox)).map(drop)
}

fn row(service: &Service) -> Vec<String> {
    let state = match service.state {
        ServiceState::Running => "running",
        ServiceState::BackingOff => "backing off",
        ServiceState::Ended => "ended",
        ServiceState::Stopped => "stopped",
    };
    let restart = match service.restart {
        RestartPolicy::Always => "always",
        RestartPolicy::OnFailure => "on-failure",
        RestartPolicy::Never => "never",
    };
    vec![
        service.name.clone(),
        state.to_owned(),
        restart.to_owned(),
        service.restarts.to_string(),
        service.exec_id.clone().unwrap_or_default(),
        service.argv.join(" ").chars().take(60).collect(),
    ]
}
