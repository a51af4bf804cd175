//! The app double: does exactly what its script says, and remembers every byte it saw.
//!
//! Owns: the *oracle*. What a connection saw is recorded before the script looks at it, so a verdict
//! can be judged against it. Must not: interpret beyond the head of a request. Connections on which
//! nothing was ever said (a probe that only looks whether the port is open) are counted apart.

mod conn;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{port, wait};

pub use conn::{Conn, Head};

/// Bytes kept per connection; beyond them only the count and the hash go on.
const KEEP: usize = 1 << 20;

/// How a connection ended, seen from the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer sent FIN.
    Fin,
    /// The peer sent RST, or the connection broke.
    Reset,
    /// The script ended it itself.
    Own,
}

/// What one connection saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Everything read, up to a megabyte.
    pub bytes: Vec<u8>,
    /// Number of bytes read.
    pub count: u64,
    /// Heads of requests that were read whole.
    pub heads: u64,
    /// When it was accepted.
    pub opened: Instant,
    /// When the first byte came.
    pub first: Option<Instant>,
    /// When and how the peer ended it.
    pub ended: Option<(Instant, Ending)>,
    hash: blake3::Hasher,
}

impl Seen {
    fn new() -> Self {
        Self {
            bytes: Vec::new(),
            count: 0,
            heads: 0,
            opened: Instant::now(),
            first: None,
            ended: None,
            hash: blake3::Hasher::new(),
        }
    }

    fn record(&mut self, chunk: &[u8]) {
        self.count += chunk.len() as u64;
        self.first.get_or_insert_with(Instant::now);
        self.hash.update(chunk);
        let room = KEEP.saturating_sub(self.bytes.len()).min(chunk.len());
        self.bytes.extend_from_slice(&chunk[..room]);
    }

    /// Everything read, as text.
    ///
    /// # Panics
    /// If more was read than is kept: what is looked for may be missing.
    pub fn text(&self) -> String {
        assert!(
            self.count == self.bytes.len() as u64,
            "{} bytes were read and {} kept",
            self.count,
            self.bytes.len()
        );
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

/// What an app saw, readable after its end.
pub struct Recorder(Arc<Log>);

impl Recorder {
    /// Connections that saw at least one byte, in the order of their first byte.
    pub fn seen(&self) -> Vec<Seen> {
        let mut seen: Vec<Seen> = self
            .0
            .lock()
            .iter()
            .filter(|s| s.count > 0)
            .cloned()
            .collect();
        seen.sort_by_key(|s| s.first);
        seen
    }

    /// Everything seen over all connections, as text.
    pub fn text(&self) -> String {
        self.seen().iter().map(Seen::text).collect()
    }
}

/// A listening app. Dropped, it closes its port and every connection.
pub struct App {
    addr: SocketAddr,
    log: Arc<Log>,
    task: JoinHandle<()>,
    closing: watch::Sender<bool>,
}

impl App {
    /// Listens on a free port of the loopback and runs `script` for each connection, all at once.
    pub async fn start<S, F>(script: S) -> Self
    where
        S: Fn(Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        // Not the kernel's choice: once the app has ended, nobody else shall stand there.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port::free()))
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
        let closing = watch::Sender::new(false);
        let closed = closing.subscribe();
        let task = tokio::spawn(async move {
            // Dropped with this task, so that an app's end ends its connections too.
            let mut running = tokio::task::JoinSet::new();
            accept(listener, closed, &mut running, |stream| {
                script(Conn::new(stream, Arc::clone(&shared)))
            })
            .await;
            while running.join_next().await.is_some() {}
        });
        Self {
            addr,
            log,
            task,
            closing,
        }
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
        self.recorder().seen()
    }

    /// The record, which outlives the app.
    pub fn recorder(&self) -> Recorder {
        Recorder(Arc::clone(&self.log))
    }

    /// All accepted connections, those on which nothing was said included.
    pub fn accepted(&self) -> usize {
        self.log.lock().len()
    }

    /// Bytes seen over all connections.
    pub fn total(&self) -> u64 {
        self.log.lock().iter().map(|s| s.count).sum()
    }

    /// Heads of requests that were read whole, over all connections.
    pub fn heads(&self) -> u64 {
        self.log.lock().iter().map(|s| s.heads).sum()
    }

    /// Everything seen over all connections, as text. Panics as [`Seen::text`] does.
    pub fn text(&self) -> String {
        self.recorder().text()
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

    /// Closes the port; connections go on as their script says. The orderly half of a restart.
    pub fn close_port(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until the port is closed and every connection's script has ended; hands back the address.
    pub async fn drained(mut self) -> SocketAddr {
        self.close_port();
        let ended = wait::within(
            wait::SOON,
            "the app's last connection ending",
            &mut self.task,
        )
        .await;
        ended.expect("no script panics");
        self.addr
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

/// Runs `serve` for each connection until told to close the port.
async fn accept<F>(
    listener: TcpListener,
    mut closing: watch::Receiver<bool>,
    running: &mut tokio::task::JoinSet<()>,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        tokio::select! {
            biased;
            _ = closing.wait_for(|close| *close) => return,
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                running.spawn(serve(stream));
                while running.try_join_next().is_some() {}
            }
        }
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
