//! `burrow service`: supervised processes, started with their sandbox.

use burrow_api::{CreateService, RestartPolicy, Service};

use crate::commands::flags::PlaceFlags;
use crate::commands::prelude::*;

/// Manage services: supervised processes of a sandbox
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow service add web app --restart on-failure -w /srv -- python3 -m http.server 8000
  burrow service ls web
  burrow logs web --service app -f")]
pub(crate) enum ServiceCommand {
    /// Add a service, and start it
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
pub(crate) struct AddArgs {
    /// When to restart it after it ended
    #[arg(long, default_value = "always", value_parser = parse::one_of::<RestartPolicy>(["always", "on-failure", "never"]))]
    restart: RestartPolicy,
    /// Replace the service if there is one with this name; its process is restarted
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    place: PlaceFlags,
    sandbox: String,
    name: String,
    /// Command and arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    argv: Vec<String>,
}

pub(crate) async fn run(ctx: &Context, command: ServiceCommand) -> Result<(), Stop> {
    let client = ctx.client()?;
    match command {
        ServiceCommand::Add(args) => add(ctx, args).await,
        ServiceCommand::Ls { sandbox, format } => {
            let services = client.services(&sandbox).await;
            let services =
                services.or_fail(|| format!("could not list the services of sandbox `{sandbox}`"))?;
            format.table(&["NAME", "STATE", "RESTART", "RESTARTS", "EXEC", "COMMAND"], &services, row)
        }
        ServiceCommand::Rm { sandbox, name } => client
            .delete_service(&sandbox, &name)
            .await
            .or_fail(|| format!("could not remove service `{name}` of sandbox `{sandbox}`")),
        ServiceCommand::Restart { sandbox, name } => client
            .restart_service(&sandbox, &name)
            .await
            .or_fail(|| format!("could not restart service `{name}` of sandbox `{sandbox}`")),
    }
}

async fn add(ctx: &Context, args: AddArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let what = || format!("could not add service `{}` to sandbox `{}`", args.name, args.sandbox);
    if !args.replace {
        let services = client.services(&args.sandbox).await.or_fail(what)?;
        if services.iter().any(|service| service.name == args.name) {
            return fail(
                format!("{}: there is one with this name", what()),
                "choose another name, or add --replace",
            );
        }
    }
    let service = CreateService {
        argv: args.argv,
        command: None,
        env: args.place.env.into_iter().collect(),
        workdir: args.place.workdir,
        user: args.place.user,
        restart: args.restart,
    };
    client.put_service(&args.sandbox, &args.name, &service).await.or_fail(what).map(drop)
}

fn row(service: &Service) -> Vec<String> {
    vec![
        service.name.clone(),
        print::json::word(service.state).replace('_', " "),
        print::json::word(service.restart),
        service.restarts.to_string(),
        service.exec_id.clone().unwrap_or_default(),
        service.argv.join(" ").chars().take(60).collect(),
    ]
}
