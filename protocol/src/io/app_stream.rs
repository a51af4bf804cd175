//! A stream at the agent: the app's side, where evidence is made.
//!
//! The write to the app's socket and the count of what it accepted happen under one lock, so that
//! no FENCE can be answered between them: `written` is never behind the truth when it is told.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;

use crate::conn::{Front, StreamKey};
use crate::planted::Bug;
use crate::time::Moment;
use crate::wire::{Begin, FinalCause, Open, RefusedReason, StreamId};

use super::shared::{Shared, Slot};

/// A stream the gateway opened. Dropping it without [`AppStream::conclude`] counts as stopping.
pub struct AppStream {
    shared: Arc<Shared>,
    key: StreamKey,
}

/// What the app's copier must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// So many bytes went to the app's socket.
    Wrote(usize),
    /// An exchange begins: check freshness, then call [`AppStream::begun`].
    Begin {
        /// Its frame.
        begin: Begin,
        /// When its time is over.
        deadline: Moment,
    },
    /// The gateway ended its direction.
    Fin,
    /// Write nothing more. With `linger`, read on for the late answer.
    Fenced {
        /// The request was written whole.
        linger: bool,
    },
    /// Close the app's socket.
    Closed {
        /// No exchange was under way, so an orderly close says the truth.
        idle: bool,
    },
}

/// What a failed write means for the bytes that were offered to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedWrite {
    /// None of them was accepted (TCP, Unix).
    TookNothing,
    /// Some may have gone out before the failure was told (a TLS session that has encrypted and sent
    /// a part): all of them count as accepted.
    MayHaveTaken,
}

impl AppStream {
    pub(super) fn new(shared: Arc<Shared>, key: StreamKey) -> Self {
        Self { shared, key }
    }

    /// What was asked for, and when its time is over; `None` if it is gone already.
    #[must_use]
    pub fn asked(&self) -> Option<(Open, Moment)> {
        self.shared
            .look(|conn| conn.asked(self.key).map(|(open, at)| (open.clone(), at)))
    }

    /// The tunnel's time now, comparable with every deadline of its streams.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.shared.now()
    }

    /// `deadline` as a point in tokio's time.
    #[must_use]
    pub fn instant(&self, deadline: Moment) -> tokio::time::Instant {
        self.shared.clock.instant(deadline)
    }

    /// How long a fenced, fully written exchange is kept.
    #[must_use]
    pub fn linger(&self) -> std::time::Duration {
        self.shared.look(|conn| conn.settings().linger)
    }

    /// The app's connection stands; nothing was written yet.
    pub fn opened(&self) {
        self.shared.act(|conn| conn.opened(self.key));
    }

    /// Nothing was and will be written.
    pub fn refuse(&self, reason: RefusedReason, errno: u16) {
        self.shared.act(|conn| conn.refuse(self.key, reason, errno));
    }

    /// Ready once the gateway has reset or fenced the stream, or the tunnel is lost; answers which,
    /// as [`AppStream::poll_outgoing`] would.
    pub fn poll_given_up(&self, cx: &mut Context<'_>) -> Poll<Outgoing> {
        let mut state = self.shared.lock();
        match state.conn.front(self.key) {
            Front::Closed { idle } => return Poll::Ready(Outgoing::Closed { idle }),
            Front::Fenced { linger } => return Poll::Ready(Outgoing::Fenced { linger }),
            Front::Bytes(_) | Front::Begin { .. } | Front::Fin | Front::Empty => {}
        }
        state.watch(self.key, Slot::Control, cx);
        Poll::Pending
    }

    /// Ready once the gateway has reset the stream or the tunnel is lost; a fence alone is not it.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.lock();
        if matches!(state.conn.front(self.key), Front::Closed { .. }) {
            return Poll::Ready(());
        }
        state.watch(self.key, Slot::Control, cx);
        Poll::Pending
    }

    /// Writes the front bytes to `socket`, or says what stands in front of them.
    ///
    /// # Errors
    /// Those of the socket; `failed` says what such an error means for the count.
    pub fn poll_outgoing<S: AsyncWrite + Unpin>(
        &self,
        cx: &mut Context<'_>,
        socket: &mut S,
        failed: FailedWrite,
    ) -> Poll<io::Result<Outgoing>> {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.conn.look_at_clock(now);
        let bytes = match state.conn.front(self.key) {
            Front::Bytes(bytes) => bytes,
            Front::Begin { begin, deadline } => {
                return Poll::Ready(Ok(Outgoing::Begin { begin, deadline }));
            }
            Front::Fin => return Poll::Ready(Ok(Outgoing::Fin)),
            Front::Fenced { linger } => return Poll::Ready(Ok(Outgoing::Fenced { linger })),
            Front::Closed { idle } => return Poll::Ready(Ok(Outgoing::Closed { idle })),
            Front::Empty => {
                state.watch(self.key, Slot::Read, cx);
                return Poll::Pending;
            }
        };
        if Bug::AgentRepeats.bites() {
            drop(Pin::new(&mut *socket).poll_write(cx, &bytes));
        }
        let written = match Pin::new(socket).poll_write(cx, &bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => {
                state.watch(self.key, Slot::Read, cx);
                return Poll::Pending;
            }
        };
        let count = match (&written, failed) {
            (Ok(count), _) => *count,
            (Err(_), FailedWrite::MayHaveTaken) => bytes.len(),
            (Err(_), FailedWrite::TookNothing) => 0,
        };
        if count > 0 {
            state.conn.app_took(now, self.key, count);
        }
        let driver = state.driver_after_read();
        drop(state);
        driver.into_iter().for_each(std::task::Waker::wake);
        Poll::Ready(written.map(Outgoing::Wrote))
    }

    /// The freshness check was passed.
    pub fn begun(&self) {
        self.shared.act(|conn| conn.begun(self.key));
    }

    /// Its number, if its tunnel was lost for good and the app's socket took all that had arrived.
    #[must_use]
    pub fn orphaned(&self) -> Option<StreamId> {
        self.shared.look(|conn| conn.orphaned(self.key))
    }

    /// Bytes read from the app and taken into the stream.
    #[must_use]
    pub fn app_read(&self) -> u64 {
        self.shared.look(|conn| conn.app_read(self.key))
    }

    /// Ready with the number of bytes that may be read from the app now.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let mut state = self.shared.lock();
        let room = state.conn.room(self.key);
        if room > 0 {
            return Poll::Ready(room);
        }
        state.watch(self.key, Slot::Write, cx);
        Poll::Pending
    }

    /// Passes on bytes read from the app; at most what [`AppStream::poll_room`] said.
    pub fn pass_on(&self, bytes: Bytes) {
        self.shared.act(|conn| conn.write_all(self.key, bytes));
    }

    /// The app ended its direction.
    pub fn finish(&self) {
        self.shared.act(|conn| conn.finish(self.key));
    }

    /// The stream is over at the agent.
    pub fn conclude(&self, cause: FinalCause) {
        self.shared.act(|conn| conn.conclude(self.key, cause));
    }
}

impl Drop for AppStream {
    fn drop(&mut self) {
        self.shared.act(|conn| conn.let_go(self.key));
    }
}
