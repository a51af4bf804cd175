//! A tunnel stream as the `h2` crate's I/O, with every byte followed by its frames.
//!
//! Once the stream takes nothing more, writes vanish instead of failing: the crate would otherwise
//! drop what the app has said already and nobody has read yet. The stream's own end shows up as
//! the end of reading; why it ended is asked of the stream, never of an I/O error.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bridgehead_protocol::io::TunnelStream;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Got, Sent};

/// Bytes put together for one write; the crate's frames are no longer than that by default.
const WRITE: usize = 16 * 1024 + 64;

/// The stream and what went over it. Locked shortly, by the task that has the exchange.
pub(super) struct Wire {
    stream: TunnelStream,
    pub(super) sent: Sent,
    pub(super) got: Got,
    /// Taken before the stream had room; only the preface is.
    held: Bytes,
    is_shaking: bool,
}

impl Wire {
    /// True if all that the crate has written was taken by the stream.
    pub(super) fn is_drained(&self) -> bool {
        self.held.is_empty()
    }

    /// The stream would take more.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_writable(cx).map(drop)
    }

    fn poll_take(&mut self, cx: &mut Context<'_>, mut bytes: Bytes) -> Poll<usize> {
        let len = bytes.len();
        if ready!(self.stream.poll_writable(cx)).is_err() {
            return Poll::Ready(len);
        }
        let all = bytes.clone();
        let count = self.stream.write(&mut bytes);
        self.sent.feed(&all[..count]);
        Poll::Ready(count)
    }

    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.held.is_empty() {
            let count = ready!(self.poll_take(cx, self.held.clone()));
            self.held.advance(count);
        }
        Poll::Ready(())
    }
}

/// One end of the wire, for the crate.
pub(super) struct Pipe(Arc<Mutex<Wire>>);

pub(super) fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A wire over `stream`, which takes the crate's preface even without room for it.
pub(super) fn pipe(stream: TunnelStream) -> (Pipe, Arc<Mutex<Wire>>) {
    let wire = Arc::new(Mutex::new(Wire {
        stream,
        sent: Sent::new(),
        got: Got::new(),
        held: Bytes::new(),
        is_shaking: true,
    }));
    (Pipe(Arc::clone(&wire)), wire)
}

/// The crate's handshake is done.
pub(super) fn shaken(wire: &Mutex<Wire>) {
    lock(wire).is_shaking = false;
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wire = lock(&self.0);
        if let Ok(Some(bytes)) = ready!(wire.stream.poll_read(cx, buf.remaining())) {
            wire.got.feed(&bytes);
            if wire.got.breach().is_none() {
                buf.put_slice(&bytes);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut bytes = BytesMut::with_capacity(slices.iter().map(|s| s.len()).sum());
        for slice in slices {
            let room = WRITE.saturating_sub(bytes.len());
            bytes.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let mut wire = lock(&self.0);
        if wire.is_shaking {
            let len = bytes.len();
            wire.held = bytes.freeze();
            return Poll::Ready(Ok(len));
        }
        ready!(wire.poll_held(cx));
        wire.poll_take(cx, bytes.freeze()).map(Ok)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The driver emits as credit allows; only what was held is waited for.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = lock(&self.0);
        if wire.is_shaking {
            return Poll::Ready(Ok(()));
        }
        wire.poll_held(cx).map(Ok)
    }

    /// The stream's owner ends it.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
