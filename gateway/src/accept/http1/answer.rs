//! The writing half of an HTTP/1 exchange.
//!
//! Adds what belongs to this connection and nothing else: `connection`, `transfer-encoding`, a
//! missing `content-length`. An answer to HEAD never gets a body here, whatever is offered.
//! [`ClientAnswer::poll_ready`] does not write while there is room, so that a head and its first
//! bytes leave in one packet; `poll_flush`, and waiting on the reading half, do.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};

use super::core::{AnswerState, Continue, Core, Framing};
use super::queue::CAPACITY;
use crate::accept::Transport;
use crate::h1::{encode, fields};
use crate::request::front::{Abort, AnswerBody, AnswerHead, ClientAnswer, ClientGone};

pub(super) struct Answer<'a, IO: Transport> {
    core: &'a Mutex<Core<IO>>,
}

impl<'a, IO: Transport> Answer<'a, IO> {
    pub(super) fn new(core: &'a Mutex<Core<IO>>) -> Self {
        Self { core }
    }

    fn lock(&self) -> MutexGuard<'_, Core<IO>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<IO: Transport> ClientAnswer for Answer<'_, IO> {
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

    fn abort(&mut self, _how: Abort) {
        self.lock().abort();
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        self.lock().poll_flush(cx)
    }

    fn head_sent(&self) -> bool {
        self.lock().head_sent()
    }

    fn bytes_written(&self) -> u64 {
        self.lock().written
    }
}

impl<IO: Transport> Core<IO> {
    fn informational(&mut self, status: StatusCode, headers: &HeaderMap) {
        let possible = self.version_11
            && self.answer == AnswerState::Waiting
            && status.is_informational()
            && status != StatusCode::SWITCHING_PROTOCOLS;
        // A client that does not read is not buried under hints.
        if !possible || self.output.len() >= CAPACITY {
            return;
        }
        if status == StatusCode::CONTINUE {
            if self.expect == Continue::Sent {
                return;
            }
            self.expect = Continue::Sent;
        }
        encode::response_head(self.output.tail(), status, None, headers);
    }

    fn send_head(&mut self, mut head: AnswerHead) {
        debug_assert_eq!(self.answer, AnswerState::Waiting, "one final head");
        if self.answer != AnswerState::Waiting {
            return;
        }
        let framing = self.frame(&mut head);
        // An error before the body was read: its rest will not be waited for.
        let gives_up = !self.decoder.is_done() && head.status.as_u16() >= 400;
        self.keep &= !head.close
            && !gives_up
            && !self.draining()
            && !self.limits.pressure.is_tight()
            && !matches!(framing, Framing::UntilClose | Framing::Tunnel);
        if let Some(value) = self.connection(&head, framing) {
            head.headers
                .insert(header::CONNECTION, HeaderValue::from_static(value));
        }
        let reason = head.reason_phrase.as_deref();
        encode::response_head(self.output.tail(), head.status, reason, &head.headers);
        self.answer = AnswerState::Open(framing);
    }

    /// Decide the framing and write its fields.
    fn frame(&self, head: &mut AnswerHead) -> Framing {
        head.headers.remove(header::TRANSFER_ENCODING);
        let status = head.status;
        let never_has_body = self.bodiless
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED
            || status.is_informational();
        match head.body {
            AnswerBody::Tunnel => Framing::Tunnel,
            AnswerBody::Exact(length) if self.bodiless => {
                let value = HeaderValue::from(length);
                head.headers.insert(header::CONTENT_LENGTH, value);
                Framing::Empty
            }
            _ if never_has_body => Framing::Empty,
            AnswerBody::Empty => {
                let zero = HeaderValue::from_static("0");
                head.headers.insert(header::CONTENT_LENGTH, zero);
                Framing::Empty
            }
            AnswerBody::Exact(length) => {
                let value = HeaderValue::from(length);
                head.headers.insert(header::CONTENT_LENGTH, value);
                Framing::Exact(length)
            }
            AnswerBody::Streamed => {
                head.headers.remove(header::CONTENT_LENGTH);
                if !self.version_11 {
                    return Framing::UntilClose;
                }
                let chunked = HeaderValue::from_static("chunked");
                head.headers.insert(header::TRANSFER_ENCODING, chunked);
                Framing::Chunked
            }
        }
    }

    fn connection(&self, head: &AnswerHead, framing: Framing) -> Option<&'static str> {
        match framing {
            Framing::Tunnel if head.status == StatusCode::SWITCHING_PROTOCOLS => Some("upgrade"),
            Framing::Tunnel => None,
            _ if !self.keep => Some("close"),
            _ if !self.version_11 => Some("keep-alive"),
            _ => None,
        }
    }

    fn send_data(&mut self, chunk: &mut Bytes) {
        let AnswerState::Open(framing) = &mut self.answer else {
            debug_assert!(false, "data outside of an open answer");
            return chunk.clear();
        };
        let mut take = chunk.len().min(self.output.room());
        match framing {
            // HEAD and its like: the body is not for this client.
            Framing::Empty => return chunk.clear(),
            Framing::Exact(left) => {
                debug_assert!(chunk.len() as u64 <= *left, "more than was announced");
                take = take.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= take as u64;
                if *left == 0 {
                    let piece = chunk.split_to(take);
                    self.written += piece.len() as u64;
                    chunk.clear();
                    return self.output.push(piece);
                }
            }
            Framing::Chunked => encode::chunk_header(self.output.tail(), take),
            Framing::UntilClose | Framing::Tunnel => {}
        }
        let chunked = *framing == Framing::Chunked;
        self.written += take as u64;
        self.output.push(chunk.split_to(take));
        if chunked {
            encode::chunk_end(self.output.tail(), take);
        }
    }

    fn send_end(&mut self, trailers: Option<HeaderMap>) {
        let AnswerState::Open(framing) = self.answer else {
            debug_assert!(false, "an end outside of an open answer");
            return;
        };
        match framing {
            Framing::Exact(1..) => return self.abort(),
            Framing::Chunked => match trailers {
                Some(mut map) => {
                    fields::strip_forbidden_trailers(&mut map);
                    encode::last_chunk_with(self.output.tail(), &map);
                }
                None => encode::last_chunk(self.output.tail()),
            },
            Framing::Exact(0) | Framing::Empty | Framing::UntilClose | Framing::Tunnel => {}
        }
        self.answer = AnswerState::Ended(framing);
    }

    fn abort(&mut self) {
        self.answer = match self.answer {
            AnswerState::Waiting => AnswerState::Aborted(None),
            AnswerState::Open(framing) => AnswerState::Aborted(Some(framing)),
            over @ (AnswerState::Ended(_) | AnswerState::Aborted(_)) => over,
        };
        self.keep = false;
    }
}
