//! The state of one HTTP/1 connection: socket, read buffer, write queue, and the exchange at hand.
//!
//! ```text
//!  answer:  Waiting ── head ──► Open(Empty│Exact│Chunked│UntilClose│Tunnel) ── end ──► Ended
//!              │                   │
//!              └───── abort ───────┴──────────────────────────────────────► Aborted
//! ```
//! However a core is dropped, an answer that ends with its connection ends by a reset unless it went out
//! whole: a plain close would make what is there look complete.
//!
//! Reading and writing are each bounded ([`READ_MOST`], [`super::queue::CAPACITY`]); nothing is read
//! that nobody asked for, except the bounded look-ahead by which a leaving client is noticed.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, BytesMut};
use http::Method;
use http::header::{self, HeaderMap};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::leave::LeaveWatch;
use super::queue::WriteQueue;
use crate::accept::upload::{Alarm, UploadWatch};
use crate::accept::{Limits, Transport};
use crate::h1::fields::ConnectionOptions;
use crate::h1::{BodyDecoder, Decoded};
use crate::request::front::{BodyLength, ClientFault, ClientGone, ClientProtocol, RawHead};
use crate::request::normalize::may_fall_silent;
use crate::shutdown::Signal;

/// Most bytes in the read buffer.
pub(super) const READ_MOST: usize = 64 * 1024;

/// Smallest read of a body.
const READ_LEAST: usize = 8 * 1024;

/// Bytes of an unread body that are looked at to find out whether the client left.
const PEEK: usize = 16 * 1024;

/// How the body of the answer is delimited on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Empty,
    /// Bytes that must still come.
    Exact(u64),
    Chunked,
    UntilClose,
    Tunnel,
}

/// See the diagram above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerState {
    Waiting,
    Open(Framing),
    Ended(Framing),
    /// Broken; with the framing it had, if its head was sent.
    Aborted(Option<Framing>),
}

/// The client's wish for `100 Continue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continue {
    NotAsked,
    Wanted,
    Sent,
}

/// What one read found.
pub(super) enum Fill {
    Bytes,
    End,
    Broken,
}

/// What becomes of the connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Next,
    Close,
    Linger,
    Broken,
}

#[derive(Debug)]
pub(super) struct Core<IO: Transport> {
    pub(super) io: IO,
    pub(super) limits: Arc<Limits>,
    signal: Signal,
    pub(super) input: BytesMut,
    read_size: usize,
    pub(super) output: WriteQueue,
    /// The client closed its side.
    pub(super) fin: bool,
    /// The connection failed; nobody is there.
    pub(super) broken: bool,

    /// The exchange is HTTP/1.1.
    pub(super) version_11: bool,
    /// The request was HEAD.
    pub(super) bodiless: bool,
    /// The client wants to send more requests.
    pub(super) client_keeps: bool,
    /// It may: nothing on our side speaks against it so far.
    pub(super) keep: bool,
    pub(super) decoder: BodyDecoder,
    pub(super) fault: Option<ClientFault>,
    pub(super) taken: u64,
    pub(super) written: u64,
    pub(super) expect: Continue,
    /// Upload limits apply to this request.
    pub(super) upload_limited: bool,
    pub(super) upload: UploadWatch,
    pub(super) answer: AnswerState,
    /// After an upgrade the decoder has been replaced by one that reads until the end.
    pub(super) switched: bool,
    pub(super) leave: LeaveWatch,
    /// Bytes were written that a layer below (TLS) may still hold.
    unflushed: bool,
    stalled_since: Option<Instant>,
    stall_alarm: Alarm,
}

impl<IO: Transport> Core<IO> {
    pub(super) fn new(io: IO, first: BytesMut, limits: Arc<Limits>, signal: Signal) -> Self {
        Self {
            io,
            limits,
            signal,
            input: first,
            read_size: READ_LEAST,
            output: WriteQueue::default(),
            fin: false,
            broken: false,
            version_11: true,
            bodiless: false,
            client_keeps: false,
            keep: false,
            decoder: BodyDecoder::request(BodyLength::None),
            fault: None,
            taken: 0,
            written: 0,
            expect: Continue::NotAsked,
            upload_limited: false,
            upload: UploadWatch::default(),
            answer: AnswerState::Waiting,
            switched: false,
            leave: LeaveWatch::default(),
            unflushed: false,
            stalled_since: None,
            stall_alarm: Alarm::default(),
        }
    }

    /// An exchange begins with `head`.
    pub(super) fn begin(&mut self, head: &RawHead) {
        let options = ConnectionOptions::of(&head.headers);
        self.version_11 = head.protocol == ClientProtocol::Http11;
        self.bodiless = head.method == Method::HEAD;
        self.client_keeps = !options.close && (self.version_11 || options.keep_alive);
        self.keep = self.client_keeps;
        self.decoder = BodyDecoder::request(head.body);
        self.expect = match self.version_11 && !self.decoder.is_done() && expects(&head.headers) {
            true => Continue::Wanted,
            false => Continue::NotAsked,
        };
        self.upload_limited = !may_fall_silent(head);
        self.reset_exchange();
    }

    /// Something that is no request is about to be answered; its rest will not be understood.
    pub(super) fn begin_refusal(&mut self) {
        self.version_11 = true;
        self.bodiless = false;
        self.client_keeps = false;
        self.keep = false;
        self.decoder = BodyDecoder::request(BodyLength::Tunnel);
        self.expect = Continue::NotAsked;
        self.upload_limited = false;
        self.reset_exchange();
    }

    fn reset_exchange(&mut self) {
        self.fault = None;
        self.taken = 0;
        self.written = 0;
        self.upload.restart();
        self.answer = AnswerState::Waiting;
        self.switched = false;
        self.leave.restart();
    }

    /// Nothing more can be read.
    pub(super) fn ended(&self) -> bool {
        self.fin || self.broken
    }

    pub(super) fn draining(&self) -> bool {
        self.signal.is_draining()
    }

    /// Let go of a large read buffer before the connection idles.
    pub(super) fn shrink_input(&mut self) {
        self.read_size = READ_LEAST;
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }

    /// Read once, so that the buffer holds at most `most` bytes.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Fill> {
        if self.broken {
            return Poll::Ready(Fill::Broken);
        }
        if self.fin {
            return Poll::Ready(Fill::End);
        }
        let room = most.saturating_sub(self.input.len()).min(self.read_size);
        debug_assert!(room > 0, "a read needs room");
        self.input.reserve(room);
        let mut limited = (&mut self.input).limit(room);
        // The future holds nothing but its borrows: dropping it after one poll loses nothing.
        let read = ready!(pin!(self.io.read_buf(&mut limited)).poll(cx));
        Poll::Ready(match read {
            Ok(0) => {
                self.fin = true;
                Fill::End
            }
            Ok(read) => {
                self.read_size = match read == room {
                    true => (self.read_size * 2).min(READ_MOST),
                    false => self.read_size.div_ceil(2).max(READ_LEAST),
                };
                Fill::Bytes
            }
            Err(_) => {
                self.broken = true;
                Fill::Broken
            }
        })
    }

    /// How many bytes the buffer may hold when it is only looked at; `None` if it is full.
    pub(super) fn peek_limit(&self) -> Option<usize> {
        let whole = match self.decoder.remaining() {
            Some(left) => self.input.len() as u64 >= left,
            None => false,
        };
        let most = match whole {
            true => READ_MOST,
            false => PEEK,
        };
        (self.input.len() < most).then_some(most)
    }

    /// Try to write what is queued; errors show in `broken`.
    pub(super) fn write_once(&mut self, cx: &mut Context<'_>) {
        // Pending is no news here: whoever waits for the queue asks again.
        let _unfinished = self.poll_write_all(cx);
    }

    fn poll_write_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        if self.broken {
            return Poll::Ready(Err(ClientGone));
        }
        while !self.output.is_empty() {
            if ready!(self.output.poll_write(&mut self.io, cx)).is_err() {
                return Poll::Ready(Err(self.fail()));
            }
            self.unflushed = true;
            self.stalled_since = None;
            self.leave.wrote(self.fin);
        }
        if self.unflushed {
            if ready!(Pin::new(&mut self.io).poll_flush(cx)).is_err() {
                return Poll::Ready(Err(self.fail()));
            }
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn fail(&mut self) -> ClientGone {
        self.broken = true;
        self.output.clear();
        ClientGone
    }

    /// Ready when the queue has room for body bytes.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        if self.output.room() > 0 && !self.broken {
            return Poll::Ready(Ok(()));
        }
        match self.poll_write_all(cx) {
            Poll::Pending if self.output.room() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => self.poll_stalled(cx),
            ready => ready,
        }
    }

    /// Ready when the queue is empty.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        match self.poll_write_all(cx) {
            Poll::Pending => self.poll_stalled(cx),
            Poll::Ready(Ok(())) if self.answer == AnswerState::Ended(Framing::Tunnel) => {
                self.poll_shutdown(cx)
            }
            ready => ready,
        }
    }

    /// Close our side of the connection.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        match ready!(Pin::new(&mut self.io).poll_shutdown(cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(_) => Poll::Ready(Err(self.fail())),
        }
    }

    /// Writing is stuck: the client is gone if nothing moves for too long. A tunnel may stand still.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        if self.is_tunnel() {
            return Poll::Pending;
        }
        let since = *self.stalled_since.get_or_insert_with(Instant::now);
        ready!(
            self.stall_alarm
                .poll_at(cx, since + self.limits.write_stall)
        );
        // A close now must not wait for the kernel's own patience.
        self.io.reset_on_close();
        Poll::Ready(Err(self.fail()))
    }

    pub(super) fn is_tunnel(&self) -> bool {
        matches!(
            self.answer,
            AnswerState::Open(Framing::Tunnel) | AnswerState::Ended(Framing::Tunnel)
        )
    }

    pub(super) fn head_sent(&self) -> bool {
        !matches!(
            self.answer,
            AnswerState::Waiting | AnswerState::Aborted(None)
        )
    }

    /// What becomes of the connection, now that the exchange is over.
    pub(super) fn ending(&mut self) -> Ending {
        if let AnswerState::Open(framing) = self.answer {
            self.answer = AnswerState::Aborted(Some(framing));
        }
        let framing = match self.answer {
            AnswerState::Ended(framing) if !self.broken => framing,
            _ => return Ending::Broken,
        };
        if framing == Framing::Tunnel {
            return Ending::Close;
        }
        if !self.read_to_end() {
            return Ending::Linger;
        }
        match self.keep && framing != Framing::UntilClose {
            true => Ending::Next,
            // Bytes behind the last request would turn the close into a reset.
            false if !self.input.is_empty() => Ending::Linger,
            false => Ending::Close,
        }
    }

    /// Throw away what is left of the body in the buffer; true if that was its end.
    fn read_to_end(&mut self) -> bool {
        loop {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(Decoded::Data(_) | Decoded::Trailers(_))) => {}
                Ok(Some(Decoded::End)) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// A plain close would be taken for the answer's clean end, and not all of it went out.
    fn is_cut_short(&self) -> bool {
        const BY_CLOSE: [Framing; 2] = [Framing::UntilClose, Framing::Tunnel];
        match self.answer {
            AnswerState::Open(framing) | AnswerState::Aborted(Some(framing)) => {
                BY_CLOSE.contains(&framing)
            }
            AnswerState::Ended(framing) => {
                let unsent = self.broken || self.unflushed || !self.output.is_empty();
                unsent && BY_CLOSE.contains(&framing)
            }
            AnswerState::Waiting | AnswerState::Aborted(None) => false,
        }
    }
}

impl<IO: Transport> Drop for Core<IO> {
    fn drop(&mut self) {
        if self.is_cut_short() {
            self.io.reset_on_close();
        }
    }
}

fn expects(headers: &HeaderMap) -> bool {
    headers
        .get(header::EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
