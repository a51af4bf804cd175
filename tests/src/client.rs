//! A raw HTTP/1 client: sends exactly the bytes it is told, and says exactly how an answer ended.
//!
//! Must not: repair, retry, or hide a broken ending. Invariant: [`End`] tells a complete answer from a
//! truncated one, whatever its framing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait;

/// Either kind of connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By its length, its last chunk, or because it cannot have a body.
    Complete,
    /// By the end of the connection, where the framing says that this is the end.
    Close,
    /// FIN before the length or the last chunk.
    Short,
    /// RST.
    Reset,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Reason phrase.
    pub reason: String,
    /// Fields in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, decoded.
    pub body: Vec<u8>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
    /// 1xx answers that came before.
    pub informational: Vec<u16>,
    /// How it ended.
    pub end: End,
}

impl Answer {
    /// First value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    /// Body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.text()))
    }

    /// `error.NAME` of an answer made by the gateway, as text; empty if null or absent.
    pub fn error(&self, name: &str) -> String {
        match &self.json()["error"][name] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// True if the gateway made it.
    pub fn made_by_gateway(&self) -> bool {
        self.header("bridgehead-code").is_some()
    }
}

/// Why no answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// FIN before a whole head.
    Closed,
    /// RST before a whole head.
    Reset,
}

/// A connection that speaks HTTP/1.
pub struct H1 {
    io: Box<dyn Io>,
    buffer: Vec<u8>,
    ended: Option<End>,
}

/// A field to send.
pub type Field<'a> = (&'a str, &'a str);

impl H1 {
    /// Connects in plain text.
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr)
            .await
            .unwrap_or_else(|e| panic!("{addr} does not answer: {e}"));
        drop(stream.set_nodelay(true));
        Self::over(stream)
    }

    /// Connects with TLS and ALPN `http/1.1`.
    pub async fn connect_tls(addr: SocketAddr, name: &str, roots: &rustls::RootCertStore) -> Self {
        Self::over(tls(addr, name, roots, &[b"http/1.1"]).await)
    }

    /// Speaks over a given connection.
    pub fn over(io: impl Io + 'static) -> Self {
        Self {
            io: Box::new(io),
            buffer: Vec::new(),
            ended: None,
        }
    }

    /// Sends bytes as they are; false if the peer is gone.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.io.write_all(bytes.as_ref()).await.is_ok() && self.io.flush().await.is_ok()
    }

    /// Sends a request; a non-empty `body` gets a `Content-Length` unless the fields frame it.
    pub async fn request(
        &mut self,
        method: &str,
        target: &str,
        host: &str,
        fields: &[Field<'_>],
        body: &[u8],
    ) {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        let framed = |n: &str| fields.iter().any(|(f, _)| f.eq_ignore_ascii_case(n));
        if !body.is_empty() && !framed("content-length") && !framed("transfer-encoding") {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        head += "\r\n";
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.send(bytes).await;
    }

    /// Sends a request and reads its answer within a generous bound.
    pub async fn ask(
        &mut self,
        method: &str,
        target: &str,
        host: &str,
        fields: &[Field<'_>],
        body: &[u8],
    ) -> Answer {
        self.request(method, target, host, fields, body).await;
        self.answer(method).await
    }

    /// Reads the answer to a request with `method`; panics if none comes.
    pub async fn answer(&mut self, method: &str) -> Answer {
        let result = wait::within(
            Duration::from_secs(60),
            "an answer",
            self.try_answer(method),
        )
        .await;
        result.unwrap_or_else(|why| {
            panic!(
                "no answer: {why:?}; read {:?}",
                String::from_utf8_lossy(&self.buffer)
            )
        })
    }

    /// Reads the answer to a request with `method`.
    pub async fn try_answer(&mut self, method: &str) -> Result<Answer, NoAnswer> {
        let mut informational = Vec::new();
        loop {
            let mut answer = self.read_head().await?;
            if (100..200).contains(&answer.status) && answer.status != 101 {
                informational.push(answer.status);
                continue;
            }
            answer.informational = informational;
            self.read_body(method, &mut answer).await;
            return Ok(answer);
        }
    }

    /// Reads a head only: 1xx heads are returned like any other, the body stays unread.
    pub async fn read_head(&mut self) -> Result<Answer, NoAnswer> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at;
            }
            if !self.fill().await {
                let reset = self.ended == Some(End::Reset);
                return Err(if reset {
                    NoAnswer::Reset
                } else {
                    NoAnswer::Closed
                });
            }
        };
        let rest = self.buffer.split_off(end + 4);
        let head = std::mem::replace(&mut self.buffer, rest);
        let text = String::from_utf8_lossy(&head[..end]).into_owned();
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().splitn(3, ' ');
        assert!(
            words.next().is_some_and(|v| v.starts_with("HTTP/1.")),
            "no HTTP/1 answer: {text}"
        );
        let status = words
            .next()
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(|| panic!("no status: {text}"));
        let reason = words.next().unwrap_or_default().to_owned();
        let headers = lines.map(field).collect();
        Ok(Answer {
            status,
            reason,
            headers,
            body: Vec::new(),
            trailers: Vec::new(),
            informational: Vec::new(),
            end: End::Complete,
        })
    }

    async fn read_body(&mut self, method: &str, answer: &mut Answer) {
        let bodyless = method == "HEAD" || matches!(answer.status, 101 | 204 | 304);
        let tunnel = method == "CONNECT" && (200..300).contains(&answer.status);
        if bodyless || tunnel {
            return;
        }
        if answer.header("transfer-encoding").is_some() {
            self.read_chunks(answer).await;
            return;
        }
        match answer
            .header("content-length")
            .map(|l| l.parse::<usize>().expect("a length is a number"))
        {
            Some(length) => {
                while self.buffer.len() < length {
                    if !self.fill().await {
                        answer.end = self.broken();
                        answer.body = std::mem::take(&mut self.buffer);
                        return;
                    }
                }
                let rest = self.buffer.split_off(length);
                answer.body = std::mem::replace(&mut self.buffer, rest);
            }
            None => {
                while self.fill().await {}
                answer.body = std::mem::take(&mut self.buffer);
                answer.end = if self.ended == Some(End::Reset) {
                    End::Reset
                } else {
                    End::Close
                };
            }
        }
    }

    async fn read_chunks(&mut self, answer: &mut Answer) {
        loop {
            let Some(chunk) = self.read_chunk().await else {
                answer.end = self.broken();
                return;
            };
            if !chunk.is_empty() {
                answer.body.extend(chunk);
                continue;
            }
            loop {
                let Some(line) = self.read_line().await else {
                    answer.end = self.broken();
                    return;
                };
                if line.is_empty() {
                    return;
                }
                answer.trailers.push(field(&line));
            }
        }
    }

    /// One chunk of a chunked body; empty for the last, nothing if the connection ends before it is whole.
    pub async fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.read_line().await?;
        let size = usize::from_str_radix(line.trim(), 16)
            .unwrap_or_else(|_| panic!("no chunk size: {line:?}"));
        if size == 0 {
            return Some(Vec::new());
        }
        let mut chunk = self.read_exact(size + 2).await?;
        chunk.truncate(size);
        Some(chunk)
    }

    async fn read_line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                let rest = self.buffer.split_off(at + 2);
                let line = std::mem::replace(&mut self.buffer, rest);
                return Some(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Exactly `n` bytes of whatever comes, or nothing if the connection ends before.
    pub async fn read_exact(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < n {
            if !self.fill().await {
                return None;
            }
        }
        let rest = self.buffer.split_off(n);
        Some(std::mem::replace(&mut self.buffer, rest))
    }

    /// Next bytes as they come; nothing at the end.
    pub async fn read_some(&mut self) -> Option<Vec<u8>> {
        if self.buffer.is_empty() && !self.fill().await {
            return None;
        }
        Some(std::mem::take(&mut self.buffer))
    }

    /// Everything until the end, and how it ended (`Close` for FIN).
    pub async fn read_to_end(&mut self) -> (Vec<u8>, End) {
        while self.fill().await {}
        let end = if self.ended == Some(End::Reset) {
            End::Reset
        } else {
            End::Close
        };
        (std::mem::take(&mut self.buffer), end)
    }

    /// Sends FIN; reading goes on.
    pub async fn half_close(&mut self) {
        drop(self.io.shutdown().await);
    }

    fn broken(&self) -> End {
        if self.ended == Some(End::Reset) {
            End::Reset
        } else {
            End::Short
        }
    }

    async fn fill(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let mut chunk = vec![0; 64 * 1024];
        match self.io.read(&mut chunk).await {
            Ok(0) => self.ended = Some(End::Close),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                self.ended = Some(End::Short)
            }
            Err(_) => self.ended = Some(End::Reset),
            Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
        }
        self.ended.is_none()
    }
}

/// A TLS connection that offers `alpn`.
pub async fn tls(
    addr: SocketAddr,
    name: &str,
    roots: &rustls::RootCertStore,
    alpn: &[&[u8]],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    let stream = TcpStream::connect(addr)
        .await
        .unwrap_or_else(|e| panic!("{addr} does not answer: {e}"));
    drop(stream.set_nodelay(true));
    let name = ServerName::try_from(name.to_owned()).expect("a server name");
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector
        .connect(name, stream)
        .await
        .unwrap_or_else(|e| panic!("no TLS with {addr}: {e}"))
}

/// One request on a connection of its own.
pub async fn ask(addr: SocketAddr, method: &str, target: &str, host: &str) -> Answer {
    H1::connect(addr)
        .await
        .ask(method, target, host, &[], b"")
        .await
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    (name.to_ascii_lowercase(), value.trim().to_owned())
}
