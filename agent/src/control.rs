//! How a running agent is told to stop: once to finish in order, twice to end now.
//!
//! Owns the two ends of that wire, and the signals that are passed on to the app's process. Who holds the
//! handle (the signal handler of `bh-agent`, the gateway's `dev` mode, a test) is not its business.

use tokio::sync::{mpsc, watch};

use crate::app::child::ChildSignal;

/// Signals waiting for the app's process; more of them mean nothing new.
const SIGNAL_QUEUE: usize = 8;

/// How urgently the agent shall stop. Only ever rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Not at all.
    #[default]
    Run,
    /// Take nothing new, finish what runs, then end.
    Drain,
    /// End now.
    Now,
}

/// The end that commands.
#[derive(Clone, Debug)]
pub struct Handle {
    stop: watch::Sender<Stop>,
    signals: mpsc::Sender<ChildSignal>,
}

/// The end that obeys, handed to [`crate::wiring::run`].
#[derive(Debug)]
pub struct Control {
    stop: StopSignal,
    signals: mpsc::Receiver<ChildSignal>,
}

/// A look at how urgently the agent shall stop.
#[derive(Clone, Debug)]
pub struct StopSignal {
    stop: watch::Receiver<Stop>,
}

/// Both ends.
#[must_use]
pub fn control() -> (Handle, Control) {
    let (stop, watched) = watch::channel(Stop::Run);
    let (signals, passed_on) = mpsc::channel(SIGNAL_QUEUE);
    (
        Handle { stop, signals },
        Control {
            stop: StopSignal { stop: watched },
            signals: passed_on,
        },
    )
}

impl Handle {
    /// Asks for at least this much urgency.
    pub fn stop(&self, urgency: Stop) {
        self.stop.send_if_modified(|known| {
            let more = urgency > *known;
            *known = urgency.max(*known);
            more
        });
    }

    /// One step more urgent: what each SIGTERM means.
    pub fn stop_more(&self) {
        let next = match *self.stop.borrow() {
            Stop::Run => Stop::Drain,
            Stop::Drain | Stop::Now => Stop::Now,
        };
        self.stop(next);
    }

    /// Passes a signal on to the app's process, if the agent runs one.
    pub fn pass_on(&self, signal: ChildSignal) {
        if self.signals.try_send(signal).is_err() {
            tracing::debug!("a signal for the app was dropped");
        }
    }
}

impl Control {
    /// The look at the urgency; clones see the same.
    #[must_use]
    pub fn stop_signal(&self) -> StopSignal {
        self.stop.clone()
    }

    /// The next signal for the app's process; pends for ever once the handle is gone. Cancel safe.
    pub async fn signal(&mut self) -> ChildSignal {
        match self.signals.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}

impl StopSignal {
    /// How urgent it is now.
    #[must_use]
    pub fn now(&self) -> Stop {
        *self.stop.borrow()
    }

    /// Waits until it is at least this urgent; a handle that was dropped asks for nothing more.
    /// Cancel safe.
    pub async fn at_least(&mut self, urgency: Stop) {
        if self.stop.wait_for(|stop| *stop >= urgency).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urgency_only_rises_and_a_late_listener_hears_it() {
        let (handle, control) = control();
        let mut stop = control.stop_signal();
        assert_eq!(stop.now(), Stop::Run);
        handle.stop_more();
        stop.at_least(Stop::Drain).await;
        handle.stop_more();
        handle.stop(Stop::Drain);
        control.stop_signal().at_least(Stop::Now).await;
        drop(handle);
        assert_eq!(stop.now(), Stop::Now);
    }
}
