//! The places in flight of one app and the line of those who wait for one.
//!
//! First come, first served among those whose client has not got its share of the places: a client
//! that has waits for one of its own to become free, and whoever stands behind it passes. An
//! exchange whose app is away stands aside while it is held: it counts among those who wait, tries
//! again from time to time, and comes back to where it stood. A place that is given to somebody in
//! the line stays taken in between, so nobody can slip in. Invariants: `taken` never exceeds the
//! limit by what this file gives, nor a client's share; those who wait and those who are held are
//! together no more than the line has room for; who leaves the line, or was given a place and does
//! not take it, costs nobody a place; each step costs the logarithm of those who wait, however many
//! of them one client sent.

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bridgehead_protocol::time::Moment;

use super::net::Client;
use super::share::{Bounds, Reached};

/// Where an exchange stands in the order of arrival, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    number: u64,
    client: Client,
}

/// Who has to be woken once the lock is free again.
pub(super) type Wakers = Vec<Waker>;

#[derive(Debug, Default)]
pub(super) struct Line {
    places: Bounds,
    taken: usize,
    /// Whoever has a place, waits for one or is held; nobody else is remembered.
    clients: BTreeMap<Client, Mine>,
    /// Of each client that may have one more place, the first who waits.
    next_in: BTreeMap<u64, Client>,
    waiting: usize,
    held: usize,
    /// Those who wait in the line and are held.
    back: usize,
    given: BTreeSet<u64>,
    next: u64,
    drain: Drain,
}

/// What one client has.
#[derive(Debug, Default)]
struct Mine {
    taken: usize,
    /// Those whose hold goes on, wherever they stand.
    held: BTreeSet<u64>,
    back: usize,
    waiting: BTreeMap<u64, Option<Waker>>,
    /// The one that stands in `next_in`.
    listed: Option<u64>,
}

/// How a newcomer was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// It has a place.
    In,
    /// It waits for one.
    Waits,
    /// Nobody may wait any more; a place in the line is likely to be free after this time.
    Full(Duration),
    /// The same, for this client alone.
    ShareFull(Duration),
}

impl Line {
    /// So many places there are from now on, and so many for one client.
    pub(super) fn resize(&mut self, places: Bounds) -> Wakers {
        let share_moved = self.places.each != places.each;
        self.places = places;
        if share_moved {
            let clients: Vec<Client> = self.clients.keys().copied().collect();
            clients.into_iter().for_each(|client| self.list(client));
        }
        self.fill()
    }

    /// A newcomer asks for a place, or for one in the line.
    pub(super) fn join(
        &mut self,
        now: Moment,
        client: Client,
        line: Bounds,
        patience: Duration,
    ) -> (Turn, Joined) {
        let number = self.next;
        self.next += 1;
        let turn = Turn { number, client };
        self.drain.look(now);
        // Who waits and may have a place was given it, so a free place is nobody's.
        if self.taken < self.places.all && self.taken_by(client) < self.places.each {
            self.take(client);
            return (turn, Joined::In);
        }
        let pause = |ahead| self.drain.time_for(now, ahead + 1, patience);
        match self.room(client, line) {
            Ok(()) => {
                self.wait(turn);
                (turn, Joined::Waits)
            }
            Err(Reached::All) => (turn, Joined::Full(pause(self.ahead()))),
            Err(Reached::Share) => (turn, Joined::ShareFull(pause(self.ahead_of(client)))),
        }
    }

    /// An exchange gives its place back and stands aside until its app is back, unless all who may
    /// wait do so already: then it keeps its place. One that is held already is held on, so that
    /// nobody who came later takes what it has while it tries again.
    pub(super) fn hold(&mut self, turn: Turn, line: Bounds) -> Result<Wakers, Reached> {
        let mine = self.clients.get(&turn.client);
        if mine.is_none_or(|mine| !mine.held.contains(&turn.number)) {
            self.room(turn.client, line)?;
            self.held += 1;
            let mine = self.clients.entry(turn.client).or_default();
            mine.held.insert(turn.number);
        }
        Ok(self.release(turn))
    }

    /// An exchange that stood aside wants a place again. It is never turned away: it counts among
    /// those who wait all the time.
    pub(super) fn rejoin(&mut self, turn: Turn) -> Joined {
        if self.taken < self.places.all && self.taken_by(turn.client) < self.places.each {
            self.take(turn.client);
            return Joined::In;
        }
        self.wait(turn);
        Joined::Waits
    }

    /// The hold of an exchange is over: its app is back, or it is.
    pub(super) fn end_hold(&mut self, turn: Turn) {
        let mine = self.clients.get_mut(&turn.client);
        if mine.is_some_and(|mine| mine.held.remove(&turn.number)) {
            self.held -= 1;
        }
        debug_assert!(
            self.back <= self.held,
            "who waits for a place leaves the line first"
        );
        self.list(turn.client);
    }

    /// Ready once the place is there and taken.
    pub(super) fn poll(&mut self, turn: Turn, cx: &mut Context<'_>) -> Poll<()> {
        if self.given.remove(&turn.number) {
            return Poll::Ready(());
        }
        let mine = self.clients.get_mut(&turn.client);
        if let Some(waker) = mine.and_then(|mine| mine.waiting.get_mut(&turn.number)) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The waiter goes, with or without a place that it was given meanwhile.
    pub(super) fn leave(&mut self, turn: Turn) -> Wakers {
        if self.given.remove(&turn.number) {
            return self.release(turn);
        }
        if self.step_out(turn).is_some() {
            self.list(turn.client);
        }
        Wakers::new()
    }

    /// A place is free again.
    pub(super) fn release(&mut self, turn: Turn) -> Wakers {
        debug_assert!(self.taken > 0, "only what was taken is given back");
        self.taken = self.taken.saturating_sub(1);
        if let Some(mine) = self.clients.get_mut(&turn.client) {
            debug_assert!(mine.taken > 0, "only what was taken is given back");
            mine.taken = mine.taken.saturating_sub(1);
        }
        self.drain.departed += 1;
        self.list(turn.client);
        self.fill()
    }

    pub(super) fn taken(&self) -> usize {
        self.taken - self.given.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting + self.given.len()
    }

    /// Exchanges whose app is away, whether they stand aside or try again.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Clients that have all the places they may have.
    pub(super) fn at_their_share(&self) -> usize {
        let full = |mine: &&Mine| mine.taken >= self.places.each;
        self.clients.values().filter(full).count()
    }

    /// True while the client has all the places that one may have, and others are free.
    pub(super) fn waits_for_itself(&self, turn: Turn) -> bool {
        self.taken < self.places.all && self.taken_by(turn.client) >= self.places.each
    }

    /// When one more place is likely to be free.
    pub(super) fn time_for_one(&mut self, now: Moment, most: Duration) -> Duration {
        self.drain.look(now);
        self.drain.time_for(now, 1, most)
    }

    fn taken_by(&self, client: Client) -> usize {
        self.clients.get(&client).map_or(0, |mine| mine.taken)
    }

    /// Those who wait or are held.
    fn ahead(&self) -> usize {
        self.waiting + self.held - self.back
    }

    fn ahead_of(&self, client: Client) -> usize {
        let mine = self.clients.get(&client);
        mine.map_or(0, |m| m.waiting.len() + m.held.len() - m.back)
    }

    /// Whether one more may wait.
    fn room(&self, client: Client, line: Bounds) -> Result<(), Reached> {
        if self.ahead() >= line.all {
            return Err(Reached::All);
        }
        match self.ahead_of(client) >= line.each {
            true => Err(Reached::Share),
            false => Ok(()),
        }
    }

    fn take(&mut self, client: Client) {
        self.taken += 1;
        self.clients.entry(client).or_default().taken += 1;
        self.list(client);
    }

    fn wait(&mut self, turn: Turn) {
        let mine = self.clients.entry(turn.client).or_default();
        mine.waiting.insert(turn.number, None);
        let back = usize::from(mine.held.contains(&turn.number));
        mine.back += back;
        self.back += back;
        self.waiting += 1;
        self.list(turn.client);
    }

    /// Takes somebody out of the line; answers his waker if he stood there.
    fn step_out(&mut self, turn: Turn) -> Option<Option<Waker>> {
        let mine = self.clients.get_mut(&turn.client)?;
        let waker = mine.waiting.remove(&turn.number)?;
        let back = usize::from(mine.held.contains(&turn.number));
        mine.back -= back;
        self.back -= back;
        self.waiting -= 1;
        Some(waker)
    }

    fn fill(&mut self) -> Wakers {
        let mut wakers = Wakers::new();
        while self.taken < self.places.all
            && let Some((number, client)) = self.next_in.pop_first()
        {
            if let Some(mine) = self.clients.get_mut(&client) {
                mine.listed = None;
            }
            let waker = self.step_out(Turn { number, client });
            wakers.extend(waker.flatten());
            self.given.insert(number);
            self.take(client);
        }
        wakers
    }

    /// Puts the client's first who waits where the next free place finds it, if it may have one.
    fn list(&mut self, client: Client) {
        let Some(mine) = self.clients.get_mut(&client) else {
            return;
        };
        let first = mine.waiting.keys().next().copied();
        let first = first.filter(|_| mine.taken < self.places.each);
        if mine.listed != first {
            if let Some(before) = mine.listed {
                self.next_in.remove(&before);
            }
            if let Some(number) = first {
                self.next_in.insert(number, client);
            }
            mine.listed = first;
        }
        if mine.taken == 0 && mine.held.is_empty() && mine.waiting.is_empty() {
            self.clients.remove(&client);
        }
    }
}

/// Time over which the drain is measured; twice this at most.
const SPAN: Duration = Duration::from_secs(5);
/// Shortest pause that is advised, and the time below which nothing is concluded.
const LEAST: Duration = Duration::from_secs(1);

/// How fast places become free, measured from one arrival to another.
#[derive(Debug, Default)]
struct Drain {
    departed: u64,
    /// When was looked, and the departures until then.
    before: (Moment, u64),
    last: (Moment, u64),
}

impl Drain {
    fn look(&mut self, now: Moment) {
        let gap = now.since(self.last.0);
        let look = (now, self.departed);
        if gap > SPAN * 2 {
            // A time without arrivals says nothing about how fast the app is.
            (self.before, self.last) = (look, look);
        } else if gap >= SPAN {
            (self.before, self.last) = (self.last, look);
        }
    }

    /// Time in which so many places become free. `most`: after this time nobody who waits now waits
    /// any more.
    fn time_for(&self, now: Moment, places: usize, most: Duration) -> Duration {
        let (span, gone) = (now.since(self.before.0), self.departed - self.before.1);
        let most = most.max(LEAST);
        if gone == 0 {
            return if span < LEAST { LEAST } else { most };
        }
        let micros = span.as_micros() * places as u128 / u128::from(gone);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)).clamp(LEAST, most)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
