//! An HTTP/2 connection to an app through a tunnel stream, by prior knowledge.
//!
//! Carries one exchange at a time and lies in the pool between exchanges, where nobody polls it: it
//! is looked at when it is taken, so a PING of the app waits that long for its answer. The preface
//! and the SETTINGS go before the first BEGIN, so that they never count as a request's bytes.
//! Whoever has the connection drives it; there is no task behind it.

mod frames;
mod pipe;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bridgehead_protocol::io::{StreamControl, TunnelStream};
use bytes::Bytes;
use futures_util::FutureExt;
use h2::SendStream;
use h2::client::{self, ResponseFuture, SendRequest};
use http::Request;

use self::pipe::{Pipe, Wire, lock};

/// Answer bytes an app may send on a stream before they are handed on; grows (see [`GROWN_WINDOW`]).
const STREAM_WINDOW: u32 = 64 * 1024;
/// Up to here for an answer that its client takes as fast as it comes.
const GROWN_WINDOW: u32 = 1024 * 1024;
/// The same for the connection; its one exchange is bounded by its own window.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Request bytes held by the crate beside the tunnel's own queue: a frame.
const SEND_BUFFER: usize = 16 * 1024;
/// Uncompressed bytes of an answer's head, as for HTTP/1.
const MAX_HEAD: u32 = 64 * 1024;

struct Live {
    send: SendRequest<Bytes>,
    connection: client::Connection<Pipe, Bytes>,
}

/// The connection.
pub struct Http2Connection {
    /// `None` once it is over.
    live: Option<Live>,
    error: Option<h2::Error>,
    wire: Arc<Mutex<Wire>>,
    control: StreamControl,
    window: u32,
    /// The window grows no further.
    cap: u32,
}

/// A request on its way and its answer to come.
pub type Asked = (ResponseFuture, SendStream<Bytes>);

/// Offsets on the stream, of the exchange that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Behind the head.
    pub head: Option<u64>,
    /// Behind the request, once all of it was handed to the tunnel.
    pub whole: Option<u64>,
    /// Behind what was handed over so far; what comes later is the connection's own.
    pub so_far: u64,
    /// Bytes from the first of the answer's head to the last of the answer so far.
    pub answer: u64,
}

impl Http2Connection {
    /// A connection over a new stream; its first bytes are handed to the tunnel. `cap`: see [`Self::cap`].
    #[must_use]
    pub fn over(stream: TunnelStream, cap: u32) -> Self {
        let window = STREAM_WINDOW.min(cap);
        let control = stream.control().clone();
        let (io, wire) = pipe::pipe(stream);
        let handshake = client::Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEAD)
            .max_send_buffer_size(SEND_BUFFER)
            .enable_push(false)
            .handshake(io);
        // The pipe takes the preface at once, so this neither waits nor fails.
        let shaken = handshake.now_or_never().and_then(Result::ok);
        pipe::shaken(&wire);
        let mut connection = Self {
            live: shaken.map(|(send, connection)| Live { send, connection }),
            error: None,
            wire,
            control,
            window,
            cap,
        };
        connection.look();
        connection
    }

    /// Evidence and giving up.
    #[must_use]
    pub fn control(&self) -> &StreamControl {
        &self.control
    }

    /// Moves frames both ways.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(live) = &mut self.live
            && let Poll::Ready(end) = Pin::new(&mut live.connection).poll(cx)
        {
            self.error = end.err();
            self.live = None;
        }
    }

    /// Moves frames without waiting for any.
    pub fn look(&mut self) {
        self.drive(&mut Context::from_waker(Waker::noop()));
    }

    /// Begins an exchange. Its frames go out when the connection is driven.
    ///
    /// # Errors
    /// `None`: the connection is over.
    pub fn ask(&mut self, request: Request<()>, ends: bool) -> Result<Asked, Option<h2::Error>> {
        let live = self.live.as_mut().ok_or(None)?;
        let asked = live.send.send_request(request, ends).map_err(Some)?;
        let stream = asked.0.stream_id().as_u32();
        let mut wire = lock(&self.wire);
        wire.sent.follow(stream);
        wire.got.follow(stream);
        drop(wire);
        Ok(asked)
    }

    /// Offsets of the exchange.
    #[must_use]
    pub fn marks(&self) -> Marks {
        let wire = lock(&self.wire);
        Marks {
            head: wire.sent.head_end(),
            whole: wire.sent.whole(),
            so_far: wire.sent.request_to(),
            answer: wire.got.answer(),
        }
    }

    /// Ready once `data` bytes of the request's body are in the tunnel's hands and it takes more.
    pub fn poll_sent(&mut self, cx: &mut Context<'_>, data: u64) -> Poll<()> {
        let mut wire = lock(&self.wire);
        if wire.is_drained() && wire.sent.has_sent(data) {
            return wire.poll_room(cx);
        }
        // Driving the connection has left a waker with whatever it waits for.
        Poll::Pending
    }

    /// True once the whole answer is here.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        lock(&self.wire).got.is_whole()
    }

    /// What the app broke, if the codec would not tell.
    #[must_use]
    pub fn breach(&self) -> Option<&'static str> {
        lock(&self.wire).got.breach()
    }

    /// Why the connection is over, if there was an error.
    #[must_use]
    pub fn error(&self) -> Option<&h2::Error> {
        self.error.as_ref()
    }

    /// True once nothing more comes or goes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.live.is_none()
    }

    /// Whether the app takes extended CONNECT (RFC 8441); `None` before its SETTINGS are here.
    #[must_use]
    pub fn takes_connect(&self) -> Option<bool> {
        let live = self.live.as_ref()?;
        let greeted = lock(&self.wire).got.has_greeted();
        greeted.then(|| live.send.is_extended_connect_protocol_enabled())
    }

    /// The client took all there was and waits: the app may send more ahead.
    pub fn widen(&mut self) {
        if self.window < GROWN_WINDOW
            && self.window * 4 <= self.cap
            && let Some(live) = &mut self.live
            && live
                .connection
                .set_initial_window_size(self.window * 4)
                .is_ok()
        {
            self.window *= 4;
        }
    }

    /// Bytes the app may send ahead.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Bytes of an answer that are here unread, or that the app may send unasked.
    #[must_use]
    pub fn exposure(&self) -> u64 {
        self.control.exposure().max(u64::from(self.window))
    }

    /// The app may send at most so many bytes ahead; a window that has grown stays.
    pub fn cap(&mut self, cap: u32) {
        self.control.cap(cap);
        self.cap = cap;
    }

    /// True if another exchange may begin: all of the last one is out, and nobody said farewell.
    pub fn is_usable(&mut self) -> bool {
        let view = self.control.view();
        if view.ended.is_some() || view.closing {
            return false;
        }
        self.look();
        let wire = lock(&self.wire);
        let over = wire.sent.is_over() || wire.got.is_reset();
        let idle = wire.is_drained() && wire.sent.is_between() && over;
        let sound = !wire.got.is_closing() && wire.got.breach().is_none();
        drop(wire);
        let mut cx = Context::from_waker(Waker::noop());
        let ready = |live: &mut Live| matches!(live.send.poll_ready(&mut cx), Poll::Ready(Ok(())));
        idle && sound && self.live.as_mut().is_some_and(ready)
    }
}
