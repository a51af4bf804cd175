//! The reading half of an HTTP/1 exchange.
//!
//! A GET that asks for an upgrade has no body: it ends at once, and what the client sent behind it
//! stays in the buffer until the answer's head is [`AnswerBody::Tunnel`]; from then on the same
//! half gives those bytes and all that follow, until the client closes its side.
//!
//! [`AnswerBody::Tunnel`]: crate::request::front::AnswerBody::Tunnel

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use super::core::{Continue, Core, Fill, READ_MOST};
use crate::accept::Transport;
use crate::h1::{BodyDecoder, BodyError, Decoded};
use crate::request::front::{BodyLength, BodyPart, ClientBody, ClientFault};

pub(super) struct Body<'a, IO: Transport> {
    core: &'a Mutex<Core<IO>>,
}

impl<'a, IO: Transport> Body<'a, IO> {
    pub(super) fn new(core: &'a Mutex<Core<IO>>) -> Self {
        Self { core }
    }

    fn lock(&self) -> MutexGuard<'_, Core<IO>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<IO: Transport> ClientBody for Body<'_, IO> {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPart, ClientFault>> {
        self.lock().poll_part(cx)
    }

    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.lock().poll_left(cx)
    }

    fn bytes_read(&self) -> u64 {
        self.lock().taken
    }
}

impl<IO: Transport> Core<IO> {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPart, ClientFault>> {
        if let Some(fault) = self.fault {
            return Poll::Ready(Err(fault));
        }
        if self.is_tunnel() && !self.switched && self.decoder.is_done() {
            self.decoder = BodyDecoder::request(BodyLength::Tunnel);
            self.switched = true;
        }
        loop {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(piece)) => return Poll::Ready(Ok(self.take(piece))),
                Ok(None) => {}
                Err(error) => return self.malformed(error),
            }
            self.send_continue();
            self.write_once(cx);
            match self.poll_fill(cx, READ_MOST) {
                Poll::Ready(Fill::Bytes) => {}
                Poll::Ready(Fill::Broken) => return self.failed(ClientFault::Left),
                Poll::Ready(Fill::End) => {
                    return match self.decoder.decode_eof() {
                        Ok(piece) => Poll::Ready(Ok(self.take(piece))),
                        Err(error) => self.malformed(error),
                    };
                }
                Poll::Pending => {
                    if self.upload_limited && !self.head_sent() {
                        ready!(self.upload.poll_slow(cx, &self.limits));
                        return self.failed(ClientFault::TooSlow);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn take(&mut self, piece: Decoded) -> BodyPart {
        match piece {
            Decoded::Data(data) => {
                self.taken += data.len() as u64;
                self.upload.progress(data.len());
                BodyPart::Data(data)
            }
            Decoded::Trailers(map) => BodyPart::Trailers(map),
            Decoded::End => BodyPart::End,
        }
    }

    /// The body is wanted now, and the client waits to be told so. A client that sends anyway needs
    /// no telling.
    fn send_continue(&mut self) {
        if self.expect == Continue::Wanted && !self.head_sent() {
            if self.input.is_empty() && self.taken == 0 {
                self.push_continue();
            }
            self.expect = Continue::Sent;
        }
    }

    pub(super) fn push_continue(&mut self) {
        self.output
            .tail()
            .extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    fn malformed(&mut self, error: BodyError) -> Poll<Result<BodyPart, ClientFault>> {
        self.failed(ClientFault::Malformed(error.as_str()))
    }

    fn failed(&mut self, fault: ClientFault) -> Poll<Result<BodyPart, ClientFault>> {
        self.keep = false;
        self.fault = Some(fault);
        Poll::Ready(Err(fault))
    }
}
