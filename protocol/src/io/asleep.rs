//! How long the machine has slept (suspend to memory or disk, a frozen virtual machine's host).
//!
//! The clocks behind timers stand still meanwhile, and a socket's buffers do not: what a loop finds after
//! it may be hours old. Linux tells by the distance between the clock that counts sleep and the one that
//! does not; elsewhere nothing is told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Less is not told: it may be the time between the looks at two clocks. Half of what counts as late, so
/// that no sleep that matters is missed.
const LEAST: Duration = Duration::from_millis(500);

/// The most that was seen, in microseconds: what is told never falls, whichever thread asks.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Sleep until now, counted from some moment before the process.
pub(super) fn so_far() -> Duration {
    told(&SEEN, distance())
}

fn told(seen: &AtomicU64, distance: Duration) -> Duration {
    let distance = u64::try_from(distance.as_micros()).unwrap_or(u64::MAX);
    let before = seen.load(Ordering::Relaxed);
    if Duration::from_micros(distance.saturating_sub(before)) < LEAST {
        return Duration::from_micros(before);
    }
    let most = seen.fetch_max(distance, Ordering::Relaxed).max(distance);
    Duration::from_micros(most)
}

/// Never more than it is: the clock that runs always is read first, so that a thread which is stopped
/// between the two reads sees less of a distance.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn distance() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let always = clock_gettime(ClockId::Boottime);
    let awake = clock_gettime(ClockId::Monotonic);
    let since_boot = |at: rustix::time::Timespec| {
        let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(at.tv_nsec).unwrap_or(0))
    };
    since_boot(always).saturating_sub(since_boot(awake))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn distance() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_told_once_it_is_one_and_what_is_told_never_falls() {
        let seen = AtomicU64::new(0);
        let millis = Duration::from_millis;
        let looks = [
            (7_200_000, 7_200_000),
            (7_200_499, 7_200_000),
            (7_199_000, 7_200_000),
            (7_200_500, 7_200_500),
            (9_000_000, 9_000_000),
            (8_999_999, 9_000_000),
        ];
        for (distance, expected) in looks {
            assert_eq!(told(&seen, millis(distance)), millis(expected));
        }
    }

    #[test]
    fn a_machine_that_is_awake_does_not_sleep() {
        let before = so_far();
        assert_eq!(so_far(), before);
    }
}
