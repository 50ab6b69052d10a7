//! The key sequence to detach from an exec: Ctrl-P Ctrl-Q by default.

use std::str::FromStr;

/// A sequence of keys, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DetachKeys {
    sequence: Vec<u8>,
    /// How many of them have been typed in a row.
    typed: usize,
}

/// The result of feeding typed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TypedBytes {
    /// These go to the exec; keys that may start the sequence are held back.
    Pass(Vec<u8>),
    /// These still go to the exec; then the user detaches.
    Detach(Vec<u8>),
}

impl DetachKeys {
    pub(crate) fn none() -> Self {
        Self { sequence: Vec::new(), typed: 0 }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> TypedBytes {
        if self.sequence.is_empty() {
            return TypedBytes::Pass(bytes.to_vec());
        }
        let mut pass = Vec::with_capacity(bytes.len() + self.typed);
        for byte in bytes {
            if *byte != self.sequence[self.typed] && self.typed > 0 {
                // Not the sequence: the keys that were held back go to the exec.
                pass.extend_from_slice(&self.sequence[..self.typed]);
                self.typed = 0;
            }
            if *byte == self.sequence[self.typed] {
                self.typed += 1;
            } else {
                pass.push(*byte);
            }
            if self.typed == self.sequence.len() {
                self.typed = 0;
                return TypedBytes::Detach(pass);
            }
        }
        TypedBytes::Pass(pass)
    }
}

impl FromStr for DetachKeys {
    type Err = String;

    /// `ctrl-p,ctrl-q`, `ctrl-],x`; empty for none.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::none());
        }
        let sequence = text.split(',').map(key).collect::<Result<_, _>>()?;
        Ok(Self { sequence, typed: 0 })
    }
}

fn key(text: &str) -> Result<u8, String> {
    let bad = || format!("`{text}` is not a key such as `ctrl-p` or `x`");
    let control = text.strip_prefix("ctrl-");
    match (control, control.unwrap_or(text).as_bytes()) {
        (Some(_), [byte @ (b'a'..=b'z' | b'@' | b'['..=b'_')]) => Ok(byte & 0x1f),
        (None, [byte]) if byte.is_ascii_graphic() => Ok(*byte),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_detaches_however_it_is_split() {
        let mut keys: DetachKeys = "ctrl-p,ctrl-q".parse().unwrap();
        assert_eq!(keys.feed(b"ab\x10"), TypedBytes::Pass(b"ab".to_vec()));
        assert_eq!(keys.feed(b"\x11x"), TypedBytes::Detach(Vec::new()));
        assert_eq!(keys.feed(b"hi\x10\x11"), TypedBytes::Detach(b"hi".to_vec()));
    }

    #[test]
    fn an_incomplete_sequence_reaches_the_exec() {
        let mut keys: DetachKeys = "ctrl-p,ctrl-q".parse().unwrap();
        assert_eq!(keys.feed(b"\x10"), TypedBytes::Pass(Vec::new()));
        assert_eq!(keys.feed(b"x"), TypedBytes::Pass(b"\x10x".to_vec()));
        // Ctrl-P twice, then Ctrl-Q: the second one begins the sequence.
        assert_eq!(keys.feed(b"\x10\x10\x11"), TypedBytes::Detach(b"\x10".to_vec()));
    }

    #[test]
    fn without_keys_everything_passes() {
        let mut keys: DetachKeys = "".parse().unwrap();
        assert_eq!(keys.feed(b"\x10\x11"), TypedBytes::Pass(b"\x10\x11".to_vec()));
        for bad in ["ctrl-", "ctrl-P", "ab", "ctrl-p,", "ü"] {
            assert!(bad.parse::<DetachKeys>().is_err(), "{bad}");
        }
    }
}
