//! How many tunnels are up, and how many are between two connections.
//!
//! Invariant: the counts go up and down by guards only, so that no way out of a task leaves them wrong.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Tunnels by how they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Take streams.
    pub up: usize,
    /// Wait for their next connection; what runs on them waits too.
    pub suspended: usize,
}

/// The counts; clones mean the same ones.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    counts: Arc<watch::Sender<Counts>>,
}

/// One tunnel in the counts until every clone is dropped or one has left.
#[derive(Clone, Debug)]
pub struct Standing {
    one: Arc<Mutex<One>>,
}

/// How the tunnel is counted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Up,
    Suspended,
    Not,
}

#[derive(Debug)]
struct One {
    readiness: Readiness,
    counted: Counted,
}

impl Readiness {
    /// One tunnel more that is up.
    #[must_use]
    pub fn up(&self) -> Standing {
        let mut one = One {
            readiness: self.clone(),
            counted: Counted::Not,
        };
        one.count(Counted::Up);
        Standing {
            one: Arc::new(Mutex::new(one)),
        }
    }

    /// All of them.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Tunnels that are up and take streams.
    #[must_use]
    pub fn tunnels(&self) -> usize {
        self.counts().up
    }

    /// True while at least one is.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.tunnels() > 0
    }

    /// Waits until so many tunnels are up. Cancel safe.
    pub async fn reached(&self, tunnels: usize) {
        let mut seen = self.counts.subscribe();
        // The sender lives in `self`, so this cannot fail before it is dropped.
        drop(seen.wait_for(|counts| counts.up >= tunnels).await);
    }
}

impl Standing {
    /// Its connection is lost; it waits for the next.
    pub fn suspended(&self) {
        self.turn(Counted::Suspended);
    }

    /// It goes on.
    pub fn resumed(&self) {
        self.turn(Counted::Up);
    }

    /// It takes nothing new, for good.
    pub fn leave(&self) {
        self.lock().count(Counted::Not);
    }

    /// What has left stays away.
    fn turn(&self, counted: Counted) {
        let mut one = self.lock();
        if one.counted != Counted::Not {
            one.count(counted);
        }
    }

    fn lock(&self) -> MutexGuard<'_, One> {
        self.one.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl One {
    fn count(&mut self, counted: Counted) {
        let before = std::mem::replace(&mut self.counted, counted);
        self.readiness.counts.send_modify(|counts| {
            match before {
                Counted::Up => counts.up -= 1,
                Counted::Suspended => counts.suspended -= 1,
                Counted::Not => {}
            }
            match counted {
                Counted::Up => counts.up += 1,
                Counted::Suspended => counts.suspended += 1,
                Counted::Not => {}
            }
        });
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.count(Counted::Not);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_agent_is_ready_while_a_tunnel_is_up() {
        let readiness = Readiness::default();
        assert!(!readiness.is_ready());
        let first = readiness.up();
        let second = readiness.clone().up();
        readiness.reached(2).await;
        drop(first);
        assert!(readiness.is_ready());
        drop(second);
        assert!(!readiness.is_ready());
    }

    #[test]
    fn a_tunnel_between_two_connections_is_not_up_and_not_forgotten() {
        let readiness = Readiness::default();
        let standing = readiness.up();
        standing.suspended();
        let waiting = Counts {
            up: 0,
            suspended: 1,
        };
        assert_eq!(readiness.counts(), waiting);
        standing.clone().resumed();
        assert_eq!(readiness.tunnels(), 1);
        standing.suspended();
        drop(standing);
        assert_eq!(readiness.counts(), Counts::default());
    }

    #[test]
    fn what_has_left_is_not_counted_again() {
        let readiness = Readiness::default();
        let standing = readiness.up();
        standing.leave();
        standing.suspended();
        standing.resumed();
        assert_eq!(readiness.counts(), Counts::default());
    }
}
