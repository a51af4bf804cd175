//! Connections to apps that wait for their next exchange. One pool a tunnel, newest taken first.
//!
//! Bounded per app and in time; what is stale by its stream's own word is never given out, and what
//! is stale without the gateway knowing is found by BEGIN at the agent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridgehead_protocol::io::{StreamControl, TunnelStream};
use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{AppKind, ResetCode};

use super::http2::Http2Connection;

/// How many connections wait, and how long.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Longest idle time.
    pub idle: Duration,
    /// Connections kept per app.
    pub per_app: usize,
}

/// A connection to an app, by what is spoken on it.
pub enum AppConnection {
    /// HTTP/1.1.
    Http1(TunnelStream),
    /// HTTP/2, with nothing said on it yet; never kept.
    NewHttp2(TunnelStream),
    /// HTTP/2.
    Http2(Box<Http2Connection>),
}

impl AppConnection {
    /// A connection over a new stream.
    #[must_use]
    pub fn new(kind: AppKind, stream: TunnelStream) -> Self {
        match kind {
            AppKind::H2c => Self::NewHttp2(stream),
            AppKind::Http1 | AppKind::Tcp => Self::Http1(stream),
        }
    }

    /// Evidence and giving up.
    #[must_use]
    pub fn control(&self) -> &StreamControl {
        match self {
            Self::Http1(stream) | Self::NewHttp2(stream) => stream.control(),
            Self::Http2(connection) => connection.control(),
        }
    }

    /// No terminal, nothing unread that matters, and the tunnel takes exchanges.
    fn is_usable(&mut self) -> bool {
        match self {
            Self::Http1(stream) => {
                let view = stream.control().view();
                let nothing_waits = view.received == view.taken || Bug::LeftoverKept.bites();
                view.ended.is_none() && !view.closing && nothing_waits
            }
            Self::NewHttp2(_) => false,
            Self::Http2(connection) => connection.is_usable(),
        }
    }
}

struct Idle {
    connection: AppConnection,
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
    pub fn take(&self, app: &str, now: Moment, at_most: Duration) -> Option<AppConnection> {
        let at_most = at_most.min(self.limits.idle);
        let mut gone = Vec::new();
        let mut idle = self.lock();
        let list = idle.get_mut(app)?;
        let mut found = None;
        while let Some(last) = list.last() {
            if now.since(last.since) > at_most {
                break;
            }
            let Some(mut candidate) = list.pop() else {
                break;
            };
            if candidate.connection.is_usable() {
                found = Some(candidate.connection);
                break;
            }
            gone.push(candidate);
        }
        drop(idle);
        drop(gone);
        found
    }

    /// Keeps a connection whose exchange ended in order. Beyond the limit it is closed.
    pub fn put(&self, app: &Arc<str>, mut connection: AppConnection, now: Moment) {
        if !connection.is_usable() {
            return;
        }
        let mut idle = self.lock();
        let list = idle.entry(Arc::clone(app)).or_default();
        let surplus = if list.len() >= self.limits.per_app {
            Some(Idle {
                connection,
                since: now,
            })
        } else {
            list.push(Idle {
                connection,
                since: now,
            });
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
                .iter_mut()
                .position(|i| {
                    !all && now.since(i.since) <= self.limits.idle && i.connection.is_usable()
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
fn close(connections: impl IntoIterator<Item = Idle>) {
    for idle in connections {
        idle.connection.control().reset(ResetCode::Idle);
    }
}
