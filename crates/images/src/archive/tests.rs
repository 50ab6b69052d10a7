//! Archives of every format, created by other tools and by hand.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ::tar::EntryType;

use super::*;
use crate::testing::{Raw, Tar, compress, run, write_layout};

/// The files of one test.
struct Scene {
    folder: tempfile::TempDir,
    layers: Vec<Vec<u8>>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("scratch")).unwrap();
        let layers = vec![Tar::default().file("a", "1").end(), Tar::default().file("b", "2").end()];
        write_layout(&folder.path().join("layout"), &layers, Compression::Gzip);
        Self { folder, layers }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes skopeo write the layout in another format.
    fn copy(&self, kind: &str, name: &str) -> PathBuf {
        let path = self.at(name);
        let from = format!("oci:{}:test", self.at("layout").display());
        let to = format!("{kind}:{}:example.org/app:v1", path.display());
        run(Command::new("skopeo").args(["copy", "--quiet", "--insecure-policy", &from, &to]));
        path
    }

    fn open(&self, path: &Path) -> Result<Archive, ImageError> {
        let scratch = self.at("scratch");
        let platform = Platform::host();
        open(
            path,
            &OpenOptions {
                scratch: &scratch,
                bytes_max: 1 << 24,
                platform: &platform,
                space: &crate::Unlimited,
            },
        )
    }

    /// Writes a file and opens it.
    fn open_bytes(&self, bytes: &[u8]) -> Result<Archive, ImageError> {
        let path = self.at("bytes");
        fs::write(&path, bytes).unwrap();
        self.open(&path)
    }

    /// Checks that it is the test image: these layers, this configuration, this name.
    #[track_caller]
    fn check(&self, archive: &Archive, names: &[&str]) {
        let [image] = archive.images() else { panic!("{:?}", archive.images()) };
        let expected: Vec<Digest> = self.layers.iter().map(|layer| Digest::of(layer)).collect();
        let found: Vec<Digest> = image.spec.diff_ids.iter().map(|diff_id| diff_id.0).collect();
        assert_eq!(found, expected);
        assert_eq!(image.spec.config.env, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(image.names.iter().map(Reference::to_string).collect::<Vec<_>>(), names);
        for (index, expected) in self.layers.iter().enumerate() {
            let compression = image.spec.layers[index].compression;
            let mut stored = Vec::new();
            archive.layer(0, index).read_to_end(&mut stored).unwrap();
            assert_eq!(stored.len() as u64, image.spec.layers[index].size);
            let mut bytes = Vec::new();
            stream::open(&stored[..], compression).unwrap().read_to_end(&mut bytes).unwrap();
            assert!(bytes == *expected);
        }
        assert_eq!(fs::read_dir(self.at("scratch")).unwrap().count(), 0);
    }
}

const NAME: &str = "example.org/app:v1";

#[test]
fn layouts_and_archives_from_skopeo_are_opened() {
    let scene = Scene::new();
    scene.check(&scene.open(&scene.at("layout")).unwrap(), &[]);
    let oci = scene.copy("oci-archive", "oci.tar");
    scene.check(&scene.open(&oci).unwrap(), &[NAME]);
    let docker = scene.copy("docker-archive", "docker.tar");
    scene.check(&scene.open(&docker).unwrap(), &[NAME]);
    // Compressed as a whole, which is common.
    for compression in [Compression::Gzip, Compression::Zstd] {
        let bytes = compress(&fs::read(&docker).unwrap(), compression);
        scene.check(&scene.open_bytes(&bytes).unwrap(), &[NAME]);
    }
}

#[test]
fn a_stream_is_opened_like_a_file() {
    let scene = Scene::new();
    let bytes = fs::read(scene.copy("docker-archive", "docker.tar")).unwrap();
    let scratch = scene.at("scratch");
    let platform = Platform::host();
    let options =
        OpenOptions { scratch: &scratch, bytes_max: 1 << 24, platform: &platform, space: &crate::Unlimited };
    for compression in [Compression::None, Compression::Gzip] {
        let stored = compress(&bytes, compression);
        // In two pieces: the first one has less than four bytes.
        let (first, second) = stored.split_at(2);
        scene.check(&spool(first.chain(second), &options).unwrap(), &[NAME]);
    }
    let small = OpenOptions { bytes_max: 1000, ..options };
    assert!(matches!(spool(&bytes[..], &small), Err(ImageError::TooLarge { .. })));
    let bomb = compress(&vec![0; 1 << 25], Compression::Gzip);
    assert!(matches!(spool(&bomb[..], &options), Err(ImageError::TooLarge { .. })));
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn the_old_docker_save_format_is_opened_with_its_links() {
    let scene = Scene::new();
    let config = format!(
        r#"{{"architecture":"{}","os":"linux","config":{{"Env":["A=b"]}},"rootfs":{{"type":"layers","diff_ids":["{}","{}"]}}}}"#,
        Platform::host().architecture,
        Digest::of(&scene.layers[0]),
        Digest::of(&scene.layers[1]),
    );
    let name = format!("{}.json", Digest::of(config.as_bytes()).hex());
    let manifest = format!(
        r#"[{{"Config":"{name}","RepoTags":["example.org/app:v1","not a name"],"Layers":["one/layer.tar","two/layer.tar"]}}]"#
    );
    let saved = |config_content: &str| {
        Tar::default()
            .directory("one/")
            .file("one/VERSION", "1.0")
            .raw(&Raw { link: "../three/layer.tar", ..Raw::new(EntryType::Symlink, "one/layer.tar") })
            .raw(&Raw { content: &scene.layers[1], ..Raw::new(EntryType::Regular, "two/layer.tar") })
            .raw(&Raw { content: &scene.layers[0], ..Raw::new(EntryType::Regular, "three/layer.tar") })
            .file(&name, config_content)
            .file("manifest.json", &manifest)
            .end()
    };
    scene.check(&scene.open_bytes(&saved(&config)).unwrap(), &[NAME]);
    let error = scene.open_bytes(&saved(&config.replace("A=b", "A=c"))).unwrap_err();
    assert!(matches!(error, ImageError::Mismatch { .. }), "{error}");
}

#[test]
fn a_plain_tar_is_one_layer_with_an_empty_configuration() {
    let scene = Scene::new();
    let tar = Tar::default().directory("etc/").file("etc/os-release", "x").file("manifest.json", "{}").end();
    let plain = scene.open_bytes(&tar).unwrap();
    let mut bytes = Vec::new();
    plain.layer(0, 0).read_to_end(&mut bytes).unwrap();
    assert!(bytes == tar);
    for compression in [Compression::Gzip, Compression::Zstd] {
        let packed = scene.open_bytes(&compress(&tar, compression)).unwrap();
        assert_eq!(packed.images()[0].spec, plain.images()[0].spec);
    }
    let spec = &plain.images()[0].spec;
    assert_eq!((spec.diff_ids[0].0, &spec.config), (Digest::of(&tar), &RunConfig::default()));
}

#[track_caller]
fn check_refused(result: Result<Archive, ImageError>, word: &str) {
    let error = result.unwrap_err();
    assert!(error.to_string().contains(word), "{error}");
}

#[test]
fn files_that_are_not_images_are_refused() {
    let scene = Scene::new();
    check_refused(scene.open_bytes(b"hello"), "is not an image");
    check_refused(scene.open_bytes(&[]), "is not an image");
    check_refused(scene.open_bytes(&[0; 10_240]), "it is empty");
    check_refused(scene.open_bytes(&vec![b'x'; 10_000]), "not a tar");
    check_refused(scene.open(Path::new("/dev/null")), "neither a file");
    check_refused(scene.open(&scene.at("scratch")), "no `oci-layout`");
    check_refused(scene.open(&scene.at("missing")), "could not open");
    let mut cut = fs::read(scene.copy("docker-archive", "docker.tar")).unwrap();
    cut.truncate(2000);
    check_refused(scene.open_bytes(&cut), "truncated");
    let ancient = Tar::default().file("repositories", "{}").file("id/layer.tar", "x").end();
    check_refused(scene.open_bytes(&ancient), "schema 1");
    let missing = r#"[{"Config":"c.json","RepoTags":null,"Layers":[]}]"#;
    check_refused(scene.open_bytes(&Tar::default().file("manifest.json", missing).end()), "missing");
    let outside = r#"[{"Config":"../../etc/passwd","RepoTags":null,"Layers":[]}]"#;
    check_refused(scene.open_bytes(&Tar::default().file("manifest.json", outside).end()), "missing");
}

#[test]
fn a_modified_layout_is_refused() {
    let blobs = |scene: &Scene| -> Vec<PathBuf> {
        fs::read_dir(scene.at("layout/blobs/sha256")).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let documents = |path: &PathBuf| fs::read(path).unwrap().starts_with(b"{");
    let layers = |path: &PathBuf| !documents(path);
    for path in blobs(&Scene::new()).iter().filter(|path| documents(path)) {
        let scene = Scene::new();
        let path = scene.at("layout/blobs/sha256").join(path.file_name().unwrap());
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen(['l', 'a'], "x", 1)).unwrap();
        check_refused(scene.open(&scene.at("layout")), "has the digest");
    }
    let scene = Scene::new();
    let layer = blobs(&scene).into_iter().find(layers).unwrap();
    fs::write(&layer, "shorter").unwrap();
    check_refused(scene.open(&scene.at("layout")), "bytes instead of");
    fs::remove_file(&layer).unwrap();
    check_refused(scene.open(&scene.at("layout")), "missing");
    std::os::unix::fs::symlink("/etc/passwd", &layer).unwrap();
    assert!(scene.open(&scene.at("layout")).is_err());
    fs::remove_file(&layer).unwrap();
    run(Command::new("mkfifo").arg(&layer));
    check_refused(scene.open(&scene.at("layout")), "could not open");
}

#[test]
fn the_image_for_this_host_is_chosen_from_a_layout_of_several() {
    let scene = Scene::new();
    let index = fs::read_to_string(scene.at("layout/index.json")).unwrap();
    let host = Platform::host();
    let with_platform = |os: &str| {
        index.replace(
            r#""annotations""#,
            &format!(r#""platform":{{"os":"{os}","architecture":"{}"}},"annotations""#, host.architecture),
        )
    };
    // An index within the index, whose image is for this host.
    let nested = with_platform("linux");
    let digest = Digest::of(nested.as_bytes());
    fs::write(scene.at("layout/blobs/sha256").join(digest.hex()), &nested).unwrap();
    let top = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"{digest}",
            "size":{},"annotations":{{"io.containerd.image.name":"example.org/app:v1"}}}}]}}"#,
        nested.len()
    );
    fs::write(scene.at("layout/index.json"), top).unwrap();
    scene.check(&scene.open(&scene.at("layout")).unwrap(), &[NAME]);
    fs::write(scene.at("layout/index.json"), with_platform("plan9")).unwrap();
    check_refused(scene.open(&scene.at("layout")), "no variant for linux");
}
