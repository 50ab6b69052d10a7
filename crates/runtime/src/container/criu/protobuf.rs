//! A minimal protobuf codec for CRIU's messages: varints, byte strings, nested messages.
//!
//! Written by hand, since CRIU's two dozen fields do not justify a code generator. Unknown fields are skipped, as the
//! format requires, so a newer CRIU may send more.

/// A field number and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) value: Value<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Booleans, enumerations and integers; a negative one is encoded as its two's complement.
    Number(u64),
    /// Strings, bytes and messages.
    Bytes(&'a [u8]),
}

/// The bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a protobuf message")]
pub(super) struct ProtobufError;

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED_32: u64 = 5;

/// A message that is being encoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub(super) fn number(mut self, field: u32, value: u64) -> Self {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(value);
        self
    }

    pub(super) fn flag(self, field: u32) -> Self {
        self.number(field, 1)
    }

    pub(super) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    pub(super) fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.bytes)
    }

    /// Complete encoded fields.
    pub(super) fn raw(mut self, fields: &[u8]) -> Self {
        self.bytes.extend_from_slice(fields);
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// The fields of a message, in their order.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Number of unread bytes.
    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        // Ten groups of seven bits contain any 64-bit number.
        for group in 0..10 {
            let (&byte, rest) = self.rest.split_first().ok_or(ProtobufError)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << (7 * group);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtobufError)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], ProtobufError> {
        let length = usize::try_from(length).map_err(|_| ProtobufError)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError)?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<Field<'a>, ProtobufError> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            VARINT => Value::Number(self.varint()?),
            LENGTH_DELIMITED => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            FIXED_64 => Value::Bytes(self.take(8)?),
            FIXED_32 => Value::Bytes(self.take(4)?),
            _ => return Err(ProtobufError),
        };
        Ok(Field { number: u32::try_from(tag >> 3).map_err(|_| ProtobufError)?, value })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_messages_can_be_decoded() {
        let inner = Message::default().number(1, 0).number(2, u64::MAX);
        let outer = Message::default().flag(8).bytes(13, b"/root").message(64, &inner);
        let fields: Vec<_> = Fields::of(outer.as_bytes()).map(Result::unwrap).collect();
        let expected = [
            Field { number: 8, value: Value::Number(1) },
            Field { number: 13, value: Value::Bytes(b"/root") },
            Field { number: 64, value: Value::Bytes(inner.as_bytes()) },
        ];
        assert_eq!(fields, expected);
        let inside: Vec<_> = Fields::of(inner.as_bytes()).map(|field| field.unwrap().value).collect();
        assert_eq!(inside, [Value::Number(0), Value::Number(u64::MAX)]);
    }

    #[test]
    fn truncated_bytes_fail_once() {
        for bytes in [&[0x08][..], &[0x12, 5, 1], &[0x80; 11], &[0x0f, 0], &[0x09, 1, 2]] {
            assert_eq!(Fields::of(bytes).collect::<Vec<_>>(), [Err(ProtobufError)], "{bytes:?}");
        }
    }
}
