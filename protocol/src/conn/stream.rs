//! One stream's state.
//!
//! ```text
//! gateway:  Queued ──OPEN emitted──► Opening ──OPENED──► Open ──FINAL──► Ended
//!             │                         └──REFUSED / GOAWAY / lost────────►┘
//!             └── given up before emission: Ended(NotOpened), the peer never hears of it
//!
//! agent:    Opening ──opened()──► Open ──conclude()──► Concluding ──FINAL emitted──► Ended
//!             └──refuse(): REFUSED emitted────────────────────────────────────────────►┘
//! ```
//! Invariant: a stream ends exactly once, and an ended stream emits nothing.

use crate::time::Moment;
use crate::wire::{FinalCause, Open, RefusedReason, ResetCode, StreamId};

use super::budget::Progress;
use super::event::{Counted, Ended, Wake};
use super::flow::{RecvHalf, SendHalf};
use super::store::StreamKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Queued,
    Opening,
    Open,
    Concluding,
    Ended,
}

/// Control frames a stream owes, emitted in the order of the fields.
#[derive(Debug, Default)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct Pending {
    pub(super) open: bool,
    pub(super) opened: bool,
    pub(super) refused: Option<(RefusedReason, u16)>,
    pub(super) credit: Option<(u64, u64)>,
    pub(super) fence: bool,
    pub(super) count: bool,
    pub(super) reset: Option<ResetCode>,
    pub(super) conclude: Option<FinalCause>,
}

/// Frames that are a breach when they come twice, except once after each resume.
#[derive(Debug, Default)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct Repeats {
    pub(super) opened: bool,
    pub(super) count: bool,
    pub(super) fence: bool,
}

#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct Stream {
    pub(super) key: StreamKey,
    /// Given at the emission of OPEN.
    pub(super) id: Option<StreamId>,
    pub(super) open: Open,
    /// When the time given in OPEN is over.
    pub(super) deadline: Moment,
    pub(super) phase: Phase,
    pub(super) out: SendHalf,
    pub(super) inn: RecvHalf,
    pub(super) pending: Pending,
    /// Position in the scheduler's queues, so that a stream stands in each at most once.
    pub(super) in_control: bool,
    pub(super) in_data: bool,
    pub(super) in_untold: bool,
    /// A FENCE was sent (gateway) or received (agent); the value asks for lingering.
    pub(super) fenced: Option<bool>,
    /// A RESET was sent (gateway) or received (agent).
    pub(super) reset: bool,
    /// What the RESET says when it is sent again.
    pub(super) reset_code: ResetCode,
    /// OPENED was said (agent) or heard (gateway).
    pub(super) was_opened: bool,
    /// The RESET only gave back a connection without an exchange.
    pub(super) was_idle: bool,
    /// An exchange began here and its first bytes were not yet told as consumed; they must be told
    /// before any answer, because the gateway trusts an answer only after that.
    pub(super) untold_begin: bool,
    /// Nothing of the exchange was written yet (of a stream without exchanges: nothing at all).
    pub(super) untouched: bool,
    /// What the COUNT said; one that is sent again says the same.
    pub(super) counted: Option<Counted>,
    pub(super) ended: Option<Ended>,
    /// Agent: the terminal was emitted and not acknowledged; it is told again after a resume, with
    /// the bytes before it.
    pub(super) kept: bool,
    /// Given up because it held memory without progress.
    pub(super) starved: bool,
    pub(super) progress: Progress,
    /// What the peer may say a second time after a resume.
    pub(super) repeats: Repeats,
    /// The user dropped its handle; the slot goes when the stream has ended.
    pub(super) released: bool,
    pub(super) news: Wake,
}

impl Stream {
    pub(super) fn new(
        key: StreamKey,
        open: Open,
        deadline: Moment,
        phase: Phase,
        inn: RecvHalf,
    ) -> Self {
        Self {
            key,
            id: None,
            open,
            deadline,
            phase,
            out: SendHalf::default(),
            inn,
            pending: Pending::default(),
            in_control: false,
            in_data: false,
            in_untold: false,
            fenced: None,
            reset: false,
            reset_code: ResetCode::Internal,
            was_opened: false,
            was_idle: false,
            untold_begin: false,
            untouched: true,
            counted: None,
            ended: None,
            kept: false,
            starved: false,
            progress: Progress::default(),
            repeats: Repeats::default(),
            released: false,
            news: Wake::NONE,
        }
    }

    /// The peer has shown that it knows this stream, so it cannot deny it later.
    pub(super) fn shows_acceptance(&self) -> bool {
        self.phase >= Phase::Open
            || self.counted.is_some()
            || self.out.consumed() > 0
            || self.inn.received() > 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Nobody looks at it any more: its slot may go.
    pub(super) fn is_done(&self) -> bool {
        self.is_over() && self.released && !self.kept
    }

    /// May still emit frames.
    pub(super) fn speaks(&self) -> bool {
        self.ended.is_none() || self.kept
    }
}
