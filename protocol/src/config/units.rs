//! Durations, sizes and dates as people write them: `500ms`, `30s`, `64KiB`, `2027-01-31T00:00:00Z`.
//!
//! Pure text to numbers and back. Must not know any setting. Invariant: what is printed parses to
//! the same value.

use std::time::Duration;

use super::fault::Fault;

const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];
const SIZE_UNITS: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// A part of something, 1 to 100 in a hundred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(u8);

impl Percent {
    /// One of two.
    pub const HALF: Self = Self(50);
    /// Three of four.
    pub const THREE_QUARTERS: Self = Self(75);
    /// All of it.
    pub const WHOLE: Self = Self(100);

    /// Nothing outside of 1 to 100.
    #[must_use]
    pub fn new(value: u8) -> Option<Self> {
        (1..=100).contains(&value).then_some(Self(value))
    }

    /// Parses `50%`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_suffix('%')?;
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| plain).and_then(Self::new)
    }

    /// In a hundred.
    #[must_use]
    pub const fn value(self) -> u8 {
        self.0
    }
}

/// Parses `500ms`, `30s`, `5m`, `1h`, `90d`; also a bare `0`.
///
/// # Errors
/// If the text is none.
pub fn parse_duration(text: &str) -> Result<Duration, Fault> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let millis = parse_with_units(text, &DURATION_UNITS).ok_or_else(|| {
        let mend = match text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
            true => format!("write {text}s"),
            false => "write for example 500ms, 30s, 5m or 1h".to_owned(),
        };
        Fault::new(format!("\"{text}\" is not a duration"), mend)
    })?;
    Ok(Duration::from_millis(millis))
}

/// Parses `512B`, `64KiB`, `1MiB`, `2GiB` to bytes.
///
/// # Errors
/// If the text is none.
pub fn parse_size(text: &str) -> Result<u64, Fault> {
    parse_with_units(text, &SIZE_UNITS).ok_or_else(|| {
        Fault::new(
            format!("\"{text}\" is not a size"),
            "write for example 512B, 64KiB or 1MiB",
        )
    })
}

/// The shortest exact spelling: `30s`, not `30000ms`.
#[must_use]
pub fn show_duration(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    show_with_units(millis, &DURATION_UNITS)
}

/// The shortest exact spelling: `64KiB`, not `65536B`.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    show_with_units(bytes, &SIZE_UNITS)
}

fn parse_with_units(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn show_with_units(value: u64, units: &[(&str, u64)]) -> String {
    for (name, factor) in units.iter().rev() {
        if value >= *factor && value.is_multiple_of(*factor) {
            return format!("{}{name}", value / factor);
        }
    }
    format!("{value}{}", units[0].0)
}

/// Seconds since 1970 of an RFC 3339 moment (`2027-01-31T12:00:00Z`, `…+03:00`) or a date
/// (`2027-01-31`: its first second in UTC). Fractions of a second are dropped.
///
/// # Errors
/// If the text is none, or lies before 1970.
pub fn parse_date(text: &str) -> Result<u64, Fault> {
    seconds_of(text).ok_or_else(|| {
        Fault::new(
            format!("\"{text}\" is not a moment after 1970 with a time zone"),
            "write for example 2027-01-31T00:00:00Z",
        )
    })
}

fn seconds_of(text: &str) -> Option<u64> {
    let date = text.get(..10)?;
    let day = days_from_civil(
        number(date, 0, 4)?,
        number(date, 5, 7)?,
        number(date, 8, 10)?,
    )?;
    if !(date.as_bytes()[4] == b'-' && date.as_bytes()[7] == b'-') {
        return None;
    }
    let rest = &text[10..];
    if rest.is_empty() {
        return u64::try_from(day * 86_400).ok();
    }
    let bytes = rest.as_bytes();
    if !(matches!(bytes[0], b'T' | b't' | b' ') && rest.is_ascii() && rest.len() > 9) {
        return None;
    }
    let (hour, minute, second) = (
        number(rest, 1, 3)?,
        number(rest, 4, 6)?,
        number(rest, 7, 9)?,
    );
    let in_range = hour < 24 && minute < 60 && second < 60;
    if !in_range || bytes[3] != b':' || bytes[6] != b':' {
        return None;
    }
    let zone = rest[9..].trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let total = day * 86_400 + hour * 3_600 + minute * 60 + second - zone_seconds(zone)?;
    u64::try_from(total).ok()
}

fn zone_seconds(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    if zone.len() != 6 || zone.as_bytes()[3] != b':' {
        return None;
    }
    Some(sign * (number(zone, 1, 3)? * 3_600 + number(zone, 4, 6)? * 60))
}

fn number(text: &str, from: usize, to: usize) -> Option<i64> {
    let digits = text.get(from..to)?;
    digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar; `None` for a day that does not exist.
fn days_from_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last of a year.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(parse_duration("5m").unwrap(), Duration::from_secs(300));
        assert_eq!(parse_duration("1h").unwrap(), Duration::from_secs(3_600));
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        assert_eq!(parse_duration("30").unwrap_err().mend, "write 30s");
        for bad in [
            "",
            "s",
            "-1s",
            "1.5s",
            "1h30m",
            "30 s",
            "30S",
            "99999999999999999999s",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_powers_of_two_with_their_unit() {
        assert_eq!(parse_size("64KiB").unwrap(), 65_536);
        assert_eq!(parse_size("1MiB").unwrap(), 1_048_576);
        assert_eq!(parse_size("512B").unwrap(), 512);
        for bad in ["64", "64KB", "64kib", "1.5MiB", "MiB", "99999999999GiB"] {
            assert!(parse_size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn dates_become_seconds_of_the_epoch() {
        assert_eq!(parse_date("1970-01-01T00:00:00Z").unwrap(), 0);
        assert_eq!(parse_date("2000-03-01").unwrap(), 951_868_800);
        assert_eq!(
            parse_date("2027-01-31T12:00:00+03:00").unwrap(),
            1_801_386_000
        );
        assert_eq!(
            parse_date("2027-01-31T09:00:00.25Z").unwrap(),
            1_801_386_000
        );
        assert_eq!(parse_date("2024-02-29").unwrap(), 1_709_164_800);
        for bad in [
            "2027-02-29",
            "2027-01-31T12:00:00",
            "2027-13-01",
            "tomorrow",
            "2027-01-31T25:00:00Z",
            "2027-01-31T12:00:00+3",
            "1969-12-31",
        ] {
            assert!(parse_date(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same_value(value in 0u64..1 << 50) {
            prop_assert_eq!(parse_size(&show_size(value)).unwrap(), value);
            let span = Duration::from_millis(value);
            prop_assert_eq!(parse_duration(&show_duration(span)).unwrap(), span);
        }
    }
}
