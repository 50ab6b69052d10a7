//! Debian's `docker-registry`, filled by skopeo.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::testing::run;

/// `user:secret`, by bcrypt.
const HTPASSWD: &str = "user:$2b$05$3DHaAXly0Na/9PsH0VMBiuBUvWnLKxhbKBf4UgU6WgZWy01ksu17e\n";

struct Registry {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Registry {
    fn start(with_password: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        // The registry does not report a port that it chose itself.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut config = format!(
            "version: 0.1\nstorage: {{ filesystem: {{ rootdirectory: '{}' }} }}\nhttp: {{ addr: '{address}' }}\n",
            at("storage")
        );
        if with_password {
            fs::write(at("htpasswd"), HTPASSWD).unwrap();
            config += &format!("auth: {{ htpasswd: {{ realm: test, path: '{}' }} }}\n", at("htpasswd"));
        }
        fs::write(at("config.yml"), config).unwrap();
        let mut command = Command::new("docker-registry");
        command.args(["serve", &at("config.yml")]).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("docker-registry is installed by `scripts/setup.sh --test`");
        let registry = Self { process, address, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(&registry.address).is_err() {
            assert!(Instant::now() < deadline, "docker-registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        registry
    }

    fn push(&self, layout: &Path, name: &str, more: &[&str]) {
        let from = format!("oci:{}:test", layout.display());
        let to = format!("docker://{}/{name}", self.address);
        let mut command = Command::new("skopeo");
        command.args(["copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false"]).args(more);
        run(command.args([&from, &to]));
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn an_image_is_pulled_by_tag_and_by_digest() {
    let (registry, image) = (Registry::start(false), Image::new());
    registry.push(&image.layout(), "org/app:v1", &[]);
    let puller = puller(Credentials::Anonymous);
    let name = format!("{}/org/app", registry.address);
    check_pull(&puller, &format!("{name}:v1"), &image).await.unwrap();
    let reference = Reference::parse(&format!("{name}:v1")).unwrap();
    let digest = puller.resolve(&reference).await.unwrap().spec.digest;
    check_pull(&puller, &format!("{name}@{digest}"), &image).await.unwrap();
    // In Docker's own format, too.
    registry.push(&image.layout(), "org/docker:v2", &["--format=v2s2"]);
    check_pull(&puller, &format!("{}/org/docker:v2", registry.address), &image).await.unwrap();

    let missing = puller.resolve(&Reference::parse(&format!("{name}:v2")).unwrap()).await.unwrap_err();
    assert!(matches!(missing, ImageError::NotFound { .. }) && missing.hint().is_some(), "{missing}");
    let other = Digest::of(b"nothing has this digest");
    let missing = puller.resolve(&Reference::parse(&format!("{name}@{other}")).unwrap()).await.unwrap_err();
    assert!(matches!(missing, ImageError::NotFound { .. }), "{missing}");
}

#[tokio::test]
async fn existing_layers_are_not_downloaded() {
    let (registry, image) = (Registry::start(false), Image::new());
    registry.push(&image.layout(), "app:v1", &[]);
    let puller = puller(Credentials::Anonymous);
    let reference = Reference::parse(&format!("{}/app:v1", registry.address)).unwrap();
    let resolved = puller.resolve(&reference).await.unwrap();
    let cache = tempfile::tempdir().unwrap();
    let names = || fs::read_dir(cache.path()).unwrap().count();
    let options = FetchOptions { keep: true, ..fetch_options(cache.path()) };
    drop(puller.fetch(&resolved, &[1], &options).await.unwrap());
    assert_eq!(names(), 1, "only the layer that was asked for");
    assert!(cache.path().join(resolved.spec.layers[1].digest.unwrap().hex()).is_file());
    // Existing layers are not requested again, so it works even after the registry has ended.
    drop(registry);
    drop(puller.fetch(&resolved, &[1], &options).await.unwrap());
    assert!(puller.fetch(&resolved, &[], &options).await.is_ok());
    let error = puller.fetch(&resolved, &[0], &options).await;
    assert!(matches!(error, Err(ImageError::Connect { .. })), "{error:?}");
    assert_eq!(names(), 1, "nothing half done stays");
}

#[tokio::test]
async fn a_password_is_sent_if_the_registry_requires_it() {
    let (registry, image) = (Registry::start(true), Image::new());
    registry.push(&image.layout(), "app:v1", &["--dest-creds=user:secret"]);
    let name = format!("{}/app:v1", registry.address);
    check_pull(&puller(password("user", "secret")), &name, &image).await.unwrap();
    let denied = check_pull(&puller(Credentials::Anonymous), &name, &image).await.unwrap_err();
    assert!(
        matches!(denied, ImageError::Denied { .. }) && denied.to_string().contains("anonymous"),
        "{denied}"
    );
    let denied = check_pull(&puller(password("user", "wrong")), &name, &image).await.unwrap_err();
    assert!(
        denied.to_string().contains("the user `user`") && !denied.to_string().contains("wrong"),
        "{denied}"
    );

    let config = image.folder.path().join("config.json");
    let write = |encoded: &str| {
        fs::write(&config, format!(r#"{{"auths":{{"{}":{{"auth":"{encoded}"}}}}}}"#, registry.address))
            .unwrap();
    };
    write("dXNlcjpzZWNyZXQ=");
    let from_file = || Credentials::DockerConfig { path: config.clone() };
    check_pull(&puller(from_file()), &name, &image).await.unwrap();
    write("dXNlcjp3cm9uZw==");
    assert!(matches!(check_pull(&puller(from_file()), &name, &image).await, Err(ImageError::Denied { .. })));
}

#[tokio::test]
async fn the_variant_for_this_host_is_pulled_from_an_index() {
    let (registry, image) = (Registry::start(false), Image::new());
    // A second image in the same layout, for another platform; the index names both.
    let layout = image.layout();
    let ours = fs::read_to_string(layout.join("index.json")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    write_layout(folder.path(), &[Tar::default().file("other", "x").end()], Compression::Gzip);
    let other = fs::read_to_string(folder.path().join("index.json")).unwrap();
    for blob in fs::read_dir(folder.path().join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap();
        fs::copy(blob.path(), layout.join("blobs/sha256").join(blob.file_name())).unwrap();
    }
    let entry = |index: &str, architecture: &str| {
        let value: serde_json::Value = serde_json::from_str(index).unwrap();
        let mut descriptor = value["manifests"][0].clone();
        descriptor["platform"] = serde_json::json!({"os": "linux", "architecture": architecture});
        descriptor.as_object_mut().unwrap().remove("annotations");
        descriptor
    };
    let kind = "application/vnd.oci.image.index.v1+json";
    let list = serde_json::json!({"schemaVersion": 2, "mediaType": kind, "manifests": [
        entry(&other, "s390x"), entry(&ours, &Platform::host().architecture)]});
    let list = serde_json::to_vec(&list).unwrap();
    let digest = Digest::of(&list);
    fs::write(layout.join("blobs/sha256").join(digest.hex()), &list).unwrap();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [{"mediaType": kind, "digest": digest,
        "size": list.len(), "annotations": {"org.opencontainers.image.ref.name": "test"}}]});
    fs::write(layout.join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
    registry.push(&layout, "app:v1", &["--all"]);

    let name = format!("{}/app:v1", registry.address);
    check_pull(&puller(Credentials::Anonymous), &name, &image).await.unwrap();
    // The index itself has a digest, and can be named by it.
    check_pull(&puller(Credentials::Anonymous), &format!("{}/app@{digest}", registry.address), &image)
        .await
        .unwrap();
    let elsewhere = Puller::new(PullerOptions {
        credentials: Credentials::Anonymous,
        insecure: false,
        ca_file: None,
        platform: Platform { architecture: "riscv64".to_owned(), ..Platform::host() },
    })
    .unwrap();
    let error = elsewhere.resolve(&Reference::parse(&name).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("linux/s390x"), "{error}");
}
