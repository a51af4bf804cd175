//! The one place where counters become a verdict.
//!
//! Pure and total: the same evidence gives the same judgement, and contradictory evidence (a peer
//! that counts more than it was sent) never gives a stronger claim than `unknown`. It must not
//! know where the numbers come from; the corridor collects them from the tunnel core.
//!
//! Invariants: `delivered` needs a byte of the app's answer; `not_delivered` needs a proof that
//! holds for all time after it was said, which a CREDIT or a resume never is.

use super::{Delivery, Stage};

/// What ended the stream of an exchange, as far as the gateway knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terminal {
    /// The stream's OPEN never left the gateway (or no stream was asked for at all).
    NotOpened,
    /// The agent said REFUSED: zero bytes of this stream were and will be written.
    Refused,
    /// FINAL, or COUNT in answer to a fence: the agent writes nothing beyond `written`.
    Counted {
        /// Offset in the stream up to which the app's socket accepted bytes.
        written: u64,
    },
    /// The agent's GOAWAY names a last id below this stream.
    GoAwayBelow,
    /// The tunnel is gone for good and told nothing final about the stream.
    LostUnknown,
    /// Nothing final is known yet.
    Open {
        /// Offset the agent reported as taken; gives the stage only.
        consumed: u64,
    },
}

/// Offsets of one exchange in its stream, as the gateway knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// Offset of the exchange's first byte.
    pub start: u64,
    /// Highest request offset ever given to a carrier, asked after queued and retained bytes were
    /// forgotten in the same step (so it can only have been reached before, never later).
    pub emitted: u64,
    /// Bytes of the request head on the stream.
    pub head_len: u64,
    /// Bytes of head and body on the stream, if the whole request is known.
    pub request_len: Option<u64>,
    /// What ended the stream.
    pub terminal: Terminal,
    /// Bytes of the app's answer to this exchange that reached the gateway, 1xx included.
    pub answer_bytes: u64,
}

/// What may be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Judgement {
    /// The verdict.
    pub delivery: Delivery,
    /// How far the request is known to have got.
    pub stage: Stage,
}

impl Judgement {
    /// The app did not see the request and never will.
    pub const NOT_DELIVERED: Self = Self {
        delivery: Delivery::NotDelivered,
        stage: Stage::None,
    };

    const fn unknown(stage: Stage) -> Self {
        Self {
            delivery: Delivery::Unknown,
            stage,
        }
    }
}

/// Decides what may be said about an exchange.
#[must_use]
pub fn judge(e: &Evidence) -> Judgement {
    if e.answer_bytes > 0 {
        return Judgement {
            delivery: Delivery::Delivered,
            stage: Stage::AnswerBegun,
        };
    }
    match e.terminal {
        Terminal::Refused | Terminal::GoAwayBelow => Judgement::NOT_DELIVERED,
        Terminal::Counted { written } if written <= e.start => Judgement::NOT_DELIVERED,
        Terminal::Counted { written } => Judgement::unknown(stage(e, written)),
        Terminal::Open { consumed } if consumed > e.start => Judgement::unknown(stage(e, consumed)),
        Terminal::NotOpened | Terminal::LostUnknown | Terminal::Open { .. } => unemitted(e),
    }
}

/// Without a terminal only the gateway's own record helps: what was never given to a carrier, and
/// is forgotten, cannot arrive.
fn unemitted(e: &Evidence) -> Judgement {
    if e.emitted <= e.start {
        Judgement::NOT_DELIVERED
    } else {
        Judgement::unknown(Stage::None)
    }
}

fn stage(e: &Evidence, offset: u64) -> Stage {
    let taken = offset.saturating_sub(e.start);
    if taken == 0 {
        Stage::None
    } else if e.request_len.is_some_and(|len| taken >= len) {
        Stage::All
    } else if taken < e.head_len {
        Stage::PartOfHead
    } else if taken == e.head_len {
        Stage::Head
    } else {
        Stage::Body
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
