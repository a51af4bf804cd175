//! The reading half of an HTTP/2 exchange.
//!
//! For CONNECT (plain or extended) nothing is given before the answer has opened the tunnel.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use h2::RecvStream;
use http::header::{self, HeaderMap};

use super::answer::Out;
use super::head::padded;
use crate::accept::Limits;
use crate::accept::upload::UploadWatch;
use crate::h1::fields::strip_forbidden_trailers;
use crate::request::front::{BodyLength, BodyPart, ClientBody, ClientFault, RawHead};
use crate::request::normalize::may_fall_silent;

pub(super) struct Body<'a> {
    recv: RecvStream,
    out: &'a Mutex<Out>,
    limits: Arc<Limits>,
    upload: UploadWatch,
    upload_limited: bool,
    wants_continue: bool,
    /// The body is what follows after CONNECT.
    tunnel: bool,
    ended: bool,
    fault: Option<ClientFault>,
    taken: u64,
    /// Bytes of the last part, which the client's windows still count: they lie here or behind.
    unreleased: usize,
}

impl<'a> Body<'a> {
    pub(super) fn new(
        recv: RecvStream,
        head: &RawHead,
        out: &'a Mutex<Out>,
        limits: &Arc<Limits>,
    ) -> Self {
        let tunnel = head.body == BodyLength::Tunnel;
        let expects = starts_with(&head.headers, header::EXPECT, b"100-continue");
        Self {
            upload_limited: !may_fall_silent(head),
            wants_continue: expects && !recv.is_end_stream(),
            ended: !tunnel && recv.is_end_stream(),
            recv,
            out,
            limits: Arc::clone(limits),
            upload: UploadWatch::default(),
            tunnel,
            fault: None,
            taken: 0,
            unreleased: 0,
        }
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed<T>(&mut self, fault: ClientFault) -> Poll<Result<T, ClientFault>> {
        self.fault = Some(fault);
        Poll::Ready(Err(fault))
    }

    /// `h2` gave up on the stream: by itself because the client broke a rule, or because it is gone.
    fn broken<T>(&mut self, error: &h2::Error) -> Poll<Result<T, ClientFault>> {
        match error.is_library() && error.is_reset() {
            true => self.failed(ClientFault::Malformed(
                "the body breaks the rules of HTTP/2",
            )),
            false => self.failed(ClientFault::Left),
        }
    }
}

impl ClientBody for Body<'_> {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPart, ClientFault>> {
        if let Some(fault) = self.fault {
            return Poll::Ready(Err(fault));
        }
        if self.ended {
            return Poll::Ready(Ok(BodyPart::End));
        }
        if self.tunnel {
            ready!(self.out().poll_tunnel(cx));
        }
        if std::mem::take(&mut self.wants_continue) {
            self.out().send_continue();
        }
        // More is wanted, so the last part went its way: the client may send as much again. It fails only
        // on a stream that the next poll will report as gone.
        if self.unreleased > 0 {
            let went = std::mem::take(&mut self.unreleased);
            let _gone = self.recv.flow_control().release_capacity(went);
        }
        loop {
            match self.recv.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    if data.is_empty() {
                        continue;
                    }
                    self.unreleased = data.len();
                    self.taken += data.len() as u64;
                    self.upload.progress(data.len());
                    return Poll::Ready(Ok(BodyPart::Data(data)));
                }
                Poll::Ready(Some(Err(error))) => return self.broken(&error),
                Poll::Ready(None) => break,
                Poll::Pending => {
                    if self.upload_limited && !self.out().head_sent() {
                        ready!(self.upload.poll_slow(cx, &self.limits));
                        return self.failed(ClientFault::TooSlow);
                    }
                    return Poll::Pending;
                }
            }
        }
        match ready!(self.recv.poll_trailers(cx)) {
            Ok(trailers) => {
                self.ended = true;
                let mut map = trailers.unwrap_or_default();
                // RFC 9113 §8.2.1; `h2` does not look.
                if map.values().any(|value| padded(value.as_bytes())) {
                    return self.failed(ClientFault::Malformed(
                        "a trailer begins or ends with a blank",
                    ));
                }
                strip_forbidden_trailers(&mut map);
                Poll::Ready(Ok(match map.is_empty() {
                    true => BodyPart::End,
                    false => BodyPart::Trailers(map),
                }))
            }
            Err(error) => self.broken(&error),
        }
    }

    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.out().poll_left(cx)
    }

    fn bytes_read(&self) -> u64 {
        self.taken
    }
}

fn starts_with(headers: &HeaderMap, name: header::HeaderName, prefix: &[u8]) -> bool {
    headers.get(name).is_some_and(|value| {
        let start = value.as_bytes().get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    })
}
