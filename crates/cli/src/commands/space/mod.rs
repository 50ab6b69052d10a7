//! `burrow space`: memory spaces that outlive sandboxes.

use burrow_api::memory::{CreateSpace, Space, UpdateSpace};

use super::ls::short;
use crate::commands::prelude::*;
use crate::print::ask::be_sure;

/// Manage memory spaces, which outlive sandboxes and can be shared
///
/// A sandbox has its own memory space, unless --memory of create, run or update names another; --attach adds more.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow space create ops --description 'knowledge of the ops agents'
  burrow run --rm --memory ops -- ./agent             memory that outlives the sandbox
  burrow update web --attach handbook:ro
  burrow memory search ops 'deploy key'
  burrow space rm ops")]
pub(crate) enum SpaceCommand {
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

pub(crate) async fn run(ctx: &Context, command: SpaceCommand) -> Result<(), Stop> {
    match command {
        SpaceCommand::Create { name, description, labels, format } => {
            let request = CreateSpace { name, description, labels: labels.into_iter().collect() };
            let space = ctx.client()?.create_space(&request).await;
            let space = space.or_fail(|| format!("could not create space `{}`", request.name))?;
            format.show(&space, |space| print::line(&space.id))
        }
        SpaceCommand::Ls { quiet, format } => {
            let spaces = ctx.client()?.spaces().await.or_fail("could not list spaces")?;
            if quiet {
                return print::lines(spaces.iter().map(|space| escape(&space.name)));
            }
            format.table(&["ID", "NAME", "AGE", "LABELS", "DESCRIPTION"], &spaces, row)
        }
        SpaceCommand::Inspect { space, format } => {
            let found = ctx.client()?.space(&space).await;
            let found = found.or_fail(|| format!("could not inspect space `{space}`"))?;
            format.show(&found, |found| table::facts(facts(found)))
        }
        SpaceCommand::Update { space, name, description, labels, unlabels, format } => {
            let update = UpdateSpace { name, description, labels: parse::label_changes(labels, unlabels) };
            if update == UpdateSpace::default() {
                return fail(
                    format!("could not update space `{space}`: no change was given"),
                    "give --name, --description, --label or --unlabel",
                );
            }
            let updated = ctx.client()?.update_space(&space, &update).await;
            let updated = updated.or_fail(|| format!("could not update space `{space}`"))?;
            format.show(&updated, |_| Ok(()))
        }
        SpaceCommand::Rm { spaces, force, yes } => {
            let client = ctx.client()?;
            for space in &spaces {
                let what = format!("could not remove space `{space}`");
                let question = format!("remove space `{}` and its memory permanently?", escape(space));
                be_sure(yes, &what, &question)?;
                client.delete_space(space, force).await.or_fail(&*what)?;
            }
            Ok(())
        }
    }
}

fn row(space: &Space) -> Vec<String> {
    vec![
        short(&space.id),
        space.name.clone(),
        quantity::age_now(space.created_ms),
        table::pairs(&space.labels),
        space.description.clone(),
    ]
}

fn facts(space: &Space) -> [(&'static str, String); 6] {
    [
        ("id", space.id.clone()),
        ("name", space.name.clone()),
        ("description", space.description.clone()),
        ("labels", table::pairs(&space.labels)),
        ("created", quantity::timestamp(space.created_ms)),
        ("used by", space.used_by.join(", ")),
    ]
}
