//! A tunnel without its carrier: what stops, what is kept, what the next carrier has to carry again.
//!
//! A sender keeps what the peer has not consumed. After both sides stated their offsets each sends
//! from the stated one, so bytes reach the app once and in order. Invariant: while suspended nothing
//! is emitted, and `emitted` of a stream never falls, whatever is sent again.

use crate::time::Moment;
use crate::wire::{FinalCause, ReportEntry, StreamId};

use super::Conn;

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
    pub fn suspend(&mut self, _now: Moment) {
        self.lose();
    }

    /// A new carrier stands and its handshake is done: offsets are stated first, then what the
    /// peer did not get is sent again. The caller has dropped every unread byte of the old carrier.
    pub fn resume(&mut self, _now: Moment) {}

    /// True while there is no carrier and one may still come.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        false
    }

    /// Agent, after the tunnel was lost for good: terminals the gateway has not acknowledged.
    pub fn take_fates(&mut self) -> Vec<Fate> {
        Vec::new()
    }

    /// Agent: terminals of tunnels that were lost, for a gateway that may still ask itself.
    pub fn report(&mut self, _entries: Vec<ReportEntry>) {}
}
