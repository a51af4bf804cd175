//! The places in flight of one app and the line of those who wait for one.
//!
//! First come, first served; an exchange that was held while its app restarted comes back to where
//! it stood. A place that is given to somebody in the line stays taken in between, so nobody can
//! slip in. Invariants: `taken` never exceeds the limit by what this file gives; who leaves the
//! line, or was given a place and does not take it, costs nobody a place.

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bridgehead_protocol::time::Moment;

/// Where an exchange stands in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn(u64);

/// Who has to be woken once the lock is free again.
pub(super) type Wakers = Vec<Waker>;

#[derive(Debug, Default)]
pub(super) struct Line {
    limit: usize,
    taken: usize,
    waiting: BTreeMap<Turn, Option<Waker>>,
    given: BTreeSet<Turn>,
    next: u64,
    drain: Drain,
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
}

impl Line {
    /// The limit is `limit` from now on.
    pub(super) fn resize(&mut self, limit: usize) -> Wakers {
        self.limit = limit;
        self.fill()
    }

    /// A newcomer asks for a place, or for one of `length` in the line.
    pub(super) fn join(
        &mut self,
        now: Moment,
        length: usize,
        patience: Duration,
    ) -> (Turn, Joined) {
        let turn = Turn(self.next);
        self.next += 1;
        self.drain.look(now);
        if self.waiting.is_empty() && self.taken < self.limit {
            self.taken += 1;
            return (turn, Joined::In);
        }
        if self.waiting.len() >= length {
            let ahead = self.waiting.len() + 1;
            return (
                turn,
                Joined::Full(self.drain.time_for(now, ahead, patience)),
            );
        }
        self.waiting.insert(turn, None);
        (turn, Joined::Waits)
    }

    /// An exchange that gave its place back wants one again. It is never turned away: it was
    /// admitted before.
    pub(super) fn rejoin(&mut self, turn: Turn) -> Joined {
        if self.taken < self.limit && self.waiting.range(..turn).next().is_none() {
            self.taken += 1;
            return Joined::In;
        }
        self.waiting.insert(turn, None);
        Joined::Waits
    }

    /// Ready once the place is there and taken.
    pub(super) fn poll(&mut self, turn: Turn, cx: &mut Context<'_>) -> Poll<()> {
        if self.given.remove(&turn) {
            return Poll::Ready(());
        }
        if let Some(waker) = self.waiting.get_mut(&turn) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The waiter goes, with or without a place that it was given meanwhile.
    pub(super) fn leave(&mut self, turn: Turn) -> Wakers {
        if self.given.remove(&turn) {
            return self.release();
        }
        self.waiting.remove(&turn);
        Wakers::new()
    }

    /// A place is free again.
    pub(super) fn release(&mut self) -> Wakers {
        debug_assert!(self.taken > 0, "only what was taken is given back");
        self.taken = self.taken.saturating_sub(1);
        self.drain.departed += 1;
        self.fill()
    }

    pub(super) fn taken(&self) -> usize {
        self.taken - self.given.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len() + self.given.len()
    }

    /// When one more place is likely to be free.
    pub(super) fn time_for_one(&mut self, now: Moment, most: Duration) -> Duration {
        self.drain.look(now);
        self.drain.time_for(now, 1, most)
    }

    fn fill(&mut self) -> Wakers {
        let mut wakers = Wakers::new();
        while self.taken < self.limit
            && let Some((turn, waker)) = self.waiting.pop_first()
        {
            self.taken += 1;
            self.given.insert(turn);
            wakers.extend(waker);
        }
        wakers
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

    fn line(limit: usize) -> Line {
        let mut line = Line::default();
        assert!(line.resize(limit).is_empty());
        line
    }

    fn poll(line: &mut Line, turn: Turn) -> Poll<()> {
        line.poll(turn, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn places_are_given_in_the_order_of_arrival() {
        let mut line = line(1);
        assert_eq!(line.join(at(0), 9, WAIT).1, Joined::In);
        let (first, joined) = line.join(at(0), 9, WAIT);
        let (second, _) = line.join(at(0), 9, WAIT);
        assert_eq!(
            (joined, line.waiting(), line.taken()),
            (Joined::Waits, 2, 1)
        );
        assert!(poll(&mut line, second).is_pending());
        drop(line.release());
        assert!(poll(&mut line, second).is_pending());
        assert!(poll(&mut line, first).is_ready());
        assert_eq!((line.waiting(), line.taken()), (1, 1));
    }

    #[test]
    fn nobody_slips_in_between_a_place_that_was_given_and_its_taker() {
        let mut line = line(1);
        assert_eq!(line.join(at(0), 9, WAIT).1, Joined::In);
        let (waits, _) = line.join(at(0), 9, WAIT);
        drop(line.release());
        assert_eq!(line.join(at(0), 9, WAIT).1, Joined::Waits);
        assert!(poll(&mut line, waits).is_ready());
    }

    #[test]
    fn who_leaves_the_line_frees_its_place_in_it() {
        let mut line = line(1);
        assert_eq!(line.join(at(0), 1, WAIT).1, Joined::In);
        let (waits, _) = line.join(at(0), 1, WAIT);
        assert!(matches!(line.join(at(0), 1, WAIT).1, Joined::Full(_)));
        drop(line.leave(waits));
        assert_eq!(line.join(at(0), 1, WAIT).1, Joined::Waits);
    }

    #[test]
    fn who_leaves_with_a_place_given_passes_it_on() {
        let mut line = line(1);
        assert_eq!(line.join(at(0), 9, WAIT).1, Joined::In);
        let (first, _) = line.join(at(0), 9, WAIT);
        let (second, _) = line.join(at(0), 9, WAIT);
        drop(line.release());
        drop(line.leave(first));
        assert!(poll(&mut line, second).is_ready());
        drop(line.release());
        assert_eq!((line.taken(), line.waiting()), (0, 0));
    }

    #[test]
    fn who_comes_back_stands_where_it_stood() {
        let mut line = line(1);
        let (early, _) = line.join(at(0), 9, WAIT);
        drop(line.release());
        assert_eq!(line.join(at(0), 9, WAIT).1, Joined::In);
        let (late, _) = line.join(at(0), 9, WAIT);
        assert_eq!(line.rejoin(early), Joined::Waits);
        drop(line.release());
        assert!(poll(&mut line, late).is_pending());
        assert!(poll(&mut line, early).is_ready());
    }

    #[test]
    fn a_larger_limit_lets_more_in_at_once() {
        let mut line = line(1);
        assert_eq!(line.join(at(0), 9, WAIT).1, Joined::In);
        let (waits, _) = line.join(at(0), 9, WAIT);
        assert!(poll(&mut line, waits).is_pending());
        assert_eq!(line.resize(2).len(), 1);
        assert!(poll(&mut line, waits).is_ready());
    }

    #[test]
    fn the_pause_follows_how_fast_places_become_free() {
        let mut line = line(1);
        let full = |line: &mut Line, now| match line.join(now, 0, WAIT).1 {
            Joined::Full(pause) => Some(pause),
            Joined::In | Joined::Waits => None,
        };
        assert_eq!(full(&mut line, at(0)), None);
        assert_eq!(full(&mut line, at(10)), Some(LEAST), "nothing is known yet");
        assert_eq!(full(&mut line, at(2000)), Some(WAIT), "the app is stuck");
        // One in four seconds.
        drop(line.release());
        assert_eq!(full(&mut line, at(4000)), None);
        assert_eq!(full(&mut line, at(4000)), Some(Duration::from_secs(4)));
        // Much faster than the least that is told.
        for _ in 0..1000 {
            drop(line.release());
            assert_eq!(full(&mut line, at(4001)), None);
        }
        assert_eq!(full(&mut line, at(4001)), Some(LEAST));
    }

    #[test]
    fn the_pause_counts_those_who_are_ahead() {
        let mut line = line(1);
        assert_eq!(line.join(at(0), 9, WAIT).1, Joined::In);
        for _ in 0..9 {
            assert_eq!(line.join(at(0), 9, WAIT).1, Joined::Waits);
        }
        drop(line.release());
        assert_eq!(line.join(at(1000), 9, WAIT).1, Joined::Waits);
        let full = Joined::Full(Duration::from_secs(10));
        assert_eq!(line.join(at(1000), 9, WAIT).1, full);
    }
}
