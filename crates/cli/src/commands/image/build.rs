//! `burrow image build` and `commit`: creates images.

use std::collections::BTreeMap;
use std::io;

use burrow_api::defaults::IMAGE;
use burrow_api::{BuildImage, Image, ImageConfigChange, ImageFrom, NetworkMode, NetworkRequest};
use clap::builder::PossibleValuesParser;

use super::bundle::{self, Bundle};
use super::docker_context::{self, DockerContext};
use super::follow::follow;
use super::ignore::IgnoreRules;
use super::transfer::{import_file, print_ids};
use crate::commands::prelude::*;
use crate::transfer::bridge::{QueueWriter, send_written};
use crate::transfer::input::read_text;
use crate::transfer::save::parent;

/// Build files that are included in the program, by the name of their image. One may be based on an earlier one.
const READY: [(&str, &str); 3] = [
    ("python-interpreter", include_str!("ready/python-interpreter.yaml")),
    ("polyglot-interpreter", include_str!("ready/polyglot-interpreter.yaml")),
    ("desktop", include_str!("ready/desktop.yaml")),
];

/// A build file has about a page.
const RECIPE_BYTES_MAX: u64 = 256 << 10;

/// Build an image: the default one, from packages, or from a Dockerfile or build file
///
/// Steps are cached: a step that ran before, on the same image and with the same files, is not run again. A directory is
/// built by its Dockerfile, or else by its burrow.yaml.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow image build                                      the default image, unless it exists
  burrow image build --packages nodejs,npm --name node    the default image with packages
  burrow image build --ready python-interpreter           Python for `burrow code`
  burrow image build --name app .                         the Dockerfile in this directory
  burrow image build -f Dockerfile.dev --target test --build-arg VERSION=2 --name app-test .
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
pub(crate) struct BuildArgs {
    /// Directory with a Dockerfile or burrow.yaml, and with the files to copy
    #[arg(value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath, conflicts_with_all = ["packages", "from", "ready"])]
    directory: Option<PathBuf>,
    /// Dockerfile or build file; `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = ["packages", "from", "ready"])]
    file: Option<PathBuf>,
    /// Image whose build file is included in Burrow
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(READY.map(|(name, _)| name)))]
    #[arg(conflicts_with_all = ["packages", "from"])]
    ready: Option<String>,
    /// Directory of the files to copy; that of the build file by default
    #[arg(long, value_name = "DIRECTORY", requires = "file", conflicts_with = "directory")]
    context: Option<PathBuf>,
    /// Packages to install
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    packages: Vec<String>,
    /// Image to install the packages in; the default image if omitted
    #[arg(long, value_name = "IMAGE", requires = "packages")]
    from: Option<String>,
    /// Stage of the Dockerfile to build, by name or number; the last one if omitted
    #[arg(long, value_name = "STAGE")]
    target: Option<String>,
    /// Value of an ARG of the Dockerfile; a bare NAME takes the value from your environment; may be repeated
    #[arg(long = "build-arg", value_name = "NAME=VALUE", value_parser = parse::variable)]
    build_args: Vec<(String, String)>,
    /// Name of the image
    #[arg(short = 't', long, alias = "tag")]
    name: Option<String>,
    /// Run every step, without the cache
    #[arg(long)]
    no_cache: bool,
    /// Build the default image again, even if it exists
    #[arg(long, conflicts_with_all = ["directory", "file", "packages", "ready"])]
    rebuild: bool,
    /// Network mode of `run` steps; `open` by default with `--ready`
    #[arg(long, value_name = "MODE", value_parser = parse::one_of::<NetworkMode>(["none", "allowlist", "open"]), conflicts_with = "packages")]
    net: Option<NetworkMode>,
    /// Host that `run` steps may reach; may be repeated
    #[arg(long, value_name = "RULE", conflicts_with = "packages")]
    allow: Vec<String>,
    /// Print the image as JSON instead of its id
    #[arg(long)]
    json: bool,
}

/// Create an image from the current state of a sandbox
///
/// The image has the files, the environment and the user of the sandbox. The sandbox keeps running.
#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// Sandbox to create the image from
    sandbox: String,
    /// Name of the image
    #[arg(long)]
    name: Option<String>,
    /// Additional environment variable; may be repeated
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Label of the image; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    labels: Vec<(String, String)>,
    /// User of its execs
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    /// Working directory of its execs
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// Print the image as JSON instead of its id
    #[arg(long)]
    json: bool,
    /// Default command of `burrow run`
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    cmd: Vec<String>,
}

pub(super) async fn run(ctx: &Context, args: BuildArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let json = args.json;
    let images = if args.file.is_some() || args.directory.is_some() {
        vec![from_file(&client, FileBuild::of(args)?).await?]
    } else if args.ready.is_some() {
        from_ready(&client, args).await?
    } else {
        let request = if args.packages.is_empty() {
            if args.no_cache {
                return fail(
                    "could not build: --no-cache is for packages and build files",
                    "--rebuild builds the default image again",
                );
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
    print_ids(&images, json)
}

/// Imports the default image from `packaged`, or builds it, unless it exists.
pub(crate) async fn provide_default(client: &Client, packaged: Option<&Path>) -> Result<(), Stop> {
    if let Some(file) = packaged {
        let existing = client.images().await.or_fail("could not list the images")?;
        if !existing.iter().any(|image| image.names.iter().any(|name| name == IMAGE)) {
            import_file(client, file, Some(IMAGE)).await?;
        }
        return Ok(());
    }
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
    // These steps are part of Burrow, and some install software that is not a Debian package.
    let open = || NetworkRequest { mode: Some(NetworkMode::Open), ..NetworkRequest::default() };
    let network = args.network().unwrap_or_else(open);
    let ready = args.ready.unwrap_or_default();
    let existing = client.images().await.or_fail(|| format!("could not build image `{ready}`"))?;
    let exists = |name: &str| existing.iter().any(|image| image.names.iter().any(|known| known == name));
    let recipe = |name: &str, recipe: &str, is_last: bool| BuildImage {
        from: ImageFrom::Recipe,
        name: Some(if is_last { args.name.clone() } else { None }.unwrap_or_else(|| name.to_owned())),
        recipe: Some(recipe.to_owned()),
        no_cache: args.no_cache && is_last,
        network: Some(network.clone()),
        ..BuildImage::default()
    };
    let Some((name, text)) = READY.into_iter().find(|(name, _)| *name == ready) else {
        return Err(
            Failure::new(format!("could not build image `{ready}`: there is no build file for it")).into()
        );
    };
    for (base, base_text) in READY {
        let base_line = format!("base: {base}");
        if text.lines().any(|line| line == base_line) && !exists(base) {
            make(client, &recipe(base, base_text, false)).await?;
        }
    }
    make(client, &recipe(name, text, true)).await
}

impl BuildArgs {
    /// The network of `run` steps; `None` for the daemon's default.
    fn network(&self) -> Option<NetworkRequest> {
        (self.net.is_some() || !self.allow.is_empty()).then(|| NetworkRequest {
            mode: self.net,
            allow: (!self.allow.is_empty()).then(|| self.allow.clone()),
            ..NetworkRequest::default()
        })
    }
}

/// A build from a Dockerfile or a build file.
#[derive(Debug)]
pub(crate) struct FileBuild {
    pub(crate) file: PathBuf,
    /// The directory of the files to copy.
    pub(crate) directory: PathBuf,
    pub(crate) target: Option<String>,
    pub(crate) build_args: BTreeMap<String, String>,
    pub(crate) name: Option<String>,
    pub(crate) no_cache: bool,
    pub(crate) network: Option<NetworkRequest>,
}

impl FileBuild {
    fn of(args: BuildArgs) -> Result<Self, Stop> {
        let network = args.network();
        let file = match (args.file, &args.directory) {
            (Some(file), _) => file,
            (None, Some(directory)) => file_in(directory)?,
            (None, None) => PathBuf::new(),
        };
        Ok(Self {
            directory: args.directory.or(args.context).unwrap_or_else(|| parent(&file).to_owned()),
            file,
            target: args.target,
            build_args: args.build_args.into_iter().collect(),
            name: args.name,
            no_cache: args.no_cache,
            network,
        })
    }
}

/// The file that describes how to build a directory.
fn file_in(directory: &Path) -> Result<PathBuf, Stop> {
    const NAMES: [&str; 4] = ["Dockerfile", "Containerfile", "burrow.yaml", "burrow.yml"];
    let found = NAMES.iter().map(|name| directory.join(name)).find(|file| file.exists());
    found.ok_or_else(|| {
        let directory = directory.display();
        let what =
            format!("could not build `{directory}`: it contains neither a Dockerfile nor a burrow.yaml");
        Failure::new(what).hint("name the file with -f").into()
    })
}

/// Builds an image from a file and a directory.
pub(crate) async fn from_file(client: &Client, build: FileBuild) -> Result<Image, Stop> {
    let file = build.file.clone();
    let what = || format!("could not build `{}`", file.display());
    let text = read_text(&file, RECIPE_BYTES_MAX).or_fail(what)?;
    let base = BuildImage {
        name: build.name,
        no_cache: build.no_cache,
        network: build.network,
        ..BuildImage::default()
    };
    let images = if docker_context::is_dockerfile(&file, &text) {
        let needs_context = docker_context::needs_context(&text);
        let (dockerfile, build_args, target) = (Some(text), build.build_args, build.target);
        let request = BuildImage { from: ImageFrom::Dockerfile, dockerfile, build_args, target, ..base };
        if needs_context {
            let ignored = IgnoreRules::read(&file, &build.directory).or_fail(what)?;
            let context = DockerContext { request, directory: build.directory, ignored };
            send(client, move |writer| context.pack(writer), what).await?
        } else {
            make_from(client, &request, what).await?
        }
    } else {
        if build.target.is_some() || !build.build_args.is_empty() {
            return fail(what(), "--target and --build-arg are for Dockerfiles, and this is a build file");
        }
        let copied = bundle::copied(&text);
        let request = BuildImage { from: ImageFrom::Recipe, recipe: Some(text), ..base };
        if copied.is_empty() {
            make_from(client, &request, what).await?
        } else {
            let bundle = Bundle { request, directory: build.directory, copied };
            send(client, move |writer| bundle.pack(writer), what).await?
        }
    };
    match images.into_iter().next() {
        Some(image) => Ok(image),
        None => fail(what(), "the daemon sent no image; see its log"),
    }
}

async fn make_from(
    client: &Client,
    request: &BuildImage,
    what: impl Fn() -> String,
) -> Result<Vec<Image>, Stop> {
    let lines = client.build_image(request).await.or_fail(&what)?;
    follow(lines, what).await
}

/// Sends an archive of the request and its files.
async fn send(
    client: &Client,
    pack: impl FnOnce(&mut QueueWriter) -> io::Result<()> + Send + 'static,
    what: impl Fn() -> String,
) -> Result<Vec<Image>, Stop> {
    let send = async |body| client.build_image_with(body).await;
    let (lines, ()) = send_written(pack, send, &what).await?;
    follow(lines, what).await
}

pub(super) async fn commit(ctx: &Context, args: CommitArgs) -> Result<(), Stop> {
    let what = || format!("could not create an image of sandbox `{}`", args.sandbox);
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
    print_ids(&follow(lines, what).await?, args.json)
}
