//! An image as an archive that other programs take.

use std::io::{self, Write};
use std::os::fd::AsFd as _;

use burrow_images::export::{self, ExportOptions};
use burrow_images::{Compression, ImageError, Platform, Reference};
use burrow_model::{Image, ImageId};
use burrow_volumes::{Chunks, UID_COUNT, UID_SHIFT, inside};
use tokio::sync::mpsc;

use super::Tell;
use super::config::to_run_config;
use super::finish::blocking;
use super::layers::discard;
use crate::{Engine, EngineError};

/// Pieces that may wait for a slow reader.
const PIECES_MAX: usize = 8;

/// One piece.
const PIECE_BYTES: usize = 256 << 10;

impl Engine {
    /// Begins to write an image as an OCI archive with one layer. An error ends the stream; so does the end.
    pub async fn export_image(&self, image: &Image, compression: Compression) -> Result<Chunks, EngineError> {
        let slot = self.shared.images.slot(&Tell::nobody()).await?;
        // A copy of its own, without what the host put in, and at rest whatever happens to the image meanwhile.
        let volume = ImageId::generate();
        let root = self.shared.seams.volumes.stage_image_from(&volume, &image.id).await?;
        let (sender, chunks) = mpsc::channel(PIECES_MAX);
        let (engine, image) = (self.clone(), image.clone());
        let cancelled = self.shared.images.closing();
        let scratch = self.shared.policy.images.scratch.clone();
        tokio::spawn(async move {
            let mut out = Pieces { sender: sender.clone(), piece: Vec::with_capacity(PIECE_BYTES) };
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
                export::write(&mut out, root.as_fd(), &options)?;
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
            discard(&engine.shared, &volume).await;
            drop(slot);
        });
        Ok(chunks)
    }
}

/// Passes on what is written, in pieces. A reader that has gone ends the writing.
struct Pieces {
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
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

/// A time as documents have it, to the second.
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
    fn times_are_written_as_documents_have_them() {
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
