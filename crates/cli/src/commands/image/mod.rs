//! `burrow image`: what sandboxes start from.

mod build;
mod bundle;
mod follow;
mod moving;
mod show;

use std::path::Path;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print::escape::escape;
use crate::print::{self, Format, quantity};

pub(crate) use build::default as build_default;

/// Images that sandboxes start from
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow image pull python:3.12 && burrow run --rm --image python:3.12 -- python3 -V
  burrow image build --packages nodejs,npm --name node
  burrow image build -f burrow.yaml --name app
  burrow image commit dev --name my-setup
  burrow image export my-setup -o my-setup.tar
  docker save app | burrow image import -")]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List images
    Ls {
        #[command(flatten)]
        format: Format,
    },
    Inspect(show::InspectArgs),
    Build(build::BuildArgs),
    Pull(moving::PullArgs),
    Import(moving::ImportArgs),
    Export(moving::ExportArgs),
    Commit(build::CommitArgs),
    /// Give an image one more name
    Tag {
        /// Name or id of the image
        image: String,
        /// The new name; an image that has it loses it
        name: String,
    },
    /// Take a name away; the image stays
    Untag {
        /// The name
        name: String,
    },
    /// Remove images
    ///
    /// By id an image goes with all its names; by a name the name goes, and the image with its last one. Sandboxes made
    /// from it have files of their own and stay.
    Rm {
        /// Names or ids
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// Remove images without a name and a sandbox, and layers that no image stands on
    Prune {
        #[command(flatten)]
        format: Format,
    },
}

/// A file, or `-`.
pub(super) fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

pub(crate) async fn run(ctx: &Context, args: ImageArgs) -> Result<(), Stop> {
    match args.action {
        Action::Ls { format } => show::list(ctx, format).await,
        Action::Inspect(args) => show::inspect(ctx, args).await,
        Action::Build(args) => build::run(ctx, args).await,
        Action::Pull(args) => moving::pull(ctx, args).await,
        Action::Import(args) => moving::import(ctx, args).await,
        Action::Export(args) => moving::export(ctx, args).await,
        Action::Commit(args) => build::commit(ctx, args).await,
        Action::Tag { image, name } => {
            let what = || format!("could not name image `{image}` `{name}`");
            let tagged = ctx.client()?.tag_image(&image, &name).await.or_fail(what)?;
            print::line(&tagged.id)
        }
        Action::Untag { name } => {
            let what = || format!("could not take the name `{name}` away");
            ctx.client()?.untag_image(&name, &name).await.or_fail(what)
        }
        Action::Rm { images } => {
            let client = ctx.client()?;
            for image in images {
                client.remove_image(&image).await.or_fail(|| format!("could not remove image `{image}`"))?;
                print::line(&escape(&image))?;
            }
            Ok(())
        }
        Action::Prune { format } => {
            let pruned =
                ctx.client()?.prune_images().await.or_fail(|| "could not clean up images".to_owned())?;
            if format.json {
                return print::json::pretty(&pruned);
            }
            for image in &pruned.images {
                print::line(&escape(image))?;
            }
            print::note(&format!(
                "removed {} images and {} layers, {} of files",
                pruned.images.len(),
                pruned.layers,
                quantity::bytes(pruned.freed_bytes)
            ));
            Ok(())
        }
    }
}
