//! How many bytes one client connection with many streams may hold, and what of it each of its streams
//! has: of its answer, which its client does not read, and of its body, which its app does not take.
//! One allowance for each: an answer that may come must not keep a body waiting. What follows is said
//! of answers; a body begins with nothing and asks as it goes.
//!
//! What an app may send without being asked again is the credit of its stream, so that is what is
//! shared out: a stream begins with a part of what is free, one whose client reads gets more, and
//! near the end everybody goes back to an equal part. A client that opens a hundred streams and reads
//! none of them holds the total and [`LEAST`] for each, instead of a hundred full windows. Credit
//! that was given cannot be taken back, so a stream counts with what it has until its app has used
//! it up. Pure. Invariant: what a stream had comes back with the drop of its [`Portion`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Credit of a stream when nothing is free: it still moves, one small piece at a time.
pub const LEAST: u32 = 4 * 1024;
/// Below an eighth of the total everybody goes back to an equal part.
const SCARCE: u64 = 8;

/// The allowances of one client connection.
#[derive(Clone, Debug)]
pub struct Allowances {
    /// What answers may hold.
    pub answers: Arc<Allowance>,
    /// What bodies may hold.
    pub bodies: Arc<Allowance>,
}

impl Allowances {
    /// So many bytes each way.
    #[must_use]
    pub fn new(total: u64) -> Self {
        Self {
            answers: Allowance::new(total),
            bodies: Allowance::new(total),
        }
    }
}

/// What all streams of a connection may hold one way.
#[derive(Debug)]
pub struct Allowance {
    total: u64,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    given: u64,
    streams: u64,
}

impl Allowance {
    /// So many bytes for all streams together.
    #[must_use]
    pub fn new(total: u64) -> Arc<Self> {
        Arc::new(Self {
            total,
            shared: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one exchange has of its connection's allowance; everything, if there is none.
#[derive(Debug, Default)]
pub struct Portion {
    of: Option<Arc<Allowance>>,
    mine: u64,
    told: u32,
}

impl Portion {
    /// Nothing yet.
    #[must_use]
    pub fn of(allowance: Option<&Arc<Allowance>>) -> Self {
        if let Some(allowance) = allowance {
            allowance.lock().streams += 1;
        }
        Self {
            of: allowance.cloned(),
            mine: 0,
            told: u32::MAX,
        }
    }

    /// Credit for a new connection to the app; `None` = as much as the tunnel gives.
    pub fn first(&mut self, usual: u32) -> Option<u32> {
        let of = Arc::clone(self.of.as_ref()?);
        let mut shared = of.lock();
        shared.given -= self.mine;
        let free = of.total.saturating_sub(shared.given);
        let half = u32::try_from(free / 2).unwrap_or(u32::MAX);
        let credit = half.clamp(LEAST, usual.max(LEAST));
        self.mine = u64::from(credit);
        shared.given += self.mine;
        self.told = credit;
        Some(credit)
    }

    /// True if nothing is shared out.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.of.is_none()
    }

    /// A connection was handed over whose app may send `exposed` bytes unasked.
    pub fn takes(&mut self, exposed: u64) {
        if let Some(of) = &self.of {
            let mut shared = of.lock();
            shared.given -= std::mem::replace(&mut self.mine, exposed);
            shared.given += exposed;
        }
    }

    /// A kept connection whose app may send `exposed` bytes unasked: true if that is not too much now.
    pub fn bears(&mut self, exposed: u64) -> bool {
        let Some(of) = &self.of else { return true };
        let mut shared = of.lock();
        shared.given -= std::mem::take(&mut self.mine);
        let free = of.total.saturating_sub(shared.given);
        let bears = exposed <= free.max(u64::from(LEAST));
        if bears {
            self.mine = exposed;
            shared.given += exposed;
        }
        bears
    }

    /// The client reads: the credit that its stream may have from now on, if that is another than
    /// before. `exposed`: what its app may send unasked now.
    pub fn reads(&mut self, exposed: impl FnOnce() -> u64) -> Option<u32> {
        let of = self.of.as_ref()?;
        let exposed = exposed();
        let mut shared = of.lock();
        shared.given -= self.mine;
        let free = of.total.saturating_sub(shared.given);
        let equal = of.total / shared.streams.max(1);
        let mine = if free < self.mine + of.total / SCARCE {
            equal.min(free)
        } else {
            (self.mine + (free - self.mine) / 2).max(equal.min(free))
        };
        let mine = mine.max(u64::from(LEAST));
        self.mine = mine.max(exposed);
        shared.given += self.mine;
        let credit = u32::try_from(mine).unwrap_or(u32::MAX);
        let moved = self.told != credit;
        self.told = credit;
        moved.then_some(credit)
    }
}

impl Drop for Portion {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            let mut shared = of.lock();
            shared.given -= self.mine;
            shared.streams -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TOTAL: u64 = 1 << 20;
    const USUAL: u32 = 256 * 1024;

    fn given(allowance: &Allowance) -> u64 {
        allowance.lock().given
    }

    #[test]
    fn a_hundred_streams_that_nobody_reads_hold_the_total_and_a_little_for_each() {
        let allowance = Allowance::new(TOTAL);
        let mut portions = Vec::new();
        for n in 0..100 {
            let mut portion = Portion::of(Some(&allowance));
            let credit = portion.first(USUAL).unwrap();
            // Three have what is usual, then each half of what is left.
            assert_eq!(credit == USUAL, n < 3, "{n}: {credit}");
            assert!(credit >= LEAST);
            portions.push(portion);
        }
        assert!(given(&allowance) <= TOTAL + 100 * u64::from(LEAST));
        drop(portions);
        assert_eq!((given(&allowance), allowance.lock().streams), (0, 0));
    }

    #[test]
    fn a_single_stream_whose_client_reads_gets_all_of_it() {
        let allowance = Allowance::new(TOTAL);
        let mut portion = Portion::of(Some(&allowance));
        portion.first(USUAL).unwrap();
        let mut credit = USUAL;
        for _ in 0..4 {
            credit = portion.reads(|| u64::from(credit)).unwrap_or(credit);
        }
        assert_eq!(u64::from(credit), TOTAL);
        assert_eq!(portion.reads(|| TOTAL), None, "nothing moves any more");
    }

    #[test]
    fn streams_whose_client_reads_come_to_equal_parts_beside_each_other() {
        let allowance = Allowance::new(TOTAL);
        let mut portions: Vec<(Portion, u32)> = Vec::new();
        for _ in 0..16 {
            let mut portion = Portion::of(Some(&allowance));
            let credit = portion.first(USUAL).unwrap();
            portions.push((portion, credit));
        }
        for _ in 0..20 {
            for (portion, credit) in &mut portions {
                *credit = portion.reads(|| u64::from(*credit)).unwrap_or(*credit);
            }
        }
        let (least, most) = portions
            .iter()
            .fold((u32::MAX, 0), |(least, most), (_, credit)| {
                (least.min(*credit), most.max(*credit))
            });
        assert!(
            least >= 32 * 1024 && most <= 128 * 1024,
            "{least} to {most}"
        );
        assert!(given(&allowance) <= TOTAL + 16 * u64::from(LEAST));
    }

    #[test]
    fn a_stream_counts_with_what_its_app_may_still_send_until_that_is_used_up() {
        let allowance = Allowance::new(TOTAL);
        let mut large = Portion::of(Some(&allowance));
        assert!(large.bears(TOTAL));
        let mut second = Portion::of(Some(&allowance));
        assert!(!second.bears(64 * 1024), "all of it is given");
        assert_eq!(second.first(USUAL), Some(LEAST));
        assert!(large.reads(|| TOTAL).unwrap() <= USUAL * 2 + LEAST);
        assert!(given(&allowance) >= TOTAL);
        large.reads(|| TOTAL / 4);
        assert!(given(&allowance) < TOTAL, "{}", given(&allowance));
    }

    #[test]
    fn without_an_allowance_nothing_is_bounded_here() {
        let mut portion = Portion::of(None);
        assert!(portion.bears(u64::MAX));
        assert_eq!((portion.first(USUAL), portion.reads(|| 1)), (None, None));
    }
}
