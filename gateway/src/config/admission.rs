//! What an app admits: the keys of `[defaults]` and `[[app]]` that bound its clients.
//!
//! Owns the values, their defaults and their spelling; what they do stands in `admit`. Pure.
//! Invariant: a limit that is set can refuse something and let something pass.

use std::fmt;
use std::time::Duration;

use super::net::Cidr;
use bridgehead_protocol::config::Fault;
use bridgehead_protocol::config::units::{self, Percent};
use bridgehead_protocol::config::{Section, Value};

/// First pause of a quarantine that is only switched on.
const QUARANTINE_PAUSE: Duration = Duration::from_secs(30);
/// Identical failures that trip a breaker that is only switched on.
const LOOP_FAILURES: u64 = 12;
/// Most failures a breaker can wait for: it remembers when each happened.
const MOST_FAILURES: u64 = 1_000;
/// Most requests a rate can name for its period, and most that may come at once.
const MOST_REQUESTS: u32 = 1_000_000;
/// Most places of any kind.
const MOST_PLACES: u64 = 1_000_000;

/// The limits of one app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Only these clients; empty = everyone.
    pub allow: Vec<Cidr>,
    /// Not these clients, even if they are allowed.
    pub deny: Vec<Cidr>,
    /// Requests of all clients together; `None` = unlimited.
    pub rate: Option<Rate>,
    /// Requests of one client; `None` = unlimited.
    pub client_rate: Option<ClientRate>,
    /// First pause after a run of timeouts; `None` = off.
    pub quarantine: Option<Duration>,
    /// Identical failures of one client in an hour that stop it; `None` = off.
    pub error_loop: Option<usize>,
    /// A declared body above this many bytes takes a slot.
    pub large_body: u64,
    /// Large bodies at once.
    pub large_body_slots: usize,
    /// Exchanges at once.
    pub in_flight: usize,
    /// Requests that wait for a place.
    pub queue: usize,
    /// How long each of them waits.
    pub queue_wait: Duration,
    /// Upgraded, streaming and TCP exchanges at once.
    pub long_lived: usize,
    /// How much of all of these places one client may have at once.
    pub client_share: Percent,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            rate: None,
            client_rate: None,
            quarantine: None,
            error_loop: None,
            large_body: 1 << 20,
            large_body_slots: 8,
            in_flight: 100,
            queue: 200,
            queue_wait: Duration::from_secs(30),
            long_lived: 10_000,
            // Half: whatever one client does, as much is left for the others.
            client_share: Percent::HALF,
        }
    }
}

/// So many requests in a period, of which so many may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests in a period, above zero.
    pub requests: u32,
    /// The period, above zero.
    pub period: Duration,
    /// Requests that may come at once, above zero.
    pub burst: u32,
}

/// A rate for each client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRate {
    /// The rate.
    pub rate: Rate,
    /// Field whose value tells clients apart; requests without it, and all if there is none, go by
    /// their address.
    pub by: Option<http::HeaderName>,
}

pub(super) fn read(section: &Section<'_>, inherited: &Admission) -> Admission {
    let places = |key, least, default| {
        section
            .read(key, |v| whole(v, least..=MOST_PLACES))
            .unwrap_or(default)
    };
    let nets = |key, default: &Vec<Cidr>| {
        section
            .list(key, |v| Cidr::parse(v.text()?))
            .unwrap_or_else(|| default.clone())
    };
    Admission {
        allow: nets("allow", &inherited.allow),
        deny: nets("deny", &inherited.deny),
        rate: section.read("rate", rate).unwrap_or(inherited.rate),
        client_rate: (section.read("client_rate", client_rate))
            .unwrap_or_else(|| inherited.client_rate.clone()),
        quarantine: (section.read("quarantine", quarantine)).unwrap_or(inherited.quarantine),
        error_loop: (section.read("error_loop", error_loop)).unwrap_or(inherited.error_loop),
        large_body: (section.read("large_body", Value::size)).unwrap_or(inherited.large_body),
        large_body_slots: places("large_body_slots", 1, inherited.large_body_slots),
        in_flight: places("in_flight", 1, inherited.in_flight),
        queue: places("queue", 0, inherited.queue),
        queue_wait: (section.read("queue_wait", waiting)).unwrap_or(inherited.queue_wait),
        long_lived: places("long_lived", 1, inherited.long_lived),
        client_share: (section.read("client_share", share)).unwrap_or(inherited.client_share),
    }
}

fn whole(value: &Value<'_>, range: std::ops::RangeInclusive<u64>) -> Result<usize, Fault> {
    let number = value.whole()?;
    usize::try_from(number)
        .ok()
        .filter(|_| range.contains(&number))
        .ok_or_else(|| {
            Fault::new(
                format!("{number} is out of range"),
                format!("write {} to {}", range.start(), range.end()),
            )
        })
}

fn share(value: &Value<'_>) -> Result<Percent, Fault> {
    let text = value.text()?;
    Percent::parse(text).ok_or_else(|| {
        Fault::new(
            format!("\"{text}\" is not a share of an app's places"),
            "write \"1%\" to \"100%\"; \"100%\" lets one client take every place",
        )
    })
}

/// Zero would refuse whoever has to wait; that is what `queue = 0` says.
fn waiting(value: &Value<'_>) -> Result<Duration, Fault> {
    match value.duration()? {
        Duration::ZERO => Err(Fault::new(
            "zero lets nobody wait",
            "write a longer time, or queue = 0",
        )),
        span => Ok(span),
    }
}

fn quarantine(value: &Value<'_>) -> Result<Option<Duration>, Fault> {
    if let Ok(on) = value.switch() {
        return Ok(on.then_some(QUARANTINE_PAUSE));
    }
    let fault = |_| {
        Fault::new(
            "neither true, false nor a first pause",
            "write true, or for example \"30s\"",
        )
    };
    let pause = value.duration().map_err(fault)?;
    Ok(Some(pause).filter(|pause| !pause.is_zero()))
}

fn error_loop(value: &Value<'_>) -> Result<Option<usize>, Fault> {
    let count = match value.switch() {
        Ok(true) => {
            return usize::try_from(LOOP_FAILURES)
                .map(Some)
                .map_err(|_| out_of_loop());
        }
        Ok(false) => return Ok(None),
        Err(_) => value.whole().map_err(|_| out_of_loop())?,
    };
    // One failure is no run.
    match (2..=MOST_FAILURES).contains(&count) {
        true => usize::try_from(count).map(Some).map_err(|_| out_of_loop()),
        false => Err(out_of_loop()),
    }
}

fn out_of_loop() -> Fault {
    Fault::new(
        "neither true, false nor a number of failures",
        format!("write true, or 2 to {MOST_FAILURES}"),
    )
}

fn rate(value: &Value<'_>) -> Result<Option<Rate>, Fault> {
    match value.text()? {
        "unlimited" => Ok(None),
        text => parse_rate(text).map(Some),
    }
}

/// Fields that say where a request goes, how it is framed, or what its connection is: they are taken
/// out of it before limits are asked.
const GONE: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

fn client_rate(value: &Value<'_>) -> Result<Option<ClientRate>, Fault> {
    let text = value.text()?;
    if text == "unlimited" {
        return Ok(None);
    }
    let (spelled, by) = match text.split_once(" by ") {
        Some((spelled, field)) => {
            let field = field.parse::<http::HeaderName>().map_err(|_| {
                Fault::new(
                    format!("\"{field}\" is not the name of a field"),
                    "write for example \"10/s by x-api-key\"",
                )
            })?;
            if GONE.contains(&field.as_str()) {
                return Err(Fault::new(
                    format!("the field {field} is not there any more when clients are told apart"),
                    "leave \" by …\" out for the client's address, or name a field such as x-api-key",
                ));
            }
            (spelled, Some(field))
        }
        None => (text, None),
    };
    let rate = parse_rate(spelled)?;
    Ok(Some(ClientRate { rate, by }))
}

/// `100/s`, `600/m`, `10/30s`, each also with ` burst 20`.
fn parse_rate(text: &str) -> Result<Rate, Fault> {
    let fault = || {
        Fault::new(
            format!("\"{text}\" is not a rate"),
            "write for example \"100/s\", \"600/m\" or \"100/s burst 20\"",
        )
    };
    let (spelled, burst) = match text.split_once(" burst ") {
        Some((spelled, burst)) => (spelled, Some(burst)),
        None => (text, None),
    };
    let number = |text: &str| {
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse::<u32>().ok().filter(|_| digits);
        number
            .filter(|n| (1..=MOST_REQUESTS).contains(n))
            .ok_or_else(fault)
    };
    let (requests, period) = spelled.split_once('/').ok_or_else(fault)?;
    let requests = number(requests)?;
    // A bare unit is one of it.
    let period = match period.starts_with(|c: char| c.is_ascii_digit()) {
        true => units::parse_duration(period),
        false => units::parse_duration(&format!("1{period}")),
    };
    let period = period.map_err(|_| fault())?;
    if period.is_zero() || period > Duration::from_secs(86_400) {
        return Err(fault());
    }
    let burst = burst.map_or(Ok(requests), number)?;
    Ok(Rate {
        requests,
        period,
        burst,
    })
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = units::show_duration(self.period);
        write!(f, "{}/{period} burst {}", self.requests, self.burst)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_rate_names_requests_a_period_and_how_many_may_come_at_once() {
        let second = Duration::from_secs(1);
        let rate = |requests, period, burst| Rate {
            requests,
            period,
            burst,
        };
        assert_eq!(parse_rate("100/s"), Ok(rate(100, second, 100)));
        assert_eq!(parse_rate("600/m burst 20"), Ok(rate(600, second * 60, 20)));
        assert_eq!(parse_rate("5/30s"), Ok(rate(5, second * 30, 5)));
        for bad in [
            "",
            "100",
            "/s",
            "0/s",
            "-1/s",
            "+1/s",
            "1/0s",
            "1/x",
            "1/s burst 0",
            "1/s burst",
            "1/25h",
            "9999999/s",
        ] {
            assert!(parse_rate(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_rate_that_is_shown_parses_to_itself() {
        for text in ["100/s", "600/m burst 20", "5/30s"] {
            let rate = parse_rate(text).unwrap();
            assert_eq!(parse_rate(&rate.to_string()), Ok(rate));
        }
    }
}
