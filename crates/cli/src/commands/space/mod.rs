//! `burrow space`: memory spaces that outlive sandboxes.

use burrow_api::memory::{CreateSpace, Space, UpdateSpace};
use clap::{Args, Subcommand};

use super::ls::short;
use crate::context::Context;
use crate::failure::{CODE_GENERAL, Failure, OrFail, Stop};
use crate::parse;
use crate::print::ask::{can_ask, confirm};
use crate::print::escape::escape;
use crate::print::{self, Format, quantity, table};

/// Manage memory spaces, which outlive sandboxes and can be shared
///
/// A sandbox has its own memory space, unless --memory of create, run or update names another; --attach adds more.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow space create ops --description 'knowledge of the ops agents'
  burrow run --rm --memory ops -- ./agent             memory that outlives the sandbox
  burrow update web --attach handbook:ro
  burrow memory search ops 'deploy key'
  burrow space rm ops")]
pub(crate) struct SpaceArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a space and print its id
    Create {
        /// Name: lower-case letters, digits and hyphens
        name: String,
        /// Description
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        description: String,
        /// Label; may be repeated
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
        labels: Vec<(String, String)>,
        #[command(flatten)]
        format: Format,
    },
    /// List spaces
    #[command(visible_alias = "list")]
    Ls {
        /// Print names only
        #[arg(short = 'q', long, conflicts_with = "json")]
        quiet: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Show a space, and the sandboxes that use it
    Inspect {
        /// Name or id
        space: String,
        #[command(flatten)]
        format: Format,
    },
    /// Change the name, the description or the labels of a space
    Update {
        /// Name or id
        space: String,
        /// New name
        #[arg(long)]
        name: Option<String>,
        /// Description
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Label to set; may be repeated
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
        labels: Vec<(String, String)>,
        /// Label to remove; may be repeated
        #[arg(long = "unlabel", value_name = "KEY")]
        unlabels: Vec<String>,
        #[command(flatten)]
        format: Format,
    },
    /// Remove spaces and their memory permanently
    Rm {
        /// Names or ids
        #[arg(required = true, value_name = "SPACE")]
        spaces: Vec<String>,
        /// Remove spaces that are in use; their sandboxes switch to their own
        #[arg(short = 'f', long)]
        force: bool,
        /// Do not ask for confirmation
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

pub(crate) async fn run(ctx: &Context, args: SpaceArgs) -> Result<(), Stop> {
    match args.action {
        Action::Create { name, description, labels, format } => {
            let request = CreateSpace { name, description, labels: labels.into_iter().collect() };
            let space = ctx.client()?.create_space(&request).await;
            let space = space.or_fail(|| format!("could not create space `{}`", request.name))?;
            if format.json { print::json::pretty(&space) } else { print::line(&space.id) }
        }
        Action::Ls { quiet, format } => list(ctx, quiet, format).await,
        Action::Inspect { space, format } => {
            let found = ctx.client()?.space(&space).await;
            let found = found.or_fail(|| format!("could not inspect space `{space}`"))?;
            if format.json { print::json::pretty(&found) } else { inspect(&found) }
        }
        Action::Update { space, name, description, labels, unlabels, format } => {
            let set = labels.into_iter().map(|(key, value)| (key, Some(value)));
            let removed = unlabels.into_iter().map(|key| (key, None));
            let update = UpdateSpace { name, description, labels: removed.chain(set).collect() };
            if update == UpdateSpace::default() {
                let failure = Failure::new(format!("could not update space `{space}`: no change was given"));
                return Err(failure.hint("give --name, --description, --label or --unlabel").into());
            }
            let updated = ctx.client()?.update_space(&space, &update).await;
            let updated = updated.or_fail(|| format!("could not update space `{space}`"))?;
            if format.json { print::json::pretty(&updated) } else { Ok(()) }
        }
        Action::Rm { spaces, force, yes } => remove(ctx, &spaces, force, yes).await,
    }
}

async fn list(ctx: &Context, quiet: bool, format: Format) -> Result<(), Stop> {
    let spaces = ctx.client()?.spaces().await.or_fail(|| "could not list spaces".to_owned())?;
    if format.json {
        return print::json::pretty(&spaces);
    }
    if quiet {
        let names: String = spaces.iter().map(|space| format!("{}\n", escape(&space.name))).collect();
        return print::data(&names);
    }
    let now_ms = quantity::now_ms();
    let rows: Vec<_> = spaces.iter().map(|space| row(space, now_ms)).collect();
    table::print(&["ID", "NAME", "AGE", "LABELS", "DESCRIPTION"], &rows)
}

fn row(space: &Space, now_ms: u64) -> Vec<String> {
    vec![
        short(&space.id),
        space.name.clone(),
        quantity::age(space.created_ms, now_ms),
        table::pairs(&space.labels),
        space.description.clone(),
    ]
}

fn inspect(space: &Space) -> Result<(), Stop> {
    let rows = [
        ("id", space.id.clone()),
        ("name", space.name.clone()),
        ("description", space.description.clone()),
        ("labels", table::pairs(&space.labels)),
        ("created", quantity::timestamp(space.created_ms)),
        ("used by", space.used_by.join(", ")),
    ];
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table::print(&["", ""], &rows)
}

async fn remove(ctx: &Context, spaces: &[String], force: bool, yes: bool) -> Result<(), Stop> {
    let client = ctx.client()?;
    for space in spaces {
        let what = || format!("could not remove space `{space}`");
        if !yes {
            if !can_ask() {
                let failure =
                    Failure::new(format!("{}: confirmation is required, but there is no terminal", what()));
                return Err(failure.hint("add --yes").into());
            }
            let question = format!("remove space `{}` and its memory permanently?", escape(space));
            if !confirm(&question)? {
                return Err(Stop::Exit(CODE_GENERAL));
            }
        }
        client.delete_space(space, force).await.or_fail(what)?;
    }
    Ok(())
}
