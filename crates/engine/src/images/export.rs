//! Exports an image as an archive for other programs.

use std::io::{self, Write};
use std::os::fd::AsFd as _;

use burrow_disks::{Chunks, UID_COUNT, UID_SHIFT, inside};
use burrow_images::export::{self, ExportOptions};
use burrow_images::{Compression, ImageError, Platform, Reference};
use burrow_model::{Image, ImageId};
use tokio::sync::mpsc;

use super::ImageProgressSink;
use super::config::to_run_config;
use super::finish::blocking;
use super::layers::discard;
use super::scratch_space::reserve;
use crate::{Engine, EngineError};

/// Chunks that may wait for a slow reader.
const PIECES_MAX: usize = 8;

/// Bytes of one chunk.
const PIECE_BYTES: usize = 256 << 10;

impl Engine {
    /// Starts to write an image as an OCI archive with one layer. The stream ends at the first error.
    pub async fn export_image(&self, image: &Image, compression: Compression) -> Result<Chunks, EngineError> {
        let permit = self.shared.images.permit(&ImageProgressSink::none()).await?;
        // The packed layer is a temporary file, about as large as the files at most. Reserved first: a refusal leaves nothing.
        let lease = reserve(&self.shared.policy.images, image.size_bytes)?;
        // A separate copy, without the files that the host added, which does not change if the image is removed.
        let disk = ImageId::generate();
        let root = self.shared.seams.disks.stage((&disk).into(), Some((&image.id).into())).await?;
        let (sender, chunks) = mpsc::channel(PIECES_MAX);
        let (engine, image) = (self.clone(), image.clone());
        let cancelled = self.shared.images.closing();
        let scratch = self.shared.policy.images.scratch.clone();
        let alive = self.shared.actor_guard();
        // Ends with the stream. The shutdown waits for it, so that the copy is removed.
        drop(tokio::spawn(async move {
            let mut out = ChunkWriter { sender: sender.clone(), piece: Vec::with_capacity(PIECE_BYTES) };
            let written = blocking(move || {
                inside::remove_agent(&root)?;
                let names: Vec<Reference> =
                    image.names.iter().filter_map(|name| Reference::parse(name.as_str()).ok()).collect();
                let created = rfc3339(image.created_ms);
                let options = ExportOptions {
                    config: &to_run_config(&image.config),
                    platform: &Platform::host(),
                    created: Some(&created),
                    names: &names,
                    compression,
                    uid_shift: UID_SHIFT,
                    uid_count: UID_COUNT,
                    scratch: &scratch,
                    cancelled: &cancelled,
                };
                let what = root.display().to_string();
                let root = std::fs::File::open(&root).map_err(|source| ImageError::Io {
                    step: "open",
                    what,
                    source,
                })?;
                let packed = export::pack(root.as_fd(), &options);
                // The file is written and counts as used, however slowly it is read.
                drop(lease);
                export::send(&mut out, packed?, &options)?;
                out.flush().map_err(|source| ImageError::Io {
                    step: "send",
                    what: image.id.to_string(),
                    source,
                })?;
                Ok(())
            });
            if let Err(error) = written.await {
                tracing::warn!(error = &error as &dyn std::error::Error, "could not export an image");
                let _ = sender.send(Err(io::Error::other(error.to_string()))).await;
            }
            discard(&engine.shared, &disk).await;
            drop((permit, alive));
        }));
        Ok(chunks)
    }
}

/// Passes the written bytes on, in chunks. If the reader is gone, writing ends.
struct ChunkWriter {
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// A time in RFC 3339, to the second.
fn rfc3339(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's `civil_from_days`, for days since 1970.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_rfc3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
        }
    }
}
