//! The only place where a failure becomes an HTTP answer.
//!
//! | File | Holds |
//! |---|---|
//! | `envelope` | the JSON body, for programs |
//! | `html`, `template`, `words`, `russian`, `kept_out` | the page, for browsers that navigate; its look and its languages |
//! | `grpc` | the trailers-only answer |
//! | `cors` | what lets browser code of other origins read the verdict; preflight |
//! | `proxy_status` | the `Proxy-Status` field (RFC 9209) |
//! | `prefer` | what the client would rather read |
//! | `codes` | the table of codes, for `bh-gateway codes` and the well-known address |
//!
//! Pure: no clock, no I/O, no randomness. It must not decide a verdict; it says the one it is given.
//!
//! Invariants: every answer carries `Bridgehead-Code` and `Bridgehead-Delivery` (apps cannot send
//! these, so their presence proves who made the answer); no answer for `BH_APP_TIMEOUT` carries
//! `Retry-After` in any dialect; nothing from the request reaches a page unescaped.

mod codes;
mod cors;
mod envelope;
mod grpc;
mod html;
mod kept_out;
mod prefer;
mod proxy_status;
mod russian;
mod template;
mod words;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use uuid::Uuid;

use crate::error::Failure;
use crate::request::front::names_grpc;

pub use codes::{codes_json, codes_text};
pub use cors::{PreflightAsked, preflight};
pub use template::{Template, TemplateError};

/// Names the failure; see `protocol::verdict::Code`.
pub const BRIDGEHEAD_CODE: HeaderName = HeaderName::from_static("bridgehead-code");
/// The verdict; see `protocol::verdict::Delivery`.
pub const BRIDGEHEAD_DELIVERY: HeaderName = HeaderName::from_static("bridgehead-delivery");
/// The exchange's id, made at the edge. Diagnostic, not an idempotency key.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What of the request shapes its answer.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method.
    pub method: Method,
    /// `Accept`, several lines joined by commas.
    pub accept: Option<String>,
    /// `Accept-Language`, several lines joined by commas.
    pub accept_language: Option<String>,
    /// `Origin`, if there is exactly one.
    pub origin: Option<HeaderValue>,
    /// Set for a CORS preflight.
    pub preflight: Option<PreflightAsked>,
    /// A gRPC call over HTTP/2.
    pub grpc: bool,
    /// A WebSocket handshake, by upgrade or by extended CONNECT.
    pub websocket: bool,
    /// The exchange's id.
    pub request_id: Uuid,
    /// Whether browser code of other origins may read the verdict (setting of the route).
    pub cors: bool,
    /// Where the outcome can be asked for later.
    pub outcome_url: Option<String>,
    /// This gateway's node name.
    pub node: String,
    /// The operator's page; `None` = the built-in one.
    pub page: Option<Arc<Template>>,
    /// Fields beside the usual ones: where the client stands with its limits, what it lacks.
    pub fields: HeaderMap,
}

impl Asked {
    /// What the head of a request tells, hop-by-hop fields included if they are still there.
    ///
    /// `cors` is on, `outcome_url` and `page` are unset: the route and the ledger know these.
    /// `grpc` and `websocket` follow `Content-Type` and `Upgrade`; a caller that knows the protocol
    /// (HTTP/2's extended CONNECT; gRPC is none over HTTP/1) overwrites them.
    #[must_use]
    pub fn of(method: &Method, headers: &HeaderMap, request_id: Uuid, node: &str) -> Self {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let origin = origins.next().filter(|_| origins.next().is_none()).cloned();
        Self {
            method: method.clone(),
            accept: joined(headers, header::ACCEPT),
            accept_language: joined(headers, header::ACCEPT_LANGUAGE),
            origin,
            preflight: PreflightAsked::of(method, headers),
            grpc: text(header::CONTENT_TYPE).is_some_and(names_grpc),
            websocket: text(header::UPGRADE)
                .is_some_and(|value| value.eq_ignore_ascii_case("websocket")),
            request_id,
            cors: true,
            outcome_url: None,
            node: node.to_owned(),
            page: None,
            fields: HeaderMap::new(),
        }
    }
}

fn joined(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let lines: Vec<_> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

/// A complete answer. Framing (`Content-Length`, `Connection`) is the codec's.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// End-to-end fields.
    pub headers: HeaderMap,
    /// Body; empty for HEAD, preflights and gRPC.
    pub body: Bytes,
    /// The head is also the end of the stream (gRPC trailers-only).
    pub trailers_only_grpc: bool,
}

/// Puts a failure into the words its client understands.
#[must_use]
pub fn build(failure: &Failure, asked: &Asked) -> Answer {
    if let Some(wanted) = &asked.preflight
        && let Some(answer) = preflight(failure, asked, wanted)
    {
        return answer;
    }
    if asked.grpc {
        return grpc::answer(failure, asked);
    }
    let mut headers = common(failure, asked);
    let body = if wants_page(asked) {
        html::write(failure, asked, &mut headers)
    } else {
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        envelope::write(failure, asked)
    };
    cors::expose(asked, &mut headers);
    let body = if asked.method == Method::HEAD {
        Bytes::new()
    } else {
        Bytes::from(body)
    };
    Answer {
        status: status(failure),
        headers,
        body,
        trailers_only_grpc: false,
    }
}

fn wants_page(asked: &Asked) -> bool {
    asked.method == Method::GET
        && !asked.websocket
        && asked.accept.as_deref().is_some_and(prefer::page)
}

/// The row's status, or the failure's own; `Failure` admits nothing outside 400 to 599.
fn status(failure: &Failure) -> StatusCode {
    StatusCode::from_u16(failure.http_status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
}

/// The fields of every answer made by the gateway.
fn common(failure: &Failure, asked: &Asked) -> HeaderMap {
    let mut headers = asked.fields.clone();
    insert(
        &mut headers,
        X_REQUEST_ID,
        &asked.request_id.hyphenated().to_string(),
    );
    if let Some(seconds) = failure.pause() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    insert(
        &mut headers,
        proxy_status::PROXY_STATUS,
        &proxy_status::value(failure, &asked.node),
    );
    headers.insert(
        BRIDGEHEAD_CODE,
        HeaderValue::from_static(failure.code.as_str()),
    );
    headers.insert(
        BRIDGEHEAD_DELIVERY,
        HeaderValue::from_static(failure.delivery.as_str()),
    );
    headers
}

/// Inserts what is printable by construction; text that could not be a field value is left out
/// rather than repaired.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests;
