//! Whether this side's own loop slept: a stopped process, a starved thread.
//!
//! What an agent finds in its buffers after a sleep may be older than its gateway's patience. So it
//! writes no first byte of an exchange until a PING sent after waking was answered: whatever the
//! gateway has given up meanwhile stands before that PONG. Bytes of exchanges already begun go on.

use std::time::Duration;

use crate::time::Moment;

/// Lateness of the loop that counts as a sleep.
const SLEEP: Duration = Duration::from_secs(1);

/// How often the loop looks at the clock at least, so that no longer sleep stays unnoticed.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct Lateness {
    due: Moment,
    /// The probe whose answer is waited for.
    held: Option<u64>,
}

impl Lateness {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            due: now + LOOK,
            held: None,
        }
    }

    pub(super) fn due(&self) -> Moment {
        self.due
    }

    /// To be called first whenever the loop turns; true if it slept.
    pub(super) fn slept(&mut self, now: Moment) -> bool {
        let slept = now.since(self.due) > SLEEP;
        self.due = self.due.max(now + LOOK);
        slept
    }

    /// Nothing begins until this probe, or a later one, is answered.
    pub(super) fn hold(&mut self, probe: [u8; 8]) {
        self.held = Some(u64::from_be_bytes(probe));
    }

    /// Takes an answer; true if it ends the hold.
    pub(super) fn answered(&mut self, probe: [u8; 8]) -> bool {
        let ends = self
            .held
            .is_some_and(|held| u64::from_be_bytes(probe) >= held);
        if ends {
            self.held = None;
        }
        ends
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_turns_in_time_has_not_slept() {
        let mut lateness = Lateness::new(Moment::ZERO);
        for turn in 1..100 {
            assert!(!lateness.slept(Moment::ZERO + LOOK * turn));
        }
        assert!(!lateness.slept(lateness.due() + SLEEP));
    }

    #[test]
    fn a_loop_that_is_late_by_more_than_a_second_has_slept_once() {
        let mut lateness = Lateness::new(Moment::ZERO);
        let woke = lateness.due() + SLEEP + Duration::from_millis(1);
        assert!(lateness.slept(woke));
        assert!(!lateness.slept(woke));
    }

    #[test]
    fn only_the_probe_sent_after_waking_or_a_later_one_ends_the_hold() {
        let mut lateness = Lateness::new(Moment::ZERO);
        lateness.hold(7_u64.to_be_bytes());
        assert!(!lateness.answered(6_u64.to_be_bytes()) && lateness.is_held());
        assert!(lateness.answered(8_u64.to_be_bytes()) && !lateness.is_held());
        assert!(!lateness.answered(9_u64.to_be_bytes()));
    }
}
