//! A client that speaks HTTP/1 by hand and says exactly how each answer ended.

use super::app::field;
use super::*;

/// One connection.
pub(crate) struct Client {
    io: DuplexStream,
    reset: Arc<AtomicBool>,
}

/// An answer as it came over the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: String,
    /// It came to the end that its own framing names (for one without: the connection was closed).
    pub(crate) whole: bool,
}

impl Answer {
    /// A field by its lower-case name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The `error` object of an answer made by the gateway.
    pub(crate) fn error(&self) -> serde_json::Value {
        let json: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        json["error"].clone()
    }

    /// `code reason delivery stage` in one line.
    pub(crate) fn verdict(&self) -> String {
        let error = self.error();
        let words = ["code", "reason", "delivery", "stage"];
        words
            .map(|word| error[word].as_str().expect("a word").to_owned())
            .join(" ")
    }
}

impl Client {
    pub(super) fn new(io: DuplexStream, reset: Arc<AtomicBool>) -> Self {
        Self { io, reset }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.io
            .write_all(bytes.as_ref())
            .await
            .expect("the gateway reads");
    }

    /// The same; false if the gateway has closed the connection.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.io.write_all(bytes).await.is_ok()
    }

    /// True unless the gateway closes the connection within a second.
    pub(crate) async fn is_open(&mut self) -> bool {
        self.is_left_alone(Duration::from_secs(1)).await
    }

    /// The next final answer; `None` if the connection ends first.
    pub(crate) async fn try_answer(&mut self) -> Option<Answer> {
        loop {
            let head = self.head().await?;
            let status: u16 = head[9..12].parse().expect("a status");
            if status >= 200 {
                return Some(self.body(head, status).await);
            }
        }
    }

    /// A GET of `path`.
    pub(crate) async fn get(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"))
            .await;
    }

    /// A POST with this body, and `fields` lines.
    pub(crate) async fn post(&mut self, fields: &str, body: &str) {
        let length = body.len();
        let head =
            format!("POST / HTTP/1.1\r\nHost: {HOST}\r\n{fields}Content-Length: {length}\r\n\r\n");
        self.send(head + body).await;
    }

    /// One head; `None` if the connection ended before it began.
    pub(crate) async fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.byte().await {
                Some(byte) => head.push(byte),
                None if head.is_empty() => return None,
                None => panic!("ended in a head: {:?}", String::from_utf8_lossy(&head)),
            }
        }
        Some(String::from_utf8(head).expect("text"))
    }

    /// One byte; `None` at the end.
    pub(crate) async fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        match soon(self.io.read(&mut byte)).await.expect("a read") {
            0 => None,
            _ => Some(byte[0]),
        }
    }

    /// Exactly `count` bytes, fewer only if the connection ends.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            match self.byte().await {
                Some(byte) => bytes.push(byte),
                None => break,
            }
        }
        bytes
    }

    /// The next final answer to a request that was not HEAD.
    pub(crate) async fn answer(&mut self) -> Answer {
        loop {
            let head = self.head().await.expect("an answer");
            let status: u16 = head[9..12].parse().expect("a status");
            if status >= 200 || status == 101 {
                return self.body(head, status).await;
            }
        }
    }

    async fn body(&mut self, head: String, status: u16) -> Answer {
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
            trailers: String::new(),
            whole: true,
        };
        if matches!(status, 101 | 204 | 304) {
        } else if let Some(length) = answer.field("content-length") {
            let length = length.parse().expect("a length");
            answer.body = self.bytes(length).await;
            answer.whole = answer.body.len() == length;
        } else if answer.field("transfer-encoding") == Some("chunked") {
            answer.whole = self.chunks(&mut answer).await.is_some();
        } else {
            answer.body = self.rest().await;
            answer.whole = !self.was_reset();
        }
        answer
    }

    async fn chunks(&mut self, answer: &mut Answer) -> Option<()> {
        loop {
            let line = self.line().await?;
            let size = usize::from_str_radix(&line, 16).expect("a chunk size");
            if size == 0 {
                break;
            }
            let piece = self.bytes(size).await;
            answer.body.extend_from_slice(&piece);
            if piece.len() < size {
                return None;
            }
            self.line().await?;
        }
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Some(());
            }
            answer.trailers.push_str(&(line + "\n"));
        }
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.byte().await?);
        }
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Everything until the connection ends.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        soon(self.io.read_to_end(&mut bytes)).await.expect("a read");
        bytes
    }

    /// True if nothing comes while `time` passes.
    pub(crate) async fn is_left_alone(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.byte()).await.is_err()
    }

    /// The gateway closed the connection by a reset.
    pub(crate) fn was_reset(&self) -> bool {
        self.reset.load(Ordering::Relaxed)
    }

    /// Ends this side and still reads.
    pub(crate) async fn half_close(&mut self) {
        self.io.shutdown().await.expect("a shutdown");
    }

    /// Goes away.
    pub(crate) fn leave(self) {
        drop(self);
    }
}
