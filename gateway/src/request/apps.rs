//! What this gateway has seen of each app: whether it was ever reached, and how often it refused.
//!
//! Shared by all workers. A repeated refusal is counted so that its answer can say since when: an
//! app that crashes at boot must not look like one that is starting. Bounded by the routes: what has none
//! any more is forgotten.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::Reason;

use crate::admit::Gate;
use crate::route::AppRoute;
use crate::telemetry::metrics::{AppMetrics, Metrics, Named};

/// Pause between two tries of held exchanges while the app refuses, over all of them: a crowd that
/// waits must not keep the agent busy with dialling.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// The same once it is back, so that a crowd does not fall upon it in one moment.
const RELEASE_EVERY: Duration = Duration::from_millis(1);

/// Turns are given this far ahead, no further: an app that is back must not wait for old plans.
const SOON: Duration = Duration::from_millis(250);

/// A run of refusals, ended by the next connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// When it began.
    pub since: Moment,
    /// How many there were.
    pub count: u64,
    /// Reason of the last one.
    pub reason: Reason,
}

/// One app.
pub struct AppState {
    /// Its name.
    pub name: Arc<str>,
    /// Its metrics.
    pub metrics: Arc<AppMetrics>,
    /// Its limits and what they hold.
    pub gate: Arc<Gate>,
    reached: AtomicBool,
    refusals: Mutex<Option<Refusals>>,
    next_turn: Mutex<Moment>,
}

impl AppState {
    /// True once any connection to it stood.
    #[must_use]
    pub fn was_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// A connection stands; a run of refusals is over.
    pub fn reached(&self) {
        if !self.reached.swap(true, Ordering::Relaxed) || self.refusals().is_some() {
            *self.refusals.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// One more refusal; answers the run.
    pub fn refused(&self, now: Moment, reason: Reason) -> Refusals {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let run = refusals.get_or_insert(Refusals {
            since: now,
            count: 0,
            reason,
        });
        run.count += 1;
        run.reason = reason;
        *run
    }

    /// How long until the turn of a held exchange, which is its own from now on; `None` if no turn is
    /// free soon.
    pub fn turn(&self, now: Moment) -> Option<Duration> {
        let pause = match self.refusals() {
            Some(_) => ASK_EVERY,
            None => RELEASE_EVERY,
        };
        let mut next = self
            .next_turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let turn = (*next).max(now);
        let wait = turn.since(now);
        (wait < SOON).then(|| {
            *next = turn + pause;
            wait
        })
    }

    /// The run that is going on.
    #[must_use]
    pub fn refusals(&self) -> Option<Refusals> {
        *self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All apps with a route that a request asked for.
pub struct Apps {
    metrics: Arc<Metrics>,
    known: ArcSwap<BTreeMap<Arc<str>, Arc<AppState>>>,
    adding: Mutex<()>,
}

impl Apps {
    /// None known yet.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            known: ArcSwap::default(),
            adding: Mutex::default(),
        }
    }

    /// What is known of an app, if anybody asked for it since it got its route.
    #[must_use]
    pub fn known(&self, name: &str) -> Option<Arc<AppState>> {
        self.known.load().get(name).cloned()
    }

    /// Forgets the apps that `stay` denies, with their series. Exchanges that run keep what they have.
    pub fn retain(&self, stay: impl Fn(&str) -> bool) {
        let _one = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load();
        let goes: Vec<&Arc<str>> = known.keys().filter(|name| !stay(name)).collect();
        if goes.is_empty() {
            return;
        }
        let mut next = BTreeMap::clone(&known);
        for name in goes {
            next.remove(name);
            self.metrics.forget(name);
        }
        self.known.store(Arc::new(next));
    }

    /// The state of the app of this route.
    #[must_use]
    pub fn of_route(&self, route: &AppRoute) -> Arc<AppState> {
        let named = match route.configured {
            true => Named::ByOperator,
            false => Named::ByAgent,
        };
        self.state_named(route.name.as_str(), named)
    }

    /// The state of a configured app.
    #[must_use]
    pub fn state(&self, name: &str) -> Arc<AppState> {
        self.state_named(name, Named::ByOperator)
    }

    fn state_named(&self, name: &str, named: Named) -> Arc<AppState> {
        if let Some(state) = self.known.load().get(name) {
            return Arc::clone(state);
        }
        let _one = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load();
        if let Some(state) = known.get(name) {
            return Arc::clone(state);
        }
        let state = Arc::new(AppState {
            name: name.into(),
            metrics: self.metrics.app_named(name, named),
            gate: Arc::default(),
            reached: AtomicBool::new(false),
            refusals: Mutex::default(),
            next_turn: Mutex::new(Moment::ZERO),
        });
        let mut next = BTreeMap::clone(&known);
        next.insert(Arc::clone(&state.name), Arc::clone(&state));
        self.known.store(Arc::new(next));
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_exchanges_take_turns_that_come_faster_once_the_app_is_back() {
        let app = Apps::new(Metrics::new()).state("demo");
        let (now, later) = (Moment::from_micros(0), Moment::from_micros(10_000_000));
        app.refused(now, Reason::ConnectRefused);
        let turns: Vec<_> = (0..1000).filter_map(|_| app.turn(now)).collect();
        assert_eq!((turns.len(), turns[1]), (13, ASK_EVERY));
        app.reached();
        assert_eq!((0..1000).filter_map(|_| app.turn(later)).count(), 250);
    }

    #[test]
    fn a_run_of_refusals_is_counted_until_the_app_is_reached() {
        let apps = Apps::new(Metrics::new());
        let app = apps.state("demo");
        app.refused(Moment::from_micros(5), Reason::ConnectRefused);
        let run = app.refused(Moment::from_micros(9), Reason::ConnectTimeout);
        assert_eq!(
            run,
            Refusals {
                since: Moment::from_micros(5),
                count: 2,
                reason: Reason::ConnectTimeout
            }
        );
        assert!(!app.was_reached());
        app.reached();
        assert_eq!(
            (app.was_reached(), apps.state("demo").refusals()),
            (true, None)
        );
    }
}
