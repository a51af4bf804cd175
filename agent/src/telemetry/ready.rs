//! How many tunnels are up.
//!
//! Invariant: the count goes up and down by guards only, so that no way out of a task leaves it wrong.

use std::sync::Arc;

use tokio::sync::watch;

/// The count; clones mean the same one.
#[derive(Clone, Debug)]
pub struct Readiness {
    up: Arc<watch::Sender<usize>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self {
            up: Arc::new(watch::Sender::new(0)),
        }
    }
}

/// Counts one tunnel for as long as it lives.
#[derive(Debug)]
pub struct Up {
    readiness: Readiness,
}

impl Readiness {
    /// One tunnel more, until the guard is dropped.
    #[must_use]
    pub fn up(&self) -> Up {
        self.up.send_modify(|up| *up += 1);
        Up {
            readiness: self.clone(),
        }
    }

    /// Tunnels that are up and take streams.
    #[must_use]
    pub fn tunnels(&self) -> usize {
        *self.up.borrow()
    }

    /// True while at least one is.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.tunnels() > 0
    }

    /// Waits until so many tunnels are up. Cancel safe.
    pub async fn reached(&self, tunnels: usize) {
        let mut seen = self.up.subscribe();
        // The sender lives in `self`, so this cannot fail before it is dropped.
        drop(seen.wait_for(|up| *up >= tunnels).await);
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.readiness.up.send_modify(|up| *up -= 1);
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
}
