//! Admission in the corridor: who asks, the wait for a place, and what the client is told of it.
//!
//! `admit` decides; this file knows the request and waits. While an exchange waits its body stays
//! in the client's socket, and a client that leaves frees its place in the line.

use std::future::poll_fn;
use std::net::IpAddr;
use std::time::Duration;

use bridgehead_protocol::verdict::{Code, Reason};
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::apps::AppState;
use super::front::{BodyLength, ClientAnswer, ClientBody};
use super::normalize::{Normal, RequestKind};
use super::{Exchange, Shared, draining};
use crate::admit::{Asker, Client, Denied, Permit, Places, Shape, Standing};
use crate::config::{Admission, AppSettings};
use crate::error::Failure;
use crate::route::AppRoute;
use crate::telemetry::labels::SharedPlaces;
use crate::telemetry::metrics::AppMetrics;

/// What came of asking for admission.
pub(super) enum Admitted {
    /// It may go on.
    Through(Permit),
    /// The client is told why not.
    Denied(Failure),
    /// Nobody is there any more.
    ClientLeft,
}

/// What came of coming back after a hold.
pub(super) enum Rejoined {
    /// It has a place.
    In,
    /// It waited too long for one.
    Denied(Failure),
    /// Nobody is there any more.
    ClientLeft,
}

impl Shared {
    /// Asks for admission and waits for a place if there is none.
    pub(super) async fn admit<B: ClientBody, A: ClientAnswer>(
        &self,
        exchange: &mut Exchange<'_, B, A>,
        route: &AppRoute,
        app: &AppState,
        normal: &Normal,
    ) -> Admitted {
        if self.pressure.is_full() {
            return Admitted::Denied(overload());
        }
        let limits = &route.settings.admission;
        let mut asker = asker(exchange.client, limits, normal);
        let most = self.enroll.terms.load().settings.retain_limit;
        asker.holds = asker.declared.unwrap_or(0).min(most);
        asker.room = self.pressure.room();
        let entered = match body_fits(&route.settings, normal) {
            Ok(()) => app.gate.enter(self.clock.now(), limits, &asker),
            Err(failure) => return Admitted::Denied(failure),
        };
        let permit = match entered {
            Ok(permit) => permit,
            Err(denied) => {
                count_share(&app.metrics, denied.share());
                if let Denied::Rate(standing) = &denied {
                    exchange.asked.fields = fields(standing);
                }
                return Admitted::Denied(denied.failure());
            }
        };
        if permit.has_large_body() {
            exchange.charge = Some(self.pressure.charge(asker.holds));
        }
        if let Some(standing) = permit.standing() {
            exchange.asked.fields = fields(standing);
        }
        let patience = limits.queue_wait;
        self.place(exchange.body, permit, patience, app).await
    }

    /// Gives an exchange that was held a place again, in the order of its first arrival.
    pub(super) async fn rejoin<B: ClientBody, A: ClientAnswer>(
        &self,
        exchange: &mut Exchange<'_, B, A>,
        route: &AppRoute,
        app: &AppState,
        patience: Duration,
    ) -> Rejoined {
        let Some(mut permit) = exchange.guard.take_permit() else {
            return Rejoined::In;
        };
        permit.rejoin();
        let patience = patience.min(route.settings.admission.queue_wait);
        match self.place(exchange.body, permit, patience, app).await {
            Admitted::Through(permit) => {
                exchange.guard.readmitted(permit);
                Rejoined::In
            }
            Admitted::Denied(failure) => Rejoined::Denied(failure),
            Admitted::ClientLeft => Rejoined::ClientLeft,
        }
    }

    /// Waits until the permit has its place.
    async fn place<B: ClientBody>(
        &self,
        body: &mut B,
        mut permit: Permit,
        patience: Duration,
        app: &AppState,
    ) -> Admitted {
        if !permit.is_waiting() {
            return Admitted::Through(permit);
        }
        if permit.waits_for_its_client() {
            count_share(&app.metrics, Some(Places::InFlight));
        }
        let since = self.clock.now();
        let _depth = app.metrics.queued();
        let mut shutdown = self.shutdown.clone();
        let waited = tokio::select! {
            biased;
            () = shutdown.draining() => Admitted::Denied(draining()),
            () = poll_fn(|cx| body.poll_left(cx)) => Admitted::ClientLeft,
            () = poll_fn(|cx| permit.poll_place(cx)) => Admitted::Through(permit),
            () = tokio::time::sleep(patience) => {
                let waited = self.clock.now() - since;
                Admitted::Denied(permit.waited(waited).failure())
            }
        };
        let waited_for = self.clock.now() - since;
        app.metrics.queue_waited(waited_for.as_secs_f64());
        waited
    }
}

/// Counts that a client's share was in the way, if it was.
pub(super) fn count_share(metrics: &AppMetrics, places: Option<Places>) {
    let places = match places {
        Some(Places::InFlight) => SharedPlaces::InFlight,
        Some(Places::Queue) => SharedPlaces::Queue,
        Some(Places::LongLived) => SharedPlaces::LongLived,
        Some(Places::LargeBodies) => SharedPlaces::LargeBodies,
        None => return,
    };
    metrics.share_reached(places);
}

/// The gateway itself is short of memory: nothing new is begun.
pub(super) fn overload() -> Failure {
    Failure::refused(Code::ServiceUnavailable, Reason::Overload)
        .with_detail("the gateway is short of memory")
}

fn asker(address: IpAddr, limits: &Admission, normal: &Normal) -> Asker {
    let by = limits
        .client_rate
        .as_ref()
        .and_then(|limit| limit.by.as_ref());
    let key = by.and_then(|name| normal.headers.get(name)).map(|value| {
        let mut key = [0; 16];
        key.copy_from_slice(&blake3::hash(value.as_bytes()).as_bytes()[..16]);
        Client::Key(key)
    });
    Asker {
        address,
        client: key.unwrap_or_else(|| Client::at(address)),
        declared: match normal.body {
            BodyLength::Exact(length) => Some(length),
            BodyLength::None | BodyLength::Streamed | BodyLength::Tunnel => None,
        },
        shape: match normal.kind {
            RequestKind::Upgrade(_) | RequestKind::ExtendedConnect(_) => Shape::Pipe,
            RequestKind::Plain if normal.grpc => Shape::Stream,
            RequestKind::Plain => Shape::Exchange,
        },
        holds: 0,
        room: u64::MAX,
    }
}

/// A declared length above the route's cap is refused before it takes anything.
fn body_fits(settings: &AppSettings, normal: &Normal) -> Result<(), Failure> {
    if let (Some(limit), BodyLength::Exact(length)) = (settings.max_body, normal.body)
        && length > limit
    {
        let failure = Failure::refused(Code::BodyTooLarge, Reason::BodyLimit);
        return Err(failure.with_detail(format!("max_body is {limit} bytes")));
    }
    Ok(())
}

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The limit that is nearest, in the words of the IETF's draft and in those that are in use.
fn fields(standing: &Standing) -> HeaderMap {
    let seconds = |span: Duration| span.as_secs() + u64::from(span.subsec_nanos() > 0);
    let (key, burst, left) = (standing.key(), standing.rate.burst, standing.remaining);
    let window = seconds(standing.window()).max(1);
    let reset = seconds(match standing.wait.is_zero() {
        true => standing.reset,
        false => standing.wait,
    });
    let mut fields = HeaderMap::with_capacity(5);
    let texts = [
        (RATE_LIMIT_POLICY, format!("\"{key}\";q={burst};w={window}")),
        (RATE_LIMIT, format!("\"{key}\";r={left};t={reset}")),
    ];
    for (name, text) in texts {
        if let Ok(value) = HeaderValue::from_str(&text) {
            fields.insert(name, value);
        }
    }
    fields.insert(X_LIMIT, burst.into());
    fields.insert(X_REMAINING, left.into());
    fields.insert(X_RESET, reset.into());
    fields
}

/// Adds the fields of a limit to an answer of the app. What the app says of its own limits stays.
pub(super) fn tell_limits(answer: &mut HeaderMap, limits: &HeaderMap) {
    if limits.keys().any(|name| answer.contains_key(name)) {
        return;
    }
    for (name, value) in limits {
        answer.insert(name, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admit::Of;
    use crate::config::Rate;

    fn standing(wait: Duration) -> Standing {
        Standing {
            rate: Rate {
                requests: 10,
                period: Duration::from_secs(1),
                burst: 25,
            },
            of: Of::Client,
            remaining: 7,
            reset: Duration::from_millis(1800),
            wait,
        }
    }

    fn field<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
        headers.get(name).and_then(|value| value.to_str().ok())
    }

    #[test]
    fn a_limit_is_told_in_both_spellings() {
        let headers = fields(&standing(Duration::ZERO));
        assert_eq!(
            field(&headers, "ratelimit"),
            Some("\"client_rate\";r=7;t=2")
        );
        assert_eq!(
            field(&headers, "ratelimit-policy"),
            Some("\"client_rate\";q=25;w=3")
        );
        assert_eq!(field(&headers, "x-ratelimit-limit"), Some("25"));
        assert_eq!(field(&headers, "x-ratelimit-remaining"), Some("7"));
        assert_eq!(field(&headers, "x-ratelimit-reset"), Some("2"));
        let headers = fields(&standing(Duration::from_millis(100)));
        assert_eq!(field(&headers, "x-ratelimit-reset"), Some("1"));
    }

    #[test]
    fn what_an_app_says_of_its_own_limits_stays() {
        let ours = fields(&standing(Duration::ZERO));
        let mut answer = HeaderMap::new();
        answer.insert("x-ratelimit-limit", 3.into());
        tell_limits(&mut answer, &ours);
        assert_eq!(answer.len(), 1);
        let mut answer = HeaderMap::new();
        tell_limits(&mut answer, &ours);
        assert_eq!(answer, ours);
    }
}
