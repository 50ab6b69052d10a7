//! `burrow image`: the images that sandboxes start from.

mod build;
mod bundle;
mod follow;
mod show;
mod transfer;

use std::path::Path;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print::escape::escape;
use crate::print::{self, Format, quantity};

pub(crate) use build::default as build_default;

/// Manage the images that sandboxes start from
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
    Pull(transfer::PullArgs),
    Import(transfer::ImportArgs),
    Export(transfer::ExportArgs),
    Commit(build::CommitArgs),
    /// Add a name to an image
    Tag {
        /// Name or id of the image
        image: String,
        /// New name; it is removed from the image that has it
        name: String,
    },
    /// Remove a name; the image is kept
    Untag {
        /// Name to remove
        name: String,
    },
    /// Remove images
    ///
    /// An id removes the image with all its names; a name removes the name, and the image with its last name. Sandboxes
    /// created from the image have their own files and are not affected.
    Rm {
        /// Names or ids
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// Remove images without names and sandboxes, and layers that no image uses
    Prune {
        #[command(flatten)]
        format: Format,
    },
}

/// Whether the path is `-`, standard input or output.
pub(super) fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

pub(crate) async fn run(ctx: &Context, args: ImageArgs) -> Result<(), Stop> {
    match args.action {
        Action::Ls { format } => show::list(ctx, format).await,
        Action::Inspect(args) => show::inspect(ctx, args).await,
        Action::Build(args) => build::run(ctx, args).await,
        Action::Pull(args) => transfer::pull(ctx, args).await,
        Action::Import(args) => transfer::import(ctx, args).await,
        Action::Export(args) => transfer::export(ctx, args).await,
        Action::Commit(args) => build::commit(ctx, args).await,
        Action::Tag { image, name } => {
            let what = || format!("could not add the name `{name}` to image `{image}`");
            let tagged = ctx.client()?.tag_image(&image, &name).await.or_fail(what)?;
            print::line(&tagged.id)
        }
        Action::Untag { name } => {
            let what = || format!("could not remove the name `{name}`");
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
                "removed {} images and {} layers, {} freed",
                pruned.images.len(),
                pruned.layers,
                quantity::bytes(pruned.freed_bytes)
            ));
            Ok(())
        }
    }
}
