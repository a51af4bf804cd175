//! Who is still there. Both sides ping after silence and give up after more of it; any byte counts.
//!
//! A side that was itself late (its timer ran over by a second) grants the peer one more ping
//! period, because the silence may be its own.

use std::time::Duration;

use crate::time::Moment;

/// How late our own timer may be before the silence may be our own fault.
const OWN_LATENESS: Duration = Duration::from_secs(1);

#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct Liveness {
    ping_after: Duration,
    dead_after: Duration,
    heard: Moment,
    pinged: Option<Moment>,
    grace: Duration,
    sequence: u64,
    rtt: Option<Duration>,
}

/// What the timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pulse {
    Quiet,
    Ping([u8; 8]),
    Dead,
}

impl Liveness {
    pub(super) fn new(ping_after: Duration, dead_after: Duration, now: Moment) -> Self {
        Self {
            ping_after,
            dead_after,
            heard: now,
            pinged: None,
            grace: Duration::ZERO,
            sequence: 0,
            rtt: None,
        }
    }

    pub(super) fn heard(&mut self, now: Moment) {
        self.heard = now;
        self.grace = Duration::ZERO;
    }

    /// A new carrier: silence counts from here, and what was asked over the old one is void.
    pub(super) fn restart(&mut self, now: Moment) {
        self.heard(now);
        self.pinged = None;
    }

    pub(super) fn ponged(&mut self, now: Moment, bytes: [u8; 8]) {
        if u64::from_be_bytes(bytes) == self.sequence
            && let Some(sent) = self.pinged.take()
        {
            self.rtt = Some(now.since(sent));
        }
    }

    /// A probe outside the rhythm, to learn the round trip time.
    pub(super) fn probe(&mut self, now: Moment) -> [u8; 8] {
        self.sequence += 1;
        self.pinged = Some(now);
        self.sequence.to_be_bytes()
    }

    pub(super) fn due(&self) -> Moment {
        let last = self.pinged.map_or(self.heard, |p| p.max(self.heard));
        (last + self.ping_after).min(self.heard + self.dead_after + self.grace)
    }

    pub(super) fn tick(&mut self, now: Moment) -> Pulse {
        if now < self.due() {
            return Pulse::Quiet;
        }
        let late = now.since(self.due()) > OWN_LATENESS;
        if late && self.grace.is_zero() {
            self.grace = now.since(self.heard + self.dead_after) + self.ping_after;
            return Pulse::Ping(self.probe(now));
        }
        if now >= self.heard + self.dead_after + self.grace {
            return Pulse::Dead;
        }
        Pulse::Ping(self.probe(now))
    }

    /// Last measured round trip; a pessimistic-for-growth zero until one is known.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn fresh() -> Liveness {
        Liveness::new(SECOND * 2, SECOND * 6, Moment::ZERO)
    }

    #[test]
    fn silence_is_probed_and_then_counts_as_death() {
        let mut live = fresh();
        assert_eq!(live.tick(Moment::ZERO + SECOND), Pulse::Quiet);
        assert!(matches!(
            live.tick(Moment::ZERO + SECOND * 2),
            Pulse::Ping(_)
        ));
        assert!(matches!(
            live.tick(Moment::ZERO + SECOND * 4),
            Pulse::Ping(_)
        ));
        assert_eq!(live.tick(Moment::ZERO + SECOND * 6), Pulse::Dead);
    }

    #[test]
    fn any_byte_puts_death_off() {
        let mut live = fresh();
        live.heard(Moment::ZERO + SECOND * 5);
        assert_eq!(live.tick(Moment::ZERO + SECOND * 6), Pulse::Quiet);
        assert_eq!(live.due(), Moment::ZERO + SECOND * 7);
    }

    #[test]
    fn a_side_that_slept_grants_the_peer_one_more_period() {
        let mut live = fresh();
        let woke = Moment::ZERO + SECOND * 40;
        assert!(matches!(live.tick(woke), Pulse::Ping(_)));
        assert_eq!(live.tick(woke + SECOND), Pulse::Quiet);
        assert_eq!(live.tick(woke + SECOND * 2), Pulse::Dead);
    }

    #[test]
    fn only_the_latest_pong_measures_the_round_trip() {
        let mut live = fresh();
        let first = live.probe(Moment::ZERO);
        let second = live.probe(Moment::ZERO + SECOND);
        live.ponged(Moment::ZERO + SECOND, first);
        assert_eq!(live.rtt(), None);
        live.ponged(Moment::ZERO + SECOND + Duration::from_millis(7), second);
        assert_eq!(live.rtt(), Some(Duration::from_millis(7)));
    }
}
