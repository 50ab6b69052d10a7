//! `burrow create --devcontainer DIRECTORY`: a sandbox from a `devcontainer.json`, with a copy of the directory.
//!
//! The file is untrusted: nothing in it runs on this host, and a property that would change what the sandbox is, but is not
//! supported, is refused by its name.

use std::collections::BTreeMap;

use burrow_api::{BuildImage, CreateExec, CreateSandbox, ImageFrom, MakeDirectory, Sandbox};
use serde_json::{Map, Value};

use super::image::{FileBuild, follow, from_file};
use crate::commands::prelude::*;
use crate::transfer::endpoint::{LocalPath, RemotePath};
use crate::transfer::input::read_text;
use crate::transfer::upload;

/// Such a file has a few pages.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Properties for editors, or whose effect a sandbox has anyway.
const WITHOUT_EFFECT: [&str; 14] = [
    "$schema",
    "customizations",
    "extensions",
    "settings",
    "hostRequirements",
    "init",
    "name",
    "otherPortsAttributes",
    "overrideCommand",
    "portsAttributes",
    "shutdownAction",
    "updateRemoteUserUID",
    "userEnvProbe",
    "waitFor",
];

/// Commands after the creation, in this order.
const COMMANDS: [&str; 4] =
    ["onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand"];

/// A `devcontainer.json` that can be created.
#[derive(Debug)]
pub(crate) struct Devcontainer {
    directory: PathBuf,
    image: DevcontainerImage,
    workspace: String,
    user: Option<String>,
    env: BTreeMap<String, String>,
    commands: Vec<(String, DevcontainerCommand)>,
    pub(crate) ports: Vec<u16>,
}

#[derive(Debug, PartialEq, Eq)]
enum DevcontainerImage {
    Named(String),
    Built {
        dockerfile: PathBuf,
        context: PathBuf,
        arguments: BTreeMap<String, String>,
        target: Option<String>,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum DevcontainerCommand {
    Line(String),
    Argv(Vec<String>),
}

impl Devcontainer {
    /// Reads `.devcontainer/devcontainer.json` or `.devcontainer.json` in a directory.
    pub(crate) fn read(directory: &Path) -> Result<Self, Stop> {
        let what = || format!("could not read the devcontainer of `{}`", directory.display());
        let directory = directory.canonicalize().or_fail(what)?;
        let files =
            [".devcontainer/devcontainer.json", ".devcontainer.json"].map(|name| directory.join(name));
        let Some(file) = files.iter().find(|file| file.exists()) else {
            return fail(what(), "it contains no .devcontainer/devcontainer.json");
        };
        let text = read_text(file, FILE_BYTES_MAX).or_fail(what)?;
        let refused = |reason: String| Failure::new(format!("{}: {reason}", file.display()));
        let parsed: Map<String, Value> =
            serde_json::from_str(&plain_json(&text)).map_err(|error| refused(error.to_string()))?;
        Ok(parse(&parsed, &directory, file.parent().unwrap_or(&directory)).map_err(refused)?)
    }

    /// Adds the devcontainer to a request, in which flags have precedence. Builds or pulls its image.
    pub(crate) async fn prepare(
        &self,
        client: &Client,
        request: CreateSandbox,
    ) -> Result<CreateSandbox, Stop> {
        let image = match &self.image {
            DevcontainerImage::Named(name) => {
                let known = client.images().await.or_fail(|| format!("could not find image `{name}`"))?;
                if !known.iter().any(|image| image.id == *name || image.names.contains(name)) {
                    pull(client, name).await?;
                }
                name.clone()
            }
            DevcontainerImage::Built { dockerfile, context, arguments, target } => {
                let build = FileBuild {
                    file: dockerfile.clone(),
                    directory: context.clone(),
                    target: target.clone(),
                    build_args: arguments.clone(),
                    name: None,
                    no_cache: false,
                    network: request.network.clone(),
                };
                from_file(client, build).await?.id
            }
        };
        let mut env = self.env.clone();
        env.extend(request.env);
        Ok(CreateSandbox {
            image: Some(image),
            env,
            user: request.user.or_else(|| self.user.clone()),
            workdir: request.workdir.or_else(|| Some(self.workspace.clone())),
            ..request
        })
    }

    /// Copies the directory into a new sandbox, and runs the commands of the file.
    pub(crate) async fn set_up(&self, client: &Client, sandbox: &Sandbox) -> Result<(), Stop> {
        let what = || format!("could not create `{}` in sandbox `{}`", self.workspace, sandbox.id);
        let request = MakeDirectory {
            path: self.workspace.clone(),
            parents: true,
            mode: None,
            user: self.user.clone(),
        };
        client.make_directory(&sandbox.id, &request).await.or_fail(what)?;
        let from = LocalPath { path: self.directory.clone(), contents: true, directory: true };
        let (id, path) = (sandbox.id.clone(), self.workspace.clone());
        let to = RemotePath { sandbox: id, path, contents: false, directory: true };
        upload::upload(client, &from, &to, self.user.as_deref()).await?;
        for (name, command) in &self.commands {
            let request = match command {
                DevcontainerCommand::Line(line) => {
                    CreateExec { command: Some(line.clone()), ..CreateExec::default() }
                }
                DevcontainerCommand::Argv(argv) => CreateExec { argv: argv.clone(), ..CreateExec::default() },
            };
            let request = CreateExec { workdir: Some(self.workspace.clone()), ..request };
            let what = || format!("could not run {name} in sandbox `{}`", sandbox.id);
            print::note(format!("running {name}"));
            let result = client.run(&sandbox.id, &request).await.or_fail(what)?;
            for line in result.stdout.lines().chain(result.stderr.lines()) {
                print::note(escape(line));
            }
            let code = result.exec.outcome.and_then(|outcome| outcome.exit_code);
            if code != Some(0) {
                let how = code
                    .map_or("was ended by a signal".to_owned(), |code| format!("exited with code {code}"));
                let shell = "the sandbox is kept: `burrow shell` opens a shell in it, `burrow rm` removes it";
                return fail(format!("{}: it {how}", what()), shell);
            }
        }
        for port in &self.ports {
            print::note(format!(
                "port {port}: burrow port-forward {} {port}",
                sandbox.name.as_ref().unwrap_or(&sandbox.id)
            ));
        }
        Ok(())
    }
}

async fn pull(client: &Client, name: &str) -> Result<(), Stop> {
    let what = || format!("could not pull image `{name}`");
    let request =
        BuildImage { from: ImageFrom::Pull, reference: Some(name.to_owned()), ..BuildImage::default() };
    let lines = client.build_image(&request).await.or_fail(what)?;
    follow(lines, what).await.map(drop)
}

/// Checks every property. `beside`: the directory of the file, to which its paths are relative.
fn parse(file: &Map<String, Value>, directory: &Path, beside: &Path) -> Result<Devcontainer, String> {
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut variables =
        Variables { directory: directory.display().to_string(), workspace: String::new(), name };
    variables.workspace = match file.get("workspaceFolder") {
        Some(value) => variables.expand(&text("workspaceFolder", value)?)?,
        None => format!("/workspaces/{}", variables.name),
    };
    if !variables.workspace.starts_with('/') || variables.workspace.split('/').any(|part| part == "..") {
        return Err("`workspaceFolder` must be an absolute path without `..`".to_owned());
    }
    let mut found = Devcontainer {
        directory: directory.to_owned(),
        image: image(file, &variables, beside)?,
        workspace: variables.workspace.clone(),
        user: None,
        env: BTreeMap::new(),
        commands: Vec::new(),
        ports: Vec::new(),
    };
    for (key, value) in file {
        match key.as_str() {
            "image" | "build" | "dockerFile" | "context" | "workspaceFolder" => {}
            "containerUser" if file.contains_key("remoteUser") => {}
            "remoteUser" | "containerUser" => found.user = Some(variables.expand(&text(key, value)?)?),
            "containerEnv" | "remoteEnv" => found.env.extend(texts(key, value, &variables)?),
            "forwardPorts" => found.ports = ports(value)?,
            "postAttachCommand" => print::note("postAttachCommand has no effect"),
            name if COMMANDS.contains(&name) => {}
            name if WITHOUT_EFFECT.contains(&name) => {}
            "features" => {
                return match value.as_object().is_some_and(Map::is_empty) {
                    true => continue,
                    false => {
                        Err("`features` are not supported: install them in a Dockerfile (`build`)".to_owned())
                    }
                };
            }
            "initializeCommand" => {
                return Err("`initializeCommand` is not supported: it would run on this host".to_owned());
            }
            // Empty lists and `false` ask for nothing.
            _ if matches!(value, Value::Null | Value::Bool(false)) || *value == Value::Array(Vec::new()) => {}
            other => return Err(format!("`{}` is not supported", escape(other))),
        }
    }
    for name in COMMANDS {
        if let Some(value) = file.get(name) {
            let of_name = commands(name, value, &variables)?;
            found.commands.extend(of_name.into_iter().map(|command| (name.to_owned(), command)));
        }
    }
    Ok(found)
}

fn image(
    file: &Map<String, Value>,
    variables: &Variables,
    beside: &Path,
) -> Result<DevcontainerImage, String> {
    let empty = Map::new();
    let build = match file.get("build") {
        Some(Value::Object(build)) => build,
        Some(_) => return Err("`build` must be an object".to_owned()),
        None => &empty,
    };
    let known = ["dockerfile", "context", "args", "target", "cacheFrom"];
    if let Some(other) = build.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("`build.{}` is not supported", escape(other)));
    }
    let dockerfile = build.get("dockerfile").or_else(|| file.get("dockerFile"));
    match (file.get("image"), dockerfile) {
        (Some(image), None) => Ok(DevcontainerImage::Named(variables.expand(&text("image", image)?)?)),
        (None, Some(dockerfile)) => {
            let context = build.get("context").or_else(|| file.get("context"));
            let context = context.map_or(Ok(".".to_owned()), |context| text("context", context))?;
            Ok(DevcontainerImage::Built {
                dockerfile: beside.join(variables.expand(&text("dockerfile", dockerfile)?)?),
                context: beside.join(variables.expand(&context)?),
                arguments: build
                    .get("args")
                    .map_or(Ok(BTreeMap::new()), |args| texts("args", args, variables))?,
                target: build.get("target").map(|target| text("target", target)).transpose()?,
            })
        }
        (Some(_), Some(_)) => Err("it has both `image` and `build`".to_owned()),
        (None, None) if file.contains_key("dockerComposeFile") => {
            Err("`dockerComposeFile` is not supported: use `image` or `build`".to_owned())
        }
        (None, None) => Err("it has neither `image` nor `build`".to_owned()),
    }
}

fn text(key: &str, value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("`{key}` must be a string"))
}

fn texts(key: &str, value: &Value, variables: &Variables) -> Result<BTreeMap<String, String>, String> {
    let map = value.as_object().ok_or_else(|| format!("`{key}` must be an object"))?;
    let mut found = BTreeMap::new();
    for (name, value) in map {
        found.insert(name.clone(), variables.expand(&text(name, value)?)?);
    }
    Ok(found)
}

fn ports(value: &Value) -> Result<Vec<u16>, String> {
    let list = value.as_array().ok_or("`forwardPorts` must be a list")?;
    let port = |value: &Value| {
        let own = value.as_str().and_then(|text| text.strip_prefix("localhost:"));
        let number = value.as_u64().or_else(|| own.and_then(|text| text.parse().ok()));
        let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
        number.ok_or_else(|| format!("`forwardPorts`: {value} is not a port of the sandbox"))
    };
    list.iter().map(port).collect()
}

/// A command line, a program with its arguments, or several of both by name.
fn commands(key: &str, value: &Value, variables: &Variables) -> Result<Vec<DevcontainerCommand>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(line) if line.trim().is_empty() => Ok(Vec::new()),
        Value::String(line) => Ok(vec![DevcontainerCommand::Line(variables.expand(line)?)]),
        Value::Array(words) => {
            let words = words.iter().map(|word| variables.expand(&text(key, word)?));
            let argv = words.collect::<Result<Vec<_>, String>>()?;
            Ok(if argv.is_empty() { Vec::new() } else { vec![DevcontainerCommand::Argv(argv)] })
        }
        Value::Object(named) if named.values().all(|one| !one.is_object()) => {
            let each = named.values().map(|one| commands(key, one, variables));
            Ok(each.collect::<Result<Vec<_>, String>>()?.into_iter().flatten().collect())
        }
        Value::Object(_) | Value::Bool(_) | Value::Number(_) => {
            Err(format!("`{key}` must be a command line, a list, or an object of these"))
        }
    }
}

/// Values of `${…}`.
struct Variables {
    directory: String,
    workspace: String,
    name: String,
}

impl Variables {
    fn expand(&self, text: &str) -> Result<String, String> {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let Some((variable, behind)) = after.split_once('}') else {
                out.push_str("${");
                rest = after;
                continue;
            };
            rest = behind;
            match variable {
                "localWorkspaceFolder" => out.push_str(&self.directory),
                "containerWorkspaceFolder" => out.push_str(&self.workspace),
                "localWorkspaceFolderBasename" | "containerWorkspaceFolderBasename" => {
                    out.push_str(&self.name)
                }
                other => match other.strip_prefix("localEnv:").or_else(|| other.strip_prefix("env:")) {
                    Some(variable) => {
                        let (name, default) = variable.split_once(':').unwrap_or((variable, ""));
                        out.push_str(&std::env::var(name).unwrap_or_else(|_| default.to_owned()));
                    }
                    None if other.contains(':') || other == "devcontainerId" => {
                        return Err(format!("`${{{}}}` is not supported", escape(other)));
                    }
                    // A variable of the shell.
                    None => out.push_str(&format!("${{{other}}}")),
                },
            }
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// JSON without comments and without commas before a closing bracket.
fn plain_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                out.push(c);
                out.extend(chars.next());
                continue;
            }
            '"' => in_string = !in_string,
            '/' if !in_string && chars.peek() == Some(&'/') => {
                while chars.next_if(|c| *c != '\n').is_some() {}
                continue;
            }
            '/' if !in_string && chars.peek() == Some(&'*') => {
                chars.next();
                let mut last = ' ';
                // Lines are kept, so that errors name the right ones.
                for c in chars.by_ref() {
                    if c == '\n' {
                        out.push(c);
                    }
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
                continue;
            }
            ']' | '}' if !in_string => {
                let kept = out.trim_end().len();
                if out[..kept].ends_with(',') {
                    out.replace_range(kept - 1..kept, " ");
                }
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Devcontainer, String> {
        let file: Map<String, Value> = serde_json::from_str(&plain_json(json)).unwrap();
        parse(&file, Path::new("/home/me/app"), Path::new("/home/me/app/.devcontainer"))
    }

    #[test]
    fn a_file_with_comments_is_read() {
        let read = read(
            r#"{
              // a comment, with "quotes"
              "name": "app", /* another
              one */
              "build": { "dockerfile": "Dockerfile", "context": "..", "args": { "V": "1//2" }, "target": "dev" },
              "features": {},
              "forwardPorts": [3000, "localhost:5432"],
              "remoteUser": "node", "containerUser": "root",
              "containerEnv": { "W": "${containerWorkspaceFolder}", "S": "${HOME}", },
              "postCreateCommand": { "a": "npm ci", "b": ["echo", "${localWorkspaceFolderBasename}"] },
              "onCreateCommand": "true",
              "customizations": { "vscode": {} },
              "runArgs": [], "privileged": false,
            }"#,
        )
        .unwrap();
        let expected = DevcontainerImage::Built {
            dockerfile: "/home/me/app/.devcontainer/Dockerfile".into(),
            context: "/home/me/app/.devcontainer/..".into(),
            arguments: [("V".to_owned(), "1//2".to_owned())].into(),
            target: Some("dev".to_owned()),
        };
        assert_eq!(read.image, expected);
        assert_eq!((read.workspace.as_str(), read.user.as_deref()), ("/workspaces/app", Some("node")));
        assert_eq!((read.env["W"].as_str(), read.env["S"].as_str()), ("/workspaces/app", "${HOME}"));
        assert_eq!(read.ports, [3000, 5432]);
        let names: Vec<&str> = read.commands.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["onCreateCommand", "postCreateCommand", "postCreateCommand"]);
        let argv = ["echo", "app"].map(str::to_owned).to_vec();
        assert_eq!(read.commands[2].1, DevcontainerCommand::Argv(argv));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_name() {
        for (json, expected) in [
            (r#"{ "image": "a", "features": { "ghcr.io/x/node:1": {} } }"#, "`features` are not supported"),
            (r#"{ "image": "a", "initializeCommand": "rm -rf /" }"#, "run on this host"),
            (r#"{ "image": "a", "runArgs": ["--privileged"] }"#, "`runArgs` is not supported"),
            (r#"{ "image": "a", "mounts": ["source=/,target=/host"] }"#, "`mounts` is not supported"),
            (r#"{ "image": "a", "privileged": true }"#, "`privileged` is not supported"),
            (r#"{ "dockerComposeFile": "x.yml", "service": "a" }"#, "`dockerComposeFile` is not supported"),
            (r#"{ "image": "a", "build": { "dockerfile": "x" } }"#, "both"),
            (r#"{ "build": { "dockerfile": "x", "options": ["--network=host"] } }"#, "`build.options`"),
            (r#"{ "image": "a", "forwardPorts": ["db:5432"] }"#, "not a port"),
            (r#"{ "image": "a", "workspaceFolder": "/a/../b" }"#, "workspaceFolder"),
            (r#"{ "image": "${containerEnv:X}" }"#, "not supported"),
            (r#"{ "image": 1 }"#, "must be a string"),
            (r#"{ "image": "a", "postCreateCommand": { "a": { "b": "c" } } }"#, "postCreateCommand"),
            ("{}", "neither"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
