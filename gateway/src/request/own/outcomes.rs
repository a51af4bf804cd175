//! Asking what became of a request: by the id that its answer named, or by the caller's own key.
//!
//! `GET …/outcomes/ID`, or `GET …/outcomes/by-key/HOST` with the key in `Bridgehead-Outcome-Key`, so
//! that no address holds it; HOST is the one that the request was sent to. Whoever has the id or
//! the key may ask, from any origin; nothing else is needed and nothing else helps. Invariant: what
//! is not known is answered exactly like what was forgotten, so nobody learns which ids exist.

use bridgehead_protocol::verdict::{Code, Reason};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};

use super::super::front::{ClientAnswer, ClientBody};
use super::super::normalize::Normal;
use super::super::outcome::{self, OUTCOMES};
use super::super::{Exchange, Shared};
use crate::error::Failure;
use crate::ledger::{Outcome, OutcomeId, said};
use crate::route::host::Authority;

/// What stands for an id in the log: whoever could read it there could ask.
const MASKED: &str = "/.well-known/bridgehead/outcomes/*";
/// Before the host, when the key is in its field.
const BY_KEY: &str = "by-key/";

pub(super) async fn serve<B: ClientBody, A: ClientAnswer>(
    shared: &Shared,
    exchange: &mut Exchange<'_, B, A>,
    normal: &Normal,
) {
    let host = normal.host.as_str();
    exchange.guard.request(&normal.method, host, MASKED);
    let mut headers = HeaderMap::new();
    readable(&mut headers);
    match normal.method {
        Method::OPTIONS => {
            let (status, body) = (StatusCode::NO_CONTENT, Bytes::new());
            exchange.say(status, headers, body).await;
        }
        Method::GET | Method::HEAD => match find(shared, normal) {
            Ok(outcome) => {
                let json = HeaderValue::from_static("application/json");
                headers.insert(header::CONTENT_TYPE, json);
                let said = said(&outcome, shared.clock);
                // Words and numbers always serialise.
                let text = serde_json::to_string(&said).unwrap_or_default();
                let wanted = normal.method != Method::HEAD;
                let body = if wanted { text.into() } else { Bytes::new() };
                exchange.say(StatusCode::OK, headers, body).await;
            }
            Err(failure) => exchange.fail(&failure).await,
        },
        _ => {
            let failure = Failure::refused(Code::AppNotFound, Reason::NoRoute);
            exchange.fail(&failure).await;
        }
    }
}

/// Browser code of every origin may ask and read, without credentials: the id is the permission.
fn readable(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Bridgehead-Outcome-Key",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn find(shared: &Shared, normal: &Normal) -> Result<Outcome, Failure> {
    let name = normal.path().strip_prefix(OUTCOMES).unwrap_or_default();
    let now = shared.clock.now();
    let known = match name.strip_prefix(BY_KEY) {
        Some(host) => {
            let host = Authority::parse(host)
                .map_err(|error| bad(format!("the host behind by-key/ {error}")))?
                .host;
            let key = outcome::key(&normal.headers)
                .map_err(outcome::KeyFault::failure)?
                .ok_or_else(|| bad("by-key/ wants the key in Bridgehead-Outcome-Key"))?;
            let digest = shared.ledger.digest(host.as_str(), &key);
            shared.ledger.by_key(now, digest)
        }
        None => {
            let id = OutcomeId::parse(name).ok_or_else(|| {
                bad("an outcome id is 32 hexadecimal digits, as in an outcomeUrl")
            })?;
            shared.ledger.by_id(now, id)
        }
    };
    Ok(known.unwrap_or(Outcome::NOTHING))
}

fn bad(detail: impl Into<String>) -> Failure {
    Failure::refused(Code::BadRequest, Reason::BadRequest).with_detail(detail)
}
