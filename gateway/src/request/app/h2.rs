//! HTTP/2 to the app, one exchange at a time on a connection of its own.
//!
//! The connection is driven by the polls of its exchange. Bytes count as an answer from the first
//! HEADERS frame of this exchange's stream, never for SETTINGS and the like; the request is whole
//! when the frame that ends it is in the tunnel. What the app says with RST_STREAM or GOAWAY ends
//! the exchange and proves nothing: only counted bytes do. A WebSocket goes by extended CONNECT and
//! is told as the protocol switch that the corridor knows.

mod head;

#[cfg(test)]
mod faults_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bridgehead_protocol::conn::View;
use bridgehead_protocol::io::StreamControl;
use bridgehead_protocol::wire::{Begin, ResetCode};
use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};

use super::{AnswerLength, AppEvent, AppFault, AppHead, AppSide, Offsets, RequestHead};
use crate::h1::HeadLimits;
use crate::h1::fields::strip_forbidden_trailers;
use crate::request::front::{BodyLength, BodyPart};
use crate::tunnel::http2::Http2Connection;

/// An extended CONNECT that waits for the app's word that it takes one.
struct Waiting {
    request: Request<()>,
    begin: Begin,
}

enum Reading {
    Waiting(Box<Waiting>),
    Head(ResponseFuture),
    Body(RecvStream),
    Done,
    Failed(AppFault),
}

enum Ending {
    Plain,
    Trailers(HeaderMap),
}

/// One exchange.
pub struct Http2Exchange {
    connection: Box<Http2Connection>,
    /// For a WebSocket: what proves to the client that its handshake was understood.
    accept: Option<HeaderValue>,
    /// `None` once nothing more can be sent.
    sending: Option<SendStream<Bytes>>,
    pending: Bytes,
    ending: Option<Ending>,
    /// Body bytes given to the connection.
    given: u64,
    sent_end: bool,
    reading: Reading,
    /// The answer may have no body.
    bodiless: bool,
    /// Answer bytes handed on since the window grew.
    taken: u64,
    /// Bytes of the last piece, which the app's window still counts.
    unreleased: usize,
    /// Offset of its first byte; `None` while nothing of it was queued.
    start: Option<u64>,
}

impl Http2Exchange {
    /// Begins an exchange: BEGIN and the head are queued in one step. `remaining`: time left for
    /// its first byte to reach the app.
    #[must_use]
    pub fn begin(
        mut connection: Box<Http2Connection>,
        head: &RequestHead,
        request: u128,
        remaining: Duration,
    ) -> Self {
        let begin = Begin {
            request,
            remaining,
            expect_read: None,
        };
        // What the connection owes from before is not the request.
        connection.look();
        let mut exchange = Self {
            connection,
            accept: None,
            sending: None,
            pending: Bytes::new(),
            ending: None,
            given: 0,
            sent_end: false,
            reading: Reading::Done,
            bodiless: head.method == Method::HEAD,
            taken: 0,
            unreleased: 0,
            start: None,
        };
        match head::request(head) {
            Ok(request) if head.upgrade.is_some() => {
                exchange.accept = head::accept(&head.headers);
                exchange.reading = Reading::Waiting(Box::new(Waiting { request, begin }));
            }
            Ok(request) => {
                let bodiless = matches!(head.body, BodyLength::None | BodyLength::Exact(0));
                exchange.ask(request, begin, bodiless);
            }
            Err(fault) => exchange.reading = Reading::Failed(fault),
        }
        exchange
    }

    fn ask(&mut self, request: Request<()>, begin: Begin, ends: bool) {
        let start = self.connection.control().begin(begin);
        self.reading = match self.connection.ask(request, ends) {
            Ok((answer, stream)) => {
                self.start = Some(start);
                self.sending = (!ends).then_some(stream);
                self.sent_end = ends;
                Reading::Head(answer)
            }
            Err(error) => Reading::Failed(self.fault(error.as_ref())),
        };
        self.connection.look();
    }

    /// The connection, if it may serve another exchange. A request that its answer has overtaken is
    /// called off; a connection that ends here ends in an orderly way, for its answer is complete.
    #[must_use]
    pub fn into_kept(mut self) -> Option<Box<Http2Connection>> {
        if !matches!(self.reading, Reading::Done) {
            return None;
        }
        self.sending = None;
        if self.connection.is_usable() {
            return Some(self.connection);
        }
        self.connection.control().reset(ResetCode::Idle);
        None
    }

    /// Takes in what came since the last poll; it shows in the offsets.
    pub fn look(&mut self) {
        self.connection.look();
    }

    fn view(&self) -> View {
        self.connection.control().view()
    }

    /// What an error means. What the app broke by its bytes is told first, then what it said, then
    /// how its stream ended.
    fn fault(&self, error: Option<&h2::Error>) -> AppFault {
        if let Some(breach) = self.connection.breach() {
            return AppFault::BadHttp(breach);
        }
        let error = error.filter(|e| !e.is_io()).or(self.connection.error());
        match error {
            Some(e) if e.is_remote() => AppFault::GaveUp(code(e.reason())),
            Some(e) if e.is_library() => AppFault::BadHttp(code(e.reason())),
            _ => self
                .view()
                .ended
                .map_or(AppFault::GaveUp("the connection ended"), AppFault::Ended),
        }
    }

    /// Moves what waits into the connection, as far as the app's window and the send buffer allow.
    fn poll_give(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AppFault>> {
        let Some(stream) = &mut self.sending else {
            return Poll::Ready(Ok(()));
        };
        while !self.pending.is_empty() {
            stream.reserve_capacity(self.pending.len());
            let room = stream.capacity().min(self.pending.len());
            let given = if room > 0 {
                self.given += room as u64;
                stream
                    .send_data(self.pending.split_to(room), false)
                    .map_err(Some)
            } else {
                match ready!(stream.poll_capacity(cx)) {
                    Some(capacity) => capacity.map(drop).map_err(Some),
                    None => Err(None),
                }
            };
            if let Err(error) = given {
                return Poll::Ready(Err(self.refused(error.as_ref())));
            }
        }
        let ended = match self.ending.take() {
            None => return Poll::Ready(Ok(())),
            Some(Ending::Plain) => stream.send_data(Bytes::new(), true),
            Some(Ending::Trailers(trailers)) => stream.send_trailers(trailers),
        };
        self.sending = None;
        Poll::Ready(ended.map_err(|error| self.refused(Some(&error))))
    }

    fn refused(&mut self, error: Option<&h2::Error>) -> AppFault {
        self.sending = None;
        self.pending = Bytes::new();
        self.fault(error)
    }

    /// An extended CONNECT goes out once the app's SETTINGS say that it may.
    fn poll_allowed(&mut self) -> Poll<Result<(), AppFault>> {
        let Reading::Waiting(waiting) = &self.reading else {
            return Poll::Ready(Ok(()));
        };
        match self.connection.takes_connect() {
            None if self.connection.is_over() => Poll::Ready(Err(self.fault(None))),
            None => Poll::Pending,
            Some(false) => Poll::Ready(Err(AppFault::NoUpgrade(
                "the app speaks HTTP/2 without extended CONNECT",
            ))),
            Some(true) => {
                let (request, begin) = (waiting.request.clone(), waiting.begin);
                self.ask(request, begin, false);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>> {
        let Reading::Head(answer) = &mut self.reading else {
            return Poll::Ready(Ok(AppEvent::End));
        };
        if let Some(informational) = ready!(answer.poll_informational(cx)) {
            return Poll::Ready(match informational {
                Ok(head) if head.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    Err(AppFault::BadHttp("HTTP/2 knows no 101"))
                }
                Ok(head) => {
                    let (parts, ()) = head.into_parts();
                    Ok(AppEvent::Informational(parts.status, parts.headers))
                }
                Err(error) => Err(self.fault(Some(&error))),
            });
        }
        match ready!(Pin::new(answer).poll(cx)) {
            Ok(head) => Poll::Ready(self.start_body(head)),
            Err(error) => Poll::Ready(Err(self.fault(Some(&error)))),
        }
    }

    fn start_body(&mut self, head: Response<RecvStream>) -> Result<AppEvent, AppFault> {
        let (parts, body) = head.into_parts();
        let status = parts.status;
        if parts.headers.len() > HeadLimits::APP.max_fields {
            return Err(AppFault::BadHttp("too many fields"));
        }
        self.bodiless |= matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let ended = body.is_end_stream();
        self.reading = Reading::Body(body);
        let mut head = AppHead {
            status,
            reason: Bytes::new(),
            headers: parts.headers,
            length: AnswerLength::Streamed,
            upgrade: None,
        };
        if self.accept.is_some() && status.is_success() {
            head.status = StatusCode::SWITCHING_PROTOCOLS;
            head.length = AnswerLength::Pipe;
            head.upgrade = Some(HeaderValue::from_static(head::WEBSOCKET));
            if let Some(accept) = self.accept.clone() {
                head.headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
            }
            return Ok(AppEvent::Head(head));
        }
        head.length = if self.bodiless {
            AnswerLength::None
        } else if ended {
            AnswerLength::Exact(0)
        } else {
            head::length(&head.headers)?
        };
        Ok(AppEvent::Head(head))
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>> {
        loop {
            let Reading::Body(body) = &mut self.reading else {
                return Poll::Ready(Ok(AppEvent::End));
            };
            let data = match body.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => data,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(self.end(Err(error))),
                Poll::Ready(None) => {
                    let trailers = ready!(body.poll_trailers(cx));
                    return Poll::Ready(self.end(trailers));
                }
                Poll::Pending => {
                    self.widen(cx);
                    return Poll::Pending;
                }
            };
            if data.is_empty() {
                continue;
            }
            if self.bodiless {
                return Poll::Ready(Err(AppFault::BadHttp("a body where none may be")));
            }
            self.unreleased = data.len();
            self.taken += data.len() as u64;
            return Poll::Ready(Ok(AppEvent::Data(data)));
        }
    }

    /// More is wanted, so the client took the last piece: the app may send as much again.
    fn release(&mut self) {
        let went = std::mem::take(&mut self.unreleased);
        if went > 0
            && let Reading::Body(body) = &mut self.reading
            && body.flow_control().release_capacity(went).is_err()
        {
            debug_assert!(false, "more was released than came");
        }
    }

    /// A client that has taken a whole window and waits for more is quicker than the window.
    fn widen(&mut self, cx: &mut Context<'_>) {
        if self.taken >= u64::from(self.connection.window()) {
            self.taken = 0;
            self.connection.widen();
            self.connection.drive(cx);
        }
    }

    /// An answer that is here to its end is whole, whatever the app did behind it.
    fn end(
        &mut self,
        trailers: Result<Option<HeaderMap>, h2::Error>,
    ) -> Result<AppEvent, AppFault> {
        let trailers = match trailers {
            Ok(trailers) => trailers,
            Err(error) if error.is_library() || !self.connection.has_answered() => {
                return Err(self.fault(Some(&error)));
            }
            Err(_) => None,
        };
        self.reading = Reading::Done;
        let mut trailers = trailers.unwrap_or_default();
        strip_forbidden_trailers(&mut trailers);
        Ok(if trailers.is_empty() {
            AppEvent::End
        } else {
            AppEvent::Trailers(trailers)
        })
    }
}

impl AppSide for Http2Exchange {
    fn control(&self) -> &StreamControl {
        self.connection.control()
    }

    fn offsets(&self) -> Offsets {
        let Some(start) = self.start else {
            return Offsets::UNBEGUN;
        };
        let marks = self.connection.marks();
        let from_start = |end: u64| end.saturating_sub(start);
        Offsets {
            start,
            // Not begun yet: whatever was taken is less.
            head: marks.head.map_or(u64::MAX, from_start),
            whole: marks.whole.map(from_start),
            so_far: from_start(marks.so_far),
            answer: marks.answer,
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AppFault>> {
        if self.sent_end && self.ending.is_none() {
            return Poll::Ready(Ok(()));
        }
        let given = self.poll_give(cx);
        self.connection.drive(cx);
        ready!(given)?;
        let Some(stream) = &mut self.sending else {
            return match (&self.reading, self.sent_end) {
                (Reading::Waiting(_), _) => Poll::Pending,
                (_, true) => Poll::Ready(Ok(())),
                (_, false) => Poll::Ready(Err(self.fault(None))),
            };
        };
        stream.reserve_capacity(1);
        if stream.capacity() == 0 {
            let error = match ready!(stream.poll_capacity(cx)) {
                Some(Ok(_)) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            return Poll::Ready(Err(self.refused(error.as_ref())));
        }
        self.connection.poll_sent(cx, self.given).map(Ok)
    }

    fn send(&mut self, part: BodyPart) {
        if self.sent_end {
            return;
        }
        match part {
            BodyPart::Data(bytes) => {
                debug_assert!(self.pending.is_empty());
                self.pending = bytes;
            }
            BodyPart::Trailers(mut trailers) => {
                strip_forbidden_trailers(&mut trailers);
                self.sent_end = true;
                self.ending = Some(if trailers.is_empty() {
                    Ending::Plain
                } else {
                    Ending::Trailers(trailers)
                });
            }
            BodyPart::End => {
                self.sent_end = true;
                self.ending = Some(Ending::Plain);
            }
        }
    }

    fn exposure(&self) -> u64 {
        self.connection.exposure()
    }

    fn cap(&mut self, cap: u32) {
        self.connection.cap(cap);
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<AppEvent, AppFault>> {
        self.release();
        // A refusal to take more is no end: what the app has to say is read below.
        let _ = self.poll_give(cx);
        self.connection.drive(cx);
        if matches!(self.reading, Reading::Waiting(_)) {
            ready!(self.poll_allowed())?;
            self.connection.drive(cx);
        }
        if let Some(breach) = self.connection.breach() {
            return Poll::Ready(Err(AppFault::BadHttp(breach)));
        }
        match &self.reading {
            Reading::Waiting(_) => Poll::Pending,
            Reading::Head(_) => self.poll_head(cx),
            Reading::Body(_) => self.poll_body(cx),
            Reading::Done => Poll::Ready(Ok(AppEvent::End)),
            Reading::Failed(fault) => Poll::Ready(Err(*fault)),
        }
    }

    fn attend(&mut self, cx: &mut Context<'_>) {
        self.connection.drive(cx);
    }
}

/// An error code of HTTP/2 (RFC 9113 §7).
fn code(reason: Option<Reason>) -> &'static str {
    match reason {
        Some(Reason::NO_ERROR) => "NO_ERROR",
        Some(Reason::PROTOCOL_ERROR) => "PROTOCOL_ERROR",
        Some(Reason::INTERNAL_ERROR) => "INTERNAL_ERROR",
        Some(Reason::FLOW_CONTROL_ERROR) => "FLOW_CONTROL_ERROR",
        Some(Reason::SETTINGS_TIMEOUT) => "SETTINGS_TIMEOUT",
        Some(Reason::STREAM_CLOSED) => "STREAM_CLOSED",
        Some(Reason::FRAME_SIZE_ERROR) => "FRAME_SIZE_ERROR",
        Some(Reason::REFUSED_STREAM) => "REFUSED_STREAM",
        Some(Reason::CANCEL) => "CANCEL",
        Some(Reason::COMPRESSION_ERROR) => "COMPRESSION_ERROR",
        Some(Reason::CONNECT_ERROR) => "CONNECT_ERROR",
        Some(Reason::ENHANCE_YOUR_CALM) => "ENHANCE_YOUR_CALM",
        Some(Reason::INADEQUATE_SECURITY) => "INADEQUATE_SECURITY",
        Some(Reason::HTTP_1_1_REQUIRED) => "HTTP_1_1_REQUIRED",
        Some(_) | None => "an unknown error",
    }
}
