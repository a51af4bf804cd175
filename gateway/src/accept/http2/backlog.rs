//! Bytes of answers that `h2` holds until a connection takes them, all streams together.
//!
//! `h2` bounds what it holds of each stream. A client that opens a hundred streams with wide windows
//! and does not read from its connection would have it hold a hundred times as much. Counted by what
//! it is handed, to the byte: a piece counts until it is written or thrown away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use tokio::time::Instant;

/// What one connection holds, and who waits for room.
#[derive(Clone, Debug)]
pub(super) struct Backlog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// When the connection took something last while somebody waited.
    took: Option<Instant>,
    /// At most one of each stream.
    waiting: Vec<Waker>,
}

impl Backlog {
    /// There is room below `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        let held = Mutex::default();
        Self(Arc::new(Shared { most, held }))
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready while another piece may be handed over.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut held = self.lock();
        if held.bytes < self.0.most {
            return Poll::Ready(());
        }
        if !held.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            held.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// When the connection took something last while somebody waited for room. What a reset throws away it
    /// did not take: streams that stall must not keep each other.
    pub(super) fn took(&self) -> Option<Instant> {
        self.lock().took
    }

    /// A piece that counts from now on.
    pub(super) fn piece(&self, bytes: Bytes) -> Piece {
        self.lock().bytes += bytes.len();
        let backlog = self.clone();
        Piece { bytes, backlog }
    }

    /// Bytes that were written.
    fn wrote(&self, count: usize) {
        let mut held = self.lock();
        if !held.waiting.is_empty() {
            held.took = Some(Instant::now());
        }
        self.gave(held, count);
    }

    fn gave(&self, mut held: MutexGuard<'_, Held>, count: usize) {
        held.bytes -= count;
        if held.bytes < self.0.most {
            let waiting = std::mem::take(&mut held.waiting);
            drop(held);
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

/// Bytes of an answer in the hands of `h2`.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    backlog: Backlog,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.backlog.wrote(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.backlog.gave(self.backlog.lock(), self.bytes.len());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_stream_waits_until_so_much_was_written_that_there_is_room_and_is_woken_once() {
        let backlog = Backlog::new(100);
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        assert!(backlog.poll_room(&mut cx).is_ready());
        let mut one = backlog.piece(Bytes::from_static(&[0; 60]));
        assert!(backlog.poll_room(&mut cx).is_ready());
        let other = backlog.piece(Bytes::from_static(&[0; 60]));
        assert!(backlog.poll_room(&mut cx).is_pending());
        assert!(backlog.poll_room(&mut cx).is_pending());
        assert_eq!(backlog.took(), None);
        one.advance(20);
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "a hundred are held");
        assert!(backlog.took().is_some());
        one.advance(1);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(backlog.poll_room(&mut cx).is_ready());
        drop((one, other));
        assert_eq!(backlog.lock().bytes, 0);
    }

    #[test]
    fn what_is_thrown_away_makes_room_too_and_was_not_taken() {
        let backlog = Backlog::new(100);
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let piece = backlog.piece(Bytes::from_static(&[0; 100]));
        let mut cx = Context::from_waker(&waker);
        assert!(backlog.poll_room(&mut cx).is_pending());
        drop(piece);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(backlog.took(), None);
    }
}
