//! `burrow create`: creates a sandbox, or with --if-not-exists returns an existing one.

use burrow_api::CreateSandbox;
use burrow_client::CreateOutcome;

use super::creation::create_sandbox;
use super::devcontainer::Devcontainer;
use super::egress::apply;
use super::flags::SandboxFlags;
use crate::commands::prelude::*;
use crate::transfer::input::read_text;

/// Largest specification: the limit of the daemon for JSON.
const SPEC_BYTES_MAX: u64 = burrow_api::defaults::JSON_BODY_BYTES_MAX as u64;

/// Create a sandbox and print its id
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow create web --ram 2G --cpu 1.5 --label team=a
  burrow create web --if-not-exists            create or reuse, also for concurrent callers
  burrow create -f spec.yaml                   flags override the file
  burrow create web --sleep-after 5m --hibernate-after 1h --stop-after 7d
  burrow create web --from known-good --rotate-every 7d
  burrow create web --policy policy.yaml
  burrow create web --devcontainer . --net open
  burrow create web --memory ops --attach handbook:ro --remember errors

A specification:
  name: web
  image: debian
  limits: { ram_mib: 512, cpu_millis: 500 }
  env: { LANG: C.UTF-8 }
  labels: { team: a }
  sleep: { pause_after_seconds: 300, hibernate_after_seconds: 3600 }
  snapshot_policy: { every_seconds: 900, keep: 10 }
  memory: { space: ops, attached: [{ space: handbook }], remember: errors }
  services:
    app: { argv: [python3, -m, http.server], workdir: /srv, restart: always }")]
pub(crate) struct CreateArgs {
    /// Specification in YAML; `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Directory with a .devcontainer/devcontainer.json, which is copied into the sandbox
    ///
    /// Its image is pulled or built, and its commands (onCreateCommand, postCreateCommand and so on) run in the sandbox.
    #[arg(long, value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath, conflicts_with_all = ["file", "image", "from"])]
    devcontainer: Option<PathBuf>,
    /// Policy file with egress rules and secrets; replaces `network` of the specification
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["net", "allow", "sets", "deny"])]
    policy: Option<PathBuf>,
    /// If a sandbox with this name exists, use it, and wake or start it if needed
    #[arg(long)]
    if_not_exists: bool,
    /// Delete the sandbox and its data as soon as it stops
    #[arg(long)]
    ephemeral: bool,
    /// Print the whole sandbox as JSON instead of its id
    #[arg(long)]
    json: bool,
    /// Name, like --name
    #[arg(value_name = "NAME", conflicts_with = "name")]
    named: Option<String>,
    #[command(flatten)]
    sandbox: SandboxFlags,
}

pub(crate) async fn run(ctx: &Context, args: CreateArgs) -> Result<(), Stop> {
    let mut request = match &args.file {
        Some(file) => read(file)?,
        None => CreateSandbox::default(),
    };
    request.if_not_exists |= args.if_not_exists;
    request.ephemeral |= args.ephemeral;
    let from = args.sandbox.from.clone();
    let mut request = args.sandbox.over(request);
    request.name = args.named.or(request.name);
    if request.if_not_exists && request.name.is_none() {
        return fail(
            "could not create a sandbox: --if-not-exists needs a name",
            "add a name: `burrow create NAME --if-not-exists`",
        );
    }
    let client = ctx.client()?;
    let request = match &args.policy {
        Some(file) => {
            let network = Some(apply::for_new_sandbox(&client, file).await?);
            CreateSandbox { network, ..request }
        }
        None => request,
    };
    let devcontainer = args.devcontainer.as_deref().map(Devcontainer::read).transpose()?;
    let request = match &devcontainer {
        Some(devcontainer) => devcontainer.prepare(&client, request).await?,
        None => request,
    };
    let (created, sandbox) = create_sandbox(&client, &request, from.as_deref()).await?;
    if let (Some(devcontainer), CreateOutcome::New) = (&devcontainer, created) {
        devcontainer.set_up(&client, &sandbox).await?;
    }
    if created == CreateOutcome::Existed && std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        print::note(format!(
            "sandbox `{}` exists already",
            escape(sandbox.name.as_deref().unwrap_or(&sandbox.id))
        ));
    }
    Format { json: args.json }.show(&sandbox, |sandbox| print::line(&sandbox.id))
}

fn read(file: &Path) -> Result<CreateSandbox, Stop> {
    let what = || format!("could not read the specification `{}`", file.display());
    let text = read_text(file, SPEC_BYTES_MAX).or_fail(what)?;
    parse(&text).map_err(|error| {
        Failure::new(what()).because(&error).hint("`burrow create --help` shows a specification").into()
    })
}

fn parse(text: &str) -> Result<CreateSandbox, serde_norway::Error> {
    // An empty file leaves everything at its default.
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(CreateSandbox::default());
    }
    serde_norway::from_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_is_the_request_in_yaml() {
        let text = "name: web\nlimits: { ram_mib: 512 }\nsleep: { hibernate_after_seconds: 60 }\n\
                    rotate: { every_seconds: 600, snapshot: base }\nservices:\n  app: { argv: [serve, '80'], restart: on-failure }\n";
        let request = parse(text).unwrap();
        assert_eq!(request.name.as_deref(), Some("web"));
        assert_eq!(request.limits.unwrap().ram_mib, Some(512));
        assert_eq!(request.services["app"].argv, ["serve", "80"]);
        assert_eq!(request.sleep.unwrap().hibernate_after_seconds, Some(60));
        assert_eq!(request.rotate.unwrap().snapshot.as_deref(), Some("base"));
        assert_eq!(parse("# nothing\n\n").unwrap(), CreateSandbox::default());
    }

    #[test]
    fn a_key_that_does_not_exist_is_named_with_its_line() {
        for (text, key, line) in [
            ("name: web\nram: 512\n", "ram", "line 2"),
            ("name: web\nlimits:\n  ram: 5\n", "ram", "line 3"),
            ("services:\n  app:\n    argv: [x]\n    restarts: 3\n", "restarts", "line 4"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("unknown field `{key}`")) && error.contains(line), "{error}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named_with_its_line() {
        let error = parse("name: web\nlimits:\n  ram_mib: much\n").unwrap_err().to_string();
        assert!(error.contains("ram_mib") && error.contains("line 3"), "{error}");
    }
}
