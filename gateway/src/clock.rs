//! The one clock of the process, and the calendar time of its moments.
//!
//! Adds a wall-clock twin to the zero point of `protocol::io`'s clock; it decides nothing and
//! starts no timer. There is one per process (or per simulation), copied to whoever needs it, the
//! tunnels included, because moments of two clocks must not be compared.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bridgehead_protocol::io::clock::Clock as Moments;
use bridgehead_protocol::time::Moment;
use tokio::time::Instant;

/// Maker of moments. Copying it keeps the zero point.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    moments: Moments,
    zero_wall: SystemTime,
}

impl Clock {
    /// A clock whose zero is now.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at(SystemTime::now())
    }

    /// A clock whose zero is now, and whose calendar calls that `wall`.
    #[must_use]
    pub fn start_at(wall: SystemTime) -> Self {
        Self {
            moments: Moments::start(),
            zero_wall: wall,
        }
    }

    /// The same clock without the calendar, for tunnels.
    #[must_use]
    pub fn moments(&self) -> Moments {
        self.moments
    }

    /// The present moment. Never goes back.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.moments.now()
    }

    /// When `moment` is due on tokio's clock, for timers.
    #[must_use]
    pub fn instant(&self, moment: Moment) -> Instant {
        self.moments.instant(moment)
    }

    /// The wall-clock time of `moment`. Later corrections of the system's clock are not followed,
    /// so that lines of one process stay in order.
    #[must_use]
    pub fn wall(&self, moment: Moment) -> SystemTime {
        self.zero_wall + moment.since(Moment::ZERO)
    }

    /// A new request id (UUIDv7): the time of `moment`, then as many of the `random` bits as fit.
    #[must_use]
    pub fn request_id(&self, moment: Moment, random: [u8; 10]) -> uuid::Uuid {
        let since = self
            .wall(moment)
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// `moment` as `2026-11-30T12:01:07.123Z`.
    #[must_use]
    pub fn stamp(&self, moment: Moment) -> String {
        rfc3339(self.wall(moment))
    }
}

/// A point of wall-clock time as `2026-11-30T12:01:07.123Z`; times before 1970 become 1970.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let mut text = String::with_capacity(24);
    // Writing into a String cannot fail.
    let _ = write!(
        text,
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    );
    text
}

/// Year, month and day of the proleptic Gregorian calendar, `days` after 1970-01-01.
///
/// Counts in eras of 400 years that begin on 1 March, so that leap days fall at an era's end.
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, millis: u64) -> String {
        rfc3339(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(millis))
    }

    #[test]
    fn a_stamp_is_utc_with_milliseconds() {
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(1_709_251_199, 999), "2024-02-29T23:59:59.999Z");
        assert_eq!(at(1_709_251_200, 0), "2024-03-01T00:00:00.000Z");
        assert_eq!(at(4_102_444_799, 0), "2099-12-31T23:59:59.000Z");
    }

    #[tokio::test]
    async fn request_ids_are_version_7_in_the_order_of_time() {
        let clock = Clock::start();
        let ids =
            [1, 2, 3].map(|s| clock.request_id(Moment::ZERO + Duration::from_secs(s), [7; 10]));
        assert!(ids.is_sorted() && ids.iter().all(|id| id.get_version_num() == 7));
        assert_ne!(
            clock.request_id(Moment::ZERO, [1; 10]),
            clock.request_id(Moment::ZERO, [2; 10])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time() {
        let clock = Clock::start();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(clock.now() - before, Duration::from_secs(30));
        assert_eq!(clock.instant(clock.now()), Instant::now());
    }
}
