//! HTTP/1.1 to the app through one tunnel stream, one exchange at a time.
//!
//! Offsets are exact: one byte of the stream is one byte for the app's socket. Bytes from the app
//! count as this exchange's answer only once the agent has said that bytes of the exchange were
//! written; what came before that is a leftover, which BEGIN turns into a proven `stale`.
//! Anything behind a complete answer means that the app is broken, found before its last byte is
//! passed on.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bridgehead_protocol::conn::{Ended, View};
use bridgehead_protocol::io::{StreamControl, StreamEnded, TunnelStream};
use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::wire::{Begin, FinalCause};
use bytes::{Bytes, BytesMut};
use http::{Method, header};

use super::{AnswerLength, AppEvent, AppFault, AppHead, AppSide, Offsets, RequestHead};
use crate::h1::HeadScan;
use crate::h1::decode::{BodyDecoder, Decoded};
use crate::h1::encode;
use crate::h1::head::{HeadLimits, ResponseFraming, ResponseHead, response_head};
use crate::request::front::{BodyLength, BodyPart};

/// Bytes taken from the stream at once.
const READ: usize = 64 * 1024;
/// 1xx heads an app may send in one exchange; more is a storm.
const MAX_INFORMATIONAL: u32 = 16;

enum Reading {
    Head(HeadScan),
    Body(BodyDecoder),
    Pipe,
    Done,
}

/// One exchange.
pub struct Http1Exchange {
    stream: TunnelStream,
    method: Method,
    /// Head and body bytes that the tunnel has not taken yet; front first.
    pending: Bytes,
    behind: Option<Bytes>,
    chunked: bool,
    reading: Reading,
    inbox: BytesMut,
    informational: u32,
    keep_alive: bool,
    trusted: bool,
    received_before: u64,
    start: u64,
    head_len: u64,
    /// Bytes of the exchange that the tunnel took. The core's own count shrinks when it forgets.
    handed_over: u64,
    sent_whole: bool,
}

impl Http1Exchange {
    /// Begins an exchange: BEGIN and the head are queued in one step. `remaining`: time left for
    /// its first byte to reach the app.
    pub fn begin(
        stream: TunnelStream,
        head: RequestHead,
        request: u128,
        remaining: Duration,
    ) -> Self {
        let view = stream.control().view();
        // What came but was not read belongs to no exchange: the agent then counts more than this
        // and calls the connection stale.
        let start = stream.control().begin(Begin {
            request,
            remaining,
            expect_read: (!Bug::LeftoverKept.bites()).then_some(view.taken),
        });
        let sent_whole =
            matches!(head.body, BodyLength::None | BodyLength::Exact(0)) && head.upgrade.is_none();
        let (method, chunked) = (head.method.clone(), head.body == BodyLength::Streamed);
        let mut bytes = BytesMut::with_capacity(1024);
        write_head(&mut bytes, head);
        let head_len = bytes.len() as u64;
        Self {
            stream,
            method,
            pending: bytes.freeze(),
            behind: None,
            chunked,
            reading: Reading::Head(HeadScan::response()),
            inbox: BytesMut::new(),
            informational: 0,
            keep_alive: false,
            trusted: false,
            received_before: view.taken,
            start,
            head_len,
            handed_over: 0,
            sent_whole,
        }
    }

    /// The connection, if it may serve another exchange.
    #[must_use]
    pub fn into_kept(self) -> Option<TunnelStream> {
        let done = matches!(self.reading, Reading::Done) && self.inbox.is_empty();
        let sent = self.sent_whole && self.pending.is_empty() && self.behind.is_none();
        // An app that answered before it took the whole request may never take the rest.
        let view = self.stream.control().view();
        let taken = view.consumed >= view.queued_to;
        (done && sent && taken && self.keep_alive).then_some(self.stream)
    }

    /// Bytes that the app had said on the stream before.
    #[must_use]
    pub fn read_before(&self) -> u64 {
        self.received_before
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamEnded>> {
        loop {
            if self.pending.is_empty() {
                match self.behind.take() {
                    Some(next) => self.pending = next,
                    None => return Poll::Ready(Ok(())),
                }
            }
            ready!(self.stream.poll_writable(cx))?;
            self.handed_over += self.stream.write(&mut self.pending) as u64;
        }
    }

    fn queue(&mut self, bytes: Bytes) {
        if self.pending.is_empty() {
            self.pending = bytes;
        } else {
            debug_assert!(self.behind.is_none());
            self.behind = Some(bytes);
        }
    }

    /// Bytes may be read as this exchange's answer: the agent said that it wrote some of it.
    fn poll_trust(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AppFault>> {
        while !self.trusted {
            let view = self.stream.control().view();
            if written_at_least(&view) > self.start {
                self.trusted = true;
            } else if let Some(ended) = view.ended {
                return Poll::Ready(Err(AppFault::Ended(ended)));
            } else {
                // News of either kind: look again.
                ready!(self.stream.control().poll_took(cx, self.start));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Copies only where something waits already, or where somebody else has the bytes too.
    fn take_in(&mut self, bytes: Bytes) {
        if !self.inbox.is_empty() {
            return self.inbox.extend_from_slice(&bytes);
        }
        self.inbox = match bytes.try_into_mut() {
            Ok(own) => own,
            Err(shared) => BytesMut::from(&shared[..]),
        };
    }

    /// More bytes into the inbox; `false` at the app's end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, AppFault>> {
        match ready!(self.stream.poll_read(cx, READ)) {
            Ok(Some(bytes)) => {
                self.take_in(bytes);
                Poll::Ready(Ok(true))
            }
            Ok(None) => Poll::Ready(Ok(false)),
            Err(StreamEnded(Ended::Final {
                cause: FinalCause::AppClosed,
                ..
            })) if self.has_answer() => Poll::Ready(Ok(false)),
            Err(StreamEnded(ended)) => Poll::Ready(Err(AppFault::Ended(ended))),
        }
    }

    fn has_answer(&self) -> bool {
        matches!(self.reading, Reading::Body(_) | Reading::Pipe)
    }

    fn take_head(&mut self, len: usize) -> Result<AppEvent, AppFault> {
        let bytes = self.inbox.split_to(len).freeze();
        let head = response_head(bytes, &HeadLimits::APP, &self.method)
            .map_err(|_| AppFault::BadHttp("bad_head"))?;
        if head.is_informational {
            self.informational += 1;
            if self.informational > MAX_INFORMATIONAL {
                return Err(AppFault::BadHttp("a storm of informational answers"));
            }
            self.reading = Reading::Head(HeadScan::response());
            return Ok(AppEvent::Informational(head.status, head.headers));
        }
        self.start_body(head)
    }

    fn start_body(&mut self, head: ResponseHead) -> Result<AppEvent, AppFault> {
        let pipe = head.status == http::StatusCode::SWITCHING_PROTOCOLS;
        self.keep_alive = head.keep_alive && !pipe;
        let length = match head.framing {
            _ if pipe => AnswerLength::Pipe,
            ResponseFraming::None => AnswerLength::None,
            ResponseFraming::Length(0) => AnswerLength::Exact(0),
            ResponseFraming::Length(n) => AnswerLength::Exact(n),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => AnswerLength::Streamed,
        };
        self.reading = if pipe {
            Reading::Pipe
        } else {
            Reading::Body(BodyDecoder::response(head.framing))
        };
        self.refuse_surplus()?;
        let (status, reason, headers, upgrade) =
            (head.status, head.reason, head.headers, head.upgrade);
        Ok(AppEvent::Head(AppHead {
            status,
            reason,
            headers,
            length,
            upgrade,
        }))
    }

    /// Bytes behind a complete answer belong to nobody.
    fn refuse_surplus(&self) -> Result<(), AppFault> {
        match &self.reading {
            Reading::Body(decoder) if decoder.is_done() && !self.inbox.is_empty() => {
                Err(AppFault::BadHttp("bytes behind a complete answer"))
            }
            _ => Ok(()),
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>> {
        loop {
            if let Reading::Head(scan) = &mut self.reading {
                if !begins_like_http(&self.inbox) {
                    return Poll::Ready(Err(AppFault::BadHttp("no HTTP")));
                }
                match scan.scan(&self.inbox, &HeadLimits::APP) {
                    Ok(Some(len)) => return Poll::Ready(self.take_head(len)),
                    Ok(None) => {}
                    Err(_) => return Poll::Ready(Err(AppFault::BadHttp("bad_head"))),
                }
            }
            if !ready!(self.poll_more(cx))? {
                let ended = self.stream.control().view().ended;
                return Poll::Ready(Err(
                    ended.map_or(AppFault::BadHttp("half a head"), AppFault::Ended)
                ));
            }
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>> {
        loop {
            let Reading::Body(decoder) = &mut self.reading else {
                return Poll::Ready(Ok(AppEvent::End));
            };
            let decoded = decoder
                .decode(&mut self.inbox)
                .map_err(|error| AppFault::BadHttp(error.as_str()))?;
            let event = match decoded {
                Some(Decoded::Data(bytes)) => Some(AppEvent::Data(bytes)),
                Some(Decoded::Trailers(trailers)) => Some(AppEvent::Trailers(trailers)),
                Some(Decoded::End) => Some(AppEvent::End),
                None => None,
            };
            if let Some(event) = event {
                self.refuse_surplus()?;
                if matches!(event, AppEvent::End | AppEvent::Trailers(_)) {
                    self.reading = Reading::Done;
                }
                return Poll::Ready(Ok(event));
            }
            if !ready!(self.poll_more(cx))? {
                return Poll::Ready(self.app_end());
            }
        }
    }

    fn app_end(&mut self) -> Result<AppEvent, AppFault> {
        let Reading::Body(decoder) = &mut self.reading else {
            return Ok(AppEvent::End);
        };
        let ended = decoder.decode_eof();
        self.keep_alive = false;
        if ended.is_err() {
            let view = self.stream.control().view();
            let terminal = view.ended.unwrap_or(Ended::Lost);
            return Err(AppFault::Ended(terminal));
        }
        self.reading = Reading::Done;
        Ok(AppEvent::End)
    }

    fn poll_pipe(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>> {
        if !self.inbox.is_empty() {
            return Poll::Ready(Ok(AppEvent::Data(self.inbox.split().freeze())));
        }
        match ready!(self.stream.poll_read(cx, READ)) {
            Ok(Some(bytes)) => Poll::Ready(Ok(AppEvent::Data(bytes))),
            Ok(None)
            | Err(StreamEnded(Ended::Final {
                cause: FinalCause::AppClosed,
                ..
            })) => {
                self.reading = Reading::Done;
                Poll::Ready(Ok(AppEvent::End))
            }
            Err(StreamEnded(ended)) => Poll::Ready(Err(AppFault::Ended(ended))),
        }
    }
}

/// What cannot become an answer is known by its first bytes, without waiting for a head's end.
fn begins_like_http(bytes: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"HTTP/1.";
    let known = bytes.len().min(BEGINNING.len());
    bytes[..known] == BEGINNING[..known]
}

/// Bytes of the stream that the app's socket accepted for certain.
fn written_at_least(view: &View) -> u64 {
    let terminal = match view.ended {
        Some(Ended::Final { written, .. }) => written,
        _ => view.counted.map_or(0, |counted| counted.written),
    };
    terminal.max(view.consumed)
}

impl AppSide for Http1Exchange {
    fn control(&self) -> &StreamControl {
        self.stream.control()
    }

    fn offsets(&self) -> Offsets {
        let view = self.stream.control().view();
        let trusted = self.trusted || written_at_least(&view) > self.start;
        let all_taken = self.sent_whole && self.pending.is_empty() && self.behind.is_none();
        Offsets {
            start: self.start,
            head: self.head_len,
            whole: all_taken.then_some(self.handed_over),
            so_far: self.handed_over,
            answer: if trusted {
                view.received.saturating_sub(self.received_before)
            } else {
                0
            },
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AppFault>> {
        let drained = ready!(self.poll_drain(cx));
        let writable = match drained {
            Ok(()) => ready!(self.stream.poll_writable(cx)),
            Err(ended) => Err(ended),
        };
        Poll::Ready(writable.map_err(|StreamEnded(ended)| AppFault::Ended(ended)))
    }

    fn send(&mut self, part: BodyPart) {
        match part {
            BodyPart::Data(bytes) if self.chunked => {
                let mut framed = BytesMut::with_capacity(bytes.len() + 16);
                encode::chunk_header(&mut framed, bytes.len());
                framed.extend_from_slice(&bytes);
                encode::chunk_end(&mut framed, bytes.len());
                self.queue(framed.freeze());
            }
            BodyPart::Data(bytes) => self.queue(bytes),
            BodyPart::Trailers(trailers) => {
                self.end(Some(trailers));
            }
            BodyPart::End => self.end(None),
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>> {
        // The head goes out even while nobody offers a body.
        if !self.pending.is_empty() {
            let _ = self.poll_drain(cx);
        }
        ready!(self.poll_trust(cx))?;
        match self.reading {
            Reading::Head(_) => self.poll_head(cx),
            Reading::Body(_) => self.poll_body(cx),
            Reading::Pipe => self.poll_pipe(cx),
            Reading::Done => Poll::Ready(Ok(AppEvent::End)),
        }
    }
}

impl Http1Exchange {
    fn end(&mut self, trailers: Option<http::HeaderMap>) {
        self.sent_whole = true;
        if matches!(self.reading, Reading::Pipe) {
            self.stream.finish();
            return;
        }
        if self.chunked {
            let mut bytes = BytesMut::new();
            match trailers {
                Some(trailers) => encode::last_chunk_with(&mut bytes, &trailers),
                None => encode::last_chunk(&mut bytes),
            }
            self.queue(bytes.freeze());
        }
    }
}

fn write_head(out: &mut BytesMut, head: RequestHead) {
    let mut headers = head.headers;
    match head.body {
        BodyLength::None | BodyLength::Tunnel => {}
        BodyLength::Exact(n) => {
            headers.insert(header::CONTENT_LENGTH, n.into());
        }
        BodyLength::Streamed => {
            headers.insert(
                header::TRANSFER_ENCODING,
                http::HeaderValue::from_static("chunked"),
            );
        }
    }
    if head.expect_continue {
        headers.insert(
            header::EXPECT,
            http::HeaderValue::from_static("100-continue"),
        );
    }
    if head.te_trailers {
        headers.insert(header::TE, http::HeaderValue::from_static("trailers"));
    }
    let connection = match (&head.upgrade, head.te_trailers) {
        (Some(_), _) => Some("upgrade"),
        (None, true) => Some("te"),
        (None, false) => None,
    };
    if let Some(connection) = connection {
        headers.insert(
            header::CONNECTION,
            http::HeaderValue::from_static(connection),
        );
    }
    if let Some(upgrade) = head.upgrade {
        headers.insert(header::UPGRADE, upgrade);
    }
    debug_assert!(headers.contains_key(header::HOST));
    encode::request_head(out, &head.method, &head.target, &headers);
}

#[cfg(test)]
#[path = "h1_tests.rs"]
mod tests;
