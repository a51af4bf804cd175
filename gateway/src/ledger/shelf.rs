//! Which entry goes first when there are too many: the oldest of the app that has most.
//!
//! So a flood of one app's exchanges pushes out that app's own entries, never those of a neighbour
//! that keeps below its share. Pure; order is by a number that only rises.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::store::Serial;

/// Which shelf an entry stands on, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: ShelfKind,
    pub(super) order: u64,
}

/// What the entries of a shelf have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShelfKind {
    /// Under way.
    Running,
    /// Ended without certainty, or failed after it was handed over.
    Kept,
    /// Answered; remembered for its key.
    Settled,
    /// Ended before anything was handed over; remembered for its key.
    Refused,
}

#[derive(Debug)]
pub(super) struct Shelf {
    limit: usize,
    len: usize,
    by_app: BTreeMap<Arc<str>, BTreeMap<u64, Serial>>,
    by_order: BTreeMap<u64, Serial>,
}

impl Shelf {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            len: 0,
            by_app: BTreeMap::new(),
            by_order: BTreeMap::new(),
        }
    }

    /// Puts an entry at the end; answers the one that has to go.
    pub(super) fn put(&mut self, app: &Arc<str>, order: u64, serial: Serial) -> Option<Serial> {
        let full = self.len >= self.limit;
        let gone = if full { self.oldest_of_most() } else { None };
        self.len += 1;
        self.by_order.insert(order, serial);
        self.by_app
            .entry(Arc::clone(app))
            .or_default()
            .insert(order, serial);
        gone
    }

    pub(super) fn take(&mut self, app: &Arc<str>, order: u64) {
        if self.by_order.remove(&order).is_none() {
            return;
        }
        self.len -= 1;
        if let Some(of_app) = self.by_app.get_mut(app) {
            of_app.remove(&order);
            if of_app.is_empty() {
                self.by_app.remove(app);
            }
        }
    }

    pub(super) fn oldest(&self) -> Option<Serial> {
        self.by_order.first_key_value().map(|(_, serial)| *serial)
    }

    /// Looks at every app; there are as many as routes, and it is asked only when the shelf is full.
    fn oldest_of_most(&self) -> Option<Serial> {
        let most = self.by_app.values().max_by_key(|of_app| of_app.len())?;
        most.first_key_value().map(|(_, serial)| *serial)
    }

    /// Fails where its indices differ; answers how many entries it has.
    #[cfg(test)]
    pub(super) fn check(&self) -> usize {
        let of_apps = self.by_app.values().flat_map(BTreeMap::iter);
        let mut of_apps: Vec<_> = of_apps.collect();
        of_apps.sort();
        assert!(of_apps.into_iter().eq(self.by_order.iter()));
        assert!(self.by_order.len() == self.len && self.len <= self.limit);
        self.len
    }
}
