//! The `Range` header: one range of bytes. Anything else is treated as if the header were absent.

/// A requested range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `bytes=first-last` and `bytes=first-`.
    From { first: u64, last: Option<u64> },
    /// `bytes=-count`: the last bytes.
    Last { count: u64 },
}

/// A header that is malformed or contains several ranges is ignored, as RFC 9110 allows.
pub fn parse(header: &str) -> Option<ByteRange> {
    let (unit, range) = header.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    match (first.trim(), last.trim()) {
        ("", count) => Some(ByteRange::Last { count: number(count)? }),
        (first, "") => Some(ByteRange::From { first: number(first)?, last: None }),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(ByteRange::From { first, last: Some(last) })
        }
    }
}

impl ByteRange {
    /// The offset and length within a file of `size` bytes; `None` if the range is outside the file.
    pub fn within(self, size: u64) -> Option<(u64, u64)> {
        match self {
            Self::From { first, last } => {
                let end = last.map_or(size, |last| last.saturating_add(1).min(size));
                (first < size).then(|| (first, end - first))
            }
            Self::Last { count } => {
                let length = count.min(size);
                (length > 0).then(|| (size - length, length))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, size: u64, expected: Option<Option<(u64, u64)>>) {
        assert_eq!(parse(header).map(|asked| asked.within(size)), expected, "{header} of {size}");
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        check("bytes=0-0", 10, Some(Some((0, 1))));
        check("bytes=2-", 10, Some(Some((2, 8))));
        check("bytes=2-99", 10, Some(Some((2, 8))));
        check("bytes=-3", 10, Some(Some((7, 3))));
        check("bytes=-99", 10, Some(Some((0, 10))));
        check("Bytes = 1 - 2", 10, Some(Some((1, 2))));
        check("bytes=0-99999999999999999999999", 10, Some(Some((0, 10))));
    }

    #[test]
    fn ranges_beyond_the_file_are_not_satisfiable() {
        check("bytes=10-", 10, Some(None));
        check("bytes=-0", 10, Some(None));
        check("bytes=0-", 0, Some(None));
    }

    #[test]
    fn anything_else_is_ignored() {
        for header in
            ["bytes=5-2", "bytes=a-b", "lines=1-2", "bytes=1-2,4-5", "bytes", "bytes=-", "bytes=+1-2"]
        {
            check(header, 10, None);
        }
    }
}
