//! What became of streams whose tunnel was lost: kept until a gateway can be told.
//!
//! Pure: `now` comes in. In memory only: a new start of the agent is another instance and knows
//! nothing. Invariants: an entry is told at least for [`KEPT`], over every tunnel that comes up to its
//! gateway; at most [`MOST`] are kept, and the oldest go first, so that of a tunnel that is lost now
//! nothing is missing.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bridgehead_protocol::conn::{Fate, MAX_REPORTED};
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{ReportEntry, StreamId};

/// Longer than any caller waits before it asks what became of its request.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// Entries kept; some 60 bytes each, and as many as one tunnel may report.
const MOST: usize = MAX_REPORTED;

#[derive(Debug)]
struct Lost {
    /// The gateway's node; no other can know the tunnel.
    node: String,
    until: Moment,
    tunnel: u128,
    /// Each with the number of its latest change.
    entries: Vec<(u64, ReportEntry)>,
}

/// The terminals of tunnels that were lost.
#[derive(Debug, Default)]
pub struct Fates {
    lost: VecDeque<Lost>,
    count: usize,
    /// Changes so far.
    changes: u64,
}

impl Fates {
    /// Keeps what a tunnel that was lost at `now` left untold.
    pub fn keep(&mut self, now: Moment, node: &str, tunnel: u128, fates: Vec<Fate>) {
        self.forget(now);
        if fates.is_empty() {
            return;
        }
        self.changes += 1;
        let change = self.changes;
        let entries: Vec<(u64, ReportEntry)> = fates
            .into_iter()
            .take(MOST)
            .map(|fate| (change, fate.of_tunnel(tunnel)))
            .collect();
        self.count += entries.len();
        self.lost.push_back(Lost {
            node: node.to_owned(),
            until: now + KEPT,
            tunnel,
            entries,
        });
        while self.count > MOST
            && let Some(oldest) = self.lost.pop_front()
        {
            self.count -= oldest.entries.len();
        }
    }

    /// Apps of a lost tunnel answered after it was lost, with so many bytes each. Only what was read
    /// grows: nothing was written since.
    pub fn answered(&mut self, tunnel: u128, answers: &[(StreamId, u64)]) {
        self.changes += 1;
        let change = self.changes;
        let answers: BTreeMap<StreamId, u64> = answers.iter().copied().collect();
        let theirs = self.lost.iter_mut().filter(|lost| lost.tunnel == tunnel);
        for (latest, entry) in theirs.flat_map(|lost| &mut lost.entries) {
            if let Some(more) = answers.get(&entry.stream) {
                entry.read = entry.read.saturating_add(*more);
                *latest = change;
            }
        }
    }

    /// What to tell a gateway whose node is `node`, of what changed after `told`; and the number of the
    /// latest change.
    pub fn due(&mut self, now: Moment, node: &str, told: u64) -> (Vec<ReportEntry>, u64) {
        self.forget(now);
        let theirs = self.lost.iter().filter(|lost| lost.node == node);
        let entries = theirs.flat_map(|lost| &lost.entries);
        let untold = entries.filter(|(change, _)| *change > told);
        (untold.map(|(_, entry)| *entry).collect(), self.changes)
    }

    fn forget(&mut self, now: Moment) {
        while self.lost.front().is_some_and(|lost| lost.until <= now)
            && let Some(oldest) = self.lost.pop_front()
        {
            self.count -= oldest.entries.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use bridgehead_protocol::wire::FinalCause;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn fates(count: usize) -> Vec<Fate> {
        let fate = |number: usize| Fate {
            stream: StreamId(u32::try_from(number).unwrap_or(0) * 2 + 1),
            written: 7,
            read: 0,
            cause: FinalCause::Reset,
        };
        (0..count).map(fate).collect()
    }

    #[test]
    fn a_lost_tunnels_streams_are_told_to_its_gateway_only() {
        let mut kept = Fates::default();
        kept.keep(at(0), "gw-1", 5, fates(3));
        kept.keep(at(1), "gw-2", 6, fates(1));
        let (told, change) = kept.due(at(2), "gw-1", 0);
        assert_eq!(told.len(), 3);
        assert!(
            told.iter()
                .all(|entry| entry.tunnel == 5 && entry.written == 7)
        );
        // The next tunnel is told again: nobody acknowledges a report.
        assert_eq!(kept.due(at(3), "gw-1", 0).0.len(), 3);
        // This one has heard it.
        assert_eq!(kept.due(at(3), "gw-1", change).0, []);
    }

    #[test]
    fn an_answer_that_came_after_the_loss_is_told_to_those_who_heard_the_rest() {
        let mut kept = Fates::default();
        kept.keep(at(0), "gw", 5, fates(3));
        let (_, told) = kept.due(at(1), "gw", 0);
        kept.answered(5, &[(StreamId(3), 17)]);
        kept.answered(6, &[(StreamId(1), 17)]);
        let (news, _) = kept.due(at(2), "gw", told);
        assert_eq!(news.len(), 1);
        assert_eq!((news[0].stream, news[0].read), (StreamId(3), 17));
        assert_eq!(news[0].written, 7);
    }

    #[test]
    fn ten_minutes_later_they_are_still_told_and_an_hour_later_no_more() {
        let mut kept = Fates::default();
        kept.keep(at(0), "gw", 5, fates(3));
        assert_eq!(kept.due(at(600), "gw", 0).0.len(), 3);
        assert_eq!(kept.due(at(3600), "gw", 0).0, []);
        assert_eq!(kept.count, 0);
    }

    #[test]
    fn the_oldest_go_first_and_the_latest_are_whole() {
        let mut kept = Fates::default();
        for tunnel in 1..=15 {
            kept.keep(at(0), "gw", tunnel, fates(10_000));
        }
        let (told, _) = kept.due(at(1), "gw", 0);
        assert!(told.len() <= MOST);
        assert_eq!(
            told.iter().filter(|entry| entry.tunnel == 15).count(),
            10_000
        );
        assert!(told.iter().all(|entry| entry.tunnel > 5));
    }
}
