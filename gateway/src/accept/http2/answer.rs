//! The writing half of an HTTP/2 exchange.
//!
//! ```text
//!  Waiting ── head ──► Open ── end, trailers ──► Finishing ── all handed to h2 ──► Closed
//!     └──── abort ───────┴────────────────────────────┴───── reset ───────────────► Closed
//! ```
//! `h2` throws away what it still holds of a stream that is reset, its head included. So the reset
//! of an open answer waits until the connection was driven once more: a client that can take its
//! head learns that there was an answer.
//!
//! One piece of at most [`PIECE`] bytes waits here for the stream's window; capacity is reserved for
//! exactly that piece and never in advance.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use tokio::time::Instant;

use super::backlog::{Backlog, Piece};
use crate::accept::Limits;
use crate::accept::upload::Alarm;
use crate::h1::fields::{strip_forbidden_trailers, strip_hop_by_hop_leniently};
use crate::request::front::{Abort, AnswerBody, AnswerHead, ClientAnswer, ClientGone};

/// Most bytes that wait for the client's window.
const PIECE: usize = 64 * 1024;

/// See the diagram above.
enum State {
    Waiting(SendResponse<Piece>),
    Open(SendStream<Piece>),
    Finishing(SendStream<Piece>, Option<HeaderMap>),
    Closed,
}

pub(super) struct Out {
    state: State,
    limits: Arc<Limits>,
    backlog: Backlog,
    /// Answer to HEAD, or a status that has no body.
    bodiless: bool,
    head_sent: bool,
    tunnel: bool,
    tunnel_waker: Option<Waker>,
    /// The client is not there any more, or was reset for taking nothing.
    gone: bool,
    /// Ends by this reset, once what was handed to `h2` had its turn.
    broken: Option<Reason>,
    piece: Bytes,
    /// Bytes of a declared length that must still come.
    left: Option<u64>,
    written: u64,
    stalled_since: Option<Instant>,
    alarm: Alarm,
}

pub(super) struct Answer<'a> {
    out: &'a Mutex<Out>,
}

impl<'a> Answer<'a> {
    pub(super) fn new(out: &'a Mutex<Out>) -> Self {
        Self { out }
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reset(&mut self, reason: Reason) {
        self.lock().reset(reason);
    }

    /// The corridor is done: whatever it did not end is broken, and the rest is handed to `h2`.
    pub(super) async fn finish(&mut self) {
        let broken = {
            let mut out = self.lock();
            out.break_unended();
            out.broken
        };
        if let Some(reason) = broken {
            // The connection's task, woken by what it was handed, runs before this one goes on.
            tokio::task::yield_now().await;
            return self.reset(reason);
        }
        // A client that is gone or takes nothing has been reset.
        let _gone = poll_fn(|cx| self.lock().poll_flush(cx)).await;
    }
}

impl ClientAnswer for Answer<'_> {
    fn informational(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.lock().informational(status, headers);
    }

    fn head(&mut self, head: AnswerHead) {
        self.lock().send_head(head);
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        self.lock().poll_room(cx)
    }

    fn data(&mut self, chunk: &mut Bytes) {
        self.lock().send_data(chunk);
    }

    fn trailers(&mut self, trailers: HeaderMap) {
        self.lock().send_end(Some(trailers));
    }

    fn end(&mut self) {
        self.lock().send_end(None);
    }

    fn abort(&mut self, how: Abort) {
        self.lock().abort(match how {
            Abort::Broken => Reason::INTERNAL_ERROR,
            Abort::Cancelled => Reason::CANCEL,
        });
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        self.lock().poll_flush(cx)
    }

    fn head_sent(&self) -> bool {
        self.lock().head_sent
    }

    fn bytes_written(&self) -> u64 {
        self.lock().written
    }
}

impl Out {
    pub(super) fn new(
        respond: SendResponse<Piece>,
        limits: Arc<Limits>,
        backlog: Backlog,
        bodiless: bool,
    ) -> Self {
        Self {
            state: State::Waiting(respond),
            limits,
            backlog,
            bodiless,
            head_sent: false,
            tunnel: false,
            tunnel_waker: None,
            gone: false,
            broken: None,
            piece: Bytes::new(),
            left: None,
            written: 0,
            stalled_since: None,
            alarm: Alarm::default(),
        }
    }

    pub(super) fn head_sent(&self) -> bool {
        self.head_sent
    }

    /// Ready once the tunnel is open.
    pub(super) fn poll_tunnel(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.tunnel {
            return Poll::Ready(());
        }
        self.tunnel_waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ready once the client has reset the stream or lost the connection.
    pub(super) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.gone {
            return Poll::Ready(());
        }
        match &mut self.state {
            State::Waiting(respond) => respond.poll_reset(cx).map(|_| ()),
            State::Open(stream) | State::Finishing(stream, _) => stream.poll_reset(cx).map(|_| ()),
            State::Closed => Poll::Pending,
        }
    }

    /// The client (or `h2`, for a broken rule) has already reset the stream.
    pub(super) fn has_left(&mut self) -> bool {
        // Only a look: whoever waits for this asks again with a waker of its own.
        self.poll_left(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    pub(super) fn send_continue(&mut self) {
        self.informational(StatusCode::CONTINUE, &HeaderMap::new());
    }

    fn informational(&mut self, status: StatusCode, headers: &HeaderMap) {
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        if let State::Waiting(respond) = &mut self.state {
            let mut response = Response::new(());
            *response.status_mut() = status;
            *response.headers_mut() = headers.clone();
            self.gone |= respond.send_informational(response).is_err();
        }
    }

    fn send_head(&mut self, head: AnswerHead) {
        let State::Waiting(mut respond) = std::mem::replace(&mut self.state, State::Closed) else {
            debug_assert!(false, "one final head");
            return;
        };
        let (response, body) = framed(head, self.bodiless);
        let ends = body == AnswerBody::Empty;
        self.head_sent = true;
        self.bodiless |= ends;
        self.tunnel = body == AnswerBody::Tunnel;
        self.left = match body {
            AnswerBody::Exact(length) => Some(length),
            AnswerBody::Empty | AnswerBody::Streamed | AnswerBody::Tunnel => None,
        };
        match respond.send_response(response, ends) {
            Ok(stream) => self.state = State::Open(stream),
            Err(_) => self.gone = true,
        }
        if let Some(waker) = self.tunnel_waker.take() {
            waker.wake();
        }
    }

    fn send_data(&mut self, chunk: &mut Bytes) {
        let ended = self.gone || self.broken.is_some();
        if self.bodiless || ended || !matches!(self.state, State::Open(_)) {
            return chunk.clear();
        }
        if !self.piece.is_empty() {
            return;
        }
        let mut take = chunk.len().min(PIECE);
        if let Some(left) = &mut self.left {
            debug_assert!(chunk.len() as u64 <= *left, "more than was announced");
            take = take.min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= take as u64;
            if *left == 0 {
                chunk.truncate(take);
            }
        }
        self.piece = chunk.split_to(take);
        self.push();
    }

    /// Hand as much of the waiting piece to `h2` as the windows allow.
    fn push(&mut self) {
        let (State::Open(stream) | State::Finishing(stream, _)) = &mut self.state else {
            return self.piece.clear();
        };
        while !self.piece.is_empty() {
            if stream.capacity() == 0 {
                stream.reserve_capacity(self.piece.len());
            }
            let len = stream.capacity().min(self.piece.len());
            if len == 0 {
                return;
            }
            self.stalled_since = None;
            self.written += len as u64;
            let piece = self.backlog.piece(self.piece.split_to(len));
            if stream.send_data(piece, false).is_err() {
                self.gone = true;
                return self.piece.clear();
            }
        }
    }

    /// Ready when nothing waits for the window.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        loop {
            self.push();
            if self.gone {
                return Poll::Ready(Err(ClientGone));
            }
            if self.piece.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let (State::Open(stream) | State::Finishing(stream, _)) = &mut self.state else {
                return Poll::Ready(Err(ClientGone));
            };
            match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => self.gone = true,
                Poll::Pending => return self.poll_stall(cx, None).map(Err),
            }
        }
    }

    /// Ready when nothing waits for the window and the connection holds little.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        ready!(self.poll_piece(cx))?;
        match self.backlog.poll_room(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            // Its turn comes, as long as the connection takes anything.
            Poll::Pending => self.poll_stall(cx, self.backlog.took()).map(Err),
        }
    }

    /// Ready once the client has taken nothing for too long; `took`: when it did at least that.
    fn poll_stall(&mut self, cx: &mut Context<'_>, took: Option<Instant>) -> Poll<ClientGone> {
        if self.tunnel {
            return Poll::Pending;
        }
        let stalled = *self.stalled_since.get_or_insert_with(Instant::now);
        let since = took.map_or(stalled, |took| took.max(stalled));
        ready!(self.alarm.poll_at(cx, since + self.limits.write_stall));
        self.reset(Reason::CANCEL);
        self.gone = true;
        Poll::Ready(ClientGone)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        ready!(self.poll_piece(cx))?;
        if let State::Finishing(..) = self.state
            && let State::Finishing(mut stream, trailers) =
                std::mem::replace(&mut self.state, State::Closed)
        {
            let ended = match trailers {
                Some(trailers) => stream.send_trailers(trailers),
                None => stream.send_data(self.backlog.piece(Bytes::new()), true),
            };
            if ended.is_err() {
                self.gone = true;
                return Poll::Ready(Err(ClientGone));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn send_end(&mut self, trailers: Option<HeaderMap>) {
        if self.left.is_some_and(|left| left > 0) {
            return self.abort(Reason::INTERNAL_ERROR);
        }
        let State::Open(stream) = std::mem::replace(&mut self.state, State::Closed) else {
            debug_assert!(self.gone, "an end outside of an open answer");
            return;
        };
        if self.bodiless {
            return;
        }
        let trailers = trailers.and_then(|mut map| {
            strip_forbidden_trailers(&mut map);
            (!map.is_empty()).then_some(map)
        });
        self.state = State::Finishing(stream, trailers);
        if self.piece.is_empty() {
            // Nothing waits for a window, so this cannot be pending, and needs no waker.
            let _done = self.poll_flush(&mut Context::from_waker(Waker::noop()));
        }
    }

    fn break_unended(&mut self) {
        let unended = match &self.state {
            State::Waiting(_) => true,
            State::Open(_) => !self.bodiless,
            State::Finishing(..) | State::Closed => false,
        };
        if unended && self.broken.is_none() {
            self.abort(Reason::INTERNAL_ERROR);
        }
    }

    /// Ends visibly broken: at once while there is no head, else after what was handed over.
    fn abort(&mut self, reason: Reason) {
        self.piece.clear();
        match &self.state {
            State::Open(_) if !self.bodiless => self.broken = Some(reason),
            State::Finishing(..) => self.broken = Some(reason),
            State::Waiting(_) | State::Open(_) | State::Closed => self.reset(reason),
        }
    }

    fn reset(&mut self, reason: Reason) {
        self.piece.clear();
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Waiting(mut respond) => respond.send_reset(reason),
            State::Open(_) if self.bodiless => {}
            State::Open(mut stream) | State::Finishing(mut stream, _) => stream.send_reset(reason),
            State::Closed => {}
        }
    }
}

/// The response to send and how its body is framed. Fields of an HTTP/1 connection have no place in
/// HTTP/2; a switch of protocols is a plain success there (RFC 8441 §5).
fn framed(mut head: AnswerHead, to_head: bool) -> (Response<()>, AnswerBody) {
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        head.status = StatusCode::OK;
        head.headers.remove(header::SEC_WEBSOCKET_ACCEPT);
    }
    strip_hop_by_hop_leniently(&mut head.headers);
    let status = head.status;
    let never_has_body =
        to_head || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    let body = match head.body {
        AnswerBody::Tunnel => AnswerBody::Tunnel,
        AnswerBody::Exact(length) if to_head => {
            let value = HeaderValue::from(length);
            head.headers.insert(header::CONTENT_LENGTH, value);
            AnswerBody::Empty
        }
        _ if never_has_body => AnswerBody::Empty,
        AnswerBody::Exact(0) | AnswerBody::Empty => {
            let zero = HeaderValue::from_static("0");
            head.headers.entry(header::CONTENT_LENGTH).or_insert(zero);
            AnswerBody::Empty
        }
        AnswerBody::Exact(length) => {
            let value = HeaderValue::from(length);
            head.headers.insert(header::CONTENT_LENGTH, value);
            AnswerBody::Exact(length)
        }
        AnswerBody::Streamed => {
            head.headers.remove(header::CONTENT_LENGTH);
            AnswerBody::Streamed
        }
    };
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = head.headers;
    (response, body)
}
