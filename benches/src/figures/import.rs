//! Importing an image, compared with `tar x` of its layer on the same file system; and opening an image whose layers are
//! known.
//!
//! The image is an export of the default one. Measures the handling of formats, which is nearly all of the work: the
//! daemon adds a subvolume and a row. Neither side waits for the disk; written data is flushed between measurements,
//! outside of the measured time.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use burrow_images::archive::{self, OpenOptions};
use burrow_images::export::{self, ExportOptions};
use burrow_images::layer::{self, ApplyLimits, ApplyOptions};
use burrow_images::{Compression, ImageError, Platform, RunConfig};

use super::Scale;
use crate::daemon::BenchSetup;
use crate::error::BenchError;
use crate::process::run;
use crate::report::{Figure, Target};
use crate::samples::Samples;

/// The same as for sandboxes.
const UID_SHIFT: u32 = 100_000;
const UID_COUNT: u32 = 65_536;

/// Larger than any archive of the default image.
const BYTES_MAX: u64 = 16 << 30;

const AGAINST_TAR: Target = Target::RatioAtMost { limit: 1.5, wish: 1.0 };
const AGAINST_FIRST: Target = Target::RatioAtMost { limit: 0.2, wish: 0.2 };

/// An archive, and its layer beside it for `tar`.
struct Material {
    folder: PathBuf,
    archive: PathBuf,
    layer: PathBuf,
    platform: Platform,
}

pub(super) async fn measure(prepared: &BenchSetup, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let (prepared, rounds) = (prepared.clone(), scale.import_rounds);
    // It uses its own threads, none of which is the async runtime's.
    let measuring = tokio::task::spawn_blocking(move || {
        let folder = tempfile::Builder::new()
            .prefix("bench-import-")
            .tempdir_in(&prepared.pool)
            .map_err(BenchError::io("make a folder in", prepared.pool.display()))?;
        let root = prepared.image.join("rootfs");
        let mut figures = Vec::new();
        let gzip = Material::make(folder.path(), &root, Compression::Gzip)?;
        let (ours, tar, known) = gzip.rounds(rounds)?;
        figures.push(
            Figure::median(
                "image_import",
                &ours,
                "ms",
                "p50 of opening an OCI archive and applying its gzip layer",
            )
            .against("tar -xzf of the layer", &tar)
            .target(AGAINST_TAR),
        );
        figures.push(
            Figure::median(
                "image_import_known",
                &known,
                "ms",
                "p50 of opening an archive to know its chain ids",
            )
            .against("the first import", &ours)
            .target(AGAINST_FIRST),
        );
        let plain = Material::make(folder.path(), &root, Compression::None)?;
        let (ours, tar, _) = plain.rounds(rounds)?;
        figures.push(
            Figure::median("image_import_uncompressed", &ours, "ms", "the same with an uncompressed layer")
                .against("tar -xf of the layer", &tar)
                .target(AGAINST_TAR),
        );
        Ok(figures)
    });
    measuring.await.expect("a measuring thread does not panic")
}

impl Material {
    fn make(folder: &Path, root: &Path, compression: Compression) -> Result<Self, BenchError> {
        let platform = Platform::host();
        let (archive, layer) = (folder.join("archive.tar"), folder.join("layer.tar"));
        let root = File::open(root).map_err(BenchError::io("open", root.display()))?;
        let file = File::create(&archive).map_err(BenchError::io("make", archive.display()))?;
        let mut out = BufWriter::new(file);
        let options = ExportOptions {
            config: &RunConfig::default(),
            platform: &platform,
            created: None,
            names: &[],
            compression,
            uid_shift: UID_SHIFT,
            uid_count: UID_COUNT,
            scratch: folder,
            cancelled: &AtomicBool::new(false),
        };
        export::write(&mut out, root.as_fd(), &options).map_err(image("export the default image"))?;
        out.flush().map_err(BenchError::io("write", archive.display()))?;
        let material = Self { folder: folder.to_owned(), archive, layer, platform };
        let opened = material.open()?;
        let mut file = File::create(&material.layer).map_err(BenchError::io("make", "the layer"))?;
        std::io::copy(&mut opened.layer(0, 0), &mut file).map_err(BenchError::io("write", "the layer"))?;
        Ok(material)
    }

    fn open(&self) -> Result<archive::Archive, BenchError> {
        let options = OpenOptions {
            scratch: &self.folder,
            bytes_max: BYTES_MAX,
            platform: &self.platform,
            space: &burrow_images::Unlimited,
        };
        archive::open(&self.archive, &options).map_err(image("open the archive"))
    }

    /// Ours, `tar`'s, and ours with known layers, alternately.
    fn rounds(&self, rounds: u32) -> Result<(Samples, Samples, Samples), BenchError> {
        let (mut ours, mut tar, mut known) = (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..rounds {
            tar.push_ms(self.unpack_time(|to| {
                let mut command = Command::new("tar");
                command.args(["--numeric-owner", "-pxf"]).arg(&self.layer).arg("-C").arg(to);
                run(&mut command).map(|_| ())
            })?);
            ours.push_ms(self.unpack_time(|to| self.import(to))?);
            let start = Instant::now();
            let opened = self.open()?;
            assert!(!opened.images()[0].spec.chain_ids().is_empty(), "an opened image has layers");
            known.push_ms(start.elapsed());
        }
        Ok((ours, tar, known))
    }

    fn import(&self, to: &Path) -> Result<(), BenchError> {
        let opened = self.open()?;
        let spec = &opened.images()[0].spec;
        let root = File::open(to).map_err(BenchError::io("open", to.display()))?;
        let options = ApplyOptions {
            compression: spec.layers[0].compression,
            expected: spec.diff_ids[0],
            uid_shift: UID_SHIFT,
            uid_count: UID_COUNT,
            limits: ApplyLimits::DEFAULT,
            cancelled: &AtomicBool::new(false),
            progress: &|_| {},
        };
        layer::apply(opened.layer(0, 0), root.as_fd(), &options).map_err(image("apply the layer"))?;
        Ok(())
    }

    /// Measures one unpacking into a new directory, which is then synced and removed.
    fn unpack_time(
        &self,
        unpack: impl FnOnce(&Path) -> Result<(), BenchError>,
    ) -> Result<Duration, BenchError> {
        let to = self.folder.join("unpacked");
        fs::create_dir(&to).map_err(BenchError::io("make", to.display()))?;
        let start = Instant::now();
        unpack(&to)?;
        let elapsed = start.elapsed();
        fs::remove_dir_all(&to).map_err(BenchError::io("remove", to.display()))?;
        let folder = File::open(&self.folder).map_err(BenchError::io("open", self.folder.display()))?;
        rustix::fs::syncfs(&folder).map_err(|error| BenchError::io("flush", "the pool")(error.into()))?;
        Ok(elapsed)
    }
}

fn image(step: &'static str) -> impl FnOnce(ImageError) -> BenchError {
    move |error| BenchError::WrongAnswer {
        what: format!("could not {step}: {}", crate::error::chain(&error)),
    }
}
