//! What the core tells its owner: wake a stream's user, or something happened to the tunnel.

use std::time::Duration;

use crate::wire::{AppOffer, FinalCause, GoAwayReason, RefusedReason, ReportEntry};

use super::store::StreamKey;

/// Which waiters of a stream have news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake(u8);

impl Wake {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Bytes, an end, or a terminal can be read.
    pub const READ: Self = Self(1);
    /// Room to write, or writing is over.
    pub const WRITE: Self = Self(2);
    /// Opened, consumption advanced, counted, fenced, reset or ended.
    pub const CONTROL: Self = Self(4);
    /// Everyone.
    pub const ALL: Self = Self(7);

    /// Union of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if every waiter of `other` is in `self`.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// News from the core; drained with `Conn::poll_event`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Look at this stream again.
    Stream(StreamKey, Wake),
    /// The gateway opened a stream (agent side only).
    Incoming(StreamKey),
    /// The agent's list of apps changed (gateway side only).
    Apps(Vec<AppOffer>),
    /// The peer will accept nothing new.
    GoAway {
        /// Why.
        reason: GoAwayReason,
        /// When it will close what is left.
        deadline: Duration,
    },
    /// The carrier is gone; the tunnel waits for the next one.
    Suspended,
    /// The next carrier stands and both sides stated their offsets.
    Resumed {
        /// Payload bytes that will be sent a second time.
        resent: u64,
    },
    /// The agent tells how streams of tunnels ended that were lost (gateway side only).
    Report(Vec<ReportEntry>),
}

/// How a stream ended, as far as this side can know. Source: `wire` protocol, terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// OPEN was never given to a carrier; the peer cannot know the stream.
    NotOpened,
    /// The agent refused it: zero bytes were and will be written.
    Refused {
        /// Why.
        reason: RefusedReason,
        /// The agent's system error number, 0 if none.
        errno: u16,
    },
    /// The agent's terminal counts.
    Final {
        /// Bytes accepted by the app's socket.
        written: u64,
        /// Bytes read from the app's socket.
        read: u64,
        /// What ended it.
        cause: FinalCause,
    },
    /// The peer went away without having accepted this stream.
    GoAway,
    /// The tunnel was lost without a terminal.
    Lost,
}

impl Ended {
    /// A terminal that the agent tells.
    pub(super) const fn is_told(self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Final { .. })
    }
}

/// Counts the agent answered to a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Bytes accepted by the app's socket.
    pub written: u64,
    /// Bytes read from the app's socket.
    pub read: u64,
}
