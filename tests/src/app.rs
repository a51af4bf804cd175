//! The app double: does exactly what its script says, and remembers every byte it saw.
//!
//! Owns: the *oracle*. What a connection saw is recorded before the script looks at it, so a verdict
//! can be judged against it. Must not: interpret beyond the head of a request. Connections on which
//! nothing was ever said (a probe that only looks whether the port is open) are counted apart.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::wait;

/// Bytes kept per connection; beyond them only the count and the hash go on.
const KEEP: usize = 1 << 20;

/// How a connection ended, seen from the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer sent FIN.
    Fin,
    /// The peer sent RST, or the connection broke.
    Reset,
}

/// What one connection saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Everything read, up to a megabyte.
    pub bytes: Vec<u8>,
    /// Number of bytes read.
    pub count: u64,
    /// When it was accepted.
    pub opened: Instant,
    /// When the first byte came.
    pub first: Option<Instant>,
    /// When and how the peer ended it.
    pub ended: Option<(Instant, Ending)>,
    hash: blake3::Hasher,
}

impl Seen {
    /// Everything read, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// BLAKE3 of everything read.
    pub fn digest(&self) -> blake3::Hash {
        self.hash.finalize()
    }
}

struct Log {
    connections: Mutex<Vec<Seen>>,
    changed: watch::Sender<u64>,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, index: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.lock()[index]);
        self.changed.send_modify(|n| *n += 1);
    }
}

/// A listening app. Dropped, it closes its port and every connection.
pub struct App {
    addr: SocketAddr,
    log: Arc<Log>,
    task: JoinHandle<()>,
}

impl App {
    /// Listens on a free port of the loopback and runs `script` for each connection, all at once.
    pub async fn start<S, F>(script: S) -> Self
    where
        S: Fn(Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port is free");
        Self::on(listener, script)
    }

    /// As [`App::start`], again on a port that an earlier app had.
    pub async fn start_at<S, F>(addr: SocketAddr, script: S) -> Self
    where
        S: Fn(Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let bind = || async { TcpListener::bind(addr).await.ok() };
        let listener = wait::until(wait::SOON, "the app's port becoming free", bind).await;
        Self::on(listener, script)
    }

    fn on<S, F>(listener: TcpListener, script: S) -> Self
    where
        S: Fn(Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let addr = listener.local_addr().expect("a listener has an address");
        let log = Arc::new(Log {
            connections: Mutex::default(),
            changed: watch::Sender::new(0),
        });
        let shared = Arc::clone(&log);
        let task = tokio::spawn(async move {
            // Dropped with the listening task, so that an app's end ends its connections too.
            let mut running = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let conn = Conn::new(stream, Arc::clone(&shared));
                running.spawn(script(conn));
                while running.try_join_next().is_some() {}
            }
        });
        Self { addr, log, task }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// As a target of the agent.
    pub fn target(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Connections that saw at least one byte, in the order of their first byte.
    pub fn seen(&self) -> Vec<Seen> {
        let mut seen: Vec<Seen> = self
            .log
            .lock()
            .iter()
            .filter(|s| s.count > 0)
            .cloned()
            .collect();
        seen.sort_by_key(|s| s.first);
        seen
    }

    /// All accepted connections, those on which nothing was said included.
    pub fn accepted(&self) -> usize {
        self.log.lock().len()
    }

    /// Bytes seen over all connections.
    pub fn total(&self) -> u64 {
        self.log.lock().iter().map(|s| s.count).sum()
    }

    /// Everything seen over all connections, as text.
    pub fn text(&self) -> String {
        self.seen().iter().map(Seen::text).collect()
    }

    /// Waits until `wanted` holds for the connections that saw something.
    pub async fn until(&self, what: &str, wanted: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let mut changes = self.log.changed.subscribe();
        wait::within(wait::SOON, what, async {
            loop {
                let seen = self.seen();
                if wanted(&seen) {
                    return seen;
                }
                changes
                    .changed()
                    .await
                    .expect("the log lives as long as the app");
            }
        })
        .await
    }

    /// Waits until the app saw `text` anywhere.
    pub async fn until_text(&self, text: &str) {
        let what = format!("the app seeing {text:?}");
        self.until(&what, |seen| seen.iter().any(|s| s.text().contains(text)))
            .await;
    }

    /// Closes the port and every connection, and hands back the address for a successor.
    pub async fn stop(mut self) -> SocketAddr {
        self.task.abort();
        // Aborted: its end is an error by design.
        drop((&mut self.task).await);
        self.addr
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A port of the loopback on which nobody listens, and on which nobody will for the test's time.
pub struct ClosedPort {
    /// Bound but never listened on, so that the kernel refuses connections and gives the port to nobody.
    socket: socket2::Socket,
}

impl ClosedPort {
    /// Takes one.
    pub fn take() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a socket");
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        socket.bind(&any.into()).expect("a loopback port is free");
        Self { socket }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.socket
            .local_addr()
            .ok()
            .and_then(|a| a.as_socket())
            .expect("a bound socket has an address")
    }

    /// As a target of the agent.
    pub fn target(&self) -> String {
        format!("http://{}", self.addr())
    }
}

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
    fn new(stream: TcpStream, log: Arc<Log>) -> Self {
        drop(stream.set_nodelay(true));
        let seen = Seen {
            bytes: Vec::new(),
            count: 0,
            opened: Instant::now(),
            first: None,
            ended: None,
            hash: blake3::Hasher::new(),
        };
        let index = {
            let mut connections = log.lock();
            connections.push(seen);
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
                    seen.count += n as u64;
                    seen.first.get_or_insert_with(Instant::now);
                    seen.hash.update(&chunk[..n]);
                    let room = KEEP.saturating_sub(seen.bytes.len()).min(n);
                    seen.bytes.extend_from_slice(&chunk[..room]);
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
        // What the script did not wait to read still counts as seen if it has arrived.
        let mut chunk = [0; 64 * 1024];
        while let Ok(n) = self.stream.try_read(&mut chunk) {
            if n == 0 {
                break;
            }
            self.log.change(self.index, |seen| {
                seen.count += n as u64;
                seen.first.get_or_insert_with(Instant::now);
                seen.hash.update(&chunk[..n]);
                let room = KEEP.saturating_sub(seen.bytes.len()).min(n);
                seen.bytes.extend_from_slice(&chunk[..room]);
            });
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// An app that answers every request with its own head and body, keep-alive.
///
/// The answer's body is `METHOD target\n`, the fields as `name: value\n`, an empty line, the body.
pub async fn echo(mut conn: Conn) {
    while let Some(head) = conn.read_head().await {
        if head.header("expect").is_some() && !conn.write("HTTP/1.1 100 Continue\r\n\r\n").await {
            return;
        }
        let Some((body, trailers)) = conn.read_body(&head).await else {
            return;
        };
        let mut text = format!("{} {}\n", head.method, head.target);
        for (name, value) in &head.headers {
            text += &format!("{name}: {value}\n");
        }
        text += "\n";
        let mut answer = text.into_bytes();
        answer.extend(body);
        for trailer in trailers {
            answer.extend(format!("\ntrailer {trailer}").into_bytes());
        }
        let mut out = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        )
        .into_bytes();
        if head.method != "HEAD" {
            out.extend(answer);
        }
        if !conn.write(out).await {
            return;
        }
    }
}

/// An app that reads everything and never says a word.
pub async fn silent(mut conn: Conn) {
    conn.until_closed().await;
}
