//! Bytes on their way out: small pieces are copied together, large ones are kept as they are.
//!
//! Bounded by its user: [`WriteQueue::room`] says how much more may be queued.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

/// Most body bytes that are queued for one client.
pub(super) const CAPACITY: usize = 64 * 1024;

/// Pieces below this are copied: cheaper than one more entry of a vectored write.
const COPY_BELOW: usize = 2048;

/// Entries of one vectored write.
const SLICES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// Whole pieces, oldest first.
    pieces: VecDeque<Bytes>,
    /// Copied bytes after the last piece.
    tail: BytesMut,
    /// Bytes in `pieces`.
    in_pieces: usize,
}

impl WriteQueue {
    pub(super) fn len(&self) -> usize {
        self.in_pieces + self.tail.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Body bytes that may still be queued; zero until a worthwhile piece fits, so that a slow
    /// client does not cut an answer into crumbs.
    pub(super) fn room(&self) -> usize {
        match CAPACITY.saturating_sub(self.len()) {
            crumbs if crumbs < CAPACITY / 4 => 0,
            room => room,
        }
    }

    /// Where small things (heads, chunk lines) are written to.
    pub(super) fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.len() < COPY_BELOW {
            self.tail.extend_from_slice(&piece);
            return;
        }
        self.seal();
        self.in_pieces += piece.len();
        self.pieces.push_back(piece);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Write once; gives how many bytes were taken.
    pub(super) fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        io: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let io = Pin::new(io);
        let written = if self.pieces.is_empty() {
            ready!(io.poll_write(cx, &self.tail))?
        } else if self.pieces.len() == 1 && self.tail.is_empty() {
            ready!(io.poll_write(cx, &self.pieces[0]))?
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut used = 0;
            let all = self.pieces.iter().map(|p| &p[..]).chain([&self.tail[..]]);
            for (slot, piece) in slices.iter_mut().zip(all) {
                *slot = IoSlice::new(piece);
                used += 1;
            }
            ready!(io.poll_write_vectored(cx, &slices[..used]))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let sealed = self.tail.split().freeze();
            self.in_pieces += sealed.len();
            self.pieces.push_back(sealed);
        }
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.pieces.front_mut() {
            let part = first.len().min(written);
            first.advance(part);
            self.in_pieces -= part;
            written -= part;
            if !first.is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
        self.tail.advance(written);
    }
}
