//! What became of streams whose tunnel was lost: kept until a gateway can be told.
//!
//! Pure: `now` comes in. In memory only: a new start of the agent is another instance and knows
//! nothing. Invariants: an entry is told at least for [`KEPT`], over every tunnel that comes up to its
//! gateway; at most [`MOST`] are kept, and the oldest go first, so that of a tunnel that is lost now
//! nothing is missing.

use std::collections::VecDeque;
use std::time::Duration;

use bridgehead_protocol::conn::{Fate, MAX_REPORTED};
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::ReportEntry;

/// Longer than any caller waits before it asks what became of its request.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// Entries kept; 48 bytes each, and as many as one tunnel may report.
const MOST: usize = MAX_REPORTED;

#[derive(Debug)]
struct Lost {
    /// The gateway's node; no other can know the tunnel.
    node: String,
    until: Moment,
    entries: Vec<ReportEntry>,
}

/// The terminals of tunnels that were lost.
#[derive(Debug, Default)]
pub struct Fates {
    lost: VecDeque<Lost>,
    count: usize,
}

impl Fates {
    /// Keeps what a tunnel that was lost at `now` left untold.
    pub fn keep(&mut self, now: Moment, node: &str, tunnel: u128, fates: Vec<Fate>) {
        self.forget(now);
        if fates.is_empty() {
            return;
        }
        let entries: Vec<ReportEntry> = fates
            .into_iter()
            .take(MOST)
            .map(|fate| fate.of_tunnel(tunnel))
            .collect();
        self.count += entries.len();
        self.lost.push_back(Lost {
            node: node.to_owned(),
            until: now + KEPT,
            entries,
        });
        while self.count > MOST
            && let Some(oldest) = self.lost.pop_front()
        {
            self.count -= oldest.entries.len();
        }
    }

    /// What to tell a gateway whose node is `node`.
    pub fn due(&mut self, now: Moment, node: &str) -> Vec<ReportEntry> {
        self.forget(now);
        let theirs = self.lost.iter().filter(|lost| lost.node == node);
        theirs
            .flat_map(|lost| lost.entries.iter().copied())
            .collect()
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
    use bridgehead_protocol::wire::{FinalCause, StreamId};

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
        let told = kept.due(at(2), "gw-1");
        assert_eq!(told.len(), 3);
        assert!(
            told.iter()
                .all(|entry| entry.tunnel == 5 && entry.written == 7)
        );
        // The next tunnel is told again: nobody acknowledges a report.
        assert_eq!(kept.due(at(3), "gw-1").len(), 3);
    }

    #[test]
    fn ten_minutes_later_they_are_still_told_and_an_hour_later_no_more() {
        let mut kept = Fates::default();
        kept.keep(at(0), "gw", 5, fates(3));
        assert_eq!(kept.due(at(600), "gw").len(), 3);
        assert_eq!(kept.due(at(3600), "gw"), []);
        assert_eq!(kept.count, 0);
    }

    #[test]
    fn the_oldest_go_first_and_the_latest_are_whole() {
        let mut kept = Fates::default();
        for tunnel in 1..=15 {
            kept.keep(at(0), "gw", tunnel, fates(10_000));
        }
        let told = kept.due(at(1), "gw");
        assert!(told.len() <= MOST);
        assert_eq!(
            told.iter().filter(|entry| entry.tunnel == 15).count(),
            10_000
        );
        assert!(told.iter().all(|entry| entry.tunnel > 5));
    }
}
