//! How the process ends: running → leaving (not ready, everything is still served) → draining (refuse
//! new, finish old) → forced (drop what is left).
//!
//! Owns the phase and nothing that acts on it: whoever holds a [`Signal`] watches it beside its own
//! work. A phase never goes back. If the [`Shutdown`] that drives it is dropped, the last phase
//! stands for ever. Watchers are woken in an order that follows from the order in which they came,
//! so that a simulated drain repeats itself (`watch` wakes in random order).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Lists of watchers: each wait enters and leaves one under its lock, on every worker.
const LISTS: usize = 8;

/// Where the process stands on its way to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Everything is served.
    #[default]
    Running,
    /// Everything is served, and whoever asks is told to send nothing more.
    Leaving,
    /// Nothing new is accepted; what was begun is finished.
    Draining,
    /// The time for finishing is over.
    Forced,
}

#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    watchers: AtomicUsize,
    moved: [Notify; LISTS],
}

impl Shared {
    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Running,
            1 => Phase::Leaving,
            2 => Phase::Draining,
            _ => Phase::Forced,
        }
    }
}

/// The hand that moves the phase.
#[derive(Debug, Default)]
pub struct Shutdown {
    shared: Arc<Shared>,
}

impl Shutdown {
    /// A process that runs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A signal for one more watcher.
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal::of(&self.shared)
    }

    /// Begin to leave. Without effect if it has begun or is over.
    pub fn leave(&self) {
        self.advance(Phase::Leaving);
    }

    /// Begin to drain. Without effect if it has begun or is over.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// End at once.
    pub fn force(&self) {
        self.advance(Phase::Forced);
    }

    fn advance(&self, to: Phase) {
        if self.shared.phase.fetch_max(to as u8, Ordering::SeqCst) < to as u8 {
            self.shared.moved.iter().for_each(Notify::notify_waiters);
        }
    }
}

/// Watches the phase. All waits are cancel safe.
#[derive(Debug)]
pub struct Signal {
    shared: Arc<Shared>,
    list: usize,
}

impl Clone for Signal {
    fn clone(&self) -> Self {
        Self::of(&self.shared)
    }
}

impl Signal {
    /// A signal that never leaves [`Phase::Running`].
    #[must_use]
    pub fn never() -> Self {
        Shutdown::new().signal()
    }

    fn of(shared: &Arc<Shared>) -> Self {
        Self {
            list: shared.watchers.fetch_add(1, Ordering::Relaxed) % LISTS,
            shared: Arc::clone(shared),
        }
    }

    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.shared.phase()
    }

    /// True once the process is on its way to the end.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.phase() >= Phase::Leaving
    }

    /// True once draining has begun.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.phase() >= Phase::Draining
    }

    /// Wait until the process is on its way to the end.
    pub async fn leaving(&mut self) {
        self.reached(Phase::Leaving).await;
    }

    /// Wait until draining has begun.
    pub async fn draining(&mut self) {
        self.reached(Phase::Draining).await;
    }

    /// Wait until the time for finishing is over.
    pub async fn forced(&mut self) {
        self.reached(Phase::Forced).await;
    }

    async fn reached(&mut self, phase: Phase) {
        loop {
            let moved = self.shared.moved[self.list].notified();
            tokio::pin!(moved);
            // Enrolled before looking, so that a move in between is not missed.
            moved.as_mut().enable();
            if self.shared.phase() >= phase {
                return;
            }
            moved.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_phase_is_reached_once_and_never_goes_back() {
        let shutdown = Shutdown::new();
        let mut signal = shutdown.signal();
        assert!(!signal.is_draining());
        shutdown.force();
        shutdown.drain();
        signal.draining().await;
        signal.forced().await;
        assert_eq!(signal.phase(), Phase::Forced);
    }
    #[tokio::test]
    async fn whoever_leaves_is_not_draining_yet() {
        let shutdown = Shutdown::new();
        let mut signal = shutdown.signal();
        shutdown.leave();
        signal.leaving().await;
        assert!(signal.is_leaving() && !signal.is_draining());
        shutdown.drain();
        shutdown.leave();
        signal.draining().await;
        assert!(signal.is_leaving());
    }
}
