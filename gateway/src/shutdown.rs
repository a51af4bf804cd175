//! How the process ends: running → draining (refuse new, finish old) → forced (drop what is left).
//!
//! Owns the phase and nothing that acts on it: whoever holds a [`Signal`] watches it beside its own
//! work. A phase never goes back. If the [`Shutdown`] that drives it is dropped, the last phase
//! stands for ever.

use tokio::sync::watch;

/// Where the process stands on its way to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Everything is served.
    #[default]
    Running,
    /// Nothing new is accepted; what was begun is finished.
    Draining,
    /// The time for finishing is over.
    Forced,
}

/// The hand that moves the phase.
#[derive(Debug)]
pub struct Shutdown {
    phase: watch::Sender<Phase>,
}

impl Shutdown {
    /// A process that runs.
    #[must_use]
    pub fn new() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Running),
        }
    }

    /// A signal for one more watcher.
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal {
            phase: self.phase.subscribe(),
        }
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
        self.phase.send_if_modified(|phase| {
            let forward = *phase < to;
            if forward {
                *phase = to;
            }
            forward
        });
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

/// Watches the phase. All waits are cancel safe.
#[derive(Clone, Debug)]
pub struct Signal {
    phase: watch::Receiver<Phase>,
}

impl Signal {
    /// A signal that never leaves [`Phase::Running`].
    #[must_use]
    pub fn never() -> Self {
        Shutdown::new().signal()
    }

    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// True once draining has begun.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.phase() >= Phase::Draining
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
        if self.phase.wait_for(|now| *now >= phase).await.is_err() {
            std::future::pending::<()>().await;
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
}
