//! The client: sends one exchange by the shape and says exactly what came of it.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep, timeout};

use crate::net::End;
use crate::shape::{Body, GAP, Script, Shape, WARM};

/// Host of the app.
const HOST: &str = "demo.example.com";
/// A client that waits longer gives up; every promise is over by then.
const PATIENCE: Duration = Duration::from_secs(45);

/// What came of an exchange, as its client saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Status of the final head; 0: none came.
    pub(crate) status: u16,
    /// The answer came to its own end.
    pub(crate) whole: bool,
    pub(crate) body: Vec<u8>,
    /// Of an answer made by the gateway.
    pub(crate) verdict: Option<Verdict>,
    /// The gateway's number of it, where the answer says it.
    pub(crate) id: Option<String>,
    /// The gateway made it, whatever became of it.
    pub(crate) own: bool,
    /// Heads that were final; more than one would be two outcomes.
    pub(crate) heads: usize,
    /// A reset stream that said it was never processed (HTTP/2).
    pub(crate) refused: bool,
    /// Waited in vain.
    pub(crate) gave_up: bool,
}

/// What a gateway's own answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) code: String,
    pub(crate) delivery: String,
    pub(crate) reason: String,
    pub(crate) stage: String,
}

impl Verdict {
    /// The gateway claims that the app saw nothing.
    pub(crate) fn says_nothing(&self) -> bool {
        self.delivery == "not_delivered"
    }

    fn read(delivery: Option<&str>, body: &[u8]) -> Option<Self> {
        let delivery = delivery?.to_owned();
        let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let word = |name: &str| json["error"][name].as_str().unwrap_or_default().to_owned();
        Some(Self {
            code: word("code"),
            reason: word("reason"),
            stage: word("stage"),
            delivery,
        })
    }
}

/// The client's connection.
pub(crate) enum Client {
    Http1 {
        read: ReadHalf<End>,
        write: WriteHalf<End>,
        input: Vec<u8>,
    },
    Http2 {
        send: h2::client::SendRequest<Bytes>,
        connection: tokio::task::JoinHandle<()>,
    },
    /// Raw bytes.
    Tcp(End),
    Gone,
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Self::Http2 { connection, .. } = self {
            connection.abort();
        }
    }
}

impl Client {
    pub(crate) fn http1(io: End) -> Self {
        let (read, write) = tokio::io::split(io);
        Self::Http1 {
            read,
            write,
            input: Vec::new(),
        }
    }

    pub(crate) async fn http2(io: End) -> Self {
        let shaken = timeout(PATIENCE, h2::client::Builder::new().handshake(io)).await;
        let Ok(Ok((send, connection))) = shaken else {
            return Self::Gone;
        };
        let connection = tokio::spawn(async move { drop(connection.await) });
        Self::Http2 { send, connection }
    }

    /// A first exchange that leaves a kept connection; true if it went as it should.
    pub(crate) async fn warm(&mut self) -> bool {
        let told = self.ask("GET", "/warm", Body::None, Script::Answer).await;
        told.whole && told.body == WARM
    }

    /// The measured exchange.
    pub(crate) async fn measured(&mut self, shape: &Shape) -> Told {
        if let Self::Tcp(io) = self {
            let mut told = Told::default();
            let bytes = shape.sent();
            let asked = tcp(io, &bytes, &mut told);
            let late = timeout(PATIENCE, asked).await.is_err();
            told.gave_up = late;
            return told;
        }
        self.ask(shape.method, "/x", shape.body, shape.script).await
    }

    async fn ask(&mut self, method: &str, path: &str, body: Body, script: Script) -> Told {
        let mut told = Told::default();
        let asked = async {
            match self {
                Self::Http1 { read, write, input } => {
                    http1(read, write, input, (method, path), body, script, &mut told).await;
                }
                Self::Http2 { send, .. } => {
                    http2(send.clone(), (method, path), body, &mut told).await;
                }
                Self::Tcp(_) | Self::Gone => {}
            }
        };
        let late = timeout(PATIENCE, asked).await.is_err();
        told.gave_up = late;
        told
    }
}

/// Says all, half-closes, and reads to the end; a reset is no end.
async fn tcp(io: &mut End, bytes: &[u8], told: &mut Told) {
    let (mut read, mut write) = tokio::io::split(io);
    let sending = async {
        // Whoever cannot send learns why by reading.
        if write.write_all(bytes).await.is_ok() {
            let _ = write.shutdown().await;
        }
    };
    let reading = async {
        let mut piece = [0; 16 * 1024];
        while let Ok(count) = read.read(&mut piece).await {
            told.status = 200;
            told.whole = count == 0;
            told.body.extend_from_slice(&piece[..count]);
            if count == 0 {
                return;
            }
        }
    };
    tokio::join!(sending, reading);
}

async fn http1(
    read: &mut ReadHalf<End>,
    write: &mut WriteHalf<End>,
    input: &mut Vec<u8>,
    (method, path): (&str, &str),
    body: Body,
    script: Script,
    told: &mut Told,
) {
    let bytes = body.bytes();
    let framing = match (script, body) {
        (Script::WebSocket, _) => {
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                .to_owned()
        }
        (_, Body::Trickle) => "Transfer-Encoding: chunked\r\n".to_owned(),
        (Script::Expect, _) => {
            format!(
                "Content-Length: {}\r\nExpect: 100-continue\r\n",
                bytes.len()
            )
        }
        _ if method == "POST" => format!("Content-Length: {}\r\n", bytes.len()),
        _ => String::new(),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{framing}\r\n");
    let (go, gone) = tokio::sync::oneshot::channel();
    let sending = async {
        // Whoever cannot send learns why by reading.
        if write.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        match (script, body) {
            (Script::Expect | Script::WebSocket, _) => {
                if gone.await.unwrap_or(false) {
                    let _ = write.write_all(&bytes).await;
                }
            }
            (_, Body::Trickle) => {
                for piece in bytes.chunks(700) {
                    sleep(GAP).await;
                    let line = format!("{:x}\r\n", piece.len());
                    let chunk = [line.as_bytes(), piece, b"\r\n"].concat();
                    if write.write_all(&chunk).await.is_err() {
                        return;
                    }
                }
                let _ = write.write_all(b"0\r\n\r\n").await;
            }
            _ => {
                let _ = write.write_all(&bytes).await;
            }
        }
    };
    let mut answer = Answer {
        read,
        input,
        go: Some(go),
        echoed: bytes.len(),
    };
    // An answer that is whole ends the exchange, whatever was not sent yet.
    let reading = answer.take(told);
    tokio::pin!(sending, reading);
    tokio::select! {
        biased;
        () = &mut reading => {}
        () = &mut sending => reading.await,
    }
}

struct Answer<'a> {
    read: &'a mut ReadHalf<End>,
    input: &'a mut Vec<u8>,
    /// Says whether the body may be sent: a 100, a 101.
    go: Option<tokio::sync::oneshot::Sender<bool>>,
    /// Bytes that a pipe echoes.
    echoed: usize,
}

impl Answer<'_> {
    async fn more(&mut self) -> Option<()> {
        let mut piece = [0; 16 * 1024];
        match self.read.read(&mut piece).await {
            Ok(0) | Err(_) => None,
            Ok(count) => {
                self.input.extend_from_slice(&piece[..count]);
                Some(())
            }
        }
    }

    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let found = self.input.windows(end.len()).position(|w| w == end);
            if let Some(at) = found {
                return Some(self.input.drain(..at + end.len()).collect());
            }
            self.more().await?;
        }
    }

    async fn take(&mut self, told: &mut Told) {
        self.read_all(told).await;
    }

    async fn read_all(&mut self, told: &mut Told) -> Option<()> {
        let (status, head) = loop {
            let head = self.until(b"\r\n\r\n").await?;
            let head = String::from_utf8_lossy(&head).into_owned();
            let status: u16 = head.split(' ').nth(1).and_then(|s| s.parse().ok())?;
            if status >= 200 || status == 101 {
                break (status, head);
            }
            if status == 100 {
                self.go.take().map(|go| go.send(true));
            }
        };
        told.status = status;
        told.heads += 1;
        if let Some(go) = self.go.take() {
            // A final head in place of 100 means that the body is not wanted.
            let _ = go.send(status == 101);
        }
        let field = |name: &str| {
            head.lines().skip(1).find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        told.own = field("bridgehead-delivery").is_some();
        told.id = field("x-request-id").map(str::to_owned);
        if status == 101 {
            self.body(told, self.echoed).await?;
        } else if let Some(length) = field("content-length") {
            self.body(told, length.parse().ok()?).await?;
        } else if field("transfer-encoding").is_some() {
            self.chunks(told).await?;
        } else {
            while self.more().await.is_some() {}
            told.body.append(self.input);
        }
        told.whole = true;
        told.verdict = Verdict::read(field("bridgehead-delivery"), &told.body);
        Some(())
    }

    async fn body(&mut self, told: &mut Told, mut left: usize) -> Option<()> {
        while left > 0 {
            if self.input.is_empty() {
                self.more().await?;
            }
            let count = left.min(self.input.len());
            told.body.extend(self.input.drain(..count));
            left -= count;
        }
        Some(())
    }

    async fn chunks(&mut self, told: &mut Told) -> Option<()> {
        loop {
            let line = self.until(b"\r\n").await?;
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            let size = usize::from_str_radix(&line, 16).ok()?;
            if size == 0 {
                return self.until(b"\r\n").await.map(|_| ());
            }
            self.body(told, size).await?;
            self.until(b"\r\n").await?;
        }
    }
}

async fn http2(
    send: h2::client::SendRequest<Bytes>,
    (method, path): (&str, &str),
    body: Body,
    told: &mut Told,
) {
    let request = http::Request::builder()
        .method(method)
        .uri(format!("http://{HOST}{path}"))
        .version(http::Version::HTTP_2)
        .body(());
    let (Ok(request), Ok(mut send)) = (request, send.ready().await) else {
        return;
    };
    let bytes = Bytes::from(body.bytes());
    let Ok((response, stream)) = send.send_request(request, bytes.is_empty()) else {
        return;
    };
    let sending = bridgehead_tests::h2c::send_all;
    let mut stream = stream;
    let sending = async move {
        if !bytes.is_empty() {
            sending(&mut stream, bytes, true).await;
        }
        // The stream's handle stays: its drop would cancel.
        std::future::pending::<()>().await;
    };
    let reading = http2_answer(response, told);
    tokio::pin!(sending, reading);
    tokio::select! {
        biased;
        () = &mut reading => {}
        () = &mut sending => {}
    }
}

async fn http2_answer(response: h2::client::ResponseFuture, told: &mut Told) {
    let response = match response.await {
        Ok(response) => response,
        Err(error) => {
            told.refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return;
        }
    };
    told.status = response.status().as_u16();
    told.heads += 1;
    let headers: HeaderMap = response.headers().clone();
    told.own = headers.contains_key("bridgehead-delivery");
    let id = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    told.id = id.map(str::to_owned);
    let mut body = response.into_body();
    while let Some(piece) = body.data().await {
        let Ok(piece) = piece else { return };
        drop(body.flow_control().release_capacity(piece.len()));
        told.body.extend_from_slice(&piece);
    }
    told.whole = true;
    let delivery = headers
        .get("bridgehead-delivery")
        .and_then(|v| v.to_str().ok());
    told.verdict = Verdict::read(delivery, &told.body);
}

/// Another client, whose exchange takes a place at the app for a while.
pub(crate) async fn occupy(io: Option<End>) {
    if let Some(io) = io {
        let mut client = Client::http1(io);
        client
            .ask("DELETE", "/slow", Body::None, Script::Answer)
            .await;
    }
}

/// When an exchange began and what was told when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timed {
    pub(crate) told: Told,
    pub(crate) took: Duration,
}

pub(crate) async fn timed(exchange: impl Future<Output = Told>) -> Timed {
    let began = Instant::now();
    let told = exchange.await;
    Timed {
        told,
        took: began.elapsed(),
    }
}
