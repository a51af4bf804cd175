//! Durations as people write them: `500ms`, `30s`, `5m`, `1h`.
//!
//! Owns the grammar only; which values make sense is the caller's business.

use std::time::Duration;

/// Reads `500ms`, `30s`, `5m` or `1h`; whole numbers only, the unit is required.
///
/// # Errors
/// One sentence that says what was expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let wrong =
        || format!("`{text}` is not a duration; write for example `500ms`, `30s`, `5m` or `1h`");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let millis = number.checked_mul(millis_per_unit).ok_or_else(wrong)?;
    Ok(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_read() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
    }

    #[test]
    fn a_number_without_a_unit_or_beyond_all_measure_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "5d",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            let said = parse_duration(text).expect_err(text);
            assert!(said.contains(text), "{said}");
        }
    }
}
