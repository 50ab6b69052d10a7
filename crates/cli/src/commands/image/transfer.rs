//! `burrow image pull`, `import` and `export`: images from registries, and from and to files.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::PathBuf;

use burrow_api::{BuildImage, Image, ImageFrom, RegistryCredentials};
use burrow_client::UploadBody;
use clap::{Args, ValueEnum};
use tokio::io::AsyncWriteExt as _;

use super::follow::follow;
use super::is_standard;
use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print;
use crate::print::escape::escape;
use crate::print::quantity;
use crate::transfer::download::staged;
use crate::transfer::interrupt::unless_interrupted;
use crate::transfer::progress::Progress;

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
pub(super) struct PullArgs {
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
pub(super) struct ImportArgs {
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
pub(super) struct ExportArgs {
    /// Name or id
    image: String,
    /// File to write, atomically; standard output by default, or with `-`
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compression of its layer
    #[arg(long, value_enum, default_value_t = Compression::Gzip)]
    compression: Compression,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

pub(super) async fn pull(ctx: &Context, args: PullArgs) -> Result<(), Stop> {
    let what = || format!("could not pull image `{}`", args.reference);
    let credentials = match &args.username {
        Some(username) => {
            Some(RegistryCredentials { username: username.clone(), password: password().or_fail(what)? })
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

/// Without the line end that `echo` adds.
fn password() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().take(PASSWORD_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

pub(super) async fn import(ctx: &Context, args: ImportArgs) -> Result<(), Stop> {
    let what = || format!("could not import `{}`", args.file.display());
    let (body, total) = if is_standard(&args.file) {
        (UploadBody::from_reader(tokio::io::stdin(), None), None)
    } else {
        let file = tokio::fs::File::open(&args.file).await.or_fail(what)?;
        let metadata = file.metadata().await.or_fail(what)?;
        if !metadata.is_file() {
            return Err(Failure::new(format!("{}: not a regular file", what())).into());
        }
        (UploadBody::from_reader(file, Some(metadata.len())), Some(metadata.len()))
    };
    let progress = std::sync::Arc::new(Progress::bytes("sending", total));
    let counter = progress.clone();
    let body = body.inspect(move |bytes| counter.add(bytes.len() as u64));
    let lines = ctx.client()?.import_image(args.name.as_deref(), body).await.or_fail(what)?;
    progress.finish();
    print_ids(&follow(lines, what).await?, args.json)
}

pub(super) async fn export(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    unless_interrupted(write(ctx, args)).await?
}

async fn write(ctx: &Context, args: ExportArgs) -> Result<(), Stop> {
    let what = || format!("could not export image `{}`", args.image);
    let output = args.output.as_deref().filter(|output| !is_standard(output));
    if output.is_none() && io::stdout().is_terminal() {
        return Err(Failure::new(format!("{}: standard output is a terminal", what()))
            .hint("give a file with -o, or redirect it")
            .into());
    }
    let compression = match args.compression {
        Compression::None => "none",
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
    };
    let bytes = ctx.client()?.export_image(&args.image, compression).await.or_fail(what)?;
    let progress = Progress::bytes(&args.image, None);
    let Some(output) = output else {
        bytes.copy_to(&mut tokio::io::stdout(), |count| progress.add(count)).await.or_fail(what)?;
        return Ok(());
    };
    let file = staged(output).or_fail(what)?;
    let mut target = tokio::fs::File::from_std(file.reopen().or_fail(what)?);
    let total = bytes.copy_to(&mut target, |count| progress.add(count)).await.or_fail(what)?;
    target.flush().await.or_fail(what)?;
    target.sync_all().await.or_fail(what)?;
    file.persist(output).map_err(|error| error.error).or_fail(what)?;
    progress.finish();
    print::note(&format!("wrote {} to `{}`", quantity::bytes(total), escape(&output.display().to_string())));
    Ok(())
}

/// Prints ids, one per line, or JSON.
pub(super) fn print_ids(images: &[Image], json: bool) -> Result<(), Stop> {
    if json {
        return match images {
            [one] => print::json::pretty(one),
            all => print::json::pretty(all),
        };
    }
    images.iter().try_for_each(|image| print::line(&escape(&image.id)))
}
