//! The app itself: what each address does.
//!
//! Must not be clever: HTTP/1.1 as a gateway sends it, one request after the other. Everything read goes
//! into the book first.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::book::{Book, Given, Level};
use super::content::{self, Action};
use crate::wait;

/// Longest head; the gateway's own limit is below.
const HEAD: usize = 64 * 1024;

/// Bytes of one write of a download.
const WRITE: usize = 16 * 1024;

/// A connection goes on, or is over.
type Flow = std::ops::ControlFlow<()>;
const ON: Flow = Flow::Continue(());
const OVER: Flow = Flow::Break(());

/// Serves one connection to its end.
pub(super) async fn connection(stream: TcpStream, book: Arc<Book>) {
    drop(stream.set_nodelay(true));
    let mut conn = Conn {
        stream,
        book,
        buffer: BytesMut::new(),
    };
    while let Some(request) = conn.request().await {
        if conn.answer(request).await.is_break() {
            return;
        }
    }
    if !conn.buffer.is_empty() && content::parse_beginning(&conn.buffer).is_none() {
        conn.book.fragment();
    }
}

struct Request {
    /// None for a request of another run, or of nobody's.
    id: Option<u64>,
    action: Option<Action>,
    length: Option<u64>,
    is_chunked: bool,
    key: Option<String>,
    has_expect: bool,
}

struct Conn {
    stream: TcpStream,
    book: Arc<Book>,
    buffer: BytesMut,
}

impl Conn {
    async fn fill(&mut self) -> bool {
        self.buffer.reserve(WRITE);
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(n) if n > 0)
    }

    /// Next head, its request entered as soon as it is named.
    async fn request(&mut self) -> Option<Request> {
        let mut named = None;
        loop {
            if named.is_none() {
                named = content::parse_beginning(&self.buffer);
                if let Some((run, id)) = named
                    && run == self.book.run()
                {
                    self.book.arrives(id);
                }
            }
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = self.buffer.split_to(end + 4);
                return self.parse(&String::from_utf8_lossy(&head));
            }
            if self.buffer.len() > HEAD || !self.fill().await {
                return None;
            }
        }
    }

    fn parse(&self, head: &str) -> Option<Request> {
        let mut lines = head.split("\r\n");
        let (run, id, action) = match content::parse_target(lines.next()?.split(' ').nth(1)?) {
            Some(found) => found,
            None => (!self.book.run(), 0, None),
        };
        let id = (run == self.book.run()).then_some(id);
        if let Some(id) = id {
            self.book.reaches(id, Level::Head);
        }
        let mut request = Request {
            id,
            action,
            length: None,
            is_chunked: false,
            key: None,
            has_expect: false,
        };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => request.length = value.parse().ok(),
                "transfer-encoding" => request.is_chunked = true,
                "sec-websocket-key" => request.key = Some(value.to_owned()),
                "expect" => request.has_expect = true,
                _ => {}
            }
        }
        Some(request)
    }

    async fn answer(&mut self, request: Request) -> Flow {
        let id = request.id;
        let Some(digest) = self.take(&request).await else {
            return OVER;
        };
        self.level(id, Level::All);
        let Some(action) = request.action else {
            return self.reply(id, "404 Not Found", "no such address\n").await;
        };
        match action {
            Action::Get => self.greet(id).await,
            Action::Slow(pause) => {
                wait::dawdle(pause).await;
                self.greet(id).await
            }
            Action::Take => {
                let receipt = content::receipt(&digest.finalize(), digest.count());
                self.reply(id, "200 OK", &receipt).await
            }
            Action::Download(length) => self.download(id, length, length).await,
            Action::Events(count, pause) => self.events(id, count, pause).await,
            Action::Echo => self.echo(id, request.key).await,
            Action::Crash => OVER,
            Action::HalfHead => {
                self.write(id, b"HTTP/1.1 200 OK\r\nContent-Le").await;
                OVER
            }
            Action::HalfBody => {
                self.download(id, content::HALF_BODY, content::HALF_BODY / 2)
                    .await
            }
            Action::Garbage => {
                self.write(id, b"I do not speak HTTP today.\r\n\r\n").await;
                OVER
            }
            Action::Silent => {
                while self.fill().await {
                    self.buffer.clear();
                }
                OVER
            }
        }
    }

    /// Reads the body; its digest, or nothing if it ended early.
    async fn take(&mut self, request: &Request) -> Option<blake3::Hasher> {
        if request.has_expect && !self.write(None, b"HTTP/1.1 100 Continue\r\n\r\n").await {
            return None;
        }
        let mut digest = blake3::Hasher::new();
        if !request.is_chunked {
            self.take_exactly(request.id, request.length.unwrap_or(0), &mut digest)
                .await?;
            return Some(digest);
        }
        loop {
            let line = self.line().await?;
            let size = u64::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
            self.take_exactly(request.id, size, &mut digest).await?;
            // The line end behind a chunk; behind the last one, trailers and an empty line.
            while !self.line().await?.is_empty() {}
            if size == 0 {
                return Some(digest);
            }
        }
    }

    async fn take_exactly(
        &mut self,
        id: Option<u64>,
        mut left: u64,
        digest: &mut blake3::Hasher,
    ) -> Option<()> {
        while left > 0 {
            if self.buffer.is_empty() && !self.fill().await {
                return None;
            }
            self.level(id, Level::Body);
            let take = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(self.buffer.len());
            digest.update(&self.buffer.split_to(take));
            left -= take as u64;
        }
        Some(())
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                let line = self.buffer.split_to(end + 2);
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.buffer.len() > HEAD || !self.fill().await {
                return None;
            }
        }
    }

    fn level(&self, id: Option<u64>, level: Level) {
        if let Some(id) = id {
            self.book.reaches(id, level);
        }
    }

    /// Writes, entered before the first byte; false if the peer is gone.
    async fn write(&mut self, id: Option<u64>, bytes: &[u8]) -> bool {
        self.gives(id, Given::Begun);
        self.stream.write_all(bytes).await.is_ok()
    }

    fn gives(&self, id: Option<u64>, given: Given) {
        if let Some(id) = id {
            self.book.gives(id, given);
        }
    }

    async fn greet(&mut self, id: Option<u64>) -> Flow {
        let text = content::greeting(self.book.run(), id.unwrap_or_default());
        self.reply(id, "200 OK", &text).await
    }

    async fn reply(&mut self, id: Option<u64>, status: &str, body: &str) -> Flow {
        let head = format!(
            "HTTP/1.1 {status}\r\nOracle: yes\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let written = self.write(id, (head + body).as_bytes()).await;
        self.done(id, written)
    }

    fn done(&self, id: Option<u64>, written: bool) -> Flow {
        if !written {
            return OVER;
        }
        self.gives(id, Given::All);
        ON
    }

    /// `length` is announced, `sent` is sent.
    async fn download(&mut self, id: Option<u64>, length: u64, sent: u64) -> Flow {
        let chunked = length % 2 == 1;
        let framing = if chunked {
            "Transfer-Encoding: chunked".into()
        } else {
            format!("Content-Length: {length}")
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n{framing}\r\n\r\n"
        );
        let mut written = self.write(id, head.as_bytes()).await;
        let mut offset = 0;
        while written && offset < sent {
            let most = usize::try_from(sent - offset)
                .unwrap_or(usize::MAX)
                .min(WRITE);
            let part = content::part(id.unwrap_or_default(), offset, most);
            written = if chunked {
                self.chunk(&part).await
            } else {
                self.stream.write_all(&part).await.is_ok()
            };
            offset += part.len() as u64;
        }
        if sent < length {
            return OVER;
        }
        if chunked {
            written = written && self.stream.write_all(b"0\r\n\r\n").await.is_ok();
        }
        self.done(id, written)
    }

    async fn chunk(&mut self, bytes: &[u8]) -> bool {
        let mut whole = format!("{:x}\r\n", bytes.len()).into_bytes();
        whole.extend_from_slice(bytes);
        whole.extend_from_slice(b"\r\n");
        self.stream.write_all(&whole).await.is_ok()
    }

    async fn events(&mut self, id: Option<u64>, count: u32, pause: Duration) -> Flow {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut written = self.write(id, head.as_bytes()).await;
        for n in 1..=count {
            wait::dawdle(pause).await;
            written = written
                && self
                    .chunk(content::event(id.unwrap_or_default(), n).as_bytes())
                    .await;
        }
        written = written && self.stream.write_all(b"0\r\n\r\n").await.is_ok();
        self.done(id, written)
    }

    async fn echo(&mut self, id: Option<u64>, key: Option<String>) -> Flow {
        let Some(key) = key else {
            return self
                .reply(id, "426 Upgrade Required", "this is a WebSocket\n")
                .await;
        };
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            derive_accept_key(key.as_bytes())
        );
        if !self.write(id, head.as_bytes()).await {
            return OVER;
        }
        let begun = self.buffer.split().to_vec();
        let mut socket =
            WebSocketStream::from_partially_read(&mut self.stream, begun, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            let sent = match message {
                Message::Text(_) | Message::Binary(_) => socket.send(message).await,
                _ => socket.flush().await,
            };
            if sent.is_err() {
                return OVER;
            }
        }
        self.gives(id, Given::All);
        OVER
    }
}
