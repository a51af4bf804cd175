//! What lets browser code of another origin read the verdict. The gateway's own answers only; an
//! app's answers keep whatever the app said.
//!
//! Credentials are never allowed: a preflight answered in the app's absence must not let a page
//! of a foreign origin send a request with cookies that the app, back by then, would take as
//! approved. For the same reason nothing is cached.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, StatusCode};

use super::{Answer, Asked, common};
use crate::error::Failure;

/// Our fields that scripts may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "X-Request-Id, Retry-After, Proxy-Status, Bridgehead-Code, Bridgehead-Delivery",
);
/// gRPC's status travels in fields, too.
const EXPOSED_GRPC: HeaderValue = HeaderValue::from_static(
    "X-Request-Id, Retry-After, Proxy-Status, Bridgehead-Code, Bridgehead-Delivery, Bridgehead-Reason, \
     Bridgehead-Stage, Bridgehead-Window, Bridgehead-Retry-Read, Bridgehead-Retry-Write, \
     Bridgehead-Outcome-Url, Grpc-Status, Grpc-Message",
);

/// What a preflight asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreflightAsked {
    /// `Access-Control-Request-Method`.
    pub method: HeaderValue,
    /// `Access-Control-Request-Headers`.
    pub headers: Option<HeaderValue>,
}

impl PreflightAsked {
    /// Reads a preflight: OPTIONS with `Origin` and `Access-Control-Request-Method`.
    #[must_use]
    pub fn of(method: &Method, headers: &HeaderMap) -> Option<Self> {
        if method != Method::OPTIONS || !headers.contains_key(header::ORIGIN) {
            return None;
        }
        Some(Self {
            method: headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?.clone(),
            headers: headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned(),
        })
    }
}

/// Answers a preflight that only the gateway can answer, so that the request itself gets its
/// verdict. `None` if the route forbids it or there is no origin.
#[must_use]
pub fn preflight(failure: &Failure, asked: &Asked, wanted: &PreflightAsked) -> Option<Answer> {
    if !asked.cors {
        return None;
    }
    let origin = asked.origin.clone()?;
    let mut headers = common(failure, asked);
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, wanted.method.clone());
    if let Some(fields) = &wanted.headers {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, fields.clone());
    }
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static("0"),
    );
    headers.insert(
        header::VARY,
        HeaderValue::from_static(
            "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        ),
    );
    Some(Answer {
        status: StatusCode::NO_CONTENT,
        headers,
        body: Bytes::new(),
        trailers_only_grpc: false,
    })
}

/// Adds the fields that let the asking origin read this answer.
pub(super) fn expose(asked: &Asked, headers: &mut HeaderMap) {
    if !asked.cors {
        return;
    }
    let Some(origin) = &asked.origin else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    let exposed = if asked.grpc { EXPOSED_GRPC } else { EXPOSED };
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
