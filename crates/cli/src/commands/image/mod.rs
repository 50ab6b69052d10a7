//! `burrow image`: the images that sandboxes start from.

use crate::commands::prelude::*;

mod build;
mod bundle;
mod docker_context;
mod follow;
mod ignore;
mod show;
mod transfer;

pub(crate) use build::{FileBuild, from_file, provide_default};
pub(crate) use follow::follow;

/// Manage the images that sandboxes start from
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow image pull python:3.12 && burrow run --rm --image python:3.12 -- python3 -V
  burrow image build --packages nodejs,npm --name node
  burrow image build --name app .
  burrow image build -f burrow.yaml --name app
  burrow image commit dev --name my-setup
  burrow image export my-setup -o my-setup.tar
  docker save app | burrow image import -")]
pub(crate) enum ImageCommand {
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
        /// New name; moved from the image that has it
        name: String,
        #[command(flatten)]
        format: Format,
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
        #[command(flatten)]
        format: Format,
    },
    /// Remove images without names and sandboxes, and layers that no image uses
    Prune {
        #[command(flatten)]
        format: Format,
    },
}

pub(crate) async fn run(ctx: &Context, command: ImageCommand) -> Result<(), Stop> {
    match command {
        ImageCommand::Ls { format } => show::list(ctx, format).await,
        ImageCommand::Inspect(args) => show::inspect(ctx, args).await,
        ImageCommand::Build(args) => build::run(ctx, args).await,
        ImageCommand::Pull(args) => transfer::pull(ctx, args).await,
        ImageCommand::Import(args) => transfer::import(ctx, args).await,
        ImageCommand::Export(args) => transfer::export(ctx, args).await,
        ImageCommand::Commit(args) => build::commit(ctx, args).await,
        ImageCommand::Tag { image, name, format } => {
            let what = || format!("could not add the name `{name}` to image `{image}`");
            let tagged = ctx.client()?.tag_image(&image, &name).await.or_fail(what)?;
            format.show(&tagged, |tagged| print::line(&tagged.id))
        }
        ImageCommand::Untag { name } => {
            let what = || format!("could not remove the name `{name}`");
            ctx.client()?.untag_image(&name, &name).await.or_fail(what)
        }
        ImageCommand::Rm { images, format } => {
            let client = ctx.client()?;
            for image in &images {
                client.remove_image(image).await.or_fail(|| format!("could not remove image `{image}`"))?;
                if !format.json {
                    print::line(escape(image))?;
                }
            }
            format.show(&images, |_| Ok(()))
        }
        ImageCommand::Prune { format } => {
            let pruned = ctx.client()?.prune_images().await.or_fail("could not clean up images")?;
            let (images, freed) = (pruned.images.len(), quantity::bytes(pruned.freed_bytes));
            let note = format!("removed {images} images and {} layers, {freed} freed", pruned.layers);
            format.report(&pruned, pruned.images.iter().map(|image| escape(image)), [note])
        }
    }
}
