//! `burrow image pull`, `import` and `export`: images from registries, and from and to files.

use burrow_api::{BuildImage, Image, ImageFrom, RegistryCredentials};

use super::follow::follow;
use crate::commands::prelude::*;
use crate::transfer::input::read_text;
use crate::transfer::save::{refuse_terminal, save};
use crate::transfer::upload::body;

/// Longest password or token.
const PASSWORD_BYTES_MAX: u64 = 16 << 10;

/// Pull an image from a registry
///
/// Layers that exist already are neither downloaded nor unpacked again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow image pull python:3.12
  burrow image pull registry.example.com/org/app:v1 --name app
  echo $TOKEN | burrow image pull registry.example.com/org/app --username me --password-stdin")]
pub(crate) struct PullArgs {
    /// Image reference, e.g. python:3.12, registry.example.com/org/app:v1 or host:5000/app@sha256:…
    reference: String,
    /// Name of the image; the reference as written by default
    #[arg(long)]
    name: Option<String>,
    /// User name for the registry
    #[arg(long, requires = "password_stdin")]
    username: Option<String>,
    /// Read the password or token from standard input
    #[arg(long, requires = "username")]
    password_stdin: bool,
    /// Use HTTP without TLS for a registry that is not on this host
    #[arg(long)]
    insecure: bool,
    /// Platform, e.g. linux/arm64; that of the daemon by default
    #[arg(long)]
    platform: Option<String>,
    /// Print the image as JSON instead of its id
    #[arg(long)]
    json: bool,
}

/// Import an image from a file: from docker save, an OCI archive, or a tar of a root file system
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Archive, compressed or not; `-` for standard input
    file: PathBuf,
    /// Name of the image; the names in the archive by default
    #[arg(long)]
    name: Option<String>,
    /// Print the images as JSON instead of their ids
    #[arg(long)]
    json: bool,
}

/// Export an image as an OCI archive, which docker load accepts too
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Name or id
    image: String,
    /// File to write, atomically; standard output by default, or with `-`
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compression of its layer
    #[arg(long, default_value = "gzip", value_parser = ["none", "gzip", "zstd"])]
    compression: String,
}

pub(super) async fn pull(ctx: &Context, args: PullArgs) -> Result<(), Stop> {
    let what = || format!("could not pull image `{}`", args.reference);
    let credentials = match &args.username {
        Some(username) => {
            // `echo` adds a line end.
            let text = read_text(Path::new("-"), PASSWORD_BYTES_MAX).or_fail(what)?;
            let password = text.trim_end_matches(['\r', '\n']).to_owned();
            Some(RegistryCredentials { username: username.clone(), password })
        }
        None => None,
    };
    let request = BuildImage {
        from: ImageFrom::Pull,
        name: args.name.clone(),
        reference: Some(args.reference.clone()),
        platform: args.platform.clone(),
        credentials,
        insecure: args.insecure,
        ..BuildImage::default()
    };
    let lines = ctx.client()?.build_image(&request).await.or_fail(what)?;
    print_ids(&follow(lines, what).await?, args.json)
}

pub(super) async fn import(ctx: &Context, args: ImportArgs) -> Result<(), Stop> {
    let images = import_file(&ctx.client()?, &args.file, args.name.as_deref()).await?;
    print_ids(&images, args.json)
}

pub(super) async fn import_file(
    client: &Client,
    file: &Path,
    name: Option<&str>,
) -> Result<Vec<Image>, Stop> {
    let what = || format!("could not import `{}`", file.display());
    let (body, progress) = body(file, what).await?;
    let lines = client.import_image(name, body).await.or_fail(what)?;
    progress.finish();
    follow(lines, what).await
}

pub(super) async fn export(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    unless_interrupted(write(ctx, args)).await?
}

async fn write(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    let what = || format!("could not export image `{}`", args.image);
    let output = args.output.as_deref();
    refuse_terminal(output, what, "give a file with -o, or redirect it")?;
    let bytes = ctx.client()?.export_image(&args.image, &args.compression).await.or_fail(what)?;
    save(bytes, None, output, &args.image, what).await
}

/// Prints ids, one per line, or JSON.
pub(super) fn print_ids(images: &[Image], json: bool) -> Result<(), Stop> {
    if json {
        return match images {
            [one] => print::json::pretty(one),
            all => print::json::pretty(all),
        };
    }
    images.iter().try_for_each(|image| print::line(escape(&image.id)))
}
