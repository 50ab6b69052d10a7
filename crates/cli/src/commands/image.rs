//! `burrow image`: what sandboxes start from.

use burrow_api::{BuildImage, BuildProgress, Image};
use burrow_client::Client;
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print::{self, Format, quantity, table};
use crate::transfer::progress::Progress;

/// Images that sandboxes start from
#[derive(Debug, Args)]
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
    /// Build the default image, unless it is there
    Build {
        #[arg(long, default_value = burrow_api::defaults::IMAGE)]
        name: String,
        /// Build it again even if it is there
        #[arg(long)]
        rebuild: bool,
    },
}

pub(crate) async fn run(ctx: &Context, args: ImageArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    match args.action {
        Action::Ls { format } => {
            let images = client.images().await.or_fail(|| "could not list images".to_owned())?;
            if format.json {
                return print::json::pretty(&images);
            }
            let now_ms = quantity::now_ms();
            let rows: Vec<_> = images.iter().map(|image| row(image, now_ms)).collect();
            table::print(&["ID", "NAME", "SIZE", "AGE"], &rows)
        }
        Action::Build { name, rebuild } => {
            let image = build(&client, BuildImage { name: Some(name), rebuild }).await?;
            print::line(&image.id)
        }
    }
}

fn row(image: &Image, now_ms: u64) -> Vec<String> {
    vec![
        image.id.clone(),
        image.name.clone(),
        quantity::bytes(image.size_bytes),
        quantity::age(image.created_ms, now_ms),
    ]
}

/// Builds with a progress bar, and answers the image.
pub(crate) async fn build(client: &Client, request: BuildImage) -> Result<Image, Stop> {
    let name = request.name.clone().unwrap_or_else(|| burrow_api::defaults::IMAGE.to_owned());
    let what = || format!("could not build image `{name}`");
    let mut stages = client.build_image(&request).await.or_fail(what)?;
    let progress = Progress::stages(&format!("image {name}"));
    while let Some(step) = stages.next().await.or_fail(what)? {
        match step {
            BuildProgress::Stage { stage, percent } => progress.stage(&stage, percent),
            BuildProgress::Done { image } => {
                progress.finish();
                return Ok(image);
            }
            BuildProgress::Error { error } => {
                let mut failure = Failure::new(what());
                failure.causes.push(error.message);
                failure.hint = error.hint;
                return Err(failure.into());
            }
        }
    }
    Err(Failure::new(what()).hint("the daemon ended the build without a word; its log says more").into())
}
