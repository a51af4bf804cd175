//! Connections to apps: those that wait for their next exchange, and who waits for one.
//!
//! One pool for all tunnels of an agent's start, because they lead to the same app. Newest taken
//! first. Bounded per app and in time; what is stale by its stream's own word is never given out, and
//! what is stale without the gateway knowing is found by BEGIN at the agent. Nothing is kept while
//! an exchange waits for an app that may be busy with keeping (see [`Uptake`]). Connections are
//! closed and dropped outside of the lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::ResetCode;
use tokio::sync::oneshot;

use super::connection::AppConnection;
use super::registry::TunnelNumber;
use super::uptake::{Ticket, Uptake};

/// How many connections wait, and how long.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Longest idle time.
    pub idle: Duration,
    /// Connections kept per app.
    pub per_app: usize,
}

/// The pool.
pub struct Pool {
    limits: PoolLimits,
    apps: Mutex<BTreeMap<Arc<str>, Arc<AppPool>>>,
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            apps: Mutex::default(),
        }
    }

    fn apps(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<AppPool>>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connections to `app`.
    #[must_use]
    pub fn app(&self, app: &Arc<str>) -> Arc<AppPool> {
        let mut apps = self.apps();
        if let Some(pool) = apps.get(app) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(AppPool {
            limits: self.limits,
            state: Mutex::default(),
        });
        apps.insert(Arc::clone(app), Arc::clone(&pool));
        pool
    }

    /// Closes what has been idle too long, and forgets apps to which there is no connection: an agent may
    /// name ever new ones.
    pub fn reap(&self, now: Moment) {
        let limit = self.limits.idle;
        self.close_those(|idle| now.since(idle.since) > limit || !idle.kept.connection.is_usable());
        // Connections hold their app's pool, and so does whoever is about to make one.
        self.apps().retain(|_, app| Arc::strong_count(app) > 1);
    }

    /// Closes whatever waits on this tunnel.
    pub fn close_tunnel(&self, number: TunnelNumber) {
        self.close_those(|idle| idle.kept.tunnel == number);
    }

    fn close_those(&self, mut over: impl FnMut(&mut Idle) -> bool) {
        let apps: Vec<Arc<AppPool>> = self.apps().values().map(Arc::clone).collect();
        for app in apps {
            let mut state = app.state();
            let all = std::mem::take(&mut state.idle).into_iter();
            let (closed, kept) = all.map(|mut idle| (over(&mut idle), idle)).fold(
                (Vec::new(), Vec::new()),
                |(mut closed, mut kept), (over, idle)| {
                    if over {
                        closed.push(idle.kept);
                    } else {
                        kept.push(idle);
                    }
                    (closed, kept)
                },
            );
            state.idle = kept;
            drop(state);
            close(closed);
        }
    }
}

/// A connection between two exchanges.
pub struct Kept {
    /// The connection.
    pub connection: AppConnection,
    /// Its place at the app.
    pub seat: Seat,
    /// The tunnel it goes through.
    pub tunnel: TunnelNumber,
}

struct Idle {
    kept: Kept,
    since: Moment,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    idle: Vec<Idle>,
    uptake: Uptake,
    /// Those who would rather have a connection that becomes free than wait for their own to stand.
    callers: BTreeMap<Ticket, oneshot::Sender<Kept>>,
}

/// Which kept connection will do.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The tunnel that was picked.
    pub tunnel: TunnelNumber,
    /// Tunnels that failed.
    pub avoid: &'a [TunnelNumber],
    /// Longest idle time.
    pub at_most: Duration,
}

/// The connections of one app.
pub struct AppPool {
    limits: PoolLimits,
    state: Mutex<State>,
}

impl AppPool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept connection, if there is one. One of another tunnel comes second; an app that holds
    /// several connections gets a new one instead. If all are too old for this exchange, the one that
    /// it would have used is closed: the new one takes its place, also at an app with one place. The
    /// same where none `suits`, but one that another exchange can use stays if the app holds several.
    pub fn take(
        &self,
        now: Moment,
        wanted: Wanted<'_>,
        mut suits: impl FnMut(&AppConnection) -> bool,
    ) -> Option<Kept> {
        let at_most = wanted.at_most.min(self.limits.idle);
        let mut state = self.state();
        let elsewhere = !state.uptake.holds_several() || state.uptake.is_crowded(now);
        let own = |idle: &Idle| idle.kept.tunnel == wanted.tunnel;
        let fits =
            |idle: &Idle| own(idle) || (elsewhere && !wanted.avoid.contains(&idle.kept.tunnel));
        let young = |idle: &Idle| now.since(idle.since) <= at_most;
        let mut gone = Vec::new();
        let mut unsuited = false;
        let found = loop {
            let idle = &mut state.idle;
            let mut good = |i: &Idle| {
                let suits = young(i) && suits(&i.kept.connection);
                unsuited |= young(i) && !suits;
                suits
            };
            let at = idle.iter().rposition(|i| own(i) && good(i));
            let Some(at) = at.or_else(|| idle.iter().rposition(|i| fits(i) && good(i))) else {
                break None;
            };
            let mut kept = idle.remove(at).kept;
            if kept.connection.is_usable() {
                break Some(kept);
            }
            gone.push(kept);
        };
        if found.is_none()
            && !(unsuited && state.uptake.holds_several())
            && let Some(at) = state.idle.iter().rposition(fits)
        {
            gone.push(state.idle.remove(at).kept);
        }
        drop(state);
        close(gone);
        found
    }

    /// A new connection is asked for.
    #[must_use]
    pub fn ask(self: &Arc<Self>, now: Moment) -> Seat {
        let ticket = self.state().uptake.ask(now);
        Seat {
            pool: Arc::clone(self),
            ticket,
        }
    }

    fn put(&self, mut kept: Kept, now: Moment) {
        if !kept.connection.is_usable() {
            return;
        }
        let mut state = self.state();
        let surplus = match state.uptake.claim(now) {
            Some(ticket) => match state.callers.remove(&ticket) {
                Some(caller) => {
                    state.uptake.gone(ticket);
                    caller.send(kept).err()
                }
                None => Some(kept),
            },
            None if state.idle.len() >= self.limits.per_app => Some(kept),
            None => {
                state.idle.push(Idle { kept, since: now });
                None
            }
        };
        drop(state);
        close(surplus);
    }
}

/// One connection's place at the app, from the moment it is asked for; given back by its drop.
pub struct Seat {
    pool: Arc<AppPool>,
    ticket: Ticket,
}

impl Seat {
    /// The agent said that the connection stands.
    pub fn stands(&self) {
        self.pool.state().uptake.stands(self.ticket);
    }

    /// A byte of the app came.
    pub fn taken_up(&self) {
        self.pool.state().uptake.taken_up(self.ticket);
    }

    /// Keeps a connection whose exchange ended in order, unless somebody has a claim on it: a caller
    /// gets it, for a connection in the app's backlog it is closed. Beyond the limit it is closed.
    pub fn keep(self, connection: AppConnection, tunnel: TunnelNumber, now: Moment) {
        let pool = Arc::clone(&self.pool);
        let kept = Kept {
            connection,
            seat: self,
            tunnel,
        };
        pool.put(kept, now);
    }

    /// True while an exchange waits for an app that may have no place for it.
    #[must_use]
    pub fn is_crowded(&self, now: Moment) -> bool {
        self.pool.state().uptake.is_crowded(now)
    }

    /// Closes one idle connection, if that may help; false once this one does not wait any more.
    pub fn make_room(&self, now: Moment) -> bool {
        let mut state = self.pool.state();
        if !state.uptake.is_waiting(self.ticket) {
            return false;
        }
        let mut gone = Vec::new();
        while !state.idle.is_empty() && state.uptake.claim(now).is_some() {
            let mut kept = state.idle.remove(0).kept;
            let occupied = kept.connection.is_usable();
            gone.push(kept);
            if occupied {
                break;
            }
        }
        drop(state);
        close(gone);
        true
    }

    /// From now on a connection that becomes free is handed over in place of this one.
    #[must_use]
    pub fn call(&self) -> oneshot::Receiver<Kept> {
        let (sender, receiver) = oneshot::channel();
        self.pool.state().callers.insert(self.ticket, sender);
        receiver
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.uptake.gone(self.ticket);
        let caller = state.callers.remove(&self.ticket);
        drop(state);
        drop(caller);
    }
}

/// Ends connections without an exchange in an orderly way.
fn close(connections: impl IntoIterator<Item = Kept>) {
    for kept in connections {
        kept.connection.control().reset(ResetCode::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_without_a_connection_is_forgotten_and_one_with_a_caller_is_not() {
        let pool = Pool::new(PoolLimits {
            idle: Duration::from_secs(4),
            per_app: 8,
        });
        let (used, now) = (pool.app(&"used".into()), Moment::ZERO);
        for n in 0..100 {
            drop(pool.app(&format!("shop-{n}").into()));
        }
        pool.reap(now);
        assert_eq!(pool.apps().len(), 1);
        assert!(Arc::ptr_eq(&used, &pool.app(&"used".into())));
    }
}
