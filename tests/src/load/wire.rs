//! HTTP/1.1 as a client of a load generator speaks it: exact about endings, never panicking on what comes.
//!
//! Owns one connection. Must not judge. Invariant: a body is [`Body::End`] only where its framing says so.

use std::collections::BTreeMap;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

use super::target::Stream;

/// Longest head and longest line.
const LONGEST: usize = 64 * 1024;

/// Head of an answer.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    /// Names in lower case; of a repeated field the last value.
    pub(super) headers: BTreeMap<String, String>,
}

/// How the connection broke, in words.
pub(super) type Broken = String;

/// What came next of a body.
pub(super) enum Body {
    Part(Bytes),
    End,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    None,
    Length(u64),
    Chunk(u64),
    NextChunk,
    Close,
}

/// One connection.
pub(super) struct Wire {
    io: Stream,
    buffer: BytesMut,
    framing: Framing,
    is_last: bool,
}

impl Wire {
    pub(super) fn new(io: Stream) -> Self {
        Self {
            io,
            buffer: BytesMut::new(),
            framing: Framing::None,
            is_last: false,
        }
    }

    /// True if another request may be sent on it.
    pub(super) fn is_reusable(&self) -> bool {
        !self.is_last && self.buffer.is_empty() && matches!(self.framing, Framing::None)
    }

    /// True if nothing, not even an end, has come on the idle connection.
    pub(super) async fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        std::future::poll_fn(|cx| {
            let mut room = ReadBuf::new(&mut byte);
            Poll::Ready(
                std::pin::Pin::new(&mut self.io)
                    .poll_read(cx, &mut room)
                    .is_pending(),
            )
        })
        .await
    }

    /// Sends a request. An error is not final: an answer may have come all the same.
    pub(super) async fn send(&mut self, head: &str, body: &[u8]) -> std::io::Result<()> {
        self.io.write_all(head.as_bytes()).await?;
        // In parts, so that an upload and what is read meanwhile share the connection's time.
        for part in body.chunks(LONGEST) {
            self.io.write_all(part).await?;
        }
        self.io.flush().await
    }

    /// The final head; 1xx are skipped, 101 is final.
    pub(super) async fn head(&mut self) -> Result<Head, Broken> {
        loop {
            let head = self.one_head().await?;
            if head.status < 200 && head.status != 101 {
                continue;
            }
            self.is_last = head
                .headers
                .get("connection")
                .is_some_and(|c| c.eq_ignore_ascii_case("close"));
            let number = |name: &str| head.headers.get(name).and_then(|v| v.parse().ok());
            self.framing = match (head.status, head.headers.contains_key("transfer-encoding")) {
                (101 | 204 | 304, _) => Framing::None,
                (_, true) => Framing::NextChunk,
                (_, false) => number("content-length").map_or(Framing::Close, Framing::Length),
            };
            return Ok(head);
        }
    }

    /// Status of the head that comes next, which stays unread.
    pub(super) async fn peek_head(&mut self) -> Result<u16, Broken> {
        let end = self.end_of_head().await?;
        parse_head(&self.buffer[..end]).map(|head| head.status)
    }

    async fn one_head(&mut self) -> Result<Head, Broken> {
        let end = self.end_of_head().await?;
        let bytes = self.buffer.split_to(end + 4);
        parse_head(&bytes[..end])
    }

    async fn end_of_head(&mut self) -> Result<usize, Broken> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                return Ok(end);
            }
            if self.buffer.len() > LONGEST {
                return Err("a head without an end".into());
            }
            self.fill().await?;
        }
    }

    /// More of the body.
    pub(super) async fn body(&mut self) -> Result<Body, Broken> {
        loop {
            match self.framing {
                Framing::None => return Ok(Body::End),
                Framing::Length(0) => self.framing = Framing::None,
                Framing::Length(left) => {
                    let part = self.part(left).await?;
                    self.framing = Framing::Length(left - part.len() as u64);
                    return Ok(Body::Part(part));
                }
                Framing::Chunk(0) => {
                    self.line().await?;
                    self.framing = Framing::NextChunk;
                }
                Framing::Chunk(left) => {
                    let part = self.part(left).await?;
                    self.framing = Framing::Chunk(left - part.len() as u64);
                    return Ok(Body::Part(part));
                }
                Framing::NextChunk => {
                    let line = self.line().await?;
                    let size = line.split(';').next().unwrap_or_default().trim();
                    let size =
                        u64::from_str_radix(size, 16).map_err(|_| format!("no chunk: {line:?}"))?;
                    self.framing = Framing::Chunk(size);
                    if size == 0 {
                        while !self.line().await?.is_empty() {}
                        self.framing = Framing::None;
                    }
                }
                Framing::Close => {
                    self.is_last = true;
                    if self.buffer.is_empty() {
                        match self.io.read_buf(&mut self.buffer).await {
                            Ok(0) => self.framing = Framing::None,
                            Ok(_) => {}
                            Err(error) => return Err(error.to_string()),
                        }
                        continue;
                    }
                    return Ok(Body::Part(self.buffer.split().freeze()));
                }
            }
        }
    }

    /// What lies below, with what was read too much.
    pub(super) fn into_parts(self) -> (Stream, BytesMut) {
        (self.io, self.buffer)
    }

    async fn part(&mut self, left: u64) -> Result<Bytes, Broken> {
        if self.buffer.is_empty() {
            self.fill().await?;
        }
        let take = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(self.buffer.len());
        Ok(self.buffer.split_to(take).freeze())
    }

    async fn line(&mut self) -> Result<String, Broken> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                let line = self.buffer.split_to(end + 2);
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.buffer.len() > LONGEST {
                return Err("a line without an end".into());
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        self.buffer.reserve(16 * 1024);
        match self.io.read_buf(&mut self.buffer).await {
            Ok(0) => Err("FIN".into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.kind().to_string()),
        }
    }
}

fn parse_head(bytes: &[u8]) -> Result<Head, Broken> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.")
        .and_then(|line| line.get(2..5))
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| format!("no HTTP: {first:?}"))?;
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Ok(Head {
        status,
        headers: lines.filter_map(field).collect(),
    })
}
