//! Whether a failed try may be followed by another. Pure.
//!
//! Source of the rule: the gateway repeats only what provably was not delivered, with a body it
//! still has, inside the first-frame window. Another agent, or a fresh connection, is tried at once;
//! the same app after a pause, as long as `hold` allows. Nothing else is repeated, unless the
//! operator said that `GET` and `HEAD` of a route are reads.

use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::{Delivery, Reason};

/// First pause before the same app is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause: the time an app that is back waits for those who wait for it.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Tries that may follow each other at once; bounds a loop over agents that all refuse.
const AT_ONCE: u32 = 8;

/// What is known about the exchange when a try has failed.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// Why.
    pub reason: Reason,
    /// What may be said of the delivery.
    pub delivery: Delivery,
    /// All of the body read so far is still here.
    pub body_kept: bool,
    /// Another tunnel offers the app and was not tried since the last pause.
    pub other_tunnel: bool,
    /// A tunnel that offers the app waits for its next connection: it is about to be back, or lost.
    pub returning: bool,
    /// The try used a kept connection.
    pub reused: bool,
    /// The method is one that the route declares a read (`repeat_reads`).
    pub declared_read: bool,
    /// A read was repeated already.
    pub read_repeated: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again now.
    AtOnce,
    /// Wait so long, then try again.
    After(Duration),
    /// Tell the client.
    GiveUp,
}

/// The tries of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Tries {
    hold_until: Moment,
    window_until: Moment,
    pause: Duration,
    at_once: u32,
    returning: bool,
}

impl Tries {
    /// Tries that begin at `now`. `hold` is zero for an app that was never seen ready.
    #[must_use]
    pub fn begin(now: Moment, hold: Duration, first_frame_window: Duration) -> Self {
        Self {
            hold_until: now + hold,
            window_until: now + first_frame_window,
            pause: FIRST_PAUSE,
            at_once: 0,
            returning: false,
        }
    }

    /// `hold` is for an app that restarts. A tunnel between two connections has a limit of its own.
    fn until(&self) -> Moment {
        if self.returning {
            self.window_until
        } else {
            self.hold_until.min(self.window_until)
        }
    }

    /// When an exchange whose turn has not come looks again; `None` once its hold is over.
    #[must_use]
    pub fn next_look(&self, now: Moment) -> Option<Duration> {
        let until = self.until();
        (now < until).then(|| LONGEST_PAUSE.min(until.since(now)))
    }

    /// Decides after a failed try.
    pub fn after(&mut self, now: Moment, failed: Failed) -> Next {
        if !may_repeat(failed) || now >= self.window_until {
            return Next::GiveUp;
        }
        // The app ended a kept connection just as it was used: no news about the app.
        let stale = failed.reused && failed.delivery == Delivery::NotDelivered;
        let closed_read = failed.delivery != Delivery::NotDelivered;
        if (stale || failed.other_tunnel || closed_read) && self.at_once < AT_ONCE {
            self.at_once += 1;
            return Next::AtOnce;
        }
        self.returning = failed.returning;
        let until = self.until();
        if now >= until || !is_passing(failed.reason) {
            return Next::GiveUp;
        }
        let pause = self.pause.min(until.since(now));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.at_once = 0;
        Next::After(pause)
    }
}

fn may_repeat(failed: Failed) -> bool {
    let proven = failed.delivery == Delivery::NotDelivered;
    let read = failed.declared_read
        && failed.reused
        && !failed.read_repeated
        && ended_silently(failed.reason);
    failed.body_kept && (proven || read)
}

fn ended_silently(reason: Reason) -> bool {
    matches!(reason, Reason::ClosedBeforeHead | Reason::StaleConnection)
}

/// Reasons that go away by themselves; a wrong name or a broken certificate does not.
fn is_passing(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NoAgent
            | Reason::ConnectRefused
            | Reason::ConnectReset
            | Reason::ConnectTimeout
            | Reason::AgentDraining
            | Reason::AgentLimit
            | Reason::ClosedBeforeHead
            | Reason::StaleConnection
            | Reason::TunnelLost
            | Reason::Expired
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(10);
    const WINDOW: Duration = Duration::from_secs(30);

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    fn refused() -> Failed {
        Failed {
            reason: Reason::ConnectRefused,
            delivery: Delivery::NotDelivered,
            body_kept: true,
            other_tunnel: false,
            returning: false,
            reused: false,
            declared_read: false,
            read_repeated: false,
        }
    }

    #[test]
    fn a_refused_app_is_tried_again_with_growing_pauses_until_the_hold_is_over() {
        let mut tries = Tries::begin(at(0), HOLD, WINDOW);
        assert_eq!(
            tries.after(at(0), refused()),
            Next::After(Duration::from_millis(50))
        );
        assert_eq!(
            tries.after(at(50), refused()),
            Next::After(Duration::from_millis(100))
        );
        assert_eq!(
            tries.after(at(150), refused()),
            Next::After(Duration::from_millis(200))
        );
        assert_eq!(
            tries.after(at(350), refused()),
            Next::After(Duration::from_millis(250))
        );
        assert_eq!(
            tries.after(at(9_900), refused()),
            Next::After(Duration::from_millis(100))
        );
        assert_eq!(tries.after(at(10_000), refused()), Next::GiveUp);
    }

    #[test]
    fn a_tunnel_between_two_connections_is_waited_for_whatever_the_hold() {
        let mut tries = Tries::begin(at(0), Duration::ZERO, WINDOW);
        let returning = Failed {
            reason: Reason::NoAgent,
            returning: true,
            ..refused()
        };
        assert!(matches!(tries.after(at(0), returning), Next::After(_)));
        assert!(tries.next_look(at(19_999)).is_some());
        assert!(matches!(tries.after(at(19_999), returning), Next::After(_)));
        // It is lost, and the hold was over long ago.
        let lost = Failed {
            returning: false,
            ..returning
        };
        assert_eq!(tries.after(at(20_000), lost), Next::GiveUp);
        let mut late = Tries::begin(at(0), HOLD, WINDOW);
        assert_eq!(late.after(at(30_000), returning), Next::GiveUp);
    }

    #[test]
    fn without_a_hold_the_first_refusal_is_told() {
        assert_eq!(
            Tries::begin(at(0), Duration::ZERO, WINDOW).after(at(0), refused()),
            Next::GiveUp
        );
    }

    #[test]
    fn another_tunnel_is_tried_at_once_even_without_a_hold() {
        let failed = Failed {
            other_tunnel: true,
            ..refused()
        };
        assert_eq!(
            Tries::begin(at(0), Duration::ZERO, WINDOW).after(at(0), failed),
            Next::AtOnce
        );
    }

    #[test]
    fn a_stale_connection_is_replaced_at_once() {
        for reason in [Reason::StaleConnection, Reason::ClosedBeforeHead] {
            let failed = Failed {
                reason,
                reused: true,
                ..refused()
            };
            assert_eq!(
                Tries::begin(at(0), Duration::ZERO, WINDOW).after(at(0), failed),
                Next::AtOnce
            );
        }
    }

    #[test]
    fn what_may_have_been_delivered_is_never_repeated() {
        for delivery in [Delivery::Unknown, Delivery::Delivered] {
            let failed = Failed {
                delivery,
                other_tunnel: true,
                reused: true,
                ..refused()
            };
            assert_eq!(
                Tries::begin(at(0), HOLD, WINDOW).after(at(0), failed),
                Next::GiveUp
            );
        }
    }

    #[test]
    fn a_body_that_is_no_longer_here_cannot_be_repeated() {
        let failed = Failed {
            body_kept: false,
            ..refused()
        };
        assert_eq!(
            Tries::begin(at(0), HOLD, WINDOW).after(at(0), failed),
            Next::GiveUp
        );
    }

    #[test]
    fn a_declared_read_is_repeated_once_when_a_kept_connection_ended_silently() {
        let failed = Failed {
            reason: Reason::ClosedBeforeHead,
            delivery: Delivery::Unknown,
            reused: true,
            declared_read: true,
            ..refused()
        };
        let mut tries = Tries::begin(at(0), HOLD, WINDOW);
        assert_eq!(tries.after(at(0), failed), Next::AtOnce);
        assert_eq!(
            tries.after(
                at(0),
                Failed {
                    read_repeated: true,
                    ..failed
                }
            ),
            Next::GiveUp
        );
        assert_eq!(
            tries.after(
                at(0),
                Failed {
                    reused: false,
                    ..failed
                }
            ),
            Next::GiveUp
        );
    }

    #[test]
    fn nothing_is_tried_after_the_first_window() {
        let mut tries = Tries::begin(at(0), Duration::from_secs(60), WINDOW);
        assert_eq!(
            tries.after(
                at(30_000),
                Failed {
                    other_tunnel: true,
                    ..refused()
                }
            ),
            Next::GiveUp
        );
    }

    #[test]
    fn a_fault_that_does_not_pass_is_told_at_once() {
        let failed = Failed {
            reason: Reason::TlsFailed,
            ..refused()
        };
        assert_eq!(
            Tries::begin(at(0), HOLD, WINDOW).after(at(0), failed),
            Next::GiveUp
        );
    }

    #[test]
    fn agents_that_all_refuse_do_not_make_a_loop() {
        let mut tries = Tries::begin(at(0), HOLD, WINDOW);
        let failed = Failed {
            other_tunnel: true,
            ..refused()
        };
        let at_once = (0..100)
            .take_while(|_| tries.after(at(0), failed) == Next::AtOnce)
            .count();
        assert_eq!(at_once, AT_ONCE as usize);
    }
}
