//! Connections to apps that wait for their next exchange. One pool a tunnel, newest taken first.
//!
//! Bounded per app and in time; what is stale by its stream's own word is never given out, and what
//! is stale without the gateway knowing is found by BEGIN at the agent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridgehead_protocol::io::TunnelStream;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::ResetCode;

/// How many connections wait, and how long.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Longest idle time.
    pub idle: Duration,
    /// Connections kept per app.
    pub per_app: usize,
}

struct Idle {
    stream: TunnelStream,
    since: Moment,
}

/// The pool.
pub struct Pool {
    limits: PoolLimits,
    idle: Mutex<BTreeMap<Arc<str>, Vec<Idle>>>,
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            idle: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Vec<Idle>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to `app` that has been idle for at most `at_most`, if there is one.
    pub fn take(&self, app: &str, now: Moment, at_most: Duration) -> Option<TunnelStream> {
        let at_most = at_most.min(self.limits.idle);
        let mut gone = Vec::new();
        let mut idle = self.lock();
        let list = idle.get_mut(app)?;
        let mut found = None;
        while let Some(last) = list.last() {
            if now.since(last.since) > at_most {
                break;
            }
            let Some(candidate) = list.pop() else { break };
            if is_usable(&candidate.stream) {
                found = Some(candidate.stream);
                break;
            }
            gone.push(candidate);
        }
        drop(idle);
        drop(gone);
        found
    }

    /// Keeps a connection whose exchange ended in order. Beyond the limit it is closed.
    pub fn put(&self, app: &Arc<str>, stream: TunnelStream, now: Moment) {
        if !is_usable(&stream) {
            return;
        }
        let mut idle = self.lock();
        let list = idle.entry(Arc::clone(app)).or_default();
        let surplus = if list.len() >= self.limits.per_app {
            Some(Idle { stream, since: now })
        } else {
            list.push(Idle { stream, since: now });
            None
        };
        drop(idle);
        close(surplus);
    }

    /// Closes what has been idle too long, or everything.
    pub fn reap(&self, now: Moment, all: bool) {
        let mut old = Vec::new();
        for list in self.lock().values_mut() {
            let keep = list
                .iter()
                .position(|i| {
                    !all && now.since(i.since) <= self.limits.idle && is_usable(&i.stream)
                })
                .unwrap_or(list.len());
            old.extend(list.drain(..keep));
        }
        close(old);
    }

    /// Connections that wait now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().values().map(Vec::len).sum()
    }

    /// True if none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Ends connections without an exchange in an orderly way.
fn close(streams: impl IntoIterator<Item = Idle>) {
    for idle in streams {
        idle.stream.control().reset(ResetCode::Idle);
    }
}

/// No terminal, nothing unread, and the tunnel takes exchanges.
fn is_usable(stream: &TunnelStream) -> bool {
    let view = stream.control().view();
    view.ended.is_none() && !view.closing && view.received == view.taken
}
