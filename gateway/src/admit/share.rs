//! How much of a bound one client may have, and the count of what each has.
//!
//! Clients are told apart by their address (an IPv6 one by its /64), never by a key that they send
//! themselves: who may choose its key could be as many clients as it likes.

use std::collections::BTreeMap;

use super::net::Client;
use crate::config::Percent;

/// A bound on everybody together, and the part of it that one client may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) all: usize,
    pub(super) each: usize,
}

impl Bounds {
    /// One client may have `share` of it, rounded up: where there is one place, anybody may have it.
    pub(super) fn new(all: usize, share: Percent) -> Self {
        let each = (all * usize::from(share.value())).div_ceil(100);
        Self { all, each }
    }

    #[cfg(test)]
    pub(super) fn whole(all: usize) -> Self {
        Self { all, each: all }
    }
}

/// Which bound was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// Everybody's.
    All,
    /// The client's own.
    Share,
}

/// Places of one kind, by who has them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    all: usize,
    by: BTreeMap<Client, usize>,
}

impl Tally {
    /// Takes a place, or says which bound is in the way.
    pub(super) fn take(&mut self, client: Client, bounds: Bounds) -> Result<(), Reached> {
        if self.all >= bounds.all {
            return Err(Reached::All);
        }
        let mine = self.by.get(&client).copied().unwrap_or(0);
        if mine >= bounds.each {
            return Err(Reached::Share);
        }
        self.all += 1;
        self.by.insert(client, mine + 1);
        Ok(())
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&mut self, client: Client) {
        debug_assert!(self.by.contains_key(&client), "only what was taken");
        self.all = self.all.saturating_sub(1);
        if let Some(mine) = self.by.get_mut(&client) {
            *mine -= 1;
            if *mine == 0 {
                self.by.remove(&client);
            }
        }
    }

    /// Places that are taken.
    pub(super) fn taken(&self) -> usize {
        self.all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ME: Client = Client::Address(1);
    const YOU: Client = Client::Address(2);

    fn bounds(all: usize, percent: u8) -> Bounds {
        Bounds::new(all, Percent::new(percent).unwrap())
    }

    #[test]
    fn a_share_is_rounded_up_so_that_nobody_is_shut_out() {
        let each = |all, percent| bounds(all, percent).each;
        assert_eq!((each(100, 50), each(3, 50), each(1, 1)), (50, 2, 1));
        assert_eq!((each(7, 100), each(0, 50)), (7, 0));
    }

    #[test]
    fn one_client_gets_its_share_and_others_what_is_left() {
        let (mut tally, four) = (Tally::default(), bounds(4, 50));
        assert_eq!([tally.take(ME, four), tally.take(ME, four)], [Ok(()); 2]);
        assert_eq!(tally.take(ME, four), Err(Reached::Share));
        assert_eq!([tally.take(YOU, four), tally.take(YOU, four)], [Ok(()); 2]);
        assert_eq!(tally.take(ME, four), Err(Reached::All));
        tally.give_back(ME);
        assert_eq!(tally.take(YOU, four), Err(Reached::Share));
        assert_eq!(tally.take(ME, four), Ok(()));
    }

    #[test]
    fn nobody_is_remembered_who_has_nothing() {
        let mut tally = Tally::default();
        for n in 0..100 {
            tally.take(Client::Address(n), bounds(1, 100)).unwrap();
            tally.give_back(Client::Address(n));
        }
        assert_eq!((tally.taken(), tally.by.len()), (0, 0));
    }
}
