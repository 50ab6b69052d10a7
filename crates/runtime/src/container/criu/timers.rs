//! Rearms periodic timers that would not run again after a restore.
//!
//! After a periodic timer of a `timerfd` has expired, it is disarmed until it is read. CRIU mistakes that for a timer
//! that was never set, and records it so: after a restore it never expires again. In a machine that was paused for a
//! while, all such timers have expired, and a timer with a short period expires during any dump. So the images are
//! corrected: a timer with a period and without a next expiry expires at once, as is correct.

use std::io;
use std::os::fd::BorrowedFd;

use super::image::{self, Image};
use super::protobuf::{Fields, ProtobufError, Value};

const IMAGE: &str = "files.img";
const IMAGE_KIND: u32 = 0x5630_3138;
/// An open file takes about a hundred bytes, and a machine's limit on them is far below a million.
const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// The field of a record that contains a timer.
const TIMER: u32 = 12;
/// The fields of a timer: seconds and nanoseconds until its next expiry, and of its period.
const NEXT: [u32; 2] = [7, 8];
const PERIOD: [u32; 2] = [9, 10];

/// Rearms the expired timers in the images.
pub(super) fn rearm_expired(images: BorrowedFd<'_>) -> io::Result<()> {
    let Some(image) = Image::open(images, IMAGE, IMAGE_BYTES_MAX)? else { return Ok(()) };
    for at in expired(&image.bytes).map_err(image::malformed)? {
        image.set(at, 1)?;
    }
    Ok(())
}

/// The offsets of the bytes for "no nanoseconds" of expired timers in the image.
fn expired(image: &[u8]) -> Result<Vec<usize>, ProtobufError> {
    let mut found = Vec::new();
    for (at, entry) in image::records(image, IMAGE_KIND)? {
        let mut fields = Fields::of(entry);
        while let Some(field) = fields.next() {
            let field = field?;
            if let (TIMER, Value::Bytes(timer)) = (field.number, field.value) {
                // The timer ends where the unread fields begin.
                let start = at + entry.len() - fields.remaining() - timer.len();
                found.extend(expired_timer(timer)?.map(|offset| start + offset));
            }
        }
    }
    Ok(found)
}

/// The offset of the byte to change, if the timer has expired.
fn expired_timer(timer: &[u8]) -> Result<Option<usize>, ProtobufError> {
    let (mut next, mut period) = (0, 0);
    let mut byte = None;
    let mut fields = Fields::of(timer);
    while let Some(field) = fields.next() {
        let field = field?;
        let Value::Number(number) = field.value else { continue };
        if NEXT.contains(&field.number) {
            next |= number;
        }
        if PERIOD.contains(&field.number) {
            period |= number;
        }
        if field.number == NEXT[1] {
            byte = Some(timer.len() - fields.remaining() - 1);
        }
    }
    Ok(byte.filter(|_| next == 0 && period != 0))
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::Message;
    use super::*;

    fn timer(next: [u64; 2], period: [u64; 2]) -> Message {
        let timer = Message::default().number(1, 10).number(2, 2).bytes(3, b"\x08\x00").number(5, 272);
        let fields = NEXT.into_iter().zip(next).chain(PERIOD.into_iter().zip(period));
        fields.fold(timer, |timer, (field, value)| timer.number(field, value))
    }

    fn image(entries: &[Message]) -> Vec<u8> {
        image::written(IMAGE_KIND, entries)
    }

    fn entry(timer: &Message) -> Message {
        Message::default().number(1, 17).number(2, 300).message(TIMER, timer).flag(20)
    }

    #[test]
    fn only_expired_periodic_timers_are_rearmed() {
        let other = Message::default().number(1, 4).number(2, 1).bytes(4, b"a socket");
        let run_out = timer([0, 0], [0, 1_000_000]);
        let entries = [
            other.clone(),
            entry(&run_out),
            entry(&timer([0, 5], [1, 0])),
            entry(&timer([0, 0], [0, 0])),
            other,
            entry(&timer([0, 0], [3, 0])),
        ];
        let mut image = image(&entries);
        let found = expired(&image).unwrap();
        assert_eq!(found.len(), 2);
        for at in found {
            assert_eq!(image[at], 0);
            image[at] = 1;
        }
        assert!(expired(&image).unwrap().is_empty(), "they are armed now");
        let rearmed = timer([0, 1], [0, 1_000_000]);
        assert!(image.windows(rearmed.as_bytes().len()).any(|bytes| bytes == rearmed.as_bytes()));
    }

    #[test]
    fn a_truncated_image_or_one_of_another_kind_is_rejected() {
        let image = image(&[entry(&timer([0, 0], [1, 0]))]);
        for length in 0..image.len() {
            // Truncated exactly before the entry, the image is a valid one without it.
            assert!(length == 8 || expired(&image[..length]).is_err(), "{length}");
        }
        assert!(expired(&[0; 64]).is_err());
    }
}
