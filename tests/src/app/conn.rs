//! One connection of an app double, as its script drives it.
//!
//! Invariant: a byte is in the record before the script can see it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Ending, Log, Seen};

/// Head of a request as the app got it.
#[derive(Clone, Debug)]
pub struct Head {
    /// Method.
    pub method: String,
    /// Target, byte for byte.
    pub target: String,
    /// Fields in order, names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// First value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    /// All values of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
            .collect()
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().to_owned();
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Self {
            method,
            target,
            headers: lines.filter_map(field).collect(),
        }
    }
}

/// One connection of an app double.
pub struct Conn {
    stream: TcpStream,
    log: Arc<Log>,
    index: usize,
    /// Read but not yet asked for by the script.
    buffer: Vec<u8>,
    ended: bool,
}

impl Conn {
    pub(super) fn new(stream: TcpStream, log: Arc<Log>) -> Self {
        drop(stream.set_nodelay(true));
        let index = {
            let mut connections = log.lock();
            connections.push(Seen::new());
            connections.len() - 1
        };
        log.changed.send_modify(|n| *n += 1);
        Self {
            stream,
            log,
            index,
            buffer: Vec::new(),
            ended: false,
        }
    }

    /// Reads once from the socket into the record; false at the end.
    async fn fill(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let mut chunk = vec![0; 64 * 1024];
        let result = self.stream.read(&mut chunk).await;
        let ending = match result {
            Ok(0) => Some(Ending::Fin),
            Err(_) => Some(Ending::Reset),
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                self.log.change(self.index, |seen| {
                    seen.record(&chunk[..n]);
                });
                None
            }
        };
        if let Some(ending) = ending {
            self.ended = true;
            self.log.change(self.index, |seen| {
                seen.ended = Some((Instant::now(), ending))
            });
        }
        ending.is_none()
    }

    /// Next bytes, or nothing at the end.
    pub async fn read_some(&mut self) -> Option<Vec<u8>> {
        if self.buffer.is_empty() && !self.fill().await {
            return None;
        }
        Some(std::mem::take(&mut self.buffer))
    }

    /// Head of the next request, or nothing if the connection ends before it is whole.
    pub async fn read_head(&mut self) -> Option<Head> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let rest = self.buffer.split_off(end + 4);
                let head = std::mem::replace(&mut self.buffer, rest);
                self.log.change(self.index, |seen| seen.heads += 1);
                return Some(Head::parse(&String::from_utf8_lossy(&head[..end])));
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Exactly `n` bytes, or nothing if the connection ends before.
    pub async fn read_exact(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < n {
            if !self.fill().await {
                return None;
            }
        }
        let rest = self.buffer.split_off(n);
        Some(std::mem::replace(&mut self.buffer, rest))
    }

    /// Reads and drops `n` bytes; false if the connection ends before.
    pub async fn skip(&mut self, mut n: u64) -> bool {
        while n > 0 {
            if self.buffer.is_empty() && !self.fill().await {
                return false;
            }
            let take = usize::try_from(n)
                .unwrap_or(usize::MAX)
                .min(self.buffer.len());
            self.buffer.drain(..take);
            n -= take as u64;
        }
        true
    }

    /// Body of a request with this head, decoded, and its trailer lines; nothing if it ends early.
    pub async fn read_body(&mut self, head: &Head) -> Option<(Vec<u8>, Vec<String>)> {
        if let Some(length) = head.header("content-length") {
            let body = self.read_exact(length.parse().ok()?).await?;
            return Some((body, Vec::new()));
        }
        if head.header("transfer-encoding").is_none() {
            return Some((Vec::new(), Vec::new()));
        }
        let mut body = Vec::new();
        loop {
            let line = self.read_line().await?;
            let size =
                usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16).ok()?;
            if size == 0 {
                break;
            }
            body.extend(self.read_exact(size).await?);
            self.read_exact(2).await?;
        }
        let mut trailers = Vec::new();
        loop {
            let line = self.read_line().await?;
            if line.is_empty() {
                return Some((body, trailers));
            }
            trailers.push(line);
        }
    }

    /// One line without its CRLF.
    pub async fn read_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let rest = self.buffer.split_off(end + 2);
                let line = std::mem::replace(&mut self.buffer, rest);
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Writes all of `bytes`; false if the peer is gone.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Answers 200 with `body` and keeps the connection.
    pub async fn answer(&mut self, body: &str) -> bool {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.write(head + body).await
    }

    /// Reads, recording, until the peer ends the connection.
    pub async fn until_closed(&mut self) {
        while self.read_some().await.is_some() {}
    }

    /// Sends FIN and goes on reading.
    pub async fn half_close(&mut self) {
        // A peer that is gone already is what the reading side will say.
        drop(self.stream.shutdown().await);
    }

    /// Ends the connection with RST.
    pub fn reset(self) {
        drop(socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)));
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if !self.ended {
            let end = Some((Instant::now(), Ending::Own));
            self.log.change(self.index, |seen| seen.ended = end);
        }
        // What the script did not wait to read still counts as seen if it has arrived.
        let mut chunk = [0; 64 * 1024];
        while let Ok(n) = self.stream.try_read(&mut chunk) {
            if n == 0 {
                break;
            }
            self.log.change(self.index, |seen| {
                seen.record(&chunk[..n]);
            });
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}
