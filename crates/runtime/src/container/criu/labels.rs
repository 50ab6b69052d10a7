//! AppArmor labels in images.
//!
//! CRIU stores the profile of each thread, and a restore fails on a host that does not have it. So a restore reads the
//! images of threads adapted to its own host: with the profile of containers if it is loaded, otherwise without a
//! label.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::Dir;

use super::protobuf::{Fields, Message, ProtobufError, Value};
use super::{image, links};

/// One image per thread: `core-<pid>.img`.
const PREFIX: &[u8] = b"core-";
const SUFFIX: &[u8] = b".img";
const KIND: u32 = 0x5505_3847;

/// The path of the label: `thread_core`, `creds` and `lsm_profile` in CRIU's `core.proto` and `creds.proto`.
const PATH: [u32; 3] = [5, 10, 15];

/// The images that need another label, with their new content.
pub(super) fn replacements(
    images: BorrowedFd<'_>,
    label: Option<&str>,
) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut replacements = Vec::new();
    for entry in Dir::read_from(images)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let name = String::from_utf8(name.to_owned()).map_err(io::Error::other)?;
        let found = links::read(images, &name)?;
        let wanted = relabelled(&found, label).map_err(image::malformed)?;
        if wanted != found {
            replacements.push((name, wanted));
        }
    }
    Ok(replacements)
}

fn relabelled(bytes: &[u8], label: Option<&str>) -> Result<Vec<u8>, ProtobufError> {
    let records = image::records(bytes, KIND)?.into_iter();
    let records = records.map(|(_, record)| with_label(record, &PATH, label));
    Ok(image::written(KIND, &records.collect::<Result<Vec<_>, _>>()?))
}

/// The message with the label at the end of `path`. A process that has ended has no credentials, and gets none.
fn with_label(message: &[u8], path: &[u32], label: Option<&str>) -> Result<Message, ProtobufError> {
    let (&number, below) = path.split_first().ok_or(ProtobufError)?;
    let mut written = Message::default();
    let (mut fields, mut start) = (Fields::of(message), 0);
    while let Some(field) = fields.next() {
        let field = field?;
        let end = message.len() - fields.remaining();
        written = match field.value {
            Value::Bytes(_) if field.number == number && below.is_empty() => written,
            Value::Bytes(inner) if field.number == number => {
                written.message(number, &with_label(inner, below, label)?)
            }
            Value::Bytes(_) | Value::Number(_) => written.raw(&message[start..end]),
        };
        start = end;
    }
    Ok(match label {
        Some(label) if below.is_empty() => written.bytes(number, label.as_bytes()),
        Some(_) | None => written,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(label: Option<&str>) -> Vec<u8> {
        let credentials = Message::default().number(1, 1000).number(14, 7);
        let credentials = label.map_or(credentials.clone(), |label| credentials.bytes(15, label.as_bytes()));
        // Field 9 is the queue of the thread's signals.
        let signals = Message::default().bytes(1, b"signal");
        let thread =
            Message::default().number(3, 0).message(9, &signals).message(10, &credentials).bytes(13, b"sh");
        image::written(KIND, &[Message::default().number(1, 1).bytes(3, b"task").message(5, &thread)])
    }

    #[test]
    fn labels_are_set_replaced_and_removed() {
        for found in [None, Some("burrow-sandbox"), Some("another")] {
            for wanted in [None, Some("burrow-sandbox")] {
                assert_eq!(relabelled(&core(found), wanted).unwrap(), core(wanted));
            }
        }
    }

    #[test]
    fn a_process_without_credentials_is_unchanged() {
        let ended = image::written(KIND, &[Message::default().number(1, 1).bytes(3, b"task")]);
        assert_eq!(relabelled(&ended, Some("burrow-sandbox")).unwrap(), ended);
        assert!(relabelled(b"nonsense", None).is_err());
    }
}
