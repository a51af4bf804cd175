//! Bugs that the simulation plants, to show that its invariants catch them.
//!
//! Each stands at the line it breaks as `Bug::Name.bites()`. Without the feature `planted`, which
//! only the tests crate asks for, that is a constant `false` and nothing of it is compiled in. A bug
//! is planted for one thread at a time, because one simulated world runs on one thread.

#[cfg(feature = "planted")]
use std::cell::Cell;

/// What can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bug {
    /// The gateway tells `not_delivered` and leaves the request queued, so it is handed over later.
    ClaimAfterHandOver,
    /// The agent goes on writing after RESET.
    WriteAfterReset,
    /// The agent goes on writing after FENCE.
    WriteAfterFence,
    /// The agent counts what the gateway was told as taken instead of what the socket took.
    WrittenRaisedLate,
    /// The agent connects again by itself and writes the request a second time.
    AgentRepeats,
    /// BEGIN is obeyed without reading the app's socket first; what the app said before the first
    /// byte passes for an answer, or the second belt would hold.
    BeginWithoutFreshness,
    /// What the gateway expects to have been read is not compared.
    ExpectReadIgnored,
    /// A BEGIN whose time is over is written, behind a connection that took longer than its OPEN had
    /// time: nothing else makes an exchange wait so long before its first byte.
    ExpiredBeginWritten,
    /// An agent that was late begins exchanges before its PING is answered, expired ones included.
    FrozenAgentWrites,
    /// The bytes of a cut frame are read together with those of the next carrier.
    PartialFrameDecoded,
    /// Bytes of the old carrier are taken after offsets were stated.
    OldCarrierRead,
    /// An OPEN is sent again although the agent has seen it, and dials again there.
    OpenDialledTwice,
    /// RESET goes out although its OPEN did not.
    ResetOvertakesOpen,
    /// `emitted` is read before the core forgets, not in the same step.
    EmittedNotByCore,
    /// Given up, yet what was retained is sent again after a resume.
    RetainedNotForgotten,
    /// FINAL does not wait for the data before it.
    FinalOvertakesData,
    /// A terminal that was lost with its carrier is not sent again.
    TerminalNotRepeated,
    /// The head goes to the client before the first byte of the body.
    HeadReleasedEarly,
    /// The client leaves and the app is not told.
    CancelNotPassedOn,
    /// What the app said beyond its answer is kept for the next client.
    LeftoverKept,
    /// An exchange is repeated although a byte of it was written.
    HoldRepeatsWritten,
    /// A body over its limit is told as `not_delivered` although part of it was handed over.
    TooLargeNotDelivered,
    /// Exchanges begin on a kept connection after GOAWAY: its tunnel is still picked, and what is kept
    /// stays open.
    GoAwayIgnored,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::ClaimAfterHandOver,
        Self::WriteAfterReset,
        Self::WriteAfterFence,
        Self::WrittenRaisedLate,
        Self::AgentRepeats,
        Self::BeginWithoutFreshness,
        Self::ExpectReadIgnored,
        Self::ExpiredBeginWritten,
        Self::FrozenAgentWrites,
        Self::PartialFrameDecoded,
        Self::OldCarrierRead,
        Self::OpenDialledTwice,
        Self::ResetOvertakesOpen,
        Self::EmittedNotByCore,
        Self::RetainedNotForgotten,
        Self::FinalOvertakesData,
        Self::TerminalNotRepeated,
        Self::HeadReleasedEarly,
        Self::CancelNotPassedOn,
        Self::LeftoverKept,
        Self::HoldRepeatsWritten,
        Self::TooLargeNotDelivered,
        Self::GoAwayIgnored,
    ];

    /// True if this one is planted on this thread.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn bites(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Never: the feature `planted` is off.
    #[cfg(not(feature = "planted"))]
    #[must_use]
    #[inline]
    pub const fn bites(self) -> bool {
        false
    }
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Keeps a bug planted on this thread until it is dropped.
#[cfg(feature = "planted")]
#[derive(Debug)]
pub struct Planted(());

/// Plants a bug on this thread.
#[cfg(feature = "planted")]
#[must_use]
pub fn plant(bug: Bug) -> Planted {
    PLANTED.set(Some(bug));
    Planted(())
}

#[cfg(feature = "planted")]
impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.set(None);
    }
}
