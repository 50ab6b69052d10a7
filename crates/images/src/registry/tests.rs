//! Pulling from a real registry, and from servers that simulate failures of real ones.

mod docker;
mod fake;
mod misbehaving;

use std::fs;
use std::sync::Mutex;

use super::*;
use crate::testing::{Tar, write_layout};
use crate::{Compression, Digest};

/// An image in a layout, to be pushed or served.
struct Image {
    folder: tempfile::TempDir,
    layers: Vec<Vec<u8>>,
}

impl Image {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Not compressible, so that it arrives in many pieces.
        let mut state = 1u32;
        let noise: String = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + u8::try_from((state >> 16) % 90).unwrap())
        })
        .take(700_000)
        .collect();
        let layers = vec![Tar::default().file("noise", &noise).end(), Tar::default().file("b", "2").end()];
        write_layout(&folder.path().join("layout"), &layers, Compression::Gzip);
        Self { folder, layers }
    }

    fn layout(&self) -> PathBuf {
        self.folder.path().join("layout")
    }
}

fn puller(credentials: Credentials) -> Puller {
    let options = PullerOptions { credentials, insecure: false, ca_file: None, platform: Platform::host() };
    Puller::new(options).unwrap()
}

fn password(username: &str, password: &str) -> Credentials {
    Credentials::Password { username: username.to_owned(), password: Secret(password.to_owned()) }
}

fn fetch_options(cache: &Path) -> FetchOptions {
    FetchOptions { cache: cache.to_owned(), keep: false, progress: Arc::new(|_| {}) }
}

/// Pulls all layers, and checks that they are those of the image.
async fn check_pull(puller: &Puller, reference: &str, image: &Image) -> Result<(), ImageError> {
    let reference = Reference::parse(reference).unwrap();
    let resolved = puller.resolve(&reference).await?;
    let diff_ids: Vec<Digest> = resolved.spec.diff_ids.iter().map(|diff_id| diff_id.0).collect();
    assert_eq!(diff_ids, image.layers.iter().map(|layer| Digest::of(layer)).collect::<Vec<_>>());
    let cache = tempfile::tempdir().unwrap();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&reports);
    let options = FetchOptions {
        progress: Arc::new(move |progress| listener.lock().unwrap().push(progress)),
        ..fetch_options(cache.path())
    };
    let fetched = puller.fetch(&resolved, &[0, 1], &options).await?;
    for (index, layer) in image.layers.iter().enumerate() {
        let mut bytes = Vec::new();
        let mut stored =
            crate::layer::stream::open(fetched.layer(index)?, resolved.spec.layers[index].compression)
                .unwrap();
        std::io::Read::read_to_end(&mut stored, &mut bytes).unwrap();
        assert!(bytes == *layer, "layer {index} has other content");
        let size = resolved.spec.layers[index].size;
        let last = reports.lock().unwrap().iter().rev().find(|progress| progress.layer == index).copied();
        assert_eq!(last, Some(Progress { layer: index, done: size, total: size }));
    }
    drop(fetched);
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0, "something was left in the cache");
    Ok(())
}
