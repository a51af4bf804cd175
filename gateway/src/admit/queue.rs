//! The places in flight of one app and the line of those who wait for one.
//!
//! First come, first served among those whose client has not got its share of the places: a client
//! that has waits for one of its own to become free, and whoever stands behind it passes. An
//! exchange that was held while its app restarted comes back to where it stood. A place that is
//! given to somebody in the line stays taken in between, so nobody can slip in. Invariants: `taken`
//! never exceeds the limit by what this file gives, nor a client's share; who leaves the line, or
//! was given a place and does not take it, costs nobody a place; each step costs the logarithm of
//! those who wait, however many of them one client sent.

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bridgehead_protocol::time::Moment;

use super::net::Client;
use super::share::Bounds;

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
    /// Whoever has a place or waits for one; nobody else is remembered.
    clients: BTreeMap<Client, Mine>,
    /// Of each client that may have one more place, the first who waits.
    next_in: BTreeMap<u64, Client>,
    waiting: usize,
    given: BTreeSet<u64>,
    next: u64,
    drain: Drain,
}

/// What one client has.
#[derive(Debug, Default)]
struct Mine {
    taken: usize,
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
        let mine = self.clients.get(&client).map_or(0, |m| m.waiting.len());
        let pause = |ahead| self.drain.time_for(now, ahead + 1, patience);
        if self.waiting >= line.all {
            return (turn, Joined::Full(pause(self.waiting)));
        }
        if mine >= line.each {
            return (turn, Joined::ShareFull(pause(mine)));
        }
        self.wait(turn);
        (turn, Joined::Waits)
    }

    /// An exchange that gave its place back wants one again. It is never turned away: it was
    /// admitted before.
    pub(super) fn rejoin(&mut self, turn: Turn) -> Joined {
        if self.taken < self.places.all && self.taken_by(turn.client) < self.places.each {
            self.take(turn.client);
            return Joined::In;
        }
        self.wait(turn);
        Joined::Waits
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
        let mine = self.clients.get_mut(&turn.client);
        if mine.is_some_and(|mine| mine.waiting.remove(&turn.number).is_some()) {
            self.waiting -= 1;
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

    fn take(&mut self, client: Client) {
        self.taken += 1;
        self.clients.entry(client).or_default().taken += 1;
        self.list(client);
    }

    fn wait(&mut self, turn: Turn) {
        let mine = self.clients.entry(turn.client).or_default();
        mine.waiting.insert(turn.number, None);
        self.waiting += 1;
        self.list(turn.client);
    }

    fn fill(&mut self) -> Wakers {
        let mut wakers = Wakers::new();
        while self.taken < self.places.all
            && let Some((number, client)) = self.next_in.pop_first()
        {
            if let Some(mine) = self.clients.get_mut(&client) {
                mine.listed = None;
                wakers.extend(mine.waiting.remove(&number).flatten());
            }
            self.waiting -= 1;
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
        if mine.taken == 0 && mine.waiting.is_empty() {
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
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    const ME: Client = Client::Address(1);
    const YOU: Client = Client::Address(2);
    const MINE: Turn = Turn {
        number: u64::MAX,
        client: ME,
    };

    /// A line with so many places, all of which one client may have.
    fn line(limit: usize) -> Line {
        shared(limit, limit)
    }

    fn shared(all: usize, each: usize) -> Line {
        let mut line = Line::default();
        assert!(line.resize(Bounds { all, each }).is_empty());
        line
    }

    fn join(line: &mut Line, now: Moment, length: usize) -> (Turn, Joined) {
        line.join(now, ME, Bounds::whole(length), WAIT)
    }

    fn come(line: &mut Line, client: Client) -> (Turn, Joined) {
        let waiting = Bounds { all: 9, each: 4 };
        line.join(at(0), client, waiting, WAIT)
    }

    fn poll(line: &mut Line, turn: Turn) -> Poll<()> {
        line.poll(turn, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn places_are_given_in_the_order_of_arrival() {
        let mut line = line(1);
        assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
        let (first, joined) = join(&mut line, at(0), 9);
        let (second, _) = join(&mut line, at(0), 9);
        assert_eq!(
            (joined, line.waiting(), line.taken()),
            (Joined::Waits, 2, 1)
        );
        assert!(poll(&mut line, second).is_pending());
        drop(line.release(MINE));
        assert!(poll(&mut line, second).is_pending());
        assert!(poll(&mut line, first).is_ready());
        assert_eq!((line.waiting(), line.taken()), (1, 1));
    }

    #[test]
    fn nobody_slips_in_between_a_place_that_was_given_and_its_taker() {
        let mut line = line(1);
        assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
        let (waits, _) = join(&mut line, at(0), 9);
        drop(line.release(MINE));
        assert_eq!(join(&mut line, at(0), 9).1, Joined::Waits);
        assert!(poll(&mut line, waits).is_ready());
    }

    #[test]
    fn who_leaves_the_line_frees_its_place_in_it() {
        let mut line = line(1);
        assert_eq!(join(&mut line, at(0), 1).1, Joined::In);
        let (waits, _) = join(&mut line, at(0), 1);
        assert!(matches!(join(&mut line, at(0), 1).1, Joined::Full(_)));
        drop(line.leave(waits));
        assert_eq!(join(&mut line, at(0), 1).1, Joined::Waits);
    }

    #[test]
    fn who_leaves_with_a_place_given_passes_it_on() {
        let mut line = line(1);
        assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
        let (first, _) = join(&mut line, at(0), 9);
        let (second, _) = join(&mut line, at(0), 9);
        drop(line.release(MINE));
        drop(line.leave(first));
        assert!(poll(&mut line, second).is_ready());
        drop(line.release(MINE));
        assert_eq!((line.taken(), line.waiting()), (0, 0));
    }

    #[test]
    fn who_comes_back_stands_where_it_stood() {
        let mut line = line(1);
        let (early, _) = join(&mut line, at(0), 9);
        drop(line.release(MINE));
        assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
        let (late, _) = join(&mut line, at(0), 9);
        assert_eq!(line.rejoin(early), Joined::Waits);
        drop(line.release(MINE));
        assert!(poll(&mut line, late).is_pending());
        assert!(poll(&mut line, early).is_ready());
    }

    #[test]
    fn a_client_gets_its_share_and_whoever_stands_behind_it_passes() {
        let mut line = shared(4, 2);
        let mine = [come(&mut line, ME), come(&mut line, ME)];
        assert_eq!(mine.map(|(_, joined)| joined), [Joined::In; 2]);
        let (greedy, joined) = come(&mut line, ME);
        assert_eq!(joined, Joined::Waits);
        assert!(line.waits_for_itself(greedy));
        assert_eq!((line.at_their_share(), line.taken()), (1, 2));
        assert_eq!(come(&mut line, YOU).1, Joined::In);
        let (yours, _) = come(&mut line, YOU);
        assert_eq!((line.at_their_share(), line.taken()), (2, 4));
        assert!(!line.waits_for_itself(greedy), "nothing is free");
        // A place of another's is not for it, one of its own is.
        drop(line.release(yours));
        assert!(poll(&mut line, greedy).is_pending());
        drop(line.release(mine[0].0));
        assert!(poll(&mut line, greedy).is_ready());
    }

    #[test]
    fn those_who_may_have_a_place_are_served_in_the_order_of_arrival() {
        let mut line = shared(2, 1);
        let (mine, _) = come(&mut line, ME);
        let (yours, _) = come(&mut line, YOU);
        let turns = [ME, ME, YOU, ME, YOU].map(|client| come(&mut line, client).0);
        drop(line.release(yours));
        let ready = turns.map(|turn| poll(&mut line, turn).is_ready());
        assert_eq!(ready, [false, false, true, false, false]);
        drop(line.release(mine));
        let ready = turns.map(|turn| poll(&mut line, turn).is_ready());
        assert_eq!(ready, [true, false, false, false, false]);
    }

    #[test]
    fn a_client_may_fill_its_part_of_the_line_and_no_more() {
        let mut line = shared(1, 1);
        assert_eq!(come(&mut line, ME).1, Joined::In);
        let joined = [ME; 4].map(|client| come(&mut line, client).1);
        assert_eq!(joined, [Joined::Waits; 4]);
        assert!(matches!(come(&mut line, ME).1, Joined::ShareFull(_)));
        assert_eq!(come(&mut line, YOU).1, Joined::Waits);
    }

    #[test]
    fn a_larger_share_lets_more_in_at_once() {
        let mut line = shared(4, 1);
        let (mine, _) = come(&mut line, ME);
        let (waits, _) = come(&mut line, ME);
        assert!(poll(&mut line, waits).is_pending());
        drop(line.resize(Bounds::whole(4)));
        assert!(poll(&mut line, waits).is_ready());
        drop(line.resize(Bounds { all: 4, each: 1 }));
        assert_eq!(come(&mut line, ME).1, Joined::Waits);
        drop(line.release(mine));
        assert_eq!(line.taken(), 1, "it still has as many as it may");
    }

    /// Random arrivals, ends and departures: nobody who may have a place is left waiting beside a
    /// free one, and no count is off.
    #[test]
    fn no_place_stays_free_beside_somebody_who_may_have_it() {
        let mut dice = 88_172_645_463_325_252u64;
        let mut roll = |sides: usize| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            usize::try_from(dice % sides as u64).unwrap_or(0)
        };
        let mut line = shared(5, 2);
        let (mut inside, mut outside): (Vec<Turn>, Vec<Turn>) = (Vec::new(), Vec::new());
        for _ in 0..20_000 {
            match roll(4) {
                0 | 1 => match come(&mut line, Client::Address(roll(4) as u64)) {
                    (turn, Joined::In) => inside.push(turn),
                    (turn, Joined::Waits) => outside.push(turn),
                    (_, Joined::Full(_) | Joined::ShareFull(_)) => {}
                },
                2 if !inside.is_empty() => {
                    let turn = inside.swap_remove(roll(inside.len()));
                    drop(line.release(turn));
                }
                3 if !outside.is_empty() => {
                    let turn = outside.swap_remove(roll(outside.len()));
                    drop(line.leave(turn));
                }
                _ => {}
            }
            outside.retain(|turn| {
                let ready = poll(&mut line, *turn).is_ready();
                inside.extend(ready.then_some(*turn));
                !ready
            });
            assert_eq!(
                (line.taken(), line.waiting()),
                (inside.len(), outside.len())
            );
            assert!(inside.len() <= 5 && outside.len() <= 9);
            let has = |client| inside.iter().filter(|turn| turn.client == client).count();
            assert!(inside.iter().all(|turn| has(turn.client) <= 2));
            let could_be_in = |turn: &Turn| inside.len() < 5 && has(turn.client) < 2;
            assert!(!outside.iter().any(could_be_in), "a place is free");
        }
        inside.drain(..).for_each(|turn| drop(line.release(turn)));
        outside.drain(..).for_each(|turn| drop(line.leave(turn)));
        assert!(line.clients.is_empty() && line.next_in.is_empty());
    }

    #[test]
    fn a_larger_limit_lets_more_in_at_once() {
        let mut line = line(1);
        assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
        let (waits, _) = join(&mut line, at(0), 9);
        assert!(poll(&mut line, waits).is_pending());
        assert_eq!(line.resize(Bounds::whole(2)).len(), 1);
        assert!(poll(&mut line, waits).is_ready());
    }

    #[test]
    fn the_pause_follows_how_fast_places_become_free() {
        let mut line = line(1);
        let full = |line: &mut Line, now| match join(line, now, 0).1 {
            Joined::Full(pause) => Some(pause),
            Joined::In | Joined::Waits | Joined::ShareFull(_) => None,
        };
        assert_eq!(full(&mut line, at(0)), None);
        assert_eq!(full(&mut line, at(10)), Some(LEAST), "nothing is known yet");
        assert_eq!(full(&mut line, at(2000)), Some(WAIT), "the app is stuck");
        // One in four seconds.
        drop(line.release(MINE));
        assert_eq!(full(&mut line, at(4000)), None);
        assert_eq!(full(&mut line, at(4000)), Some(Duration::from_secs(4)));
        // Much faster than the least that is told.
        for _ in 0..1000 {
            drop(line.release(MINE));
            assert_eq!(full(&mut line, at(4001)), None);
        }
        assert_eq!(full(&mut line, at(4001)), Some(LEAST));
    }

    #[test]
    fn the_pause_counts_those_who_are_ahead() {
        let mut line = line(1);
        assert_eq!(join(&mut line, at(0), 9).1, Joined::In);
        for _ in 0..9 {
            assert_eq!(join(&mut line, at(0), 9).1, Joined::Waits);
        }
        drop(line.release(MINE));
        assert_eq!(join(&mut line, at(1000), 9).1, Joined::Waits);
        let full = Joined::Full(Duration::from_secs(10));
        assert_eq!(join(&mut line, at(1000), 9).1, full);
    }
}
