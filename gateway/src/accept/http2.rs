//! One HTTP/2 connection: a task that drives it, and a task per stream.
//!
//! Owns settings, pings, draining and the reset of what cannot be a request. Frame syntax, pseudo
//! fields, connection-specific fields and body lengths are checked by `h2` and end as stream errors
//! before the corridor hears of the stream.
//!
//! A request head that stops halfway has no time limit of its own: `h2` gives no sign of it before it is
//! whole. But nothing else may come between its frames, the answer to a keep-alive ping neither, so it
//! lives for a ping's interval and patience and no longer.
//!
//! A connection that ends is still read for a moment: a socket closed over unread bytes is reset, and the
//! reset would overtake the GOAWAY that says why.
//!
//! Invariants: receive windows grow only by what the corridor took, so back-pressure reaches the
//! client; send capacity is reserved only for bytes that are there, so an idle or stalled stream
//! holds nothing of the connection's window that another could use.

mod answer;
mod backlog;
mod body;
mod ending;
#[cfg(test)]
mod frame_tests;
mod head;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use h2::server::{Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::{Method, Request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use self::answer::{Answer, Out};
use self::backlog::{Backlog, Piece};
use self::body::Body;
use self::ending::{Ending, Next, Unsent, Writing};
use self::head::Unfit;
use super::{Corridor, Limits};
use crate::pressure::TIGHT_IDLE;
use crate::request::allowance::Allowances;
use crate::request::front::{ClientInfo, ClientProtocol};
use crate::shutdown::Signal;

/// Streams of ours that `h2` still remembers after a reset, and errors it lets a peer provoke.
const REMEMBERED_RESETS: usize = 50;
const PROVOKED_RESETS: usize = 200;

/// How long, and for how many bytes, a client is heard after our last word. A second is several ways there
/// and back; a client in order has then closed its side.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// Serve one connection to its end. Dropping the future cuts it and all of its streams.
pub async fn serve<IO, C>(
    io: IO,
    info: &ClientInfo,
    corridor: &C,
    limits: &Arc<Limits>,
    mut signal: Signal,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send,
    C: Corridor,
{
    let unsent = Unsent::default();
    let mut ending = Ending::new(unsent.clone());
    let mut io = Writing::new(io, unsent);
    let handshake = settings(limits).handshake::<_, Piece>(&mut io);
    let Ok(Ok(mut connection)) = timeout(limits.handshake, handshake).await else {
        return;
    };
    let mut pulse = Pulse::new(connection.ping_pong(), limits);
    let stream = StreamContext {
        corridor: corridor.clone(),
        info: Arc::new(ClientInfo {
            allowance: Some(Allowances::new(limits.held)),
            ..info.clone()
        }),
        limits: Arc::clone(limits),
        backlog: Backlog::new(limits.send_buffer),
    };
    let mut streams = JoinSet::new();
    let mut idle_end = Instant::now() + limits.keep_alive;
    let mut tight = false;
    let hears = loop {
        tokio::select! { biased;
            () = signal.draining(), if ending.is_open() => {
                ending.asked();
                connection.graceful_shutdown();
            }
            () = limits.pressure.tight(), if streams.is_empty() && !tight => {
                tight = true;
                idle_end = idle_end.min(Instant::now() + TIGHT_IDLE);
            }
            () = pulse.stopped() => break false,
            Some(_) = streams.join_next() => {
                tight = false;
                ending.stream_over();
                idle_end = Instant::now() + limits.keep_alive;
            }
            accepted = next_stream(&mut connection) => match accepted {
                Some((request, respond)) => {
                    streams.spawn(stream.clone().serve(request, respond));
                }
                None => break true,
            },
            () = sleep_until(idle_end), if streams.is_empty() && ending.is_open() => {
                ending.asked();
                connection.graceful_shutdown();
            }
            () = ending.patience(), if streams.is_empty() && !ending.is_open() => {
                match ending.next() {
                    Next::Wait => {}
                    Next::Tell => connection.abrupt_shutdown(Reason::NO_ERROR),
                    Next::Close => break true,
                }
            }
        }
    };
    // Streams learn from `h2` that the client is gone and end in their own order.
    drop(connection);
    let goodbye = async {
        if hears {
            linger(&mut io).await;
        }
        drop(io);
    };
    tokio::join!(goodbye, async {
        while streams.join_next().await.is_some() {}
    });
}

/// Ends our side and takes what the client still sends, until it has ended its own.
async fn linger<IO>(io: &mut IO)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let taking = async {
        let mut taken = [0; 2048];
        let mut left = LINGER_BYTES;
        if io.shutdown().await.is_err() {
            return;
        }
        while left > 0 {
            match io.read(&mut taken).await {
                Ok(0) | Err(_) => return,
                Ok(n) => left = left.saturating_sub(n),
            }
        }
    };
    // A client that does not end its side has had its time.
    drop(timeout(LINGER, taking).await);
}

fn settings(limits: &Limits) -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head.max_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(limits.send_buffer)
        .max_pending_accept_reset_streams(limits.pending_resets)
        .max_concurrent_reset_streams(REMEMBERED_RESETS)
        .max_local_error_reset_streams(Some(PROVOKED_RESETS))
        .enable_connect_protocol();
    builder
}

/// The next stream; `None` once the connection is over, for whatever reason.
async fn next_stream<IO>(
    connection: &mut Connection<IO, Piece>,
) -> Option<(Request<RecvStream>, SendResponse<Piece>)>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    connection.accept().await?.ok()
}

/// What every stream of a connection shares.
#[derive(Clone)]
struct StreamContext<C> {
    corridor: C,
    info: Arc<ClientInfo>,
    limits: Arc<Limits>,
    backlog: Backlog,
}

impl<C: Corridor> StreamContext<C> {
    async fn serve(self, request: Request<RecvStream>, respond: SendResponse<Piece>) {
        let (parts, recv) = request.into_parts();
        let bodiless = parts.method == Method::HEAD;
        let (limits, backlog) = (Arc::clone(&self.limits), self.backlog.clone());
        let mut out = Out::new(respond, limits, backlog, bodiless);
        // Asked for and given up in one breath: nobody is troubled, neither tunnel nor app.
        if out.has_left() {
            return;
        }
        let out = Mutex::new(out);
        let mut answer = Answer::new(&out);
        match head::read(parts, recv.is_end_stream(), &self.limits.head) {
            Ok(head) => {
                let mut body = Body::new(recv, &head, &out, &self.limits);
                self.corridor
                    .exchange(&self.info, head, &mut body, &mut answer)
                    .await;
                // The stream stays whole until its answer is out.
                answer.finish().await;
            }
            Err(Unfit::Refused(refusal)) => {
                let protocol = ClientProtocol::Http2;
                self.corridor
                    .refuse(&self.info, protocol, refusal, &mut answer);
                answer.finish().await;
            }
            Err(Unfit::Malformed) => answer.reset(Reason::PROTOCOL_ERROR),
        }
    }
}

/// Finds a dead or stuck peer by pings.
struct Pulse {
    pings: Option<PingPong>,
    awaited: bool,
    next: Instant,
    interval: Duration,
    patience: Duration,
}

impl Pulse {
    fn new(pings: Option<PingPong>, limits: &Limits) -> Self {
        Self {
            pings,
            awaited: false,
            next: Instant::now() + limits.ping_interval,
            interval: limits.ping_interval,
            patience: limits.ping_timeout,
        }
    }

    /// Returns when a ping was not answered in time. Cancel safe.
    async fn stopped(&mut self) {
        let Some(pings) = &mut self.pings else {
            return std::future::pending().await;
        };
        loop {
            tokio::select! { biased;
                pong = poll_fn(|cx| match self.awaited {
                    true => pings.poll_pong(cx),
                    false => Poll::Pending,
                }) => {
                    if pong.is_err() {
                        return;
                    }
                    self.awaited = false;
                    self.next = Instant::now() + self.interval;
                }
                () = sleep_until(self.next) => {
                    if self.awaited || pings.send_ping(Ping::opaque()).is_err() {
                        return;
                    }
                    self.awaited = true;
                    self.next = Instant::now() + self.patience;
                }
            }
        }
    }
}
