//! What a denial says. Total: a new one without code, reason and pause does not compile.

use std::time::Duration;

use bridgehead_protocol::verdict::{Code, Reason};

use super::rate::Standing;
use crate::error::Failure;

/// Why a request was not let through. The app saw nothing of it and never will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// An access list.
    Address,
    /// A rate, and when it lets the next one pass.
    Rate(Standing),
    /// The app is paused for this much longer.
    Quarantine(Duration),
    /// So many identical failures of this client.
    ErrorLoop(usize),
    /// The slots for large bodies are taken.
    LargeBody(Limit),
    /// Memory is left for no further large body.
    LargeBodyMemory,
    /// The places in the queue are taken; one is likely to be free after this time.
    QueueFull(Limit, Duration),
    /// The request waited this long.
    QueueWait(Duration),
    /// The same beside free places: its client had all that one may have.
    ShareWait(Duration),
    /// The places for long-lived exchanges are taken.
    LongLivedFull(Limit, Duration),
}

/// Whose places are all taken, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Everybody's.
    All(usize),
    /// Those that one client may have.
    Share(usize),
}

impl Limit {
    fn detail(self, key: &str) -> String {
        match self {
            Self::All(limit) => format!("{key} is {limit}"),
            Self::Share(limit) => format!("client_share lets one client take {limit} of {key}"),
        }
    }
}

/// Kinds of places of which one client may have a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// In flight.
    InFlight,
    /// In the queue.
    Queue,
    /// For long-lived exchanges.
    LongLived,
    /// Slots for large bodies.
    LargeBodies,
}

impl Denied {
    /// The code clients act on.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Address => Code::AppNotFound,
            Self::Rate(_) => Code::RateLimited,
            Self::Quarantine(_) => Code::TimeoutQuarantine,
            Self::ErrorLoop(_) => Code::ErrorLoopDetected,
            Self::LargeBody(_) | Self::LargeBodyMemory => Code::LargeBodyBackendBusy,
            Self::QueueFull(..) | Self::LongLivedFull(..) => Code::QueueOverflow,
            Self::QueueWait(_) | Self::ShareWait(_) => Code::QueueTimeout,
        }
    }

    /// What happened, in one word; with the code it is also the label of the metric.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Address => Reason::Denied,
            Self::Rate(_) => Reason::Rate,
            Self::Quarantine(_) => Reason::Quarantine,
            Self::ErrorLoop(_) => Reason::ErrorLoop,
            Self::LargeBody(_) | Self::LargeBodyMemory => Reason::LargeBody,
            Self::QueueFull(..) | Self::LongLivedFull(..) => Reason::QueueFull,
            Self::QueueWait(_) | Self::ShareWait(_) => Reason::QueueWait,
        }
    }

    /// The pause to advise, where it is computed; elsewhere the code's row knows one.
    #[must_use]
    pub const fn pause(&self) -> Option<Duration> {
        match self {
            Self::Rate(standing) => Some(standing.wait),
            Self::Quarantine(rest) | Self::QueueFull(_, rest) | Self::LongLivedFull(_, rest) => {
                Some(*rest)
            }
            Self::Address
            | Self::ErrorLoop(_)
            | Self::LargeBody(_)
            | Self::LargeBodyMemory
            | Self::QueueWait(_)
            | Self::ShareWait(_) => None,
        }
    }

    /// The places that were free for others and not for this client.
    #[must_use]
    pub const fn share(&self) -> Option<Places> {
        match self {
            Self::LargeBody(Limit::Share(_)) => Some(Places::LargeBodies),
            Self::QueueFull(Limit::Share(_), _) => Some(Places::Queue),
            Self::LongLivedFull(Limit::Share(_), _) => Some(Places::LongLived),
            Self::ShareWait(_) => Some(Places::InFlight),
            Self::LargeBody(Limit::All(_))
            | Self::QueueFull(Limit::All(_), _)
            | Self::LongLivedFull(Limit::All(_), _)
            | Self::LargeBodyMemory
            | Self::Address
            | Self::Rate(_)
            | Self::Quarantine(_)
            | Self::ErrorLoop(_)
            | Self::QueueWait(_) => None,
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Address => "the client's address may not use this app".to_owned(),
            Self::Rate(standing) => format!(
                "{} is {} at once and {} in {:?}",
                standing.key(),
                standing.rate.burst,
                standing.rate.requests,
                standing.rate.period
            ),
            Self::Quarantine(_) => "at least half of the last requests timed out".to_owned(),
            Self::ErrorLoop(count) => format!("{count} identical failures within an hour"),
            Self::LargeBody(limit) => limit.detail("large_body_slots"),
            Self::LargeBodyMemory => {
                "the gateway has no memory for another large body now".to_owned()
            }
            Self::QueueFull(limit, _) => limit.detail("queue"),
            Self::QueueWait(waited) => format!("it waited for {} ms", waited.as_millis()),
            Self::ShareWait(waited) => format!(
                "it waited for {} ms; its client has all of in_flight that client_share lets one take",
                waited.as_millis()
            ),
            Self::LongLivedFull(limit, _) => limit.detail("long_lived"),
        }
    }

    /// The failure that its client is told.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let failure = Failure::refused(self.code(), self.reason()).with_detail(self.detail());
        // An app that exists and is closed to this client is forbidden, whatever the row's status.
        let failure = match self {
            Self::Address => failure.with_status(403),
            _ => failure,
        };
        match self.pause() {
            Some(pause) => failure.with_retry_after(whole_seconds(pause)),
            None => failure,
        }
    }
}

/// Rounded up: a client that comes back earlier would only be denied again.
pub(super) fn whole_seconds(span: Duration) -> u32 {
    let more = u64::from(span.subsec_nanos() > 0);
    u32::try_from(span.as_secs() + more).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_rounded_up() {
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_millis(2000)), 2);
        assert_eq!(whole_seconds(Duration::from_millis(2001)), 3);
    }

    #[test]
    fn a_denied_address_is_forbidden_and_not_told_to_come_back() {
        let failure = Denied::Address.failure();
        assert_eq!((failure.http_status(), failure.pause()), (403, None));
    }

    #[test]
    fn a_quarantine_tells_the_whole_remainder() {
        let failure = Denied::Quarantine(Duration::from_millis(29_001)).failure();
        assert_eq!((failure.http_status(), failure.pause()), (503, Some(30)));
    }
}
