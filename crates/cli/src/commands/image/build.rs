//! `burrow image build` and `commit`: images of our own.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use burrow_api::{BuildImage, Image, ImageConfigChange, ImageFrom, NetworkMode, NetworkRequest};
use burrow_client::{Client, UploadBody};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

use super::bundle::{self, Bundle};
use super::follow::follow;
use super::is_standard;
use super::moving::answer;
use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::parse;
use crate::transfer::bridge::from_blocking;

/// Build files that come with the program, by the name of their image. Each builds upon the one before it.
const READY: [(&str, &str); 2] = [
    ("python-interpreter", include_str!("ready/python-interpreter.yaml")),
    ("polyglot-interpreter", include_str!("ready/polyglot-interpreter.yaml")),
];

/// A build file is a page.
const RECIPE_BYTES_MAX: u64 = 256 << 10;

/// Build an image: the default one, from packages, or from a build file
///
/// Steps that were done before, upon the same image and with the same files, are not done again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow image build                                      the default image, unless it is there
  burrow image build --packages nodejs,npm --name node    packages upon the default image
  burrow image build --ready python-interpreter           Python that keeps its variables, for `burrow code`
  burrow image build -f burrow.yaml --name app --allow packages.example.com

A build file:
  base: debian
  steps:
    - packages: [nodejs, npm]
    - copy: { from: app, to: /srv/app }
    - run: npm --prefix /srv/app ci
    - env: { NODE_ENV: production }
    - workdir: /srv/app
    - cmd: [node, server.js]")]
pub(super) struct BuildArgs {
    /// Build file; `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = ["packages", "from", "ready"])]
    file: Option<PathBuf>,
    /// An image that Burrow has the build file of
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(READY.map(|(name, _)| name)))]
    #[arg(conflicts_with_all = ["packages", "from"])]
    ready: Option<String>,
    /// Where the files are that it copies; beside the build file when absent
    #[arg(long, value_name = "DIRECTORY", requires = "file")]
    context: Option<PathBuf>,
    /// Packages to install
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    packages: Vec<String>,
    /// Image to install them in; the default image when absent
    #[arg(long, value_name = "IMAGE", requires = "packages")]
    from: Option<String>,
    /// What to call it
    #[arg(long)]
    name: Option<String>,
    /// Do every step again
    #[arg(long)]
    no_cache: bool,
    /// The default image: build it again even if it is there
    #[arg(long, conflicts_with_all = ["file", "packages", "ready"])]
    rebuild: bool,
    /// What the build file's `run` steps may reach; of an image by `--ready` all that is public
    #[arg(long, value_name = "MODE", value_enum, conflicts_with = "packages")]
    net: Option<Net>,
    /// Host that its `run` steps may reach; may be repeated
    #[arg(long, value_name = "RULE", conflicts_with = "packages")]
    allow: Vec<String>,
    /// Print the image as JSON instead of its id
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Net {
    None,
    Allowlist,
    Open,
}

/// Make an image of a sandbox, as it is now
///
/// It keeps the sandbox's files, its variables and its user. The sandbox goes on meanwhile.
#[derive(Debug, Args)]
pub(super) struct CommitArgs {
    /// Sandbox to take
    sandbox: String,
    /// What to call it
    #[arg(long)]
    name: Option<String>,
    /// Variable the image gets besides the sandbox's; may be repeated
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Label the image gets; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    labels: Vec<(String, String)>,
    /// Who its execs run as
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    /// Where its execs start
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// Print the image as JSON instead of its id
    #[arg(long)]
    json: bool,
    /// What `burrow run` runs when it is given no command
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    cmd: Vec<String>,
}

pub(super) async fn run(ctx: &Context, args: BuildArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let json = args.json;
    let images = if args.file.is_some() {
        from_file(&client, args).await?
    } else if args.ready.is_some() {
        from_ready(&client, args).await?
    } else {
        let request = if args.packages.is_empty() {
            if args.no_cache {
                return Err(Failure::new("could not build: --no-cache is for packages and build files")
                    .hint("--rebuild builds the default image again")
                    .into());
            }
            BuildImage { name: args.name, rebuild: args.rebuild, ..BuildImage::default() }
        } else {
            BuildImage {
                from: ImageFrom::Packages,
                name: args.name,
                packages: args.packages,
                base: args.from,
                no_cache: args.no_cache,
                ..BuildImage::default()
            }
        };
        make(&client, &request).await?
    };
    answer(&images, json)
}

/// The default image, unless it is there.
pub(crate) async fn default(client: &Client) -> Result<(), Stop> {
    make(client, &BuildImage::default()).await.map(drop)
}

async fn make(client: &Client, request: &BuildImage) -> Result<Vec<Image>, Stop> {
    let name = request.name.clone();
    let what = || match &name {
        Some(name) => format!("could not build image `{name}`"),
        None => "could not build the image".to_owned(),
    };
    let lines = client.build_image(request).await.or_fail(what)?;
    follow(lines, what).await
}

async fn from_ready(client: &Client, args: BuildArgs) -> Result<Vec<Image>, Stop> {
    // The steps are Burrow's own, and some install what is not among Debian's packages.
    let open = || NetworkRequest { mode: Some(NetworkMode::Open), ..NetworkRequest::default() };
    let network = args.network().unwrap_or_else(open);
    let ready = args.ready.unwrap_or_default();
    let there = client.images().await.or_fail(|| format!("could not build image `{ready}`"))?;
    let is_there = |name: &str| there.iter().any(|image| image.names.iter().any(|known| known == name));
    let recipe = |name: &str, recipe: &str, is_last: bool| BuildImage {
        from: ImageFrom::Recipe,
        name: Some(if is_last { args.name.clone() } else { None }.unwrap_or_else(|| name.to_owned())),
        recipe: Some(recipe.to_owned()),
        no_cache: args.no_cache && is_last,
        network: Some(network.clone()),
        ..BuildImage::default()
    };
    for (name, text) in READY {
        if name == ready {
            return make(client, &recipe(name, text, true)).await;
        }
        if !is_there(name) {
            make(client, &recipe(name, text, false)).await?;
        }
    }
    Err(Failure::new(format!("could not build image `{ready}`: nobody has its build file")).into())
}

impl BuildArgs {
    /// What `run` steps may reach; the daemon's default where nobody says.
    fn network(&self) -> Option<NetworkRequest> {
        (self.net.is_some() || !self.allow.is_empty()).then(|| NetworkRequest {
            mode: self.net.map(|net| match net {
                Net::None => NetworkMode::None,
                Net::Allowlist => NetworkMode::Allowlist,
                Net::Open => NetworkMode::Open,
            }),
            allow: (!self.allow.is_empty()).then(|| self.allow.clone()),
            ..NetworkRequest::default()
        })
    }
}

async fn from_file(client: &Client, args: BuildArgs) -> Result<Vec<Image>, Stop> {
    let network = args.network();
    let file = args.file.unwrap_or_default();
    let what = || format!("could not build `{}`", file.display());
    let recipe = read(&file).or_fail(what)?;
    let copied = bundle::copied(&recipe);
    let request = BuildImage {
        from: ImageFrom::Recipe,
        name: args.name,
        recipe: Some(recipe),
        no_cache: args.no_cache,
        network,
        ..BuildImage::default()
    };
    if copied.is_empty() {
        let lines = client.build_image(&request).await.or_fail(what)?;
        return follow(lines, what).await;
    }
    let directory = args.context.unwrap_or_else(|| beside(&file));
    let (mut writer, stream) = from_blocking();
    let bundle = Bundle { request, directory, copied };
    let packing = tokio::task::spawn_blocking(move || {
        let packed = bundle.pack(&mut writer);
        if let Err(error) = &packed {
            writer.fail(error);
        }
        packed
    });
    let sent = client.build_image_with(UploadBody::from_stream(stream, None)).await;
    let packed = packing.await.expect("packing does not panic");
    match (sent, packed) {
        (Ok(lines), Ok(())) => follow(lines, what).await,
        // When the daemon refused, the packing's broken pipe says nothing new; otherwise it is the cause.
        (Err(error), Err(local)) if local.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(error).or_fail(what)
        }
        (Err(error), Ok(())) => Err(error).or_fail(what),
        (_, Err(local)) => Err(local).or_fail(what),
    }
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if is_standard(file) {
        std::io::stdin().take(RECIPE_BYTES_MAX).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(file)?.take(RECIPE_BYTES_MAX).read_to_string(&mut text)?;
    }
    Ok(text)
}

fn beside(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

pub(super) async fn commit(ctx: &Context, args: CommitArgs) -> Result<(), Stop> {
    let what = || format!("could not make an image of sandbox `{}`", args.sandbox);
    let config = ImageConfigChange {
        env: args.env.into_iter().collect(),
        labels: args.labels.into_iter().collect(),
        user: args.user,
        workdir: args.workdir,
        entrypoint: None,
        cmd: (!args.cmd.is_empty()).then_some(args.cmd),
    };
    let request = BuildImage {
        from: ImageFrom::Sandbox,
        name: args.name,
        sandbox: Some(args.sandbox.clone()),
        config: Some(config),
        ..BuildImage::default()
    };
    let lines = ctx.client()?.build_image(&request).await.or_fail(what)?;
    answer(&follow(lines, what).await?, args.json)
}
