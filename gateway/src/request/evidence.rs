//! From a stream's counts to what may be said of the exchange on it.
//!
//! The decision itself is `protocol::verdict::judge`; here its inputs are collected, and the agent
//! is given a bounded time to count before the client is answered.

use std::future::poll_fn;
use std::time::Duration;

use bridgehead_protocol::conn::{Ended, View};
use bridgehead_protocol::io::StreamControl;
use bridgehead_protocol::verdict::{Evidence, Judgement, Reason, judge};
use bridgehead_protocol::wire::{FinalCause, RefusedReason};

use super::app::Offsets;
use crate::ledger::{Fact, Source};

/// Longest wait for the counts after giving up; the answer comes no later than its window and 1 s.
pub const COUNT_WITHIN: Duration = Duration::from_millis(500);

/// What may be said now. `emitted` is the core's answer to giving up, in the same step.
#[must_use]
pub fn judgement(view: &View, offsets: Offsets, emitted: u64) -> Judgement {
    judge(&evidence(view, offsets, emitted))
}

/// What the decision rests on.
#[must_use]
pub fn evidence(view: &View, offsets: Offsets, emitted: u64) -> Evidence {
    Evidence {
        start: offsets.start,
        emitted,
        head_len: offsets.head,
        request_len: offsets.whole,
        terminal: view.terminal(offsets.start),
        answer_bytes: offsets.answer,
    }
}

/// What the stream of an exchange that was given up shows by now.
#[must_use]
pub fn fact(view: &View, start: u64) -> Fact {
    let read = match (view.ended, view.counted) {
        (Some(Ended::Final { read, .. }), _) => Some(read),
        (_, counted) => counted.map(|counted| counted.read),
    };
    Fact::Ended {
        terminal: view.terminal(start),
        read,
        source: Source::LateCount,
    }
}

/// Waits for the counts of an exchange that was fenced or reset, at most [`COUNT_WITHIN`]. Without
/// them the verdict rests on what is known anyway. Cancel safe.
pub async fn count(control: &StreamControl) {
    let counted = poll_fn(|cx| control.poll_counted(cx));
    // Too late is an answer too.
    drop(tokio::time::timeout(COUNT_WITHIN, counted).await);
}

/// Why a stream that ended says what it says.
#[must_use]
pub const fn reason(ended: Ended) -> Reason {
    match ended {
        Ended::NotOpened | Ended::Lost => Reason::TunnelLost,
        Ended::GoAway => Reason::AgentDraining,
        Ended::Refused { reason, .. } => refused(reason),
        Ended::Final { cause, .. } => match cause {
            FinalCause::Stale => Reason::StaleConnection,
            FinalCause::Expired => Reason::Expired,
            FinalCause::AppClosed
            | FinalCause::AppReset
            | FinalCause::Reset
            | FinalCause::LingerOver => Reason::ClosedBeforeHead,
            // An exchange that gave up has its own reason: this one was fenced with its tunnel.
            FinalCause::Fenced => Reason::TunnelLost,
            FinalCause::Stopping => Reason::AgentDraining,
            FinalCause::Starved => Reason::AgentLimit,
        },
    }
}

const fn refused(reason: RefusedReason) -> Reason {
    match reason {
        RefusedReason::ConnectRefused => Reason::ConnectRefused,
        RefusedReason::ConnectTimeout => Reason::ConnectTimeout,
        RefusedReason::ConnectReset => Reason::ConnectReset,
        RefusedReason::TlsFailed => Reason::TlsFailed,
        RefusedReason::NoSuchApp => Reason::NoSuchApp,
        RefusedReason::Draining => Reason::AgentDraining,
        RefusedReason::Limit => Reason::AgentLimit,
        RefusedReason::Expired => Reason::Expired,
        RefusedReason::Unreachable => Reason::Unreachable,
    }
}
