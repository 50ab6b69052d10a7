//! Images: import, export, pulls from a real registry, builds with cached steps, commits, names, clean-up, and hostile
//! images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::harness::{Daemon, eventually, run};

/// A tar archive under construction.
pub(crate) struct Tar(tar::Builder<Vec<u8>>);

impl Tar {
    pub(crate) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn header(kind: tar::EntryType, size: usize) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size as u64);
        header.set_mode(0o755);
        header.set_mtime(1_700_000_000);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    pub(crate) fn file(mut self, path: &str, content: &[u8]) -> Self {
        let mut header = Self::header(tar::EntryType::Regular, content.len());
        self.0.append_data(&mut header, path, content).unwrap();
        self
    }

    pub(crate) fn directory(mut self, path: &str) -> Self {
        let mut header = Self::header(tar::EntryType::Directory, 0);
        self.0.append_data(&mut header, path, std::io::empty()).unwrap();
        self
    }

    fn link(mut self, path: &str, target: &str) -> Self {
        let mut header = Self::header(tar::EntryType::Symlink, 0);
        self.0.append_link(&mut header, path, target).unwrap();
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// A program that needs only a kernel: it prints `message` and exits with 0.
pub(crate) fn program(message: &str) -> Vec<u8> {
    if cfg!(not(target_arch = "x86_64")) {
        panic!("this program is written for another machine");
    }
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let length = u8::try_from(message.len()).unwrap();
    #[rustfmt::skip]
    let mut code = vec![
        0xb8, 1, 0, 0, 0,                  // mov eax, 1 (write)
        0xbf, 1, 0, 0, 0,                  // mov edi, 1 (standard output)
        0x48, 0x8d, 0x35, 0x10, 0, 0, 0,   // lea rsi, [rip + 16]
        0xba, length, 0, 0, 0,             // mov edx, length
        0x0f, 0x05,                        // syscall
        0xb8, 60, 0, 0, 0,                 // mov eax, 60 (exit)
        0x31, 0xff,                        // xor edi, edi
        0x0f, 0x05,                        // syscall
    ];
    code.extend(message.as_bytes());
    let size = HEADERS + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [2u16, 62] {
        elf.extend(half.to_le_bytes());
    }
    elf.extend(1u32.to_le_bytes());
    for word in [BASE + HEADERS, 64, 0] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 0, 0, 0] {
        elf.extend(half.to_le_bytes());
    }
    elf.extend(1u32.to_le_bytes());
    elf.extend(5u32.to_le_bytes());
    for word in [0, BASE, BASE, size, size, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    elf
}

fn sha256(bytes: &[u8]) -> String {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("bytes");
    fs::write(&file, bytes).unwrap();
    let output = Command::new("sha256sum").arg(&file).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// An archive as written by `docker save`.
pub(crate) fn docker_save(name: &str, config: &serde_json::Value, layers: &[Vec<u8>]) -> Vec<u8> {
    let diff_ids: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", sha256(layer))).collect();
    let document = serde_json::json!({
        "architecture": "amd64", "os": "linux", "config": config,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let document = serde_json::to_vec(&document).unwrap();
    let config_name = format!("{}.json", sha256(&document));
    let names: Vec<String> = (0..layers.len()).map(|index| format!("layer-{index}/layer.tar")).collect();
    let manifest = serde_json::json!([{ "Config": config_name, "RepoTags": [name], "Layers": names }]);
    let mut tar = Tar::new().file("manifest.json", &serde_json::to_vec(&manifest).unwrap());
    tar = tar.file(&config_name, &document);
    for (name, layer) in names.iter().zip(layers) {
        tar = tar.file(name, layer);
    }
    tar.finish()
}

/// A folder for archives and build files.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

/// Ids of images' subvolumes in the pool, finished and unfinished.
fn volumes(daemon: &Daemon) -> Vec<String> {
    let mut found = Vec::new();
    for part in ["images", "staged"] {
        for entry in fs::read_dir(daemon.pool().join(part)).unwrap() {
            found.push(format!("{part}/{}", entry.unwrap().file_name().to_string_lossy()));
        }
    }
    found.sort();
    found
}

/// No upload or download is left. The caller must wait for this: a client that aborts its upload exits before the daemon
/// has noticed.
#[track_caller]
pub(crate) fn scratch_empties(daemon: &Daemon) {
    let scratch = daemon.state_dir().join("scratch");
    eventually("scratch to be empty", || fs::read_dir(&scratch).unwrap().next().is_none().then_some(()));
}

/// Standard error of a command that must fail.
#[track_caller]
pub(crate) fn refused(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.cli(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

/// Standard error of a command that must succeed: where progress goes.
#[track_caller]
pub(crate) fn progress(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.cli(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

#[test]
fn an_image_of_one_program_and_nothing_else_runs() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let archive = place.put("hello.tar", &Tar::new().file("hello", &program("hello\n")).finish());
    let id = daemon.ok(&["image", "import", &archive, "--name", "hello"]);
    assert!(id.starts_with("img"), "{id}");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "hello", "--", "/hello"]), "hello");
    scratch_empties(&daemon);
}

#[test]
fn the_process_settings_of_an_image_are_applied() {
    let daemon = Daemon::start();
    let place = Folder::new();
    // Based on the default image, so that there is a shell to check with.
    let config = serde_json::json!({ "Env": ["GREETING=hi"], "Entrypoint": ["/say"], "Cmd": ["all"], "WorkingDir": "/deep/er" });
    let layer = Tar::new().file("say", &program("said\n")).finish();
    let archive = place.put("say.tar", &docker_save("org/say:v1", &config, &[layer]));
    daemon.ok(&["image", "import", &archive]);
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "org/say:v1"]), "said");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "org/say:v1", "--", "ignored"]), "said");
    // `exec` does not prepend the entrypoint, and `--entrypoint` removes it.
    let message =
        refused(&daemon, &["run", "--rm", "--image", "org/say:v1", "--entrypoint", "", "--", "/nothing"]);
    assert!(message.contains("/nothing"), "{message}");
    let detail: serde_json::Value =
        serde_json::from_str(&daemon.ok(&["image", "inspect", "org/say:v1", "--json"])).unwrap();
    assert_eq!(detail["config"]["env"]["GREETING"], "hi");
    assert_eq!(detail["config"]["workdir"], "/deep/er");
    assert_eq!(detail["layers"].as_array().unwrap().len(), 1);
}

#[test]
fn an_exported_image_is_unchanged_by_an_import() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let config = serde_json::json!({ "Env": ["A=b"], "Cmd": ["/hello"] });
    let layers = [
        Tar::new().file("hello", &program("old\n")).file("gone", b"x").finish(),
        Tar::new().file("hello", &program("new\n")).file(".wh.gone", b"").finish(),
    ];
    let archive = place.put("two.tar", &docker_save("two", &config, &layers));
    daemon.ok(&["image", "import", &archive]);
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "two"]), "new");
    let exported = place.path("out.tar").display().to_string();
    daemon.ok(&["image", "export", "two", "-o", &exported]);
    daemon.ok(&["image", "rm", "two"]);
    daemon.ok(&["image", "prune"]);
    daemon.ok(&["image", "import", &exported]);
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "two"]), "new");
    let listing = Command::new("sh")
        .arg("-c")
        .arg(format!("skopeo inspect --config oci-archive:{exported} >/dev/null && echo fine"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listing.stdout).trim(), "fine", "{listing:?}");
    let sandbox = daemon.ok(&["create", "--image", "two"]);
    assert!(refused(&daemon, &["files", "cat", &sandbox, "/gone"]).contains("gone"));
    assert!(
        refused(&daemon, &["image", "export", "missing", "-o", &exported]).contains("no image `missing`")
    );
    scratch_empties(&daemon);
}

#[test]
fn a_known_archive_is_not_unpacked_again() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let layers =
        [Tar::new().file("hello", &program("shared\n")).finish(), Tar::new().file("more", b"more").finish()];
    let archive = place.put("a.tar", &docker_save("a", &serde_json::json!({}), &layers));
    let first = progress(&daemon, &["image", "import", &archive]);
    assert!(first.contains("unpacking") && !first.contains("cached"), "{first}");
    let again = progress(&daemon, &["image", "import", &archive]);
    assert!(again.matches("cached").count() == 2 && !again.contains("unpacking"), "{again}");
    // Another image with the same first layer shares it.
    let other = [layers[0].clone(), Tar::new().file("other", b"other").finish()];
    let archive = place.put("b.tar", &docker_save("b", &serde_json::json!({}), &other));
    let shared = progress(&daemon, &["image", "import", &archive]);
    assert_eq!(shared.matches("cached").count(), 1, "{shared}");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "b", "--", "/hello"]), "shared");
}

#[test]
fn a_committed_sandbox_keeps_its_files_its_variables_and_its_user() {
    let daemon = Daemon::start();
    let sandbox = daemon.ok(&["create", "--name", "dev", "-e", "TOKEN_NAME=x y", "-u", "user"]);
    daemon.ok(&["exec", &sandbox, "-u", "root", "-c", "echo kept > /srv/file; chown user /srv/file"]);
    daemon.ok(&["image", "commit", "dev", "--name", "my-setup", "-e", "MORE=1", "-w", "/srv"]);
    // Later changes are not part of it.
    daemon.ok(&["exec", &sandbox, "-u", "root", "-c", "echo changed > /srv/file"]);
    let seen = daemon.ok(&[
        "run",
        "--rm",
        "--image",
        "my-setup",
        "--",
        "sh",
        "-c",
        "cat file; id -un; echo $TOKEN_NAME $MORE; pwd",
    ]);
    assert_eq!(seen, "kept\nuser\nx y 1\n/srv");
    // The image outlives the sandbox, and a sandbox made from an image outlives the image.
    daemon.ok(&["rm", "--purge", "dev"]);
    let other = daemon.ok(&["create", "--image", "my-setup"]);
    daemon.ok(&["image", "rm", "my-setup"]);
    daemon.ok(&["stop", &other]);
    daemon.ok(&["start", &other]);
    assert_eq!(daemon.ok(&["exec", &other, "-c", "id -un; cat file"]), "user\nkept");
    assert!(refused(&daemon, &["create", "--image", "my-setup"]).contains("no image `my-setup`"));
}

const RECIPE: &str = "\
base: debian
steps:
  - run: echo built > /built && mkdir /work && chown user /work
  - copy: { from: app, to: /srv/app, owner: user }
  - env: { STAGE: test }
  - user: user
  - workdir: /work
  - run: cp /srv/app/file copy && echo $STAGE >> copy
  - cmd: [cat, /work/copy]
";

#[test]
fn a_build_caches_its_steps_and_repeats_only_changed_ones() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let file = place.put("burrow.yaml", RECIPE.as_bytes());
    place.put("app/file", b"one\n");
    let first = progress(&daemon, &["image", "build", "-f", &file, "--name", "app"]);
    assert!(first.contains("[1/7] run echo built") && !first.contains("cached"), "{first}");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "app"]), "one\ntest");
    assert_eq!(
        daemon.ok(&["run", "--rm", "--image", "app", "--", "stat", "-c", "%U", "/srv/app/file"]),
        "user"
    );

    let again = progress(&daemon, &["image", "build", "-f", &file, "--name", "app"]);
    assert_eq!(again.matches(": cached").count(), 3, "{again}");
    assert!(!again.contains(": running"), "{again}");

    place.put("app/file", b"two\n");
    let changed = progress(&daemon, &["image", "build", "-f", &file, "--name", "app"]);
    assert_eq!(changed.matches(": cached").count(), 1, "{changed}");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "app"]), "two\ntest");
    let fresh = progress(&daemon, &["image", "build", "-f", &file, "--name", "app", "--no-cache"]);
    assert_eq!(fresh.matches(": cached").count(), 0, "{fresh}");

    assert_eq!(daemon.ok(&["ls", "--json"]), "[]", "sandboxes of builds are gone");
    assert!(daemon.inventory().volumes.is_empty());
    scratch_empties(&daemon);
}

#[test]
fn a_failed_build_step_is_reported_with_its_last_output_and_leaves_nothing() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let before = volumes(&daemon);
    let file = place.put("bad.yaml", b"base: debian\nrun: [sh, -c, 'echo so sad >&2; exit 7']\n");
    let said = refused(&daemon, &["image", "build", "-f", &file, "--name", "bad"]);
    assert!(said.contains("exited with code 7") && said.contains("so sad"), "{said}");
    // A denied host is reported, however the program handled the failure.
    let file = place.put("bad.yaml", b"base: debian\nrun: getent hosts elsewhere.example\n");
    let said = refused(&daemon, &["image", "build", "-f", &file, "--name", "bad"]);
    assert!(said.contains("egress to `elsewhere.example` denied"), "{said}");
    for (recipe, expected) in [
        ("base: missing\nrun: x\n", "no image `missing`"),
        ("base: debian\nnonsense: x\n", "build file"),
        ("base: debian\ncopy: { from: nowhere, to: /x }\n", "nowhere"),
    ] {
        let file = place.put("bad.yaml", recipe.as_bytes());
        let said = refused(&daemon, &["image", "build", "-f", &file]);
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(volumes(&daemon), before);
    assert!(daemon.inventory().sandboxes().is_empty());
    scratch_empties(&daemon);
}

/// Needs no mirror: the package repository is a directory of the image.
#[test]
fn packages_are_installed_from_the_images_own_sources() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let repository = "\
base: debian
run: |
  set -e
  mkdir -p /pkg/DEBIAN /pkg/usr/bin /repo
  printf 'Package: burrow-greeter\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: x <x@x>\\nDescription: x\\n' > /pkg/DEBIAN/control
  printf '#!/bin/sh\\necho greetings\\n' > /pkg/usr/bin/greeter
  chmod 755 /pkg/usr/bin/greeter
  dpkg-deb --build /pkg /repo/burrow-greeter.deb >&2
  cd /repo && dpkg-scanpackages . > Packages
  rm -f /etc/apt/sources.list.d/*
  echo 'deb [trusted=yes] file:/repo ./' > /etc/apt/sources.list
";
    let file = place.put("repository.yaml", repository.as_bytes());
    daemon.ok(&["image", "build", "-f", &file, "--name", "with-repository"]);
    let built =
        ["image", "build", "--packages", "burrow-greeter", "--from", "with-repository", "--name", "greeter"];
    daemon.ok(&built);
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "greeter", "--", "greeter"]), "greetings");
    assert!(progress(&daemon, &built).contains("cached"));
    let said =
        refused(&daemon, &["image", "build", "--packages", "no-such-thing", "--from", "with-repository"]);
    assert!(said.contains("no-such-thing"), "{said}");
    let said =
        refused(&daemon, &["image", "build", "--packages", "--assume-yes", "--from", "with-repository"]);
    assert!(!said.is_empty());
}

#[test]
fn images_are_named_and_cleaned_up() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let before = volumes(&daemon);
    let one = place.put("one.tar", &Tar::new().file("hello", &program("1\n")).finish());
    let two = place.put("two.tar", &Tar::new().file("hello", &program("2\n")).finish());
    let id = daemon.ok(&["image", "import", &one, "--name", "app"]);
    assert_eq!(daemon.ok(&["image", "tag", "app", "registry.example.com/org/app:v1"]), id);
    assert!(daemon.ok(&["image", "ls"]).contains("app registry.example.com/org/app:v1"));
    // A newer image takes over the name; the other name stays.
    let newer = daemon.ok(&["image", "import", &two, "--name", "app"]);
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "app", "--", "/hello"]), "2");
    assert_eq!(
        daemon.ok(&["run", "--rm", "--image", "registry.example.com/org/app:v1", "--", "/hello"]),
        "1"
    );
    daemon.ok(&["image", "untag", "registry.example.com/org/app:v1"]);
    assert_eq!(daemon.ok(&["run", "--rm", "--image", &id, "--", "/hello"]), "1", "nameless, but there");

    // While a sandbox uses it, it is not removed; afterwards it is.
    let sandbox = daemon.ok(&["create", "--image", &id]);
    let pruned: serde_json::Value = serde_json::from_str(&daemon.ok(&["image", "prune", "--json"])).unwrap();
    assert_eq!(pruned["images"], serde_json::json!([]));
    daemon.ok(&["rm", "--purge", &sandbox]);
    let pruned: serde_json::Value = serde_json::from_str(&daemon.ok(&["image", "prune", "--json"])).unwrap();
    assert_eq!((&pruned["images"], &pruned["layers"]), (&serde_json::json!([id]), &serde_json::json!(1)));
    daemon.ok(&["image", "tag", &newer, "second"]);
    daemon.ok(&["image", "rm", "app"]);
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "second", "--", "/hello"]), "2", "it had another name");
    daemon.ok(&["image", "rm", "second"]);
    daemon.ok(&["image", "prune"]);
    assert_eq!(volumes(&daemon), before);
    assert!(refused(&daemon, &["image", "rm", "second"]).contains("no image `second`"));
}

#[test]
fn a_daemon_that_is_killed_during_an_import_leaves_no_partial_image() {
    let place = Folder::new();
    let archive = place.put(
        "a.tar",
        &docker_save(
            "a",
            &serde_json::json!({}),
            &[Tar::new().file("hello", &program("x\n")).finish(), Tar::new().file("more", b"more").finish()],
        ),
    );
    let recipe = place.put("b.yaml", b"base: debian\nrun: echo x > /x\n");
    for point in burrow_engine::faults::IMAGE_POINTS {
        let mut daemon = Daemon::prepare("");
        daemon.launch();
        let (before, images) = (volumes(&daemon), daemon.ok(&["image", "ls", "--json"]));
        daemon.terminate();
        daemon.arm(Some(&format!("{point}=kill")));
        daemon.launch();
        let step = point.starts_with("step.");
        let mut command = if step {
            daemon.command(&["image", "build", "-f", &recipe, "--name", "b"])
        } else {
            daemon.command(&["image", "import", &archive])
        };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        daemon.wait_dead();
        child.wait().unwrap();
        daemon.arm(None);
        daemon.launch();
        assert_eq!(daemon.ok(&["image", "ls", "--json"]), images, "{point}");
        assert!(daemon.inventory().sandboxes().is_empty(), "{point}");
        scratch_empties(&daemon);
        // Complete layers may stay: they are cached, and a clean-up removes them.
        daemon.ok(&["image", "prune"]);
        assert_eq!(volumes(&daemon), before, "{point}");
        if step {
            daemon.ok(&["image", "build", "-f", &recipe, "--name", "b"]);
        } else {
            daemon.ok(&["image", "import", &archive]);
        }
    }
}

/// `THREATS` P-K14 and P-F5, each with a control.
#[test]
fn an_image_whose_system_paths_are_links_changes_nothing_outside() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let host = Folder::new();
    host.put("null", b"the host's");
    host.put("passwd", b"the host's");
    let outside = host.0.path().display().to_string();
    for special in [
        "dev",
        "dev/null",
        "dev/pts",
        "dev/console",
        "dev/shm",
        "proc",
        "sys",
        "etc",
        "tmp",
        "run",
        ".burrow",
    ] {
        for target in [outside.as_str(), "../../../../../../../..", "/proc/1/root"] {
            let mut tar = Tar::new().file("hello", &program("alive\n"));
            if let Some((folder, _)) = special.split_once('/') {
                tar = tar.directory(folder);
            }
            let archive = place.put("link.tar", &tar.link(special, target).finish());
            check_contained(&daemon, &archive, &host, special);
        }
        let archive = Tar::new().file("hello", &program("alive\n"));
        let archive = match special.split_once('/') {
            Some((folder, _)) => archive.directory(folder).file(special, b"a file"),
            None => archive.file(special, b"a file"),
        };
        let archive = place.put("file.tar", &archive.finish());
        check_contained(&daemon, &archive, &host, special);
    }
    // Control: the same archive without the attack runs.
    let archive = place.put("control.tar", &Tar::new().file("hello", &program("alive\n")).finish());
    daemon.ok(&["image", "import", &archive, "--name", "control"]);
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "control", "--", "/hello"]), "alive");
}

/// It is refused with a reason, or it runs; in both cases the host is unchanged.
fn check_contained(daemon: &Daemon, archive: &str, host: &Folder, special: &str) {
    let imported = daemon.cli(&["image", "import", archive, "--name", "trap"]);
    if imported.status.success() {
        let ran = daemon.cli(&["run", "--rm", "--image", "trap", "--", "/hello"]);
        let said =
            format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success() || said.contains("error:"), "{special}: {said}");
        daemon.ok(&["image", "rm", "trap"]);
    } else {
        let said = String::from_utf8_lossy(&imported.stderr).into_owned();
        assert!(
            said.contains("could not import") && !said.contains("fault of the daemon"),
            "{special}: {said}"
        );
    }
    let left: Vec<_> = fs::read_dir(host.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{special}: {left:?}");
    for name in ["null", "passwd"] {
        assert_eq!(fs::read(host.path(name)).unwrap(), b"the host's", "{special}");
    }
    assert!(daemon.inventory().sandboxes().is_empty(), "{special}");
}

#[test]
fn hostile_archives_are_refused_entirely() {
    let daemon = Daemon::start();
    let place = Folder::new();
    let before = volumes(&daemon);
    let raw = |path: &str| {
        // The library would refuse to write such a path.
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(1);
        header.set_mode(0o644);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend([b'x'; 512]);
        bytes.extend([0; 1024]);
        bytes
    };
    for (name, archive) in [
        ("upwards", raw("../../escape")),
        ("garbage", vec![0x42; 100_000]),
        ("empty", Vec::new()),
        ("wrong digest", {
            let mut archive =
                docker_save("x", &serde_json::json!({}), &[Tar::new().file("a", b"aaaa").finish()]);
            let place = archive.windows(4).position(|window| window == b"aaaa").unwrap();
            archive[place] = b'b';
            archive
        }),
    ] {
        let file = place.put("bad.tar", &archive);
        let said = refused(&daemon, &["image", "import", &file, "--name", "bad"]);
        assert!(said.contains("could not import"), "{name}: {said}");
        assert!(!said.contains("daemon's log"), "{name}: {said}");
    }
    assert!(!daemon.pool().join("escape").exists());
    assert_eq!(volumes(&daemon), before);
    scratch_empties(&daemon);
    let small = Daemon::start_with("[limits]\nimage_upload = \"1M\"\n");
    let large = place.put("large.tar", &Tar::new().file("zeros", &vec![0; 3 << 20]).finish());
    let said = refused(&small, &["image", "import", &large, "--name", "large"]);
    assert!(said.contains("1048576"), "{said}");
}

// === A registry ===

/// Debian's `docker-registry` on loopback.
pub(crate) struct Registry {
    child: Child,
    pub(crate) address: String,
    _place: Folder,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let place = Folder::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let config = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\nhttp: {{ addr: {address} }}\n",
            place.path("data").display()
        );
        let config = place.put("config.yml", config.as_bytes());
        let child = Command::new("docker-registry")
            .args(["serve", &config])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Debian's `docker-registry` is installed by the set-up");
        eventually("the registry", || std::net::TcpStream::connect(&address).ok());
        Self { child, address, _place: place }
    }

    /// Uploads an archive of `docker save` to it.
    pub(crate) fn push(&self, archive: &Path, name: &str) -> String {
        let reference = format!("{}/{name}", self.address);
        let source = format!("docker-archive:{}", archive.display());
        run(Command::new("skopeo")
            .args(["--insecure-policy", "copy", "-q", "--dest-tls-verify=false", &source])
            .arg(format!("docker://{reference}")));
        reference
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_image_is_pulled_from_a_registry_and_its_layers_only_once() {
    let (daemon, registry, place) = (Daemon::start(), Registry::start(), Folder::new());
    let config = serde_json::json!({ "Cmd": ["/hello"], "Env": ["A=1"] });
    let layers = [
        Tar::new().file("hello", &program("pulled\n")).finish(),
        Tar::new().file("big", &vec![7; 3 << 20]).finish(),
    ];
    let archive = place.put("a.tar", &docker_save("org/app:v1", &config, &layers));
    let reference = registry.push(Path::new(&archive), "org/app:v1");
    let first = progress(&daemon, &["image", "pull", &reference]);
    assert!(first.contains("downloading") && first.contains("unpacking"), "{first}");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", &reference]), "pulled");
    let second = progress(&daemon, &["image", "pull", &reference, "--name", "app"]);
    assert_eq!(second.matches("cached").count(), 2, "{second}");
    assert!(!second.contains("downloading") && !second.contains("unpacking"), "{second}");
    assert_eq!(daemon.ok(&["run", "--rm", "--image", "app"]), "pulled");

    for (missing, expected) in
        [("org/app:v2", "does not exist in the registry"), ("nobody/here", "does not exist")]
    {
        let said = refused(&daemon, &["image", "pull", &format!("{}/{missing}", registry.address)]);
        assert!(said.contains(expected), "{said}");
    }
    drop(registry);
    let said = refused(&daemon, &["image", "pull", &reference]);
    assert!(said.contains("could not reach"), "{said}");
    scratch_empties(&daemon);
}

#[test]
fn two_concurrent_pulls_download_once() {
    let (daemon, registry, place) = (Daemon::start(), Registry::start(), Folder::new());
    let layers = [Tar::new().file("hello", &program("once\n")).file("big", &vec![9; 8 << 20]).finish()];
    let archive = place.put("a.tar", &docker_save("app:v1", &serde_json::json!({}), &layers));
    let reference = registry.push(Path::new(&archive), "app:v1");
    let pulls: Vec<Child> = ["one", "two", "three"]
        .iter()
        .map(|name| {
            let mut command = daemon.command(&["image", "pull", &reference, "--name", name]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let said: Vec<String> = pulls
        .into_iter()
        .map(|pull| {
            let output = pull.wait_with_output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{said}");
            said
        })
        .collect();
    let unpacked = said.iter().filter(|said| said.contains("unpacking")).count();
    assert_eq!(unpacked, 1, "{said:?}");
    for name in ["one", "two", "three"] {
        assert_eq!(daemon.ok(&["run", "--rm", "--image", name, "--", "/hello"]), "once");
    }
}

#[test]
fn credentials_of_a_pull_are_neither_logged_nor_kept() {
    let daemon = Daemon::start();
    let mut command =
        daemon.command(&["image", "pull", "127.0.0.1:1/app", "--username", "me", "--password-stdin"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"s3cret-of-mine\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("s3cret"));
    assert!(!daemon.log().contains("s3cret"));
    let found =
        Command::new("grep").args(["-rla", "s3cret-of-mine"]).arg(daemon.state_dir()).output().unwrap();
    assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
}
