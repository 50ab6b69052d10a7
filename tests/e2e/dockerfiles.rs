//! Builds from Dockerfiles: three fixtures with the features of well-known projects, the cache, refusals by line, images that
//! are pulled. The images that the fixtures begin with are made here: there is no registry with them, so `npm` is a stand-in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Daemon, run};
use crate::images::{Folder, Registry, Tar, docker_save, program, progress, refused, scratch_empties};

/// A copy of a fixture, which tests change.
fn fixture(name: &str) -> (Folder, PathBuf) {
    let (place, from) =
        (Folder::new(), Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/dockerfiles").join(name));
    let to = place.path(name);
    run(Command::new("cp").arg("-r").arg(from).arg(&to));
    (place, to)
}

fn base_image(daemon: &Daemon, place: &Folder, name: &str, recipe: &str) {
    let file = place.put("base.yaml", recipe.as_bytes());
    daemon.ok(&["image", "build", "-f", &file, "--name", name, "--net", "none"]);
}

fn inspect(daemon: &Daemon, image: &str) -> Value {
    serde_json::from_str(&daemon.ok(&["image", "inspect", image, "--json"])).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const WHEEL: &str = "\
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + '/tiny-1.0.0-py3-none-any.whl', 'w') as archive:
    archive.writestr('tiny.py', \"word = 'from python'\\n\")
    archive.writestr('tiny-1.0.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0.0\\n')
    archive.writestr('tiny-1.0.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    archive.writestr('tiny-1.0.0.dist-info/RECORD', 'tiny.py,,\\n')
";

#[test]
fn a_python_project_with_a_cache_for_pip_builds() {
    let daemon = Daemon::start();
    let (place, project) = fixture("python-web");
    let python = "base: debian\nsteps:\n  - run: python3 -m venv /opt/python\n  - env: { PATH: '/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin' }\n";
    base_image(&daemon, &place, "python:3.12-slim", python);
    fs::create_dir(project.join("wheels")).unwrap();
    run(Command::new("python3").args(["-c", WHEEL]).arg(project.join("wheels")));
    let directory = text(&project);
    let first = progress(&daemon, &["image", "build", "-t", "web", directory]);
    assert!(first.contains("note: Dockerfile:38: HEALTHCHECK has no effect"), "{first}");
    assert!(!first.contains("cached"), "{first}");
    let run = ["run", "--rm", "--image", "web"];
    assert_eq!(daemon.ok(&run), "from python 10001 --port=8000 1");
    let sh = |script: &str| daemon.ok(&[&run[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(sh("ls -A"), ".dockerignore\n.env.example\napp\nrequirements.txt\nwheels");
    assert_eq!(sh("stat -c %U:%G app; ls -A /tmp /root/.cache 2>&1 | grep -c wheels; true"), "root:root\n0");
    let detail = inspect(&daemon, "web");
    assert_eq!(detail["config"]["exposed_ports"], serde_json::json!(["8000/tcp"]));
    assert_eq!(detail["config"]["user"], "appuser");

    let again = progress(&daemon, &["image", "build", "-t", "web", directory]);
    assert!(!again.contains(": running") && again.matches(": cached").count() == 3, "{again}");
    // Other files change only the last layer; other requirements run pip again, with its cache.
    fs::write(project.join("app/other"), "x").unwrap();
    let changed = progress(&daemon, &["image", "build", "-t", "web", directory]);
    assert_eq!(
        (changed.matches(": cached").count(), changed.matches(": running").count()),
        (2, 1),
        "{changed}"
    );
    fs::write(project.join("requirements.txt"), "tiny\n").unwrap();
    progress(&daemon, &["image", "build", "-t", "web", directory]);
    let volumes: Value = serde_json::from_str(&daemon.ok(&["volume", "ls", "--json"])).unwrap();
    let cache = volumes[0]["name"].as_str().unwrap().to_owned();
    assert!(
        cache.starts_with("build-cache-root-cache-pip-") && volumes.as_array().unwrap().len() == 1,
        "{volumes}"
    );
    daemon.ok(&["create", "look", "--isolation", "container", "--volume", &format!("{cache}:/cache")]);
    assert_eq!(
        daemon.ok(&["exec", "look", "-c", "wc -l < /cache/runs"]),
        "2",
        "the cache is kept between builds"
    );
    daemon.ok(&["rm", "look"]);
    // A new argument is a new step.
    let other = progress(&daemon, &["image", "build", "-t", "web", "--build-arg", "UID=10002", directory]);
    assert_eq!(other.matches(": cached").count(), 0, "{other}");
    assert_eq!(daemon.ok(&run), "from python 10002 --port=8000 1");
    let said = progress(&daemon, &["image", "build", "--build-arg", "NONE=1", directory]);
    assert!(said.contains("no ARG declares the build argument `NONE`"), "{said}");
    assert_eq!(daemon.ok(&["ls", "--json"]), "[]", "sandboxes of builds are gone");
    scratch_empties(&daemon);
}

const NPM: &str = "\
base: debian
steps:
  - run: |
      cat > /usr/local/bin/npm <<'EOF'
      #!/bin/sh -e
      case \"$*\" in
        ci) mkdir -p node_modules && echo installed > node_modules/list ;;
        'run build')
          mkdir -p .next/standalone .next/static && cp src/server.js .next/standalone/
          cat node_modules/list > .next/static/list; ls node_modules vendor >> .next/static/list ;;
        *) exit 1 ;;
      esac
      EOF
      printf '#!/bin/sh\\ncat \"$@\" .next/static/list; echo $PORT $HOSTNAME; id -un\\n' > /usr/local/bin/node
      chmod 755 /usr/local/bin/npm /usr/local/bin/node
";

#[test]
fn a_node_project_with_several_stages_builds() {
    let daemon = Daemon::start();
    let (place, project) = fixture("node-standalone");
    base_image(&daemon, &place, "node:22-alpine", NPM);
    let directory = text(&project);
    let first = progress(&daemon, &["image", "build", "-t", "standalone", directory]);
    assert!(
        first.contains("deps: RUN if [ -f yarn.lock ]") && !first.contains("must not be built"),
        "{first}"
    );
    let ran = daemon.ok(&["run", "--rm", "--image", "standalone"]);
    assert_eq!(ran, "the server\ninstalled\nnode_modules:\nlist\n\nvendor:\nleft-pad\n3000 0.0.0.0\nnextjs");
    let owners = "stat -c '%U:%G %n' server.js .next/static/list public/logo.svg; ls -A";
    let seen = daemon.ok(&["run", "--rm", "--image", "standalone", "--", "sh", "-c", owners]);
    let expected = "nextjs:nodejs server.js\nnextjs:nodejs .next/static/list\nroot:root public/logo.svg\n.next\npublic\nserver.js";
    assert_eq!(seen, expected);
    // The second build of one stage finds everything.
    let stage = progress(&daemon, &["image", "build", "--target", "deps", "-t", "deps", directory]);
    assert!(!stage.contains(": running"), "{stage}");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "deps", "--", "cat", "node_modules/list"]), "installed");
    // Only what depends on the changed files is built again.
    fs::write(project.join("public/logo.svg"), "<svg>2</svg>").unwrap();
    let changed = progress(&daemon, &["image", "build", "-t", "standalone", directory]);
    assert!(
        changed.contains("deps: RUN if [ -f yarn.lock ]") && changed.contains("builder: COPY . .: running"),
        "{changed}"
    );
    let deps = changed.lines().find(|line| line.contains("deps: RUN")).unwrap();
    assert!(deps.ends_with(": cached"), "{changed}");
    let said = refused(&daemon, &["image", "build", "--target", "nothing", directory]);
    assert!(said.contains("no stage `nothing`") && said.contains("runner"), "{said}");
    let said = refused(&daemon, &["image", "build", "--target", "test", directory]);
    assert!(said.contains("Dockerfile:37: RUN echo") && said.contains("must not be built"), "{said}");
}

#[test]
fn a_go_project_with_heredocs_and_arguments_builds() {
    let daemon = Daemon::start();
    let (place, project) = fixture("go-release");
    daemon.ok(&["image", "tag", "debian", "golang:1.22-alpine3.20"]);
    let archive = Tar::new().directory("deep").file("deep/asset", b"asset").finish();
    let plain = place.put("assets.tar", &archive);
    run(Command::new("gzip").arg("-n").arg(&plain));
    fs::rename(format!("{plain}.gz"), project.join("assets.tar.gz")).unwrap();
    let directory = text(&project);
    progress(&daemon, &["image", "build", "-t", "hello", directory]);
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let hello = format!("hello -X main.version=1.0.0 linux/{architecture}");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "hello"]), hello);
    let sh = |script: &str| {
        daemon.ok(&["run", "--rm", "--image", "hello", "--entrypoint", "sh", "--", "-c", script])
    };
    assert_eq!(
        sh("cat /opt/hello/VERSION; stat -c '%u:%g %a' /opt/hello/owned /usr/local/bin/hello"),
        "v1.0.033:33 640\n0:0 755"
    );
    assert_eq!(
        sh("stat -c '%u %n' /opt/assets/deep/asset; cat /opt/assets/deep/asset"),
        "33 /opt/assets/deep/asset\nasset"
    );
    assert_eq!(
        sh("cat /etc/hello/EOF /etc/hello/config.toml"),
        "$literal\nversion = \"unversioned\"\nflags = \"set\""
    );
    assert_eq!(
        sh("cat /opt/by-python /opt/both; pwd; id -u; ls -A /src; test -e /tmp/.ldflags || echo none"),
        "0two\n/src/data\n33\ndata\nnone"
    );
    let config = inspect(&daemon, "hello")["config"].clone();
    assert_eq!(config["exposed_ports"], serde_json::json!(["8080/tcp", "9000/udp", "9001/udp"]));
    assert_eq!(config["labels"]["org.opencontainers.image.version"], "unversioned");
    // An argument reaches the stages that declare it.
    let arguments = ["--build-arg", "VERSION=v2.0.0", "--build-arg", "GO_VERSION=1.22"];
    progress(&daemon, &[&["image", "build", "-t", "hello"][..], &arguments, &[directory]].concat());
    assert!(daemon.ok(&["run", "--rm", "--image", "hello"]).contains("version=2.0.0"));
    assert_eq!(inspect(&daemon, "hello")["config"]["labels"]["org.opencontainers.image.version"], "v2.0.0");
    // A stage without a base has only what was copied to it.
    daemon.ok(&["image", "build", "-t", "binary", "--target", "binary", directory]);
    let sandbox = daemon.ok(&["create", "--image", "binary"]);
    assert!(daemon.ok(&["files", "ls", &sandbox, "/"]).contains("VERSION"));
    assert_eq!(inspect(&daemon, "binary")["origin_of"], Value::Null);
}

#[test]
fn what_a_dockerfile_cannot_do_is_refused_with_its_line() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let file = place.path("Dockerfile").display().to_string();
    let directory = place.path("").display().to_string();
    place.put("exists/file", b"x");
    std::os::unix::fs::symlink("/etc/passwd", place.path("outside")).unwrap();
    let before = daemon.ok(&["image", "ls", "--json"]);
    for (text, expected) in [
        ("FROM debian\nONBUILD RUN x\n", "Dockerfile:2: ONBUILD is not supported"),
        ("FROM debian\n\nFROMAGE x\n", "Dockerfile:3: FROMAGE is not supported"),
        (
            "FROM debian\nRUN --mount=type=secret,id=x cat /run/secrets/x\n",
            "Dockerfile:2: RUN --mount=type=secret",
        ),
        ("FROM debian\nADD https://example.com/x /x\n", "Dockerfile:2: ADD of `https://example.com/x`"),
        ("FROM debian\nENV A=\"${B?must be set}\"\n", "Dockerfile:2: `B` is not set: must be set"),
        ("FROM debian\nRUN true\nCOPY missing /x\n", "Dockerfile:3: `missing` does not exist"),
        ("FROM debian\nCOPY ../../../etc/passwd /x\n", "Dockerfile:2: `etc/passwd` does not exist"),
        ("FROM debian\nCOPY outside /x\n", "Dockerfile:2: `outside` does not exist"),
        (
            "FROM debian AS a\nFROM debian\nCOPY --from=a /missing /x\n",
            "Dockerfile:3: `missing` does not exist",
        ),
        (
            "FROM debian\nRUN --mount=type=bind,source=exists,target=/etc true\n",
            "Dockerfile:2: RUN --mount: `/etc` exists",
        ),
        ("FROM debian\nRUN --mount=type=cache,target=/etc true\n", "Dockerfile:2: RUN --mount: "),
        ("FROM debian\nRUN echo sad >&2; exit 3\n", "the step `Dockerfile:2: RUN echo sad"),
        ("FROM debian\nRUN --network=none getent hosts example.com\n", "exited with code 2"),
        ("FROM --platform=linux/s390x debian\n", "Dockerfile:1: this host cannot run `linux/s390x`"),
        ("RUN x\n", "Dockerfile:1: the first instruction must be FROM or ARG"),
    ] {
        fs::write(&file, text).unwrap();
        let said = refused(&daemon, &["image", "build", &directory]);
        assert!(said.contains(expected), "{text}{said}");
    }
    assert_eq!(daemon.ok(&["image", "ls", "--json"]), before);
    let said = refused(&daemon, &["image", "build", &place.path("exists").display().to_string()]);
    assert!(said.contains("neither a Dockerfile nor a burrow.yaml"), "{said}");
    let recipe = place.put("burrow.yaml", b"base: debian\n");
    let said = refused(&daemon, &["image", "build", "-f", &recipe, "--target", "x"]);
    assert!(said.contains("are for Dockerfiles"), "{said}");
    assert!(daemon.inventory().volumes.is_empty(), "sandboxes of failed steps are gone");
    scratch_empties(&daemon);
}

#[test]
fn images_that_a_dockerfile_names_are_pulled_if_they_are_missing() {
    let (daemon, registry, place) = (Daemon::start(), Registry::start(), Folder::new());
    let config =
        serde_json::json!({ "Env": ["WHERE=/from/registry"], "WorkingDir": "/work", "Cmd": ["/hello"] });
    let layers = [Tar::new().file("hello", &program("pulled\n")).finish()];
    let archive = place.put("a.tar", &docker_save("org/app:v1", &config, &layers));
    let reference = registry.push(Path::new(&archive), "org/app:v1");
    let text = format!(
        "ARG REGISTRY\nFROM $REGISTRY/org/app:v1 AS pulled\nENV WHERE=$WHERE/more\nCOPY <<EOF here\n$WHERE\nEOF\n\
         FROM debian\nCOPY --from={reference} /hello /hello\nCOPY --from=pulled /work/here /here\nCMD cat /here; /hello\n"
    );
    let file = place.put("dir/Dockerfile", text.as_bytes());
    let registry_arg = format!("REGISTRY={}", registry.address);
    let build = ["image", "build", "-f", &file, "--build-arg", &registry_arg, "-t", "app"];
    let first = progress(&daemon, &build);
    assert!(first.contains(&format!("pulling `{reference}`")) && first.contains("downloading"), "{first}");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "app"]), "/from/registry/more\npulled");
    let again = progress(&daemon, &build);
    assert!(!again.contains("downloading") && !again.contains(": running"), "{again}");
    let missing = place.put("dir/Dockerfile", format!("FROM {}/none:1\n", registry.address).as_bytes());
    let said = refused(&daemon, &["image", "build", "-f", &missing]);
    assert!(said.contains("does not exist in the registry"), "{said}");
}

#[test]
fn a_devcontainer_is_built_and_set_up() {
    let daemon = Daemon::start();
    let place = Folder::new();
    place.put(
        "app/.devcontainer/Dockerfile",
        b"FROM debian\nARG WHO\nRUN useradd -m dev && echo $WHO > /who\nCOPY tool /opt/tool\n",
    );
    place.put("app/tool", b"tool\n");
    let json = r#"{
        // built from the directory above
        "build": { "dockerfile": "Dockerfile", "context": "..", "args": { "WHO": "me" } },
        "remoteUser": "dev",
        "containerEnv": { "WORKSPACE": "${containerWorkspaceFolder}" },
        "postCreateCommand": "cat /who /opt/tool tool > made; id -un >> made; echo $WORKSPACE >> made",
        "forwardPorts": [3000],
    }"#;
    place.put("app/.devcontainer/devcontainer.json", json.as_bytes());
    let directory = place.path("app").display().to_string();
    let said = progress(&daemon, &["create", "web", "--devcontainer", &directory]);
    assert!(
        said.contains("running postCreateCommand") && said.contains("burrow port-forward web 3000"),
        "{said}"
    );
    let seen = daemon.ok(&["exec", "web", "-c", "pwd; cat made; stat -c %U tool"]);
    assert_eq!(seen, "/workspaces/app\nme\ntool\ntool\ndev\n/workspaces/app\ndev");
    progress(&daemon, &["create", "web", "--if-not-exists", "--devcontainer", &directory]);
    assert_eq!(
        daemon.ok(&["exec", "web", "-c", "wc -l < made"]),
        "5",
        "an existing sandbox is not set up again"
    );
    place.put(
        "app/.devcontainer/devcontainer.json",
        br#"{ "image": "debian", "postCreateCommand": "echo sad; exit 4" }"#,
    );
    let said = refused(&daemon, &["create", "--devcontainer", &directory]);
    assert!(
        said.contains("postCreateCommand") && said.contains("exited with code 4") && said.contains("sad"),
        "{said}"
    );
    place.put("app/.devcontainer/devcontainer.json", br#"{ "image": "debian", "features": { "x": {} } }"#);
    let said = refused(&daemon, &["create", "--devcontainer", &directory]);
    assert!(said.contains("`features` are not supported"), "{said}");
}
