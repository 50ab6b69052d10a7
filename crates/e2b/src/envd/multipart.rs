//! Parses `multipart/form-data`, part by part, without buffering a part.
//!
//! ```text
//!   --BOUNDARY CRLF headers CRLF CRLF content CRLF --BOUNDARY … CRLF --BOUNDARY--
//! ```
//!
//! Buffered are one chunk of the body and the few bytes that may be the beginning of a boundary.

use axum::body::Body;
use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use memchr::memmem;

use super::super::error::Refusal;
use super::connect::SILENCE_MAX;

/// Maximum size of one part's headers.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The limit of the standard.
const BOUNDARY_BYTES_MAX: usize = 70;

/// Maximum number of files in one upload.
const PARTS_MAX: usize = 10_000;

pub(super) struct Multipart {
    body: Body,
    buffer: BytesMut,
    /// Includes the line break and the hyphens before it.
    delimiter: Vec<u8>,
    ended: bool,
    parts: usize,
}

/// The headers of one part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) filename: Option<String>,
}

impl Multipart {
    /// `content_type` is the header's value.
    pub(super) fn new(content_type: &str, body: Body) -> Result<Self, Refusal> {
        let boundary = parameter(content_type, "boundary").filter(|text| {
            (1..=BOUNDARY_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| (b' '..=b'~').contains(&b))
        });
        let boundary = boundary.ok_or_else(|| bad("it has no boundary"))?;
        // The first delimiter has no line break before it, so it is added here.
        let buffer = BytesMut::from(&b"\r\n"[..]);
        Ok(Self { body, buffer, delimiter: format!("\r\n--{boundary}").into_bytes(), ended: false, parts: 0 })
    }

    /// The next part; skips the rest of the current one.
    pub(super) async fn next_part(&mut self) -> Result<Option<Part>, Refusal> {
        if self.ended {
            return Ok(None);
        }
        while self.chunk().await?.is_some() {}
        self.buffer.advance(self.delimiter.len());
        while self.buffer.len() < 2 {
            self.fill().await?;
        }
        if self.buffer.starts_with(b"--") {
            self.ended = true;
            self.drain().await;
            return Ok(None);
        }
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(bad(&format!("it has more than {PARTS_MAX} parts")));
        }
        let head = self.head().await?;
        part(&head).map(Some)
    }

    /// Up to the empty line, without it.
    async fn head(&mut self) -> Result<Bytes, Refusal> {
        loop {
            if let Some(place) = memmem::find(&self.buffer, b"\r\n\r\n") {
                let head = self.buffer.split_to(place).freeze();
                // The last of its line breaks may belong to a delimiter, if the content is empty.
                self.buffer.advance(4);
                return Ok(head);
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(bad("a part's headers are too long"));
            }
            self.fill().await?;
        }
    }

    /// The next chunk of the part's content; `None` at its end, when the buffer begins with the delimiter.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            if let Some(place) = memmem::find(&self.buffer, &self.delimiter) {
                let piece = self.buffer.split_to(place).freeze();
                return Ok(Some(piece).filter(|piece| !piece.is_empty()));
            }
            // Bytes that may be the beginning of a delimiter stay in the buffer.
            let safe = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            if safe > 0 {
                return Ok(Some(self.buffer.split_to(safe).freeze()));
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Refusal> {
        loop {
            let frame = tokio::time::timeout(SILENCE_MAX, self.body.frame()).await;
            match frame.map_err(|_| bad("the client stopped sending"))? {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => {
                        self.buffer.extend_from_slice(&bytes);
                        return Ok(());
                    }
                    // Trailers are ignored.
                    Err(_) => {}
                },
                Some(Err(_)) => return Err(bad("it was interrupted")),
                None => return Err(bad("it ends before its last boundary")),
            }
        }
    }

    /// Ignores an epilogue; the connection can be reused only if its body was read to its end.
    async fn drain(&mut self) {
        let mut left = HEAD_BYTES_MAX;
        while let Some(Ok(frame)) = self.body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    }

    pub(super) fn into_body(self) -> Body {
        self.body
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::invalid(format!("could not read the body as multipart/form-data: {why}"))
}

fn part(head: &[u8]) -> Result<Part, Refusal> {
    let head = std::str::from_utf8(head).map_err(|_| bad("a part's headers are not UTF-8"))?;
    let named = |line: &&str| line.to_ascii_lowercase().starts_with("content-disposition:");
    let line = head.split("\r\n").find(named).ok_or_else(|| bad("a part has no `Content-Disposition`"))?;
    let name = parameter(line, "name").ok_or_else(|| bad("a part has no name"))?;
    Ok(Part { name, filename: parameter(line, "filename") })
}

/// A parameter of a header's value, quoted or not. Quotes may be escaped as browsers do, or with a backslash.
fn parameter(value: &str, name: &str) -> Option<String> {
    let mut rest = value;
    loop {
        rest = rest.split_once(';')?.1.trim_start();
        let (key, after) = rest.split_once('=')?;
        let (text, behind) = match after.strip_prefix('"') {
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
            Some(quoted) => unquoted(quoted)?,
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(text);
        }
        rest = behind;
    }
}

fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut characters = quoted.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => {
                return Some((
                    text.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n"),
                    &quoted[place + 1..],
                ));
            }
            '\\' => match characters.next()? {
                (_, escaped @ ('"' | '\\')) => text.push(escaped),
                (_, other) => text.extend(['\\', other]),
            },
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=xyz";

    fn in_pieces(bytes: &[u8], size: usize) -> Body {
        let pieces: Vec<_> =
            bytes.chunks(size).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
        Body::from_stream(futures_util::stream::iter(pieces))
    }

    async fn read(bytes: &[u8], size: usize) -> Result<Vec<(Part, Vec<u8>)>, Refusal> {
        let mut multipart = Multipart::new(TYPE, in_pieces(bytes, size))?;
        let mut parts = Vec::new();
        while let Some(part) = multipart.next_part().await? {
            let mut content = Vec::new();
            while let Some(piece) = multipart.chunk().await? {
                content.extend_from_slice(&piece);
            }
            parts.push((part, content));
        }
        Ok(parts)
    }

    #[tokio::test]
    async fn parts_are_parsed_from_chunks_of_any_size() {
        let head = "Content-Disposition: form-data; name=\"file\"; filename";
        let body = format!(
            "--xyz\r\n{head}=\"/a b\"\r\nContent-Type: text/plain\r\n\r\none\r\n--xy\r\n\r\n--xyz\r\n{head}=\"e\"\r\n\r\n\r\n--xyz\r\n\
             {head}*=x; filename=\"q\\\"%22\"\r\n\r\n--xyz in it\r\n--xyz--\r\n"
        );
        for size in 1..body.len() {
            let parts = read(body.as_bytes(), size).await.unwrap();
            let contents: Vec<&[u8]> = parts.iter().map(|(_, content)| &content[..]).collect();
            assert_eq!(contents, [&b"one\r\n--xy\r\n"[..], b"", b"--xyz in it"], "in pieces of {size}");
            assert_eq!(parts[0].0, Part { name: "file".to_owned(), filename: Some("/a b".to_owned()) });
            assert_eq!(parts[2].0.filename.as_deref(), Some("q\"\""));
        }
    }

    #[tokio::test]
    async fn malformed_bodies_are_rejected() {
        for bad in [
            "",
            "x",
            "--xyz",
            "--xyz\r\n",
            "--xyz\r\n\r\n\r\nx\r\n--xyz--",
            "--xyz\r\nContent-Disposition: form-data\r\n\r\nx\r\n--xyz--",
            "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx",
            "--xyz\r\nContent-Disposition: form-data; name=\"a\r\n\r\nx\r\n--xyz--",
        ] {
            assert!(read(bad.as_bytes(), 7).await.is_err(), "{bad:?}");
        }
        let long = format!("--xyz\r\n{}", "a".repeat(HEAD_BYTES_MAX + 100));
        assert!(read(long.as_bytes(), 1000).await.is_err());
        for bad in
            ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"x"]
        {
            assert!(Multipart::new(bad, Body::empty()).is_err(), "{bad}");
        }
    }
}
