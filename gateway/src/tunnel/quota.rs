//! What one token subject may take of what all of them share: tunnels, and how fast it may begin new
//! ones and change what they offer.
//!
//! [`Quota`] is pure; [`Berths`] keeps one behind a short lock and gives out guards. A tunnel costs its
//! neighbours memory, and each beginning, end and news of one makes a new registry, which costs as
//! much as there are tunnels. Invariants: a berth is given back by its drop; what is remembered of
//! identities that come and go is bounded by the pace of their subject.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridgehead_protocol::handshake::Identity;
use bridgehead_protocol::time::Moment;

use super::pace::{Pace, Used};

/// New tunnels of one identity: an agent that flaps. Most that one agent holds at once are a fraction of
/// the burst; one whose connections break each second, and which does not resume, begins as many as it
/// breaks, and its own pauses are longer than this.
const BEGINNINGS: Pace = Pace {
    burst: 60,
    every: Duration::from_secs(1),
};

/// New tunnels of one subject, once it has begun as many as it may hold, or one agent may begin: a fleet
/// that comes back together is not hindered, one whose members change their names all the time is.
const FLEET_EVERY: Duration = Duration::from_millis(50);

/// News of all tunnels of one subject. Each makes a new registry.
const NEWS: Pace = Pace {
    burst: 500,
    every: Duration::from_millis(20),
};

/// What news cost that bring names: these make new routes as well.
const NAMES_COST: u32 = 5;

/// Identities that are remembered before those that have been quiet are looked for.
const PRUNE_ABOVE: usize = 1024;

/// Why a tunnel may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The subject has as many as it may have.
    Tunnels,
    /// It, or this agent, begins them too fast; so long until the next.
    Pace(Duration),
}

/// What news are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Apps that were offered before, or fewer.
    Known,
    /// Apps that were not.
    Names,
}

#[derive(Debug, Default)]
struct Subject {
    tunnels: usize,
    begun: Used,
    news: Used,
}

/// The book.
#[derive(Debug, Default)]
pub struct Quota {
    subjects: BTreeMap<Box<str>, Subject>,
    identities: BTreeMap<Identity, Used>,
}

impl Quota {
    /// One more tunnel of `who`, whose subject may have `most` of them.
    ///
    /// # Errors
    /// [`Over`]; nothing was taken.
    pub fn enter(&mut self, now: Moment, who: &Identity, most: usize) -> Result<(), Over> {
        if self.identities.len() >= PRUNE_ABOVE {
            self.identities.retain(|_, used| !used.is_idle(now));
        }
        let fleet = Pace {
            burst: u32::try_from(most).map_or(u32::MAX, |most| most.max(BEGINNINGS.burst)),
            every: FLEET_EVERY,
        };
        let own = self.identities.get(who).copied().unwrap_or_default();
        let subject = self.subject(&who.subject);
        if subject.tunnels >= most {
            return Err(Over::Tunnels);
        }
        let wait = (fleet.wait(&subject.begun, now, 1)).max(BEGINNINGS.wait(&own, now, 1));
        if !wait.is_zero() {
            return Err(Over::Pace(wait));
        }
        subject.tunnels += 1;
        let taken = fleet.take(&mut subject.begun, now, 1);
        let own = self.identities.entry(who.clone()).or_default();
        let also = BEGINNINGS.take(own, now, 1);
        debug_assert!(taken.is_ok() && also.is_ok(), "both were asked before");
        Ok(())
    }

    /// One tunnel less.
    pub fn leave(&mut self, subject: &str) {
        let subject = self.subject(subject);
        debug_assert!(subject.tunnels > 0, "only what entered leaves");
        subject.tunnels = subject.tunnels.saturating_sub(1);
    }

    /// News of a tunnel.
    ///
    /// # Errors
    /// How long they have to wait.
    pub fn news(&mut self, now: Moment, subject: &str, news: News) -> Result<(), Duration> {
        let turns = match news {
            News::Known => 1,
            News::Names => NAMES_COST,
        };
        NEWS.take(&mut self.subject(subject).news, now, turns)
    }

    /// Subjects are entries of the configuration, so all that were ever seen may stay.
    fn subject(&mut self, name: &str) -> &mut Subject {
        self.subjects.entry(name.into()).or_default()
    }
}

/// The book behind its lock.
#[derive(Debug, Default)]
pub struct Berths(Mutex<Quota>);

/// A tunnel's place among those of its subject; given back by its drop.
#[derive(Debug)]
#[must_use = "the place is free again when this is dropped"]
pub struct Berth {
    berths: Arc<Berths>,
    subject: Box<str>,
}

impl Berths {
    /// See [`Quota::enter`].
    ///
    /// # Errors
    /// [`Over`].
    pub fn enter(
        self: &Arc<Self>,
        now: Moment,
        who: &Identity,
        most: usize,
    ) -> Result<Berth, Over> {
        self.quota().enter(now, who, most)?;
        Ok(Berth {
            berths: Arc::clone(self),
            subject: who.subject.as_str().into(),
        })
    }

    /// See [`Quota::news`].
    ///
    /// # Errors
    /// How long they have to wait.
    pub fn news(&self, now: Moment, subject: &str, news: News) -> Result<(), Duration> {
        self.quota().news(now, subject, news)
    }

    fn quota(&self) -> MutexGuard<'_, Quota> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        self.berths.quota().leave(&self.subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    fn who(agent: &str) -> Identity {
        Identity {
            subject: "edge".into(),
            agent: agent.into(),
        }
    }

    #[test]
    fn a_subject_has_as_many_tunnels_as_it_may_and_a_place_is_given_back() {
        let berths = Arc::new(Berths::default());
        let first = berths.enter(at(0), &who("a"), 2).expect("a place");
        let second = berths.enter(at(0), &who("b"), 2).expect("a place");
        assert_eq!(berths.enter(at(0), &who("c"), 2).err(), Some(Over::Tunnels));
        let other = Identity {
            subject: "other".into(),
            agent: "a".into(),
        };
        assert!(berths.enter(at(0), &other, 2).is_ok(), "another subject's");
        drop(first);
        let third = berths.enter(at(100), &who("c"), 2);
        assert!(third.is_ok());
        drop((second, third));
        assert_eq!(berths.quota().subject("edge").tunnels, 0);
    }

    #[test]
    fn an_agent_that_flaps_is_slowed_down_and_its_neighbours_are_not() {
        let mut quota = Quota::default();
        let mut begun = 0;
        for millis in 0..60_000 {
            if quota.enter(at(millis), &who("flaps"), 1000).is_ok() {
                quota.leave("edge");
                begun += 1;
            }
        }
        assert_eq!(begun, 60 + 59);
        assert_eq!(quota.enter(at(60_000), &who("steady"), 1000), Ok(()));
    }

    #[test]
    fn an_agent_that_takes_another_name_each_time_is_slowed_down_with_its_subject() {
        let mut quota = Quota::default();
        let mut begun = 0;
        for millis in 0..10_000 {
            let name = who(&format!("a{millis}"));
            match quota.enter(at(millis), &name, 100) {
                Ok(()) => {
                    quota.leave("edge");
                    begun += 1;
                }
                Err(over) => assert!(matches!(over, Over::Pace(wait) if wait <= FLEET_EVERY)),
            }
        }
        assert_eq!(begun, 100 + 199);
    }

    #[test]
    fn agents_that_have_been_quiet_are_forgotten() {
        let mut quota = Quota::default();
        for n in 0..2_000u64 {
            let name = who(&format!("a{n}"));
            assert_eq!(quota.enter(at(n * 100), &name, 10_000), Ok(()));
        }
        assert!(quota.identities.len() <= PRUNE_ABOVE);
    }

    #[test]
    fn news_that_bring_names_wait_sooner_than_others() {
        let mut quota = Quota::default();
        let names = (0..1000).filter(|_| quota.news(at(0), "edge", News::Names).is_ok());
        assert_eq!(names.count(), 100);
        assert_eq!(
            quota.news(at(0), "edge", News::Known),
            Err(Duration::from_millis(20))
        );
        let known = (0..1000).filter(|_| quota.news(at(0), "other", News::Known).is_ok());
        assert_eq!(known.count(), 500);
    }
}
