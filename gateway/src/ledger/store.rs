//! All entries, found by id, by request, by key and by stream. Pure: `now` comes in.
//!
//! Invariants: every index leads to an entry that exists; an entry that ended is gone after
//! [`REMEMBERED`], or earlier when its shelf is full; counts always equal the entries' states.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::handshake::Identity;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::Terminal;
use bridgehead_protocol::wire::ReportEntry;
use uuid::Uuid;

use super::State;
use super::early::Early;
use super::entry::{Closing, Entry, Outcome, Traced, TryRecord};
use super::id::{KeyDigest, OutcomeId};
use super::keys::Keys;
use super::known::{Fact, Source};
use super::shelf::{Place, Shelf, ShelfKind};

/// How long an outcome can be asked for after its exchange ended. A caller that was told `unknown`
/// asks within seconds or minutes; agents report within ten minutes.
pub(super) const REMEMBERED: Duration = Duration::from_secs(3600);
/// Entries on each shelf, about 0.8 KiB each.
pub(super) const ENTRIES: usize = 100_000;
/// Those of requests of which nothing was handed over, kept for their key. Anybody can have as many
/// of these made as he likes, each with another key, so they are few and have a shelf of their own;
/// their callers were told at once, and those who lost that answer ask soon.
pub(super) const REFUSED: usize = 10_000;

/// An entry; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(u64);

/// One try of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryRef {
    serial: Serial,
    index: usize,
}

/// What an entry begins with.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The id by which it can be asked for.
    pub id: OutcomeId,
    /// The request's id.
    pub request: Uuid,
    /// The app.
    pub app: Arc<str>,
    /// The caller's own key.
    pub key: Option<KeyDigest>,
}

/// Entries by state, in the order of [`State::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub [usize; State::ALL.len()]);

/// An outcome that was uncertain when its client was told, and how long that lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) state: State,
    /// Nothing if it never became known.
    pub(super) after: Option<Duration>,
}

/// A tunnel's id and the number of a stream in it.
pub(super) type StreamName = (Arc<str>, u32);

#[derive(Debug)]
pub(super) struct Store {
    /// Looked up, never iterated.
    entries: HashMap<Serial, Entry>,
    ids: HashMap<OutcomeId, Serial>,
    requests: HashMap<Uuid, Serial>,
    keys: Keys,
    streams: BTreeMap<StreamName, TryRef>,
    running: Shelf,
    kept: Shelf,
    settled: Shelf,
    refused: Shelf,
    early: Early,
    next: u64,
    counts: Counts,
    resolved: Vec<Resolved>,
}

impl Default for Store {
    fn default() -> Self {
        Self::with_limit(ENTRIES)
    }
}

impl Store {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            ids: HashMap::new(),
            requests: HashMap::new(),
            keys: Keys::with_limit(limit),
            streams: BTreeMap::new(),
            running: Shelf::new(limit),
            kept: Shelf::new(limit),
            settled: Shelf::new(limit),
            refused: Shelf::new(limit.min(REFUSED)),
            early: Early::default(),
            next: 0,
            counts: Counts::default(),
            resolved: Vec::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn shelf(&mut self, kind: ShelfKind) -> &mut Shelf {
        match kind {
            ShelfKind::Running => &mut self.running,
            ShelfKind::Kept => &mut self.kept,
            ShelfKind::Settled => &mut self.settled,
            ShelfKind::Refused => &mut self.refused,
        }
    }

    // ---- the life of an entry --------------------------------------------------------------

    pub(super) fn open(&mut self, now: Moment, opening: Opening) -> Serial {
        self.sweep(now);
        let serial = Serial(self.number());
        let place = Place {
            kind: ShelfKind::Running,
            order: serial.0,
        };
        let entry = Entry {
            id: opening.id,
            request: opening.request,
            app: Arc::clone(&opening.app),
            key: opening.key,
            tries: Vec::new(),
            closed: None,
            at: now,
            place,
        };
        self.counts.0[entry.state() as usize] += 1;
        self.ids.insert(entry.id, serial);
        self.requests.insert(entry.request, serial);
        self.entries.insert(serial, entry);
        if let Some(key) = opening.key {
            let surplus = self.keys.add(now, key, serial);
            surplus
                .into_iter()
                .for_each(|oldest| self.unkey(now, oldest));
        }
        let gone = self.running.put(&opening.app, place.order, serial);
        gone.into_iter().for_each(|gone| self.remove(now, gone));
        serial
    }

    pub(super) fn tried(&mut self, now: Moment, serial: Serial, record: TryRecord) -> TryRef {
        let stream = record
            .stream
            .map(|stream| (Arc::clone(&record.tunnel), stream));
        let owner = record.owner.clone();
        let index = self
            .change(now, serial, |entry| {
                // Nearly all have one, and there may be very many entries.
                entry.tries.reserve_exact(1);
                entry.tries.push(Traced {
                    record,
                    watched: true,
                });
                entry.tries.len() - 1
            })
            .unwrap_or(usize::MAX);
        let which = TryRef { serial, index };
        if let Some(stream) = stream.filter(|_| index != usize::MAX) {
            let early = self.early.take(&owner, &stream);
            self.streams.insert(stream, which);
            early
                .into_iter()
                .for_each(|fact| self.learn(now, which, fact));
        }
        which
    }

    pub(super) fn close(
        &mut self,
        now: Moment,
        serial: Serial,
        closing: Closing,
    ) -> Option<OutcomeId> {
        self.sweep(now);
        let kind = self.change(now, serial, |entry| {
            entry.closed = Some((now, closing));
            let answered = matches!(closing, Closing::Answered { .. });
            let certain = answered || entry.tries.is_empty();
            match (certain, entry.key) {
                (false, _) => Some(ShelfKind::Kept),
                (true, Some(_)) if answered => Some(ShelfKind::Settled),
                (true, Some(_)) => Some(ShelfKind::Refused),
                (true, None) => None,
            }
        })?;
        let Some(kind) = kind else {
            self.remove(now, serial);
            return None;
        };
        let order = self.number();
        let entry = self.entries.get_mut(&serial)?;
        let old = std::mem::replace(&mut entry.place, Place { kind, order });
        let (app, id) = (Arc::clone(&entry.app), entry.id);
        self.shelf(old.kind).take(&app, old.order);
        let gone = self.shelf(kind).put(&app, order, serial);
        gone.into_iter().for_each(|gone| self.remove(now, gone));
        (kind == ShelfKind::Kept).then_some(id)
    }

    /// Takes out what has ended longer ago than is remembered.
    pub(super) fn sweep(&mut self, now: Moment) {
        for kind in [ShelfKind::Kept, ShelfKind::Settled, ShelfKind::Refused] {
            while let Some(oldest) = self.shelf(kind).oldest() {
                let closed = self.entries.get(&oldest).and_then(|entry| entry.closed);
                if closed.is_some_and(|(closed, _)| now.since(closed) < REMEMBERED) {
                    break;
                }
                self.remove(now, oldest);
            }
        }
        self.keys.sweep(now);
        self.early.sweep(now);
    }

    fn remove(&mut self, now: Moment, serial: Serial) {
        let Some(entry) = self.entries.remove(&serial) else {
            return;
        };
        let state = entry.state();
        self.counts.0[state as usize] -= 1;
        let uncertain = matches!(state, State::Unknown | State::Pending);
        if entry.closed.is_some() && uncertain {
            self.resolved.push(Resolved {
                state: State::Unknown,
                after: None,
            });
        }
        self.ids.remove(&entry.id);
        self.requests.remove(&entry.request);
        for traced in &entry.tries {
            if let Some(stream) = traced.record.stream {
                let name = (Arc::clone(&traced.record.tunnel), stream);
                self.streams.remove(&name);
            }
        }
        if let Some(key) = entry.key {
            self.keys.forget(now, key, serial, state);
        }
        self.shelf(entry.place.kind)
            .take(&entry.app, entry.place.order);
    }

    /// The entry stays and is no longer found by its key.
    fn unkey(&mut self, now: Moment, serial: Serial) {
        let Some(entry) = self.entries.get_mut(&serial) else {
            return;
        };
        let (key, state) = (entry.key.take(), entry.state());
        if let Some(key) = key {
            self.keys.forget(now, key, serial, state);
        }
    }

    /// Changes an entry and keeps account of its state.
    fn change<T>(
        &mut self,
        now: Moment,
        serial: Serial,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let entry = self.entries.get_mut(&serial)?;
        let (before, told) = (entry.outcome(), entry.closed);
        let result = change(entry);
        let after = entry.outcome();
        if (before.state, before.status) != (after.state, after.status) {
            entry.at = now;
        }
        if before.state != after.state {
            self.counts.0[before.state as usize] -= 1;
            self.counts.0[after.state as usize] += 1;
            let known = matches!(after.state, State::Answered | State::NotDelivered);
            if let Some((closed, _)) = told.filter(|_| known) {
                self.resolved.push(Resolved {
                    state: after.state,
                    after: Some(now.since(closed)),
                });
            }
        }
        Some(result)
    }

    // ---- later facts -----------------------------------------------------------------------

    pub(super) fn learn(&mut self, now: Moment, which: TryRef, fact: Fact) {
        self.change(now, which.serial, |entry| {
            if let Some(traced) = entry.tries.get_mut(which.index) {
                traced.record.known = traced.record.known.with(fact);
            }
        });
    }

    pub(super) fn unwatch(&mut self, now: Moment, which: TryRef) {
        self.change(now, which.serial, |entry| {
            if let Some(traced) = entry.tries.get_mut(which.index) {
                traced.watched = false;
            }
        });
    }

    pub(super) fn report(&mut self, now: Moment, identity: &Identity, entries: &[ReportEntry]) {
        self.sweep(now);
        for reported in entries {
            let stream = (
                format!("{:032x}", reported.tunnel).into(),
                reported.stream.0,
            );
            let fact = Fact::Ended {
                terminal: Terminal::Counted {
                    written: reported.written,
                },
                read: Some(reported.read),
                source: Source::AgentReport,
            };
            match self.streams.get(&stream).copied() {
                Some(which) if self.owns(identity, which) => self.learn(now, which, fact),
                Some(_) => {}
                None => self.early.keep(now, identity, stream, fact),
            }
        }
    }

    /// What an agent reported of a stream whose exchange has not ended yet.
    pub(super) fn reported(&self, owner: &Identity, stream: &StreamName) -> Option<Fact> {
        self.early.look(owner, stream)
    }

    fn owns(&self, identity: &Identity, which: TryRef) -> bool {
        let entry = self.entries.get(&which.serial);
        let traced = entry.and_then(|entry| entry.tries.get(which.index));
        traced.is_some_and(|traced| traced.record.owner == *identity)
    }

    // ---- asking ----------------------------------------------------------------------------

    pub(super) fn by_id(&mut self, now: Moment, id: OutcomeId) -> Option<Outcome> {
        self.sweep(now);
        self.outcome(*self.ids.get(&id)?)
    }

    pub(super) fn by_request(&mut self, now: Moment, request: Uuid) -> Option<Outcome> {
        self.sweep(now);
        self.outcome(*self.requests.get(&request)?)
    }

    pub(super) fn by_key(&mut self, now: Moment, key: KeyDigest) -> Option<Outcome> {
        self.sweep(now);
        let page = self.keys.page(&key)?;
        let outcomes = page
            .serials()
            .iter()
            .filter_map(|serial| self.outcome(*serial));
        page.together(outcomes)
    }

    fn outcome(&self, serial: Serial) -> Option<Outcome> {
        self.entries.get(&serial).map(Entry::outcome)
    }

    pub(super) fn counts(&mut self, now: Moment) -> Counts {
        self.sweep(now);
        self.counts
    }

    pub(super) fn take_resolved(&mut self) -> Vec<Resolved> {
        std::mem::take(&mut self.resolved)
    }

    /// Fails where an index leads nowhere or a count is wrong.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let known = |serial: &Serial| self.entries.contains_key(serial);
        assert!(self.ids.values().all(known) && self.ids.len() == self.entries.len());
        assert!(self.requests.values().all(known));
        assert!(self.streams.values().all(|which| known(&which.serial)));
        let keyed = self.keys.serials();
        assert!(keyed.clone().all(known));
        let with_key = self.entries.values().filter(|entry| entry.key.is_some());
        assert_eq!(keyed.count(), with_key.count());
        let mut counts = Counts::default();
        for entry in self.entries.values() {
            counts.0[entry.state() as usize] += 1;
        }
        assert_eq!(counts, self.counts);
        let shelves = [&self.running, &self.kept, &self.settled, &self.refused];
        let shelved: usize = shelves.iter().map(|shelf| shelf.check()).sum();
        assert_eq!(shelved, self.entries.len());
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
