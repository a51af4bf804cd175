//! The outcome ledger: what became of requests whose answer could not say it, or never arrived.
//!
//! | File | Holds |
//! |---|---|
//! | `id` | ids that cannot be guessed, and the keys that callers bring |
//! | `known` | what is known of one try, and the one function by which a later fact changes it |
//! | `entry` | one exchange with its tries, and what may be said of it |
//! | `shelf` | which entry goes first when there are too many |
//! | `early` | reports that come before their exchange has ended |
//! | `awaited` | exchanges that wait for a report before they end |
//! | `keys` | several exchanges under one key, told together |
//! | `store` | all entries, found by id, by request, by key and by stream |
//! | `said` | the answer to a caller as JSON |
//!
//! [`Ledger`] is the store behind a short lock, with its counters; everything else is pure, `now`
//! and random numbers come in. It must not know HTTP connections or tunnels: the corridor and the
//! enrolment bring facts. Invariants: nothing said is ever taken back or weakened, a told
//! `not_delivered` never changes; an id that is not known is answered `unknown`, never denied.

mod awaited;
mod early;
mod entry;
mod id;
mod keys;
mod known;
mod said;
mod shelf;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridgehead_protocol::handshake::Identity;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::ReportEntry;
use uuid::Uuid;

pub use self::awaited::Awaited;
pub use self::entry::{Closing, Outcome, TryRecord};
pub use self::id::{KeyDigest, KeyError, OutcomeId, OutcomeKey};
pub use self::known::{Fact, Known, Reply, Source};
pub use self::said::{Said, said};
pub use self::store::{Counts, Opening, Serial, TryRef};
pub use crate::telemetry::labels::LedgerState as State;

use self::awaited::Awaiting;
use self::store::{Resolved, Store};
use crate::telemetry::metrics::Metrics;

/// The ledger of one gateway, shared by all workers.
#[derive(Debug)]
pub struct Ledger {
    store: Mutex<Store>,
    metrics: Arc<Metrics>,
    secret: [u8; 32],
    awaiting: Awaiting,
}

impl Ledger {
    /// An empty ledger. `secret`: random bytes, so that what is kept of a key tells nobody the key.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, secret: [u8; 32]) -> Self {
        Self {
            store: Mutex::default(),
            metrics,
            secret,
            awaiting: Awaiting::default(),
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the store, then counts what became known.
    fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.store();
        let result = change(&mut store);
        let resolved = store.take_resolved();
        drop(store);
        for Resolved { state, after } in resolved {
            self.metrics.ledger_resolved(state, after);
        }
        result
    }

    /// What is kept of a key that came with a request for `host`.
    #[must_use]
    pub fn digest(&self, host: &str, key: &OutcomeKey<'_>) -> KeyDigest {
        key.digest(&self.secret, host)
    }

    /// Enters an exchange that is under way.
    pub fn open(&self, now: Moment, opening: Opening) -> Serial {
        self.change(|store| store.open(now, opening))
    }

    /// Notes a try that may have reached the app; it is watched until [`Ledger::unwatch`].
    pub fn tried(&self, now: Moment, serial: Serial, record: TryRecord) -> TryRef {
        self.change(|store| store.tried(now, serial, record))
    }

    /// The exchange has ended. Answers the id under which its outcome can be asked for, if it stays
    /// in the ledger.
    pub fn close(&self, now: Moment, serial: Serial, closing: Closing) -> Option<OutcomeId> {
        self.change(|store| store.close(now, serial, closing))
    }

    /// A later fact about a try.
    pub fn learn(&self, now: Moment, which: TryRef, fact: Fact) {
        self.change(|store| store.learn(now, which, fact));
    }

    /// Nothing more will be heard of a try, unless its agent reports.
    pub fn unwatch(&self, now: Moment, which: TryRef) {
        self.change(|store| store.unwatch(now, which));
    }

    /// What an agent tells of streams whose tunnel was lost. Only streams of tunnels of the same
    /// identity are taken, and only counts that contradict nothing that is known.
    pub fn report(&self, now: Moment, identity: &Identity, entries: &[ReportEntry]) {
        self.change(|store| store.report(now, identity, entries));
        self.awaiting.wake();
    }

    /// What became of the exchange with this id.
    #[must_use]
    pub fn by_id(&self, now: Moment, id: OutcomeId) -> Option<Outcome> {
        self.change(|store| store.by_id(now, id))
    }

    /// What became of the exchanges with this key, told together.
    #[must_use]
    pub fn by_key(&self, now: Moment, key: KeyDigest) -> Option<Outcome> {
        self.change(|store| store.by_key(now, key))
    }

    /// What became of the exchange with this request id; for the operator only, since request ids
    /// can be guessed.
    #[must_use]
    pub fn by_request(&self, now: Moment, request: Uuid) -> Option<Outcome> {
        self.change(|store| store.by_request(now, request))
    }

    /// Entries by state.
    #[must_use]
    pub fn counts(&self, now: Moment) -> Counts {
        self.change(|store| store.counts(now))
    }
}

#[cfg(test)]
mod tests;
