//! Package sources: a Python index, an npm registry, a sparse index of crates, a git server. Each has one package:
//! `tiny`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{Answer, RecordedRequest, reply, whole};
use crate::harness::run;

/// Creates `tiny` as a wheel, as an npm package and as a crate, and writes their hashes.
const MAKE: &str = r#"
import base64, hashlib, io, json, os, sys, tarfile, zipfile
folder = sys.argv[1]
def save(name, data):
    with open(os.path.join(folder, name), "wb") as file: file.write(data)
    return data
wheel = io.BytesIO()
with zipfile.ZipFile(wheel, "w") as archive:
    archive.writestr("tiny.py", "word = 'from python'\n")
    archive.writestr("tiny-1.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0.0\n")
    archive.writestr("tiny-1.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    archive.writestr("tiny-1.0.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.0.dist-info/METADATA,,\ntiny-1.0.0.dist-info/WHEEL,,\ntiny-1.0.0.dist-info/RECORD,,\n")
save("tiny-1.0.0-py3-none-any.whl", wheel.getvalue())
def tarball(files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()
npm = save("tiny-1.0.0.tgz", tarball({"package/package.json": json.dumps({"name": "tiny", "version": "1.0.0", "main": "index.js"}),
    "package/index.js": "module.exports = 'from node'\n"}))
crate = save("tiny-1.0.0.crate", tarball({"tiny-1.0.0/Cargo.toml": "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
    "tiny-1.0.0/src/lib.rs": "pub const WORD: &str = \"from cargo\";\n"}))
with open(os.path.join(folder, "hashes.json"), "w") as file:
    json.dump({"npm": "sha512-" + base64.b64encode(hashlib.sha512(npm).digest()).decode(), "crate": hashlib.sha256(crate).hexdigest()}, file)
"#;

impl super::Upstream {
    /// Creates the served files. Call it before the first client connects.
    pub(crate) fn with_packages(self) -> Self {
        run(Command::new("python3").args(["-c", MAKE]).arg(self.folder()));
        let work = self.folder().join("work");
        let script = "git init -q -b main work && cd work && echo from git > word && git add word && \
                      git -c user.name=t -c user.email=t@example commit -qm first && \
                      git clone -q --bare . ../tiny.git && git -C ../tiny.git config http.receivepack true";
        run(Command::new("sh")
            .args(["-c", script])
            .current_dir(self.folder())
            .env("GIT_CONFIG_GLOBAL", "/dev/null"));
        assert!(work.join("word").exists());
        self
    }

    /// Serves these wheels instead.
    pub(crate) fn with_wheels(self, wheels: &Path) -> Self {
        std::os::unix::fs::symlink(wheels, self.folder().join("wheels")).unwrap();
        self
    }
}

pub(super) async fn answer(folder: &Path, seen: &RecordedRequest, request: Request<Incoming>) -> Answer {
    let file = |name: &str, kind: &str| reply(StatusCode::OK, kind, fs::read(folder.join(name)).unwrap());
    let hash = |name: &str| {
        let hashes: Value = serde_json::from_slice(&fs::read(folder.join("hashes.json")).unwrap()).unwrap();
        hashes[name].as_str().unwrap().to_owned()
    };
    match (seen.host.as_str(), seen.path.as_str()) {
        ("git", _) => git(folder, seen, whole(request).await).await,
        ("pip", path) => pip(folder, path),
        ("npm", "/tiny") => {
            let dist =
                json!({ "tarball": "https://npm.example/tiny/-/tiny-1.0.0.tgz", "integrity": hash("npm") });
            let version = json!({ "name": "tiny", "version": "1.0.0", "dist": dist });
            let tags = json!({ "latest": "1.0.0" });
            let about = json!({ "name": "tiny", "dist-tags": tags, "versions": { "1.0.0": version } });
            reply(StatusCode::OK, "application/json", about.to_string())
        }
        ("npm", "/tiny/-/tiny-1.0.0.tgz") => file("tiny-1.0.0.tgz", "application/octet-stream"),
        ("cargo", "/index/config.json") => {
            let about = json!({ "dl": "https://cargo.example/files/{crate}-{version}.crate",
                "api": "https://cargo.example", "auth-required": true });
            reply(StatusCode::OK, "application/json", about.to_string())
        }
        ("cargo", "/index/ti/ny/tiny") => {
            let line = json!({ "name": "tiny", "vers": "1.0.0", "deps": [], "cksum": hash("crate"), "features": {},
                "yanked": false });
            reply(StatusCode::OK, "text/plain", line.to_string() + "\n")
        }
        ("cargo", "/files/tiny-1.0.0.crate") => file("tiny-1.0.0.crate", "application/octet-stream"),
        _ => reply(StatusCode::NOT_FOUND, "text/plain", "no such package"),
    }
}

/// A simple index of the existing wheels.
fn pip(folder: &Path, path: &str) -> Answer {
    let wheels = Some(folder.join("wheels")).filter(|wheels| wheels.exists()).unwrap_or(folder.to_owned());
    if let Some(name) = path.strip_prefix("/files/").filter(|name| name.ends_with(".whl")) {
        return match fs::read(wheels.join(name)) {
            Ok(wheel) => reply(StatusCode::OK, "application/zip", wheel),
            Err(_) => reply(StatusCode::NOT_FOUND, "text/plain", "no such wheel"),
        };
    }
    let project = path.trim_start_matches("/simple/").trim_end_matches('/').to_owned();
    let names = fs::read_dir(wheels).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let of_it = names.filter(|name| {
        let own = name.split('-').next().unwrap_or_default().to_lowercase().replace(['_', '.'], "-");
        name.ends_with(".whl") && own == project
    });
    let page: String = of_it.map(|name| format!("<a href=\"/files/{name}\">{name}</a>\n")).collect();
    let status = if page.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::OK };
    reply(status, "text/html", page)
}

/// Served by git's own CGI program.
async fn git(folder: &Path, seen: &RecordedRequest, body: Bytes) -> Answer {
    let mut command = Command::new("git");
    command.arg("http-backend").env("GIT_PROJECT_ROOT", folder).env("GIT_HTTP_EXPORT_ALL", "1");
    command.env("REMOTE_USER", "git").env("REQUEST_METHOD", &seen.method).env("PATH_INFO", &seen.path);
    command.env("QUERY_STRING", &seen.query).env("CONTENT_TYPE", seen.header("content-type"));
    command.env("HTTP_CONTENT_ENCODING", seen.header("content-encoding"));
    command.env("GIT_PROTOCOL", seen.header("git-protocol")).env("CONTENT_LENGTH", body.len().to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let work = tokio::task::spawn_blocking(move || {
        use std::io::Write as _;
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let feeder = std::thread::spawn(move || input.write_all(&body));
        let output = child.wait_with_output().unwrap().stdout;
        let _ = feeder.join();
        output
    });
    let output = work.await.unwrap();
    let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(output.len());
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        response = match name {
            "Status" => response.status(value.split(' ').next().unwrap()),
            _ => response.header(name, value),
        };
    }
    let body = Bytes::copy_from_slice(output.get(end + 4..).unwrap_or_default());
    response.body(Full::new(body).boxed_unsync()).unwrap()
}
