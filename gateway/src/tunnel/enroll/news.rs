//! The APPS of one tunnel: a few at once, then one each second, the latest.
//!
//! What is the same as before costs nothing but the look at it. What waits here is one list, whatever an
//! agent sends; a well-behaved one changes its list a few times while an app restarts.

use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::AppOffer;

use crate::tunnel::pace::{Pace, Used};

const PACE: Pace = Pace {
    burst: 8,
    every: Duration::from_secs(1),
};

/// What was told last and is not taken yet.
#[derive(Default)]
pub(super) struct News {
    used: Used,
    waiting: Option<Vec<AppOffer>>,
    /// Not before.
    due: Option<Moment>,
}

impl News {
    /// The agent said this; what it said before does not matter any more.
    pub(super) fn put(&mut self, apps: Vec<AppOffer>) {
        self.waiting = Some(apps);
    }

    /// What may be taken now.
    pub(super) fn ready(&mut self, now: Moment) -> Option<Vec<AppOffer>> {
        let is_due = self.due.is_none_or(|due| due <= now);
        is_due.then(|| self.waiting.take()).flatten()
    }

    /// When to look again, if something waits.
    pub(super) fn due(&self) -> Option<Moment> {
        self.due.filter(|_| self.waiting.is_some())
    }

    /// A turn for `apps`, unless the others of the subject (`theirs`) or those of this tunnel were too
    /// many: then they wait.
    pub(super) fn turn(
        &mut self,
        now: Moment,
        apps: Vec<AppOffer>,
        theirs: impl FnOnce() -> Result<(), Duration>,
    ) -> Result<Vec<AppOffer>, Delayed> {
        let own = PACE.wait(&self.used, now, 1);
        let wait = match own.is_zero() {
            true => theirs().err().unwrap_or(Duration::ZERO),
            false => own,
        };
        if wait.is_zero() {
            let taken = PACE.take(&mut self.used, now, 1);
            debug_assert!(taken.is_ok(), "it was asked before");
            self.due = None;
            return Ok(apps);
        }
        self.waiting = Some(apps);
        self.due = Some(now + wait);
        Err(Delayed)
    }
}

/// News have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delayed;

#[cfg(test)]
mod tests {
    use bridgehead_protocol::wire::{AppHealth, AppKind};

    use super::*;

    fn list(n: usize) -> Vec<AppOffer> {
        vec![AppOffer {
            name: format!("shop-{n}"),
            kind: AppKind::Http1,
            weight: 1,
            health: AppHealth::Ready,
            upstream_host: String::new(),
        }]
    }

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    /// What is taken of news that come each millisecond for so many seconds.
    fn flood(seconds: u64) -> Vec<String> {
        let (mut news, mut taken) = (News::default(), Vec::new());
        for (n, millis) in (0..seconds * 1000).enumerate() {
            news.put(list(n));
            if let Some(apps) = news.ready(at(millis))
                && let Ok(apps) = news.turn(at(millis), apps, || Ok(()))
            {
                taken.push(apps[0].name.clone());
            }
        }
        taken
    }

    #[test]
    fn a_flood_of_news_is_taken_once_a_second_and_the_latest_wins() {
        let taken = flood(10);
        assert_eq!(taken.len(), 8 + 9);
        assert_eq!(taken.last().map(String::as_str), Some("shop-9000"));
    }

    #[test]
    fn what_waits_is_taken_when_its_time_has_come_and_not_before() {
        let mut news = News::default();
        for n in 0..8 {
            assert!(news.turn(at(0), list(n), || Ok(())).is_ok());
        }
        assert_eq!(
            (news.turn(at(0), list(8), || Ok(())), news.due()),
            (Err(Delayed), Some(at(1000)))
        );
        news.put(list(9));
        assert_eq!((news.ready(at(999)), news.due()), (None, Some(at(1000))));
        let last = news.ready(at(1000)).expect("its time has come");
        assert_eq!(news.turn(at(1000), last, || Ok(())), Ok(list(9)));
        assert_eq!(news.due(), None);
    }

    #[test]
    fn a_subject_whose_other_tunnels_tell_too_much_waits_without_losing_its_turn() {
        let mut news = News::default();
        let wait = Duration::from_millis(20);
        for _ in 0..99 {
            assert_eq!(news.turn(at(0), list(1), || Err(wait)), Err(Delayed));
        }
        assert_eq!(news.due(), Some(at(20)));
        assert_eq!(news.turn(at(20), list(1), || Ok(())), Ok(list(1)));
    }
}
