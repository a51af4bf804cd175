//! The app: reads requests, keeps what it read, answers by the shape's script.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bridgehead_agent::app::connect::Given;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::sleep;

use crate::net::End;
use crate::shape::{Back, GAP, Script, Shape, THINK, WARM, answer};

/// One request as the app got it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// The number that its gateway gave it.
    pub(crate) id: Option<String>,
    /// Body bytes without framing; of a pipe, what came through it.
    pub(crate) body: Vec<u8>,
    pub(crate) whole: bool,
    /// The head of an answer was handed to the kernel.
    pub(crate) answered: bool,
    /// Bytes of the answer's body that were handed to the kernel.
    pub(crate) said: usize,
}

/// What all connections of the app saw.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Request>>>);

impl Seen {
    pub(crate) fn all(&self) -> MutexGuard<'_, Vec<Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, path: &str, id: Option<&str>) -> usize {
        let mut all = self.all();
        all.push(Request {
            path: path.to_owned(),
            id: id.map(str::to_owned),
            ..Request::default()
        });
        all.len() - 1
    }

    fn note(&self, at: usize, change: impl FnOnce(&mut Request)) {
        change(&mut self.all()[at]);
    }
}

/// Serves one connection to its end.
pub(crate) async fn serve(io: End, shape: Shape, seen: Seen) {
    match shape.back {
        Back::Http1 => {
            let mut connection = Connection {
                io,
                input: Vec::new(),
                shape,
                seen,
            };
            // Nothing, or nothing more: that is the end of it.
            while connection.exchange().await.is_some() {}
        }
        Back::H2c => h2c(io, seen).await,
        Back::Tcp => drop(tcp(io, seen).await),
    }
}

struct Connection {
    io: End,
    input: Vec<u8>,
    shape: Shape,
    seen: Seen,
}

struct Head {
    path: String,
    id: Option<String>,
    length: Option<usize>,
    chunked: bool,
    expects: bool,
    upgrades: bool,
}

impl Head {
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            text.lines().skip(1).find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        Self {
            path: text.split(' ').nth(1).unwrap_or_default().to_owned(),
            id: field("x-request-id").map(str::to_owned),
            length: field("content-length").and_then(|n| n.parse().ok()),
            chunked: field("transfer-encoding").is_some(),
            expects: field("expect").is_some(),
            upgrades: field("upgrade").is_some(),
        }
    }
}

impl Connection {
    async fn more(&mut self) -> Option<()> {
        let mut piece = [0; 16 * 1024];
        match self.io.read(&mut piece).await {
            Ok(0) | Err(_) => None,
            Ok(count) => {
                self.input.extend_from_slice(&piece[..count]);
                Some(())
            }
        }
    }

    /// Bytes up to and including `end`.
    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let found = self.input.windows(end.len()).position(|w| w == end);
            if let Some(at) = found {
                return Some(self.input.drain(..at + end.len()).collect());
            }
            self.more().await?;
        }
    }

    async fn say(&mut self, bytes: &[u8]) -> Option<()> {
        self.io.write_all(bytes).await.ok()
    }

    async fn exchange(&mut self) -> Option<()> {
        let head = self.until(b"\r\n\r\n").await?;
        let head = Head::parse(&String::from_utf8_lossy(&head));
        let at = self.seen.add(&head.path, head.id.as_deref());
        match head.path.as_str() {
            "/warm" => return self.warm(at).await,
            // Somebody else's.
            "/slow" => {
                sleep(2 * THINK).await;
                return self.answer(at).await;
            }
            _ => {}
        }
        match self.shape.script {
            Script::Answer | Script::Stale | Script::Slow => {
                self.body(at, &head).await?;
                sleep(THINK).await;
                self.answer(at).await
            }
            Script::Headed => {
                self.body(at, &head).await?;
                self.say_head().await?;
                sleep(THINK).await;
                self.say_body(at).await
            }
            Script::Early => {
                self.answer(at).await?;
                self.body(at, &head).await
            }
            Script::Expect => {
                if head.expects {
                    self.say(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                }
                self.body(at, &head).await?;
                sleep(THINK).await;
                self.answer(at).await
            }
            Script::WebSocket if head.upgrades => self.echo(at).await,
            Script::WebSocket => None,
            Script::Events => self.events(at, "text/event-stream").await,
            Script::Grpc => {
                self.body(at, &head).await?;
                self.events(at, "application/grpc").await
            }
        }
    }

    async fn warm(&mut self, at: usize) -> Option<()> {
        self.seen.note(at, |r| r.whole = true);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", WARM.len());
        self.say(head.as_bytes()).await?;
        self.say(WARM).await?;
        if self.shape.script == Script::Stale {
            sleep(GAP).await;
            self.say_unasked(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
                .await;
        }
        Some(())
    }

    /// Says something unless a request has come, behind which it would pass for an answer.
    async fn say_unasked(&mut self, bytes: &[u8]) {
        std::future::poll_fn(|cx| match self.io.has_news() {
            true => Poll::Ready(()),
            false => Pin::new(&mut self.io).poll_write(cx, bytes).map(drop),
        })
        .await;
    }

    async fn body(&mut self, at: usize, head: &Head) -> Option<()> {
        if head.chunked {
            loop {
                let line = self.until(b"\r\n").await?;
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                let size = usize::from_str_radix(&line, 16).ok()?;
                if size == 0 {
                    self.until(b"\r\n").await?;
                    break;
                }
                self.take(at, size).await?;
                self.until(b"\r\n").await?;
            }
        } else {
            self.take(at, head.length.unwrap_or(0)).await?;
        }
        self.seen.note(at, |r| r.whole = true);
        Some(())
    }

    async fn take(&mut self, at: usize, mut left: usize) -> Option<()> {
        while left > 0 {
            if self.input.is_empty() {
                self.more().await?;
            }
            let count = left.min(self.input.len());
            let piece: Vec<u8> = self.input.drain(..count).collect();
            self.seen.note(at, |r| r.body.extend_from_slice(&piece));
            left -= count;
        }
        Some(())
    }

    async fn answer(&mut self, at: usize) -> Option<()> {
        self.say_head().await?;
        self.say_body(at).await
    }

    async fn say_head(&mut self) -> Option<()> {
        let length = answer().len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        self.say(head.as_bytes()).await
    }

    async fn say_body(&mut self, at: usize) -> Option<()> {
        let body = answer();
        let (first, second) = body.split_at(body.len() / 2);
        self.say(first).await?;
        self.seen.note(at, |r| r.said += first.len());
        sleep(GAP).await;
        self.say(second).await?;
        self.seen.note(at, |r| r.said += second.len());
        Some(())
    }

    async fn events(&mut self, at: usize, media: &str) -> Option<()> {
        self.seen.note(at, |r| r.whole = true);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        self.say(head.as_bytes()).await?;
        for event in answer().chunks(550) {
            sleep(GAP).await;
            let line = format!("{:x}\r\n", event.len());
            self.say(line.as_bytes()).await?;
            self.say(event).await?;
            self.say(b"\r\n").await?;
            self.seen.note(at, |r| r.said += event.len());
        }
        self.say(b"0\r\n\r\n").await
    }

    async fn echo(&mut self, at: usize) -> Option<()> {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                    Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        self.say(head.as_bytes()).await?;
        loop {
            if self.input.is_empty() {
                self.more().await?;
            }
            let piece = std::mem::take(&mut self.input);
            self.seen.note(at, |r| {
                r.body.extend_from_slice(&piece);
                r.whole = true;
            });
            self.say(&piece).await?;
            self.seen.note(at, |r| r.said += piece.len());
        }
    }
}

/// Echoes until the client has said all, and then ends in order.
async fn tcp(mut io: End, seen: Seen) -> std::io::Result<()> {
    let mut piece = [0; 16 * 1024];
    let mut at = None;
    loop {
        let count = io.read(&mut piece).await?;
        if count == 0 {
            return io.shutdown().await;
        }
        let at = *at.get_or_insert_with(|| seen.add("/x", None));
        seen.note(at, |r| r.body.extend_from_slice(&piece[..count]));
        sleep(GAP).await;
        io.write_all(&piece[..count]).await?;
        seen.note(at, |r| r.said += count);
    }
}

async fn h2c(io: End, seen: Seen) {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(16 * 1024);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else {
        return;
    };
    let mut streams = tokio::task::JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        streams.spawn(h2c_exchange(request, respond, seen.clone()));
    }
}

async fn h2c_exchange(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    seen: Seen,
) -> Option<()> {
    let (head, mut body) = request.into_parts();
    let id = head.headers.get("x-request-id");
    let at = seen.add(head.uri.path(), id.and_then(|id| id.to_str().ok()));
    while let Some(piece) = body.data().await {
        let piece = piece.ok()?;
        body.flow_control().release_capacity(piece.len()).ok()?;
        seen.note(at, |r| r.body.extend_from_slice(&piece));
    }
    seen.note(at, |r| r.whole = true);
    let warm = head.uri.path() == "/warm";
    let said = if warm { WARM.to_vec() } else { answer() };
    if !warm {
        sleep(THINK).await;
    }
    let mut send = respond.send_response(http::Response::new(()), false).ok()?;
    seen.note(at, |r| r.answered = true);
    let pieces: Vec<&[u8]> = said.chunks(800).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let last = index + 1 == pieces.len();
        send.send_data(Bytes::copy_from_slice(piece), last).ok()?;
        seen.note(at, |r| r.said += piece.len());
        if !last {
            sleep(GAP).await;
        }
    }
    Some(())
}
